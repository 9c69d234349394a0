"""Budgets of losses that lie between 0 and 1, tested by Hoeffding-Bentkus or by betting."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_redline.budgets import Budget, Counts, count
from pytest_redline.claims import LossTest, Mix, Risk
from pytest_redline.clusters import cluster_means
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Grid
from pytest_redline.order import random_order
from pytest_redline.outcomes import Outcomes
from pytest_redline.stats.bounded import UNIT, betting, hoeffding_bentkus, in_units
from pytest_redline.stats.mean_bounds import largest_passing_total, mean_upper, prompts_for_mean

_HALVINGS = 16  # of a factor between 0 and 1: four digits are printed


class _Uppers(NamedTuple):
    """``[m]`` upper bounds of the expected loss, and of 1 minus the loss."""

    loss: NDArray[np.float64]
    rest: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LossBudget(Budget):
    """One risk that must hold, from ``losses``, ``[m, n]`` in the order in which betting reads them.

    ``k`` counts, for each configuration, the prompts that lost anything. Bounds and plans are those of
    Hoeffding-Bentkus whichever test is declared; they are descriptions. A loss stands for ``scale`` times as much.
    """

    losses: NDArray[np.float64]
    test: LossTest
    scale: float = 1.0

    @property
    def counted(self) -> bool:
        """Is every loss 0 or 1, so that k says all; this is not relied on here."""
        return False

    @property
    def all_or_nothing(self) -> bool:
        """Is every loss 0 or 1, and some are 1: the exact test would have certified more."""
        return bool(self.losses.any() and ((self.losses == 0) | (self.losses == 1)).all())

    def p(self, alpha: float | None = None) -> NDArray[np.float64]:
        """``[m]`` p-values of the declared test, at the budget's own alpha if none is given."""
        budget = (alpha or self.alpha) / self.scale
        if self.test == "wsr":
            return betting(self.losses, budget)
        return hoeffding_bentkus(self._totals, self.n, budget, UNIT)

    def estimate(self, row: int) -> float:
        """Mean loss of a row."""
        return self.scale * (int(self._totals[row]) / (self.n * UNIT))

    def fails(self, row: int, level: float) -> bool:
        """Is a row's p-value over this level."""
        return bool(self._own_p[row] > level)

    def interval(self, row: int) -> tuple[float, float]:
        """Two-sided 95 % interval of a row's expected loss."""
        return self.lower(row, 0.025), self.upper(row, 0.025)

    def upper(self, row: int, level: float) -> float:
        """One-sided upper bound of a row's expected loss."""
        return min(self.scale * float(self._uppers(level).loss[row]), 1.0)

    def lower(self, row: int, level: float) -> float:
        """One-sided lower bound of a row's expected loss."""
        return self.scale * (1 - float(self._uppers(level).rest[row]))

    def prompts(self, row: int, level: float, power: float) -> int | None:
        """About how many prompts would meet this level with this chance; None where no number would."""
        spread = float(self.losses[row].std())
        return prompts_for_mean(self.alpha / self.scale, self.estimate(row) / self.scale, spread, level, power)

    def most(self, row: int, level: float) -> float:
        """Largest mean loss with which a row would meet this level; below 0 where none does.

        Betting reads each loss by itself, so there it is the mean were all losses smaller by one factor.
        """
        if self.test == "hb":
            return self.scale * largest_passing_total(self.n, self.alpha / self.scale, level, UNIT) / (self.n * UNIT)
        if self.best > level:
            return -1.0
        passes, fails = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (passes + fails) / 2
            if float(betting(middle * self.losses[row], self.alpha / self.scale)) <= level:
                passes = middle
            else:
                fails = middle
        return passes * self.estimate(row)

    @property
    def best(self) -> float:
        """The p-value without any loss: the smallest that there is."""
        return float(replace(self, losses=np.zeros((1, self.n))).p()[0])

    def _uppers(self, level: float) -> _Uppers:
        if level not in self._known_uppers:
            rest = in_units(1 - self.losses).sum(axis=1)
            self._known_uppers[level] = _Uppers(
                *(mean_upper(totals, self.n, level, UNIT) for totals in (self._totals, rest))
            )
        return self._known_uppers[level]

    @cached_property
    def _known_uppers(self) -> dict[float, _Uppers]:
        return {}

    @cached_property
    def _totals(self) -> NDArray[np.int64]:
        totals: NDArray[np.int64] = in_units(self.losses).sum(axis=1)
        return totals

    @cached_property
    def _own_p(self) -> NDArray[np.float64]:
        return self.p()


def budget_of(
    grid: Grid,
    outcomes: Outcomes,
    name: str,
    alpha: float,
    losses: NDArray[np.float64],
    members: Counts | None = None,
    declared: Risk | None = None,
) -> Budget:
    """Make the budget of losses, ``[m, n]`` from 0 to 1, for all prompts or the members of one group.

    A ``declared`` risk names its own test; otherwise it is that of wrong answers.
    """
    chosen = range(losses.shape[1]) if members is None else members.tolist()
    losses = losses[:, chosen]
    k = count(losses > 0)
    units = [outcomes.prompts[position] for position in chosen]
    test, seed = grid.group_test, grid.order_seed
    if declared is not None and declared.test != "exact":
        test, seed = declared.test, declared.seed
    if grid.by_cluster:
        assert outcomes.clusters is not None
        units, losses = cluster_means(losses, [outcomes.clusters[position] for position in chosen])
    scale = 1.0
    if grid.mix is not None and members is None:
        test = "hb"
        weights = mix_weights(grid.mix, outcomes)
        scale = float(weights.max())
        losses = losses * (weights / scale)
    if test == "exact":
        return Budget(name, len(units), alpha, k)
    return LossBudget(name, len(units), alpha, k, losses[:, random_order(units, seed)], test, scale)


def mix_weights(mix: Mix, outcomes: Outcomes) -> NDArray[np.float64]:
    """``[n]`` how many prompts each stands for: its group's share of the mix over that of the prompts; mean 1.

    Raises
    ------
    OutcomesError
        The groups of the prompts are not those of the mix.
    """
    sizes = Counter(outcomes.groups or ())
    if sizes.keys() != mix.shares.keys():
        raise OutcomesError(
            f"mix.shares: names {', '.join(sorted(mix.shares))}, the prompts have "
            f"{', '.join(sorted(sizes)) or 'no groups'}; give each of their groups its share, and remove prompts of "
            "groups that the traffic does not hold"
        )
    weight = {name: share * len(outcomes.prompts) / sizes[name] for name, share in mix.shares.items()}
    return np.array([weight[name] for name in outcomes.groups or ()])
