"""What reuse does to error rates and certificates, and when two statements are about the same."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_outcomes import make_grid, make_outcomes
from scipy import stats

from pytest_redline import certificate as certificate_module
from pytest_redline.certificate import certify, digest, to_bytes
from pytest_redline.certificate_schema import Certificate, Reuse
from pytest_redline.errors import CertificateError, NothingCertifiableError
from pytest_redline.gate import certificate_of
from pytest_redline.grid import Slice
from pytest_redline.grid_file import load_grid
from pytest_redline.ledger import Ledger, prompts_line, read_ledger
from pytest_redline.reuse import identities, outcomes_hash, standing
from pytest_redline.slices import draw_slice
from pytest_redline.statement import state
from pytest_redline.stats.bootstrap import default_resamples
from pytest_redline.stats.multiplicity import Family, holm
from pytest_redline.stats.risk import binomial_tail
from pytest_redline.verify import verify

DELTA, ALPHA, N, DRAWS = 0.10, 0.10, 1_012, 2_000
MOST_ERRORS = stats.binom.ppf(1 - 1e-6, DRAWS, DELTA)
GRIDS = Path(__file__).parents[2] / "fixtures" / "grids"
LABELS = ["ref", "safe", "middle"]
OUTCOMES = make_outcomes({"ref": [1] * 100, "safe": [1] * 100, "middle": [0] * 4 + [1] * 96})


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_module, "default_resamples", lambda n: min(60, default_resamples(n)))


def fishing(m: int, others: bool, rho: float = 0.64) -> int:
    """Draws in which a grid of candidates at alpha passes, or its best one does when stated alone with the reference.

    ``others``: the rest of the grid counts, as the ledger has it.
    """
    rng = np.random.default_rng(m)
    factor = stats.norm.ppf((np.arange(40) + 0.5) / 40)
    chance = stats.norm.cdf((stats.norm.ppf(ALPHA) - rho**0.5 * factor) / (1 - rho) ** 0.5)
    prompts = rng.multinomial(N, np.full(40, 1 / 40), DRAWS)
    k = rng.binomial(prompts[:, None, :], chance * (ALPHA / chance.mean()), size=(DRAWS, m - 1, 40)).sum(axis=2)
    caught = 0
    for row in k:
        p = binomial_tail(np.array([0, *row]), N, ALPHA)
        best = np.array([p[0], p[1:].min()])
        counted = Family(others=m - 2) if others else Family()
        caught += bool(holm(p, DELTA)[1:].any() or holm(best, DELTA, counted)[1])
    return caught


@pytest.mark.parametrize(("m", "low", "high"), [(7, 0.25, 0.5), (50, 0.5, 1.0)])
def test_cutting_a_grid_to_its_best_row_errs_far_above_delta_unless_the_others_count(m, low, high):
    assert low < fishing(m, others=False) / DRAWS < high
    assert fishing(m, others=True) <= MOST_ERRORS


def test_counted_configurations_are_holms_m_everywhere():
    grid = make_grid(LABELS)
    alone = certify(grid, OUTCOMES, intervals=False)
    later = certify(grid, OUTCOMES, intervals=False, reuse=Reuse(number=3, counted=9, together=0.3, before=False))
    assert (later.m, later.n) == (alone.m, alone.n) == (3, 100)
    assert alone.row("middle").level == pytest.approx(DELTA)
    assert later.row("middle").level == pytest.approx(DELTA / 7)
    assert later.row("safe").risk_upper_simultaneous > alone.row("safe").risk_upper_simultaneous
    assert not later.row("middle").certified
    assert later.row("middle").needed is not None
    assert later.row("middle").needed.level == pytest.approx(DELTA / 7)
    assert "made when outcomes were known. It is statement 3" in later.promise
    assert "9 configurations are counted, and the 3 hold together in at least 70 %" in later.promise
    with pytest.raises(NothingCertifiableError, match=r"m=4000: even zero"):
        certify(grid, OUTCOMES, reuse=Reuse(number=3, counted=4_000, together=0.3, before=False))


def write(path: Path, certificate: Certificate) -> Path:
    path.write_bytes(to_bytes(certificate.model_copy(update={"digest": digest(certificate)})))
    return path


def test_verify_computes_with_what_counts(tmp_path):
    reuse = Reuse(number=2, counted=5, together=0.2, before=False)
    certificate = certify(make_grid(LABELS), OUTCOMES, reuse=reuse)
    path = write(tmp_path / "c.json", certificate)
    assert verify(path).reuse == reuse
    for update, says in [
        ({"counted": 4}, r"level: says"),
        ({"counted": 2}, "counts fewer configurations"),
        ({"together": 0.05}, "holds together at less"),
        ({"number": 3}, "promise: says"),
        ({"together": 0.3}, "promise: says"),
        ({"before": True}, "promise: says"),
    ]:
        forged = certificate.model_copy(update={"reuse": reuse.model_copy(update=update)})
        with pytest.raises(CertificateError, match=says):
            verify(write(tmp_path / "forged.json", forged))
    with pytest.raises(CertificateError, match=r"level: says|promise: says"):
        verify(write(tmp_path / "forged.json", certificate.model_copy(update={"reuse": None})))
    first = certify(make_grid(LABELS), OUTCOMES, reuse=Reuse(number=1, counted=3, together=0.1, before=False))
    assert verify(write(tmp_path / "first.json", first)).promise.endswith(
        "it holds if nothing in it was chosen by them."
    )
    for update in (None, first.reuse.model_copy(update={"before": True})):
        with pytest.raises(CertificateError, match="promise: says"):
            verify(write(tmp_path / "forged.json", first.model_copy(update={"reuse": update})))
    data = json.loads(path.read_text())
    data["reuse"]["number"] = 0
    path.write_text(json.dumps(data))
    with pytest.raises(CertificateError, match=r"reuse\.number"):
        verify(path)


# -- What is the same


def stated(**changes):
    return state(replace(make_grid(LABELS), **changes), OUTCOMES)


def test_a_configuration_is_known_by_its_knobs_beside_the_reference():
    plain = identities(stated())
    assert len(set(plain.values())) == 3
    assert identities(stated(alpha=0.2, delta=0.05, name="other")) == plain
    assert set(identities(stated(grader="another")).values()).isdisjoint(plain.values())
    assert set(identities(stated(reference="safe")).values()).isdisjoint(plain.values())
    renamed = identities(state(make_grid(["ref", "secure", "middle"]), OUTCOMES))
    assert set(renamed.values()) == set(plain.values())


def test_outcomes_are_the_same_whatever_the_order_of_labels():
    statement = stated()
    turned = replace(OUTCOMES, configurations=tuple(LABELS[::-1]), correct=OUTCOMES.correct[::-1])
    assert outcomes_hash(statement, OUTCOMES) == outcomes_hash(statement, turned)
    other = OUTCOMES.correct.copy()
    other[1, 5] = False
    assert outcomes_hash(statement, OUTCOMES) != outcomes_hash(statement, replace(OUTCOMES, correct=other))


def test_a_prompt_in_common_is_enough():
    ledger = Ledger(Path("x"), {}, ())
    first = standing(ledger, "g", stated(), [f"q{i}" for i in range(50)], "one", False, None)
    ledger = Ledger(Path("x"), {first.prompts.prompts: first.prompts}, (first.line,))
    assert ledger.on(prompts_line(["q49", "z"])) == (first.line,)
    assert ledger.on(prompts_line(["q50", "z"])) == ()


def test_the_shipped_recording_is_in_its_ledger():
    ledger = read_ledger(GRIDS / "redline.statements.jsonl")
    certificate = certificate_of(load_grid(GRIDS / "llada2_math.redline.yaml"))
    assert certificate.reuse == Reuse(number=1, counted=7, together=0.1, before=False)
    assert certificate.statement.hash in {each.statement for each in ledger.statements}
    assert {each.grid: each.reuse.number for each in ledger.statements} == {"arithmetic": 1, "llada2-math": 1}


def test_slices_are_random_and_depend_on_the_nonce_alone():
    ids = [f"q{i}" for i in range(200)]
    times = dict.fromkeys(ids, 0)
    empty = Ledger(Path("x"), {}, ())
    for nonce in range(400):
        grid = replace(make_grid(LABELS), slice=Slice(50, f"n{nonce}"), prompts=Path("pool.jsonl"))
        _, part = draw_slice(grid, ids, empty)
        assert draw_slice(grid, ids[::-1], empty)[1] == part
        for each in part:
            times[each] += 1
    # each is drawn in 100 of 400 on average, with a standard error of 8.7
    assert 60 < min(times.values()) < max(times.values()) < 140


# -- The file, written by several at once and by some that are killed

WRITER = """
import itertools, sys
from pathlib import Path
from pytest_redline.ledger import append, locked, prompts_line, read_ledger
path, name, most = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for number in itertools.count():
    if number == most:
        break
    with locked(path):
        append(read_ledger(path), [prompts_line([f"{name}/{number}"])], [])
"""


def writer(path: Path, name: str, most: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(most)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_nothing_is_lost_or_torn_by_writers_at_once_and_by_killed_ones(tmp_path):
    path = tmp_path / "redline.statements.jsonl"
    steady = [writer(path, name, 40) for name in ("a", "b")]
    for round_ in range(4):
        with writer(path, f"killed{round_}", -1) as doomed:
            time.sleep(0.05 * round_)
            doomed.kill()
    for process in steady:
        assert process.wait() == 0
        process.stdout.close()
    there = read_ledger(path).sets
    assert {prompts_line([f"{name}/{number}"]).prompts for name in ("a", "b") for number in range(40)} <= there.keys()
    assert len(path.read_text().splitlines()) == len(there)
