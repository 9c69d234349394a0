"""Decode states of a prompt, what the model said in each, and the trie of blocks behind them.

A *state* is what the model sees: family, prompt, all tokens through the last block that is run. Its answer is the same
for every configuration, so it is asked for once and remembered as long as a walker of the prompt lives. A *family*
holds what changes an answer beside the tokens: block size and how tokens are drawn (and, as an engine has one model,
checkpoint and precision). Which blocks are cached already changes what a forward computes and not what it says, so it
is no part of a state. A state without a masked position asks nothing: its answer is known to be empty, and its blocks
are run with those of the prompt's next state. See docs/decisions/0022-states-and-families.md.

As attention is block-causal, what is said in a block depends on the tokens up to its end only. So states that begin
alike share their first blocks, resolved or not: each prefix of blocks is a node of a trie, is run once, and keeps a
page and its answer. Where states part, the trie forks. Pages of complete leading blocks are kept while a walker of the
prompt lives; those of blocks with masks in or before them, through the next step that asks about the prompt
(docs/decisions/0064-blocks-are-shared-below-states.md).

Random numbers of a draw are a hash of (seed, prompt, tokens through the block's end, position). They depend neither on
company nor on order, and equal seeds make configurations draw the same token in the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redline_engine.config import Sampling
from redline_engine.models.base import Answer, Query

_NO_UNIFORMS = np.zeros(0, np.float64)
_NOTHING = Answer(np.zeros(0, np.int32), np.zeros(0, np.float32))


class PagePool:
    """Numbers for pages; those given back are used again first, so that what lies behind them stays small."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    @property
    def in_use(self) -> int:
        """Pages handed out and not given back."""
        return self._next - len(self._free)

    def take(self) -> int:
        """Hand out a page."""
        if self._free:
            return self._free.pop()
        self._next += 1
        return self._next - 1

    def give_back(self, pages: Sequence[int]) -> None:
        """Take pages back."""
        self._free.extend(pages)


class Block:
    """The tokens of a prompt through the end of one block, as far as the model knows them.

    Attributes
    ----------
    pages
        Of all blocks through its end; None while its own is not kept.
    asked, answer
        Whether the model was asked about its positions, and what it said.
    """

    __slots__ = ("answer", "asked", "pages")

    def __init__(self, pages: tuple[int, ...] | None = None) -> None:
        self.pages = pages
        self.asked = False
        self.answer: Answer | None = None


class Question(NamedTuple):
    """A query, and the blocks that its positions lie in, each with the number of them."""

    query: Query
    blocks: list[tuple[Block, int]]

    def pieces(self, block_size: int) -> Iterator[Query]:
        """Yield the same as a query for each block that is run; each reads what those before it keep."""
        query = self.query
        for end in range(query.cached + 1, len(query.pages) + 1):
            low, high = np.searchsorted(query.positions, ((end - 1) * block_size, end * block_size))
            yield Query(
                query.tokens[: end * block_size],
                query.pages[:end],
                end - 1,
                query.positions[low:high],
                query.sampling,
                query.uniforms[low:high],
            )

    def hear(self, answer: Answer) -> None:
        """Give each block its part of the answer."""
        if len(self.blocks) == 1:
            self.blocks[0][0].answer = answer
            return
        start = 0
        for block, count in self.blocks:
            chosen = slice(start, start + count)
            block.answer = Answer(answer.tokens[chosen], answer.confidence[chosen])
            start += count


class State:
    """One decode state.

    Attributes
    ----------
    tokens, key
        ``[T]`` int32, and those behind the prompt's full blocks as bytes.
    positions
        That are asked about: the masked ones; in a family that edits, all of the last block.
    complete
        Leading blocks without a mask.
    answer
        None until it is known: at once where nothing is asked, or all its blocks were asked about before.
    problem
        Empty, or why the answer must not be used: what was found, and at which position.
    waiting
        Rows of the walkers that stand here.
    """

    __slots__ = ("answer", "book", "complete", "key", "positions", "problem", "tokens", "waiting")

    def __init__(
        self, book: StateBook, tokens: NDArray[np.int32], key: bytes, positions: NDArray[np.int64], complete: int
    ) -> None:
        self.book = book
        self.tokens = tokens
        self.key = key
        self.positions = positions
        self.complete = complete
        self.answer: Answer | None = None if positions.size else _NOTHING
        self.problem = ""
        self.waiting: list[int] = []


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
        self._start = self._full * block_size
        self._block_bytes = block_size * np.dtype(np.int32).itemsize
        self._states: dict[bytes, State] = {}
        # by the tokens behind the prompt's full blocks, which together are the first
        self._blocks: dict[bytes, Block] = {b"": Block(None if self._full else ())}
        self._kept: list[int] = []  # pages of complete leading blocks
        self._lent: dict[Block, None] = {}  # other blocks that were run or read in this step
        self._lent_before: dict[Block, None] = {}  # or in the last one that asked, and not since
        self._step = -1

    def find(self, tokens: NDArray[np.int32]) -> tuple[State, bool]:
        """Return the state with these tokens, masks where unresolved, and whether it is new; they may change later."""
        key = tokens[self._start :].tobytes()
        state = self._states.get(key)
        if state is not None:
            return state, False
        positions = masked = (tokens == self._mask_id).nonzero()[0]
        complete = int(masked[0] if masked.size else len(tokens)) // self.block_size
        if self._edits:
            positions = np.arange(max(self._length, len(tokens) - self.block_size), len(tokens))
        state = self._states[key] = State(self, tokens.copy(), key, positions, complete)
        if self._is_answered(state):
            self.recall(state)
        return state, True

    def ask(self, state: State, step: int) -> Question | None:
        """Put a state's question to the model, and take pages for the blocks that it runs.

        None if all its blocks were asked about before, in this step or earlier. Questions put later read these pages,
        so they may not be answered before this one. Pages lent two asking steps ago are given back first.
        """
        if step != self._step:
            self._step = step
            self._pool.give_back(_release(self._lent_before))
            self._lent, self._lent_before = {}, self._lent
        if self._is_answered(state):
            return None
        last, first = len(state.tokens) // self.block_size, int(state.positions[0]) // self.block_size
        path = self._known(state, first, last)
        cached = len(path)
        if cached == last:
            return None
        for end in range(state.complete + 1, cached + 1):
            self._lend(self._blocks[self._key(state, end)])
        asking = []
        for end in range(max(cached + 1, self._full), last + 1):
            key = self._key(state, end)
            block = self._blocks.get(key)
            if block is None:
                block = self._blocks[key] = Block()
            if block.pages is None:
                new = [self._pool.take() for _ in range(end - len(path))]
                block.pages = (*path, *new)
                if end <= state.complete:
                    self._kept += new
            if end > state.complete:
                self._lend(block)
            path = block.pages
            if end > first and not block.asked and (end == last or not self._edits):
                block.asked = True
                asking.append((block, self._inside(state, end)))
        positions = asking[0][1] if len(asking) == 1 else np.concatenate([inside for _, inside in asking])
        uniforms = _NO_UNIFORMS if self._sampling is None else self._uniforms(state, positions, self._sampling.seed)
        query = Query(state.tokens, path, cached, positions, self._sampling, uniforms)
        return Question(query, [(block, len(inside)) for block, inside in asking])

    def recall(self, state: State) -> None:
        """Put together the answer of a state whose blocks have theirs."""
        first, last = int(state.positions[0]) // self.block_size, len(state.tokens) // self.block_size
        said = []
        for end in range(first + 1, last + 1):
            block = self._blocks[self._key(state, end)]
            assert block.answer is not None
            said.append(block.answer)
        answer = said[0] if len(said) == 1 else Answer(*map(np.concatenate, zip(*said, strict=True)))
        bad = np.isnan(answer.confidence)
        if bad.any():
            state.problem = f"position {state.positions[bad.argmax()]}: logits are not finite"
        state.answer = answer

    def close(self) -> None:
        """Give the pages back; nobody stands in these states any more."""
        self._pool.give_back([*self._kept, *_release(self._lent), *_release(self._lent_before)])
        self._kept = []
        self._states.clear()
        self._blocks.clear()

    def _is_answered(self, state: State) -> bool:
        """Whether the last block has its answer; those before it that are asked about were asked no later."""
        block = self._blocks.get(state.key)
        return block is not None and block.answer is not None

    def _key(self, state: State, end: int) -> bytes:
        """Key of the blocks of a state before block `end`."""
        return state.key[: (end - self._full) * self._block_bytes]

    def _known(self, state: State, first: int, last: int) -> tuple[int, ...]:
        """Pages of the leading blocks that need not be run: they lie there, and are asked about from `first` on."""
        for end in range(last, self._full - 1, -1):
            block = self._blocks.get(self._key(state, end))
            if block is not None and block.pages is not None and (end <= first or block.asked):
                return block.pages
        return ()

    def _lend(self, block: Block) -> None:
        self._lent_before.pop(block, None)
        self._lent[block] = None

    def _inside(self, state: State, end: int) -> NDArray[np.int64]:
        """Positions of a state in the block before `end`."""
        if state.positions[0] >= (end - 1) * self.block_size and end * self.block_size == len(state.tokens):
            return state.positions
        low, high = np.searchsorted(state.positions, ((end - 1) * self.block_size, end * self.block_size))
        return state.positions[low:high]

    def _uniforms(self, state: State, positions: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
        """Return a number in [0, 1) for each position, 53 bits from a hash."""
        numbers = []
        stems: dict[int, blake2b] = {}
        for position in positions.tolist():
            end = (position // self.block_size + 1) * self.block_size
            if end not in stems:
                stems[end] = blake2b(seed.to_bytes(8, "little") + self._prompt_digest, digest_size=8)
                stems[end].update(state.tokens[:end].astype("<i4").tobytes())
            leaf = stems[end].copy()
            leaf.update(b"@" + position.to_bytes(8, "little"))
            numbers.append((int.from_bytes(leaf.digest(), "little") >> 11) / 2**53)
        return np.array(numbers, np.float64)


def _release(blocks: dict[Block, None]) -> list[int]:
    """Forget the blocks' own pages; returns them."""
    pages = []
    for block in blocks:
        assert block.pages is not None
        pages.append(block.pages[-1])
        block.pages = None
    blocks.clear()
    return pages
