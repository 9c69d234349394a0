"""A folder with a random checkpoint, prompts and a grid that the engine serves; needs torch and tokenizers."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from gate_runner import environment
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

from pytest_redline.grading.math import final_number
from pytest_redline.grid import EngineSource, Grid
from pytest_redline.grid_file import load_grid
from pytest_redline.progress import Progress
from pytest_redline.prompts import read_calibration_prompts
from pytest_redline.sources import engine as bridge
from pytest_redline.store import Store

torch.set_num_threads(1)  # a model this small gains nothing from more, and other tests run beside it

LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
VOCABULARY = {"<mask>": 0, "<eos>": 1, **{letter: number for number, letter in enumerate(LETTERS, start=2)}}
CONFIGURATIONS = {"slow": {"accept_threshold": 0.9, "buffer_size": 1}, "fast": {"accept_threshold": 0.05}}
_ANSWERS: dict[tuple[int, str], list[str]] = {}  # what is expected, by number of prompts and source: served once
SHAPE = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
}


def write_checkpoint(directory: Path, seed: int = 0) -> None:
    """Write a random SDAR checkpoint of block size 4 with a tokenizer of single letters."""
    generator = torch.Generator().manual_seed(seed)
    hidden, head, wide = SHAPE["hidden_size"], SHAPE["head_dim"], SHAPE["intermediate_size"]
    heads, kv = SHAPE["num_attention_heads"], SHAPE["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (SHAPE["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    for layer in range(int(SHAPE["num_hidden_layers"])):
        stem = f"model.layers.{layer}"
        shapes |= {
            f"{stem}.input_layernorm.weight": (hidden,),
            f"{stem}.post_attention_layernorm.weight": (hidden,),
            f"{stem}.self_attn.q_proj.weight": (heads * head, hidden),
            f"{stem}.self_attn.k_proj.weight": (kv * head, hidden),
            f"{stem}.self_attn.v_proj.weight": (kv * head, hidden),
            f"{stem}.self_attn.o_proj.weight": (hidden, heads * head),
            f"{stem}.self_attn.q_norm.weight": (head,),
            f"{stem}.self_attn.k_norm.weight": (head,),
            f"{stem}.mlp.gate_proj.weight": (wide, hidden),
            f"{stem}.mlp.up_proj.weight": (wide, hidden),
            f"{stem}.mlp.down_proj.weight": (hidden, wide),
        }
    weights = {
        name: torch.randn(shape, generator=generator) * 0.3 + (1.0 if len(shape) == 1 else 0.0)
        for name, shape in shapes.items()
    }
    directory.mkdir(parents=True, exist_ok=True)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    config = {
        **SHAPE,
        "model_type": "sdar",
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "block_size": 4,
        "mask_token_id": 0,
        "eos_token_id": 1,
        "max_position_embeddings": 256,
    }
    (directory / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens(["<mask>", "<eos>"])
    tokenizer.save(str(directory / "tokenizer.json"))


def write_live(folder: Path, n: int = 60, name: str = "g.redline.yaml", **keys: Any) -> Path:
    """Write checkpoint, prompts and grid.

    Expected answers are what the configuration ``slow`` says, where it says a number, so that the reference is mostly
    right and the candidate's verdicts are its own.
    """
    write_checkpoint(folder / "checkpoint")
    texts = [f"{LETTERS[number % 36]}{LETTERS[number // 36]}{'abc'[: number % 4]}" for number in range(n)]
    write_prompts(folder, texts, ["1"] * n)
    grid = {
        "redline": 1,
        "name": "live",
        "alpha": 0.2,
        "prompts": {"file": "prompts.jsonl"},
        "grade": "math",
        "source": {"engine": {"checkpoint": "checkpoint", "device": "cpu", "max_new_tokens": 12}},
        "reference": "slow",
        "configurations": CONFIGURATIONS,
        **keys,
    }
    path = folder / name
    path.write_text(yaml.safe_dump({key: value for key, value in grid.items() if value is not None}, sort_keys=False))
    source = str(grid["source"])
    if (n, source) not in _ANSWERS:
        replies = said_by(replace(load_grid(path), stopping=None), "slow")
        _ANSWERS[n, source] = [str(final_number(reply) or 0) for reply in replies]
    write_prompts(folder, texts, _ANSWERS[n, source])
    return path


def write_prompts(folder: Path, texts: list[str], answers: list[str]) -> None:
    rows = [
        {"id": f"q/{number}", "prompt": text, "answer": answer, "group": "even" if number % 2 == 0 else "odd"}
        for number, (text, answer) in enumerate(zip(texts, answers, strict=True))
    ]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def keys_of(grid: Grid, row: int) -> list[str]:
    """Keys under which the store has the generations of one configuration, in the order of the prompts file."""
    assert grid.prompts is not None
    assert isinstance(grid.source, EngineSource)
    prompts = read_calibration_prompts(grid.prompts, "group", None)
    families = bridge._families(grid, grid.source, prompts, "cpu", {})
    return next(family.keys[family.rows.index(row)] for family in families if row in family.rows)


def said_by(grid: Grid, label: str) -> list[str]:
    """Replies of one configuration, in the order of the prompts file; nothing is kept."""
    assert grid.prompts is not None
    prompts = read_calibration_prompts(grid.prompts, "group", None)
    path = grid.path.parent / "scratch.sqlite"
    with Store(path) as store:
        bridge.serve(grid, prompts, store, None, True, Progress())
        keys = keys_of(grid, grid.labels.index(label))
        found = store.read(keys)
    path.unlink()
    return [found[key].text for key in keys]


def command(*arguments: str) -> list[str]:
    """The gate on the grid of a folder, as a command line."""
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "g.redline.yaml", *arguments]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the gate in a folder, in a process of its own."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(OMP_NUM_THREADS="1"),
        capture_output=True,
        text=True,
        check=False,
    )
