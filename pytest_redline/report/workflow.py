"""Workflow commands of GitHub Actions that put a verdict on the grid's line in a pull request."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pytest_redline.certificate_schema import Certificate
from pytest_redline.report.words import fault, shortfall

_PLACE = re.compile(r"(?P<file>[^:\n]+):(?P<line>\d+)(?::| )")
_MOST = 10  # GitHub shows this many of a kind for each step


def verdicts(certificate: Certificate, path: str, lines: Mapping[str, int]) -> list[str]:
    """Make one ``::error`` for each candidate that does not pass, a ``::notice`` of the decision if none.

    Source: GitHub's workflow commands; data escapes ``% CR LF``, properties also ``: ,``.
    """
    failing = certificate.failing
    if not failing:
        row = certificate.row(certificate.serving or certificate.deployed)
        text = f"{row.label} is certified at alpha {certificate.alpha:g}; deployable: {certificate.deployed}"
        return [_command("notice", path, lines.get(row.label, 1), f"redline {certificate.name}", text)]
    return [
        _command(
            "error",
            path,
            lines.get(label, 1),
            f"redline {certificate.name}: {label} {fault(certificate, label)}",
            "\n".join(line.strip() for line in shortfall(certificate, certificate.row(label))),
        )
        for label in failing[:_MOST]
    ]


def refused(path: str, refusal: str, root: Path) -> list[str]:
    """Make one ``::error`` for each problem for which a grid cannot be judged, on the line that it names.

    Parameters
    ----------
    path
        The grid file in the repository; where a problem names no file, it stands there.
    refusal
        One problem a line; a file in it is named relative to the working directory.
    root
        Root of the repository.
    """
    commands = []
    for problem in refusal.splitlines()[:_MOST]:
        place = _PLACE.match(problem)
        file, line = (place["file"], int(place["line"])) if place else (path, 1)
        if place and Path(file).exists():
            file = Path(os.path.relpath(file, root)).as_posix()
        commands.append(_command("error", file, line, "redline: cannot be judged", problem))
    return commands


def _command(kind: str, path: str, line: int, title: str, text: str) -> str:
    return f"::{kind} file={_property(path)},line={line},title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
