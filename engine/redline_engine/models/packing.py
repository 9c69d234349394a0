"""Laying out a batch of unequal queries: packed rows, groups that attend together, and where keys and values lie.

The rows of all queries are *packed* into one matrix for everything that works row by row. Queries run whole blocks, so
keys and values are kept, found and gathered by the block. Only attention needs a rectangle: consecutive queries that
run equally many blocks form a *group*, whose cached blocks are padded to those of the longest.

Blocks lie at *places* of a cache, pages behind two others. One stays zero and fills up the cached blocks of shorter
queries: a masked key still multiplies its value by 0, so whatever stands there must be finite. The other takes what
nobody reads (`graphs.py`).

Letters: ``T`` packed rows, ``N`` blocks that each query of a group runs, ``P`` cached blocks of its longest, ``b``
queries of a group, ``R = N B`` rows of one, ``C = (N + P) B`` positions that it may look at, ``B`` block size, ``L``
layers, ``K`` key-value heads, ``D`` head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from redline_engine.models.base import Batch, Numbers

ZERO, SPARE, PAGES_AT = 0, 1, 2  # places

GATHERED = 2**18  # positions times key-value elements of a group: as many as a core's own cache holds


class Group(NamedTuple):
    """Consecutive queries that attend together.

    Parameters
    ----------
    rows
        Their packed rows, ``b R`` of them.
    queries
        ``b``.
    places
        ``[b (N + P)]`` where each query's blocks lie, those that are run first; padded with `ZERO`.
    bias
        ``[b or 1, 1, R or 1, C]``, minus infinity where a row must not look; None where every row sees everything.
    """

    rows: slice
    queries: int
    places: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Packed:
    """Where the rows of a batch of queries lie; everything that no layer changes.

    Parameters
    ----------
    ids, positions
        ``[T]`` tokens and where they stand.
    places
        ``[T / B]`` where the keys and values of the blocks that are run are put.
    groups
        Of all queries, in order.
    asked
        ``[n]`` packed rows of the positions asked about.
    """

    ids: Tensor
    positions: Tensor
    places: Tensor
    groups: list[Group]
    asked: Tensor


class PageCache:
    """Keys and values of the blocks of one size.

    Parameters
    ----------
    layers, block_size, heads, head_dim
        ``L``, ``B``, ``2 K`` and ``D``.
    dtype, device
        Of the keys and values.

    Attributes
    ----------
    kept
        ``[L, places, B, 2 K, D]``, key heads before value heads.
    gathered
        Most blocks of a group, padding included, if it has more than one query.
    """

    def __init__(
        self, layers: int, block_size: int, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.kept = torch.zeros(layers, PAGES_AT, block_size, heads, head_dim, dtype=dtype, device=device)
        self.gathered = max(1, GATHERED // self.kept[0, 0].numel())

    def reserve(self, last: int) -> None:
        """Make room for pages 0 to `last`; it is doubled when it ends."""
        have, needed = self.kept.shape[1], PAGES_AT + last + 1
        if needed > have:
            grown = self.kept.new_zeros(len(self.kept), max(needed, 2 * have), *self.kept.shape[2:])
            grown[:, :have] = self.kept
            self.kept = grown


class Laid(NamedTuple):
    """Where the blocks that a batch runs belong, ``[T / B]`` each.

    Parameters
    ----------
    owners, within
        Which query runs a block, and which of those that it runs it is.
    numbers
        Which of all blocks of its query it is.
    places
        Where its keys and values are put.
    """

    owners: Numbers
    within: Numbers
    numbers: Numbers
    places: Numbers


def lay(batch: Batch) -> Laid:
    """Find the query, number and place of each block that is run."""
    owners, numbers = np.repeat(np.arange(len(batch.run)), batch.run), batch.numbers
    return Laid(owners, numbers - batch.cached[owners], numbers, batch.pages[owners, numbers] + PAGES_AT)


def cached_places(batch: Batch) -> Numbers:
    """``[Q, P]`` where the cached blocks of each query lie, filled up with `ZERO`."""
    column = np.arange(batch.cached.max())
    return np.where(column < batch.cached[:, None], batch.pages[:, : len(column)] + PAGES_AT, ZERO)


def pack(batch: Batch, cache: PageCache) -> Packed:
    """Lay out a batch of queries; the cache must have room for their pages.

    Queries are grouped as they come: those that run equally many blocks should stand together, and among them those
    with equally many cached blocks, so that nothing is padded.
    """
    size = batch.block_size
    laid, past = lay(batch), cached_places(batch)
    positions = laid.numbers[:, None] * size + np.arange(size)
    edges = [0, *_ends(batch.run, batch.cached, cache.gathered)]
    starts = np.cumsum(batch.run) - batch.run
    seen = []
    for first, last in pairwise(edges):
        own = laid.places[starts[first] : starts[first] + batch.run[first] * (last - first)].reshape(last - first, -1)
        seen.append(np.concatenate([own, past[first:last, : batch.cached[first:last].max()]], axis=1))
    parts = [batch.tokens, positions, laid.places, batch.asked.reshape(-1).nonzero()[0], batch.cached, *seen]
    whole = torch.from_numpy(np.concatenate([part.reshape(-1) for part in parts])).to(cache.kept.device)  # one transfer
    ids, sent_positions, places, asked, sent_cached, *sent_seen = whole.split([part.size for part in parts])  # type: ignore[no-untyped-call]
    groups, row = [], 0
    for (first, last), own, laid_out in zip(pairwise(edges), sent_seen, seen, strict=True):
        (count, blocks), run, cached = laid_out.shape, int(batch.run[first]), batch.cached[first:last]
        alike = bool((cached == cached[0]).all())
        bias = None
        if run > 1 or not alike:
            bias = attention_bias(None if alike else sent_cached[first:last], run, blocks, size, cache.kept)
        rows = slice(row, row + count * run * size)
        groups.append(Group(rows, count, own, bias))
        row = rows.stop
    return Packed(ids, sent_positions, places, groups, asked)


def _ends(run: Numbers, cached: Numbers, most: int) -> list[int]:
    """One past the last query of each group: they run equally many blocks and gather at most `most`, padding included.

    A single query may gather more.
    """
    if len(run) == 1:
        return [1]
    ends = []
    changes = (np.diff(run) != 0).nonzero()[0] + 1
    for first, last in pairwise([0, *changes.tolist(), len(run)]):
        while first < last:
            widest = np.maximum.accumulate(cached[first:last])
            gathered = np.arange(1, last - first + 1) * (run[first] + widest)
            first += max(1, int(np.searchsorted(gathered, most, side="right")))
            ends.append(first)
    return ends


def attention_bias(past: Tensor | None, run: int, blocks: int, block_size: int, like: Tensor) -> Tensor:
    """Return the bias of a group; see `Group`.

    Parameters
    ----------
    past
        ``[b]`` cached blocks of each query, or None if all have as many and nothing is padded.
    run, blocks
        ``N`` and ``N + P``: every query runs so many blocks, and looks at them and its cached ones, padded.
    block_size, like
        ``B``, and a tensor of the type and on the device of the rows.
    """
    queries, rows = 1 if past is None else len(past), block_size if run > 1 else 1  # rows of one block see the same
    bias = like.new_zeros(queries, run, rows, blocks, block_size)
    if run > 1:
        block = torch.arange(run, device=like.device)
        later = (block > block[:, None])[:, None, :, None]  # [N, 1, N, 1]
        bias[:, :, :, :run].masked_fill_(later, -torch.inf)
    if past is not None:
        missing = torch.arange(blocks - run, device=like.device) >= past[:, None]
        bias[:, :, :, run:].masked_fill_(missing[:, None, None, :, None], -torch.inf)
    return bias.view(queries, 1, run * rows, blocks * block_size)
