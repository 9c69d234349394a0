"""The complaints about one grid file, collected so that all of them are told in one go."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_redline.errors import GridError
from pytest_redline.grid_schema import NAME_PATTERN
from pytest_redline.located_yaml import LocatedYaml
from pytest_redline.paths import display

KeyPath = tuple[str | int, ...]

_NAME_LINE = re.compile(rb"^name:[ \t]*[\"']?([^\s\"'#]+)", re.MULTILINE)


class Complaints:
    """What is wrong with a file, each as ``FILE:LINE key.path: ...``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.located = LocatedYaml()
        self.content = b""  # of the file
        self.problems: list[tuple[int, str]] = []
        self.tainted: set[KeyPath] = set()  # complained about and left out

    def is_tainted(self, path: KeyPath) -> bool:
        """Is a path, or what it stands in, already known to be faulty."""
        return any(path[:length] in self.tainted for length in range(1, len(path) + 1))

    def complain(self, path: KeyPath, text: str, line: int | None = None) -> None:
        """Add a complaint about a value, unless what it stands in is complained about already."""
        if self.is_tainted(path):
            return
        where = f"{display(self.path)}:{line or self.located.line(path)}"
        key = _dotted(path)
        self.problems.append((line or self.located.line(path), f"{where} {key}: {text}" if key else f"{where}: {text}"))

    def error(self) -> GridError:
        """Make the error that tells all of them, in the order of the file's lines."""
        ordered = sorted(self.problems, key=lambda problem: problem[0])
        error = GridError(list(dict.fromkeys(text for _, text in ordered)))
        data = self.located.data
        name = data.get("name") if isinstance(data, dict) else None
        if data is None and (line := _NAME_LINE.search(self.content)):  # the text is no YAML
            name = line[1].decode("utf-8", "replace")
        if isinstance(name, str) and re.fullmatch(NAME_PATTERN, name):
            error.name = name
        return error


def suggest(word: str, names: Iterable[str]) -> str:
    """Ask whether the nearest name was meant; empty where none is near."""
    close = difflib.get_close_matches(word, list(names), n=1)
    return f"did you mean {close[0]}?" if close else ""


def no_such_label(label: str, labels: Sequence[str]) -> str:
    """Say that a label is none of a grid's, and which was meant or there is."""
    shown = ", ".join(labels[:8]) + (f", ... ({len(labels)} in all)" if len(labels) > 8 else "")
    hint = suggest(label, labels) or f"declared are {shown or 'none'}"
    return f"{label!r} is not a configuration of this grid; {hint}"


def _dotted(path: KeyPath) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
