"""How many prompts a configuration needs to pass with a wanted probability."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from pytest_redline.stats.risk import largest_passing, prompts_for_power

TABLE_7 = json.loads((Path(__file__).parents[1] / "data" / "redline_tables.json").read_text(encoding="utf-8"))[
    "tables"
]["table7"]

# alpha, true risk, prompts for power 0.8 at m = 1, 7, 50, for power 0.9 at m = 1, 7, 50; level 0.10/m
SIZES = [
    (0.02, 0.01, 828, 1545, 2274, 1120, 1914, 2775),
    (0.05, 0.01, 105, 188, 273, 132, 248, 336),
    (0.05, 0.02, 209, 412, 592, 282, 489, 698),
    (0.05, 0.03, 515, 977, 1444, 696, 1257, 1776),
    (0.05, 0.04, 2126, 4175, 6217, 2994, 5400, 7710),
    (0.10, 0.04, 104, 190, 279, 140, 242, 345),
    (0.10, 0.05, 152, 292, 422, 210, 366, 522),
    (0.10, 0.06, 245, 473, 692, 335, 601, 846),
    (0.10, 0.07, 446, 863, 1285, 620, 1109, 1567),
    (0.10, 0.08, 1017, 1994, 2966, 1430, 2563, 3668),
    (0.10, 0.09, 4070, 8133, 12179, 5828, 10576, 15138),
    (0.15, 0.10, 229, 444, 653, 318, 564, 798),
    (0.20, 0.15, 297, 571, 847, 409, 735, 1040),
]


def last_missing_by_search(alpha: float, risk: float, level: float, power: float, limit: int) -> int:
    """The last n up to limit at which the power misses the target, every n tried with scipy.stats."""
    n = np.arange(1, limit + 1)
    critical = stats.binom.ppf(level, n, alpha).astype(int) + 1
    while (over := (critical >= 0) & (stats.binom.cdf(critical, n, alpha) > level)).any():
        critical -= over
    return int(n[stats.binom.cdf(critical, n, risk) < power].max(initial=0))


@pytest.mark.parametrize(("alpha", "risk", "sizes"), [(row[0], row[1], row[2:]) for row in SIZES])
def test_sizes_at_known_values(alpha, risk, sizes):
    found = [prompts_for_power(alpha, risk, 0.10 / m, power) for power in (0.8, 0.9) for m in (1, 7, 50)]
    assert found == list(sizes)


@pytest.mark.parametrize("row", TABLE_7["prompts_needed"], ids=lambda row: row["level"])
def test_sizes_of_table_7(row):
    delta, steps = row["level"].split("/")
    assert prompts_for_power(row["alpha"], row["risk"], float(delta) / int(steps), row["power"]) == row["prompts"]


def test_one_candidate_beside_the_reference_needs_its_first_step_only():
    assert prompts_for_power(0.10, 0.07, 0.10) == 446
    assert prompts_for_power(0.10, 0.07, 0.10 / 2) == 593


def test_largest_passing_share_of_table_7():
    row = TABLE_7["largest_passing_r_hat_percent"]
    assert round(100 * largest_passing(row["n"], row["alpha"], 0.10 / 8) / row["n"], 1) == row["value"]


def test_sizes_equal_a_search_over_every_n():
    rng = np.random.default_rng(1)
    limit, compared = 6000, 0
    for _ in range(250):
        alpha = float(rng.uniform(0.02, 0.6))
        risk = alpha * float(rng.uniform(0, 0.93))
        level, power = float(10 ** rng.uniform(-4, -0.5)), float(rng.uniform(0.3, 0.99))
        n = prompts_for_power(alpha, risk, level, power)
        if n is None or n > limit // 2:
            continue
        compared += 1
        assert n == last_missing_by_search(alpha, risk, level, power, limit) + 1, (alpha, risk, level, power)
    assert compared > 100


@pytest.mark.parametrize(
    ("alpha", "risk", "level", "power"),
    [(0.9, 0.88, 0.10, 0.5), (0.95, 0.93, 0.10 / 7, 0.8), (0.8, 0.79, 0.10, 0.5)],
)
def test_sizes_where_many_teeth_in_a_row_straddle_the_target(alpha, risk, level, power):
    last_missing = last_missing_by_search(alpha, risk, level, power, 8_000)
    assert prompts_for_power(alpha, risk, level, power) == last_missing + 1


def test_no_number_of_prompts_helps_at_or_above_the_budget():
    assert prompts_for_power(0.10, 0.10, 0.10) is None
    assert prompts_for_power(0.10, 0.25, 0.10) is None
    assert prompts_for_power(0.10, 1.0, 0.10) is None


def test_beyond_the_limit_nothing_is_named():
    assert prompts_for_power(0.10, 0.07, 0.10, limit=446) == 446
    assert prompts_for_power(0.10, 0.07, 0.10, limit=445) is None
    assert prompts_for_power(0.10, 0.0999, 0.10 / 50) is None
    assert prompts_for_power(1e-9, 0.0, 0.10) is None


def test_without_risk_the_size_is_that_of_zero_violations():
    assert prompts_for_power(0.10, 0.0, 0.10 / 7) == 41


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((0.0, 0.0, 0.1), r"alpha=0\.0"),
        ((0.1, -0.1, 0.1), r"risk=-0\.1"),
        ((0.1, float("nan"), 0.1), "risk=nan"),
        ((0.1, 0.05, 0.0), r"level=0\.0"),
        ((0.1, 0.05, 0.1, 1.0), r"power=1\.0"),
        ((0.1, 0.05, 0.1, 0.8, 0), "limit=0"),
        ((0.1, 0.05, 0.1, 0.8, 1e6), r"limit=1000000\.0"),
    ],
)
def test_refuses_and_repeats_what_it_was_given(arguments, says):
    with pytest.raises(ValueError, match=says):
        prompts_for_power(*arguments)
