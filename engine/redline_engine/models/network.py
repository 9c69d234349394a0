"""SDAR and LLaDA2 in plain PyTorch: a Qwen3 transformer with block-causal attention and a paged cache.

Layers are Qwen3's: RMSNorm before attention and MLP, grouped-query attention with RMSNorm on each query and key head,
rotary positions, SwiGLU or experts (`experts.py`). LLaDA2 has the same attention with part of each head rotated, which
is a matter of frequencies and of the order of its weights' rows (`keys.py`). Two things differ from a causal model. A
position sees its whole block, also what lies to its right; and the logits at a position are about that position, not
about the next.

Norms, rotary positions and attention are in `attention.py`; how a batch is laid out, in `packing.py`, whose letters are
used here. The rows of a block leave their keys and values in its page. The last layer's output is
computed for the rows asked about only: nothing reads the others any more.

Source: the architecture of Qwen3 as transformers documents it; `Qwen3ForCausalLM`, `Qwen3MoeForCausalLM` and
`Glm4MoeForCausalLM` with a 4-D block-causal mask are the oracles in tests/engine/test_sdar.py and test_families.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from redline_engine.models.attention import Attention, RmsNorm, Rotary
from redline_engine.models.base import Answer, Batch, ModelInfo, Numbers
from redline_engine.models.experts import ExpertMlp, ExpertShape, swiglu
from redline_engine.models.graphs import Graphs
from redline_engine.models.modules import Direct, Embedding, Linear
from redline_engine.models.packing import Packed, PageCache, pack
from redline_engine.models.parts import LARGE, parts_of, run
from redline_engine.models.propose import propose
from redline_engine.precision import shares

LOGITS_AT_ONCE = 2**27  # elements: half a gigabyte of float32
DRAWN_AT_ONCE = LOGITS_AT_ONCE // 8  # of logits that tokens are drawn by, which takes five times the memory


@dataclass(frozen=True)
class NetworkShape:
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


class Layer(Direct):
    """Attention and MLP, each on normalised input and added to the stream."""

    def __init__(self, shape: NetworkShape, number: int) -> None:
        super().__init__()
        self.attention_norm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)
        self.attention = Attention(
            shape.hidden_size,
            shape.num_attention_heads,
            shape.num_key_value_heads,
            shape.head_dim,
            shape.rms_norm_eps,
        )
        self.mlp_norm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)
        if shape.experts is None or shape.is_dense(number):
            self.experts = None
            self.gate_up = Linear(shape.hidden_size, 2 * shape.intermediate_size)
            self.down = Linear(shape.intermediate_size, shape.hidden_size)
        else:
            self.experts = ExpertMlp(shape.hidden_size, shape.experts)

    def add_mlp(self, x: Tensor) -> None:
        """Add SwiGLU of the rows ``[T, hidden]`` to them, by experts where the layer has them."""
        rows = self.mlp_norm(x)
        if self.experts is None:
            self.down.add(swiglu(self.gate_up(rows)), x)
        else:
            x += self.experts(rows)


class Network(Direct):
    """Embedding, layers and head."""

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        self.embed = Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape, number) for number in range(shape.num_hidden_layers))
        self.norm = RmsNorm(shape.hidden_size, shape.rms_norm_eps)
        self.head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)

    def hidden(self, packed: Packed, turns: Tensor, cache: Tensor) -> Tensor:
        """Compute the final hidden states ``[n, hidden]`` of the rows asked for.

        `turns` are those of `Rotary` at the rows' positions; `cache`, of a `PageCache`, is written to.
        """
        x = self.embed(packed.ids)
        layers = list(self.layers)
        for layer, kept in zip(layers, cache.unbind(), strict=True):
            assert isinstance(layer, Layer)
            mixed = layer.attention(layer.attention_norm(x), turns, packed, kept)
            if layer is layers[-1]:
                mixed, x = mixed.index_select(0, packed.asked), x.index_select(0, packed.asked)
            layer.attention.out.add(mixed, x)
            layer.add_mlp(x)
        rows: Tensor = self.norm(x)
        return rows


def has_grouped_experts(network: Network, device: str | None) -> bool:
    """Whether the experts of all layers that have any are grouped on a kind of device; see `ExpertMlp`."""
    return all(each.is_grouped_on(device) for each in network.modules() if isinstance(each, ExpertMlp))


class NetworkModel:
    """The network behind the engine's interface.

    Parameters
    ----------
    network
        With its weights, on the device and in the type to compute in. What is derived from them is kept: of a network
        that is changed after this, make a new model.
    info
        Facts for the engine; ``info.vocab_size`` may be smaller than the head, whose further rows are ignored.
    graphs
        Run batches in fixed shapes, on a CUDA device as recorded graphs (`graphs.py`).

    Raises
    ------
    ValueError
        Graphs of a mixture whose experts are multiplied one by one: how many have rows is not known beforehand.
    """

    def __init__(self, network: Network, info: ModelInfo, graphs: bool = False) -> None:
        if graphs and not has_grouped_experts(network, network.embed.weight.device.type):
            raise ValueError("its experts are multiplied one by one on this device")
        self.network = network.eval()
        for module in network.modules():
            if isinstance(module, Direct):
                module.settle()
        self.info = info
        self._graphs: dict[int, Graphs] | None = {} if graphs else None
        self._caches: dict[int, PageCache] = {}
        weights = (network.shape.vocab_size, 2 * network.shape.intermediate_size)
        self._divide = network.shape.hidden_size * max(weights) >= LARGE
        weight = network.embed.weight
        self.device, self.dtype = weight.device, weight.dtype
        self._rotary = Rotary(network.shape.frequencies().to(self.device))

    @property
    def weight_shares(self) -> dict[str, float]:
        """Share of the weights' bytes that each precision takes, by its name."""
        return shares(self.network)

    def forward(self, batch: Batch) -> Answer:
        """Answer the queries; see `redline_engine.models.base.Model`."""
        order = np.lexsort((batch.cached, batch.run))  # queries that are alike attend together
        answer = Answer(np.zeros(batch.tokens.shape, np.int32), np.zeros(batch.tokens.shape, np.float32))

        @torch.inference_mode()
        def fill(part: Numbers) -> None:
            ordered, blocks = batch.take(part)
            block, offset = ordered.asked.nonzero()
            for rows, tokens, confidence in self._propose(self._final(ordered), ordered, block):
                at = blocks[block[rows]], offset[rows]
                answer.tokens[at], answer.confidence[at] = tokens, confidence

        self._reserve(batch)
        most = torch.get_num_threads() if self.device.type == "cpu" and self._graphs is None else 1
        run(fill, parts_of(batch, order, most), self._divide)
        return answer

    def hidden(self, batch: Batch) -> Tensor:
        """Compute the final hidden states ``[n, hidden]`` of the positions asked about, block after block."""
        self._reserve(batch)
        return self._final(batch)

    def _final(self, batch: Batch) -> Tensor:
        """`hidden` where room is made."""
        cache = self._cache(batch.block_size)
        if self._graphs is not None:
            if batch.block_size not in self._graphs:
                self._graphs[batch.block_size] = Graphs(self._hidden)
            rows = self._graphs[batch.block_size].hidden(batch, cache)
            if rows is not None:
                return rows
        return self._hidden(pack(batch, cache), cache.kept)

    def _reserve(self, batch: Batch) -> None:
        """Make room for the pages and positions of a batch."""
        self._cache(batch.block_size).reserve(int(batch.pages.max()))
        blocks = int((batch.cached + batch.run).max())
        self._rotary.reserve(blocks * batch.block_size if self._graphs is None else self.info.max_positions)

    def reserve(self, block_size: int, pages: int) -> None:
        """Make room for so many pages at once."""
        self._cache(block_size).reserve(pages - 1)

    def _cache(self, block_size: int) -> PageCache:
        cache = self._caches.get(block_size)
        if cache is None:
            shape = self.network.shape
            heads = 2 * shape.num_key_value_heads
            cache = PageCache(shape.num_hidden_layers, block_size, heads, shape.head_dim, self.dtype, self.device)
            self._caches[block_size] = cache
        return cache

    def _hidden(self, packed: Packed, kept: Tensor) -> Tensor:
        return self.network.hidden(packed, self._rotary.turns(packed.positions), kept)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits ``[n, vocab_size]`` of final hidden states ``[n, hidden]``."""
        rows: Tensor = self.network.head(hidden)[:, : self.info.vocab_size]
        return rows

    def _propose(
        self, hidden: Tensor, batch: Batch, block: Numbers
    ) -> Iterator[tuple[Numbers, NDArray[np.int32], NDArray[np.float32]]]:
        """Yield rows, and the token and confidence of each, by one transfer a piece; `block` is that of each row."""
        kinds = np.repeat(batch.kinds, batch.run)[block] if len(batch.samplings) > 1 else np.zeros(len(block), np.int64)
        for kind, sampling in enumerate(batch.samplings):
            rows = (kinds == kind).nonzero()[0]
            size = max(1, (LOGITS_AT_ONCE if sampling is None else DRAWN_AT_ONCE) // self.info.vocab_size)
            for start in range(0, len(rows), size):
                piece = rows[start : start + size]
                draws = None if sampling is None else torch.from_numpy(batch.uniforms[batch.asked][piece])
                asked = hidden if len(piece) == len(hidden) else hidden[torch.from_numpy(piece).to(self.device)]
                proposal = propose(self.logits(asked), self.info.mask_id, sampling, draws)
                both = torch.cat((proposal.tokens.int(), proposal.confidence.view(torch.int32)))
                tokens, confidence = both.cpu().numpy().reshape(2, -1)
                yield piece, tokens, confidence.view(np.float32)
