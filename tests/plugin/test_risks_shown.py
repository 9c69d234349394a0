"""Further risks from a recording and from the engine, by the real command."""

from __future__ import annotations

import json

import pytest
from gate_runner import Gate, text_of

RISKS = {
    "format": {"measure": "has_answer", "alpha": 0.05},
    "latency": {"measure": "seconds", "over": 2.5, "alpha": 0.1},
}


def write(gate: Gate, answer: str = "true", **keys: object) -> None:
    gate.write({"ref": (), "safe": range(1), "loose": range(1)}, n=200, risks=RISKS, **keys)

    def more(text: str) -> str:
        header, *rows = text.splitlines()
        lost = {f"loose,q{number}," for number in range(30)}
        values = ["false" if any(row.startswith(each) for each in lost) else answer for row in rows]
        return (
            "\n".join([f"{header},has_answer,seconds", *(f"{r},{v},1.5" for r, v in zip(rows, values, strict=True))])
            + "\n"
        )

    gate.edit("runs.csv", more)


def test_candidate_that_breaks_one_risk_fails_and_the_risk_is_named(gate: Gate) -> None:
    write(gate)
    result = gate.run_alone("--redline-report=out")
    assert result.ret == 1
    text = text_of(result)
    assert "NOT CERTIFIED g.redline.yaml::loose - breach: risk format 30/200, budget 0.05" in text
    row = next(line for line in result.outlines if line.lstrip(" >*").startswith("loose "))
    assert "30/200!" in row
    assert len(row) <= 80
    assert gate.command("verify", "out/g.certificate.json").ret == 0
    data = json.loads((gate.path / "out" / "g.certificate.json").read_text())
    assert [risk["configurations"][2]["k"] for risk in data["risks"]] == [30, 0]


@pytest.mark.parametrize("answer", ["maybe", "0.5", "", "2"])
def test_value_that_is_neither_yes_nor_no_is_an_error_with_its_line(gate: Gate, answer: str) -> None:
    write(gate, answer)
    result = gate.run()
    assert result.ret != 0
    assert "runs.csv:2 has_answer: " in text_of(result)
    assert "neither yes nor no; allowed are true/false and 1/0" in text_of(result)


def test_recording_without_a_column_that_a_risk_needs_is_an_error(gate: Gate) -> None:
    write(gate)
    gate.edit("runs.csv", lambda text: text.replace("seconds", "secs", 1))
    result = gate.run()
    assert result.ret != 0
    assert 'no column "seconds"' in text_of(result)
