"""Outcomes of a pilot, from whatever holds them: a certificate, a grid with recorded outcomes, or a bare recording."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_redline.claims import LossTest
from pytest_redline.errors import GridError, OutcomesError
from pytest_redline.gate import recorded_outcomes
from pytest_redline.grid import Columns, Grid, RecordedSource
from pytest_redline.grid_file import ANY_ALPHA, load_grid
from pytest_redline.outcomes import Outcomes
from pytest_redline.packing import unpack
from pytest_redline.paths import display, is_grid
from pytest_redline.sources.recorded import load_recorded
from pytest_redline.starting import bare
from pytest_redline.statement_schema import Statement
from pytest_redline.stats.series import spent
from pytest_redline.verify import verify


@dataclass(frozen=True)
class Pilot:
    """What a pilot showed.

    Parameters
    ----------
    candidates
        The c labels beside the reference.
    violated
        ``[c, n]`` bool: the reference right on the prompt and the candidate wrong.
    statement
        What a certificate states; None for other files.
    """

    reference: str
    candidates: tuple[str, ...]
    violated: NDArray[np.bool_]
    warnings: tuple[str, ...] = ()
    statement: Statement | None = None


def read_pilot(path: Path, reference: str | None, grid: Grid | None) -> Pilot:
    """Read a pilot.

    Parameters
    ----------
    path
        ``NAME.certificate.json``, a grid file, or a recording with the columns config, prompt and correct.
    reference
        Label of the reference; that of the certificate or grid if None.
    grid
        A grid that says which configurations a bare recording holds, and in which columns.

    Raises
    ------
    RedlineError
        The file cannot be read, its outcomes cannot be aligned, or there is no such reference.
    """
    if path.suffix == ".json":
        certificate = verify(path)
        _refuse_means(path, certificate.statement.test)
        outcomes = unpack(certificate.outcomes, tuple(each.label for each in certificate.statement.configurations))
        found = _pilot(path, outcomes, reference or certificate.reference)
        return replace(found, statement=certificate.statement)
    if is_grid(path):
        grid = load_grid(path, ini_alpha=ANY_ALPHA)
        _refuse_means(path, grid.test)
        if not isinstance(grid.source, RecordedSource):
            raise OutcomesError(
                f"{display(path)}: its outcomes are served, not recorded; name the certificate of its run instead, "
                "which pytest --redline-report=DIR writes"
            )
        recorded, _, _ = recorded_outcomes(grid, grid.source)
    elif grid is not None:
        _refuse_means(path, grid.test)
        columns = grid.source.columns if isinstance(grid.source, RecordedSource) else Columns()
        recorded = load_recorded(RecordedSource(path, columns), grid.labels, {}, ())
    else:
        reference, seen = bare(path, reference, "write a grid file that maps them and add --grid")
        recorded = load_recorded(RecordedSource(path, Columns()), seen.labels, {}, ())
    return _pilot(path, recorded.outcomes, reference or (grid.reference if grid else ""), recorded.warnings)


def _refuse_means(path: Path, test: LossTest) -> None:
    if test != "exact":
        raise OutcomesError(
            f"{display(path)}: is tested by mean losses ({test}), and a plan is one of the exact test; `needed` in the "
            "certificate says about how many prompts such a candidate needs"
        )


def first_delta(claim: Grid | Statement) -> float:
    """Failure probability of a first statement on its prompts, where delta is shared by several."""
    return claim.delta if claim.spending is None else spent(claim.delta, 1, claim.spending.gates)


def not_planned_for(claim: Grid | Statement) -> list[str]:
    """What a gate claims beside Holm's procedure on the exact test of all prompts, in words."""
    found = []
    looks = claim.looks if isinstance(claim, Statement) else claim.stopping and claim.stopping.looks
    if claim.test != "exact":
        found.append(f"these numbers are for the exact test of independent prompts; this gate tests by {claim.test}")
    if claim.groups and claim.groups.alpha:
        found.append("groups have budgets of their own, which must hold too; all chances are of the pooled one alone")
    if claim.risks:
        names = ", ".join(risk.name for risk in claim.risks)
        found.append(f"further risks must hold too ({names}); all chances are of wrong answers alone")
    if claim.weight:
        found.append(
            f"{claim.weight.label} has {claim.weight.share:g} of delta and is certified more easily, the others less; "
            "these numbers are for equal weights"
        )
    if looks:
        found.append("a gate with looks certifies a little less than these numbers say, which are for one look at all")
    if claim.spending:
        found.append(
            f"all statements on these prompts share delta {claim.delta:g}; these numbers are for "
            + ("each of them" if claim.spending.gates else "the first, later ones get less (--delta says how much)")
        )
    if claim.lossless:
        found.append("candidates declared lossless must not be worse than the noise floor either")
    return found


def _pilot(path: Path, outcomes: Outcomes, reference: str, warnings: tuple[str, ...] = ()) -> Pilot:
    labels = outcomes.configurations
    if reference not in labels:
        raise GridError(
            f"{display(path)}: {reference!r} is none of its configurations; there are {', '.join(labels[:8])}"
        )
    if outcomes.scores is not None or outcomes.known is not None:
        what = "scores or repeats" if outcomes.scores is not None else "configurations that were not served in full"
        raise OutcomesError(
            f"{display(path)}: holds {what}; a pilot has one verdict, right or wrong, of every configuration and prompt"
        )
    candidates = [index for index, label in enumerate(labels) if label != reference]
    if not candidates:
        raise OutcomesError(f"{display(path)}: holds {reference} only; a pilot has a candidate beside the reference")
    violated = outcomes.violated(labels.index(reference))[candidates]
    return Pilot(reference, tuple(labels[index] for index in candidates), violated, warnings)
