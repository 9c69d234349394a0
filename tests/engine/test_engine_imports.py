"""What importing the engine does not load, asked of a fresh interpreter; and that its examples tell the truth."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

BUNDLED = Path(__file__).parents[2] / "fixtures" / "checkpoints" / "arithmetic"
NUMPY_ONLY = ["walker", "states", "engine", "trace", "accept", "models.scripted"]


def loaded(module):
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_config_needs_the_standard_library_alone():
    assert loaded("redline_engine.config").isdisjoint({"numpy", "torch", "transformers", "pytest", "pytest_redline"})


@pytest.mark.parametrize("module", NUMPY_ONLY)
def test_everything_but_a_real_model_does_without_torch(module):
    names = loaded(f"redline_engine.{module}")
    assert names.isdisjoint({"torch", "transformers", "safetensors", "pytest", "pytest_redline"})


def test_a_real_model_does_without_transformers_and_pytest():
    pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    assert loaded("redline_engine.models.checkpoint").isdisjoint({"transformers", "pytest", "pytest_redline"})


def test_a_checkpoint_is_loaded_and_decoded_without_pytorchs_compiler():
    """To import it takes longer than to load the bundled checkpoint and decode a hundred prompts."""
    pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    code = f"""
import sys
from redline_engine.config import DecodeKnobs, ModelSpec
from redline_engine.engine import Engine
from redline_engine.models.checkpoint import load
from redline_engine.request import Prompt
model = load(ModelSpec({str(BUNDLED)!r}, device="cpu"))
Engine(model).generate([Prompt("p", [5, 6, 7])], [DecodeKnobs(max_new_tokens=8)])
print("torch" in sys.modules, "torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_the_examples_in_docstrings_come_out_as_printed():
    results = doctest.testmod(importlib.import_module("redline_engine.engine"))
    assert results.attempted >= 5
    assert not results.failed
