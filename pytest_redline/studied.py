"""What a study looks at: a recording, or a grid file with recorded outcomes, with what its configurations cost."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_redline.cost import costs
from pytest_redline.errors import GridError, OutcomesError
from pytest_redline.gate import recorded_outcomes
from pytest_redline.grid import (
    DEFAULT_DELTA,
    KNOWN_MEASURES,
    Columns,
    Configuration,
    CostMeasure,
    Grid,
    Groups,
    RecordedSource,
)
from pytest_redline.grid_file import ANY_ALPHA, load_grid
from pytest_redline.outcomes import Outcomes
from pytest_redline.paths import display, is_grid
from pytest_redline.starting import bare


@dataclass(frozen=True)
class Studied:
    """Recorded outcomes and costs.

    Parameters
    ----------
    outcomes
        Of every configuration on every prompt; groups are the strata.
    reference
        Index of the reference.
    measure
        What makes one configuration faster than another.
    gain
        ``[m]`` gain of each over the reference on all prompts, NaN where it is not known.
    alpha
        Budget of the grid file; None for a bare recording.
    delta
        Of the grid file, else 0.10.
    files
        Path, from the folder of the file that was named, and sha256 of what was read.
    """

    outcomes: Outcomes
    reference: int
    measure: CostMeasure
    gain: NDArray[np.float64]
    alpha: float | None
    delta: float
    files: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()


def read_studied(path: Path, reference: str | None, cost: str | None, strata: str | None) -> Studied:
    """Read what is to be studied.

    Parameters
    ----------
    path
        A recording with the columns config, prompt and correct, or a grid file whose outcomes are recorded.
    reference
        Label of the reference; None for that of the grid.
    cost
        Known cost measure of a recording; None for the first one whose columns it has. A grid says its own.
    strata
        Column that holds the stratum of each prompt; None for the groups of the grid, if it has any.

    Raises
    ------
    RedlineError
        The file cannot be read or aligned, does not say which costs are compared, or has no such reference.
    """
    grid = _declared(path, cost) if is_grid(path) else _bare(path, reference, cost)
    if not isinstance(grid.source, RecordedSource):
        raise OutcomesError(f"{display(path)}: its outcomes are served, not recorded; a study reads recorded ones")
    if grid.loss is not None:
        raise OutcomesError(
            f"{display(path)}: its verdicts are scores or repeats; a study compares one right or wrong answer for each "
            "prompt; say under `correct` from which threshold on an answer is right"
        )
    name = grid.reference if reference is None else reference
    if name not in grid.labels:
        raise GridError(
            f"{display(path)}: {name!r} is none of its configurations; there are {', '.join(grid.labels[:8])}"
        )
    if len(grid.labels) < 2:
        raise OutcomesError(f"{display(path)}: holds {name} only; a study has a candidate beside the reference")
    if strata is not None:
        columns = grid.source.columns
        columns = replace(columns, group=strata, declared=columns.declared | {"group"})
        grid = replace(grid, groups=Groups(strata, {}), source=replace(grid.source, columns=columns))
    assert isinstance(grid.source, RecordedSource)
    recorded, _, _ = recorded_outcomes(grid, grid.source)
    if len(recorded.outcomes.prompts) < 2:
        raise OutcomesError(f"{display(path)}: holds one prompt; a split takes at least two")
    index = grid.labels.index(name)
    measure, gain = _gains(path, grid, recorded.outcomes, index)
    return Studied(
        recorded.outcomes,
        index,
        measure,
        gain,
        grid.alpha if is_grid(path) else None,
        grid.delta,
        tuple((Path(os.path.relpath(name, path.parent)).as_posix(), digest) for name, digest in recorded.files),
        (*recorded.warnings, *_left_out(grid)),
    )


def _declared(path: Path, cost: str | None) -> Grid:
    """Read a grid file."""
    if cost is not None:
        raise GridError(f"{display(path)}: a grid says its own cost; leave --cost {cost} out, or change `cost:` there")
    return load_grid(path, ini_alpha=ANY_ALPHA)


def _bare(path: Path, reference: str | None, cost: str | None) -> Grid:
    """Make a grid of a recording in the usual columns."""
    reference, seen = bare(
        path, reference, f"write a grid file that maps them (pytest-redline init {display(path)}) and study that"
    )
    known = [each for each in KNOWN_MEASURES.values() if set(each.measures) <= set(seen.columns)]
    measure = KNOWN_MEASURES[cost] if cost is not None else next(iter(known), None)
    if measure is None:
        raise OutcomesError(
            f"{display(path)}: has no cost, so nothing is faster than anything; columns that give one are "
            f"{', '.join(' and '.join(each.measures) for each in KNOWN_MEASURES.values())}; or declare a `cost:` for "
            f"each configuration in a grid file (pytest-redline init {display(path)}) and study that"
        )
    return Grid(
        path=path,
        name=path.name,
        alpha=ANY_ALPHA,
        delta=DEFAULT_DELTA,
        reference=reference,
        configurations=tuple(Configuration(label, {}, 0) for label in seen.labels),
        source=RecordedSource(path, Columns()),
        cost=measure,
        grader="as recorded",
        population="the recorded prompts",
    )


def _gains(path: Path, grid: Grid, outcomes: Outcomes, reference: int) -> tuple[CostMeasure, NDArray[np.float64]]:
    """Return what is compared, and ``[m]`` the gains over the reference."""
    found = costs(grid, outcomes)
    base = found[reference]
    if grid.cost is None or base is None:
        raise OutcomesError(
            f"{display(path)}: the cost of {grid.labels[reference]} is unknown, and gains are over it; name a measure "
            "under `cost:`, or give each configuration a `cost:` of its own"
        )
    gain = np.array([np.nan if each is None else grid.cost.gain(each, base) for each in found])
    gain[reference] = 0.0
    if np.isnan(np.delete(gain, reference)).all():
        raise OutcomesError(
            f"{display(path)}: the cost of no candidate is known, so nothing could be deployed; give each a `cost:`"
        )
    return grid.cost, gain


def _left_out(grid: Grid) -> list[str]:
    """What the grid claims that a study does not look at."""
    declared = {
        "budgets of groups": grid.groups is not None and bool(grid.groups.alpha),
        "further risks": bool(grid.risks),
        "means of clusters": grid.by_cluster,
        "another mix of groups": grid.mix is not None,
        "the weight on what is served": grid.weight is not None,
        "the sharing out of delta": grid.spending is not None,
    }
    claims = [name for name, there in declared.items() if there]
    if not claims:
        return []
    return [f"{' and '.join(claims)} play no part here: a study looks at the joint risk of single prompts alone"]
