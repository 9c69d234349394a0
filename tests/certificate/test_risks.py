"""Several risks for one candidate: all must hold, each is shown, and a certificate recomputes every one."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_outcomes import certified_labels, make_grid, make_outcomes
from scipy.stats import binom

from pytest_redline import certificate as certificate_module
from pytest_redline.certificate import certify, to_bytes
from pytest_redline.claims import Risk
from pytest_redline.errors import CertificateError, NothingCertifiableError, OutcomesError
from pytest_redline.grid import Groups
from pytest_redline.grid_file import load_grid
from pytest_redline.order import random_order
from pytest_redline.paths import fixtures
from pytest_redline.report import markdown, terminal, words
from pytest_redline.sources.recorded import load_recorded
from pytest_redline.statement import sha256_of
from pytest_redline.stats import bootstrap
from pytest_redline.verify import verify

N = 400
FORMAT = Risk("format", "has_answer", 0.02)
LATENCY = Risk("latency", "seconds", 0.10, over=2.5)
SCORE = Risk("score", "judge", 0.05, test="hb")
LABELS = ("ref", "safe", "loose", "laggy")
COSTS = {"ref": 1.0, "safe": 1.5, "loose": 2.0, "laggy": 3.0}


def outcomes_of(lost_format=(0, 1, 14, 1), slow=(0, 8, 8, 60), drop=0.0):
    """Right everywhere; so many prompts without an answer, so many over the latency limit, scores lower by ``drop``."""
    numbers = np.arange(N)
    rows = dict(zip(LABELS, zip(lost_format, slow, strict=True), strict=True))
    return make_outcomes(
        dict.fromkeys(LABELS, numbers >= 0),
        measures={
            "has_answer": {label: numbers >= row[0] for label, row in rows.items()},
            "seconds": {label: np.where(numbers < row[1], 2.6, 2.5) for label, row in rows.items()},
            "judge": {label: np.where(numbers % 2 == 0, 0.9, 0.9 - drop * (label != "ref")) for label in LABELS},
        },
    )


def certificate_for(*risks, outcomes=None, intervals=False, **grid):
    made = replace(make_grid(LABELS, costs=COSTS, **grid), risks=risks)
    return certify(made, outcomes_of() if outcomes is None else outcomes, intervals=intervals)


# -- The claim ----------------------------------------------------------------------------------------------------


def test_every_declared_risk_must_hold_and_p_is_the_largest():
    certificate = certificate_for(FORMAT, LATENCY)
    assert certified_labels(certificate) == {"ref", "safe"}
    for row, fmt, slow in zip(certificate.configurations, (0, 1, 14, 1), (0, 8, 8, 60), strict=True):
        tails = [binom.cdf(0, N, 0.10), binom.cdf(fmt, N, 0.02), binom.cdf(slow, N, 0.10)]
        assert row.p == pytest.approx(max(tails), rel=1e-12)
    assert certified_labels(certificate_for()) == set(LABELS)
    assert certified_labels(certificate_for(FORMAT)) == {"ref", "safe", "laggy"}
    assert certified_labels(certificate_for(LATENCY)) == {"ref", "safe", "loose"}


def test_a_prompt_counts_where_the_reference_meets_the_requirement_and_the_candidate_does_not():
    outcomes = outcomes_of(lost_format=(5, 1, 14, 1), slow=(8, 8, 4, 60))
    fmt, slow = certificate_for(FORMAT, LATENCY, outcomes=outcomes).risks
    assert [(row.k, row.gained) for row in fmt.configurations] == [(0, 0), (0, 4), (9, 0), (0, 4)]
    assert [(row.k, row.gained) for row in slow.configurations] == [(0, 0), (0, 0), (0, 4), (52, 0)]


def test_under_counts_what_falls_below_and_the_limit_itself_is_met():
    at_limit = make_outcomes(
        {"ref": [1] * 60, "cand": [1] * 60}, measures={"speed": {"ref": [20.0] * 60, "cand": [20.0] * 50 + [19.9] * 10}}
    )
    grid = replace(make_grid(["ref", "cand"]), risks=(Risk("speed", "speed", 0.1, under=20),))
    (risk,) = certify(grid, at_limit, intervals=False).risks
    assert [row.k for row in risk.configurations] == [0, 10]


def test_breach_of_a_declared_risk_is_a_breach_and_what_is_needed_is_named():
    row = certificate_for(FORMAT, LATENCY).row("laggy")
    assert row.verdict == "breach"
    level = row.needed.level
    passing = max(k for k in range(N) if binom.cdf(k, N, 0.10) <= level)
    assert row.needed.violations_fewer == {"latency": 60 - passing}
    assert row.needed.prompts is None
    almost = certificate_for(Risk("format", "has_answer", 0.04)).row("loose")
    assert (almost.verdict, list(almost.needed.violations_fewer)) == ("undecided", ["format"])
    assert almost.needed.prompts > N


def test_statement_and_promise_hold_the_risks_and_change_with_them():
    plain, risky = certificate_for(), certificate_for(FORMAT, LATENCY, SCORE)
    assert "risks" not in json.loads(to_bytes(plain))["statement"]
    assert "risks" not in json.loads(to_bytes(plain))
    assert plain.statement.hash != risky.statement.hash
    assert len({certificate_for(replace(LATENCY, over=limit)).statement.hash for limit in (2.5, 2.6)}) == 2
    assert (
        "no configuration marked certified has joint risk above 0.1 there, nor format risk above 0.02 (has_answer "
        "given up where the reference has it), nor latency risk above 0.1 (seconds over 2.5 where the reference is "
        "not), nor score risk above 0.05 (mean drop of judge below the reference's), for statement"
    ) in risky.promise


def test_the_paper_grid_by_group_certifies_what_the_notes_say():
    """Pooled .10 passes four; .10 on each group leaves the reference, and .11, .12, .13 let three faster ones in."""
    grid = load_grid(fixtures() / "grids" / "llada2_math.redline.yaml")
    outcomes = load_recorded(grid.source, grid.labels, {}, grid.measures).outcomes
    deployed = {}
    for alpha in (0.10, 0.11, 0.12, 0.13):
        groups = Groups("group", dict.fromkeys(sorted(set(outcomes.groups)), alpha))
        certificate = certify(replace(grid, groups=groups, alpha=alpha), outcomes, intervals=False)
        deployed[alpha] = certificate.deployed
        if alpha == 0.10:
            faster = [row for row in certificate.configurations if row.label != grid.reference]
            assert min(row.p for row in faster) == pytest.approx(0.0186, abs=5e-5)
            assert not any(row.certified for row in faster)
            assert certificate.row("acc85/semi70").p == pytest.approx(0.75, abs=5e-3)
            assert [each.configurations[0].k for each in certificate.groups] == [19, 54]
    assert deployed == {0.10: "acc95/semi90", 0.11: "acc90/semi90", 0.12: "acc85/semi90", 0.13: "acc85/semi70"}


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_one_more_violation_of_any_risk_never_certifies(data):
    counts = [data.draw(st.tuples(*[st.integers(0, 20)] * 3)) for _ in range(2)]
    which, place = data.draw(st.integers(0, 1)), data.draw(st.integers(1, 3))

    def certified(fmt, slow):
        rows = [(0, *each) for each in (fmt, slow)]
        return certified_labels(certificate_for(FORMAT, LATENCY, outcomes=outcomes_of(*rows)))

    more = [list(each) for each in counts]
    more[which][place - 1] += 1
    assert certified(*more) <= certified(*counts)


# -- Scores -------------------------------------------------------------------------------------------------------


def test_a_drop_is_tested_as_its_mean_and_gains_do_not_pay_for_it():
    certificate = certificate_for(SCORE, outcomes=outcomes_of(drop=0.1))
    (risk,) = certificate.risks
    assert [row.k for row in risk.configurations] == [0, 200, 200, 200]
    assert risk.configurations[1].risk == pytest.approx(0.05)
    assert not certificate.row("safe").certified
    improved = certificate_for(SCORE, outcomes=outcomes_of(drop=-0.1))
    assert [row.gained for row in improved.risks[0].configurations] == [0, 200, 200, 200]
    assert improved.row("safe").certified


@pytest.mark.parametrize("test", ["hb", "wsr"])
def test_what_a_score_needs_would_indeed_pass(test):
    risk = replace(SCORE, test=test)
    row = certificate_for(risk, outcomes=outcomes_of(drop=0.09)).row("safe")
    needed = row.needed.mean_losses["score"]
    assert 0 < needed < 0.045
    smaller = certificate_for(risk, outcomes=outcomes_of(drop=0.09 * needed / 0.045 * 0.999)).row("safe")
    assert smaller.p <= row.needed.level


def test_betting_takes_prompts_in_the_declared_random_order():
    betting = replace(SCORE, test="wsr", seed=1)
    outcomes = outcomes_of(drop=0.1)
    p = [certificate_for(replace(betting, seed=seed), outcomes=outcomes).row("safe").p for seed in (1, 2)]
    assert p[0] != p[1]
    ids = [f"p{number}" for number in range(1000)]
    first = random_order(ids, 7)
    assert sorted(first) == list(range(1000))
    assert np.array_equal(first, random_order(ids, 7))
    assert not np.array_equal(first, random_order(ids, 8))
    assert abs(np.corrcoef(first, np.arange(1000))[0, 1]) < 0.1
    # The order belongs to the ids: whatever else is there, two prompts keep theirs.
    some = [ids[number] for number in random_order(ids[::2], 7) * 2]
    assert some == [ids[number] for number in first if number % 2 == 0]


def test_scores_that_are_all_0_or_1_are_warned_of():
    outcomes = outcomes_of()
    judge = np.ones((4, N))
    judge[1:, 0] = 0
    certificate = certificate_for(SCORE, outcomes=replace(outcomes, measures={**outcomes.measures, "judge": judge}))
    assert any("every loss is 0 or 1, where hb certifies less than the exact" in note for note in certificate.warnings)
    assert not certificate_for(SCORE, outcomes=outcomes_of(drop=0.1)).warnings


# -- Refusals -----------------------------------------------------------------------------------------------------


def test_requirement_that_the_reference_hardly_meets_is_refused():
    outcomes = outcomes_of(slow=(395, 8, 8, 60))
    with pytest.raises(NothingCertifiableError, match="risk latency: the reference meets the requirement on 5 of 400"):
        certificate_for(LATENCY, outcomes=outcomes)
    low = replace(outcomes, measures={**outcomes.measures, "judge": np.full((4, N), 0.02)})
    with pytest.raises(NothingCertifiableError, match=r"risk score: the reference has a mean judge of 0\.02"):
        certificate_for(SCORE, outcomes=low)


@pytest.mark.parametrize(
    ("risk", "name", "value", "text"),
    [
        (FORMAT, "has_answer", 0.5, "has_answer of safe is 0.5 on prompt p3; allowed are 0 and 1"),
        (SCORE, "judge", 1.5, "judge of safe is 1.5 on prompt p3; allowed are scores from 0 to 1"),
    ],
)
def test_value_that_a_risk_cannot_be_read_from_is_refused(risk, name, value, text):
    outcomes = outcomes_of()
    outcomes.measures[name][1, 3] = value
    with pytest.raises(OutcomesError, match=re.escape(text)):
        certificate_for(risk, outcomes=outcomes)


@pytest.mark.parametrize(("test", "least"), [("exact", 299), ("hb", 299), ("wsr", 403)])
def test_too_few_prompts_for_a_risks_budget_are_refused_with_the_number_needed(test, least):
    """With delta/m = 0.05: the exact and Hoeffding-Bentkus tests of no loss at all are (1 - alpha)^n."""
    risk = Risk("rare", "judge" if test != "exact" else "has_answer", 0.01, test=test)
    few = {name: dict.fromkeys(("ref", "cand"), [1.0] * 100) for name in ("judge", "has_answer")}
    outcomes = make_outcomes({"ref": [1] * 100, "cand": [1] * 100}, measures=few)
    with pytest.raises(NothingCertifiableError, match=rf"for risk rare .* use at least {least} prompts for risk rare"):
        certify(replace(make_grid(["ref", "cand"]), risks=(risk,)), outcomes)


# -- Verified and shown -------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path, monkeypatch):
    for module in (bootstrap, certificate_module):
        monkeypatch.setattr(module, "default_resamples", lambda n: 60)
    betting = replace(SCORE, name="bet", test="wsr", seed=5)
    made = certificate_for(FORMAT, LATENCY, SCORE, betting, outcomes=outcomes_of(drop=0.02), intervals=True)
    path = tmp_path / "it.certificate.json"
    path.write_bytes(to_bytes(made))
    return path


def test_certificate_with_risks_verifies(written):
    assert [risk.name for risk in verify(written).risks] == ["format", "latency", "score", "bet"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("risks", 0, "configurations", 2, "k"), 13),
        (("risks", 0, "configurations", 2, "p"), 0.001),
        (("risks", 2, "configurations", 1, "risk"), 0.001),
        (("risks", 3, "configurations", 1, "p"), 1e-9),
        (("risks", 1, "alpha"), 0.2),
        (("statement", "risks", 1, "over"), 2.7),
        (("statement", "risks", 3, "seed"), 6),
        (("configurations", 2, "needed", "violations_fewer", "format"), 1),
    ],
)
def test_no_number_of_a_risk_can_be_changed_even_with_a_new_digest(written, path, value):
    data = json.loads(written.read_bytes())
    target = data
    for key in path[:-1]:
        target = target[key]
    assert target[path[-1]] != value
    target[path[-1]] = value
    data["digest"] = "sha256:" + sha256_of({key: each for key, each in data.items() if key != "digest"})
    written.write_bytes(json.dumps(data, indent=1).encode() + b"\n")
    with pytest.raises(CertificateError):
        verify(written)


def test_certificate_without_a_measure_that_a_risk_needs_is_refused(written):
    data = json.loads(written.read_bytes())
    del data["outcomes"]["measures"]["seconds"]
    written.write_bytes(json.dumps(data, indent=1).encode() + b"\n")
    with pytest.raises(CertificateError, match=r"outcomes.measures: seconds is missing"):
        verify(written)


def test_failed_risk_is_marked_in_the_table_within_80_columns():
    text = terminal.render(certificate_for(FORMAT, LATENCY, SCORE), 80)
    assert max(map(len, text.splitlines())) <= 80
    rows = {line[4:].split()[0]: line[4:].split() for line in text.splitlines() if "/400" in line}
    assert rows["loose"][2:5] == ["0/400", "14/400!", "8/400"]
    assert rows["laggy"][2:5] == ["0/400", "1/400", "60/400!"]
    assert not any("!" in cell for cell in rows["safe"])


def test_failed_risk_is_named_where_its_column_has_no_room():
    risks = [replace(FORMAT, name=f"risk-number-{number}") for number in range(6)]
    text = terminal.render(certificate_for(*risks, LATENCY), 80)
    assert max(map(len, text.splitlines())) <= 80
    failing = [line for line in text.splitlines() if line.startswith("loose: ")]
    assert failing
    assert "14/400!" in failing[0]


def test_shortfall_leads_with_the_risk_that_failed():
    certificate = certificate_for(FORMAT, LATENCY, serving="loose")
    lines = words.shortfall(certificate, certificate.row("loose"))
    assert lines[0] == "breach: risk format 14/400, budget 0.02"
    assert any("it would pass with" in line and "fewer for format" in line for line in lines)
    report = markdown.render(certificate)
    assert "### Risk `format` (budget 0.02, exact test): has_answer given up where the reference has it" in report
    assert re.search(r"\| `loose` \| 14/400 \| 0\.0350 \| [\d.]+ \| 0 \| over what it allows \|", report)
