"""Files to start from: a commented grid, made for a recording where there is one, and the bundled grids as a demo."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_redline.errors import GridError, OutcomesError
from pytest_redline.labels import label_problem
from pytest_redline.paths import display, fixtures
from pytest_redline.sources.table import Faults, read_bytes, read_rows
from pytest_redline.stats.risk import fewest_prompts, prompts_for_power

ALPHA, DELTA = 0.10, 0.10
_DEMO = ("arithmetic.redline.yaml", "llada2_math.redline.yaml")
_DEFAULTS = {"prompt": "prompt id", "correct": "1/0 or true/false"}


class Seen(NamedTuple):
    """What a recording looks like."""

    columns: list[str]
    labels: list[str]
    prompts: int


def starting_grid(recording: Path | None, folder: Path, name: str, reference: str | None) -> str:
    """Make the text of a commented grid file.

    Parameters
    ----------
    recording
        A recording to take labels and columns from; None for placeholders.
    folder
        Where the grid file will stand; paths in it are relative to it.
    reference
        Label of the reference; the first of the recording if None.

    Raises
    ------
    OutcomesError
        The recording cannot be read, or has no rows.
    GridError
        The reference is not in the recording, or a label of it cannot name a configuration.
    """
    seen = look(recording) if recording is not None else Seen(["config", "prompt", "correct"], ["slow", "fast"], 0)
    labels = seen.labels or ["slow", "fast"]
    chosen = labels[0] if reference is None else reference
    if chosen not in labels:
        raise GridError(f"{chosen!r} is not in the recording; there are {', '.join(labels[:8])}")
    problems = [problem for label in labels if (problem := label_problem(label))]
    if problems:
        raise GridError(problems)
    m = max(len(labels), 2)
    least, likely = fewest_prompts(ALPHA, DELTA / m), prompts_for_power(ALPHA, 0.07, DELTA / (m - 1))
    here = f"; the recording has {seen.prompts:,}" if seen.prompts else ""
    lines = [
        "# A grid of serving configurations for Redline: run `pytest` here. Every key: docs/grid-files.md.",
        "redline: 1",
        f"name: {name}",
        "# population: what the prompts were drawn from; the promise is about it and nothing else",
        "",
        "# At most this share of prompts may be right with the reference and wrong with a candidate. Fix it before",
        f"# you look. With {m} configurations it takes {least:,} prompts to certify anything, and about {likely:,}",
        f"# to certify a candidate whose true risk is 0.07{here}.",
        f"alpha: {ALPHA:.2f}",
        f"delta: {DELTA:.2f}   # chance that anything above alpha is certified, over all such draws of prompts",
        "",
        *_cost(seen),
        *_source(recording, folder, seen),
        "",
        f"reference: {chosen}",
        "configurations:   # knobs say what each one is; for recorded outcomes they only describe",
        *(f"  {label}: {{}}" for label in labels),
        "",
        "# What this repository deploys; it must be certified. Without this line every candidate must be.",
        f"# serving: {next((label for label in labels if label != chosen), chosen)}",
        "# serving: {file: serve.yaml, keys: {accept_threshold: dllm.threshold}}   # or the config file itself",
        "# Half of delta for what is served certifies it far more often in a large grid, and costs the others little.",
        "# It must be stated before there are outcomes: `pytest-redline state`, which needs `prompts: {file: ...}`.",
        "# weights: {serving: 0.5}",
    ]
    if "group" in seen.columns:
        lines += ["", "groups: {by: group}   # risks by group; give one a budget with `alpha: {NAME: 0.15}`"]
    return "\n".join(lines) + "\n"


def look(recording: Path) -> Seen:
    """Look into a recording.

    Raises
    ------
    OutcomesError
        It cannot be read, or has no rows.
    """
    faults = Faults()
    columns: list[str] = []
    labels: dict[str, None] = {}
    prompts = set()
    for _, row in read_rows(display(recording), read_bytes(recording).data, faults):
        columns = columns or list(row)
        if "config" in row:
            labels[str(row["config"])] = None
        prompts.add(str(row.get("prompt")))
    faults.check()
    if not columns:
        raise OutcomesError(f"{display(recording)}: holds no rows")
    return Seen(columns, list(labels), len(prompts) if "prompt" in columns else 0)


def bare(recording: Path, reference: str | None, remedy: str) -> tuple[str, Seen]:
    """Look into a recording that no grid file speaks of; return its reference too.

    Raises
    ------
    GridError
        Nothing says what its reference is.
    OutcomesError
        It cannot be read, has no rows, or lacks a column of usual name; then `remedy` says what to do.
    """
    if reference is None:
        raise GridError(f"{display(recording)}: a recording does not say what its reference is; add --reference")
    seen = look(recording)
    if missing := _missing(seen):
        raise OutcomesError(
            f"{display(recording)}: has no column {', '.join(missing)}; columns here are "
            f"{', '.join(seen.columns[:12])}; {remedy}"
        )
    return reference, seen


def _missing(seen: Seen) -> list[str]:
    return [name for name in ("config", *_DEFAULTS) if name not in seen.columns]


def _cost(seen: Seen) -> list[str]:
    if {"tokens", "forwards"} <= set(seen.columns):
        return [
            "cost: tokens_per_forward   # the fastest certified configuration is named; or seconds_per_prompt, ...",
            "",
        ]
    return ["cost: unknown   # name a measure (tokens_per_forward, ...) or give each configuration a `cost:`", ""]


def _source(recording: Path | None, folder: Path, seen: Seen) -> list[str]:
    file = "recorded.csv" if recording is None else Path(os.path.relpath(recording, folder)).as_posix()
    missing = _missing(seen)
    if not missing:
        return [f"source: {{outcomes: {file}}}   # columns config, prompt, correct; others with a map of columns"]
    lines = [
        f"# The recording has the columns {', '.join(seen.columns[:12])}: say below which is which.",
        "source:",
        "  outcomes:",
        f"    file: {file}",
        "    columns:",
    ]
    for name in missing:
        what = "label of the configuration; or one file each, with `log:`" if name == "config" else _DEFAULTS[name]
        lines.append(f"      {name}: {name}   # {what}")
    return lines


def write_demo(folder: Path, force: bool) -> list[Path]:
    """Copy the bundled grids, and what they read, into a folder.

    Raises
    ------
    GridError
        A file is there already, and ``force`` is not set.
    """
    root = fixtures()
    copies = [(root / "prompts" / "arithmetic.jsonl", "prompts"), (root / "recorded" / "llada2_math.csv", "recorded")]
    targets = [folder / name for name in _DEMO] + [folder / part / path.name for path, part in copies]
    refuse_existing(targets, force)
    for path, part in copies:
        (folder / part).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / part / path.name)
    for name in _DEMO:
        text = (root / "grids" / name).read_text(encoding="utf-8").replace(" ../", " ")
        (folder / name).write_text(text, encoding="utf-8")
    return targets


def refuse_existing(paths: Sequence[Path], force: bool) -> None:
    """Refuse to write over files that are there.

    Raises
    ------
    GridError
        One of them is, and ``force`` is not set.
    """
    there = [display(path) for path in paths if path.exists()]
    if there and not force:
        raise GridError(f"{', '.join(there)} is there already; name another file, or write over it with --force")
