"""A random order of names that nothing but their seed decides."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def random_order(names: Sequence[str], seed: int) -> NDArray[np.int64]:
    """Positions of names in a random order of this seed: by hash, so that no version of a library changes it."""
    keys = [hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogatepass")).digest() for name in names]
    return np.array(sorted(range(len(names)), key=keys.__getitem__), dtype=np.int64)
