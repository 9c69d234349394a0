"""P-values of bounded losses, against exact enumeration, exact arithmetic and an independent library."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_redline.stats.bounded import UNIT, betting, hoeffding, hoeffding_bentkus, in_units
from pytest_redline.stats.risk import binomial_tail

LEVEL = 0.10 / 7


@st.composite
def totals(draw):
    """A sum of n losses in units of 1/unit."""
    n, unit = draw(st.integers(1, 60)), draw(st.sampled_from([1, 2, 3, 10]))
    return draw(st.integers(0, n * unit)), n, unit


budgets = st.floats(0.01, 0.99)


# -- Counts that the notes and the literature give ------------------------------------------------------------------


@pytest.mark.parametrize(("p_value", "critical"), [(hoeffding, 54), (hoeffding_bentkus, 77), (binomial_tail, 80)])
def test_most_violations_that_pass_among_1012_prompts(p_value, critical):
    k = np.arange(200)
    assert np.flatnonzero(p_value(k, 1012, 0.10) <= LEVEL).tolist() == list(range(critical + 1))


def test_power_at_a_risk_of_seven_percent_falls_from_exact_to_closed_form_to_betting():
    losses = (np.random.default_rng(5).random((2_000, 1012)) < 0.07).astype(float)
    exact, closed = binomial_tail(80, 1012, 0.07), binomial_tail(77, 1012, 0.07)
    assert (exact, closed) == (pytest.approx(0.882, abs=0.001), pytest.approx(0.795, abs=0.001))
    assert np.mean(betting(losses, 0.10) <= LEVEL) == pytest.approx(0.73, abs=0.03)


def test_betting_passes_steady_losses_that_sums_alone_do_not():
    losses = np.full(200, 0.03)
    assert betting(losses, 0.05) < LEVEL * 7 < hoeffding_bentkus(in_units(losses).sum(), 200, 0.05, UNIT)


# -- Independent computations ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(totals(), budgets)
def test_closed_forms_equal_their_formulas_in_many_digits(total, alpha):
    k, n, unit = total
    with mpmath.workdps(40):
        a, mean = mpmath.mpf(alpha), mpmath.mpf(k) / (n * unit)
        low = min(mean, a)
        distance = (low * mpmath.log(low / a) if low else 0) + (
            (1 - low) * mpmath.log((1 - low) / (1 - a)) if low < 1 else 0
        )
        count = math.ceil(Fraction(k, unit))
        tail = sum(mpmath.binomial(n, i) * a**i * (1 - a) ** (n - i) for i in range(count + 1))
        both = min(mpmath.exp(-n * distance), mpmath.e * tail, 1)
        plain = mpmath.exp(-2 * n * max(a - mean, 0) ** 2)
    assert float(hoeffding_bentkus(k, n, alpha, unit)) == pytest.approx(float(both), rel=1e-10)
    assert float(hoeffding(k, n, alpha, unit)) == pytest.approx(float(plain), rel=1e-10)


def mapie(k, n, alpha):
    from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value  # slow to import

    return compute_hoeffding_bentkus_p_value(np.atleast_1d(k) / n, n, alpha)[:, 0]


@pytest.mark.parametrize("alpha", [0.05, 0.10, 0.30])
def test_closed_form_equals_mapie_where_rates_are_exact(alpha):
    k = np.arange(1, 512)
    np.testing.assert_allclose(hoeffding_bentkus(k, 512, alpha), np.minimum(mapie(k, 512, alpha), 1), rtol=1e-9)


@pytest.mark.parametrize(("k", "n"), [(29, 420), (25, 664)])
def test_a_count_is_never_rounded_up_by_way_of_its_rate(k, n):
    assert math.ceil(n * (k / n)) == k + 1, "no longer a trap"
    alpha = k / n + 0.05
    assert hoeffding_bentkus(k, n, alpha) == pytest.approx(math.e * binomial_tail(k, n, alpha))
    assert mapie(k, n, alpha) == pytest.approx(math.e * binomial_tail(k + 1, n, alpha))


def bet_by_bet(losses, alpha, delta=0.10, cap=0.75):
    """The same capital, one prompt after the other."""
    n = len(losses)
    total, squares, variance, capital, most = 0.5, 0.25, 0.25, 1.0, 1.0
    for i, loss in enumerate(losses, start=1):
        capital *= 1 - min(cap / (1 - alpha), math.sqrt(2 * math.log(1 / delta) / (n * variance))) * (loss - alpha)
        most = max(most, capital)
        total += loss
        squares += (loss - total / (i + 1)) ** 2
        variance = squares / (i + 1)
    return 1 / most


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), budgets, budgets, budgets)
def test_betting_equals_the_bets_made_one_by_one(losses, alpha, delta, cap):
    assert float(betting(losses, alpha, delta, cap)) == pytest.approx(bet_by_bet(losses, alpha, delta, cap), rel=1e-9)


def test_rows_are_judged_as_if_alone():
    rng = np.random.default_rng(1)
    losses = rng.beta(1, 20, (3, 4, 50))
    alone = [[float(betting(row, 0.08)) for row in block] for block in losses]
    np.testing.assert_allclose(betting(losses, 0.08), alone, rtol=1e-12)


# -- Validity -------------------------------------------------------------------------------------------------------

AT_THE_BUDGET = [  # probability of a loss of 0, 1/2 and 1; the expected loss is the budget itself
    (0.20, (0.80, 0.00, 0.20)),
    (0.20, (0.60, 0.40, 0.00)),
    (0.20, (0.70, 0.20, 0.10)),
    (0.50, (0.25, 0.50, 0.25)),
    (0.50, (0.00, 1.00, 0.00)),
]


def worst_excess(p, probability):
    """The largest P(p <= u) - u over every value u that p takes."""
    order = np.argsort(p)
    reached = np.cumsum(probability[order])
    last = np.append(np.diff(p[order]) > 1e-12, True)
    return (reached - p[order])[last].max()


@pytest.mark.parametrize(("alpha", "chances"), AT_THE_BUDGET)
@pytest.mark.parametrize("name", ["hoeffding", "hoeffding-bentkus", "betting"])
def test_no_level_is_met_more_often_than_it_says(name, alpha, chances):
    losses = np.array(list(itertools.product((0.0, 0.5, 1.0), repeat=9)))
    probability = np.prod(np.choose((losses * 2).astype(int), chances), axis=1)
    assert probability.sum() == pytest.approx(1)
    halves = (losses * 2).sum(axis=1).astype(int)
    p = {
        "hoeffding": lambda: hoeffding(halves, 9, alpha, 2),
        "hoeffding-bentkus": lambda: hoeffding_bentkus(halves, 9, alpha, 2),
        "betting": lambda: betting(losses, alpha),
    }[name]()
    assert worst_excess(p, probability) <= 1e-9


def test_the_enumeration_tells_a_p_value_that_is_too_small():
    losses = np.array(list(itertools.product((0.0, 1.0), repeat=9)))
    probability = np.prod(np.where(losses > 0, 0.2, 0.8), axis=1)
    assert worst_excess(betting(losses, 0.2) / 2, probability) > 0.01


def test_in_file_order_of_two_kinds_of_prompts_betting_promises_nothing():
    """512 easy prompts, then 500 hard ones: the capital peaks before the hard ones come."""
    rng = np.random.default_rng(3)
    risk = np.where(np.arange(1012) < 512, 0.02, 0.182)
    losses = (rng.random((400, 1012)) < risk).astype(float)
    assert np.mean(betting(losses, 0.10) <= 0.10) > 0.9
    assert np.mean(betting(rng.permuted(losses, axis=1), 0.10) <= 0.10) < 0.15


@given(totals(), budgets)
def test_a_larger_loss_never_makes_a_p_value_smaller(total, alpha):
    k, n, unit = total
    if k < n * unit:
        for p_value in (hoeffding, hoeffding_bentkus):
            assert p_value(k, n, alpha, unit) <= p_value(k + 1, n, alpha, unit) * (1 + 1e-12)


# -- Units ----------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1))
def test_units_round_up_by_less_than_one(loss):
    units = int(in_units(loss))
    assert Fraction(loss) - Fraction(1, 10**13) <= Fraction(units, UNIT) < Fraction(loss) + Fraction(1, UNIT)


def test_ten_tenths_are_one():
    assert in_units([0.1] * 10).sum() == UNIT
    assert in_units([1.0 - 0.9] * 10).sum() == UNIT


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda: hoeffding(11, 10, 0.1), "total=11 of n=10"),
        (lambda: hoeffding(-1, 10, 0.1), "total=-1"),
        (lambda: hoeffding(1.0, 10, 0.1), "counts are whole numbers"),
        (lambda: hoeffding_bentkus(0, 0, 0.1), "n=0"),
        (lambda: hoeffding_bentkus(1, 10, 0.1, unit=0), "unit=0"),
        (lambda: hoeffding_bentkus(1, 10, 1.0), "alpha=1.0"),
        (lambda: betting([], 0.1), "n >= 1"),
        (lambda: betting([0.5, 1.5], 0.1), "holds 1.5"),
        (lambda: betting([0.5, math.nan], 0.1), "holds nan"),
        (lambda: betting([0.5], 0.0), "alpha=0.0"),
        (lambda: betting([0.5], 0.1, delta=1.0), "delta=1.0"),
        (lambda: betting([0.5], 0.1, cap=1.0), "cap=1.0"),
        (lambda: in_units(-0.1), "holds -0.1"),
    ],
)
def test_what_is_no_loss_is_refused(call, found):
    with pytest.raises(ValueError, match=found):
        call()
