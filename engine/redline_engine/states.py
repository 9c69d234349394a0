"""Decode states of prompts, what the model said in each, and the trie of blocks behind them.

A *state* is what the model sees: family, prompt, all tokens through the last block that is run. Its answer is the same
for every configuration, so it is asked for once and remembered as long as a walker of the prompt lives. A *family*
holds what changes an answer beside the tokens: block size, how tokens are drawn, and whether resolved ones are asked
about too (and, as an engine has one model, checkpoint and precision). Which blocks are cached already changes what a
forward computes and not what it says, so it is no part of a state. A state without a masked position asks nothing: its
blocks are run with those of the prompt's next state. See docs/decisions/0022-states-and-families.md.

As attention is block-causal, what is said in a block depends on the tokens up to its end only. So states that begin
alike share their first blocks, resolved or not: each prefix of blocks is a *node* of a trie, is run once, and keeps a
page and its answer. A state is the node of its last block. Pages of complete leading blocks are kept while a walker of
the prompt lives; those of blocks with masks in or before them, through the next step that asks about the prompt
(docs/decisions/0064-blocks-are-shared-below-states.md).

Nodes are the rows of an array, and those of many walkers are found, added and asked about together. Letters: ``W``
walkers, ``S`` states of a step, ``D`` blocks of the longest, ``B`` block size; ``Q`` and ``T`` as in `models.base`.

Random numbers of a draw are a hash of (seed, prompt, tokens through the block's end, position). They depend neither on
company nor on order, and equal seeds make configurations draw the same token in the same place.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import compress, repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redline_engine.config import Sampling
from redline_engine.models.base import NO_PAGE, Answer, Batch, Numbers
from redline_engine.table import Flags, FreeNumbers, grown, put

BOOK = np.dtype(
    [
        ("ticket", np.int64),  # number of the prompt in the order of admission
        ("length", np.int64),  # tokens of the prompt
        ("edits", np.bool_),  # whether walkers also hear about resolved positions of their last block
        ("kind", np.int64),  # how tokens are drawn
        ("walkers", np.int64),  # that have not finished
        ("step", np.int64),  # steps that asked about it so far
    ]
)


def node_dtype(block_size: int) -> np.dtype[Any]:
    """Row of a node, for ``B``."""
    return np.dtype(
        [
            ("parent", np.int64),  # of the blocks before; none for the root of a book
            ("book", np.int64),
            ("found", np.bool_),  # whether it is found by its tokens: roots and prompts' full blocks are not
            ("depth", np.int64),  # blocks through its end
            ("page", np.int64),  # `NO_PAGE` while none is kept
            ("lent", np.int64),  # the book's step in which it was last run or read
            ("clean", np.bool_),  # no mask in or before it
            ("asked", np.bool_),  # whether its positions were asked about; true if there are none
            ("bad", np.bool_),  # what was said there is not finite
            ("visited", np.bool_),  # whether a walker came to it as a state
            ("tokens", np.int32, (block_size,)),
            ("asks", np.bool_, (block_size,)),  # positions to ask about
        ],
        align=True,
    )


def node_bytes(block_size: int) -> int:
    """What a node takes, its answer included."""
    return node_dtype(block_size).itemsize + 8 * block_size


class Question(NamedTuple):
    """A batch, and the ``[T]`` nodes of the blocks that it runs."""

    batch: Batch
    nodes: Numbers


class States:
    """All states of one block size.

    Parameters
    ----------
    block_size, mask_id
        ``B``; token at an unresolved position.

    Attributes
    ----------
    pages
        Numbers of the pages that are kept.
    any_bad
        Whether something was said that is not finite, ever.
    """

    def __init__(self, block_size: int, mask_id: int) -> None:
        self.block_size = block_size
        self.pages = FreeNumbers()
        self._mask_id = mask_id
        self._nodes: NDArray[Any] = np.zeros(0, node_dtype(block_size))
        self._books: NDArray[Any] = np.zeros(0, BOOK)
        self._said = np.zeros((0, block_size), np.int32)  # apart from nodes: they are read most
        self._confidence = np.zeros((0, block_size), np.float32)
        self._free_nodes, self._free_books = FreeNumbers(), FreeNumbers()
        self._key = np.dtype([("parent", np.int64), ("tokens", np.int32, (block_size,))])
        self._at: dict[bytes, int] = {}  # key -> node
        self.any_bad = False
        self._lent = np.zeros(0, np.int64)  # nodes with a mask in or before them that have a page
        self._kinds: dict[Sampling | None, int] = {}
        self._samplings: list[Sampling | None] = []  # by kind
        self._digests: dict[int, bytes] = {}  # of the prompts that tokens are drawn for, by book

    def open(
        self, ticket: int, prompt: NDArray[np.int32], sampling: Sampling | None, edits: bool, walkers: int
    ) -> tuple[int, Numbers]:
        """Begin a book: all states of one prompt in one family.

        Returns
        -------
        Its number, and the nodes of its root and of the prompt's full blocks.
        """
        (book,) = self._free_books.take(1).tolist()
        self._books = grown(self._books, book)
        kind = self._kinds.setdefault(sampling, len(self._kinds))
        if kind == len(self._samplings):
            self._samplings.append(sampling)
        self._books[book] = (ticket, len(prompt), edits, kind, walkers, 0)
        if sampling is not None:
            self._digests[book] = blake2b(prompt.astype("<i4").tobytes(), digest_size=16).digest()
        full = len(prompt) // self.block_size
        nodes = self._take(full + 1)
        rows = np.zeros(full + 1, self._nodes.dtype)
        rows["parent"][1:] = nodes[:-1]
        rows["parent"][0] = -1
        rows["book"], rows["depth"], rows["page"] = book, np.arange(full + 1), NO_PAGE
        rows["clean"] = rows["asked"] = True
        rows["tokens"][1:] = prompt[: full * self.block_size].reshape(full, self.block_size)
        put(self._nodes, nodes, rows)
        return book, nodes

    def tickets(self, books: Numbers) -> Numbers:
        """Tickets of books."""
        tickets: Numbers = self._books["ticket"][books]
        return tickets

    def find(self, parents: Numbers, tokens: NDArray[np.int32]) -> Numbers:
        """Return the nodes ``[W]`` of blocks ``[W, B]`` behind others, adding those that are new."""
        keys = self._keys(parents, tokens)
        found = np.array([*map(self._at.get, keys, repeat(-1))], np.int64)
        missing = found < 0
        if missing.any():
            new = [*compress(keys, missing.tolist())]
            self._add([*dict.fromkeys(new)])
            found[missing] = [*map(self._at.__getitem__, new)]
        return found

    def visit(self, states: Numbers) -> Numbers:
        """Note that walkers came to states; returns which of them, by their place, nobody had come to, each once."""
        new = (~self._nodes["visited"][states]).nonzero()[0]
        if new.size:
            if new.size > 1:
                new = new[np.unique(states[new], return_index=True)[1]]
            self._nodes["visited"][states[new]] = True
        return new

    def answered(self, states: Numbers) -> Flags:
        """Whether what is said in states is known; where nothing is asked, it is."""
        known: Flags = self._nodes["asked"][states]
        return known

    def said(self, nodes: Numbers) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Tokens and confidence in nodes, with a dimension more; they mean something where it was asked."""
        return self._said.take(nodes, axis=0), self._confidence.take(nodes, axis=0)

    def bad(self, nodes: Numbers) -> Flags:
        """Whether what was said in nodes is not finite."""
        spoilt: Flags = self._nodes["bad"][nodes]
        return spoilt

    def problem(self, path: Numbers) -> str:
        """Why what was said along the blocks of a state must not be used: what was found, and where first."""
        worst = path[self.bad(path).argmax()]
        node, spoilt_here = self._nodes[worst], np.isnan(self._confidence[worst])
        position = (node["depth"] - 1) * self.block_size + (node["asks"] & spoilt_here).argmax()
        return f"position {position}: logits are not finite"

    def ask(self, paths: Numbers, depths: Numbers) -> Question:
        """Put the questions of a step's states to the model, and take pages for the blocks that they run.

        A block that several states need is run for the first of them; a state whose blocks are all run for others needs
        no query. Pages lent two asking steps of their book ago are given back first.

        Parameters
        ----------
        paths, depths
            Nodes ``[S, D]`` of the states' blocks, and how many ``[S]`` each has; what stands behind them is not read.
            All states differ, and none is answered.
        """
        level = np.arange(paths.shape[1])
        inside = level < depths[:, None]
        paths = np.where(inside, paths, paths[:, :1])
        books = self._nodes["book"][paths[:, 0]]
        self._return_lent(books)
        inner = self._books["edits"][books][:, None] & (level < depths[:, None] - 1)
        asking = inside & ~self._nodes["asked"][paths] & ~inner
        state, place = (asking | (inside & (self._nodes["page"][paths] == NO_PAGE))).nonzero()
        if len(paths) > 1:
            first = np.sort(np.unique(paths[state, place], return_index=True)[1])
            state, place = state[first], place[first]
        nodes = paths[state, place]
        asked = self._nodes["asks"][nodes] & ~self._nodes["asked"][nodes, None]
        if inner.any():
            asked &= np.isin(nodes, paths[asking])[:, None]
        run = np.bincount(state)
        states = run.nonzero()[0]
        run = run[states]
        self._lend(nodes, paths[states][inside[states]])
        kinds = self._books["kind"][books[states]]
        batch = Batch(
            tokens=self._nodes["tokens"][nodes],
            asked=asked,
            run=run,
            cached=depths[states] - run,
            pages=np.where(inside[states], self._nodes["page"][paths[states]], NO_PAGE),
            prompts=books[states],
            samplings=tuple(self._samplings),
            kinds=kinds,
            uniforms=np.zeros((len(nodes), self.block_size)),
        )
        for kind, sampling in enumerate(self._samplings):
            if sampling is None:
                continue
            for number in np.repeat(kinds == kind, run).nonzero()[0].tolist():
                path = paths[state[number], : place[number] + 1]
                batch.uniforms[number] = self._uniforms(path, sampling)
        return Question(batch, nodes)

    def hear(self, question: Question, answer: Answer, bad: Flags) -> None:
        """Remember what was said where it was asked, and which of the blocks are `spoilt`."""
        heard = question.batch.asked.any(axis=1)
        nodes = question.nodes[heard]
        self._said[nodes] = answer.tokens[heard]
        self._confidence[nodes] = answer.confidence[heard]
        self._nodes["bad"][nodes] = bad[heard]
        self.any_bad |= bool(bad.any())
        self._nodes["asked"][nodes] = True

    def leave(self, books: Numbers) -> Numbers:
        """Take one walker for each mention of a book out of it; returns the books that have none left, now closed.

        Their pages are given back; nobody stands in their states any more.
        """
        np.subtract.at(self._books["walkers"], books, 1)
        closed = np.unique(books[self._books["walkers"][books] == 0])
        if closed.size:
            closing = np.zeros(len(self._books) + 1, np.bool_)  # one more for nodes of no book, whose number is -1
            closing[closed] = True
            gone = closing[self._nodes["book"]].nonzero()[0]
            self._lent = self._lent[~closing[self._nodes["book"][self._lent]]]
            rows = self._nodes.take(gone)
            rows_found = rows[rows["found"]]
            for key in self._keys(rows_found["parent"], rows_found["tokens"]):
                del self._at[key]
            self.pages.give_back(rows["page"][rows["page"] != NO_PAGE])
            self._nodes["book"][gone] = -1
            self._free_nodes.give_back(gone)
            self._free_books.give_back(closed)
            for book in closed.tolist():
                self._digests.pop(book, None)
        return closed

    def _keys(self, parents: Numbers, tokens: NDArray[np.int32]) -> list[bytes]:
        """What nodes are found by: parent and tokens, as bytes."""
        rows = np.empty(len(parents), self._key)
        rows["parent"], rows["tokens"] = parents, tokens
        keys: list[bytes] = rows.view(f"V{self._key.itemsize}").tolist()
        return keys

    def _add(self, keys: list[bytes]) -> None:
        """Add nodes, by their keys."""
        nodes = self._take(len(keys))
        self._at.update(zip(keys, nodes.tolist(), strict=True))
        key = np.frombuffer(b"".join(keys), self._key)
        parents, tokens = key["parent"], key["tokens"]
        rows = np.zeros(len(keys), self._nodes.dtype)
        rows["parent"], rows["found"], rows["page"] = parents, True, NO_PAGE
        rows["book"] = books = self._nodes["book"][parents]
        rows["depth"] = depth = self._nodes["depth"][parents] + 1
        rows["tokens"] = tokens
        masked = tokens == self._mask_id
        rows["clean"] = self._nodes["clean"][parents] & ~masked.any(axis=1)
        behind = (depth - 1)[:, None] * self.block_size + np.arange(self.block_size)
        behind = behind >= self._books["length"][books][:, None]
        rows["asks"] = asks = masked | (behind & self._books["edits"][books][:, None])
        rows["asked"] = ~asks.any(axis=1)
        put(self._nodes, nodes, rows)

    def _take(self, count: int) -> Numbers:
        nodes = self._free_nodes.take(count)
        have, last = len(self._nodes), int(nodes.max(initial=0))
        if last >= have:
            self._nodes = grown(self._nodes, last)
            self._nodes["book"][have:] = -1
            self._said, self._confidence = grown(self._said, last), grown(self._confidence, last)
        return nodes

    def _lend(self, nodes: Numbers, read: Numbers) -> None:
        """Take pages for nodes that have none, and note which nodes with masks are read in this step."""
        nodes = nodes[self._nodes["page"][nodes] == NO_PAGE]
        self._nodes["page"][nodes] = self.pages.take(len(nodes))
        self._lent = np.concatenate([self._lent, nodes[~self._nodes["clean"][nodes]]])
        self._nodes["lent"][read] = self._books["step"][self._nodes["book"][read]]

    def _return_lent(self, books: Numbers) -> None:
        """Begin a step that asks about some books: give back pages that the last one did not read."""
        self._books["step"][books] += 1  # once, however often a book is mentioned
        lent = self._lent
        since = self._books["step"][self._nodes["book"][lent]] - self._nodes["lent"][lent]
        stale = lent[since > 1]
        self.pages.give_back(self._nodes["page"][stale])
        self._nodes["page"][stale] = NO_PAGE
        self._lent = lent[since <= 1]

    def _uniforms(self, path: Numbers, sampling: Sampling) -> NDArray[np.float64]:
        """Return a number in [0, 1) for each position of a path's last block, 53 bits from a hash."""
        stem = blake2b(
            sampling.seed.to_bytes(8, "little") + self._digests[int(self._nodes["book"][path[0]])], digest_size=8
        )
        stem.update(self._nodes["tokens"][path].astype("<i4").tobytes())
        numbers = []
        for position in range((len(path) - 1) * self.block_size, len(path) * self.block_size):
            leaf = stem.copy()
            leaf.update(b"@" + position.to_bytes(8, "little"))
            numbers.append((int.from_bytes(leaf.digest(), "little") >> 11) / 2**53)
        return np.array(numbers)


def spoilt(batch: Batch, answer: Answer) -> Flags:
    """Blocks ``[T]`` where something was asked and the answer is not finite."""
    flags: Flags = np.any(batch.asked & np.isnan(answer.confidence), axis=1)
    return flags
