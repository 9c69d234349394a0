"""How paths are shown and where the bundled files are."""

from __future__ import annotations

import os
from pathlib import Path


def display(path: Path) -> str:
    """Path as a person would type it: relative to the working directory where that is shorter, with forward slashes."""
    absolute = Path(os.path.abspath(path))
    try:
        return absolute.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return absolute.as_posix()


def is_grid(path: Path) -> bool:
    """Does pytest collect a file of this name as a grid."""
    return f".{path.name}".endswith((".redline.yaml", ".redline.yml"))


def fixtures() -> Path:
    """Folder of the grids and recordings that ship with Redline: inside the package, or in a checkout beside it."""
    package = Path(__file__).parent
    installed = package / "fixtures"
    return installed if installed.is_dir() else package.parent / "fixtures"
