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


BESIDE = {
    "weights": ({"weights": {"serving": 0.5}, "serving": "cand"}, "cand has 0.5 of delta"),
    "risks": ({"risks": FORMAT}, "further risks must hold too (format)"),
    "gates": ({"delta": {"total": 0.1, "gates": 50}}, "share delta 0.1; these numbers are for each of them"),
    "series": ({"delta": {"total": 0.1, "spend": "series"}}, "share delta 0.1; these numbers are for the first"),
}


@pytest.mark.parametrize(("keys", "says"), BESIDE.values(), ids=BESIDE)
def test_what_a_grid_claims_beside_plain_holm_is_said(gate: Gate, keys: dict[str, object], says: str) -> None:
    gate.write({"ref": (), "cand": range(5)}, **keys)
    assert says in " ".join(text_of(gate.command("plan", "--grid", "g.redline.yaml")).split())


def test_looks_are_said_to_cost_power(gate: Gate) -> None:
    engine = {"engine": {"checkpoint": "bundled:arithmetic"}}
    knobs = {"ref": {"accept_threshold": 0.95}, "cand": {"accept_threshold": 0.9}}
    gate.write(source=engine, configurations=knobs, prompts={"file": "p.jsonl"}, grade="math", stopping={"looks": 3})
    text = " ".join(text_of(gate.command("plan", "--grid", "g.redline.yaml")).split())
    assert "a gate with looks certifies a little less" in text


def test_a_shared_delta_is_planned_with_what_a_statement_gets(gate: Gate) -> None:
    gate.write({"ref": (), "cand": range(5)}, delta={"total": 0.1, "gates": 5})
    assert "alpha 0.1, delta 0.02, m 2" in text_of(gate.command("plan", "--grid", "g.redline.yaml"))
    gate.run("--redline-report=out")
    assert "delta 0.02, m 2" in text_of(gate.command("plan", "--pilot", "out/g.certificate.json"))
