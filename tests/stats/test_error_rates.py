"""The promise itself: how often anything is certified wrongly, counted exactly or in seeded simulations.

A simulated rate may exceed its bound by chance. The allowance is exact: no more errors than a binomial at the bound
itself would show with probability one in a million.
"""

import numpy as np
import pytest
from scipy import stats

from pytest_redline.stats.intervals import upper_bound
from pytest_redline.stats.multiplicity import holm
from pytest_redline.stats.risk import binomial_tail

DELTA = 0.10
DRAWS = 4_000
N = 1_012
MOST_ERRORS = stats.binom.ppf(1 - 1e-6, DRAWS, DELTA)


def independent(rng, risks, n):
    return rng.binomial(n, risks, (DRAWS, len(risks)))


def equal(rng, risks, n):
    """The same loss for all: prompt by prompt, a configuration of smaller risk fails on a part of the prompts."""
    levels, which = np.unique(risks, return_inverse=True)
    steps = rng.multinomial(n, np.diff([0.0, *levels, 1.0]), DRAWS)
    return np.cumsum(steps[:, :-1], axis=1)[:, which]


def exclusive(rng, risks, n):
    """Losses as negatively dependent as they can be: no prompt is violated by two configurations."""
    return rng.multinomial(n, [*risks, max(0.0, 1 - sum(risks))], DRAWS)[:, :-1]


def wrongly_certified(k, alpha, null, rule):
    """How many of the draws certify a configuration whose risk is not below alpha; the reference is the first row."""
    violations = np.column_stack([np.zeros(len(k), dtype=np.int64), k])
    p = binomial_tail(violations, N, alpha)
    return sum(bool(rule(row)[1:][null].any()) for row in p)


@pytest.mark.parametrize("losses", [independent, equal, exclusive])
@pytest.mark.parametrize(("m", "alpha"), [(2, 0.10), (7, 0.10), (50, 0.02)])
def test_family_wise_error_with_every_candidate_at_the_budget(losses, m, alpha):
    k = losses(np.random.default_rng(m), np.full(m - 1, alpha), N)
    assert wrongly_certified(k, alpha, np.full(m - 1, True), lambda p: holm(p, DELTA)) <= MOST_ERRORS


@pytest.mark.parametrize("losses", [independent, equal, exclusive])
@pytest.mark.parametrize(("m", "alpha"), [(7, 0.10), (50, 0.02)])
def test_family_wise_error_with_some_candidates_safe(losses, m, alpha):
    risks = np.where(np.arange(m - 1) % 2 == 0, alpha, alpha / 2)
    k = losses(np.random.default_rng(100 + m), risks, N)
    assert wrongly_certified(k, alpha, risks >= alpha, lambda p: holm(p, DELTA)) <= MOST_ERRORS


@pytest.mark.parametrize("m", [7, 50])
def test_the_simulation_tells_a_rule_without_correction_apart(m):
    alpha = 0.10 if m == 7 else 0.02
    k = independent(np.random.default_rng(m), np.full(m - 1, alpha), N)
    assert wrongly_certified(k, alpha, np.full(m - 1, True), lambda p: p <= DELTA) > MOST_ERRORS


@pytest.mark.parametrize("alpha", [0.02, 0.10, 0.20])
@pytest.mark.parametrize("level", [0.10, 0.10 / 7, 0.10 / 50])
def test_size_of_the_single_test_never_exceeds_its_level(alpha, level):
    for n in [*range(1, 300, 7), 1_012, 5_000]:
        k = np.arange(n + 1)
        passes = binomial_tail(k, n, alpha) <= level
        for risk in (alpha, alpha + 0.01):
            assert stats.binom.pmf(k, n, risk)[passes].sum() <= level * (1 + 1e-9)


@pytest.mark.parametrize("losses", [independent, exclusive])
@pytest.mark.parametrize("m", [2, 7, 50])
def test_simultaneous_bounds_cover_all_candidates_together(losses, m):
    risks = np.linspace(0.002, 0.035, m - 1)
    bounds = upper_bound(np.arange(N + 1), N, DELTA / (m - 1))
    k = losses(np.random.default_rng(200 + m), risks, N)
    assert (bounds[k] < risks).any(axis=1).sum() <= MOST_ERRORS


def test_pointwise_bounds_do_not_cover_all_candidates_together():
    risks = np.linspace(0.04, 0.10, 6)
    k = independent(np.random.default_rng(9), risks, N)
    assert (upper_bound(np.arange(N + 1), N, DELTA)[k] < risks).any(axis=1).sum() > MOST_ERRORS


def test_an_alpha_picked_after_the_data_errs_more_often_but_within_its_bound():
    """An error at some alpha is one at a candidate's own risk, the largest alpha at which it must not pass."""
    risks = np.linspace(0.02, 0.20, 6)
    k = np.column_stack([np.zeros(DRAWS, dtype=np.int64), independent(np.random.default_rng(10), risks, N)])
    at_own_risk = [holm(binomial_tail(k, N, risk), DELTA)[:, row] for row, risk in enumerate(risks, start=1)]
    errors = np.any(at_own_risk, axis=0).sum()
    bound = DELTA * sum(1 / rank for rank in range(1, len(risks) + 1))
    assert MOST_ERRORS < errors <= stats.binom.ppf(1 - 1e-6, DRAWS, bound)
