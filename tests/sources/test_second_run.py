"""The engine serves the reference a second time: apart from the first run in everything, resumable, verifiable."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from live_gate import write_live

from pytest_redline.certificate import to_bytes
from pytest_redline.certificate_schema import Certificate
from pytest_redline.errors import OutcomesError
from pytest_redline.gate import Live, certificate_of
from pytest_redline.grid import Grid
from pytest_redline.grid_file import load_grid
from pytest_redline.paths import fixtures
from pytest_redline.prompts import read_calibration_prompts
from pytest_redline.sources import engine as bridge
from pytest_redline.sources.second_run import other_seed, second_run
from pytest_redline.verify import verify

SAMPLED = {"checkpoint": "checkpoint", "device": "cpu", "max_new_tokens": 12, "temperature": 0.8, "seed": 5}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def store_of(tmp_path: Path, name: str = "store") -> Live:
    return Live(tmp_path / name / "store.sqlite")


def rows_in(live: Live) -> int:
    with sqlite3.connect(live.store) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM generations").fetchone()[0])
        except sqlite3.OperationalError:  # the file is there, its tables are not yet
            return 0


def bundled(tmp_path: Path, name: str, n: int = 24, **engine: Any) -> Grid:
    """A grid of the bundled checkpoint on a few of its prompts."""
    path = tmp_path / f"{name}.redline.yaml"
    data = {
        "redline": 1,
        "name": name,
        "population": "word problems",
        "alpha": 0.3,
        "prompts": {"file": str(fixtures() / "prompts" / "arithmetic.jsonl"), "sample": {"n": n, "seed": 7}},
        "grade": "math",
        "source": {"engine": {"checkpoint": "bundled:arithmetic", "device": "cpu", "max_new_tokens": 48, **engine}},
        "reference": "slow",
        "noise_floor": True,
        "configurations": {
            "slow": {"accept_threshold": 0.95, "buffer_size": 1},
            "fast": {"accept_threshold": 0.8, "buffer_size": 1},
        },
    }
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return load_grid(path)


def checked(certificate: Certificate, tmp_path: Path) -> Certificate:
    """The certificate, after it verified from its own bytes."""
    path = tmp_path / "made.certificate.json"
    path.write_bytes(to_bytes(certificate))
    assert verify(path) == certificate
    return certificate


def test_greedy_decoding_in_float32_has_next_to_no_noise(tmp_path: Path) -> None:
    certificate = checked(certificate_of(bundled(tmp_path, "greedy"), store_of(tmp_path)), tmp_path)
    noise = certificate.noise_floor
    assert noise is not None
    assert noise.label == "A/A"
    assert noise.k <= 1
    assert noise.texts_differ is not None
    assert noise.texts_differ <= 1
    assert not [warning for warning in certificate.warnings if "random numbers" in warning or "samples" in warning]


def test_sampling_has_a_floor_of_its_own_and_says_that_configurations_share_draws(tmp_path: Path) -> None:
    live = store_of(tmp_path)
    certificate = checked(certificate_of(bundled(tmp_path, "sampled", temperature=2.0, seed=3), live), tmp_path)
    noise = certificate.noise_floor
    assert noise is not None
    assert noise.texts_differ is not None
    assert noise.texts_differ > 8
    assert noise.k + noise.gained > 0
    assert any(warning.startswith("common random numbers: fast ") for warning in certificate.warnings)
    assert rows_in(live) == 3 * 24
    assert certificate_of(bundled(tmp_path, "sampled", temperature=2.0, seed=3), live) == certificate
    assert rows_in(live) == 3 * 24


def test_the_second_run_is_another_one_in_key_seed_order_and_company(tmp_path: Path) -> None:
    grid = load_grid(write_live(tmp_path, source={"engine": SAMPLED}, noise_floor=True))
    assert grid.prompts is not None
    assert grid.noise_floor is not None
    prompts = read_calibration_prompts(grid.prompts, "group", None)
    again, reordered = second_run(grid, grid.noise_floor, prompts)
    assert again.labels == ("A/A",)
    assert sorted(reordered.order) == sorted(prompts.order)
    assert reordered.order != prompts.order
    assert (reordered.ids, reordered.texts) == (prompts.ids, prompts.texts)
    first, second = grid.configurations[0].knobs, again.configurations[0].knobs
    assert {name for name in first if first[name] != second[name]} == {"seed"}
    assert second["seed"] == other_seed(5)
    families = bridge._families(grid, grid.source, prompts, "cpu", {})
    apart = bridge._families(again, again.source, reordered, "cpu", {}, 1)
    keys = {key for family in families for row in family.keys for key in row}
    assert keys.isdisjoint(key for family in apart for row in family.keys for key in row)


def test_greedy_runs_differ_in_their_keys_by_the_number_of_the_run_alone(tmp_path: Path) -> None:
    grid = load_grid(write_live(tmp_path, noise_floor=True))
    assert grid.prompts is not None
    assert grid.noise_floor is not None
    prompts = read_calibration_prompts(grid.prompts, "group", None)
    again, reordered = second_run(grid, grid.noise_floor, prompts)
    first = bridge._families(grid, grid.source, prompts, "cpu", {})[0].keys[0]
    assert bridge._families(again, again.source, reordered, "cpu", {}, 0)[0].keys[0] == first
    assert bridge._families(again, again.source, reordered, "cpu", {}, 1)[0].keys[0] != first


def test_it_shares_no_forward_with_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[int, int]] = []
    plain = bridge.serve

    def watched(*arguments: Any, **keywords: Any) -> bridge.Served:
        found = plain(*arguments, **keywords)
        served.append((found.forwards_run or 0, found.forwards_charged))
        return found

    monkeypatch.setattr(bridge, "serve", watched)
    certificate = certificate_of(load_grid(write_live(tmp_path, noise_floor=True)), store_of(tmp_path))
    (grid_run, grid_charged), (run, charged) = served
    assert run == charged > 0
    assert grid_run < grid_charged
    assert certificate.sharing is not None
    assert (certificate.sharing.forwards_run, certificate.sharing.forwards_charged) == (grid_run, grid_charged)


def test_the_certificate_of_the_grid_itself_is_the_same_with_and_without(tmp_path: Path) -> None:
    live = store_of(tmp_path)
    with_floor = certificate_of(load_grid(write_live(tmp_path, source={"engine": SAMPLED}, noise_floor=True)), live)
    without = certificate_of(load_grid(write_live(tmp_path, source={"engine": SAMPLED})), live)
    assert with_floor.configurations == without.configurations
    assert with_floor.statement == without.statement
    assert without.noise_floor is None
    assert rows_in(live) == 3 * 60


def test_nothing_is_judged_where_the_second_run_was_never_served(tmp_path: Path) -> None:
    live = store_of(tmp_path)
    certificate_of(load_grid(write_live(tmp_path)), live)
    with pytest.raises(OutcomesError, match="60 of 60 generations were never served"):
        certificate_of(load_grid(write_live(tmp_path, noise_floor=True)), Live(live.store, generate=False))


def test_a_killed_second_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    keys = {"n": 80, "source": {"engine": {**SAMPLED, "batch_size": 8}}, "noise_floor": True}
    grid = load_grid(write_live(tmp_path, **keys))
    whole = certificate_of(grid, store_of(tmp_path, "whole"))
    live = store_of(tmp_path, "killed")
    program = (
        "from pathlib import Path; import torch; torch.set_num_threads(1)\n"
        "from pytest_redline.gate import Live, certificate_of\n"
        "from pytest_redline.grid_file import load_grid\n"
        f"certificate_of(load_grid(Path({str(grid.path)!r})), Live(Path({str(live.store)!r})))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        while process.poll() is None and not (live.store.exists() and rows_in(live) > 160):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    stored = rows_in(live)
    assert 160 < stored <= 240
    resumed = certificate_of(grid, live)
    assert rows_in(live) == 240
    assert resumed.noise_floor == whole.noise_floor
    assert resumed.outcomes == whole.outcomes


def test_an_answer_that_is_lost_in_the_second_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = bridge.Book.enter

    def lossy(self: Any, row: int, prompt: int, generation: Any, stored: bool) -> None:
        if self.grid.labels == ("A/A",) and prompt == 3:
            generation = generation._replace(finish_reason="error", text="")
        plain(self, row, prompt, generation, stored)

    monkeypatch.setattr(bridge.Book, "enter", lossy)
    certificate = certificate_of(load_grid(write_live(tmp_path, n=150, noise_floor=True)), store_of(tmp_path))
    assert any(warning.startswith("A/A: no usable answer on q/3") for warning in certificate.warnings)


def test_other_seeds_are_unrelated_and_always_the_same() -> None:
    seeds = [other_seed(seed) for seed in range(2000)]
    assert len(set(seeds)) == 2000
    assert min(seeds) > 2000
    assert max(seeds) < 2**63
    assert abs(np.mean([seed % 2 for seed in seeds]) - 0.5) < 0.05
    assert seeds[7] == other_seed(7)
