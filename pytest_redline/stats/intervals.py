"""Exact (Clopper-Pearson) confidence bounds for a risk of which k violations among n prompts were seen."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pytest_redline.stats.checks import Counts, counts, inside

T = TypeVar("T", float, NDArray[np.float64])


class Interval(NamedTuple, Generic[T]):
    """A lower and an upper bound: two floats, or two arrays of one shape."""

    lower: T
    upper: T


@overload
def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> Interval[float]: ...
@overload
def clopper_pearson(k: NDArray[np.int64], n: Counts, confidence: float = 0.95) -> Interval[NDArray[np.float64]]: ...


def clopper_pearson(k: Counts, n: Counts, confidence: float = 0.95) -> Interval[float] | Interval[NDArray[np.float64]]:
    """Return the two-sided exact interval; each side errs with probability (1 - confidence)/2 at most.

    Parameters
    ----------
    k
        Number of violations, 0 <= k <= n; an int or an array of ints, any shape.
    n
        Number of prompts, at least 1; an int, or an array of ints that broadcasts against k.
    confidence
        Probability, over draws of the prompts, that the interval covers: 0 < confidence < 1.

    Returns
    -------
    interval
        ``lower`` is 0 at k = 0 and ``upper`` is 1 at k = n; never NaN.

    Raises
    ------
    ValueError
        k or n is not of integer type, n < 1, k outside 0..n, confidence outside (0, 1) or NaN.

    Source: Clopper and Pearson (1934), as in the paper's Table 5.

    Examples
    --------
    Table 5, LLaDA2 math (73 of 1,012 prompts):

    >>> interval = clopper_pearson(73, 1012)
    >>> round(interval.lower, 3), round(interval.upper, 3)
    (0.057, 0.09)
    """
    error = (1 - float(inside("confidence", confidence))) / 2
    found, prompts = counts(k, n)
    lower, upper = _lower(found, prompts, error), _upper(found, prompts, error)
    return Interval(float(lower), float(upper)) if lower.ndim == 0 else Interval(lower, upper)


@overload
def upper_bound(k: int, n: int, error: float) -> float: ...
@overload
def upper_bound(k: NDArray[np.int64], n: Counts, error: float) -> NDArray[np.float64]: ...


def upper_bound(k: Counts, n: Counts, error: float) -> float | NDArray[np.float64]:
    """Return the one-sided bound that the risk exceeds with probability ``error`` at most.

    It is the alpha at which ``binomial_tail(k, n, alpha)`` equals ``error``, so a configuration passes at exactly the
    budgets that are not below it. With ``error = delta`` it holds for one configuration looked at alone (pointwise);
    with ``error = delta/(m - 1)`` all candidates are covered together, for a budget chosen after seeing them too.

    Parameters
    ----------
    k, n
        As in `clopper_pearson`.
    error
        Probability of not covering, 0 < error < 1.

    Returns
    -------
    upper
        In (0, 1]; 1 at k = n. A float where k and n are ints, else an array.

    Raises
    ------
    ValueError
        As in `clopper_pearson`, for ``error``.

    Source: Clopper and Pearson (1934); the paper's Table 5 prints it with error 0.10, pointwise.

    Examples
    --------
    Table 5, LLaDA2 math, and the bound for its six candidates together:

    >>> round(upper_bound(73, 1012, 0.10), 3)
    0.084
    >>> round(upper_bound(73, 1012, 0.10 / 6), 4)
    0.0914
    """
    found, prompts = counts(k, n)
    upper = _upper(found, prompts, float(inside("error", error)))
    return float(upper) if upper.ndim == 0 else upper


@overload
def lower_bound(k: int, n: int, error: float) -> float: ...
@overload
def lower_bound(k: NDArray[np.int64], n: Counts, error: float) -> NDArray[np.float64]: ...


def lower_bound(k: Counts, n: Counts, error: float) -> float | NDArray[np.float64]:
    """Return the one-sided bound that the risk falls below with probability ``error`` at most.

    Parameters
    ----------
    k, n
        As in `clopper_pearson`.
    error
        Probability of not covering, 0 < error < 1.

    Returns
    -------
    lower
        In [0, 1); 0 at k = 0. A float where k and n are ints, else an array.

    Raises
    ------
    ValueError
        As in `clopper_pearson`, for ``error``.

    Source: Clopper and Pearson (1934); half of the two-sided interval of the paper's Table 5.

    Examples
    --------
    >>> round(lower_bound(73, 1012, 0.025), 3)
    0.057
    """
    found, prompts = counts(k, n)
    lower = _lower(found, prompts, float(inside("error", error)))
    return float(lower) if lower.ndim == 0 else lower


def _upper(k: NDArray[np.int64], n: NDArray[np.int64], error: float) -> NDArray[np.float64]:
    """Upper bound: the 1 - error quantile of Beta(k + 1, n - k), and 1 at k = n where that is not defined."""
    all_violated = k == n
    quantile = special.betainccinv(k + 1.0, np.where(all_violated, 1, n - k), error)
    upper: NDArray[np.float64] = np.where(all_violated, 1.0, quantile)
    return upper


def _lower(k: NDArray[np.int64], n: NDArray[np.int64], error: float) -> NDArray[np.float64]:
    """Lower bound: the error quantile of Beta(k, n - k + 1), and 0 at k = 0 where that is not defined."""
    none_violated = k == 0
    quantile = special.betaincinv(np.where(none_violated, 1, k), n - k + 1.0, error)
    lower: NDArray[np.float64] = np.where(none_violated, 0.0, quantile)
    return lower
