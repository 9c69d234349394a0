"""Weight-only precision: linear layers whose weights are kept in fewer bits than they are computed with.

A weight ``w`` is kept as a whole number ``q`` and a float32 scale ``s`` that many weights share, and stands for
``q * s``. Symmetric, in the restricted range, so that 0 is exact and ``-w`` is kept as ``-q``::

    s = max |w| / m        q = round(w / s), half to even        |w - q * s| <= s / 2

======== === ==================================== ==============================================
int8      m  scales                               kept as
======== === ==================================== ==============================================
int8     127 one per output channel (row of w)    int8
int4       7 one per group of 32 input columns    two to a byte, ``q + 8``, even column low
======== === ==================================== ==============================================

The last group of a row is smaller where the number of columns is no multiple of 32. Where all weights of a scale are 0
(or so small that ``s`` would be) ``s`` is the smallest normal number. bfloat16 keeps each weight rounded, without
scales. A forward turns the weights back into the type of its input, layer by layer: memory is saved, time is not.

What is kept so: every linear layer of the blocks, those of experts included, and the head unless it is the embedding.
The embedding and the norms keep the type of the arithmetic, and routers float32. `shares` says what that comes to in
bytes.

Source: absolute-maximum scales without zero point, per channel, in the range -127..127 are those of Jacob et al. 2018,
"Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference", section 3, and
Krishnamoorthi 2018, "Quantizing deep convolutional networks for efficient inference", section 2; groups of 32 are those
of GGML's Q4_0, whose range and scale differ.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from redline_engine.models.experts import GroupedLinear, by_expert
from redline_engine.models.modules import Direct

GROUP = 32  # input columns that share a scale in int4
_SMALLEST = torch.finfo(torch.float32).tiny


def _whole(weight: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Whole numbers from -most to most, as float32, and scales ``[..., 1]`` over the last dimension."""
    weight = weight.float()
    largest = weight.abs().amax(dim=-1, keepdim=True)
    # Divided by a tensor: by a number, CUDA would multiply with its reciprocal and end up one bit beside the CPU.
    scales = (largest / torch.full_like(largest, most)).clamp(min=_SMALLEST)
    return (weight / scales).round().clamp(-most, most), scales


class KeptLinear(Direct):
    """A linear layer without bias, whose weight is turned into the type of the input in each forward."""

    precision: ClassVar[str]
    kept: Tensor

    def dense(self, rows: slice = slice(None)) -> Tensor:
        """Return the weight ``[rows, columns]`` that what is kept stands for, or some rows of it."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Multiply; `x` is ``[..., columns]``."""
        return functional.linear(x, self.dense().to(x.dtype))

    def add(self, x: Tensor, onto: Tensor) -> None:
        """Add the product to `onto` ``[T, rows]``, in place and in one operation, for `x` ``[T, columns]``."""
        onto.addmm_(x, self.dense().to(x.dtype).t())


class Bfloat16Linear(KeptLinear):
    """Weights rounded to bfloat16."""

    precision = "bfloat16"

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("kept", weight.bfloat16())

    def dense(self, rows: slice = slice(None)) -> Tensor:
        """Return the rounded weight."""
        return self.kept[rows]


class Int8Linear(KeptLinear):
    """Whole numbers ``kept`` ``[rows, columns]`` and one scale per row ``[rows, 1]``."""

    precision = "int8"
    scales: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        whole, scales = _whole(weight, 127)
        self.register_buffer("kept", whole.to(torch.int8))
        self.register_buffer("scales", scales)

    def dense(self, rows: slice = slice(None)) -> Tensor:
        """Return the weight in float32."""
        return self.kept[rows] * self.scales[rows]


class Int4Linear(KeptLinear):
    """Pairs of whole numbers ``kept`` ``[rows, columns / 2]`` and one scale per group ``[rows, groups]``."""

    precision = "int4"
    scales: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.columns = weight.shape[1]
        groups = functional.pad(weight, (0, -self.columns % GROUP)).reshape(len(weight), -1, GROUP)
        whole, scales = _whole(groups, 7)
        self.register_buffer("kept", pack_pairs(whole.flatten(1)[:, : self.columns].to(torch.int8)))
        self.register_buffer("scales", scales.squeeze(-1))

    def dense(self, rows: slice = slice(None)) -> Tensor:
        """Return the weight in float32."""
        scales = self.scales[rows].repeat_interleave(GROUP, dim=1)[:, : self.columns]
        return unpack_pairs(self.kept[rows], self.columns) * scales


class KeptExperts(nn.Module):
    """The linear layers of all experts of a mixture: their rows one under the other in one layer that is kept."""

    def __init__(self, weight: Tensor, weights: str) -> None:
        super().__init__()
        # One by one, as scales are found on copies in float32; without memory, all at once.
        first, *others = map(_KINDS[weights], [weight.flatten(0, 1)] if weight.is_meta else weight)
        for name, buffer in list(first.named_buffers()):
            setattr(first, name, torch.cat([buffer, *(other.get_buffer(name) for other in others)]))
        self.rows = first
        self.height = weight.shape[1]

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        """Multiply as `GroupedLinear` does; only the experts that have rows are turned back."""
        size = self.height
        return by_expert(x, counts, lambda one: self.rows.dense(slice(one * size, (one + 1) * size)).to(x.dtype))


def pack_pairs(whole: Tensor) -> Tensor:
    """Pack whole numbers from -8 to 7, ``[rows, columns]``, two to a byte as ``q + 8``, even columns in low halves."""
    halves = functional.pad(whole + 8, (0, whole.shape[1] % 2)).to(torch.uint8)
    return halves[:, ::2] | halves[:, 1::2] << 4


def unpack_pairs(pairs: Tensor, columns: int) -> Tensor:
    """Whole numbers of `pack_pairs`, as int8 ``[rows, columns]``."""
    return torch.stack([pairs & 15, pairs >> 4], dim=-1).flatten(1)[:, :columns].to(torch.int8) - 8


_KINDS = {kind.precision: kind for kind in (Bfloat16Linear, Int8Linear, Int4Linear)}


def keep_linears(network: nn.Module, weights: str, shared: Tensor) -> None:
    """Replace every linear layer by one that keeps its weight in a precision, except one whose weight is `shared`."""
    for path, layer in list(network.named_modules()):
        if isinstance(layer, nn.Linear | GroupedLinear) and layer.weight is not shared:
            keep_layer(network, path, weights)


def keep_layer(network: nn.Module, path: str, weights: str) -> None:
    """Replace one layer by one that keeps its weight, which is finite, in a precision, if it is linear."""
    layer = network.get_submodule(path)
    if not isinstance(layer, nn.Linear | GroupedLinear):
        return
    weight = layer.weight.detach()
    parent, _, name = path.rpartition(".")
    kept = _KINDS[weights](weight) if isinstance(layer, nn.Linear) else KeptExperts(weight, weights)
    setattr(network.get_submodule(parent), name, kept)


def shares(network: nn.Module) -> dict[str, float]:
    """Share of the bytes of all weights and scales that each precision takes, by its name."""
    taken = held_bytes(network)
    return {name: taken[name] / taken.total() for name in sorted(taken)}


def held_bytes(network: nn.Module) -> Counter[str]:
    """Bytes of all weights and scales that each precision takes, by its name."""
    taken: Counter[str] = Counter()
    counted = set()
    for module in network.modules():
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            if id(tensor) not in counted:
                counted.add(id(tensor))
                name = str(tensor.dtype).removeprefix("torch.")
                if isinstance(module, KeptLinear) and tensor is module.kept:
                    name = module.precision
                taken[name] += tensor.numel() * tensor.element_size()
    return taken
