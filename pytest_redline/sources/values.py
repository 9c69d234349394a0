"""Cells of a recording: where a value stands in a row, and what it is taken for."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Final

from pytest_redline.grid import CorrectColumn
from pytest_redline.sources.table import Row

MISSING: Final = object()
VERDICTS: Final[Mapping[object, bool]] = {1: True, 0: False}  # also 1.0, 0.0, True and False, which equal these
TEXT_VERDICTS: Final[Mapping[object, bool]] = {
    text: verdict
    for texts, verdict in (
        (("1", "1.0", "true", "True", "TRUE"), True),
        (("0", "0.0", "false", "False", "FALSE"), False),
    )
    for text in texts
}


def lookup(row: Row, path: str) -> object:
    """Return the value at a column path, or MISSING; the longest key that fits wins over its dotted reading."""
    if path in row:
        return row[path]
    end = path.rfind(".")
    while end > 0:
        inner = row.get(path[:end])
        if isinstance(inner, dict):
            found = lookup(inner, path[end + 1 :])
            if found is not MISSING:
                return found
        end = path.rfind(".", 0, end)
    return MISSING


def as_id(value: object) -> str | None:
    """Return a prompt id or label as text; None for what is not one: no text, no integer, blank, or not encodable."""
    if type(value) is str:
        return value if value and not value.isspace() and (value.isascii() or _encodable(value)) else None
    return str(value) if type(value) is int else None


def as_text(value: object) -> str | None:
    """Return a text, or any other JSON value in one canonical spelling; None where there is none."""
    if value is MISSING or value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if text and not text.isspace() else None


def as_number(value: object, textual: bool) -> float | None:
    """Return a finite number, or None for anything else; in textual formats numbers are spelled out."""
    if textual:
        # float() reads digits of any script and "1_000", which no one means as a number in a recording.
        if type(value) is not str or not value.isascii() or "_" in value:
            return None
    elif type(value) is not float and type(value) is not int:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def verdict_of(column: CorrectColumn, textual: bool) -> Callable[[object], bool | None]:
    """Return the function that reads one verdict, and says None for what is neither right nor wrong."""
    if column.threshold is not None:
        threshold = column.threshold

        def reaches(value: object) -> bool | None:
            number = as_number(value, textual)
            return None if number is None else number >= threshold

        return reaches
    if column.equals is not None:
        wanted = column.equals

        def equals(value: object) -> bool | None:
            if isinstance(value, str):
                return None if not value or value.isspace() else value == wanted or (textual and _spells(value, wanted))
            if isinstance(value, float) and math.isnan(value):
                return None
            if value is MISSING or value is None or isinstance(value, (list, dict)):
                return None
            return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted

        return equals
    verdicts = TEXT_VERDICTS if textual else VERDICTS

    def plain(value: object) -> bool | None:
        return None if isinstance(value, (list, dict)) else verdicts.get(value)

    return plain


def output_hash(text: str) -> int:
    """Return the first 8 bytes of the text's sha256, big-endian."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _spells(text: str, wanted: str | float | bool) -> bool:
    """Return whether the text of a CSV cell is a spelling of a truth value or number."""
    if isinstance(wanted, bool):
        return text.lower() == str(wanted).lower()
    return not isinstance(wanted, str) and as_number(text, textual=True) == wanted


def _encodable(text: str) -> bool:
    """Return whether a text can be written as UTF-8; JSON may hold lone surrogates, which cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
