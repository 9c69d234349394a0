"""What configurations cost, and which of the eligible ones is the fastest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_redline.certificate_schema import Cost
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import CostMeasure, Grid
from pytest_redline.outcomes import Outcomes, shown_id


def compared_prompts(outcomes: Outcomes, certified: NDArray[np.bool_], reference: int) -> NDArray[np.int64]:
    """Positions of the prompts that costs are compared on: those that all certified rows and the reference answered."""
    if outcomes.known is None:
        return np.arange(len(outcomes.prompts))
    rows = certified.copy()
    rows[reference] = True
    return np.flatnonzero(outcomes.known[rows].all(axis=0))


def costs(grid: Grid, outcomes: Outcomes, compared: NDArray[np.int64] | None = None) -> list[float | None]:
    """Cost of each configuration; None where it is unknown, or was not served all prompts that are compared.

    Parameters
    ----------
    compared
        Positions of the prompts that costs are compared on; all of them by default.

    Raises
    ------
    OutcomesError
        A denominator is zero.
    """
    if compared is None:
        compared = np.arange(len(outcomes.prompts))
    measure = grid.cost
    if measure is None:
        return [None] * grid.m
    if measure.declared:
        return [configuration.cost for configuration in grid.configurations]
    return [
        None
        if configuration.cost_unknown or not _answered(outcomes, index, compared)
        else pooled_cost(measure, configuration.label, outcomes, index, compared)
        for index, configuration in enumerate(grid.configurations)
    ]


def _answered(outcomes: Outcomes, index: int, compared: NDArray[np.int64]) -> bool:
    return outcomes.known is None or (len(compared) > 0 and bool(outcomes.known[index, compared].all()))


def pooled_cost(measure: CostMeasure, label: str, outcomes: Outcomes, index: int, compared: NDArray[np.int64]) -> float:
    """Cost of one configuration from its measures on the prompts that are compared."""
    assert measure.numerator is not None
    top = outcomes.measures[measure.numerator][index, compared]
    bottom = (
        np.ones_like(top) if measure.denominator is None else outcomes.measures[measure.denominator][index, compared]
    )
    zero = np.flatnonzero(bottom == 0)
    if len(zero) and (measure.pool == "mean_of_ratios" or not bottom.any()):
        raise OutcomesError(
            f"{label}: {measure.denominator} is 0 for prompt {shown_id(outcomes.prompts[compared[zero[0]]])}, so "
            f"{measure.name} is not defined; mend the recording or write `cost: unknown`"
        )
    value = float((top / bottom).mean()) if measure.pool == "mean_of_ratios" else float(top.sum() / bottom.sum())
    if value <= 0:
        raise OutcomesError(f"{label}: {measure.name} is {value:g}, which compares with nothing; check its columns")
    return value


def same_as_reference(outcomes: Outcomes, reference: int) -> NDArray[np.bool_]:
    """``[m]`` bool: does nothing tell this configuration from the reference, on any prompt.

    Verdicts alone are no evidence of that, so it takes equal forwards, or equal texts where no forwards are known.
    A row served in part is compared on all prompts that it answered, and the reference must have answered them too.
    """
    known = [outcomes.correct, *outcomes.measures.values()]
    if outcomes.outputs is not None:
        known.append(outcomes.outputs)
    served = np.ones_like(outcomes.correct) if outcomes.known is None else outcomes.known
    same: NDArray[np.bool_] = served.any(axis=1) & (served <= served[reference]).all(axis=1)
    if "forwards" in outcomes.measures or outcomes.outputs is not None:
        for values in known:
            same &= ((values == values[reference]) | ~served).all(axis=1)
    else:
        same[:] = False
    same[reference] = False
    return same


def fastest(
    cost: Sequence[float | None], eligible: NDArray[np.bool_], reference: int, measure: CostMeasure | None
) -> int:
    """Index of the best known cost among the eligible rows and the reference: the first declared one on ties."""
    if measure is None or cost[reference] is None:
        return reference
    sign = 1 if measure.better == "higher" else -1
    ranked = [
        (sign * value, -index)
        for index, value in enumerate(cost)
        if value is not None and (eligible[index] or index == reference)
    ]
    return -max(ranked)[1]


def stated_cost(measure: CostMeasure | None) -> Cost | None:
    """The cost measure as a certificate holds it."""
    if measure is None:
        return None
    return Cost(
        name=measure.name,
        better=measure.better,
        pool=measure.pool,
        numerator=measure.numerator,
        denominator=measure.denominator,
        declared=measure.declared,
    )
