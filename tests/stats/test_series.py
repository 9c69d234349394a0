"""delta over a series of gates: its sum, and the critical shares."""

import math

import pytest

from pytest_redline.stats.risk import largest_passing
from pytest_redline.stats.series import spent


def critical(n, level, m=7):
    """The largest share of violations that passes the first step of Holm at budget 0.10."""
    return round(largest_passing(n, 0.10, level / m) / n, 4)


def test_critical_shares_when_delta_is_divided():
    assert [critical(1012, spent(0.10, 1, gates)) for gates in (50, 1000)] == [0.0682, 0.0623]
    assert [critical(5000, spent(0.10, 1, gates)) for gates in (50, 1000)] == [0.0854, 0.0824]


def test_sums_never_exceed_the_total():
    assert math.fsum(spent(0.10, gate, 50) for gate in range(1, 51)) == pytest.approx(0.10)
    partial = math.fsum(spent(0.10, gate) for gate in range(1, 100_000))
    assert 0.0999 < partial < 0.10


@pytest.mark.parametrize(
    "arguments", [(0.0, 1), (1.0, 1), (math.nan, 1), (0.1, 0), (0.1, 1.0), (0.1, 3, 2), (0.1, 1, 0)]
)
def test_refuses_what_is_no_gate_of_a_series(arguments):
    with pytest.raises(ValueError, match=r"total=|gate=|gates="):
        spent(*arguments)
