"""The keys noise_floor and lossless: what they may say for which source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_redline.errors import GridError
from pytest_redline.grid import Grid, NoiseFloor
from pytest_redline.grid_file import load_grid

ENGINE = {
    "source": {"engine": {"checkpoint": "bundled:arithmetic"}},
    "prompts": {"file": "p.jsonl"},
    "grade": "math",
    "configurations": {"ref": {"accept_threshold": 0.9}, "a": {"accept_threshold": 0.8}},
}
LOGS = {
    "source": {"outcomes": {}},
    "configurations": {"ref": {"log": "ref.csv"}, "a": {"log": "a.csv"}},
}


def grid(tmp_path: Path, **keys: Any) -> Grid:
    data = {
        "redline": 1,
        "name": "g",
        "alpha": 0.1,
        "cost": "tokens_per_forward",
        "source": {"outcomes": "runs.csv"},
        "reference": "ref",
        "configurations": {"ref": {"x": 1}, "a": {"x": 2}, "b": {"x": 3}},
        **keys,
    }
    path = tmp_path / "g.redline.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return load_grid(path)


def problem(tmp_path: Path, **keys: Any) -> str:
    with pytest.raises(GridError) as caught:
        grid(tmp_path, **keys)
    assert all(":" in each and "redline.yaml:" in each for each in caught.value.problems)
    return str(caught.value)


def test_a_label_names_the_rows_of_the_second_run(tmp_path):
    found = grid(tmp_path, noise_floor="again", lossless=["b"])
    assert found.noise_floor == NoiseFloor("again")
    assert found.lossless == ("b",)
    assert "again" not in found.labels


def test_a_log_names_its_file(tmp_path):
    assert grid(tmp_path, **LOGS, noise_floor={"log": "again.csv"}).noise_floor == NoiseFloor(
        "A/A", tmp_path / "again.csv"
    )


def test_true_serves_it(tmp_path):
    assert grid(tmp_path, **ENGINE, noise_floor=True).noise_floor == NoiseFloor("A/A")


@pytest.mark.parametrize("keys", [{}, {"noise_floor": False}, {"noise_floor": None}])
def test_without_it_there_is_none(tmp_path, keys):
    assert grid(tmp_path, **keys).noise_floor is None
    assert grid(tmp_path, **keys).lossless == ()


def test_a_deploy_only_run_measures_none_and_says_so(tmp_path):
    grid(tmp_path, **ENGINE, cost={"measure": "tokens_per_forward"}, noise_floor=True)
    path = tmp_path / "g.redline.yaml"
    assert load_grid(path).noise_floor is not None
    costs = yaml.safe_load(path.read_text())
    for number, each in enumerate(costs["configurations"].values()):
        each["cost"] = 1.0 + number
    path.write_text(yaml.safe_dump(costs, sort_keys=False))
    found = load_grid(path, deploy_only=True)
    assert found.noise_floor is None
    assert "the noise floor is not measured in a deploy-only run" in found.notes
    path.write_text(yaml.safe_dump({**costs, "lossless": ["a"]}, sort_keys=False))
    with pytest.raises(GridError, match="lossless: tells faults where every candidate is served in full"):
        load_grid(path, deploy_only=True)


def test_candidates_of_a_product_can_be_lossless(tmp_path):
    found = grid(
        tmp_path,
        configurations={"ref": {"buffer_size": 1}},
        grid={"buffer_size": [2, 4]},
        noise_floor="again",
        lossless=["buf4"],
    )
    assert found.lossless == ("buf4",)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"noise_floor": True}, "noise_floor: true is for a source that serves"),
        ({"noise_floor": {"log": "x.csv"}}, "noise_floor: the source names one file for all"),
        ({"noise_floor": "ref"}, "noise_floor: 'ref' is the reference; the second run needs a label of its own"),
        ({"noise_floor": "a"}, "noise_floor: 'a' is a configuration of this grid"),
        ({"noise_floor": 3}, "noise_floor: found 3; text is needed"),
        ({"noise_floor": ""}, "text that is not empty is needed"),
        ({"noise_floor": ["again"]}, "noise_floor"),
        ({"noise_floor": {"logs": "x.csv"}}, "noise_floor.logs: unknown key; did you mean log?"),
        ({"noise_flor": "again"}, "did you mean noise_floor?"),
        ({"noise_floor": "again", "lossless": ["c"]}, "lossless: 'c' is not a configuration of this grid"),
        ({"noise_floor": "again", "lossless": ["ref"]}, "lossless: 'ref' is the reference"),
        ({"noise_floor": "again", "lossless": ["a", "a"]}, "lossless: 'a' stands twice"),
        ({"noise_floor": "again", "lossless": "a"}, "lossless: found 'a'; a list is needed"),
        ({"lossless": ["a"]}, "declare noise_floor too"),
        ({"noise_floor": False, "lossless": ["a"]}, "declare noise_floor too"),
        ({**ENGINE, "noise_floor": "again"}, "noise_floor: write true"),
        ({**ENGINE, "noise_floor": {"log": "x.csv"}}, "noise_floor: write true"),
        ({**LOGS, "noise_floor": "again"}, "write {log: FILE}"),
        ({**ENGINE, "noise_floor": True, "stopping": {"curtail": True}}, "noise_floor: with `stopping` not every"),
    ],
)
def test_anything_else_is_said(tmp_path, keys, says):
    assert says in problem(tmp_path, **keys)
