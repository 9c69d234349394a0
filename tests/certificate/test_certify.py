"""From outcomes to a certificate: counts, verdicts, deployment, descriptions, refusals, and the statement."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_outcomes import (
    TOKENS_PER_FORWARD,
    certified_labels,
    certify_counts,
    make_grid,
    make_outcomes,
    violations,
)
from scipy import stats

from pytest_redline.certificate import certify
from pytest_redline.errors import NothingCertifiableError, OutcomesError
from pytest_redline.grid import KNOWN_MEASURES, Configuration, CostMeasure, Groups, Serving

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


# -- Counts and descriptions --------------------------------------------------------------------------------------


def test_counts_of_a_hand_made_grid_in_all_and_by_group():
    # 40 prompts: right with both 25, violated 5, gained 3, wrong with both 7.
    reference = [1] * 25 + [1] * 5 + [0] * 3 + [0] * 7
    candidate = [1] * 25 + [0] * 5 + [1] * 3 + [0] * 7
    groups = ["a"] * 27 + ["b"] * 13
    outcomes = make_outcomes(
        {"ref": reference, "cand": candidate},
        measures={
            "tokens": {"ref": [10] * 40, "cand": [10] * 40},
            "forwards": {"ref": [10] * 40, "cand": [5] * 27 + [20] * 13},
        },
        groups=groups,
    )
    certificate = certify(make_grid(["ref", "cand"], cost=TOKENS_PER_FORWARD), outcomes)
    row = certificate.row("cand")
    assert (row.k, row.n, row.gained) == (5, 40, 3)
    assert (row.joint_risk, row.accuracy) == (5 / 40, 28 / 40)
    assert row.net_accuracy == pytest.approx(-5.0)
    assert row.gain == pytest.approx(400 / (5 * 27 + 20 * 13) - 1)
    first, second = certificate.groups
    assert [(group.name, group.n, group.alpha) for group in (first, second)] == [("a", 27, None), ("b", 13, None)]
    a, b = first.configurations[1], second.configurations[1]
    assert [(each.label, each.k, each.gained, each.p) for each in (a, b)] == [
        ("cand", 2, 0, None),
        ("cand", 3, 3, None),
    ]
    assert (a.accuracy, b.accuracy) == (25 / 27, 3 / 13)
    assert a.net_accuracy == pytest.approx(100 * -2 / 27)
    assert b.net_accuracy == 0.0
    assert (a.gain, b.gain) == (pytest.approx(1.0), pytest.approx(-0.5))
    assert [(row.k, row.gained) for group in (first, second) for row in group.configurations[:1]] == [(0, 0), (0, 0)]


def test_gain_interval_surrounds_the_gain_and_is_there_for_deployed_and_required_rows_only():
    rng = np.random.default_rng(1)
    labels = ["ref", "serving", "fast", "other"]
    forwards = {label: rng.integers(5, 15, 200) / speed for label, speed in zip(labels, [1, 1.5, 3, 2], strict=True)}
    outcomes = make_outcomes(
        dict.fromkeys(labels, [1] * 200),
        measures={"tokens": dict.fromkeys(labels, [100] * 200), "forwards": forwards},
    )
    certificate = certify(make_grid(labels, cost=TOKENS_PER_FORWARD, serving="serving"), outcomes)
    assert certificate.deployed == "fast"
    for label in ("serving", "fast"):
        row = certificate.row(label)
        low, high = row.gain_interval
        assert low < row.gain < high
    assert certificate.row("other").gain_interval is None
    assert certificate.row("other").net_accuracy_interval is None
    assert certificate.row("fast").net_accuracy_interval == (0.0, 0.0)


def test_intervals_are_the_same_on_every_run():
    rng = np.random.default_rng(2)
    outcomes = make_outcomes({"ref": [1] * 100, "cand": rng.random(100) > 0.02})
    grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0})
    assert certify(grid, outcomes) == certify(grid, outcomes)


def test_changes_list_every_knob_that_differs_from_the_reference():
    grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0})
    rows = (
        Configuration("ref", {"same": 1, "other": 1, "only_here": None}, 1, cost=1.0),
        Configuration("cand", {"same": 1, "other": 2, "new": "x"}, 2, cost=2.0),
    )
    certificate = certify(replace(grid, configurations=rows), violations(100, {"cand": 0}), intervals=False)
    found = [(change.knob, change.reference, change.configuration) for change in certificate.row("cand").changes]
    assert found == [("other", 1, 2), ("only_here", None, None), ("new", None, "x")]
    assert certificate.row("ref").changes == []


@pytest.mark.parametrize(
    ("serving", "required", "failing"),
    [(None, ("good", "bad"), ("bad",)), ("good", ("good",), ()), ("bad", ("bad",), ("bad",)), ("ref", (), ())],
)
def test_serving_decides_who_is_required(serving, required, failing):
    certificate = certify_counts(100, {"good": 0, "bad": 50}, serving=serving)
    assert (certificate.required, certificate.failing) == (required, failing)


# -- Bounds -------------------------------------------------------------------------------------------------------

TABLE_8 = {"a": 73, "b": 67, "c": 65, "d": 54, "e": 52, "f": 40}


def test_simultaneous_bounds_of_table_8_are_clopper_pearson_at_delta_over_6():
    certificate = certify_counts(1012, TABLE_8)
    row = certificate.row("a")
    assert 0.0914 < row.risk_upper_simultaneous < 0.0915
    assert round(row.risk_upper, 4) == 0.0837
    for label, k in TABLE_8.items():
        row = certificate.row(label)
        assert stats.binom.cdf(k, 1012, row.risk_upper_simultaneous) == pytest.approx(0.10 / 6)
        assert stats.binom.sf(k - 1, 1012, row.risk_lower_simultaneous) == pytest.approx(0.10 / 6)
        assert stats.binom.cdf(k, 1012, row.risk_upper) == pytest.approx(0.10)


def test_simultaneous_bound_of_50_rows_is_wider_than_of_7():
    counts = {"a": 73, **{f"row{number}": 0 for number in range(48)}}
    assert round(certify_counts(1012, counts).row("a").risk_upper_simultaneous, 4) == 0.0985


@pytest.mark.parametrize(("n", "upper"), [(22, 0.0994), (21, 0.1038)])
def test_zero_violations_have_a_finite_upper_bound(n, upper):
    certificate = certify_counts(n, {"cand": 0}, alpha=0.2)
    assert round(certificate.row("cand").risk_upper, 4) == upper
    assert certificate.row("cand").risk_lower_simultaneous == 0.0


def test_candidate_that_is_always_wrong_has_bounds_of_one_and_p_of_one():
    row = certify_counts(40, {"cand": 40}).row("cand")
    assert (row.p, row.risk_upper, row.risk_upper_simultaneous, row.risk_interval[1]) == (1.0, 1.0, 1.0, 1.0)
    assert row.verdict == "breach"


def test_breach_begins_where_the_lower_bound_at_delta_over_the_candidates_passes_alpha():
    # P(Bin(1012, .10) >= k) falls under .10/2 between these two counts.
    least = int(next(k for k in range(1012) if stats.binom.sf(k - 1, 1012, 0.10) < 0.10 / 2))
    certificate = certify_counts(1012, {"below": least - 1, "above": least})
    assert [certificate.row(label).verdict for label in ("below", "above", "ref")] == [
        "undecided",
        "breach",
        "reference",
    ]


def test_breach_of_one_groups_budget_is_a_breach():
    n = 200
    groups = ["easy"] * 150 + ["hard"] * 50
    numbers = np.arange(n)
    outcomes = make_outcomes({"ref": numbers >= 0, "cand": (numbers < 150) | (numbers >= 165)}, groups=groups)
    grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}, alpha=0.2, groups={"hard": 0.1})
    certificate = certify(grid, outcomes, intervals=False)
    assert certificate.row("cand").verdict == "breach"
    assert certificate.row("cand").risk_lower_simultaneous < 0.1
    assert certify(replace(grid, groups=None), outcomes, intervals=False).row("cand").certified


# -- What would make it pass --------------------------------------------------------------------------------------


@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    n=st.integers(60, 300),
    alpha=st.sampled_from([0.08, 0.1, 0.15]),
)
@settings(max_examples=25, deadline=None)
def test_exactly_as_many_violations_fewer_as_it_says_certify_a_row(counts, n, alpha):
    rows = {f"c{number}": k for number, k in enumerate(counts)}
    certificate = certify_counts(n, rows, alpha=alpha)
    for label, k in rows.items():
        needed = certificate.row(label).needed
        if certificate.row(label).certified:
            assert needed is None
            continue
        fewer = needed.violations_fewer["all"]
        assert fewer >= 1
        assert certify_counts(n, rows | {label: k - fewer}, alpha=alpha).row(label).certified
        assert not certify_counts(n, rows | {label: k - fewer + 1}, alpha=alpha).row(label).certified
        assert certify_counts(n, rows | {label: k - fewer}, alpha=alpha).row(label).p <= needed.level
        assert certify_counts(n, rows | {label: k - fewer + 1}, alpha=alpha).row(label).p > needed.level


def grouped(easy: int, hard: int):
    """200 easy and 100 hard prompts, with violations in each; budgets .15 in all, .10 among the hard."""
    numbers = np.arange(300)
    candidate = ((numbers >= easy) & (numbers < 200)) | (numbers >= 200 + hard)
    outcomes = make_outcomes({"ref": numbers >= 0, "cand": candidate}, groups=["easy"] * 200 + ["hard"] * 100)
    grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}, alpha=0.15, groups={"hard": 0.10})
    return certify(grid, outcomes, intervals=False).row("cand")


def test_what_is_needed_names_the_group_whose_budget_is_missed():
    row = grouped(easy=0, hard=9)
    (fewer,) = row.needed.violations_fewer.items()
    assert fewer[0] == "hard"
    assert grouped(easy=0, hard=9 - fewer[1]).certified
    assert not grouped(easy=0, hard=9 - fewer[1] + 1).certified


def test_what_is_needed_names_every_budget_that_is_missed():
    row = grouped(easy=40, hard=9)
    fewer = row.needed.violations_fewer
    assert set(fewer) == {"all", "hard"}
    hard = 9 - fewer["hard"]
    easy = 40 + 9 - fewer["all"] - hard
    assert grouped(easy, hard).certified
    assert not grouped(easy + 1, hard).certified
    assert not grouped(easy - 1, hard + 1).certified


def test_prompts_needed_reach_power_of_80_percent_at_the_measured_risk():
    row = certify_counts(500, {"cand": 42}).row("cand")
    assert row.verdict == "undecided"
    n = row.needed.prompts
    assert n > 500
    largest = int(stats.binom.ppf(row.needed.level, n, 0.10)) - 1
    assert stats.binom.cdf(largest, n, 0.10) <= row.needed.level < stats.binom.cdf(largest + 1, n, 0.10)
    assert stats.binom.cdf(largest, n, 42 / 500) >= 0.8
    assert stats.binom.cdf(largest - 1, n, 42 / 500) < 0.85  # and not with far more than that


def test_no_number_of_prompts_helps_a_risk_over_alpha():
    assert certify_counts(500, {"cand": 51}).row("cand").needed.prompts is None


# -- Refusals -----------------------------------------------------------------------------------------------------


def test_29_prompts_can_certify_one_candidate_and_28_cannot():
    assert certify_counts(29, {"cand": 0}).row("cand").certified
    with pytest.raises(NothingCertifiableError) as caught:
        certify_counts(28, {"cand": 0})
    assert str(caught.value) == (
        "made: alpha=0.1 with n=28 and m=2: even zero violations give p=0.0523 > delta/m=0.05, so no candidate can be "
        "certified; use at least 29 prompts; pytest-redline plan says what more would show"
    )


@pytest.mark.parametrize(("alpha", "enough"), [(0.10, 41), (0.05, 83), (0.02, 211)])
def test_seven_configurations_need_as_many_prompts_as_the_first_step_of_holm(alpha, enough):
    rows = {f"c{number}": 0 for number in range(6)}
    assert len(certified_labels(certify_counts(enough, rows, alpha=alpha))) == 7
    with pytest.raises(NothingCertifiableError, match=f"use at least {enough} prompts"):
        certify_counts(enough - 1, rows, alpha=alpha)


def test_group_with_a_budget_and_too_few_prompts_is_refused_by_name():
    outcomes = violations(100, {"cand": 0})
    grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}, groups={"rare": 0.10})
    enough = replace(outcomes, groups=("rare",) * 29 + ("common",) * 71)
    assert certify(grid, enough, intervals=False).row("cand").certified
    with pytest.raises(NothingCertifiableError, match=r"n=28 in group rare .* at least 29 prompts in group rare"):
        certify(grid, replace(outcomes, groups=("rare",) * 28 + ("common",) * 72))


def test_group_without_a_budget_may_be_small():
    outcomes = replace(violations(100, {"cand": 0}), groups=("rare",) + ("common",) * 99)
    grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}, groups={})
    assert certify(grid, outcomes).row("cand").certified


def test_budget_of_a_group_that_no_prompt_has_is_refused():
    outcomes = replace(violations(100, {"cand": 0}), groups=("common",) * 100)
    grid = make_grid(["ref", "cand"], groups={"comon": 0.10})
    with pytest.raises(OutcomesError, match="no prompt is in group 'comon'; the groups are common"):
        certify(grid, outcomes)
    with pytest.raises(OutcomesError, match="no prompt is in group 'comon'; the groups are none"):
        certify(grid, replace(outcomes, groups=None))


def test_reference_that_is_hardly_ever_right_is_refused():
    def certify_with(right: int):
        numbers = np.arange(1012)
        return certify_outcomes(make_outcomes({"ref": numbers < right, "cand": numbers < 0}))

    def certify_outcomes(outcomes):
        return certify(make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}), outcomes, intervals=False)

    most = max(k for k in range(1012) if stats.binom.cdf(k, 1012, 0.10) <= 0.10 / 2)
    with pytest.raises(NothingCertifiableError, match=f"the reference is right on {most} of 1,012 prompts only"):
        certify_with(most)
    with pytest.raises(NothingCertifiableError, match="right on 0 of"):
        certify_with(0)
    assert certify_with(120).row("cand").k == 120


def test_outcomes_of_other_configurations_or_in_another_order_are_refused():
    outcomes = violations(100, {"cand": 0})
    for labels in (["ref", "other"], ["cand", "ref"], ["ref", "cand", "more"]):
        with pytest.raises(OutcomesError, match="the grid declares"):
            certify(make_grid(labels), outcomes)


# -- Warnings -----------------------------------------------------------------------------------------------------


def test_stratum_over_alpha_is_warned_of_only_where_it_has_no_budget_and_the_row_is_certified():
    numbers = np.arange(400)
    groups = ["easy"] * 350 + ["hard"] * 50
    outcomes = make_outcomes(
        {"ref": numbers >= 0, "cand": (numbers < 350) | (numbers >= 356), "bad": numbers < 300}, groups=groups
    )
    grid = make_grid(["ref", "cand", "bad"], costs={"ref": 1.0, "cand": 2.0, "bad": 3.0})
    (warning,) = certify(grid, outcomes, intervals=False).warnings
    assert warning.startswith("cand is certified on all prompts together, but its risk in group hard is 6/50 = 0.120")
    with_budget = replace(grid, groups=Groups("group", {"hard": 0.30}))
    assert certify(with_budget, outcomes, intervals=False).warnings == []


def test_notes_of_the_source_and_the_grid_come_first_and_once():
    grid = replace(make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}), notes=("replaced",))
    certificate = certify(grid, violations(100, {"cand": 0}), notes=["noted", "noted"], intervals=False)
    assert certificate.warnings == ["noted", "replaced"]


# -- The statement ------------------------------------------------------------------------------------------------

GRID = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}, groups={"a": 0.2})
OUTCOMES = replace(violations(100, {"cand": 1}), groups=("a",) * 50 + ("b",) * 50)
STATED = {
    "alpha": (replace(GRID, alpha=0.11), OUTCOMES),
    "delta": (replace(GRID, delta=0.11), OUTCOMES),
    "population": (replace(GRID, population="other prompts"), OUTCOMES),
    "grader": (replace(GRID, grader="recorded: other"), OUTCOMES),
    "reference": (replace(GRID, reference="cand"), OUTCOMES),
    "knobs": (
        replace(GRID, configurations=(GRID.configurations[0], replace(GRID.configurations[1], knobs={"number": 9}))),
        OUTCOMES,
    ),
    "label": (
        replace(GRID, configurations=(GRID.configurations[0], replace(GRID.configurations[1], label="renamed"))),
        replace(OUTCOMES, configurations=("ref", "renamed")),
    ),
    "one more configuration": (
        make_grid(["ref", "cand", "more"], costs=dict.fromkeys(["ref", "cand", "more"], 1.0), groups={"a": 0.2}),
        replace(violations(100, {"cand": 1, "more": 1}), groups=OUTCOMES.groups),
    ),
    "budget of a group": (replace(GRID, groups=Groups("group", {"a": 0.21})), OUTCOMES),
    "column of groups": (replace(GRID, groups=Groups("other", {"a": 0.2})), OUTCOMES),
    "prompts of a group": (GRID, replace(OUTCOMES, groups=("a",) * 49 + ("b",) * 51)),
    "no groups": (replace(GRID, groups=None), OUTCOMES),
    "prompts": (GRID, replace(OUTCOMES, prompts=("other", *OUTCOMES.prompts[1:]))),
    "fewer prompts": (
        GRID,
        replace(OUTCOMES, prompts=OUTCOMES.prompts[:99], correct=OUTCOMES.correct[:, :99], groups=OUTCOMES.groups[:99]),
    ),
}


def statement_of(grid, outcomes):
    return certify(grid, outcomes, intervals=False).statement


@pytest.mark.parametrize("what", STATED)
def test_statement_hash_changes_with_everything_that_is_stated(what):
    changed = statement_of(*STATED[what])
    assert changed.hash != statement_of(GRID, OUTCOMES).hash
    assert len(changed.hash) == 64


@pytest.mark.parametrize(
    ("grid", "outcomes"),
    [
        (GRID, replace(OUTCOMES, correct=violations(100, {"cand": 4}).correct)),
        (replace(GRID, name="renamed"), OUTCOMES),
        (replace(GRID, cost=None), OUTCOMES),
        (replace(GRID, cost=replace(GRID.cost, better="lower")), OUTCOMES),
        (replace(GRID, serving=Serving("cand")), OUTCOMES),
    ],
    ids=["outcomes", "name", "no cost", "direction of cost", "serving"],
)
def test_statement_hash_does_not_change_with_outcomes_name_cost_or_serving(grid, outcomes):
    assert statement_of(grid, outcomes) == statement_of(GRID, OUTCOMES)


def test_promise_has_the_numbers_of_the_statement():
    certificate = certify(replace(GRID, groups=None, delta=0.05), OUTCOMES, intervals=False)
    assert certificate.promise == (
        "If these 100 prompts are an independent random draw from made prompts, then in at least 95 % of such draws "
        "(of prompts and decoding randomness) no configuration marked certified has joint risk above 0.1 there, for "
        f"statement {certificate.statement.hash[:12]} fixed before the outcomes."
    )
    assert "joint risk above its budget there" in certify(GRID, OUTCOMES, intervals=False).promise


# -- Properties ---------------------------------------------------------------------------------------------------

VERDICTS = ("verdict", "certified", "k", "p", "level", "gained", "needed", "risk_upper", "risk_upper_simultaneous")


def verdicts(certificate):
    return {row.label: tuple(getattr(row, name) for name in VERDICTS) for row in certificate.configurations}


@st.composite
def small_grids(draw, most=4):
    """A grid and outcomes of 24 to 40 prompts, with groups or without, that is not refused."""
    m, n = draw(st.integers(2, most)), draw(st.integers(24, 40))
    labels = ["ref", *(f"c{number}" for number in range(1, m))]
    seed, rate = draw(st.integers(0, 2**32)), draw(st.sampled_from([0.02, 0.08, 0.15, 0.3]))
    rng = np.random.default_rng(seed)
    correct = rng.random((m, n)) >= rate
    correct[0] = rng.random(n) >= draw(st.sampled_from([0.0, 0.1]))
    groups = None
    if draw(st.booleans()):
        groups = ["a"] * (n // 2) + ["b"] * (n - n // 2)
    budgets = {"a": draw(st.sampled_from([0.4, 0.5]))} if groups else None
    grid = make_grid(
        labels,
        alpha=draw(st.sampled_from([0.2, 0.3, 0.35])),
        delta=draw(st.sampled_from([0.1, 0.3])),
        costs={label: 1.0 + number for number, label in enumerate(labels)},
        groups=budgets,
    )
    return grid, make_outcomes(dict(zip(labels, correct, strict=True)), groups=groups)


def tail(k: int, n: int, alpha: float) -> Fraction:
    exact = Fraction(alpha)
    return sum((comb(n, i) * exact**i * (1 - exact) ** (n - i) for i in range(k + 1)), Fraction(0))


def brute_force(grid, outcomes) -> set[str]:
    """Closed testing: a row is certified if Bonferroni rejects every set of rows that it is in. In fractions."""
    n = len(outcomes.prompts)
    everyone = range(n)
    budgets = [(everyone, grid.alpha)] + [
        ([i for i in everyone if outcomes.groups[i] == name], alpha)
        for name, alpha in (grid.groups.alpha if grid.groups else {}).items()
    ]
    right = {label: list(map(bool, row)) for label, row in zip(grid.labels, outcomes.correct, strict=True)}
    p = {
        label: max(
            tail(sum(right["ref"][i] and not right[label][i] for i in members), len(members), alpha)
            for members, alpha in budgets
        )
        for label in grid.labels
    }
    sets = [chosen for size in range(1, grid.m + 1) for chosen in itertools.combinations(grid.labels, size)]
    return {
        label
        for label in grid.labels
        if all(
            min(p[each] for each in chosen) <= Fraction(grid.delta) / len(chosen) for chosen in sets if label in chosen
        )
    }


@given(small_grids())
@settings(max_examples=100, deadline=None)
def test_verdicts_equal_closed_testing_in_fractions(case):
    grid, outcomes = case
    assert certified_labels(certify(grid, outcomes, intervals=False)) == brute_force(grid, outcomes)


@given(small_grids(), st.data())
@settings(max_examples=60, deadline=None)
def test_adding_a_violation_never_turns_fail_into_pass(case, data):
    grid, outcomes = case
    before = certified_labels(certify(grid, outcomes, intervals=False))
    row = data.draw(st.integers(1, grid.m - 1))
    both = np.flatnonzero(outcomes.correct[0] & outcomes.correct[row])
    if not len(both):
        return
    worse = outcomes.correct.copy()
    worse[row, data.draw(st.sampled_from(list(both)))] = False
    assert certified_labels(certify(grid, replace(outcomes, correct=worse), intervals=False)) <= before


@given(small_grids(), st.data())
@settings(max_examples=60, deadline=None)
def test_adding_a_configuration_never_turns_another_from_fail_to_pass(case, data):
    grid, outcomes = case
    keep = [0, *sorted(data.draw(st.sets(st.integers(1, grid.m - 1), min_size=1)))]
    labels = tuple(grid.labels[index] for index in keep)
    fewer = certify(
        replace(grid, configurations=tuple(grid.configurations[index] for index in keep)),
        replace(outcomes, configurations=labels, correct=outcomes.correct[keep]),
        intervals=False,
    )
    assert certified_labels(certify(grid, outcomes, intervals=False)) & set(labels) <= certified_labels(fewer)


@given(small_grids(), st.data())
@settings(max_examples=40, deadline=None)
def test_order_of_prompts_and_of_rows_changes_no_verdict(case, data):
    grid, outcomes = case
    before = certify(grid, outcomes, intervals=False)
    n, m = len(outcomes.prompts), grid.m
    prompts = np.array(data.draw(st.permutations(range(n))))
    shuffled = replace(
        outcomes,
        prompts=tuple(outcomes.prompts[index] for index in prompts),
        correct=outcomes.correct[:, prompts],
        groups=tuple(outcomes.groups[index] for index in prompts) if outcomes.groups else None,
    )
    after = certify(grid, shuffled, intervals=False)
    assert after.configurations == before.configurations
    assert (after.groups, after.frontier, after.deployed) == (before.groups, before.frontier, before.deployed)
    rows = data.draw(st.permutations(range(m)))
    turned = replace(
        outcomes,
        configurations=tuple(grid.labels[index] for index in rows),
        correct=outcomes.correct[list(rows)],
    )
    other = certify(
        replace(grid, configurations=tuple(grid.configurations[index] for index in rows)), turned, intervals=False
    )
    assert certified_labels(other) == certified_labels(before)
    assert other.deployed == before.deployed  # costs differ, so no tie is decided by order
    without_level = {label: values[:4] + values[5:] for label, values in verdicts(other).items()}
    assert without_level == {label: values[:4] + values[5:] for label, values in verdicts(before).items()}
