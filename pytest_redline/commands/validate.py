"""``pytest-redline validate``: are grid files in order, outcomes aside."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_redline.commands import Commands
from pytest_redline.errors import RedlineError
from pytest_redline.paths import is_grid


def add(commands: Commands) -> None:
    """Declare the command."""
    validate = commands.add_parser(
        "validate",
        help="check grid files without reading outcomes",
        description="Check grid files without reading outcomes; fails when one is faulty or named so that pytest does "
        "not collect it.",
    )
    validate.add_argument("grids", nargs="+", type=Path, metavar="GRID")
    validate.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from pytest_redline.grid_file import ANY_ALPHA, load_grid

    failed = False
    for path in options.grids:
        try:
            grid = load_grid(path, ini_alpha=ANY_ALPHA)
        except RedlineError as error:
            failed = True
            print(error, file=sys.stderr)
        else:
            print(f"{path}: {grid.name}, {grid.m} configurations, reference {grid.reference}")
        if not is_grid(path):
            failed = True
            print(
                f"{path}: pytest collects only redline.yaml and *.redline.yaml (or .yml); rename this file",
                file=sys.stderr,
            )
    return int(failed)
