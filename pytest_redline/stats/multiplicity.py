"""Holm's step-down: which configurations of a grid are certified when all of them are judged on the same prompts.

The family is the whole grid, so m counts the reference: its p-value is that of zero violations. The losses may depend
on each other in any way; the probability that anything is certified wrongly is delta at most.

`Family` generalises it: hypotheses may have weights, which must be fixed before the data, and there may be others
beside the rows of the grid, which count although their p-values are not looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_redline.stats.checks import Rates, inside, whole


class Family(NamedTuple):
    """How delta is shared among the rows of a grid and hypotheses beside them.

    Parameters
    ----------
    weights
        Of the m rows, each over 0 and finite; None gives every row the weight 1, which is Holm's own procedure.
    others
        Weight of hypotheses that are no rows of the grid, 0 or more. They are never certified, so that they stay
        among those that are left.
    """

    weights: tuple[float, ...] | None = None
    others: float = 0.0


HOLM = Family()


def share_of_weight(row: int, share: float, m: int, beside: int = 0) -> Family:
    """Return the family in which one row has a share of the whole weight and all else divides the rest equally.

    Parameters
    ----------
    row
        Index of the row, 0 <= row < m.
    share
        Of the whole weight, 0 < share < 1; 1/(m + beside) is Holm's own procedure.
    m
        Rows of the grid, at least 2.
    beside
        Hypotheses that are no rows of the grid, 0 or more.

    Raises
    ------
    ValueError
        share outside (0, 1) or NaN, m < 2, row outside 0..m-1, beside < 0.

    Examples
    --------
    >>> share_of_weight(1, 0.5, m=3)
    Family(weights=(1.0, 2.0, 1.0), others=0.0)
    """
    inside("share", share)
    if m < 2 or not 0 <= row < m or beside < 0:
        raise ValueError(f"row={row}, m={m}, beside={beside}: a row among at least two, and no fewer than 0 beside it")
    weights = [1.0] * m
    weights[row] = share / (1 - share) * (m + beside - 1)
    return Family(tuple(weights), float(beside))


def holm(p: ArrayLike, delta: float, family: Family = HOLM) -> NDArray[np.bool_]:
    """Return which rows are certified: in ascending order of p/weight, until one exceeds its share of delta.

    The share of a row is its weight over the weight of all that is left: delta over the rows left, where all weigh
    the same.

    Parameters
    ----------
    p
        ``[..., m]`` p-values of all rows of the grid, the reference included; each leading index is a grid of its own.
    delta
        Failure probability of the whole grid, 0 < delta < 1.
    family
        Weights, and what is counted beside the rows.

    Returns
    -------
    certified
        ``[..., m]`` bool, in the order of p. A p-value equal to its level is certified; equal p-values keep their
        order, which changes nothing about who is certified.

    Raises
    ------
    ValueError
        p is a single number or has no row; a p-value is NaN or outside [0, 1]; delta outside (0, 1) or NaN; weights
        that are not one positive finite number for each row, or others below 0 or not finite.

    Source: Holm (1979), his weighted procedure included, with the paper's convention that m includes the reference
    (Tables 2 and 17).

    Examples
    --------
    Table 8 at budget 0.05 and at 0.10, after the reference (k = 0) and the slower acc99/semi90 (k = 40):

    >>> from pytest_redline.stats.risk import binomial_tail
    >>> violations = np.array([0, 40, 52, 54, 65, 67, 73])
    >>> int(holm(binomial_tail(violations, 1012, 0.05), 0.10).sum())
    1
    >>> int(holm(binomial_tail(violations, 1012, 0.10), 0.10).sum())
    7
    """
    values = _grids(p)
    order, levels = _ladder(values, delta, family)
    passes = np.take_along_axis(values, order, axis=-1) <= levels
    certified = np.empty(values.shape, dtype=np.bool_)
    np.put_along_axis(certified, order, np.logical_and.accumulate(passes, axis=-1), axis=-1)
    return certified


def holm_levels(p: ArrayLike, delta: float, family: Family = HOLM) -> NDArray[np.float64]:
    """Return the level that each row's p-value was, or at its rank would be, compared with.

    Parameters
    ----------
    p, delta, family
        As in `holm`, for one grid.

    Returns
    -------
    levels
        ``[m]`` float64, in the order of p: delta/(m - i + 1) at rank i = 1..m of p where all weigh the same, ties
        ranked in their order. A row can meet its level and still not be certified, when one failed before it.

    Raises
    ------
    ValueError
        As in `holm`.

    Source: Holm (1979).

    Examples
    --------
    >>> holm_levels([0.5, 0.001, 0.02], 0.12).round(2).tolist()
    [0.12, 0.04, 0.06]
    """
    values = _p_values(p)
    order, ladder = _ladder(values, delta, family)
    levels = np.empty(values.size)
    levels[order] = ladder
    return levels


def level_to_meet(row: int, p: ArrayLike, delta: float, family: Family = HOLM) -> float:
    """Return the largest p-value with which a row would be certified, all other rows as they are.

    Parameters
    ----------
    row
        Index of the row, 0 <= row < m; its own p-value plays no part.
    p, delta, family
        As in `holm`.

    Returns
    -------
    level
        The row's share of delta when the first of the other rows that does not pass, and all after it, are left with
        the row; when it is left alone with what is counted beside the grid, if they all pass.

    Raises
    ------
    ValueError
        As in `holm`, and for a row outside 0..m-1.

    Notes
    -----
    At or below this level the row comes before the other row that stops the descent, and every row before that passes
    also when it moves one rank down, to a higher level. Above it, the stop comes first.

    Source: follows from Holm (1979).

    Examples
    --------
    In a grid of m = 2 the reference passes first, so the one candidate meets delta itself:

    >>> level_to_meet(1, [0.001, 0.5], 0.10)
    0.1
    """
    values = _p_values(p)
    m = values.size
    if not 0 <= whole("row", row) < m:
        raise ValueError(f"row={row} is not one of the {m} rows, 0 to {m - 1}")
    weights, beside = _weights(m, family)
    rest = np.delete(weights, row)
    order = np.argsort(np.delete(values, row) / rest, kind="stable")
    # Of others[i..], with the row itself: where the first other row that stops the descent stands, the row must pass.
    left = np.append(_left(rest[order], beside), beside) + weights[row]
    stops = np.flatnonzero(np.delete(values, row)[order] > _levels(delta, rest[order], left[:-1]))
    return float(_levels(delta, weights[row], left[stops[0] if stops.size else m - 1]))


def _p_values(p: ArrayLike) -> NDArray[np.float64]:
    """Return p as ``[m]`` float64, refusing what is no list of p-values."""
    values = _grids(p)
    if values.ndim != 1:
        raise ValueError(f"p has shape {values.shape}; one p-value for each of m >= 1 rows is needed")
    return values


def _grids(p: ArrayLike) -> NDArray[np.float64]:
    """Return p as ``[..., m]`` float64, refusing what are no p-values."""
    values = np.asarray(p, dtype=np.float64)
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"p has shape {values.shape}; one p-value for each of m >= 1 rows is needed")
    if (outside := ~((values >= 0) & (values <= 1))).any():
        raise ValueError(f"p={float(values[outside][0])!r} is not between 0 and 1")
    return values


def _weights(m: int, family: Family) -> tuple[NDArray[np.float64], float]:
    """Return ``[m]`` weights of the rows and the weight beside them, scaled so that the largest of the rows is 1."""
    weights = np.ones(m) if family.weights is None else np.asarray(family.weights, dtype=np.float64)
    if weights.shape != (m,) or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError(f"weights={family.weights!r}: one finite number over 0 for each of {m} rows is needed")
    if not 0 <= family.others < np.inf:
        raise ValueError(f"others={family.others!r}: a finite weight of 0 or more is needed")
    largest = float(weights.max())
    return weights / largest, family.others / largest


def _left(weights: NDArray[np.float64], beside: float) -> NDArray[np.float64]:
    """Return ``[..., m]`` the weight of each row and of all after it, and beside the rows."""
    left: NDArray[np.float64] = np.cumsum(weights[..., ::-1], axis=-1)[..., ::-1] + beside
    return left


def _levels(delta: float, weights: Rates, left: Rates) -> NDArray[np.float64]:
    """Return the part of delta that a weight has in what is left; exactly delta/(m - i + 1) where all weigh 1."""
    levels: NDArray[np.float64] = np.minimum(inside("delta", delta) * weights / left, delta)  # w/w may round up
    return levels


def _ladder(p: NDArray[np.float64], delta: float, family: Family) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return ``[..., m]`` the order of descent, and the levels in that order."""
    weights, beside = _weights(p.shape[-1], family)
    order = np.argsort(p / weights, axis=-1, kind="stable")
    return order, _levels(delta, weights[order], _left(weights[order], beside))
