"""Outcomes of every configuration on every prompt, whatever they were read or served from."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pytest_redline.text import spelled

# What is measured for one prompt is 0 or in this range; beyond it, sums and ratios over prompts would overflow.
SMALLEST: Final = 1e-15
LARGEST: Final = 1e15


@dataclass(frozen=True)
class Outcomes:
    """Verdicts and costs of m configurations on the same n prompts.

    Parameters
    ----------
    configurations
        The m labels, in the order of the grid.
    prompts
        The n prompt ids, in natural order (gsm8k/2 before gsm8k/10).
    correct
        ``[m, n]`` bool: was the configuration right on the prompt.
    measures
        Name of a per-prompt quantity ("tokens", "forwards", ...) to its ``[m, n]`` float64 values, all `measurable`.
    groups
        The group of each prompt, or None where no groups are known.
    outputs
        ``[m, n]`` uint64 hashes of the answer texts, or None where texts are not known. Equal texts have equal hashes.
    clusters
        The cluster of each prompt, or None where no clusters are declared.
    scores
        ``[m, n]`` from 0 to 1: how right the configuration was, where a verdict is a score or a mean over repeats;
        ``correct`` is then where it is 1.
    known
        ``[m, n]`` bool: was the prompt served with the configuration; None where all were. Where it was not,
        ``correct`` is False, and measures and hashes are 0.
    order
        Positions of the prompts in the random order in which they were served, or None where nothing depends on it.
    """

    configurations: tuple[str, ...]
    prompts: tuple[str, ...]
    correct: NDArray[np.bool_]
    measures: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    groups: tuple[str, ...] | None = None
    outputs: NDArray[np.uint64] | None = None
    clusters: tuple[str, ...] | None = None
    scores: NDArray[np.float64] | None = None
    known: NDArray[np.bool_] | None = None
    order: tuple[int, ...] | None = None

    def violated(self, reference: int) -> NDArray[np.bool_]:
        """Return ``[m, n]`` bool: the reference is known to be right on the prompt and the configuration wrong."""
        result: NDArray[np.bool_] = self.correct[reference] & ~self.correct
        return result if self.known is None else result & self.known

    @property
    def rightness(self) -> NDArray[np.float64]:
        """``[m, n]`` scores where there are any, else 1 where the configuration was right."""
        return self.correct.astype(np.float64) if self.scores is None else self.scores

    def split_last(self) -> tuple[Outcomes, Replicate]:
        """Return the outcomes without their last configuration, and that as the reference's second run."""
        last = Replicate(
            self.correct[-1],
            None if self.outputs is None else self.outputs[-1],
            None if self.scores is None else self.scores[-1],
        )
        return replace(
            self,
            configurations=self.configurations[:-1],
            correct=self.correct[:-1],
            measures={name: values[:-1] for name, values in self.measures.items()},
            outputs=None if self.outputs is None else self.outputs[:-1],
            scores=None if self.scores is None else self.scores[:-1],
        ), last


@dataclass(frozen=True)
class Replicate:
    """The reference's second run on the same n prompts.

    Parameters
    ----------
    correct, outputs, scores
        One row, ``[n]``, of what `Outcomes` has of configurations; outputs and scores only where those are known.
    """

    correct: NDArray[np.bool_]
    outputs: NDArray[np.uint64] | None = None
    scores: NDArray[np.float64] | None = None


def unknown(
    configurations: tuple[str, ...],
    prompts: tuple[str, ...],
    groups: tuple[str, ...] | None,
    clusters: tuple[str, ...] | None,
    order: tuple[int, ...] | None = None,
) -> Outcomes:
    """Stand in for outcomes that do not exist yet, for what depends on the prompts only."""
    nothing = np.zeros((len(configurations), len(prompts)), dtype=np.bool_)
    return Outcomes(configurations, prompts, nothing, groups=groups, clusters=clusters, order=order)


@dataclass(frozen=True)
class PromptList:
    """The prompts that a grid declares: the authority on which ids there are.

    Parameters
    ----------
    file
        Where they were read, as messages show it.
    ids
        The n ids, without repetition.
    texts, groups, clusters
        In the order of ``ids``, or None where the file has no such column.
    sha256
        Hash of the file's bytes.
    drawn
        They are a slice that was drawn from the file, so that no other prompts will do.
    """

    file: str
    ids: tuple[str, ...]
    texts: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    sha256: str = ""
    clusters: tuple[str, ...] | None = None
    drawn: bool = False

    def only(self, ids: Collection[str]) -> PromptList:
        """Take the slice that was drawn."""
        kept = [place for place, each in enumerate(self.ids) if each in ids]
        columns = (
            None if column is None else tuple(column[place] for place in kept)
            for column in (self.ids, self.texts, self.groups, self.clusters)
        )
        taken, texts, groups, clusters = columns
        return replace(
            self,
            file=f"the slice of {self.file}",
            ids=taken or (),
            texts=texts,
            groups=groups,
            clusters=clusters,
            drawn=True,
        )


def natural_key(prompt: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which digits count as numbers; ids equal as numbers ("01", "1") fall back to their text."""
    parts = re.split(r"(\d+)", prompt)
    bare = [part.lstrip("0") for part in parts]
    # Length, then text, orders digits as int() would, without its limit of 4,300 of them.
    numbers = tuple(
        (1, len(digits), digits) if part.isdecimal() else (0, 0, part) for part, digits in zip(parts, bare, strict=True)
    )
    return (*numbers, (2, 0, prompt))


def measurable(number: float) -> bool:
    """Return whether a number can be what was measured for one prompt."""
    return number == 0 or SMALLEST <= number <= LARGEST


def shown_id(prompt: str) -> str:
    """Return an id as messages show it: quoted where it is long (then cut), unprintable or has blanks at its ends."""
    return prompt if prompt.isprintable() and len(prompt) <= 80 and prompt == prompt.strip() else quoted(prompt)


def quoted(value: object) -> str:
    """Return any value as messages show it: as JSON, cut after 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = spelled(text)
    return text if len(text) <= 60 else f"{text[:57]}..."
