"""The closed schema of a grid file, as pydantic models; ``pytest-redline schema`` prints it as JSON Schema.

These models say which keys exist and of what kind their values are. What the keys mean together is checked in
``grid_rules.py``; ``complaints.py`` turns the complaints of both into ``FILE:LINE key.path: ...``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag

from pytest_redline.source_schema import ClosedKeys, Probability, Scalar, SourceModel, Text, kind_of
from pytest_redline.spending import EARLY, EVERY

NAME_PATTERN = r"^\w[\w.-]*$"


class SampleModel(ClosedKeys):
    """A random subset of the prompts, drawn before anything is served."""

    n: Annotated[int, Field(ge=1)] = Field(description="How many prompts.")
    seed: Annotated[int, Field(ge=0)] = Field(description="Seed of the draw, and of the order of serving.")
    shares: Annotated[dict[str, Probability], Field(min_length=1)] | None = Field(
        None, description="Share of each group in the subset, as in the traffic that the risk is claimed for."
    )


class SliceModel(ClosedKeys):
    """A part of the prompts for this gate alone, drawn by a nonce once the candidate is frozen."""

    n: Annotated[int, Field(ge=1)] = Field(description="How many prompts a gate takes.")
    nonce: Text = Field(
        description="What draws the slice: env:NAME takes it from the environment, where CI puts what it drew for this "
        "run; the same nonce gives the same slice."
    )


class PromptsModel(ClosedKeys):
    """The calibration prompts."""

    file: Text = Field(
        description="Prompts file with columns id, prompt, answer (for a source that serves them) and optional group: "
        "jsonl or csv, optionally gz, relative to the grid file. With recorded outcomes, every id must have an outcome "
        "for every configuration, and no other id may."
    )
    sample: SampleModel | None = Field(None, description="A random subset; for a source that serves the prompts.")
    slice: SliceModel | None = Field(None, description="A part that no earlier gate used, drawn by a nonce.")


class CostModel(ClosedKeys):
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
    Discriminator(kind_of),
]


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


class ServingModel(ClosedKeys):
    """The serving config file that this repository deploys."""

    file: Text = Field(description="YAML, JSON or TOML file, relative to the grid file.")
    keys: dict[str, Text] = Field(min_length=1, description="Knob to the key of the file, nested keys joined by dots.")


class GroupsModel(ClosedKeys):
    """Risk by group of prompts."""

    by: Text = Field(description="Column that holds the group.")
    alpha: dict[str, Probability] = Field(
        default_factory=dict, description="Budgets of single groups, beside the pooled one."
    )


class PopulationModel(ClosedKeys):
    """What the prompts were drawn from, and how."""

    name: Text = Field(description="What the prompts were drawn from, in words.")
    design: Literal["independent", "stratified", "finite_pool", "census"] = Field(
        description="independent: each by itself; stratified: independently, a fixed number of each group; "
        "finite_pool: without replacement from `pool` prompts, which the claim is then about; census: they are all."
    )
    pool: Annotated[int, Field(ge=1)] | None = Field(None, description="With finite_pool: how many prompts it holds.")


class ClustersModel(ClosedKeys):
    """Prompts that fail together, such as those of one template or conversation, and what is done about it."""

    by: Text = Field(description="Column that holds the cluster of a prompt.")
    remedy: Literal["one_per_cluster", "cluster_means"] = Field(
        description="Keep one random prompt of each cluster, or test the mean losses of the clusters."
    )
    test: Literal["hb", "wsr"] | None = Field(None, description="With cluster_means: the test of the means.")
    seed: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Seed of the choice, or of the order in which wsr takes the clusters; 0 by default."
    )


class MixModel(ClosedKeys):
    """The traffic that the risk is claimed for, where the prompts hold its groups in other shares."""

    shares: Annotated[dict[str, Probability], Field(min_length=1)] = Field(
        description="Share of each group in the traffic; together 1."
    )
    test: Literal["hb"] = Field(
        description="The reweighted losses are tested by Hoeffding-Bentkus: a weighted count is no binomial."
    )


class RiskModel(ClosedKeys):
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


class LooksModel(ClosedKeys):
    """Looks at the outcomes at sizes fixed before the data."""

    at: Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=2)] = Field(
        description="Numbers of prompts, rising; the last is all of them."
    )
    early: Probability = Field(EARLY, description="Share of the level for all looks but the last, equally.")


class StoppingModel(ClosedKeys):
    """When a configuration is not served further; verdicts are those of the full run. For a source that serves."""

    curtail: bool = Field(True, description="Stop a candidate that can no longer be certified.")
    looks: (
        Annotated[
            Annotated[Annotated[int, Field(ge=2, le=1000)], Tag("<short>")] | Annotated[LooksModel, Tag("<map>")],
            Discriminator(kind_of),
        ]
        | None
    ) = Field(None, description="Stop a candidate that is certified at a look: so many at equal distances, or where.")
    candidates: Literal["everywhere", "where_reference_right"] = Field(
        "everywhere", description="Prompts that candidates are served; gained and net accuracy need everywhere."
    )
    every: Annotated[int, Field(ge=1)] = Field(EVERY, description="Prompts between two decisions.")


class NoiseFloorModel(ClosedKeys):
    """The second run of the reference, where every configuration has a recording of its own."""

    log: Text = Field(description="File of that run's outcomes, relative to the grid file.")


class SpendingModel(ClosedKeys):
    """A failure probability that all statements on the same prompts share."""

    total: Probability = Field(description="Of all statements together.")
    spend: Literal["series"] | None = Field(
        None, description="Statement t gets total * 6 / (pi * t)**2, however many there will be."
    )
    gates: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Each of so many statements gets an equal part; then the prompts are used up."
    )


class WeightsModel(ClosedKeys):
    """Weights in Holm's procedure, fixed before any outcome."""

    serving: Probability = Field(
        description="Share of the weight on the configuration that is served; all else divides the rest equally."
    )


class GridModel(ClosedKeys):
    """One grid of serving configurations: a reference, candidates, and a risk budget."""

    redline: Annotated[int, Field(ge=1, le=1)] = Field(description="Version of this format: 1.")
    name: Annotated[str, Field(pattern=NAME_PATTERN, max_length=100)] = Field(
        description="Names the certificate and its files."
    )
    population: (
        Annotated[
            Annotated[Text, Tag("<short>")] | Annotated[PopulationModel, Tag("<map>")],
            Discriminator(kind_of),
        ]
        | None
    ) = Field(None, description="What the prompts were drawn from; the promise is made about it and nothing else.")
    prompts: PromptsModel | None = None
    grade: Text | None = Field(None, description="Grader of served answers: math or boxed.")
    alpha: Probability | None = Field(None, description="Risk budget, fixed before the data.")
    delta: (
        Annotated[
            Annotated[Probability, Tag("<short>")] | Annotated[SpendingModel, Tag("<map>")],
            Discriminator(kind_of),
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
            Discriminator(kind_of),
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
            Discriminator(lambda value: "<flag>" if isinstance(value, bool) else kind_of(value)),
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
