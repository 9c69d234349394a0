"""Statements on one set of prompts: what a second one costs, where they are recorded, and what a session says of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from gate_runner import Gate, text_of

from pytest_redline.ledger import NAME, PromptsLine, line_of

FIVE: Mapping[str, Iterable[int]] = {"ref": (), "a": range(1), "b": range(9), "c": range(12), "d": range(14)}


def certificate(gate: Gate, name: str = "g") -> dict[str, Any]:
    data: dict[str, Any] = json.loads((gate.path / "out" / f"{name}.certificate.json").read_text())
    return data


def lines(gate: Gate) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (gate.path / NAME).read_text().splitlines()]


def statements(gate: Gate) -> list[dict[str, Any]]:
    return [line for line in lines(gate) if "statement" in line]


def cut(gate: Gate, *labels: str) -> None:
    """Cut the grid and its recording to these labels."""
    path = gate.path / "g.redline.yaml"
    grid = yaml.safe_load(path.read_text())
    grid["configurations"] = {label: grid["configurations"][label] for label in labels}
    path.write_text(yaml.safe_dump(grid, sort_keys=False))
    gate.edit(
        "runs.csv",
        lambda text: "".join(
            line for line in text.splitlines(keepends=True) if line.split(",")[0] in ("config", *labels)
        ),
    )


def test_a_first_statement_is_recorded_and_its_certificate_says_that_outcomes_were_known(gate: Gate) -> None:
    gate.write(serving="safe")
    result = gate.run("--redline-report=out")
    assert result.ret == 0
    assert f"Statement 1 on its prompts is new: commit {NAME}" in result.outlines
    known = "made when outcomes were known; it holds if nothing in it was chosen by them."
    assert certificate(gate)["promise"].endswith(f"for statement {certificate(gate)['statement']['hash'][:12]} {known}")
    assert known in " ".join(text_of(result).split())
    assert gate.command("verify", "out/g.certificate.json").ret == 0
    assert len(lines(gate)) == 2
    (line,) = statements(gate)
    assert line["statement"] == certificate(gate)["statement"]["hash"]
    assert line["reuse"] == {"number": 1, "counted": 3, "together": 0.1, "before": False, "pool": None}
    assert line["reuse"] == certificate(gate)["reuse"]
    before = (gate.path / NAME).read_bytes(), (gate.path / "out" / "g.certificate.json").read_bytes()
    again = gate.run("--redline-report=out")
    assert again.ret == 0
    assert "commit" not in text_of(again)
    assert before == ((gate.path / NAME).read_bytes(), (gate.path / "out" / "g.certificate.json").read_bytes())


def test_cutting_the_grid_after_seeing_outcomes_gains_nothing(gate: Gate) -> None:
    n, wrong = 300, {"ref": (), "a": range(18), **{f"c{i}": range(25 + i) for i in range(20)}}
    gate.write(wrong, n, serving="a", alpha=0.1, delta=0.05)
    assert gate.run("--redline-report=out").ret == 1
    lost = certificate(gate)
    cut(gate, "ref", "a")
    result = gate.run("--redline-report=out")
    again = certificate(gate)
    assert again["m"] == 2
    assert again["reuse"] == {"number": 2, "counted": 22, "together": 0.1, "before": False, "pool": None}
    level = [{row["label"]: row["level"] for row in each["configurations"]}["a"] for each in (lost, again)]
    assert level[0] == level[1] == pytest.approx(0.05 / 21)
    assert result.ret == 1
    assert "m 2 of 22 counted" in text_of(result)
    assert "It is statement 2 on these prompts, 22 configurations are counted" in " ".join(text_of(result).split())
    assert gate.command("verify", "out/g.certificate.json").ret == 0
    (gate.path / NAME).unlink()  # what the ledger is for: alone, the cut grid passes
    assert gate.run().ret == 0


def test_a_statement_keeps_its_verdict_whatever_is_stated_after_it(gate: Gate) -> None:
    gate.write(FIVE, serving="a")
    gate.run("--redline-report=out")
    first = (gate.path / "out" / "g.certificate.json").read_bytes()
    gate.run("--redline-alpha=0.2")
    assert [line["reuse"]["number"] for line in statements(gate)] == [1, 2]
    gate.run("--redline-report=out")
    assert (gate.path / "out" / "g.certificate.json").read_bytes() == first
    gate.run("--redline-alpha=0.2", "--redline-report=out")
    assert certificate(gate)["reuse"]["number"] == 2
    assert len(statements(gate)) == 2


def test_other_outcomes_of_one_statement_are_another_statement(gate: Gate) -> None:
    gate.write(serving="safe")
    gate.run()
    gate.edit("runs.csv", lambda text: text.replace("safe,q3,1", "safe,q3,0"))
    gate.run("--redline-report=out")
    assert certificate(gate)["reuse"] == {"number": 2, "counted": 3, "together": 0.2, "before": False, "pool": None}
    one, two = statements(gate)
    assert one["statement"] == two["statement"]
    assert one["outcomes"] != two["outcomes"]


def test_dropping_a_prompt_or_changing_knobs_does_not_start_afresh(gate: Gate) -> None:
    gate.write(serving="safe")
    gate.run()
    gate.edit("runs.csv", lambda text: "\n".join(line for line in text.splitlines() if ",q7," not in line) + "\n")
    gate.run()
    gate.edit("g.redline.yaml", lambda text: text.replace("0.88", "0.6"))
    gate.run("--redline-report=out")
    assert certificate(gate)["reuse"]["number"] == 3
    assert certificate(gate)["reuse"]["counted"] == 4


def test_other_prompts_are_another_matter(gate: Gate) -> None:
    gate.write(serving="safe")
    gate.run()
    gate.edit("runs.csv", lambda text: text.replace(",q", ",r"))
    gate.run("--redline-report=out")
    assert certificate(gate)["reuse"]["number"] == 1
    assert [line["reuse"]["number"] for line in statements(gate)] == [1, 1]


def test_grids_of_one_session_are_said_to_hold_together(gate: Gate) -> None:
    gate.write(serving="safe")
    gate.write(serving="safe", file="h.redline.yaml", recording="others.csv", alpha=0.15)
    result = gate.run("--redline-report=out")
    assert certificate(gate, "g")["reuse"]["number"] == certificate(gate, "h")["reuse"]["number"] == 1
    said = "redline: g, h judge the same prompts: together they hold at delta 0.2"
    assert said in result.outlines
    written = (gate.path / NAME).read_bytes()
    again = gate.run("--redline-report=out")
    assert said in again.outlines
    assert (gate.path / NAME).read_bytes() == written
    gate.run("--redline-alpha=0.3", "--redline-report=out")
    assert certificate(gate, "g")["reuse"]["number"] == certificate(gate, "h")["reuse"]["number"] == 3
    assert certificate(gate, "h")["reuse"]["together"] == 0.3


@pytest.mark.parametrize("option", ["--redline-partial", "--collect-only"])
def test_what_certifies_nothing_records_nothing(gate: Gate, option: str) -> None:
    gate.write(serving="safe")
    gate.run(option)
    assert not (gate.path / NAME).exists()


def test_workers_record_once_and_agree(gate: Gate) -> None:
    gate.write(FIVE, serving="a")
    gate.write(FIVE, serving="a", file="h.redline.yaml", alpha=0.15)
    gate.run("--redline-report=out", "--redline-alpha=0.2")
    assert gate.run_alone("-p", "xdist", "-n2", "--redline-report=out").ret == 0
    split = [(gate.path / "out" / f"{name}.certificate.json").read_bytes() for name in "gh"]
    assert [line["reuse"]["number"] for line in statements(gate)] == [1, 2, 2]
    assert gate.run("--redline-report=out").ret == 0
    assert split == [(gate.path / "out" / f"{name}.certificate.json").read_bytes() for name in "gh"]


def test_what_cannot_be_recorded_is_not_certified(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    import pytest_redline.ledger

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    gate.write(serving="safe")
    monkeypatch.setattr(pytest_redline.ledger, "replace_file", full)
    result = gate.run("--redline-report=out")
    assert result.ret == 1
    assert f"redline: {NAME}: a new statement cannot be recorded (No space left on device)" in text_of(result)
    assert not (gate.path / "out").exists() or not list((gate.path / "out").glob("*.certificate.json"))


def test_a_statement_of_another_session_in_between_is_no_certificate(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pytest_redline.publish
    from pytest_redline.reuse import record_statements

    gate.write(FIVE, serving="a")

    def late(*arguments: Any) -> Any:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "redline", "--redline-alpha=0.3", str(gate.path)],
            check=True,
            capture_output=True,
        )
        return record_statements(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(pytest_redline.publish, "record_statements", late)
        result = gate.run("--redline-report=out")
    assert result.ret == 1
    assert "another session stated something on the same prompts while this one ran; run again" in text_of(result)
    assert not (gate.path / "out" / "g.certificate.json").exists()
    assert gate.run("--redline-report=out").ret == 0
    assert certificate(gate)["reuse"]["number"] == 2


# -- the file


def damaged(gate: Gate, text: str) -> str:
    """Run on a ledger with this text; returns what was said."""
    (gate.path / NAME).write_text(text)
    result = gate.run("--redline-report=out")
    assert result.ret == 1
    assert (gate.path / NAME).read_text() == text
    assert not (gate.path / "out" / "g.certificate.json").exists()
    return text_of(result)


def test_a_ledger_that_was_touched_is_refused(gate: Gate) -> None:
    gate.write(serving="safe")
    gate.run()
    text = (gate.path / NAME).read_text()
    first, second = text.splitlines(keepends=True)
    assert f"{NAME}:2: was edited after it was written" in damaged(gate, text.replace('"counted": 3', '"counted": 2'))
    assert f"{NAME}: the last line is cut off" in damaged(gate, text[:-10])
    assert f"{NAME}:3: no line of a ledger" in damaged(gate, f"{text}{second[:40]}\n")
    assert f"{NAME}:3: no line of a ledger" in damaged(gate, f"{text}[]\n")
    odd = PromptsLine(prompts="0" * 64, n=1, members="no base64!")
    assert f"{NAME}:3: no line of a ledger" in damaged(gate, f"{text}{line_of(odd)}\n")
    assert f"{NAME}:1: a merge conflict; keep the lines of both sides" in damaged(gate, f"<<<<<<< HEAD\n{text}")
    assert "is on prompts that no line before it describes" in damaged(gate, second)
    assert f"{NAME}:1: no line of a ledger" in damaged(gate, "\n" + first)


def test_lines_of_two_branches_are_kept_by_a_merge(gate: Gate) -> None:
    gate.write(FIVE, serving="a")
    gate.run()
    base = (gate.path / NAME).read_text()
    gate.run("--redline-alpha=0.2")
    one = (gate.path / NAME).read_text()
    (gate.path / NAME).write_text(base)
    gate.run("--redline-alpha=0.3")
    other = (gate.path / NAME).read_text()
    (gate.path / NAME).write_text(one + other.removeprefix(base))
    assert [line["reuse"]["number"] for line in statements(gate)] == [1, 2, 2]
    gate.run("--redline-alpha=0.4", "--redline-report=out")
    assert certificate(gate)["reuse"]["number"] == 4
    assert certificate(gate)["reuse"]["together"] == 0.4
    doubled = (gate.path / NAME).read_text() + one
    (gate.path / NAME).write_text(doubled)  # the same lines twice change nothing
    gate.run("--redline-alpha=0.4", "--redline-report=out")
    assert certificate(gate)["reuse"]["number"] == 4
    assert (gate.path / NAME).read_text() == doubled


def test_one_ledger_may_stand_above_the_folders_of_a_repository(gate: Gate) -> None:
    gate.write(serving="safe")
    (gate.path / ".git").mkdir()
    for name in ("one", "two"):
        (gate.path / name).mkdir()
        for file in ("g.redline.yaml", "runs.csv"):
            (gate.path / name / file).write_bytes((gate.path / file).read_bytes())
    gate.run("one")
    assert (gate.path / "one" / NAME).is_file()
    (gate.path / "one" / NAME).rename(gate.path / NAME)
    gate.run("two", "--redline-alpha=0.2", "--redline-report=out")
    assert certificate(gate)["reuse"]["number"] == 2
    assert not (gate.path / "two" / NAME).exists()


# -- stating before outcomes


def test_a_statement_may_come_before_its_recording(gate: Gate) -> None:
    gate.write(serving="safe", prompts={"file": "prompts.jsonl"})
    (gate.path / "prompts.jsonl").write_text("".join(f'{{"id": "q{i}"}}\n' for i in range(60)))
    recording = (gate.path / "runs.csv").read_bytes()
    (gate.path / "runs.csv").unlink()
    said = gate.command("state", "g.redline.yaml")
    assert said.ret == 0
    assert "statement 1 on its prompts, before any outcome on them; recorded in" in text_of(said)
    assert "already" in text_of(gate.command("state", "g.redline.yaml"))
    (gate.path / "runs.csv").write_bytes(recording)
    assert gate.run("--redline-report=out").ret == 0
    stated, judged = statements(gate)
    assert stated["outcomes"] is None
    assert (
        judged["reuse"]
        == stated["reuse"]
        == {
            "number": 1,
            "counted": 3,
            "together": 0.1,
            "before": True,
            "pool": None,
        }
    )
    assert "reuse" not in certificate(gate)
    assert certificate(gate)["promise"].endswith("fixed before the outcomes.")
    assert gate.command("verify", "out/g.certificate.json").ret == 0
    assert "made when outcomes on them were known" in text_of(gate.command("state", "g.redline.yaml", "--alpha=0.2"))
    gate.run("--redline-alpha=0.2", "--redline-report=out")
    assert certificate(gate)["reuse"]["number"] == 2
    assert certificate(gate)["reuse"]["before"] is False


def test_a_recording_of_other_prompts_is_no_outcome_on_these(gate: Gate) -> None:
    gate.write(serving="safe", prompts={"file": "prompts.jsonl"})
    recording = gate.path / "runs.csv"
    for ids in ("r", "s"):
        (gate.path / "prompts.jsonl").write_text("".join(f'{{"id": "{ids}{i}"}}\n' for i in range(60)))
        assert "before any outcome on them" in text_of(gate.command("state", "g.redline.yaml"))
    for ids, content in (("t", recording.read_text() + "ref,t59,1,100,50\n"), ("u", "config,prompt\nref\n"), ("v", "")):
        recording.write_text(content)
        (gate.path / "prompts.jsonl").write_text("".join(f'{{"id": "{ids}{i}"}}\n' for i in range(60)))
        assert "made when outcomes on them were known" in text_of(gate.command("state", "g.redline.yaml")), ids


def test_state_says_what_it_lacks(gate: Gate) -> None:
    gate.write(serving="safe", groups={"by": "kind"})
    result = gate.command("state", "g.redline.yaml", "absent.redline.yaml")
    assert result.ret == 1
    assert "g.redline.yaml prompts: none are named, so it is not known what the statement is on" in text_of(result)
    assert "absent.redline.yaml" in text_of(result)
