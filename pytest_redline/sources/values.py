"""Cells of a recording: where a value stands in a row, and what it is taken for."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
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
NO_GROUP: Final = "is no group; allowed are texts without control characters, in UTF-8; correct it"


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
        return value if value and not value.isspace() and (value.isascii() or encodable(value)) else None
    return str(value) if type(value) is int else None


def joined(parts: Sequence[str | None]) -> str:
    """Return a prompt's id from those of its columns; what is none there counts as empty."""
    return "/".join(part or "" for part in parts)


def as_text(value: object) -> str | None:
    """Return a text, or any other JSON value in one canonical spelling; None where there is none."""
    if value is MISSING or value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
    return text if text and not text.isspace() else None


def encodable(text: str) -> bool:
    """Return whether a text can be written as UTF-8; JSON may hold lone surrogates, which cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def loosely(text: str) -> str:
    """Return a text without what people do not see as a difference.

    That is surrounding blanks, case, Unicode form, and characters of no width.
    """
    shown = "".join(each for each in text if unicodedata.category(each) != "Cf")
    return unicodedata.normalize("NFKC", shown).strip().casefold()


def alike(value: object, other: object) -> bool:
    """Return whether two values mean the same to people: ``OK`` and ``ok``, true and ``"true "``, 1 and ``"1.0"``."""
    return _meaning(str(value)) == _meaning(str(other))


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


def as_flag(value: object, textual: bool) -> float | None:
    """Return 1.0 for true or 1, 0.0 for false or 0, None for what says neither."""
    verdict = None if isinstance(value, (list, dict)) else (TEXT_VERDICTS if textual else VERDICTS).get(value)
    return None if verdict is None else float(verdict)


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
        same = _spells if textual and not isinstance(wanted, str) else _same

        def equals(value: object) -> bool | None:
            if value is MISSING or value is None or isinstance(value, (list, dict)):
                return None
            if (isinstance(value, float) and math.isnan(value)) or (isinstance(value, str) and not value.strip()):
                return None
            # Another spelling of what is right is no clear verdict: read as wrong, it would excuse candidates where
            # it is the reference's.
            return True if same(value, wanted) else None if alike(value, wanted) else False

        return equals

    def plain(value: object) -> bool | None:
        flag = as_flag(value, textual)
        return None if flag is None else flag == 1

    return plain


def output_hash(text: str) -> int:
    """Return the first 8 bytes of the text's sha256, big-endian."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _same(value: object, wanted: str | float | bool) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def _spells(value: object, wanted: str | float | bool) -> bool:
    """Return whether the text of a CSV cell is a spelling of a truth value or number."""
    if isinstance(wanted, bool):
        return value in (str(wanted), str(wanted).lower(), str(wanted).upper())
    return isinstance(value, str) and value == value.strip() and as_number(value, textual=True) == wanted


@lru_cache(maxsize=1024)  # wrong answers are many, the values of a status few
def _meaning(text: str) -> str | float:
    text = loosely(text)
    number = as_number({"true": "1", "false": "0"}.get(text, text), textual=True)
    return text if number is None else number
