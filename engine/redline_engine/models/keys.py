"""From the names and shapes of a checkpoint's tensors to the network's weights, and back.

Each weight of the network is joined from *pieces*: query, key and value rows are stacked, gate and up rows are, and all
experts are. Checkpoints differ in what they joined already, so a weight has several *layouts*, tried in order.

Checkpoints rotate dimension d of a head's rotated part with dimension d of its second half; LLaDA2 does not rotate the
whole head. The network rotates neighbours, and whole heads, so query and key rows are put in another order: the rotated
pairs, then the other dimensions, whose frequency is 0. Scores do not change, as queries and keys change alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from redline_engine.models.experts import ExpertShape
from redline_engine.models.families import Described
from redline_engine.models.network import NetworkShape
from redline_engine.models.reading import shortened

Shape = tuple[int, ...]


class Layout(NamedTuple):
    """One way to keep a weight: pieces, name to shape, that are joined along a dimension and then reshaped."""

    pieces: Mapping[str, Shape]
    dim: int = 0


class Weight(NamedTuple):
    """One weight of the network: its shape, how checkpoints keep it, and the order of rows, if it is another one."""

    shape: Shape
    layouts: tuple[Layout, ...]
    order: tuple[int, ...] | None = None


def choose(weights: Mapping[str, Weight], present: Mapping[str, Shape]) -> tuple[dict[str, Layout], list[str]]:
    """Find the layout in which a checkpoint keeps each weight, and every fault: missing, odd shapes, left over."""
    chosen, missing, odd = {}, [], []
    for name, weight in weights.items():
        layout = max(weight.layouts, key=lambda each: sum(key in present for key in each.pieces) / len(each.pieces))
        chosen[name] = layout
        missing += [key for key in layout.pieces if key not in present]
        odd += [
            f"tensor {key} is {list(present[key])}, by config.json it is {list(shape)}"
            for key, shape in layout.pieces.items()
            if key in present and tuple(present[key]) != shape
        ]
    used = {key for layout in chosen.values() for key in layout.pieces}
    faults = shortened(f"no tensor {key}" for key in sorted(set(missing)))
    faults += shortened(sorted(set(odd)))
    return chosen, faults + shortened(f"unknown tensor {key}" for key in sorted(set(present) - used))


def join(weight: Weight, layout: Layout, read: Callable[[str], Tensor]) -> Tensor:
    """Make a weight from its pieces."""
    pieces = [read(key) for key in layout.pieces]
    whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=layout.dim)
    whole = whole.reshape(weight.shape)
    return whole if weight.order is None else whole[torch.tensor(weight.order, device=whole.device)]


def split(weight: Weight, layout: Layout, whole: Tensor) -> dict[str, Tensor]:
    """Take a weight apart: the inverse of `join`."""
    if weight.order is not None:
        whole = whole[torch.tensor(weight.order, device=whole.device).argsort()]
    sizes = [shape[layout.dim] for shape in layout.pieces.values()]
    first = next(iter(layout.pieces.values()))
    joined = whole.reshape(*first[: layout.dim], sum(sizes), *first[layout.dim + 1 :])
    return dict(zip(layout.pieces, torch.split(joined, sizes, dim=layout.dim), strict=True))


def weights_of(described: Described) -> dict[str, Weight]:
    """Every weight of the network; the head of a tied model is its embedding and no weight of its own."""
    family, shape, tied = described
    llada2 = family == "llada2"
    hidden, wide, vocabulary = shape.hidden_size, shape.intermediate_size, shape.vocab_size
    embed = f"model.{'word_embeddings' if llada2 else 'embed_tokens'}.weight"
    weights = {"embed.weight": _one(embed, (vocabulary, hidden)), "norm.weight": _one("model.norm.weight", (hidden,))}
    if not tied:
        weights["head.weight"] = _one("lm_head.weight", (vocabulary, hidden))
    for number in range(shape.num_hidden_layers):
        here, there = f"layers.{number}", f"model.layers.{number}"
        weights[f"{here}.attention_norm.weight"] = _one(f"{there}.input_layernorm.weight", (hidden,))
        weights[f"{here}.mlp_norm.weight"] = _one(f"{there}.post_attention_layernorm.weight", (hidden,))
        weights |= _attention(f"{here}.attention", f"{there}.{'attention' if llada2 else 'self_attn'}", shape, llada2)
        if shape.is_dense(number):
            weights |= _mlp(here, f"{there}.mlp", hidden, wide)
        else:
            assert shape.experts is not None
            weights |= _experts(f"{here}.experts", f"{there}.mlp", hidden, shape.experts)
    return weights


def _one(key: str, shape: Shape) -> Weight:
    return Weight(shape, (Layout({key: shape}),))


def _attention(here: str, there: str, shape: NetworkShape, llada2: bool) -> dict[str, Weight]:
    size, hidden = shape.head_dim, shape.hidden_size
    rows = {"q": shape.num_attention_heads * size, "k": shape.num_key_value_heads * size}
    rows["v"] = rows["k"]
    fused: Shape = (sum(rows.values()), hidden)
    split_layout = Layout({f"{there}.{part}_proj.weight": (count, hidden) for part, count in rows.items()})
    fused_layout = Layout({f"{there}.query_key_value.weight": fused})
    q_norm, k_norm, out = ("query_layernorm", "key_layernorm", "dense") if llada2 else ("q_norm", "k_norm", "o_proj")
    order = _order(shape)
    rotated = rows["q"] + rows["k"]
    turned = (*(head + each for head in range(0, rotated, size) for each in order), *range(rotated, fused[0]))
    return {
        f"{here}.qkv.weight": Weight(fused, (split_layout, fused_layout), turned),
        f"{here}.q_norm.weight": _one(f"{there}.{q_norm}.weight", (size,))._replace(order=order),
        f"{here}.k_norm.weight": _one(f"{there}.{k_norm}.weight", (size,))._replace(order=order),
        f"{here}.out.weight": _one(f"{there}.{out}.weight", (hidden, rows["q"])),
    }


def _order(shape: NetworkShape) -> tuple[int, ...]:
    """Dimensions of a head in the network's order."""
    rotated = shape.rotary_dim or shape.head_dim
    half = rotated // 2
    pairs = (each for dimension in range(half) for each in (dimension, dimension + half))
    return (*pairs, *range(rotated, shape.head_dim))


def _mlp(here: str, there: str, hidden: int, wide: int, prefix: str = "") -> dict[str, Weight]:
    parts = Layout({f"{there}.{part}_proj.weight": (wide, hidden) for part in ("gate", "up")})
    whole = Layout({f"{there}.gate_up_proj.weight": (2 * wide, hidden)})
    return {
        f"{here}.{prefix}gate_up.weight": Weight((2 * wide, hidden), (parts, whole)),
        f"{here}.{prefix}down.weight": _one(f"{there}.down_proj.weight", (hidden, wide)),
    }


def _experts(here: str, there: str, hidden: int, shape: ExpertShape) -> dict[str, Weight]:
    count, wide = shape.num_experts, shape.moe_intermediate_size
    each = [f"{there}.experts.{number}" for number in range(count)]
    gate_up = (
        Layout({f"{expert}.{part}_proj.weight": (wide, hidden) for expert in each for part in ("gate", "up")}),
        Layout({f"{there}.experts.gate_up_proj": (count, 2 * wide, hidden)}),
        Layout({f"{there}.experts.{part}_proj": (count, wide, hidden) for part in ("gate", "up")}, dim=1),
    )
    down = (
        Layout({f"{expert}.down_proj.weight": (hidden, wide) for expert in each}),
        Layout({f"{there}.experts.down_proj": (count, hidden, wide)}),
    )
    weights = {
        f"{here}.router.weight": _one(f"{there}.gate.weight", (count, hidden)),
        f"{here}.gate_up.weight": Weight((count, 2 * wide, hidden), gate_up),
        f"{here}.down.weight": Weight((count, hidden, wide), down),
    }
    if shape.expert_bias:
        names = ("expert_bias", "e_score_correction_bias")
        layouts = tuple(Layout({f"{there}.gate.{name}": (count,)}) for name in names)
        weights[f"{here}.router.bias"] = Weight((count,), layouts)
    if shape.shared_intermediate_size:
        weights |= _mlp(here, f"{there}.shared_experts", hidden, shape.shared_intermediate_size, "shared_")
    return weights
