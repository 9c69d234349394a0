"""Budgets of losses that lie between 0 and 1, tested by Hoeffding-Bentkus or by betting."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pytest_redline.budgets import Budget, Counts, count
from pytest_redline.claims import LossTest, Risk
from pytest_redline.clusters import cluster_means
from pytest_redline.grid import Grid
from pytest_redline.order import random_order
from pytest_redline.outcomes import Outcomes
from pytest_redline.stats.bounded import UNIT, betting, hoeffding_bentkus, in_units
from pytest_redline.stats.mean_bounds import largest_passing_total, mean_upper, prompts_for_mean

_HALVINGS = 30  # of a factor between 0 and 1


@dataclass(frozen=True, eq=False)
class LossBudget(Budget):
    """One risk that must hold, from ``losses``, ``[m, n]`` in the order in which betting reads them.

    ``k`` counts, for each configuration, the prompts that lost anything. Bounds and plans are those of
    Hoeffding-Bentkus whichever test is declared; they are descriptions.
    """

    losses: NDArray[np.float64]
    test: LossTest

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
        if self.test == "wsr":
            return betting(self.losses, alpha or self.alpha)
        return hoeffding_bentkus(self._totals, self.n, alpha or self.alpha, UNIT)

    def estimate(self, row: int) -> float:
        """Mean loss of a row."""
        return int(self._totals[row]) / (self.n * UNIT)

    def fails(self, row: int, level: float) -> bool:
        """Is a row's p-value over this level."""
        return bool(self._own_p[row] > level)

    def interval(self, row: int) -> tuple[float, float]:
        """Two-sided 95 % interval of a row's expected loss."""
        return self.lower(row, 0.025), self.upper(row, 0.025)

    def upper(self, row: int, level: float) -> float:
        """One-sided upper bound of a row's expected loss."""
        return mean_upper(int(self._totals[row]), self.n, level, UNIT)

    def lower(self, row: int, level: float) -> float:
        """One-sided lower bound of a row's expected loss."""
        return 1 - mean_upper(int(in_units(1 - self.losses[row]).sum()), self.n, level, UNIT)

    def prompts(self, row: int, level: float, power: float) -> int | None:
        """About how many prompts would meet this level with this chance; None where no number would."""
        return prompts_for_mean(self.alpha, self.estimate(row), float(self.losses[row].std()), level, power)

    def most(self, row: int, level: float) -> float:
        """Largest mean loss with which a row would meet this level; below 0 where none does.

        Betting reads each loss by itself, so there it is the mean were all losses smaller by one factor.
        """
        if self.test == "hb":
            return largest_passing_total(self.n, self.alpha, level, UNIT) / (self.n * UNIT)
        if float(betting(np.zeros(self.n), self.alpha)) > level:
            return -1.0
        passes, fails = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (passes + fails) / 2
            if float(betting(middle * self.losses[row], self.alpha)) <= level:
                passes = middle
            else:
                fails = middle
        return passes * self.estimate(row)

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
    test, seed = grid.test, grid.order_seed
    if declared is not None and declared.test != "exact":
        test, seed = declared.test, declared.seed
    if grid.by_cluster:
        assert outcomes.clusters is not None
        units, losses = cluster_means(losses, [outcomes.clusters[position] for position in chosen])
    if test == "exact":
        return Budget(name, len(units), alpha, k)
    return LossBudget(name, len(units), alpha, k, losses[:, random_order(units, seed)], test)
