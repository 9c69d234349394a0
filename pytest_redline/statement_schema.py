"""What a statement holds, the part of a certificate that is fixed before the data."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from pytest_redline.closed import Closed, Count, Probability


class StatedDesign(Closed):
    """How the prompts were drawn, where not each by itself; ``sizes`` are those of the strata."""

    kind: Literal["stratified", "finite_pool", "census"]
    pool: Annotated[int, Field(gt=0)] | None
    sizes: dict[str, Annotated[int, Field(gt=0)]] | None


class StatedClusters(Closed):
    """How prompts cluster, ``n`` of them by the column ``by``, and what is done about it."""

    by: str
    remedy: Literal["one_per_cluster", "cluster_means"]
    test: Literal["exact", "hb", "wsr"]
    seed: Count
    n: Annotated[int, Field(gt=0)]
    sha256: str


class StatedLoss(Closed):
    """What is lost on a prompt, where a verdict is a score (drop) or a mean over repeats, and how that is tested."""

    kind: Literal["drop", "repeats"]
    test: Literal["hb", "wsr"]
    seed: Count


class StatedMix(Closed):
    """The traffic that the risk is claimed for: the share of each group."""

    shares: dict[str, Probability]
    test: Literal["hb"]


class StatedSlice(Closed):
    """What a slice was drawn from: the pool's file, its number of prompts and hash of ids, a hash of the nonce."""

    file: str
    pool: Annotated[int, Field(gt=0)]
    sha256: str
    nonce: str


class PromptSet(Closed):
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


class StatedConfiguration(Closed):
    """A configuration as it was declared."""

    label: str
    knobs: dict[str, JsonValue]


class StatedGroups(Closed):
    """How prompts fall into groups, and the budgets of single groups."""

    by: str
    alpha: dict[str, Probability]
    sha256: str


class StatedRisk(Closed):
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


class StatedLooks(Closed):
    """Numbers of prompts at which a p-value is taken, the share of the level for all but the last of them, and a hash
    of the ids of the prompts in their random order.
    """

    sizes: list[Annotated[int, Field(gt=0)]]
    early: Probability
    order: str


class StatedSpending(Closed):
    """delta is that of all statements on these prompts: by the series, or in equal parts of so many ``gates``."""

    gates: Annotated[int, Field(ge=1)] | None


class StatedWeight(Closed):
    """The share of the weight in Holm's procedure that one configuration has; all else divides the rest."""

    label: str
    share: Probability


class Statement(Closed):
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
