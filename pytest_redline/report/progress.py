"""What is shown while prompts are served: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pytest_redline.progress import Progress
from pytest_redline.report import words
from pytest_redline.store import Generation

_MOST_ROWS = 12  # configurations with a line of their own on a terminal
_MOST_NAMED = 3  # configurations whose violations a line names
_SECONDS_BETWEEN_LINES = 15.0
_REFRESHES = 4  # a second


class ShownProgress(Progress):
    """Per configuration: prompts done, tokens per forward, violations so far; forwards a second and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.started = time.monotonic()
        self.told = self.started
        self.run = 0
        self.labels: list[str] = []
        self.done = self.tokens = self.forwards_charged = np.zeros(0, dtype=np.int64)
        self.right = np.zeros((0, 0), dtype=np.int8)
        self.live: Live | None = None
        self.at_most = False

    def __enter__(self) -> ShownProgress:
        if self.console.is_terminal:
            self.live = Live(
                console=self.console, get_renderable=self.table, refresh_per_second=_REFRESHES, transient=True
            )
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def start(self, labels: Sequence[str], reference: str, prompts: int, at_most: bool = False) -> None:
        """Take up the configurations; the clock starts."""
        self.labels, self.prompts, self.reference = list(labels), prompts, list(labels).index(reference)
        self.at_most = at_most
        self.row = {label: index for index, label in enumerate(labels)}
        self.done, self.tokens, self.forwards_charged = (np.zeros(len(labels), dtype=np.int64) for _ in range(3))
        self.right = np.full((len(labels), prompts), -1, dtype=np.int8)  # -1: not known yet
        self.started = self.told = time.monotonic()

    def generation(self, label: str, prompt: int, right: bool, generation: Generation) -> None:
        """Count one generation."""
        row = self.row[label]
        self.done[row] += 1
        self.tokens[row] += generation.tokens
        self.forwards_charged[row] += generation.forwards
        self.right[row, prompt] = right

    def forwards(self, run: int) -> None:
        """Note the forwards run; where nothing is redrawn, tell a line now and then."""
        self.run = run
        if self.live is None and time.monotonic() - self.told > _SECONDS_BETWEEN_LINES:
            self.told = time.monotonic()
            self.console.print(f"{self.line()}{self._worst(0)}", soft_wrap=True, markup=False, highlight=False)

    def line(self) -> str:
        """One line about the whole."""
        total, done = len(self.labels) * self.prompts, int(self.done.sum())
        seconds = time.monotonic() - self.started
        left, most = "", "at most " if self.at_most else ""
        if 0 < done < total and not self.at_most:
            left = f", about {seconds * (total - done) / done:.0f} s left"
        return (
            f"redline: {done:,} of {most}{words.counted(total, 'generation')}, {self.run:,} forwards run "
            f"({self.run / max(seconds, 1e-9):,.0f}/s){left}"
        )

    def table(self) -> Group:
        """Everything, for a terminal."""
        if not self.labels:
            return Group(Text("redline: loading"))
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        for header in ("configuration", "prompts", "TPF", "violations"):
            table.add_column(header, justify="left" if header == "configuration" else "right", no_wrap=True)
        violated = self._violated()
        for row in range(min(len(self.labels), _MOST_ROWS)):
            speed = self.tokens[row] / self.forwards_charged[row] if self.forwards_charged[row] else None
            table.add_row(
                Text(self.labels[row]),
                f"{self.done[row]:,}/{self.prompts:,}",
                words.number(speed),
                "" if row == self.reference else str(violated[row]),
            )
        more = len(self.labels) - _MOST_ROWS
        note = f"... and {words.counted(more, 'configuration')} more{self._worst(_MOST_ROWS)}"
        return Group(table, *([Text(note)] if more > 0 else []), Text(self.line()))

    def _violated(self) -> NDArray[np.int64]:
        """Violations so far, of each configuration."""
        counts: NDArray[np.int64] = ((self.right[self.reference] == 1) & (self.right == 0)).sum(axis=1)
        return counts

    def _worst(self, first: int) -> str:
        """Those with most violations so far, from a row on."""
        violated = self._violated()
        rows = sorted((row for row in range(first, len(self.labels)) if violated[row]), key=lambda row: -violated[row])
        named = ", ".join(f"{self.labels[row]} {violated[row]:,}" for row in rows[:_MOST_NAMED])
        more = f", at most that in {words.counted(len(rows) - _MOST_NAMED, 'other')}" if len(rows) > _MOST_NAMED else ""
        return f"; violations: {named}{more}" if named else "; no violation"
