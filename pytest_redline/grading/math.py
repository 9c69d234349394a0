r"""Final answers that are numbers: found behind a marker, in a box, or as the last number, and compared as numbers.

The answer is, in this order: what follows the last ``####`` on its line; the content of the last balanced
``\boxed{...}``; the last number of the text. ``$29.00``, ``29.``, ``**29**`` and ``9{,}500`` are numbers; a lone comma
is none. Numbers are compared exactly, as fractions, never as floating point. One of over 1,000 digits is written by a
model that does not stop: it equals nothing. Every text takes time in proportion to its length.

Source: the answer marker of GSM8K (Cobbe et al., 2021) and the box of MATH (Hendrycks et al., 2021).
"""

from __future__ import annotations

import re
from fractions import Fraction

VERSION = 1

_MARKER = "####"
_MOST_DIGITS = 1000  # Python itself refuses numbers of over 4,300
_BRACE = re.compile(r"(\\(?:boxed|fbox)\s*)?\{|\}")
# Blanks are tried from the first of them only: from each, a text of nothing else would take their square.
# A few digits right before a fraction make a mixed number.
_FRACTION = re.compile(
    r"(?:(-)\s*|(?<![\d.,])(\d{1,9})\s*|(?<!\s)\s*)\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(-?\d+)\s*\}"
)
_NUMBER = re.compile(
    r"(?:(?<![\w)])-)?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d)\.(?!\d)|(?<=\d))(?:\s*/\s*\d+)?"
)
_SPACING = re.compile(r"\\[,!;: ]|\{,\}|\\\$|[$€£*`_~]|\\(?:text|mathrm|mathbf)\s*|\\%|%")


def is_right(answer: str, expected: str) -> bool:
    """Is the final answer of a text the expected number; a text without any number is wrong."""
    found = final_number(answer)
    return found is not None and found == as_number(expected)


def expected_problem(expected: str) -> str | None:
    """Say why an expected answer is none that can be graded against, or None."""
    return None if as_number(expected) is not None else f"{expected[:60]!r} is not a number"


def final_number(answer: str) -> Fraction | None:
    r"""Read the final answer out of a text.

    >>> final_number("That makes 72, all told."), final_number(r"so \boxed{9{,}500}"), final_number("#### $29.00")
    (Fraction(72, 1), Fraction(9500, 1), Fraction(29, 1))
    """
    _, marker, after = answer.rpartition(_MARKER)
    if marker:
        numbers = _numbers(after.lstrip().partition("\n")[0])
        return numbers[0] if numbers else None
    boxed = last_box(answer)
    if boxed is not None:
        return as_number(boxed)
    return last_number(answer)


def last_number(answer: str) -> Fraction | None:
    """Read the last number of a text."""
    numbers = _numbers(answer)
    return numbers[-1] if numbers else None


def as_number(text: str) -> Fraction | None:
    """Read a text that is one number and nothing else; of an equation, the right-hand side."""
    text = text.rpartition("=")[2]
    numbers = _numbers(text)
    rest = _NUMBER.sub("", _FRACTION.sub("0", _plain(text)), count=1)
    return numbers[0] if len(numbers) == 1 and not re.search(r"[\w\\]", rest) else None


def _plain(text: str) -> str:
    return _SPACING.sub(lambda match: "," if match[0] == "{,}" else "", text)


def _spelt_out(fraction: re.Match[str]) -> str:
    """Write a fraction with a slash, a mixed number as one fraction."""
    sign, whole, top, bottom = fraction.groups()
    if whole is not None and len(top) <= _MOST_DIGITS >= len(bottom) and "-" not in top + bottom:
        return f"{int(whole) * int(bottom) + int(top)}/{bottom}"
    return f"{whole or ''}{sign or ' '}{top}/{bottom}"


def _numbers(text: str) -> list[Fraction | None]:
    """All numbers of a text, in order; None for one that is too long."""
    found: list[Fraction | None] = []
    plain = _FRACTION.sub(_spelt_out, _plain(text))
    for match in _NUMBER.finditer(plain):
        top, _, bottom = match[0].replace(",", "").partition("/")
        top = top.strip().rstrip(".")
        if not top.strip("-"):
            continue
        if len(top) > _MOST_DIGITS or len(bottom) > _MOST_DIGITS:
            found.append(None)
        elif not bottom or int(bottom):
            value = Fraction(top)
            found.append(value / int(bottom) if bottom else value)
    return found


def last_box(text: str) -> str | None:
    r"""Content of the last ``\boxed{...}`` whose braces balance."""
    last: tuple[int, int] | None = None
    opened: list[int | None] = []  # where each brace's content begins, None where it is no box's
    for match in _BRACE.finditer(text):
        if match[0] != "}":
            opened.append(match.end() if match[1] else None)
        elif opened and (begin := opened.pop()) is not None and (last is None or begin > last[0]):
            last = begin, match.start()
    return None if last is None else text[slice(*last)]
