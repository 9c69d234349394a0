"""What the keys of a grid file mean that claim more than the risk of wrong answers: from their models to claims."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence

from pytest_redline.claims import MOST_DELTA, Clusters, Design, JointLoss, LossTest, Mix, Risk, add_up
from pytest_redline.complaints import Complaints, suggest
from pytest_redline.grid_schema import NAME_PATTERN, ClustersModel, GridModel, PopulationModel, RiskModel
from pytest_redline.source_schema import CorrectModel, OutcomesModel

SMALLEST = 1e-6  # budget or failure probability: below, the needed prompts run into millions
ENGINE_MEASURES = ("tokens", "forwards", "finished")
_LONGEST_NAME = 20  # of a risk: it heads a column
_WHY_DECLARED = "declare one before the data, since the smaller of two p-values is no p-value"
REWEIGHTING = ("weight", "reweight", "traffic", "shares")  # keys that are tried for it
MIX_WAYS = (
    "to claim the risk of another mix of groups, draw that mix (`prompts.sample.shares`) or declare `mix: {shares: "
    "{GROUP: SHARE}, test: hb}`; the risk estimate cannot be reweighted and the binomial test kept, since a weighted "
    "count is no binomial and one prompt of a rare group would count as many"
)
LITERALS = {  # first and last key to why it takes what it takes
    ("risks", "test"): f"; {_WHY_DECLARED}",
    ("clusters", "test"): f"; {_WHY_DECLARED}",
    ("source", "test"): f"; {_WHY_DECLARED}",
    ("mix", "test"): f"; {MIX_WAYS}",
}


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


def joint_loss(complaints: Complaints, model: GridModel) -> JointLoss | None:
    """What is lost on a prompt where a verdict is a score or a share of repeats; None for right and wrong."""
    outcomes = model.source.outcomes
    correct = outcomes.columns.correct if isinstance(outcomes, OutcomesModel) else None
    if not isinstance(correct, CorrectModel):
        return None
    at = ("source", "outcomes", "columns", "correct")
    declared = correct.loss is not None or correct.repeats is not None
    if correct.loss is not None and correct.repeats is not None:
        complaints.complain(at, "has both loss and repeats; keep one of the two")
    if correct.loss is not None and (correct.threshold is not None or "equals" in correct.model_fields_set):
        complaints.complain(at, "has loss beside threshold or equals; the score itself, or what makes it right")
    if declared and correct.test is None and not complaints.is_tainted((*at, "test")):
        complaints.complain(at, f"a loss between 0 and 1 is tested by `test: hb` or `test: wsr`; {_WHY_DECLARED}")
    unread = complaints.is_tainted((*at, "loss")) or complaints.is_tainted((*at, "repeats"))
    if not declared and correct.test is not None and not unread:
        complaints.complain(
            (*at, "test"), "goes with `loss: drop` or `repeats: mean_loss`; a verdict has the exact test"
        )
    if correct.seed is not None and correct.test != "wsr":
        complaints.complain((*at, "seed"), "goes with `test: wsr`, which takes the prompts in a random order")
    if not declared:
        return None
    return JointLoss("drop" if correct.loss else "repeats", correct.test or "hb", correct.seed or 0)


def declared_draw(
    complaints: Complaints, model: GridModel, risks: Sequence[Risk], loss: JointLoss | None, delta: float | None
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
        if written.design == "census" and model.prompts:
            for key in ("sample", "slice"):
                if getattr(model.prompts, key) is not None:
                    complaints.complain(
                        ("prompts", key), "takes a part of the prompts, and `design: census` says that they are all"
                    )
    clusters = _clusters(complaints, model.clusters) if model.clusters else None
    if loss and clusters and clusters.test != "exact" and (loss.test, loss.seed) != (clusters.test, clusters.seed):
        complaints.complain(
            ("clusters",),
            f"tests by {clusters.test}, seed {clusters.seed}, and columns.correct by {loss.test}, seed "
            f"{loss.seed}; one loss has one test",
        )
    if design is not None and design.kind != "independent":
        bets = any(each is not None and each.test == "wsr" for each in (*risks, loss))
        _check_design(complaints, design, clusters, bets, delta)
    return design, clusters


def declared_mix(
    complaints: Complaints,
    model: GridModel,
    design: Design | None,
    clusters: Clusters | None,
    loss: JointLoss | None,
    delta: float | None,
) -> Mix | None:
    """Mix of groups that the risk is claimed for, after complaints about what does not go with it or with a sample."""
    sample = model.prompts.sample.shares if model.prompts and model.prompts.sample else None
    mix = model.mix
    for at, shares in ((("mix", "shares"), mix.shares if mix else None), (("prompts", "sample", "shares"), sample)):
        if shares is None:
            continue
        if model.groups is None:
            complaints.complain(at, "shares of what; name the column of the groups with `groups: {by: ...}`")
        if not add_up(shares):
            complaints.complain(at, f"add up to {math.fsum(shares.values()):.6g}; shares of a whole add up to 1")
        allowed = ("stratified",) if at[0] == "prompts" else ("stratified", "independent")
        if design is not None and design.kind not in allowed:
            complaints.complain(at, f"does not go with `design: {design.kind}`, but with {' or '.join(allowed)}")
        if at[0] == "prompts" and delta is not None and delta > MOST_DELTA:
            complaints.complain(at, f"fixed shares are covered for delta up to {MOST_DELTA}, found {delta:g}")
        if (loss is not None and loss.test == "wsr") or any(risk.test == "wsr" for risk in model.risks.values()):
            complaints.complain(at, "does not go with `test: wsr`, which needs independent draws; use hb")
        if clusters is not None:
            complaints.complain(at, "does not go with `clusters`, whose own random draw the claim is about")
    if mix and sample:
        complaints.complain(("mix",), "goes beside no `prompts.sample.shares`: the mix is drawn, or reweighted to")
    return Mix(dict(mix.shares)) if mix else None


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
    complaints: Complaints, design: Design, clusters: Clusters | None, bets: bool, delta: float | None
) -> None:
    at = ("population", "design")
    if delta is not None and delta > MOST_DELTA:
        complaints.complain(
            at, f"{design.kind} draws are covered for delta up to {MOST_DELTA}, found {delta:g}; declare a smaller one"
        )
    if clusters is not None:
        complaints.complain(at, f"{design.kind} does not go with `clusters`, which themselves are what is drawn")
    if bets:
        complaints.complain(at, f"{design.kind} does not go with `test: wsr`, which needs independent draws; use hb")


def _test(complaints: Complaints, name: str, written: RiskModel) -> LossTest:
    """How the loss of a risk is tested, after complaints about keys that do not go together."""
    at = ("risks", name)
    kinds = [key for key in ("over", "under", "loss") if getattr(written, key) is not None]
    if len(kinds) > 1:
        complaints.complain(at, f"has {' and '.join(kinds)}; keep one of them")
    if written.loss is not None and written.test is None and not complaints.is_tainted((*at, "test")):
        complaints.complain(at, f"a loss between 0 and 1 is tested by `test: hb` or `test: wsr`; {_WHY_DECLARED}")
    if written.loss is None and written.test is not None and not complaints.is_tainted((*at, "loss")):
        complaints.complain(
            (*at, "test"),
            "goes with `loss: drop`; where every loss is 0 or 1, the exact test is sharper, and is used",
        )
    if written.seed is not None and written.test != "wsr":
        complaints.complain((*at, "seed"), "goes with `test: wsr`, which takes the prompts in a random order")
    return written.test or "exact"
