"""Bounds and sample sizes for bounded losses, by turning the Hoeffding-Bentkus test around.

Sums of losses are whole numbers of a unit, as in `bounded`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pytest_redline.stats.bounded import betting, hoeffding_bentkus
from pytest_redline.stats.checks import inside

_HALVINGS = 60  # of an interval no longer than 1: to the last bit
_PARTS = 1_000_000  # units of a loss in planning


def mean_upper(total: ArrayLike, n: int, level: float, unit: int = 1) -> NDArray[np.float64]:
    """Return the one-sided upper confidence bound of the expected loss.

    Parameters
    ----------
    total
        Sum of the losses in whole units, 0 <= total <= n * unit; an int or an array of ints, any shape.
    n
        Number of prompts, at least 1.
    level
        Probability that the bound may be too low, 0 < level < 1.
    unit
        How many units are a loss of 1.

    Returns
    -------
    bound
        float64 in the shape of total: the largest budget that the Hoeffding-Bentkus test at this level does not rule
        out; 1 where it rules out none.

    Raises
    ------
    ValueError
        As in `hoeffding_bentkus`; level outside (0, 1).

    Notes
    -----
    The p-value falls in the budget, so that bisection finds the bound; it is rounded up.

    Examples
    --------
    >>> [round(float(mean_upper(77, 1012, 0.10 / steps)), 4) for steps in (7, 1)]
    [0.0999, 0.0926]
    """
    inside("level", level)
    sums = np.asarray(total, dtype=np.int64)
    low, high = sums / (n * float(unit)), np.ones(sums.shape)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inner = (low < middle) & (middle < high)
        rules_out = inner & (hoeffding_bentkus(sums, n, np.where(inner, middle, 0.5), unit) <= level)
        low, high = np.where(inner & ~rules_out, middle, low), np.where(rules_out, middle, high)
    return high


def largest_passing_total(n: int, alpha: float, level: float, unit: int = 1) -> int:
    """Return the largest sum of losses that still passes the Hoeffding-Bentkus test, or -1 where not even 0 does.

    Parameters
    ----------
    n, level, unit
        As in `mean_upper`.
    alpha
        Budget of the expected loss, 0 < alpha < 1.

    Raises
    ------
    ValueError
        As in `hoeffding_bentkus`; level outside (0, 1).

    Examples
    --------
    >>> largest_passing_total(1012, 0.10, 0.10 / 7)
    77
    """
    inside("level", level)
    passes, fails = -1, n * unit
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if float(hoeffding_bentkus(middle, n, alpha, unit)) <= level:
            passes = middle
        else:
            fails = middle
    return passes


def fewest_for_betting(alpha: float, level: float) -> int:
    """Return the smallest n at which losses that are all 0 pass the betting test.

    Parameters
    ----------
    alpha
        Budget of the expected loss, 0 < alpha < 1.
    level
        What the p-value is compared with, 0 < level < 1.

    Raises
    ------
    ValueError
        alpha or level outside (0, 1).

    Examples
    --------
    The exact test needs 41:

    >>> fewest_for_betting(0.10, 0.10 / 7)
    54
    """
    inside("level", level)
    fails, passes = 0, 1
    while float(betting(np.zeros(passes), alpha)) > level:
        fails, passes = passes, 2 * passes
    while passes - fails > 1:
        middle = (passes + fails) // 2
        if float(betting(np.zeros(middle), alpha)) <= level:
            passes = middle
        else:
            fails = middle
    return passes


def prompts_for_mean(
    alpha: float, mean: float, spread: float, level: float, power: float = 0.8, limit: int = 1_000_000
) -> int | None:
    """Return about how many prompts pass the Hoeffding-Bentkus test with a given probability.

    Parameters
    ----------
    alpha
        Budget of the expected loss, 0 < alpha < 1.
    mean, spread
        Expected loss, and standard deviation of the loss of one prompt.
    level
        What the p-value is compared with, 0 < level < 1.
    power
        Wanted probability of passing, 0 < power < 1.
    limit
        Give up beyond this many prompts.

    Returns
    -------
    n
        None where the expected loss is not below alpha, or where n would exceed the limit.

    Raises
    ------
    ValueError
        alpha, level or power outside (0, 1).

    Notes
    -----
    The mean of n losses is taken as normal, so this is a plan and no bound.

    Examples
    --------
    >>> prompts_for_mean(0.10, 0.05, 0.05 ** 0.5 * 0.95 ** 0.5, 0.10 / 7)
    364
    """
    inside("alpha", alpha)
    inside("level", level)
    quantile = float(special.ndtri(inside("power", power)))

    def passes(n: int) -> bool:
        total = round(min(mean + quantile * spread / n**0.5, 1.0) * n * _PARTS)
        return float(hoeffding_bentkus(total, n, alpha, _PARTS)) <= level

    if mean >= alpha:
        return None
    high = 1
    while not passes(high):
        high *= 2
        if high > 2 * limit:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high if high <= limit else None
