"""Every mode of certificate on one real evaluation log, each against numbers made from the log by a few lines here.

The log is that of GPT-3 on GSM8K test questions, at two sizes, with a verifier that picks among a hundred solutions and
without (``tests/data/eval_logs``). Groups are the expected solution's steps; clusters are made up, as it names none.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from gate_runner import Gate, text_of
from scipy.stats import binom

from pytest_redline import certificate as certificate_module
from pytest_redline.certificate import certify, to_bytes
from pytest_redline.certificate_schema import Certificate
from pytest_redline.cli import main
from pytest_redline.gate import recorded_outcomes
from pytest_redline.grid import Grid, RecordedSource
from pytest_redline.grid_file import load_grid
from pytest_redline.ledger import NAME
from pytest_redline.outcomes import Outcomes
from pytest_redline.schedule import Schedule
from pytest_redline.spending import DeclaredLooks, Stopping
from pytest_redline.stats import bootstrap
from pytest_redline.verify import verify

FILE = Path(__file__).parents[1] / "data" / "eval_logs" / "gpt3_verifier_gsm8k.jsonl.gz"
LOG = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]
CONFIGURATIONS = {
    "175b_verification": {"size": 175, "pick": "verifier"},
    "175b_finetuning": {"size": 175, "pick": "sample"},
    "6b_verification": {"size": 6, "pick": "verifier"},
    "6b_finetuning": {"size": 6, "pick": "sample"},
}
REF, SAMPLE, SMALL, BOTH = CONFIGURATIONS
N, ALPHA, DELTA = len(LOG), 0.30, 0.10
RIGHT = {label: np.array([row[label]["is_correct"] for row in LOG]) for label in CONFIGURATIONS}
LENGTH = {label: np.array([row[label]["length"] for row in LOG]) for label in CONFIGURATIONS}
MANY = np.array([row["steps"] > 3 for row in LOG])
LOST = {label: RIGHT[REF] & ~right for label, right in RIGHT.items()}
K = {label: int(lost.sum()) for label, lost in LOST.items()}
FIXED, KNOWN = "fixed before the outcomes", "made when outcomes were known"


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bootstrap, certificate_module):
        monkeypatch.setattr(module, "default_resamples", lambda n: 60)


def write(gate: Gate, *, labels: Sequence[str] = tuple(CONFIGURATIONS), **keys: Any) -> None:
    """A grid on the log as it is, and a list of its prompts."""
    columns = {"prompt": "line", "correct": "{config}.is_correct", "length": "{config}.length"}
    grid = {
        "redline": 1,
        "name": "verifier",
        "population": "GSM8K test questions",
        "alpha": ALPHA,
        "cost": {"measure": "length", "better": "lower"},
        "source": {"outcomes": {"file": "log.jsonl", "columns": columns}},
        "reference": REF,
        "configurations": {label: CONFIGURATIONS[label] for label in labels},
        **keys,
    }
    if "cost" in keys:
        del grid["cost"], columns["length"]
    (gate.path / "verifier.redline.yaml").write_text(yaml.safe_dump(grid, sort_keys=False))
    rows = [
        {"id": row["line"], "group": "many" if many else "few", "block": f"b{row['line'] // 8}"}
        for row, many in zip(LOG, MANY, strict=True)
    ]
    (gate.path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record(gate, range(N))


def record(gate: Gate, lines: Sequence[int]) -> None:
    """The part of the log with these lines."""
    (gate.path / "log.jsonl").write_text("".join(json.dumps(LOG[line]) + "\n" for line in lines))


def judged(gate: Gate, *options: str) -> Certificate:
    """The certificate of a run of the gate; it verifies."""
    result = gate.run("--redline-report=out", *options)
    assert result.ret in (0, 1), text_of(result)
    path = gate.path / "out" / "verifier.certificate.json"
    made = verify(path)
    assert made.promise in " ".join(text_of(result).split())
    path.unlink()
    return made


def statements(gate: Gate) -> list[dict[str, Any]]:
    return [each for line in (gate.path / NAME).read_text().splitlines() if "statement" in (each := json.loads(line))]


def p_of(k: int, n: int = N, alpha: float = ALPHA) -> float:
    return float(binom.cdf(k, n, alpha))


def holm(p: Mapping[str, float], delta: float = DELTA, others: int = 0) -> set[str]:
    """Labels that Holm certifies beside so many others that fail."""
    certified: set[str] = set()
    for rank, label in enumerate(sorted(p, key=lambda each: p[each])):
        if p[label] > delta / (len(p) + others - rank):
            break
        certified.add(label)
    return certified


def p_values(n: int = N, **k: int) -> dict[str, float]:
    return {label: p_of({**K, **k}[label], n) for label in CONFIGURATIONS}


def certified(made: Certificate) -> set[str]:
    return {row.label for row in made.configurations if row.certified}


def hoeffding_bentkus(mean: float, n: int, alpha: float) -> float:
    """p for a mean loss, of losses between 0 and 1."""
    if mean >= alpha:
        return 1.0
    entropy = (mean * math.log(mean / alpha) if mean else 0.0) + (1 - mean) * math.log((1 - mean) / (1 - alpha))
    return min(math.exp(-n * entropy), math.e * p_of(math.ceil(n * mean - 1e-9), n, alpha))


# -- as it is


def test_plain(gate: Gate) -> None:
    write(gate)
    made = judged(gate)
    assert {row.label: (row.k, row.n) for row in made.configurations} == {label: (K[label], N) for label in K}
    assert [K[label] for label in (SMALL, SAMPLE, BOTH)] == [306, 360, 499]
    assert {row.label: row.p for row in made.configurations} == pytest.approx(p_values(), rel=1e-9)
    assert certified(made) == holm(p_values()) == {REF, SAMPLE, SMALL}
    assert made.row(BOTH).verdict == "breach"
    assert made.failing == (BOTH,)
    cost = {label: float(lengths.mean()) for label, lengths in LENGTH.items()}
    assert {row.label: row.cost for row in made.configurations} == pytest.approx(cost)
    assert made.deployed == SMALL == min(certified(made), key=lambda each: cost[each])
    assert made.row(SMALL).gain == pytest.approx(cost[REF] / cost[SMALL] - 1)
    assert f"{KNOWN}; it holds if nothing in it was chosen by them." in made.promise
    assert [line["reuse"]["number"] for line in statements(gate)] == [1]


def test_groups_and_further_risks(gate: Gate) -> None:
    write(
        gate,
        prompts={"file": "prompts.jsonl"},
        groups={"by": "group", "alpha": {"many": 0.35}},
        risks={"long": {"measure": "length", "over": 400, "alpha": 0.10}},
    )
    made = judged(gate)
    (risk,) = made.risks
    largest = {}
    for row in risk.configurations:
        long = int(((LENGTH[REF] <= 400) & (LENGTH[row.label] > 400)).sum())
        many = int(LOST[row.label][MANY].sum())
        assert row.k == long
        largest[row.label] = max(p_of(K[row.label]), p_of(long, alpha=0.1), p_of(many, int(MANY.sum()), 0.35))
    assert {row.label: row.p for row in made.configurations} == pytest.approx(largest, rel=1e-9)
    assert certified(made) == holm(largest)


@pytest.mark.parametrize("remedy", ["cluster_means", "one_per_cluster"])
def test_clusters(gate: Gate, remedy: str) -> None:
    test = {"test": "hb"} if remedy == "cluster_means" else {}
    write(gate, prompts={"file": "prompts.jsonl"}, clusters={"by": "block", "remedy": remedy, **test})
    made = judged(gate)
    blocks = math.ceil(N / 8)
    assert "is an independent random draw" not in made.promise
    assert f"{blocks} clusters by block" in made.promise
    for row in made.configurations:
        if remedy == "one_per_cluster":
            assert row.n == blocks
            assert row.p == pytest.approx(p_of(row.k, blocks), rel=1e-9)
        else:
            mean = float(np.mean([LOST[row.label][start : start + 8].mean() for start in range(0, N, 8)]))
            assert row.joint_risk == pytest.approx(mean, abs=1e-7)
            assert row.p == pytest.approx(hoeffding_bentkus(mean, blocks, ALPHA), rel=1e-4)


def test_another_mix(gate: Gate) -> None:
    shares = {"few": 0.8, "many": 0.2}
    write(
        gate,
        prompts={"file": "prompts.jsonl"},
        groups={"by": "group"},
        mix={"shares": shares, "test": "hb"},
    )
    made = judged(gate)
    heaviest = max(0.8 * N / (~MANY).sum(), 0.2 * N / MANY.sum())
    for row in made.configurations:
        risk = 0.8 * LOST[row.label][~MANY].mean() + 0.2 * LOST[row.label][MANY].mean()
        assert row.joint_risk == pytest.approx(risk, abs=1e-7)
        assert row.p == pytest.approx(hoeffding_bentkus(risk / heaviest, N, ALPHA / heaviest), rel=1e-4)
    assert "in a mix of 80 % few, 20 % many" in made.promise


# -- more than once


def test_a_second_statement_counts_what_is_known_from_the_first(gate: Gate) -> None:
    write(gate)
    first = judged(gate)
    write(gate, labels=(REF, SAMPLE))
    made = judged(gate)
    assert (made.m, made.reuse and made.reuse.counted) == (2, 4)
    assert made.row(SAMPLE).level == pytest.approx(DELTA / 3)
    assert certified(made) == holm({label: p_of(K[label]) for label in (REF, SAMPLE)}, others=2) == {REF, SAMPLE}
    assert f"{KNOWN}. It is statement 2 on these prompts, 4 configurations are counted, and the 2 hold" in made.promise
    write(gate, labels=(REF, SAMPLE), delta=0.04)
    assert certified(judged(gate)) == holm({label: p_of(K[label]) for label in (REF, SAMPLE)}, 0.04, 2) == {REF}
    write(gate)
    assert judged(gate) == first
    assert [line["reuse"]["number"] for line in statements(gate)] == [1, 2, 3]


@pytest.mark.parametrize("rule", [{"gates": 5}, {"spend": "series"}])
def test_a_shared_delta(gate: Gate, rule: dict[str, Any]) -> None:
    write(gate, delta={"total": DELTA, **rule})
    shares = [0.02, 0.02] if "gates" in rule else [DELTA * 6 / math.pi**2 / t**2 for t in (1, 2)]
    for number, (share, option) in enumerate(zip(shares, ("0.3", "0.29"), strict=True), start=1):
        made = judged(gate, f"--redline-alpha={option}")
        assert made.delta == pytest.approx(share)
        assert made.reuse is not None
        assert (made.reuse.number, made.reuse.together) == (number, pytest.approx(sum(shares[:number])))
        p = {label: p_of(K[label], alpha=float(option)) for label in K}
        assert certified(made) == holm(p, share)
        assert KNOWN in made.promise
        assert FIXED not in made.promise


def test_slices_that_are_stated_first(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    part = {"n": 400, "nonce": "env:REDLINE_NONCE"}
    write(gate, prompts={"file": "prompts.jsonl", "slice": part})
    (gate.path / "log.jsonl").unlink()
    seen: set[int] = set()
    for nonce in ("one", "two"):
        monkeypatch.setenv("REDLINE_NONCE", nonce)
        assert main(["state", "verifier.redline.yaml", "--ids", "ids.txt"]) == 0
        lines = [int(line) for line in (gate.path / "ids.txt").read_text().split()]
        assert len(lines) == 400
        assert not seen & set(lines)
        seen |= set(lines)
        record(gate, lines)
        made = judged(gate)
        k = {label: int(lost[lines].sum()) for label, lost in LOST.items()}
        assert {row.label: row.k for row in made.configurations} == k
        assert certified(made) == holm(p_values(400, **k))
        assert "400 prompts, a random slice of the 1,319 in prompts.jsonl" in made.promise
        assert f"{made.statement.hash[:12]} {FIXED}." in made.promise  # the first slice's recording is not of these


@pytest.mark.parametrize("first", [True, False])
def test_weights(gate: Gate, capsys: pytest.CaptureFixture[str], first: bool) -> None:
    write(gate, prompts={"file": "prompts.jsonl"}, serving=SAMPLE, weights={"serving": 0.5}, delta=0.03)
    if first:
        (gate.path / "log.jsonl").unlink()
    assert main(["state", "verifier.redline.yaml"]) == int(not first)
    if not first:
        assert "outcomes on these prompts were known before this statement" in capsys.readouterr().err
        return
    record(gate, range(N))
    made = judged(gate)
    assert made.row(SAMPLE).p == pytest.approx(p_of(K[SAMPLE]))
    assert holm(p_values(), 0.03) == {REF, SMALL}  # and with half of delta for it
    assert certified(made) == {REF, SAMPLE, SMALL}
    assert made.row(SAMPLE).level == pytest.approx(0.03 * 0.5 / (0.5 + 0.5 / 3))
    assert f"{made.statement.hash[:12]} {FIXED}." in made.promise


def test_a_blind_gate(gate: Gate) -> None:
    for number, (served, delta) in enumerate([(SMALL, 0.1), (SAMPLE, 0.05), (BOTH, 0.025)], start=1):
        write(gate, labels=(REF, served), serving=served)
        passes = served in holm({label: p_of(K[label]) for label in (REF, served)}, delta)
        result = gate.run("--redline-blind")
        assert result.ret == int(not passes)
        said = text_of(result)
        assert f"blind gate {number} on its prompts: alpha 0.3, delta 0.1 * 2^-{number - 1}, n 1,319, m 2" in said
        assert not any(told in said for told in (str(K[served]), served, "certified", "undecided", "breach", "risk "))
        assert statements(gate)[-1]["passed"] is passes
    assert [line["passed"] for line in statements(gate)] == [True, True, False]


# -- what certifies nothing


def test_a_plan_after_a_pilot(gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    write(gate)
    assert main(["plan", "--pilot", "verifier.redline.yaml", "--n", "2000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["alpha"], found["m"], found["n"], found["pilot"]["n"]) == (ALPHA, 4, 2000, N)
    rows = {row["label"]: row for row in found["pilot"]["candidates"]}
    assert {label: row["k"] for label, row in rows.items()} == {label: K[label] for label in rows}
    assert rows.keys() == {SAMPLE, SMALL, BOTH}
    assert rows[SMALL]["holm"] > 0.99 > rows[SAMPLE]["holm"] > 0.3 > 0.01 > rows[BOTH]["holm"]


def test_a_study(gate: Gate) -> None:
    write(gate)
    arguments = ["--splits", "100", "--selectors", "REDLINE", "MEAN-20", "--alpha", "0.2", "--json", "study.json"]
    assert main(["study", "verifier.redline.yaml", *arguments]) == 0
    (budget,) = json.loads((gate.path / "study.json").read_text())["budgets"]
    rows = {row["selector"]: row for row in budget["selectors"]}
    assert rows["REDLINE"]["pool_exceedance"] <= DELTA < 0.5 < rows["MEAN-20"]["pool_exceedance"]
    assert rows["MEAN-20"]["deployed"][SMALL] == 100 * rows["MEAN-20"]["pool_exceedance"]  # 0.232, above the budget


# -- serving less: the log stands for what a source would have served, in a random order


def replayed(gate: Gate, stopping: Stopping | None = None, **changes: Any) -> tuple[Grid, Certificate]:
    """What a run by the schedule would have been certified on; the certificate verifies."""
    grid = load_grid(gate.path / "verifier.redline.yaml")
    assert isinstance(grid.source, RecordedSource)
    full = recorded_outcomes(grid, grid.source)[0].outcomes
    grid = replace(grid, stopping=stopping, **changes)
    order = tuple(np.random.default_rng(3).permutation(N).tolist())
    asked = Schedule(grid, full.prompts, full.groups, order).replay(full.correct, np.ones_like(full.correct))
    served = Outcomes(
        full.configurations,
        full.prompts,
        full.correct & asked,
        {name: values * asked for name, values in full.measures.items()},
        known=None if asked.all() else asked,
        order=order,
    )
    made = certify(grid, served)
    path = gate.path / "less.certificate.json"
    path.write_bytes(to_bytes(made))
    assert verify(path) == made
    return grid, made


@pytest.mark.parametrize("where", [False, True])
def test_curtailed(gate: Gate, where: bool) -> None:
    write(gate)
    _, made = replayed(gate, Stopping(where_reference_right=where))
    assert certified(made) == holm(p_values())
    assert {row.label: row.k for row in made.configurations if row.certified} == {
        label: K[label] for label in holm(p_values())
    }
    assert made.spent is not None
    assert made.spent.by_configuration[REF] == N
    right = int(RIGHT[REF].sum())
    assert made.spent.by_configuration[SMALL] == (right if where else N)
    assert made.spent.by_configuration[BOTH] < (right if where else N)
    assert made.row(BOTH).unknown > 0
    assert not made.row(BOTH).certified


def test_looks(gate: Gate) -> None:
    write(gate)
    sizes = (300, 600, 900, N)
    grid, made = replayed(gate, Stopping(looks=DeclaredLooks(at=sizes)))
    order = np.random.default_rng(3).permutation(N)
    shares = [0.2 / 3] * 3 + [0.8]
    p = {
        label: min(
            1.0,
            *(p_of(int(lost[order[:size]].sum()), size) / share for size, share in zip(sizes, shares, strict=True)),
        )
        for label, lost in LOST.items()
    }
    assert certified(made) == holm(p, grid.delta)
    assert made.spent is not None
    assert made.spent.by_configuration[SMALL] < N
    assert made.statement.looks is not None
    assert made.statement.looks.sizes == list(sizes)


def test_deploy_only(gate: Gate) -> None:
    declared = {label: {**knobs, "cost": float(1 / LENGTH[label].mean())} for label, knobs in CONFIGURATIONS.items()}
    write(gate, cost=None, configurations=declared)
    _, made = replayed(gate, deploy_only=True)
    assert made.deployed == SMALL
    assert made.spent is not None
    assert made.spent.generations_run < made.spent.generations_full
    assert made.spent.by_configuration[BOTH] == 0  # slower than what passes
    assert made.row(SMALL).certified
    assert made.row(BOTH).verdict == "not needed"
