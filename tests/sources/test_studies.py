"""The larger grids that ship are served as they are, on a few prompts: every configuration of each gets outcomes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from pytest_redline.grid_file import load_grid  # noqa: E402
from pytest_redline.progress import Progress  # noqa: E402
from pytest_redline.prompts import read_calibration_prompts  # noqa: E402
from pytest_redline.sources.engine import serve  # noqa: E402
from pytest_redline.store import Store  # noqa: E402

torch.set_num_threads(1)

STUDIES = Path(__file__).parents[2] / "fixtures" / "studies"
N = 12
BUNDLED = {f"bundled:arithmetic{rest}" for rest in ("", "-base", "-multiblock")}
PRECISIONS = ["bfloat16", "float32", "int4", "int8"]
SERVED = {  # configurations, checkpoints, precisions of the weights
    "arithmetic_50": (50, {"bundled:arithmetic"}, ["float32"]),
    "checkpoints": (6, BUNDLED, ["float32"] * 3),
    "precisions": (4, {"bundled:arithmetic"}, PRECISIONS),
}


def labels_of(file: dict[str, Any]) -> list[str]:
    """Labels of a grid file: those that it names, and those of the product of its knobs."""
    names = {"accept_threshold": "acc", "buffer_size": "buf", "semi_complete_threshold": "semi"}

    def part(knob: str, value: float) -> str:
        if knob == "add_block_threshold":
            return f"add{value:.2f}"
        return f"{names[knob]}{value if knob == 'buffer_size' else round(100 * value)}"

    grid = file.get("grid", {})
    made = [
        "/".join(part(knob, value) for knob, value in zip(grid, values, strict=True))
        for values in (product(*grid.values()) if grid else ())
    ]
    return [*file["configurations"], *made]


def test_no_study_is_forgotten() -> None:
    assert {path.name for path in STUDIES.glob("*.redline.yaml")} == {f"{name}.redline.yaml" for name in SERVED}


@pytest.mark.parametrize("name", SERVED)
def test_every_configuration_of_a_study_is_served(name: str, tmp_path: Path) -> None:
    path = STUDIES / f"{name}.redline.yaml"
    size, checkpoints, precisions = SERVED[name]
    grid = load_grid(path)
    assert grid.prompts is not None
    assert grid.sample is not None
    assert grid.sample.n == 512
    prompts = read_calibration_prompts(grid.prompts, "group", grid.sample._replace(n=N))
    with Store(tmp_path / "store.sqlite") as store:
        served = serve(grid, prompts, store, None, True, Progress())
    outcomes = served.outcomes
    assert list(outcomes.configurations) == labels_of(yaml.safe_load(path.read_text(encoding="utf-8")))
    assert len(set(outcomes.configurations)) == size
    assert outcomes.correct.shape == (size, N)
    assert outcomes.known is None
    assert served.warnings == []
    assert (outcomes.measures["tokens"] > 0).all()
    assert (outcomes.measures["forwards"] > 0).all()
    right = outcomes.correct[outcomes.configurations.index(grid.reference)].sum()
    assert right > N / 2, "the reference solves its problems"
    assert set(served.checkpoints) == checkpoints
    assert sorted(spec.weights or spec.dtype for spec, _ in served.weights) == precisions
    assert served.forwards_run is not None
    assert served.forwards_run < served.forwards_charged or name != "arithmetic_50"
