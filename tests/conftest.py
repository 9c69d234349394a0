"""What tests of several folders share."""

from __future__ import annotations

import os

import pytest
from gate_runner import Gate, of_another_run

# Sessions inside this process forget what they import, and numpy can be imported once only.
import pytest_redline.gate
import pytest_redline.items
import pytest_redline.publish  # noqa: F401

pytest_plugins = ["pytester"]


@pytest.fixture
def gate(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """An empty folder to run the gate in, 80 columns wide, with no plugin but the named ones and no CI around."""
    for name in list(os.environ):
        if of_another_run(name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    (pytester.path / "pytest.ini").write_text("[pytest]\n")
    return Gate(pytester)
