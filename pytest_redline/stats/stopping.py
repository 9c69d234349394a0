"""Verdicts from losses that are not all known: stopping early without changing what is claimed.

Each loss is 0, 1 or unknown. Whatever the unknown ones turn out to be, the p-value at the declared n lies between that
of the ones alone and that of the ones and unknown together (``p_bounds``). Holm is monotone in p, so a row that is
certified with the upper ends is certified for good, and one that is not even with the lower ends never will be
(``final``). Curtailment, lazy serving, a reference served only in part and looks all rest on these two functions.

With looks, sizes n_1 < ... < n_L = n and weights u_l that sum to 1 are fixed before the data. The smallest of
``F(k at n_l; n_l, alpha) / u_l`` is a valid p-value under any rule of stopping, by the union bound. A fixed sample is
the case of one look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pytest_redline.stats.checks import inside, rate, whole
from pytest_redline.stats.intervals import upper_bound
from pytest_redline.stats.risk import binomial_tail, largest_passing

Floats = NDArray[np.float64]
Holm = Callable[[Floats], NDArray[np.bool_]]


class Looks(NamedTuple):
    """Sizes ``n_1 < ... < n_L`` at which a p-value may be taken, and their weights, which sum to 1."""

    sizes: tuple[int, ...]
    weights: tuple[float, ...]

    @property
    def last_weight(self) -> float:
        """Share of the level that is left for the full sample."""
        return self.weights[-1]


class PBounds(NamedTuple):
    """What a p-value is at least and at most, whatever the unknown losses are."""

    low: Floats
    high: Floats


class Final(NamedTuple):
    """``[m]`` bool each: rows that are certified whatever comes, and rows that still may be, the former among them."""

    certified: NDArray[np.bool_]
    possible: NDArray[np.bool_]


class Boundaries(NamedTuple):
    """When a single configuration stops: ``[n + 1]`` int64 each, by the number of prompts served.

    It is certified with at most ``certified`` violations (-1: not yet), and given up with over ``going``.
    """

    certified: NDArray[np.int64]
    going: NDArray[np.int64]


class Expected(NamedTuple):
    """Chance that a configuration is certified, and the share of the prompts that it is served."""

    power: float
    share: float


def fixed(n: int) -> Looks:
    """Return the one look of a fixed sample of n prompts."""
    return Looks((n,), (1.0,))


def spread(sizes: Sequence[int], early: float) -> Looks:
    """Return looks whose last has weight 1 - early, the others sharing the rest equally.

    Parameters
    ----------
    sizes
        Prompts at each look, rising, at least two; the last is the full sample.
    early
        Share of the level for all looks but the last, 0 < early < 1.

    Raises
    ------
    ValueError
        Fewer than two sizes, not rising or below 1; early outside (0, 1).

    Examples
    --------
    >>> spread([128, 256, 512], 0.2)
    Looks(sizes=(128, 256, 512), weights=(0.1, 0.1, 0.8))
    """
    share = float(inside("early", early))
    if len(sizes) < 2 or sizes[0] < 1 or (np.diff(sizes) < 1).any():
        raise ValueError(f"looks at {list(sizes)}: at least two sizes, rising from 1, are needed")
    return Looks(tuple(sizes), (*(share / (len(sizes) - 1) for _ in sizes[1:]), 1 - share))


def equally_spaced(n: int, looks: int) -> tuple[int, ...]:
    """Return sizes of so many looks at equal distances, rounded to whole prompts.

    >>> equally_spaced(512, 4)
    (128, 256, 384, 512)
    """
    return tuple(round(n * look / looks) for look in range(1, looks + 1))


def steps(looks: Looks, every: int) -> tuple[int, ...]:
    """Return the numbers of prompts after which is decided: every so many, and at each look.

    >>> steps(spread((100, 250), 0.2), 80)
    (80, 100, 160, 240, 250)
    """
    if whole("every", every) < 1:
        raise ValueError(f"every={every}: at least one prompt lies between two decisions")
    return tuple(sorted({*range(every, looks.sizes[-1], every), *looks.sizes}))


def p_bounds(ones: ArrayLike, unknown: ArrayLike, looks: Looks, alpha: float) -> PBounds:
    """Return what the p-value of each row is at least and at most.

    Parameters
    ----------
    ones, unknown
        ``[L, ...]`` losses that are 1, and that are not known, among the first n_l prompts: one leading entry for each
        look, one row for each configuration.
    looks
        The L looks. A size may be 0, as where a group has no prompt at an early look: it says nothing then.
    alpha
        Risk budget, 0 < alpha < 1.

    Returns
    -------
    bounds
        Each of shape ``[...]``. Equal where everything is known. A look whose losses are all known is in both.

    Raises
    ------
    ValueError
        Not of integer type, negative, more than there are prompts, or another number of looks; alpha outside (0, 1).

    Notes
    -----
    F at a part of the prompts is no p-value of its own; without looks both ends are at the declared n.

    Source: union bound over looks; monotonicity of the binomial tail in its count.

    Examples
    --------
    30 violations, 100 of 1,012 losses unknown:

    >>> low, high = p_bounds([[30]], [[100]], fixed(1012), 0.10)
    >>> f"{low[0]:.0e} {high[0]:.3f}"
    '6e-18 0.998'
    """
    found, open_losses = whole("ones", ones), whole("unknown", unknown)
    if len(found) != len(looks.sizes) or found.shape != open_losses.shape:
        raise ValueError(f"counts of shapes {found.shape}, {open_losses.shape} for {len(looks.sizes)} looks")
    if (open_losses < 0).any():
        raise ValueError("unknown is negative")
    used = np.flatnonzero(looks.sizes)
    each = [len(used), *[1] * (found.ndim - 1)]
    sizes, weights = (np.reshape(np.asarray(values)[used], each) for values in looks[:2])
    ends = np.stack([found[used], found[used] + open_losses[used]])
    low, high = np.min(binomial_tail(ends, sizes, alpha) / weights, axis=1, initial=1.0)
    return PBounds(low, high)


def final(bounds: PBounds, holm: Holm) -> Final:
    """Return which rows are certified, and which may still be, whatever the unknown losses are.

    Parameters
    ----------
    holm
        A step-down procedure that is monotone: smaller p-values certify no fewer rows.
    """
    return Final(holm(bounds.high), holm(bounds.low))


def decided_p(bounds: PBounds, certified: NDArray[np.bool_], possible: NDArray[np.bool_]) -> Floats:
    """Return the p-values that a verdict is stated with.

    The upper end, except for rows that can no longer be certified: the lower end. Holm on these certifies exactly the
    rows that it certifies on the upper ends: the rows it would go on to are those that fail on their lower ends.
    """
    return np.where(certified | possible, bounds.high, bounds.low)


def upper_bound_over_looks(ones: ArrayLike, unknown: ArrayLike, looks: Looks, level: float) -> Floats:
    """Return the one-sided upper bound of the risk that belongs to ``p_bounds``.

    Parameters
    ----------
    ones, unknown, looks
        As in `p_bounds`.
    level
        Probability with which the bound may fail, shared among the looks by their weights.

    Returns
    -------
    bound
        Of shape ``[...]``: the smallest over looks of the Clopper-Pearson bound, unknown losses counted as ones. It is
        at most alpha exactly where the upper p-value is at most the level.
    """
    found, open_losses = whole("ones", ones), whole("unknown", unknown)
    bound = np.ones(found.shape[1:])
    for size, weight, most in zip(looks.sizes, looks.weights, found + open_losses, strict=True):
        if size:
            each = [upper_bound(int(k), size, weight * level) for k in np.ravel(most)]
            bound = np.minimum(bound, np.reshape(each, bound.shape))
    return bound


def boundaries(looks: Looks, alpha: float, level: float, lenient: float | None = None) -> Boundaries:
    """Return when one configuration is certified and when it is given up.

    Parameters
    ----------
    looks
        The last of them is the full sample; ``fixed(n)`` for curtailment alone.
    level
        What its p-value is compared with.
    lenient
        The largest level that it could come to, as Holm's last; `level` by default. It is given up only when it
        could not be certified even there.

    Raises
    ------
    ValueError
        alpha or a level outside (0, 1).

    Examples
    --------
    Holm's last level at n = 1,012: over 88 violations a configuration is given up; with 20 % spent earlier, over 87.

    >>> int(boundaries(fixed(1012), 0.10, 0.10 / 7, 0.10).going[500])
    88
    >>> int(boundaries(spread(equally_spaced(1012, 10), 0.2), 0.10, 0.10 / 7, 0.10).going[950])
    87
    """
    n = looks.sizes[-1]
    certified, going = np.full(n + 1, -1), np.full(n + 1, -1)
    for size, weight in zip(looks.sizes, looks.weights, strict=True):
        passing = largest_passing(size, alpha, weight * level)
        served = np.arange(size + 1)
        certified[: size + 1] = np.maximum(certified[: size + 1], np.maximum(passing - (size - served), -1))
        most = largest_passing(size, alpha, weight * (level if lenient is None else lenient))
        going[: size + 1] = np.maximum(going[: size + 1], most)
    return Boundaries(certified, going)


def expected(risk: float, stops: Boundaries, at: Sequence[int] | None = None) -> Expected:
    """Return how often a configuration of a given risk is certified, and how much of the sample it is served.

    Parameters
    ----------
    risk
        True joint risk, 0 to 1.
    stops
        When it stops; what stands at 0 prompts is not looked at.
    at
        Numbers of prompts after which is decided, rising to n, as `steps` gives them; after each prompt by default.

    Raises
    ------
    ValueError
        risk outside [0, 1].

    Source: recursion over the distribution of k among the runs that go on; exact up to rounding.

    Examples
    --------
    Curtailment at n = 1,012, alpha = 0.10: a configuration of risk 0.15 is served 59 % of the prompts.

    >>> f"{expected(0.15, boundaries(fixed(1012), 0.10, 0.10 / 7, 0.10)).share:.2f}"
    '0.59'
    """
    true_risk = rate("risk", risk)
    n = len(stops.going) - 1
    going = np.zeros(n + 1)
    going[0] = 1.0
    power = served = 0.0
    number = np.arange(n + 1)
    ends = range(1, n + 1) if at is None else at
    for start, end in zip((0, *ends), ends, strict=False):
        served += going.sum() * (end - start)
        step = np.arange(end - start + 1)
        chance = np.exp(
            special.gammaln(step[-1] + 1)
            - special.gammaln(step + 1)
            - special.gammaln(step[::-1] + 1)
            + special.xlogy(step, true_risk)
            + special.xlog1py(step[::-1], -true_risk)
        )
        going = np.convolve(going, chance)[: n + 1]
        passing = number <= stops.certified[end]
        power += going[passing].sum()
        going[passing | (number > stops.going[end])] = 0.0
    return Expected(float(power), float(served / n))
