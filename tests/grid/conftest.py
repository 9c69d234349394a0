"""Reading grids from their texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from grid_text import BASE

from pytest_redline.errors import GridError
from pytest_redline.grid import Grid
from pytest_redline.grid_file import load_grid

Load = Callable[..., Grid]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Read a grid from its text, or from BASE with parts replaced."""
    monkeypatch.chdir(tmp_path)

    def read(text: str | bytes = BASE, *swaps: tuple[str, str], **options: float) -> Grid:
        if isinstance(text, str):
            for old, new in swaps:
                assert old in text
                text = text.replace(old, new)
        Path("redline.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_grid(Path("redline.yaml"), **options)

    return read


@pytest.fixture
def problems(load: Load) -> Callable[..., list[str]]:
    """Every problem of a grid that has some."""

    def read(*arguments: object, **options: float) -> list[str]:
        with pytest.raises(GridError) as caught:
            load(*arguments, **options)
        return list(caught.value.problems)

    return read
