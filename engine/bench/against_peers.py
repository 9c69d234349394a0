"""Speed beside independent code, and where a step's time goes: python -m engine.bench.against_peers

Four ways of decoding the bundled prompts with the bundled checkpoint, all block by block, greedy, in float32 on the
CPU, alternating within one run:

- the engine, many prompts at a time;
- the engine, one prompt at a time;
- diffusers' ``LLaDA2Pipeline`` over transformers' ``Qwen3ForCausalLM``, one prompt at a time: it takes prompts of one
  length only, and computes the whole sequence in every forward;
- a plain loop over the same ``Qwen3ForCausalLM`` that caches the blocks it has finished, one prompt at a time.

Printed are medians over the repeats, how many replies equal the engine's, and the time of the engine's steps by part
beside the rate at which this machine multiplies matrices of the same shapes. Times of single parts are *exclusive*:
what a part spends in another one is counted there only. Needs the extras ``engine`` and ``test-engine``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

import diffusers
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from redline_engine.config import DecodeKnobs, ModelSpec
from redline_engine.engine import Engine
from redline_engine.models import network
from redline_engine.models.checkpoint import load
from redline_engine.models.network import NetworkModel
from redline_engine.request import Prompt
from redline_engine.walker import Walkers

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHECKPOINT = FIXTURES / "checkpoints" / "arithmetic"
PROMPTS = FIXTURES / "prompts" / "arithmetic.jsonl"

THRESHOLD = 0.95
NEW_TOKENS = 96
KNOBS = DecodeKnobs(buffer_size=1, accept_threshold=THRESHOLD, max_new_tokens=NEW_TOKENS)
GOAL_BATCHED, GOAL_SINGLE = 60.0, 6.0

Replies = list[list[int]]


class Run(NamedTuple):
    """One way of decoding, once: replies cut behind the end token, forwards of all prompts, wall time."""

    replies: Replies
    forwards: int
    seconds: float

    @property
    def tokens(self) -> int:
        """Reply tokens, end tokens included."""
        return sum(map(len, self.replies))


class Peer(nn.Module):
    """transformers' Qwen3 with the bundled weights; counts its forwards."""

    def __init__(self, model: NetworkModel) -> None:
        super().__init__()
        values = json.loads((CHECKPOINT / "config.json").read_text(encoding="utf-8"))
        names = (
            "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads "
            "head_dim rms_norm_eps max_position_embeddings tie_word_embeddings"
        )
        config = transformers.Qwen3Config(
            **{name: values[name] for name in names.split()},
            rope_parameters={"rope_type": "default", "rope_theta": values["rope_theta"]},
            attn_implementation="sdpa",
        )
        self.info = model.info
        self.qwen3 = transformers.Qwen3ForCausalLM(config).eval()
        missing, unknown = self.qwen3.load_state_dict(load_file(CHECKPOINT / "model.safetensors"), strict=False)
        if unknown or set(missing) - {"lm_head.weight"}:
            raise ValueError(f"{CHECKPOINT}: tensors {missing} are missing, {unknown} are unknown")
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.calls = 0
        block = torch.arange(self.info.max_positions) // self.info.block_size
        self.bias = torch.zeros(len(block), len(block)).masked_fill(block > block[:, None], -torch.inf)[None, None]

    def ask(self, tokens: Tensor, start: int = 0, cache: Any = None) -> Tensor:
        """Logits ``[1, T, V]`` of tokens ``[1, T]`` at positions from `start` on; the cache is extended by them."""
        self.calls += 1
        end = start + tokens.shape[1]
        output = self.qwen3(
            tokens,
            attention_mask=self.bias[:, :, start:end, :end],
            position_ids=torch.arange(start, end)[None],
            past_key_values=cache,
            use_cache=cache is not None,
        )
        logits: Tensor = output.logits
        logits[:, :, self.info.mask_id] = torch.finfo(logits.dtype).min
        logits[:, :, self.info.vocab_size :] = torch.finfo(logits.dtype).min
        return logits

    def forward(self, tokens: Tensor, attention_mask: Tensor, position_ids: Tensor) -> SimpleNamespace:
        """As the pipeline calls a model; it computes no block mask and keeps no cache."""
        return SimpleNamespace(logits=self.ask(tokens))


def decode_engine(model: NetworkModel, prompts: Sequence[list[int]], batch_size: int) -> Run:
    """Decode with the engine; forwards are those that the replies are charged."""
    begin = time.perf_counter()
    engine = Engine(model, batch_size)
    (row,) = engine.generate([Prompt(str(number), prompt) for number, prompt in enumerate(prompts)], [KNOBS])
    seconds = time.perf_counter() - begin
    return Run([list(reply.tokens) for reply in row], engine.counts.forwards_charged, seconds)


def decode_pipeline(peer: Peer, prompts: Sequence[list[int]]) -> Run:
    """Decode with diffusers' pipeline, prompt by prompt."""
    info = peer.info
    (end,) = info.end_ids
    pipeline = diffusers.LLaDA2Pipeline(peer, diffusers.BlockRefinementScheduler(block_length=info.block_size))
    pipeline.set_progress_bar_config(disable=True)
    replies, before, begin = [], peer.calls, time.perf_counter()
    for prompt in prompts:
        made = pipeline(
            input_ids=torch.tensor([prompt]),
            gen_length=NEW_TOKENS,
            block_length=info.block_size,
            num_inference_steps=info.block_size,
            threshold=THRESHOLD,
            editing_threshold=None,
            sampling_method="greedy",
            eos_token_id=end,
            mask_token_id=info.mask_id,
            output_type="seq",
        )
        replies.append(_cut(made.sequences[0].tolist(), end))
    return Run(replies, peer.calls - before, time.perf_counter() - begin)


@torch.inference_mode()
def decode_loop(peer: Peer, prompts: Sequence[list[int]]) -> Run:
    """Decode one block after the other, prompt by prompt, with a cache of the finished blocks."""
    before, begin = peer.calls, time.perf_counter()
    replies = [_loop(peer, prompt) for prompt in prompts]
    return Run(replies, peer.calls - before, time.perf_counter() - begin)


def _loop(peer: Peer, prompt: list[int]) -> list[int]:
    size, mask, (end,) = peer.info.block_size, peer.info.mask_id, peer.info.end_ids
    limit = len(prompt) + NEW_TOKENS
    tokens = torch.full((1, -(-limit // size) * size), mask)
    tokens[0, : len(prompt)] = torch.tensor(prompt)
    cache = transformers.DynamicCache()
    start = len(prompt) // size * size
    if start:
        peer.ask(tokens[:, :start], 0, cache)
    while start < tokens.shape[1]:
        block = tokens[0, start : start + size]  # a view
        while True:
            masked = block == mask
            if not masked.any():
                break
            probability, best = peer.ask(block[None], start, cache)[0].softmax(dim=1).max(dim=1)
            cache.crop(-size)  # the block was not finished: its keys and values are stale
            probability = probability.where(masked, -1.0)
            takes = probability > THRESHOLD
            takes[probability.argmax()] = True
            block[takes] = best[takes]
            reply = tokens[0, len(prompt) : limit].tolist()
            if end in reply and mask not in reply[: reply.index(end)]:
                return _cut(reply, end)
        if start + size < tokens.shape[1]:
            peer.ask(block[None], start, cache)
        start += size
    return _cut(tokens[0, len(prompt) : limit].tolist(), end)


def _cut(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


class Split:
    """Exclusive time of the parts of a run, operations of its linear layers, rows of its forwards."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.flops = self.rows = 0
        self._parts = ["engine: states, queries, replies"]
        self._since = time.perf_counter()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count what happens inside as `name`."""
        self._charge()
        self._parts.append(name)
        try:
            yield
        finally:
            self._charge()
            self._parts.pop()

    def _charge(self) -> None:
        now = time.perf_counter()
        self.seconds[self._parts[-1]] += now - self._since
        self._since = now

    @contextmanager
    def watch(self, owner: Any, name: str, part: str, flops: int = 0) -> Iterator[None]:
        """Count calls of an attribute of `owner` as `part`, and so many operations for each row of their first input.

        For as long as the context lasts.
        """
        inner: Callable[..., Any] = getattr(owner, name)
        own = name in vars(owner)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if flops:
                self.flops += flops * len(args[0])
            with self.part(part):
                return inner(*args, **kwargs)

        setattr(owner, name, timed)
        try:
            yield
        finally:
            if own:
                setattr(owner, name, inner)
            else:
                delattr(owner, name)

    def count_rows(self, embedding: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        """Count the rows that enter a forward, as a hook before the embedding."""
        self.rows += inputs[0].shape[0]


def split_time(model: NetworkModel, prompts: Sequence[list[int]], batch_size: int) -> tuple[Split, int]:
    """Decode once with every part timed; returns the times and the number of model calls."""
    linears = [module for module in model.network.modules() if isinstance(module, nn.Linear)]
    engine = Engine(model, batch_size)
    submitted = [Prompt(str(number), prompt) for number, prompt in enumerate(prompts)]
    split = Split()
    with ExitStack() as stack:
        for owner, name, part in [
            (nn.functional, "scaled_dot_product_attention", "attention: kernel"),
            *((layer.attention, "forward", "attention: pages, rotation, norms") for layer in model.network.layers),
            (model, "forward", "network: MLP activation, norms, residuals, answers"),
            (network, "pack", "packing the batch"),
            (network, "propose", "proposals: tokens and confidences"),
            (Walkers, "advance", "acceptance and walkers"),
        ]:
            stack.enter_context(split.watch(owner, name, part))
        for linear in linears:
            flops = 2 * linear.in_features * linear.out_features
            for name in ("forward", "add") if hasattr(linear, "add") else ("forward",):
                stack.enter_context(split.watch(linear, name, "linear layers (matmuls)", flops))
        stack.callback(model.network.embed.register_forward_pre_hook(split.count_rows).remove)
        with split.part("engine: states, queries, replies"):
            engine.generate(submitted, [KNOBS])
    return split, engine.counts.model_calls


def matmul_rate(model: NetworkModel, rows: int, seconds: float = 0.5) -> float:
    """Measure multiplications and additions per second of plain matmuls ``[rows, in] @ [in, out]``, layer by layer."""
    linears = [module for module in model.network.modules() if isinstance(module, nn.Linear)]
    pairs = [(torch.randn(rows, each.in_features), each.weight.detach().float()) for each in linears]
    flops = sum(2 * rows * weight.numel() for _, weight in pairs)
    best, stop = float("inf"), time.perf_counter() + seconds
    with torch.inference_mode():
        while time.perf_counter() < stop:
            begin = time.perf_counter()
            for left, weight in pairs:
                left @ weight.T
            best = min(best, time.perf_counter() - begin)
    return flops / best


def read_prompts(count: int) -> tuple[Tokenizer, list[list[int]]]:
    """Token ids of `count` of the bundled prompts, evenly spread over the file."""
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    lines = PROMPTS.read_text(encoding="utf-8").splitlines()
    chosen = [json.loads(line)["prompt"] for line in lines[:: len(lines) // count][:count]]
    return tokenizer, [encoding.ids for encoding in tokenizer.encode_batch(chosen)]


def compare(
    model: NetworkModel, tokenizer: Tokenizer, prompts: list[list[int]], few: int, batch_size: int, repeats: int
) -> None:
    """Print the table of the four ways; those that decode one prompt at a time get `few` of the prompts."""
    peer = Peer(model)
    stride = len(prompts) // few
    some = prompts[::stride][:few]
    batched, single = f"engine, batch {batch_size}", "engine, batch 1"
    pipeline, loop = "LLaDA2Pipeline, one by one", "plain cached loop, one by one"
    ways: dict[str, Callable[[], Run]] = {
        batched: lambda: decode_engine(model, prompts, batch_size),
        pipeline: lambda: decode_pipeline(peer, some),
        single: lambda: decode_engine(model, some, 1),
        loop: lambda: decode_loop(peer, some),
    }
    for warm in (decode_pipeline, decode_loop):
        warm(peer, some[:1])
    decode_engine(model, prompts[:few], batch_size)
    runs: dict[str, list[Run]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            runs[name].append(way())

    ours = [tokenizer.decode(reply) for reply in runs[batched][0].replies[::stride][:few]]
    print(f"{'':32}{'tokens/s':>10}{'lowest':>9}{'highest':>9}{'tokens/forward':>16}{'prompts':>9}{'equal texts':>13}")
    for name, made in runs.items():
        rates = sorted(run.tokens / run.seconds for run in made)
        replies = made[0].replies if name != batched else made[-1].replies[::stride][:few]
        equal = sum(tokenizer.decode(reply) == text for reply, text in zip(replies, ours, strict=True))
        print(
            f"{name:32}{median(rates):10.0f}{rates[0]:9.0f}{rates[-1]:9.0f}"
            f"{made[0].tokens / made[0].forwards:16.2f}{len(made[0].replies):9}{equal:>10}/{few}"
        )
    print()
    print(f"{'ratio of tokens/s, same repeat':52}{'median':>8}{'lowest':>9}{'highest':>9}{'goal':>7}")
    for above, below, goal in [
        (batched, pipeline, GOAL_BATCHED),
        (single, pipeline, GOAL_SINGLE),
        (single, loop, None),
        (batched, loop, None),
    ]:
        pairs = zip(runs[above], runs[below], strict=True)
        ratios = sorted(one.tokens / one.seconds * other.seconds / other.tokens for one, other in pairs)
        title = f"{above} / {below.removesuffix(', one by one')}"
        print(f"{title:52}{median(ratios):8.1f}{ratios[0]:9.1f}{ratios[-1]:9.1f}{goal or '':>7}")


def explain(model: NetworkModel, prompts: list[list[int]], batch_size: int) -> None:
    """Print where the time of the engine's steps goes on one thread, beside the machine's matmul rate there."""
    torch.set_num_threads(1)  # what several threads do at a time cannot be counted as one after the other
    split, calls = split_time(model, prompts, batch_size)
    total = sum(split.seconds.values())
    rows = max(1, round(split.rows / calls))
    matmuls = split.flops / split.seconds["linear layers (matmuls)"]
    rate = matmul_rate(model, rows)
    print()
    head = f"engine, batch {batch_size}, one thread"
    print(f"{head}: {calls} calls of {rows} rows, {1000 * total / calls:.2f} ms each")
    for name, seconds in sorted(split.seconds.items(), key=lambda item: -item[1]):
        print(f"  {name:52}{seconds / total:7.1%}{1000 * seconds / calls:9.2f} ms")
    print(f"  plain matmuls of these shapes, {rows} rows: {rate / 1e9:.1f} GFLOP/s; in the linear layers of the engine")
    print(
        f"  {matmuls / 1e9:.1f}; their operations over the time of whole steps {split.flops / total / 1e9:.1f}, "
        f"which is {split.flops / total / rate:.0%} of the plain matmuls"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=256, help="prompts of the batched engine")
    parser.add_argument("--few", type=int, default=32, help="prompts decoded one by one")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", "`past_key_values` is deprecated", FutureWarning)  # its successor is too new
    torch.set_num_threads(asked.threads)
    model = load(ModelSpec(str(CHECKPOINT), device="cpu"))
    tokenizer, prompts = read_prompts(asked.prompts)
    print(f"threads {asked.threads}, torch {torch.__version__}, diffusers {diffusers.__version__}, ", end="")
    print(f"transformers {transformers.__version__}; {asked.repeats} repeats")
    print()
    compare(model, tokenizer, prompts, asked.few, asked.batch, asked.repeats)
    explain(model, prompts, asked.batch)
    explain(model, prompts[: asked.few], 1)


if __name__ == "__main__":
    main()
