"""Paired bootstrap over prompts: how far net accuracy and gain could move with another draw of the prompts.

Every resample draws n prompts with replacement, the same ones for all columns, so that the noise that configurations
share cancels in their differences and ratios. Intervals from here describe; they certify nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pytest_redline.stats.checks import inside, whole
from pytest_redline.stats.intervals import Interval

SEED = 20260920
_CHUNK = 4_000_000  # weights held at once: 32 MB of counts and as much again as floats


def default_resamples(n: int) -> int:
    """Return how many resamples are drawn unless said otherwise.

    Parameters
    ----------
    n
        Number of prompts, at least 1.

    Returns
    -------
    resamples
        10,000 up to 5,000 prompts, as in the paper; beyond, 50,000,000 // n, and 1,000 at least.

    Raises
    ------
    ValueError
        n is not of integer type or below 1.

    Examples
    --------
    >>> [default_resamples(n) for n in (1_012, 5_000, 10_000, 200_000)]
    [10000, 10000, 5000, 1000]
    """
    if whole("n", n) < 1:
        raise ValueError(f"n={n}: at least one prompt is needed")
    return 10_000 if n <= 5_000 else max(1_000, 50_000_000 // n)


def paired_means(values: NDArray[np.float64], resamples: int | None = None, seed: int = SEED) -> NDArray[np.float64]:
    """Return the mean of every column in every resample of the prompts.

    Parameters
    ----------
    values
        ``[n, c]`` finite numbers: a row for each prompt, a column for each quantity (correctness, tokens, ...).
    resamples
        Number B of resamples, at least 1; None for `default_resamples`.
    seed
        Seed of numpy's ``default_rng``. Equal seed, n and B give equal resamples whatever the columns.

    Returns
    -------
    means
        ``[B, c]`` float64. Sums of whole numbers below 2**53 are exact, so columns of verdicts, tokens or forwards give
        the same bits on every machine.

    Raises
    ------
    ValueError
        values is not two-dimensional, has no row or no column, or holds NaN or an infinity; resamples not of integer
        type or below 1.

    Notes
    -----
    The weights are multinomial(n, 1/n) counts, drawn in chunks from one stream: the same as in one piece.

    Source: the paired bootstrap of the paper's Table 5 (B = 10,000, multinomial weights).

    Examples
    --------
    >>> differences = np.array([[1.0], [-1.0], [0.0], [0.0]])
    >>> means = paired_means(differences, resamples=500)
    >>> means.shape, bool(abs(means.mean()) < 0.05)
    ((500, 1), True)
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"values has shape {table.shape}; [n, c] with n >= 1 prompts and c >= 1 columns is needed")
    if (odd := ~np.isfinite(table)).any():
        raise ValueError(f"values holds {float(table[odd][0])!r}; every prompt needs a finite number in every column")
    n = table.shape[0]
    drawn = default_resamples(n) if resamples is None else resamples
    if whole("resamples", drawn) < 1:
        raise ValueError(f"resamples={drawn}: at least one is needed")
    sums = np.concatenate([weights @ table for weights in _weights(n, drawn, seed)])
    means: NDArray[np.float64] = sums / n
    return means


def percentile_interval(samples: NDArray[np.float64], confidence: float = 0.95) -> Interval[float]:
    """Return the central interval of one bootstrapped quantity, percentiles 2.5 and 97.5 at confidence 0.95.

    Parameters
    ----------
    samples
        ``[B]`` finite values of the quantity, one for each resample.
    confidence
        Share of the resamples inside, 0 < confidence < 1.

    Returns
    -------
    interval
        Percentiles with linear interpolation between order statistics.

    Raises
    ------
    ValueError
        samples is empty, not one-dimensional, or holds NaN or an infinity; confidence outside (0, 1) or NaN.

    Source: the intervals of the paper's Table 5.

    Examples
    --------
    >>> percentile_interval(np.arange(1001.0))
    Interval(lower=25.0, upper=975.0)
    """
    drawn = np.asarray(samples, dtype=np.float64)
    if drawn.ndim != 1 or drawn.size == 0:
        raise ValueError(f"samples has shape {drawn.shape}; [B] with B >= 1 is needed")
    if (odd := ~np.isfinite(drawn)).any():
        raise ValueError(f"samples holds {float(drawn[odd][0])!r}; every resample needs a finite value")
    outside = (100 - 100 * float(inside("confidence", confidence))) / 2
    lower, upper = np.percentile(drawn, [outside, 100 - outside])
    return Interval(float(lower), float(upper))


def _weights(n: int, resamples: int, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield ``[chunk, n]`` how often each prompt was drawn; every row sums to n."""
    generator = np.random.default_rng(seed)
    even = np.full(n, 1 / n)
    rows = max(1, _CHUNK // n)
    for start in range(0, resamples, rows):
        yield generator.multinomial(n, even, size=min(rows, resamples - start)).astype(np.float64)
