"""The grid file that tests of grids start from, and one more key in it."""

from __future__ import annotations

BASE = """\
redline: 1
name: made
alpha: 0.1
source: {outcomes: runs.csv}
reference: ref
configurations:
  ref: {x: 1}
  cand: {x: 2}
"""


def more(text: str) -> tuple[str, str]:
    """One more top-level key, on line 5."""
    return ("reference: ref", text + "\nreference: ref")
