"""What else a grid may claim, beside the risk of wrong answers, as frozen data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

LossTest = Literal["exact", "hb", "wsr"]

MOST_DELTA = 0.25  # a count over n alpha - 1, which the bound for unequal risks excludes, then never passes
_ROUNDING = 1e-9  # of shares


@dataclass(frozen=True)
class Risk:
    """One more risk that must hold for a configuration to be certified.

    A prompt is violated when the reference meets a requirement and the configuration does not: ``measure`` is 1, or
    not over ``over``, or not under ``under``. With ``test`` hb or wsr the loss is a number instead: by how much
    ``measure``, a score from 0 to 1, drops below the reference's; ``seed`` gives the order in which wsr takes prompts.
    """

    name: str
    measure: str
    alpha: float
    over: float | None = None
    under: float | None = None
    test: LossTest = "exact"
    seed: int = 0

    @property
    def ways(self) -> int:
        """In how many ways a prompt is said to count, beside the measure alone."""
        return (self.over is not None) + (self.under is not None) + (self.test != "exact")

    @property
    def flag(self) -> bool:
        """Is the measure a yes or no."""
        return self.ways == 0

    @property
    def words(self) -> str:
        """What is lost, in words."""
        if self.over is not None:
            return f"{self.measure} over {self.over:g} where the reference is not"
        if self.under is not None:
            return f"{self.measure} under {self.under:g} where the reference is not"
        if self.test != "exact":
            return f"mean drop of {self.measure} below the reference's"
        return f"{self.measure} given up where the reference has it"


@dataclass(frozen=True)
class JointLoss:
    """What is lost on a prompt, where a verdict is not simply right or wrong.

    ``drop``: by how much the score, from 0 to 1, lies below the reference's. ``repeats``: with several generations of
    a prompt, the share of (reference, configuration) pairs that are right and wrong. ``seed`` as in `Risk`.
    """

    kind: Literal["drop", "repeats"]
    test: LossTest
    seed: int = 0


@dataclass(frozen=True)
class Mix:
    """The traffic that the risk is claimed for: what share of it each group of prompts stands for."""

    shares: Mapping[str, float]


@dataclass(frozen=True)
class Design:
    """How the prompts came from their population.

    ``independent``: each drawn by itself. ``stratified``: independently, with a fixed number of each group.
    ``finite_pool``: without replacement from ``pool`` prompts, about which the claim is. ``census``: they are all.
    """

    kind: Literal["independent", "stratified", "finite_pool", "census"]
    pool: int | None = None


@dataclass(frozen=True)
class Clusters:
    """Prompts that share something, such as a template, so that they fail together; ``by`` is the column that tells.

    ``one_per_cluster`` keeps a random prompt of each; ``cluster_means`` takes the mean loss of each cluster for one
    observation, tested by ``test``. ``seed`` is that of the choice, or of the order in which wsr takes the clusters.
    """

    by: str
    remedy: Literal["one_per_cluster", "cluster_means"]
    test: LossTest = "exact"
    seed: int = 0


def add_up(shares: Mapping[str, float]) -> bool:
    """Are these the shares of one whole."""
    return abs(math.fsum(shares.values()) - 1) <= _ROUNDING


def contradictions(
    risks: Sequence[Risk],
    design: Design | None,
    clusters: Clusters | None,
    loss: JointLoss | None,
    shares: Mapping[str, float] | None,
    delta: float,
) -> list[str]:
    """What cannot be claimed together, however it is written; ``shares`` are those of a mix or of the sample."""
    found = [f"risk {risk.name}: counts in more than one way" for risk in risks if risk.ways > 1]
    if len({"all", *(risk.name for risk in risks)}) <= len(risks):
        found.append("risks: two budgets have one name")
    bets = any(each is not None and each.test == "wsr" for each in (*risks, clusters, loss))
    unequal = design is not None and design.kind != "independent"
    if unequal and delta > MOST_DELTA:
        found.append(f"prompts.design: delta is over {MOST_DELTA}")
    if (unequal or shares) and (bets or clusters is not None):
        found.append("prompts.design: goes neither with betting nor with clusters")
    if shares is not None and not add_up(shares):
        found.append("shares: are not those of a whole")
    return found
