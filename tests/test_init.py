"""``pytest-redline init``: files to start from are valid, and run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from gate_runner import environment

from pytest_redline.cli import main
from pytest_redline.grid_file import load_grid


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_pytest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, env=environment(OMP_NUM_THREADS="1"), capture_output=True, text=True, check=False)


def recording(columns: str = "config,prompt,correct,tokens,forwards") -> Path:
    rows = [f"{label},{i},1,100,{forwards}" for label, forwards in (("slow", 50), ("fast", 30)) for i in range(40)]
    path = Path("runs.csv")
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


def test_a_grid_for_a_recording_runs_as_it_is() -> None:
    recording()
    assert main(["init", "runs.csv"]) == 0
    text = Path("runs.redline.yaml").read_text()
    assert "the recording has 40" in text
    assert "it takes 29 prompts to certify anything, and about 446" in text
    result = run_pytest("-q")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Deploy fast: +66.7%" in result.stdout
    assert "Warning: no population is named" in result.stdout


def test_the_reference_and_the_place_can_be_chosen() -> None:
    recording()
    assert main(["init", "runs.csv", "--reference", "fast", "--output", "gates/a.redline.yaml", "--name", "mine"]) == 0
    grid = load_grid(Path("gates/a.redline.yaml"))
    assert (grid.name, grid.reference, grid.labels) == ("mine", "fast", ("slow", "fast"))
    assert grid.source.file.resolve() == Path("runs.csv").resolve()  # type: ignore[union-attr]
    assert run_pytest("-q", "gates").returncode == 0


def test_columns_that_are_called_otherwise_are_to_be_filled_in(capsys: pytest.CaptureFixture[str]) -> None:
    recording("run,prompt,ok,tokens,forwards")
    assert main(["init", "runs.csv"]) == 0
    path = Path("runs.redline.yaml")
    text = path.read_text()
    assert "has the columns run, prompt, ok, tokens, forwards" in text
    path.write_text(text.replace("config: config ", "config: run ").replace("correct: correct ", "correct: ok "))
    assert run_pytest("-q").returncode == 0


def test_a_grid_without_a_recording_is_valid() -> None:
    assert main(["init"]) == 0
    grid = load_grid(Path("my-grid.redline.yaml"))
    assert grid.labels == ("slow", "fast")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["runs.csv"], "runs.redline.yaml is there already"),
        (
            ["runs.csv", "--force", "--reference", "baseline"],
            "'baseline' is not in the recording; there are slow",
        ),
        (["nothing.csv"], "nothing.csv"),
        (["runs.csv", "--output", "a.yaml"], "pytest collects only redline.yaml and *.redline.yaml"),
        (["runs.csv", "--name", "a/b", "--force"], "'a/b' cannot name a grid"),
    ],
)
def test_what_cannot_be_written_is_said(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    recording()
    Path("runs.redline.yaml").write_text("mine")
    assert main(["init", *arguments]) == 1
    assert problem in capsys.readouterr().err
    assert Path("runs.redline.yaml").read_text() == "mine"


def test_the_demo_runs_in_an_empty_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--demo"]) == 0
    assert main(["init", "--demo"]) == 1
    assert "is there already" in capsys.readouterr().err
    result = run_pytest("-q", "llada2_math.redline.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Deploy acc85/semi70: +37.5%" in result.stdout


def test_the_demo_serves_the_bundled_checkpoint() -> None:
    pytest.importorskip("torch")
    assert main(["init", "--demo"]) == 0
    path = Path("arithmetic.redline.yaml")
    text = path.read_text()
    assert "n: 512" in text
    path.write_text(text.replace("n: 512", "n: 48").replace("serving: acc95/buf2/add0.75", "serving: acc95/buf1"))
    result = run_pytest("-q", "arithmetic.redline.yaml")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "arithmetic: alpha 0.1, delta 0.1, n 48, m 8" in result.stdout
