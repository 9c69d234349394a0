"""What the functions of this package accept: whole counts and probabilities, refused with the value that was found."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Counts: TypeAlias = int | NDArray[np.int64]
Rates: TypeAlias = float | NDArray[np.float64]


def whole(name: str, value: ArrayLike) -> NDArray[np.int64]:
    """Return a value of integer type as int64; a float is refused even where it is whole, and so is a truth value.

    A count recovered from a rate is not a count: ``ceil(420 * (29 / 420))`` is 30.

    Raises
    ------
    ValueError
        The type is not an integer type.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name}={value!r} is of type {array.dtype}; counts are whole numbers of integer type")
    return array.astype(np.int64)


def counts(k: ArrayLike, n: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return k and n, broadcast together, as int64.

    Raises
    ------
    ValueError
        Not of integer type, n < 1, k < 0 or k > n.
    """
    found, prompts = np.broadcast_arrays(whole("k", k), whole("n", n))
    if (empty := prompts < 1).any():
        raise ValueError(f"n={prompts[empty][0]}: at least one prompt is needed")
    if (outside := (found < 0) | (found > prompts)).any():
        raise ValueError(f"k={found[outside][0]} of n={prompts[outside][0]}: a count lies between 0 and n")
    return found, prompts


def inside(name: str, value: ArrayLike) -> NDArray[np.float64]:
    """Return probabilities as float64, each strictly between 0 and 1.

    Raises
    ------
    ValueError
        A value is 0 or less, 1 or more, or NaN.
    """
    array = np.asarray(value, dtype=np.float64)
    if (outside := ~((array > 0) & (array < 1))).any():
        raise ValueError(f"{name}={float(array[outside][0])!r} is not strictly between 0 and 1")
    return array


def rate(name: str, value: float) -> float:
    """Return one probability, 0 and 1 allowed.

    Raises
    ------
    ValueError
        The value is below 0, above 1, or NaN.
    """
    if math.isnan(value) or not 0 <= value <= 1:
        raise ValueError(f"{name}={value!r} is not between 0 and 1")
    return float(value)
