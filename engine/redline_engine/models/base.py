"""The interface between the engine and a model.

The engine asks about many decode states at once, with a `Batch`, and gets an `Answer`: for every position that is asked
about the token that the model proposes there and its confidence. Attention is block-causal: a position sees all
positions of its own and of earlier blocks. Where a position stands in its block is absolute, never relative to the
reply.

Pages are numbers that the engine hands out, one per block; what lies behind them is the model's. A page's content
depends only on the tokens up to the end of its block.

Letters: ``Q`` queries, one for each state; ``T`` blocks that they run, together; ``B`` block size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from redline_engine.config import Sampling

Numbers = NDArray[np.int64]

NO_PAGE = -1  # fills up the pages of queries with fewer blocks than others


@dataclass(frozen=True)
class ModelInfo:
    """Facts of a loaded model.

    Parameters
    ----------
    vocab_size
        Tokens are 0 .. vocab_size - 1. Ids that the tokenizer does not know are left out, so they are never proposed.
    mask_id
        Token at an unresolved position; never proposed.
    end_ids
        Tokens that end a reply.
    block_size
        Block size it was trained with: the default of configurations.
    max_positions
        Longest sequence, prompt and the reply's last block included.
    """

    vocab_size: int
    mask_id: int
    end_ids: tuple[int, ...]
    block_size: int
    max_positions: int


class Query(NamedTuple):
    """A single query, as `batch_of` puts them together.

    Parameters
    ----------
    tokens
        ``[B k]`` int32, those of all blocks of the state; masks where unresolved.
    pages
        One for each block.
    cached
        Leading blocks that lie in their pages; the blocks after them are to be run.
    positions
        Asked about, all in blocks to be run.
    prompt
        Number of the prompt.
    """

    tokens: Sequence[int] | NDArray[np.int32]
    pages: Sequence[int]
    cached: int
    positions: Sequence[int] | Numbers
    prompt: int = 0


class Batch(NamedTuple):
    """Queries in arrays.

    Parameters
    ----------
    tokens
        ``[T, B]`` int32 of the blocks to be run, query after query; masks where unresolved.
    asked
        ``[T, B]`` positions asked about: masked ones, and for a configuration that edits also resolved ones.
    run, cached
        ``[Q]`` blocks that a query runs, one at least, and leading blocks before them, which lie in their pages.
    pages
        ``[Q, most]`` one for each block of a query, in order, filled up with `NO_PAGE`. The blocks that are run are to
        be kept in theirs.
    prompts
        ``[Q]`` number of the prompt. A query may read pages that another one about the same prompt fills in this batch,
        if that one stands before it.
    samplings, kinds
        Ways of drawing tokens, None for greedy; ``[Q]`` which of them a query is answered by.
    uniforms
        ``[T, B]`` float64 in [0, 1), to be read where a drawn token is asked for.
    """

    tokens: NDArray[np.int32]
    asked: NDArray[np.bool_]
    run: Numbers
    cached: Numbers
    pages: Numbers
    prompts: Numbers
    samplings: tuple[Sampling | None, ...]
    kinds: Numbers
    uniforms: NDArray[np.float64]

    @property
    def block_size(self) -> int:
        """``B``."""
        return int(self.tokens.shape[1])

    @property
    def numbers(self) -> Numbers:
        """``[T]`` which block of its query's each one is, counted from the first cached one."""
        return counted(self.run) + np.repeat(self.cached, self.run)

    def take(self, queries: Numbers) -> tuple[Batch, Numbers]:
        """Return some of the queries, in the order given, and which of the blocks they run; none is taken twice."""
        if len(queries) == len(self.run) == 1:
            return self, np.arange(len(self.tokens))
        run = self.run[queries]
        blocks = np.repeat((np.cumsum(self.run) - self.run)[queries], run) + counted(run)
        chosen = self._replace(
            tokens=self.tokens[blocks],
            asked=self.asked[blocks],
            run=run,
            cached=self.cached[queries],
            pages=self.pages[queries],
            prompts=self.prompts[queries],
            kinds=self.kinds[queries],
            uniforms=self.uniforms[blocks],
        )
        return chosen, blocks

    def by_block(self) -> Batch:
        """Return the same as a query for each block that is run; each reads what those before it keep."""
        owners = np.repeat(np.arange(len(self.run)), self.run)
        return self._replace(
            run=np.ones(len(owners), np.int64),
            cached=self.numbers,
            pages=self.pages[owners],
            prompts=self.prompts[owners],
            kinds=self.kinds[owners],
        )


def counted(counts: Numbers) -> Numbers:
    """0, 1, ... as many as each count says, one count after the other."""
    ends = np.cumsum(counts)
    numbers: Numbers = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
    return numbers


def batch_of(block_size: int, queries: Sequence[Query], sampling: Sampling | None = None) -> Batch:
    """Put single queries together; draws, if any, are at 0."""
    run = np.array([len(query.pages) - query.cached for query in queries])
    pages = np.full((len(queries), max(len(query.pages) for query in queries)), NO_PAGE)
    tokens, asked = [], []
    for number, query in enumerate(queries):
        pages[number, : len(query.pages)] = query.pages
        whole = np.zeros(len(query.tokens), np.bool_)
        whole[np.asarray(query.positions, np.int64)] = True
        tokens.append(np.asarray(query.tokens, np.int32)[query.cached * block_size :])
        asked.append(whole[query.cached * block_size :])
    return Batch(
        np.concatenate(tokens).reshape(-1, block_size),
        np.concatenate(asked).reshape(-1, block_size),
        run,
        np.array([query.cached for query in queries]),
        pages,
        np.array([query.prompt for query in queries]),
        (sampling,),
        np.zeros(len(queries), np.int64),
        np.zeros((int(run.sum()), block_size)),
    )


class Answer(NamedTuple):
    """What the model said in the blocks that a batch runs; read where it was asked about.

    Parameters
    ----------
    tokens
        ``[T, B]`` int32, never the mask. Greedy: the most probable token, ties to the lowest id.
    confidence
        ``[T, B]`` float32: probability of the token among all but the mask, before temperature and filters; NaN where
        some logit is not finite, which stops every walker that hears it.
    """

    tokens: NDArray[np.int32]
    confidence: NDArray[np.float32]


class Model(Protocol):
    """Anything that can answer queries."""

    @property
    def info(self) -> ModelInfo:
        """Facts of the model."""
        ...

    def forward(self, batch: Batch) -> Answer:
        """Answer the queries, and keep the blocks that are run in their pages.

        Pages of different block sizes are unrelated even where their numbers are equal.
        """
        ...
