"""Holm's procedure: hand cases, statsmodels, and the properties a gate rests on."""

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from pytest_redline.stats.multiplicity import holm, holm_levels, level_to_meet
from pytest_redline.stats.risk import binomial_tail, largest_passing

# Few distinct values, so that ties and p-values equal to a level are common.
p_value = st.one_of(
    st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.10, 0.10 / 2, 0.10 / 3, 0.10 / 4, 0.10 / 7, 0.001, 0.02, 0.03])
)
p_values = st.lists(p_value, min_size=1, max_size=12)
deltas = st.sampled_from([0.01, 0.05, 0.10, 0.2, 0.5])


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05).tolist() == [True, False, False, True]
    assert holm([0.01, 0.04, 0.03, 0.005], 0.20).tolist() == [True] * 4
    assert holm_levels([0.01, 0.04, 0.03, 0.005], 0.12).round(3).tolist() == [0.04, 0.12, 0.06, 0.03]


def test_equality_passes():
    assert holm([0.10 / 2, 0.10], 0.10).tolist() == [True, True]
    assert holm([np.nextafter(0.10 / 2, 1), 0.10], 0.10).tolist() == [False, False]


def test_a_failure_stops_the_descent():
    assert holm([0.04, 0.06], 0.05).tolist() == [False, False]
    assert holm([0.03, 0.045], 0.05).tolist() == [False, False]


def test_one_row_is_a_plain_test():
    assert holm([0.10], 0.10).tolist() == [True]
    assert holm([0.11], 0.10).tolist() == [False]


@pytest.fixture
def nothing_to_collect():
    """Statsmodels collects garbage in every call; what lives already is set aside so that this costs nothing."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("nothing_to_collect")
def test_holm_equals_statsmodels_on_10000_vectors():
    rng = np.random.default_rng(2)
    for _ in range(10_000):
        m = rng.integers(1, 13)
        p = rng.random(m) ** rng.integers(1, 6)
        p = np.where(rng.random(m) < 0.3, np.round(p, 2), p)
        p = np.where(rng.random(m) < 0.15, rng.choice(p), p)
        p = np.where(rng.random(m) < 0.1, 0.10 / rng.integers(1, m + 1), p)
        theirs = multipletests(p, alpha=0.10, method="holm")[0]
        assert np.array_equal(holm(p, 0.10), theirs), p


@given(p_values, deltas, st.randoms(use_true_random=False))
def test_verdicts_follow_their_rows_when_the_rows_are_reordered(p, delta, random):
    order = list(range(len(p)))
    random.shuffle(order)
    assert np.array_equal(holm(np.array(p)[order], delta), holm(p, delta)[order])


@given(p_values, deltas, deltas)
def test_a_larger_delta_certifies_no_fewer(p, one, other):
    assert (holm(p, min(one, other)) <= holm(p, max(one, other))).all()


@given(p_values, deltas)
def test_holm_lies_between_bonferroni_and_no_correction(p, delta):
    certified = holm(p, delta)
    assert certified[np.array(p) <= delta / len(p)].all()
    assert not certified[np.array(p) > delta].any()


@given(p_values, deltas, p_value)
def test_another_row_never_turns_fail_into_pass(p, delta, added):
    assert (holm([*p, added], delta)[:-1] <= holm(p, delta)).all()


@given(p_values, deltas, st.data())
def test_a_larger_p_value_never_turns_fail_into_pass(p, delta, data):
    row = data.draw(st.integers(0, len(p) - 1))
    worse = list(p)
    worse[row] = data.draw(st.floats(p[row], 1))
    assert (holm(worse, delta) <= holm(p, delta)).all()


@given(p_values, deltas)
def test_certified_rows_are_the_leading_ranks_that_meet_their_levels(p, delta):
    meets = np.array(p) <= holm_levels(p, delta)
    order = np.argsort(p, kind="stable")
    leading = int(np.logical_and.accumulate(meets[order]).sum())
    assert set(np.flatnonzero(holm(p, delta))) == set(order[:leading])
    assert sorted(holm_levels(p, delta)) == pytest.approx([delta / rank for rank in range(len(p), 0, -1)])


@given(p_values, deltas, st.data())
def test_level_to_meet_is_where_the_verdict_turns(p, delta, data):
    row = data.draw(st.integers(0, len(p) - 1))
    level = level_to_meet(row, p, delta)
    for value in {0.0, level, float(np.nextafter(level, 1)), 1.0, *p}:
        moved = list(p)
        moved[row] = value
        assert holm(moved, delta)[row] == (value <= level)


@pytest.mark.parametrize(
    ("alpha", "most"),
    [
        (0.10, 88),
        (0.05, largest_passing(1012, 0.05, 0.10 / 6)),  # only the reference passes, so it must be the second rank
    ],
)
def test_violations_that_would_certify_the_last_of_llada2_math(alpha, most):
    p = binomial_tail(np.array([0, 40, 52, 54, 65, 67, 73]), 1012, alpha)
    assert largest_passing(1012, alpha, level_to_meet(6, p, 0.10)) == most


def test_one_candidate_is_certified_from_29_prompts():
    assert holm(binomial_tail(np.array([0, 0]), 29, 0.10), 0.10).all()
    assert not holm(binomial_tail(np.array([0, 0]), 28, 0.10), 0.10).any()


@pytest.mark.parametrize("function", [holm, holm_levels, lambda p, delta: level_to_meet(0, p, delta)])
@pytest.mark.parametrize(
    ("p", "delta", "says"),
    [
        ([], 0.1, r"shape \(0,\)"),
        (0.1, 0.1, r"shape \(\)"),
        ([0.1, float("nan")], 0.1, "p=nan"),
        ([0.1, -0.1], 0.1, r"p=-0\.1"),
        ([1.5], 0.1, r"p=1\.5"),
        ([0.1], 0.0, r"delta=0\.0"),
        ([0.1], 1.0, r"delta=1\.0"),
        ([0.1], float("nan"), "delta=nan"),
    ],
)
def test_refuses_and_repeats_what_it_was_given(function, p, delta, says):
    with pytest.raises(ValueError, match=says):
        function(p, delta)


@pytest.mark.parametrize("function", [holm_levels, lambda p, delta: level_to_meet(0, p, delta)])
def test_levels_are_of_one_grid(function):
    with pytest.raises(ValueError, match=r"shape \(1, 2\)"):
        function([[0.1, 0.2]], 0.1)


def test_many_grids_are_judged_as_if_each_were_alone():
    p = np.random.default_rng(4).random((3, 200, 7)) ** 4
    alone = [[holm(grid, 0.10).tolist() for grid in block] for block in p]
    assert holm(p, 0.10).tolist() == alone
    assert 0 < np.mean(alone) < 1


@pytest.mark.parametrize("row", [-1, 2, 0.0])
def test_a_row_outside_the_grid_is_refused(row):
    with pytest.raises(ValueError, match=f"row={row}"):
        level_to_meet(row, [0.0, 0.3], 0.1)
