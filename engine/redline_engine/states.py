"""Decode states of a prompt, what the model said in each, and the trie of committed pages.

A *state* is what the model sees: family, prompt, all tokens through the last block that is run. Its answer is the same
for every configuration, so it is asked for once and remembered as long as a walker of the prompt lives. A *family*
holds what changes an answer beside the tokens: block size and how tokens are drawn (and, as an engine has one model,
checkpoint and precision). Which blocks are cached already changes what a forward computes and not what it says, so it
is no part of a state. A state without a masked position asks nothing: its answer is known to be empty, and its blocks
are run with those of the prompt's next state. See docs/decisions/0022-states-and-families.md.

Complete leading blocks form a trie: a page depends on the tokens up to its block's end, so walkers that came by the
same tokens share it, and where they parted the path forks.

Random numbers of a draw are a hash of (seed, prompt, state, position). They depend neither on company nor on order,
and equal seeds make configurations draw the same token in the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from redline_engine.config import Sampling
from redline_engine.models.base import Answer, Query, Store

_NO_UNIFORMS = np.zeros(0, np.float64)
_NOTHING = Answer(np.zeros(0, np.int32), np.zeros(0, np.float32))


class PagePool:
    """Numbers for pages; those given back are used again first, so that what lies behind them stays small."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0
        self.peak = 0

    @property
    def in_use(self) -> int:
        """Pages handed out and not given back."""
        return self._next - len(self._free)

    def take(self) -> int:
        """Hand out a page."""
        if self._free:
            return self._free.pop()
        self._next += 1
        self.peak = max(self.peak, self._next)
        return self._next - 1

    def give_back(self, pages: Sequence[int]) -> None:
        """Take pages back."""
        self._free.extend(pages)


class State:
    """One decode state; `answer` is None until the model has been asked."""

    __slots__ = ("answer", "book", "positions", "tokens", "waiting")

    def __init__(self, book: StateBook, tokens: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        self.book = book
        self.tokens = tokens
        self.positions = (
            positions  # that are asked about: the masked ones, in a family that edits all of the last block
        )
        self.answer: Answer | None = None if positions.size else _NOTHING
        self.waiting: list[int] = []  # rows of the walkers that stand here


class StateBook:
    """All states of one prompt in one family.

    Parameters
    ----------
    ticket
        Number of the prompt in the order of admission.
    prompt
        ``[P]`` int32 tokens.
    block_size, mask_id, sampling
        Of the family and the model.
    pool
        Where pages of this block size come from.
    walkers
        Walkers that have not finished yet.
    edits
        Whether the family's walkers also hear about the resolved positions of the last block.
    """

    def __init__(
        self,
        ticket: int,
        prompt: NDArray[np.int32],
        block_size: int,
        mask_id: int,
        sampling: Sampling | None,
        pool: PagePool,
        walkers: int,
        edits: bool = False,
    ) -> None:
        self.ticket = ticket
        self.block_size = block_size
        self.walkers = walkers
        self._mask_id = mask_id
        self._sampling = sampling
        self._edits = edits
        self._length = len(prompt)
        self._pool = pool
        self._prompt_digest = blake2b(prompt.astype("<i4").tobytes(), digest_size=16).digest()
        self._full = len(prompt) // block_size  # blocks that are equal in all states
        self._states: dict[bytes, State] = {}
        self._paths: dict[bytes, tuple[int, ...]] = {}  # pages of leading blocks, by the tokens behind the full ones
        self._taken: list[int] = []

    def find(self, tokens: NDArray[np.int32]) -> tuple[State, bool]:
        """Return the state with these tokens, masks where unresolved, and whether it is new; they may change later."""
        key = tokens[self._full * self.block_size :].tobytes()
        state = self._states.get(key)
        if state is not None:
            return state, False
        state = self._states[key] = State(self, tokens.copy(), self._asked(tokens))
        return state, True

    def _asked(self, tokens: NDArray[np.int32]) -> NDArray[np.int64]:
        if self._edits:
            return np.arange(max(self._length, len(tokens) - self.block_size), len(tokens))
        return np.flatnonzero(tokens == self._mask_id)

    def query(self, state: State) -> Query:
        """Put a state's question to the model, and take pages for the complete leading blocks that have none.

        Queries put later read these pages, so they may not be answered before this one.
        """
        complete, full = int(state.positions[0]) // self.block_size, self._full
        behind = state.tokens[full * self.block_size : complete * self.block_size].tobytes()
        size = self.block_size * state.tokens.itemsize
        first = complete
        while first >= full and behind[: (first - full) * size] not in self._paths:
            first -= 1
        cached = path = self._paths[behind[: (first - full) * size]] if first >= full else ()
        stores: list[Store] = []
        for end in range(max(first + 1, full), complete + 1):
            new = [Store(block, self._take()) for block in range(len(path), end)]
            stores += new
            path = self._paths[behind[: (end - full) * size]] = (*path, *(store.page for store in new))
        uniforms = _NO_UNIFORMS if self._sampling is None else self._uniforms(state, self._sampling.seed)
        return Query(state.tokens, cached, tuple(stores), state.positions, self._sampling, uniforms)

    def close(self) -> None:
        """Give the pages back; nobody stands in these states any more."""
        self._pool.give_back(self._taken)
        self._taken = []
        self._states.clear()
        self._paths.clear()

    def _take(self) -> int:
        self._taken.append(self._pool.take())
        return self._taken[-1]

    def _uniforms(self, state: State, seed: int) -> NDArray[np.float64]:
        """Return a number in [0, 1) for each masked position, 53 bits from a hash."""
        stem = blake2b(digest_size=8)
        stem.update(seed.to_bytes(8, "little"))
        stem.update(self._prompt_digest)
        stem.update(state.tokens.astype("<i4").tobytes())
        numbers = []
        for position in state.positions.tolist():
            leaf = stem.copy()
            leaf.update(b"@" + position.to_bytes(8, "little"))
            numbers.append((int.from_bytes(leaf.digest(), "little") >> 11) / 2**53)
        return np.array(numbers, np.float64)
