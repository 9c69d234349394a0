"""What is shown while prompts are served: a table on a terminal, the same now and then elsewhere."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping

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


def generated(
    progress: ShownProgress, label: str, prompts: Iterable[int], failures: int = 0, stored: bool = False
) -> None:
    """These prompts are known of a configuration, which is wrong on the first ones and takes 20 forwards for each."""
    for prompt in prompts:
        progress.generation(label, prompt, prompt >= failures, Generation("", 60, 20, "end"), stored)


def served(progress: ShownProgress, wrong: Mapping[str, int], prompts: int) -> None:
    """The first prompts are served with all configurations."""
    progress.serving(list(wrong))
    for label, failures in wrong.items():
        generated(progress, label, range(prompts), failures)


def told(progress: ShownProgress, clock: Clock, forwards: int, seconds: float) -> list[str]:
    """Lines that are printed when so many forwards were run after so many seconds, with single blanks."""
    stream = progress.console.file
    assert isinstance(stream, io.StringIO)
    stream.truncate(stream.seek(0))
    clock.now = 100.0 + seconds
    progress.forwards(forwards)
    return single(stream.getvalue())


def single(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def elsewhere() -> ShownProgress:
    return ShownProgress(Console(file=io.StringIO(), width=60))


HEADER = "configuration prompts TPF forwards/s violations left"


def test_without_a_terminal_all_is_told_after_pauses_that_become_longer(clock: Clock) -> None:
    with elsewhere() as progress:
        clock.now = 40.0  # loading takes a minute
        progress.start(list(WRONG), "reference", PROMPTS)
        clock.now = 100.0
        served(progress, WRONG, 10)
        assert told(progress, clock, 100, 14.0) == [], "not yet"
        assert told(progress, clock, 800, 20.0) == [
            "redline: 150 of 300 generations, 800 forwards run (40/s), about 20 s left",
            HEADER,
            *(f"{label} 10/20 3.000 10 {min(failures, 10)} 20 s" for label, failures in WRONG.items()),
        ]
        assert told(progress, clock, 900, 49.0) == [], "not again so soon"
        assert told(progress, clock, 900, 51.0)
        assert told(progress, clock, 900, 110.0) == []
        assert told(progress, clock, 900, 112.0)
        for seconds in (233.0, 354.0):
            assert told(progress, clock, 900, seconds - 2.0) == []
            assert told(progress, clock, 900, seconds), "no pause is longer than two minutes"


def test_a_label_is_printed_as_it_is_and_a_violation_needs_both_answers(clock: Clock) -> None:
    with elsewhere() as progress:
        progress.start(["reference", "a[b]/c"], "reference", PROMPTS)
        served(progress, {"reference": 1, "a[b]/c": 0}, 4)
        assert told(progress, clock, 20, 16.0)[2:] == [
            "reference 4/20 3.000 5.0 0 64 s",
            "a[b]/c 4/20 3.000 5.0 0 64 s",
        ]
        generated(progress, "a[b]/c", [4], failures=5)
        assert told(progress, clock, 20, 50.0)[3] == "a[b]/c 5/20 3.000 2.0 0 2 min", "nor is the reference's known"
        generated(progress, "reference", [4])
        assert told(progress, clock, 20, 120.0)[3] == "a[b]/c 5/20 3.000 0.8 1 6 min"


def test_what_was_stored_is_done_but_tells_no_speed(clock: Clock) -> None:
    with elsewhere() as progress:
        progress.start(["reference", "half", "all"], "reference", PROMPTS)
        generated(progress, "half", range(10), failures=2, stored=True)
        generated(progress, "all", range(PROMPTS), failures=3, stored=True)
        progress.serving(["reference", "half"])
        assert told(progress, clock, 40, 20.0) == [
            "redline: 30 of 60 generations, 40 forwards run (2.0/s)",
            HEADER,
            "reference 0/20 - - 0 -",
            "half 10/20 3.000 - 0 -",
            "all 20/20 3.000 - 0 0 s",
        ]
        generated(progress, "reference", range(4))
        generated(progress, "half", [10])
        assert told(progress, clock, 400, 80.0) == [
            "redline: 35 of 60 generations, 400 forwards run (5.0/s), about 7 min left",
            HEADER,
            "reference 4/20 3.000 1.0 0 5 min",
            "half 11/20 3.000 0.2 2 12 min",
            "all 20/20 3.000 - 3 0 s",
        ]


def test_a_clock_runs_while_its_configuration_is_being_served(clock: Clock) -> None:
    """Models follow each other, and a configuration may be done before those that it is served with."""
    with elsewhere() as progress:
        progress.start(["reference", "quick", "other"], "reference", PROMPTS)
        progress.serving(["reference", "quick"])
        clock.now += 10.0
        generated(progress, "quick", range(PROMPTS))
        clock.now += 10.0
        generated(progress, "reference", range(PROMPTS))
        clock.now += 60.0  # another model is loaded
        progress.serving(["other"])
        clock.now += 5.0
        generated(progress, "other", range(10))
        assert told(progress, clock, 170, 85.0) == [
            "redline: 50 of 60 generations, 170 forwards run (2.0/s), about 17 s left",
            HEADER,
            "reference 20/20 3.000 20 0 0 s",
            "quick 20/20 3.000 40 0 0 s",
            "other 10/20 3.000 40 0 5 s",
        ]


def test_a_run_that_may_stop_says_what_is_left_at_most_of_those_that_go_on(clock: Clock) -> None:
    with elsewhere() as progress:
        progress.start(["reference", "candidate"], "reference", 2000, at_most=True)
        served(progress, {"reference": 0, "candidate": 5}, 10)
        clock.now += 10.0
        progress.serving(["reference"])
        generated(progress, "reference", range(10, 20))
        assert told(progress, clock, 20, 20.0) == [
            "redline: 30 of at most 4,000 generations, 20 forwards run (1.0/s)",
            "configuration prompts TPF forwards/s violations at most left",
            "reference 20/2,000 3.000 20 0 33 min",
            "candidate 10/2,000 3.000 20 5 -",
        ]
        assert told(progress, clock, 20, 200.0)[2].endswith(" 5.5 h")


def drawn(progress: ShownProgress) -> list[str]:
    """What stands on the terminal."""
    paper = Console(file=io.StringIO(), width=120, record=True)
    paper.print(progress.shown())
    return single(paper.export_text())


@pytest.mark.parametrize(("height", "rows"), [(19, 15), (18, 14), (15, 11), (3, 1)])
def test_a_terminal_shows_as_many_rows_as_it_has_lines_for_and_the_worst_of_the_others(
    clock: Clock, height: int, rows: int
) -> None:
    console = Console(file=io.StringIO(), width=120, height=height, force_terminal=True)
    with ShownProgress(console) as progress:
        assert drawn(progress) == ["redline: loading"]
        progress.start(list(WRONG), "reference", PROMPTS)
        served(progress, WRONG, 10)
        clock.now = 150.0
        progress.forwards(800)
        first = "violations: candidate10 10, candidate11 10, candidate12 10, at most that in 11 others"
        later = "violations: candidate11 10, candidate12 10, candidate13 10, at most that in 1 other"
        more = {
            15: [],
            14: ["... and 1 configuration more; violations: candidate14 10"],
            11: [f"... and 4 configurations more; {later}"],
            1: [f"... and 14 configurations more; {first}"],
        }
        assert drawn(progress) == [
            HEADER,
            *[f"{label} 10/20 3.000 4.0 {min(failures, 10)} 50 s" for label, failures in WRONG.items()][:rows],
            *more[rows],
            "redline: 150 of 300 generations, 800 forwards run (16/s), about 50 s left",
        ]


def test_a_long_label_leaves_room_for_the_numbers_in_80_columns(clock: Clock) -> None:
    label = "acc95/semi90/buf4/add0.75"
    with elsewhere() as progress:
        progress.start([label], label, 1012)
        served(progress, {label: 0}, 1000)
        clock.now += 1.0
        paper = Console(file=io.StringIO(), width=80)
        paper.print(progress.shown())
        assert isinstance(paper.file, io.StringIO)
        assert single(paper.file.getvalue())[1] == f"{label} 1,000/1,012 3.000 20,000 0 0 s"


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("height", [10, 24])
def test_all_that_is_shown_fits_a_terminal_and_ends_with_the_line_about_the_whole(
    clock: Clock, width: int, height: int
) -> None:
    """A grid of 50 with long labels, of which most have violations."""
    progress = ShownProgress(Console(file=io.StringIO(), width=width, height=height, force_terminal=True))
    wrong = {f"acc98/buf4/semi50/add{number:02}": number % 9 for number in range(50)}
    progress.start(list(wrong), next(iter(wrong)), 4_096)
    served(progress, wrong, 1_000)
    clock.now += 1_000
    progress.forwards(123_456)
    lines = progress.console.render_lines(progress.shown(), progress.console.options.update(height=None), pad=False)
    texts = ["".join(segment.text for segment in line) for line in lines]
    assert len(texts) < height
    assert max(map(len, texts)) <= width
    assert " ".join(" ".join(texts).split()).endswith("left")
    assert sum("redline: 50,000 of" in text for text in texts) == 1
