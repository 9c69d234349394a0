"""The arrays that walkers are rows of: what each row holds, and room for more of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]

NOWHERE = 2**31 - 1  # position of an end token that is not there; a limit that is never met

WALKER = np.dtype(
    [
        # fixed when the walker starts
        ("book", np.int64),  # of its states
        ("number", np.int64),  # of its configuration among those of the prompt
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


class FreeNumbers:
    """Numbers from 0 on; those given back are used again first, so that what lies behind them stays small."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    @property
    def in_use(self) -> int:
        """Numbers handed out and not given back."""
        return self._next - len(self._free)

    def take(self, count: int) -> Rows:
        """Hand out numbers, all different."""
        again = min(count, len(self._free))
        used = self._free[len(self._free) - again :]
        del self._free[len(self._free) - again :]
        begin, self._next = self._next, self._next + count - again
        return np.array([*used, *range(begin, self._next)], np.int64)

    def give_back(self, numbers: Rows) -> None:
        """Take numbers back."""
        self._free.extend(numbers.tolist())


def grown(array: NDArray[Any], last: int) -> NDArray[Any]:
    """Return an array with room for row `last`, twice as long as before if it had none; new rows are 0."""
    more = max(last + 1 - len(array), len(array)) if last >= len(array) else 0
    return np.concatenate([array, np.zeros((more, *array.shape[1:]), array.dtype)]) if more else array


def put(array: NDArray[Any], rows: Rows, values: NDArray[Any]) -> None:
    """``array[rows] = values`` for a structured array, as bytes: field by field it takes ten times as long."""
    size = array.dtype.itemsize
    array.view(np.uint8).reshape(-1, size)[rows] = values.view(np.uint8).reshape(-1, size)


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
    left
        ``[rows, blocks]`` masked positions of open blocks; 0 behind them.
    nodes
        ``[rows, 1 + blocks]`` root of the walker's states, and the node of each block through the last that its next
        forward runs (`states.py`); what stands behind that means nothing.
    """

    def __init__(self, block_size: int, mask_id: int) -> None:
        self.walkers: NDArray[Any] = np.zeros(0, WALKER)
        self.tokens = np.zeros((0, 0, block_size), np.int32)
        self.turns = np.zeros((0, 0), np.int32)
        self.left = np.zeros((0, 0), np.int32)
        self.nodes = np.zeros((0, 1), np.int64)
        self.block_size = block_size
        self.mask_id = mask_id
        self._free = FreeNumbers()
        self._deepest = self._widest = 0

    def take(self, count: int, last_block: int, buffer_size: int) -> Rows:
        """Return `count` cleared rows, deep enough for a buffer to begin anywhere up to one past the last block.

        All rows are read as far as the widest buffer and one block more would reach, so every row has room for that.
        """
        self._deepest, self._widest = max(self._deepest, last_block), max(self._widest, buffer_size)
        deeper = max(0, self._deepest + 2 + self._widest - self.turns.shape[1])
        if deeper:
            self.tokens = np.pad(self.tokens, ((0, 0), (0, deeper), (0, 0)))
            self.turns = np.pad(self.turns, ((0, 0), (0, deeper)))
            self.left = np.pad(self.left, ((0, 0), (0, deeper)))
            self.nodes = np.pad(self.nodes, ((0, 0), (0, deeper)))
            self.tokens[:, -deeper:] = self.mask_id
        rows = self._free.take(count)
        last = int(rows.max())
        self.walkers, self.tokens = grown(self.walkers, last), grown(self.tokens, last)
        self.turns, self.left, self.nodes = (grown(each, last) for each in (self.turns, self.left, self.nodes))
        self.tokens[rows] = self.mask_id
        self.turns[rows] = self.left[rows] = 0
        return rows

    def give_back(self, rows: Rows) -> None:
        """Take rows back."""
        self._free.give_back(rows)

    @property
    def flat(self) -> NDArray[np.int32]:
        """View ``[rows, positions]`` of the tokens."""
        return self.tokens.reshape(len(self.tokens), -1)
