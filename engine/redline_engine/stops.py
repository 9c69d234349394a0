"""Where a stop string ends a reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

Detokenize = Callable[[Sequence[int]], str]


class Stop(NamedTuple):
    """A stop string was found: the reply keeps `tokens` tokens and the text before it."""

    tokens: int
    text: str


def find_stop(tokens: Sequence[int], strings: Sequence[str], detokenize: Detokenize) -> Stop | None:
    """Find where the text of `tokens` first holds one of `strings`.

    Tokens are kept up to the one that completes a stop string, so that the count does not depend on how many tokens
    were resolved together. Where several strings lie in the text then, it is cut at the leftmost.
    """
    if not _holds(detokenize(tokens), strings):
        return None
    for count in range(1, len(tokens) + 1):
        text = detokenize(tokens[:count])
        if _holds(text, strings):
            return Stop(count, text[: min(text.find(string) for string in strings if string in text)])
    raise AssertionError("the loop ends with all tokens, whose text holds a stop string")


def _holds(text: str, strings: Sequence[str]) -> bool:
    return any(string in text for string in strings)
