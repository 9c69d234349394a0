"""Risks of what the bundled engine measures: forwards, tokens, and whether a reply ended by itself."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from live_gate import keys_of, write_live

from pytest_redline.certificate import to_bytes
from pytest_redline.certificate_schema import Certificate
from pytest_redline.errors import NothingCertifiableError
from pytest_redline.gate import Live, certificate_of
from pytest_redline.grid_file import load_grid
from pytest_redline.packing import unpack
from pytest_redline.verify import verify

FINISHED = {"finished": {"measure": "finished", "alpha": 0.2}}


def reasons(path: Path, store: Path, row: int, number: int, reason: str) -> None:
    """Write a finish reason into the first stored replies of a configuration."""
    connection = sqlite3.connect(store)
    with connection:
        for key in keys_of(load_grid(path), row)[:number]:
            connection.execute("UPDATE generations SET finish_reason = ? WHERE key = ?", (reason, key))
    connection.close()


def certificate(path: Path, store: Path) -> Certificate:
    return certificate_of(load_grid(path), Live(store))


def test_a_reply_that_a_limit_cut_counts_where_the_references_ended(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    path = write_live(tmp_path, alpha=0.5)
    certificate(path, store)
    for row in range(2):
        reasons(path, store, row, 60, "stop")
    reasons(path, store, 0, 5, "length")
    reasons(path, store, 1, 25, "length")
    write_live(tmp_path, alpha=0.5, risks=FINISHED)
    made = certificate(path, store)
    (risk,) = made.risks
    assert [(row.k, row.gained) for row in risk.configurations] == [(0, 0), (20, 0)]
    assert made.row("fast").verdict == "breach"
    assert set(unpack(made.outcomes, ("slow", "fast")).measures) == {"tokens", "forwards", "finished"}
    written = tmp_path / "it.certificate.json"
    written.write_bytes(to_bytes(made))
    assert verify(written) == made


def test_a_reference_that_never_ends_by_itself_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    path = write_live(tmp_path)
    certificate(path, store)
    reasons(path, store, 0, 60, "length")
    write_live(tmp_path, risks=FINISHED)
    with pytest.raises(NothingCertifiableError, match="risk finished: the reference meets the requirement on 0 of 60"):
        certificate(path, store)


def test_forwards_over_a_limit_count(tmp_path: Path) -> None:
    path = write_live(tmp_path, risks={"long": {"measure": "forwards", "over": 1000, "alpha": 0.2}})
    (risk,) = certificate(path, tmp_path / "store.sqlite").risks
    assert [row.k for row in risk.configurations] == [0, 0]
