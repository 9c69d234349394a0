"""The SDAR network equals transformers' Qwen3 under a block-causal mask, and decodes as the naive loop does with it."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import pickle

import naive
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from qwen3_oracle import END, MASK, B, oracle_logits, oracle_run  # noqa: E402

from redline_engine.config import DecodeKnobs, ModelSpec  # noqa: E402
from redline_engine.engine import Engine  # noqa: E402
from redline_engine.models import network, parts  # noqa: E402
from redline_engine.models.base import Query, batch_of  # noqa: E402
from redline_engine.models.checkpoint import CheckpointError, load  # noqa: E402
from redline_engine.models.network import NetworkModel  # noqa: E402
from redline_engine.request import Prompt  # noqa: E402

PAGES = itertools.count()
LENGTHS = (1, B - 1, B, B + 1, 3 * B + 5)


@pytest.fixture
def model(checkpoint):
    return load(ModelSpec(str(checkpoint[1]), device="cpu", block_size=B, mask_id=MASK))


def engine_logits(model, queries, block_size=B):
    with torch.inference_mode():
        return model.logits(model.hidden(batch_of(block_size, queries)))


def ask(tokens, pages=None, cached=0):
    """A query about every row that is run; its pages are new ones, unless they are given."""
    pages = pages or tuple(next(PAGES) for _ in range(len(tokens) // B))
    return Query(tokens, pages, cached, range(cached * B, len(tokens)))


def sequences():
    """For each prompt length: prompt, masks to the end of its block, and two more blocks partly resolved."""
    generator = np.random.default_rng(3)
    for length in LENGTHS:
        end = (length // B + 3) * B
        tokens = generator.integers(0, END, end)
        tokens[length:] = np.where(generator.random(end - length) < 0.6, MASK, tokens[length:])
        yield tokens.tolist()


def test_uncached_logits_equal_qwen3(oracle, model):
    for tokens in sequences():
        expected = oracle_logits(oracle, tokens)
        assert len(expected.argmax(dim=1).unique()) > 3, "a constant argmax would prove nothing"
        torch.testing.assert_close(engine_logits(model, [ask(tokens)]), expected, atol=1e-4, rtol=1e-4)


def test_unequal_queries_in_one_batch_equal_qwen3(oracle, model):
    expected = torch.cat([oracle_logits(oracle, tokens) for tokens in sequences()])
    logits = engine_logits(model, [ask(tokens) for tokens in sequences()])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)


def test_cached_logits_equal_qwen3(oracle, model):
    """Blocks are committed one, then two at a time; cached and uncached queries mix in a batch."""
    cached = []
    for tokens in sequences():
        clean = [token if token != MASK else 5 for token in tokens]
        own = tuple(next(PAGES) for _ in range(len(tokens) // B))
        engine_logits(model, [ask(clean[:B], own[:1])])
        engine_logits(model, [ask(clean[: 3 * B], own[:3], 1)])
        cached.append(ask(clean[: 2 * B] + tokens[2 * B :], own, 2))
    batch = [*cached[:2], ask(next(sequences())), *cached[2:]]
    expected = [oracle_logits(oracle, query.tokens)[query.cached * B :] for query in batch]
    torch.testing.assert_close(engine_logits(model, batch), torch.cat(expected), atol=1e-4, rtol=1e-4)


def test_a_query_reads_what_one_before_it_in_the_batch_runs(oracle, model):
    tokens = list(sequences())[-1]
    clean = [token if token != MASK else 5 for token in tokens[: 2 * B]]
    later = clean + tokens[2 * B :]
    pages = (4, 9, *range(10, 8 + len(later) // B))
    expected = [oracle_logits(oracle, clean), oracle_logits(oracle, later)[2 * B :]]
    logits = engine_logits(model, [ask(clean, pages[:2]), ask(later, pages, 2)])
    torch.testing.assert_close(logits, torch.cat(expected), atol=1e-4, rtol=1e-4)


def test_parts_on_threads_of_their_own_say_what_the_whole_says(model, monkeypatch):
    """A batch in which queries read what others about their prompt run, as one part and as three."""
    monkeypatch.setattr(parts, "LEAST_ROWS", B)
    queries = []
    for number, tokens in enumerate(itertools.chain(sequences(), sequences())):
        clean = [token if token != MASK else 5 for token in tokens[: 2 * B]]
        own = [next(PAGES) for _ in range(len(tokens) // B)]
        queries += [
            ask(clean, own[:2])._replace(prompt=number),
            ask(clean + tokens[2 * B :], own, 2)._replace(prompt=number),
        ]
    batch, threads = batch_of(B, queries), torch.get_num_threads()
    answers = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            assert len(parts.parts_of(batch, np.arange(len(queries)), count)) == count
            answers.append(model.forward(batch))
    finally:
        torch.set_num_threads(threads)
    alone, divided = answers
    assert (alone.tokens == divided.tokens).all()
    np.testing.assert_allclose(alone.confidence, divided.confidence, atol=1e-5)


def test_logits_made_in_pieces_say_what_they_say_at_once(model, monkeypatch):
    knobs = [DecodeKnobs(buffer_size=4, accept_threshold=0.2, max_new_tokens=22)]
    knobs += [DecodeKnobs(temperature=1.5, seed=seed, accept_threshold=0.2, max_new_tokens=22) for seed in (1, 2)]
    prompts = [Prompt(str(length), list(range(1, length + 1))) for length in LENGTHS]
    whole = Engine(model).generate(prompts, knobs)
    monkeypatch.setattr(network, "LOGITS_AT_ONCE", 5 * model.info.vocab_size)
    monkeypatch.setattr(network, "DRAWN_AT_ONCE", 3 * model.info.vocab_size)
    made = []
    propose = network.propose
    monkeypatch.setattr(network, "propose", lambda logits, *rest: made.append(len(logits)) or propose(logits, *rest))
    assert Engine(model).generate(prompts, knobs) == whole
    assert max(made) == 5
    assert made.count(3) > len(prompts)


def test_a_grid_decodes_as_the_naive_loop_does_with_qwen3(oracle, model):
    """Identical replies and forwards, unless some decision was nearer than rounding can decide."""
    knobs = [
        DecodeKnobs(buffer_size=size, accept_threshold=accept, semi_complete_threshold=semi, max_new_tokens=22)
        for size, accept, semi in [(1, 0.3, 0.9), (1, 0.95, 0.9), (2, 0.5, 0.5), (4, 0.2, 0.25), (4, 0.4, 0.75)]
    ] + [DecodeKnobs(block_size=8, buffer_size=2, schedule="count", accept_count=2, max_new_tokens=22)]
    prompts = [Prompt(str(length), list(range(1, length + 1))) for length in LENGTHS]
    compared = 0
    for batch_size in (1, 7, 64):
        grid = Engine(model, batch_size).generate(prompts, knobs)
        for row, knob in zip(grid, knobs, strict=True):
            for reply, prompt in zip(row, prompts, strict=True):
                run, closest = oracle_run(oracle, prompt.tokens, knob)
                if closest > 1e-4:
                    compared += 1
                    assert (list(reply.tokens), reply.trace.forwards) == (naive.reply(run), len(run.forwards))
    assert compared > 0.5 * 3 * len(knobs) * len(prompts)


def test_logits_that_are_not_finite_stop_only_their_own_request(model):
    prompts = [Prompt("sound", [1, 2, 3]), Prompt("spoilt", [1, 7, 3]), Prompt("sound too", [2] * 9)]
    knobs = [DecodeKnobs(max_new_tokens=12, accept_threshold=each) for each in (0.3, 0.6)]
    before = Engine(model).generate(prompts, knobs)
    with torch.no_grad():
        model.network.embed.weight = torch.nn.Parameter(model.network.embed.weight.clone(), requires_grad=False)
        model.network.embed.weight[7] = torch.nan
    after = Engine(model).generate(prompts, knobs)
    for row, spoilt in zip(before, after, strict=True):
        assert [row[0].tokens, row[2].tokens] == [spoilt[0].tokens, spoilt[2].tokens]
        assert spoilt[1].trace.finish_reason == "error"
        assert spoilt[1].tokens == ()
        assert spoilt[1].error == "prompt spoilt: position 3: logits are not finite; decoding stopped"


@pytest.fixture
def rounded(checkpoint):
    return load(ModelSpec(str(checkpoint[1]), dtype="bfloat16", device="cpu", block_size=B, mask_id=MASK))


def test_bfloat16_logits_are_as_close_to_float32_as_those_of_qwen3(oracle, rounded):
    tokens = list(sequences())[-1]
    exact = oracle_logits(oracle, tokens)
    theirs = oracle_logits(copy.deepcopy(oracle).bfloat16(), tokens)
    ours = engine_logits(rounded, [ask(tokens)])
    assert ours.dtype == theirs.dtype == torch.bfloat16
    assert (ours.float() - exact).abs().mean() < 1.3 * (theirs.float() - exact).abs().mean()


def test_bfloat16_gives_float32_confidences(rounded):
    answer = rounded.forward(batch_of(B, [ask([1, 2, MASK, MASK])._replace(positions=[2, 3])]))
    assert answer.confidence.dtype == np.float32
    assert not (answer.confidence == answer.confidence.astype(np.float16)).all()


def test_a_new_model_of_a_changed_network_forgets_what_the_old_one_derived(checkpoint):
    """The network was used, then cast, or given other weights in any of the ways of PyTorch."""
    spec = ModelSpec(str(checkpoint[1]), device="cpu", block_size=B, mask_id=MASK)
    tokens = [ask(list(sequences())[-1])]
    other = {name: 1.5 * weight for name, weight in load(spec).network.state_dict().items()}

    def changed(change):
        model = load(spec)
        before = engine_logits(model, tokens)
        network = copy.deepcopy(model.network)
        network = change(network) or network
        made = engine_logits(NetworkModel(network, model.info), tokens)
        assert not torch.equal(before, made)
        return made

    fresh = copy.deepcopy(load(spec).network)
    fresh.load_state_dict(other)
    expected = engine_logits(NetworkModel(fresh, load(spec).info), tokens)
    for change in (
        lambda network: network.load_state_dict(other) and None,
        lambda network: network.load_state_dict(other, assign=True) and None,
        lambda network: [setattr(each, "data", 1.5 * each) for each in network.parameters()] and None,
    ):
        torch.testing.assert_close(changed(change), expected)
    assert changed(lambda network: network.bfloat16()).dtype == torch.bfloat16
    assert changed(lambda network: network.double()).dtype == torch.float64


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_model_that_was_used_in_parts_can_be_copied(model, monkeypatch, again):
    monkeypatch.setattr(parts, "LEAST_ROWS", B)
    batch = batch_of(B, [ask(tokens)._replace(prompt=number) for number, tokens in enumerate(sequences())])
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = model.forward(batch)
        found = again(model).forward(batch)
    finally:
        torch.set_num_threads(threads)
    assert (found.tokens == expected.tokens).all()


def test_a_checkpoint_says_what_is_wrong_with_it(checkpoint, tmp_path):
    directory = checkpoint[1]
    with pytest.raises(CheckpointError, match=r"config.json: cannot be read"):
        load(ModelSpec(str(tmp_path)))
    with pytest.raises(CheckpointError, match=r"mask token unknown: there is no[^\n]*\n[^\n]*no block_size: neither"):
        load(ModelSpec(str(directory)))
    config = json.loads((directory / "config.json").read_text())
    config |= {"num_key_value_heads": None, "attention_bias": True, "num_hidden_layers": 4, "layer_types": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"attention_bias[^\n]*\n[^\n]*num_key_value_heads"):
        load(ModelSpec(str(tmp_path), block_size=B, mask_id=MASK))
    config |= {"model_type": "sdar", "num_key_value_heads": 2, "attention_bias": False}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes((directory / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match=r"no tensor model.layers.3.input_layernorm.weight"):
        load(ModelSpec(str(tmp_path), block_size=B, mask_id=MASK))


def test_mask_vocabulary_and_end_tokens_come_from_the_tokenizer_files(checkpoint, tmp_path):
    directory = checkpoint[1]
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    added = [{"content": "<|MASK|>", "id": 101}, {"content": "<end>", "id": 102}]
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"model": {"vocab": {"a": 0, "b": 100}}, "added_tokens": added})
    )
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [102, 3]}))
    info = load(ModelSpec(str(tmp_path), device="cpu", block_size=8)).info
    assert dataclasses.astuple(info) == (103, 101, (102, 3), 8, 512)
