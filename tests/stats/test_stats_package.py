"""The package as a whole: its examples hold, and importing it is cheap."""

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

from pytest_redline import stats

MODULES = [module.name for module in pkgutil.iter_modules(stats.__path__, "pytest_redline.stats.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_nothing_slow_is_imported():
    imports = "; ".join(f"import {name}" for name in MODULES)
    check = "import sys; print([name for name in ('scipy.stats', 'torch', 'pytest', 'pandas') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", f"{imports}; {check}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
