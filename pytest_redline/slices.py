"""Slices of a pool of prompts, one for each gate: what was seen of earlier slices says nothing about the next one.

A slice is drawn by a nonce, after the candidate is frozen: whoever could choose the nonce before could choose prompts
that the candidate gets right. The same nonce gives the same slice, so that a job that is run again draws no second
time; another one gives prompts that no earlier statement was about.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from pytest_redline.errors import LedgerError
from pytest_redline.grid import Drawn, EngineSource, Grid
from pytest_redline.ledger import Ledger, members, short_hash
from pytest_redline.outcomes import natural_key
from pytest_redline.paths import display
from pytest_redline.prompts import read_prompts
from pytest_redline.reuse import Run, known_ledger
from pytest_redline.statement import sha256_of
from pytest_redline.store import Store

_ENVIRONMENT = "env:"


def sliced(grid: Grid, store: Path, run: Run) -> tuple[Grid, tuple[str, ...] | None]:
    """Draw the slice of a grid that takes one; the grid as it is, and None, where it takes all its prompts.

    Raises
    ------
    RedlineError
        The pool or the ledger cannot be read, or as in `draw_slice`.
    """
    if grid.slice is None:
        return grid, None
    assert grid.prompts is not None
    pool = read_prompts(grid.prompts).ids
    is_live = isinstance(grid.source, EngineSource) and store.is_file()
    with Store(store) if is_live else nullcontext() as opened:
        ledger = known_ledger(grid.path, "", opened, run)
    return draw_slice(grid, pool, ledger)


def draw_slice(grid: Grid, pool: Sequence[str], ledger: Ledger) -> tuple[Grid, tuple[str, ...]]:
    """Draw the slice of a grid from a pool.

    Parameters
    ----------
    pool
        Ids of all prompts of the pool.
    ledger
        Knows which prompts earlier statements were about, and slices that were drawn before.

    Returns
    -------
    The grid, which now knows what was drawn, and the ids of the slice in natural order.

    Raises
    ------
    LedgerError
        There is no nonce, or too few prompts are left; or the slice that its nonce drew before is not in this pool.
    """
    assert grid.slice is not None
    assert grid.prompts is not None
    nonce, where, file = _nonce(grid), display(grid.path), grid.prompts.name
    mark = hashlib.sha256(f"redline slice {nonce}".encode()).hexdigest()
    drawn = replace(grid, drawn=Drawn(file, len(pool), sha256_of(sorted(pool, key=natural_key)), mark))
    by_hash = {short_hash(each): each for each in pool}
    earlier = next((each for each in ledger.sets.values() if each.slice == mark and each.n == grid.slice.n), None)
    if earlier is not None:
        there = members(earlier)
        if not there <= by_hash.keys():
            raise LedgerError(
                f"{where} prompts.slice: this nonce drew prompts that are not in {file} any more; take a new "
                "nonce, or restore the pool"
            )
        return drawn, tuple(sorted((by_hash[each] for each in there), key=natural_key))
    used = frozenset[bytes]().union(*(members(each) for each in ledger.sets.values()))
    left = [each for key, each in by_hash.items() if key not in used]
    if len(left) < grid.slice.n:
        gates = sum(bool(members(each) & by_hash.keys()) for each in ledger.sets.values())
        raise LedgerError(
            f"{where} prompts.slice: {len(left):,} of the pool's {len(pool):,} prompts are left after {gates:,} "
            f"gates, a slice takes {grid.slice.n:,}; add new prompts to {file}, or take smaller slices"
        )
    shuffled = sorted(
        left, key=lambda each: hashlib.sha256(f"{nonce}\0{each}".encode("utf-8", "surrogatepass")).digest()
    )
    return drawn, tuple(sorted(shuffled[: grid.slice.n], key=natural_key))


def _nonce(grid: Grid) -> str:
    """The nonce that a grid names, from the environment where it says so."""
    assert grid.slice is not None
    said = grid.slice.nonce
    name = said.removeprefix(_ENVIRONMENT)
    found = os.environ.get(name, "").strip() if said.startswith(_ENVIRONMENT) else said
    if not found:
        raise LedgerError(
            f"{display(grid.path)} prompts.slice.nonce: the environment variable {name} is not set; set it to what CI "
            "draws once for a run, such as the run's id"
        )
    return found
