"""How much memory a model takes, known before a weight is read, and what to do if there is not so much.

Weights are counted exactly. The rest is an estimate of what a load can need at most: every prompt of a batch alive at
its full length, on one path (configurations that part from each other keep pages of their own beyond it), and the
intermediate results of one step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from redline_engine.config import ModelSpec
from redline_engine.models.families import Described
from redline_engine.models.keys import weights_of
from redline_engine.models.network import LOGITS_AT_ONCE, Network, NetworkShape
from redline_engine.models.surface import CheckpointError
from redline_engine.precision import held_bytes, keep_linears
from redline_engine.states import node_bytes

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_GROWTH = 2  # an array that grows is copied: for a moment both are there
_KEY = 130  # bytes that finding a node by its key takes
_GIB = 2**30


@dataclass(frozen=True)
class Load:
    """What a model is to be used for.

    Parameters
    ----------
    batch_size
        Of the engine: most prompts alive.
    prompt_tokens, new_tokens
        Of the longest prompt, and most tokens of a reply.
    block_size, buffer_size
        Largest among the configurations.
    """

    batch_size: int
    prompt_tokens: int
    new_tokens: int
    block_size: int
    buffer_size: int = 4

    @property
    def positions(self) -> int:
        """Positions of one prompt at its full length."""
        return math.ceil((self.prompt_tokens + self.new_tokens) / self.block_size) * self.block_size

    @property
    def pages(self) -> int:
        """Blocks of a batch: of each prompt one path, and those with masks of this step and the one before."""
        return self.batch_size * (self.positions // self.block_size + 2 * self.buffer_size)

    @property
    def rows(self) -> int:
        """Most rows that one prompt has in a step: its prefill, or its open blocks."""
        return max(math.ceil(self.prompt_tokens / self.block_size), self.buffer_size + 1) * self.block_size


class Plan(NamedTuple):
    """Bytes.

    Parameters
    ----------
    weights
        Of the loaded model.
    loading
        Beside the weights read so far, while one more is put together.
    position
        Keys and values of one position.
    cache, states, working
        Keys and values of a batch; answers that are remembered; intermediate results of a step.
    """

    weights: int
    loading: int
    position: int
    cache: int
    states: int
    working: int

    def total(self, device: str) -> int:
        """Most that is taken of a device's memory at one time; answers are remembered in that of the host."""
        states = self.states if device == "cpu" else 0
        return self.weights + max(self.loading, self.cache + states + self.working)


def empty_network(described: Described, spec: ModelSpec) -> Network:
    """Build the network without memory for its weights, routers in float32 and all else in the type of the spec."""
    with torch.device("meta"):
        network = Network(described.shape)
    for name, parameter in network.named_parameters():
        if ".router." not in name:
            parameter.data = parameter.data.to(_DTYPES[spec.dtype])
    return network.requires_grad_(False)


def kept_network(described: Described, spec: ModelSpec) -> Network:
    """Build the network as it is when loaded, without memory for its weights."""
    network = empty_network(described, spec)
    if described.tied:
        network.head.weight = network.embed.weight
    if spec.weights not in (None, spec.dtype):
        keep_linears(network, spec.weights, network.embed.weight)
    return network


def plan(described: Described, spec: ModelSpec, load: Load | None = None) -> Plan:
    """Plan the memory of a model and a load."""
    shape, size = described.shape, _DTYPES[spec.dtype].itemsize
    weights = held_bytes(kept_network(described, spec)).total()
    largest = max(math.prod(weight.shape) for weight in weights_of(described).values())
    position = shape.num_hidden_layers * 2 * shape.num_key_value_heads * shape.head_dim * size
    if load is None:
        return Plan(weights, 2 * largest * size, position, 0, 0, 0)
    batch = load.batch_size
    cache = load.pages * load.block_size * position
    forwards = load.new_tokens + 1  # at worst one token each
    nodes = batch * (load.positions // load.block_size + forwards * load.buffer_size)
    states = nodes * (_GROWTH * node_bytes(load.block_size) + _KEY)
    rows = batch * load.rows * _row_bytes(shape, size)
    attended = 2 * batch * load.positions * (position // shape.num_hidden_layers)
    if spec.cuda_graphs:
        attended *= 4  # queries and cached blocks are each rounded up to powers of two
    logits = min(LOGITS_AT_ONCE, batch * load.buffer_size * load.block_size * shape.vocab_size) * (size + 8)
    return Plan(weights, 2 * largest * size, position, _GROWTH * cache, states, max(rows + attended, logits))


def _row_bytes(shape: NetworkShape, size: int) -> int:
    """Bytes of the intermediate results of one row in the layer that has most of them."""
    heads = (shape.num_attention_heads + 2 * shape.num_key_value_heads) * shape.head_dim
    inner = 3 * shape.intermediate_size
    if shape.experts is not None:
        experts = shape.experts
        each = 2 * shape.hidden_size + 3 * experts.moe_intermediate_size
        inner = max(inner, experts.num_experts_per_tok * each + 3 * experts.shared_intermediate_size)
    return size * (3 * shape.hidden_size + max(3 * heads, inner))


def free_memory(device: str) -> int | None:
    """Bytes that this process can still take on a device, its unused reserve included; None where none can tell."""
    if device.startswith("cuda"):
        if not torch.cuda.is_available():
            return None  # another machine's memory may be planned here
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device != "cpu":
        return None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
    return min([free, *_group_limit()])


def _group_limit() -> list[int]:
    """What the control group of a container leaves, where it says so; file pages that can be dropped are not taken."""
    group = Path("/sys/fs/cgroup")
    second, first = ("memory.max", "memory.current", ""), ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
    for folder, (most, taken, prefix) in ((group, second), (group / "memory", first)):
        try:
            lines = (folder / "memory.stat").read_text(encoding="ascii").splitlines()
            dropped = sum(int(line.split()[1]) for line in lines if line.startswith(f"{prefix}inactive_file "))
            return [int((folder / most).read_text()) - int((folder / taken).read_text()) + dropped]
        except (OSError, ValueError, IndexError):
            continue
    return []


def require(planned: Plan, directory: Path, device: str) -> None:
    """Refuse a load that does not fit.

    Raises
    ------
    CheckpointError
        With the numbers, and which smaller settings would help.
    """
    free, needed = free_memory(device), planned.total(device)
    if free is None or needed <= free:
        return
    names = ("weights", "loading", "cache", "states", "working")
    parts = ", ".join(f"{name} {getattr(planned, name) / _GIB:.2f}" for name in names)
    room = free - planned.weights
    if room < planned.loading or not planned.cache:
        remedy = "keep weights in fewer bits (weights: int8 or int4), or dtype: bfloat16"
    else:
        share = room / (needed - planned.weights)
        remedy = f"lower batch_size to {100 * share:.0f} % of what it is, or max_new_tokens"
    raise CheckpointError(
        f"{directory}: needs {needed / _GIB:.2f} GiB on {device}, where {free / _GIB:.2f} are free ({parts}); {remedy}"
    )
