"""Keys of a ``config.json`` that change the arithmetic, and the values that this engine implements of each.

They are those of transformers' Qwen3, Qwen3-MoE and GLM-4-MoE, those that SDAR and LLaDA2 publish, and those by which
their relatives (MiniCPM, Granite, Gemma, Llama 4, Ling, DeepSeek) change what no tensor shows. A key that adds or
removes weights need not be here: its tensors are missing, or left over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redline_engine.models.settings import Settings
from redline_engine.models.surface import Family

_Allowed = tuple[Any, ...]  # empty: none, i.e. the key must be null or missing

_EVERYWHERE: Mapping[str, _Allowed] = {
    "hidden_act": ("silu",),
    "position_embedding_type": ("rope",),
    "router_dtype": ("fp32", "float32"),
    **dict.fromkeys(
        (
            "add_qkv_bias",
            "alibi",
            "apply_residual_connection_post_layernorm",
            "attention_bias",
            "attention_output_gate",
            "attn_output_gate",
            "attn_temperature_tuning",
            "lm_head_bias",
            "mlp_bias",
            "norm_head",
            "norm_softmax",
            "qkv_bias",
            "rope_interleave",
            "rope_interleaved",
            "rope_traditional",
            "use_bias",
            "use_mrope",
            "use_qkv_bias",
            "use_regular_causal",
            "use_sliding_window",
        ),
        (False,),
    ),
    **dict.fromkeys(
        (
            "moe_router_enable_routed_scaling",
            "moe_router_enable_shared_expert",
            "use_qk_norm",
            "use_rmsnorm",
            "use_rope",
        ),
        (True,),
    ),
    **dict.fromkeys(
        ("embedding_multiplier", "logit_scale", "logits_scaling", "residual_multiplier", "rope_ratio", "scale_emb"),
        (1,),
    ),
    **dict.fromkeys(
        (
            "attention_chunk_size",
            "attention_multiplier",
            "attn_logit_softcapping",
            "clip_qkv",
            "dim_model_base",
            "final_logit_softcapping",
            "no_rope_layer_interval",
            "no_rope_layers",
            "quantization_config",
            "query_pre_attn_scalar",
            "rope_local_base_freq",
            "rotary_base",
            "rotary_emb_base",
            "rotary_pct",
            "rotary_percent",
            "scale_depth",
            "sliding_window_pattern",
            "swiglu_limit",
        ),
        (),
    ),
}
_OF_FAMILY: Mapping[Family, Mapping[str, _Allowed]] = {
    "sdar": {},
    "sdar_moe": {
        "scoring_func": ("softmax",),
        "score_function": ("softmax",),
        "topk_method": ("greedy",),
        "n_group": (1,),
        "topk_group": (1,),
        "routed_scaling_factor": (1,),
    },
    "llada2": {
        "scoring_func": ("sigmoid",),
        "score_function": ("sigmoid",),
        "topk_method": ("noaux_tc",),
        "decoder_sparse_step": (1,),
        "mlp_only_layers": ([],),
    },
}


def refuse_others(found: Settings, family: Family) -> None:
    """Complain of every value that is not implemented."""
    for name, allowed in (*_EVERYWHERE.items(), *_OF_FAMILY[family].items()):
        value = found.values.get(name)
        if value is not None and value not in allowed:
            spelt = " or ".join(json.dumps(each) for each in allowed) or "null"
            found.complain(name, f"{name} {json.dumps(value)[:60]}; only {spelt} is implemented")


def refuse_layer_types(found: Settings, layers: int) -> None:
    """Complain of layers that see less than all positions, and of a list for another number of layers."""
    kinds = found.values.get("layer_types")
    if kinds is None:
        return
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        fault = f'layer_types {json.dumps(kinds)[:60]}; only a list of "full_attention" is implemented'
        found.complain("layer_types", fault)
    elif found.sound("num_hidden_layers") and len(kinds) != layers:
        fault = f"layer_types has {len(kinds)} layers, num_hidden_layers says {layers}; correct one of the two"
        found.complain("layer_types", fault)
