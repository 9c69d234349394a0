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
    """One configuration; net accuracy in percentage points, gain as a fraction. None: it takes prompts not served."""

    gained: int | None
    accuracy: float | None
    net_accuracy: float | None
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
    compared: NDArray[np.int64],
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
    compared
        Positions of the prompts that costs are compared on.
    """
    correct = outcomes.rightness[:, members]
    complete: NDArray[np.bool_] = np.ones(len(correct), dtype=np.bool_)
    timed = members
    if outcomes.known is not None:
        complete = np.all(outcomes.known[:, members], axis=1)
        timed = members[np.isin(members, compared)]
    whole = len(members) == len(outcomes.prompts)
    columns: dict[int, NDArray[np.float64]] = {}
    if measure is not None and not measure.declared and len(timed):
        wanted = {reference, *(detailed if whole else range(len(cost)))}
        columns = {index: _columns(outcomes, measure, index, timed) for index in wanted if cost[index] is not None}
    sampled = _intervals(correct, complete, reference, measure, columns, detailed) if detailed else {}
    rows = []
    for index, right in enumerate(correct):
        gain = _gain(measure, columns, cost, index, reference, whole)
        net_interval, gain_interval = sampled.get(index, (None, None))
        both = complete[index] and complete[reference]
        rows.append(
            DescribedRow(
                gained=int((right > correct[reference]).sum()) if both else None,
                accuracy=float(right.mean()) if complete[index] else None,
                net_accuracy=100 * float(right.sum() - correct[reference].sum()) / len(members) if both else None,
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
    complete: NDArray[np.bool_],
    reference: int,
    measure: CostMeasure | None,
    columns: dict[int, NDArray[np.float64]],
    detailed: Sequence[int],
) -> dict[int, tuple[tuple[float, float] | None, tuple[float, float] | None]]:
    """95 % intervals of net accuracy and gain, from one set of resamples where both are known on the same prompts."""
    counted = [index for index in detailed if complete[index] and complete[reference]]
    net = (correct[counted] - correct[reference]).T
    timed = sorted({*detailed, reference} & set(columns))
    speeds = np.concatenate([columns[index] for index in timed], axis=1) if timed else net[:, :0]
    if len(net) == len(speeds):
        means = _means(np.concatenate([net, speeds], axis=1))
        net_means, speed_means = means[:, : len(counted)], means[:, len(counted) :]
    else:
        net_means, speed_means = _means(net), _means(speeds)
    pairs = {index: speed_means[:, 2 * place :][:, :2] for place, index in enumerate(timed)}
    result: dict[int, tuple[tuple[float, float] | None, tuple[float, float] | None]] = {}
    for index in detailed:
        gain: tuple[float, float] | None = None
        if measure is not None and index in pairs and reference in pairs and index != reference:
            own, base = pairs[index], pairs[reference]
            if own.all() and base.all():
                ratio = (own[:, 0] / own[:, 1]) / (base[:, 0] / base[:, 1])
                gain = percentile_interval((ratio if measure.better == "higher" else 1 / ratio) - 1)
        points = percentile_interval(100 * net_means[:, counted.index(index)]) if index in counted else None
        result[index] = (points, gain)
    return result


def _means(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """``[B, c]`` resampled means; ``[0, 0]`` of a table without columns."""
    return paired_means(table) if table.shape[1] else np.empty((0, 0))
