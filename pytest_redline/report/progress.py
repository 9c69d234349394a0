"""What is shown while prompts are served: a live table on a terminal, the same now and then elsewhere."""

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
from pytest_redline.report import layout, words
from pytest_redline.store import Generation

_OTHER_LINES = 3  # of a terminal, beside configurations and the line about the whole: header, note, cursor
_MOST_NAMED = 3  # configurations whose violations a line names
_FIRST_PAUSE, _LONGEST_PAUSE = 15.0, 120.0  # seconds between two tables where nothing is redrawn
_REFRESHES = 4  # a second


class ShownProgress(Progress):
    """Shows of every configuration prompts done, tokens per forward, forwards a second, violations, and time left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None
        self.tally = _Tally([], "", 0, False)
        self.told, self.pause = 0.0, _FIRST_PAUSE

    def __enter__(self) -> ShownProgress:
        if self.console.is_terminal:
            self.live = Live(
                console=self.console, get_renderable=self.shown, refresh_per_second=_REFRESHES, transient=True
            )
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def start(self, labels: Sequence[str], reference: str, prompts: int, at_most: bool = False) -> None:
        """Take up the configurations."""
        self.tally = _Tally(labels, reference, prompts, at_most)

    def serving(self, labels: Sequence[str]) -> None:
        """Let the clocks of these run, and no others."""
        if self.tally.began is None:
            self.told, self.pause = time.monotonic(), _FIRST_PAUSE
        self.tally.serving(labels)

    def generation(self, label: str, prompt: int, right: bool, generation: Generation, stored: bool) -> None:
        """Count one generation."""
        self.tally.add(label, prompt, right, generation, stored)

    def forwards(self, run: int) -> None:
        """Note the forwards run; where nothing is redrawn, tell all, after pauses that become longer."""
        self.tally.run = run
        now = time.monotonic()
        if self.live is None and now - self.told > self.pause:
            self.told, self.pause = now, min(2 * self.pause, _LONGEST_PAUSE)
            rows = [f"  {line}" for line in layout.drawn(self.tally.table(len(self.tally.labels)))]
            self.console.print("\n".join([self.tally.line(), *rows]), soft_wrap=True, markup=False, highlight=False)

    def shown(self) -> Group:
        """What stands on a terminal: the configurations that it has lines for, the worst of the others, the whole."""
        tally = self.tally  # the terminal is drawn by another thread, which needs one and the same
        if not tally.labels:
            return Group(Text("redline: loading"))
        width, line = self.console.width, Text(tally.line())
        others = _OTHER_LINES + len(line.wrap(self.console, width))
        rows = min(len(tally.labels), max(self.console.height - others, 1))
        table = tally.table(rows)
        table.header_style = "dim"
        more = len(tally.labels) - rows
        note = f"... and {words.counted(more, 'configuration')} more{tally.worst(rows)}"
        return Group(table, *([Text(note, no_wrap=True, overflow="ellipsis")] if more > 0 else []), line)


class _Tally:
    """What is known of each configuration of a run, and its clock.

    A clock runs while its configuration is being served and has prompts left. Speeds are of what was served by it: what
    came from the store counts as done, but tells no speed. Forwards of a configuration are those that its finished
    replies are charged, as if it decoded alone.
    """

    def __init__(self, labels: Sequence[str], reference: str, prompts: int, at_most: bool) -> None:
        m = len(labels)
        self.labels, self.reference, self.prompts, self.at_most = list(labels), reference, prompts, at_most
        self.row = {label: row for row, label in enumerate(labels)}
        self.done, self.tokens, self.charged = (np.zeros(m, dtype=np.int64) for _ in range(3))
        self.right = np.full((m, prompts), -1, dtype=np.int8)  # -1: not known yet
        self.served, self.charged_served = (np.zeros(m, dtype=np.int64) for _ in range(2))
        self.seconds, self.runs, self.since = np.zeros(m), np.zeros(m, dtype=np.bool_), 0.0
        self.began: float | None = None
        self.run = 0

    def serving(self, labels: Sequence[str]) -> None:
        """Let the clocks of these run, and no others."""
        now = time.monotonic()
        self.seconds = self._clocks(now)
        self.since = now
        self.began = now if self.began is None else self.began
        self.runs = np.isin(self.labels, list(labels))

    def add(self, label: str, prompt: int, right: bool, generation: Generation, stored: bool) -> None:
        """Count one generation."""
        row = self.row[label]
        self.tokens[row] += generation.tokens
        self.charged[row] += generation.forwards
        self.right[row, prompt] = right
        if not stored:
            self.served[row] += 1
            self.charged_served[row] += generation.forwards
        self.done[row] += 1
        if self.done[row] == self.prompts:
            self.seconds[row] = self._clocks(time.monotonic())[row]
            self.runs[row] = False

    def line(self) -> str:
        """One line about the whole."""
        total, done, served = len(self.labels) * self.prompts, int(self.done.sum()), int(self.served.sum())
        seconds = 0.0 if self.began is None else time.monotonic() - self.began
        speed, left, most = "", "", "at most " if self.at_most else ""
        if self.run:
            speed = f" ({_rate(self.run, seconds)}/s)"
        if served and done < total and not self.at_most:
            left = f", about {_duration(seconds * (total - done) / served)} left"
        return (
            f"redline: {done:,} of {most}{words.counted(total, 'generation')}, {self.run:,} forwards run{speed}{left}"
        )

    def table(self, rows: int) -> Table:
        """The first so many configurations."""
        left = "at most left" if self.at_most else "left"
        made = layout.table(("configuration", "prompts", "TPF", "forwards/s", "violations", left), 1)
        violated, seconds = self._violated(), self._clocks(time.monotonic())
        for row in range(rows):
            made.add_row(
                Text(self.labels[row]),
                f"{self.done[row]:,}/{self.prompts:,}",
                words.number(self.tokens[row] / self.charged[row] if self.charged[row] else None),
                _rate(self.charged_served[row], seconds[row]),
                f"{violated[row]:,}",
                self._left(row, seconds[row]),
            )
        return made

    def worst(self, first: int) -> str:
        """Those with most violations so far, from a row on."""
        violated = self._violated()
        rows = sorted((row for row in range(first, len(self.labels)) if violated[row]), key=lambda row: -violated[row])
        named = ", ".join(f"{self.labels[row]} {violated[row]:,}" for row in rows[:_MOST_NAMED])
        more = f", at most that in {words.counted(len(rows) - _MOST_NAMED, 'other')}" if len(rows) > _MOST_NAMED else ""
        return f"; violations: {named}{more}" if named else "; no violation"

    def _clocks(self, now: float) -> NDArray[np.float64]:
        """Seconds on each clock."""
        clocks: NDArray[np.float64] = self.seconds + np.where(self.runs, now - self.since, 0.0)
        return clocks

    def _left(self, row: int, seconds: float) -> str:
        """Time that the prompts left take at the speed of those served; not known where the clock stands."""
        left = self.prompts - self.done[row]
        if left and not (self.runs[row] and self.served[row]):
            return words.NONE
        return _duration(seconds * left / self.served[row] if left else 0.0)

    def _violated(self) -> NDArray[np.int64]:
        """Violations so far, of each configuration."""
        counts: NDArray[np.int64] = ((self.right[self.row[self.reference]] == 1) & (self.right == 0)).sum(axis=1)
        return counts


def _rate(count: int, seconds: float) -> str:
    """So many a second; unknown where there is none yet."""
    if not count or seconds <= 0:
        return words.NONE
    return f"{count / seconds:,.{0 if count >= 10 * seconds else 1}f}"


def _duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever says enough."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
