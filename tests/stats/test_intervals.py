"""Exact confidence bounds: published figures, agreement with scipy.stats, coverage."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_redline.stats.intervals import clopper_pearson, lower_bound, upper_bound
from pytest_redline.stats.risk import binomial_tail

TABLE_5 = json.loads((Path(__file__).parents[1] / "data" / "redline_tables.json").read_text(encoding="utf-8"))[
    "tables"
]["table5"]["rows"]
errors = st.floats(0.0005, 0.5)


@st.composite
def counts(draw, largest=2000):
    n = draw(st.integers(1, largest))
    return draw(st.one_of(st.integers(0, n), st.sampled_from([0, n]))), n


@pytest.mark.parametrize("row", TABLE_5, ids=lambda row: f"{row['grid']}-{row['k']}")
def test_bounds_of_table_5(row):
    interval = clopper_pearson(row["k"], row["n"])
    assert [round(interval.lower, 3), round(interval.upper, 3)] == row["r_ci95"]
    assert round(upper_bound(row["k"], row["n"], 0.10), 3) == row["r_upper90"]


def test_simultaneous_bounds_of_llada2_math():
    k = np.array([73, 67, 65, 54, 52, 40])
    assert np.round(upper_bound(k, 1012, 0.10 / 7), 4).tolist() == [0.0920, 0.0854, 0.0832, 0.0710, 0.0687, 0.0551]
    assert np.round(upper_bound(k, 1012, 0.10 / 6), 4).tolist() == [0.0914, 0.0848, 0.0826, 0.0704, 0.0682, 0.0547]
    assert round(upper_bound(73, 1012, 0.10), 4) == 0.0837


def test_a_simultaneous_bound_rounded_up_is_the_smallest_such_budget_that_passes():
    assert 0.0914 < upper_bound(73, 1012, 0.10 / 6) < 0.0915
    assert binomial_tail(73, 1012, 0.0914) > 0.10 / 6 >= binomial_tail(73, 1012, 0.0915)


@pytest.mark.parametrize(("k", "n", "bound"), [(0, 22, 0.0994), (0, 21, 0.1038), (22, 22, 1.0)])
def test_bounds_at_zero_and_at_all_violations(k, n, bound):
    assert round(upper_bound(k, n, 0.10), 4) == bound


def test_ends_are_exact():
    assert upper_bound(7, 7, 0.10) == 1.0
    assert lower_bound(0, 7, 0.10) == 0.0
    assert clopper_pearson(0, 1).lower == 0.0
    assert clopper_pearson(1, 1).upper == 1.0
    assert upper_bound(0, 7, 0.10) == pytest.approx(1 - 0.10 ** (1 / 7), rel=1e-12)
    assert lower_bound(7, 7, 0.10) == pytest.approx(0.10 ** (1 / 7), rel=1e-12)


@settings(deadline=None)
@given(counts(), st.floats(0.5, 0.999))
def test_bounds_agree_with_scipy_stats(count, confidence):
    k, n = count
    for alternative, ours in [
        ("two-sided", clopper_pearson(k, n, confidence)),
        ("less", (0.0, upper_bound(k, n, 1 - confidence))),
        ("greater", (lower_bound(k, n, 1 - confidence), 1.0)),
    ]:
        theirs = stats.binomtest(k, n, alternative=alternative).proportion_ci(confidence, method="exact")
        assert list(ours) == pytest.approx([theirs.low, theirs.high], rel=1e-9, abs=1e-12)


@given(counts(), errors)
def test_the_upper_bound_is_the_budget_at_which_the_p_value_is_the_error(count, error):
    k, n = count
    if k < n:
        assert binomial_tail(k, n, upper_bound(k, n, error)) == pytest.approx(error, rel=1e-9)


@given(counts(), errors)
def test_bounds_enclose_the_estimate_and_are_never_nan(count, error):
    k, n = count
    assert 0 <= lower_bound(k, n, error) <= k / n <= upper_bound(k, n, error) <= 1
    assert upper_bound(k, n, error / 2) >= upper_bound(k, n, error)


def test_bounds_of_arrays_are_the_bounds_of_each_element():
    k, n = np.array([0, 3, 20, 7]), np.array([20, 20, 20, 50])
    for bound in (upper_bound, lower_bound):
        expected = [bound(int(a), int(b), 0.05) for a, b in zip(k, n, strict=True)]
        assert np.array_equal(bound(k, n, 0.05), expected)
    both = clopper_pearson(k, n, 0.9)
    assert np.array_equal(both.lower, lower_bound(k, n, (1 - 0.9) / 2))
    assert np.array_equal(both.upper, upper_bound(k, n, (1 - 0.9) / 2))
    assert type(clopper_pearson(3, 20).lower) is float


@pytest.mark.parametrize(("n", "error"), [(1, 0.1), (13, 0.05), (40, 0.1), (97, 0.1 / 7)])
def test_bounds_cover_every_risk_by_exact_enumeration(n, error):
    k = np.arange(n + 1)
    upper, lower = upper_bound(k, n, error), lower_bound(k, n, error)
    two_sided = clopper_pearson(k, n, 1 - error)
    for risk in np.linspace(0, 1, 401):
        chance = stats.binom.pmf(k, n, risk)
        assert chance[risk > upper].sum() <= error + 1e-12
        assert chance[risk < lower].sum() <= error + 1e-12
        assert chance[(risk < two_sided.lower) | (risk > two_sided.upper)].sum() <= error + 1e-12


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: clopper_pearson(0, 0), "n=0"),
        (lambda: clopper_pearson(3.0, 10), r"k=3\.0"),
        (lambda: clopper_pearson(3, 10, 95), r"confidence=95\.0"),
        (lambda: upper_bound(11, 10, 0.1), "k=11 of n=10"),
        (lambda: upper_bound(1, 10, 0.0), r"error=0\.0"),
        (lambda: lower_bound(-1, 10, 0.1), "k=-1"),
        (lambda: lower_bound(1, 10, float("nan")), "error=nan"),
    ],
)
def test_refuses_and_repeats_what_it_was_given(call, says):
    with pytest.raises(ValueError, match=says):
        call()
