"""From a directory in the Hugging Face layout to a loaded model.

Read are ``config.json`` (`families`), the safetensors (`reading`, `keys`), and of the tokenizer and generation files
what decoding needs (`tokens`). Nothing is downloaded, no pickle is opened and no code of a checkpoint is run. Every
weight must be there and every tensor of the files be used.

Weights are read one after the other, so that loading needs little memory beside the loaded model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from redline_engine.config import ModelSpec
from redline_engine.models.families import Described, read_family
from redline_engine.models.keys import Layout, Weight, choose, join, weights_of
from redline_engine.models.memory import Load, empty_network, kept_network, plan, require
from redline_engine.models.network import NetworkModel, has_grouped_experts
from redline_engine.models.reading import TensorFiles, refuse
from redline_engine.models.surface import CheckpointError, read_config
from redline_engine.models.tokens import Facts, read_facts
from redline_engine.precision import keep_layer, shares

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Load",
    "describe",
    "load",
    "survey",
    "used_device",
    "weight_shares",
]

_HEAD = "lm_head.weight"
_UNTIE = "set tie_word_embeddings to false in config.json if the model has a head of its own, else remove that tensor"


class Checkpoint(NamedTuple):
    """What a directory says of its model; no weight is read for it."""

    directory: Path
    described: Described
    facts: Facts


class Survey(NamedTuple):
    """The tensors of a directory, from their headers, and which of them make up which weight of the network."""

    files: TensorFiles
    weights: dict[str, Weight]
    layouts: dict[str, Layout]


def describe(spec: ModelSpec) -> Checkpoint:
    """Read what a directory says of its model.

    Raises
    ------
    CheckpointError
        If a file is missing, contradicts another, or says what this engine does not implement.
    """
    directory = Path(spec.checkpoint)
    config = read_config(directory)
    described = read_family(config, directory / "config.json")
    return Checkpoint(directory, described, read_facts(spec, config, described.family, directory))


def survey(checkpoint: Checkpoint) -> Survey:
    """Find every weight among the tensors of a directory, without reading one.

    Raises
    ------
    CheckpointError
        If files or tensors are missing, left over, or of another shape; or a tied head has another one.
    """
    files = TensorFiles(checkpoint.directory)
    weights = weights_of(checkpoint.described)
    unread = {key for key in files.tensors if key.endswith("rotary_emb.inv_freq")}  # some writers keep what is computed
    unread |= {_HEAD} if checkpoint.described.tied else set()
    layouts, faults = choose(weights, {key: each.shape for key, each in files.tensors.items() if key not in unread})
    refuse(checkpoint.directory, _with_remedies(faults))
    head, embedding = files.tensors.get(_HEAD), weights["embed.weight"].shape
    if checkpoint.described.tied and head is not None and head.shape != embedding:
        fault = f"tensor {_HEAD} is {list(head.shape)}, the embedding that it is tied to {list(embedding)}; {_UNTIE}"
        refuse(head.file, [fault])
    return Survey(files, weights, layouts)


def _with_remedies(faults: list[str]) -> list[str]:
    """Say what to do about tensors that are not those of ``config.json``."""
    no_head = f"no tensor {_HEAD}"
    if no_head in faults:
        tie = "set tie_word_embeddings to true in config.json if the embedding is the head, else download it"
        faults = [f"{fault}; {tie}" if fault == no_head else fault for fault in faults]
    if any(not fault.startswith(no_head) for fault in faults):
        faults = [*faults, "weights and config.json are not of one model; download both anew, or correct config.json"]
    return faults


def load(spec: ModelSpec, use: Load | None = None) -> NetworkModel:
    """Load a model.

    Parameters
    ----------
    spec
        The model.
    use
        What it is to be used for; memory for that must be free too.

    Raises
    ------
    CheckpointError
        As `describe` and `survey`; or if it would not fit into the memory that is free, a weight is NaN or infinite or
        too large for the type of the arithmetic, a tied head is not the embedding, or CUDA graphs are asked for that
        device or model have none of.
    """
    checkpoint = describe(spec)
    files, weights, layouts = survey(checkpoint)
    device = used_device(spec)
    require_graphs(checkpoint, spec, device)
    require(plan(checkpoint.described, spec, use), checkpoint.directory, device)
    network = empty_network(checkpoint.described, spec)
    keep = spec.weights if spec.weights != spec.dtype else None
    with files.reader(device) as read:
        for name, weight in weights.items():
            path, _, own = name.rpartition(".")
            module = network.get_submodule(path)
            whole = join(weight, layouts[name], partial(read, module.get_parameter(own).dtype))
            setattr(module, own, torch.nn.Parameter(whole, requires_grad=False))
            if name == "embed.weight" and checkpoint.described.tied:
                _refuse_another_head(files, read, whole)
            if keep:
                keep_layer(network, path, keep)
    if checkpoint.described.tied:
        network.head.weight = network.embed.weight
    model = NetworkModel(network, checkpoint.facts.info, graphs=spec.cuda_graphs)
    if use is not None:
        model.reserve(use.block_size, use.pages)
    return model


def _refuse_another_head(files: TensorFiles, read: Callable[[torch.dtype, str], Tensor], embedding: Tensor) -> None:
    """Refuse a head of its own in a tied model; some writers keep the tied copy, which is none."""
    if _HEAD in files.tensors and not torch.equal(read(embedding.dtype, _HEAD), embedding):
        refuse(files.tensors[_HEAD].file, [f"tensor {_HEAD} differs from the embedding that it is tied to; {_UNTIE}"])


def require_graphs(checkpoint: Checkpoint, spec: ModelSpec, device: str) -> None:
    """Refuse CUDA graphs, if asked for, that device or model have none of; no weight is read.

    Raises
    ------
    CheckpointError
        The device is no CUDA device, or the experts are multiplied one by one there. On a machine without a CUDA
        device, which plans for another, only experts that are kept in fewer bits are known to be.
    """
    if not spec.cuda_graphs:
        return
    if not device.startswith("cuda"):
        raise CheckpointError(f"{checkpoint.directory}: cuda_graphs needs a CUDA device, not {device}; leave it out")
    kind = "cuda" if torch.cuda.is_available() else None
    if not has_grouped_experts(kept_network(checkpoint.described, spec), kind):
        one_by_one = "its experts are multiplied one by one on this device"
        raise CheckpointError(f"{checkpoint.directory}: cuda_graphs cannot be used: {one_by_one}")


def weight_shares(spec: ModelSpec) -> dict[str, float]:
    """Share of bytes that each precision takes in the loaded model, by its name; no weight is read.

    Raises
    ------
    CheckpointError
        If ``config.json`` cannot be read or says what this engine does not implement.
    """
    directory = Path(spec.checkpoint)
    return shares(kept_network(read_family(read_config(directory), directory / "config.json"), spec))


def used_device(spec: ModelSpec) -> str:
    """Name of the device that a spec means."""
    return spec.device if spec.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
