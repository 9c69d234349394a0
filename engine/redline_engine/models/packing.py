"""Laying out a batch of unequal queries: packed rows, padded attention, and where both lie.

The rows of all queries are *packed* into one matrix for everything that works row by row; only attention pads them to
a rectangle, keys of committed pages first. Place 0 of a cache stays zero and fills up the pages of shorter queries: a
masked key still multiplies its value by 0, so whatever stands there must be finite. Page p lies at place p + 1.

Letters: ``T`` packed rows, ``b`` queries, ``R`` rows of the longest query, ``C`` cached positions of the longest,
``P`` pages of it, ``B`` block size, ``D`` head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from redline_engine.models.base import Query


@dataclass(frozen=True)
class Packed:
    """Where the rows of a batch of queries lie; everything that no layer changes.

    Parameters
    ----------
    ids, cos, sin
        ``[T]`` tokens; ``[T, 1, D]`` rotary factors.
    slots
        ``[T]`` place of each packed row in the padded ``b * R`` rows.
    shape
        ``(b, R)``.
    pages
        ``[b, P]`` places of the cached blocks in the cache, padded with 0.
    mask
        ``[b, 1, R, C + R]`` bool, true where a row may look.
    store_rows, store_pages
        ``[s, B]`` packed rows of the blocks to keep, and ``[s]`` their places in the cache.
    asked
        ``[n]`` packed rows of the masked positions.
    """

    ids: Tensor
    cos: Tensor
    sin: Tensor
    slots: Tensor
    shape: tuple[int, int]
    pages: Tensor
    mask: Tensor
    store_rows: Tensor
    store_pages: Tensor
    asked: Tensor

    def pad(self, rows: Tensor) -> Tensor:
        """Spread packed rows ``[T, ...]`` to ``[b, R, ...]``, zeros where a query has no row."""
        batch, longest = self.shape
        padded = rows.new_zeros(batch * longest, *rows.shape[1:])
        padded[self.slots] = rows
        return padded.view(batch, longest, *rows.shape[1:])


def pack(block_size: int, queries: Sequence[Query], frequencies: Tensor, dtype: torch.dtype) -> Packed:
    """Lay out a batch of queries.

    Parameters
    ----------
    block_size, queries
        As `redline_engine.models.base.Model.forward` takes them.
    frequencies
        ``[D / 2]`` float32 rotary frequencies, on the device to compute on.
    dtype
        Type of the rotary factors.
    """

    def put(array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(frequencies.device)

    starts = np.array([len(query.pages) * block_size for query in queries])
    lengths = np.array([len(query.tokens) for query in queries]) - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])  # first packed row of each query
    batch, longest, cached = len(queries), int(lengths.max()), int(starts.max())
    column = np.arange(int(lengths.sum())) - np.repeat(offsets, lengths)
    ids = np.concatenate([query.tokens[start:] for query, start in zip(queries, starts, strict=True)])
    pages = np.zeros((batch, cached // block_size), np.int64)
    for row, query in zip(pages, queries, strict=True):
        row[: len(query.pages)] = np.add(query.pages, 1)
    moved = offsets - starts  # packed row minus position
    stores = [
        (store.block * block_size + shift, store.page)
        for query, shift in zip(queries, moved.tolist(), strict=True)
        for store in query.stores
    ]
    first = np.array([row for row, _ in stores], np.int64).reshape(-1, 1)
    asked = np.concatenate([query.positions + shift for query, shift in zip(queries, moved, strict=True)])

    block = np.arange(longest) // block_size
    sees_past = np.arange(cached) < starts[:, None]  # [b, C]
    exists = np.arange(longest) < lengths[:, None]  # [b, R]
    sees_fresh = (block <= block[:, None]) & exists[:, None, :]  # [b, R, R]
    mask = np.concatenate([np.repeat(sees_past[:, None], longest, axis=1), sees_fresh], axis=2)[:, None]

    positions = put(np.repeat(starts, lengths) + column)
    angles = (positions[:, None].float() * frequencies).repeat(1, 2)[:, None]  # [T, 1, D]
    return Packed(
        ids=put(ids.astype(np.int64)),
        cos=angles.cos().to(dtype),
        sin=angles.sin().to(dtype),
        slots=put(np.repeat(np.arange(batch) * longest, lengths) + column),
        shape=(batch, longest),
        pages=put(pages),
        mask=put(mask),
        store_rows=put(first + np.arange(block_size)),
        store_pages=put(np.array([page + 1 for _, page in stores], np.int64)),
        asked=put(asked),
    )
