"""pytest loads the plugin in every session, so what it costs there is next to nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from gate_runner import Gate

HEAVY = ("numpy", "scipy", "pydantic", "yaml", "rich", "torch")


def imported_by(code: str, cwd: object = None) -> set[str]:
    """Top-level modules that a fresh interpreter has after running some code."""
    show = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True, cwd=str(cwd or ".")
    )
    return set(done.stdout.splitlines()[-1].split())


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    modules = imported_by("import pytest_redline.plugin")
    assert "pytest_redline" in modules
    assert modules.isdisjoint(HEAVY)


@pytest.mark.parametrize("module", ["pytest_redline", "pytest_redline.options", "pytest_redline.session"])
def test_what_the_plugin_imports_is_light_by_itself(module: str) -> None:
    modules = imported_by(f"import {module}")
    assert "pytest_redline" in modules
    assert modules.isdisjoint(HEAVY)


def test_a_session_without_grids_imports_nothing_heavy(gate: Gate) -> None:
    gate.pytester.makepyfile(test_it="def test_it(): pass")
    modules = imported_by("import pytest; assert pytest.main(['-p', 'redline']) == 0", gate.path)
    assert "pytest_redline" in modules
    assert modules.isdisjoint(HEAVY)


def test_collecting_a_grid_imports_no_numbers_and_no_models(gate: Gate) -> None:
    gate.write()
    code = "import pytest; assert pytest.main(['-p', 'redline', '--collect-only', '-q', '--redline-report=out']) == 0"
    modules = imported_by(code, gate.path)
    assert "yaml" in modules
    assert modules.isdisjoint({"numpy", "scipy", "torch"})
    assert not (gate.path / "out").exists()
