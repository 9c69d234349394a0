"""Bounds and sample sizes of bounded losses agree with the tests that they turn around."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_redline.stats import mean_bounds
from pytest_redline.stats.bounded import betting, hoeffding_bentkus
from pytest_redline.stats.mean_bounds import fewest_for_betting, largest_passing_total, mean_upper, prompts_for_mean


def test_examples_of_the_docstrings():
    assert doctest.testmod(mean_bounds).failed == 0


@given(n=st.integers(1, 400), share=st.floats(0, 1), level=st.floats(0.001, 0.5))
@settings(max_examples=60, deadline=None)
def test_upper_bound_is_where_the_test_turns(n, share, level):
    unit = 1000
    total = round(share * n * unit)
    bound = mean_upper(total, n, level, unit)
    assert total / (n * unit) <= bound <= 1
    if bound < 1:
        assert hoeffding_bentkus(total, n, bound, unit) <= level
        if bound - 1e-6 > total / (n * unit):
            assert hoeffding_bentkus(total, n, bound - 1e-6, unit) > level


@given(n=st.integers(1, 300), alpha=st.floats(0.01, 0.9), level=st.floats(0.001, 0.5))
@settings(max_examples=60, deadline=None)
def test_largest_passing_total_passes_and_the_next_does_not(n, alpha, level):
    most = largest_passing_total(n, alpha, level, 10)
    assert most < 0 or hoeffding_bentkus(most, n, alpha, 10) <= level
    assert hoeffding_bentkus(most + 1, n, alpha, 10) > level


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3])
def test_fewest_prompts_for_betting_pass_and_one_less_does_not(alpha):
    n = fewest_for_betting(alpha, 0.02)
    assert betting(np.zeros(n), alpha) <= 0.02 < betting(np.zeros(n - 1), alpha)


def test_planned_prompts_pass_about_as_often_as_planned():
    alpha, level, rng = 0.10, 0.02, np.random.default_rng(5)
    n = prompts_for_mean(alpha, 0.05, 0.1, level)
    losses = rng.beta(0.1875, 3.5625, size=(2000, n))  # mean 0.05, standard deviation 0.1
    totals = np.rint(losses.sum(axis=1) * 1000).astype(np.int64)
    assert 0.72 < (hoeffding_bentkus(totals, n, alpha, 1000) <= level).mean() < 0.88


def test_no_number_of_prompts_helps_at_or_above_the_budget():
    assert prompts_for_mean(0.1, 0.1, 0.1, 0.02) is None
    assert prompts_for_mean(0.1, 0.0999, 0.3, 0.02, limit=1000) is None
