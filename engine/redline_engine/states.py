"""Decode states of a prompt, what the model said in each, and the trie of committed pages.

A *state* is what the model sees: family, prompt, number of cached blocks, all tokens through the last block that is
run. Its answer is the same for every configuration, so it is asked for once and remembered as long as a walker of the
prompt lives. A *family* holds what changes an answer beside the tokens: block size and how tokens are drawn (and, as
an engine has one model, checkpoint and precision).

Committed blocks of a prompt form a trie: a page depends on the tokens up to its block's end, so walkers that committed
the same tokens share it, and where they parted the path forks.

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
from redline_engine.walker import Stance

_ROOT = -1
_NO_UNIFORMS = np.zeros(0, np.float64)


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

    __slots__ = ("answer", "book", "cached", "commit_end", "tokens", "waiting")

    def __init__(self, book: StateBook, stance: Stance) -> None:
        self.book = book
        self.cached = stance.cached
        self.commit_end = stance.commit_end
        self.tokens = stance.tokens.copy()
        self.answer: Answer | None = None
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
    ) -> None:
        self.ticket = ticket
        self.block_size = block_size
        self.walkers = walkers
        self._mask_id = mask_id
        self._sampling = sampling
        self._pool = pool
        self._prompt_digest = blake2b(prompt.astype("<i4").tobytes(), digest_size=16).digest()
        self._shared = len(prompt) // block_size * block_size  # positions that are equal in all states
        self._states: dict[tuple[int, bytes], State] = {}
        self._pages: dict[tuple[int, bytes], int] = {}  # (parent page, tokens of the block) -> page

    def find(self, stance: Stance) -> tuple[State, bool]:
        """Return the state that a stance stands in, and whether it is new."""
        key = (stance.cached, stance.tokens[self._shared :].tobytes())
        state = self._states.get(key)
        if state is not None:
            return state, False
        state = self._states[key] = State(self, stance)
        return state, True

    def query(self, state: State) -> Query:
        """Put a state's question to the model, and take pages for the blocks that it commits first."""
        blocks = [block.tobytes() for block in state.tokens.reshape(-1, self.block_size)[: state.commit_end]]
        page, cached, stores = _ROOT, [], []
        for number, block in enumerate(blocks):
            edge = (page, block)
            if number < state.cached:
                cached.append(self._pages[edge])
            elif edge not in self._pages:
                self._pages[edge] = self._pool.take()
                stores.append(Store(number, self._pages[edge]))
            page = self._pages[edge]
        positions = np.flatnonzero(state.tokens == self._mask_id)
        uniforms = _NO_UNIFORMS if self._sampling is None else self._uniforms(state, positions, self._sampling.seed)
        return Query(state.tokens, tuple(cached), tuple(stores), positions, self._sampling, uniforms)

    def close(self) -> None:
        """Give the pages back; nobody stands in these states any more."""
        self._pool.give_back(list(self._pages.values()))
        self._states.clear()
        self._pages.clear()

    def _uniforms(self, state: State, positions: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        """Return a number in [0, 1) for each position, 53 bits from a hash."""
        stem = blake2b(digest_size=8)
        for part in (seed.to_bytes(8, "little"), self._prompt_digest, state.cached.to_bytes(8, "little")):
            stem.update(part)
        stem.update(state.tokens.astype("<i4").tobytes())
        numbers = []
        for position in positions.tolist():
            leaf = stem.copy()
            leaf.update(b"@" + position.to_bytes(8, "little"))
            numbers.append((int.from_bytes(leaf.digest(), "little") >> 11) / 2**53)
        return np.array(numbers, np.float64)
