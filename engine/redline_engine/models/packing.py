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

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from redline_engine.models.base import Query

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
        ``[n]`` packed rows of the masked positions.
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
    """

    def __init__(
        self, layers: int, block_size: int, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.kept = torch.zeros(layers, PAGES_AT, block_size, heads, head_dim, dtype=dtype, device=device)

    def reserve(self, last: int) -> None:
        """Make room for pages 0 to `last`; it is doubled when it ends."""
        have, needed = self.kept.shape[1], PAGES_AT + last + 1
        if needed > have:
            grown = self.kept.new_zeros(len(self.kept), max(needed, 2 * have), *self.kept.shape[2:])
            grown[:, :have] = self.kept
            self.kept = grown


def blocks_run(query: Query) -> int:
    """Blocks that a query runs."""
    return len(query.pages) - query.cached


def pack(block_size: int, queries: Sequence[Query], cache: PageCache) -> Packed:
    """Lay out a batch of queries, and make room in the cache.

    Queries are grouped as they come: those that run equally many blocks should stand together, and among them those
    with about equally many pages.
    """
    device, dtype = cache.kept.device, cache.kept.dtype
    past = [query.cached for query in queries]
    runs = [blocks_run(query) for query in queries]
    fresh = np.array(list(chain.from_iterable(query.pages[query.cached :] for query in queries)))
    cache.reserve(int(fresh.max()))
    starts = np.array(past) * block_size
    lengths = np.array(runs) * block_size
    moved = np.cumsum(lengths) - lengths - starts  # packed row minus position
    positions = np.arange(int(lengths.sum())) - np.repeat(moved, lengths)
    ids = np.concatenate([query.tokens[start:] for query, start in zip(queries, starts.tolist(), strict=True)])
    asked = np.concatenate([query.positions for query in queries])
    asked += np.repeat(moved, [len(query.positions) for query in queries])
    filling = ZERO - PAGES_AT
    ends = _ends(past, runs, max(1, GATHERED // cache.kept[0, 0].numel()))
    seen = []
    for first, last in pairwise([0, *ends]):
        longest = max(len(query.pages) for query in queries[first:last])
        padded = [
            [*query.pages[query.cached :], *query.pages[: query.cached], *[filling] * (longest - len(query.pages))]
            for query in queries[first:last]
        ]
        seen.append(np.array(padded).reshape(-1) + PAGES_AT)
    parts = [ids, positions, fresh + PAGES_AT, asked, np.array(past), *seen]
    whole = torch.from_numpy(np.concatenate(parts)).to(device)  # one transfer
    sent_ids, sent_positions, places, sent_asked, sent_past, *sent_seen = whole.split([len(part) for part in parts])  # type: ignore[no-untyped-call]
    groups, row = [], 0
    for (first, last), own in zip(pairwise([0, *ends]), sent_seen, strict=True):
        count, run, blocks = last - first, runs[first], len(own) // (last - first)
        alike = min(past[first:last]) + run == blocks
        bias = None
        if run > 1 or not alike:
            bias = attention_bias(sent_past[first : first + 1 if alike else last], run, blocks, block_size, dtype)
        rows = slice(row, row + count * run * block_size)
        groups.append(Group(rows, count, own, bias))
        row = rows.stop
    return Packed(sent_ids, sent_positions, places, groups, sent_asked)


def _ends(past: Sequence[int], runs: Sequence[int], most: int) -> list[int]:
    """One past the last query of each group: they run equally many blocks and gather at most `most`, padding included.

    A single query may gather more.
    """
    ends = []
    number = 0
    for run, group in groupby(runs):
        first, widest = number, 0
        for _ in group:
            widest = max(widest, past[number])
            if number > first and (number + 1 - first) * (run + widest) > most:
                ends.append(number)
                first, widest = number, past[number]
            number += 1
        ends.append(number)
    return ends


def attention_bias(past: Tensor, run: int, blocks: int, block_size: int, dtype: torch.dtype) -> Tensor:
    """Return the bias of a group; see `Group`.

    Parameters
    ----------
    past
        ``[b]`` cached blocks of each query, or ``[1]`` if all have as many.
    run, blocks
        ``N`` and ``N + P``: every query runs so many blocks, and looks at them and its cached ones, padded.
    block_size, dtype
        ``B``, and of the rows.
    """
    column = torch.arange(blocks, device=past.device)
    own = (column <= torch.arange(run, device=past.device)[:, None]) & (column < run)  # [N, N + P]
    cached = (column >= run) & (column - run < past[:, None])  # [b, N + P]
    blind = ~(own | cached[:, None])[:, :, None, :, None]
    rows = block_size if run > 1 else 1  # those of one block see the same
    blind = blind.expand(-1, run, rows, blocks, block_size).reshape(-1, 1, run * rows, blocks * block_size)
    return torch.zeros(blind.shape, dtype=dtype, device=past.device).masked_fill_(blind, -torch.inf)
