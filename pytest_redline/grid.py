"""A grid as frozen data: one file is one grid and one statement. ``grid_file.py`` reads and checks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytest_redline.claims import Clusters, Design, JointLoss, LossTest, Mix, Risk
from pytest_redline.spending import Stopping
from redline_engine.config import DecodeKnobs, ModelSpec

DEFAULT_DELTA = 0.1  # the paper's
Better = Literal["higher", "lower"]
Pool = Literal["ratio_of_sums", "mean_of_ratios"]


@dataclass(frozen=True)
class CorrectColumn:
    """Which values of a column count as right: 1/true, those at or over a threshold, or those equal to a value."""

    path: str
    threshold: float | None = None
    equals: str | float | bool | None = None
    score: bool = False  # the value itself, from 0 to 1, is how right the answer is
    repeats: bool = False  # a prompt has several rows


@dataclass(frozen=True)
class Columns:
    """Where a recording keeps what: a column name, or keys of nested objects joined by dots.

    In a path ``{config}`` stands for the label of a configuration (one row holds all of them). A path that names an
    existing key as a whole wins over its dotted reading. None: the default name where the recording has it.
    """

    prompt: tuple[str, ...] = ("prompt",)
    correct: CorrectColumn = field(default_factory=lambda: CorrectColumn("correct"))
    config: str = "config"
    group: str | None = None
    cluster: str | None = None
    prompt_text: str | None = None
    prompt_hash: str | None = None
    output: str | None = None
    measures: Mapping[str, str] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()  # measures that say yes or no
    declared: frozenset[str] = frozenset()  # keys that the grid file spells out, so that a missing column is an error


@dataclass(frozen=True)
class RecordedSource:
    """Outcomes that already exist: one file, or one file per configuration (its ``log:``)."""

    file: Path | None
    columns: Columns
    sha256: str | None = None
    line: int = 0


# Knobs of a configuration that choose the model, not how it decodes; and all that stand beside how it decodes.
MODEL_KNOBS = ("checkpoint", "dtype", "weights", "template", "mask_id", "end_ids")
LOAD_KNOBS = (*MODEL_KNOBS, "batch_size", "cuda_graphs")


def plain_knobs(knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Knobs as a grid file would write them: lists for tuples, and nothing for null."""
    known = {name: value for name, value in knobs.items() if value is not None}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}


@dataclass(frozen=True)
class EngineSource:
    """Outcomes that the bundled engine serves; ``defaults`` are knobs of configurations that do not set them."""

    checkpoint: str
    device: str
    dtype: str
    batch_size: int
    defaults: Mapping[str, Any] = field(default_factory=dict)
    weights: str | None = None
    template: str | None = None
    mask_id: int | None = None
    end_ids: list[int] | None = None
    cuda_graphs: bool = False

    def model_of(self, knobs: Mapping[str, Any]) -> ModelSpec:
        """Model that a configuration with these knobs runs, as the grid names it; equal models have equal specs."""
        spec = ModelSpec.from_mapping({name: knobs.get(name, getattr(self, name)) for name in MODEL_KNOBS})
        return replace(spec, weights=spec.weights or spec.dtype, cuda_graphs=self.cuda_graphs)

    def decode_knobs(self, configuration: Configuration) -> DecodeKnobs:
        """How a configuration decodes."""
        return DecodeKnobs.from_mapping(
            {name: value for name, value in configuration.knobs.items() if name not in LOAD_KNOBS}, self.defaults
        )


class Slice(NamedTuple):
    """A part of a pool for one gate: how many prompts, and the nonce that draws them, or ``env:NAME``."""

    n: int
    nonce: str


class Drawn(NamedTuple):
    """What a slice was drawn from: the pool's file, its size and the hash of its ids, and the mark of the nonce."""

    file: str
    pool: int
    sha256: str
    nonce: str


class Sample(NamedTuple):
    """A random subset of the prompts; with ``shares``, that share of it from each group."""

    n: int
    seed: int
    shares: Mapping[str, float] | None = None


@dataclass(frozen=True)
class CostMeasure:
    """What is compared to find the fastest configuration.

    ``numerator / denominator`` of the named measures, as a ratio of sums or a mean of per-prompt ratios; without a
    denominator, the mean over prompts. ``declared``: the numbers stand in the grid file, nothing is computed.
    """

    name: str
    better: Better
    pool: Pool
    numerator: str | None
    denominator: str | None
    declared: bool = False

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the per-prompt quantities that the cost is computed from."""
        return tuple(name for name in (self.numerator, self.denominator) if name is not None)

    def gain(self, cost: float, reference: float) -> float:
        """Cost relative to the reference, minus 1, turned so that faster is positive."""
        return (cost / reference if self.better == "higher" else reference / cost) - 1


KNOWN_MEASURES: Mapping[str, CostMeasure] = {
    measure.name: measure
    for measure in (
        CostMeasure("tokens_per_forward", "higher", "ratio_of_sums", "tokens", "forwards"),
        CostMeasure("accepted_per_forward", "higher", "mean_of_ratios", "accepted", "forwards"),
        CostMeasure("tokens_per_second", "higher", "ratio_of_sums", "tokens", "seconds"),
        CostMeasure("seconds_per_prompt", "lower", "ratio_of_sums", "seconds", None),
    )
}


@dataclass(frozen=True)
class Configuration:
    """One row of a grid.

    ``cost`` is a number declared in the grid file, or None (computed from outcomes, or unknown).
    """

    label: str
    knobs: Mapping[str, Any]
    line: int
    log: Path | None = None
    cost: float | None = None
    cost_unknown: bool = False


@dataclass(frozen=True)
class Serving:
    """What the repository deploys: a configuration of the grid, found by its label or through its serving file."""

    label: str
    file: Path | None = None
    keys: Mapping[str, str] = field(default_factory=dict)  # knob -> key of the file
    sha256: str = ""  # of the file's bytes


class Spending(NamedTuple):
    """delta over all statements on the same prompts: by a series, or in equal parts of so many gates."""

    total: float
    gates: int | None


class Weight(NamedTuple):
    """The share of the weight in Holm's procedure that one configuration has; all else divides the rest."""

    label: str
    share: float


@dataclass(frozen=True)
class Groups:
    """Risk by group: the column that holds it, and the budgets of single groups beside the pooled one."""

    by: str
    alpha: Mapping[str, float]


class NoiseFloor(NamedTuple):
    """The second run of the reference: what it is called, and its file where each configuration has its own."""

    label: str
    log: Path | None = None


@dataclass(frozen=True)
class Grid:
    """One grid file, checked.

    ``alpha`` and ``delta`` are the effective ones; ``notes`` says in words what a reviewer should know of the file,
    such as an option that replaced what it declares.
    ``grader`` says in words how verdicts came about, ``population`` what the prompts were drawn from.
    ``cost`` is None where the file says that no cost is known: configurations are certified, none is preferred.
    """

    path: Path
    name: str
    alpha: float
    delta: float
    reference: str
    configurations: tuple[Configuration, ...]
    source: RecordedSource | EngineSource
    cost: CostMeasure | None
    grader: str
    population: str
    prompts: Path | None = None
    sample: Sample | None = None
    spending: Spending | None = None
    weight: Weight | None = None
    slice: Slice | None = None
    drawn: Drawn | None = None  # the slice, once it is drawn
    grade: str | None = None
    serving: Serving | None = None
    groups: Groups | None = None
    risks: tuple[Risk, ...] = ()
    design: Design | None = None
    clusters: Clusters | None = None
    loss: JointLoss | None = None
    mix: Mix | None = None
    stopping: Stopping | None = None
    deploy_only: bool = False  # serve only what decides which configuration to deploy
    noise_floor: NoiseFloor | None = None
    lossless: tuple[str, ...] = ()  # candidates that must not be worse than the second run of the reference
    notes: tuple[str, ...] = ()
    sha256: str = ""  # of the file's bytes

    @property
    def m(self) -> int:
        """Number of configurations, the reference included (the paper's convention)."""
        return len(self.configurations)

    @property
    def by_cluster(self) -> bool:
        """Is the mean loss of a cluster one observation."""
        return self.clusters is not None and self.clusters.remedy == "cluster_means"

    @property
    def test(self) -> LossTest:
        """How wrong answers on all prompts are tested: exactly where each is right or wrong by itself."""
        return "hb" if self.mix else self.group_test

    @property
    def group_test(self) -> LossTest:
        """How wrong answers in one group are tested, where nothing is reweighted."""
        return self.loss.test if self.loss else self.clusters.test if self.clusters else "exact"

    @property
    def order_seed(self) -> int:
        """Seed of the order in which betting takes the losses of wrong answers."""
        return self.loss.seed if self.loss else self.clusters.seed if self.clusters else 0

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the per-prompt quantities that the cost and the risks are computed from."""
        wanted = [*(self.cost.measures if self.cost else ()), *(risk.measure for risk in self.risks)]
        return tuple(dict.fromkeys(wanted))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """All labels, in declared order."""
        return tuple(configuration.label for configuration in self.configurations)

    @property
    def spends_less(self) -> bool:
        """May some configuration be served only in part."""
        return self.deploy_only or self.stopping is not None

    @property
    def candidates(self) -> tuple[Configuration, ...]:
        """Every configuration but the reference."""
        return tuple(each for each in self.configurations if each.label != self.reference)

    @property
    def required(self) -> tuple[str, ...]:
        """Candidates that must be certified: the serving one where that is declared, else all of them.

        A deploy-only run asks which one to deploy, so without a serving one it requires none.
        """
        if self.serving is None:
            return () if self.deploy_only else tuple(each.label for each in self.candidates)
        return () if self.serving.label == self.reference else (self.serving.label,)
