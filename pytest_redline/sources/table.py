"""CSV and JSON-lines files as rows with line numbers; every fault of a file is one line of text.

The bytes are read once: what is hashed is what is parsed. Rows are then streamed from memory, so that ten million of
them never stand side by side as dictionaries.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from pytest_redline.errors import OutcomesError
from pytest_redline.paths import display

Row = dict[str, object]

BOM: Final = b"\xef\xbb\xbf"
GZIP_MAGIC: Final = b"\x1f\x8b"
LONGEST_LINE: Final = 64 * 2**20  # bytes; a small gzip file can hold one line larger than the memory
SEPARATORS: Final = {";": "`;`", "\t": "a tab", "|": "`|`"}
LFS_POINTER: Final = b"version https://git-lfs.github.com/spec/"


class FileBytes(NamedTuple):
    """The content of a file and the hex sha256 of exactly these bytes."""

    data: bytes
    sha256: str


class Format(NamedTuple):
    """How the bytes of a file are to be read."""

    kind: Literal["csv", "jsonl"]
    packed: bool  # by gzip


class Faults:
    """Collects the faults of single rows, so that one run shows them all; gives up on a file that is all faults."""

    limit = 1000

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        """Keep one more fault; raise them all when there are too many to go on."""
        self.texts.append(text)
        if len(self.texts) >= self.limit:
            self.check()

    def fatal(self, text: str) -> OutcomesError:
        """Return the error for a fault after which nothing more can be read, the earlier faults first."""
        return OutcomesError([*self.texts, text])

    def check(self) -> None:
        """Raise OutcomesError if there was any fault."""
        if self.texts:
            raise OutcomesError(self.texts)


def suggestion(word: str, words: Sequence[str]) -> str:
    """Return `` (did you mean ...?)`` for the nearest of some words, or nothing if none is near."""
    near = get_close_matches(word, words, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def read_bytes(path: Path, sha256: str | None = None) -> FileBytes:
    """Read a whole file and hash it.

    Parameters
    ----------
    path
        The file.
    sha256
        The hex hash that the file is declared to have, or None.

    Raises
    ------
    OutcomesError
        The file is missing, unreadable, empty, no regular file, a Git LFS pointer, or not the declared one.
    """
    name = display(path)
    try:
        if path.is_dir():
            raise OutcomesError(f"{name}: is a folder; a recording is one file; name a file in it")
        if path.exists() and not path.is_file():
            raise OutcomesError(f"{name}: is not a regular file; a recording can be read twice; save it to a file")
        data = path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise OutcomesError(f"{name}: is a link to {path.readlink()}, which is not there; correct it") from None
        siblings = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        near = suggestion(path.name, siblings)
        raise OutcomesError(f"{name}: no such file{near}; paths are relative to the grid file; correct it") from None
    except OSError as error:
        raise OutcomesError(f"{name}: cannot be read ({error.strerror}); make it readable") from None
    if not data:
        raise OutcomesError(f"{name}: is empty; a recording has at least one row; record it again")
    if data.startswith(LFS_POINTER):
        raise OutcomesError(f"{name}: is a Git LFS pointer, not the recording itself; run `git lfs pull` first")
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is not None and sha256.strip().lower() != digest:
        raise OutcomesError(
            f"{name}: its sha256 is {digest}, the declared one is {sha256}; the file is not the one that was declared; "
            "restore it, or declare the new hash"
        )
    return FileBytes(data, digest)


def format_of(name: str) -> Format:
    """Tell from a file's name how it is to be read.

    Raises
    ------
    OutcomesError
        The suffix is not a known one.
    """
    lower = name.lower()
    stem = lower.removesuffix(".gz")
    if stem.endswith(".csv"):
        return Format("csv", stem != lower)
    if stem.endswith((".jsonl", ".ndjson")):
        return Format("jsonl", stem != lower)
    raise OutcomesError(
        f"{name}: cannot tell the format from this name; allowed are .csv, .jsonl and .ndjson, each also with .gz; "
        "convert or rename the file"
    )


def read_rows(name: str, data: bytes, faults: Faults) -> Iterator[tuple[int, Row]]:
    """Yield ``(line number, row)`` for every row of a CSV or JSON-lines file; blank lines are passed over.

    Parameters
    ----------
    name
        The path as messages show it; its suffix decides the format.
    data
        The bytes of the file.
    faults
        Where the faults of single rows go (such rows are left out); the caller raises them at the end.

    Raises
    ------
    OutcomesError
        The format is unknown, or a fault makes the rest unreadable: encoding, NUL bytes, an endless line, gzip,
        quoting, the header, no rows at all.
    """
    form = format_of(name)
    kind = form.kind
    if not form.packed and data.startswith(GZIP_MAGIC):
        raise faults.fatal(f"{name}: holds gzip data, but its name says plain text; add .gz to the name")
    lines = _lines(name, data, form, faults)
    rows = _csv_rows(name, lines, faults) if kind == "csv" else _json_rows(name, lines, faults)
    before = len(faults.texts)
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty and len(faults.texts) == before:
        what = "only a header" if kind == "csv" else "only blank lines"
        raise faults.fatal(f"{name}: has {what}; a recording has at least one row; record it again")


def _lines(name: str, data: bytes, form: Format, faults: Faults) -> Iterator[str]:
    """Yield the decoded lines, ends included; lines end where the bytes have a line feed, as editors count them."""
    plain = io.BytesIO(data)
    stream = gzip.GzipFile(fileobj=plain) if form.packed else plain
    number, raw = 0, b"\n"
    try:
        for number, raw in enumerate(iter(partial(stream.readline, LONGEST_LINE + 1), b""), start=1):
            if len(raw) > LONGEST_LINE:
                raise faults.fatal(
                    f"{name}:{number}: the line is longer than {LONGEST_LINE // 2**20} MiB; a line holds one row, or "
                    "one object; end each with a line break, or record less of it"
                )
            try:
                line = (raw.removeprefix(BOM) if number == 1 else raw).decode("utf-8")
            except UnicodeDecodeError as error:
                found = f"byte 0x{raw[error.start]:02x} is not UTF-8"
                raise faults.fatal(f"{name}:{number}: {found}; allowed is UTF-8 text; save the file as UTF-8") from None
            if "\0" in line:
                raise faults.fatal(f"{name}:{number}: holds a NUL byte; allowed is UTF-8 text; write the file again")
            yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        where = f"after line {number}" if number else "from its start"
        raise faults.fatal(
            f"{name}: the gzip data is cut off or damaged {where} ({error}); compress or copy it again"
        ) from None
    if form.kind == "csv" and not raw.endswith(b"\n"):
        faults.add(
            f"{name}:{number}: the last line does not end with a line break, so its last value may be cut off; allowed "
            "are whole lines; add the line break if the file is whole, or else copy or record it again"
        )


def _csv_rows(name: str, lines: Iterator[str], faults: Faults) -> Iterator[tuple[int, Row]]:
    reader = csv.reader(lines, strict=True)
    header: list[str] = []
    start = 1  # the line on which the record at hand begins; quoted fields may span lines
    try:
        for cells in reader:
            line, start = start, reader.line_num + 1
            if not cells:
                continue
            if not header:
                header = cells
                _check_header(f"{name}:{line}", header, faults)
            elif len(cells) == len(header):
                yield line, dict(zip(header, cells, strict=True))
            else:
                faults.add(
                    f"{name}:{line}: has {len(cells)} fields, the header names {len(header)}; allowed is one field per "
                    "column; quote fields that hold commas or line breaks"
                )
    except csv.Error as error:
        if "new-line character" in str(error):
            raise faults.fatal(
                f"{name}:{start}: a carriage return stands within the line; allowed are lines that end with a line "
                "feed, or with both; write the line ends so, and quote fields that hold a carriage return"
            ) from None
        raise faults.fatal(
            f"{name}:{start}: bad quoting or an overlong field in the row that begins here ({error}); double the "
            "quotes inside quoted fields and close each, or record long texts as JSONL"
        ) from None
    if not header:
        raise faults.fatal(f"{name}: has only blank lines; a recording has at least one row; record it again")


def _check_header(where: str, header: list[str], faults: Faults) -> None:
    for position, column in enumerate(header, start=1):
        if not column.strip():
            faults.add(f"{where}: column {position} has no name; allowed are named columns; name or drop it")
    for column in dict.fromkeys(header):
        if column.strip() and header.count(column) > 1:
            faults.add(f"{where}: column {column!r} stands {header.count(column)} times; allowed is once; rename one")
    if len(header) == 1:
        for found in [noun for separator, noun in SEPARATORS.items() if separator in header[0]][:1]:
            faults.add(
                f"{where}: one column, {header[0]!r}: the separator looks like {found}; allowed is a comma; write the "
                "file with commas"
            )
    faults.check()


class _DoubledKeyError(ValueError):
    pass


def _object(pairs: list[tuple[str, object]]) -> Row:
    row = dict(pairs)
    if len(row) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DoubledKeyError(next(key for key in keys if keys.count(key) > 1))
    return row


def _json_rows(name: str, lines: Iterator[str], faults: Faults) -> Iterator[tuple[int, Row]]:
    decode = json.JSONDecoder(object_pairs_hook=_object).decode
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            row: object = decode(line)
        except _DoubledKeyError as error:
            found = f"the key {json.dumps(str(error))} stands twice in one object; allowed is once; remove one"
        except json.JSONDecodeError as error:
            found = (
                f"not valid JSON at column {error.colno} ({error.msg}); allowed is one object per line; mend the line"
            )
        except RecursionError:
            found = "nested too deeply to be read; allowed is one flat or slightly nested object; record less of it"
        except ValueError as error:  # an integer beyond Python's limit of digits
            found = f"not readable ({error}); allowed is one object per line; mend the line"
        else:
            if isinstance(row, dict):
                yield number, row
                continue
            kinds = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
            found = f"{kinds.get(type(row), 'a number')}, not an object; allowed is one object per line; mend the line"
        faults.add(f"{name}:{number}: {found}")
