"""What a number of prompts can show, and what a pilot says of a larger draw."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_redline.stats.multiplicity import holm
from pytest_redline.stats.planning import Level, alpha_of_zero, levels, pilot, plan, power, reach
from pytest_redline.stats.risk import binomial_tail, fewest_prompts

TABLE_7 = json.loads((Path(__file__).parents[1] / "data" / "redline_tables.json").read_text(encoding="utf-8"))[
    "tables"
]["table7"]


def table_of(*violations: int, n: int = 100) -> np.ndarray:
    """Candidates that are violated on the first so many prompts."""
    return np.array([[prompt < k for prompt in range(n)] for k in violations])


# -- levels, reach, power -----------------------------------------------------------------------------------------


def test_levels_are_those_of_holms_first_and_last_step():
    assert levels(0.12, 4) == (Level("delta/m", 0.03), Level("delta/(m-1)", 0.04), Level("delta", 0.12))
    assert levels(0.10, 2) == (Level("delta/m", 0.05), Level("delta/(m-1)", 0.10))


@pytest.mark.parametrize(("n", "share"), [(512, 0.070), (1012, 0.079), (2000, 0.085), (5000, 0.0906)])
def test_largest_passing_share_at_delta_over_7(n, share):
    row = reach(n, 0.10, 0.10, 7)[0]
    assert round(row.most / n, 4 if n == 5000 else 3) == share
    assert row.share == row.most / n


@pytest.mark.parametrize(("n", "alpha"), [(100, 0.0416), (256, 0.0165), (512, 0.0083), (1012, 0.0042), (5000, 0.0008)])
def test_zero_violations_prove_a_budget(n, alpha):
    level = 0.10 / 7
    assert round(alpha_of_zero(n, level), 4) == alpha
    assert fewest_prompts(alpha_of_zero(n, level) * (1 + 1e-9), level) == n
    assert fewest_prompts(alpha_of_zero(n, level) * (1 - 1e-9), level) == n + 1


def test_below_the_fewest_prompts_nothing_passes():
    assert [fewest_prompts(alpha, 0.10 / 7) for alpha in (0.10, 0.05, 0.02)] == [41, 83, 211]
    assert (reach(40, 0.10, 0.10, 7)[0].most, reach(40, 0.10, 0.10, 7)[0].share) == (-1, None)
    assert reach(41, 0.10, 0.10, 7)[0].most == 0


@given(
    st.integers(1, 800),
    st.one_of(st.just(0.0), st.floats(1e-12, 1)),  # scipy.stats overflows at less
    st.floats(0.01, 0.5),
    st.floats(0.001, 0.2),
)
def test_power_is_the_chance_of_a_count_that_passes(n, risk, alpha, level):
    passing = stats.binom.cdf(np.arange(n + 1), n, alpha) <= level
    if (abs(stats.binom.cdf(np.arange(n + 1), n, alpha) - level) < 1e-12).any():
        return  # scipy.stats and the gate may round to different sides
    assert power(n, risk, alpha, level) == pytest.approx(stats.binom.pmf(np.arange(n + 1), n, risk)[passing].sum())


@given(st.integers(1, 2000), st.floats(0.01, 0.5), st.floats(0.001, 0.2))
def test_at_the_budget_itself_the_power_is_at_most_the_level(n, alpha, level):
    assert power(n, alpha, alpha, level) <= level


# -- plan ---------------------------------------------------------------------------------------------------------


def test_a_lone_candidate_needs_what_its_first_step_does():
    assert plan(0.10, 0.10, 2, 0.07).prompts == (593, 446)


def test_plan_gives_sizes_of_table_7():
    for row in TABLE_7["prompts_needed"]:
        m = int(row["level"].split("/")[1])
        assert plan(row["alpha"], 0.10, m, row["risk"], row["power"]).prompts[0] == row["prompts"]


def test_plan_names_no_number_where_the_risk_is_not_below_the_budget():
    found = plan(0.10, 0.10, 7, 0.10, n=1012)
    assert found.prompts == (None, None, None)
    assert found.power[0] == pytest.approx(0.0130, abs=5e-5)  # the true size at delta/7


def test_the_reference_has_to_pass_first():
    assert plan(0.10, 0.10, 7, 0.0).prompts == (41, 41, 41)
    assert plan(0.10, 0.10, 7, 0.0, n=40).power == (0, 0, 0)
    assert plan(0.10, 0.10, 7, 0.0, n=41).power == (1, 1, 1)


@settings(max_examples=25)
@given(st.floats(0.05, 0.3), st.floats(0, 0.8), st.integers(2, 60))
def test_more_prompts_are_needed_the_stricter_the_level(alpha, share, m):
    sizes = plan(alpha, 0.10, m, share * alpha).prompts
    assert None not in sizes
    assert list(sizes) == sorted(sizes, reverse=True)


# -- pilot --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(60, 300), st.integers(60, 1500))
def test_one_candidate_has_the_beta_binomial_chance_of_jeffreys_prior(k, size, n):
    row = pilot(table_of(k, n=size), n, 0.10, 0.10, 2, draws=1)[0]
    most = reach(n, 0.10, 0.10, 2)[1].most
    assert row.alone == row.at_best == pytest.approx(stats.betabinom.cdf(most, n, k + 0.5, size - k + 0.5), abs=1e-9)
    assert row.as_measured == pytest.approx(stats.binom.cdf(most, n, k / size), abs=1e-12)
    assert row.over_interval.lower <= row.as_measured <= row.over_interval.upper


def test_the_simulation_agrees_with_the_exact_chance_where_there_is_one():
    for k in (3, 7, 12):
        row = pilot(table_of(k), 600, 0.10, 0.10, 2)[0]
        assert row.holm == pytest.approx(row.alone, abs=0.02)


def test_the_simulation_is_that_of_a_plain_loop():
    rng = np.random.default_rng(5)
    shared = rng.random(150) < 0.04
    table = np.array([shared | (rng.random(150) < extra) for extra in (0.0, 0.02, 0.05, 0.2)])
    weights = [0.5, *[1.0] * 150, 0.5]
    prompts = np.hstack([np.zeros((4, 1)), table, np.ones((4, 1))]).astype(int)
    certified = np.zeros(4)
    for _ in range(2000):
        drawn = rng.multinomial(800, rng.dirichlet(weights))
        p = binomial_tail(np.array([0, *(prompts @ drawn)]), 800, 0.10)
        certified += holm(np.concatenate([p, [1.0]]), 0.10)[1:5]  # one more configuration, which fails
    chances = [row.holm for row in pilot(table, 800, 0.10, 0.10, 6)]
    assert chances == pytest.approx(certified / 2000, abs=0.04)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 4), st.integers(45, 900))
def test_the_chance_under_holm_lies_between_its_bounds(violations, others, n):
    rows = pilot(table_of(*violations), n, 0.10, 0.10, len(violations) + 1 + others, draws=2000)
    for row in rows:
        assert row.alone - 0.05 <= row.holm <= row.at_best + 0.05
        assert 0 <= row.alone <= row.at_best <= 1


def test_equal_calls_give_equal_chances_and_other_seeds_others():
    first, again, other = (pilot(table_of(5, 8), 400, 0.10, 0.10, 3, seed=seed)[1].holm for seed in (1, 1, 2))
    assert first == again != other


def test_a_candidate_without_violations_is_not_taken_for_perfect():
    row = pilot(table_of(0, n=30), 29, 0.10, 0.10, 2)[0]
    assert row.as_measured == 1
    assert row.alone == pytest.approx(stats.betabinom.cdf(0, 29, 0.5, 30.5))
    assert row.alone < 0.8


def test_where_the_reference_cannot_pass_nothing_does():
    row = pilot(table_of(0), 40, 0.10, 0.10, 7)[0]
    assert (row.alone, row.holm, row.at_best, row.as_measured, row.prompts) == (0, 0, 0, 0, 41)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: levels(0.1, 1), "m=1"),
        (lambda: levels(1.0, 3), r"delta=1\.0"),
        (lambda: power(0, 0.1, 0.1, 0.1), "n=0"),
        (lambda: power(10, 1.1, 0.1, 0.1), r"risk=1\.1"),
        (lambda: alpha_of_zero(10, 0.0), r"level=0\.0"),
        (lambda: plan(0.1, 0.1, 3, float("nan")), "risk=nan"),
        (lambda: pilot(table_of(1, 2), 100, 0.1, 0.1, 2), "m=2"),
        (lambda: pilot(table_of(1), 100, 0.1, 1.2, 2), r"delta=1\.2"),
        (lambda: pilot(table_of(1), 100, 0.1, 0.1, 2, draws=0), "draws=0"),
        (lambda: pilot(np.zeros((0, 5), dtype=bool), 100, 0.1, 0.1, 2), "shape"),
        (lambda: pilot(np.zeros((1, 5)), 100, 0.1, 0.1, 2), "float64"),
    ],
)
def test_refuses_and_repeats_what_it_was_given(call, says):
    with pytest.raises(ValueError, match=says):
        call()
