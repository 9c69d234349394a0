"""The arrays that walkers are rows of: what each row holds, and room for more of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

NOWHERE = 2**31 - 1  # position of an end token that is not there; a limit that is never met

WALKER = np.dtype(
    [
        # fixed when the walker starts
        ("prompt_length", np.int64),
        ("limit", np.int64),  # position one past the last that a reply may hold
        ("last_block", np.int64),  # block of the limit: none opens beyond it
        ("buffer_size", np.int64),
        ("threshold", np.float64),
        ("quota", np.int64),
        ("steps", np.int64),
        ("semi", np.float64),
        ("add", np.float64),
        ("max_forwards", np.int64),
        ("edit", np.float64),  # confidence that a resolved token is replaced at; infinite for never
        ("max_post", np.int64),
        ("end_set", np.int64),  # number of its set of end tokens
        # where it stands
        ("base", np.int64),  # first block of the buffer
        ("opened", np.int64),  # one past the last open block
        ("commit_end", np.int64),  # one past the last block that the next forward commits
        ("run_end", np.int64),  # one past the last block that the next forward runs
        ("end", np.int64),  # position of the leftmost end token within the limit
        ("settled", np.int64),  # position of the first token that may still change
        ("post", np.int64),  # forwards that ran the first block of the buffer full, to edit it
        ("reason", np.int64),  # number of the finish reason
        # what it cost so far
        ("forwards", np.int64),
        ("zero_token", np.int64),
        ("commit_only", np.int64),
        ("resolved", np.int64),
    ]
)


class WalkerTable:
    """Rows for walkers of one block size; rows given back are used again.

    Attributes
    ----------
    walkers
        ``[rows]`` of `WALKER`.
    tokens
        ``[rows, blocks, B]`` int32, masks where unresolved and behind the open blocks.
    turns
        ``[rows, blocks]`` forwards in which the block accepted something.
    """

    def __init__(self, block_size: int, mask_id: int) -> None:
        self.walkers: NDArray[Any] = np.zeros(0, WALKER)
        self.tokens = np.zeros((0, 0, block_size), np.int32)
        self.turns = np.zeros((0, 0), np.int64)
        self.block_size = block_size
        self.mask_id = mask_id
        self._free: list[int] = []
        self._deepest = self._widest = 0

    def take(self, count: int, last_block: int, buffer_size: int) -> Rows:
        """Return `count` cleared rows, deep enough for the buffer to begin anywhere up to one past the last block.

        Windows of all rows are as wide as the widest buffer, so every row has room for that.
        """
        self._deepest, self._widest = max(self._deepest, last_block), max(self._widest, buffer_size)
        have, depth = self.turns.shape
        more = 0 if count <= len(self._free) else max(count, have)
        deeper = max(0, self._deepest + 1 + self._widest - depth)
        if more or deeper:
            self.walkers = np.concatenate([self.walkers, np.zeros(more, WALKER)])
            self.tokens = np.pad(self.tokens, ((0, more), (0, deeper), (0, 0)), constant_values=self.mask_id)
            self.turns = np.pad(self.turns, ((0, more), (0, deeper)))
            self._free.extend(range(have, have + more))
        rows = np.array([self._free.pop() for _ in range(count)], np.int64)
        self.tokens[rows] = self.mask_id
        self.turns[rows] = 0
        return rows

    def give_back(self, row: int) -> None:
        """Take a row back."""
        self._free.append(row)

    def row(self, row: int) -> dict[str, Any]:
        """Numbers of a row by their names."""
        return dict(zip(WALKER.names or (), self.walkers[row].item(), strict=True))

    @property
    def flat(self) -> NDArray[np.int32]:
        """View ``[rows, positions]`` of the tokens."""
        return self.tokens.reshape(len(self.tokens), -1)
