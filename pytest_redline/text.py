"""Texts that others wrote, shown in our own output: nothing in them may pass for it."""

from __future__ import annotations

from unicodedata import category

_BREAKING = frozenset({"Cc", "Cs", "Zl", "Zp"})  # controls, lone surrogates, breaks of lines and paragraphs


def on_one_line(text: str) -> bool:
    """Can a text stand on one line of a report as it is."""
    return text.isprintable() or _BREAKING.isdisjoint(map(category, text))


def spelled(text: str) -> str:
    r"""Spell out what cannot be seen, or would break the line.

    >>> spelled("a\n## passed")
    'a\\n## passed'
    """
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )
