"""Prompts without an answer: counted as wrong, never dropped, since dropping depends on the outcome."""

import csv
from pathlib import Path

import pytest
import yaml

from pytest_redline.errors import OutcomesError
from pytest_redline.gate import certificate_of
from pytest_redline.grid_file import load_grid

N, WRONG, TIMEOUTS = 1012, 80, 20


def certified(folder: Path, dropped: dict[str, range]) -> bool:
    """The verdict on a candidate that is wrong on 80 prompts and times out on 20 more, some rows left out."""
    with (folder / "runs.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["config", "prompt", "correct"])
        for label, wrong in (("slow", 0), ("fast", WRONG + TIMEOUTS)):
            lines.writerows([label, i, int(i >= wrong)] for i in range(N) if i not in dropped.get(label, ()))
    grid = {
        "redline": 1,
        "name": "timeouts",
        "alpha": 0.1,
        "cost": "unknown",
        "source": {"outcomes": "runs.csv"},
        "reference": "slow",
        "configurations": {"slow": {}, "fast": {}},
    }
    (folder / "timeouts.redline.yaml").write_text(yaml.safe_dump(grid))
    return certificate_of(load_grid(folder / "timeouts.redline.yaml")).row("fast").certified


def test_dropping_timeouts_instead_of_counting_them_would_turn_the_verdict(tmp_path):
    timed_out = range(WRONG, WRONG + TIMEOUTS)
    assert not certified(tmp_path, {})
    with pytest.raises(OutcomesError):
        certified(tmp_path, {"fast": timed_out})
    assert certified(tmp_path, {"fast": timed_out, "slow": timed_out}), "which is why a gap is refused"
