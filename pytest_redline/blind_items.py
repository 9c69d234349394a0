"""How a grid becomes one test with ``--redline-blind``: it passes or fails, and says nothing else of the outcomes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_redline.errors import RedlineError
from pytest_redline.session import REPORT_KEY, SESSION

if TYPE_CHECKING:
    from pytest_redline.blind import Answer
    from pytest_redline.grid import Grid

NAME = "gate"
HIDDEN = "gate not passed; --redline-blind shows nothing else"


class NotPassedError(Exception):
    """A blind gate is not passed."""


class BlindFile(pytest.File):
    """One grid file: a collector of its one gate."""

    def collect(self) -> Iterable[BlindItem]:
        """Read the file; what a blind gate cannot hold is a collection error."""
        try:
            grid = self.config.stash[SESSION].options.load(self.path)
        except RedlineError as error:
            raise self.CollectError(str(error)) from None
        if problems := unfit(grid):
            raise self.CollectError("\n".join(f"{grid.path.name} {problem}" for problem in problems))
        yield BlindItem.from_parent(self, name=NAME, grid=grid)


def unfit(grid: Grid) -> list[str]:
    """What keeps a grid from being judged blindly."""
    blind = "with --redline-blind"
    others = [
        ("delta.total", grid.spending, "delta is halved by each blind gate already; give a number"),
        ("weights", grid.weight, "what was seen of these prompts is unknown; remove it"),
        ("prompts.slice", grid.slice, "a slice is fresh, so nothing need be hidden; leave the option out"),
        ("stopping", grid.stopping, "what is served would tell of outcomes; remove it"),
        ("noise_floor", grid.noise_floor, "how noisy the reference is would be a second answer; remove it"),
        ("lossless", grid.lossless, "that is a second answer; remove it"),
    ]
    found = [f"{key}: {blind}, {why}" for key, said, why in others if said]
    if not grid.required:
        found.append(f"serving: {blind}, nothing is required, so the gate says nothing; name a candidate")
    return found


class BlindItem(pytest.Item):
    """The gate of one grid; passes when all that is required is certified at the halved delta."""

    answer: Answer | None = None

    def __init__(self, *, grid: Grid, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.grid = grid

    def runtest(self) -> None:
        """Ask.

        Raises
        ------
        NotPassedError
            Something that is required is not certified.
        """
        from pytest_redline.blind import ask

        self.answer = None
        self.answer = ask(self.grid, self.config.stash[SESSION].live())
        if not self.answer.passed:
            raise NotPassedError

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """Never a traceback: its lines and values may tell of outcomes."""
        if isinstance(excinfo.value, NotPassedError):
            return HIDDEN
        if isinstance(excinfo.value, RedlineError):
            return str(excinfo.value)
        return f"{excinfo.typename}: the gate could not be judged; --redline-blind shows nothing else"

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Point at the grid file."""
        return self.path, 0, f"redline: {self.name}"

    def finish_report(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Let nothing but the answer decide, and take away what was printed or logged on the way."""
        report.sections = []
        if report.when != "call" or self.answer is None:
            return
        passed = self.answer.passed
        setattr(report, REPORT_KEY, {"path": str(self.path), "passed": passed, "said": list(self.answer.said)})
        report.outcome, report.longrepr = ("passed", None) if passed else ("failed", HIDDEN)
        report.__dict__.pop("wasxfail", None)
