"""README and docs say what the product does: their blocks are run and compared."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from gate_runner import environment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)


def run(*command: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=environment(**extra), capture_output=True, text=True, check=False)


def test_the_recorded_table_of_the_readme_is_what_the_gate_prints() -> None:
    table = blocks(README, "text")[1]
    result = run(
        sys.executable, "-m", "pytest", "--redline-alpha=0.1", "fixtures/grids/llada2_math.redline.yaml", cwd=ROOT
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert table in result.stdout


def rows(table: str) -> dict[str, list[str]]:
    """Label to the cells of its row."""
    lines = [line[4:].split() for line in table.splitlines() if re.match(r"[ >][ *]  \w", line)]
    return {cells[0]: cells[1:] for cells in lines}


def test_the_served_table_of_the_readme_is_what_the_gate_prints(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    printed = run(
        sys.executable,
        "-m",
        "pytest",
        "--redline-alpha=0.1",
        f"--redline-store={tmp_path / 'store.sqlite'}",
        "fixtures/grids/arithmetic.redline.yaml",
        cwd=ROOT,
    )
    assert printed.returncode == 0, printed.stdout + printed.stderr
    said, found = rows(blocks(README, "text")[0]), rows(printed.stdout)
    assert len(said) == 9  # with the header
    assert list(found) == list(said)
    for label, cells in said.items():
        # Another processor may round otherwise, and turn a decision that is nearer to a threshold than that.
        assert cells[-1] == found[label][-1], label
        if label != "configuration":
            k, now = (
                int(next(cell for cell in row if cell.endswith("/512")).partition("/")[0])
                for row in (cells, found[label])
            )
            assert abs(k - now) <= 3, label
    assert "Deploy acc98/buf4/add0.50: +6" in printed.stdout
    assert re.search(r"Served together: [\d,]+ forwards instead of [\d,]+ \(4\d %\)", printed.stdout)


def test_the_commands_of_the_readme_are_environments_of_tox_and_ci_runs_the_same() -> None:
    commands = [line.removeprefix("$ ") for block in blocks(README, "console") for line in block.splitlines()]
    assert commands == ["pip install tox && tox run -e gate", "pip install tox && tox run -e test"]
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert "set -euo pipefail" in ci
    assert set(commands) <= set(ci)
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    environments = [line.removeprefix("pip install tox && tox run -e ") for line in ci if "tox" in line]
    assert environments == ["lint", "test", "gate", "demo"]
    assert {f"testenv:{name}" for name in environments} <= set(tox.sections())


def test_the_example_of_the_readme_gates_a_recording(tmp_path: Path) -> None:
    (tmp_path / "gates").mkdir()
    (tmp_path / "gates" / "prod.redline.yaml").write_text(blocks(README, "yaml")[0], encoding="utf-8")
    header, *rows = blocks(README, "csv")[0].splitlines()
    n = 60  # the printed rows and more of the same kind, enough to certify anything
    rows += [f"{label},more/{index},1,200,{forwards}" for label, forwards in (("reference", 45), ("fast", 30))
             for index in range(n)]  # fmt: skip
    (tmp_path / "gates" / "recorded.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    result = run(sys.executable, "-m", "pytest", "gates", "-v", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "gates/prod.redline.yaml::fast CERTIFIED" in result.stdout
    assert "Deploy fast: +50.0%" in result.stdout


def test_every_file_of_the_layout_in_the_readme_exists() -> None:
    root, names = ROOT, []
    for line in blocks(README, "text")[-1].splitlines():
        if not line.startswith(" "):
            root = ROOT / line.split()[0]
            names.append(root)
        names += [root / name for name in re.findall(r"(?:^ +|; )(\w[\w/]*(?:\.py|/))(?= |:|,|$)", line)]
    assert len(names) > 50
    missing = [str(name) for name in names if not name.exists()]
    assert missing == []


def test_every_link_of_the_docs_leads_somewhere() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("fixtures/**/*.md")]
    links = [
        (page, target)
        for page in pages
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert len(links) > 5
    assert [(page.name, target) for page, target in links if not (page.parent / target).exists()] == []


@pytest.fixture
def workflow() -> dict[str, object]:
    return yaml.safe_load(blocks(CI, "yaml")[1])


def test_the_workflow_is_valid_for_github(workflow: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "redline.yml"
    path.write_text(blocks(CI, "yaml")[1], encoding="utf-8")
    result = run(
        sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path), cwd=tmp_path
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_workflow_reports_on_every_pull_request(workflow: dict[str, object]) -> None:
    # YAML 1.1 reads the key `on` as true. No path filter: a skipped workflow leaves a required check pending.
    assert workflow[True] == {"pull_request": None}
    steps = workflow["jobs"]["redline"]["steps"]  # type: ignore[index]
    assert not any("continue-on-error" in step for step in steps)
    assert "if" not in workflow["jobs"]["redline"]  # type: ignore[index]


def steps_of(workflow: dict[str, object]) -> dict[str, str]:
    steps = workflow["jobs"]["redline"]["steps"]  # type: ignore[index]
    return {step.get("id", step.get("name")): step["run"] for step in steps if "run" in step}


def bash(script: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does: bash that ends at the first failure."""
    return run("bash", "-eo", "pipefail", "-c", script, cwd=cwd, **extra)


def repository(folder: Path) -> None:
    """A repository that serves one configuration of a grid, whose base is committed."""
    (folder / "serving").mkdir(parents=True)
    (folder / "gates").mkdir()
    (folder / "serving" / "prod.yaml").write_text("dllm: {threshold: 0.85}\n", encoding="utf-8")
    (folder / "gates" / "prod.redline.yaml").write_text(
        """\
redline: 1
name: prod
alpha: 0.10
source: {outcomes: recorded.csv}
cost: unknown
reference: slow
configurations:
  slow: {accept_threshold: 0.95}
  good: {accept_threshold: 0.85}
  bad: {accept_threshold: 0.50}
serving: {file: ../serving/prod.yaml, keys: {accept_threshold: dllm.threshold}}
""",
        encoding="utf-8",
    )
    rows = [
        f"{label},{index},{int(index >= wrong)}"
        for label, wrong in (("slow", 0), ("good", 0), ("bad", 30))
        for index in range(100)
    ]
    (folder / "gates" / "recorded.csv").write_text("config,prompt,correct\n" + "\n".join(rows) + "\n")
    git(folder, "init", "-q")
    commit(folder)


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "change")


@pytest.mark.parametrize(
    ("file", "text", "gate", "returncode"),
    [
        ("notes.md", "nothing served\n", "skip", None),
        ("serving/prod.yaml", "dllm: {threshold: 0.950}\n", "run", 0),
        ("serving/prod.yaml", "dllm: {threshold: 0.5}\n", "run", 1),
        ("serving/prod.yaml", "dllm: {threshold: 0.7}\n", "run", 2),
    ],
)
def test_the_steps_of_the_workflow_gate_a_pull_request(
    workflow: dict[str, object], tmp_path: Path, file: str, text: str, gate: str, returncode: int | None
) -> None:
    folder = tmp_path / "repository"
    repository(folder)
    (folder / file).write_text(text, encoding="utf-8")
    commit(folder)
    files = {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    steps = steps_of(workflow)

    touched = bash(steps["touched"], folder, BASE="HEAD~1", **files)

    assert touched.returncode == 0, touched.stderr
    assert (tmp_path / "output").read_text() == f"gate={gate}\n"
    if returncode is None:
        assert "nothing that is served or judged changed" in (tmp_path / "summary.md").read_text()
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = bash(steps["Gate"], folder, PATH=path, GITHUB_ACTIONS="true", **files)
    assert result.returncode == returncode, result.stdout + result.stderr
    if returncode == 2:
        assert "equals no configuration of this grid" in result.stdout
        return
    assert ("::error file=gates/prod.redline.yaml,line=10," in result.stdout) == (returncode == 1)
    assert "## Redline prod" in (tmp_path / "summary.md").read_text()
    assert {each.name for each in (folder / "redline-report").iterdir()} == {
        "prod.certificate.json",
        "prod.md",
        "junit.xml",
    }


def test_the_workflow_runs_the_gate_where_the_difference_cannot_be_told(
    workflow: dict[str, object], tmp_path: Path
) -> None:
    repository(tmp_path / "repository")
    output = tmp_path / "output"
    result = bash(steps_of(workflow)["touched"], tmp_path / "repository", BASE="0" * 40, GITHUB_OUTPUT=str(output))
    assert result.returncode == 0
    assert output.read_text() == "gate=run\n"


def test_the_pre_commit_hook_selects_grids_and_refuses_a_faulty_one(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    chosen = [
        name
        for name in ("redline.yaml", "a/redline.yaml", "a/b.redline.yaml", "b.redline.yml", "redline.yaml.md", "a.yaml")
        if re.search(hook["files"], name)
    ]
    assert chosen == ["redline.yaml", "a/redline.yaml", "a/b.redline.yaml", "b.redline.yml"]
    repository(tmp_path)
    executable = str(Path(sys.executable).parent / hook["entry"].split()[0])
    command = [executable, *hook["entry"].split()[1:], "gates/prod.redline.yaml"]
    assert run(*command, cwd=tmp_path).returncode == 0
    grid = tmp_path / "gates" / "prod.redline.yaml"
    grid.write_text(grid.read_text().replace("reference: slow", "refrence: slow"), encoding="utf-8")
    result = run(*command, cwd=tmp_path)
    assert result.returncode == 1
    assert "gates/prod.redline.yaml:6 refrence: unknown key; did you mean reference?" in result.stderr
