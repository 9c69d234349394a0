"""Holm's step-down: which configurations of a grid are certified when all of them are judged on the same prompts.

The family is the whole grid, so m counts the reference: its p-value is that of zero violations. The losses may depend
on each other in any way; the probability that anything is certified wrongly is delta at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_redline.stats.checks import counts, inside, whole
from pytest_redline.stats.risk import binomial_tail, largest_passing


def holm(p: ArrayLike, delta: float) -> NDArray[np.bool_]:
    """Return which rows are certified: in ascending order of p, until one exceeds delta over the rows left.

    Parameters
    ----------
    p
        ``[m]`` p-values of all rows of the grid, the reference included.
    delta
        Failure probability of the whole grid, 0 < delta < 1.

    Returns
    -------
    certified
        ``[m]`` bool, in the order of p. A p-value equal to its level is certified; equal p-values keep their order,
        which changes nothing about who is certified.

    Raises
    ------
    ValueError
        p is empty, not one-dimensional, NaN or outside [0, 1]; delta outside (0, 1) or NaN.

    Source: Holm (1979), with the paper's convention that m includes the reference (Tables 2 and 17).

    Examples
    --------
    Table 8 at budget 0.05 and at 0.10, after the reference (k = 0) and the slower acc99/semi90 (k = 40):

    >>> violations = np.array([0, 40, 52, 54, 65, 67, 73])
    >>> int(holm(binomial_tail(violations, 1012, 0.05), 0.10).sum())
    1
    >>> int(holm(binomial_tail(violations, 1012, 0.10), 0.10).sum())
    7
    """
    values = _p_values(p)
    order = np.argsort(values, kind="stable")
    passes = values[order] <= _ladder(values.size, delta)
    certified = np.empty(values.size, dtype=np.bool_)
    certified[order] = np.logical_and.accumulate(passes)
    return certified


def holm_levels(p: ArrayLike, delta: float) -> NDArray[np.float64]:
    """Return the level that each row's p-value was, or at its rank would be, compared with.

    Parameters
    ----------
    p, delta
        As in `holm`.

    Returns
    -------
    levels
        ``[m]`` float64, in the order of p: delta/(m - i + 1) at rank i = 1..m of p, ties ranked in their order. A row
        can meet its level and still not be certified, when a smaller p-value failed before it.

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
    levels = np.empty(values.size)
    levels[np.argsort(values, kind="stable")] = _ladder(values.size, delta)
    return levels


def level_to_meet(row: int, p: ArrayLike, delta: float) -> float:
    """Return the largest p-value with which a row would be certified, all other rows as they are.

    Parameters
    ----------
    row
        Index of the row, 0 <= row < m; its own p-value plays no part.
    p, delta
        As in `holm`.

    Returns
    -------
    level
        delta/(m - f + 1), where f is the first rank at which the other rows stop to pass, or m if they all pass.

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
    ladder = _ladder(m, delta)
    others = np.sort(np.delete(values, row))
    stops = np.flatnonzero(others > ladder[:-1])
    return float(ladder[stops[0] if stops.size else m - 1])


def largest_certified_count(row: int, k: NDArray[np.int64], n: int, alpha: float, delta: float) -> int:
    """Return the most violations with which a row would be certified, all other rows as they are, or -1 if none.

    Parameters
    ----------
    row
        Index of the row, 0 <= row < m; its own count plays no part.
    k
        ``[m]`` violations of all rows, the reference with 0.
    n
        Number of prompts, at least 1.
    alpha
        Risk budget, 0 < alpha < 1.
    delta
        Failure probability of the whole grid, 0 < delta < 1.

    Returns
    -------
    count
        Between -1 and n - 1; the row is certified when it has this many violations or fewer.

    Raises
    ------
    ValueError
        k or n is not of integer type, k is empty or not one-dimensional, n < 1, k outside 0..n, row outside 0..m-1,
        alpha or delta outside (0, 1) or NaN.

    Examples
    --------
    LLaDA2 math at budget 0.10 (Table 8): all six others pass, so acc85/semi70 (73 violations) could have had 88.

    >>> violations = np.array([0, 40, 52, 54, 65, 67, 73])
    >>> largest_certified_count(6, violations, 1012, 0.10, 0.10)
    88
    """
    found, _ = counts(k, n)
    return largest_passing(n, alpha, level_to_meet(row, binomial_tail(found, n, alpha), delta))


def _p_values(p: ArrayLike) -> NDArray[np.float64]:
    """Return p as ``[m]`` float64, refusing what is no list of p-values."""
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"p has shape {values.shape}; one p-value for each of m >= 1 rows is needed")
    if (outside := ~((values >= 0) & (values <= 1))).any():
        raise ValueError(f"p={float(values[outside][0])!r} is not between 0 and 1")
    return values


def _ladder(m: int, delta: float) -> NDArray[np.float64]:
    """Return ``[m]`` the levels of ranks 1..m: delta/m, delta/(m - 1), ..., delta."""
    levels: NDArray[np.float64] = inside("delta", delta) / np.arange(m, 0, -1)
    return levels
