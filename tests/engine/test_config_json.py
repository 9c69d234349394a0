"""Published ``config.json`` files are read; what contradicts itself or is not implemented is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from redline_engine.models.checkpoint import CheckpointError
from redline_engine.models.families import read_family

SDAR = {  # SDAR-8B-Chat
    "architectures": ["SDARForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {"AutoModelForCausalLM": "modeling_sdar.SDARForCausalLM"},
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "fuse_cross_entropy": True,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 12288,
    "max_position_embeddings": 32768,
    "max_window_layers": 36,
    "model_type": "sdar",
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
SDAR_MOE = SDAR | {  # SDAR-30B-A3B
    "architectures": ["SDARMoeForCausalLM"],
    "model_type": "sdar_moe",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
}
LLADA2 = {  # LLaDA2.0-mini
    "architectures": ["LLaDA2MoeModelLM"],
    "attention_dropout": 0.0,
    "embedding_dropout": 0.0,
    "eos_token_id": 156892,
    "first_k_dense_replace": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "max_position_embeddings": 16384,
    "max_window_layers": 20,
    "model_type": "llada2_moe",
    "moe_intermediate_size": 512,
    "moe_router_enable_expert_bias": True,
    "n_group": 8,
    "norm_head": False,
    "norm_softmax": False,
    "norm_topk_prob": True,
    "num_attention_heads": 16,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 20,
    "num_key_value_heads": 4,
    "num_shared_experts": 1,
    "output_dropout": 0.0,
    "pad_token_id": 156892,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 600000,
    "rotary_dim": 64,
    "routed_scaling_factor": 2.5,
    "router_dtype": "fp32",
    "score_function": "sigmoid",
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "topk_group": 4,
    "use_bias": False,
    "use_qk_norm": True,
    "use_qkv_bias": False,
    "use_rmsnorm": True,
    "use_sliding_window": False,
    "using_split_qkv_in_lora": False,
    "vocab_size": 157184,
}
PUBLISHED = {"sdar": SDAR, "sdar_moe": SDAR_MOE, "llada2": LLADA2}


def read(family, **changes):
    return read_family(PUBLISHED[family] | changes, Path("config.json"))


def faults_of(family, **changes):
    with pytest.raises(CheckpointError) as error:
        read(family, **changes)
    return [line.removeprefix("config.json: ") for line in str(error.value).splitlines()]


@pytest.fixture(params=PUBLISHED)
def family(request):
    return request.param


def test_published_files_are_read(family):
    found = read(family)
    assert found.family == family
    assert not found.tied
    rotated = {"llada2": (64, 600000.0)}.get(family, (128, 1000000.0))
    assert (found.shape.rotary_dim, found.shape.rope_theta) == rotated


def test_a_file_as_transformers_5_writes_it_is_the_same(family):
    rope = {"rope_type": "default", "rope_theta": PUBLISHED[family]["rope_theta"]}
    if family == "llada2":
        rope["partial_rotary_factor"] = 0.5
    layers = ["full_attention"] * PUBLISHED[family]["num_hidden_layers"]
    gone = {"rope_theta": None, "partial_rotary_factor": None, "rotary_dim": None}
    assert read(family, **gone, rope_parameters=rope, layer_types=layers, dtype="bfloat16") == read(family)
    assert read(family, rope_parameters=rope) == read(family), "saying it twice is no contradiction"
    assert read(family, rope_scaling={"type": "default"}) == read(family)


@pytest.mark.parametrize("group", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize(
    ("inner", "problem"),
    [
        ({"rope_theta": 1e4}, "{group}.rope_theta 10000 contradicts rope_theta {theta}; correct one of the two"),
        ({"rope_theta": "big"}, "{group}.rope_theta: 'big' is not allowed"),
        ({"partial_rotary_factor": 0.25}, "partial_rotary_factor 0.25"),
        ({"rope_type": "yarn", "factor": 4}, "rotary scaling yarn; none is implemented"),
        ({"type": "linear", "factor": 4}, "rotary scaling linear; none is implemented"),
        ({"rope_type": "default", "type": "yarn"}, "rotary scaling yarn; none is implemented"),
        ({"rope_type": 3}, "rotary scaling 3; none is implemented"),
        ({"factor": 4.0}, "{group}.factor 4.0; no such rotary setting is implemented"),
        (
            {"full_attention": {"rope_type": "default", "rope_theta": 1e6}},
            '{group}.full_attention {{"rope_type": "default", "rope_theta": 1000000.0}}; no such rotary setting',
        ),
        ("yarn", '{group}: "yarn" is not allowed; it must be null or an object'),
        ([1], "{group}: [1] is not allowed; it must be null or an object"),
    ],
)
def test_rotary_settings_that_are_scaled_or_contradict_each_other_are_refused(family, group, inner, problem):
    theta = PUBLISHED[family]["rope_theta"]
    (fault,) = faults_of(family, **{group: inner})
    assert problem.format(group=group, theta=theta) in fault


def test_a_base_that_stands_in_settings_by_layer_is_not_called_missing(family):
    (fault,) = faults_of(family, rope_theta=None, rope_parameters={"full_attention": {"rope_theta": 1e6}})
    assert fault.startswith('rope_parameters.full_attention {"rope_theta": 1000000.0}; no such rotary setting')


def test_two_groups_of_rotary_settings_must_agree(family):
    groups = {"rope_parameters": {"rope_theta": 5e5}, "rope_scaling": {"rope_theta": 6e5}}
    (fault,) = faults_of(family, rope_theta=None, **groups)
    assert fault.startswith("rope_parameters.rope_theta 500000 contradicts rope_scaling.rope_theta 600000")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention_bias", True),
        ("attention_output_gate", True),
        ("attn_output_gate", True),
        ("norm_softmax", True),
        ("rope_interleave", True),
        ("use_regular_causal", True),
        ("use_sliding_window", True),
        ("use_rmsnorm", False),
        ("use_qk_norm", False),
        ("use_qk_norm", "true"),
        ("scale_emb", 12),
        ("logits_scaling", 0.5),
        ("logit_scale", 0.0625),
        ("attention_multiplier", 0.01),
        ("query_pre_attn_scalar", 256),
        ("final_logit_softcapping", 30.0),
        ("attention_chunk_size", 8192),
        ("swiglu_limit", 7.0),
        ("no_rope_layers", [0, 1]),
        ("router_dtype", "bf16"),
        ("quantization_config", {"quant_method": "fp8"}),
    ],
)
def test_what_changes_the_arithmetic_is_refused(family, name, value):
    (fault,) = faults_of(family, **{name: value})
    assert fault.startswith(f"{name} ")
    assert fault.endswith("is implemented")


def test_routers_of_the_other_kind_are_refused():
    for name in ("score_function", "scoring_func"):
        assert faults_of("llada2", **{name: "softmax"}) == [f'{name} "softmax"; only "sigmoid" is implemented']
        assert faults_of("sdar_moe", **{name: "sigmoid"}) == [f'{name} "sigmoid"; only "softmax" is implemented']
    for family, method in (("llada2", "noaux_tc"), ("sdar_moe", "greedy")):
        said = f'topk_method "group_limited_greedy"; only "{method}" is implemented'
        assert faults_of(family, topk_method="group_limited_greedy") == [said]
    assert faults_of("sdar_moe", n_group=8) == ["n_group 8; only 1 is implemented"]
    assert faults_of("llada2", mlp_only_layers=[2]) == ["mlp_only_layers [2]; only [] is implemented"]


def test_layers_that_see_a_part_of_the_positions_are_refused(family):
    layers = PUBLISHED[family]["num_hidden_layers"]
    (fault,) = faults_of(family, layer_types=["sliding_attention"] * layers)
    assert fault.endswith('only a list of "full_attention" is implemented')
    (fault,) = faults_of(family, layer_types=["full_attention"])
    assert fault == f"layer_types has 1 layers, num_hidden_layers says {layers}; correct one of the two"


@pytest.mark.parametrize("value", ["false", "", 1, []])
def test_whether_the_head_is_tied_is_true_or_false(family, value):
    assert faults_of(family, tie_word_embeddings=value) == [f"tie_word_embeddings: {value!r} is not true or false"]
    assert not read(family, tie_word_embeddings=None).tied
    assert read(family, tie_word_embeddings=True).tied


def test_a_missing_key_is_one_fault(family):
    """What would follow from it is not said: it would be about numbers that nobody wrote."""
    optional = {"sdar": set(), "sdar_moe": {"decoder_sparse_step"}, "llada2": {"first_k_dense_replace"}}[family]
    optional |= {"num_shared_experts", "max_window_layers", "max_position_embeddings", "rotary_dim"}
    needed = {
        name
        for name, value in PUBLISHED[family].items()
        if type(value) in (int, float) and not name.endswith(("_id", "_dropout", "_range", "_coef", "_window"))
    } - optional
    needed -= {"partial_rotary_factor"}  # LLaDA2 has one half where it is not said
    assert needed >= {"num_attention_heads", "rope_theta", "head_dim"}
    for name in needed:
        assert faults_of(family, **{name: None}) == [f"no {name}"]


def test_numbers_of_experts_go_by_several_names_that_must_agree():
    assert read("llada2", num_experts=None, n_routed_experts=256) == read("llada2")
    assert read("sdar_moe", num_experts=None, num_local_experts=128) == read("sdar_moe")
    assert faults_of("llada2", n_routed_experts=64) == [
        "num_experts 256 contradicts n_routed_experts 64; correct one of the two"
    ]
    assert faults_of("llada2", n_shared_experts=2) == [
        "num_shared_experts 1 contradicts n_shared_experts 2; correct one of the two"
    ]


@pytest.mark.parametrize("changes", [{"model_type": "bailing_moe"}, {"model_type": "qwen3_moe"}])
def test_of_another_family_nothing_more_is_said(changes):
    name = {"bailing_moe": ["BailingMoeV2ForCausalLM"]}.get(changes["model_type"], SDAR["architectures"])
    (fault,) = faults_of("sdar", architectures=name, hidden_act="gelu", **changes)
    assert fault.startswith(f"model_type '{changes['model_type']}'")
