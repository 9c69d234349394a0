"""What else a grid may claim, beside the risk of wrong answers, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

LossTest = Literal["exact", "hb", "wsr"]


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
    def flag(self) -> bool:
        """Is the measure a yes or no."""
        return self.test == "exact" and self.over is None and self.under is None

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
