"""Records of single configurations, in whatever order they were met, put on one list of prompts.

A source hands over `Records`, one for each configuration; `align` puts them on one list of prompts by id, never by
position, and refuses whatever would make two configurations incomparable.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_redline.errors import OutcomesError
from pytest_redline.outcomes import LARGEST, SMALLEST, Outcomes, PromptList, natural_key, quoted, shown_id

_EXACTLY = "record exactly the prompts of the slice, which `pytest-redline state GRID --ids FILE` writes"


@dataclass
class Rows:
    """Which prompts the rows of a recording are about, in the order they stand there.

    Parameters
    ----------
    file
        Where they stand, as messages show it.
    label
        The configuration they belong to, or None where each row holds every configuration.
    prompts
        The prompt id of each row. Sharing equal ids as one object keeps ten million rows small.
    lines
        The line of each row; empty where rows have no lines.
    texts, hashes, groups, clusters
        Prompt text, prompt hash, group and cluster of each row, None where not known; empty where never known.
    """

    file: str
    label: str | None
    prompts: list[str] = field(default_factory=list)
    lines: array[int] = field(default_factory=lambda: array("q"))
    texts: list[str | None] = field(default_factory=list)
    hashes: list[str | None] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    clusters: list[str | None] = field(default_factory=list)

    def where(self, row: int) -> str:
        """Return ``FILE:LINE`` of a row."""
        return f"{self.file}:{self.lines[row]}" if self.lines else self.file

    @property
    def suffix(self) -> str:
        """`` for LABEL`` where the rows belong to one configuration."""
        return "" if self.label is None else f" for {self.label}"


@dataclass
class Records:
    """What one configuration did, row by row; ``rows`` is one object for all where a row holds every configuration.

    Parameters
    ----------
    label
        The configuration.
    rows
        What prompt each entry belongs to.
    correct
        One byte for each row: 1 right, 0 wrong.
    measures
        Name to one number for each row, `measurable`.
    outputs
        One hash of the answer text for each row; empty where texts are not known.
    scores
        One number from 0 to 1 for each row, where verdicts are scores; empty where they are not.
    """

    label: str
    rows: Rows
    correct: bytearray = field(default_factory=bytearray)
    measures: dict[str, array[float]] = field(default_factory=dict)
    outputs: array[int] = field(default_factory=lambda: array("Q"))
    scores: array[float] = field(default_factory=lambda: array("d"))


def align(
    labels: Sequence[str], records: Sequence[Records], prompts: PromptList | None = None, repeats: bool = False
) -> Outcomes:
    """Put the records of all configurations on one list of prompts, by id.

    Parameters
    ----------
    labels
        The m configurations of the grid, in its order.
    records
        At most one for each label, in any order. Measures that not all of them have are left out, and so are outputs.
    prompts
        Which prompts there are. None: every id that any configuration has.
    repeats
        A prompt has several rows of a configuration, equally many each. Verdicts become scores, their means; so do
        measures; outputs are left out.

    Returns
    -------
    Outcomes
        The same whatever order the rows came in.

    Raises
    ------
    OutcomesError
        A configuration without rows; no prompts; a prompt that is missing, not on the list, or there twice; one id with
        two prompt texts, hashes or groups; one text or hash under two ids; a prompt without a group where others have;
        a measure that is not `measurable`. All of them at once.
    ValueError
        Records that no source may build: two for one label, one for a label that is not asked for, columns of unequal
        length.
    """
    _check(labels, records)
    by_label = {record.label: record for record in records if record.rows.prompts}
    tables = list({id(record.rows): record.rows for record in by_label.values()}.values())
    problems = [
        f"{_files(tables)}configuration {label} has no rows; every configuration of the grid needs an outcome for "
        "every prompt; record it, or remove it from the grid"
        for label in labels
        if label not in by_label
    ]
    ids = prompts.ids if prompts is not None else {prompt for rows in tables for prompt in rows.prompts}
    order = tuple(sorted(ids, key=natural_key))
    if not order:
        problems.append(f"{prompts.file if prompts else 'outcomes'}: there are no prompts; at least one is needed")
        raise OutcomesError(problems)
    index = {prompt: position for position, prompt in enumerate(order)}

    # [rows] position of each row's prompt in the order, -1 where the prompt is not on the list.
    positions = {
        id(rows): np.fromiter((index.get(prompt, -1) for prompt in rows.prompts), np.int64, len(rows.prompts))
        for rows in tables
    }
    missing = {id(rows): np.setdiff1d(np.arange(len(order)), positions[id(rows)]) for rows in tables}
    cells = len(labels) * len(order)
    lacking = sum(len(missing[id(record.rows)]) for record in by_label.values())
    findings: list[_Finding] = []
    everywhere = f"{prompts.file} and from every configuration" if prompts else "every configuration"
    for rows in tables:
        if len(missing[id(rows)]):
            named = _some([order[position] for position in missing[id(rows)]])
            start = f"{rows.file}: {named} no outcome{rows.suffix} ({lacking:,} of {cells:,} rows missing)"
            remedy = _EXACTLY if prompts and prompts.drawn else f"record it, or remove the prompt from {everywhere}"
            findings.append(_Finding(rows.label, ("missing", missing[id(rows)].tobytes()), start, remedy))
        findings += _strangers(rows, positions[id(rows)], prompts)
        findings += (_uneven if repeats else _doubles)(rows, positions[id(rows)], order)
    problems += _joined(findings)

    list_file = prompts.file if prompts else ""
    seed_texts = dict(zip(prompts.ids, prompts.texts, strict=True)) if prompts and prompts.texts else {}
    seed_groups = dict(zip(prompts.ids, prompts.groups, strict=True)) if prompts and prompts.groups else {}
    seed_clusters = dict(zip(prompts.ids, prompts.clusters, strict=True)) if prompts and prompts.clusters else {}
    texts = _agreed("text", tables, lambda rows: rows.texts, seed_texts, list_file, problems)
    hashes = _agreed("hash", tables, lambda rows: rows.hashes, {}, list_file, problems)
    groups = _agreed("group", tables, lambda rows: rows.groups, seed_groups, list_file, problems)
    clusters = _agreed("cluster", tables, lambda rows: rows.clusters, seed_clusters, list_file, problems)
    problems += _same_content("text", texts, order) + _same_content("hash", hashes, order)
    for noun, known in (("group", groups), ("cluster", clusters)):
        bare = [prompt for prompt in order if prompt not in known] if known else []
        if bare:  # a prompt without any row is missed already
            there = {prompt for rows in tables for prompt in rows.prompts}
            bare = [prompt for prompt in bare if prompt in there]
        if bare:
            problems.append(
                f"{_files(tables)}{_some(bare)} no {noun}, while others do; give every prompt a {noun}, or none"
            )
    for record in by_label.values():
        problems += _impossible(record)
    if problems:
        raise OutcomesError(problems)

    chosen = [by_label[label] for label in labels]
    at = [positions[id(record.rows)] for record in chosen]
    shared = [name for name in chosen[0].measures if all(name in record.measures for record in chosen)]
    correct = np.zeros((len(labels), len(order)), np.bool_)
    measures = {name: np.zeros(correct.shape, np.float64) for name in shared}
    hashed = all(record.outputs for record in chosen) and not repeats
    outputs = np.zeros(correct.shape, np.uint64) if hashed else None
    scored = repeats or all(record.scores for record in chosen)
    scores = np.zeros(correct.shape, np.float64) if scored else None
    for row, record in enumerate(chosen):
        verdicts = np.frombuffer(record.correct, np.uint8)
        if scores is not None:
            given = np.frombuffer(record.scores, np.float64) if record.scores else verdicts
            scores[row] = _means(at[row], given, len(order))
            correct[row] = scores[row] == 1
        else:
            correct[row, at[row]] = verdicts
        for name in shared:
            measures[name][row] = _means(at[row], np.frombuffer(record.measures[name], np.float64), len(order))
        if outputs is not None:
            outputs[row, at[row]] = np.frombuffer(record.outputs, np.uint64)
    return Outcomes(
        tuple(labels),
        order,
        correct,
        measures,
        tuple(groups[prompt] for prompt in order) if groups else None,
        outputs,
        clusters=tuple(clusters[prompt] for prompt in order) if clusters else None,
        scores=scores,
    )


def _means(positions: NDArray[np.int64], values: NDArray[np.number], n: int) -> NDArray[np.float64]:
    """``[n]`` mean of the values of each prompt, of which there is one but for repeats."""
    sums = np.bincount(positions, weights=values, minlength=n)
    means: NDArray[np.float64] = sums / np.bincount(positions, minlength=n)
    return means


def _check(labels: Sequence[str], records: Sequence[Records]) -> None:
    given = [record.label for record in records]
    if len(set(given)) < len(given) or not set(given) <= set(labels):
        raise ValueError(f"records of {given} for the configurations {list(labels)}")
    for record in records:
        lengths = {len(record.correct), *(len(column) for column in record.measures.values())}
        lengths |= {len(column) for column in (record.outputs, record.scores) if column}
        if lengths != {len(record.rows.prompts)}:
            raise ValueError(f"columns of {record.label} have other lengths than its rows")


def _impossible(record: Records) -> list[str]:
    """Name, for each measure, the first row whose value cannot be a measurement."""
    problems = []
    for name, column in record.measures.items():
        values = np.frombuffer(column, np.float64)
        wrong = np.flatnonzero(~((values == 0) | ((values >= SMALLEST) & (values <= LARGEST))))
        if len(wrong):
            row = int(wrong[0])
            problems.append(
                f"{record.rows.where(row)}: {name} of {record.label} is {values[row]} on prompt "
                f"{shown_id(record.rows.prompts[row])}; allowed are 0 and numbers from {SMALLEST:g} to "
                f"{LARGEST:g}; record it again"
            )
    return problems


def _files(tables: Sequence[Rows]) -> str:
    files = list(dict.fromkeys(rows.file for rows in tables))
    return f"{files[0]}: " if len(files) == 1 else ""


def _some(prompts: Sequence[str]) -> str:
    """Return ``prompt a has`` or ``prompts a, b, c and 7 more have``."""
    if len(prompts) == 1:
        return f"prompt {shown_id(prompts[0])} has"
    more = f" and {len(prompts) - 3:,} more" if len(prompts) > 3 else ""
    return f"prompts {', '.join(shown_id(prompt) for prompt in prompts[:3])}{more} have"


class _Finding(NamedTuple):
    """A problem of one configuration; findings that are the ``same`` become one problem."""

    label: str | None
    same: Hashable
    start: str
    remedy: str


def _joined(findings: Iterable[_Finding]) -> list[str]:
    """Return the problems: what several configurations share is told of the first, the others are named."""
    shared: dict[Hashable, list[_Finding]] = {}
    for finding in findings:
        shared.setdefault(finding.same, []).append(finding)
    problems = []
    for first, *others in shared.values():
        labels = [str(other.label) for other in others]
        more = f" and {len(labels) - 3:,} more" if len(labels) > 3 else ""
        likewise = f", likewise for {', '.join(labels[:3])}{more}" if labels else ""
        problems.append(f"{first.start}{likewise}; {first.remedy}")
    return problems


def _strangers(rows: Rows, positions: NDArray[np.int64], prompts: PromptList | None) -> list[_Finding]:
    """Name the rows about prompts that are not on the list, in one finding."""
    found = np.flatnonzero(positions < 0)
    if prompts is None or not len(found):
        return []
    more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
    start = (
        f"{rows.where(int(found[0]))}: prompt {shown_id(rows.prompts[found[0]])}{more}, recorded{rows.suffix}, is not "
        f"in {prompts.file}"
    )
    remedy = _EXACTLY if prompts.drawn else "a recording has exactly its prompts; remove it, or add the prompt there"
    strange = frozenset(rows.prompts[row] for row in found)
    return [_Finding(rows.label, ("strange", strange), start, remedy)]


def _doubles(rows: Rows, positions: NDArray[np.int64], order: Sequence[str]) -> list[_Finding]:
    """Name every prompt that has more than one row, with its lines."""
    by_position = np.argsort(positions, kind="stable")
    ordered = positions[by_position]
    findings = []
    for position in np.unique(ordered[1:][(ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)]):
        start, stop = np.searchsorted(ordered, [position, position + 1])
        found = [int(row) for row in by_position[start:stop]]
        lines = [str(rows.lines[row]) for row in found[:10]] if rows.lines else []
        more = " and more" if len(found) > 10 else ""
        named = f" (lines {', '.join(lines[:-1])}{',' if more else ' and'} {lines[-1]}{more})" if lines else ""
        start = f"{rows.where(found[1])}: prompt {shown_id(order[position])} has {len(found)} rows{rows.suffix}{named}"
        remedy = (
            "allowed is one; keep one by a rule fixed beforehand, or give different prompts different ids; several "
            "generations of a prompt are `repeats: mean_loss` of columns.correct"
        )
        findings.append(_Finding(rows.label, ("doubled", int(position), len(found)), start, remedy))
    return findings


def _uneven(rows: Rows, positions: NDArray[np.int64], order: Sequence[str]) -> list[_Finding]:
    """Name the first prompt that has another number of rows than most."""
    sizes = np.bincount(positions[positions >= 0], minlength=len(order))
    usual = int(np.bincount(sizes).argmax())
    wrong = np.flatnonzero((sizes != usual) & (sizes > 0))
    if not len(wrong):
        return []
    position = int(wrong[0])
    more = f", and {len(wrong) - 1:,} more prompts likewise" if len(wrong) > 1 else ""
    start = (
        f"{rows.where(int(np.flatnonzero(positions == position)[0]))}: prompt {shown_id(order[position])} has "
        f"{sizes[position]} rows{rows.suffix}, others have {usual}{more}"
    )
    return [_Finding(rows.label, ("uneven", sizes.tobytes()), start, "record equally many repeats of every prompt")]


def _agreed(
    noun: str,
    tables: Sequence[Rows],
    column: Callable[[Rows], list[str | None]],
    seed: Mapping[str, str],
    seed_file: str,
    problems: list[str],
) -> dict[str, str]:
    """Return what every prompt's rows agree on, adding a problem for each prompt on which they differ.

    ``seed`` holds what the file ``seed_file`` already says of the prompts.
    """
    known = dict(seed)
    first: dict[str, tuple[Rows, int]] = {}
    told = set()
    for rows in tables:
        for row, (prompt, value) in enumerate(zip(rows.prompts, column(rows), strict=False)):
            if value is None:
                continue
            if prompt not in known:
                known[prompt] = value
                first[prompt] = rows, row
            elif known[prompt] != value and prompt not in told:
                told.add(prompt)
                there, line = first.get(prompt, (None, 0))
                problems.append(
                    f"{rows.where(row)}: prompt {shown_id(prompt)} has the {noun} {quoted(value)} here and "
                    f"{quoted(known[prompt])} in {there.where(line) if there else seed_file}; one id stands for one "
                    f"{noun} in every configuration; correct the ids, or record the same prompts"
                )
    return known


def _same_content(noun: str, known: Mapping[str, str], order: Sequence[str]) -> list[str]:
    """Name every pair of ids that stand for one and the same prompt."""
    first: dict[str, str] = {}
    problems = []
    for prompt in order:
        if prompt in known and first.setdefault(known[prompt], prompt) != prompt:
            problems.append(
                f"prompts {shown_id(first[known[prompt]])} and {shown_id(prompt)} have the same {noun} "
                f"{quoted(known[prompt])}; a prompt counts once; remove one from every configuration"
            )
    return problems
