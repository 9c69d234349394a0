"""What configurations did on a set of prompts, without any claim: gained prompts, net accuracy, gain, intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_redline.grid import CostMeasure
from pytest_redline.outcomes import Outcomes
from pytest_redline.stats.bootstrap import paired_means, percentile_interval


class DescribedRow(NamedTuple):
    """One configuration; net accuracy in percentage points, gain as a fraction."""

    gained: int
    accuracy: float
    net_accuracy: float
    net_accuracy_interval: tuple[float, float] | None
    gain: float | None
    gain_interval: tuple[float, float] | None


class Described(NamedTuple):
    """All configurations, in the order of the outcomes."""

    rows: list[DescribedRow]


def describe(
    outcomes: Outcomes,
    members: NDArray[np.int64],
    reference: int,
    measure: CostMeasure | None,
    cost: Sequence[float | None],
    detailed: Sequence[int],
) -> Described:
    """Describe every configuration on some prompts.

    Parameters
    ----------
    members
        Positions of the prompts.
    reference
        Index of the reference.
    measure, cost
        Cost measure and the cost of each configuration over all prompts. Declared costs are about all prompts, so a
        part of them has no gain of its own.
    detailed
        Indices of the configurations that get paired-bootstrap intervals (95 %, the paper's Table 5).
    """
    correct = outcomes.rightness[:, members]
    whole = len(members) == len(outcomes.prompts)
    columns: dict[int, NDArray[np.float64]] = {}
    if measure is not None and not measure.declared:
        wanted = {reference, *(detailed if whole else range(len(cost)))}
        columns = {index: _columns(outcomes, measure, index, members) for index in wanted if cost[index] is not None}
    sampled = _intervals(correct, reference, measure, columns, detailed) if detailed else {}
    rows = []
    for index, right in enumerate(correct):
        gain = _gain(measure, columns, cost, index, reference, whole)
        net_interval, gain_interval = sampled.get(index, (None, None))
        rows.append(
            DescribedRow(
                gained=int((right > correct[reference]).sum()),
                accuracy=float(right.mean()),
                net_accuracy=100 * float(right.sum() - correct[reference].sum()) / len(members),
                net_accuracy_interval=net_interval,
                gain=gain,
                gain_interval=gain_interval,
            )
        )
    return Described(rows)


def _columns(outcomes: Outcomes, measure: CostMeasure, index: int, members: NDArray[np.int64]) -> NDArray[np.float64]:
    """``[members, 2]`` per-prompt numerator and denominator, so that a cost is a ratio of two means."""
    assert measure.numerator is not None
    top = outcomes.measures[measure.numerator][index][members]
    bottom = (
        np.ones_like(top) if measure.denominator is None else outcomes.measures[measure.denominator][index][members]
    )
    if measure.pool == "mean_of_ratios":
        top, bottom = top / bottom, np.ones_like(top)
    return np.column_stack([top, bottom])


def _gain(
    measure: CostMeasure | None,
    columns: dict[int, NDArray[np.float64]],
    cost: Sequence[float | None],
    index: int,
    reference: int,
    whole: bool,
) -> float | None:
    own, base = cost[index], cost[reference]
    if measure is None or own is None or base is None:
        return None
    if whole:
        return measure.gain(own, base)
    if index not in columns:
        return None
    (top, bottom), (top_base, bottom_base) = columns[index].sum(axis=0), columns[reference].sum(axis=0)
    if not (top and bottom and top_base and bottom_base):
        return None
    return float(measure.gain(top / bottom, top_base / bottom_base))


def _intervals(
    correct: NDArray[np.float64],
    reference: int,
    measure: CostMeasure | None,
    columns: dict[int, NDArray[np.float64]],
    detailed: Sequence[int],
) -> dict[int, tuple[tuple[float, float], tuple[float, float] | None]]:
    """95 % intervals of net accuracy and gain, all from one set of resamples."""
    net = correct[list(detailed)] - correct[reference]
    timed = sorted({*detailed, reference} & set(columns))
    table = np.concatenate([net.T, *(columns[index] for index in timed)], axis=1)
    means = paired_means(table)
    speeds = {index: means[:, len(detailed) + 2 * place :][:, :2] for place, index in enumerate(timed)}
    result: dict[int, tuple[tuple[float, float], tuple[float, float] | None]] = {}
    for place, index in enumerate(detailed):
        gain: tuple[float, float] | None = None
        if measure is not None and index in speeds and reference in speeds and index != reference:
            own, base = speeds[index], speeds[reference]
            if own.all() and base.all():
                ratio = (own[:, 0] / own[:, 1]) / (base[:, 0] / base[:, 1])
                gain = percentile_interval((ratio if measure.better == "higher" else 1 / ratio) - 1)
        result[index] = (percentile_interval(100 * means[:, place]), gain)
    return result
