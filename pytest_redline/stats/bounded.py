"""P-values for losses between 0 and 1 that are not just right or wrong: a share of repeats, a drop in a score.

Each tests the hypothesis that the expected loss is alpha or more. They are valid for every distribution on [0, 1], and
pay for that: on losses that are all 0 or 1 the exact test of `risk` passes more. Which one is used must be declared
before the data; the smaller of two p-values is none.

Sums are carried as whole numbers of a unit, so that rounding up never rests on the last bit of a float.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pytest_redline.stats.checks import Counts, Rates, inside, whole
from pytest_redline.stats.risk import binomial_tail

UNIT: Final = 1_000_000_000  # of `in_units`: sums of up to nine billion losses fit
BETTING_DELTA: Final = 0.10
BETTING_CAP: Final = 0.75
_NOISE: Final = 1e-4  # in units: 1e-13, far above what a difference of two scores is rounded by


def in_units(losses: ArrayLike) -> NDArray[np.int64]:
    """Return losses in whole units of 1e-9, rounded up, so that their sums are exact.

    Parameters
    ----------
    losses
        Numbers between 0 and 1, any shape.

    Returns
    -------
    units
        int64, the same shape. A loss within 1e-13 of a whole unit is taken as that unit: 0.9 - 0.6 is not exactly 0.3.

    Raises
    ------
    ValueError
        A loss is outside [0, 1] or NaN.

    Notes
    -----
    Rounding up only raises the expected loss, so a test of the rounded losses is one of the losses.

    Examples
    --------
    >>> in_units([0.9 - 0.6, 1 / 3]).tolist()
    [300000000, 333333334]
    """
    scaled = _losses(losses) * UNIT
    nearest = np.rint(scaled)
    up = np.where(np.abs(scaled - nearest) <= _NOISE, nearest, np.ceil(scaled))
    return up.astype(np.int64)


def hoeffding(total: Counts, n: Counts, alpha: Rates, unit: int = 1) -> NDArray[np.float64]:
    """Return Hoeffding's p-value: ``exp(-2 n (alpha - mean)^2)`` where the mean loss is below alpha, else 1.

    Parameters
    ----------
    total
        Sum of the losses in whole units, 0 <= total <= n * unit; an int or an array of ints, any shape.
    n
        Number of prompts, at least 1; an int, or an array of ints that broadcasts against total.
    alpha
        Budget of the expected loss, 0 < alpha < 1; a float or an array that broadcasts against total.
    unit
        How many units are a loss of 1: 1 for right and wrong, 2 for halves, `UNIT` for `in_units`.

    Returns
    -------
    p
        float64 in the broadcast shape, at most 1.

    Raises
    ------
    ValueError
        total, n or unit is not of integer type, n or unit below 1, total outside 0..n * unit, alpha outside (0, 1).

    Notes
    -----
    Valid for independent losses of any distribution on [0, 1]. It ignores how the losses vary, so it is the weakest of
    the three: of 1,012 verdicts it lets 54 be wrong at alpha 0.10 and level 0.10/7, where the exact test lets 80.

    Source: Hoeffding (1963), theorem 1, in its second form.

    Examples
    --------
    >>> [bool(hoeffding(k, 1012, 0.10) <= 0.10 / 7) for k in (54, 55)]
    [True, False]
    """
    sums, prompts = _totals(total, n, unit)
    short = np.maximum(inside("alpha", alpha) - sums / (prompts * float(unit)), 0)
    p: NDArray[np.float64] = np.exp(-2 * prompts * short**2)
    return p


def hoeffding_bentkus(total: Counts, n: Counts, alpha: Rates, unit: int = 1) -> NDArray[np.float64]:
    """Return the Hoeffding-Bentkus p-value, in closed form from the sum of the losses.

    Parameters
    ----------
    total, n, alpha, unit
        As in `hoeffding`.

    Returns
    -------
    p
        float64 in the broadcast shape, at most 1:
        ``min(exp(-n KL(min(mean, alpha) || alpha)), e * binomial_tail(ceil(sum), n, alpha))``.

    Raises
    ------
    ValueError
        As in `hoeffding`.

    Notes
    -----
    Both parts are valid at once, as each bounds the probability of so small a sum by a function that grows with it.

    Source: Bates et al. (2021), as used by Angelopoulos et al., "Learn then Test".

    Examples
    --------
    >>> [bool(hoeffding_bentkus(k, 1012, 0.10) <= 0.10 / 7) for k in (77, 78)]
    [True, False]
    """
    sums, prompts = _totals(total, n, unit)
    budget = inside("alpha", alpha)
    mean = np.minimum(sums / (prompts * float(unit)), budget)
    distance = special.rel_entr(mean, budget) + special.rel_entr(1 - mean, 1 - budget)
    bentkus = math.e * binomial_tail(-(-sums // unit), prompts, budget)
    p: NDArray[np.float64] = np.minimum(np.minimum(np.exp(-prompts * distance), bentkus), 1.0)
    return p


def betting(
    losses: ArrayLike, alpha: float, delta: float = BETTING_DELTA, cap: float = BETTING_CAP
) -> NDArray[np.float64]:
    """Return the betting p-value, which learns how little the losses vary as it reads them in order.

    Parameters
    ----------
    losses
        ``[..., n]`` numbers between 0 and 1, each row in a random order that was fixed before the outcomes. In an
        order that follows the data or a grouping of the prompts the p-value is wrong.
    alpha
        Budget of the expected loss, 0 < alpha < 1.
    delta
        For which level the bets are sized, 0 < delta < 1. Any value is valid if fixed before the data.
    cap
        Largest share of the capital in a bet, 0 < cap < 1, likewise.

    Returns
    -------
    p
        ``[...]`` float64, one over the largest capital on the way, at most 1.

    Raises
    ------
    ValueError
        losses has no column, or holds a loss outside [0, 1] or NaN; alpha, delta or cap outside (0, 1) or NaN.

    Notes
    -----
    The capital starts at 1 and is multiplied by ``1 - bet_i * (loss_i - alpha)``. The bet knows only what came before:
    ``min(cap / (1 - alpha), sqrt(2 ln(1/delta) / (n * variance_{i-1})))``, where the running variance starts at 1/4 and
    the running mean at 1/2, each with the weight of one prompt. Under the hypothesis no bet wins on average, so the
    capital ever reaches 1/p with probability p at most (Ville's inequality).

    Source: Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", the predictable plug-in.

    Examples
    --------
    Steady losses of 0.03 are soon told from 0.05; a sum alone does not say that they were steady:

    >>> losses = np.full(200, 0.03)
    >>> f"{betting(losses, 0.05):.3f} {hoeffding_bentkus(in_units(losses).sum(), 200, 0.05, UNIT):.3f}"
    '0.045 0.336'
    """
    x = _losses(losses)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"losses has shape {x.shape}; [..., n] with n >= 1 prompts is needed")
    inside("alpha", alpha)
    inside("cap", cap)
    n = x.shape[-1]
    seen = np.arange(2, n + 2)
    mean = (0.5 + np.cumsum(x, axis=-1)) / seen
    variance = (0.25 + np.cumsum((x - mean) ** 2, axis=-1)) / seen
    before = np.concatenate([np.full((*x.shape[:-1], 1), 0.25), variance[..., :-1]], axis=-1)
    bets = np.minimum(cap / (1 - alpha), np.sqrt(-2 * np.log(inside("delta", delta)) / (n * before)))
    capital = np.cumsum(np.log1p(-bets * (x - alpha)), axis=-1).max(axis=-1)
    p: NDArray[np.float64] = np.exp(-np.maximum(capital, 0))
    return p


def _losses(losses: ArrayLike) -> NDArray[np.float64]:
    """Return losses as float64, refusing what is none."""
    array = np.asarray(losses, dtype=np.float64)
    if (outside := ~((array >= 0) & (array <= 1))).any():
        raise ValueError(f"losses holds {float(array[outside][0])!r}; a loss lies between 0 and 1")
    return array


def _totals(total: Counts, n: Counts, unit: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return total and n, broadcast together, as int64."""
    sums, prompts = np.broadcast_arrays(whole("total", total), whole("n", n))
    if (empty := prompts < 1).any():
        raise ValueError(f"n={prompts[empty][0]}: at least one prompt is needed")
    if whole("unit", unit) < 1:
        raise ValueError(f"unit={unit}: a loss of 1 is at least one unit")
    if (outside := (sums < 0) | (sums > prompts * unit)).any():
        raise ValueError(
            f"total={sums[outside][0]} of n={prompts[outside][0]} losses in units of 1/{unit}: the sum lies between 0 "
            "and n"
        )
    return sums, prompts
