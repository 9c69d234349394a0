"""Faults of grids that the engine serves: each mistake is told once, where it stands, and makes no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_redline.errors import GridError
from pytest_redline.grid_file import load_grid

GRID = """\
redline: 1
name: g
population: made up
prompts: {file: prompts.jsonl}
grade: math
alpha: 0.10
delta: 0.10
source: {engine: {checkpoint: "bundled:arithmetic", max_new_tokens: 96}}
reference: acc95
configurations:
  acc95: {accept_threshold: 0.95, buffer_size: 1}
grid:
  accept_threshold: [0.70, 0.90]
  buffer_size: [2, 4]
"""


def problems(folder: Path, *change: str) -> tuple[str, ...]:
    text = GRID.replace(*change)
    assert text != GRID
    (folder / "g.redline.yaml").write_text(text)
    (folder / "prompts.jsonl").write_text('{"id": "p", "prompt": "1 + 1", "answer": "2"}\n')
    with pytest.raises(GridError) as error:
        load_grid(folder / "g.redline.yaml")
    return error.value.problems


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("  buffer_size: [2", "  bufer_size: [2"), "did you mean buffer_size?"),
        (("max_new_tokens: 96", "max_new_token: 96"), "did you mean max_new_tokens?"),
        (("[0.70, 0.90]", "[0.70, 1.5]"), "1.5 is not allowed"),
    ],
)
def test_a_wrong_knob_makes_no_configurations_equal(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    found = problems(tmp_path, *change)
    assert found
    assert all(told in each for each in found), found


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (("bundled:arithmetic", "bundled:arithmetics"), "source.engine.checkpoint"),
        (("buffer_size: 1}", 'buffer_size: 1, checkpoint: "bundled:base"}'), "configurations.acc95.checkpoint"),
    ],
)
def test_a_bundled_checkpoint_that_is_not_there_is_told_before_anything_runs(
    tmp_path: Path, change: tuple[str, str], key: str
) -> None:
    (found,) = problems(tmp_path, *change)
    assert key in found
    assert "bundled are bundled:arithmetic, bundled:arithmetic-base, bundled:arithmetic-multiblock" in found
