"""What the engine says on a CUDA device is what it says on the CPU: ``pytest tests/gpu``, a minute or two.

The CPU is held to Qwen3 and to the naive loop in tests/engine. Every test here runs on the CPU too, so that without a
CUDA device nothing but the device is left untried.
"""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from redline_engine.config import DecodeKnobs, ModelSpec  # noqa: E402
from redline_engine.engine import Engine  # noqa: E402
from redline_engine.models.base import ModelInfo, Query, batch_of  # noqa: E402
from redline_engine.models.checkpoint import load  # noqa: E402
from redline_engine.models.experts import ExpertShape  # noqa: E402
from redline_engine.models.graphs import Rectangle, rectangle  # noqa: E402
from redline_engine.models.network import Network, NetworkModel, NetworkShape  # noqa: E402
from redline_engine.precision import keep_linears  # noqa: E402
from redline_engine.request import Prompt  # noqa: E402

torch.set_num_threads(1)

FIXTURES = Path(__file__).parents[2] / "fixtures"
SHAPE = NetworkShape(120, 48, 80, 3, 4, 2, 16, 1e-6, 10000.0)
B, MASK, END = 4, 119, 118
PAGES = itertools.count()
LENGTHS = (1, B - 1, B, B + 1, 3 * B + 5)
NEAR = 3e-4  # decisions nearer than this may go either way where sums are taken in another order
PRECISIONS = [None, "int8", "int4"]
MIXTURES = [
    ExpertShape(8, 3, 16, norm_topk_prob=True, dense_layers=frozenset({1})),
    ExpertShape(
        8, 3, 16, norm_topk_prob=True, dense_layers=frozenset({0}), sigmoid=True, expert_bias=True,
        n_group=4, topk_group=2, routed_scaling_factor=2.5, shared_intermediate_size=16,
    ),
]  # fmt: skip


@pytest.fixture(
    params=[
        "cpu",
        pytest.param(
            "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
        ),
    ]
)
def device(request):
    return request.param


def random_model(device, dtype=torch.float32, weights=None, graphs=False, experts=None):
    """Weights so wide that the most probable token varies; the same ones on every device."""
    generator = torch.Generator().manual_seed(11)
    network = Network(replace(SHAPE, experts=experts)).requires_grad_(False)
    for parameter in network.parameters():
        parameter.normal_(mean=float(parameter.ndim == 1), std=0.3, generator=generator)
    network.to(dtype)
    if weights is not None:
        keep_linears(network, weights, network.embed.weight)
    model = NetworkModel(copy.deepcopy(network).to(device), ModelInfo(SHAPE.vocab_size, MASK, (END,), B, 512), graphs)
    assert model.device.type == device
    return model


def sequences():
    """For each prompt length: prompt, masks to the end of its block, and two more blocks partly resolved."""
    generator = np.random.default_rng(3)
    for length in LENGTHS:
        end = (length // B + 3) * B
        tokens = generator.integers(0, END, end)
        tokens[length:] = np.where(generator.random(end - length) < 0.6, MASK, tokens[length:])
        yield tokens.astype(np.int32)


def ask(tokens, pages=None, cached=0):
    """A query about every row that is run; its pages are new ones, unless they are given."""
    pages = pages or tuple(next(PAGES) for _ in range(len(tokens) // B))
    return Query(tokens, pages, cached, np.arange(cached * B, len(tokens)))


def logits(model, queries):
    return batch_logits(model, batch_of(B, queries))


def batch_logits(model, batch):
    with torch.inference_mode():
        rows = model.logits(model.hidden(batch))
    assert rows.device.type == model.device.type
    return rows.float().cpu().clone()  # one that may be changed outside inference mode


@pytest.mark.parametrize("weights", PRECISIONS)
def test_logits_equal_those_of_the_cpu(device, weights):
    batch = [ask(tokens) for tokens in sequences()]
    expected = logits(random_model("cpu", weights=weights), batch)
    assert len(expected.argmax(dim=1).unique()) > 3, "a constant argmax would prove nothing"
    torch.testing.assert_close(logits(random_model(device, weights=weights), batch), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("experts", MIXTURES, ids=["softmax", "sigmoid"])
def test_logits_of_mixtures_equal_those_of_the_cpu(device, experts, graphs):
    batch = [ask(tokens) for tokens in sequences()]
    expected = logits(random_model("cpu", experts=experts), batch)
    assert len(expected.argmax(dim=1).unique()) > 3, "a constant argmax would prove nothing"
    try:
        model = random_model(device, graphs=graphs, experts=experts)
    except ValueError as error:
        if not graphs or device == "cpu":
            raise
        pytest.skip(f"on {device}: {error}")
    torch.testing.assert_close(logits(model, batch), expected, atol=1e-3, rtol=1e-3)


def test_cached_logits_equal_uncached_ones(device):
    """Blocks are committed one, then two at a time; cached and uncached queries mix in a batch."""
    model = random_model(device)
    cached, plain = [], []
    for tokens in sequences():
        whole = np.concatenate([np.where(tokens == MASK, 5, tokens)[: 2 * B], tokens[2 * B :]])
        own = tuple(next(PAGES) for _ in range(len(whole) // B))
        logits(model, [ask(whole[:B], own[:1])])
        logits(model, [ask(whole[: 2 * B], own[:2], 1)])
        cached.append(ask(whole, own, 2))
        plain.append(ask(whole))
    expected = [logits(model, [query])[2 * B :] for query in plain]
    mixed = logits(model, [*cached[:2], plain[0], *cached[2:]])
    ends = np.cumsum([len(rows) for rows in expected[:2]])
    skipped = len(plain[0].tokens)
    found = torch.cat([mixed[: ends[-1]], mixed[ends[-1] + skipped :]])
    torch.testing.assert_close(found, torch.cat(expected), atol=1e-3, rtol=1e-3)


def step(model, queries):
    """Logits of a step, twice with other content between: what is replayed must not remember it."""
    first = logits(model, queries)
    logits(model, [ask(query.tokens[::-1].copy()) for query in queries])
    torch.testing.assert_close(logits(model, queries), first, atol=1e-5, rtol=1e-5)
    return first


@pytest.mark.parametrize("weights", PRECISIONS)
@pytest.mark.parametrize("count", [1, 3, 5])
def test_fixed_shapes_give_the_logits_of_plain_batches(device, weights, count):
    plain, fixed = random_model(device, weights=weights), random_model(device, weights=weights, graphs=True)
    batch = [ask(tokens) for tokens in sequences()][:count]
    assert rectangle(batch_of(B, batch)) is not None
    torch.testing.assert_close(step(fixed, batch), step(plain, batch), atol=1e-4, rtol=1e-4)


def test_fixed_shapes_read_what_plain_batches_wrote_and_move_with_the_pages(device):
    """Long prompts fit no rectangle; the second round's pages are so many more that the cache grows between replays."""
    plain, fixed = random_model(device), random_model(device, graphs=True)
    prompt = np.arange(30 * B, dtype=np.int32) % END
    tokens = np.concatenate([prompt, np.full(2 * B, MASK, np.int32)])
    for skipped in (0, 2000):
        pages = tuple(itertools.islice(PAGES, skipped, skipped + 32))
        whole, rest = ask(prompt, pages[:30]), ask(tokens, pages, 30)
        assert (rectangle(batch_of(B, [whole])), rectangle(batch_of(B, [rest]))) == (None, Rectangle(1, 2, 32))
        for model in (plain, fixed):
            logits(model, [whole])
        torch.testing.assert_close(step(fixed, [rest]), step(plain, [rest]), atol=1e-4, rtol=1e-4)


def test_experts_that_are_multiplied_one_by_one_are_not_recorded(device):
    with pytest.raises(ValueError, match="its experts are multiplied one by one on this device"):
        random_model(device, weights="int8", graphs=True, experts=MIXTURES[0])


class Watched:
    """A model that keeps how near its nearest decision was, for a configuration that accepts over a threshold."""

    def __init__(self, model, threshold):
        self.model, self.info, self.threshold = model, model.info, threshold
        self.nearest = 1.0

    def forward(self, batch):
        probable = batch_logits(self.model, batch)
        probable[:, MASK] = -torch.inf
        confidence, second = probable.softmax(dim=1).topk(2).values.double().numpy().T
        blocks = batch.asked.nonzero()[0]
        gaps = [confidence - second, np.abs(confidence - self.threshold)]
        gaps += [np.diff(np.sort(confidence[blocks == block])) for block in np.unique(blocks)]
        self.nearest = min([self.nearest, *(float(each.min()) for each in gaps if each.size)])
        return self.model.forward(batch)


@pytest.mark.parametrize("graphs", [False, True])
def test_a_grid_decodes_as_each_configuration_does_alone(device, graphs):
    """Identical replies and forwards, unless some decision was nearer than another order of sums can decide."""
    model, served = random_model(device), random_model(device, graphs=graphs)
    knobs = [
        DecodeKnobs(buffer_size=size, accept_threshold=accept, semi_complete_threshold=semi, max_new_tokens=22)
        for size, accept, semi in [(1, 0.3, 0.9), (1, 0.95, 0.9), (2, 0.5, 0.5), (4, 0.2, 0.25), (4, 0.4, 0.75)]
    ]
    prompts = [Prompt(str(length), list(range(1, length + 1))) for length in range(1, 20, 2)]
    grids = [Engine(served, batch_size).generate(prompts, knobs) for batch_size in (1, 7, 64)]
    compared = 0
    for number, knob in enumerate(knobs):
        for place, prompt in enumerate(prompts):
            watched = Watched(model, knob.accept_threshold)
            ((alone,),) = Engine(watched).generate([prompt], [knob])
            if watched.nearest > NEAR:
                compared += 1
                for grid in grids:
                    reply = grid[number][place]
                    assert (reply.tokens, reply.trace.forwards) == (alone.tokens, alone.trace.forwards)
    assert compared > 0.4 * len(knobs) * len(prompts)


def bundled(device, **spec):
    """Prompts of the bundled checkpoint, and what it says to them on a device."""
    tokenizers = pytest.importorskip("tokenizers")
    directory = FIXTURES / "checkpoints" / "arithmetic"
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    lines = (FIXTURES / "prompts" / "arithmetic.jsonl").read_text(encoding="utf-8").splitlines()[:24]
    prompts = [
        Prompt(str(number), tokenizer.encode(json.loads(line)["prompt"]).ids) for number, line in enumerate(lines)
    ]
    model = load(ModelSpec(str(directory), device=device, **spec))
    assert model.device.type == device
    knobs = [DecodeKnobs(max_new_tokens=96), DecodeKnobs(max_new_tokens=96, temperature=0.7, top_p=0.9, top_k=20)]
    return Engine(model, 64).generate(prompts, knobs)


@pytest.mark.parametrize("weights", PRECISIONS)
def test_the_bundled_checkpoint_says_nearly_what_it_says_on_the_cpu(device, weights):
    expected, found = bundled("cpu", weights=weights), bundled(device, weights=weights)
    for here, there in zip(expected, found, strict=True):
        assert sum(one.tokens == other.tokens for one, other in zip(here, there, strict=True)) >= 20


def test_bfloat16_gives_finite_logits_and_replies_that_end(device):
    model = random_model(device, torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert logits(model, [ask(tokens) for tokens in sequences()]).isfinite().all()
    for weights in PRECISIONS:
        for replies in bundled(device, dtype="bfloat16", weights=weights):
            assert all(reply.trace.finish_reason != "error" for reply in replies)
            assert sum(reply.trace.finish_reason == "stop" for reply in replies) >= 20
