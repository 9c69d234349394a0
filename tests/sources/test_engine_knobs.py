"""What is stated of an engine's configurations is what decodes, and what could change an answer is in its key."""

from __future__ import annotations

import json
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from live_gate import CONFIGURATIONS, keys_of, said_by, write_live

from pytest_redline.errors import LoadError, OutcomesError
from pytest_redline.gate import Live, certificate_of
from pytest_redline.grid import Grid
from pytest_redline.grid_file import load_grid
from pytest_redline.prompts import read_calibration_prompts
from pytest_redline.sources import engine as bridge
from redline_engine.engine import Engine

SLOW = CONFIGURATIONS["slow"]


@pytest.fixture
def store(tmp_path: Path) -> Live:
    return Live(tmp_path / "store" / "store.sqlite")


def rewrite_config(tmp_path: Path, **values: Any) -> None:
    path = tmp_path / "checkpoint" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def block_sizes(grid: Grid) -> list[Any]:
    return [each.knobs.get("block_size") for each in grid.configurations]


# -- block sizes


def test_a_configuration_decodes_at_the_checkpoints_block_size_beside_any_other(tmp_path: Path) -> None:
    other = {**SLOW, "block_size": 2}
    alone = said_by(load_grid(write_live(tmp_path, configurations={"slow": SLOW, "fast": {}})), "slow")
    for configurations in ({"slow": SLOW, "other": other}, {"other": other, "slow": SLOW}):
        grid = load_grid(write_live(tmp_path, configurations=configurations))
        assert said_by(grid, "slow") == alone
        assert said_by(grid, "other") != alone
        assert {each.label: each.knobs["block_size"] for each in grid.configurations} == {"slow": 4, "other": 2}


def test_a_block_size_of_the_name_alone_is_stated_and_in_the_key(tmp_path: Path) -> None:
    path = write_live(tmp_path)
    rewrite_config(tmp_path, block_size=None)
    seen = set()
    for size in (2, 4):
        named = (tmp_path / "checkpoint").rename(tmp_path / f"model-b{size}")
        path.write_text(path.read_text().replace("checkpoint: checkpoint", f"checkpoint: model-b{size}"))
        grid = load_grid(path)
        assert block_sizes(grid) == [size, size]
        seen |= set(keys_of(grid, 0))
        named.rename(tmp_path / "checkpoint")
        path.write_text(path.read_text().replace(f"checkpoint: model-b{size}", "checkpoint: checkpoint"))
    assert len(seen) == 2 * 60


def test_a_checkpoint_that_does_not_say_its_block_size_needs_one_from_every_configuration(
    tmp_path: Path, store: Live
) -> None:
    path = write_live(tmp_path, configurations={"slow": {**SLOW, "block_size": 4}, "fast": {"block_size": 2}})
    rewrite_config(tmp_path, block_size=None)
    assert certificate_of(load_grid(path), store).n == 60
    path.write_text(path.read_text().replace("    block_size: 2", "    accept_threshold: 0.5"))
    with pytest.raises(LoadError, match="no block_size"):
        certificate_of(load_grid(path), store)


# -- what the engine reads


def test_a_knob_that_the_engine_reads_otherwise_than_stated_is_refused(
    tmp_path: Path, store: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = load_grid(write_live(tmp_path))
    effective = Engine.effective
    monkeypatch.setattr(Engine, "effective", lambda *given: {**effective(*given), "add_block_threshold": 0.5})
    with pytest.raises(OutcomesError) as error:
        certificate_of(grid, store)
    assert list(error.value.problems) == [
        "slow: add_block_threshold is stated as None, and the engine reads 0.5",
        "fast: add_block_threshold is stated as 0.1, and the engine reads 0.5",
    ]


@pytest.mark.parametrize(
    ("knobs", "problem"),
    [
        ({"stop_tokens": [99]}, "fast stop_tokens: the model cannot propose [99]"),
        (
            {"max_new_tokens": 300},
            "its 2 tokens and max_new_tokens 300 of fast need 304 positions; the model has 256",
        ),
    ],
)
def test_what_a_model_cannot_do_is_refused_by_label(
    tmp_path: Path, store: Live, knobs: dict[str, object], problem: str
) -> None:
    grid = load_grid(write_live(tmp_path, configurations={"slow": SLOW, "fast": {**CONFIGURATIONS["fast"], **knobs}}))
    with pytest.raises(OutcomesError) as error:
        certificate_of(grid, store)
    assert problem in error.value.problems[0]


@pytest.mark.parametrize("device", ["foo", "meta", "cpu:1", "cpu:x", "cuda:x", " "])
def test_a_device_that_is_none_is_refused_in_one_line(tmp_path: Path, store: Live, device: str) -> None:
    grid = load_grid(write_live(tmp_path))
    with pytest.raises(OutcomesError) as error:
        certificate_of(grid, replace(store, device=device))
    assert list(error.value.problems) == [f"device {device!r}: not known; use cpu, cuda, cuda:N, mps or auto"]


def test_the_processor_has_one_name(tmp_path: Path, store: Live) -> None:
    grid = load_grid(write_live(tmp_path))
    first = certificate_of(grid, replace(store, device="cpu:0"))
    assert certificate_of(grid, replace(store, device="cpu")) == first


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_answers_of_several_runs_are_told_where_company_can_change_them(
    tmp_path: Path, store: Live, dtype: str
) -> None:
    def told(store: Live) -> bool:
        return any("served in several runs" in each for each in certificate_of(load_grid(path), store).warnings)

    source = {"engine": {"checkpoint": "checkpoint", "device": "cpu", "dtype": dtype, "max_new_tokens": 12}}
    path = write_live(tmp_path, source=source)
    assert not told(store)
    path.write_text(path.read_text().replace("  fast:", "  new: {accept_threshold: 0.5}\n  fast:"))
    assert told(store) == (dtype == "bfloat16")
    assert not told(Live(tmp_path / "fresh.sqlite"))


# -- the key


def test_everything_that_could_change_an_answer_changes_every_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_live(tmp_path)
    text = path.read_text()

    def keys(replicate: int = 0, device: str = "cpu") -> set[str]:
        grid = load_grid(path)
        assert grid.prompts is not None
        prompts = read_calibration_prompts(grid.prompts, "group", None)
        families = bridge._families(grid, grid.source, prompts, device, {}, replicate)
        return {key for family in families for row in family.keys for key in row}

    seen = {"as it is": keys()}
    assert len(seen["as it is"]) == 120
    seen["replicate"] = keys(replicate=1)
    with monkeypatch.context() as patch:
        patch.setattr(bridge, "processor_of", lambda device: "as before")
        seen["processor"] = keys()
        seen["device"] = keys(device="cuda")
        patch.setattr(platform, "machine", lambda: "other")
        seen["machine"] = keys()
    for library in ("torch", "tokenizers"):
        with monkeypatch.context() as patch:
            patch.setattr(bridge, "version", lambda name, other=library: "0" if name == other else "1")
            seen[library] = keys()
    for setting in (
        "dtype: bfloat16",
        "weights: int8",
        "batch_size: 7",
        "cuda_graphs: true",
        "template: sdar-chat",
        "mask_id: 0",
        "end_ids: [1]",
        "block_size: 2",
        "max_forwards: 99",
        "temperature: 0.5",
        "stop_tokens: [5]",
        "stop_strings: [x]",
    ):
        path.write_text(text.replace("device: cpu", f"device: cpu\n    {setting}"))
        seen[setting] = keys()
    path.write_text(text)
    rewrite_config(tmp_path, unknown_key=1)
    seen["checkpoint"] = keys()
    assert len(set().union(*seen.values())) == 120 * len(seen)
