"""The reference against its own second run: how much of a candidate's risk is noise from run to run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from pydantic import JsonValue

from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Grid
from pytest_redline.noise_schema import NoiseResult, NoiseRow
from pytest_redline.outcomes import Outcomes, Replicate
from pytest_redline.risks import joint_losses
from pytest_redline.statement_schema import Statement
from pytest_redline.stats.intervals import clopper_pearson
from pytest_redline.stats.paired import mcnemar

_DIGITS = 12  # of a difference of losses: below is rounding
_NEAR = 2  # standard errors between alpha and the noise floor


def noise_result(grid: Grid, outcomes: Outcomes, replicate: Replicate | None) -> NoiseResult | None:
    """Compare the second run of the reference with the first, and with every candidate.

    Raises
    ------
    OutcomesError
        The grid declares a second run and there is none, or the other way round.
    """
    if grid.noise_floor is None or replicate is None:
        if (grid.noise_floor is None) != (replicate is None):
            raise OutcomesError(f"{grid.name}: noise_floor and a second run of the reference go together")
        return None
    if outcomes.known is not None:
        raise OutcomesError(f"{grid.name}: noise_floor needs every configuration on every prompt")
    if (outcomes.scores is None) != (replicate.scores is None):
        raise OutcomesError(f"{grid.name}: scores of the configurations and of the second run go together")
    n = len(outcomes.prompts)
    reference = grid.labels.index(grid.reference)
    both = replace(
        outcomes,
        correct=np.vstack([outcomes.correct, replicate.correct]),
        scores=None
        if outcomes.scores is None or replicate.scores is None
        else np.vstack([outcomes.scores, replicate.scores]),
    )
    *losses, lost = joint_losses(grid, both, reference)
    change = both.rightness[-1] - both.rightness[reference]
    clusters = outcomes.clusters if grid.by_cluster else None
    units = np.arange(n) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    rows = []
    for label, own in zip(grid.labels, losses, strict=True):
        if label != grid.reference:
            more = np.bincount(units, own - lost).round(_DIGITS)
            worse, better = int((more > 0).sum()), int((more < 0).sum())
            p = mcnemar(worse, better)
            rows.append(NoiseRow(label=label, worse=worse, better=better, p=p, lossless=label in grid.lossless))
    texts_differ = None
    if outcomes.outputs is not None and replicate.outputs is not None:
        texts_differ = int(np.count_nonzero(outcomes.outputs[reference] != replicate.outputs))
    k, rate = int(np.count_nonzero(lost)), float(lost.sum() / n)
    return NoiseResult(
        label=grid.noise_floor.label,
        k=k,
        n=n,
        gained=int(np.count_nonzero(change > 0)),
        rate=rate,
        standard_error=math.sqrt(np.square(np.bincount(units, lost - rate)).sum()) / n,
        risk_interval=clopper_pearson(k, n) if grid.group_test == "exact" else None,
        net_accuracy=100 * float(change.sum()) / n,
        texts_differ=texts_differ,
        level=grid.delta / len(grid.lossless) if grid.lossless else None,
        configurations=rows,
    )


def noise_warnings(grid: Grid, noise: NoiseResult | None, statement: Statement) -> list[str]:
    """What a reviewer should know of run-to-run noise, and of draws that configurations share."""
    found = []
    seeds = _seeds(statement)
    if noise is not None:
        if grid.alpha - noise.rate < _NEAR * noise.standard_error:
            found.append(
                f"alpha {grid.alpha:g} is within {_NEAR} standard errors of the noise floor {noise.k}/{noise.n} = "
                f"{noise.rate:.4f} (se {noise.standard_error:.4f}): a candidate as good as the reference may not be "
                "certifiable; raise alpha for the next statement, or make serving less random"
            )
        if noise.texts_differ == 0 and grid.reference in seeds:
            found.append(
                f"{noise.label} gives the reference's text on every prompt although it samples: not a second run"
            )
    alike = [label for label, seed in seeds.items() if seed == seeds.get(grid.reference) and label != grid.reference]
    if alike:
        more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
        found.append(
            f"common random numbers: {', '.join(alike[:3])}{more} and the reference have one seed and draw the same "
            "token in the same state; separate runs would give a larger k"
        )
    return found


def _seeds(statement: Statement) -> dict[str, JsonValue]:
    """Seed of each configuration that the engine serves with random draws; recordings do not say how theirs were."""
    if not statement.checkpoints:
        return {}
    return {
        each.label: each.knobs.get("seed")
        for each in statement.configurations
        if isinstance(temperature := each.knobs.get("temperature"), int | float) and temperature > 0
    }
