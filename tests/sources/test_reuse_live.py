"""Statements of grids that are served: the store knows of them before anything is, and after their file is gone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from live_gate import write_live

from pytest_redline.certificate import to_bytes
from pytest_redline.certificate_schema import Certificate
from pytest_redline.errors import LedgerError
from pytest_redline.gate import Live, certificate_of
from pytest_redline.grid_file import load_grid
from pytest_redline.ledger import NAME
from pytest_redline.packing import unpack
from pytest_redline.reuse import Run, record_statements
from pytest_redline.sources import engine as bridge
from pytest_redline.stating import record_statement
from pytest_redline.verify import verify

MORE = {
    "slow": {"accept_threshold": 0.9, "buffer_size": 1},
    "fast": {"accept_threshold": 0.05},
    "other": {"accept_threshold": 0.85, "buffer_size": 1},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_live(tmp_path, configurations=MORE)
    return tmp_path


def judge(folder: Path, run: Run | None = None, **changes: object) -> Certificate:
    """Certify the grid after changes of its file, in a run of its own."""
    path = folder / "g.redline.yaml"
    grid = yaml.safe_load(path.read_text()) | changes
    path.write_text(yaml.safe_dump(grid, sort_keys=False))
    return certificate_of(load_grid(path), Live(folder / "store.sqlite", run=run or Run()))


def record(folder: Path, certificate: Certificate, run: Run) -> dict[str, object]:
    """Record a certificate; returns what the ledger's last line says of its place."""
    done = record_statements({folder / "g.redline.yaml": certificate}, folder / "store.sqlite", run)
    assert not done.problems
    last: dict[str, object] = json.loads((folder / NAME).read_text().splitlines()[-1])["reuse"]
    return last


def cut(*labels: str) -> dict[str, object]:
    return {label: MORE[label] for label in labels}


def test_a_first_run_states_before_it_serves(folder: Path) -> None:
    run = Run()
    first = judge(folder, run)
    assert first.reuse is None
    assert record(folder, first, run) == {"number": 1, "counted": 3, "together": 0.1, "before": True, "pool": None}
    assert judge(folder) == first


def test_a_run_that_was_killed_while_serving_is_a_statement_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(bridge, "_generate", killed)
        with pytest.raises(KeyboardInterrupt):
            judge(folder)
    after = judge(folder, configurations=cut("slow", "other"))
    assert after.reuse is not None
    assert (after.reuse.number, after.reuse.counted, after.reuse.before) == (2, 3, False)
    run = Run()
    first = judge(folder, run, configurations=MORE)  # what was stated first is still the first
    assert first.reuse is None
    assert record(folder, first, run)["before"] is True


def test_a_ledger_that_was_lost_is_written_again(folder: Path) -> None:
    run = Run()
    record(folder, judge(folder, run), run)
    (folder / NAME).unlink()
    run = Run()
    later = judge(folder, run, configurations=cut("slow", "other"))
    assert later.reuse is not None
    assert later.reuse.counted == 3
    record(folder, later, run)
    written = [json.loads(line) for line in (folder / NAME).read_text().splitlines()]
    assert [line["reuse"]["number"] for line in written if "statement" in line] == [1, 2]


def test_what_a_partial_run_served_is_known_and_no_statement(folder: Path) -> None:
    judge(folder, Run(partial=True), configurations=cut("slow", "other"))
    run = Run()
    full = judge(folder, run, configurations=MORE)
    assert full.reuse is not None
    assert (full.reuse.number, full.reuse.before) == (1, False)
    assert "made when outcomes were known; it holds if" in full.promise
    assert record(folder, full, run)["before"] is False


def test_stating_needs_nothing_served(folder: Path) -> None:
    grid = load_grid(folder / "g.redline.yaml")
    found = record_statement(grid, folder / "store.sqlite").standing
    assert found.line.reuse.before
    assert not (folder / "store.sqlite").exists()
    run = Run()
    certificate = judge(folder, run)
    assert certificate.statement.hash == found.line.statement
    assert record(folder, certificate, run)["before"] is True
    later = record_statement(load_grid(folder / "g.redline.yaml", alpha=0.3), folder / "store.sqlite").standing
    assert not later.line.reuse.before


def test_another_random_part_of_a_file_speaks_of_the_file(folder: Path) -> None:
    run = Run()
    part = {"file": "prompts.jsonl", "sample": {"n": 40, "seed": 1}}
    first = judge(folder, run, prompts=part)
    assert "an independent random draw from" in first.promise
    record(folder, first, run)
    run = Run()
    second = judge(folder, run, prompts={**part, "sample": {"n": 40, "seed": 2}})
    assert second.promise.startswith(
        "If these 40 prompts are a random part of those in prompts.jsonl, then in at least"
    )
    assert "joint risk above 0.2 over these, for statement" in second.promise
    assert second.reuse is not None
    assert record(folder, second, run)["pool"] == "prompts.jsonl"
    path = folder / "c.json"
    path.write_bytes(to_bytes(second))
    assert verify(path) == second


def test_a_store_killed_at_any_moment_keeps_a_first_statement_first(folder: Path) -> None:
    """Runs in processes of their own, killed while they state and serve, and one that is left alone."""
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2]); import live_gate;"
        "from pytest_redline.gate import Live, certificate_of; from pytest_redline.grid_file import load_grid;"
        "folder = Path(sys.argv[1]); print('ready', flush=True);"
        "certificate_of(load_grid(folder / 'g.redline.yaml'), Live(folder / 'store.sqlite'))"
    )
    for wait in (0.0, 0.15, 0.4):
        with subprocess.Popen(
            [sys.executable, "-c", program, str(folder), str(Path(__file__).parent)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(wait)
            process.kill()
    run = Run()
    certificate = judge(folder, run)
    assert certificate.reuse is None
    assert record(folder, certificate, run)["number"] == 1


def test_slices_are_served_once_each_and_a_killed_gate_keeps_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    def pool(nonce: str) -> dict[str, object]:
        return {"file": "prompts.jsonl", "slice": {"n": 25, "nonce": nonce}}

    with monkeypatch.context() as patched:
        patched.setattr(bridge, "_generate", killed)
        with pytest.raises(KeyboardInterrupt):
            judge(folder, prompts=pool("one"))
    seen: list[set[str]] = []
    for nonce in ("two", "one"):
        run = Run()
        certificate = judge(folder, run, prompts=pool(nonce))
        assert certificate.reuse is None
        assert "25 prompts, a random slice of the 60 in prompts.jsonl" in certificate.promise
        seen.append(set(unpack(certificate.outcomes, tuple(MORE)).prompts))
        record(folder, certificate, run)
    assert not seen[0] & seen[1]
    with pytest.raises(LedgerError, match="10 of the pool's 60 prompts are left after 2 gates, a slice takes 25"):
        judge(folder, prompts=pool("three"))
    assert set(unpack(judge(folder, prompts=pool("two")).outcomes, tuple(MORE)).prompts) == seen[0]
