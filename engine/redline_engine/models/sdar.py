"""SDAR and LLaDA2 in plain PyTorch: a Qwen3 transformer with block-causal attention and a paged cache.

Layers are Qwen3's: RMSNorm before attention and MLP, grouped-query attention with RMSNorm on each query and key head,
rotary positions, SwiGLU or experts (`experts.py`). LLaDA2 has the same attention with part of each head rotated, which
is a matter of frequencies and of the order of its weights' rows (`keys.py`). Two things differ from a causal model. A
position sees its whole block, also what lies to its right; and the logits at a position are about that position, not
about the next.

Letters: ``T`` packed rows, ``b`` queries, ``R`` rows of the longest query, ``C`` cached positions of the longest,
``B`` block size, ``H`` query heads, ``K`` key-value heads, ``D`` head size (see `packing.py` for the layout of a
batch). The cache of a block size is ``[layers, 1 + pages, B, 2, K, D]``, keys and values side by side. Rows of a block
that is to be committed leave their keys and values in its page.

Source: the architecture of Qwen3 as transformers documents it; `Qwen3ForCausalLM`, `Qwen3MoeForCausalLM` and
`Glm4MoeForCausalLM` with a 4-D block-causal mask are the oracles in tests/engine/test_sdar.py and test_families.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from redline_engine.config import Sampling
from redline_engine.models.base import Answer, ModelInfo, Query, unusable
from redline_engine.models.experts import ExpertMlp, ExpertShape, swiglu
from redline_engine.models.packing import Packed, pack
from redline_engine.models.propose import propose
from redline_engine.precision import shares

_LOGITS_AT_ONCE = 2**27  # elements: half a gigabyte of float32


@dataclass(frozen=True)
class SdarShape:
    """Sizes and constants of the network, named as in ``config.json``."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rotary_dim: int = 0  # dimensions of a head that are rotated; 0 for all
    experts: ExpertShape | None = None

    def is_dense(self, layer: int) -> bool:
        """Whether a layer has a plain MLP."""
        return self.experts is None or layer in self.experts.dense_layers

    def frequencies(self) -> Tensor:
        """Rotary frequencies ``[head_dim / 2]``, 0 for the dimensions that are not rotated."""
        rotary = self.rotary_dim or self.head_dim
        half = torch.arange(0, rotary, 2, dtype=torch.float32)
        return functional.pad(self.rope_theta ** (-half / rotary), (0, (self.head_dim - rotary) // 2))


class Attention(nn.Module):
    """Grouped-query attention over cached pages and the rows of this forward."""

    def __init__(self, shape: SdarShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        rows = (self.heads + 2 * self.kv_heads) * self.head_dim
        self.qkv = nn.Linear(shape.hidden_size, rows, bias=False)
        self.q_norm = nn.RMSNorm(self.head_dim, shape.rms_norm_eps)
        self.k_norm = nn.RMSNorm(self.head_dim, shape.rms_norm_eps)
        self.out = nn.Linear(self.heads * self.head_dim, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, packed: Packed, cache: Tensor) -> Tensor:
        """Attend; `x` is ``[T, hidden]``, `cache` ``[1 + pages, B, 2, K, D]`` of this layer and is written to."""
        query, key, value = (
            self.qkv(x).unflatten(-1, (-1, self.head_dim)).split([self.heads, self.kv_heads, self.kv_heads], dim=1)
        )
        query = _rotate(self.q_norm(query), packed.cos, packed.sin)  # [T, H, D]
        key = _rotate(self.k_norm(key), packed.cos, packed.sin)
        fresh = torch.stack([key, value], dim=1)  # [T, 2, K, D]
        cache[packed.store_pages] = fresh[packed.store_rows]

        batch, longest = packed.shape
        query = packed.pad(query).transpose(1, 2)  # [b, H, R, D]
        past = cache[packed.pages].flatten(1, 2)  # [b, C, 2, K, D]
        key, value = torch.cat([past, packed.pad(fresh)], dim=1).permute(2, 0, 3, 1, 4)  # 2 x [b, K, C + R, D]
        mixed = functional.scaled_dot_product_attention(query, key, value, packed.mask, enable_gqa=True)
        rows: Tensor = self.out(mixed.transpose(1, 2).reshape(batch * longest, -1)[packed.slots])
        return rows


class Layer(nn.Module):
    """Attention and MLP, each on normalised input and added to the stream."""

    def __init__(self, shape: SdarShape, number: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.attention = Attention(shape)
        self.mlp_norm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        if shape.experts is None or shape.is_dense(number):
            self.experts = None
            self.gate_up = nn.Linear(shape.hidden_size, 2 * shape.intermediate_size, bias=False)
            self.down = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)
        else:
            self.experts = ExpertMlp(shape.hidden_size, shape.experts)

    def mlp(self, x: Tensor) -> Tensor:
        """SwiGLU of rows ``[T, hidden]``, by experts where the layer has them."""
        x = self.mlp_norm(x)
        rows: Tensor = self.down(swiglu(self.gate_up(x))) if self.experts is None else self.experts(x)
        return rows


class SdarNetwork(nn.Module):
    """Embedding, layers and head."""

    def __init__(self, shape: SdarShape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, number) for number in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)

    def hidden(self, packed: Packed, cache: Tensor) -> Tensor:
        """Compute the final hidden states ``[n, hidden]`` of the rows asked for; `cache` is written to."""
        x = self.embed(packed.ids)
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            x = x + layer.attention(layer.attention_norm(x), packed, cache[number])
            if number == len(self.layers) - 1:
                x = x[packed.asked]  # nothing reads the other rows any more
            x = x + layer.mlp(x)
        rows: Tensor = self.norm(x)
        return rows


class SdarModel:
    """The network behind the engine's interface.

    Parameters
    ----------
    network
        With its weights, on the device and in the type to compute in.
    info
        Facts for the engine; ``info.vocab_size`` may be smaller than the head, whose further rows are ignored.
    """

    def __init__(self, network: SdarNetwork, info: ModelInfo) -> None:
        self.network = network.eval()
        self.info = info
        self._caches: dict[int, Tensor] = {}
        weight = network.embed.weight
        self.device, self.dtype = weight.device, weight.dtype
        self._frequencies = network.shape.frequencies().to(self.device)

    @property
    def weight_shares(self) -> dict[str, float]:
        """Share of the weights' bytes that each precision takes, by its name."""
        return shares(self.network)

    @torch.inference_mode()
    def forward(self, block_size: int, queries: Sequence[Query]) -> list[Answer]:
        """Answer the queries; see `redline_engine.models.base.Model`."""
        packed = self.pack(block_size, queries)
        hidden = self.network.hidden(packed, self._cache(block_size, queries))
        counts = [len(query.positions) for query in queries]
        tokens = np.zeros(len(hidden), np.int32)
        confidence = np.zeros(len(hidden), np.float32)
        finite = np.ones(len(hidden), np.bool_)
        for sampling, rows, uniforms in _by_sampling(queries, counts):
            where = torch.from_numpy(rows).to(self.device)
            draws = torch.from_numpy(uniforms).to(self.device)
            size = max(1, _LOGITS_AT_ONCE // self.info.vocab_size)
            for start in range(0, len(rows), size):
                logits = self.logits(hidden[where[start : start + size]])
                said = propose(logits, self.info.mask_id, sampling, draws[start : start + size])
                piece = rows[start : start + size]
                tokens[piece] = said.tokens.cpu().numpy()
                confidence[piece] = said.confidence.cpu().numpy()
                finite[piece] = said.finite.cpu().numpy()
        answers, end = [], 0
        for query, count in zip(queries, counts, strict=True):
            start, end = end, end + count
            if finite[start:end].all():
                answers.append(Answer(tokens[start:end], confidence[start:end]))
            else:
                position = query.positions[int(finite[start:end].argmin())]
                answers.append(unusable(f"position {position}: logits are not finite"))
        return answers

    def pack(self, block_size: int, queries: Sequence[Query]) -> Packed:
        """Lay out a batch of queries on the model's device."""
        return pack(block_size, queries, self._frequencies, self.dtype)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[n, vocab_size]`` of final hidden states ``[n, hidden]``."""
        rows: Tensor = self.network.head(hidden)[:, : self.info.vocab_size]
        return rows

    def _cache(self, block_size: int, queries: Sequence[Query]) -> Tensor:
        """Return the cache of a block size, doubled until it holds every page that is to be stored."""
        shape = self.network.shape
        cache = self._caches.get(block_size)
        have = 0 if cache is None else cache.shape[1]
        needed = 2 + max((store.page for query in queries for store in query.stores), default=-1)
        if cache is None or needed > have:
            size = (shape.num_hidden_layers, max(needed, 2 * have), block_size, 2, shape.num_key_value_heads)
            grown = torch.zeros(*size, shape.head_dim, dtype=self.dtype, device=self.device)
            if cache is not None:
                grown[:, :have] = cache
            cache = self._caches[block_size] = grown
        return cache


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, first half of a head against the second; `x` is ``[T, heads, D]``."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def _by_sampling(
    queries: Sequence[Query], counts: Sequence[int]
) -> list[tuple[Sampling | None, NDArray[np.int64], NDArray[np.float64]]]:
    """Rows of the asked positions, and their random numbers, by how their tokens are drawn."""
    ends = np.cumsum(counts)
    groups: dict[Sampling | None, list[int]] = {}
    for number, query in enumerate(queries):
        groups.setdefault(query.sampling, []).append(number)
    return [
        (
            sampling,
            np.concatenate([np.arange(ends[number] - counts[number], ends[number]) for number in numbers]),
            np.concatenate([queries[number].uniforms for number in numbers]),
        )
        for sampling, numbers in groups.items()
    ]
