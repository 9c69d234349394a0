"""A batch in parts that are computed side by side, each on one thread of the processor.

PyTorch divides every single operation among its threads, and they meet after each. The operations of a small model are
so short that meeting takes as long as computing. Parts meet once in a step.

Queries about one prompt read each other's pages and stay in one part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

import numpy as np
import torch

from redline_engine.models.base import Batch, Numbers

LEAST_ROWS = 128  # of a part: with fewer, reading the weights takes as long as multiplying by them
LARGE = 2**20  # elements of a weight, from which on a few rows by it take longer than threads take to meet

_Result = TypeVar("_Result")


def parts_of(batch: Batch, order: Numbers, most: int) -> list[Numbers]:
    """Divide the queries of a batch, in some order, into at most `most` parts with about equally many rows.

    No part is meant to have fewer than `LEAST_ROWS`.
    """
    count = min(most, batch.tokens.size // LEAST_ROWS)
    if count <= 1:
        return [order]
    _, number = np.unique(batch.prompts, return_inverse=True)
    run = np.bincount(number, weights=batch.run)
    middles = np.cumsum(run) - run / 2
    part = (middles * count // run.sum())[number[order]]
    return [order[part == each] for each in np.unique(part).tolist()]


def run(compute: Callable[[Numbers], _Result], parts: Sequence[Numbers], divide: bool) -> list[_Result]:
    """Compute parts side by side, the first one on the thread of the caller; each operation runs on one thread.

    The operations of a single part are divided among all threads if `divide`. Whatever a part raises is raised when all
    have ended.
    """
    threads = torch.get_num_threads()
    if len(parts) == 1 and (divide or threads == 1):
        return [compute(parts[0])]
    torch.set_num_threads(1)
    try:
        others = [_workers(os.getpid(), threads - 1).submit(compute, part) for part in parts[1:]]
        try:
            first = compute(parts[0])
        finally:
            wait(others)
        return [first, *(other.result() for other in others)]
    finally:
        torch.set_num_threads(threads)


@cache
def _workers(process: int, count: int) -> ThreadPoolExecutor:
    """Threads of a process; a child that is forked has none of its parent's."""
    return ThreadPoolExecutor(count, "redline-part", initializer=torch.set_num_threads, initargs=(1,))
