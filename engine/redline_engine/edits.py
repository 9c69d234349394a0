"""Editing: a resolved token of the open block is replaced where the model has come to prefer another one.

A walker that edits has one open block. In every forward it hears about all positions of it but the prompt's. Masked
ones are accepted as ever; a resolved one takes the proposed token if that differs and its confidence exceeds the edit
threshold. Once the block is full it is run on, *post* forwards, until nothing changes or one more than
``max_post_edit_steps`` of them have been made; then it is final. An end token with nothing unresolved before it makes
it final at once, if it was written in this forward.

Until a block is final none of its tokens is settled; a cap on forwards takes them as they stand. A post forward that
changes nothing has run the block with its final tokens, so it commits it; after one that changed something, one more
forward does.

Letters as in `walker`: ``W`` rows, ``J`` their blocks that are heard about, ``B`` block size.

Source: `LLaDA2Pipeline` and `BlockRefinementScheduler` of diffusers 0.42.1, which are the oracle in
tests/engine/test_edits.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redline_engine.table import NOWHERE, Flags


def replaced(
    walkers: NDArray[Any],
    blocks: NDArray[np.int64],
    tokens: NDArray[np.int32],
    resolved: Flags,
    said: NDArray[np.int32],
    heard: NDArray[np.float32],
) -> Flags:
    """Resolved positions that take the token that is said there, heard with some confidence.

    Parameters
    ----------
    walkers, blocks
        ``[J]`` blocks, and the walker of each.
    tokens, resolved, said, heard
        ``[J, B]`` tokens in them, which of them are no masks, what is said there, and how surely.
    """
    may = walkers["post"] <= walkers["max_post"]
    sure = heard > walkers["edit"][:, None]  # never where the walker does not edit
    own = _positions(blocks, tokens.shape[1]) >= walkers["prompt_length"][:, None]
    takes: Flags = resolved & own & (said != tokens) & sure & may[:, None]
    return takes


def settle(
    walkers: NDArray[Any],
    owner: NDArray[np.int64],
    blocks: NDArray[np.int64],
    tokens: NDArray[np.int32],
    written: Flags,
    full: Flags,
    end_sets: Iterable[tuple[tuple[int, ...], int]],
) -> None:
    """Say of rows that edit what is settled after a forward; changes ``commit_end``, ``end``, ``settled`` and ``post``.

    A row without an open block has nothing to settle.

    Parameters
    ----------
    walkers
        ``[W]``; ``settled`` holds the first unresolved position, ``forwards`` counts this one.
    owner, blocks
        ``[J]`` blocks, and whose they are; of a row that edits, the open one.
    tokens, written
        ``[J, B]`` after the forward, and where it wrote them.
    full
        ``[J]`` had no mask before it.
    end_sets
        Sets of end tokens and their numbers.
    """
    edits = np.isfinite(walkers["edit"][owner])
    owner, blocks, tokens, written, full = (each[edits] for each in (owner, blocks, tokens, written, full))
    own, size = walkers[owner], tokens.shape[1]
    changed = written.any(axis=1)
    post = own["post"] + full
    done = full & (~changed | (post > own["max_post"]))

    position = _positions(blocks, size)
    is_end = np.zeros(tokens.shape, np.bool_)
    for ends, number in end_sets:
        is_end |= (own["end_set"] == number)[:, None] & np.isin(tokens, ends)
    is_end &= position >= own["prompt_length"][:, None]
    first_end = np.where(is_end, position, NOWHERE).min(axis=1, initial=NOWHERE)
    gap = own["settled"]
    done |= (is_end & written).any(axis=1) & (first_end < gap)

    start = np.maximum(own["prompt_length"], own["base"] * size)
    whole = np.where(gap >= own["limit"], (own["last_block"] + 1) * size, gap)
    walkers["settled"][owner] = np.where(done, whole, np.where(own["forwards"] >= own["max_forwards"], gap, start))
    walkers["end"][owner] = np.where(first_end < own["limit"], first_end, NOWHERE)
    walkers["commit_end"][owner] = commit_end = np.where(full & changed, own["base"], own["commit_end"])
    walkers["post"][owner] = np.where(commit_end > own["base"], 0, post)


def _positions(blocks: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Positions ``[J, B]`` of blocks ``[J]``."""
    each: NDArray[np.int64] = blocks[:, None] * size + np.arange(size)
    return each
