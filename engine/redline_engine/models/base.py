"""The interface between the engine and a model.

The engine asks with a `Query` for each decode state and gets an `Answer`: for every masked position the token that the
model proposes there and its confidence. Attention is block-causal: a position sees all positions of its own and of
earlier blocks. Where a position stands in its block is absolute, never relative to the reply.

Pages are numbers that the engine hands out, one per block; what lies behind them is the model's. A page's content
depends only on the tokens up to the end of its block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from redline_engine.config import Sampling


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
    """One decode state.

    Parameters
    ----------
    tokens
        ``[T]`` int32, a whole number of blocks; masks where unresolved.
    pages
        ``[T / B]``, one for each block.
    cached
        Leading blocks that lie in their pages; the blocks after them are to be run, and kept in theirs.
    positions
        ``[n]`` positions asked about, ascending, all in blocks to be run: masked ones, and for a configuration that
        edits also resolved ones.
    sampling
        How tokens are drawn; None for greedy.
    uniforms
        ``[n]`` float64 in [0, 1), one for each position; empty if greedy.
    """

    tokens: NDArray[np.int32]
    pages: tuple[int, ...]
    cached: int
    positions: NDArray[np.int64]
    sampling: Sampling | None
    uniforms: NDArray[np.float64]


class Answer(NamedTuple):
    """What the model said in a decode state.

    Parameters
    ----------
    tokens
        ``[n]`` int32, never the mask. Greedy: the most probable token, ties to the lowest id.
    confidence
        ``[n]`` float32: probability of the token among all but the mask, before temperature and filters; NaN where
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

    def forward(self, block_size: int, queries: Sequence[Query]) -> list[Answer]:
        """Answer the queries, in order, and keep the blocks that are run in their pages.

        Pages of different block sizes are unrelated even where their numbers are equal. A query may read a page that
        one before it in the same call fills.
        """
        ...
