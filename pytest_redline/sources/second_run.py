"""What is served to measure the noise floor: the reference once more, with nothing of its first run.

It is served after the grid, alone, by an engine of its own and in an order of its own, so that no forward is shared and
batches are put together otherwise. Where the reference samples it draws from a seed of its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from pytest_redline.grid import Grid, NoiseFloor
from pytest_redline.prompts import Prompts


def second_run(grid: Grid, floor: NoiseFloor, prompts: Prompts) -> tuple[Grid, Prompts]:
    """Make the grid of the second run, of one configuration, and its prompts in their new order."""
    reference = grid.configurations[grid.labels.index(grid.reference)]
    knobs = dict(reference.knobs)
    if "seed" in knobs:  # read only where the reference samples
        knobs["seed"] = other_seed(int(knobs["seed"]))
    again = replace(reference, label=floor.label, knobs=knobs)
    one = replace(
        grid,
        reference=floor.label,
        configurations=(again,),
        serving=None,
        groups=None,
        risks=(),
        noise_floor=None,
        lossless=(),
    )
    order = np.random.default_rng([other_seed(grid.sample.seed if grid.sample else 0)]).permutation(len(prompts.ids))
    return one, replace(prompts, order=tuple(order.tolist()))


def other_seed(seed: int) -> int:
    """Seed that is as good as unrelated to a given one, and always the same for it."""
    digest = hashlib.sha256(f"second run of seed {seed}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
