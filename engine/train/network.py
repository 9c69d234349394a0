"""The network as it is trained: Qwen3's layers over a clean sequence and noisy copies of its answer.

Parameters carry the names of the Hugging Face layout, so that a state dict is a checkpoint. The engine has its own
network for decoding (`redline_engine.models.network`); tests/engine/test_training.py holds them to equal logits.

A training row is one clean sequence and ``C`` noisy copies of its answer blocks. Clean positions see clean positions of
their own and earlier blocks. Noisy positions see clean blocks before the run of noisy blocks that they are in, and the
noisy blocks of that run up to their own (`batches.py` makes the masks). The logits at a mask are about that position.

Letters: ``N`` rows, ``C`` copies, ``L`` clean and ``M`` noisy positions, ``H`` heads, ``K`` key-value heads, ``D`` head
size, ``V`` vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the network, named as in ``config.json``."""

    vocab_size: int = 352
    hidden_size: int = 128
    intermediate_size: int = 384
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 32
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    max_position_embeddings: int = 1024


class View(NamedTuple):
    """What attends to what; additive masks, 0 or minus infinity.

    Parameters
    ----------
    clean
        ``[N, 1, L, L]``.
    noisy
        ``[N * C, 1, M, L + M]``; clean keys first.
    clean_turn, noisy_turn
        Rotary factors, cosine and sine stacked: ``[2, L, D]`` and ``[2, N * C, 1, M, D]``.
    """

    clean: Tensor
    noisy: Tensor
    clean_turn: Tensor
    noisy_turn: Tensor


def rotary(positions: Tensor, shape: Shape) -> Tensor:
    """Cosine and sine ``[2, ..., D]`` of positions ``[...]``."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    angles = positions.float()[..., None] / shape.rope_theta**half
    angles = torch.cat([angles, angles], dim=-1)
    return torch.stack([angles.cos(), angles.sin()])


def _turn(x: Tensor, factors: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * factors[0] + torch.cat([-right, left], dim=-1) * factors[1]


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        hidden, rows = shape.hidden_size, shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(hidden, shape.num_attention_heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, rows, bias=False)
        self.v_proj = nn.Linear(hidden, rows, bias=False)
        self.o_proj = nn.Linear(shape.num_attention_heads * shape.head_dim, hidden, bias=False)
        self.q_norm = nn.RMSNorm(shape.head_dim, shape.rms_norm_eps)
        self.k_norm = nn.RMSNorm(shape.head_dim, shape.rms_norm_eps)

    def heads(self, x: Tensor) -> Tensor:
        """``[n, length, rows]`` to ``[n, heads, length, D]``."""
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)

    def forward(self, clean: Tensor, noisy: Tensor, view: View, last: bool) -> tuple[Tensor | None, Tensor]:
        """Attend; `clean` is ``[N, L, hidden]``, `noisy` ``[N * C, M, hidden]``. No clean output if `last`."""
        copies = noisy.shape[0] // clean.shape[0]
        key = _turn(self.k_norm(self.heads(self.k_proj(clean))), view.clean_turn)
        value = self.heads(self.v_proj(clean))
        mixed_clean = None
        if not last:
            query = _turn(self.q_norm(self.heads(self.q_proj(clean))), view.clean_turn)
            mixed = functional.scaled_dot_product_attention(query, key, value, view.clean, enable_gqa=True)
            mixed_clean = self.o_proj(mixed.transpose(1, 2).flatten(2))
        query = _turn(self.q_norm(self.heads(self.q_proj(noisy))), view.noisy_turn)
        noisy_key = _turn(self.k_norm(self.heads(self.k_proj(noisy))), view.noisy_turn)
        key = torch.cat([key.repeat_interleave(copies, 0), noisy_key], dim=2)
        value = torch.cat([value.repeat_interleave(copies, 0), self.heads(self.v_proj(noisy))], dim=2)
        mixed = functional.scaled_dot_product_attention(query, key, value, view.noisy, enable_gqa=True)
        return mixed_clean, self.o_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to ``[..., hidden]``."""
        rows: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return rows


class Layer(nn.Module):
    """Attention and MLP, each on normalised input and added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, clean: Tensor, noisy: Tensor, view: View, last: bool) -> tuple[Tensor, Tensor]:
        """Apply to both streams; the last layer leaves the clean one alone, nothing reads it."""
        more_clean, more_noisy = self.self_attn(self.input_layernorm(clean), self.input_layernorm(noisy), view, last)
        if more_clean is not None:
            clean = clean + more_clean
            clean = clean + self.mlp(self.post_attention_layernorm(clean))
        noisy = noisy + more_noisy
        return clean, noisy + self.mlp(self.post_attention_layernorm(noisy))


class Trunk(nn.Module):
    """Embedding, layers and last norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Network(nn.Module):
    """The whole network; embedding and head share their weights."""

    def __init__(self, shape: Shape, seed: int) -> None:
        super().__init__()
        self.shape = shape
        self.model = Trunk(shape)
        random = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = 0.02 if "embed" in name else 0.5 * parameter.shape[1] ** -0.5
                if name.endswith(("o_proj.weight", "down_proj.weight")):
                    scale *= 0.5
                parameter.data.normal_(0.0, scale, generator=random)

    def forward(self, clean: Tensor, noisy: Tensor, view: View, asked: Tensor) -> Tensor:
        """Logits ``[asked, V]`` at the noisy positions asked for.

        `clean` ``[N, L]`` and `noisy` ``[N * C, M]`` are token ids, `asked` indexes the flattened noisy positions.
        """
        trunk = self.model
        left, right = trunk.embed_tokens(clean), trunk.embed_tokens(noisy)
        for number, layer in enumerate(trunk.layers):
            left, right = layer(left, right, view, number == len(trunk.layers) - 1)
        rows = trunk.norm(right.flatten(0, 1)[asked])
        return functional.linear(rows, trunk.embed_tokens.weight)

    def parameter_count(self) -> int:
        """Return the number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters())
