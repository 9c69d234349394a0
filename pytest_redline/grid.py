"""A grid file (``*.redline.yaml``) as frozen data: one file is one grid and one statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class CorrectColumn:
    """Which values of a column count as right: 1/true, those at or over a threshold, or those equal to a value."""

    path: str
    threshold: float | None = None
    equals: str | float | bool | None = None


@dataclass(frozen=True)
class Columns:
    """Where a recording keeps what: a column name, or keys of nested objects joined by dots.

    In a path ``{config}`` stands for the label of a configuration (one row holds all of them). A path that names an
    existing key as a whole wins over its dotted reading. None: the default name where the recording has it.
    """

    prompt: tuple[str, ...] = ("prompt",)
    correct: CorrectColumn = field(default_factory=lambda: CorrectColumn("correct"))
    config: str = "config"
    group: str | None = None
    prompt_text: str | None = None
    prompt_hash: str | None = None
    output: str | None = None
    measures: Mapping[str, str] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()  # keys that the grid file spells out, so that a missing column is an error


@dataclass(frozen=True)
class RecordedSource:
    """Outcomes that already exist: one file, or one file per configuration (its ``log:``)."""

    file: Path | None
    columns: Columns
    sha256: str | None = None
    line: int = 0


@dataclass(frozen=True)
class CostMeasure:
    """What is compared to find the fastest configuration.

    ``numerator / denominator`` of the named measures, as a ratio of sums or a mean of per-prompt ratios; without a
    denominator, the mean over prompts. ``declared``: the numbers stand in the grid file, nothing is computed.
    """

    name: str
    better: Literal["higher", "lower"]
    pool: Literal["ratio_of_sums", "mean_of_ratios"]
    numerator: str | None
    denominator: str | None
    declared: bool = False
