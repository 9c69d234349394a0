"""Weights in fewer bits: how far they are off, what is kept of them, and what a network made of them says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from redline_engine.config import DecodeKnobs, KnobError, ModelSpec  # noqa: E402
from redline_engine.engine import Engine  # noqa: E402
from redline_engine.models.base import Query, batch_of  # noqa: E402
from redline_engine.models.checkpoint import load, weight_shares  # noqa: E402
from redline_engine.precision import (  # noqa: E402
    GROUP,
    Bfloat16Linear,
    Int4Linear,
    Int8Linear,
    KeptLinear,
    pack_pairs,
    shares,
    unpack_pairs,
)
from redline_engine.request import Prompt  # noqa: E402

torch.set_num_threads(1)

FIXTURES = Path(__file__).parents[2] / "fixtures"
B, MASK = 4, 119
SHAPES = [(1, 1), (3, 31), (5, 32), (4, 33), (7, 96), (2, 101)]
COARSE = ["int8", "int4"]


def random_weight(rows, columns, seed=0):
    """Rows of very unequal size, one of them zero and one nearly."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator) * torch.logspace(-3, 2, rows)[:, None]
    weight[-1] = 0
    weight[0, :GROUP] *= 1e-42 if rows > 4 else 1
    return weight


def scales_of(layer, columns):
    """Scale of every weight."""
    wide = layer.scales.repeat_interleave(GROUP, dim=1) if isinstance(layer, Int4Linear) else layer.scales
    return wide[:, :columns].expand(-1, columns).double()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [Int8Linear, Int4Linear])
def test_no_weight_is_off_by_more_than_half_a_step(kind, shape):
    weight = random_weight(*shape)
    layer = kind(weight)
    error = (weight.double() - layer.dense().double()).abs()
    assert (error <= scales_of(layer, shape[1]) * 0.5 * (1 + 1e-4)).all()
    assert (layer.dense()[-1] == 0).all()
    assert layer.scales.dtype == torch.float32
    assert torch.equal(kind(-weight).dense(), -layer.dense())
    assert torch.equal(kind(layer.dense()).dense(), layer.dense()), "what is kept is kept unchanged"


@pytest.mark.parametrize(("kind", "most"), [(Int8Linear, 127), (Int4Linear, 7)])
def test_the_largest_weight_of_a_scale_is_exact_and_halves_go_to_even(kind, most):
    weight = torch.tensor([[most, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0]])
    assert kind(weight).dense().tolist() == [[most, 0, 2, 2, 0, -2, -2, 0]]
    assert kind(weight).scales.tolist() == [[1.0]]


def test_groups_of_32_columns_have_scales_of_their_own():
    weight = torch.ones(2, 2 * GROUP + 5)
    weight[:, GROUP:] *= 1000
    weight[1, -1] = 7
    layer = Int4Linear(weight)
    assert layer.scales.shape == (2, 3)
    torch.testing.assert_close(layer.dense()[:, :-5], weight[:, :-5])
    assert layer.dense()[0, 0] == 1
    assert Int8Linear(weight).dense()[0, 0] == 0, "one scale per row cannot hold both"


@pytest.mark.parametrize("columns", [1, 2, 15, 64])
def test_pairs_are_unpacked_as_they_were_packed(columns):
    generator = torch.Generator().manual_seed(columns)
    whole = torch.randint(-8, 8, (9, columns), generator=generator, dtype=torch.int8)
    pairs = pack_pairs(whole)
    assert pairs.dtype == torch.uint8
    assert pairs.shape == (9, (columns + 1) // 2)
    assert torch.equal(unpack_pairs(pairs, columns), whole)
    assert pack_pairs(torch.tensor([[-7, 7]], dtype=torch.int8)).tolist() == [[0xF1]]


@pytest.mark.parametrize("kind", [Bfloat16Linear, Int8Linear, Int4Linear])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_multiplies_by_the_weight_that_it_stands_for(kind, dtype):
    layer = kind(random_weight(7, 96))
    x = torch.randn(3, 2, 96, generator=torch.Generator().manual_seed(1)).to(dtype)
    y = layer(x)
    assert y.dtype == dtype
    assert torch.equal(y, torch.nn.functional.linear(x, layer.dense().to(dtype)))


def loaded(directory, **spec):
    return load(ModelSpec(str(directory), device="cpu", block_size=B, mask_id=MASK, **spec))


def logits(model):
    tokens = np.array([5, 6, 7, 8, 9, 10, MASK, MASK], np.int32)
    query = Query(tokens, range(len(tokens) // B), 0, range(8))
    with torch.inference_mode():
        return model.logits(model.hidden(batch_of(B, [query])))


def kept_layers(model):
    return {name: layer for name, layer in model.network.named_modules() if isinstance(layer, KeptLinear)}


@pytest.mark.parametrize("weights", ["bfloat16", *COARSE])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_network_equals_a_dense_one_with_the_weights_that_it_stands_for(checkpoint, weights, dtype):
    model, reference = loaded(checkpoint[1], dtype=dtype, weights=weights), loaded(checkpoint[1], dtype=dtype)
    before = logits(reference)
    kept = kept_layers(model)
    assert bool(kept) == (weights != dtype)
    for name, layer in kept.items():
        assert layer.precision == weights
        plain = reference.network.get_submodule(name)
        plain.weight = torch.nn.Parameter(layer.dense().to(plain.weight.dtype), requires_grad=False)
    near = 1e-5 if dtype == "float32" else 0  # dense weights may lie the other way in memory (`models/modules.py`)
    torch.testing.assert_close(logits(model), logits(reference), atol=near, rtol=near)
    assert torch.equal(before, logits(reference)) == (weights == dtype)


@pytest.mark.parametrize("weights", ["bfloat16", *COARSE])
def test_every_linear_layer_is_kept_so_and_the_head_unless_it_is_the_embedding(checkpoint, weights):
    plain, model = loaded(checkpoint[1]), loaded(checkpoint[1], weights=weights)
    linear = {name for name, layer in plain.network.named_modules() if isinstance(layer, torch.nn.Linear)}
    tied = json.loads((checkpoint[1] / "config.json").read_text())["tie_word_embeddings"]
    assert len(linear) == 4 * 3 + 1
    assert set(kept_layers(model)) == linear - ({"head"} if tied else set())
    assert (model.network.head.weight is model.network.embed.weight) if tied else "head" in kept_layers(model)


def test_the_shares_are_those_of_the_bytes_that_are_held(checkpoint):
    held = {}
    for weights in ("float32", "bfloat16", "int8", "int4"):
        model = loaded(checkpoint[1], weights=weights)
        tensors = {
            tensor.data_ptr(): tensor for tensor in (*model.network.parameters(), *model.network.buffers())
        }.values()
        held[weights] = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        found = model.weight_shares
        assert sum(found.values()) == pytest.approx(1, abs=1e-12)
        names = {"uint8": "int4"}
        by_type = dict.fromkeys(found, 0)
        for tensor in tensors:
            name = str(tensor.dtype).removeprefix("torch.")
            by_type[names.get(name, name)] += tensor.untyped_storage().nbytes()
        assert found == {name: size / held[weights] for name, size in by_type.items()}
        assert set(found) == {weights, "float32"}
        spec = ModelSpec(str(checkpoint[1]), weights=weights)
        assert weight_shares(spec) == found, "they are known without reading a weight"
    assert held["float32"] > held["bfloat16"] > held["int8"] > held["int4"]
    linear = sum(layer.kept.numel() for layer in kept_layers(loaded(checkpoint[1], weights="int8")).values())
    assert held["float32"] - held["bfloat16"] == 2 * linear
    assert held["float32"] - held["int4"] > 3.2 * linear


def test_shares_of_bfloat16_arithmetic_show_the_scales(checkpoint):
    assert set(loaded(checkpoint[1], dtype="bfloat16", weights="int8").weight_shares) == {"int8", "bfloat16", "float32"}
    assert loaded(checkpoint[1], dtype="bfloat16").weight_shares == {"bfloat16": 1.0}
    assert shares(torch.nn.Linear(3, 2)) == {"float32": 1.0}


def test_weights_wider_than_the_arithmetic_are_refused():
    with pytest.raises(KnobError, match="weights: float32 is wider than dtype bfloat16"):
        ModelSpec.from_mapping({"checkpoint": "here", "dtype": "bfloat16", "weights": "float32"})


def test_the_bundled_checkpoint_keeps_most_answers_in_int8_and_fewer_in_int4():
    tokenizers = pytest.importorskip("tokenizers")
    directory = FIXTURES / "checkpoints" / "arithmetic"
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    lines = (FIXTURES / "prompts" / "arithmetic.jsonl").read_text(encoding="utf-8").splitlines()[:24]
    prompts = [
        Prompt(str(number), tokenizer.encode(json.loads(line)["prompt"]).ids) for number, line in enumerate(lines)
    ]
    said = {}
    for weights in ("float32", *COARSE):
        engine = Engine(load(ModelSpec(str(directory), device="cpu", weights=weights)), 64)
        (replies,) = engine.generate(prompts, [DecodeKnobs(buffer_size=1, accept_threshold=0.95, max_new_tokens=96)])
        assert all(reply.trace.finish_reason != "error" for reply in replies)
        said[weights] = [reply.tokens for reply in replies]
    changed = {
        weights: sum(one != other for one, other in zip(said["float32"], said[weights], strict=True))
        for weights in COARSE
    }
    assert changed["int8"] <= 6
    assert changed["int8"] < changed["int4"]
