"""``pytest-redline study``: how often each way to choose a configuration would have gone wrong on a recording."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_redline.arguments import probability, whole
from pytest_redline.commands import Commands
from pytest_redline.errors import OutcomesError, RedlineError

if TYPE_CHECKING:
    from pytest_redline.studied import Studied
    from pytest_redline.study import Plan
    from pytest_redline.study_schema import Study

_ALPHAS = (0.05, 0.10, 0.15, 0.20)  # the paper's
_SELECTORS = ("MEAN-0", "MEAN-5", "MEAN-10")  # beside every one without a tolerance
_MOST = 1_000_000


def add(commands: Commands) -> None:
    """Declare the command."""
    study = commands.add_parser(
        "study",
        help="compare ways to choose a configuration, on halves of a recording",
        description="Split recorded prompts at random into halves, let each selector choose on one half, and see on "
        "the other how often the choice breaks more than the risk budget allows, and what it gains.",
    )
    study.add_argument("recording", type=Path, help="recording, or grid file with recorded outcomes")
    study.add_argument("--reference", metavar="LABEL", help="the conservative configuration; a grid says its own")
    study.add_argument(
        "--alpha",
        type=probability,
        nargs="+",
        metavar="A",
        help="risk budgets; 0.05 0.1 0.15 0.2 and the grid's by default",
    )
    study.add_argument("--delta", type=probability, help="failure probability; the grid's, or 0.10, by default")
    study.add_argument(
        "--splits", type=whole(1, _MOST), default=1000, metavar="N", help="random splits; 1000 by default"
    )
    study.add_argument("--seed", type=whole(0, 2**63 - 1), metavar="SEED", help="of the splits; the paper's by default")
    study.add_argument(
        "--selectors", nargs="+", metavar="NAME", help="REDLINE, MEAN-5 and so on; see docs/study.md; all by default"
    )
    study.add_argument("--cost", metavar="MEASURE", help="what is faster, of a recording: tokens_per_forward, ...")
    study.add_argument(
        "--subsample",
        type=whole(1, _MOST),
        nargs="+",
        default=[],
        metavar="SIZE",
        help="also draw subsets of so many prompts",
    )
    study.add_argument(
        "--stratify", metavar="COLUMN", help="draw subsets also with each value of a column at its share"
    )
    study.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    study.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw how often each selector exceeds each budget")
    study.set_defaults(run=lambda options: _run(options, study))


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from pytest_redline.grid import KNOWN_MEASURES
    from pytest_redline.stats.selectors import NAMES, selector
    from pytest_redline.stats.splits import SEED
    from pytest_redline.studied import read_studied
    from pytest_redline.study import Plan

    if options.cost is not None and options.cost not in KNOWN_MEASURES:
        parser.error(f"--cost {options.cost}: there are {', '.join(KNOWN_MEASURES)}")
    if options.stratify is not None and not options.subsample:
        parser.error("--stratify goes with --subsample")
    names = tuple(dict.fromkeys(options.selectors or (*(name for name in NAMES if name != "MEAN-t"), *_SELECTORS)))
    try:
        for name in names:
            selector(name)
    except ValueError as error:
        parser.error(f"--selectors: {error}")
    try:
        studied = read_studied(options.recording, options.reference, options.cost, options.stratify)
        plan = Plan(
            alphas=tuple(sorted(set(options.alpha or (*_ALPHAS, *([studied.alpha] if studied.alpha else []))))),
            delta=options.delta or studied.delta,
            splits=options.splits,
            seed=SEED if options.seed is None else options.seed,
            selectors=names,
            sizes=tuple(dict.fromkeys(options.subsample)),
            stratified=options.stratify is not None,
        )
        n = len(studied.outcomes.prompts)
        if over := [size for size in plan.sizes if size > n]:
            raise OutcomesError(
                f"--subsample {over[0]}: the recording holds {n:,} prompts; a subset holds as many at most"
            )
        _spare_inputs(options, studied)
        found = _studied(studied, plan)
        _write(options, found)
    except RedlineError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot be written: {error}", file=sys.stderr)
        return 1
    from pytest_redline.report.study import render

    print(render(found, shutil.get_terminal_size().columns))
    return 0


def _spare_inputs(options: argparse.Namespace, studied: Studied) -> None:
    """Refuse to write over what was read."""
    read = {options.recording.resolve(), *((options.recording.parent / name).resolve() for name, _ in studied.files)}
    for name, path in (("--json", options.json), ("--plot", options.plot)):
        if path is not None and path.resolve() in read:
            raise OutcomesError(f"{name} {path}: the study reads this file; name another to write")


def _studied(studied: Studied, plan: Plan) -> Study:
    """Study, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    from pytest_redline.study import study

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("samples", total=plan.samples)
        return study(studied, plan, lambda done: bar.advance(task, done))


def _write(options: argparse.Namespace, study: Study) -> None:
    """Write the files that were asked for."""
    if options.json is not None:
        text = json.dumps(study.model_dump(mode="json"), indent=1, ensure_ascii=False)
        options.json.write_text(f"{text}\n", encoding="utf-8")
    if options.plot is not None:
        from pytest_redline.report.study import plot

        options.plot.write_text(plot(study), encoding="utf-8")
