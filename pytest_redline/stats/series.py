"""Failure probability shared out over a series of gates on the same prompts."""

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
