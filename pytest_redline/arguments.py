"""Numbers that the plugin's options and the ``pytest-redline`` command read from text.

Each raises ``argparse.ArgumentTypeError`` for anything else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable


def probability(text: str) -> float:
    """Read a number strictly between 0 and 1."""
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number between 0 and 1, both excluded")
    return value


def risk(text: str) -> float:
    """Read a number from 0 up to but not including 1."""
    value = _number(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up to but not including 1")
    return value


def whole(least: int, most: int) -> Callable[[str], int]:
    """Make a reader of whole numbers in a range, both ends included."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least:,} to {most:,}")
        return value

    return read


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
