"""``pytest-redline state``: record what grids state, before there are outcomes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_redline.commands import Commands
from pytest_redline.errors import RedlineError


def add(commands: Commands) -> None:
    """Declare the command."""
    state = commands.add_parser(
        "state",
        help="record what grids state, before there are outcomes",
        description="Record the statement of each grid in the ledger beside it, and judge nothing. A statement that "
        "is recorded while its recording does not exist, or while nothing was served on its prompts, was made before "
        "the outcomes. Commit the ledger.",
    )
    state.add_argument("grids", nargs="+", type=Path, metavar="GRID")
    state.add_argument("--alpha", type=float, help="as --redline-alpha of the run that will judge")
    state.add_argument("--delta", type=float, help="as --redline-delta")
    state.add_argument(
        "--store",
        type=Path,
        default=Path(".redline/store.sqlite"),
        metavar="FILE",
        help="as --redline-store; %(default)s by default",
    )
    state.add_argument("--ids", type=Path, metavar="FILE", help="write the ids that are stated on, one a line")
    state.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from pytest_redline.grid_file import load_grid
    from pytest_redline.paths import display
    from pytest_redline.stating import record_statement

    if options.ids is not None and len(options.grids) > 1:
        print("--ids: the ids of several grids do not fit into one file; state them one by one", file=sys.stderr)
        return 2
    failed = False
    for path in options.grids:
        try:
            stated = record_statement(load_grid(path, alpha=options.alpha, delta=options.delta), options.store)
            if options.ids is not None:
                options.ids.write_text("".join(f"{each}\n" for each in stated.ids), encoding="utf-8")
        except RedlineError as error:
            failed = True
            print(error, file=sys.stderr)
            continue
        except OSError as error:
            failed = True
            print(f"{options.ids}: cannot be written ({error.strerror or error})", file=sys.stderr)
            continue
        found, ledger = stated.standing, stated.ledger
        reuse = found.line.reuse
        when = "before any outcome on them" if reuse.before else "made when outcomes on them were known"
        done = f"was recorded in {display(ledger)} already" if found.known else f"recorded in {display(ledger)}"
        print(f"{path}: statement {reuse.number} on its prompts, {when}; {done}")
    return int(failed)
