"""Every way a file can be unreadable ends in one line that names the place, what is allowed and what to do."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_redline.errors import OutcomesError
from pytest_redline.sources import table
from pytest_redline.sources.table import Faults, Row, format_of, read_bytes, read_rows


def rows_of(name: str, data: bytes) -> list[tuple[int, Row]]:
    faults = Faults()
    rows = list(read_rows(name, data, faults))
    faults.check()
    return rows


def refused(name: str, data: bytes) -> OutcomesError:
    with pytest.raises(OutcomesError) as caught:
        rows_of(name, data)
    return caught.value


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.csv", b"id,v\nx,1\n\ny,2\n"),
        ("a.csv", b"\xef\xbb\xbfid,v\r\nx,1\r\n\r\ny,2\r\n"),
        ("a.jsonl", b'{"id": "x", "v": "1"}\n   \n{"id": "y", "v": "2"}'),
        ("A.NDJSON", b'\xef\xbb\xbf{"id": "x", "v": "1"}\r\n\r\n{"id": "y", "v": "2"}\r\n'),
    ],
)
def test_rows_carry_the_line_an_editor_shows(name: str, data: bytes, packed: bool) -> None:
    name, data = (name + ".gz", gzip.compress(data)) if packed else (name, data)
    assert rows_of(name, data) == [
        (2 if "csv" in name else 1, {"id": "x", "v": "1"}),
        (4 if "csv" in name else 3, {"id": "y", "v": "2"}),
    ]


def test_quoted_fields_may_span_lines_and_rows_are_numbered_by_their_first() -> None:
    assert rows_of("a.csv", b'id,v\n"x\ny","a ""b"", c"\nz,2\n') == [
        (2, {"id": "x\ny", "v": 'a "b", c'}),
        (4, {"id": "z", "v": "2"}),
    ]


cells = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1)


@settings(deadline=None)
@given(st.lists(st.tuples(cells, cells), min_size=1))
def test_what_csv_writes_is_what_is_read(rows: list[tuple[str, str]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([("a", "b"), *rows])
    assert [tuple(row.values()) for _, row in rows_of("a.csv", text.getvalue().encode())] == rows


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers(-9, 9) | st.none()), min_size=1))
def test_what_json_writes_is_what_is_read(rows: list[dict[str, object]]) -> None:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert rows_of("a.jsonl", data) == list(enumerate(rows, start=1))


DEEP = b'{"a":' * 100_000 + b"1" + b"}" * 100_000

FAULTS = {
    "csv: only a header": ("a.csv", b"id,v\n", ["a.csv: has only a header"]),
    "csv: blank lines": ("a.csv", b"\n\n", ["a.csv: has only blank lines"]),
    "csv: not UTF-8": (
        "a.csv",
        "id,v\nx,é\n".encode("latin-1"),
        ["a.csv:2: byte 0xe9 is not UTF-8", "save the file as UTF-8"],
    ),
    "csv: UTF-16": ("a.csv", "id,v\n".encode("utf-16"), ["a.csv:1: byte 0xff is not UTF-8"]),
    "csv: NUL": ("a.csv", b"id,v\nx,1\ny,\0\n", ["a.csv:3: holds a NUL byte"]),
    "csv: text behind a quote": ("a.csv", b'id,v\nx,1\n"y"z,1\n', ["a.csv:3: bad quoting"]),
    "csv: open quote": ("a.csv", b'id,v\n"x,1\ny,2\n', ["a.csv:2: bad quoting", "close each"]),
    "csv: lone carriage returns": ("a.csv", b"id,v\rx,1\r", ["a.csv:1: a carriage return stands within the line"]),
    "csv: a stray carriage return": (
        "a.csv",
        b"id,v\nx,1\ny\r,2\n",
        ["a.csv:3: a carriage return stands within the line; allowed are lines that end with a line feed"],
    ),
    "csv: cut off within the last number": (
        "a.csv",
        b"id,v\nx,100\ny,1",
        ["a.csv:3: the last line does not end with a line break, so its last value may be cut off; allowed are whole"],
    ),
    "csv: cut off, packed": ("a.csv.gz", gzip.compress(b"id,v\nx,100\ny,1"), ["a.csv.gz:3: the last line does not"]),
    "csv: semicolons": (
        "a.csv",
        b"id;v\nx;1,5\n",
        ["a.csv:1: one column, 'id;v': the separator looks like `;`; allowed is a comma; write the file with commas"],
    ),
    "csv: tabs": ("a.csv", b"id\tv\nx\t1\n", ["a.csv:1: one column, 'id\\tv': the separator looks like a tab;"]),
    "csv: bars": ("a.csv", b"id|v\nx|1\n", ["a.csv:1: one column, 'id|v': the separator looks like `|`;"]),
    "csv: ragged": (
        "a.csv",
        b"id,v\nx\ny,1\nz,1,2\n",
        ["a.csv:2: has 1 fields, the header names 2", "a.csv:4: has 3 fields", "one field per column"],
    ),
    "csv: nameless column": ("a.csv", b"id,, \nx,1,2\n", ["a.csv:1: column 2 has no name", "column 3 has no name"]),
    "csv: doubled column": ("a.csv", b"id,v,id\nx,1,2\n", ["a.csv:1: column 'id' stands 2 times", "rename one"]),
    "jsonl: blank lines": ("a.jsonl", b"\n \n", ["a.jsonl: has only blank lines"]),
    "jsonl: no object": (
        "a.jsonl",
        b'{"a": 1}\n[1]\n3\n"x"\nnull\ntrue\n',
        [
            "a.jsonl:2: a list, not an object",
            "a.jsonl:3: a number",
            "a.jsonl:4: a text",
            "a.jsonl:5: null",
            "a.jsonl:6: a truth",
        ],
    ),
    "jsonl: invalid": (
        "a.jsonl",
        b'{"a": 1,}\n{"a": 1}\n{"a" 2}\n',
        ["a.jsonl:1: not valid JSON at column ", "a.jsonl:3: not valid JSON at column 6", "one object per line"],
    ),
    "jsonl: two objects on a line": (
        "a.jsonl",
        b'{"a": 1} {"a": 2}\n',
        ["a.jsonl:1: not valid JSON at column 10 (Extra data)"],
    ),
    "jsonl: doubled key": ("a.jsonl", b'{"a": 1}\n{"b": {"c": 1, "c": 2}}\n', ['a.jsonl:2: the key "c" stands twice']),
    "jsonl: deep": ("a.jsonl", b'{"a": 1}\n' + DEEP, ["a.jsonl:2: nested too deeply"]),
    "jsonl: endless integer": ("a.jsonl", b'{"a": ' + b"9" * 5000 + b"}", ["a.jsonl:1: not readable"]),
    "jsonl: not UTF-8": ("a.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', ["a.jsonl:2: byte 0xff is not UTF-8"]),
    "gz: cut off": (
        "a.csv.gz",
        gzip.compress(b"id,v\n" + b"x,1\n" * 1000)[:-12],
        ["a.csv.gz: the gzip data is cut off or damaged"],
    ),
    "gz: not gz": ("a.jsonl.gz", b'{"a": 1}\n', ["a.jsonl.gz: the gzip data is cut off or damaged from its start"]),
    "gz: wrong sum": (
        "a.csv.gz",
        gzip.compress(b"id,v\nx,1\n")[:-8] + b"\1\2\3\4" + gzip.compress(b"id,v\nx,1\n")[-4:],
        ["a.csv.gz: the gzip data is cut off or damaged after line 2"],
    ),
    "gz without the suffix": ("a.csv", gzip.compress(b"id,v\nx,1\n"), ["a.csv: holds gzip data", "add .gz"]),
    "unknown suffix": ("a.parquet", b"PAR1", ["a.parquet: cannot tell the format", ".csv, .jsonl and .ndjson"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_unreadable_file_is_refused_with_all_its_faults(fault: str) -> None:
    name, data, parts = FAULTS[fault]
    text = str(refused(name, data))
    assert [part for part in parts if part not in text] == [], text


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.jsonl", "a.jsonl.gz"])
def test_an_endless_line_is_refused_without_being_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "LONGEST_LINE", 2**20)
    head = b"id,v\n" if "csv" in name else b'{"id": 1}\n'
    data = head + b"x" * (2**20 + 1) + b"\n"
    text = str(refused(name, gzip.compress(data) if name.endswith(".gz") else data))
    assert f"{name}:2: the line is longer than 1 MiB; a line holds one row, or one object; end each" in text


def test_the_longest_line_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "LONGEST_LINE", 10)
    assert rows_of("a.jsonl", b'{"id":123}\n'[:-1]) == [(1, {"id": 123})]


def test_a_json_line_needs_no_line_break() -> None:
    assert rows_of("a.jsonl", b'{"id": 1}\n{"id": 2}') == [(1, {"id": 1}), (2, {"id": 2})]


def test_a_damaged_gzip_body_is_refused() -> None:
    data = bytearray(gzip.compress(bytes(range(256)).hex().encode() * 40))
    data[20] ^= 0xFF
    assert "a.csv.gz: the gzip data is cut off or damaged" in str(refused("a.csv.gz", bytes(data)))


def test_a_file_that_is_all_faults_is_given_up_on() -> None:
    error = refused("a.csv", b"id,v\n" + b"x\n" * 5000)
    assert len(error.problems) == Faults.limit
    assert "more of the kind" in str(error)


@pytest.mark.parametrize(
    ("name", "kind", "packed"),
    [("a.csv", "csv", False), ("A.CSV.GZ", "csv", True), ("a.jsonl", "jsonl", False), ("a.b.ndjson.gz", "jsonl", True)],
)
def test_the_suffix_decides_the_format(name: str, kind: str, packed: bool) -> None:
    assert format_of(name) == (kind, packed)


def test_the_hash_is_of_the_bytes_returned(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id\nx\n")
    content = read_bytes(path)
    assert content == (b"id\nx\n", hashlib.sha256(b"id\nx\n").hexdigest())
    assert read_bytes(path, content.sha256.upper()) == content


def test_a_file_that_cannot_be_a_recording_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs.csv").write_bytes(b"id\nx\n")
    Path("empty.csv").touch()
    Path("pointer.csv").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    Path("folder.csv").mkdir()
    for name, part in {
        "run.csv": "run.csv: no such file (did you mean runs.csv?)",
        "nowhere/a.csv": "nowhere/a.csv: no such file",
        "empty.csv": "empty.csv: is empty",
        "pointer.csv": "pointer.csv: is a Git LFS pointer, not the recording itself; run `git lfs pull`",
        "folder.csv": "folder.csv: is a folder",
        "runs.csv/a.csv": "runs.csv/a.csv: ",
    }.items():
        with pytest.raises(OutcomesError) as caught:
            read_bytes(Path(name))
        assert part in str(caught.value)
    with pytest.raises(
        OutcomesError, match=r"runs\.csv: its sha256 is [0-9a-f]{64}, the declared one is 00; .*restore it"
    ):
        read_bytes(Path("runs.csv"), "00")


def test_an_unreadable_file_is_refused_with_the_systems_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id\n")

    def denied(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)
    with pytest.raises(OutcomesError, match=r"cannot be read \(Permission denied\)"):
        read_bytes(path)
