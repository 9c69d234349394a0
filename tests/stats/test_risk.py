"""The exact binomial tail and the counts and sample sizes that follow from it."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_redline.stats.risk import binomial_tail, fewest_prompts, largest_passing

budgets = st.floats(0.001, 0.999)


@st.composite
def counts(draw, largest=60):
    n = draw(st.integers(1, largest))
    return draw(st.integers(0, n)), n


def exact_tail(k: int, n: int, alpha: float) -> Fraction:
    """The sum itself, in whole numbers; alpha is taken as the binary fraction that the float is."""
    part, whole = alpha.as_integer_ratio()
    rest = whole - part
    return Fraction(sum(comb(n, i) * part**i * rest ** (n - i) for i in range(k + 1)), whole**n)


def relative_error(value: float, exact: Fraction) -> float:
    return float(abs(Fraction(value) - exact) / exact)


@settings(deadline=None)
@given(counts(), budgets)
def test_tail_equals_the_exact_sum(count, alpha):
    k, n = count
    assert relative_error(binomial_tail(k, n, alpha), exact_tail(k, n, alpha)) <= 1e-12


@pytest.mark.parametrize(
    ("k", "n", "alpha"),
    [
        (73, 1012, 0.10),
        (54, 1012, 0.20),
        (40, 1012, 0.20),  # 8e-51
        (0, 1012, 0.20),
        (59, 542, 0.15),
        (500, 1012, 0.90),
        (0, 5000, 0.10),
        (100, 5000, 0.10),
        (480, 5000, 0.10),
        (4, 2000, 0.30),
        (1011, 1012, 0.5),
    ],
)
def test_tail_keeps_its_digits_where_it_is_tiny(k, n, alpha):
    assert relative_error(binomial_tail(k, n, alpha), exact_tail(k, n, alpha)) <= 1e-11


@given(counts(5000), budgets)
def test_tail_rises_with_k_and_falls_with_alpha(count, alpha):
    k, n = count
    p = binomial_tail(k, n, alpha)
    if k < n:
        assert binomial_tail(k + 1, n, alpha) >= p
    assert binomial_tail(k, n, min(alpha * 1.01, 0.9999)) <= p
    assert binomial_tail(k, n + 1, alpha) <= p


@given(st.integers(1, 100_000), budgets)
def test_tail_of_all_prompts_is_exactly_one(n, alpha):
    assert binomial_tail(n, n, alpha) == 1.0


def test_tail_of_arrays_is_the_tail_of_each_element():
    k = np.array([[0, 5, 12], [3, 1, 7]])
    n = np.array([12, 30, 12])
    alpha = np.array([[0.1], [0.3]])
    expected = [[binomial_tail(int(k[i, j]), int(n[j]), float(alpha[i, 0])) for j in range(3)] for i in range(2)]
    assert np.array_equal(binomial_tail(k, n, alpha), expected)
    assert np.array_equal(binomial_tail(5, 20, np.array([0.1, 0.2])), [binomial_tail(5, 20, a) for a in (0.1, 0.2)])
    assert type(binomial_tail(5, 20, 0.1)) is float
    assert binomial_tail(np.array([], dtype=np.int64), 20, 0.1).shape == (0,)


@pytest.mark.parametrize(
    ("k", "n", "alpha", "says"),
    [
        (3.0, 10, 0.1, r"k=3\.0"),
        (np.array([0.07]), 10, 0.1, "float64"),
        (True, 10, 0.1, "k=True"),
        ("3", 10, 0.1, "k='3'"),
        (float("nan"), 10, 0.1, "k=nan"),
        (3, 10.0, 0.1, r"n=10\.0"),
        (-1, 10, 0.1, "k=-1 of n=10"),
        (11, 10, 0.1, "k=11 of n=10"),
        (np.array([3, 12]), 10, 0.1, "k=12 of n=10"),
        (0, 0, 0.1, "n=0"),
        (0, -5, 0.1, "n=-5"),
        (3, 10, 0.0, r"alpha=0\.0"),
        (3, 10, 1.0, r"alpha=1\.0"),
        (3, 10, -0.1, r"alpha=-0\.1"),
        (3, 10, 10, r"alpha=10\.0"),
        (3, 10, float("nan"), "alpha=nan"),
        (3, 10, np.array([0.1, np.nan]), "alpha=nan"),
    ],
)
def test_tail_refuses_and_repeats_what_it_was_given(k, n, alpha, says):
    with pytest.raises(ValueError, match=says):
        binomial_tail(k, n, alpha)


def test_zero_and_all_violations_at_few_prompts():
    assert binomial_tail(0, 22, 0.10) == pytest.approx(0.09848, abs=5e-6)
    assert binomial_tail(0, 21, 0.10) == pytest.approx(0.10942, abs=5e-6)
    assert binomial_tail(22, 22, 0.10) == 1.0


@pytest.mark.parametrize(
    ("alpha", "level", "n"),
    [
        (0.10, 0.10, 22),
        (0.10, 0.10 / 2, 29),
        (0.10, 0.10 / 7, 41),
        (0.05, 0.10 / 7, 83),
        (0.02, 0.10 / 7, 211),
        (0.5, 0.125, 3),
        (0.25, 0.75, 1),
        (0.999, 0.5, 1),
    ],
)
def test_fewest_prompts_at_known_values(alpha, level, n):
    assert fewest_prompts(alpha, level) == n


@given(budgets, st.floats(1e-9, 0.999))
def test_fewest_prompts_passes_and_one_fewer_does_not(alpha, level):
    n = fewest_prompts(alpha, level)
    assert binomial_tail(0, n, alpha) <= level
    assert n == 1 or binomial_tail(0, n - 1, alpha) > level


@given(budgets, st.integers(1, 3000))
def test_fewest_prompts_at_a_level_that_is_met_exactly(alpha, n):
    level = binomial_tail(0, n, alpha)
    if 1e-300 < level < 1:
        assert fewest_prompts(alpha, level) == n


def test_fewest_prompts_of_a_tiny_budget_is_still_found():
    assert fewest_prompts(1e-9, 0.05) == pytest.approx(-np.log(0.05) * 1e9, rel=1e-6)


@pytest.mark.parametrize(("steps", "k"), [(8, 79), (7, 80), (1, 88), (50, 74)])
def test_largest_passing_at_known_values(steps, k):
    assert largest_passing(1012, 0.10, 0.10 / steps) == k


@given(st.integers(1, 5000), budgets, st.floats(1e-9, 0.999))
def test_largest_passing_passes_and_one_more_does_not(n, alpha, level):
    k = largest_passing(n, alpha, level)
    assert -1 <= k < n
    assert k == -1 or binomial_tail(k, n, alpha) <= level
    assert binomial_tail(k + 1, n, alpha) > level
    assert (k == -1) == (n < fewest_prompts(alpha, level))


@given(counts(2000).filter(lambda count: count[0] < count[1]), st.floats(0.01, 0.99))
def test_a_p_value_equal_to_the_level_passes(count, alpha):
    k, n = count
    level = binomial_tail(k, n, alpha)
    if 1e-300 < level < 1 and binomial_tail(k + 1, n, alpha) > level:
        assert largest_passing(n, alpha, level) == k


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fewest_prompts(0.0, 0.1), r"alpha=0\.0"),
        (lambda: fewest_prompts(0.1, 1.0), r"level=1\.0"),
        (lambda: fewest_prompts(0.1, float("nan")), "level=nan"),
        (lambda: largest_passing(0, 0.1, 0.1), "n=0"),
        (lambda: largest_passing(10.0, 0.1, 0.1), r"n=10\.0"),
        (lambda: largest_passing(10, 1.5, 0.1), r"alpha=1\.5"),
        (lambda: largest_passing(10, 0.1, 0.0), r"level=0\.0"),
    ],
)
def test_sizes_refuse_and_repeat_what_they_were_given(call, says):
    with pytest.raises(ValueError, match=says):
        call()
