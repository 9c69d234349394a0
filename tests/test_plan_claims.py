"""A plan is one of the exact test on all prompts: what else a pilot's grid claims is said, or refused."""

from __future__ import annotations

import pytest
from gate_runner import Gate, text_of

SCORES = {"outcomes": {"file": "runs.csv", "columns": {"correct": {"column": "correct", "loss": "drop", "test": "hb"}}}}
FORMAT = {"format": {"measure": "forwards", "over": 100, "alpha": 0.1}}


@pytest.mark.parametrize("pilot", ["g.redline.yaml", "out/g.certificate.json"])
def test_pilot_that_is_tested_by_mean_losses_is_refused(gate: Gate, pilot: str) -> None:
    gate.write({"ref": (), "cand": range(5)}, source=SCORES)
    gate.run("--redline-report=out")
    result = gate.command("plan", "--pilot", pilot)
    assert result.ret == 1
    assert "is tested by mean losses (hb), and a plan is one of the exact test" in text_of(result)


@pytest.mark.parametrize("pilot", ["g.redline.yaml", "out/g.certificate.json"])
def test_further_risks_are_said_not_to_be_planned_for(gate: Gate, pilot: str) -> None:
    gate.write({"ref": (), "cand": range(5)}, risks=FORMAT)
    gate.run("--redline-report=out")
    result = gate.command("plan", "--pilot", pilot)
    assert result.ret == 0
    assert "further risks must hold too (format)" in " ".join(text_of(result).split())


def test_shortfall_of_mean_losses_points_to_no_plan(gate: Gate) -> None:
    gate.write({"ref": (), "cand": range(4)}, source=SCORES)
    text = text_of(gate.run())
    assert "or with about " in text
    assert "pytest-redline plan" not in text
