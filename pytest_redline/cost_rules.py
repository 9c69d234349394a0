"""What the cost keys of a grid file mean: how configurations are compared, and what they declare."""

from __future__ import annotations

from dataclasses import replace

from pytest_redline.complaints import Complaints
from pytest_redline.grid import KNOWN_MEASURES, Configuration, CostMeasure
from pytest_redline.grid_schema import CostModel, GridModel

_COSTS = (1e-9, 1e12)  # what a declared cost may lie between


def declared_cost(
    complaints: Complaints, model: GridModel, configurations: tuple[Configuration, ...]
) -> CostMeasure | None:
    """Cost measure of the grid, or None where no cost is known."""
    declared = [each for each in configurations if each.cost is not None]
    written = CostModel(measure=model.cost) if isinstance(model.cost, str) else model.cost
    if written is not None and written.measure == "unknown":
        for each in declared:
            complaints.complain(
                ("configurations", each.label, "cost"), "the grid says `cost: unknown`; remove one of the two"
            )
        return None
    measure = _measure(complaints, written, bool(declared))
    for each in declared:
        if each.cost is not None and not _COSTS[0] <= each.cost <= _COSTS[1]:
            complaints.complain(
                ("configurations", each.label, "cost"),
                f"found {each.cost:g}; from {_COSTS[0]:g} to {_COSTS[1]:g} is allowed",
            )
    if declared:
        for each in configurations:
            if each.cost is None and (each.label == model.reference or not each.cost_unknown):
                needed = "a number" if each.label == model.reference else "a number, or unknown"
                complaints.complain(
                    ("configurations", each.label), f"other configurations declare `cost:`; give {needed} here too"
                )
    elif any(each.cost_unknown and each.label == model.reference for each in configurations):
        complaints.complain(
            ("configurations", model.reference, "cost"), "the reference's cost is what the others are compared with"
        )
    return measure


def _measure(complaints: Complaints, written: CostModel | None, declared: bool) -> CostMeasure:
    """Cost measure that a name, or columns of one's own, stand for."""
    if written is None:
        written = CostModel(measure="declared cost" if declared else "tokens_per_forward")
    known = KNOWN_MEASURES.get(written.measure)
    if known is not None and written.better not in (None, known.better):
        complaints.complain(("cost", "better"), f"{known.name} is better when {known.better}")
    better = written.better or (known.better if known else "higher" if declared else None)
    if better is None and not any(path[0] == "cost" for path in complaints.tainted):
        names = ", ".join(KNOWN_MEASURES)
        complaints.complain(
            ("cost",),
            f"{written.measure!r} is not one of {names}; for columns of your own say also `better: higher` or "
            "`better: lower`",
        )
    better = better or "higher"
    numerator, _, denominator = written.measure.partition("/")
    base = known or CostMeasure(
        written.measure, better, "ratio_of_sums", numerator.strip() or None, denominator.strip() or None
    )
    if declared:
        return CostMeasure(written.measure, better, base.pool, None, None, declared=True)
    if base.numerator is None or (written.measure.endswith("/") and not base.denominator):
        complaints.complain(("cost", "measure"), f"found {written.measure!r}; write NAME or NAME/NAME")
    return replace(base, pool=written.pool or base.pool)
