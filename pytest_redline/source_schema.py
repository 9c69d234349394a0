"""The keys below ``source:`` of a grid file, as pydantic models, and what all models of its keys have in common."""

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

Probability = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


def _one_complaint(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """One complaint where a union would make one for each of its types."""
    try:
        return validate(value)
    except ValidationError:
        raise PydanticCustomError("scalar_type", "text, a number, true, false or null is needed") from None


Scalar = Annotated[str | bool | int | float | None, WrapValidator(_one_complaint)]


def kind_of(value: Any) -> str:
    """Short or long form of a value, so that an error speaks of one of them only; in <> as no key of a file is."""
    return "<map>" if isinstance(value, dict) else "<list>" if isinstance(value, list) else "<short>"


class ClosedKeys(BaseModel):
    """Keys that take no others beside them, and values of no other type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CorrectModel(ClosedKeys):
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
        Discriminator(kind_of),
    ] = Field("prompt", description="Prompt id, or the columns that make it up together.")
    correct: Annotated[
        Annotated[Text, Tag("<short>")] | Annotated[CorrectModel, Tag("<map>")], Discriminator(kind_of)
    ] = Field("correct", description="Verdict: 1/0 or true/false, else say how to read it.")
    config: Text = Field("config", description="Label of the configuration.")
    group: Text | None = Field(None, description="Group of the prompt, for risks by group.")
    prompt_text: Text | None = Field(None, description="Text of the prompt; one id must always have the same.")
    prompt_hash: Text | None = Field(None, description="Hash of the prompt; one id must always have the same.")
    output: Text | None = Field(None, description="Answer text, to recognise a candidate that changes nothing.")


class OutcomesModel(ClosedKeys):
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
    cuda_graphs: bool = Field(False, description="Record small batches as CUDA graphs; needs a CUDA device.")


class SourceModel(BaseModel):
    """Where outcomes come from; one of the keys."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, json_schema_extra={"minProperties": 1, "maxProperties": 1}
    )

    outcomes: (
        Annotated[
            Annotated[Text, Tag("<short>")] | Annotated[OutcomesModel, Tag("<map>")],
            Discriminator(kind_of),
        ]
        | None
    ) = Field(None, description="Outcomes that were recorded earlier.")
    engine: EngineModel | None = Field(None, description="The bundled engine serves the prompts.")
