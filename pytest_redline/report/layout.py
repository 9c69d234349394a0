"""Tables and paragraphs of what commands print: paragraphs fill the terminal, tables are as wide as their cells."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table

_UNLIMITED = 10_000  # columns: nothing in a table is ever cut
_LEAST = 40  # columns of a paragraph


def table(headers: Sequence[str], left: int) -> Table:
    """Make a table whose first so many columns are flush left."""
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
    for index, header in enumerate(headers):
        made.add_column(header, justify="left" if index < left else "right", no_wrap=True)
    return made


def drawn(made: Table) -> list[str]:
    """Draw a table as lines of plain text."""
    stream = StringIO()
    Console(file=stream, width=_UNLIMITED, color_system=None, highlight=False, markup=False, emoji=False).print(made)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def console(width: int, color: bool) -> tuple[Console, StringIO]:
    """Make a console of this width that writes into a text, plain or in the 16 colours of every terminal."""
    stream = StringIO()
    made = Console(
        file=stream,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    return made, stream


def filled(text: str, width: int) -> str:
    """Break a paragraph into lines of at most so many columns."""
    return textwrap.fill(text, max(width, _LEAST), break_on_hyphens=False)
