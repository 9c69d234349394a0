"""Outcomes that were recorded earlier, by whatever made them: CSV or JSON lines, through a map of columns.

Three shapes are read. *Long*: one file, a row for each configuration and prompt. *Per configuration*: one file each.
*Wide*: one row for each prompt, holding every configuration, recognised by ``{config}`` in a column path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_redline.alignment import Records, align
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Columns, RecordedSource
from pytest_redline.outcomes import Outcomes, PromptList
from pytest_redline.paths import display
from pytest_redline.sources.reader import PLACE, Reader
from pytest_redline.sources.table import Faults, FileBytes, read_bytes, read_rows
from pytest_redline.sources.twins import twin_groups, twin_ids
from pytest_redline.sources.values import as_id, joined, lookup


@dataclass(frozen=True)
class Recorded:
    """What a recording holds.

    Parameters
    ----------
    outcomes
        The aligned outcomes.
    files
        The path, as messages show it, and the hex sha256 of every file that was read.
    warnings
        What is allowed but should be looked at, one sentence or two each.
    texts
        Text of each prompt, or None where not all are known.
    """

    outcomes: Outcomes
    files: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()
    texts: tuple[str, ...] | None = None


def load_recorded(
    source: RecordedSource,
    labels: Sequence[str],
    logs: Mapping[str, Path],
    measures: Sequence[str],
    prompts: PromptList | None = None,
) -> Recorded:
    """Read a recording and align it.

    Parameters
    ----------
    source
        The file, or None where each configuration has its own; and where its columns are.
    labels
        Every configuration of the grid, the reference included, in its order.
    logs
        Label to the file of that configuration; empty where ``source.file`` holds all.
    measures
        Names that the cost needs; a recording without them is refused.
    prompts
        Which prompts there are; None: those of the recording.

    Raises
    ------
    OutcomesError
        Anything missing, doubled, undeclared, ambiguous or unreadable; first all that is wrong with the files, then all
        that is wrong with single rows, then all that keeps the configurations from being compared.
    """
    files = _files(source, labels, logs)
    wide = source.file is not None and any(PLACE in path for path in _paths(source.columns))
    if wide:
        _check_wide(source.columns, measures)
    contents: dict[str, FileBytes] = {}
    warnings = []
    problems: list[str] = []
    for label, path in files:
        name = display(path)
        try:
            content = read_bytes(path, source.sha256 if source.file is not None else None)
        except OutcomesError as error:
            problems += error.problems
            continue
        twin = next((other for other, known in contents.items() if known.sha256 == content.sha256), None)
        if twin is not None:
            warnings.append(
                f"{name} ({label}) holds the same bytes as {twin}; right only if the configuration truly changes "
                "nothing; otherwise a recording was copied, and is compared with itself"
            )
        contents[name] = content
    if problems:
        raise OutcomesError(problems)
    reader = Reader(source.columns, labels, measures, prompts, wide=wide)
    for (label, _), (name, content) in zip(files, contents.items(), strict=True):
        reader.read(name, content.data, label)
    records = reader.finish()
    hashes = tuple((name, content.sha256) for name, content in contents.items())
    outcomes = align(labels, records, prompts, source.columns.correct.repeats)
    where = prompts.file if prompts else hashes[0][0]
    twins = [*twin_ids(where, outcomes.prompts), *twin_groups(where, outcomes.groups)]
    return Recorded(outcomes, hashes, (*warnings, *reader.warnings, *twins), _texts(records, prompts, outcomes.prompts))


def mentions(file: Path, columns: Columns, prompts: Sequence[str]) -> bool:
    """Does a recording hold a row of any of these prompts; of one that cannot be read it is taken to."""
    wanted, faults = set(prompts), Faults()
    try:
        for _, row in read_rows(display(file), read_bytes(file).data, faults):
            parts = [as_id(lookup(row, path)) for path in columns.prompt]
            if None in parts or joined(parts) in wanted:
                return True
    except OutcomesError:
        return True
    return bool(faults.texts)


def _files(source: RecordedSource, labels: Sequence[str], logs: Mapping[str, Path]) -> list[tuple[str | None, Path]]:
    """Return the files to read, each with the configuration it belongs to, or None for all."""
    if source.file is not None:
        if logs:
            raise OutcomesError(
                "the source names one file for all configurations, and some have a `log:`; remove one of both"
            )
        return [(None, source.file)]
    problems = [f"configuration {label} has no `log:`; name its recording" for label in labels if label not in logs]
    problems += [
        f"a `log:` is given for {label}, which is not in the grid; remove it" for label in logs if label not in labels
    ]
    resolved: dict[Path, str] = {}
    for label, path in logs.items():
        other = resolved.setdefault(path.resolve(), label)
        if other != label:
            problems.append(
                f"{display(path)}: is the recording of both {other} and {label}; a configuration compared with itself "
                "breaks nothing; name the file of each"
            )
    if problems:
        raise OutcomesError(problems)
    return [(label, logs[label]) for label in labels]


def _texts(records: Sequence[Records], prompts: PromptList | None, ids: Sequence[str]) -> tuple[str, ...] | None:
    """Texts of the prompts, where the prompts file or the recording has them all."""
    known = dict(zip(prompts.ids, prompts.texts, strict=True)) if prompts and prompts.texts else {}
    for rows in {id(record.rows): record.rows for record in records}.values():
        known.update((prompt, text) for prompt, text in zip(rows.prompts, rows.texts, strict=False) if text is not None)
    return tuple(known[prompt] for prompt in ids) if all(prompt in known for prompt in ids) else None


def _paths(columns: Columns) -> list[str]:
    about_prompts = [*columns.prompt, columns.group, columns.cluster, columns.prompt_text, columns.prompt_hash]
    by_configuration = [columns.correct.path, columns.output, *columns.measures.values()]
    return [path for path in (*about_prompts, *by_configuration) if path is not None]


def _check_wide(columns: Columns, needed: Sequence[str]) -> None:
    """Refuse a map under which configurations would share a verdict or a cost, or prompts differ by configuration."""
    problems = []
    prompt = {f"prompt[{position}]": path for position, path in enumerate(columns.prompt)}
    same = {**prompt, "group": columns.group, "prompt_text": columns.prompt_text, "prompt_hash": columns.prompt_hash}
    if columns.cluster is not None and PLACE in columns.cluster:
        problems.append(f"clusters.by: {columns.cluster!r} differs by configuration; drop {PLACE}")
    measures = {name: columns.measures.get(name, name) for name in (*needed, *columns.measures)}
    own = {"correct": columns.correct.path, "output": columns.output, **measures}
    for key, path in same.items():
        if path is not None and PLACE in path:
            problems.append(
                f"columns.{key}: {path!r} differs by configuration; a prompt is the same for all; drop {PLACE}"
            )
    for key, path in own.items():
        if path is not None and PLACE not in path:
            problems.append(
                f"columns.{key}: {path!r} is the same column for every configuration; where a row holds all of them, "
                f"allowed are paths with {PLACE}; add it"
            )
    if "config" in columns.declared:
        problems.append(
            f"columns.config: a row that holds every configuration ({PLACE} in columns) names none; remove it"
        )
    if problems:
        raise OutcomesError(problems)
