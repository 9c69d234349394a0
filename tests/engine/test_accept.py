"""The acceptance rule, one row of numbers at a time."""

from __future__ import annotations

import numpy as np
import pytest

from redline_engine.accept import NEVER, accept, may_open, must_move, quotas, rule_numbers
from redline_engine.config import DecodeKnobs


def taken(confidence, masked=None, moving=True, threshold=0.9, quota=1):
    """Positions that one block accepts."""
    row = np.array([confidence], np.float32)
    mask = np.ones_like(row, bool) if masked is None else np.array([masked], bool)
    result = accept(row, mask, np.array([moving]), np.array([threshold]), np.array([quota]))
    assert not (result & ~mask).any()
    return np.flatnonzero(result[0]).tolist()


def test_confidence_equal_to_the_threshold_is_not_accepted():
    assert taken([0.5, 0.625, 0.25], threshold=0.5) == [1]
    assert taken([0.5, 0.25], threshold=0.5, moving=False) == []


def test_a_block_that_must_move_accepts_its_most_confident_position():
    assert taken([0.3, 0.6, 0.5]) == [1]


def test_a_block_that_need_not_move_still_accepts_what_passes():
    assert taken([0.95, 0.6, 0.99], moving=False) == [0, 2]


def test_equal_confidences_are_taken_from_the_left():
    assert taken([0.2, 0.6, 0.6, 0.6], quota=2) == [1, 2]


def test_resolved_positions_are_never_taken_however_confident():
    assert taken([1.0, 0.3, 0.2], masked=[False, True, True]) == [1]


def test_a_quota_adds_to_what_passes_and_never_exceeds_the_masks():
    assert taken([0.95, 0.6, 0.1, 0.7], quota=2) == [0, 3]
    assert taken([0.95, 0.99, 0.97, 0.7], quota=2) == [0, 1, 2]
    assert taken([0.1, 0.2], masked=[True, False], quota=5) == [0]


def test_a_block_without_masks_accepts_nothing():
    assert taken([0.99, 0.99], masked=[False, False]) == []


def test_nothing_exceeds_never():
    assert taken([1.0, 1.0], threshold=NEVER) == [0]


def test_the_thresholds_on_progress_hold_at_equality():
    assert must_move(np.array([0.5, 0.25]), np.array([0.5, 0.5])).tolist() == [True, False]
    assert may_open(np.array([0.75, 0.5]), np.array([0.75, 0.75])).tolist() == [True, False]


@pytest.mark.parametrize(("steps", "expected"), [(1, [8]), (3, [3, 3, 2]), (4, [2] * 4), (8, [1] * 8)])
def test_steps_spread_a_block_with_the_remainder_first(steps, expected):
    turns = np.arange(steps)
    assert quotas(np.zeros(steps, int), np.full(steps, steps), turns, 8).tolist() == expected


def test_more_steps_than_positions_take_one_at_a_time():
    assert quotas(np.array([0, 0]), np.array([12, 12]), np.array([0, 9]), 8).tolist() == [1, 1]


def test_schedules_are_one_rule_with_other_numbers():
    assert rule_numbers(DecodeKnobs(accept_threshold=0.7)) == (0.7, 1, 0)
    assert rule_numbers(DecodeKnobs(schedule="count", accept_count=3)) == (NEVER, 3, 0)
    assert rule_numbers(DecodeKnobs(schedule="steps", denoising_steps=6)) == (NEVER, 0, 6)
