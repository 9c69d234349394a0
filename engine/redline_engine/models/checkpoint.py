"""From a directory in the Hugging Face layout to a loaded SDAR model.

Read are ``config.json`` (shape), ``model.safetensors`` or the shards that ``model.safetensors.index.json`` names,
``generation_config.json`` (end tokens) and ``tokenizer.json`` (how many ids are real, and which is the mask). Nothing
is downloaded and no code of a checkpoint is run. Every weight must be there and every tensor of the file be used.

What SDAR's published checkpoints do not say in ``config.json``, the block size and the mask token, is taken from
`ModelSpec` first, then from the keys ``block_size`` and ``mask_token_id``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from redline_engine.config import ModelSpec
from redline_engine.models.base import ModelInfo
from redline_engine.models.sdar import SdarModel, SdarNetwork, SdarShape
from redline_engine.precision import WeightsError, keep_linears, shares

_MODEL_TYPES = ("sdar", "qwen3")
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_MASK_TOKENS = ("<|MASK|>", "<|mask|>", "<mask>", "[MASK]")


class CheckpointError(ValueError):
    """A directory that does not hold a model this engine can run; the text names file and fault."""


def load(spec: ModelSpec) -> SdarModel:
    """Load a model.

    Raises
    ------
    CheckpointError
        If a file is missing or says what this engine does not implement, or if weights are missing or left over or
        cannot be kept in the precision asked for.
    """
    directory = Path(spec.checkpoint)
    config = _read(directory / "config.json")
    shape = read_shape(config, directory / "config.json")
    info = read_info(spec, config, directory)
    device = spec.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device("meta"):
        network = SdarNetwork(shape)
    weights = _weights(directory, shape, _tied(config), device, _DTYPES[spec.dtype])
    network.load_state_dict(weights, strict=True, assign=True)
    try:
        _keep(network.requires_grad_(False), spec, config)
    except WeightsError as error:
        raise CheckpointError(f"{directory}: {error}") from error
    return SdarModel(network, info)


def weight_shares(spec: ModelSpec) -> dict[str, float]:
    """Share of bytes that each precision takes in the loaded model, by its name; no weight is read.

    Raises
    ------
    CheckpointError
        If ``config.json`` cannot be read or says what this engine does not implement.
    """
    path = Path(spec.checkpoint) / "config.json"
    config = _read(path)
    with torch.device("meta"):
        network = SdarNetwork(read_shape(config, path)).to(_DTYPES[spec.dtype])
    _keep(network, spec, config)
    return shares(network)


def _tied(config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", False))


def _keep(network: SdarNetwork, spec: ModelSpec, config: Mapping[str, Any]) -> None:
    """Make a tied head the embedding itself, and keep the other linear layers as `spec` says."""
    if _tied(config):
        network.head.weight = network.embed.weight
    if spec.weights not in (None, spec.dtype):
        keep_linears(network, spec.weights, network.embed.weight)


def read_shape(config: Mapping[str, Any], path: Path) -> SdarShape:
    """Read the network's shape, and refuse what would change its arithmetic."""
    rope = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or {}
    kinds = {each.get("rope_type", each.get("type", "default")) for each in (rope, scaling)}
    faults = [
        fault
        for fault, found in (
            (f"model_type {config.get('model_type')!r}; known are {', '.join(_MODEL_TYPES)}",
             config.get("model_type") not in _MODEL_TYPES),
            (f"hidden_act {config.get('hidden_act')!r}; only silu is implemented", config.get("hidden_act") != "silu"),
            ("attention_bias; only false is implemented", config.get("attention_bias", False)),
            ("use_sliding_window; only false is implemented", config.get("use_sliding_window", False)),
            (f"rotary scaling {sorted(kinds - {'default'})}; none is implemented", kinds != {"default"}),
        )
        if found
    ]  # fmt: skip
    values = {
        "vocab_size": config.get("vocab_size"),
        "hidden_size": config.get("hidden_size"),
        "intermediate_size": config.get("intermediate_size"),
        "num_hidden_layers": config.get("num_hidden_layers"),
        "num_attention_heads": config.get("num_attention_heads"),
        "num_key_value_heads": config.get("num_key_value_heads"),
        "head_dim": config.get("head_dim"),
        "rms_norm_eps": config.get("rms_norm_eps"),
        "rope_theta": config.get("rope_theta", rope.get("rope_theta")),
    }
    faults += [f"no {name}" for name, value in values.items() if value is None]
    if faults:
        raise CheckpointError("\n".join(f"{path}: {fault}" for fault in faults))
    return SdarShape(**values)


def read_info(spec: ModelSpec, config: Mapping[str, Any], directory: Path) -> ModelInfo:
    """Read the facts that decoding needs; what `spec` gives goes first."""
    generation = _read(directory / "generation_config.json", optional=True)
    vocabulary = _vocabulary(_read(directory / "tokenizer.json", optional=True))
    vocab_size = min(int(config["vocab_size"]), max(vocabulary.values(), default=int(config["vocab_size"]) - 1) + 1)
    mask_id = spec.mask_id if spec.mask_id is not None else config.get("mask_token_id")
    if mask_id is None:
        mask_id = next((vocabulary[token] for token in _MASK_TOKENS if token in vocabulary), None)
    block_size = spec.block_size if spec.block_size is not None else config.get("block_size")
    end_ids = spec.end_ids
    if end_ids is None:
        found = generation.get("eos_token_id", config.get("eos_token_id"))
        end_ids = tuple(found) if isinstance(found, list) else () if found is None else (found,)
    faults = []
    if block_size is None:
        faults.append("no block_size; give it in the model's spec")
    if mask_id is None or not 0 <= mask_id < vocab_size:
        faults.append(f"mask token {mask_id} is not one of {vocab_size} ids; give mask_id in the model's spec")
    if not end_ids or not all(0 <= token < vocab_size and token != mask_id for token in end_ids):
        faults.append(f"end tokens {list(end_ids)} are none, or not among {vocab_size} ids; give end_ids in the spec")
    if faults:
        raise CheckpointError("\n".join(f"{directory / 'config.json'}: {fault}" for fault in faults))
    assert mask_id is not None
    assert block_size is not None
    return ModelInfo(vocab_size, mask_id, end_ids, block_size, int(config.get("max_position_embeddings", 32768)))


def _vocabulary(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Token to id, of a ``tokenizer.json`` whose model keeps its vocabulary as a map; added tokens included."""
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    named = dict(vocabulary) if isinstance(vocabulary, dict) else {}
    return named | {each["content"]: each["id"] for each in tokenizer.get("added_tokens", [])}


def _sources(shape: SdarShape, tied: bool) -> dict[str, list[str]]:
    """Name of each weight of the network, and the checkpoint's tensors that are stacked to make it."""
    sources = {
        "embed.weight": ["model.embed_tokens.weight"],
        "norm.weight": ["model.norm.weight"],
        "head.weight": ["model.embed_tokens.weight" if tied else "lm_head.weight"],
    }
    for number in range(shape.num_hidden_layers):
        here, there = f"layers.{number}", f"model.layers.{number}"
        sources |= {
            f"{here}.attention_norm.weight": [f"{there}.input_layernorm.weight"],
            f"{here}.attention.qkv.weight": [f"{there}.self_attn.{part}_proj.weight" for part in "qkv"],
            f"{here}.attention.q_norm.weight": [f"{there}.self_attn.q_norm.weight"],
            f"{here}.attention.k_norm.weight": [f"{there}.self_attn.k_norm.weight"],
            f"{here}.attention.out.weight": [f"{there}.self_attn.o_proj.weight"],
            f"{here}.mlp_norm.weight": [f"{there}.post_attention_layernorm.weight"],
            f"{here}.gate_up.weight": [f"{there}.mlp.gate_proj.weight", f"{there}.mlp.up_proj.weight"],
            f"{here}.down.weight": [f"{there}.mlp.down_proj.weight"],
        }
    return sources


def _weights(directory: Path, shape: SdarShape, tied: bool, device: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Read the weights under the network's names."""
    index = directory / "model.safetensors.index.json"
    names = sorted(set(_read(index)["weight_map"].values())) if index.exists() else ["model.safetensors"]
    found: dict[str, Tensor] = {}
    for name in names:
        if not (directory / name).exists():
            raise CheckpointError(f"{directory / name}: no such file")
        with safe_open(directory / name, framework="pt", device=device) as file:
            found |= {key: file.get_tensor(key).to(dtype) for key in file.keys()}  # noqa: SIM118
    sources = _sources(shape, tied)
    needed = {key for keys in sources.values() for key in keys}
    spare = {"lm_head.weight"} if tied else set()  # some writers keep the tied copy
    faults = [f"no tensor {key}" for key in sorted(needed - set(found))]
    faults += [f"unknown tensor {key}" for key in sorted(set(found) - needed - spare)]
    if faults:
        raise CheckpointError("\n".join(f"{directory}: {fault}" for fault in faults))
    return {
        name: found[keys[0]] if len(keys) == 1 else torch.cat([found[key] for key in keys])
        for name, keys in sources.items()
    }


def _read(path: Path, optional: bool = False) -> Any:
    if optional and not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: is not JSON ({error})") from error
