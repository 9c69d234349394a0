"""Blind gates on grids that are served: what the store knows of open runs keeps them out, and nothing is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from live_gate import write_live

from pytest_redline.blind import ask
from pytest_redline.errors import LedgerError, OutcomesError
from pytest_redline.gate import Live, certificate_of
from pytest_redline.grid import Grid
from pytest_redline.grid_file import load_grid
from pytest_redline.ledger import NAME
from pytest_redline.reuse import Run
from pytest_redline.sources import engine as bridge


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    write_live(tmp_path)
    return load_grid(tmp_path / "g.redline.yaml")


def live(grid: Grid, partial: bool = False) -> Live:
    return Live(grid.path.parent / "store.sqlite", run=Run(partial=partial))


def test_a_served_grid_is_judged_blindly_and_again_for_nothing(grid: Grid) -> None:
    first = ask(grid, live(grid))
    before = (grid.path.parent / NAME).read_bytes()
    assert len(first.said) == 2
    again = ask(grid, live(grid))
    assert (again.passed, again.said) == (first.passed, first.said[:1])
    assert (grid.path.parent / NAME).read_bytes() == before
    bit = json.loads(before.splitlines()[-1])
    assert (bit["passed"], bit["reuse"]["number"]) == (first.passed, 1)
    with pytest.raises(LedgerError, match="blind gates on these prompts: 1"):
        certificate_of(grid, live(grid, partial=True))


def test_prompts_that_were_served_openly_are_refused(grid: Grid) -> None:
    certificate_of(grid, live(grid, partial=True))  # which the ledger does not know of
    with pytest.raises(LedgerError, match="judged before"):
        ask(grid, live(grid))
    assert not (grid.path.parent / NAME).exists()


def test_why_serving_failed_is_shown_before_it_began_only(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OutcomesError("fast failed on 7 of 60 prompts")

    with monkeypatch.context() as patched:
        patched.setattr(bridge, "_generate", broken)
        with pytest.raises(OutcomesError, match="does not show it"):
            ask(grid, live(grid))
    source = yaml.safe_load(grid.path.read_text())
    source["source"]["engine"]["checkpoint"] = "nowhere"
    grid.path.write_text(yaml.safe_dump(source, sort_keys=False))
    with pytest.raises(OutcomesError, match="nowhere"):
        ask(load_grid(grid.path), live(grid))
