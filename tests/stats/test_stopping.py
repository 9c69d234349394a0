"""Early stopping: verdicts that do not change, sizes that hold, and the shares that were computed for them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_redline.stats.multiplicity import holm
from pytest_redline.stats.risk import binomial_tail, largest_passing
from pytest_redline.stats.stopping import (
    Boundaries,
    Looks,
    boundaries,
    decided_p,
    equally_spaced,
    expected,
    final,
    fixed,
    p_bounds,
    spread,
    steps,
    upper_bound_over_looks,
)

N, ALPHA, DELTA, M = 1012, 0.10, 0.10, 7
TEN = spread(equally_spaced(N, 10), 0.2)


def certify(p: np.ndarray) -> np.ndarray:
    return holm(p, DELTA)


def counts_at(losses: np.ndarray, known: np.ndarray, looks: Looks) -> tuple[np.ndarray, np.ndarray]:
    """Ones and unknown ones ``[L, m]`` of losses ``[m, n]``."""
    ones = np.stack([(losses & known)[:, :size].sum(axis=1) for size in looks.sizes])
    return ones, np.stack([(~known[:, :size]).sum(axis=1) for size in looks.sizes])


# -- bounds and final verdicts


@st.composite
def partial(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Looks]:
    """Losses of a small grid, what is known of them, and looks."""
    m, n = draw(st.integers(2, 6)), draw(st.integers(30, 90))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    losses = random.random((m, n)) < random.choice([0.0, 0.02, 0.05, 0.1, 0.3], size=(m, 1))
    losses[0] = False
    served = random.integers(0, n + 1, size=(m, 1))
    known = (np.arange(n) < served) | (random.random((m, n)) < draw(st.sampled_from([0.0, 0.5])))
    sizes = tuple(sorted({int(size) for size in random.integers(1, n, size=3)} | {n}))
    return losses, known, spread(sizes, 0.3) if draw(st.booleans()) and len(sizes) > 1 else fixed(n)


@given(partial())
@settings(max_examples=150, deadline=None)
def test_whatever_is_unknown_no_final_verdict_is_ever_turned(case):
    losses, known, looks = case
    bounds = p_bounds(*counts_at(losses, known, looks), looks, ALPHA)
    whole = p_bounds(*counts_at(losses, np.ones_like(known), looks), looks, ALPHA)
    assert (whole.low == whole.high).all()
    assert (bounds.low <= whole.low).all()
    assert (whole.high <= bounds.high).all()
    now, later = final(bounds, certify), certify(whole.high)
    assert not (now.certified & ~later).any()
    assert not (later & ~now.possible).any()


@given(partial())
@settings(max_examples=150, deadline=None)
def test_stated_p_values_give_the_verdicts_back(case):
    losses, known, looks = case
    bounds = p_bounds(*counts_at(losses, known, looks), looks, ALPHA)
    now = final(bounds, certify)
    stated = decided_p(bounds, *now)
    assert (certify(stated) == now.certified).all()
    assert (stated[~now.possible] == bounds.low[~now.possible]).all()


def test_without_looks_both_ends_stand_at_the_declared_n():
    low, high = p_bounds([[0, 40]], [[1012, 100]], fixed(N), ALPHA)
    assert low.tolist() == [binomial_tail(0, N, ALPHA), binomial_tail(40, N, ALPHA)]
    assert high.tolist() == [1.0, binomial_tail(140, N, ALPHA)]


def test_a_look_that_was_taken_stays_in_both_ends_whatever_follows():
    looks = spread((128, 512), 0.2)
    ones, unknown = np.array([[1], [1 + 200]]), np.array([[0], [100]])
    early = binomial_tail(1, 128, ALPHA) / 0.2
    low, high = p_bounds(ones, unknown, looks, ALPHA)
    assert low == high == [early]
    assert early < 1e-3


def test_a_size_of_zero_says_nothing():
    looks = Looks((0, 50), (0.2, 0.8))
    low, _ = p_bounds([[0], [3]], [[0], [0]], looks, ALPHA)
    assert low[0] == min(1, binomial_tail(3, 50, ALPHA) / 0.8)


@given(st.integers(0, 60), st.integers(0, 40), st.floats(0.001, 0.5))
@settings(max_examples=100, deadline=None)
def test_the_upper_bound_meets_alpha_exactly_where_p_meets_the_level(k, unknown, level):
    looks = spread((60, 200), 0.25)
    ones, open_losses = np.array([[min(k, 60)], [k]]), np.array([[max(0, min(unknown, 60 - k))], [unknown]])
    bound = upper_bound_over_looks(ones, open_losses, looks, level)
    p = p_bounds(ones, open_losses, looks, ALPHA).high
    if abs(p[0] - level) > 1e-9:
        assert (bound[0] <= ALPHA) == (p[0] <= level)


@pytest.mark.parametrize(
    ("sizes", "early"), [((100,), 0.2), ((100, 100), 0.2), ((0, 100), 0.2), ((50, 100), 0.0), ((50, 100), float("nan"))]
)
def test_looks_that_mean_nothing_are_refused(sizes, early):
    with pytest.raises(ValueError, match=r"looks at|early"):
        spread(sizes, early)


@pytest.mark.parametrize(
    ("ones", "unknown"),
    [([[-1]], [[0]]), ([[1]], [[-1]]), ([[60]], [[41]]), ([[0.5]], [[0]]), ([[0], [0]], [[0], [0]]), ([[0]], [[0, 0]])],
)
def test_counts_that_cannot_be_are_refused(ones, unknown):
    with pytest.raises(ValueError, match=r"between 0 and n|negative|whole numbers|shapes"):
        p_bounds(ones, unknown, fixed(100), ALPHA)


# -- size and power, exactly


def by_enumeration(risk: float, stops: Boundaries, at: Sequence[int]) -> tuple[float, float]:
    """Power and share over all sequences of losses, one by one."""
    n = len(stops.going) - 1
    power = share = 0.0
    for losses in itertools.product((0, 1), repeat=n):
        chance = np.prod([risk if loss else 1 - risk for loss in losses])
        for served in at:
            k = sum(losses[:served])
            if k <= stops.certified[served]:
                power += chance
                break
            if k > stops.going[served]:
                break
        share += chance * served / n
    return power, share


@pytest.mark.parametrize("every", [1, 3, 20])
@pytest.mark.parametrize("looks", [fixed(12), spread((5, 9, 12), 0.4)])
@pytest.mark.parametrize("risk", [0.0, 0.2, 0.6, 1.0])
def test_the_recursion_equals_enumeration(looks, every, risk):
    stops, at = boundaries(looks, 0.5, 0.1, 0.3), steps(looks, every)
    assert expected(risk, stops, at) == pytest.approx(by_enumeration(risk, stops, at), abs=1e-12)


@given(
    st.sets(st.integers(5, 199), min_size=1, max_size=6),
    st.floats(0.05, 0.9),
    st.sampled_from([0.02, 0.05, 0.10, 0.20]),
    st.sampled_from([0.1, 0.1 / 7]),
    st.integers(1, 50),
)
@settings(max_examples=60, deadline=None)
def test_the_size_never_exceeds_the_level_whatever_the_looks(sizes, early, alpha, level, every):
    looks = spread((*sorted(sizes), 200), early)
    assert expected(alpha, boundaries(looks, alpha, level), steps(looks, every)).power <= level * (1 + 1e-9)


def test_the_size_of_ten_looks_is_0103_at_a_nominal_0143():
    size = expected(ALPHA, boundaries(TEN, ALPHA, DELTA / M)).power
    assert f"{size:.4f}" == "0.0103"


def test_looks_declared_after_the_data_would_break_the_level():
    stops = boundaries(TEN, ALPHA, DELTA / M)
    free = np.array([largest_passing(size, ALPHA, DELTA / M) for size in TEN.sizes])
    peeking = stops.certified.copy()
    peeking[list(TEN.sizes)] = free  # the whole level at every look
    assert expected(ALPHA, Boundaries(peeking, stops.going)).power > 2 * DELTA / M


@pytest.mark.parametrize(("risk", "share"), [(0.12, 0.73), (0.15, 0.59), (0.20, 0.44)])
def test_curtailment_uses_the_shares_of_prompts_that_were_computed_for_it(risk, share):
    curtailed = expected(risk, boundaries(fixed(N), ALPHA, DELTA / M, DELTA))
    assert curtailed.share == pytest.approx(share, abs=0.005)
    assert largest_passing(N, ALPHA, DELTA) == 88


def futile(looks: Looks, level: float, chance: float = 0.01, risk: float = 0.07) -> np.ndarray:
    """Largest count at which a configuration of this risk still passes at the end with this chance."""
    n = looks.sizes[-1]
    critical = largest_passing(n, ALPHA, level)
    k = np.arange(critical + 1)
    going = np.full(n + 1, -1)
    for served in range(n + 1):
        left = n - served
        passes = binomial_tail(np.minimum(critical - k, left), left, risk) if left else np.ones(len(k))
        going[served] = k[passes >= chance].max(initial=-1)
    return going


@pytest.mark.parametrize(("risk", "shares"), [(0.12, (0.58, 0.46)), (0.15, (0.40, 0.31)), (0.20, (0.26, 0.20))])
def test_giving_up_the_hopeless_would_save_more_and_cost_almost_no_power(risk, shares):
    for level, share in zip((DELTA, DELTA / M), shares, strict=True):
        stops = boundaries(fixed(N), ALPHA, level)
        hopeless = Boundaries(stops.certified, futile(fixed(N), level))
        assert expected(risk, hopeless).share == pytest.approx(share, abs=0.005)
        assert expected(0.07, stops).power - expected(0.07, hopeless).power < 1e-3


LOOKS_TABLE = [  # risk, power of the fixed sample, power and share of ten looks
    (0.02, 1.0, 1.0, 0.17),
    (0.04, 1.0, 1.0, 0.31),
    (0.05, 1.0, 1.0, 0.43),
    (0.06, 0.994, 0.992, 0.63),
    (0.07, 0.882, 0.858, 0.85),
    (0.08, 0.485, 0.441, 0.95),
    (0.10, 0.013, 0.010, 0.80),
    (0.15, 0.0, 0.0, 0.40),
]


@pytest.mark.parametrize(("risk", "power", "looks_power", "share"), LOOKS_TABLE)
def test_ten_looks_have_the_power_and_the_shares_of_the_table(risk, power, looks_power, share):
    assert expected(risk, boundaries(fixed(N), ALPHA, DELTA / M)).power == pytest.approx(power, abs=6e-4)
    stops = boundaries(TEN, ALPHA, DELTA / M, DELTA)
    hopeless = Boundaries(stops.certified, futile(fixed(N), DELTA))
    assert expected(risk, stops).power == pytest.approx(looks_power, abs=6e-4)
    assert expected(risk, hopeless).share == pytest.approx(share, abs=0.008)


def test_deciding_seldom_serves_more_and_decides_the_same():
    stops = boundaries(TEN, ALPHA, DELTA / M, DELTA)
    often, seldom = (expected(0.08, stops, steps(TEN, every)) for every in (1, 50))
    assert often.power == pytest.approx(seldom.power, abs=1e-12)
    assert often.share < seldom.share < often.share + 50 / N
