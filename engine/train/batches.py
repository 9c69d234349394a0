"""From encoded problems to training batches: noise, targets and attention masks.

The answer of a row is cut into blocks on absolute positions, so the first one may begin with prompt tokens; they are
never masked. End tokens fill the last block. Three kinds of noise:

- *next token*: every answer token is masked and a block is one position, so each is predicted from the clean ones
  before it. One copy. The warm start.
- *block*: in each block a number of positions, drawn uniformly, is masked; the second copy masks the others, so each
  token is learnt once in every row. A noisy block sees clean blocks before it.
- *run*: consecutive noisy blocks see each other as open blocks do when several are decoded at once: a block sees the
  noisy blocks of its run before it, and clean ones before the run. Noise grows to the right, as it does in decoding.
  The two copies are drawn apart.

Rows are noised by generators of their own, so that a row is the same whichever process makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.train.network import Shape, View, rotary
from engine.train.vocabulary import END_ID, MASK_ID, PAD_ID, Encoded

FILL_WEIGHT = 0.05  # of end tokens behind the first
LONGEST_RUN = 4


@dataclass(frozen=True)
class Noise:
    """What kind of noise rows get.

    Parameters
    ----------
    block_size
        Positions per block. At 1 every answer token is masked, in one copy.
    run_share
        Share of rows with noisy runs of several blocks.
    spare_share
        Share of rows that have one more block of end tokens behind the last, as decoding may open one.
    """

    block_size: int
    run_share: float = 0.0
    spare_share: float = 0.0

    @property
    def copies(self) -> int:
        """Noisy copies of each row."""
        return 1 if self.block_size == 1 else 2


class Batch(NamedTuple):
    """Input of a training step.

    Parameters
    ----------
    clean, noisy, view, asked
        As `Network.forward` takes them.
    targets, weights
        ``[asked]`` tokens and weights of the loss.
    """

    clean: Tensor
    noisy: Tensor
    view: View
    asked: Tensor
    targets: Tensor
    weights: Tensor


class _Row(NamedTuple):
    """One row before padding; `first` is the position of its first answer block."""

    tokens: NDArray[np.int64]
    weights: NDArray[np.float32]
    first: int
    masked: NDArray[np.bool_]  # [C, blocks, B]
    run_start: NDArray[np.int64]  # [C, blocks] first block of the run, in blocks behind `first`


def _make_row(row: Encoded, noise: Noise, random: np.random.Generator) -> _Row:
    size, length = noise.block_size, len(row.prompt) + len(row.answer) + 1
    padded = -(-length // size) * size
    if random.random() < noise.spare_share:
        padded += size
    tokens = np.full(padded, END_ID, np.int64)
    tokens[: length - 1] = [*row.prompt, *row.answer]
    weights = np.ones(padded, np.float32)
    weights[length:] = FILL_WEIGHT
    first = len(row.prompt) // size * size
    blocks = (padded - first) // size
    free = (np.arange(first, padded) >= len(row.prompt)).reshape(blocks, size)
    if size == 1:
        return _Row(tokens, weights, first, free[None], np.arange(blocks)[None])
    in_runs = bool(random.random() < noise.run_share)
    draws = [_runs(blocks, random) if in_runs else np.arange(blocks) for _ in range(2)]
    counts = [_counts(start, size, random) for start in draws]
    rank = np.argsort(random.random((2, blocks, size)), axis=2).argsort(axis=2)
    if in_runs:
        masked = np.stack([rank[copy] < counts[copy][:, None] for copy in range(2)])
    else:
        one = rank[0] < counts[0][:, None]
        masked = np.stack([one, ~one])
    return _Row(tokens, weights, first, masked & free, np.stack(draws))


def _runs(blocks: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Cut blocks into runs of random lengths; returns for each block the first of its run."""
    length = int(random.integers(2, LONGEST_RUN + 1))
    offset = int(random.integers(0, length))
    number = np.arange(blocks)
    return np.maximum((number + offset) // length * length - offset, 0)


def _counts(start: NDArray[np.int64], size: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Draw how many positions of each block are masked, in most runs growing to the right."""
    counts = random.integers(0, size + 1, len(start))
    for first in np.unique(start):
        run = start == first
        if random.random() < 0.85:
            counts[run] = np.sort(counts[run])
    return counts


def make_batch(rows: Sequence[Encoded], noise: Noise, shape: Shape, randoms: Iterable[np.random.Generator]) -> Batch:
    """Noise each row with its own generator, pad rows to a rectangle and build the masks."""
    made = [_make_row(row, noise, random) for row, random in zip(rows, randoms, strict=True)]
    size, copies, count = noise.block_size, noise.copies, len(made)
    long = max(len(row.tokens) for row in made)
    wide = max(len(row.tokens) - row.first for row in made)
    clean = np.full((count, long), PAD_ID, np.int64)
    noisy = np.full((count, copies, wide), PAD_ID, np.int64)
    target = np.zeros((count, copies, wide), np.int64)
    weight = np.zeros((count, copies, wide), np.float32)
    position = np.zeros((count, wide), np.int64)
    run_start = np.zeros((count, copies, wide), np.int64)
    for number, row in enumerate(made):
        width = len(row.tokens) - row.first
        clean[number, : len(row.tokens)] = row.tokens
        masked = row.masked.reshape(copies, width)
        noisy[number, :, :width] = np.where(masked, MASK_ID, row.tokens[row.first :])
        target[number, :, :width] = row.tokens[row.first :]
        weight[number, :, :width] = masked * row.weights[row.first :]
        position[number] = row.first + np.arange(wide)
        starts = np.repeat(row.run_start, size, axis=1)
        run_start[number, :, :width] = row.first // size + starts
        run_start[number, :, width:] = position[number, width:] // size  # padding: each block a run of its own
    block, clean_block = position // size, np.arange(long) // size
    sees_clean = clean_block < run_start[..., None]  # [N, C, M, L]
    own = block[:, None, :, None]
    other = block[:, None, None, :]
    sees_noisy = (other <= own) & (other >= run_start[..., None])  # [N, C, M, M]
    noisy_view = np.concatenate([sees_clean, sees_noisy], axis=3).reshape(count * copies, 1, wide, long + wide)
    clean_view = np.broadcast_to(clean_block <= clean_block[:, None], (1, 1, long, long))
    asked = np.flatnonzero(weight)
    spots = torch.from_numpy(position).repeat_interleave(copies, 0)[:, None]
    return Batch(
        clean=torch.from_numpy(clean),
        noisy=torch.from_numpy(noisy.reshape(count * copies, wide)),
        view=View(
            clean=_additive(clean_view),
            noisy=_additive(noisy_view),
            clean_turn=rotary(torch.arange(long), shape),
            noisy_turn=rotary(spots, shape),
        ),
        asked=torch.from_numpy(asked),
        targets=torch.from_numpy(target.reshape(-1)[asked]),
        weights=torch.from_numpy(weight.reshape(-1)[asked]),
    )


def _additive(view: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(np.where(view, np.float32(0), np.float32(-np.inf)))


def order_by_length(rows: Sequence[Encoded], batch: int, random: np.random.Generator) -> list[list[Encoded]]:
    """Cut rows into batches of similar length, which saves padding, and shuffle these."""
    ordered = sorted(rows, key=lambda row: (len(row.answer), len(row.prompt)))
    batches = [ordered[start : start + batch] for start in range(0, len(ordered) - batch + 1, batch)]
    return [batches[number] for number in random.permutation(len(batches))]
