"""The measurement of what sharing saves: its grids are the bundled ones, and its floor is counted apart."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

sys.path.append(str(Path(__file__).parents[2]))  # the measurement is no part of what is installed

from engine.bench import sharing
from pytest_redline.grid import EngineSource
from pytest_redline.grid_file import load_grid
from redline_engine.engine import Engine
from redline_engine.models.scripted import HashModel
from redline_engine.request import Prompt

FIXTURES = sharing.ROOT / "fixtures"


@pytest.mark.parametrize(
    ("m", "file"), [(8, "grids/arithmetic.redline.yaml"), (50, "studies/arithmetic_50.redline.yaml")]
)
def test_its_grids_are_the_bundled_ones(m, file):
    grid = load_grid(FIXTURES / file)
    assert isinstance(grid.source, EngineSource)
    bundled = [grid.source.decode_knobs(each) for each in grid.configurations]
    assert [each.effective() for each in sharing.make_grid(m)] == [each.effective() for each in bundled]


def test_grids_of_every_size_begin_with_the_reference_and_hold_no_configuration_twice():
    for m in (*range(1, 60), 199, 200):
        grid = sharing.make_grid(m)
        assert grid[0] == sharing.knobs(0.95)
        assert len({str(each.effective()) for each in grid}) == len(grid) == m
    with pytest.raises(ValueError, match="201 configurations: a grid has 1 to 200"):
        sharing.make_grid(201)


@pytest.mark.parametrize("m", [1, 8, 50])
def test_what_is_run_is_what_differs_counted_apart(m):
    prompts = [Prompt(str(length), list(range(1, length + 1))) for length in (1, 8, 13)]
    grid = sharing.make_grid(m)
    engine = Engine(HashModel(5, 900), 7)
    traces = [reply.trace for row in engine.generate(prompts, grid) for reply in row]
    assert sharing.count_distinct(HashModel(5, 900), prompts, grid, 4) == engine.counts.forwards_run
    assert (engine.counts.forwards_run == sum(trace.forwards for trace in traces)) == (m == 1)


def test_it_prints_a_table_and_draws(tmp_path, capsys):
    sharing.main(["--configurations=2", "--prompts=2", "--batch=4", "--threads=1", f"--figures={tmp_path / 'a' / 'b'}"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == ["| m", "| ---:", "| 2"]
    assert rows[2][2] == rows[2][3]
    assert rows[2][4] == "1.000"
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == [
        "sharing-forwards.svg",
        "sharing-time.svg",
    ]


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sharing, "_in_child", lambda *_: pytest.fail("something was measured"))
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        sharing.main([f"--figures={tmp_path / 'file'}"])
    assert f"--figures {tmp_path / 'file'}: cannot be made (File exists); name a folder" in capsys.readouterr().err
