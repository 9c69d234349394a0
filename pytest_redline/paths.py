"""How paths are shown, where the bundled files are, and how a file is written."""

from __future__ import annotations

import os
import tempfile
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


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
