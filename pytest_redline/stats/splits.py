"""Random splits and subsets of recorded prompts, and how often each configuration breaks or mends prompts in them.

The seeds and the generator are those of the paper, so that its tables come out again. Everything is drawn in chunks
from one stream: memory is bounded, and the draws are the same as in one piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pytest_redline.stats.checks import whole

SEED: Final = 20260918  # of half splits
UNIFORM: Final = 1  # added to the seed for uniform subsets
STRATIFIED: Final = 11  # and for stratified ones
_CHUNK: Final = 250_000  # prompts drawn at once


def half(n: int) -> int:
    """Return how many of n prompts calibrate: a half, an odd one going to the even number.

    >>> [half(n) for n in (1012, 5, 7)]
    [506, 2, 4]
    """
    return round(n / 2)


def half_splits(n: int, splits: int, seed: int = SEED) -> Iterator[NDArray[np.intp]]:
    """Yield the calibration prompts of random half splits, in the random order in which they were drawn.

    Parameters
    ----------
    n
        Number of prompts, at least 2, so that both halves hold one.
    splits
        How many, at least 1.
    seed
        Of numpy's ``default_rng``.

    Yields
    ------
    chosen
        ``[c, half(n)]`` indices of prompts, without repetition within a row; the chunks add up to the splits.

    Raises
    ------
    ValueError
        n below 2, or splits below 1, or one of no integer type.

    Source: the half splits of the paper's Tables 14 to 16: 1,000 permutations, of which the first half calibrates.
    """
    if whole("n", n) < 2:
        raise ValueError(f"n={n}: a split takes at least two prompts")
    generator = np.random.default_rng(seed)
    for rows in _chunks(n, splits):
        yield np.array([generator.permutation(n)[: half(n)] for _ in range(rows)])


def subsets(
    n: int, size: int, draws: int, seed: int = SEED, strata: Sequence[str] | None = None
) -> Iterator[NDArray[np.intp]]:
    """Yield random subsets of the prompts, uniform ones or with each stratum at its share.

    Parameters
    ----------
    n
        Number of prompts, at least 1.
    size
        Prompts of a subset, 1 <= size <= n.
    draws
        How many, at least 1.
    seed
        The one of the study; subsets draw from streams of their own, `UNIFORM` and `STRATIFIED` further.
    strata
        The stratum of each prompt; None draws from all alike. Strata count in the order in which they first appear.

    Yields
    ------
    chosen
        ``[c, size]`` indices of prompts, ascending in each row.

    Raises
    ------
    ValueError
        size outside 1..n, draws below 1, one of no integer type, or strata of another length than n.

    Source: the subsets of the paper's Table 6.
    """
    if not 1 <= whole("size", size) <= n:
        raise ValueError(f"size={size}: a subset of {n} prompts holds between 1 and {n}")
    if strata is not None and len(strata) != n:
        raise ValueError(f"strata has {len(strata)} entries for {n} prompts")
    generator = np.random.default_rng(seed + (UNIFORM if strata is None else STRATIFIED))
    names = list(dict.fromkeys(strata or [""]))
    members = [np.flatnonzero([each == name for each in strata]) if strata else np.arange(n) for name in names]
    sizes = proportional(size, [len(each) for each in members])
    for rows in _chunks(n, draws):
        drawn = [
            np.concatenate(
                [generator.choice(each, count, replace=False) for each, count in zip(members, sizes, strict=True)]
            )
            for _ in range(rows)
        ]
        yield np.sort(np.array(drawn), axis=1)


def proportional(size: int, strata: Sequence[float], total: float | None = None) -> list[int]:
    """Return how many of ``size`` prompts each stratum gets: its share, rounded so that they add up.

    The largest remainders are rounded up, the first of equal ones first. ``strata`` are sizes, or shares of ``total``.

    >>> proportional(542, [512, 500])
    [274, 268]
    >>> proportional(10, [0.25, 0.75], total=1)
    [3, 7]
    """
    total = sum(strata) if total is None else total
    counts = [int(size * each // total) for each in strata]
    remainders = [-(size * each % total) for each in strata]
    for index in sorted(range(len(strata)), key=remainders.__getitem__)[: size - sum(counts)]:
        counts[index] += 1
    return counts


def counted(rows: NDArray[np.bool_], chosen: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return how many of each sample's prompts are marked in each row.

    Parameters
    ----------
    rows
        ``[m, n]`` bool.
    chosen
        ``[S, h]`` indices of prompts, without repetition within a sample.

    Returns
    -------
    counts
        ``[S, m]`` int64.

    Examples
    --------
    >>> counted(np.array([[True, False, True], [False, False, True]]), np.array([[0, 1], [2, 0]])).tolist()
    [[1, 0], [2, 1]]
    """
    return np.rint(summed(rows.astype(np.float64), chosen)).astype(np.int64)


def summed(values: NDArray[np.float64], chosen: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the sum of each row of values over each sample's prompts.

    Parameters
    ----------
    values
        ``[m, n]`` finite numbers. Sums of whole numbers below 2**53 are exact.
    chosen
        As in `counted`.

    Returns
    -------
    sums
        ``[S, m]`` float64.
    """
    inside = np.zeros((len(chosen), values.shape[1]))
    np.put_along_axis(inside, chosen, 1.0, axis=1)
    sums: NDArray[np.float64] = inside @ values.T
    return sums


def _chunks(n: int, draws: int) -> Iterator[int]:
    """Yield numbers of draws that add up to all, each little enough for memory."""
    if whole("draws", draws) < 1:
        raise ValueError(f"draws={draws}: at least one is needed")
    rows = max(1, _CHUNK // n)
    for start in range(0, draws, rows):
        yield min(rows, draws - start)
