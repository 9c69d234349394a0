"""From the text of an answer to a verdict: right, wrong, or why it could not be told.

Identical texts have identical verdicts: a grader is a pure function of the answer and the expected one. A grader's
name and version are part of the statement, since another grader is another claim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pytest_redline.grading import boxed, math


class Grade(NamedTuple):
    """A verdict, and what was read out of the answer."""

    right: bool
    found: str | None


class Grader(NamedTuple):
    """A named rule; ``expected_problem`` says why an expected answer cannot be graded against, or None."""

    name: str
    version: int
    expected_problem: Callable[[str], str | None]
    right: Callable[[str, str], bool]

    @property
    def stated(self) -> str:
        """How the statement names it."""
        return f"{self.name} (version {self.version})"


GRADERS = {
    each.name: each
    for each in (
        Grader("math", math.VERSION, math.expected_problem, math.is_right),
        Grader("boxed", boxed.VERSION, boxed.expected_problem, boxed.is_right),
    )
}
