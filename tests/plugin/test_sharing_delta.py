"""delta shared out over statements, and weights: in grid files, certificates and whole runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from gate_runner import Gate, text_of

from pytest_redline.certificate import digest, to_bytes
from pytest_redline.certificate_schema import Certificate
from pytest_redline.errors import CertificateError
from pytest_redline.ledger import NAME
from pytest_redline.verify import verify

FIVE = {"ref": (), "served": range(18), **{f"c{i}": range(60) for i in range(18)}}


def certificate(gate: Gate) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((gate.path / "out" / "g.certificate.json").read_text())
    return data


def forged(gate: Gate, **update: Any) -> Path:
    """The certificate with changes and a digest that fits them."""
    path = gate.path / "out" / "g.certificate.json"
    changed = Certificate.model_validate_json(path.read_bytes()).model_copy(update=update)
    path = gate.path / "forged.json"
    path.write_bytes(to_bytes(changed.model_copy(update={"digest": digest(changed)})))
    return path


# -- delta over statements


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [({"gates": 4}, 0.025, 0.025), ({"spend": "series"}, 0.6 / math.pi**2, 0.6 / math.pi**2 / 4)],
)
def test_each_statement_spends_its_part(gate: Gate, rule: dict[str, Any], first: float, second: float) -> None:
    gate.write(serving="safe", delta={"total": 0.1, **rule})
    assert gate.run("--redline-report=out").ret == 0
    one = certificate(gate)
    assert one["delta"] == pytest.approx(first)
    assert one["statement"]["delta"] == 0.1
    assert one["reuse"]["number"] == 1
    assert one["configurations"][1]["level"] in (pytest.approx(first / 3), pytest.approx(first / 2))
    assert gate.command("verify", "out/g.certificate.json").ret == 0
    reuse = Certificate.model_validate(one).reuse
    assert reuse is not None
    with pytest.raises(CertificateError, match=r"reuse\.together: says .*, and a first statement"):
        verify(forged(gate, reuse=reuse.model_copy(update={"together": reuse.together * 1.01})))
    gate.run("--redline-alpha=0.2", "--redline-report=out")
    two = certificate(gate)
    assert two["delta"] == pytest.approx(second)
    assert two["reuse"]["together"] == pytest.approx(first + second)
    gate.run("--redline-report=out")
    assert certificate(gate) == one


def test_what_is_used_up_is_used_up(gate: Gate) -> None:
    gate.write(serving="safe", delta={"total": 0.1, "gates": 2})
    for alpha in ("0.1", "0.2"):
        assert gate.run(f"--redline-alpha={alpha}").ret == 0
    before = (gate.path / NAME).read_bytes()
    result = gate.run("--redline-alpha=0.3")
    assert result.ret == 1
    assert "all 2 statements among which delta was divided are made; take new prompts" in text_of(result)
    assert (gate.path / NAME).read_bytes() == before
    assert gate.run("--redline-alpha=0.2").ret == 0


def test_the_option_is_a_plain_delta(gate: Gate) -> None:
    gate.write(serving="safe", delta={"total": 0.1, "gates": 50})
    gate.run("--redline-delta=0.05", "--redline-report=out")
    assert certificate(gate)["delta"] == 0.05
    assert "spending" not in certificate(gate)["statement"]
    assert any("delta 0.05 of --redline-delta replaces" in warning for warning in certificate(gate)["warnings"])


def test_a_certificate_cannot_claim_an_earlier_number(gate: Gate) -> None:
    gate.write(serving="safe", delta={"total": 0.1, "spend": "series"})
    gate.run()
    gate.run("--redline-alpha=0.2", "--redline-report=out")
    reuse = Certificate.model_validate_json((gate.path / "out" / "g.certificate.json").read_bytes()).reuse
    assert reuse is not None
    with pytest.raises(CertificateError, match="delta: says"):
        verify(forged(gate, reuse=reuse.model_copy(update={"number": 1})))
    with pytest.raises(CertificateError, match="reuse: is missing"):
        verify(forged(gate, reuse=None))


@pytest.mark.parametrize(
    ("delta", "says"),
    [
        ({"total": 0.1}, "delta: beside `total`, name one of `spend: series` and `gates: NUMBER`"),
        ({"total": 0.1, "spend": "series", "gates": 5}, "delta: beside `total`, name one of"),
        ({"total": 1.5, "gates": 5}, "delta.total: found 1.5"),
        ({"total": 0.1, "gates": 0}, "delta.gates: found 0"),
        ({"total": 0.1, "spend": "all"}, "delta.spend: found 'all'"),
        ({"spend": "series"}, "delta.total: required key is missing"),
        ({"total": 0.1, "gate": 5}, "delta.gate: unknown key; did you mean gates?"),
    ],
)
def test_mistakes_are_said(gate: Gate, delta: dict[str, Any], says: str) -> None:
    gate.write(delta=delta)
    result = gate.command("validate", "g.redline.yaml")
    assert result.ret == 1
    assert says in text_of(result)


# -- weights


def before_outcomes(gate: Gate, **keys: Any) -> None:
    """State a grid of 20 before its recording exists."""
    gate.write(FIVE, n=300, serving="served", prompts={"file": "prompts.jsonl"}, **keys)
    (gate.path / "prompts.jsonl").write_text("".join(f'{{"id": "q{i}"}}\n' for i in range(300)))
    recording = (gate.path / "runs.csv").read_bytes()
    (gate.path / "runs.csv").unlink()
    said = gate.command("state", "g.redline.yaml")
    assert said.ret == 0, text_of(said)
    (gate.path / "runs.csv").write_bytes(recording)


def test_half_of_the_weight_certifies_what_is_served(gate: Gate) -> None:
    before_outcomes(gate, weights={"serving": 0.5})
    result = gate.run("--redline-report=out")
    assert result.ret == 0
    heard = "Weights: served has 0.5 of delta, and the other 19 that count share the rest"
    for text in (text_of(result), (gate.path / "out" / "g.md").read_text()):
        assert heard in " ".join(text.split())
    said = certificate(gate)
    assert said["statement"]["weight"] == {"label": "served", "share": 0.5}
    assert said["reuse"]["before"] is True
    served = said["configurations"][1]
    assert served["p"] > 0.1 / 19  # Holm would not have certified it
    assert served["level"] >= 0.05
    assert gate.command("verify", "out/g.certificate.json").ret == 0
    reuse = Certificate.model_validate_json((gate.path / "out" / "g.certificate.json").read_bytes()).reuse
    assert reuse is not None
    with pytest.raises(CertificateError, match=r"statement\.weight: not on what is served, or not fixed before"):
        verify(forged(gate, reuse=reuse.model_copy(update={"before": False})))
    with pytest.raises(CertificateError, match=r"statement\.weight: not on what is served"):
        verify(forged(gate, serving="c3"))


def test_without_the_weight_it_is_not_certified(gate: Gate) -> None:
    before_outcomes(gate)
    assert gate.run().ret == 1


def test_a_weight_after_the_outcomes_is_refused(gate: Gate) -> None:
    before_outcomes(gate)
    gate.run()
    gate.edit("g.redline.yaml", lambda text: text + "weights: {serving: 0.5}\n")
    ledger = (gate.path / NAME).read_bytes()
    for result in (gate.run("--redline-report=out"), gate.command("state", "g.redline.yaml")):
        assert result.ret == 1
        assert "weights: outcomes on these prompts were known before this statement was recorded" in text_of(result)
        assert "remove `weights`, or take new prompts" in text_of(result)
    assert (gate.path / NAME).read_bytes() == ledger


def test_a_weight_needs_something_that_is_served(gate: Gate) -> None:
    gate.write(weights={"serving": 0.5})
    assert "weights.serving: needs `serving`" in text_of(gate.command("validate", "g.redline.yaml"))
    gate.write(serving="ref", weights={"serving": 0.5})
    assert "weights.serving: the reference is served" in text_of(gate.command("validate", "g.redline.yaml"))
    gate.write(serving="safe", weights={"serving": 1.0})
    assert "weights.serving: found 1.0" in text_of(gate.command("validate", "g.redline.yaml"))


def test_init_proposes_it(gate: Gate) -> None:
    gate.write()
    gate.command("init", "runs.csv", "--output", "new.redline.yaml")
    text = (gate.path / "new.redline.yaml").read_text()
    assert "# weights: {serving: 0.5}" in text
    text = text.replace("# weights:", "weights:").replace("# serving: safe", "serving: safe")
    (gate.path / "new.redline.yaml").write_text(text)
    assert gate.command("validate", "new.redline.yaml").ret == 0
