"""What a study says: closed pydantic models, plain JSON types only.

``pytest-redline schema --study`` prints them as JSON Schema. Shares, risks and gains are fractions (a gain of 0.375 is
37.5 % faster), net accuracy is in percentage points. Equal inputs give equal bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pytest_redline.certificate_schema import Cost, FileRecord
from pytest_redline.closed import Closed, Count

Share = Annotated[float, Field(ge=0, le=1)]


class StudiedConfiguration(Closed):
    """A configuration on all recorded prompts: ``k`` violations; gain null where cost is unknown."""

    label: str
    k: Count
    joint_risk: Share
    gained: Count
    net_accuracy: float
    gain: float | None


class SelectorResult(Closed):
    """What a selector did in all splits.

    ``mean_gain`` averages the gain, on all prompts, of what each split deploys. ``test_exceedance`` is the share of
    splits that deploy a configuration whose joint risk on the test half is above alpha, ``pool_exceedance`` on all
    prompts. ``deployed`` counts the splits by the label that they deploy, those that keep the reference included.
    """

    selector: str
    mean_gain: float
    test_exceedance: Share
    pool_exceedance: Share
    reference_share: Share
    deployed: dict[str, Count]


class Interval(Closed):
    """Mean over splits, and their percentiles 2.5 and 97.5."""

    mean: float
    lower: float
    upper: float


class MeasuredAgain(Closed):
    """What REDLINE deploys on all prompts, measured on the test halves of the splits that deploy it too.

    ``splits_same`` counts those, ``splits_reference`` the splits that keep the reference. ``held_gain`` is null where
    costs are declared, so that none can be measured on a half; both are null where no split deploys it.
    """

    deployed: str
    gain: float
    net_accuracy: float
    splits_reference: Count
    splits_same: Count
    held_gain: Interval | None
    held_net_accuracy: Interval | None


class MeanRule(Closed):
    """The rule MEAN-t for one tolerance of ``points``."""

    points: Count
    mean_gain: float
    test_exceedance: Share


class Matched(Closed):
    """The rules on mean accuracy whose gain comes next below REDLINE's, and first reaches it; null where none does."""

    slower: MeanRule | None
    faster: MeanRule | None


class BudgetResult(Closed):
    """Everything at one risk budget."""

    alpha: Annotated[float, Field(gt=0, lt=1)]
    selectors: list[SelectorResult]
    again: MeasuredAgain
    mean_matched: Matched


class SubsetBudget(Closed):
    """What REDLINE does on subsets at one budget."""

    alpha: Annotated[float, Field(gt=0, lt=1)]
    reference_share: Share
    mean_gain: float


class Subsets(Closed):
    """Random subsets of one size, as if only so many prompts had been recorded.

    ``strata`` says how many prompts of each stratum a subset holds; null for uniform draws. ``histogram`` counts draws
    by the smallest budget of 0.01, 0.02, ..., 0.30 at which REDLINE deploys something faster than the reference,
    ``none`` those without one. Median and quartiles are of that budget, null where they would lie above 0.30.
    """

    size: Annotated[int, Field(gt=0)]
    strata: dict[str, Count] | None
    draws: Annotated[int, Field(gt=0)]
    histogram: dict[str, Count]
    none: Count
    median: float | None
    quartiles: tuple[float | None, float | None]
    budgets: list[SubsetBudget]


class Study(Closed):
    """A study of selectors on one recording."""

    schema_version: Literal[1] = 1
    files: list[FileRecord]
    n: Annotated[int, Field(gt=0)]
    m: Annotated[int, Field(gt=0)]
    reference: str
    delta: Annotated[float, Field(gt=0, lt=1)]
    cost: Cost
    seed: Count
    splits: Annotated[int, Field(gt=0)]
    calibration: Annotated[int, Field(gt=0)]
    test: Annotated[int, Field(gt=0)]
    configurations: list[StudiedConfiguration]
    budgets: list[BudgetResult]
    subsets: list[Subsets]
    warnings: list[str]


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a study."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Redline study",
        **{key: value for key, value in Study.model_json_schema().items() if key != "title"},
    }
