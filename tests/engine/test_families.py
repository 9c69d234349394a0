"""SDAR-MoE and LLaDA2 equal transformers' Qwen3-MoE and GLM-4-MoE under a block-causal mask, in any file layout."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import test_sdar as sdar  # noqa: E402
from family_oracles import write_family  # noqa: E402
from qwen3_oracle import MASK, B  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from redline_engine.config import DecodeKnobs, ModelSpec  # noqa: E402
from redline_engine.engine import Engine  # noqa: E402
from redline_engine.models.checkpoint import describe, load  # noqa: E402
from redline_engine.models.experts import ExpertShape, GroupedLinear, Router, by_expert  # noqa: E402
from redline_engine.models.keys import choose, join, split, weights_of  # noqa: E402
from redline_engine.request import Prompt  # noqa: E402


@pytest.fixture(scope="module", params=["sdar_moe", "llada2"])
def family(request, tmp_path_factory):
    """Oracle and directory."""
    directory = tmp_path_factory.mktemp(request.param)
    return write_family(request.param, directory), directory


@pytest.fixture(scope="module")
def loaded(family):
    return load(spec_of(family[1]))


@pytest.fixture
def model(loaded):
    """The loaded model, with an empty cache."""
    loaded._caches.clear()
    return loaded


def spec_of(directory, **changes):
    return ModelSpec(str(directory), device="cpu", block_size=B, mask_id=MASK, **changes)


def logits_of(directory, tokens, **changes):
    return sdar.engine_logits(load(spec_of(directory, **changes)), [sdar.ask(tokens)])


# -- Logits and decoding --------------------------------------------------------------------------------------------


def test_uncached_logits_equal_the_oracles(family, model):
    sdar.test_uncached_logits_equal_qwen3(family[0], model)


def test_unequal_queries_in_one_batch_equal_the_oracles(family, model):
    sdar.test_unequal_queries_in_one_batch_equal_qwen3(family[0], model)


def test_cached_logits_equal_the_oracles(family, model):
    sdar.test_cached_logits_equal_qwen3(family[0], model)


def test_a_small_grid_decodes_as_the_naive_loop_does_with_the_oracle(family, model):
    from qwen3_oracle import oracle_run

    knobs = [
        DecodeKnobs(buffer_size=size, accept_threshold=accept, max_new_tokens=13)
        for size, accept in [(1, 0.3), (1, 0.9), (4, 0.2)]
    ]
    prompts = [Prompt(str(length), list(range(1, length + 1))) for length in (1, B, 3 * B + 5)]
    compared = 0
    for row, knob in zip(Engine(model).generate(prompts, knobs), knobs, strict=True):
        for reply, prompt in zip(row, prompts, strict=True):
            run, closest = oracle_run(family[0], prompt.tokens, knob)
            if closest > 1e-4:
                compared += 1
                assert (list(reply.tokens), reply.trace.forwards) == (sdar.naive.reply(run), len(run.forwards))
    assert compared >= 6


def test_bfloat16_routes_in_float32(family):
    model = load(spec_of(family[1], dtype="bfloat16"))
    types = {name: parameter.dtype for name, parameter in model.network.named_parameters()}
    routers = {name for name in types if ".router." in name}
    assert routers
    assert {types[name] for name in routers} == {torch.float32}
    assert {types[name] for name in set(types) - routers} == {torch.bfloat16}
    tokens = list(sdar.sequences())[-1]
    exact = sdar.oracle_logits(family[0], tokens)
    assert (sdar.engine_logits(model, [sdar.ask(tokens)]).float() - exact).abs().mean() < 0.1 * exact.abs().mean()


# -- Experts --------------------------------------------------------------------------------------------------------


def one_by_one(x, router, gate_up, down):
    """A mixture computed expert by expert for each row."""
    weights, chosen = router(x)
    rows = torch.zeros_like(x)
    for row, (share, picked) in enumerate(zip(weights, chosen, strict=True)):
        for part, expert in zip(share, picked.tolist(), strict=True):
            gate, up = (gate_up[expert] @ x[row]).chunk(2)
            rows[row] += part * (down[expert] @ (torch.nn.functional.silu(gate) * up))
    return rows


def test_experts_equal_a_loop_over_rows_and_idle_ones_cost_nothing(loaded):
    mixture = loaded.network.layers[2].experts
    x = torch.randn(17, 48, generator=torch.Generator().manual_seed(0))
    expected = one_by_one(x, mixture.router, mixture.gate_up.weight, mixture.down.weight)
    if mixture.shared_gate_up is not None:
        gate, up = mixture.shared_gate_up(x).chunk(2, dim=-1)
        expected = expected + mixture.shared_down(torch.nn.functional.silu(gate) * up)
    torch.testing.assert_close(mixture(x), expected, atol=1e-5, rtol=1e-5)
    assert mixture(x[:0]).shape == (0, 48)


@pytest.mark.parametrize("columns", [48, 7])
def test_grouped_rows_equal_the_loop_and_skip_idle_experts(columns):
    layer = GroupedLinear(5, columns, 12).requires_grad_(False)
    layer.weight.normal_(generator=torch.Generator().manual_seed(1))
    counts = torch.tensor([3, 0, 1, 0, 4])
    x = torch.randn(8, columns, generator=torch.Generator().manual_seed(2))
    asked = []

    def weight_of(expert):
        asked.append(expert)
        return layer.weight[expert]

    expected = torch.cat([piece @ layer.weight[expert].T for expert, piece in enumerate(x.split(counts.tolist()))])
    torch.testing.assert_close(layer(x, counts), expected)
    torch.testing.assert_close(by_expert(x, counts, weight_of), expected)
    assert asked == [0, 2, 4]


def test_the_bias_chooses_experts_and_does_not_weigh_them():
    shape = ExpertShape(4, 2, 8, True, frozenset(), sigmoid=True, expert_bias=True, n_group=2, topk_group=1)
    router = Router(3, shape).requires_grad_(False)
    router.weight.zero_()
    router.weight[:, 0] = torch.tensor([3.0, 2.0, 1.0, 0.0])
    router.bias.copy_(torch.tensor([0.0, 0.0, 5.0, 5.0]))
    weights, chosen = router(torch.tensor([[1.0, 0.0, 0.0]]))
    assert sorted(chosen[0].tolist()) == [2, 3]
    shares = torch.sigmoid(torch.tensor([1.0, 0.0])) / torch.sigmoid(torch.tensor([1.0, 0.0])).sum()
    torch.testing.assert_close(weights[0][chosen[0].argsort()], shares)


# -- Names, in both directions --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["sdar", "sdar_moe", "llada2"])
def files(request, tmp_path_factory):
    """Directory, what it says of itself, and its tensors."""
    directory = tmp_path_factory.mktemp(f"names-{request.param}")
    write_family(request.param, directory)
    return directory, describe(spec_of(directory)).described, load_file(directory / "model.safetensors")


def test_every_tensor_goes_into_the_network_and_comes_back(files):
    _, described, tensors = files
    weights = weights_of(described)
    chosen, faults = choose(weights, {key: tuple(tensor.shape) for key, tensor in tensors.items()})
    assert not faults
    back = {}
    for name, weight in weights.items():
        whole = join(weight, chosen[name], tensors.__getitem__)
        assert tuple(whole.shape) == weight.shape
        pieces = split(weight, chosen[name], whole)
        assert not set(pieces) & set(back)
        back |= pieces
    assert set(back) == set(tensors)
    assert all(torch.equal(back[key], tensor) for key, tensor in tensors.items())


def test_every_weight_goes_into_each_layout_and_comes_back(files):
    _, described, _ = files
    generator = torch.Generator().manual_seed(4)
    for weight in weights_of(described).values():
        whole = torch.randn(weight.shape, generator=generator)
        for layout in weight.layouts:
            pieces = split(weight, layout, whole)
            assert {key: tuple(piece.shape) for key, piece in pieces.items()} == dict(layout.pieces)
            assert torch.equal(join(weight, layout, pieces.__getitem__), whole)


def test_the_weights_are_those_of_the_network(files):
    directory, described, _ = files
    network = load(spec_of(directory)).network
    named = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    assert named == {name: weight.shape for name, weight in weights_of(described).items()}


def rewritten(described, tensors, number):
    """The tensors in the layouts of a number, where a weight has as many."""
    weights = weights_of(described)
    chosen, _ = choose(weights, {key: tuple(tensor.shape) for key, tensor in tensors.items()})
    made = {}
    for name, weight in weights.items():
        layout = weight.layouts[min(number, len(weight.layouts) - 1)]
        made |= split(weight, layout, join(weight, chosen[name], tensors.__getitem__))
    return {key: tensor.contiguous().clone() for key, tensor in made.items()}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_fused_and_split_names_load_to_the_same_model(files, tmp_path, number):
    directory, described, tensors = files
    made = rewritten(described, tensors, number)
    assert len({len(rewritten(described, tensors, each)) for each in (0, 1)}) == 2
    half = len(made) // 2
    shards = {"a-00001-of-00002.safetensors": dict(list(made.items())[:half])}
    shards["a-00002-of-00002.safetensors"] = dict(list(made.items())[half:])
    for file, part in shards.items():
        save_file(part, tmp_path / file)
    index = {"metadata": {}, "weight_map": {key: file for file, part in shards.items() for key in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "config.json").write_bytes((directory / "config.json").read_bytes())
    tokens = [5, 6, 7, 8, 9, MASK, MASK, MASK]
    assert torch.equal(logits_of(tmp_path, tokens), logits_of(directory, tokens))


def test_fused_expert_names_are_those_that_transformers_holds(family):
    oracle, directory = family
    described = describe(spec_of(directory)).described
    fused = rewritten(described, load_file(directory / "model.safetensors"), 1)
    theirs = {key: tensor for key, tensor in oracle.state_dict().items() if ".experts.gate_up_proj" in key}
    assert theirs
    assert all(torch.equal(fused[key], tensor) for key, tensor in theirs.items())
