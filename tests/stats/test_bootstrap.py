"""The paired bootstrap: the paper's interval, one stream however it is cut, and honest moments."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from pytest_redline.stats import bootstrap
from pytest_redline.stats.bootstrap import default_resamples, paired_means, percentile_interval

PAPER = json.loads((Path(__file__).parents[1] / "data" / "redline_tables.json").read_text(encoding="utf-8"))


def llada2_math(label: str) -> np.ndarray:
    """Correctness of one configuration: 512 prompts of GSM8K, then 500 of MATH-500."""
    wrong = PAPER["llada2_math_outcomes"]["wrong"][label]
    correct = np.ones(1012)
    correct[wrong["gsm8k"]] = 0
    correct[np.array(wrong["math500"]) + 512] = 0
    return correct


def test_net_accuracy_interval_of_table_5():
    row = PAPER["tables"]["table5"]["rows"][0]
    net = 100 * (llada2_math("acc85/semi70") - llada2_math("acc95/semi90"))
    interval = percentile_interval(paired_means(net[:, None])[:, 0])
    assert round(net.mean(), 1) == row["net"]
    assert [round(interval.lower, 1), round(interval.upper, 1)] == row["net_ci95"]


def test_resamples_do_not_depend_on_how_many_are_held_at_once(monkeypatch):
    values = np.random.default_rng(3).integers(0, 50, (40, 3)).astype(float)
    whole = paired_means(values, resamples=101)
    for size in (1, 40, 41, 400, 4_001):
        monkeypatch.setattr(bootstrap, "_CHUNK", size)
        assert np.array_equal(paired_means(values, resamples=101), whole)


def test_resamples_are_multinomial_counts_of_one_seeded_stream():
    values = np.random.default_rng(4).integers(0, 2, (25, 2)).astype(float)
    weights = np.random.default_rng(7).multinomial(25, np.full(25, 1 / 25), size=60)
    assert np.array_equal(paired_means(values, resamples=60, seed=7), weights @ values / 25)
    assert np.array_equal(paired_means(values, resamples=60), paired_means(values, resamples=60, seed=20260920))


def test_a_column_has_the_same_resamples_whatever_stands_beside_it():
    values = np.random.default_rng(5).integers(0, 900, (60, 4)).astype(float)
    together = paired_means(values, resamples=50)
    assert np.array_equal(together[:, [2]], paired_means(values[:, [2]], resamples=50))
    assert not np.array_equal(together, paired_means(values, resamples=50, seed=1))


def test_columns_are_resampled_together():
    tokens = np.random.default_rng(6).integers(1, 900, 80).astype(float)
    means = paired_means(np.column_stack([tokens, 2 * tokens, np.ones(80)]), resamples=200)
    assert np.array_equal(means[:, 1], 2 * means[:, 0])
    assert np.array_equal(means[:, 2], np.ones(200))


def test_spread_of_the_resamples_is_the_standard_error():
    values = np.random.default_rng(8).normal(3, 2, (400, 1))
    means = paired_means(values)[:, 0]
    assert means.mean() == pytest.approx(values.mean(), abs=0.005)
    assert means.std() == pytest.approx(values.std() / 20, rel=0.03)


def test_many_prompts_stay_within_memory():
    values = np.ones((10_000, 2))
    tracemalloc.start()
    paired_means(values, resamples=2_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200e6


@pytest.mark.parametrize(
    ("n", "resamples"), [(1, 10_000), (1_012, 10_000), (5_000, 10_000), (5_001, 9_998), (50_000, 1_000), (10**6, 1_000)]
)
def test_default_number_of_resamples(n, resamples):
    assert default_resamples(n) == resamples


def test_percentiles_are_interpolated():
    assert percentile_interval(np.arange(1001.0)) == (25.0, 975.0)
    assert percentile_interval(np.array([0.0, 1.0]), confidence=0.5) == (0.25, 0.75)
    assert percentile_interval(np.array([4.0])) == (4.0, 4.0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: paired_means(np.ones(5)), r"shape \(5,\)"),
        (lambda: paired_means(np.ones((0, 2))), r"shape \(0, 2\)"),
        (lambda: paired_means(np.ones((2, 0))), r"shape \(2, 0\)"),
        (lambda: paired_means(np.array([[1.0], [np.nan]])), "holds nan"),
        (lambda: paired_means(np.array([[1.0], [np.inf]])), "holds inf"),
        (lambda: paired_means(np.ones((5, 1)), resamples=0), "resamples=0"),
        (lambda: paired_means(np.ones((5, 1)), resamples=1e4), r"resamples=10000\.0"),
        (lambda: default_resamples(0), "n=0"),
        (lambda: percentile_interval(np.array([])), r"shape \(0,\)"),
        (lambda: percentile_interval(np.ones((3, 2))), r"shape \(3, 2\)"),
        (lambda: percentile_interval(np.array([1.0, np.nan])), "holds nan"),
        (lambda: percentile_interval(np.ones(3), confidence=95), r"confidence=95\.0"),
    ],
)
def test_refuses_and_repeats_what_it_was_given(call, says):
    with pytest.raises(ValueError, match=says):
        call()
