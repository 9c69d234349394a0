"""What a grid file says about spending less: from its model to data, and what cannot be carried out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pytest_redline.complaints import Complaints
from pytest_redline.grid import Configuration, CostMeasure, EngineSource, RecordedSource
from pytest_redline.grid_schema import GridModel, LooksModel, PopulationModel
from pytest_redline.spending import DeclaredLooks, Stopping

_AT = ("stopping",)


def stopping_of(
    model: GridModel, source: RecordedSource | EngineSource | None, complaints: Complaints
) -> Stopping | None:
    """When configurations are not served further; None where all are served in full, or after complaints."""
    written = model.stopping
    if written is None:
        return None
    if isinstance(source, RecordedSource):
        complaints.complain(
            _AT, "recorded outcomes are all there, in no random order, so nothing can be saved; remove it"
        )
        return None
    if needing := _needs_everything(model):
        complaints.complain(_AT, f"{needing} need every outcome, so nothing can be stopped; remove one of the two")
        return None
    found = len(complaints.problems)
    looks = None
    if isinstance(written.looks, int):
        looks = DeclaredLooks(number=written.looks)
    elif isinstance(written.looks, LooksModel):
        looks = DeclaredLooks(tuple(written.looks.at), early=written.looks.early)
        _check_sizes(written.looks.at, model, complaints)
    design = model.population.design if isinstance(model.population, PopulationModel) else ""
    shares = model.prompts is not None and model.prompts.sample is not None and model.prompts.sample.shares is not None
    if looks and (design == "stratified" or shares):  # the strata have their sizes at the last look only
        complaints.complain((*_AT, "looks"), "the prompts are stratified, which no look but the last one is")
    if looks and design == "census":
        complaints.complain((*_AT, "looks"), "a census says what this run did on all prompts, and a look sees a part")
    elsewhere = written.candidates == "where_reference_right"
    if not (written.curtail or looks or elsewhere):
        complaints.complain((*_AT, "curtail"), "nothing else is declared, so nothing is stopped; remove `stopping`")
    return Stopping(written.curtail, looks, elsewhere, written.every) if found == len(complaints.problems) else None


def _needs_everything(model: GridModel) -> str:
    """What of a grid is judged on all outcomes only; empty where nothing is."""
    if model.clusters and model.clusters.remedy == "cluster_means":
        return "cluster means"
    if model.mix:
        return "weighted losses"
    return "declared risks" if model.risks else ""


def _check_sizes(sizes: Sequence[int], model: GridModel, complaints: Complaints) -> None:
    at = (*_AT, "looks", "at")
    if any(later <= size for size, later in pairwise(sizes)):
        complaints.complain(at, f"found {list(sizes)}; numbers of prompts that rise are needed")
    n = model.prompts.sample.n if model.prompts and model.prompts.sample else None
    if n is not None and not model.clusters and sizes[-1] != n:
        complaints.complain(
            at, f"ends at {sizes[-1]:,}, but the sample has {n:,} prompts; the last look is at all of them"
        )


def check_deploy_only(
    model: GridModel,
    configurations: Sequence[Configuration],
    source: RecordedSource | EngineSource | None,
    cost: CostMeasure | None,
    complaints: Complaints,
) -> None:
    """Complain about a grid that --redline-deploy-only cannot rank, or has nothing to save on."""
    option = "--redline-deploy-only"
    if needing := _needs_everything(model):
        at = {"cluster means": "clusters", "weighted losses": "mix"}.get(needing, "risks")
        complaints.complain((at,), f"{needing} need every outcome, so {option} saves nothing; leave it out")
    if isinstance(source, RecordedSource):
        complaints.complain(("source",), f"recorded outcomes are all there, so {option} saves nothing; leave it out")
    elif cost is None:
        complaints.complain(("cost",), f"{option} deploys by a declared cost, and this says that none is known")
    elif not cost.declared:
        for each in configurations:
            role = "the reference" if each.label == model.reference else "a candidate"
            complaints.complain(
                ("configurations", each.label),
                f"{option} serves and deploys by a declared cost, known before anything is served; give {role} "
                "`cost:` (a number, measured elsewhere; higher is better unless the grid's cost says otherwise)",
                each.line,
            )
