"""Outcomes of every configuration on every prompt, whatever they were read or served from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


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
        Name of a per-prompt quantity ("tokens", "forwards", ...) to its ``[m, n]`` float64 values, all finite and >= 0.
    groups
        The group of each prompt, or None where no groups are known.
    outputs
        ``[m, n]`` uint64 hashes of the answer texts, or None where texts are not known. Equal texts have equal hashes.
    """

    configurations: tuple[str, ...]
    prompts: tuple[str, ...]
    correct: NDArray[np.bool_]
    measures: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    groups: tuple[str, ...] | None = None
    outputs: NDArray[np.uint64] | None = None


def natural_key(prompt: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key under which digits count as numbers; ids equal as numbers ("01", "1") fall back to their text."""
    parts = re.split(r"(\d+)", prompt)
    numbers = tuple((1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts)
    return (*numbers, (2, 0, prompt))
