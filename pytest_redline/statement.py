"""The statement: everything that is claimed, fixed before the data, and what is promised about it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from decimal import ROUND_FLOOR, Decimal
from typing import Any, NamedTuple

from pytest_redline.certificate_schema import Reuse
from pytest_redline.claims import Design, Risk
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Grid
from pytest_redline.outcomes import Outcomes
from pytest_redline.partial import looks_of
from pytest_redline.statement_schema import (
    PromptSet,
    StatedClusters,
    StatedConfiguration,
    StatedDesign,
    StatedGroups,
    StatedLooks,
    StatedLoss,
    StatedMix,
    StatedRisk,
    StatedSlice,
    StatedSpending,
    StatedWeight,
    Statement,
)
from pytest_redline.stats.series import spent


def state(
    grid: Grid, outcomes: Outcomes, content: str | None = None, checkpoints: Mapping[str, str] | None = None
) -> Statement:
    """The statement and its hash: all that was fixed before the data, and nothing of the outcomes.

    ``content`` is a hash of what the prompts say and what answers are expected, ``checkpoints`` holds hashes of the
    models that are served, where these are known.
    """
    claim = Statement(
        hash="",
        prompts=PromptSet(
            n=len(outcomes.prompts),
            sha256=sha256_of(list(outcomes.prompts)),
            content=content,
            sample={"n": grid.sample.n, "seed": grid.sample.seed} if grid.sample else None,
            shares=dict(grid.sample.shares) if grid.sample and grid.sample.shares else None,
            population=grid.population,
            design=_design(grid, outcomes),
            slice=StatedSlice(**grid.drawn._asdict()) if grid.drawn else None,
        ),
        grader=grid.grader,
        reference=grid.reference,
        configurations=[StatedConfiguration(label=each.label, knobs=dict(each.knobs)) for each in grid.configurations],
        alpha=grid.alpha,
        delta=grid.spending.total if grid.spending else grid.delta,
        groups=StatedGroups(by=grid.groups.by, alpha=dict(grid.groups.alpha), sha256=sha256_of(list(outcomes.groups)))
        if grid.groups and outcomes.groups
        else None,
        checkpoints=dict(checkpoints or {}),
        risks=[StatedRisk(**asdict(risk)) for risk in grid.risks],
        spending=StatedSpending(gates=grid.spending.gates) if grid.spending else None,
        weight=StatedWeight(**grid.weight._asdict()) if grid.weight else None,
        loss=StatedLoss(**asdict(grid.loss)) if grid.loss else None,
        mix=StatedMix(shares=dict(grid.mix.shares), test="hb") if grid.mix else None,
        clusters=StatedClusters(
            **asdict(grid.clusters), n=len(set(outcomes.clusters)), sha256=sha256_of(list(outcomes.clusters))
        )
        if grid.clusters and outcomes.clusters
        else None,
        looks=_looks(grid, outcomes),
        lossless=list(grid.lossless),
    )
    return claim.model_copy(update={"hash": sha256_of(claim.model_dump(mode="json", exclude={"hash"}))})


def _design(grid: Grid, outcomes: Outcomes) -> StatedDesign | None:
    """How the prompts were drawn, where not each by itself.

    Raises
    ------
    OutcomesError
        The prompts cannot have been drawn so.
    """
    design = grid.design
    if grid.mix is not None or (grid.sample is not None and grid.sample.shares is not None):
        design = Design("stratified")  # whatever the sizes of groups, they are as good as fixed
    if design is None or design.kind == "independent":
        return None
    if design.pool is not None and design.pool < len(outcomes.prompts):
        raise OutcomesError(
            f"population.pool: {len(outcomes.prompts):,} prompts cannot be drawn without replacement from "
            f"{design.pool:,}; correct the number, or say census"
        )
    sizes = dict(sorted(Counter(outcomes.groups or ()).items())) if design.kind == "stratified" else None
    if sizes == {}:
        raise OutcomesError("population.design: stratified, but no prompt has a group; name the column of the strata")
    return StatedDesign(kind=design.kind, pool=design.pool, sizes=sizes)


def _looks(grid: Grid, outcomes: Outcomes) -> StatedLooks | None:
    if grid.stopping is None or grid.stopping.looks is None or outcomes.order is None:
        return None
    return StatedLooks(
        sizes=list(looks_of(grid, len(outcomes.prompts)).sizes),
        early=grid.stopping.looks.early,
        order=sha256_of([outcomes.prompts[place] for place in outcomes.order]),
    )


def delta_of(statement: Statement, number: int) -> float:
    """Failure probability of a statement when it is the one of this number on its prompts.

    Raises
    ------
    ValueError
        delta was divided among fewer.
    """
    return statement.delta if statement.spending is None else spent(statement.delta, number, statement.spending.gates)


def promise(statement: Statement, reuse: Reuse | None = None) -> str:
    """What a certificate promises, on what assumption."""
    draw = _draw(statement, reuse.pool if reuse else None)
    what = "a mean drop in its score" if statement.loss and statement.loss.kind == "drop" else "joint risk"
    budget = "its budget" if statement.groups and statement.groups.alpha else repr(statement.alpha)
    risks = [Risk(**risk.model_dump()) for risk in statement.risks]
    others = "".join(f", nor {risk.name} risk above {risk.alpha!r} ({risk.words})" for risk in risks)
    share = _percent(delta_of(statement, reuse.number if reuse else 1))
    often = f"in at least {share} % of such draws (of prompts and decoding randomness) no"
    start = f"{draw.start}, then {often}" if draw.random else f"{draw.start}: on this run no"
    return (
        f"{start} configuration marked certified has {what} above {budget} {draw.where}{others}, for statement "
        f"{statement.hash[:12]} {_made(reuse)}.{draw.note}{_together(reuse)}"
    )


def _made(reuse: Reuse | None) -> str:
    """When the statement was made; outcomes that were there may have had a part in it, which nothing can check."""
    if reuse is None or reuse.before:
        return "fixed before the outcomes"
    known = "made when outcomes were known"
    return f"{known}; it holds if nothing in it was chosen by them" if reuse.number == 1 else known


def _together(reuse: Reuse | None) -> str:
    """What the statements on these prompts hold together, where this one is not the first."""
    if reuse is None or reuse.number == 1:
        return ""
    share = _percent(reuse.together)
    return f" It is statement {reuse.number} on these prompts, {reuse.counted:,} configurations are counted, and " + (
        f"the {reuse.number} hold together in at least {share} %."
        if reuse.together < 1
        else "together they hold nothing."
    )


def _percent(delta: float) -> str:
    """1 - delta in percent, rounded down to a hundredth where it has more digits."""
    share = 100 * (1 - Decimal(repr(delta)))
    return f"{share.quantize(Decimal('0.01'), ROUND_FLOOR).normalize():f}"


class _Draw(NamedTuple):
    """How a promise begins, where the risk holds, and what else must be said."""

    start: str
    where: str = "there"
    note: str = ""
    random: bool = True


def _draw(statement: Statement, pool: str | None) -> _Draw:
    """The sampling design in words; of a pool where another part of it was judged before."""
    prompts, design, clusters = statement.prompts, statement.prompts.design, statement.clusters
    these, source = f"these {prompts.n:,} prompts", prompts.population
    if prompts.slice is not None:
        these = f"these {prompts.n:,} prompts, a random slice of the {prompts.slice.pool:,} in {prompts.slice.file},"
    conservative = " Under such a draw the test errs less often than it may."
    if clusters is not None and clusters.remedy == "one_per_cluster":
        return _Draw(
            f"If {these} are a random one of each of {clusters.n:,} clusters by {clusters.by}, and the clusters an "
            f"independent random draw from {source}",
            "there, on a random prompt of a random cluster",
        )
    if clusters is not None:
        return _Draw(
            f"If the {clusters.n:,} clusters by {clusters.by} of {these} are an independent random draw from {source}",
            "there, on a random prompt of a random cluster",
        )
    if design is None and pool is not None:
        return _Draw(f"If {these} are a random part of those in {pool}", "over these")
    if design is None:
        return _Draw(f"If {these} are an independent random draw from {source}")
    if design.kind == "stratified":
        sizes = ", ".join(f"{name} {size:,}" for name, size in (design.sizes or {}).items())
        start = f"If {these} are independent random draws from {source} with fixed numbers by group ({sizes})"
        if statement.mix is not None:
            return _Draw(start, f"there, in a mix of {_percents(statement.mix)}")
        return _Draw(start, "there, in this mix of groups", conservative)
    if design.kind == "finite_pool":
        return _Draw(
            f"If {these} were drawn at random, without replacement, from the {design.pool:,} prompts of {source}",
            "over these",
            conservative,
        )
    return _Draw(
        f"{these[:1].upper()}{these[1:]} are all of {source}",
        "over them",
        " The measured risks are those of this run, without any sampling error; the test asks for more than a measured "
        "risk below its budget. Another run may differ.",
        random=False,
    )


def _percents(mix: StatedMix) -> str:
    return ", ".join(f"{100 * share:g} % {name}" for name, share in sorted(mix.shares.items()))


def canonical(value: Any) -> bytes:
    """The one byte string that stands for a JSON value in hashes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def sha256_of(value: Any) -> str:
    """Hash of a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()
