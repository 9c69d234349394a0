"""From outcomes to a certificate: counts, verdicts, descriptions, refusals, and the statement."""

from __future__ import annotations

from dataclasses import replace

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
from pytest_redline.grid import Configuration, CostMeasure, Groups, Serving
from pytest_redline.stats.planning import power

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


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_gain_interval_surrounds_the_gain_and_is_there_for_deployed_and_required_rows_only(better):
    rng = np.random.default_rng(1)
    cost = (
        TOKENS_PER_FORWARD
        if better == "higher"
        else CostMeasure("f / t", "lower", "ratio_of_sums", "forwards", "tokens")
    )
    labels = ["ref", "serving", "fast", "other"]
    forwards = {label: rng.integers(5, 15, 200) / speed for label, speed in zip(labels, [1, 1.5, 3, 2], strict=True)}
    outcomes = make_outcomes(
        dict.fromkeys(labels, [1] * 200),
        measures={"tokens": dict.fromkeys(labels, [100] * 200), "forwards": forwards},
    )
    certificate = certify(make_grid(labels, cost=cost, serving="serving"), outcomes)
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


def test_prompts_needed_of_a_group_are_those_of_the_whole_draw():
    """A third of the prompts are hard, and the hard ones need so many that both budgets hold with power 80 %."""
    needed = grouped(easy=0, hard=6).needed
    alone = 1 + max(n for n in range(100, 1000) if power(n, 6 / 100, 0.10, needed.level) < 0.9)
    assert needed.prompts == 3 * alone


def test_the_frontier_keeps_the_budgets_of_groups():
    numbers = np.arange(300)
    outcomes = make_outcomes({"ref": numbers >= 0, "cand": numbers < 270}, groups=["easy"] * 200 + ["hard"] * 100)
    grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}, alpha=0.15)
    assert certify(grid, outcomes, intervals=False).frontier.alpha_min is not None
    grouped_grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0}, alpha=0.15, groups={"hard": 0.10})
    assert certify(grouped_grid, outcomes, intervals=False).frontier.alpha_min is None


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
