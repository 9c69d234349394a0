"""Tokens per forward: pooled, and the conventions of others by name."""

from __future__ import annotations

from fractions import Fraction

import pytest

from redline_engine.trace import CONVENTIONS, Trace, tokens_per_forward

LONG = Trace("stop", 10, 2, 1, tokens_resolved=44, reply_tokens=20, end_token=True, tokens_after_reply=24, masks_left=4)
SHORT = Trace("length", 2, 1, 0, tokens_resolved=8, reply_tokens=6, end_token=False, tokens_after_reply=2, masks_left=0)


def test_each_convention_by_hand():
    assert {name: count([LONG, SHORT]) for name, count in CONVENTIONS.items()} == {
        "redline": 26 / 12,
        "diffulex-stats": 25 / 12,
        "diffulex-mbd-lms": (4.4 + 4.0) / 2,
        "diffulex-main": float(Fraction(44, 9) + 8) / 2,
    }


def test_pooling_weighs_requests_by_their_forwards():
    assert tokens_per_forward([LONG] * 3 + [SHORT]) == pytest.approx((60 + 6) / 32)


def test_no_forward_is_an_error_and_no_zero():
    with pytest.raises(ValueError, match="no forwards"):
        tokens_per_forward([])


def test_the_first_forward_is_the_prefill():
    assert (LONG.prefill_forwards, LONG.decode_forwards) == (1, 9)
