"""What a number of prompts can show before any is drawn, and what a pilot says of a larger draw.

A candidate passes when its count is at most the largest that meets its level. Holm gives the level: delta/(m - 1) when
no other candidate passes, delta when all do, always after the reference, which has to meet delta/m with its zero
violations. ``delta/m`` for a candidate is therefore on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pytest_redline.stats.bootstrap import SEED
from pytest_redline.stats.checks import counts, inside, rate, whole
from pytest_redline.stats.intervals import Interval, clopper_pearson
from pytest_redline.stats.risk import binomial_tail, fewest_prompts, largest_passing, prompts_for_power

DRAWS = 10_000
_CHUNK = 2_000_000  # weights held at once


class Level(NamedTuple):
    """What the p-value of a candidate is compared with, and its name: "delta/m", "delta/(m-1)" or "delta"."""

    name: str
    value: float


class Reach(NamedTuple):
    """What n prompts can show at one level.

    ``most`` is the largest number of violations that passes and ``share`` that over n; -1 and None where not even zero
    passes. ``alpha_of_zero`` is the smallest budget at which zero violations pass.
    """

    level: Level
    most: int
    share: float | None
    alpha_of_zero: float


class RiskPlan(NamedTuple):
    """What it takes to certify a candidate of one true risk, at each level.

    ``prompts`` is the smallest n from which on it passes with the wanted power, None where none does; ``power`` the
    chance at the n that was asked about, None where none was.
    """

    risk: float
    prompts: tuple[int | None, ...]
    power: tuple[float, ...] | None


class PilotRow(NamedTuple):
    """Chances of one candidate of a pilot to pass in a new draw of n prompts.

    ``interval`` is the 95 % Clopper-Pearson interval of its risk. ``as_measured`` is the chance at delta/(m-1) were its
    risk k over the pilot's n, ``over_interval`` that chance at the interval's upper and at its lower end. The
    predictive chances average over what the risk may be: ``alone`` when no other candidate passes, ``at_best`` when all
    do, ``holm`` over what the others do. ``prompts`` as in `RiskPlan`, at delta/(m-1) and the measured risk.
    """

    k: int
    interval: Interval[float]
    as_measured: float
    over_interval: Interval[float]
    alone: float
    holm: float
    at_best: float
    prompts: int | None


def levels(delta: float, m: int) -> tuple[Level, ...]:
    """Return the levels of interest, from the strictest: delta/m, delta/(m-1), and delta where it is another.

    Parameters
    ----------
    delta
        Failure probability of the whole grid, 0 < delta < 1.
    m
        Configurations of the grid, the reference included; at least 2.

    Raises
    ------
    ValueError
        delta outside (0, 1) or NaN; m not of integer type or below 2.

    Source: Holm (1979), with the paper's convention that m includes the reference.

    Examples
    --------
    >>> [level.name for level in levels(0.1, 7)], [level.value for level in levels(0.1, 2)]
    (['delta/m', 'delta/(m-1)', 'delta'], [0.05, 0.1])
    """
    inside("delta", delta)
    if whole("m", m) < 2:
        raise ValueError(f"m={m}: a grid has a reference and at least one candidate")
    strict = (Level("delta/m", delta / m), Level("delta/(m-1)", delta / (m - 1)))
    return strict if m == 2 else (*strict, Level("delta", delta))


def power(n: int, risk: float, alpha: float, level: float) -> float:
    """Return the chance that a candidate of the given true risk passes on n prompts.

    Parameters
    ----------
    n
        Number of prompts, at least 1.
    risk
        True joint risk, between 0 and 1.
    alpha
        Risk budget, 0 < alpha < 1.
    level
        What the p-value is compared with, 0 < level < 1.

    Raises
    ------
    ValueError
        n is not of integer type or below 1; risk outside [0, 1]; alpha or level outside (0, 1); NaN.

    Source: the exact test of the paper; its size at risk = alpha is at most the level.

    Examples
    --------
    >>> round(power(1012, 0.07, 0.10, 0.10 / 7), 3)
    0.882
    """
    most = largest_passing(n, alpha, level)
    return _at_most(most, n, rate("risk", risk))


def alpha_of_zero(n: int, level: float) -> float:
    """Return the smallest budget at which a configuration without any violation on n prompts passes.

    Parameters
    ----------
    n
        Number of prompts, at least 1.
    level
        What the p-value is compared with, 0 < level < 1.

    Raises
    ------
    ValueError
        n is not of integer type or below 1; level outside (0, 1) or NaN.

    Source: (1 - alpha)^n = level; about ln(1/level)/n.

    Examples
    --------
    >>> [round(alpha_of_zero(n, 0.10 / 7), 4) for n in (100, 256, 512, 1012, 5000)]
    [0.0416, 0.0165, 0.0083, 0.0042, 0.0008]
    """
    _, prompts = counts(0, n)
    return -math.expm1(math.log(float(inside("level", level))) / int(prompts))


def reach(n: int, alpha: float, delta: float, m: int) -> list[Reach]:
    """Return what n prompts can show, at each of `levels`.

    Raises
    ------
    ValueError
        As in `levels`, `largest_passing` and `alpha_of_zero`.

    Examples
    --------
    >>> [(each.level.name, each.most) for each in reach(1012, 0.10, 0.10, 7)]
    [('delta/m', 80), ('delta/(m-1)', 80), ('delta', 88)]
    """
    found = []
    for level in levels(delta, m):
        most = largest_passing(n, alpha, level.value)
        found.append(Reach(level, most, most / n if most >= 0 else None, alpha_of_zero(n, level.value)))
    return found


def plan(alpha: float, delta: float, m: int, risk: float, wanted: float = 0.8, n: int | None = None) -> RiskPlan:
    """Return what it takes to certify a candidate of the given true risk in a grid of m.

    Parameters
    ----------
    alpha
        Risk budget, 0 < alpha < 1.
    delta
        Failure probability of the whole grid, 0 < delta < 1.
    m
        Configurations of the grid, the reference included; at least 2.
    risk
        True joint risk of the candidate, 0 <= risk <= 1.
    wanted
        Power that the number of prompts is for, 0 < wanted < 1.
    n
        Number of prompts to state the power of, or None.

    Raises
    ------
    ValueError
        An argument is out of range.

    Source: the paper's sample sizes (Table 7); the reference has to pass first, so no number is below its own.

    Examples
    --------
    A lone candidate needs 446 prompts: delta/m would say 593.

    >>> plan(0.10, 0.10, 2, 0.07).prompts
    (593, 446)
    """
    steps = levels(delta, m)
    first = fewest_prompts(alpha, delta / m)
    needed = [prompts_for_power(alpha, risk, level.value, wanted) for level in steps]
    passes_first = n is None or n >= first
    return RiskPlan(
        risk,
        tuple(None if each is None else max(each, first) for each in needed),
        None if n is None else tuple(power(n, risk, alpha, level.value) if passes_first else 0.0 for level in steps),
    )


def pilot(
    violated: NDArray[np.bool_],
    n: int,
    alpha: float,
    delta: float,
    m: int,
    wanted: float = 0.8,
    draws: int = DRAWS,
    seed: int = SEED,
) -> list[PilotRow]:
    """Return how likely each candidate of a pilot is to pass in a new draw of n prompts.

    Parameters
    ----------
    violated
        ``[c, n_pilot]`` bool: is the reference right on the pilot's prompt and the candidate wrong; c >= 1.
    n
        Prompts of the new draw, at least 1.
    alpha, delta
        Risk budget and failure probability of the new grid, 0 to 1 both excluded.
    m
        Configurations of the new grid, the reference included: c + 1, or more where others join, which then are taken
        to fail.
    wanted
        Power that ``prompts`` is for, 0 < wanted < 1.
    draws, seed
        Of the simulation behind ``holm``, at least 1; with 10,000 draws its standard error is 0.005 at most.

    Raises
    ------
    ValueError
        violated is no table of c x n_pilot; m < c + 1; another argument is out of range.

    Notes
    -----
    The predictive chances take what the pilot's prompts showed together, its *patterns* of violations, for a sample
    from a Dirichlet process with prior mass 1, half of it on "no candidate is violated" and half on "all are". Each
    risk then has Jeffreys' posterior, Beta(k + 1/2, n_pilot - k + 1/2), and what candidates share they keep. ``alone``
    and ``at_best`` are exact beta-binomial sums, between which ``holm`` lies but for its simulation error.

    Source: Jeffreys' prior for a proportion; Rubin (1981) for the Bayesian bootstrap.

    Examples
    --------
    73 violations of 1,012 prompts in a grid of 7, and as many new prompts:

    >>> table = np.zeros((1, 1012), dtype=bool)
    >>> table[0, :73] = True
    >>> row = pilot(table, 1012, 0.10, 0.10, 7, draws=200)[0]
    >>> round(row.as_measured, 2), round(row.alone, 2), round(row.at_best, 2)
    (0.82, 0.74, 0.9)
    """
    table = np.asarray(violated)
    if table.dtype != np.bool_ or table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"violated is {table.dtype} of shape {table.shape}; [c, n] truth values are needed")
    if whole("m", m) < len(table) + 1:
        raise ValueError(f"m={m}: the pilot's {len(table)} candidates and the reference are {len(table) + 1}")
    if whole("draws", draws) < 1:
        raise ValueError(f"draws={draws}: at least one is needed")
    inside("delta", delta)
    pilot_n = table.shape[1]
    first, strict, last = fewest_prompts(alpha, delta / m), delta / (m - 1), delta
    most_alone, most_at_best = (largest_passing(n, alpha, level) if n >= first else -1 for level in (strict, last))
    passed = np.zeros(len(table), dtype=np.int64)
    for drawn in _new_counts(table, n, draws, seed):
        passed += _holm_over_draws(drawn, n, alpha, delta, m).sum(axis=0)
    rows = []
    for candidate, certified in zip(table, passed, strict=True):
        k = int(candidate.sum())
        interval = clopper_pearson(k, pilot_n)
        prior_k, prior_rest = k + 0.5, pilot_n - k + 0.5
        needed = prompts_for_power(alpha, k / pilot_n, strict, wanted)
        rows.append(
            PilotRow(
                k=k,
                interval=interval,
                as_measured=_at_most(most_alone, n, k / pilot_n),
                over_interval=Interval(
                    _at_most(most_alone, n, interval.upper), _at_most(most_alone, n, interval.lower)
                ),
                alone=_beta_binomial_at_most(most_alone, n, prior_k, prior_rest),
                holm=int(certified) / draws,
                at_best=_beta_binomial_at_most(most_at_best, n, prior_k, prior_rest),
                prompts=None if needed is None else max(needed, first),
            )
        )
    return rows


def _at_most(most: int, n: int, risk: float) -> float:
    """Return P(Bin(n, risk) <= most), where risk may be 0 or 1 and most -1."""
    if most < 0 or risk == 1:
        return float(most >= n)
    return 1.0 if risk == 0 else binomial_tail(most, n, risk)


def _beta_binomial_at_most(most: int, n: int, a: float, b: float) -> float:
    """Return P(K <= most) for K ~ Bin(n, R), R ~ Beta(a, b)."""
    k = np.arange(most + 1)
    ways = -np.log1p(n) - special.betaln(n - k + 1, k + 1)
    return min(1.0, float(np.exp(ways + special.betaln(k + a, n - k + b) - special.betaln(a, b)).sum()))


def _new_counts(table: NDArray[np.bool_], n: int, draws: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield ``[chunk, c]`` violations of each candidate in new draws of n prompts."""
    ends = np.array([[False] * len(table), [True] * len(table)])
    patterns, seen = np.unique(np.vstack([table.T, ends]), axis=0, return_counts=True)
    mass = seen.astype(np.float64)
    mass[(patterns == patterns[:, :1]).all(axis=1)] -= 0.5  # the two ends count half
    generator = np.random.default_rng(seed)
    size = max(1, _CHUNK // len(mass))
    for start in range(0, draws, size):
        weights = generator.standard_gamma(mass, size=(min(size, draws - start), len(mass)))
        weights /= weights.sum(axis=1, keepdims=True)
        yield generator.multinomial(n, weights) @ patterns.astype(np.int64)


def _holm_over_draws(k: NDArray[np.int64], n: int, alpha: float, delta: float, m: int) -> NDArray[np.bool_]:
    """Return ``[draws, c]``: is each candidate certified, the reference being there and other candidates failing."""
    tail = binomial_tail(np.arange(n + 1), n, alpha)
    if tail[0] > delta / m:
        return np.zeros(k.shape, dtype=np.bool_)
    p = tail[k]
    ordered = np.sort(p, axis=1)
    ladder = delta / np.arange(m - 1, 0, -1)[: p.shape[1]]
    reached = np.logical_and.accumulate(ordered <= ladder, axis=1).sum(axis=1)
    largest = np.where(reached > 0, np.take_along_axis(ordered, np.maximum(reached - 1, 0)[:, None], axis=1)[:, 0], -1)
    certified: NDArray[np.bool_] = p <= largest[:, None]
    return certified
