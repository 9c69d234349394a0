"""delta over a series of gates: its sum, and the critical shares."""

import math

import pytest

from pytest_redline.stats.risk import largest_passing
from pytest_redline.stats.series import after_bits, spent


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


def test_critical_shares_after_bits_of_blind_gates():
    def share(n: int, m: int, bits: int) -> float:
        return round(largest_passing(n, 0.10, after_bits(0.10, bits) / m) / n, 3)

    assert [share(1012, 1, bits) for bits in (10, 20, 40)] == [0.065, 0.053, 0.038]
    assert [share(1012, 7, bits) for bits in (10, 20, 40)] == [0.062, 0.050, 0.036]
    assert [share(5000, m, 20) for m in (1, 7)] == [0.078, 0.077]


def test_bits_halve_what_is_left():
    assert [after_bits(0.10, bits) for bits in range(3)] == [0.10, 0.05, 0.025]
    for refused in ((0.10, -1), (0.0, 1), (1.0, 1), (0.10, 1.0), (0.10, 2000)):
        with pytest.raises(ValueError, match=r"bits|total"):
            after_bits(*refused)
