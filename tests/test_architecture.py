"""What depends on what, what is documented, and what the distribution holds."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_redline import errors
from pytest_redline.errors import RedlineError

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pytest_redline"


def loaded_by(statement: str) -> set[str]:
    """Top-level packages, and modules of Redline, that a fresh interpreter holds after a statement."""
    program = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    names = done.stdout.split()
    return {name.partition(".")[0] for name in names} | {name for name in names if name.startswith("pytest_redline")}


HEAVY = {"numpy", "scipy", "rich", "yaml", "pydantic", "torch", "pandas", "transformers"}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("pytest_redline", HEAVY | {"pytest"}),
        ("pytest_redline.errors", HEAVY | {"pytest"}),
        ("pytest_redline.plugin", HEAVY),
        ("pytest_redline.options", HEAVY),
        ("pytest_redline.session", HEAVY),
        ("pytest_redline.items", HEAVY),
        ("pytest_redline.cli", HEAVY | {"pytest"}),
        ("pytest_redline.grid", HEAVY | {"pytest"}),
        ("pytest_redline.grid_file", (HEAVY - {"yaml", "pydantic"}) | {"pytest"}),
        ("pytest_redline.serving_file", (HEAVY - {"yaml"}) | {"pytest"}),
        ("pytest_redline.stats.bounded", (HEAVY - {"numpy", "scipy"}) | {"pytest"}),
        ("pytest_redline.stats.selectors", (HEAVY - {"numpy", "scipy"}) | {"pytest"}),
        ("pytest_redline.stats.risk", (HEAVY - {"numpy", "scipy"}) | {"pytest"}),
        ("pytest_redline.stats.multiplicity", (HEAVY - {"numpy", "scipy"}) | {"pytest"}),
        ("pytest_redline.stats.intervals", (HEAVY - {"numpy", "scipy"}) | {"pytest"}),
        ("pytest_redline.stats.bootstrap", (HEAVY - {"numpy", "scipy"}) | {"pytest"}),
        ("pytest_redline.outcomes", (HEAVY - {"numpy", "pydantic", "yaml"}) | {"pytest"}),
        ("pytest_redline.certificate", {"torch", "pandas", "transformers", "rich", "yaml", "pytest"}),
        ("pytest_redline.verify", {"torch", "pandas", "transformers", "rich", "yaml", "pytest"}),
        ("redline_engine", {"pytest", "pytest_redline"}),
    ],
)
def test_module_loads_nothing_that_it_should_not_need(module, absent):
    loaded = loaded_by(f"import {module}")
    assert module.partition(".")[0] in loaded
    assert loaded & absent == set()


def test_every_module_can_be_imported_alone():
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(PACKAGE.rglob("*.py"))
        if "fixtures" not in path.parts
    ]
    assert len(modules) > 25
    program = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n"
        "    for loaded in [each for each in sys.modules if each.startswith('pytest_redline')]:\n"
        "        del sys.modules[loaded]\n"
        "    importlib.import_module(name)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT.parent)


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""


ALLOWED = {  # what of Redline a module may import, at whatever place; a folder is all modules in it
    "errors": set(),
    "claims": set(),
    "clusters": {"claims", "grid", "order", "outcomes", "stats"},
    "order": set(),
    "claim_rules": {"claims", "complaints", "grid_schema", "source_schema"},
    "grid": {"claims", "errors", "spending"},
    "spending": set(),
    "labels": set(),
    "located_yaml": set(),
    "paths": set(),
    "text": set(),
    "outcomes": {"text"},
    "alignment": {"errors", "outcomes"},
    "stats": {"stats"},
    "closed": set(),
    "statement_schema": {"closed"},
    "certificate_schema": {"closed", "noise_schema", "statement_schema"},
    "noise_schema": {"closed"},
    "study_schema": {"certificate_schema", "closed"},
    "store": {"errors"},
    "progress": {"store"},
    "prompts": {"claims", "clusters", "errors", "grid", "outcomes", "paths", "sources", "text"},
    "grading": {"grading"},
    "sources": {
        "checkpoint_rules",
        "alignment",
        "errors",
        "grading",
        "grid",
        "outcomes",
        "paths",
        "progress",
        "prompts",
        "schedule",
        "sources",
        "stats",
        "store",
        "text",
    },
    "report": {
        "certificate",
        "certificate_schema",
        "packing",
        "progress",
        "report",
        "stats",
        "store",
        "study_schema",
        "text",
    },
    "packing": {"certificate_schema", "errors", "noise_schema", "outcomes"},
    "grid_schema": {"source_schema", "spending"},
    "source_schema": set(),
    "complaints": {"errors", "grid_schema", "located_yaml", "paths"},
    "grid_file": {
        "claim_rules",
        "complaints",
        "grid",
        "grid_rules",
        "grid_schema",
        "located_yaml",
        "source_schema",
        "text",
    },
    "grid_rules": {
        "claim_rules",
        "complaints",
        "cost_rules",
        "grid",
        "grid_schema",
        "labels",
        "noise_rules",
        "serving_file",
        "source_rules",
        "spending_rules",
    },
    "cost_rules": {"complaints", "grid", "grid_schema"},
    "source_rules": {
        "checkpoint_rules",
        "errors",
        "claims",
        "complaints",
        "grading",
        "grid",
        "grid_schema",
        "source_schema",
    },
    "checkpoint_rules": {"errors", "paths"},
    "spending_rules": {"complaints", "grid", "grid_schema", "spending"},
    "noise_rules": {"complaints", "grid", "grid_schema"},
    "serving_file": {"grid", "located_yaml", "paths"},
}
KNOWS_PYTEST = {"blind_items", "plugin", "options", "session", "items", "publish"}


def own_imports(part: str) -> set[str]:
    paths = sorted((PACKAGE / part).glob("*.py")) if (PACKAGE / part).is_dir() else [PACKAGE / f"{part}.py"]
    assert paths
    return {
        name.split(".")[1] if "." in name else ""
        for path in paths
        for name in imported(path)
        if name.partition(".")[0] == "pytest_redline"
    }


@pytest.mark.parametrize("part", ALLOWED)
def test_dependencies_point_one_way(part):
    assert own_imports(part) <= ALLOWED[part]


MADE_OF = ("certificate", "budgets", "clusters", "cost", "description", "loss_budgets", "noise", "partial", "risks")
MADE_OF += ("statement", "verify")


def test_certificate_and_what_it_is_made_of_know_no_source_and_no_report():
    for part in MADE_OF:
        assert (
            own_imports(part) & ({"sources", "report", "cli", "commands", "gate", "grid_file"} | KNOWS_PYTEST) == set()
        ), part


def test_no_module_is_longer_than_400_lines():
    paths = [*PACKAGE.rglob("*.py"), *(ROOT / "engine").rglob("*.py")]
    assert [path.name for path in paths if len(path.read_text(encoding="utf-8").splitlines()) > 400] == []


def test_every_documentation_page_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in readme] == []


def test_only_the_plugins_own_modules_know_pytest():
    knowing = {
        path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for path in PACKAGE.rglob("*.py")
        if any(name.partition(".")[0] in ("pytest", "_pytest") for name in imported(path))
    }
    assert knowing == KNOWS_PYTEST


def test_engine_knows_neither_pytest_nor_the_plugin():
    paths = sorted((ROOT / "engine" / "redline_engine").rglob("*.py"))
    assert paths
    for path in paths:
        assert not {name for name in imported(path) if name.partition(".")[0] in ("pytest", "pytest_redline")}, path


def test_statistics_do_no_input_or_output():
    for path in sorted((PACKAGE / "stats").glob("*.py")):
        names = {name.partition(".")[0] for name in imported(path)}
        assert names <= {
            "__future__",
            "collections",
            "math",
            "typing",
            "dataclasses",
            "numpy",
            "scipy",
            "pytest_redline",
        }


def test_public_names_exist():
    for path in sorted(PACKAGE.rglob("__init__.py")):
        module = importlib.import_module(".".join(path.parent.relative_to(ROOT).parts))
        for name in getattr(module, "__all__", ()):
            assert getattr(module, name) is not None
        assert module.__doc__


@pytest.mark.parametrize("package", ["redline_engine", "redline_engine/models"])
def test_the_docstring_of_a_package_names_all_that_is_in_it(package):
    folder = ROOT / "engine" / package
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    listed = re.findall(r"^    (\w+(?:\.py|/)) +\S", text, re.MULTILINE)
    modules = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
    packages = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    assert sorted(listed) == sorted(modules | packages)


# -- Errors -------------------------------------------------------------------------------------------------------


def tree(error: type[Exception]) -> dict[str, dict]:
    return {each.__name__: tree(each) for each in error.__subclasses__() if each.__module__ == errors.__name__}


def names(errors: dict[str, dict]) -> Iterator[str]:
    """Every name in a tree."""
    for name, below in errors.items():
        yield name
        yield from names(below)


def drawn(text: str) -> dict[str, dict]:
    """The tree that a docstring draws: four columns for each level."""
    root: dict[str, dict] = {}
    levels = [root]
    for line in text.splitlines():
        name = line.replace("├── ", "    ").replace("└── ", "    ").replace("│", " ")
        word = name.strip().split(" ")[0]
        if not word.endswith("Error"):
            continue
        depth = (len(name) - len(name.lstrip()) - 4) // 4
        del levels[depth + 1 :]
        levels.append(levels[depth].setdefault(word, {}))
    return root


def test_errors_form_the_tree_that_is_drawn():
    assert drawn(errors.__doc__) == {"RedlineError": tree(RedlineError)}
    assert len(tree(RedlineError)) == 5


def test_every_error_of_the_module_is_in_the_tree():
    found = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert found == set(names({"RedlineError": tree(RedlineError)}))


@pytest.mark.parametrize("error", [RedlineError, *RedlineError.__subclasses__()])
def test_error_keeps_every_problem_and_shows_the_first(error):
    shown = 10 if error is errors.OutcomesError else 20
    assert error("one").problems == ("one",)
    many = error([f"problem {number}" for number in range(shown + 5)])
    assert len(many.problems) == shown + 5
    assert str(many).splitlines() == [f"problem {number}" for number in range(shown)] + ["... and 5 more of the kind"]
    assert "more" not in str(error([f"problem {number}" for number in range(shown)]))


# -- Documentation ------------------------------------------------------------------------------------------------


def documented() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


class Parser:
    """Takes down what a plugin declares."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def getgroup(self, *_: object) -> Parser:
        return self

    def addoption(self, *names: str, **_: object) -> None:
        self.names += names

    def addini(self, name: str, *_: object, **__: object) -> None:
        self.names.append(name)


def declared() -> list[str]:
    from pytest_redline.options import add_options

    parser = Parser()
    add_options(parser)  # type: ignore[arg-type]
    return parser.names


def test_options_and_ini_keys_have_the_plugins_prefix():
    assert declared()
    assert all(name.startswith(("--redline-", "redline_")) for name in declared())


@pytest.mark.parametrize("name", declared())
def test_every_option_and_ini_key_is_documented(name):
    assert name in documented()


def commands() -> list[str]:
    from pytest_redline.cli import COMMANDS

    return [command.__name__.rpartition(".")[2] for command in COMMANDS]


def test_every_module_of_a_command_is_registered():
    assert sorted(commands()) == sorted(path.stem for path in (PACKAGE / "commands").glob("[!_]*.py"))


@pytest.mark.parametrize("command", commands())
def test_every_command_is_documented(command):
    assert f"pytest-redline {command}" in documented()


def grid_keys() -> list[str]:
    from pytest_redline import grid_schema, source_schema

    models = (grid_schema.GridModel, grid_schema.CostModel, grid_schema.ServingModel, grid_schema.GroupsModel)
    models += (
        source_schema.CorrectModel,
        grid_schema.RiskModel,
        grid_schema.ClustersModel,
        grid_schema.PopulationModel,
    )
    models += (grid_schema.MixModel, grid_schema.SampleModel)
    return sorted({key for model in models for key in model.model_fields})


@pytest.mark.parametrize("key", grid_keys())
def test_every_key_of_a_grid_file_is_documented(key):
    text = documented()
    assert f"{key}:" in text or f"`{key}`" in text


# -- The wheel ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_wheel_has_two_packages_and_nothing_else_at_the_top(wheel):
    top = {name.split("/")[0] for name in wheel}
    assert {name for name in top if not name.endswith(".dist-info")} == {"pytest_redline", "redline_engine"}
    assert len(top) == 3


def test_wheel_has_every_module(wheel):
    for folder, place in [(PACKAGE, "pytest_redline"), (ROOT / "engine" / "redline_engine", "redline_engine")]:
        modules = {f"{place}/{path.relative_to(folder).as_posix()}" for path in folder.rglob("*.py")}
        assert modules
        assert modules <= wheel
    assert not {name for name in wheel if "__pycache__" in name or name.endswith(".pyc")}


def test_wheel_has_the_mark_of_a_typed_package(wheel):
    assert "pytest_redline/py.typed" in wheel


def test_wheel_has_everything_that_is_bundled(wheel):
    root = ROOT / "fixtures"
    bundled = {
        f"pytest_redline/fixtures/{path.relative_to(root).as_posix()}"
        for path in root.rglob("*")
        if path.is_file() and not {"__pycache__", ".redline", ".pytest_cache"} & set(path.parts)
    }
    assert any(name.endswith("checkpoints/arithmetic/model.safetensors") for name in bundled)
    assert bundled <= wheel
