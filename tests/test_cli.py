"""The ``pytest-redline`` command: what it prints, where, and with which exit status."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_redline.certificate import to_bytes
from pytest_redline.cli import main
from pytest_redline.gate import certificate_of
from pytest_redline.grid_file import load_grid

COMMAND = Path(sys.executable).parent / "pytest-redline"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write_grid(file: str = "good.redline.yaml", **keys: Any) -> Path:
    """A grid of a reference and a faster candidate that breaks nothing, with its recording."""
    rows = [f"{label},q{i},1,100,{forwards}" for label, forwards in (("ref", 50), ("fast", 40)) for i in range(60)]
    Path("runs.csv").write_text("\n".join(["config,prompt,correct,tokens,forwards", *rows]) + "\n")
    grid = {
        "redline": 1,
        "name": file.partition(".")[0],
        "alpha": 0.1,
        "source": {"outcomes": "runs.csv"},
        "reference": "ref",
        "configurations": {"ref": {"threshold": 0.9}, "fast": {"threshold": 0.8}},
        **keys,
    }
    Path(file).write_text(yaml.safe_dump(grid))
    return Path(file)


def write_certificate(file: str = "good.json", broken: int = 0, **keys: Any) -> str:
    """The certificate of that grid, where the candidate breaks some prompts."""
    grid = load_grid(write_grid(**keys))
    recording = Path("runs.csv").read_text()
    for i in range(broken):
        recording = recording.replace(f"fast,q{i},1,", f"fast,q{i},0,")
    Path("runs.csv").write_text(recording)
    Path(file).write_bytes(to_bytes(certificate_of(grid)))
    return file


# -- schema, version, usage ---------------------------------------------------------------------------------------


def test_output_that_nobody_reads_ends_without_a_traceback():
    with subprocess.Popen([COMMAND, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.close()
        assert process.stderr
        assert process.stderr.read() == ""
    assert process.wait() == 1


@pytest.mark.parametrize(
    ("arguments", "title", "key"),
    [([], "Redline grid file", "reference"), (["--certificate"], "Redline certificate", "digest")],
)
def test_schema_is_printed_as_json(capsys, arguments, title, key):
    assert main(["schema", *arguments]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["title"] == title
    assert f'"{key}": {{' in out


def test_version_is_that_of_the_distribution(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"pytest-redline {version('pytest-redline')}\n"


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["validate"], ["verify"], ["verify", "--unknown", "x.json"]])
def test_wrong_usage_exits_with_2(capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("usage: pytest-redline")


# -- validate -----------------------------------------------------------------------------------------------------


def test_good_grid_is_summed_up(capsys):
    assert main(["validate", str(write_grid())]) == 0
    assert capsys.readouterr() == ("good.redline.yaml: good, 2 configurations, reference ref\n", "")


def test_outcomes_are_not_read(capsys):
    path = write_grid()
    Path("runs.csv").unlink()
    assert main(["validate", str(path)]) == 0


def test_every_file_is_checked_and_one_faulty_one_fails(capsys):
    good, faulty = write_grid(), write_grid("faulty.redline.yaml", reference="rif", alpha=2)
    assert main(["validate", str(faulty), "missing.redline.yaml", str(good)]) == 1
    out, err = capsys.readouterr()
    assert out == "good.redline.yaml: good, 2 configurations, reference ref\n"
    assert "faulty.redline.yaml:1 alpha: found 2" in err
    assert "reference: 'rif' is not a configuration of this grid" in err
    assert "missing.redline.yaml:1: cannot be read (No such file or directory)" in err


@pytest.mark.parametrize("file", ["redline.yaml", "redline.yml", "x.redline.yml", "x.y.redline.yaml"])
def test_files_that_pytest_collects_are_valid(capsys, file):
    assert main(["validate", str(write_grid(file, name="x"))]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("file", ["x.yaml", "xredline.yaml", "redline.yaml.yml", "x.redline.json", "Redline.yaml"])
def test_files_that_pytest_never_collects_are_not(capsys, file):
    assert main(["validate", str(write_grid(file, name="x"))]) == 1
    assert capsys.readouterr() == (
        f"{file}: x, 2 configurations, reference ref\n",
        f"{file}: pytest collects only redline.yaml and *.redline.yaml (or .yml); rename this file\n",
    )


# -- verify -------------------------------------------------------------------------------------------------------


def test_good_certificate_is_consistent(capsys):
    for options in ([], ["--require-passed"]):
        assert main(["verify", *options, write_certificate()]) == 0
        out, err = capsys.readouterr()
        first, decision, promise = out.splitlines()
        assert first == "good.json: consistent and unchanged; gate passed"
        assert decision.startswith("  Deploy fast: +25.0%")
        assert promise.startswith("  If these 60 prompts are an independent random draw from ")
        assert err == ""


def test_exit_status_is_about_the_certificate_unless_the_gate_must_have_passed(capsys):
    path = write_certificate(broken=30)
    assert main(["verify", path]) == 0
    assert capsys.readouterr().out.startswith("good.json: consistent and unchanged; gate NOT passed: fast\n")
    assert main(["verify", "--require-passed", path]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("good.json: consistent and unchanged; gate NOT passed: fast\n")
    assert err == "good.json: --require-passed: the gate did not pass, as fast is not certified\n"


def test_every_certificate_is_checked_and_a_changed_or_missing_one_fails(capsys):
    good, changed = write_certificate(), write_certificate("changed.json")
    Path(changed).write_bytes(Path(changed).read_bytes() + b" ")
    assert main(["verify", changed, "missing.json", good, good]) == 1
    out, err = capsys.readouterr()
    assert out.count("good.json: consistent and unchanged; gate passed") == 2
    assert err.splitlines() == [
        "changed.json: not the bytes that were written: the file was changed after it was made",
        "missing.json: cannot be read (No such file or directory)",
    ]


def test_help_says_what_the_exit_status_means(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["verify", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "Exit status 0 means consistent and unchanged, whatever the gate's verdict." in text
    assert "--require-passed also fail when the gate did not pass" in text


# -- The command itself -------------------------------------------------------------------------------------------


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def test_command_ends_with_the_exit_status():
    assert run().returncode == 2
    assert run("--version").stdout == f"pytest-redline {version('pytest-redline')}\n"
    done = run("verify", "--require-passed", write_certificate(broken=30))
    assert done.returncode == 1
    assert "gate did not pass" in done.stderr


def test_output_of_few_letters_gets_escapes_and_no_traceback():
    done = run("verify", write_certificate(population="Fragen aus Köln"), PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "Fragen aus K\\xf6ln" in done.stdout
    assert done.stderr == ""


def test_streams_that_are_no_files_are_left_as_they_are(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert main(["schema"]) == 0
    assert json.loads(sys.stdout.getvalue())
