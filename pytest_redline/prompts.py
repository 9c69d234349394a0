"""Prompts files: which prompts there are, and for a source that serves them, a sample in a recorded random order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pytest_redline.claims import Clusters
from pytest_redline.clusters import apportioned, kept_words, one_of_each
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Sample
from pytest_redline.outcomes import PromptList, natural_key, quoted, shown_id
from pytest_redline.paths import display
from pytest_redline.sources.table import Faults, read_bytes, read_rows
from pytest_redline.sources.values import MISSING, NO_GROUP, as_id, as_text, encodable, lookup
from pytest_redline.text import on_one_line


@dataclass(frozen=True)
class Prompts:
    """The n prompts that are served, in natural order of id.

    Parameters
    ----------
    ids, texts, answers
        Of each prompt.
    groups, clusters
        Of each prompt, or None where the file has no such column, or none is asked for.
    order
        Positions in the order in which they are served: random, from the seed of the sample.
    sha256
        Hash of the file's bytes.
    notes
        What must be said about the choice of the prompts.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    answers: tuple[str, ...]
    groups: tuple[str, ...] | None
    order: tuple[int, ...]
    sha256: str
    clusters: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def only(self, ids: Collection[str]) -> Prompts:
        """Take a part of the prompts, in the same order of serving."""
        kept = [place for place, each in enumerate(self.ids) if each in ids]
        place_of = {old: new for new, old in enumerate(kept)}
        return replace(
            self,
            ids=tuple(self.ids[place] for place in kept),
            texts=tuple(self.texts[place] for place in kept),
            answers=tuple(self.answers[place] for place in kept),
            groups=None if self.groups is None else tuple(self.groups[place] for place in kept),
            clusters=None if self.clusters is None else tuple(self.clusters[place] for place in kept),
            order=tuple(place_of[place] for place in self.order if place in place_of),
        )


class _Row(NamedTuple):
    """What a row says beside its id; None where it has no such column."""

    prompt: str | None
    answer: str | None
    group: str | None
    cluster: str | None


class _File(NamedTuple):
    """A prompts file, checked row by row."""

    name: str
    rows: dict[str, _Row]
    sha256: str


def read_prompts(path: Path, group: str = "group", cluster: str | None = None) -> PromptList:
    """Read which prompts there are: column ``id``, and where there are such columns, ``prompt``, group and cluster.

    Raises
    ------
    OutcomesError
        The file is unreadable; an id is missing, doubled or no id; or a row lacks a text, group or cluster that others
        have.
    """
    file = _read(path, group, cluster, required=())
    texts, groups, clusters = (
        [getattr(row, column) for row in file.rows.values()] for column in ("prompt", "group", "cluster")
    )
    return PromptList(
        file.name,
        tuple(file.rows),
        tuple(texts) if any(texts) else None,
        tuple(groups) if any(groups) else None,
        file.sha256,
        tuple(clusters) if any(clusters) else None,
    )


def read_calibration_prompts(
    path: Path, group: str, sample: Sample | None, clusters: Clusters | None = None
) -> Prompts:
    """Read what is to be served: columns ``id``, ``prompt``, ``answer``, and the group where there is such a column.

    Parameters
    ----------
    sample
        A random subset, or None for all prompts in an order of seed 0.
    clusters
        How prompts cluster; where one of each is the remedy, the others are left out before the sample is drawn.

    Raises
    ------
    OutcomesError
        The file is unreadable; a row lacks an id, a text or an answer; an id or a text stands twice; or the file
        holds fewer prompts than the sample asks for.
    """
    file = _read(path, group, clusters.by if clusters else None, required=("prompt", "answer"))
    ids = sorted(file.rows, key=natural_key)
    notes = []
    if clusters is not None:
        bare = [prompt for prompt in ids if file.rows[prompt].cluster is None]
        if bare:
            raise OutcomesError(
                f"{file.name}: {len(bare):,} prompts have no {clusters.by!r} (first {shown_id(bare[0])}), which "
                "clusters.by names; give every prompt one"
            )
        if clusters.remedy == "one_per_cluster":
            kept = one_of_each(ids, [str(file.rows[prompt].cluster) for prompt in ids], clusters.seed)
            notes.append(kept_words(len(ids), len(kept), clusters))
            ids = [ids[position] for position in kept]
    size, seed, shares = sample or Sample(len(ids), 0)
    if size > len(ids):
        raise OutcomesError(f"{file.name}: holds {len(ids):,} prompts, the sample asks for {size:,}; ask for fewer")
    chosen = np.random.default_rng(seed).permutation(len(ids)).tolist()
    if shares is not None:
        chosen = _in_shares(file.name, chosen, [file.rows[prompt].group for prompt in ids], apportioned(size, shares))
    chosen = chosen[:size]
    place = {index: position for position, index in enumerate(sorted(chosen))}
    drawn = [ids[index] for index in place]
    rows = [file.rows[prompt] for prompt in drawn]
    return Prompts(
        ids=tuple(drawn),
        texts=tuple(str(row.prompt) for row in rows),
        answers=tuple(str(row.answer) for row in rows),
        groups=tuple(str(row.group) for row in rows) if any(row.group for row in rows) else None,
        order=tuple(place[index] for index in chosen),
        sha256=file.sha256,
        clusters=None if clusters is None else tuple(str(row.cluster) for row in rows),
        notes=tuple(notes),
    )


def _in_shares(name: str, shuffled: Sequence[int], groups: Sequence[str | None], sizes: Mapping[str, int]) -> list[int]:
    """The first of each group in a random order, as many as wanted; the order stays."""
    taken: Counter[str | None] = Counter()
    chosen = []
    for index in shuffled:
        group = groups[index]
        if taken[group] < sizes.get(group or "", 0):
            taken[group] += 1
            chosen.append(index)
    short = [
        f"{wanted:,} of {group!r}, but there are {taken[group]:,}"
        for group, wanted in sizes.items()
        if taken[group] < wanted
    ]
    if short:
        raise OutcomesError(f"{name}: prompts.sample.shares ask for {'; for '.join(short)}; ask for a smaller sample")
    return chosen


def _read(path: Path, group: str, cluster: str | None, required: tuple[str, ...]) -> _File:
    """Read and check every row; with required texts the prompts are served, so that none may stand twice."""
    name, content = display(path), read_bytes(path)
    faults = Faults()
    rows: dict[str, _Row] = {}
    lines: dict[str, int] = {}
    seen: dict[str, str] = {}  # text -> id
    for line, row in read_rows(name, content.data, faults):
        found = lookup(row, "id")
        prompt = as_id(found)
        if prompt is None:
            what = (
                f"no id among the columns {', '.join(map(repr, row))}"
                if found is MISSING
                else f"{quoted(found)} is no id"
            )
            faults.add(f"{name}:{line} id: {what}; allowed are texts and integers; give every prompt one")
            continue
        if prompt in lines:
            faults.add(
                f"{name}:{line}: prompt {quoted(prompt)} stands on line {lines[prompt]} too; remove one of the two"
            )
            continue
        lines[prompt] = line
        columns = ("prompt", "answer", group, cluster)
        values = _Row(*(None if column is None else _text(lookup(row, column)) for column in columns))
        rows[prompt] = values
        missing = [column for column in required if not getattr(values, column)]
        if missing:
            faults.add(f"{name}:{line}: prompt {quoted(prompt)} has no {' and no '.join(missing)}; add it")
        unwritable = [column for column in required if not encodable(getattr(values, column) or "")]
        if unwritable:
            faults.add(
                f"{name}:{line}: prompt {quoted(prompt)} has a lone surrogate in its {' and '.join(unwritable)}; "
                "allowed are texts that can be written as UTF-8; correct it"
            )
        for header, value in ((group, values.group), (cluster, values.cluster)):
            if value and not on_one_line(value):
                faults.add(f"{name}:{line} {header}: {quoted(value)} {NO_GROUP}")
        if required and values.prompt:
            earlier = seen.setdefault(values.prompt, prompt)
            if earlier != prompt:
                faults.add(
                    f"{name}:{line}: prompt {quoted(prompt)} has the text of {quoted(earlier)}; a prompt that stands "
                    "twice counts twice; remove one"
                )
    for column, header in (("prompt", "prompt"), ("group", group), ("cluster", cluster)):
        having = sum(getattr(row, column) is not None for row in rows.values())
        if 0 < having < len(rows) and column not in required:
            faults.add(f"{name}: {len(rows) - having:,} of {len(rows):,} prompts have no {header!r}; give all or none")
    faults.check()
    return _File(name, rows, content.sha256)


def _text(value: object) -> str | None:
    """Text of a cell; numbers are spelt out, since answers often are numbers."""
    if value is MISSING or isinstance(value, bool):
        return None
    return str(value) if isinstance(value, int | float) else as_text(value)
