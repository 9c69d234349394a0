"""What was asked for and what is known of it while a source serves: generations, graded as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_redline.errors import OutcomesError
from pytest_redline.grading import Grader
from pytest_redline.grid import Grid
from pytest_redline.outcomes import Outcomes
from pytest_redline.progress import Progress
from pytest_redline.prompts import Prompts
from pytest_redline.sources.values import output_hash
from pytest_redline.store import Generation

_MOST_LOST = 0.01  # share of prompts that a configuration may fail on before it counts as not served
_ERROR = "error"
_ENDED = ("stop", "stop_string")  # finish reasons of a reply that ended by itself, before any limit


class Book:
    """Generations and verdicts as they become known.

    ``asked`` and ``there`` are ``[m, n]`` bool: what is to be served, and what is known of it. ``correct`` holds the
    verdicts of the latter.
    """

    def __init__(self, grid: Grid, prompts: Prompts, grader: Grader, progress: Progress) -> None:
        self.grid, self.prompts, self.grader, self.progress = grid, prompts, grader, progress
        self.found: list[list[Generation | None]] = [[None] * len(prompts.ids) for _ in grid.configurations]
        blank = np.zeros((grid.m, len(prompts.ids)), dtype=np.bool_)
        self.correct, self.asked, self.there = blank, blank.copy(), blank.copy()
        self.verdicts: dict[tuple[str, int], bool] = {}  # equal texts have equal verdicts

    def take(self, rows: Sequence[int], keys_of: Sequence[Sequence[str]], known: Mapping[str, Generation]) -> None:
        """Enter what the store holds of what was asked for, of these rows with their keys ``[row][prompt]``."""
        for row, keys in zip(rows, keys_of, strict=True):
            for prompt in np.flatnonzero(self.asked[row] & ~self.there[row]).tolist():
                if keys[prompt] in known:
                    self.enter(row, prompt, known[keys[prompt]], stored=True)

    def enter(self, row: int, prompt: int, generation: Generation, stored: bool) -> None:
        """Enter and grade one generation, from the store or just served."""
        self.found[row][prompt] = generation
        self.there[row, prompt] = True
        reference = self.grid.configurations[row].label == self.grid.reference
        if generation.finish_reason == _ERROR:
            right = reference  # a lost answer counts against the candidate
        else:
            asked = (generation.text, prompt)
            if asked not in self.verdicts:
                self.verdicts[asked] = self.grader.right(generation.text, self.prompts.answers[prompt])
            right = self.verdicts[asked]
        self.correct[row, prompt] = right
        self.progress.generation(self.grid.configurations[row].label, prompt, right, generation, stored)

    def missing(self, rows: Sequence[int]) -> dict[int, list[int]]:
        """Prompts that lack what was asked for, in serving order, with the places among these rows that they lack."""
        lacking = self.asked[list(rows)] & ~self.there[list(rows)]
        some: NDArray[np.bool_] = np.any(lacking, axis=0)
        return {prompt: np.flatnonzero(lacking[:, prompt]).tolist() for prompt in self.prompts.order if some[prompt]}

    def outcomes(self) -> tuple[Outcomes, list[str]]:
        """Outcomes of all that was asked for, and what must be said about them."""
        n = len(self.prompts.ids)
        problems, warnings = [], []
        assert (self.there == self.asked).all(), "everything that was asked for was served"
        for configuration, row in zip(self.grid.configurations, self.found, strict=True):
            lost = [self.prompts.ids[place] for place, each in enumerate(row) if each and each.finish_reason == _ERROR]
            if len(lost) > _MOST_LOST * n:
                problems.append(
                    f"{configuration.label}: no usable answer on {len(lost):,} of {n:,} prompts (first {lost[0]}), "
                    f"over {100 * _MOST_LOST:g} %; the model's answers there are NaN or infinite"
                )
            elif lost:
                counted = "right" if configuration.label == self.grid.reference else "wrong"
                warnings.append(f"{configuration.label}: no usable answer on {', '.join(lost)}, counted as {counted}")
        if problems:
            raise OutcomesError(problems)
        measures = {
            name: np.array(
                [[getattr(each, name) if each else 0 for each in row] for row in self.found], dtype=np.float64
            )
            for name in ("tokens", "forwards")
        }
        if "finished" in self.grid.measures:
            measures["finished"] = np.array(
                [
                    [self._finished(each, configuration.label) if each else 0.0 for each in row]
                    for configuration, row in zip(self.grid.configurations, self.found, strict=True)
                ]
            )
        outputs = np.array(
            [[output_hash(each.text) if each else 0 for each in row] for row in self.found], dtype=np.uint64
        )
        return (
            Outcomes(
                self.grid.labels,
                self.prompts.ids,
                self.correct,
                measures,
                self.prompts.groups,
                outputs,
                self.prompts.clusters,
                known=None if self.asked.all() else self.asked,
                order=self.prompts.order if self.grid.spends_less else None,
            ),
            warnings,
        )

    def _finished(self, generation: Generation, label: str) -> float:
        """Did a reply end by itself: 1 or 0; as with verdicts, a lost answer counts against the candidate."""
        if generation.finish_reason == _ERROR:
            return float(label == self.grid.reference)
        return float(generation.finish_reason in _ENDED)
