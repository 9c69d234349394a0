"""The comparison with independent code runs, at toy size, and its ways of decoding agree."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("diffusers", minversion="0.42")

sys.path.append(str(Path(__file__).parents[2]))  # the comparison is no part of what is installed

from engine.bench import against_peers, device
from redline_engine.config import ModelSpec
from redline_engine.models import network
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
    pack = network.pack
    split, calls = against_peers.split_time(model, prompts, 4)
    assert len(split.seconds) == 8
    assert min(split.seconds.values()) > 0
    assert split.rows >= 8 * calls
    assert network.pack is pack
    assert "forward" not in vars(model)


def test_it_prints_its_table(capsys):
    against_peers.main(["--prompts", "4", "--few", "2", "--batch", "4", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert printed.count("2/2") == 4
    assert "GFLOP/s" in printed


def test_the_script_for_a_gpu_runs_to_its_end_at_toy_size(capsys):
    assert device.main(["--device", "cpu", "--no-tests"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "toy size" in line]
    assert len(rows) == sum(len(kind.open_blocks) for kind in device.KINDS) * len(device.BATCHES)
    assert all(float(row.split()[-1]) > 0 for row in rows)


def test_the_script_for_a_gpu_names_what_it_had_no_time_for(capsys):
    assert device.main(["--device", "cpu", "--no-tests", "--minutes", "0"]) == 0
    assert capsys.readouterr().out.count("left out") == sum(len(kind.open_blocks) for kind in device.KINDS) * 3
