"""Scores instead of verdicts, and several generations of a prompt, tested as mean losses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_outcomes import certify_counts, make_grid, make_outcomes

from pytest_redline import certificate as certificate_module
from pytest_redline.certificate import certify, to_bytes
from pytest_redline.claims import Clusters, JointLoss
from pytest_redline.errors import CertificateError, NothingCertifiableError
from pytest_redline.report import markdown, words
from pytest_redline.statement import sha256_of
from pytest_redline.stats import bootstrap
from pytest_redline.stats.bounded import UNIT, betting, hoeffding_bentkus, in_units
from pytest_redline.stats.risk import largest_passing
from pytest_redline.verify import verify

DROP, REPEATS = JointLoss("drop", "hb"), JointLoss("repeats", "hb")
N = 300


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    for module in (bootstrap, certificate_module):
        monkeypatch.setattr(module, "default_resamples", lambda n: 60)


def scored(**rows):
    scores = np.array([np.broadcast_to(row, N) for row in rows.values()], dtype=np.float64)
    return replace(make_outcomes(dict(zip(rows, scores == 1, strict=True))), scores=scores)


def certified_with(loss, outcomes, **more):
    grid = replace(make_grid(outcomes.configurations, costs=dict.fromkeys(outcomes.configurations, 1.0)), loss=loss)
    return certify(replace(grid, **more), outcomes, intervals=False)


def test_a_drop_is_the_mean_of_what_is_lost_and_gains_pay_for_nothing():
    numbers = np.arange(N)
    cand = np.where(numbers < 60, 0.6, np.where(numbers < 200, 1.0, 0.9))
    made = certified_with(DROP, scored(ref=0.9, cand=cand))
    row = made.row("cand")
    assert (row.k, row.gained) == (60, 140)
    assert row.joint_risk == pytest.approx(60 * 0.3 / N, rel=1e-12)
    assert row.accuracy == pytest.approx(cand.mean())
    assert row.net_accuracy == pytest.approx(100 * (cand.mean() - 0.9))
    assert row.p == pytest.approx(float(hoeffding_bentkus(18 * UNIT, N, 0.1, UNIT)), rel=1e-9)


def test_repeats_lose_the_share_of_pairs_that_are_right_and_wrong():
    made = certified_with(REPEATS, scored(ref=0.8, cand=0.9))
    assert made.row("cand").joint_risk == pytest.approx(0.8 * 0.1, rel=1e-8)
    reference = made.row("ref")
    assert (reference.k, reference.joint_risk, reference.certified) == (0, 0, True)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=60, max_size=80))
@settings(max_examples=30, deadline=None)
def test_one_row_a_prompt_has_the_losses_of_right_and_wrong(pairs):
    right = np.array([(True, True)] * 100 + pairs).T
    plain = make_outcomes({"ref": right[0], "cand": right[1]})
    single = replace(plain, scores=right.astype(float))
    k = certify(make_grid(["ref", "cand"]), plain, intervals=False).row("cand").k
    for loss in (DROP, REPEATS):
        made = certified_with(loss, single)
        assert made.row("cand").k == k
        assert made.row("cand").joint_risk == pytest.approx(k / len(right[0]))
        assert (k == 0) or any("every loss is 0 or 1, where hb certifies less" in each for each in made.warnings)


def test_critical_counts_on_right_and_wrong_are_those_of_the_notes():
    """n = 1,012, alpha .10, level .10/7: the exact test lets 80 violations pass, Hoeffding-Bentkus 77."""
    labels = ["ref", *(f"c{number}" for number in range(6))]
    numbers = np.arange(1012)
    for loss, most in ((None, 80), (DROP, 77)):
        for k in (most, most + 1):
            verdicts = {label: numbers >= (0 if label == "ref" else k) for label in labels}
            outcomes = make_outcomes(verdicts)
            if loss:
                outcomes = replace(outcomes, scores=outcomes.correct.astype(float))
            grid = replace(make_grid(labels, delta=0.10), loss=loss)
            row = certify(grid, outcomes, intervals=False).row("c0")
            assert (row.p <= 0.10 / 7) is (k == most)
    assert largest_passing(1012, 0.10, 0.10 / 7) == 80


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_a_larger_loss_on_one_prompt_never_certifies(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    drops = rng.random(N) * data.draw(st.floats(0.05, 0.3))
    place, loss = data.draw(st.integers(0, N - 1)), data.draw(st.sampled_from([DROP, REPEATS]))
    worse = drops.copy()
    worse[place] = 1

    def certified(lost):
        return certified_with(loss, scored(ref=1.0, cand=1 - lost)).row("cand").certified

    assert certified(worse) <= certified(drops)


def test_betting_reads_scores_in_the_order_of_its_seed():
    rng = np.random.default_rng(4)
    outcomes = scored(ref=1.0, cand=1 - 0.12 * rng.random(N))
    p = {seed: certified_with(JointLoss("drop", "wsr", seed), outcomes).row("cand").p for seed in (0, 1)}
    assert p[0] != p[1]
    hb = certified_with(DROP, outcomes).row("cand").p
    assert max(p.values()) < hb / 10  # losses that vary little are what betting is for
    assert p[0] >= float(betting(np.sort(1 - outcomes.scores[1]), 0.1)) / 10


def test_scores_are_averaged_by_cluster_where_that_is_declared():
    clusters = tuple(f"t{number // 3}" for number in range(N))
    cand = np.where(np.arange(N) < 30, 0.5, 1.0)
    outcomes = replace(scored(ref=1.0, cand=cand), clusters=clusters)
    made = certified_with(DROP, outcomes, clusters=Clusters("template", "cluster_means", "hb"))
    assert made.row("cand").p == pytest.approx(
        float(hoeffding_bentkus(in_units(np.array([0.5] * 10)).sum(), 100, 0.1, UNIT)), rel=1e-9
    )


def test_promise_and_shortfall_speak_of_the_score():
    made = certified_with(DROP, scored(ref=1.0, cand=0.8))
    assert "no configuration marked certified has a mean drop in its score above 0.1 there" in made.promise
    lines = words.shortfall(made, made.row("cand"))
    assert lines[0] == "breach: 300 of 300 prompts lower in score, alpha 0.1"
    assert lines[1] == "  mean drop below ref: 0.2000"
    assert any(line.startswith("  hb p = ") for line in lines)
    assert any(re.search(r"with a mean loss of at most 0\.0\d{3}", line) for line in lines)
    assert "300 prompts where cand is right less often, or to a lesser part, than ref" in markdown.render(made)
    assert "has joint risk above 0.1" in certified_with(REPEATS, scored(ref=1.0, cand=0.99)).promise


def test_reference_with_low_scores_is_refused():
    with pytest.raises(NothingCertifiableError, match="a candidate that is always wrong would be certified"):
        certified_with(DROP, scored(ref=0.03, cand=0.03))


@pytest.fixture(params=[DROP, JointLoss("drop", "wsr", 5), REPEATS], ids=["drop", "wsr", "repeats"])
def written(request, tmp_path) -> Path:
    rng = np.random.default_rng(8)
    outcomes = scored(ref=np.round(1 - 0.1 * rng.random(N), 3), cand=np.round(1 - 0.2 * rng.random(N), 3))
    grid = replace(make_grid(["ref", "cand"]), loss=request.param)
    path = tmp_path / "it.certificate.json"
    path.write_bytes(to_bytes(certify(grid, outcomes)))
    return path


def test_certificate_of_scores_verifies(written):
    assert verify(written).statement.loss is not None


@pytest.mark.parametrize("change", ["p", "joint_risk", "accuracy", "scores", "kind", "no loss", "no scores"])
def test_no_number_of_scores_can_be_changed(written, change):
    data = json.loads(written.read_bytes())
    if change == "scores":
        data["outcomes"]["scores"]["cand"] = data["outcomes"]["scores"]["ref"]
    elif change == "kind":
        data["statement"]["loss"]["kind"] = "drop" if data["statement"]["loss"]["kind"] == "repeats" else "repeats"
    elif change == "no loss":
        del data["statement"]["loss"]
    elif change == "no scores":
        del data["outcomes"]["scores"]
    else:
        data["configurations"][1][change] *= 0.9
    data["digest"] = "sha256:" + sha256_of({key: each for key, each in data.items() if key != "digest"})
    written.write_bytes(json.dumps(data, indent=1).encode() + b"\n")
    with pytest.raises(CertificateError):
        verify(written)


def test_certificates_of_verdicts_hold_no_trace_of_scores():
    data = json.loads(to_bytes(certify_counts(100, {"cand": 1})))
    assert "loss" not in data["statement"]
    assert "scores" not in data["outcomes"]
