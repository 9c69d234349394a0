"""How surprising k violations among n prompts are when the joint risk is alpha, and how many prompts a verdict needs.

The p-value of a configuration is ``F(k; n, alpha) = P(Bin(n, alpha) <= k)``: one-sided, exact, not randomised. It
tests the hypothesis that the joint risk is alpha or more; a small value speaks for a risk below alpha.
"""

from __future__ import annotations

import math
from typing import overload

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pytest_redline.stats.checks import Counts, Rates, counts, inside, rate, whole


@overload
def binomial_tail(k: int, n: int, alpha: float) -> float: ...
@overload
def binomial_tail(k: int, n: int, alpha: NDArray[np.float64]) -> NDArray[np.float64]: ...
@overload
def binomial_tail(k: NDArray[np.int64], n: Counts, alpha: Rates) -> NDArray[np.float64]: ...


def binomial_tail(k: Counts, n: Counts, alpha: Rates) -> float | NDArray[np.float64]:
    """Return the probability of at most k violations among n prompts when each has probability alpha.

    Parameters
    ----------
    k
        Number of violations, 0 <= k <= n; an int or an array of ints, any shape.
    n
        Number of prompts, at least 1; an int, or an array of ints that broadcasts against k.
    alpha
        Risk budget, 0 < alpha < 1; a float or an array that broadcasts against k.

    Returns
    -------
    p
        A float where all arguments are scalars, else float64 in the broadcast shape. Correct to about 1e-14 relative
        far into the tail; below about 1e-308 it is 0.

    Raises
    ------
    ValueError
        k or n is not of integer type, n < 1, k outside 0..n, alpha outside (0, 1) or NaN.

    Notes
    -----
    ``1 - I_alpha(k + 1, n - k)``, written with the complement so that 1 - alpha is never rounded.

    Source: the p-value of the paper's Tables 4 and 8 to 13, all printed values of which it reproduces.

    Examples
    --------
    Table 8, acc85/semi70 at budgets 0.10 and 0.15:

    >>> f"{binomial_tail(73, 1012, 0.10):.3f}"
    '0.001'
    >>> f"{binomial_tail(73, 1012, 0.15):.0e}"
    '3e-14'
    """
    found, prompts = counts(k, n)
    p = _tail(found, prompts, inside("alpha", alpha))
    return float(p) if p.ndim == 0 else p


def fewest_prompts(alpha: float, level: float) -> int:
    """Return the smallest n at which a configuration without any violation passes.

    Parameters
    ----------
    alpha
        Risk budget, 0 < alpha < 1.
    level
        What the p-value is compared with, 0 < level < 1: delta/m for the first step of Holm.

    Returns
    -------
    n
        At least 1: ``binomial_tail(0, n, alpha) <= level`` holds at n and not at n - 1.

    Raises
    ------
    ValueError
        alpha or level outside (0, 1) or NaN.

    Examples
    --------
    >>> fewest_prompts(0.10, 0.10 / 2)
    29
    >>> [fewest_prompts(alpha, 0.10 / 7) for alpha in (0.10, 0.05, 0.02)]
    [41, 83, 211]
    """
    inside("alpha", alpha)
    inside("level", level)
    estimate = math.log(level) / math.log1p(-alpha)
    # The logarithms may be off by a rounding just where n steps; the tail that the gate compares decides.
    fails = max(math.floor(estimate * (1 - 1e-9)) - 1, 0)
    passes = math.ceil(estimate * (1 + 1e-9)) + 1
    while passes - fails > 1:
        middle = (fails + passes) // 2
        if special.betaincc(1.0, float(middle), alpha) <= level:
            passes = middle
        else:
            fails = middle
    return passes


def largest_passing(n: int, alpha: float, level: float) -> int:
    """Return the largest number of violations that still passes, or -1 where not even zero does.

    Parameters
    ----------
    n
        Number of prompts, at least 1.
    alpha
        Risk budget, 0 < alpha < 1.
    level
        What the p-value is compared with, 0 < level < 1; a p-value equal to it passes.

    Returns
    -------
    k
        The largest k with ``binomial_tail(k, n, alpha) <= level``, between -1 and n - 1.

    Raises
    ------
    ValueError
        n is not of integer type or below 1; alpha or level outside (0, 1) or NaN.

    Examples
    --------
    At 1,012 prompts 7.8 % is the largest share that passes at delta/8 (the paper's sample-size figures):

    >>> largest_passing(1012, 0.10, 0.10 / 8)
    79
    >>> [largest_passing(1012, 0.10, 0.10 / steps) for steps in (7, 1, 50)]
    [80, 88, 74]
    """
    _, prompts = counts(0, n)
    inside("alpha", alpha)
    inside("level", level)
    passes, fails = -1, n
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if _tail(np.asarray(middle), prompts, alpha) <= level:
            passes = middle
        else:
            fails = middle
    return passes


def prompts_for_power(
    alpha: float, risk: float, level: float, power: float = 0.8, limit: int = 1_000_000
) -> int | None:
    """Return the smallest n from which on a configuration of the given risk passes with the given probability.

    Parameters
    ----------
    alpha
        Risk budget, 0 < alpha < 1.
    risk
        True joint risk of the configuration, 0 <= risk < 1.
    level
        What the p-value is compared with, 0 < level < 1. delta/m is on the safe side for Holm.
    power
        Wanted probability of passing, 0 < power < 1.
    limit
        Give up beyond this many prompts, at least 1.

    Returns
    -------
    n
        None where the risk is not below alpha, so that more prompts do not help, or where n would exceed the limit.

    Raises
    ------
    ValueError
        alpha, level or power outside (0, 1); risk outside [0, 1]; NaN; limit not of integer type or below 1.

    Notes
    -----
    The power is a saw in n. While the largest passing count stays at c it falls, and it jumps up at the first n at
    which c + 1 passes too. So the lowest point of tooth c is at the last n before that, and the answer is the start of
    the tooth after the last one whose lowest point misses the target.

    Were n a real number, the lowest points would rise with c. Rounding n up moves each of them by less than one prompt:
    a tooth that keeps the target even one prompt later than it lasts therefore ends the search upwards.

    Source: the paper's sample sizes (Table 7), under the rule of the authors' tests: power reached at every larger n.

    Examples
    --------
    >>> [prompts_for_power(0.05, 0.03, 0.10 / m) for m in (8, 16, 50)]
    [1008, 1189, 1444]
    """
    inside("alpha", alpha)
    inside("level", level)
    inside("power", power)
    rate("risk", risk)
    if whole("limit", limit) < 1:
        raise ValueError(f"limit={limit}: at least one prompt is needed")
    if risk >= alpha or fewest_prompts(alpha, level) > limit:
        return None

    def lowest_power(c: NDArray[np.int64], later: int = 0) -> NDArray[np.float64]:
        return _tail(c, _first_passing(c + 1, alpha, level) - 1 + later, risk)

    def settled(c: int) -> bool:
        return bool(lowest_power(np.array([c]), later=1)[0] >= power)

    # The answer lies near the normal approximation, so the bracket grows from there.
    spread = special.ndtri(1 - level) * (alpha * (1 - alpha)) ** 0.5 + special.ndtri(power) * (risk * (1 - risk)) ** 0.5
    near = min(limit, (spread / (alpha - risk)) ** 2)
    high = unsettled = max(int(near * (alpha + risk) / 2), 1)
    stride = max(high // 8, 1)
    if settled(high):
        while unsettled >= 0 and settled(unsettled):
            high, unsettled, stride = unsettled, max(unsettled - stride, -1), 2 * stride
    else:
        while not settled(high):
            if _first_passing(np.array([high]), alpha, level)[0] > 2 * limit:
                return None
            unsettled, high, stride = high, high + stride, 2 * stride
    while high - unsettled > 1:
        middle = (unsettled + high) // 2
        unsettled, high = (unsettled, middle) if settled(middle) else (middle, high)

    width = 64
    while True:
        teeth = np.arange(max(high - width, 0), high + 1)
        missing = teeth[lowest_power(teeth) < power]
        if missing.size or teeth[0] == 0:
            break
        width *= 4
    start = missing[-1] + 1 if missing.size else 0
    n = int(_first_passing(np.array([start]), alpha, level)[0])
    return n if n <= limit else None


def _tail(k: NDArray[np.int64], n: NDArray[np.int64], alpha: Rates) -> NDArray[np.float64]:
    """Return P(Bin(n, alpha) <= k) for arguments known to be in range, alpha = 0 allowed; k = n gives exactly 1."""
    everything = k >= n
    tail = special.betaincc(k + 1.0, np.where(everything, 1, n - k), alpha)
    p: NDArray[np.float64] = np.where(everything, 1.0, tail)
    return p


def _first_passing(k: NDArray[np.int64], alpha: float, level: float) -> NDArray[np.int64]:
    """Return, for each count, the smallest n at which it passes; the tail falls in n, so bisection finds it.

    It starts from the root over the real numbers, which is right to within rounding, and trusts only the exact tail.
    """
    root = np.nan_to_num(np.ceil(special.bdtrin(k, level, alpha)), nan=0.0, posinf=0.0)
    passes: NDArray[np.int64] = np.maximum(root.astype(np.int64), k + 1)  # k of k prompts never pass
    fails = np.maximum(passes - 1, k)
    fails = np.where(_tail(k, fails, alpha) > level, fails, k)
    while (short := _tail(k, passes, alpha) > level).any():
        fails = np.where(short, passes, fails)
        passes = np.where(short, 2 * passes, passes)
    while (passes - fails > 1).any():
        middle = (fails + passes) // 2
        enough = _tail(k, middle, alpha) <= level
        fails, passes = np.where(enough, fails, middle), np.where(enough, middle, passes)
    return passes
