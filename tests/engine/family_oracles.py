"""Random models of each family of transformers, and the directories that hold them. Needs torch and transformers."""

from __future__ import annotations

import json

import torch
import transformers
from qwen3_oracle import END, random_qwen3
from safetensors.torch import save_file

SIZES = {
    "vocab_size": 120,
    "hidden_size": 48,
    "intermediate_size": 80,
    "moe_intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
    "eos_token_id": END,
}


def widened(oracle):
    """Weights so wide that the most probable token varies."""
    oracle = oracle.eval().float()
    for name, tensor in [*oracle.named_parameters(), *oracle.named_buffers()]:
        if "inv_freq" not in name:
            tensor.data.normal_(mean=float(tensor.ndim == 1 and "bias" not in name), std=0.3)
    return oracle


def random_qwen3_moe():
    """Three layers, the middle one dense."""
    torch.manual_seed(12)
    config = transformers.Qwen3MoeConfig(
        **SIZES, num_experts=8, mlp_only_layers=[1], decoder_sparse_step=1, attn_implementation="eager"
    )
    return widened(transformers.Qwen3MoeForCausalLM(config))


def random_glm4_moe():
    """LLaDA2 by another name: the first layer dense, then 8 experts in 4 groups, 2 of which may be chosen from."""
    torch.manual_seed(13)
    config = transformers.Glm4MoeConfig(
        **SIZES,
        n_routed_experts=8,
        n_group=4,
        topk_group=2,
        n_shared_experts=1,
        first_k_dense_replace=1,
        routed_scaling_factor=2.5,
        use_qk_norm=True,
        attention_bias=False,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 6e5, "partial_rotary_factor": 0.5},
        attn_implementation="eager",
    )
    return widened(transformers.Glm4MoeForCausalLM(config))


def llada2_names(oracle):
    """The oracle's tensors under LLaDA2's names: fused query, key and value, experts one by one."""
    made = {}
    for name, tensor in oracle.state_dict().items():
        name = name.replace("embed_tokens", "word_embeddings").replace("self_attn", "attention")
        name = name.replace("o_proj", "dense").replace("e_score_correction_bias", "expert_bias")
        name = name.replace("q_norm", "query_layernorm").replace("k_norm", "key_layernorm")
        stem = name.rpartition(".")[0]
        if name.endswith("experts.gate_up_proj"):
            for number, (gate, up) in enumerate(each.chunk(2) for each in tensor):
                made[f"{stem}.{number}.gate_proj.weight"], made[f"{stem}.{number}.up_proj.weight"] = gate, up
        elif name.endswith("experts.down_proj"):
            made |= {f"{stem}.{number}.down_proj.weight": each for number, each in enumerate(tensor)}
        else:
            made[name] = tensor
    for stem in [name.removesuffix(".q_proj.weight") for name in made if name.endswith(".q_proj.weight")]:
        parts = [made.pop(f"{stem}.{part}_proj.weight") for part in "qkv"]
        made[f"{stem}.query_key_value.weight"] = torch.cat(parts)
    return {name: tensor.contiguous().clone() for name, tensor in made.items()}


LLADA2_CONFIG = {
    "architectures": ["LLaDA2MoeModelLM"],
    "auto_map": {"AutoModelForCausalLM": "modeling_llada2_moe.LLaDA2MoeModelLM"},
    "model_type": "llada2_moe",
    **SIZES,
    "hidden_act": "silu",
    "num_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5,
    "score_function": "sigmoid",
    "partial_rotary_factor": 0.5,
    "rope_theta": 600000,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "use_qk_norm": True,
    "use_bias": False,
    "use_qkv_bias": False,
    "tie_word_embeddings": False,
}


def write_llada2(oracle, directory):
    """The oracle as LLaDA2's published directories hold it."""
    save_file(llada2_names(oracle), directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(LLADA2_CONFIG))


def write_family(name, directory):
    """Write a model of a family, and return its oracle."""
    if name == "llada2":
        oracle = random_glm4_moe()
        write_llada2(oracle, directory)
    else:
        oracle = random_qwen3(tied=False) if name == "sdar" else random_qwen3_moe()
        oracle.save_pretrained(directory)
    return oracle
