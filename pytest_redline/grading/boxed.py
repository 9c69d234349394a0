r"""Final answers in a box, as chat models are asked for them: numbers compared as numbers, anything else as LaTeX text.

The answer is the content of the last ``\boxed{...}`` whose braces balance; without any, the last number of the text.
``####`` is no marker here: chat models write headings with it. Numbers are compared exactly (`math.as_number`). Other
answers are equal if they are the same text once spacing, dollar signs, ``\left`` and ``\right``, ``\text{}`` and the
like, units behind a number, and the spellings of a fraction are evened out. Nothing is computed: ``2x`` and ``x
+ x`` are different, so a candidate that finds another form of the right answer counts as wrong.

Source: the box of MATH (Hendrycks et al., 2021).
"""

from __future__ import annotations

import re

from pytest_redline.grading.math import as_number, last_box, last_number

VERSION = 1

_DROPPED = re.compile(
    r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,!;: ]|\\\$|\$|\\%|%|\^\{?\\circ\}?|\\degree|[\s~]"
)
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_UNIT = re.compile(r"(?<=\d)\\(?:text|mathrm|mbox)\{[^{}]*\}")
_FRACTION = re.compile(r"\\[dt]frac(?![A-Za-z])")
_SHORT_FRACTION = re.compile(r"\\frac(?:\{(\w)\}|(\w))(?:\{(\w)\}|(\w))")
_NAMED = re.compile(r"^[A-Za-z]{1,2}(?:\([A-Za-z]\))?=(?=.)")


def is_right(answer: str, expected: str) -> bool:
    """Is the final answer of a text the expected one."""
    box, number = last_box(answer), as_number(plain(expected))
    if number is not None:
        return number == (last_number(answer) if box is None else as_number(plain(box)))
    return box is not None and plain(box) == plain(expected)


def expected_problem(expected: str) -> str | None:
    """Say why an expected answer is none that can be graded against, or None."""
    return None if plain(expected) else f"{expected[:60]!r} is empty"


def plain(text: str) -> str:
    r"""Even out how an answer is written.

    >>> plain(r"$x = \dfrac{\pi}{2}$"), plain(r"\left( 3, \frac12 \right)"), plain(r"90^{\circ}")
    ('\\frac{\\pi}{2}', '(3,\\frac{1}{2})', '90')
    """
    text = _WRAPPED.sub(r"\1", _UNIT.sub("", _DROPPED.sub("", text)))
    text = _SHORT_FRACTION.sub(
        lambda match: f"\\frac{{{match[1] or match[2]}}}{{{match[3] or match[4]}}}", _FRACTION.sub(r"\\frac", text)
    )
    return _NAMED.sub("", text.removesuffix("."))
