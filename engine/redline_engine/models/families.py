"""What a checkpoint's ``config.json`` says: its family, the network's shape, and what this engine does not implement.

==========  ==============================  ======================================================================
sdar        sdar, qwen3                     dense layers of Qwen3
sdar_moe    sdar_moe, qwen3_moe             experts of Qwen3-MoE: softmax router
llada2      llada2_moe                      LLaDA2.0 and 2.1: sigmoid router in groups, a shared expert, rotary
                                            positions on part of each head
==========  ==============================  ======================================================================

Every key that would change the arithmetic is read or refused; keys about training, dropout and caches are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from redline_engine.models.experts import ExpertShape
from redline_engine.models.network import NetworkShape
from redline_engine.models.reading import refuse
from redline_engine.models.surface import Family, family_of

_MUST_BE: Mapping[str, tuple[Any, str]] = {  # the value that is implemented, and how JSON spells it
    "hidden_act": ("silu", '"silu"'),
    "attention_bias": (False, "false"),
    "use_qkv_bias": (False, "false"),
    "use_bias": (False, "false"),
    "mlp_bias": (False, "false"),
    "use_qk_norm": (True, "true"),
    "use_sliding_window": (False, "false"),
    "norm_head": (False, "false"),
    "score_function": ("sigmoid", '"sigmoid"'),
    "quantization_config": (None, "null, i.e. plain weights,"),
}


_MOST_LAYERS, _MOST_HEADS, _MOST_EXPERTS = 2**12, 2**12, 2**14  # each is counted out before a file is looked at
_MOST = 1e30  # finite in float32


class Described(NamedTuple):
    """What ``config.json`` says of the network."""

    family: Family
    shape: NetworkShape
    tied: bool


class _Config:
    """A configuration, and what is wrong with it."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.faults: list[str] = []

    def whole(self, name: str, least: int = 1, default: int | None = None, most: int = 2**24) -> int:
        value = self.values.get(name)
        value = default if value is None else value
        if value is None:
            self.faults.append(f"no {name}")
        elif not isinstance(value, int) or isinstance(value, bool) or value < least:
            self.faults.append(f"{name}: {value!r} is not allowed; it must be a whole number of at least {least}")
        elif value > most:
            self.faults.append(f"{name}: {value} is not allowed; it must be at most {most}")
        else:
            return value
        return max(least, 1)

    def number(self, name: str, value: Any) -> float:
        if value is None:
            self.faults.append(f"no {name}")
        elif not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= _MOST:
            self.faults.append(f"{name}: {value!r} is not allowed; it must be a number above 0, at most {_MOST:g}")
        else:
            return float(value)
        return 1.0


def read_family(config: Mapping[str, Any], path: Path) -> Described:
    """Read what a network is like.

    Raises
    ------
    CheckpointError
        With every key that is missing, contradicts another, or is not implemented.
    """
    found = _Config(config)
    family, faults = family_of(config)
    found.faults += faults
    found.faults += [
        f"{name} {json.dumps(config[name])[:60]}; only {spelt} is implemented"
        for name, (allowed, spelt) in _MUST_BE.items()
        if config.get(name) not in (allowed, None)
    ]
    if config.get("hidden_act") is None:
        found.faults.append("no hidden_act")
    rope, scaling = (
        value if isinstance(value, Mapping) else {}
        for value in (config.get("rope_parameters"), config.get("rope_scaling"))
    )
    kinds = {str(each.get("rope_type", each.get("type", "default"))) for each in (rope, scaling)}
    if kinds != {"default"}:
        found.faults.append(f"rotary scaling {', '.join(sorted(kinds - {'default'}))}; none is implemented")
    head_dim = found.whole("head_dim", least=2, most=_MOST_HEADS)
    shape = NetworkShape(
        vocab_size=found.whole("vocab_size"),
        hidden_size=found.whole("hidden_size"),
        intermediate_size=found.whole("intermediate_size"),
        num_hidden_layers=found.whole("num_hidden_layers", most=_MOST_LAYERS),
        num_attention_heads=found.whole("num_attention_heads", most=_MOST_HEADS),
        num_key_value_heads=found.whole("num_key_value_heads", most=_MOST_HEADS),
        head_dim=head_dim,
        rms_norm_eps=found.number("rms_norm_eps", config.get("rms_norm_eps")),
        rope_theta=found.number("rope_theta", config.get("rope_theta", rope.get("rope_theta"))),
        rotary_dim=_rotary_dim(found, family, head_dim, rope),
        experts=None if family in ("sdar", None) else _experts(found, family),
    )
    if shape.num_attention_heads % shape.num_key_value_heads:
        found.faults.append(
            f"num_attention_heads {shape.num_attention_heads} is no multiple of num_key_value_heads "
            f"{shape.num_key_value_heads}"
        )
    refuse(path, found.faults)
    assert family is not None
    return Described(family, shape, bool(config.get("tie_word_embeddings", False)))


def _rotary_dim(found: _Config, family: Family | None, head_dim: int, rope: Mapping[str, Any]) -> int:
    factor = found.values.get("partial_rotary_factor", rope.get("partial_rotary_factor"))
    stated = found.values.get("rotary_dim") is not None
    given = found.whole("rotary_dim", most=_MOST_HEADS) if stated else None
    if factor is None:
        factor = 0.5 if family == "llada2" and given is None else (given or head_dim) / head_dim
    dim = round(found.number("partial_rotary_factor", factor) * head_dim)
    if dim % 2 or head_dim % 2 or not 0 < dim <= head_dim:
        found.faults.append(f"partial_rotary_factor {factor} of head_dim {head_dim} is no even number of dimensions")
        return head_dim
    if given not in (None, dim):
        found.faults.append(f"rotary_dim {given} contradicts partial_rotary_factor {factor} of head_dim {head_dim}")
    if family != "llada2" and dim != head_dim:
        found.faults.append(f"partial_rotary_factor {factor}; this family rotates whole heads")
    return dim


def _experts(found: _Config, family: Family) -> ExpertShape:
    config = found.values
    layers = found.whole("num_hidden_layers", most=_MOST_LAYERS)
    other = config.get("num_local_experts")  # as transformers 5 writes it
    experts, each = found.whole("num_experts", default=other, most=_MOST_EXPERTS), found.whole("num_experts_per_tok")
    if other not in (None, experts):
        found.faults.append(f"num_experts {experts} contradicts num_local_experts {other}; correct one of the two")
    width = found.whole("moe_intermediate_size")
    if each > experts:
        found.faults.append(f"num_experts_per_tok {each} exceeds num_experts {experts}")
    if family == "sdar_moe":
        step = found.whole("decoder_sparse_step", default=1)
        plain = config.get("mlp_only_layers") or []
        if not isinstance(plain, list) or not all(type(number) is int and 0 <= number < layers for number in plain):
            found.faults.append(
                f"mlp_only_layers: {plain!r} is not allowed; it must be a list of layers below {layers}"
            )
            plain = []
        return ExpertShape(
            experts,
            each,
            width,
            norm_topk_prob=_flag(found, "norm_topk_prob"),
            dense_layers=frozenset(number for number in range(layers) if number in plain or (number + 1) % step),
        )
    groups = found.whole("n_group", default=1)
    kept = found.whole("topk_group", default=groups)
    if (
        experts % groups
        or kept > groups
        or each > kept * (experts // groups)
        or (kept < groups and experts < 2 * groups)
    ):
        found.faults.append(
            f"{experts} experts in n_group {groups}, topk_group {kept}, cannot give num_experts_per_tok {each}"
        )
    shared = found.whole("num_shared_experts", least=0, default=0)
    return ExpertShape(
        experts,
        each,
        width,
        norm_topk_prob=_flag(found, "norm_topk_prob", default=True),
        dense_layers=frozenset(range(found.whole("first_k_dense_replace", least=0, default=0))),
        sigmoid=True,
        expert_bias=_flag(found, "moe_router_enable_expert_bias", default=True),
        n_group=groups,
        topk_group=kept,
        routed_scaling_factor=found.number("routed_scaling_factor", config.get("routed_scaling_factor", 1.0)),
        shared_intermediate_size=shared * found.whole("moe_shared_expert_intermediate_size", default=width),
    )


def _flag(found: _Config, name: str, default: bool | None = None) -> bool:
    value = found.values.get(name, default)
    if not isinstance(value, bool):
        found.faults.append(f"no {name}" if value is None else f"{name}: {value!r} is not true or false")
    return bool(value)
