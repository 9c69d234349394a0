"""From a directory in the Hugging Face layout to a loaded model.

Read are ``config.json`` (`families`), the safetensors (`reading`, `keys`), and of the tokenizer and generation files
what decoding needs (`tokens`). Nothing is downloaded, no pickle is opened and no code of a checkpoint is run. Every
weight must be there and every tensor of the files be used.

Weights are read one after the other, so that loading needs little memory beside the loaded model.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from redline_engine.config import ModelSpec
from redline_engine.models.families import Described, read_family
from redline_engine.models.keys import choose, join, weights_of
from redline_engine.models.reading import TensorFiles, refuse
from redline_engine.models.sdar import SdarModel, SdarNetwork
from redline_engine.models.surface import CheckpointError, read_json
from redline_engine.models.tokens import Facts, read_facts
from redline_engine.precision import WeightsError, keep_linears, shares

__all__ = ["Checkpoint", "CheckpointError", "describe", "load", "weight_shares"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Checkpoint(NamedTuple):
    """What a directory says of its model; no weight is read for it."""

    directory: Path
    described: Described
    facts: Facts


def describe(spec: ModelSpec) -> Checkpoint:
    """Read what a directory says of its model.

    Raises
    ------
    CheckpointError
        If a file is missing, contradicts another, or says what this engine does not implement.
    """
    directory = Path(spec.checkpoint)
    path = directory / "config.json"
    config = read_json(path)
    described = read_family(config, path)
    return Checkpoint(directory, described, read_facts(spec, config, described.family, directory))


def load(spec: ModelSpec) -> SdarModel:
    """Load a model.

    Raises
    ------
    CheckpointError
        As `describe`; or if weights are missing, left over, of another shape, or cannot be kept in the precision asked
        for.
    """
    directory, described, facts = describe(spec)
    device = spec.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    network = _empty(described, spec)
    files = TensorFiles(directory)
    weights = weights_of(described)
    unread = {key for key in files.tensors if key.endswith("rotary_emb.inv_freq")}  # some writers keep what is computed
    unread |= {"lm_head.weight"} if described.tied else set()  # some writers keep the tied copy
    present = {key: each.shape for key, each in files.tensors.items() if key not in unread}
    chosen, faults = choose(weights, present)
    refuse(directory, faults)
    with files.reader(device) as read:
        for name, weight in weights.items():
            path, _, own = name.rpartition(".")
            module = network.get_submodule(path)
            whole = join(weight, chosen[name], partial(read, module.get_parameter(own).dtype))
            setattr(module, own, torch.nn.Parameter(whole, requires_grad=False))
    try:
        _keep(network, spec, described.tied)
    except WeightsError as error:
        raise CheckpointError(f"{directory}: {error}") from error
    return SdarModel(network, facts.info)


def weight_shares(spec: ModelSpec) -> dict[str, float]:
    """Share of bytes that each precision takes in the loaded model, by its name; no weight is read.

    Raises
    ------
    CheckpointError
        If ``config.json`` cannot be read or says what this engine does not implement.
    """
    path = Path(spec.checkpoint) / "config.json"
    described = read_family(read_json(path), path)
    network = _empty(described, spec)
    _keep(network, spec, described.tied)
    return shares(network)


def _empty(described: Described, spec: ModelSpec) -> SdarNetwork:
    """Build the network without memory for its weights, routers in float32 and all else in the type of the spec."""
    with torch.device("meta"):
        network = SdarNetwork(described.shape)
    for name, parameter in network.named_parameters():
        if ".router." not in name:
            parameter.data = parameter.data.to(_DTYPES[spec.dtype])
    return network.requires_grad_(False)


def _keep(network: SdarNetwork, spec: ModelSpec, tied: bool) -> None:
    """Make a tied head the embedding itself, and keep the other linear layers as `spec` says."""
    if tied:
        network.head.weight = network.embed.weight
    if spec.weights not in (None, spec.dtype):
        keep_linears(network, spec.weights, network.embed.weight)
