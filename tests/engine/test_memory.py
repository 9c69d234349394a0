"""Memory is known before a weight is read, and a load that does not fit is refused with the numbers."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from family_oracles import write_family  # noqa: E402
from qwen3_oracle import MASK  # noqa: E402

from redline_engine import states, table  # noqa: E402
from redline_engine.config import DecodeKnobs, ModelSpec  # noqa: E402
from redline_engine.engine import Engine  # noqa: E402
from redline_engine.models import memory  # noqa: E402
from redline_engine.models.checkpoint import CheckpointError, describe, load  # noqa: E402
from redline_engine.models.families import read_family  # noqa: E402
from redline_engine.models.keys import weights_of  # noqa: E402
from redline_engine.models.memory import Load, plan  # noqa: E402
from redline_engine.models.reading import TensorFiles  # noqa: E402
from redline_engine.models.scripted import HashModel  # noqa: E402
from redline_engine.request import Prompt  # noqa: E402

SDAR_8B = {
    "model_type": "sdar",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
SDAR_30B = SDAR_8B | {
    "model_type": "sdar_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
LLADA2_MINI = SDAR_8B | {
    "model_type": "llada2_moe",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 20,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 157184,
    "rope_theta": 600000,
    "partial_rotary_factor": 0.5,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "num_shared_experts": 1,
    "n_group": 8,
    "topk_group": 4,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
}


def described(config):
    return read_family(config, Path("config.json"))


@pytest.mark.parametrize(
    ("config", "parameters", "position"),
    [
        (SDAR_8B, 8_190_735_360, 36 * 2 * 8 * 128 * 2),  # as many as Qwen3-8B
        (SDAR_30B, 30_532_122_624, 48 * 2 * 4 * 128 * 2),  # as many as Qwen3-30B-A3B
        (LLADA2_MINI, 16_255_643_392, 20 * 2 * 4 * 128 * 2),
    ],
)
def test_published_sizes_are_planned_without_their_files(config, parameters, position):
    found = described(config)
    count = 0
    for weight in weights_of(found).values():
        size = 1
        for side in weight.shape:
            size *= side
        count += size
    assert count == parameters
    planned = plan(found, ModelSpec("-", dtype="bfloat16"), Load(8, 512, 1024, 32))
    assert planned.position == position
    assert 2 * parameters <= planned.weights <= 2 * parameters * 1.001, "routers are float32"
    assert planned.cache == 2 * 8 * (1536 + 2 * 4 * 32) * position, "of a buffer of 4, the blocks of two steps"
    narrow = plan(found, ModelSpec("-", dtype="bfloat16", weights="int4"))
    assert 0.3 * planned.weights < narrow.weights < 0.45 * planned.weights
    assert narrow.cache == 0


@pytest.fixture(scope="module", params=["sdar", "sdar_moe", "llada2"])
def directory(request, tmp_path_factory):
    made = tmp_path_factory.mktemp(request.param)
    write_family(request.param, made)
    return made


def spec_of(directory, **changes):
    return ModelSpec(str(directory), device="cpu", block_size=4, mask_id=MASK, **changes)


def held(network):
    tensors = {each.data_ptr(): each for each in (*network.parameters(), *network.buffers())}
    return sum(each.numel() * each.element_size() for each in tensors.values())


@pytest.mark.parametrize("weights", ["float32", "bfloat16", "int8", "int4"])
def test_the_planned_bytes_are_those_that_are_held(directory, weights):
    spec = spec_of(directory, weights=weights)
    model = load(spec)
    assert plan(describe(spec).described, spec).weights == held(model.network)
    assert model.weight_shares == pytest.approx(memory_shares(spec))


def memory_shares(spec):
    from redline_engine.models.checkpoint import weight_shares

    return weight_shares(spec)


def test_what_does_not_fit_is_refused_before_a_weight_is_read(directory, monkeypatch):
    spec = spec_of(directory)
    planned = plan(describe(spec).described, spec)
    monkeypatch.setattr(TensorFiles, "reader", lambda *_: pytest.fail("a weight was read"))
    monkeypatch.setattr(memory, "free_memory", lambda device: planned.weights - 1)
    with pytest.raises(CheckpointError) as error:
        load(spec)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{directory}: needs 0.00 GiB on cpu, where 0.00 are free (weights 0.00, loading")
    assert line.endswith("keep weights in fewer bits (weights: int8 or int4), or dtype: bfloat16")


def test_a_smaller_batch_is_what_helps_where_the_weights_fit(directory, monkeypatch):
    spec, large = spec_of(directory), Load(1000, 200, 200, 4)
    needed = plan(describe(spec).described, spec, large)
    free = needed.weights + (needed.total("cpu") - needed.weights) // 4
    monkeypatch.setattr(memory, "free_memory", lambda device: free)
    with pytest.raises(CheckpointError, match="lower batch_size to 25 % of what it is, or max_new_tokens"):
        load(spec, large)
    load(spec, Load(240, 200, 200, 4))
    monkeypatch.setattr(memory, "free_memory", lambda device: None)
    load(spec, large)


def test_pages_are_there_from_the_load_on(directory):
    use = Load(4, 9, 22, 4, buffer_size=2)
    model = load(spec_of(directory), use)
    kept = model._caches[4].kept
    prompts = [Prompt(str(length), list(range(1, length + 1))) for length in (1, 3, 8, 9)]
    Engine(model, 4).generate(prompts, [DecodeKnobs(buffer_size=2, max_new_tokens=22)])
    assert model._caches[4].kept is kept


@pytest.mark.parametrize("buffer_size", [1, 4])
def test_states_take_no_more_than_is_planned(directory, buffer_size):
    """Measured where they are made, while one configuration decodes 8 prompts."""
    use = Load(8, 100, 96, 8, buffer_size)
    forwards = steps = 0
    engine = Engine(HashModel(3, end_rate=0), 8)
    for number in range(8):
        tokens = [(7 * number + place) % 60 for place in range(100)]
        engine.submit(Prompt(str(number), tokens), [DecodeKnobs(buffer_size=buffer_size, max_new_tokens=96)])
    most = 0
    tracemalloc.start()
    try:
        while engine.busy:
            engine.step()
            steps += 1
            if steps % 8:
                continue
            made = [tracemalloc.Filter(True, module.__file__) for module in (states, table)]
            snapshot = tracemalloc.take_snapshot().filter_traces(made)
            taken = sum(each.size for each in snapshot.statistics("filename"))
            if taken > most:
                most, forwards = taken, engine.counts.forwards_run
    finally:
        tracemalloc.stop()
    planned = plan(describe(spec_of(directory)).described, spec_of(directory), use).states / (8 * 97)
    assert planned / 4 < most / forwards < planned


def test_free_memory_is_that_of_this_machine():
    free = memory.free_memory("cpu")
    assert free is None or 2**20 < free < 2**50
    assert memory.free_memory("meta") is None
    if not torch.cuda.is_available():
        assert memory.free_memory("cuda") is None
