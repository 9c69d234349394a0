"""Which certified configuration is deployed, and which candidates are inert."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_outcomes import TOKENS_PER_FORWARD, certify_counts, make_grid, make_outcomes, violations

from pytest_redline.certificate import certify
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import KNOWN_MEASURES, CostMeasure

EVERYWHERE = [1] * 40


def timed(tokens, forwards, *, cost=TOKENS_PER_FORWARD, groups=None, correct=None, labels=("ref", "cand")):
    """A grid of 40 prompts that all are right, with tokens and forwards as given."""
    rows = correct or dict.fromkeys(labels, EVERYWHERE)
    outcomes = make_outcomes(rows, measures={"tokens": tokens, "forwards": forwards}, groups=groups)
    return certify(make_grid(list(rows), cost=cost), outcomes, intervals=False)


# -- Deployment ---------------------------------------------------------------------------------------------------


def test_equal_costs_deploy_the_one_declared_first():
    counts = {"slow": 0, "fast1": 1, "fast2": 0}
    costs = {"ref": 1.0, "slow": 1.5, "fast1": 2.0, "fast2": 2.0}
    assert certify_counts(100, counts, costs=costs).deployed == "fast1"
    assert certify_counts(100, dict(reversed(counts.items())), costs=costs).deployed == "fast2"


def test_first_declared_wins_a_tie_the_reference_included():
    outcomes = violations(100, {"cand": 1})
    costs = {"ref": 1.0, "cand": 1.0}
    assert certify(make_grid(["ref", "cand"], costs=costs), outcomes, intervals=False).deployed == "ref"
    turned = replace(outcomes, configurations=("cand", "ref"), correct=outcomes.correct[::-1])
    assert certify(make_grid(["cand", "ref"], costs=costs), turned, intervals=False).deployed == "cand"


def test_fastest_of_all_is_not_deployed_when_it_is_not_certified():
    certificate = certify_counts(100, {"good": 1, "bad": 50}, costs={"ref": 1.0, "good": 2.0, "bad": 9.0})
    assert certificate.deployed == "good"
    assert certificate.row("bad").gain == 8.0


def test_candidate_slower_than_the_reference_is_certified_and_not_deployed():
    certificate = certify_counts(100, {"slow": 0}, costs={"ref": 1.0, "slow": 0.9})
    assert certificate.row("slow").certified
    assert certificate.row("slow").gain == pytest.approx(-0.1)
    assert certificate.deployed == "ref"


def test_unknown_cost_is_certified_and_never_deployed():
    certificate = certify_counts(100, {"unknown": 0, "known": 0}, costs={"ref": 1.0, "unknown": None, "known": 1.1})
    row = certificate.row("unknown")
    assert (row.certified, row.cost, row.gain) == (True, None, None)
    assert certificate.deployed == "known"


def test_unknown_cost_of_one_row_needs_no_measures_of_it_to_be_possible():
    forwards = {"ref": [10] * 40, "cand": [0] * 40}
    labels = ["ref", "cand"]
    outcomes = make_outcomes(
        dict.fromkeys(labels, EVERYWHERE),
        measures={"tokens": dict.fromkeys(labels, [10] * 40), "forwards": forwards},
    )
    grid = make_grid(labels, cost=TOKENS_PER_FORWARD)
    unknown = replace(grid.configurations[1], cost_unknown=True)
    certificate = certify(replace(grid, configurations=(grid.configurations[0], unknown)), outcomes)
    assert certificate.row("cand").cost is None
    assert certificate.deployed == "ref"


def test_no_cost_at_all_deploys_the_reference_and_says_so():
    certificate = certify(make_grid(["ref", "cand"]), violations(100, {"cand": 0}), intervals=False)
    assert certificate.row("cand").certified
    assert certificate.deployed == "ref"
    assert certificate.cost is None
    assert "no cost is known, so no candidate is preferred to the reference" in certificate.warnings


@pytest.mark.parametrize(("seconds", "deployed", "gain"), [(0.5, "cand", 1.0), (2.0, "ref", -0.5)])
def test_lower_is_better_for_seconds(seconds, deployed, gain):
    outcomes = make_outcomes(
        {"ref": EVERYWHERE, "cand": EVERYWHERE},
        measures={"seconds": {"ref": [1.0] * 40, "cand": [seconds] * 40}},
    )
    certificate = certify(make_grid(["ref", "cand"], cost=KNOWN_MEASURES["seconds_per_prompt"]), outcomes)
    assert certificate.deployed == deployed
    assert certificate.row("cand").gain == pytest.approx(gain)
    assert certificate.row("cand").cost == pytest.approx(seconds)


def test_lower_is_better_tells_costs_apart_whose_reciprocals_are_equal():
    slower, faster = 1.9999999999999998, 1.9999999999999996
    assert 1 / slower == 1 / faster
    lower = CostMeasure("declared cost", "lower", "ratio_of_sums", None, None, declared=True)
    costs = {"ref": 3.0, "first": slower, "second": faster}
    assert certify_counts(100, {"first": 0, "second": 0}, costs=costs, cost=lower).deployed == "second"


def test_ratio_of_sums_and_mean_of_ratios_can_deploy_differently():
    tokens = dict.fromkeys(["ref", "cand"], [10, 10] * 20)
    forwards = {"ref": [5, 5] * 20, "cand": [1, 19] * 20}
    pooled = timed(tokens, forwards)
    averaged = timed(tokens, forwards, cost=replace(TOKENS_PER_FORWARD, pool="mean_of_ratios"))
    assert pooled.row("ref").cost == averaged.row("ref").cost == 2.0
    assert (pooled.row("cand").cost, pooled.deployed) == (1.0, "ref")
    assert averaged.row("cand").cost == pytest.approx((10 + 10 / 19) / 2)
    assert averaged.deployed == "cand"


def test_zero_forwards_on_one_prompt_are_summed_but_have_no_ratio():
    tokens = {"ref": [10] * 40, "cand": [10] * 40}
    forwards = {"ref": [5] * 40, "cand": [0] + [5] * 39}
    assert timed(tokens, forwards).row("cand").cost == pytest.approx(400 / 195)
    with pytest.raises(OutcomesError, match="cand: forwards is 0 for prompt p0, so tokens_per_forward is not defined"):
        timed(tokens, forwards, cost=replace(TOKENS_PER_FORWARD, pool="mean_of_ratios"))


def test_zero_forwards_on_all_prompts_are_refused():
    with pytest.raises(OutcomesError, match="ref: forwards is 0"):
        timed({"ref": [10] * 40, "cand": [10] * 40}, {"ref": [0] * 40, "cand": [5] * 40})


def test_cost_of_zero_is_refused():
    with pytest.raises(OutcomesError, match="cand: tokens_per_forward is 0, which compares with nothing"):
        timed({"ref": [10] * 40, "cand": [0] * 40}, {"ref": [5] * 40, "cand": [5] * 40})


@given(data=st.data(), better=st.sampled_from(["higher", "lower"]))
@settings(max_examples=40, deadline=None)
def test_deployed_is_certified_and_never_slower_than_the_reference(data, better):
    labels = [f"c{number}" for number in range(data.draw(st.integers(1, 4)))]
    speeds = st.one_of(st.none(), st.floats(0.1, 10))
    costs = {label: data.draw(speeds) for label in labels} | {"ref": data.draw(st.floats(0.1, 10))}
    counts = {label: data.draw(st.integers(0, 12)) for label in labels}
    measure = CostMeasure("declared cost", better, "ratio_of_sums", None, None, declared=True)
    certificate = certify_counts(100, counts, costs=costs, cost=measure)
    deployed = certificate.row(certificate.deployed)
    assert deployed.certified
    assert deployed.gain >= 0
    for row in certificate.configurations:
        if row.certified and row.gain is not None:
            assert row.gain <= deployed.gain


# -- Inert candidates ---------------------------------------------------------------------------------------------

SAME = {"ref": [7] * 40, "cand": [7] * 40}


def test_candidate_with_the_references_outcomes_and_forwards_is_inert():
    rows = {"cand": EVERYWHERE, "ref": EVERYWHERE}
    certificate = timed(SAME, SAME, correct=rows)
    row = certificate.row("cand")
    assert (row.inert, row.certified, row.required) == (True, True, True)
    assert certificate.failing == ()
    assert certificate.deployed == "ref"  # though the candidate stands first and ties: an inert one is never deployed
    assert any("cand gives the reference's outcomes" in warning for warning in certificate.warnings)
    assert not certificate.row("ref").inert


@pytest.mark.parametrize("changed", ["correct", "tokens", "forwards"])
def test_one_difference_on_one_prompt_makes_a_candidate_no_longer_inert(changed):
    other = {"ref": [7] * 40, "cand": [8] + [7] * 39}
    correct = {"ref": EVERYWHERE, "cand": [0] + [1] * 39} if changed == "correct" else None
    certificate = timed(
        other if changed == "tokens" else SAME, other if changed == "forwards" else SAME, correct=correct
    )
    assert not certificate.row("cand").inert


def test_equal_verdicts_alone_are_no_evidence_that_a_candidate_is_inert():
    certificate = certify_counts(100, {"cand": 0})
    assert not certificate.row("cand").inert
    assert certificate.deployed == "cand"


@pytest.mark.parametrize(("texts", "inert"), [([5] * 40, True), ([6] + [5] * 39, False)])
def test_equal_texts_tell_that_a_candidate_is_inert(texts, inert):
    outcomes = make_outcomes({"ref": EVERYWHERE, "cand": EVERYWHERE}, outputs={"ref": [5] * 40, "cand": texts})
    certificate = certify(make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}), outcomes)
    assert certificate.row("cand").inert is inert
    assert certificate.deployed == ("ref" if inert else "cand")
