"""Losses that are not all known, counted at the looks of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Grid
from pytest_redline.outcomes import Outcomes
from pytest_redline.stats.stopping import (
    Looks,
    PBounds,
    equally_spaced,
    fixed,
    p_bounds,
    spread,
    upper_bound_over_looks,
)

Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]


class Partial(NamedTuple):
    """Losses of one budget at its looks: ``ones`` and ``unknown``, ``[L, m]`` each."""

    looks: Looks
    ones: Counts
    unknown: Counts

    def bounds(self, alpha: float) -> PBounds:
        """Ends of the p-value of each row."""
        return p_bounds(self.ones, self.unknown, self.looks, alpha)

    def upper(self, row: int, level: float) -> float:
        """One-sided upper bound of a row's risk."""
        columns = [row]
        return float(upper_bound_over_looks(self.ones[:, columns], self.unknown[:, columns], self.looks, level)[0])


class Losses(NamedTuple):
    """``[m, n]`` bool each: losses that are 1, and losses that are not known."""

    ones: Bools
    unknown: Bools


def losses(outcomes: Outcomes, reference: int) -> Losses:
    """Tell the losses apart: 0 where the candidate is right, or the reference is wrong."""
    ones = outcomes.violated(reference)
    if outcomes.known is None:
        return Losses(ones, np.zeros_like(ones))
    zero = outcomes.correct | (outcomes.known[reference] & ~outcomes.correct[reference])
    unknown = ~(ones | zero)
    unknown[reference] = False
    return Losses(ones, unknown)


def looks_of(grid: Grid, n: int) -> Looks:
    """Looks of a grid at its number of prompts; one look where it declares none.

    Raises
    ------
    OutcomesError
        The declared sizes do not end at n, or there are more looks than prompts.
    """
    declared = grid.stopping.looks if grid.stopping else None
    if declared is None:
        return fixed(n)
    if declared.at is None and declared.number > n:
        raise OutcomesError(f"{grid.name}: stopping.looks: {declared.number} looks at {n:,} prompts; declare fewer")
    sizes = declared.at if declared.at is not None else equally_spaced(n, declared.number)
    if sizes[-1] != n:
        raise OutcomesError(
            f"{grid.name}: stopping.looks.at ends at {sizes[-1]:,}, but there are {n:,} prompts; end there"
        )
    return spread(sizes, declared.early)


def at_looks(found: Losses, order: Sequence[int], looks: Looks, members: Counts | None = None) -> Partial:
    """Count losses among the first prompts of the order, up to each look.

    Parameters
    ----------
    members
        Positions of the prompts of one group; all prompts by default.
    """
    places = np.asarray(order)
    chosen = np.ones(len(places), dtype=np.bool_) if members is None else np.isin(places, members)
    sizes = tuple(int(chosen[:size].sum()) for size in looks.sizes)
    counted = [
        np.stack([np.count_nonzero(rows[:, places[:size][chosen[:size]]], axis=1) for size in looks.sizes])
        for rows in found
    ]
    return Partial(Looks(sizes, looks.weights), *counted)
