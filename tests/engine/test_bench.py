"""The comparison with independent code runs, at toy size, and its ways of decoding agree."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("diffusers", minversion="0.42")

sys.path.append(str(Path(__file__).parents[2]))  # the comparison is no part of what is installed

from engine.bench import against_peers
from redline_engine.config import ModelSpec
from redline_engine.models.checkpoint import load

pytestmark = pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")


def test_all_ways_decode_the_same_replies():
    model = load(ModelSpec(str(against_peers.CHECKPOINT), device="cpu"))
    _, prompts = against_peers.read_prompts(4)
    peer = against_peers.Peer(model)
    engine = against_peers.decode_engine(model, prompts, 4)
    assert against_peers.decode_engine(model, prompts, 1).replies == engine.replies
    assert against_peers.decode_pipeline(peer, prompts).replies == engine.replies
    assert against_peers.decode_loop(peer, prompts).replies == engine.replies


def test_the_parts_of_a_step_are_all_of_it_and_nothing_stays_timed():
    model = load(ModelSpec(str(against_peers.CHECKPOINT), device="cpu"))
    _, prompts = against_peers.read_prompts(4)
    pack = type(model).pack
    split, calls = against_peers.split_time(model, prompts, 4)
    assert len(split.seconds) == 8
    assert min(split.seconds.values()) > 0
    assert split.rows >= 8 * calls
    assert "pack" not in vars(model)
    assert type(model).pack is pack


def test_it_prints_its_table(capsys):
    against_peers.main(["--prompts", "4", "--few", "2", "--batch", "4", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert printed.count("2/2") == 4
    assert "GFLOP/s" in printed
