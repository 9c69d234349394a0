"""``pytest-redline init``: a grid file to start from."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from pytest_redline.commands import Commands
from pytest_redline.errors import GridError, RedlineError
from pytest_redline.paths import is_grid


def add(commands: Commands) -> None:
    """Declare the command."""
    init = commands.add_parser(
        "init",
        help="write a commented grid to start from",
        description="Write a commented grid file, made for a recording where one is named. With --demo, copy the "
        "bundled grids into this folder instead; then run pytest.",
    )
    init.add_argument("recording", nargs="?", type=Path, help="CSV or JSONL that holds your outcomes")
    init.add_argument("--output", type=Path, metavar="GRID", help="NAME.redline.yaml by default")
    init.add_argument("--name", default="", help="name of the grid; that of the recording by default")
    init.add_argument("--reference", metavar="LABEL", help="the conservative configuration; the first one by default")
    init.add_argument("--demo", action="store_true", help="copy the bundled grids and what they read")
    init.add_argument("--force", action="store_true", help="write over files that are there")
    init.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from pytest_redline.grid_schema import NAME_PATTERN
    from pytest_redline.starting import refuse_existing, starting_grid, write_demo

    try:
        if options.demo:
            for path in write_demo(Path(), options.force):
                print(f"wrote {path}")
            print("Run pytest here. The grid arithmetic is served: it needs pip install 'pytest-redline[engine]'.")
            return 0
        stem = options.recording.name.split(".")[0] if options.recording else "my-grid"
        name = options.name or re.sub(r"[^\w.-]+", "-", stem).strip("-.") or "my-grid"
        if not re.fullmatch(NAME_PATTERN, name):
            raise GridError(f"{name!r} cannot name a grid; letters, digits and . _ - are allowed")
        path = options.output or Path(f"{name}.redline.yaml")
        if not is_grid(path):
            raise GridError(f"{path}: pytest collects only redline.yaml and *.redline.yaml; name the file so")
        refuse_existing([path], options.force)
        text = starting_grid(options.recording, path.parent, name, options.reference)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except RedlineError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot be written: {error}", file=sys.stderr)
        return 1
    print(f"wrote {path}; read it, name the population, then run pytest")
    return 0
