"""Prompts that are not independent of each other: how they are told, and what is done about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pytest_redline.claims import Clusters
from pytest_redline.grid import Grid
from pytest_redline.order import random_order
from pytest_redline.outcomes import Outcomes, shown_id
from pytest_redline.stats.splits import proportional

_VARIANT = re.compile(
    r"(.+?)(?:#\d+|[/:._@~-](?:turn|variant|var|para|paraphrase|copy|rep|repeat|sample|seed)[-_ ]?\d+)", re.IGNORECASE
)
_NUMBER = re.compile(r"\d+(?:[.,:/]\d+)*")
_TEXT = "a text that another one has but for numbers"
_FEW = 0.01  # share of prompts that may be alike by chance


def one_of_each(ids: Sequence[str], clusters: Sequence[str], seed: int) -> list[int]:
    """Positions of one random prompt of each cluster, ascending: a function of the prompts alone."""
    chosen: dict[str, int] = {}
    for position in random_order(ids, seed).tolist():
        chosen.setdefault(clusters[position], position)
    return sorted(chosen.values())


def thinned(outcomes: Outcomes, clusters: Clusters | None) -> tuple[Outcomes, list[str]]:
    """Outcomes of one prompt of each cluster where that is the declared remedy, and what must be said about it."""
    if clusters is None or clusters.remedy != "one_per_cluster" or outcomes.clusters is None:
        return outcomes, []
    kept = one_of_each(outcomes.prompts, outcomes.clusters, clusters.seed)
    columns = np.array(kept)
    smaller = replace(
        outcomes,
        prompts=tuple(outcomes.prompts[position] for position in kept),
        correct=outcomes.correct[:, columns],
        measures={name: values[:, columns] for name, values in outcomes.measures.items()},
        groups=None if outcomes.groups is None else tuple(outcomes.groups[position] for position in kept),
        outputs=None if outcomes.outputs is None else outcomes.outputs[:, columns],
        clusters=tuple(outcomes.clusters[position] for position in kept),
        scores=None if outcomes.scores is None else outcomes.scores[:, columns],
    )
    return smaller, [kept_words(len(outcomes.prompts), len(kept), clusters)]


def kept_words(prompts: int, kept: int, clusters: Clusters) -> str:
    """Say how many prompts are left."""
    return (
        f"{prompts:,} prompts fall into {kept:,} clusters by {clusters.by}; one random prompt of each is used (seed "
        f"{clusters.seed})"
    )


def units(
    clusters: Clusters | None, groups: Sequence[str] | None, names: Sequence[str] | None, n: int
) -> dict[str, int]:
    """Number of observations in "all" and in each group: of clusters where their means are tested, else of prompts."""
    if clusters is None or clusters.remedy != "cluster_means" or names is None:
        return {"all": n, **Counter(groups or ())}
    pairs = set(zip(groups or (), names, strict=False))
    return {"all": len(set(names)), **Counter(group for group, _ in pairs)}


def apportioned(n: int, shares: Mapping[str, float]) -> dict[str, int]:
    """How many of n prompts each group has in these shares, together 1; of equal remainders the first name is first."""
    names = sorted(shares)
    sizes = dict(zip(names, proportional(n, [shares[name] for name in names], total=1), strict=True))
    return {name: sizes[name] for name in shares}


def cluster_means(losses: NDArray[np.float64], clusters: Sequence[str]) -> tuple[list[str], NDArray[np.float64]]:
    """Names of the clusters, and their mean losses, ``[m, clusters]``, from ``[m, n]`` losses."""
    names = sorted(set(clusters))
    index = {name: position for position, name in enumerate(names)}
    where = np.array([index[name] for name in clusters])
    sums = np.stack([np.bincount(where, weights=row, minlength=len(names)) for row in losses])
    return names, np.minimum(sums / np.bincount(where, minlength=len(names)), 1.0)


def unnoticed_clusters(grid: Grid, ids: Sequence[str], texts: Sequence[str] | None) -> list[str]:
    """Warn of prompts that seem to be variants of each other, by their ids or by texts that differ in numbers only.

    A grid file that says how prompts cluster, or how they were drawn, has thought of it; and where each was drawn by
    itself from a pool or a stratum, it does not matter what they share.
    """
    if grid.clusters is not None or grid.design is not None:
        return []
    found = []
    stems = [match[1] if (match := _VARIANT.fullmatch(prompt)) else prompt for prompt in ids]
    masked = None if texts is None else [_NUMBER.sub("0", " ".join(text.casefold().split())) for text in texts]
    for keys, what in ((stems, "an id that another one has but for the number of a variant"), (masked, _TEXT)):
        if keys is None:
            continue
        sizes = Counter(keys)
        shared = [position for position, key in enumerate(keys) if sizes[key] > 1]
        if len(shared) > _FEW * len(ids):
            first = keys[shared[0]]
            pair = [shown_id(ids[position]) for position in shared if keys[position] == first][:2]
            found.append(
                f"{len(shared):,} of {len(ids):,} prompts have {what} (first "
                f"{' and '.join(pair)}). Prompts of one template or conversation fail together; the exact test then "
                "errs more often than it says: .13 to .25 at a nominal .10, with 5 to 10 prompts a template. Declare "
                "`clusters: {by: COLUMN, remedy: ...}`; or, if each prompt was drawn by itself, `population: {name: "
                "..., design: independent}`"
            )
    return found
