"""``pytest-redline plan``: how many prompts a gate needs, and what it could show with a given number."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_redline.arguments import probability, risk, whole
from pytest_redline.commands import Commands
from pytest_redline.errors import RedlineError
from pytest_redline.grid import DEFAULT_DELTA

if TYPE_CHECKING:
    from pytest_redline.grid import Grid
    from pytest_redline.pilot import Pilot
    from pytest_redline.stats.planning import Level, PilotRow, Reach, RiskPlan

_SHARES_OF_ALPHA = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9)  # true risks that are planned for where none is named
_MOST_PROMPTS = 1_000_000
_MOST_CONFIGURATIONS = 10_000


def add(commands: Commands) -> None:
    """Declare the command."""
    plan = commands.add_parser(
        "plan",
        help="say how many prompts a gate needs",
        description="Say how many prompts it takes to certify candidates of given true risks, what a number of prompts "
        "can show, and, after a pilot, how likely each candidate is to be certified in a new draw.",
    )
    plan.add_argument("--alpha", type=probability, help="risk budget; wins over GRID and PILOT")
    plan.add_argument("--delta", type=probability, help="failure probability over the grid; 0.10 by default")
    plan.add_argument(
        "--m", type=whole(2, _MOST_CONFIGURATIONS), help="configurations of the grid, the reference included"
    )
    plan.add_argument(
        "--risk", type=risk, nargs="+", metavar="R", help="true risks of candidates; some below alpha by default"
    )
    plan.add_argument("--power", type=probability, default=0.8, help="wanted chance to be certified; 0.8 by default")
    plan.add_argument("--n", type=whole(1, _MOST_PROMPTS), help="number of prompts to say the chances of")
    plan.add_argument("--grid", type=Path, metavar="GRID", help="grid file to take alpha, delta, m and n from")
    plan.add_argument(
        "--pilot", type=Path, help="outcomes of a pilot: a recording, a certificate, or a grid with recorded outcomes"
    )
    plan.add_argument("--reference", metavar="LABEL", help="reference of the pilot, where its file does not say")
    plan.add_argument("--json", action="store_true", help="print JSON instead of a table")
    plan.set_defaults(run=lambda options: _run(options, plan))


class _Settings(NamedTuple):
    """What is planned for; ``budgets`` are those of groups, ``warnings`` say what no number takes into account."""

    alpha: float
    delta: float
    m: int
    n: int | None
    budgets: dict[str, float]
    warnings: list[str]


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from pytest_redline.grid_file import load_grid
    from pytest_redline.paths import is_grid
    from pytest_redline.pilot import read_pilot

    if options.reference is not None and options.pilot is None:
        parser.error("--reference goes with --pilot")
    try:
        settled = options.grid or (options.pilot if options.pilot and is_grid(options.pilot) else None)
        grid = load_grid(settled, alpha=options.alpha, delta=options.delta) if settled else None
        pilot = read_pilot(options.pilot, options.reference, grid) if options.pilot else None
        settings = _settings(options, parser, grid, pilot)
    except RedlineError as error:
        print(error, file=sys.stderr)
        return 1
    answers = _answers(settings, options.risk, options.power, pilot)
    if options.json:
        print(json.dumps(_data(settings, answers, options.power, pilot), indent=1))
    else:
        print(_text(settings, answers, options.power, pilot))
    return 0


def _settings(
    options: argparse.Namespace, parser: argparse.ArgumentParser, grid: Grid | None, pilot: Pilot | None
) -> _Settings:
    """Settle what is planned for: the command line first, then the grid, then the pilot."""
    from pytest_redline.pilot import first_delta, not_planned_for

    stated = pilot.statement if pilot else None
    alpha = options.alpha or (grid.alpha if grid else stated.alpha if stated else None)
    m = options.m or (grid.m if grid else len(pilot.candidates) + 1 if pilot else None)
    missing = [name for name, value in (("--alpha", alpha), ("--m", m)) if value is None]
    if alpha is None or m is None:
        parser.error(f"missing: {', '.join(missing)}; give them, or name a grid file with --grid")
    if pilot is not None and m < len(pilot.candidates) + 1:
        parser.error(f"--m {m}: the pilot has {len(pilot.candidates) + 1} configurations")
    claim = grid or stated
    return _Settings(
        alpha,
        options.delta or (first_delta(claim) if claim else DEFAULT_DELTA),
        m,
        options.n or (grid.sample.n if grid and grid.sample else pilot.violated.shape[1] if pilot else None),
        dict(claim.groups.alpha) if claim and claim.groups else {},
        not_planned_for(claim) if claim else [],
    )


class _Answers(NamedTuple):
    """What is known of the settings; ``chances`` of the pilot's candidates."""

    fewest: dict[str, int]
    levels: tuple[Level, ...]
    reached: list[Reach]
    risks: list[RiskPlan]
    chances: list[PilotRow]
    warnings: list[str]


def _answers(settings: _Settings, risks: list[float] | None, power: float, pilot: Pilot | None) -> _Answers:
    from pytest_redline.stats import planning
    from pytest_redline.stats.risk import fewest_prompts

    alpha, delta, m, n, budgets, warnings = settings
    return _Answers(
        {name: fewest_prompts(each, delta / m) for name, each in {"all": alpha, **budgets}.items()},
        planning.levels(delta, m),
        [] if n is None else planning.reach(n, alpha, delta, m),
        [
            planning.plan(alpha, delta, m, each, power, n)
            for each in risks or [round(share * alpha, 12) for share in _SHARES_OF_ALPHA]
        ],
        [] if pilot is None or n is None else planning.pilot(pilot.violated, n, alpha, delta, m, power),
        [*(pilot.warnings if pilot else ()), *warnings],
    )


def _text(settings: _Settings, answers: _Answers, power: float, pilot: Pilot | None) -> str:
    from pytest_redline.report import planning as report

    width = shutil.get_terminal_size().columns
    parts = [
        report.heading(settings.alpha, settings.delta, settings.m, answers.fewest, width),
        report.risks(answers.risks, answers.levels, settings.n, power, width),
    ]
    if settings.n is not None:
        parts.insert(1, report.reach(answers.reached, settings.n))
        if pilot is not None:
            size = pilot.violated.shape[1]
            parts.append(
                report.pilot(pilot.candidates, answers.chances, pilot.reference, size, settings.n, power, width)
            )
    if answers.warnings:
        parts.append(report.warnings(answers.warnings, width))
    return "\n\n".join(parts)


def _data(settings: _Settings, answers: _Answers, power: float, pilot: Pilot | None) -> dict[str, Any]:
    from pytest_redline.stats.planning import DRAWS

    names = [level.name for level in answers.levels]
    data: dict[str, Any] = {
        "alpha": settings.alpha,
        "delta": settings.delta,
        "m": settings.m,
        "n": settings.n,
        "wanted_power": power,
        "levels": dict(answers.levels),
        "fewest_prompts": answers.fewest,
        "reach": {
            each.level.name: {"violations": each.most, "share": each.share, "alpha_of_zero": each.alpha_of_zero}
            for each in answers.reached
        },
        "risks": [
            {
                "risk": each.risk,
                "prompts": dict(zip(names, each.prompts, strict=True)),
                "power": None if each.power is None else dict(zip(names, each.power, strict=True)),
            }
            for each in answers.risks
        ],
        "warnings": answers.warnings,
    }
    if pilot is not None:
        data["pilot"] = {
            "reference": pilot.reference,
            "n": pilot.violated.shape[1],
            "draws": DRAWS,
            "candidates": [
                {"label": label, **row._asdict()} for label, row in zip(pilot.candidates, answers.chances, strict=True)
            ],
        }
    return data
