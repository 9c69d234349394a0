"""Runs that stop early really generate less, and end as full runs do."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from gate_runner import environment
from live_gate import command, run, write_live

from pytest_redline.certificate_schema import Certificate
from pytest_redline.errors import GridError, OutcomesError
from pytest_redline.gate import Live, certificate_of
from pytest_redline.grid_file import load_grid
from pytest_redline.verify import verify

SLOW = {"accept_threshold": 0.9, "buffer_size": 1}
CONFIGURATIONS = {  # on the random checkpoint `near` is right where `slow` is, `fast` and `wild` are not
    "slow": SLOW,
    "near": {**SLOW, "buffer_size": 2},
    "fast": {"accept_threshold": 0.05},
    "wild": {"accept_threshold": 0.01, "buffer_size": 2},
}
COSTS = {"slow": 1.0, "near": 1.5, "fast": 3.0, "wild": 2.0}
PRICED = {label: {**knobs, "cost": COSTS[label]} for label, knobs in CONFIGURATIONS.items()}
STOPPING = {
    "curtail": {"every": 8},
    "looks": {"looks": {"at": [30, 60], "early": 0.4}, "every": 8},
    "where right": {"candidates": "where_reference_right", "every": 8},
}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def rows_in(store: Path) -> int:
    with sqlite3.connect(store) as connection:
        try:
            return connection.execute("SELECT count(*) FROM generations").fetchone()[0]
        except sqlite3.OperationalError:  # the file is there, its tables are not yet
            return 0


def made(folder: Path, store: str, deploy_only: bool = False, **keys: Any) -> Certificate:
    path = write_live(folder, **{"configurations": CONFIGURATIONS, **keys})
    return certificate_of(load_grid(path, deploy_only=deploy_only), Live(folder / store))


def passed(certificate: Certificate) -> dict[str, bool]:
    return {row.label: row.certified for row in certificate.configurations}


@pytest.mark.parametrize("mode", STOPPING)
def test_what_is_stopped_is_not_generated_and_the_verdicts_are_those_of_a_full_run(tmp_path: Path, mode: str) -> None:
    full = made(tmp_path, "full.sqlite")
    assert passed(full) == {"slow": True, "near": True, "fast": False, "wild": False}
    certificate = made(tmp_path, "less.sqlite", stopping=STOPPING[mode])
    assert passed(certificate) == passed(full)
    assert certificate.spent is not None
    assert rows_in(tmp_path / "less.sqlite") == certificate.spent.generations_run < rows_in(tmp_path / "full.sqlite")
    assert certificate.spent.by_configuration["fast"] < 60
    assert certificate.sharing is not None
    assert full.sharing is not None
    assert certificate.sharing.forwards_charged < full.sharing.forwards_charged
    before = rows_in(tmp_path / "full.sqlite")
    on_top = made(tmp_path, "full.sqlite", stopping=STOPPING[mode])
    assert rows_in(tmp_path / "full.sqlite") == before
    assert on_top.outcomes == certificate.outcomes
    assert on_top.configurations == certificate.configurations


def test_a_deploy_only_run_serves_one_candidate_after_the_other_until_it_knows(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"configurations": PRICED, "stopping": {"every": 8}}
    full = made(tmp_path, "full.sqlite", configurations=PRICED)
    lazy = made(tmp_path, "lazy.sqlite", deploy_only=True, **keys)
    assert full.deployed == lazy.deployed == "near"
    assert {row.label: row.verdict for row in lazy.configurations} == {
        "slow": "reference",
        "near": "certified",
        "fast": lazy.row("fast").verdict,
        "wild": lazy.row("wild").verdict,
    }
    assert lazy.spent is not None
    assert rows_in(tmp_path / "lazy.sqlite") == lazy.spent.generations_run < 0.6 * lazy.spent.generations_full
    swapped = {label: {**each, "cost": 4.0 - each["cost"]} for label, each in PRICED.items()}
    other = made(tmp_path, "other.sqlite", deploy_only=True, configurations=swapped)
    assert other.deployed == "slow"
    assert {row.verdict for row in other.configurations} == {"reference", "not needed"}
    assert other.spent is not None
    assert other.spent.generations_run == rows_in(tmp_path / "other.sqlite") == 0
    served = made(tmp_path, "other.sqlite", deploy_only=True, configurations=swapped, serving="wild")
    assert served.row("wild").verdict != "not needed"
    assert served.failing == ("wild",)


def test_judging_what_is_known_needs_only_what_a_run_would_ask_for(tmp_path: Path) -> None:
    path = write_live(tmp_path, configurations=CONFIGURATIONS, stopping=STOPPING["looks"])
    grid = load_grid(path)
    known = Live(tmp_path / "s.sqlite", generate=False)
    with pytest.raises(OutcomesError, match=r"32 of 32 generations were never served; run its tests"):
        certificate_of(grid, known)
    assert certificate_of(grid, Live(tmp_path / "s.sqlite")) == certificate_of(grid, known)


def test_looks_that_do_not_end_at_all_prompts_are_named_before_anything_is_served(tmp_path: Path) -> None:
    with pytest.raises(OutcomesError, match=r"stopping.looks.at ends at 50, but there are 60 prompts; end there"):
        made(tmp_path, "s.sqlite", stopping={"looks": {"at": [30, 50]}})
    with pytest.raises(OutcomesError, match=r"stopping.looks: 61 looks at 60 prompts; declare fewer"):
        made(tmp_path, "s.sqlite", stopping={"looks": 61})
    assert rows_in(tmp_path / "s.sqlite") == 0


@pytest.mark.parametrize(
    ("keys", "deploy_only", "problem"),
    [
        ({"stopping": {"curtail": False}}, False, "stopping.curtail: nothing else is declared, so nothing is stopped"),
        ({"stopping": {"looks": 1}}, False, "stopping.looks: found 1; at least 2 is needed"),
        ({"stopping": {"looks": {"at": [30]}}}, False, "stopping.looks.at: found [30]; at least one is needed"),
        ({"stopping": {"looks": {"at": [40, 30]}}}, False, "found [40, 30]; numbers of prompts that rise are needed"),
        ({"stopping": {"looks": {"at": [1.5, 30]}}}, False, "a whole number is needed"),
        ({"stopping": {"lokks": 3}}, False, "stopping.lokks: unknown key; did you mean looks?"),
        ({"stopping": {"looks": {"early": 0.2}}}, False, "stopping.looks.at: required key is missing"),
        (
            {"stopping": {"looks": {"at": [30, 60], "early": 1}}},
            False,
            "stopping.looks.early: found 1; a number under 1",
        ),
        ({"stopping": {"every": 0}}, False, "stopping.every: found 0; at least 1 is needed"),
        ({"stopping": {"candidates": "some"}}, False, "stopping.candidates: found 'some'"),
        (
            {
                "prompts": {"file": "prompts.jsonl", "sample": {"n": 50, "seed": 1}},
                "stopping": {"looks": {"at": [9, 60]}},
            },
            False,
            "ends at 60, but the sample has 50 prompts",
        ),
        ({"source": {"outcomes": "x.csv"}, "stopping": {}}, False, "stopping: recorded outcomes are all there"),
        ({"source": {"outcomes": "x.csv"}, "grade": None}, True, "--redline-deploy-only saves nothing; leave it out"),
        ({}, True, "configurations.near: --redline-deploy-only serves and deploys by a declared cost"),
        ({"cost": "unknown"}, True, "cost: --redline-deploy-only deploys by a declared cost"),
        (
            {"stopping": {}, "risks": {"long": {"measure": "tokens", "over": 9, "alpha": 0.2}}},
            False,
            "stopping: declared risks need every outcome",
        ),
        (
            {"configurations": PRICED, "risks": {"long": {"measure": "tokens", "over": 9, "alpha": 0.2}}},
            True,
            "risks: declared risks need every outcome",
        ),
        (
            {"stopping": {}, "clusters": {"by": "topic", "remedy": "cluster_means", "test": "hb"}},
            False,
            "stopping: cluster means need every outcome",
        ),
        (
            {"stopping": {"looks": 2}, "population": {"name": "two books", "design": "stratified"}},
            False,
            "stopping.looks: the prompts are stratified",
        ),
    ],
)
def test_mistakes_are_found_when_the_grid_is_read(
    tmp_path: Path, keys: dict[str, Any], deploy_only: bool, problem: str
) -> None:
    path = tmp_path / "g.redline.yaml"
    grid = {
        "redline": 1,
        "name": "live",
        "alpha": 0.2,
        "prompts": {"file": "prompts.jsonl"},
        "grade": "math",
        "source": {"engine": {"checkpoint": "checkpoint"}},
        "reference": "slow",
        "configurations": CONFIGURATIONS,
        **keys,
    }
    path.write_text(json.dumps({key: each for key, each in grid.items() if each is not None}))
    with pytest.raises(GridError) as error:
        load_grid(path, deploy_only=deploy_only)
    assert problem in str(error.value)


# -- through the real command


def test_the_command_says_what_was_not_needed_and_workers_agree(tmp_path: Path) -> None:
    write_live(tmp_path, configurations=PRICED, serving="near", stopping={"every": 8})
    first = run(tmp_path, "--redline-deploy-only", "--redline-report=out", "-rA", "-v")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "g.redline.yaml::near CERTIFIED" in first.stdout
    assert "only what decides the deployment" in first.stdout
    path = tmp_path / "out" / "live.certificate.json"
    content = path.read_bytes()
    verify(path)
    rows = rows_in(tmp_path / ".redline" / "store.sqlite")
    workers = run(tmp_path, "--redline-deploy-only", "--redline-report=out", "-n", "2")
    assert workers.returncode == 0, workers.stdout + workers.stderr
    assert path.read_bytes() == content
    assert rows_in(tmp_path / ".redline" / "store.sqlite") == rows
    cheap = {label: {**each, "cost": 4.0 - each["cost"]} for label, each in PRICED.items()}
    write_live(tmp_path, configurations=cheap)
    needless = run(tmp_path, "--redline-deploy-only", "-v")
    assert needless.returncode == 0, needless.stdout + needless.stderr
    assert needless.stdout.count("NOT NEEDED") == 3
    assert "3 not needed" in needless.stdout
    assert "CERTIFIED" not in needless.stdout


def test_the_option_without_a_grid_that_it_fits_is_an_error(tmp_path: Path) -> None:
    write_live(tmp_path, configurations=CONFIGURATIONS)
    result = run(tmp_path, "--redline-deploy-only")
    assert result.returncode == 2
    assert "serves and deploys by a declared cost" in result.stdout
    (tmp_path / "g.redline.yaml").unlink()
    (tmp_path / "test_x.py").write_text("def test_x(): pass\n")
    alone = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--redline-deploy-only"],
        cwd=tmp_path,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 4
    assert "--redline-deploy-only given, but no grid was collected" in alone.stdout


def test_a_run_that_is_killed_in_the_middle_ends_with_the_same_verdicts(tmp_path: Path) -> None:
    engine = {"checkpoint": "checkpoint", "device": "cpu", "max_new_tokens": 12, "batch_size": 2}
    keys: dict[str, Any] = {"configurations": CONFIGURATIONS, "serving": "near", "source": {"engine": engine}}
    write_live(tmp_path, stopping=STOPPING["looks"], **keys)
    store = tmp_path / ".redline" / "store.sqlite"
    process = subprocess.Popen(
        command(), cwd=tmp_path, env=environment(OMP_NUM_THREADS="1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(sqlite3.OperationalError):  # the file is there before its tables
            if store.exists() and rows_in(store) > 0:
                break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = rows_in(store)
    again = run(tmp_path, "--redline-report=out")
    assert again.returncode == 0, again.stdout + again.stderr
    certificate = verify(tmp_path / "out" / "live.certificate.json")
    assert certificate.spent is not None
    assert 0 < kept < certificate.spent.generations_run == rows_in(store)
    alone = made(tmp_path, "other.sqlite", stopping=STOPPING["looks"], **keys)
    assert certificate.outcomes == alone.outcomes
    assert certificate.configurations == alone.configurations
