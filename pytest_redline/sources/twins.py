"""Words that look like one and the same, and are taken for two: ids of prompts, and names of groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pytest_redline.outcomes import quoted
from pytest_redline.sources.values import loosely


def twin_ids(name: str, prompts: Sequence[str]) -> list[str]:
    """Warn of ids that look like one and the same prompt, which would then count more than once."""
    pairs = _pairs(prompts, lambda prompt: re.sub(r"(?<![\d.])0+(?=\d)", "", loosely(prompt)))
    if not pairs:
        return []
    more = f", and {len(pairs) - 1:,} more likewise" if len(pairs) > 1 else ""
    return [
        f"{name}: the ids {' and '.join(map(quoted, pairs[0]))} differ only in blanks, case, Unicode form or leading "
        f"zeros{more}; a prompt counts once; if they stand for the same prompt, give it one id"
    ]


def twin_groups(name: str, groups: Sequence[str] | None) -> list[str]:
    """Warn of groups that look like one, whose budget would then hold for a part of it only."""
    return [
        f"{name}: the groups {' and '.join(map(quoted, pair))} differ only in blanks, case or Unicode form; if they "
        "are one group, write it in one way"
        for pair in _pairs(sorted(set(groups or ())), loosely)
    ]


def _pairs(words: Sequence[str], seen_as: Callable[[str], str]) -> list[tuple[str, str]]:
    """Each word that is seen as an earlier one, with that."""
    first: dict[str, str] = {}
    return [(known, word) for word in words if (known := first.setdefault(seen_as(word), word)) != word]
