"""What a certificate holds: closed pydantic models, plain JSON types only.

``pytest-redline schema --certificate`` prints them as JSON Schema. Rates are fractions, ``net_accuracy`` is in
percentage points, gains are fractions (0.375 is 37.5 % faster). Every count is an integer.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue

from pytest_redline.closed import Bounds, Closed, Count
from pytest_redline.noise_schema import NoiseResult, PackedReplicate
from pytest_redline.statement_schema import Statement

Verdict = Literal["reference", "certified", "undecided", "breach", "not needed"]


class Cost(Closed):
    """What made one configuration faster than another."""

    name: str
    better: Literal["higher", "lower"]
    pool: Literal["ratio_of_sums", "mean_of_ratios"]
    numerator: str | None
    denominator: str | None
    declared: bool


class Change(Closed):
    """A knob that differs from the reference; null where it is not set."""

    knob: str
    reference: JsonValue
    configuration: JsonValue


class Needed(Closed):
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


class ConfigurationResult(Closed):
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


class GroupRow(Closed):
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


class GroupResult(Closed):
    """All configurations on the prompts of one group."""

    name: str
    n: Annotated[int, Field(gt=0)]
    alpha: float | None
    configurations: list[GroupRow]


class RiskRow(Closed):
    """One configuration under a declared risk.

    ``k`` counts the prompts on which it loses against the reference, ``gained`` those on which it wins; ``risk`` is the
    mean loss.
    """

    label: str
    k: Count
    gained: Count
    risk: float
    p: float


class RiskResult(Closed):
    """All configurations under one declared risk, on n prompts or clusters; ``loss`` says in words what counts."""

    name: str
    loss: str
    test: Literal["exact", "hb", "wsr"]
    n: Annotated[int, Field(gt=0)]
    alpha: float
    configurations: list[RiskRow]


class FrontierRow(Closed):
    """What would be deployed had this alpha been declared."""

    alpha: float
    deployed: str
    certified: Count


class Frontier(Closed):
    """A description, not a certificate: the promise holds for the one alpha that was fixed before the data."""

    note: str
    alpha_min: float | None
    rows: list[FrontierRow]


class FileRecord(Closed):
    """A file that was read."""

    path: str
    sha256: str


class WeightsRecord(Closed):
    """Precision in which a model's weights were kept, and the share of its bytes that each precision takes."""

    checkpoint: str
    dtype: str
    weights: str
    shares: dict[str, float]


class Provenance(Closed):
    """What the certificate was made from."""

    left_out: ClassVar[tuple[str, ...]] = ("weights",)

    grid: FileRecord | None = None
    outcomes: list[FileRecord] = []
    prompts: FileRecord | None = None
    serving_file: FileRecord | None = None
    serving_keys: dict[str, str] = {}
    weights: list[WeightsRecord] = []
    versions: dict[str, str] = {}


class Reuse(Closed):
    """What earlier statements on these prompts mean for this one.

    Left out for a first statement that was made before any outcome, unless delta is shared out over statements or a
    weight is declared.

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


class Sharing(Closed):
    """What serving configurations together saved: forwards that were run, and that each would have needed alone."""

    forwards_run: Count
    forwards_charged: Count


class Spent(Closed):
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


class PackedOutcomes(Closed):
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


class Certificate(Closed):
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
