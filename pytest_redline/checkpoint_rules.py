"""Where a checkpoint lies, and what its own files decide of a configuration that does not say it: template, blocks.

Both change answers, so both are stated. A checkpoint with a chat template gets the built-in template of its family for
the grader; without one, prompts go to the model as they are. The block size is written out wherever it is from. It may
stand in the directory's published name, which a hash of the files does not cover; and a configuration that leaves it
out is the same as one that states it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_redline.errors import OutcomesError
from pytest_redline.paths import display, fixtures
from redline_engine.config import ModelSpec
from redline_engine.models.surface import (
    CheckpointError,
    Family,
    block_sizes,
    family_of,
    has_chat_template,
    read_json,
)
from redline_engine.templates import TEMPLATES

BUNDLED = "bundled:"
_NUMBERS = ("math", "boxed")  # graders of a final answer that a math template asks for


def checkpoint_directory(checkpoint: str, folder: Path) -> Path:
    """Directory of a checkpoint: ``bundled:NAME``, or a path relative to the grid file.

    Raises
    ------
    OutcomesError
        There is no such directory.
    """
    bundled = checkpoint.startswith(BUNDLED)
    name = checkpoint.removeprefix(BUNDLED)
    directory = (fixtures() / "checkpoints" if bundled else folder) / name
    try:
        there = directory.is_dir()
    except OSError:  # a name that is too long, or a folder that may not be looked into
        there = False
    if not there or (bundled and name != directory.name):
        known = ", ".join(f"{BUNDLED}{each.name}" for each in sorted((fixtures() / "checkpoints").glob("*/")))
        raise OutcomesError(
            f"checkpoint {checkpoint!r}: no directory {display(directory)}; bundled are {known or 'none'}"
        )
    return directory


def decided_by_checkpoint(
    spec: ModelSpec, directory: Path, grade: str | None, block_size: int | None
) -> tuple[dict[str, Any], str | None]:
    """Knobs that the files of a checkpoint decide.

    Parameters
    ----------
    spec
        As the grid file states it.
    directory
        Of the checkpoint. Where there is none, or its files are faulty, nothing is decided: loading will say why.
    grade
        Name of the grader.
    block_size
        As the configuration states it.

    Returns
    -------
    The knobs, and what is wrong with leaving out the template, or None.
    """
    decided: dict[str, Any] = {}
    try:
        config = read_json(directory / "config.json")
        family, faults = family_of(config)
        if family is None or faults:
            return decided, None
        said = {found.value for found in block_sizes(config, family, directory) if isinstance(found.value, int)}
        if block_size is None and len(said) == 1:
            decided["block_size"] = said.pop()
        if spec.template is not None or not has_chat_template(directory):
            return decided, None
    except CheckpointError:
        return decided, None
    if grade in _NUMBERS:
        return decided | {"template": _math_template(family)}, None
    names = ", ".join(TEMPLATES)
    return (
        decided,
        f"this checkpoint holds a chat template, and grade {grade} does not say which to use; name one of {names}",
    )


def _math_template(family: Family) -> str:
    return "llada2-math" if family == "llada2" else "sdar-math"
