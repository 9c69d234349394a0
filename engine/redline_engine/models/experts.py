"""Mixtures of experts: a router sends each row to a few experts, whose outputs are added by weight.

Two routers. SDAR-MoE (Qwen3-MoE) takes the softmax over all experts and keeps the largest. LLaDA2 takes a sigmoid for
each expert and chooses with a learnt bias added, first the best groups of experts (by the sum of their two best), then
the best experts of these; the bias does not enter the weights. Routing is float32 whatever the type of the rows, since
a rounded score would choose other experts.

The rows are sorted by expert and multiplied group by group: with PyTorch's grouped matmul where the device has one for
this type and shape, else in a loop over the experts that have rows at all.

Letters: ``T`` rows, ``E`` experts, ``k`` experts per row.

Source: the routers of transformers' Qwen3-MoE and DeepSeek-V3/GLM-4-MoE, which are the oracles in
tests/engine/test_families.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from redline_engine.models.modules import Direct, Linear

_ALIGNMENT = 16  # bytes that rows of a grouped matmul must be a multiple of


@dataclass(frozen=True)
class ExpertShape:
    """Sizes and constants of a mixture, named as in ``config.json``.

    Parameters
    ----------
    num_experts, num_experts_per_tok, moe_intermediate_size
        Experts, how many of them a row visits, and the width of one.
    norm_topk_prob
        Scale a row's weights to the sum 1.
    dense_layers
        Numbers of the layers that have a plain MLP instead.
    sigmoid
        LLaDA2's router; otherwise the softmax of Qwen3-MoE.
    expert_bias
        Choose with a bias added to the scores.
    n_group, topk_group
        Groups of experts, and how many of them a row may choose from.
    routed_scaling_factor
        Factor on all weights.
    shared_intermediate_size
        Width of the expert that every row visits beside the chosen ones; 0 for none.
    """

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    norm_topk_prob: bool
    dense_layers: frozenset[int]
    sigmoid: bool = False
    expert_bias: bool = False
    n_group: int = 1
    topk_group: int = 1
    routed_scaling_factor: float = 1.0
    shared_intermediate_size: int = 0


class Router(Direct):
    """Scores of the experts; its weights stay float32."""

    bias: nn.Parameter | None

    def __init__(self, hidden_size: int, shape: ExpertShape) -> None:
        super().__init__()
        self.shape = shape
        self.weight = nn.Parameter(torch.empty(shape.num_experts, hidden_size))
        self.bias = nn.Parameter(torch.empty(shape.num_experts)) if shape.expert_bias else None

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights ``[T, k]`` float32 and chosen experts ``[T, k]`` of rows ``[T, hidden]``."""
        shape = self.shape
        logits = functional.linear(x.float(), self.weight)
        scores = logits.sigmoid() if shape.sigmoid else logits.softmax(dim=-1)
        choice = scores if self.bias is None else scores + self.bias
        if shape.topk_group < shape.n_group:
            groups = choice.view(len(x), shape.n_group, -1)  # [T, groups, E / groups]
            best = groups.topk(2, dim=-1).values.sum(dim=-1).topk(shape.topk_group, dim=-1).indices
            kept = torch.zeros_like(groups[..., 0], dtype=torch.bool).scatter_(1, best, True)
            choice = groups.masked_fill(~kept[..., None], -torch.inf).flatten(1)
        chosen = choice.topk(shape.num_experts_per_tok, dim=-1).indices
        weights = scores.gather(1, chosen)
        if shape.norm_topk_prob:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return weights * shape.routed_scaling_factor, chosen


class GroupedLinear(Direct):
    """One linear layer without bias per expert, ``weight`` ``[E, rows, columns]``."""

    def __init__(self, experts: int, columns: int, rows: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, rows, columns))

    @property
    def is_grouped(self) -> bool:
        """Whether all groups are multiplied at once."""
        return self.is_grouped_on(self.weight.device.type)

    def is_grouped_on(self, device: str) -> bool:
        """Whether they would be on a kind of device, which this machine must have."""
        aligned = all(size * self.weight.element_size() % _ALIGNMENT == 0 for size in self.weight.shape[1:])
        return aligned and _has_grouped_matmul(device, self.weight.dtype)

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """Multiply; `x` ``[n, columns]`` is sorted by expert and holds `counts` ``[E]`` rows of each."""
        if self.is_grouped:
            ends = counts.cumsum(0, dtype=torch.int32)
            rows: Tensor = torch._grouped_mm(x, self.weight.transpose(1, 2), offs=ends)
            return rows
        return by_expert(x, counts, self.weight.__getitem__)


def by_expert(x: Tensor, counts: Tensor, weight_of: Callable[[int], Tensor]) -> Tensor:
    """Multiply the rows of each expert that has any by its weight ``[rows, columns]``."""
    pieces = torch.split(x, counts.tolist())
    busy = [(expert, piece) for expert, piece in enumerate(pieces) if len(piece)]
    return torch.cat([functional.linear(piece, weight_of(expert)) for expert, piece in busy])


@cache
def _has_grouped_matmul(device: str, dtype: torch.dtype) -> bool:
    """Whether PyTorch multiplies groups on this kind of device: tried once, on the smallest aligned shape."""
    try:
        side = _ALIGNMENT
        x = torch.ones(side, side, dtype=dtype, device=device)
        ends = torch.tensor([side // 2, side], dtype=torch.int32, device=device)
        product = torch._grouped_mm(x, torch.ones(2, side, side, dtype=dtype, device=device), offs=ends)
    except (AttributeError, RuntimeError):  # an older PyTorch; a kind of device that has none
        return False
    return bool((product == side).all())


class ExpertMlp(Direct):
    """Router, experts and, if there is one, the shared expert; SwiGLU each."""

    def __init__(self, hidden_size: int, shape: ExpertShape) -> None:
        super().__init__()
        width, shared = shape.moe_intermediate_size, shape.shared_intermediate_size
        self.router = Router(hidden_size, shape)
        self.gate_up = GroupedLinear(shape.num_experts, hidden_size, 2 * width)
        self.down = GroupedLinear(shape.num_experts, width, hidden_size)
        self.shared_gate_up = Linear(hidden_size, 2 * shared) if shared else None
        self.shared_down = Linear(shared, hidden_size) if shared else None

    def is_grouped_on(self, device: str | None) -> bool:
        """Whether all experts are multiplied at once on a kind of device; None: whether they may be, on some."""
        return all(
            isinstance(each, GroupedLinear) and (device is None or each.is_grouped_on(device))
            for each in (self.gate_up, self.down)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Mix the experts' outputs for rows ``[T, hidden]``."""
        if not len(x):
            return x
        weights, chosen = self.router(x)
        experts, each = self.router.shape.num_experts, chosen.shape[1]
        order = chosen.flatten().argsort(stable=True)  # [T * k], by expert
        counts = torch.zeros(experts, dtype=torch.int64, device=x.device)
        counts.index_add_(0, chosen.flatten(), torch.ones_like(order))  # bincount would wait for the device
        sorted_rows = self.down(swiglu(self.gate_up(x[order // each], counts)), counts)
        rows = torch.empty_like(sorted_rows)
        rows[order] = sorted_rows  # back in the order of rows, so that the sum below has one order on every device
        mixed: Tensor = (rows.view(len(x), each, -1) * weights[..., None].to(x.dtype)).sum(dim=1)
        if self.shared_gate_up is not None and self.shared_down is not None:
            self.shared_down.add(swiglu(self.shared_gate_up(x)), mixed)
        return mixed


def swiglu(gate_up: Tensor) -> Tensor:
    """Gate and value, side by side in the last dimension, to their gated product; the gate is overwritten."""
    gate, up = gate_up.chunk(2, dim=-1)
    product: Tensor = functional.silu(gate, inplace=True).mul_(up)
    return product
