"""Tiny random chat checkpoints of the families, as their authors publish them; needs torch and tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from live_gate import LETTERS
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from redline_engine.models.families import read_family
from redline_engine.models.keys import weights_of

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "sdar": {"model_type": "sdar", "tie_word_embeddings": True},
    "sdar_moe": {"model_type": "sdar_moe", "decoder_sparse_step": 1, "mlp_only_layers": []},
    "llada2": {
        "model_type": "llada2_moe",
        "n_group": 4,
        "topk_group": 2,
        "num_shared_experts": 1,
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.5,
        "partial_rotary_factor": 0.5,
    },
}
CONTROL = {
    "sdar": ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|MASK|>"),
    "llada2": ("<|endoftext|>", "<role>", "</role>", "<|role_end|>", "<|mask|>"),
}


def write_chat_checkpoint(directory: Path, family: str, seed: int = 0, chat: bool = True) -> None:
    """Write a checkpoint; its files say neither mask nor block size, as the published ones."""
    directory.mkdir(parents=True)
    control = CONTROL["llada2" if family == "llada2" else "sdar"]
    tokenizer = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(LETTERS)}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in control])
    tokenizer.save(str(directory / "tokenizer.json"))
    size = tokenizer.get_vocab_size()
    config = {**SHAPE, **FAMILIES[family], "vocab_size": size + 5, "eos_token_id": tokenizer.token_to_id(control[0])}
    (directory / "config.json").write_text(json.dumps(config))
    if chat:
        (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        key: torch.randn(shape, generator=generator) * 0.3 + (1.0 if "norm" in key else 0.0)
        for weight in weights_of(read_family(config, directory)).values()
        for key, shape in weight.layouts[0].pieces.items()
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
