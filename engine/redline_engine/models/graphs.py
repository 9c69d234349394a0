"""Steps of a few fixed shapes, in buffers that stay where they are: what CUDA records once and replays as one launch.

A small forward on a GPU takes as long as it has kernels to launch. A CUDA graph launches them all at once, but only on
the buffers and shapes that it was recorded with. So a batch is laid into the smallest of a few rectangles that holds
it: queries, blocks that each runs, and cached blocks each, rounded up to powers of two. What fills it up is masked, and
written to a place that nobody reads. A batch that no rectangle holds is run as it is (`packing.py`).

A CPU has no graphs. There the rectangles are run directly, which is how tests compare them with the plain path.

Letters as in `packing.py`; ``b``, ``N`` and ``P`` are those of the rectangle.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from redline_engine.models.base import Batch
from redline_engine.models.packing import (
    SPARE,
    ZERO,
    Group,
    Packed,
    PageCache,
    attention_bias,
    cached_places,
    lay,
)

MOST_ROWS = 4096  # of a rectangle; beyond it the arithmetic takes longer than the launches
MOST_RUN = 8  # blocks; queries that run more, mostly whole prompts, would fill up all others
LEAST_CACHED = 8  # blocks; below it one more costs nothing
_WARM_UPS = 2  # forwards before a recording, in which libraries set up what must not be recorded

Hidden = Callable[[Packed, Tensor], Tensor]
"""From a layout and the pages of all layers to the final hidden states ``[n, hidden]`` of the rows asked for."""


class Rectangle(NamedTuple):
    """A shape: ``b``, ``N`` and ``P``."""

    queries: int
    run: int
    cached: int


def rectangle(batch: Batch) -> Rectangle | None:
    """Return the smallest rectangle that holds a batch; None if there is none."""
    shape = Rectangle(
        _power_of_two(len(batch.run)),
        _power_of_two(int(batch.run.max())),
        max(LEAST_CACHED, _power_of_two(int(batch.cached.max()))),
    )
    fits = shape.run <= MOST_RUN and shape.queries * shape.run * batch.block_size <= MOST_ROWS
    return shape if fits else None


def _power_of_two(number: int) -> int:
    """Return the smallest one that is no less than `number`."""
    return 1 << max(number - 1, 0).bit_length()


class Graphs:
    """Recorded steps over the pages of one block size.

    Parameters
    ----------
    hidden
        What is recorded.
    """

    def __init__(self, hidden: Hidden) -> None:
        self._hidden = hidden
        self._kept: Tensor | None = None
        self._steps: dict[Rectangle, _Step] = {}
        self._pool = torch.cuda.graph_pool_handle() if torch.cuda.is_available() else None

    def hidden(self, batch: Batch, cache: PageCache) -> Tensor | None:
        """Compute the final hidden states ``[n, hidden]`` of the positions asked about, block after block.

        None if the batch fits no rectangle.
        """
        shape = rectangle(batch)
        if shape is None:
            return None
        if self._kept is not cache.kept:  # the pages have moved: what was recorded writes to where they were
            self._kept, self._steps = cache.kept, {}
        step = self._steps.get(shape)
        if step is None:
            step = self._steps[shape] = _Step(shape, batch.block_size, cache.kept, self._hidden)
        asked = step.fill(batch)
        if step.replay is None:
            step.replay = _recorded(step.run, cache.kept.device, self._pool)
        return step.replay().index_select(0, asked)


class _Step:
    """A rectangle's buffers and its forward on them."""

    def __init__(self, shape: Rectangle, block_size: int, kept: Tensor, hidden: Hidden) -> None:
        queries, run, cached = shape
        self._shape, self._size, self._kept, self._hidden = shape, block_size, kept, hidden
        self.replay: Callable[[], Tensor] | None = None
        rows, device = queries * run * block_size, kept.device
        counts = [rows, rows, queries * run, queries * (run + cached), queries]
        self._parts = [slice(end - count, end) for count, end in zip(counts, accumulate(counts), strict=True)]
        self._whole = torch.zeros(sum(counts), dtype=torch.int64, device=device)  # so that a step transfers once
        self._rows = torch.arange(rows, device=device)

    def fill(self, batch: Batch) -> Tensor:
        """Lay out a batch; returns the rows of the positions asked about."""
        (b, run, cached), size = self._shape, self._size
        ids, positions = np.zeros((2, b, run, size), np.int64)
        places = np.full((b, run), SPARE)
        seen = np.full((b, run + cached), ZERO)
        past = np.zeros(b, np.int64)
        laid, behind = lay(batch), cached_places(batch)
        ids[laid.owners, laid.within] = batch.tokens
        positions[laid.owners, laid.within] = laid.numbers[:, None] * size + np.arange(size)
        places[laid.owners, laid.within] = seen[laid.owners, laid.within] = laid.places
        seen[: len(behind), run : run + behind.shape[1]] = behind
        past[: len(batch.cached)] = batch.cached
        whole = np.concatenate([each.reshape(-1) for each in (ids, positions, places, seen, past)])
        self._whole.copy_(torch.from_numpy(whole))
        block, offset = batch.asked.nonzero()
        asked = (laid.owners * run + laid.within)[block] * size + offset
        return torch.from_numpy(asked).to(self._whole.device)

    def run(self) -> Tensor:
        """Compute the final hidden states of all rows, those that only fill up included."""
        (b, run, cached), size = self._shape, self._size
        ids, positions, places, seen, past = (self._whole[part] for part in self._parts)
        bias = attention_bias(past, run, run + cached, size, self._kept)
        group = Group(slice(0, b * run * size), b, seen, bias)
        return self._hidden(Packed(ids, positions, places, [group], self._rows), self._kept)


def _recorded(run: Callable[[], Tensor], device: torch.device, pool: Any) -> Callable[[], Tensor]:
    """Record what `run` launches; what is returned launches it again, and gives the same tensor each time."""
    if device.type != "cuda":
        return run
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(_WARM_UPS):
            run()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = run()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay
