"""What a certificate holds: closed pydantic models, plain JSON types only.

``pytest-redline schema --certificate`` prints them as JSON Schema. Rates are fractions, ``net_accuracy`` is in
percentage points, gains are fractions (0.375 is 37.5 % faster). Every count is an integer.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from pytest_redline.noise_schema import Bounds, Count, NoiseResult, PackedReplicate

Verdict = Literal["reference", "certified", "undecided", "breach", "not needed"]
Probability = Annotated[float, Field(gt=0, lt=1)]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    left_out: ClassVar[tuple[str, ...]] = ()  # fields that are written only where they differ from their default

    @model_serializer(mode="wrap")
    def _only_what_there_is(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = plain(self)
        for name in self.left_out:
            if getattr(self, name) == type(self).model_fields[name].default:
                data.pop(name, None)
        return data


class StatedDesign(_Closed):
    """How the prompts were drawn, where not each by itself; ``sizes`` are those of the strata."""

    kind: Literal["stratified", "finite_pool", "census"]
    pool: Annotated[int, Field(gt=0)] | None
    sizes: dict[str, Annotated[int, Field(gt=0)]] | None


class StatedClusters(_Closed):
    """How prompts cluster, ``n`` of them by the column ``by``, and what is done about it."""

    by: str
    remedy: Literal["one_per_cluster", "cluster_means"]
    test: Literal["exact", "hb", "wsr"]
    seed: Count
    n: Annotated[int, Field(gt=0)]
    sha256: str


class StatedLoss(_Closed):
    """What is lost on a prompt, where a verdict is a score (drop) or a mean over repeats, and how that is tested."""

    kind: Literal["drop", "repeats"]
    test: Literal["hb", "wsr"]
    seed: Count


class StatedMix(_Closed):
    """The traffic that the risk is claimed for: the share of each group."""

    shares: dict[str, Probability]
    test: Literal["hb"]


class StatedSlice(_Closed):
    """What a slice was drawn from: the pool's file, its number of prompts and hash of ids, a hash of the nonce."""

    file: str
    pool: Annotated[int, Field(gt=0)]
    sha256: str
    nonce: str


class PromptSet(_Closed):
    """The calibration prompts, by the hash of their ids in natural order.

    ``content`` is a hash of their texts and expected answers where these are known, ``sample`` the size and seed of the
    random draw that chose them from their file, ``shares`` what share of it each group has, ``slice`` the pool of which
    they are a part for this gate alone.
    """

    left_out: ClassVar[tuple[str, ...]] = ("design", "shares", "slice")

    n: Annotated[int, Field(gt=0)]
    sha256: str
    content: str | None
    sample: dict[Literal["n", "seed"], int] | None
    population: str
    design: StatedDesign | None = None
    shares: dict[str, Probability] | None = None
    slice: StatedSlice | None = None


class StatedConfiguration(_Closed):
    """A configuration as it was declared."""

    label: str
    knobs: dict[str, JsonValue]


class StatedGroups(_Closed):
    """How prompts fall into groups, and the budgets of single groups."""

    by: str
    alpha: dict[str, Probability]
    sha256: str


class StatedRisk(_Closed):
    """One more risk that had to hold, and its budget.

    A prompt is violated where the reference meets the requirement and a configuration does not: ``measure`` is 1, not
    over ``over``, or not under ``under``. With a ``test`` other than exact the loss is by how much ``measure`` drops;
    ``seed`` gives the order in which wsr takes the prompts.
    """

    name: str
    measure: str
    alpha: Probability
    over: float | None
    under: float | None
    test: Literal["exact", "hb", "wsr"]
    seed: Count


class StatedLooks(_Closed):
    """Numbers of prompts at which a p-value is taken, the share of the level for all but the last of them, and a hash
    of the ids of the prompts in their random order.
    """

    sizes: list[Annotated[int, Field(gt=0)]]
    early: Probability
    order: str


class StatedSpending(_Closed):
    """delta is that of all statements on these prompts: by the series, or in equal parts of so many ``gates``."""

    gates: Annotated[int, Field(ge=1)] | None


class StatedWeight(_Closed):
    """The share of the weight in Holm's procedure that one configuration has; all else divides the rest."""

    label: str
    share: Probability


class Statement(_Closed):
    """Everything that is claimed, fixed before the data; ``hash`` identifies it.

    ``checkpoints`` maps what configurations name as their checkpoint to a hash of its files, where they were served.
    ``looks`` is there only where the grid declares some.
    ``lossless`` names the configurations that were declared to change no answer, where there are any.
    """

    left_out: ClassVar[tuple[str, ...]] = (
        "risks",
        "clusters",
        "loss",
        "mix",
        "looks",
        "lossless",
        "spending",
        "weight",
    )

    hash: str
    prompts: PromptSet
    grader: str
    reference: str
    configurations: list[StatedConfiguration]
    alpha: Probability
    delta: Probability
    groups: StatedGroups | None
    checkpoints: dict[str, str]
    risks: list[StatedRisk] = []
    clusters: StatedClusters | None = None
    loss: StatedLoss | None = None
    mix: StatedMix | None = None
    looks: StatedLooks | None = None
    lossless: list[str] = []
    spending: StatedSpending | None = None
    weight: StatedWeight | None = None

    @property
    def test(self) -> Literal["exact", "hb", "wsr"]:
        """How wrong answers are tested."""
        if self.mix is not None:
            return self.mix.test
        return self.loss.test if self.loss else self.clusters.test if self.clusters else "exact"


class Cost(_Closed):
    """What made one configuration faster than another."""

    name: str
    better: Literal["higher", "lower"]
    pool: Literal["ratio_of_sums", "mean_of_ratios"]
    numerator: str | None
    denominator: str | None
    declared: bool


class Change(_Closed):
    """A knob that differs from the reference; null where it is not set."""

    knob: str
    reference: JsonValue
    configuration: JsonValue


class Needed(_Closed):
    """What a configuration that is not certified lacks.

    ``level`` is what its p-value would have to reach with all others as they are. ``violations_fewer``: by how many
    k is too large, in all ("all"), in a group with a budget, or for a declared risk.
    ``mean_losses``: what the mean of losses between 0 and 1 would have to be there, negative where none is so small.
    ``prompts``: about how many prompts of a new draw would certify it with probability 0.8, were its risks as
    measured; null where no number would.
    """

    left_out: ClassVar[tuple[str, ...]] = ("mean_losses",)

    level: float
    violations_fewer: dict[str, Annotated[int, Field(gt=0)]]
    mean_losses: dict[str, float] = {}
    prompts: int | None


class ConfigurationResult(_Closed):
    """One row of the grid.

    ``risk_interval`` is the two-sided 95 % Clopper-Pearson interval of this row alone, ``risk_upper`` its one-sided
    bound at delta. The ``_simultaneous`` bounds hold for all candidates together at delta, whatever alpha is chosen
    afterwards. Intervals of net accuracy and gain are 95 % paired-bootstrap intervals, for deployed and required rows.

    Where a row was not served in full, ``unknown`` counts the losses that are not known and ``k`` those known to be
    violations. p is then the most it can be for a row that is certified, and the least for one that can no longer be;
    bounds count what is not known against the row (upper) or for it (lower); what cannot be said without it is null.
    """

    left_out: ClassVar[tuple[str, ...]] = ("unknown",)

    label: str
    verdict: Verdict
    certified: bool
    required: bool
    inert: bool
    k: Count
    unknown: Count = 0
    n: Annotated[int, Field(gt=0)]
    joint_risk: float | None
    p: float | None
    level: float
    gained: Count | None
    accuracy: float | None
    net_accuracy: float | None
    net_accuracy_interval: Bounds | None
    risk_interval: Bounds | None
    risk_upper: float
    risk_upper_simultaneous: float
    risk_lower_simultaneous: float
    cost: Annotated[float, Field(gt=0)] | None
    gain: float | None
    gain_interval: Bounds | None
    needed: Needed | None
    changes: list[Change]


class GroupRow(_Closed):
    """One configuration on the prompts of one group; p only where the group has a budget."""

    left_out: ClassVar[tuple[str, ...]] = ("unknown",)

    label: str
    k: Count
    unknown: Count = 0
    joint_risk: float | None
    p: float | None
    risk_interval: Bounds | None
    gained: Count | None
    accuracy: float | None
    net_accuracy: float | None
    net_accuracy_interval: Bounds | None
    gain: float | None
    gain_interval: Bounds | None


class GroupResult(_Closed):
    """All configurations on the prompts of one group."""

    name: str
    n: Annotated[int, Field(gt=0)]
    alpha: float | None
    configurations: list[GroupRow]


class RiskRow(_Closed):
    """One configuration under a declared risk.

    ``k`` counts the prompts on which it loses against the reference, ``gained`` those on which it wins; ``risk`` is the
    mean loss.
    """

    label: str
    k: Count
    gained: Count
    risk: float
    p: float


class RiskResult(_Closed):
    """All configurations under one declared risk, on n prompts or clusters; ``loss`` says in words what counts."""

    name: str
    loss: str
    test: Literal["exact", "hb", "wsr"]
    n: Annotated[int, Field(gt=0)]
    alpha: float
    configurations: list[RiskRow]


class FrontierRow(_Closed):
    """What would be deployed had this alpha been declared."""

    alpha: float
    deployed: str
    certified: Count


class Frontier(_Closed):
    """A description, not a certificate: the promise holds for the one alpha that was fixed before the data."""

    note: str
    alpha_min: float | None
    rows: list[FrontierRow]


class FileRecord(_Closed):
    """A file that was read."""

    path: str
    sha256: str


class WeightsRecord(_Closed):
    """Precision in which a model's weights were kept, and the share of its bytes that each precision takes."""

    checkpoint: str
    dtype: str
    weights: str
    shares: dict[str, float]


class Provenance(_Closed):
    """What the certificate was made from."""

    left_out: ClassVar[tuple[str, ...]] = ("weights",)

    grid: FileRecord | None = None
    outcomes: list[FileRecord] = []
    prompts: FileRecord | None = None
    serving_file: FileRecord | None = None
    serving_keys: dict[str, str] = {}
    weights: list[WeightsRecord] = []
    versions: dict[str, str] = {}


class Reuse(_Closed):
    """What earlier statements on these prompts mean for this one.

    Left out where there are none, unless delta is shared out over statements or a weight is declared.

    ``number`` says which statement it is. ``counted`` counts the configurations whose outcomes on these prompts are
    known, those of this grid included: Holm's m. ``together`` is the sum of delta over the statements up to this one,
    1 at most. ``before``: the statement was recorded before any outcome on these prompts was known. ``pool`` names
    the pool that the promise is about where another random part of it was judged before.
    """

    number: Annotated[int, Field(ge=1)]
    counted: Annotated[int, Field(ge=2)]
    together: Annotated[float, Field(gt=0, le=1)]
    before: bool
    pool: str | None = None


class Sharing(_Closed):
    """What serving configurations together saved: forwards that were run, and that each would have needed alone."""

    forwards_run: Count
    forwards_charged: Count


class Spent(_Closed):
    """What was served of all generations, and by which rules the rest was not.

    ``every`` is the number of prompts between two decisions, ``cost_prompts`` the number of prompts that costs are
    compared on: those that the reference and every certified configuration were served.
    """

    curtail: bool
    candidates: Literal["everywhere", "where_reference_right"]
    deploy_only: bool
    every: Annotated[int, Field(gt=0)]
    generations_run: Count
    generations_full: Count
    share: float
    by_configuration: dict[str, Count]
    cost_prompts: Count


class PackedOutcomes(_Closed):
    """The outcomes themselves, packed as ``packing.py`` says, so that everything above can be recomputed.

    ``known``, which prompts each configuration was served, and ``order``, in which order, are there only where not
    everything had to be served.
    """

    left_out: ClassVar[tuple[str, ...]] = ("clusters", "scores", "known", "order", "replicate")

    prompts: str
    groups: str | None
    correct: dict[str, str]
    measures: dict[str, dict[str, str]]
    outputs: dict[str, str] | None
    clusters: str | None = None
    scores: dict[str, str] | None = None
    known: dict[str, str] | None = None
    order: str | None = None
    replicate: PackedReplicate | None = None


class Certificate(_Closed):
    """The risk certificate of one grid."""

    left_out: ClassVar[tuple[str, ...]] = ("sharing", "reuse", "spent", "risks", "noise_floor")

    redline_certificate: Literal[1] = 1
    name: str
    statement: Statement
    alpha: float
    delta: float
    n: Annotated[int, Field(gt=0)]
    m: Annotated[int, Field(gt=1)]
    reference: str
    serving: str | None
    deployed: str
    promise: str
    cost: Cost | None
    configurations: list[ConfigurationResult]
    groups: list[GroupResult]
    risks: list[RiskResult] = []
    noise_floor: NoiseResult | None = None
    frontier: Frontier | None
    bootstrap: dict[str, int]
    warnings: list[str]
    sharing: Sharing | None = None
    reuse: Reuse | None = None
    spent: Spent | None = None
    provenance: Provenance
    outcomes: PackedOutcomes
    digest: str = ""

    def row(self, label: str) -> ConfigurationResult:
        """Row of a label; KeyError when there is none."""
        for row in self.configurations:
            if row.label == label:
                return row
        raise KeyError(label)

    @property
    def required(self) -> tuple[str, ...]:
        """Labels that must be certified for the gate to pass."""
        return tuple(row.label for row in self.configurations if row.required)

    @property
    def failing(self) -> tuple[str, ...]:
        """Labels for which the gate does not pass: `uncertified` ones and those `worse_than_noise`."""
        wanted = {*self.uncertified, *self.worse_than_noise}
        return tuple(row.label for row in self.configurations if row.label in wanted)

    @property
    def uncertified(self) -> tuple[str, ...]:
        """Required labels that are not certified."""
        return tuple(row.label for row in self.configurations if row.required and not row.certified)

    @property
    def worse_than_noise(self) -> tuple[str, ...]:
        """Labels that are declared lossless and are worse than run-to-run noise."""
        return self.noise_floor.worse_than_noise if self.noise_floor else ()


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a certificate."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Redline certificate",
        **{key: value for key, value in Certificate.model_json_schema().items() if key != "title"},
    }
