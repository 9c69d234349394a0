"""From a grid to its certificate: read the outcomes, certify, note what was read."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib.metadata import version
from pathlib import Path

from pytest_redline.certificate import certify
from pytest_redline.certificate_schema import Certificate, FileRecord, Provenance
from pytest_redline.grid import Grid
from pytest_redline.sources.recorded import load_recorded, read_prompts


def certificate_of(grid: Grid) -> Certificate:
    """Certify a grid on the outcomes that its source names.

    Raises
    ------
    RedlineError
        The outcomes cannot be read or aligned, or nothing could be certified on them.
    """
    prompts = None
    if grid.prompts is not None:
        prompts = read_prompts(grid.prompts, group=grid.groups.by if grid.groups else "group")
    recorded = load_recorded(
        grid.source,
        grid.labels,
        {each.label: each.log for each in grid.configurations if each.log is not None},
        grid.cost.measures if grid.cost else (),
        prompts,
    )
    provenance = Provenance(
        grid=_record(grid, grid.path),
        outcomes=[FileRecord(path=_relative(grid, Path(path)), sha256=digest) for path, digest in recorded.files],
        prompts=FileRecord(path=_relative(grid, grid.prompts), sha256=prompts.sha256)
        if prompts and grid.prompts
        else None,
        serving_file=_record(grid, grid.serving.file) if grid.serving and grid.serving.file else None,
        serving_keys=dict(grid.serving.keys) if grid.serving else {},
        versions={
            "pytest-redline": version("pytest-redline"),
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "scipy": version("scipy"),
        },
    )
    return certify(grid, recorded.outcomes, provenance=provenance, notes=recorded.warnings)


def _record(grid: Grid, path: Path) -> FileRecord:
    return FileRecord(path=_relative(grid, path), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def _relative(grid: Grid, path: Path) -> str:
    """Path as the grid file would write it, so that the certificate does not depend on the working directory."""
    return Path(os.path.relpath(path, grid.path.parent)).as_posix()
