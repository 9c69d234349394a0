"""Failure probability of one gate among several on the same prompts."""

from __future__ import annotations

import math

from pytest_redline.stats.checks import inside, whole


def spent(total: float, gate: int, gates: int | None = None) -> float:
    """Return the failure probability of one gate of a series whose sum is at most the total, however many there are.

    Parameters
    ----------
    total
        Failure probability of all gates together, 0 < total < 1.
    gate
        Which gate of the series, from 1.
    gates
        How many are planned, each with the same part; None for total * 6 / (pi * gate)**2, which sums to the total.

    Raises
    ------
    ValueError
        total outside (0, 1) or NaN; gate or gates below 1 or not of integer type; gate beyond the planned ones.

    Notes
    -----
    A union bound: valid however the gates depend on each other, for statements that do not depend on earlier outcomes.

    Source: Bonferroni; the series is Basel's.

    Examples
    --------
    >>> [round(spent(0.10, gate), 4) for gate in (1, 2, 10)]
    [0.0608, 0.0152, 0.0006]
    >>> spent(0.10, 50, gates=50)
    0.002
    """
    inside("total", total)
    if whole("gate", gate) < 1 or (gates is not None and whole("gates", gates) < 1):
        raise ValueError(f"gate={gate} of gates={gates}: counted from 1")
    if gates is None:
        return total * 6 / (math.pi * gate) ** 2
    if gate > gates:
        raise ValueError(f"gate={gate}: only {gates} are planned")
    return total / gates


def after_bits(total: float, bits: int) -> float:
    """Return the failure probability of a gate that is asked after so many bits of earlier outcomes were seen.

    Parameters
    ----------
    total
        Failure probability of the gate, 0 < total < 1.
    bits
        Answers of yes or no about outcomes on the same prompts that whoever made the candidate may have seen.

    Raises
    ------
    ValueError
        total outside (0, 1) or NaN; bits below 0 or not of integer type; so many bits that nothing is left.

    Notes
    -----
    After B bits a developer, however adaptive, is at one of 2^B places, each of which fixes what is asked next; a test
    at total * 2^-B at each of them errs at any of them with probability total at most. That covers the gate after B
    bits; T such gates hold together at T times the total.

    Source: a union bound over the tree of answers, as in ease.ml/ci (Renggli et al., 2019).

    Examples
    --------
    >>> after_bits(0.10, 0), after_bits(0.10, 3)
    (0.1, 0.0125)
    """
    inside("total", total)
    if whole("bits", bits) < 0:
        raise ValueError(f"bits={bits}: counted from 0")
    left = math.ldexp(total, -min(int(bits), 10_000))  # more are nothing as well, and no C integer
    if not left:
        raise ValueError(f"bits={bits}: nothing is left of {total}")
    return left
