"""What is shown while prompts are served: a table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pytest
from rich.console import Console

from pytest_redline.report import progress as shown
from pytest_redline.report.progress import ShownProgress
from pytest_redline.store import Generation

PROMPTS = 20
WRONG = {"reference": 0, **{f"candidate{number}": number for number in range(1, 15)}}  # of the prompts


class Clock:
    """Says the seconds that a test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shown, "time", clock)
    return clock


def served(progress: ShownProgress, wrong: Mapping[str, int], prompts: int) -> None:
    """The first prompts are served with all configurations, each of which is wrong on its first ones."""
    for label, failures in wrong.items():
        for prompt in range(prompts):
            progress.generation(label, prompt, prompt >= failures, Generation("", 60, 20, "end"))


def told(progress: ShownProgress, clock: Clock, forwards: int, seconds: float) -> str:
    """Line that is printed when so many forwards were run after so many seconds."""
    stream = progress.console.file
    assert isinstance(stream, io.StringIO)
    stream.truncate(stream.seek(0))
    clock.now = 100.0 + seconds
    progress.forwards(forwards)
    return stream.getvalue()


def elsewhere() -> ShownProgress:
    return ShownProgress(Console(file=io.StringIO(), width=60))


def test_without_a_terminal_a_line_tells_all_but_the_rows(clock: Clock) -> None:
    with elsewhere() as progress:
        progress.start(list(WRONG), "reference", PROMPTS)
        served(progress, WRONG, 10)
        assert told(progress, clock, 100, 14.0) == "", "not yet"
        assert told(progress, clock, 800, 20.0) == (
            "redline: 150 of 300 generations, 800 forwards run (40/s), about 20 s left; violations: candidate10 10, "
            "candidate11 10, candidate12 10, at most that in 11 others\n"
        )
        assert told(progress, clock, 900, 30.0) == "", "not again so soon"


def test_a_line_names_no_more_than_there_is(clock: Clock) -> None:
    with elsewhere() as progress:
        progress.start(["reference", "a[b]/c", "d"], "reference", PROMPTS, at_most=True)
        served(progress, {"reference": 1, "a[b]/c": 0}, 4)
        line = "redline: 8 of at most 60 generations, 20 forwards run (1/s); "
        assert told(progress, clock, 20, 20.0) == f"{line}no violation\n"
        progress.generation("a[b]/c", 4, False, Generation("", 60, 20, "end"))
        assert "; no violation" in told(progress, clock, 20, 40.0), "the reference's answer is not known yet"
        progress.generation("reference", 4, True, Generation("", 60, 20, "end"))
        assert told(progress, clock, 20, 60.0).endswith("; violations: a[b]/c 1\n")


def drawn(progress: ShownProgress) -> list[str]:
    """What stands on the terminal, with single blanks."""
    paper = Console(file=io.StringIO(), width=120, record=True)
    paper.print(progress.table())
    return [" ".join(line.split()) for line in paper.export_text().splitlines()]


def test_a_terminal_shows_a_row_for_each_of_the_first_and_the_worst_of_the_others(clock: Clock) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with ShownProgress(console) as progress:
        assert drawn(progress) == ["redline: loading"]
        progress.start(list(WRONG), "reference", PROMPTS)
        served(progress, WRONG, 10)
        clock.now = 150.0
        progress.forwards(800)
        assert drawn(progress) == [
            "configuration prompts TPF violations",
            "reference 10/20 3.000",
            *(f"candidate{number} 10/20 3.000 {min(number, 10)}" for number in range(1, 12)),
            "... and 3 configurations more; violations: candidate12 10, candidate13 10, candidate14 10",
            "redline: 150 of 300 generations, 800 forwards run (16/s), about 50 s left",
        ]
