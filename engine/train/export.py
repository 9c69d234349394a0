"""From training state to files: checkpoints in the Hugging Face layout, and the pool of calibration prompts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.train.network import Shape
from engine.train.problems import Problem
from engine.train.vocabulary import END_ID, MASK_ID, PAD_ID


def export_checkpoint(
    directory: Path, weights: Mapping[str, Tensor], shape: Shape, block_size: int, tokenizer: Path
) -> None:
    """Write weights, in float16, with everything that is needed to decode with them."""
    directory.mkdir(parents=True, exist_ok=True)
    halves = {name: each.detach().to(torch.float16).contiguous() for name, each in weights.items()}
    assert all(bool(each.isfinite().all()) for each in halves.values())
    save_file(halves, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "model.safetensors").chmod(0o644)  # it is written for its owner alone, and an archive would keep that
    ids = {"bos_token_id": None, "eos_token_id": END_ID, "pad_token_id": PAD_ID, "mask_token_id": MASK_ID}
    config = {
        "architectures": ["SDARForCausalLM"],
        "model_type": "sdar",
        **asdict(shape),
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_scaling": None,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
        "block_size": block_size,
        "torch_dtype": "float16",
        **ids,
    }
    write_json(directory / "config.json", config)
    write_json(directory / "generation_config.json", ids)
    shutil.copyfile(tokenizer, directory / "tokenizer.json")


def write_json(path: Path, value: object) -> None:
    """Write JSON that is good to read and to compare."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_prompts(path: Path, problems: Sequence[Problem], prefix: str) -> None:
    """Write prompts as lines of ``id``, ``prompt``, ``answer`` (the number), ``group``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for number, problem in enumerate(problems):
            line = {
                "id": f"{prefix}/{number:04d}",
                "prompt": problem.prompt,
                "answer": str(problem.result),
                "group": problem.group,
            }
            file.write(json.dumps(line) + "\n")


def hash_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return sha256(path.read_bytes()).hexdigest()
