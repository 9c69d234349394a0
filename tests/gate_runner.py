"""A small grid with its recording, and the gate run on it; ``conftest.py`` hands it out as the fixture ``gate``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

HEADER = "config,prompt,correct,tokens,forwards"


class Gate:
    """A folder of grids and recordings, and pytest run in it.

    The grid that ``write`` makes has the reference ``ref`` and, by default, two candidates: ``safe`` breaks nothing and
    ``risky`` breaks 20 of 60 prompts; both are faster than the reference.
    """

    wrong: Mapping[str, Iterable[int]] = {"ref": (), "safe": (), "risky": range(20)}

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path

    def write(
        self,
        wrong: Mapping[str, Iterable[int]] | None = None,
        n: int = 60,
        *,
        file: str = "g.redline.yaml",
        recording: str = "runs.csv",
        **keys: Any,
    ) -> Path:
        """Write a grid file and its recording.

        Parameters
        ----------
        wrong
            Label to the numbers of the prompts on which the configuration is wrong; the first one is the reference.
        n
            Prompts are q0 to q(n-1).
        keys
            Further keys of the grid file; they replace the usual ones, and None leaves a key out.
        """
        wrong = self.wrong if wrong is None else wrong
        rows = [HEADER]
        for number, (label, failures) in enumerate(wrong.items()):
            missed = set(failures)
            rows += [f"{label},q{i},{int(i not in missed)},100,{50 - 10 * min(number, 4)}" for i in range(n)]
        (self.path / recording).write_text("\n".join(rows) + "\n")
        labels = list(wrong)
        grid = {
            "redline": 1,
            "name": file.split(".")[0],
            "population": "made-up prompts",
            "alpha": 0.1,
            "source": {"outcomes": recording},
            "reference": labels[0],
            "configurations": {label: {"threshold": 0.9 - 0.01 * i} for i, label in enumerate(labels)},
            **keys,
        }
        grid = {key: value for key, value in grid.items() if value is not None}
        path = self.path / file
        path.write_text(yaml.safe_dump(grid, sort_keys=False))
        return path

    def edit(self, file: str, change: Callable[[str], str]) -> None:
        """Change a file's text; that it does change is checked."""
        path = self.path / file
        before = path.read_text()
        after = change(before)
        assert after != before
        path.write_text(after)

    def run(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in this process: fast, but no place for workers or broken hooks."""
        return self.pytester.runpytest_inprocess("-p", "redline", *arguments)

    def run_alone(self, *arguments: str) -> pytest.RunResult:
        """Run pytest in a process of its own."""
        return self.pytester.runpytest_subprocess("-p", "redline", *arguments)

    def command(self, *arguments: str) -> pytest.RunResult:
        """Run the ``pytest-redline`` command."""
        return self.pytester.run(str(Path(sys.executable).with_name("pytest-redline")), *arguments)


def text_of(result: pytest.RunResult) -> str:
    """All that a run printed."""
    return result.stdout.str() + "\n" + result.stderr.str()


def told_by(shown: str) -> str:
    """What a run printed, without paths and durations, which may hold any letters and digits."""
    return re.sub(r"(?<!\w)/\S+|\b\d+\.\d+s\b", "", shown)


def of_another_run(name: str) -> bool:
    """Whether a variable of the environment is what another test run or a CI service put there."""
    return name.startswith(("GITHUB_", "PYTEST_", "REDLINE_")) or name in ("CI", "NO_COLOR", "FORCE_COLOR", "PY_COLORS")


def environment(**extra: str) -> dict[str, str]:
    """This process's, without what another test run or a CI service put there, 80 columns wide."""
    kept = {name: value for name, value in os.environ.items() if not of_another_run(name)}
    return {**kept, "COLUMNS": "80", **extra}
