"""The exact McNemar test: value, size, and why no two-sample test."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as two_sided

from pytest_redline.stats.paired import mcnemar

LEVEL = 0.05


def exact(b: int, c: int) -> Fraction:
    return sum((Fraction(comb(b + c, j), 2 ** (b + c)) for j in range(b, b + c + 1)), Fraction(0))


def size(flip: float, n: int, level: float) -> float:
    """Chance to reject two runs that each flip n right answers independently, by exact enumeration."""
    one_only = 2 * flip * (1 - flip)  # exactly one of the two is wrong
    return sum(
        stats.binom.pmf(d, n, one_only)
        * sum(stats.binom.pmf(b, d, 0.5) for b in range(d + 1) if mcnemar(b, d - b) <= level)
        for d in range(n + 1)
    )


@given(st.integers(0, 60), st.integers(0, 60))
def test_p_equals_the_rational_sum(b, c):
    assert mcnemar(b, c) == pytest.approx(float(exact(b, c)), rel=1e-12)


@given(st.integers(0, 200), st.integers(0, 200))
def test_statsmodels_two_sided_test_is_twice_the_smaller_one_sided_p(b, c):
    table = [[500, b], [c, 500]]
    assert two_sided(table, exact=True).pvalue == pytest.approx(min(1, 2 * min(mcnemar(b, c), mcnemar(c, b))))


@given(st.integers(0, 300), st.integers(0, 300))
def test_p_falls_with_what_is_worse_and_grows_with_what_is_better(b, c):
    assert mcnemar(b + 1, c) <= mcnemar(b, c) <= mcnemar(b, c + 1)


@pytest.mark.parametrize("d", range(41))
@pytest.mark.parametrize("level", [0.2, 0.1, 0.05, 0.1 / 7])
def test_size_is_at_most_the_level_whatever_number_of_prompts_differ(d, level):
    rejected = sum(Fraction(comb(d, b), 2**d) for b in range(d + 1) if mcnemar(b, d - b) <= level)
    assert rejected <= Fraction(level)


def test_the_next_smaller_count_would_exceed_the_level():
    """Not merely below the level: no rejection region of this kind could be larger."""
    for d in range(5, 41):
        least = min(b for b in range(d + 1) if mcnemar(b, d - b) <= LEVEL)
        assert mcnemar(least - 1, d - least + 1) > LEVEL


def test_correlated_runs_keep_the_size_of_the_paired_test():
    """Half of the flips are of prompts on which both runs fail; a two-sample test then rejects next to never."""
    n, both, single = 60, 0.06, 0.03
    p = np.array([1 - both - 2 * single, both, single, single])
    rng = np.random.default_rng(3)
    drawn = rng.multinomial(n, p, size=4000)
    b, c = drawn[:, 2], drawn[:, 3]
    paired = (mcnemar(b, c) <= LEVEL).mean()
    two_sample = np.mean(
        [
            stats.fisher_exact([[x, n - x], [y, n - y]], "greater")[1] <= LEVEL
            for x, y in zip(drawn[:600, 1] + b[:600], drawn[:600, 1] + c[:600], strict=True)
        ]
    )
    assert paired <= LEVEL + 3 * (LEVEL * (1 - LEVEL) / 4000) ** 0.5
    assert two_sample < 0.01


def test_independent_runs_keep_the_size_by_enumeration():
    for flip in (0.02, 0.1, 0.3):
        assert size(flip, 40, LEVEL) <= LEVEL


def test_arrays_are_taken_elementwise():
    found = mcnemar(np.array([9, 0, 2]), np.array([1, 5, 2]))
    assert found.tolist() == [mcnemar(9, 1), 1.0, mcnemar(2, 2)]
    assert mcnemar(4, 0) == 1 / 16


@pytest.mark.parametrize(
    ("b", "c", "says"), [(-1, 0, "b=-1"), (0, -2, "c=-2"), (1.0, 0, r"b=1\.0"), (True, 0, "b=True")]
)
def test_refuses_what_is_no_count(b, c, says):
    with pytest.raises(ValueError, match=says):
        mcnemar(b, c)
