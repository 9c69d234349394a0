"""A machine with a GPU, tried in under ten minutes: python -m engine.bench.device

Runs ``pytest tests/gpu``, then times steps of models with the sizes of published ones and random weights, at batch 1, 8
and 32, beside the time that the machine's own limits leave:

- *bytes*: the weights that a step reads (of a mixture of experts those that its rows reach), and the keys and values
  of the cached blocks, over the rate at which this device copies memory;
- *operations*: the multiplications and additions of the linear layers and of attention, over the rate at which this
  device multiplies matrices in the same type.

A step cannot take less than the larger of the two, the *floor*. A *step* is one call of the model's ``forward``, as
the engine makes it: it lays out the batch, runs the network, and brings tokens and confidences to the host. Every row
of the running set is a masked one, so each step proposes a token for each of them. *graphs* is the same step as a
recorded CUDA graph (run directly on a CPU, which has none); a dash where the model cannot be recorded.

Without a CUDA device it runs on the CPU, at toy size, to show that it runs to its end; its numbers mean nothing there.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from redline_engine.models.base import Batch, Model, ModelInfo, Query, batch_of
from redline_engine.models.experts import ExpertShape, GroupedLinear, Router
from redline_engine.models.network import Network, NetworkModel, NetworkShape

ROOT = Path(__file__).parents[2]
B = 32  # block size of the checkpoints that the paper served
BATCHES = (1, 8, 32)
CACHED_BLOCKS = 16  # 512 tokens before the running set
WARM, LEAST, SECONDS = 3, 5, 3.0  # steps that are not counted; steps, and seconds, that are


@dataclass(frozen=True)
class Kind:
    """A model to time: its shape, and how many blocks are open at a time."""

    name: str
    shape: NetworkShape
    open_blocks: tuple[int, ...]

    @property
    def toy(self) -> Kind:
        """The same at a size that any CPU runs."""
        experts = self.shape.experts
        small = replace(
            self.shape, vocab_size=500, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, rotary_dim=8,
            experts=experts and replace(experts, num_experts=16, n_group=4, topk_group=2, num_experts_per_tok=4,
                                        moe_intermediate_size=32, shared_intermediate_size=32),
        )  # fmt: skip
        return replace(self, name=f"{self.name}, toy size", shape=small)


_MINI = ExpertShape(
    num_experts=256, num_experts_per_tok=8, moe_intermediate_size=512, norm_topk_prob=True, dense_layers=frozenset({0}),
    sigmoid=True, expert_bias=True, n_group=8, topk_group=4, routed_scaling_factor=2.5, shared_intermediate_size=512,
)  # fmt: skip
KINDS = (
    Kind("SDAR-8B-like", NetworkShape(151936, 4096, 12288, 36, 32, 8, 128, 1e-6, 1e6), (1, 4)),
    Kind("LLaDA2-mini-like", NetworkShape(157184, 2048, 5120, 20, 16, 4, 128, 1e-6, 6e5, 64, _MINI), (1, 2)),
)


@dataclass(frozen=True)
class Limits:
    """What a device can do: bytes moved and operations done per second."""

    bytes: float
    operations: float


def timed(work: Callable[[], Any], device: torch.device, seconds: float) -> list[float]:
    """Seconds of each of several runs, waiting for the device; the first ones are not counted."""
    taken: list[float] = []
    stop = time.perf_counter() + seconds
    for number in itertools.count():
        _wait(device)
        begin = time.perf_counter()
        work()
        _wait(device)
        if number >= WARM:
            taken.append(time.perf_counter() - begin)
        if len(taken) >= LEAST and time.perf_counter() > stop:
            return taken
    raise AssertionError


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_limits(device: torch.device, dtype: torch.dtype, seconds: float) -> Limits:
    """Copy much memory (bytes read and written count) and multiply large matrices; the best run of each."""
    large = device.type == "cuda"
    source = torch.zeros(2**30 if large else 2**24, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    side = 8192 if large else 512
    left, right = (torch.randn(side, side, dtype=dtype, device=device) for _ in range(2))
    with torch.inference_mode():
        copying = min(timed(lambda: target.copy_(source), device, seconds))
        multiplying = min(timed(lambda: left @ right, device, seconds))
    return Limits(2 * source.numel() / copying, 2 * side**3 / multiplying)


def random_model(kind: Kind, device: torch.device, dtype: torch.dtype) -> NetworkModel:
    """Random weights of the standard deviation that trained ones start from, made on the device."""
    with torch.device("meta"):
        network = Network(kind.shape)
    network = network.to(dtype).to_empty(device=device).requires_grad_(False)
    for router in [module for module in network.modules() if isinstance(module, Router)]:
        router.float()  # as it is loaded
    for parameter in network.parameters():
        if parameter.ndim == 1:
            parameter.fill_(1)
        else:
            parameter.normal_(std=0.02)
    vocabulary = kind.shape.vocab_size
    return NetworkModel(network, ModelInfo(vocabulary, vocabulary - 1, (vocabulary - 2,), B, 32768))


def states(model: Model, batch: int, open_blocks: int) -> Batch:
    """Prompts of `CACHED_BLOCKS` blocks, prefilled; then, for each, a state with masked blocks behind them."""
    generator = np.random.default_rng(0)
    pages = itertools.count()
    queries = []
    for _ in range(batch):
        prompt = generator.integers(0, model.info.vocab_size - 2, CACHED_BLOCKS * B).astype(np.int32)
        own = list(itertools.islice(pages, CACHED_BLOCKS + open_blocks))
        model.forward(batch_of(B, [Query(prompt, own[:CACHED_BLOCKS], 0, [])]))
        tokens = np.concatenate([prompt, np.full(open_blocks * B, model.info.mask_id, np.int32)])
        queries.append(Query(tokens, own, CACHED_BLOCKS, range(len(prompt), len(tokens))))
    return batch_of(B, queries)


def reached(model: NetworkModel, batch: Batch) -> list[int]:
    """Experts that a step reaches, in each layer that has a mixture."""
    found: list[int] = []
    routers = [module for module in model.network.modules() if isinstance(module, Router)]
    handles = [each.register_forward_hook(lambda _, __, said: found.append(len(said[1].unique()))) for each in routers]
    model.forward(batch)
    for handle in handles:
        handle.remove()
    return found


def floor(model: NetworkModel, limits: Limits, batch: Batch) -> tuple[float, float]:
    """Seconds that the bytes, and that the operations, of a step take at the device's limits."""
    shape, network = model.network.shape, model.network
    rows, past = batch.tokens.size, CACHED_BLOCKS * B
    linears = [module.weight for module in network.modules() if isinstance(module, nn.Linear)]
    cached = 2 * len(batch.run) * past * shape.num_key_value_heads * shape.head_dim * shape.num_hidden_layers
    moved = (sum(weight.numel() for weight in linears) + cached) * network.embed.weight.element_size()
    attention = 2 * shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim
    products = sum(weight.numel() for weight in linears) + attention * (past + int(batch.run[0]) * B)
    mixtures = [module.weight for module in network.modules() if isinstance(module, GroupedLinear)]
    if shape.experts is not None:
        for layer, experts in enumerate(reached(model, batch)):
            for weight in mixtures[2 * layer : 2 * layer + 2]:  # into the experts, and out of them
                moved += experts * _bytes(weight[0])
                products += shape.experts.num_experts_per_tok * weight[0].numel()
    return moved / limits.bytes, 2 * rows * products / limits.operations


def _with_graphs(model: NetworkModel) -> NetworkModel | None:
    """Return a model with the same weights that runs as graphs, if it can be recorded."""
    try:
        return NetworkModel(model.network, model.info, graphs=True)
    except ValueError:
        return None


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def measure(kinds: Sequence[Kind], device: torch.device, seconds: float, deadline: float) -> Iterator[str]:
    """Lines of the table; what is not begun before the deadline (of ``time.monotonic``) is named and left out."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    limits = measure_limits(device, dtype, seconds)
    yield (
        f"limits measured: {limits.bytes / 1e9:,.0f} GB/s copied, {limits.operations / 1e12:,.2f} Tflop/s in "
        f"{str(dtype).removeprefix('torch.')}"
    )
    yield ""
    yield (
        f"{'model':28}{'open':>5}{'batch':>6}{'rows':>6}{'step ms':>9}{'lowest':>8}{'graphs ms':>11}"
        f"{'bytes ms':>9}{'ops ms':>8}{'step/floor':>11}{'graphs/floor':>13}"
    )
    for kind in kinds:
        model = recorded = None
        for open_blocks, batch in itertools.product(kind.open_blocks, BATCHES):
            if time.monotonic() > deadline:
                yield f"{kind.name:28}{open_blocks:5}{batch:6}  left out: the time was over"
                continue
            if model is None:
                model = random_model(kind, device, dtype)
                recorded = _with_graphs(model)
            step = states(model, batch, open_blocks)
            taken = timed(partial(model.forward, step), device, seconds)
            of_bytes, of_operations = floor(model, limits, step)
            least = max(of_bytes, of_operations)
            graphs, over = "-", "-"
            if recorded is not None:
                replayed = timed(partial(recorded.forward, states(recorded, batch, open_blocks)), device, seconds)
                graphs, over = f"{1e3 * median(replayed):.2f}", f"{median(replayed) / least:.2f}"
            yield (
                f"{kind.name:28}{open_blocks:5}{batch:6}{batch * open_blocks * B:6}{1e3 * median(taken):9.2f}"
                f"{1e3 * min(taken):8.2f}{graphs:>11}{1e3 * of_bytes:9.3f}{1e3 * of_operations:8.3f}"
                f"{median(taken) / least:11.2f}{over:>13}"
            )
        del model, recorded
        if device.type == "cuda":
            torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests, then print the table; 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--device", default="auto", help="a PyTorch device; auto: CUDA where there is one, else the CPU"
    )
    parser.add_argument("--minutes", type=float, default=9, help="begin nothing new after this many")
    parser.add_argument("--no-tests", action="store_true", help="only the table")
    asked = parser.parse_args(arguments)
    deadline = time.monotonic() + 60 * asked.minutes
    cuda = torch.cuda.is_available()
    device = torch.device(("cuda" if cuda else "cpu") if asked.device == "auto" else asked.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}", flush=True)
    status = 0
    if not asked.no_tests:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"]
        try:
            status = subprocess.run(command, cwd=ROOT, check=False, timeout=60 * asked.minutes).returncode
        except subprocess.TimeoutExpired:
            print(f"the tests did not end within {asked.minutes:g} minutes", flush=True)
            status = 1
    toy = device.type != "cuda"
    if toy:
        print("small models on a CPU: that this runs to its end is all that its numbers show", flush=True)
    for line in measure([kind.toy if toy else kind for kind in KINDS], device, 0.05 if toy else SECONDS, deadline):
        print(line, flush=True)
    return int(status != 0)


if __name__ == "__main__":
    sys.exit(main())
