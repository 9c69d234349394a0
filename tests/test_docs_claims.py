"""Every grid in the documentation of risks, populations and scores is one that the reader accepts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from pytest_redline.grid_file import load_grid

DOCS = Path(__file__).parents[1] / "docs"
BASE = {
    "redline": 1,
    "name": "made",
    "population": "made prompts",
    "alpha": 0.1,
    "source": {"outcomes": "runs.csv"},
    "reference": "ref",
    "configurations": {"ref": {"x": 1}, "cand": {"x": 2}},
}
SERVED = {
    "grade": "math",
    "prompts": {"file": "prompts.jsonl"},
    "source": {"engine": {"checkpoint": "bundled:arithmetic"}},
    "configurations": {"ref": {"accept_threshold": 0.9}, "cand": {"accept_threshold": 0.8}},
}
CLAIMS = ("risks", "population", "clusters", "mix", "correct", "groups")


def examples() -> list[dict[str, object]]:
    """Blocks of the two guides that hold claims; alternatives that stand in one block are told apart by their key."""
    found = []
    for name in ("grid-files.md", "recordings.md"):
        for block in re.findall(
            r"^```yaml\n(.*?)^```$", (DOCS / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            lines = block.splitlines(keepends=True)
            keys = [line.partition(":")[0] for line in lines if line[:1].isalpha()]
            parts = [block] if len(set(keys)) == len(keys) else lines
            found += [part for part in map(yaml.safe_load, parts) if set(part) & set(CLAIMS)]
    return found


def test_the_guides_hold_an_example_of_every_claim():
    keys = {key for example in examples() for key in example}
    assert set(CLAIMS) <= keys
    assert len(examples()) >= 9


@pytest.mark.parametrize("example", examples(), ids=lambda example: "+".join(example))
def test_example_is_a_grid_that_is_accepted(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grid = BASE | (SERVED if "sample" in example.get("prompts", {}) else {}) | example
    if "correct" in grid:
        grid["source"] = {"outcomes": {"file": "runs.csv", "columns": {"correct": grid.pop("correct")}}}
    Path("g.redline.yaml").write_text(yaml.safe_dump(grid, sort_keys=False))
    loaded = load_grid(Path("g.redline.yaml"))
    assert loaded.risks or loaded.design or loaded.clusters or loaded.mix or loaded.loss or loaded.groups
