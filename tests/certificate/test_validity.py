"""The promise, through the certified path itself: how often a row whose risk is at a budget is certified.

Simulated rates may exceed delta by chance; the allowance is exact: as many errors as a binomial at delta itself shows
with probability one in a million.
"""

from __future__ import annotations

import numpy as np
import pytest
from made_outcomes import make_grid
from scipy import stats

from pytest_redline.budgets import p_values
from pytest_redline.certificate import certify
from pytest_redline.outcomes import Outcomes
from pytest_redline.risks import joint_budgets
from pytest_redline.stats.multiplicity import holm

DELTA = 0.10
DRAWS = 2_500
MOST_ERRORS = stats.binom.ppf(1 - 1e-6, DRAWS, DELTA)
SIZES = {"a": 180, "b": 120}
N = sum(SIZES.values())
GROUPS = tuple(name for name, size in SIZES.items() for _ in range(size))
MEMBERS = {name: np.flatnonzero(np.array(GROUPS) == name) for name in SIZES}
PROMPTS = tuple(map(str, range(N)))


def independent(rng, risk):
    """``[m - 1, N]`` violations from ``[m - 1, N]`` risks, every row with its own luck."""
    return rng.random(risk.shape) < risk


def equal(rng, risk):
    """One luck for all rows: equal risks, equal violations."""
    return rng.random((1, risk.shape[1])) < risk


def exclusive(rng, risk):
    """No prompt is violated by two rows, as far as the risks leave room."""
    upper = np.cumsum(risk, axis=0)
    luck = rng.random((1, risk.shape[1])) * np.maximum(1, upper[-1:])
    return (luck >= upper - risk) & (luck < upper)


LOSSES = [independent, equal, exclusive]


def p_of(grid, violated):
    """``[m]`` p-values of violations ``[m, N]`` of a reference that is always right."""
    outcomes = Outcomes(grid.labels, PROMPTS, ~violated, groups=GROUPS)
    return p_values(joint_budgets(grid, outcomes, MEMBERS, violated.astype(np.float64)))


def wrongly_certified(losses, risks, seed, *, alpha, budgets, null, rule=holm):
    """How many draws certify a row of ``null``; ``risks`` are by row and group, the reference is never violated."""
    rng = np.random.default_rng(seed)
    labels = [f"row{number}" for number in range(len(risks) + 1)]
    grid = make_grid(labels, reference="row0", alpha=alpha, delta=DELTA, groups=budgets)
    by_prompt = np.array([[row[group] for group in GROUPS] for row in risks])
    violated = np.zeros((len(risks) + 1, N), np.bool_)
    errors = 0
    for _ in range(DRAWS):
        violated[1:] = losses(rng, by_prompt)
        errors += bool(rule(p_of(grid, violated), DELTA)[1:][null].any())
    return errors


@pytest.mark.parametrize("losses", LOSSES)
@pytest.mark.parametrize("m", [2, 7])
def test_risk_at_one_groups_budget_is_certified_wrongly_in_at_most_delta_of_draws(losses, m):
    risks = [{"a": 0.0, "b": 0.10}] * (m - 1)  # the pooled risk, .04, is far under its budget
    errors = wrongly_certified(losses, risks, m, alpha=0.10, budgets={"b": 0.10}, null=np.full(m - 1, True))
    assert 0 < errors <= MOST_ERRORS


@pytest.mark.parametrize("losses", LOSSES)
def test_risk_at_the_pooled_budget_is_certified_wrongly_in_at_most_delta_of_draws(losses):
    # Pooled risk .6 * .02 + .4 * .22 = .10, the other budget is met easily.
    risks = [{"a": 0.02, "b": 0.22}] * 3
    errors = wrongly_certified(losses, risks, 5, alpha=0.10, budgets={"b": 0.45}, null=np.full(3, True))
    assert errors <= MOST_ERRORS


@pytest.mark.parametrize("losses", LOSSES)
def test_different_budgets_that_different_rows_miss_are_kept_together(losses):
    risks = [{"a": 0.15, "b": 0.02}, {"a": 0.02, "b": 0.10}, {"a": 0.0, "b": 0.0}, {"a": 0.15, "b": 0.10}]
    null = np.array([True, True, False, True])
    errors = wrongly_certified(losses, risks, 9, alpha=0.20, budgets={"a": 0.15, "b": 0.10}, null=null)
    assert 0 < errors <= MOST_ERRORS


def test_pooled_p_alone_would_certify_a_bad_group_in_most_draws():
    risks = [{"a": 0.0, "b": 0.10}] * 3
    errors = wrongly_certified(independent, risks, 4, alpha=0.10, budgets=None, null=np.full(3, True))
    assert errors > MOST_ERRORS


def test_without_correction_across_rows_the_simulation_shows_more_errors_than_delta():
    risks = [{"a": 0.0, "b": 0.10}] * 6
    errors = wrongly_certified(
        independent,
        risks,
        6,
        alpha=0.10,
        budgets={"b": 0.10},
        null=np.full(6, True),
        rule=lambda p, delta: p <= delta,
    )
    assert errors > MOST_ERRORS


def test_whole_certificates_err_in_at_most_delta_of_draws():
    """``certify`` itself, the reference being right on a part of the prompts only."""
    draws, n, m = 200, 150, 4
    most = stats.binom.ppf(1 - 1e-6, draws, DELTA)
    rng = np.random.default_rng(11)
    grid = make_grid([f"row{number}" for number in range(m)], reference="row0", alpha=0.10, delta=DELTA)
    prompts = tuple(map(str, range(n)))
    errors = 0
    for _ in range(draws):
        correct = np.empty((m, n), np.bool_)
        correct[0] = rng.random(n) < 0.8
        # Given a right reference the row is wrong with probability .125: the joint risk is .10.
        correct[1:] = ~independent(rng, np.full((m - 1, n), 0.125))
        certificate = certify(grid, Outcomes(grid.labels, prompts, correct), intervals=False)
        errors += any(row.certified for row in certificate.configurations[1:])
    assert 0 < errors <= most


def test_simulated_rule_is_the_one_that_certificates_are_made_with():
    rng = np.random.default_rng(13)
    grid = make_grid([f"row{number}" for number in range(5)], reference="row0", alpha=0.10, groups={"b": 0.12})
    seen = set()
    for _ in range(30):
        violated = rng.random((5, N)) < rng.choice([0.03, 0.06, 0.09], (5, 1))
        violated[0] = False
        outcomes = Outcomes(grid.labels, PROMPTS, ~violated, groups=GROUPS)
        rows = certify(grid, outcomes, intervals=False).configurations
        simulated = holm(p_of(grid, violated), DELTA)
        assert [row.certified for row in rows] == simulated.tolist()
        seen |= {tuple(simulated)}
    assert len(seen) > 3


@pytest.mark.parametrize("m", [2, 7])
def test_reference_counts_as_one_of_the_m_rows(m):
    """A candidate's first step is delta/(m - 1), as the reference passes at delta/m before it."""
    grid = make_grid([f"row{number}" for number in range(m)], reference="row0", alpha=0.10, delta=DELTA)
    n = 300
    most = max(k for k in range(n) if stats.binom.cdf(k, n, 0.10) <= DELTA / (m - 1))
    for k, certified in [(most, True), (most + 1, False)]:
        correct = np.ones((m, n), np.bool_)
        correct[1, :k] = False
        correct[2:] = False
        certificate = certify(grid, Outcomes(grid.labels, tuple(map(str, range(n))), correct), intervals=False)
        assert [row.certified for row in certificate.configurations] == [True, certified] + [False] * (m - 2)
