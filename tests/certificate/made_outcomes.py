"""Grids and outcomes made from a few numbers, so that a test shows only what it is about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pytest_redline.certificate import certify
from pytest_redline.certificate_schema import Certificate
from pytest_redline.grid import (
    KNOWN_MEASURES,
    Columns,
    Configuration,
    CostMeasure,
    Grid,
    Groups,
    RecordedSource,
    Serving,
)
from pytest_redline.outcomes import Outcomes

TABLES = json.loads((Path(__file__).parents[1] / "data" / "redline_tables.json").read_text(encoding="utf-8"))
DECLARED = CostMeasure("declared cost", "higher", "ratio_of_sums", None, None, declared=True)
TOKENS_PER_FORWARD = KNOWN_MEASURES["tokens_per_forward"]


def make_grid(
    labels: Sequence[str],
    *,
    reference: str = "ref",
    alpha: float = 0.10,
    delta: float = 0.10,
    cost: CostMeasure | None = None,
    costs: Mapping[str, float | None] | None = None,
    groups: Mapping[str, float] | None = None,
    serving: str | None = None,
) -> Grid:
    """A grid of these labels; with ``costs`` (None is unknown) the cost is declared."""
    declared = costs or {}
    return Grid(
        path=Path("made.redline.yaml"),
        name="made",
        alpha=alpha,
        delta=delta,
        reference=reference,
        configurations=tuple(
            Configuration(
                label,
                {"number": number},
                line=number + 1,
                cost=declared.get(label),
                cost_unknown=label in declared and declared[label] is None,
            )
            for number, label in enumerate(labels)
        ),
        source=RecordedSource(None, Columns()),
        cost=DECLARED if costs is not None and cost is None else cost,
        grader="recorded: correct",
        population="made prompts",
        serving=Serving(serving) if serving else None,
        groups=Groups("group", dict(groups)) if groups is not None else None,
    )


def make_outcomes(
    correct: Mapping[str, Sequence[Any] | np.ndarray],
    *,
    measures: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
    groups: Sequence[str] | None = None,
    outputs: Mapping[str, Sequence[int]] | None = None,
) -> Outcomes:
    """Outcomes of labels to verdicts, prompts p0, p1, ..."""
    rows = np.array([np.asarray(row, dtype=np.bool_) for row in correct.values()])
    return Outcomes(
        tuple(correct),
        tuple(f"p{index}" for index in range(rows.shape[1])),
        rows,
        {
            name: np.array([np.asarray(values[label], np.float64) for label in correct])
            for name, values in (measures or {}).items()
        },
        tuple(groups) if groups is not None else None,
        np.array([outputs[label] for label in correct], np.uint64) if outputs is not None else None,
    )


def violations(n: int, counts: Mapping[str, int], reference: str = "ref") -> Outcomes:
    """The reference right everywhere, every other label wrong on the first k prompts."""
    numbers = np.arange(n)
    return make_outcomes({reference: numbers >= 0, **{label: numbers >= k for label, k in counts.items()}})


def certify_counts(
    n: int,
    counts: Mapping[str, int],
    *,
    costs: Mapping[str, float | None] | None = None,
    reference: str = "ref",
    **grid: Any,
) -> Certificate:
    """Certificate of a grid with these violation counts."""
    declared = {reference: 1.0, **dict.fromkeys(counts, 2.0)} if costs is None else costs
    labels = [reference, *counts]
    return certify(
        make_grid(labels, reference=reference, costs=declared, **grid),
        violations(n, counts, reference),
        intervals=False,
    )


def certified_labels(certificate: Certificate) -> set[str]:
    """Every certified label, the reference included."""
    return {row.label for row in certificate.configurations if row.certified}


def at(grid: Grid, **changes: Any) -> Grid:
    """The same grid with other fields."""
    return replace(grid, **changes)
