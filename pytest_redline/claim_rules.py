"""What the keys of a grid file mean that claim more than the risk of wrong answers: from their models to claims."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from pytest_redline.claims import Clusters, Design, LossTest, Risk
from pytest_redline.complaints import Complaints, suggest
from pytest_redline.grid_schema import NAME_PATTERN, ClustersModel, GridModel, PopulationModel, RiskModel

SMALLEST = 1e-6  # budget or failure probability: below, the needed prompts run into millions
ENGINE_MEASURES = ("tokens", "forwards", "finished")
_MOST_DELTA = 0.25  # a count over n alpha - 1, which the bound for unequal risks excludes, then never passes
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


def declared_draw(
    complaints: Complaints, model: GridModel, risks: Sequence[Risk], delta: float | None
) -> tuple[Design | None, Clusters | None]:
    """How the prompts were drawn and how they cluster, complaining about what does not go together."""
    design = None
    written = model.population
    if isinstance(written, PopulationModel):
        design = Design(written.design, written.pool)
        if (written.design == "finite_pool") != (written.pool is not None):
            complaints.complain(
                ("population", "pool"), "goes with `design: finite_pool`, and says how many prompts the pool holds"
            )
        if written.design == "stratified" and model.groups is None:
            complaints.complain(
                ("population", "design"), "stratified: by what; name the column of the strata with `groups: {by: ...}`"
            )
    clusters = _clusters(complaints, model.clusters) if model.clusters else None
    if design is not None and design.kind != "independent":
        _check_design(complaints, design, clusters, risks, delta)
    return design, clusters


def _clusters(complaints: Complaints, written: ClustersModel) -> Clusters:
    means = written.remedy == "cluster_means"
    if means and written.test is None and not complaints.is_tainted(("clusters", "test")):
        complaints.complain(("clusters",), f"cluster means are tested by `test: hb` or `test: wsr`; {_WHY_DECLARED}")
    if not means and written.test is not None:
        complaints.complain(("clusters", "test"), "goes with `remedy: cluster_means`; prompts have the exact test")
    if written.seed is not None and means and written.test == "hb":
        complaints.complain(("clusters", "seed"), "goes with `test: wsr`, or with one_per_cluster")
    return Clusters(written.by, written.remedy, (written.test or "exact") if means else "exact", written.seed or 0)


def _check_design(
    complaints: Complaints, design: Design, clusters: Clusters | None, risks: Sequence[Risk], delta: float | None
) -> None:
    at = ("population", "design")
    if delta is not None and delta > _MOST_DELTA:
        complaints.complain(
            at, f"{design.kind} draws are covered for delta up to {_MOST_DELTA}, found {delta:g}; declare a smaller one"
        )
    if clusters is not None:
        complaints.complain(at, f"{design.kind} does not go with `clusters`, which themselves are what is drawn")
    if any(risk.test == "wsr" for risk in risks):
        complaints.complain(at, f"{design.kind} does not go with `test: wsr`, which needs independent draws; use hb")


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
