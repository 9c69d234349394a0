"""What a layer does besides its MLP, in as few operations as PyTorch allows: norms, rotary positions, attention.

On a CPU a small forward takes as long as it has operations, and `RMSNorm` falls into seven of them; here it is five.

Letters as in `packing.py`; ``H`` query heads.
"""

from __future__ import annotations

from functools import cached_property
from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from redline_engine.models.modules import Direct, Linear
from redline_engine.models.packing import Packed


class RmsNorm(Direct, nn.RMSNorm):
    """RMSNorm over the last dimension, of size ``n``, computed in float32.

    By ``x w / sqrt(mean x**2 + eps) = x (sqrt(n) w) / hypot(|x|, sqrt(n eps))``.
    """

    @cached_property
    def gain(self) -> Tensor:
        """``sqrt(n) w``, float32."""
        return self.weight.detach().float() * sqrt(self.normalized_shape[0])

    @cached_property
    def floor(self) -> Tensor:
        """``sqrt(n eps)``, float32."""
        assert self.eps is not None
        return torch.tensor(sqrt(self.normalized_shape[0] * self.eps), device=self.weight.device)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise; in the type of `x`."""
        return scaled(x.float(), self.gain, self.floor).to(x.dtype)


def scaled(x: Tensor, gain: Tensor, floor: Tensor) -> Tensor:
    """``x gain / hypot(|x|, floor)`` over the last dimension, float32."""
    length = torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), floor)
    return (x * length.reciprocal_()).mul_(gain)  # gain / length would be as large as x, and slow to broadcast


class Rotary:
    """Rotary positions: the turn of each pair of neighbouring dimensions at each position, as a complex number.

    Parameters
    ----------
    frequencies
        ``[D / 2]`` float32, on the device to compute on.
    """

    def __init__(self, frequencies: Tensor) -> None:
        self._frequencies = frequencies
        self._turns = self._table(1)

    def reserve(self, end: int) -> None:
        """Make the turns of all positions below `end`, and some more."""
        if end > len(self._turns):
            self._turns = self._table(max(end, 2 * len(self._turns)))

    def turns(self, positions: Tensor) -> Tensor:
        """Return the turns ``[T, 1, D / 2]`` at positions ``[T]``, for which there must be room (`reserve`)."""
        return self._turns.index_select(0, positions)[:, None]

    def _table(self, end: int) -> Tensor:
        angles = torch.arange(end, dtype=torch.float32, device=self._frequencies.device)[:, None] * self._frequencies
        return torch.polar(torch.ones_like(angles), angles)


class Attention(Direct):
    """Grouped-query attention over cached blocks and those of this forward, with RMSNorm on query and key heads.

    Parameters
    ----------
    hidden_size, heads, kv_heads, head_dim
        Columns, ``H``, ``K`` and ``D``.
    eps
        Of the norms.
    """

    def __init__(self, hidden_size: int, heads: int, kv_heads: int, head_dim: int, eps: float) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.qkv = Linear(hidden_size, (heads + 2 * kv_heads) * head_dim)
        self.q_norm = RmsNorm(head_dim, eps)
        self.k_norm = RmsNorm(head_dim, eps)
        self.out = Linear(heads * head_dim, hidden_size)

    @cached_property
    def gains(self) -> Tensor:
        """``[H + K, D]`` of the norms."""
        return torch.cat(
            [self.q_norm.gain.expand(self.heads, self.head_dim), self.k_norm.gain.expand(self.kv_heads, self.head_dim)]
        )

    @cached_property
    def floor(self) -> Tensor:
        """Of both norms."""
        return self.q_norm.floor

    def forward(self, x: Tensor, turns: Tensor, packed: Packed, cache: Tensor) -> Tensor:
        """Mix values into rows ``[T, H D]``, before the output's linear layer.

        Parameters
        ----------
        x
            ``[T, hidden]``.
        turns
            Of `Rotary`, at the rows' positions.
        packed
            Where the rows lie.
        cache
            ``[places, B, 2 K, D]`` of this layer; keys and values of all rows are written to it before any are read.
        """
        heads = self.qkv(x).view(len(x), -1, self.head_dim)
        self._turn(heads[:, : self.heads + self.kv_heads], turns)
        cache.index_copy_(0, packed.places, heads[:, self.heads :].view(-1, *cache.shape[1:]))
        mixed = []
        for group in packed.groups:
            query = heads[group.rows, : self.heads].view(group.queries, -1, self.heads, self.head_dim)
            seen = cache.index_select(0, group.places).view(group.queries, -1, 2 * self.kv_heads, self.head_dim)
            key, value = seen.transpose(1, 2).chunk(2, dim=1)  # [b, K, C, D] each
            query = query.transpose(1, 2)  # [b, H, R, D]
            each = functional.scaled_dot_product_attention(query, key, value, group.bias, enable_gqa=True)
            mixed.append(each.transpose(1, 2).reshape(-1, self.heads * self.head_dim))
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed)

    def _turn(self, heads: Tensor, turns: Tensor) -> None:
        """Normalise and turn query and key heads ``[T, H + K, D]``, in place."""
        pairs = scaled(heads.float(), self.gains, self.floor).view(torch.complex64)
        if heads.dtype == torch.float32:
            torch.mul(pairs, turns, out=heads.view(torch.complex64))
        else:
            heads.copy_((pairs * turns).view(torch.float32))
