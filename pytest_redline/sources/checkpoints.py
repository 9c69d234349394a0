"""Directories of checkpoints, and hashes of what is in them; needs no torch."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pytest_redline.errors import OutcomesError
from pytest_redline.grid import EngineSource, Grid
from pytest_redline.paths import display, fixtures

BUNDLED = "bundled:"


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
    if not directory.is_dir() or (bundled and name != directory.name):
        there = ", ".join(f"{BUNDLED}{each.name}" for each in sorted((fixtures() / "checkpoints").glob("*/")))
        raise OutcomesError(
            f"checkpoint {checkpoint!r}: no directory {display(directory)}; bundled are {there or 'none'}"
        )
    return directory


def checkpoint_hashes(grid: Grid, source: EngineSource) -> dict[str, str]:
    """Hash of the files of every checkpoint of a grid, by the name that the grid gives it.

    Raises
    ------
    OutcomesError
        A checkpoint has no directory.
    """
    names = dict.fromkeys(source.model_of(each.knobs).checkpoint for each in grid.configurations)
    return {name: hash_files(checkpoint_directory(name, grid.path.parent), "*") for name in names}


def hash_files(folder: Path, pattern: str) -> str:
    """Hash of names and contents of the files of a folder."""
    total = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        if path.is_file():
            total.update(path.relative_to(folder).as_posix().encode() + b"\0")
            with path.open("rb") as stream:
                total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()
