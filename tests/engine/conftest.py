"""Fixtures that several engine tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", params=["tied", "untied"])
def checkpoint(request, tmp_path_factory):
    """A random Qwen3 and the directory that holds it in the Hugging Face layout."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from qwen3_oracle import random_qwen3

    oracle = random_qwen3(request.param == "tied")
    directory = tmp_path_factory.mktemp(request.param)
    oracle.save_pretrained(directory)
    return oracle, directory


@pytest.fixture
def oracle(checkpoint):
    return checkpoint[0]
