"""What a checkpoint's ``config.json`` says: its family, the network's shape, and what this engine does not implement.

==========  ==============================  ======================================================================
sdar        sdar, qwen3                     dense layers of Qwen3
sdar_moe    sdar_moe, qwen3_moe             experts of Qwen3-MoE: softmax router
llada2      llada2_moe                      LLaDA2.0 and 2.1: sigmoid router in groups, a shared expert, rotary
                                            positions on part of each head
==========  ==============================  ======================================================================

Every key that is known to change the arithmetic is read here or refused (`implemented`, `rotary`); keys about training,
dropout and caches are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from redline_engine.models.experts import ExpertShape
from redline_engine.models.implemented import refuse_layer_types, refuse_others
from redline_engine.models.network import NetworkShape
from redline_engine.models.reading import refuse
from redline_engine.models.rotary import rope_theta, rotary_dim
from redline_engine.models.settings import Settings
from redline_engine.models.surface import Family, family_of

_MOST_LAYERS, _MOST_HEADS, _MOST_EXPERTS = 2**12, 2**12, 2**14  # each is counted out before a file is looked at
_ROUTED = ("num_experts", "num_local_experts", "n_routed_experts")  # the second is how transformers 5 writes it
_SHARED = ("num_shared_experts", "n_shared_experts")


class Described(NamedTuple):
    """What ``config.json`` says of the network."""

    family: Family
    shape: NetworkShape
    tied: bool


def read_family(config: Mapping[str, Any], path: Path) -> Described:
    """Read what a network is like.

    Raises
    ------
    CheckpointError
        With every key that is missing, contradicts another, or is not implemented.
    """
    family, faults = family_of(config)
    refuse(path, faults)  # what the other keys mean depends on the family
    assert family is not None
    found = Settings(config)
    refuse_others(found, family)
    if not found.given("hidden_act"):
        found.complain("hidden_act", "no hidden_act")
    head_dim = found.whole("head_dim", least=2, most=_MOST_HEADS)
    layers = found.whole("num_hidden_layers", most=_MOST_LAYERS)
    refuse_layer_types(found, layers)
    shape = NetworkShape(
        vocab_size=found.whole("vocab_size"),
        hidden_size=found.whole("hidden_size"),
        intermediate_size=found.whole("intermediate_size"),
        num_hidden_layers=layers,
        num_attention_heads=found.whole("num_attention_heads", most=_MOST_HEADS),
        num_key_value_heads=found.whole("num_key_value_heads", most=_MOST_HEADS),
        head_dim=head_dim,
        rms_norm_eps=found.number("rms_norm_eps", config.get("rms_norm_eps")),
        rope_theta=rope_theta(found),
        rotary_dim=rotary_dim(found, head_dim, usual=0.5 if family == "llada2" else 1),
        experts=None if family == "sdar" else _experts(found, family, layers),
    )
    heads, shared = shape.num_attention_heads, shape.num_key_value_heads
    if found.sound("num_attention_heads", "num_key_value_heads") and heads % shared:
        found.faults.append(f"num_attention_heads {heads} is no multiple of num_key_value_heads {shared}")
    tied = found.flag("tie_word_embeddings", default=False)  # as transformers has it for each of the families
    refuse(path, found.faults)
    return Described(family, shape, tied)


def _experts(found: Settings, family: Family, layers: int) -> ExpertShape:
    experts = _count(found, _ROUTED, least=1)
    each, width = found.whole("num_experts_per_tok"), found.whole("moe_intermediate_size")
    if found.sound("num_experts", "num_experts_per_tok") and each > experts:
        found.complain("num_experts_per_tok", f"num_experts_per_tok {each} exceeds num_experts {experts}")
    if family == "sdar_moe":
        return ExpertShape(
            experts,
            each,
            width,
            norm_topk_prob=found.flag("norm_topk_prob"),
            dense_layers=_dense_layers(found, layers),
        )
    groups, kept = _groups(found, experts, each)
    return ExpertShape(
        experts,
        each,
        width,
        norm_topk_prob=found.flag("norm_topk_prob", default=True),
        dense_layers=frozenset(range(found.whole("first_k_dense_replace", least=0, default=0))),
        sigmoid=True,
        expert_bias=found.flag("moe_router_enable_expert_bias", default=True),
        n_group=groups,
        topk_group=kept,
        routed_scaling_factor=found.number("routed_scaling_factor", found.values.get("routed_scaling_factor")),
        shared_intermediate_size=_count(found, _SHARED, least=0, default=0)
        * found.whole("moe_shared_expert_intermediate_size", default=width),
    )


def _count(found: Settings, names: tuple[str, ...], least: int, default: int | None = None) -> int:
    """Read a number that relatives of the families write under other names; they must not contradict each other."""
    said = found.given(*names)
    found.agreed(names[0], said)
    return found.whole(next(iter(said), names[0]), least, default, _MOST_EXPERTS)


def _dense_layers(found: Settings, layers: int) -> frozenset[int]:
    step, plain = found.whole("decoder_sparse_step", default=1), found.values.get("mlp_only_layers") or []
    if not found.sound("num_hidden_layers"):
        return frozenset()
    if not isinstance(plain, list) or not all(type(number) is int and 0 <= number < layers for number in plain):
        fault = f"mlp_only_layers: {plain!r} is not allowed; it must be a list of layers below {layers}"
        found.complain("mlp_only_layers", fault)
        plain = []
    return frozenset(number for number in range(layers) if number in plain or (number + 1) % step)


def _groups(found: Settings, experts: int, each: int) -> tuple[int, int]:
    """Groups of experts, and how many of them a row may choose from."""
    groups, kept = found.whole("n_group"), found.whole("topk_group")
    odd = experts % groups or kept > groups or (kept < groups and experts < 2 * groups)
    if found.sound("num_experts", "num_experts_per_tok", "n_group", "topk_group") and (
        odd or each > kept * (experts // groups)
    ):
        found.faults.append(
            f"{experts} experts in n_group {groups}, topk_group {kept}, cannot give num_experts_per_tok {each}"
        )
    return groups, kept
