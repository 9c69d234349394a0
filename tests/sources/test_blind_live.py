"""Blind gates on grids that are served: what the store knows of open runs keeps them out, and nothing is told."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from gate_runner import told_by
from live_gate import run, write_live

from pytest_redline.blind import ask
from pytest_redline.errors import LedgerError, LoadError, OutcomesError
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


def test_a_model_that_cannot_be_loaded_is_told_and_spends_nothing(grid: Grid) -> None:
    text = grid.path.read_text().replace("device: cpu", "device: cpu\n    cuda_graphs: true")
    grid.path.write_text(text)
    with pytest.raises(LoadError, match="cuda_graphs needs a CUDA device, not cpu"):
        ask(load_grid(grid.path), live(grid))
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


def killed(folder: Path, patch: str) -> str:
    """Run a gate that kills itself where the patch says; returns what it printed, without paths."""
    conftest = folder / "conftest.py"
    conftest.write_text(
        "import os, signal\nimport pytest_redline.blind as blind\n"
        f"def die(*_):\n    os.kill(os.getpid(), signal.SIGKILL)\n{patch}\n"
    )
    result = run(folder, "--redline-blind", "-v", "-s", "--no-header")  # which other plugins write to
    conftest.unlink()
    assert result.returncode == -signal.SIGKILL
    return told_by(result.stdout + result.stderr)


def rows_in(store: Path) -> int:
    with closing(sqlite3.connect(store)) as connection:
        return int(connection.execute("SELECT count(*) FROM generations").fetchone()[0])


def bits(folder: Path) -> list[dict[str, object]]:
    lines = map(json.loads, (folder / NAME).read_text().splitlines())
    return [{name: line[name] for name in ("passed", "delta", "outcomes")} for line in lines if "statement" in line]


def test_a_gate_that_is_killed_while_it_serves_tells_nothing_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    left, whole = tmp_path / "left", tmp_path / "whole"
    for folder in (left, whole):
        write_live(folder, n=40, serving="fast")
    store = left / ".redline" / "store.sqlite"
    shown = killed(
        left,
        "write = blind.Store.write\n"
        "def some(store, generations):\n"
        "    write(store, generations[:10])\n"
        "    if generations:\n"
        "        die()\n"
        "blind.Store.write = some",
    )
    assert 0 < rows_in(store) < 80, "killed in the middle"
    assert not (left / NAME).exists()
    for told in ("PASSED", "FAILED", "fast", "slow", "prompts", "%]"):
        assert told not in shown, told
    again = run(left, "--redline-blind")
    assert "live: blind gate 1 on its prompts" in again.stdout
    assert rows_in(store) == 80
    expected = ask(load_grid(whole / "g.redline.yaml"), Live(whole / "store.sqlite"))
    assert again.returncode == int(not expected.passed)
    assert ask(load_grid(left / "g.redline.yaml"), Live(store)).passed is expected.passed
    assert bits(left) == bits(whole)
    assert [bit["passed"] for bit in bits(left)] == [expected.passed]


def test_a_gate_that_is_killed_once_its_bit_is_recorded_lets_the_store_know_when_it_is_run_again(
    tmp_path: Path,
) -> None:
    grid = load_grid(write_live(tmp_path, serving="fast"))
    shown = killed(tmp_path, "blind.Store.ask = die")
    assert "PASSED" not in shown
    assert "FAILED" not in shown
    recorded = (tmp_path / NAME).read_bytes()
    kept = Live(tmp_path / ".redline" / "store.sqlite")
    answer = ask(grid, kept)
    assert (tmp_path / NAME).read_bytes() == recorded
    assert [bit["passed"] for bit in bits(tmp_path)] == [answer.passed]
    (tmp_path / NAME).unlink()
    with pytest.raises(LedgerError, match="shows that some of these prompts were judged before"):
        ask(grid, kept)
