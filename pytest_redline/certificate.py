"""From outcomes to a certificate. Start reading at ``certify``: it is the paper's procedure, top to bottom.

Symbols, as in the paper: n prompts, m configurations (the reference included), k violations (prompts that the
reference gets right and the configuration wrong), alpha the risk budget, delta the failure probability of the whole
grid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_redline.budgets import (
    Budget,
    family_of,
    group_members,
    in_part,
    p_ends,
    p_values,
    refuse_too_few,
    refuse_weak_reference,
    spending_of,
    what_is_needed,
)
from pytest_redline.certificate_schema import (
    Certificate,
    Change,
    ConfigurationResult,
    Frontier,
    FrontierRow,
    GroupResult,
    GroupRow,
    Provenance,
    Reuse,
    Sharing,
    Verdict,
)
from pytest_redline.cost import compared_prompts, costs, fastest, same_as_reference, stated_cost
from pytest_redline.description import Described, describe
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Configuration, Grid
from pytest_redline.loss_budgets import LossBudget
from pytest_redline.noise import noise_result, noise_warnings
from pytest_redline.outcomes import Outcomes, Replicate
from pytest_redline.packing import pack
from pytest_redline.partial import losses
from pytest_redline.risks import (
    DeclaredBudget,
    declared_budgets,
    joint_budget,
    joint_budgets,
    joint_losses,
    refuse_hopeless,
    refuse_weak_losses,
)
from pytest_redline.schedule import check_schedule, spent
from pytest_redline.statement import promise, sha256_of, state
from pytest_redline.stats.bootstrap import SEED, default_resamples
from pytest_redline.stats.multiplicity import Family, holm, holm_levels
from pytest_redline.stats.stopping import Final, decided_p, final

FRONTIER_ALPHAS = tuple(percent / 100 for percent in range(1, 31))  # the paper's grid for alpha_min
MOST_RESAMPLED_ROWS = 100
MOST_RESAMPLED_GROUPS = 20
FRONTIER_NOTE = (
    "A description, not a certificate: the promise holds for the one alpha fixed before the data. For an alpha chosen "
    "afterwards use risk_upper_simultaneous."
)


def certify(
    grid: Grid,
    outcomes: Outcomes,
    *,
    provenance: Provenance | None = None,
    notes: Sequence[str] = (),
    content: str | None = None,
    checkpoints: Mapping[str, str] | None = None,
    sharing: Sharing | None = None,
    reuse: Reuse | None = None,
    replicate: Replicate | None = None,
    intervals: bool = True,
) -> Certificate:
    """Certify a grid on its outcomes.

    Parameters
    ----------
    grid
        The statement: configurations, reference, alpha, delta, budgets of groups.
    outcomes
        Aligned outcomes of exactly the grid's configurations, in its order.
    provenance
        What the outcomes were read from; kept in the certificate.
    notes
        Warnings of whoever read the outcomes; kept before the certificate's own.
    content
        Hash of what the prompts say, where it is known.
    checkpoints
        Hashes of the models that were served.
    sharing
        Forwards of a source that serves configurations together.
    reuse
        What earlier statements on these prompts mean for this one; None for a first one that was made before the
        outcomes.
    replicate
        The second run of the reference, where the grid declares one.
    intervals
        Also bootstrap net accuracy and gain of deployed and required rows (about half a second at n = 1,000).

    Raises
    ------
    NothingCertifiableError
        Not even zero violations would certify anything at this n, or the reference is right so seldom that a
        configuration that is always wrong would be certified.
    OutcomesError
        The outcomes are not those of the grid's configurations, or hold no cost where one is needed.

    Source: the paper's procedure; conventions of its tables 2, 5, 8 and 17 (docs/statistics.md).
    """
    if outcomes.configurations != grid.labels:
        raise OutcomesError(f"outcomes are of {outcomes.configurations}, the grid declares {grid.labels}")
    statement = state(grid, outcomes, content, checkpoints)
    grid = spending_of(grid, reuse)
    reference = grid.labels.index(grid.reference)
    groups = group_members(grid, outcomes)
    found = losses(outcomes, reference)
    ones = found.ones.astype(np.float64) if grid.spends_less else joint_losses(grid, outcomes, reference)
    extra = declared_budgets(grid, outcomes, reference)
    budgets = [*joint_budgets(grid, outcomes, groups, ones), *(each.budget for each in extra)]
    family = family_of(grid, reuse)
    refuse_too_few(grid, {budget.name: budget.n for budget in budgets}, family)
    refuse_hopeless(grid, budgets)
    check_schedule(grid, outcomes, family)
    if grid.test == "exact":
        refuse_weak_reference(grid, outcomes, reference, family)
    else:
        refuse_weak_losses(grid, outcomes, reference)

    def watched(plain: Sequence[Budget]) -> list[Budget]:
        return in_part(plain, grid, found, outcomes.order or (), groups) if grid.spends_less else list(plain)

    budgets = watched(budgets)
    ends = p_ends(budgets)
    now = final(ends, lambda p: holm(p, grid.delta, family))
    p, certified = decided_p(ends, *now), now.certified
    compared = compared_prompts(outcomes, certified, reference)
    cost = costs(grid, outcomes, compared)
    inert = same_as_reference(outcomes, reference) & (not grid.deploy_only)
    noise = noise_result(grid, outcomes, replicate)
    faulty = noise.worse_than_noise if noise else ()
    passed_over = inert | np.isin(grid.labels, faulty)
    deployed = fastest(cost, certified & ~passed_over, reference, grid.cost)

    detailed = with_intervals(grid, deployed) if intervals else []
    n = len(outcomes.prompts)
    pooled = describe(outcomes, np.arange(n), reference, grid.cost, cost, detailed, compared)
    rows = [
        configuration_result(grid, index, n, budgets, p, family, now, inert, pooled, cost) for index in range(grid.m)
    ]
    group_results = [
        group_result(
            grid,
            name,
            watched([joint_budget(grid, outcomes, name, members, ones)])[0],
            len(members),
            now,
            describe(
                outcomes,
                members,
                reference,
                grid.cost,
                cost,
                detailed if len(groups) <= MOST_RESAMPLED_GROUPS else [],
                compared,
            ),
        )
        for name, members in groups.items()
    ]
    certificate = Certificate(
        name=grid.name,
        statement=statement,
        alpha=grid.alpha,
        delta=grid.delta,
        n=len(outcomes.prompts),
        m=grid.m,
        reference=grid.reference,
        serving=grid.serving.label if grid.serving else None,
        deployed=grid.labels[deployed],
        promise=promise(statement, reuse),
        cost=stated_cost(grid.cost),
        configurations=rows,
        groups=group_results,
        risks=[each.result(grid.labels) for each in extra],
        noise_floor=noise,
        frontier=None if found.unknown.any() else frontier(grid, budgets, family, cost, passed_over, reference),
        bootstrap={"resamples": default_resamples(len(outcomes.prompts)), "seed": SEED} if detailed else {},
        warnings=list(
            dict.fromkeys(
                [
                    *notes,
                    *grid.notes,
                    *own_warnings(grid, rows, group_results, budgets[0], extra),
                    *noise_warnings(grid, noise, statement),
                ]
            )
        ),
        sharing=sharing,
        spent=spent(grid, outcomes, len(compared)),
        reuse=reuse,
        provenance=provenance or Provenance(),
        outcomes=pack(outcomes, replicate),
    )
    return certificate.model_copy(update={"digest": digest(certificate)})


def with_intervals(grid: Grid, deployed: int) -> list[int]:
    """Rows that get bootstrap intervals: deployed and required ones, or in a very large grid the decisive ones only."""
    wanted = {deployed, *(grid.labels.index(label) for label in grid.required)}
    if len(wanted) > MOST_RESAMPLED_ROWS:
        wanted = {deployed, *([grid.labels.index(grid.serving.label)] if grid.serving else [])}
    return sorted(wanted)


def configuration_result(
    grid: Grid,
    index: int,
    n: int,
    budgets: Sequence[Budget],
    p: NDArray[np.float64],
    family: Family,
    now: Final,
    inert: NDArray[np.bool_],
    described: Described,
    cost: Sequence[float | None],
) -> ConfigurationResult:
    """One row, with everything that is said about it."""
    configuration = grid.configurations[index]
    is_reference = configuration.label == grid.reference
    everything = budgets[0]
    k, each = int(everything.k[index]), grid.delta / (grid.m + family.others - 1)
    breached = any(budget.lower(index, each) > budget.alpha for budget in budgets)
    certified, possible = bool(now.certified[index]), bool(now.possible[index])
    verdict: Verdict = (
        "reference"
        if is_reference
        else "certified"
        if certified
        else "not needed"
        if possible
        else "breach"
        if breached
        else "undecided"
    )
    unknown = everything.unknown(index)
    row = described.rows[index]
    return ConfigurationResult(
        label=configuration.label,
        verdict=verdict,
        certified=certified,
        required=configuration.label in grid.required,
        inert=bool(inert[index]),
        k=k,
        unknown=unknown,
        n=n,
        joint_risk=None if unknown else everything.estimate(index),
        p=None if verdict == "not needed" else float(p[index]),
        level=float(holm_levels(p, grid.delta, family)[index]),
        gained=row.gained,
        accuracy=row.accuracy,
        net_accuracy=row.net_accuracy,
        net_accuracy_interval=row.net_accuracy_interval,
        risk_interval=None if unknown else everything.interval(index),
        risk_upper=everything.upper(index, grid.delta),
        risk_upper_simultaneous=everything.upper(index, each),
        risk_lower_simultaneous=everything.lower(index, each),
        cost=cost[index],
        gain=row.gain,
        gain_interval=row.gain_interval,
        needed=None if certified or unknown else what_is_needed(index, budgets, p, grid.delta, family),
        changes=changes(configuration, grid),
    )


def changes(configuration: Configuration, grid: Grid) -> list[Change]:
    """Key-by-key difference of a configuration from the reference."""
    reference = grid.configurations[grid.labels.index(grid.reference)].knobs
    names = [*reference, *(name for name in configuration.knobs if name not in reference)]
    return [
        Change(knob=name, reference=reference.get(name), configuration=configuration.knobs.get(name))
        for name in names
        if name not in reference or name not in configuration.knobs or reference[name] != configuration.knobs[name]
    ]


def group_result(grid: Grid, name: str, budget: Budget, n: int, now: Final, described: Described) -> GroupResult:
    """All rows on the n prompts of one group; p-values only where it has a budget of its own."""
    alpha = grid.groups.alpha.get(name) if grid.groups else None
    p = None if alpha is None else decided_p(budget.bounds(), *now)
    needless = now.possible & ~now.certified
    return GroupResult(
        name=name,
        n=n,
        alpha=alpha,
        configurations=[
            GroupRow(
                label=label,
                k=int(budget.k[index]),
                unknown=(unknown := budget.unknown(index)),
                joint_risk=None if unknown else budget.estimate(index),
                p=None if p is None or needless[index] else float(p[index]),
                risk_interval=None if unknown else budget.interval(index),
                **row._asdict(),
            )
            for index, (label, row) in enumerate(zip(grid.labels, described.rows, strict=True))
        ],
    )


def frontier(
    grid: Grid,
    budgets: Sequence[Budget],
    family: Family,
    cost: Sequence[float | None],
    passed_over: NDArray[np.bool_],
    reference: int,
) -> Frontier:
    """What each alpha of 0.01 to 0.30 would have deployed, budgets of groups as declared."""
    pooled, others = budgets[0], budgets[1:]
    fixed = p_values(others) if others else np.zeros(grid.m)
    rows = []
    for alpha in FRONTIER_ALPHAS:
        certified = holm(np.maximum(pooled.p(alpha), fixed), grid.delta, family)
        deployed = fastest(cost, certified & ~passed_over, reference, grid.cost)
        rows.append(FrontierRow(alpha=alpha, deployed=grid.labels[deployed], certified=int(certified.sum())))
    smallest = next((row.alpha for row in rows if row.deployed != grid.reference), None)
    return Frontier(note=FRONTIER_NOTE, alpha_min=smallest, rows=rows)


def own_warnings(
    grid: Grid,
    rows: Sequence[ConfigurationResult],
    groups: Sequence[GroupResult],
    pooled: Budget,
    declared: Sequence[DeclaredBudget],
) -> list[str]:
    """What a reviewer must not overlook in a certificate."""
    found = [
        f"{row.label} gives the reference's outcomes on every prompt: an inert change, never deployed"
        for row in rows
        if row.inert
    ]
    certified = {row.label for row in rows if row.verdict == "certified" and not row.inert}
    for group in groups:
        found += [
            f"{part.label} is certified on all prompts together, but its risk in group {group.name} is "
            f"{part.k}/{group.n} = {part.joint_risk:.3f}, above {grid.alpha:g}; give that group a budget if it matters"
            for part in group.configurations
            if part.label in certified and group.alpha is None and (part.joint_risk or 0.0) > grid.alpha
        ]
    found += [warning for each in declared for warning in each.warnings]
    if grid.loss is not None and isinstance(pooled, LossBudget) and pooled.all_or_nothing:
        found.append(
            f"every loss is 0 or 1, where {grid.loss.test} certifies less than the exact test; in a new statement "
            "leave out `loss` and `repeats`"
        )
    if grid.cost is None:
        found.append("no cost is known, so no candidate is preferred to the reference")
    return found


def digest(certificate: Certificate) -> str:
    """Digest over everything in a certificate but the digest itself."""
    return "sha256:" + sha256_of(certificate.model_dump(mode="json", exclude={"digest"}))


def to_bytes(certificate: Certificate) -> bytes:
    """The one way a certificate is written; ``verify`` accepts no other."""
    text = json.dumps(certificate.model_dump(mode="json"), indent=1, ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"
