"""Blind gates that are killed outright: nothing is shown that is not in the ledger, and each statement counts once."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from gate_runner import Gate, text_of, told_by

from pytest_redline.ledger import NAME, locked

GOOD: Mapping[str, Iterable[int]] = {"original": (), "swift": range(1), "hasty": range(40)}
BAD: Mapping[str, Iterable[int]] = {"original": (), "swift": range(37), "hasty": range(40)}
OTHER: Mapping[str, Iterable[int]] = {"original": (), "another": range(2)}

KILL = """\
import os, signal
from pathlib import Path

import pytest

import pytest_redline.blind as blind
import pytest_redline.ledger as ledger

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def when_the_ledger_is_replaced(replace):
    def called(source, target, **options):
        if Path(target).name == ledger.NAME:
            die()
        replace(source, target, **options)  # pytest's own caches are replaced too
    return called

def after(function):
    def called(*arguments):
        function(*arguments)
        die()
    return called

"""
MOMENTS = {  # and whether the bit is out by then
    "reading": ("blind.recorded_outcomes = die", False),
    "judging": ("blind.certify = die", False),
    "judged": ("blind.append = die", False),
    "writing": ("os.replace = when_the_ledger_is_replaced(os.replace)", True),
    "recorded": ("blind.append = after(blind.append)", True),
    "reporting": (
        "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_logreport(report):\n    report.when == 'call' and die()",
        True,
    ),
}


def statements(gate: Gate) -> list[dict[str, Any]]:
    path = gate.path / NAME
    lines = path.read_text().splitlines() if path.exists() else []
    return [each for line in lines if "statement" in (each := json.loads(line))]


def kill(gate: Gate, moment: str, *options: str) -> str:
    """Run the gate and kill it at that moment; returns what it printed."""
    conftest = gate.path / "conftest.py"
    conftest.write_text(KILL + MOMENTS[moment][0] + "\n")
    result = gate.run_alone("--redline-blind", "-v", "-s", *options)
    assert result.ret == (-signal.SIGKILL if not options else 1)
    conftest.unlink()
    return text_of(result)


def refuse_told(shown: str) -> None:
    """Nothing printed may be of the outcomes, or say whether the gate is passed."""
    shown = told_by(shown)
    for told in ("PASSED", "1 passed", "swift", "hasty", "certified", "undecided", "breach", "k/n", "risk "):
        assert told not in shown, told
    assert not re.search(r"\d(/| of )120\b", shown)


@pytest.mark.parametrize("wrong", [GOOD, BAD], ids=["passed", "failed"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_gate_that_is_killed_says_nothing_and_counts_once(
    gate: Gate, moment: str, wrong: Mapping[str, Iterable[int]]
) -> None:
    gate.write(wrong, 120, serving="swift")
    shown = kill(gate, moment)
    refuse_told(shown)
    assert "FAILED" not in shown
    left = [path for path in gate.path.glob(f".{NAME}.*") if '"passed"' in path.read_text()]
    assert bool(left) == (moment == "writing")
    is_out = MOMENTS[moment][1]
    assert len(statements(gate)) == (is_out and not left)

    gate.write(OTHER, 120, file="h.redline.yaml", recording="h.csv")
    other = gate.run("--redline-blind", "h.redline.yaml")
    assert other.ret == 0
    assert f"h: blind gate {2 if is_out else 1} on its prompts" in text_of(other)
    again = [gate.run("--redline-blind", "g.redline.yaml") for _ in range(2)]
    assert [result.ret for result in again] == [int(wrong is BAD)] * 2
    assert all(f"g: blind gate {1 if is_out else 2} on its prompts" in text_of(result) for result in again)
    lines = statements(gate)
    assert [line["reuse"]["number"] for line in lines] == [1, 2]
    assert {line["grid"]: line["passed"] for line in lines} == {"g": wrong is GOOD, "h": True}
    assert [line["delta"] for line in lines] == [0.1, 0.05]


@pytest.mark.parametrize("moment", ["judging", "writing", "recorded"])
def test_a_worker_that_is_killed_leaves_the_gate_not_passed(gate: Gate, moment: str) -> None:
    gate.write(GOOD, 120, serving="swift")
    shown = kill(gate, moment, "-p", "xdist", "-n", "1")
    refuse_told(shown)
    assert "the blind gate was not judged" in shown or "crashed" in shown
    assert gate.run("--redline-blind").ret == 0
    (line,) = statements(gate)
    assert (line["passed"], line["reuse"]["number"], line["delta"]) == (True, 1, 0.1)


def test_what_a_killed_writer_left_is_taken_over_once_and_what_is_cut_off_is_not(gate: Gate) -> None:
    gate.write(GOOD, 120, serving="swift")
    kill(gate, "writing")
    (left,) = gate.path.glob(f".{NAME}.*")
    whole = left.read_text()
    (gate.path / f".{NAME}.swp").write_text("an editor's")
    (gate.path / f".{NAME}.nonsense").write_bytes(b"\xff")
    cut = gate.path / f".{NAME}.cut_off1"
    cut.write_text(whole[: len(whole) - 9])
    with locked(gate.path / NAME):
        assert (gate.path / NAME).read_text() == whole
    assert gate.run("--redline-blind").ret == 0
    assert (gate.path / NAME).read_text() == whole
    assert left.exists(), "another machine may be about to put it in place"
    long_ago = time.time() - 3600
    for path in gate.path.glob(f".{NAME}.*"):
        os.utime(path, (long_ago, long_ago))
    assert gate.run("--redline-blind").ret == 0
    assert (gate.path / NAME).read_text() == whole
    assert {path.suffix for path in gate.path.glob(f".{NAME}.*")} == {".swp", ".nonsense"}
