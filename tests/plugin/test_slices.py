"""Slices of a pool: one for each gate, drawn by a nonce, never used again."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from gate_runner import Gate, text_of

from pytest_redline.ledger import NAME

N, POOL = 60, 150


def pooled(gate: Gate, nonce: str = "env:REDLINE_NONCE", **keys: Any) -> None:
    """A grid on slices of 60 of a pool of 150 prompts; ``record`` makes the recording of what was drawn."""
    prompts = {"file": "pool.jsonl", "slice": {"n": N, "nonce": nonce}}
    gate.write(serving="safe", prompts=prompts, **keys)
    (gate.path / "pool.jsonl").write_text("".join(f'{{"id": "q{i}"}}\n' for i in range(POOL)))
    (gate.path / "runs.csv").unlink()


def drawn(gate: Gate) -> list[str]:
    """State the grid, which draws its slice; returns its ids."""
    said = gate.command("state", "g.redline.yaml", "--ids", "ids.txt")
    assert said.ret == 0, text_of(said)
    return (gate.path / "ids.txt").read_text().split()


def record(gate: Gate, ids: list[str], wrong: int = 0) -> None:
    rows = ["config,prompt,correct,tokens,forwards"]
    for place, label in enumerate(("ref", "safe", "risky")):
        missed = {"ref": 0, "safe": wrong, "risky": 20}[label]
        rows += [f"{label},{each},{int(i >= missed)},100,{50 - 10 * place}" for i, each in enumerate(ids)]
    (gate.path / "runs.csv").write_text("\n".join(rows) + "\n")


def certificate(gate: Gate) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((gate.path / "out" / "g.certificate.json").read_text())
    return data


def test_each_gate_gets_prompts_of_its_own_until_the_pool_is_used_up(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    pooled(gate)
    used: set[str] = set()
    for nonce in ("one", "two"):
        monkeypatch.setenv("REDLINE_NONCE", nonce)
        ids = drawn(gate)
        assert len(ids) == N
        assert not used & set(ids)
        used |= set(ids)
        record(gate, ids)
        assert gate.run("--redline-report=out").ret == 0
        assert "reuse" not in certificate(gate)
        before = (gate.path / NAME).read_bytes()
        assert drawn(gate) == ids  # the job runs again
        assert gate.run().ret == 0
        assert (gate.path / NAME).read_bytes() == before
    monkeypatch.setenv("REDLINE_NONCE", "three")
    said = text_of(gate.command("state", "g.redline.yaml"))
    assert "prompts.slice: 30 of the pool's 150 prompts are left after 2 gates, a slice takes 60" in said
    result = gate.run()
    assert result.ret == 1
    assert "add new prompts to pool.jsonl" in text_of(result)


def test_the_claim_names_the_pool_and_verifies(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    pooled(gate)
    monkeypatch.setenv("REDLINE_NONCE", "one")
    record(gate, drawn(gate))
    assert gate.run("--redline-report=out").ret == 0
    said = certificate(gate)
    assert "60 prompts, a random slice of the 150 in pool.jsonl, are an independent random draw" in said["promise"]
    assert "one" not in json.dumps(said["statement"]["prompts"]["slice"])
    assert gate.command("verify", "out/g.certificate.json").ret == 0


def test_the_verdict_of_a_slice_is_its_own(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    pooled(gate)
    monkeypatch.setenv("REDLINE_NONCE", "one")
    record(gate, drawn(gate), wrong=12)
    assert gate.run("--redline-report=out").ret == 1
    assert certificate(gate)["configurations"][1]["k"] == 12
    gate.run("--redline-alpha=0.4", "--redline-report=out")  # the same slice, so the same prompts
    assert certificate(gate)["reuse"]["number"] == 2
    monkeypatch.setenv("REDLINE_NONCE", "two")
    (gate.path / "runs.csv").unlink()
    record(gate, drawn(gate))
    gate.run("--redline-alpha=0.4", "--redline-report=out")
    assert certificate(gate)["reuse"]["number"] == 2
    assert certificate(gate)["reuse"]["before"] is False
    assert certificate(gate)["reuse"]["counted"] == 3


def test_a_recording_of_other_prompts_is_refused(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    pooled(gate)
    monkeypatch.setenv("REDLINE_NONCE", "one")
    record(gate, [f"q{i}" for i in range(N)])
    result = gate.run()
    assert result.ret == 1
    assert not (gate.path / NAME).exists()


def test_without_a_nonce_nothing_is_drawn(gate: Gate) -> None:
    pooled(gate)
    for result in (gate.command("state", "g.redline.yaml"), gate.run()):
        assert result.ret == 1
        assert "prompts.slice.nonce: the environment variable REDLINE_NONCE is not set" in text_of(result)
    assert gate.command("validate", "g.redline.yaml").ret == 0


def test_another_draw_beside_it_is_refused(gate: Gate) -> None:
    pooled(gate)
    path = gate.path / "g.redline.yaml"
    grid = yaml.safe_load(path.read_text())
    grid["prompts"]["sample"] = {"n": 10, "seed": 1}
    grid["prompts"]["slice"]["size"] = 3
    grid["clusters"] = {"by": "template", "remedy": "one_per_cluster"}
    path.write_text(yaml.safe_dump(grid))
    said = text_of(gate.command("validate", "g.redline.yaml"))
    assert "prompts.slice: goes with no `sample`" in said
    assert "prompts.slice: would cut clusters apart" in said
    assert "prompts.slice.size: unknown key" in said


def test_a_recording_of_other_prompts_is_told_of_the_slice(gate: Gate) -> None:
    pooled(gate, nonce="one")
    ids = drawn(gate)
    others = [f"q{i}" for i in range(POOL) if f"q{i}" not in ids]
    record(gate, others[:N])
    said = " ".join(text_of(gate.run()).split())
    assert "is not in the slice of pool.jsonl" in said
    assert "record exactly the prompts of the slice, which `pytest-redline state GRID --ids FILE` writes" in said
    assert "add the prompt" not in said
    assert "remove the prompt" not in said


def test_a_slice_is_no_census(gate: Gate) -> None:
    pooled(gate, nonce="one", population={"name": "x", "design": "census"})
    said = " ".join(text_of(gate.command("validate", "g.redline.yaml")).split())
    assert "prompts.slice: takes a part of the prompts, and `design: census` says that they are all" in said
