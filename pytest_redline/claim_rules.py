"""What the keys of a grid file mean that claim more than the risk of wrong answers: from their models to claims."""

from __future__ import annotations

import re
from collections.abc import Collection

from pytest_redline.claims import LossTest, Risk
from pytest_redline.complaints import Complaints, suggest
from pytest_redline.grid_schema import NAME_PATTERN, GridModel, RiskModel

SMALLEST = 1e-6  # budget or failure probability: below, the needed prompts run into millions
ENGINE_MEASURES = ("tokens", "forwards", "finished")
_LONGEST_NAME = 20  # of a risk: it heads a column
_WHY_DECLARED = "declare one before the data, since the smaller of two p-values is no p-value"
LITERALS = {"test": f"; {_WHY_DECLARED}"}  # key to why it takes what it takes


def declared_risks(complaints: Complaints, model: GridModel, numbers: Collection[str]) -> tuple[Risk, ...]:
    """Risks of a grid file, complaining about those that cannot be carried out.

    Parameters
    ----------
    numbers
        Measures that are known to be numbers, so that they cannot say yes or no.
    """
    risks = []
    served = model.source.engine is not None
    for name, written in model.risks.items():
        at = ("risks", name)
        if not re.match(NAME_PATTERN, name) or len(name) > _LONGEST_NAME:
            complaints.complain(
                at, f"a name of up to {_LONGEST_NAME} letters, digits and . _ - is needed, as it heads a column"
            )
        elif name == "all" or (model.groups and name in model.groups.alpha):
            complaints.complain(at, "is the name of another budget; rename it")
        if served and written.measure not in ENGINE_MEASURES:
            hint = suggest(written.measure, ENGINE_MEASURES) or f"it knows {', '.join(ENGINE_MEASURES)}"
            complaints.complain((*at, "measure"), f"the engine does not measure {written.measure!r}; {hint}")
        if written.alpha < SMALLEST or written.alpha > 1 - SMALLEST:
            complaints.complain(
                (*at, "alpha"),
                f"{written.alpha!r} is too near to 0 or 1; from {SMALLEST:g} to 1 - {SMALLEST:g} is allowed",
            )
        risk = Risk(
            name,
            written.measure,
            written.alpha,
            written.over,
            written.under,
            _test(complaints, name, written),
            written.seed or 0,
        )
        if risk.flag and risk.measure in numbers:
            complaints.complain(at, f"{risk.measure} is a number; say from where it counts with `over` or `under`")
        risks.append(risk)
    return tuple(risks)


def _test(complaints: Complaints, name: str, written: RiskModel) -> LossTest:
    """How the loss of a risk is tested, after complaints about keys that do not go together."""
    at = ("risks", name)
    kinds = [key for key in ("over", "under", "loss") if getattr(written, key) is not None]
    if len(kinds) > 1:
        complaints.complain(at, f"has {' and '.join(kinds)}; keep one of them")
    if written.loss is not None and written.test is None and not complaints.is_tainted((*at, "test")):
        complaints.complain(at, f"a loss between 0 and 1 is tested by `test: hb` or `test: wsr`; {_WHY_DECLARED}")
    if written.loss is None and written.test is not None:
        complaints.complain(
            (*at, "test"),
            "goes with `loss: drop`; where every loss is 0 or 1, the exact test is sharper, and is used",
        )
    if written.seed is not None and written.test != "wsr":
        complaints.complain((*at, "seed"), "goes with `test: wsr`, which takes the prompts in a random order")
    return written.test or "exact"
