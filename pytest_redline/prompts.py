"""Calibration prompts of a live source: read, sampled in a recorded random order, and graded against."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_redline.errors import OutcomesError
from pytest_redline.outcomes import natural_key, quoted
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
    groups
        Of each prompt, or None where the file has no such column.
    order
        Positions in the order in which they are served: random, from the seed of the sample.
    sha256
        Hash of the file's bytes.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    answers: tuple[str, ...]
    groups: tuple[str, ...] | None
    order: tuple[int, ...]
    sha256: str


def read_calibration_prompts(path: Path, group: str, sample: tuple[int, int] | None) -> Prompts:
    """Read a prompts file: columns ``id``, ``prompt``, ``answer``, and the group where there is such a column.

    Parameters
    ----------
    sample
        ``(n, seed)`` of a random subset, or None for all prompts in an order of seed 0.

    Raises
    ------
    OutcomesError
        The file is unreadable; a row lacks an id, a text or an answer; an id or a text stands twice; or the file
        holds fewer prompts than the sample asks for.
    """
    name, content = display(path), read_bytes(path)
    faults = Faults()
    rows: dict[str, tuple[str, str, str | None]] = {}
    lines: dict[str, int] = {}
    texts: dict[str, str] = {}
    for line, row in read_rows(name, content.data, faults):
        prompt = as_id(lookup(row, "id"))
        found = {column: _text(lookup(row, column)) for column in ("prompt", "answer", group)}
        if prompt is None:
            faults.add(f"{name}:{line} id: no id; a text or a whole number is needed; give every prompt one")
            continue
        if prompt in lines:
            faults.add(f"{name}:{line}: prompt {quoted(prompt)} stands on line {lines[prompt]} too; remove one")
            continue
        missing = [column for column in ("prompt", "answer") if not found[column]]
        if missing:
            faults.add(f"{name}:{line}: prompt {quoted(prompt)} has no {' and no '.join(missing)}; add it")
            continue
        unwritable = [column for column in ("prompt", "answer") if not encodable(str(found[column]))]
        if unwritable:
            faults.add(
                f"{name}:{line}: prompt {quoted(prompt)} has a lone surrogate in its {' and '.join(unwritable)}; "
                "allowed are texts that can be written as UTF-8; correct it"
            )
            continue
        value = found[group]
        if value and not on_one_line(value):
            faults.add(f"{name}:{line} {group}: {quoted(value)} {NO_GROUP}")
        text, answer = str(found["prompt"]), str(found["answer"])
        if text in texts:
            faults.add(
                f"{name}:{line}: prompt {quoted(prompt)} has the text of {quoted(texts[text])}; a prompt that stands "
                "twice counts twice; remove one"
            )
        lines[prompt], texts[text] = line, prompt
        rows[prompt] = (text, answer, value)
    grouped = [prompt for prompt, (_, _, value) in rows.items() if value]
    if grouped and len(grouped) < len(rows):
        faults.add(f"{name}: {len(rows) - len(grouped):,} of {len(rows):,} prompts have no {group!r}; give all or none")
    faults.check()
    ids = sorted(rows, key=natural_key)
    size, seed = sample or (len(ids), 0)
    if size > len(ids):
        raise OutcomesError(f"{name}: holds {len(ids):,} prompts, the sample asks for {size:,}; ask for fewer")
    chosen = np.random.default_rng(seed).permutation(len(ids))[:size].tolist()
    kept = [ids[index] for index in sorted(chosen)]
    place = {index: position for position, index in enumerate(sorted(chosen))}
    return Prompts(
        ids=tuple(kept),
        texts=tuple(rows[prompt][0] for prompt in kept),
        answers=tuple(rows[prompt][1] for prompt in kept),
        groups=tuple(str(rows[prompt][2]) for prompt in kept) if grouped else None,
        order=tuple(place[index] for index in chosen),
        sha256=content.sha256,
    )


def _text(value: object) -> str | None:
    """Text of a cell; numbers are spelt out, since answers often are numbers."""
    if value is MISSING or isinstance(value, bool):
        return None
    return str(value) if isinstance(value, int | float) else as_text(value)
