"""Generations on disk: an interrupted run goes on where it stopped, and a repeated one serves nothing.

A generation is found by a key over everything that could change the answer (``key_of``); the store knows nothing of
grids or verdicts. Beside them it keeps which prompts were ever asked, and statements as texts (``reuse.py``). SQLite
in WAL mode: what was stored survives ``kill -9``, and several processes may read while one writes.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from pytest_redline.errors import OutcomesError

_VERSION = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS generations (
    key TEXT PRIMARY KEY, text TEXT NOT NULL, tokens INTEGER NOT NULL, forwards INTEGER NOT NULL,
    finish_reason TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS forwards_run (run TEXT PRIMARY KEY, forwards INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asked (prompt TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS statements (
    place INTEGER PRIMARY KEY, ledger TEXT NOT NULL, session TEXT NOT NULL, statement TEXT NOT NULL,
    text TEXT NOT NULL, UNIQUE (ledger, statement)
);
"""
_ASKED_AT_ONCE = 500  # keys in one SELECT
_TYPES = (str, int, int, str)  # of a generation


class Generation(NamedTuple):
    """What one configuration answered to one prompt; tokens and forwards as the engine's accounting defines them."""

    text: str
    tokens: int
    forwards: int
    finish_reason: str


def make_folder(store: Path) -> None:
    """Make the folder of a store; git is told to leave the gate's own out, as pytest does with its cache."""
    store.parent.mkdir(parents=True, exist_ok=True)
    ignored = store.parent / ".gitignore"
    if store.parent.name == ".redline" and not ignored.exists():
        ignored.write_text("*\n", encoding="utf-8")


class Store:
    """An open store; a context manager.

    Raises
    ------
    OutcomesError
        The file is no store of this version, or cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            make_folder(path)
            self._connection = sqlite3.connect(path, timeout=60, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise OutcomesError(f"{path}: a store of version {version}, this Redline writes {_VERSION}; remove it")
            self._connection.executescript(_SCHEMA)
            self._connection.execute(f"PRAGMA user_version = {_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise OutcomesError(f"{path}: cannot be used as a store ({error}); remove it or name another") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def read(self, keys: Sequence[str]) -> dict[str, Generation]:
        """Find the generations that are there."""
        found: dict[str, Generation] = {}
        for start in range(0, len(keys), _ASKED_AT_ONCE):
            part = keys[start : start + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(part))
            rows = self._connection.execute(
                f"SELECT key, text, tokens, forwards, finish_reason FROM generations WHERE key IN ({marks})", part
            )
            found |= {key: Generation(*values) for key, *values in rows}
        odd = next((key for key, each in found.items() if tuple(map(type, each)) != _TYPES), None)
        if odd is not None:
            raise OutcomesError(f"{self.path}: generation {odd[:12]} is not what was stored; remove the file")
        return found

    def write(self, generations: Iterable[tuple[str, Generation]]) -> None:
        """Keep generations, all or nothing.

        A generation that is already there stays: a repeated run must not be able to replace an answer.
        """
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(
                "INSERT OR IGNORE INTO generations VALUES (?, ?, ?, ?, ?)",
                [(key, *generation) for key, generation in generations],
            )

    def write_forwards(self, run: str, forwards: int) -> None:
        """Keep how many forwards it took to serve everything of a run, in one go and from nothing."""
        with self._connection:
            self._connection.execute("INSERT OR IGNORE INTO forwards_run VALUES (?, ?)", (run, forwards))

    def forwards_run(self, run: str) -> int | None:
        """Find how many forwards a run took; None where it was never served in one go."""
        row = self._connection.execute("SELECT forwards FROM forwards_run WHERE run = ?", (run,)).fetchone()
        return None if row is None else int(row[0])

    def ask(self, prompts: Sequence[str]) -> None:
        """Keep that these prompts are served, by hashes of their texts."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR IGNORE INTO asked VALUES (?)", [(_hash(each),) for each in prompts])

    def were_asked(self, prompts: Sequence[str]) -> bool:
        """Was any of these prompts ever served."""
        known = {row[0] for row in self._connection.execute("SELECT prompt FROM asked")}
        return any(_hash(each) in known for each in prompts)

    def state(self, ledger: str, session: str, statement: str, text: str) -> None:
        """Keep a statement; one that is there already stays."""
        with self._connection:
            self._connection.execute(
                "INSERT OR IGNORE INTO statements (ledger, session, statement, text) VALUES (?, ?, ?, ?)",
                (ledger, session, statement, text),
            )

    def statements(self, ledger: str, session: str, statement: str) -> list[str]:
        """Lines of a ledger's statements in order, those of a session left out but for one statement."""
        rows = self._connection.execute(
            "SELECT text FROM statements WHERE ledger = ? AND (session != ? OR statement = ?) ORDER BY place",
            (ledger, session, statement),
        )
        return [line for (text,) in rows for line in text.splitlines()]


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def key_of(parts: Mapping[str, Any]) -> str:
    """Make a key from everything that could change an answer."""
    content = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(content.encode("ascii")).hexdigest()
