"""Directories of checkpoints, and hashes of what is in them; needs no torch."""

from __future__ import annotations

import hashlib
import os
import time
from functools import lru_cache
from pathlib import Path

from pytest_redline.checkpoint_rules import checkpoint_directory
from pytest_redline.grid import EngineSource, Grid


def checkpoint_hashes(grid: Grid, source: EngineSource) -> dict[str, str]:
    """Hash of the files of every checkpoint of a grid, by the name that the grid gives it.

    Raises
    ------
    OutcomesError
        A checkpoint has no directory.
    """
    names = dict.fromkeys(source.model_of(each.knobs).checkpoint for each in grid.configurations)
    return {name: hash_files(checkpoint_directory(name, grid.path.parent), "*") for name in names}


_SETTLED = 2.0  # seconds after which another change of a file shows in its times, however coarse these are


def hash_files(folder: Path, pattern: str) -> str:
    """Hash of names and contents of the files of a folder.

    A file is read once in a process while its size, times and place on disk stay as they were.
    """
    total = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        if path.is_file():
            total.update(path.relative_to(folder).as_posix().encode() + b"\0")
            total.update(_digest(path))
    return total.hexdigest()


def _digest(path: Path) -> bytes:
    found = path.stat()
    if time.time() - max(found.st_mtime, found.st_ctime) < _SETTLED:
        return _read(path)
    return _remembered(path, _identity(found))


@lru_cache(maxsize=4096)
def _remembered(path: Path, identity: tuple[int, ...]) -> bytes:
    return _read(path)


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
