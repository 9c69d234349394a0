"""The closed schema of a grid file, as pydantic models; ``pytest-redline schema`` prints it as JSON Schema.

These models say which keys exist and of what kind their values are. What the keys mean together is checked in
``grid.py``, which also turns the complaints of both into ``FILE:LINE key.path: ...``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from pytest_redline.spending import EARLY, EVERY

NAME_PATTERN = r"^\w[\w.-]*$"
Probability = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


def _one_complaint(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """One complaint where a union would make one for each of its types."""
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError("scalar_type", "text, a number, true, false or null is needed") from None


Scalar = Annotated[str | bool | int | float | None, WrapValidator(_one_complaint)]


def _kind(value: Any) -> str:
    """Short or long form of a value, so that an error speaks of one of them only; in <> as no key of a file is."""
    return "<map>" if isinstance(value, dict) else "<list>" if isinstance(value, list) else "<short>"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SampleModel(_Closed):
    """A random subset of the prompts, drawn before anything is served."""

    n: Annotated[int, Field(ge=1)] = Field(description="How many prompts.")
    seed: Annotated[int, Field(ge=0)] = Field(description="Seed of the draw, and of the order of serving.")
    shares: Annotated[dict[str, Probability], Field(min_length=1)] | None = Field(
        None, description="Share of each group in the subset, as in the traffic that the risk is claimed for."
    )


class SliceModel(_Closed):
    """A part of the prompts for this gate alone, drawn by a nonce once the candidate is frozen."""

    n: Annotated[int, Field(ge=1)] = Field(description="How many prompts a gate takes.")
    nonce: Text = Field(
        description="What draws the slice: env:NAME takes it from the environment, where CI puts what it drew for this "
        "run; the same nonce gives the same slice."
    )


class PromptsModel(_Closed):
    """The calibration prompts."""

    file: Text = Field(
        description="Prompts file with columns id, prompt, answer (for a source that serves them) and optional group: "
        "jsonl or csv, optionally gz, relative to the grid file. With recorded outcomes, every id must have an outcome "
        "for every configuration, and no other id may."
    )
    sample: SampleModel | None = Field(None, description="A random subset; for a source that serves the prompts.")
    slice: SliceModel | None = Field(None, description="A part that no earlier gate used, drawn by a nonce.")


class CostModel(_Closed):
    """How configurations are compared; the fastest certified one is deployed."""

    measure: Text = Field(
        description="tokens_per_forward, accepted_per_forward, tokens_per_second, seconds_per_prompt, or columns of "
        "your own: NAME (mean over prompts) or NAME/NAME (a ratio)."
    )
    better: Literal["higher", "lower"] | None = Field(None, description="Implied by the known measures.")
    pool: Literal["ratio_of_sums", "mean_of_ratios"] | None = Field(
        None, description="Sum of numerators over sum of denominators, or the mean of per-prompt ratios."
    )


Cost = Annotated[
    Annotated[Text, Tag("<short>")] | Annotated[CostModel, Tag("<map>")],
    Discriminator(_kind),
]


class CorrectModel(_Closed):
    """A column of verdicts that is not simply 1/0 or true/false."""

    column: Text
    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = Field(
        None, description="Right when the number is at or over this."
    )
    equals: Scalar = Field(None, description="Right when the value equals this; every other value is wrong.")
    loss: Literal["drop"] | None = Field(
        None, description="The value is a score from 0 to 1, and the loss how far it drops below the reference's."
    )
    repeats: Literal["mean_loss"] | None = Field(
        None,
        description="Several rows a prompt; its loss is the share of (reference, candidate) pairs of rows that are "
        "right and wrong. Every prompt of a configuration has equally many.",
    )
    test: Literal["hb", "wsr"] | None = Field(None, description="Test of a `loss` or of `repeats`.")
    seed: Annotated[int, Field(ge=0)] | None = Field(
        None, description="With wsr: the seed of the order in which it takes the prompts; 0 by default."
    )


class ColumnsModel(BaseModel):
    """Column names of a recording: a name, keys of nested objects joined by dots, or a path with {config} in it.

    Keys beyond the named ones name measures: ``{seconds: timing.total}``.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, Text]

    prompt: Annotated[
        Annotated[Text, Tag("<short>")] | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
        Discriminator(_kind),
    ] = Field("prompt", description="Prompt id, or the columns that make it up together.")
    correct: Annotated[
        Annotated[Text, Tag("<short>")] | Annotated[CorrectModel, Tag("<map>")], Discriminator(_kind)
    ] = Field("correct", description="Verdict: 1/0 or true/false, else say how to read it.")
    config: Text = Field("config", description="Label of the configuration.")
    group: Text | None = Field(None, description="Group of the prompt, for risks by group.")
    prompt_text: Text | None = Field(None, description="Text of the prompt; one id must always have the same.")
    prompt_hash: Text | None = Field(None, description="Hash of the prompt; one id must always have the same.")
    output: Text | None = Field(None, description="Answer text, to recognise a candidate that changes nothing.")


class OutcomesModel(_Closed):
    """Recorded outcomes."""

    file: Text | None = Field(
        None,
        description="CSV or JSONL, optionally gz, relative to the grid file; absent when each configuration names its "
        "own file with `log:`.",
    )
    columns: ColumnsModel = Field(default_factory=lambda: ColumnsModel.model_validate({}))
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        None, description="Refuse the recording when its bytes changed."
    )


class EngineModel(BaseModel):
    """The bundled block-diffusion engine; further keys are knobs of every configuration that does not set them."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    checkpoint: Text = Field(description="bundled:NAME, or a directory in the Hugging Face layout.")
    device: Text = Field("auto", description="auto, cpu, cuda, or another name that PyTorch knows.")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="Type of weights and arithmetic.")
    weights: Literal["float32", "bfloat16", "int8", "int4"] | None = Field(
        None, description="Precision in which the linear layers' weights are kept; as dtype by default."
    )
    template: Literal["none", "sdar-chat", "sdar-math", "llada2-chat", "llada2-math"] | None = Field(
        None,
        description="Turns that are put around each prompt. By default that of the checkpoint's family for the grader, "
        "if the checkpoint holds a chat template; else none.",
    )
    mask_id: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Token at an unresolved position, where the checkpoint's files do not say it."
    )
    end_ids: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, description="Tokens that end a reply, where the checkpoint's files do not say them."
    )
    batch_size: Annotated[int, Field(ge=1, le=65536)] = Field(256, description="Decode states in one forward pass.")


class SourceModel(BaseModel):
    """Where outcomes come from; one of the keys."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, json_schema_extra={"minProperties": 1, "maxProperties": 1}
    )

    outcomes: (
        Annotated[
            Annotated[Text, Tag("<short>")] | Annotated[OutcomesModel, Tag("<map>")],
            Discriminator(_kind),
        ]
        | None
    ) = Field(None, description="Outcomes that were recorded earlier.")
    engine: EngineModel | None = Field(None, description="The bundled engine serves the prompts.")


class ConfigurationModel(BaseModel):
    """Knobs of a configuration, in its source's vocabulary, beside `log` and `cost`."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    __pydantic_extra__: dict[str, JsonValue]

    log: Text | None = Field(None, description="File of this configuration's outcomes, relative to the grid file.")
    cost: (
        Annotated[
            Annotated[Literal["unknown"], Tag("<text>")]
            | Annotated[float, Field(gt=0, allow_inf_nan=False), Tag("<number>")],
            Discriminator(lambda value: "<text>" if isinstance(value, str) else "<number>"),
        ]
        | None
    ) = Field(None, description="Measured speed (higher is better unless the grid's cost says lower), or unknown.")


class ServingModel(_Closed):
    """The serving config file that this repository deploys."""

    file: Text = Field(description="YAML, JSON or TOML file, relative to the grid file.")
    keys: dict[str, Text] = Field(min_length=1, description="Knob to the key of the file, nested keys joined by dots.")


class GroupsModel(_Closed):
    """Risk by group of prompts."""

    by: Text = Field(description="Column that holds the group.")
    alpha: dict[str, Probability] = Field(
        default_factory=dict, description="Budgets of single groups, beside the pooled one."
    )


class PopulationModel(_Closed):
    """What the prompts were drawn from, and how."""

    name: Text = Field(description="What the prompts were drawn from, in words.")
    design: Literal["independent", "stratified", "finite_pool", "census"] = Field(
        description="independent: each by itself; stratified: independently, a fixed number of each group; "
        "finite_pool: without replacement from `pool` prompts, which the claim is then about; census: they are all."
    )
    pool: Annotated[int, Field(ge=1)] | None = Field(None, description="With finite_pool: how many prompts it holds.")


class ClustersModel(_Closed):
    """Prompts that fail together, such as those of one template or conversation, and what is done about it."""

    by: Text = Field(description="Column that holds the cluster of a prompt.")
    remedy: Literal["one_per_cluster", "cluster_means"] = Field(
        description="Keep one random prompt of each cluster, or test the mean losses of the clusters."
    )
    test: Literal["hb", "wsr"] | None = Field(None, description="With cluster_means: the test of the means.")
    seed: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Seed of the choice, or of the order in which wsr takes the clusters; 0 by default."
    )


class MixModel(_Closed):
    """The traffic that the risk is claimed for, where the prompts hold its groups in other shares."""

    shares: Annotated[dict[str, Probability], Field(min_length=1)] = Field(
        description="Share of each group in the traffic; together 1."
    )
    test: Literal["hb"] = Field(
        description="The reweighted losses are tested by Hoeffding-Bentkus: a weighted count is no binomial."
    )


class RiskModel(_Closed):
    """One more risk that must hold for a candidate to be certified, beside that of wrong answers.

    Without `over`, `under` or `loss`, the measure says yes or no, and a prompt counts where the reference has yes and
    the candidate no.
    """

    alpha: Probability = Field(description="Budget of this risk, fixed before the data.")
    measure: Text = Field(
        description="What it is about: a column of your own, or tokens, forwards, and with the engine also finished "
        "(the reply ended by itself)."
    )
    over: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="A prompt counts where the candidate is over this and the reference is not."
    )
    under: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        None, description="A prompt counts where the candidate is under this and the reference is not."
    )
    loss: Literal["drop"] | None = Field(
        None, description="The measure is a score from 0 to 1, and the loss how far it drops below the reference's."
    )
    test: Literal["hb", "wsr"] | None = Field(
        None, description="Test of a `loss`: Hoeffding-Bentkus, or betting (Waudby-Smith and Ramdas)."
    )
    seed: Annotated[int, Field(ge=0)] | None = Field(
        None, description="With wsr: the seed of the order in which it takes the prompts; 0 by default."
    )


class LooksModel(_Closed):
    """Looks at the outcomes at sizes fixed before the data."""

    at: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2)] = Field(
        description="Numbers of prompts, rising; the last is all of them."
    )
    early: Probability = Field(EARLY, description="Share of the level for all looks but the last, equally.")


class StoppingModel(_Closed):
    """When a configuration is not served further; verdicts are those of the full run. For a source that serves."""

    curtail: bool = Field(True, description="Stop a candidate that can no longer be certified.")
    looks: (
        Annotated[
            Annotated[Annotated[int, Field(ge=2, le=1000)], Tag("<short>")] | Annotated[LooksModel, Tag("<map>")],
            Discriminator(_kind),
        ]
        | None
    ) = Field(None, description="Stop a candidate that is certified at a look: so many at equal distances, or where.")
    candidates: Literal["everywhere", "where_reference_right"] = Field(
        "everywhere", description="Prompts that candidates are served; gained and net accuracy need everywhere."
    )
    every: Annotated[int, Field(ge=1)] = Field(EVERY, description="Prompts between two decisions.")


class NoiseFloorModel(_Closed):
    """The second run of the reference, where every configuration has a recording of its own."""

    log: Text = Field(description="File of that run's outcomes, relative to the grid file.")


class SpendingModel(_Closed):
    """A failure probability that all statements on the same prompts share."""

    total: Probability = Field(description="Of all statements together.")
    spend: Literal["series"] | None = Field(
        None, description="Statement t gets total * 6 / (pi * t)**2, however many there will be."
    )
    gates: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Each of so many statements gets an equal part; then the prompts are used up."
    )


class WeightsModel(_Closed):
    """Weights in Holm's procedure, fixed before any outcome."""

    serving: Probability = Field(
        description="Share of the weight on the configuration that is served; all else divides the rest equally."
    )


class GridModel(_Closed):
    """One grid of serving configurations: a reference, candidates, and a risk budget."""

    redline: Annotated[int, Field(ge=1, le=1)] = Field(description="Version of this format: 1.")
    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=100)] = Field(
        description="Names the certificate and its files."
    )
    population: (
        Annotated[
            Annotated[Text, Tag("<short>")] | Annotated[PopulationModel, Tag("<map>")],
            Discriminator(_kind),
        ]
        | None
    ) = Field(None, description="What the prompts were drawn from; the promise is made about it and nothing else.")
    prompts: PromptsModel | None = None
    grade: Text | None = Field(None, description="Grader of served answers: math or boxed.")
    alpha: Probability | None = Field(None, description="Risk budget, fixed before the data.")
    delta: (
        Annotated[
            Annotated[Probability, Tag("<short>")] | Annotated[SpendingModel, Tag("<map>")],
            Discriminator(_kind),
        ]
        | None
    ) = Field(
        None,
        description="Failure probability over the whole grid, 0.1 by default; a map shares it over statements.",
    )
    weights: WeightsModel | None = Field(None, description="Who gets how much of delta; stated before any outcome.")
    cost: Cost | None = None
    source: SourceModel
    reference: Text = Field(description="Label of the conservative configuration.")
    configurations: dict[str, ConfigurationModel | None] = Field(default_factory=dict)
    grid: dict[str, Annotated[list[Scalar], Field(min_length=1)]] = Field(
        default_factory=dict, description="Product of knob values, labelled automatically."
    )
    serving: (
        Annotated[
            Annotated[Text, Tag("<short>")] | Annotated[ServingModel, Tag("<map>")],
            Discriminator(_kind),
        ]
        | None
    ) = Field(None, description="What this repository deploys: a label, or its serving config file.")
    groups: GroupsModel | None = None
    clusters: ClustersModel | None = None
    mix: MixModel | None = None
    risks: dict[str, RiskModel] = Field(
        default_factory=dict, description="Further risks by name, such as format or latency; all of them must hold."
    )
    stopping: StoppingModel | None = Field(
        None, description="Serve less than everything, with the verdicts of a full run; for a source that serves."
    )
    noise_floor: (
        Annotated[
            Annotated[bool, Tag("<flag>")] | Annotated[Text, Tag("<short>")] | Annotated[NoiseFloorModel, Tag("<map>")],
            Discriminator(lambda value: "<flag>" if isinstance(value, bool) else _kind(value)),
        ]
        | None
    ) = Field(
        None,
        description="A second run of the reference, to tell losses from run-to-run noise: true serves it again; for "
        "recorded outcomes the label of its rows, or its file.",
    )
    lossless: list[Text] = Field(
        default_factory=list,
        description="Labels of candidates that should change no answer; one that is worse than the second run of the "
        "reference fails.",
    )


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a grid file, for editors and `check-jsonschema`."""
    schema = GridModel.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Redline grid file",
        **{key: value for key, value in schema.items() if key != "title"},
    }
