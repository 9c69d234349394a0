"""Claims for another mix of groups than the prompts have: drawn in that mix, or reweighted as bounded losses."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_outcomes import make_grid, make_outcomes

from pytest_redline import certificate as certificate_module
from pytest_redline.certificate import certify, to_bytes
from pytest_redline.claims import Design, Mix, Risk
from pytest_redline.clusters import apportioned
from pytest_redline.errors import CertificateError, NothingCertifiableError, OutcomesError
from pytest_redline.grid import Groups, Sample
from pytest_redline.prompts import read_calibration_prompts
from pytest_redline.statement import sha256_of
from pytest_redline.stats import bootstrap
from pytest_redline.stats.bounded import UNIT, hoeffding_bentkus, in_units
from pytest_redline.stats.risk import binomial_tail
from pytest_redline.verify import verify

MIX = Mix({"code": 0.2, "math": 0.8})
SIZES = {"code": 300, "math": 100}
GROUPS = ("code",) * 300 + ("math",) * 100


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    for module in (bootstrap, certificate_module):
        monkeypatch.setattr(module, "default_resamples", lambda n: 60)


def outcomes_of(code: int, math: int, **measures):
    """So many violations in each group."""
    numbers = np.arange(400)
    wrong = (numbers < code) | ((numbers >= 300) & (numbers < 300 + math))
    return make_outcomes({"ref": numbers >= 0, "cand": ~wrong}, groups=GROUPS, measures=measures)


def certificate_for(code: int, math: int, alpha: float = 0.2, **grid):
    made = replace(make_grid(["ref", "cand"], alpha=alpha), mix=MIX, groups=Groups("kind", {}), **grid)
    return certify(made, outcomes_of(code, math), intervals=False)


def test_the_risk_is_that_of_the_mix_and_tested_as_a_weighted_mean():
    row = certificate_for(code=30, math=4).row("cand")
    assert row.k == 34
    assert row.joint_risk == pytest.approx(0.2 * 30 / 300 + 0.8 * 4 / 100, abs=1e-8)
    heaviest = 0.8 * 400 / 100
    losses = np.array([0.2 * 400 / 300 / heaviest] * 30 + [1.0] * 4)
    expected = hoeffding_bentkus(in_units(losses).sum(), 400, 0.2 / heaviest, UNIT)
    assert row.p == pytest.approx(float(expected), rel=1e-6)
    assert row.risk_upper_simultaneous >= row.joint_risk >= row.risk_lower_simultaneous


def test_violations_of_the_rare_group_weigh_as_much_as_it_does_in_the_traffic():
    assert certificate_for(code=40, math=0).row("cand").p < certificate_for(code=0, math=40).row("cand").p
    assert certificate_for(code=40, math=0).row("cand").certified
    assert not certificate_for(code=0, math=40).row("cand").certified


def test_binomial_of_a_reweighted_estimate_errs_more_than_delta_and_the_mix_does_not():
    """At a risk of exactly alpha in the mix, all of it in the rare group."""
    rng, runs, alpha, delta = np.random.default_rng(3), 4000, 0.16, 0.10
    math = rng.binomial(100, 0.2, runs)
    naive = np.rint(400 * (0.8 * math / 100)).astype(np.int64)  # the estimate, taken for a count
    assert (binomial_tail(naive, 400, alpha) <= delta).mean() > 0.2
    heaviest = 0.8 * 400 / 100
    p = hoeffding_bentkus(math, 400, alpha / heaviest)
    assert (p <= delta).mean() <= delta


def test_groups_with_budgets_of_their_own_are_not_reweighted():
    grid = replace(make_grid(["ref", "cand"], alpha=0.2, groups={"math": 0.3}), mix=MIX)
    made = certify(grid, outcomes_of(3, 10), intervals=False)
    assert made.groups[1].configurations[1].p == binomial_tail(10, 100, 0.3)


def test_further_risks_are_those_of_the_mix_too():
    late = {"ref": np.ones(400), "cand": np.where(np.arange(400) >= 390, 3.0, 1.0)}
    outcomes = outcomes_of(0, 0, seconds=late)
    grid = replace(
        make_grid(["ref", "cand"], alpha=0.2),
        mix=MIX,
        groups=Groups("kind", {}),
        risks=(Risk("late", "seconds", 0.3, over=2),),
    )
    made = certify(grid, outcomes, intervals=False)
    assert made.risks[0].configurations[1].risk == pytest.approx(0.8 * 10 / 100, abs=1e-8)
    assert not [each for each in made.warnings if "every loss is 0 or 1" in each]


def test_promise_names_the_mix_and_the_numbers_it_was_measured_on():
    promise = certificate_for(1, 1).promise
    assert "with fixed numbers by group (code 300, math 100), then in at least 90 %" in promise
    assert "has joint risk above 0.2 there, in a mix of 20 % code, 80 % math, for statement" in promise


def test_groups_that_are_not_those_of_the_mix_are_refused():
    for shares in ({"code": 0.4, "law": 0.6}, {"code": 0.2, "math": 0.5, "law": 0.3}):
        grid = replace(make_grid(["ref", "cand"]), mix=Mix(shares), groups=Groups("kind", {}))
        with pytest.raises(OutcomesError, match="the prompts have code, math; give each of their groups its share"):
            certify(grid, outcomes_of(0, 0))


def test_a_mix_that_hangs_on_too_few_prompts_is_refused():
    with pytest.raises(NothingCertifiableError, match=r"one prompt standing for up to 3.2 .* rare among them"):
        certificate_for(0, 0, alpha=0.02)


def test_certificate_of_a_mix_verifies_and_its_shares_cannot_be_changed(tmp_path):
    grid = replace(make_grid(["ref", "cand"], alpha=0.2), mix=MIX, groups=Groups("kind", {}))
    path = tmp_path / "it.certificate.json"
    path.write_bytes(to_bytes(certify(grid, outcomes_of(20, 5))))
    assert verify(path).statement.mix.shares == dict(MIX.shares)
    data = json.loads(path.read_bytes())
    data["statement"]["mix"]["shares"] = {"code": 0.8, "math": 0.2}
    data["digest"] = "sha256:" + sha256_of({key: each for key, each in data.items() if key != "digest"})
    path.write_bytes(json.dumps(data, indent=1).encode() + b"\n")
    with pytest.raises(CertificateError):
        verify(path)


# -- A sample in given shares -------------------------------------------------------------------------------------


@given(n=st.integers(1, 2000), parts=st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_apportioned_sizes_add_up_and_miss_their_share_by_less_than_one(n, parts):
    shares = {f"g{number}": part / sum(parts) for number, part in enumerate(parts)}
    sizes = apportioned(n, shares)
    assert sum(sizes.values()) == n
    assert all(abs(sizes[name] - n * share) < 1 + 1e-6 for name, share in shares.items())


@pytest.fixture
def prompts(tmp_path) -> Path:
    path = tmp_path / "p.jsonl"
    rows = [
        {"id": f"q/{number}", "prompt": f"{'x' * number}?", "answer": "1", "group": "math" if number % 4 else "code"}
        for number in range(200)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_sample_has_its_shares_at_random_and_by_its_seed(prompts):
    sample = Sample(60, 3, {"math": 0.7, "code": 0.3})
    drawn = read_calibration_prompts(prompts, "group", sample)
    assert Counter(drawn.groups) == {"math": 42, "code": 18}
    assert drawn == read_calibration_prompts(prompts, "group", sample)
    other = read_calibration_prompts(prompts, "group", sample._replace(seed=4))
    assert set(other.ids) != set(drawn.ids)
    served = [drawn.groups[place] for place in drawn.order]
    assert sorted(drawn.order) == list(range(60))
    assert served.index("math") < 10
    assert served.index("code") < 30  # not one group after the other


def test_sample_that_a_group_is_too_small_for_is_refused(prompts):
    with pytest.raises(OutcomesError, match="ask for 60 of 'code', but there are 50; ask for a smaller sample"):
        read_calibration_prompts(prompts, "group", Sample(100, 3, {"math": 0.4, "code": 0.6}))


def test_sample_in_shares_is_stratified_in_words_and_verifies(tmp_path):
    grid = replace(
        make_grid(["ref", "cand"]),
        sample=Sample(400, 1, {"code": 0.75, "math": 0.25}),
        groups=Groups("kind", {}),
    )
    made = certify(grid, outcomes_of(3, 2))
    assert "with fixed numbers by group (code 300, math 100)" in made.promise
    assert "joint risk above 0.1 there, in this mix of groups, for statement" in made.promise
    path = tmp_path / "it.certificate.json"
    path.write_bytes(to_bytes(made))
    assert verify(path).statement.prompts.shares == {"code": 0.75, "math": 0.25}
    data = json.loads(path.read_bytes())
    data["statement"]["prompts"]["shares"] = {"code": 0.5, "math": 0.5}
    data["digest"] = "sha256:" + sha256_of({key: each for key, each in data.items() if key != "digest"})
    path.write_bytes(json.dumps(data, indent=1).encode() + b"\n")
    with pytest.raises(CertificateError, match=r"statement\.prompts\.shares: not those of the groups"):
        verify(path)


# -- What no grid file can claim ----------------------------------------------------------------------------------

BOTH = Risk("late", "seconds", 0.3, over=2, under=1)
BETS = Risk("late", "seconds", 0.3, test="wsr")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"risks": (BOTH,)}, "statement.risk late: counts in more than one way"),
        ({"risks": (replace(BOTH, under=None), BETS)}, "statement.risks: two budgets have one name"),
        ({"design": Design("census"), "delta": 0.3}, "statement.prompts.design: delta is over 0.25"),
        (
            {"design": Design("finite_pool", 500), "risks": (BETS,)},
            "statement.prompts.design: goes neither with betting",
        ),
        ({"mix": MIX, "risks": (BETS,)}, "statement.prompts.design: goes neither with betting"),
        ({"mix": Mix({"code": 0.2, "math": 0.7})}, "statement.shares: are not those of a whole"),
    ],
)
def test_certificate_of_what_no_grid_file_can_claim_is_refused(fields, problem, tmp_path):
    seconds = {"ref": np.ones(400), "cand": np.linspace(0.5, 1, 400)}
    grid = replace(make_grid(["ref", "cand"], alpha=0.2), groups=Groups("kind", {}), **fields)
    path = tmp_path / "it.certificate.json"
    path.write_bytes(to_bytes(certify(grid, outcomes_of(3, 2, seconds=seconds))))
    with pytest.raises(CertificateError) as error:
        verify(path)
    assert problem in str(error.value)
