"""Editing: a resolved token of the open block is replaced where the model has come to prefer another one.

A walker that edits has one open block. In every forward it hears about all positions of it but the prompt's. Masked
ones are accepted as ever; a resolved one takes the proposed token if that differs and its confidence exceeds the edit
threshold. Once the block is full it is run on, *post* forwards, until nothing changes or one more than
``max_post_edit_steps`` of them have been made; then it is final. An end token with nothing unresolved before it makes
it final at once, if it was written in this forward.

Until a block is final none of its tokens is settled; a cap on forwards takes them as they stand. A post forward that
changes nothing has run the block with its final tokens, so it commits it; after one that changed something, one more
forward does.

Letters as in `walker`: ``W`` rows, ``N`` blocks of a buffer, ``B`` block size.

Source: `LLaDA2Pipeline` and `BlockRefinementScheduler` of diffusers 0.42.1, which are the oracle in
tests/engine/test_edits.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redline_engine.table import NOWHERE

Flags = NDArray[np.bool_]


class Window(NamedTuple):
    """Block numbers ``[W, N]`` of the buffers, tokens ``[W, N, B]`` in them, and which blocks are open ``[W, N]``."""

    blocks: NDArray[np.int64]
    tokens: NDArray[np.int32]
    opened: Flags

    @property
    def positions(self) -> NDArray[np.int64]:
        """``[W, N, B]``."""
        size = self.tokens.shape[2]
        positions: NDArray[np.int64] = self.blocks[:, :, None] * size + np.arange(size)
        return positions


def editable(walkers: NDArray[Any], window: Window) -> Flags:
    """Positions ``[W, N, B]`` that rows which edit hear about; none in the others."""
    mine = np.isfinite(walkers["edit"])[:, None] & window.opened
    heard: Flags = mine[:, :, None] & (window.positions >= walkers["prompt_length"][:, None, None])
    return heard


def replaced(
    walkers: NDArray[Any], window: Window, resolved: Flags, said: NDArray[np.int32], heard: NDArray[np.float32]
) -> Flags:
    """Resolved positions ``[W, N, B]`` that take the token that is said there, heard with some confidence."""
    may = walkers["post"] <= walkers["max_post"]
    sure = heard > walkers["edit"][:, None, None]
    takes: Flags = resolved & (said != window.tokens) & sure & may[:, None, None]
    return takes


def settle(
    walkers: NDArray[Any], window: Window, full: Flags, written: Flags, end_sets: Iterable[tuple[tuple[int, ...], int]]
) -> None:
    """Say of rows that edit what is settled after a forward; changes ``commit_end``, ``end``, ``settled`` and ``post``.

    Parameters
    ----------
    walkers
        ``[W]``; ``settled`` holds the first unresolved position, ``forwards`` counts this one.
    window
        With the tokens after the forward.
    full
        ``[W]`` whose open block had no mask before it.
    written
        ``[W, N, B]`` positions whose token this forward wrote.
    end_sets
        Sets of end tokens and their numbers.
    """
    editing = np.isfinite(walkers["edit"])
    full = full & editing
    changed = written.any(axis=(1, 2))
    post = walkers["post"] + full
    done = full & (~changed | (post > walkers["max_post"]))

    is_end = np.zeros(window.tokens.shape, np.bool_)
    for ends, number in end_sets:
        is_end |= (walkers["end_set"] == number)[:, None, None] & np.isin(window.tokens, ends)
    is_end &= editable(walkers, window)
    first_end = np.where(is_end, window.positions, NOWHERE).min(axis=(1, 2), initial=NOWHERE)
    gap, size = walkers["settled"], window.tokens.shape[2]
    done |= editing & (is_end & written).any(axis=(1, 2)) & (first_end < gap)

    start = np.maximum(walkers["prompt_length"], walkers["base"] * size)
    whole = np.where(gap >= walkers["limit"], (walkers["last_block"] + 1) * size, gap)
    ending = np.where(done, whole, np.where(walkers["forwards"] >= walkers["max_forwards"], gap, start))
    walkers["settled"] = np.where(editing, ending, gap)
    walkers["end"] = np.where(editing, np.where(first_end < walkers["limit"], first_end, NOWHERE), walkers["end"])
    walkers["commit_end"] = np.where(full & changed, walkers["base"], walkers["commit_end"])
    walkers["post"] = np.where(walkers["commit_end"] > walkers["base"], 0, post)
