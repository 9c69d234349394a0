"""Weighted Holm, and hypotheses counted beside the grid: hand cases, Holm as a special case, power and error rates."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pytest_redline.stats.multiplicity import Family, holm, holm_levels, level_to_meet, share_of_weight
from pytest_redline.stats.risk import binomial_tail

DELTA = 0.10
DRAWS = 2_000
N = 1_012
MOST_ERRORS = stats.binom.ppf(1 - 1e-6, DRAWS, DELTA)

p_values = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.10, 0.05, 0.02, 0.001])), min_size=1)
weight = st.floats(1e-3, 1e3)


def families(m):
    weights = st.lists(weight, min_size=m, max_size=m).map(tuple)
    return st.builds(Family, weights, st.sampled_from([0.0, 0.5, 1.0, 7.0]))


def naive(p, delta, family):
    """The procedure as it is written in textbooks: reject a smallest p/w, as long as it is small enough."""
    left = dict(enumerate(family.weights))
    certified = np.zeros(len(p), dtype=bool)
    while left:
        row = min(left, key=lambda each: p[each] / left[each])
        if p[row] > delta * left[row] / math.fsum([*left.values(), family.others]):
            break
        certified[row] = True
        del left[row]
    return certified


def test_by_hand():
    family = Family((1.0, 2.0, 1.0))
    assert holm_levels([0.5, 0.04, 0.001], 0.12, family).tolist() == pytest.approx([0.12, 0.08, 0.03])
    assert holm([0.5, 0.04, 0.001], 0.12, family).tolist() == [False, True, True]
    assert level_to_meet(1, [0.5, 1.0, 0.001], 0.12, family) == pytest.approx(0.12 * 2 / 3)
    assert level_to_meet(0, [0.5, 1.0, 0.001], 0.12, family) == pytest.approx(0.12 / 3)


@given(p_values, weight, st.integers(0, 60))
def test_equal_weights_are_holm_to_the_last_bit(p, each, beside):
    equal = Family((each,) * len(p))
    assert holm_levels(p, DELTA, equal).tolist() == holm_levels(p, DELTA).tolist()
    assert np.array_equal(holm(p, DELTA, equal), holm(p, DELTA))
    if beside:
        longer = holm([*p, *[1.0] * beside], DELTA)
        assert np.array_equal(holm(p, DELTA, Family(others=beside)), longer[: len(p)])


@given(st.data(), p_values)
def test_equals_the_textbook(data, p):
    family = data.draw(families(len(p)))
    ratios = sorted(value / weight for value, weight in zip(p, family.weights, strict=True))
    if all(high - low > 1e-12 * high or high == low for low, high in itertools.pairwise(ratios)):
        levels = holm_levels(p, DELTA, family)
        if not np.isclose(p, levels, rtol=1e-9).any():  # where rounding decides, both may be right
            assert np.array_equal(holm(p, DELTA, family), naive(p, DELTA, family))


@given(st.data(), p_values)
def test_level_to_meet_is_where_the_verdict_turns(data, p):
    family = data.draw(families(len(p)))
    row = data.draw(st.integers(0, len(p) - 1))
    level = level_to_meet(row, p, DELTA, family)
    assert 0 < level <= DELTA
    for value in (0.0, level * (1 - 1e-9), level * (1 + 1e-9), 1.0):
        moved = list(p)
        moved[row] = value
        assert holm(moved, DELTA, family)[row] == (value < level)


@given(st.data(), p_values)
def test_what_is_counted_beside_the_grid_certifies_nothing_more(data, p):
    family = data.draw(families(len(p)))
    more = family._replace(others=family.others + data.draw(weight))
    assert (holm(p, DELTA, more) <= holm(p, DELTA, family)).all()


def test_share_of_weight():
    for m, beside in [(2, 0), (7, 0), (7, 43)]:
        family = share_of_weight(1, 0.5, m, beside)
        assert family.weights[1] / (sum(family.weights) + family.others) == pytest.approx(0.5)
        assert {*family.weights[:1], *family.weights[2:]} == {1.0}
        assert family.others == beside
    # The served row meets half of delta whatever else is in the grid: 86 violations, where Holm's first step has 74.
    assert holm_levels([1.0, 0.0, *[1.0] * 48], DELTA, share_of_weight(1, 0.5, 50))[1] == pytest.approx(DELTA / 2)


@pytest.mark.parametrize(
    "family",
    [
        Family((1.0,)),
        Family((1.0, 0.0)),
        Family((1.0, -1.0)),
        Family((1.0, math.nan)),
        Family((1.0, math.inf)),
        Family(others=-1.0),
        Family(others=math.nan),
    ],
)
@pytest.mark.parametrize("function", [holm, holm_levels, lambda p, delta, family: level_to_meet(0, p, delta, family)])
def test_refuses_weights_that_are_none(function, family):
    with pytest.raises(ValueError, match=r"weights=|others="):
        function([0.1, 0.2], DELTA, family)


@pytest.mark.parametrize(
    "arguments", [(1, 0.0, 3), (1, 1.0, 3), (1, math.nan, 3), (3, 0.5, 3), (0, 0.5, 1), (0, 0.5, 2, -1)]
)
def test_refuses_a_share_that_is_none(arguments):
    with pytest.raises(ValueError, match=r"share=|row="):
        share_of_weight(*arguments)


# -- What it gains, and that it keeps its promise


def violations(seed, risks, n=N, rho=0.64, levels=40):
    """``[DRAWS, m]`` of a one-factor model in which the losses of two configurations correlate at about 0.28."""
    rng = np.random.default_rng(seed)
    factor = stats.norm.ppf((np.arange(levels) + 0.5) / levels)
    chance = stats.norm.cdf((stats.norm.ppf(risks)[:, None] - rho**0.5 * factor) / (1 - rho) ** 0.5)
    chance *= (risks / chance.mean(axis=1))[:, None]
    prompts = rng.multinomial(n, np.full(levels, 1 / levels), DRAWS)
    k = rng.binomial(prompts[:, None, :], chance).sum(axis=2)
    return np.column_stack([np.zeros(DRAWS, dtype=np.int64), k])


def certified(k, alpha, family=None):
    m = k.shape[1]
    return np.array(
        [holm(p, DELTA, *([] if family is None else [family])) for p in binomial_tail(k, N, alpha)]
    ).reshape(-1, m)


@pytest.mark.parametrize(
    ("m", "alpha", "served", "plain", "weighted"),
    [(50, 0.10, 0.078, (0.37, 0.51), (0.78, 0.86)), (50, 0.09, 0.071, (0.27, 0.34), (0.70, 0.78))],
)
def test_half_the_weight_on_what_is_served(m, alpha, served, plain, weighted):
    """From about .48 to .83, and from .30 to .75, as found with other risks beside it and the same correlation."""
    k = violations(5, np.array([served, *np.linspace(0.035, 0.103, m - 2)]))
    holms, shared = certified(k, alpha), certified(k, alpha, share_of_weight(1, 0.5, m))
    assert plain[0] < holms[:, 1].mean() < plain[1]
    assert weighted[0] < shared[:, 1].mean() < weighted[1]
    assert shared.sum(axis=1).mean() > holms.sum(axis=1).mean() - 1


@pytest.mark.parametrize(("m", "share"), [(7, 0.5), (50, 0.5), (50, 0.9)])
def test_family_wise_error_with_every_candidate_at_the_budget(m, share):
    k = violations(m, np.full(m - 1, 0.10))
    wrong = certified(k, 0.10, share_of_weight(1, share, m))[:, 1:].any(axis=1).sum()
    assert wrong <= MOST_ERRORS
    assert wrong > MOST_ERRORS / 3  # it spends delta, so the bound above could be missed


def test_a_weight_chosen_after_the_outcomes_breaks_the_promise():
    k = violations(7, np.full(6, 0.10))
    best = k[:, 1:].argmin(axis=1) + 1
    wrong = sum(
        bool(holm(p, DELTA, share_of_weight(int(row), 0.9, 7))[1:].any())
        for row, p in zip(best, binomial_tail(k, N, 0.10), strict=True)
    )
    assert wrong > MOST_ERRORS
