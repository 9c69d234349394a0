"""The options and ini keys of the gate."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_redline.arguments import probability

if TYPE_CHECKING:
    from pytest_redline.grid import Grid

_NUMBERS = ("alpha", "delta")
_TEXTS = ("report", "device", "store")
_FLAGS = ("partial", "deploy_only", "blind")
_STORE = ".redline/store.sqlite"


def add_options(parser: pytest.Parser) -> None:
    """Declare ``--redline-*`` and ``redline_*``."""
    group = parser.getgroup("redline", "redline: certify serving configurations")
    group.addoption(
        "--redline-alpha",
        type=probability,
        metavar="ALPHA",
        help="risk budget: at most this share of prompts may be right with the reference and wrong with a candidate; "
        "wins over the grid file (budgets of groups stay)",
    )
    group.addoption(
        "--redline-delta",
        type=probability,
        metavar="DELTA",
        help="failure probability over a whole grid; wins over the grid file",
    )
    group.addoption(
        "--redline-report", metavar="DIR", help="write NAME.certificate.json and NAME.md of each grid to DIR"
    )
    group.addoption(
        "--redline-partial",
        action="store_true",
        default=None,
        help="let the session pass on the selected candidates alone; all are served, and no certificate is written",
    )
    group.addoption(
        "--redline-deploy-only",
        action="store_true",
        default=None,
        help="serve only what decides which configuration to deploy, by declared costs, fastest first",
    )
    group.addoption(
        "--redline-blind",
        action="store_true",
        default=None,
        help="one test for each grid, which only passes or fails, at delta halved by every blind gate before it",
    )
    group.addoption(
        "--redline-device", metavar="DEVICE", help="device of the engine: auto, cpu, cuda; wins over the grid file"
    )
    group.addoption(
        "--redline-store",
        metavar="FILE",
        help="where generations are kept, so that nothing is served twice; .redline/store.sqlite by default",
    )
    for name in _NUMBERS:
        parser.addini(f"redline_{name}", f"{name} of grids that do not declare one")
    for name in ("report", "store"):
        parser.addini(f"redline_{name}", f"as --redline-{name}, relative to the root directory")


@dataclass(frozen=True)
class Options:
    """Values of one session; None where neither the command line nor the ini file says anything."""

    alpha: float | None
    delta: float | None
    ini_alpha: float | None
    ini_delta: float | None
    report: Path | None
    partial: bool
    deploy_only: bool
    blind: bool
    device: str | None
    store: Path
    given: tuple[str, ...]  # options of the command line, as typed

    @classmethod
    def of(cls, config: pytest.Config) -> Options:
        """Read the options of a session.

        Raises
        ------
        pytest.UsageError
            An ini key is not a probability, or an option would show what a blind gate hides.
        """
        given = {name: config.getoption(f"redline_{name}") for name in (*_NUMBERS, *_TEXTS, *_FLAGS)}
        for name in _TEXTS:
            if given[name] is not None and not str(given[name]).strip():
                raise pytest.UsageError(f"--redline-{name}: found nothing; name one or leave the option out")
        report = _path(config, "report")
        showing = [f"--redline-{name.replace('_', '-')}" for name in ("partial", "deploy_only") if given[name]]
        showing += ["a report (--redline-report or redline_report)"] if report is not None else []
        if given["blind"] and showing:
            raise pytest.UsageError(
                f"--redline-blind with {' and '.join(showing)}: a blind gate shows nothing but passed or failed, "
                "and the ledger keeps that; leave out one or the other"
            )
        return cls(
            alpha=given["alpha"],
            delta=given["delta"],
            ini_alpha=_ini(config, "redline_alpha"),
            ini_delta=_ini(config, "redline_delta"),
            report=report,
            partial=bool(given["partial"]),
            deploy_only=bool(given["deploy_only"]),
            blind=bool(given["blind"]),
            device=given["device"],
            store=_path(config, "store") or config.rootpath / _STORE,
            given=tuple(f"--redline-{name.replace('_', '-')}" for name, value in given.items() if value is not None),
        )

    def load(self, path: Path) -> Grid:
        """Read a grid file under these options; raises ``GridError``."""
        from pytest_redline.grid_file import load_grid

        return load_grid(
            path,
            alpha=self.alpha,
            delta=self.delta,
            ini_alpha=self.ini_alpha,
            ini_delta=self.ini_delta,
            deploy_only=self.deploy_only,
        )


def _path(config: pytest.Config, name: str) -> Path | None:
    """Path of an option, relative to where pytest was called, else of its ini key, relative to the root directory."""
    option, ini = config.getoption(f"redline_{name}"), config.getini(f"redline_{name}")
    if option:
        return config.invocation_params.dir / str(option)
    return config.rootpath / str(ini) if ini else None


def _ini(config: pytest.Config, key: str) -> float | None:
    text = config.getini(key)
    if not text:
        return None
    try:
        return probability(str(text))
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{config.inipath}: {key}: {error}") from None
