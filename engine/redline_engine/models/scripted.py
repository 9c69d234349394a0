"""Weightless models: the interface of a real one, answers from a function of the visible tokens.

They serve tests and demonstrations of the engine alone: an answer costs microseconds, is exact, and depends on every
token that a real model would see, so any slip of the state machine, the states or the pages changes the text.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from redline_engine.config import Sampling
from redline_engine.models.base import Answer, Batch, ModelInfo

Script = Callable[[int, tuple[int, ...], int], tuple[tuple[int, ...], float]]
"""Position, visible tokens (through the end of its block) and block size to tied tokens and their confidence."""


class ScriptedModel:
    """A model that says what a script says.

    Parameters
    ----------
    info
        Facts that the engine shall believe.
    script
        Called with ``(position, visible tokens, block size)``; returns the proposed tokens (several: tied, each with
        the given probability) and the confidence. The rest of the probability is spread evenly over the other tokens.
        A confidence that is not finite is heard as NaN, as are logits that are not finite in a real model.

    Notes
    -----
    A draw at a temperature goes through `redline_engine.models.propose` and needs torch.
    """

    def __init__(self, info: ModelInfo, script: Script) -> None:
        self.info = info
        self.script = script
        self._kept: dict[int, dict[int, tuple[int, ...]]] = {}  # block size -> page -> tokens through its block's end

    def forward(self, batch: Batch) -> Answer:
        """Answer the queries; see `redline_engine.models.base.Model`.

        Tokens of cached blocks are read from their pages, as a real model reads them.
        """
        size = batch.block_size
        kept = self._kept.setdefault(size, {})
        answer = Answer(np.zeros(batch.tokens.shape, np.int32), np.zeros(batch.tokens.shape, np.float32))
        block = 0
        for query, (run, cached) in enumerate(zip(batch.run.tolist(), batch.cached.tolist(), strict=True)):
            pages = batch.pages[query].tolist()
            sampling = batch.samplings[batch.kinds[query]]
            for number in range(cached, cached + run):
                past = kept[pages[number - 1]] if number else ()
                tokens = kept[pages[number]] = past + tuple(batch.tokens[block].tolist())
                asked = batch.asked[block]
                positions = number * size + asked.nonzero()[0]
                tokens_said, confidence = self._answer(tokens, positions, size, sampling, batch.uniforms[block][asked])
                answer.tokens[block, asked], answer.confidence[block, asked] = tokens_said, confidence
                block += 1
        return answer

    def _answer(
        self,
        tokens: tuple[int, ...],
        positions: NDArray[np.int64],
        size: int,
        sampling: Sampling | None,
        uniforms: NDArray[np.float64],
    ) -> Answer:
        """Token and confidence ``[n]`` at positions of the last block of `tokens`."""
        said = [self.script(position, tokens, size) for position in positions.tolist()]
        confidence = np.array([each for _, each in said], np.float32)
        confidence[~np.isfinite(confidence)] = np.nan
        proposed = np.array([min(candidates) for candidates, _ in said], np.int32)
        sound = np.flatnonzero(~np.isnan(confidence))
        if sampling is not None and sound.size:
            drawn = self._draw([said[place] for place in sound.tolist()], sampling, uniforms[sound])
            proposed[sound], confidence[sound] = drawn
        return Answer(proposed, confidence)

    def _draw(
        self, said: list[tuple[tuple[int, ...], float]], sampling: Sampling, uniforms: NDArray[np.float64]
    ) -> Answer:
        import torch

        from redline_engine.models.propose import propose

        rows = np.zeros((len(said), self.info.vocab_size))
        for row, (candidates, confidence) in zip(rows, said, strict=True):
            others = self.info.vocab_size - 1 - len(candidates)
            rest = (1 - confidence * len(candidates)) / others if others else 0.0
            with np.errstate(divide="ignore"):
                row[:] = np.log(max(rest, 1e-30))
                row[list(candidates)] = np.log(confidence)
        proposal = propose(torch.from_numpy(rows), self.info.mask_id, sampling, torch.from_numpy(uniforms))
        return Answer(proposal.tokens.numpy().astype(np.int32), proposal.confidence.numpy())


class HashModel(ScriptedModel):
    """A model whose answer is a hash of seed, position and visible tokens.

    Ordinary tokens are 0 .. 61, the end token is 62 and the mask 63. The fewer masks a block has left, the more
    confident its answers, so thresholds and buffers matter as they do with a real model. Confidences are odd multiples
    of 1/16000 and differ within a block of up to 8 positions; now and then two tokens are tied at exactly 1/2.

    Source: the synthetic model of the recorded multi-block traces in tests/engine/traces, whose README defines it.

    Parameters
    ----------
    seed
        Any integer; another seed is another model.
    end_rate
        Chance of an end token at a position, out of 65536.
    block_size
        Default block size of configurations.
    """

    def __init__(self, seed: int, end_rate: int = 600, block_size: int = 8) -> None:
        info = ModelInfo(vocab_size=64, mask_id=63, end_ids=(62,), block_size=block_size, max_positions=2**20)
        self.seed = seed
        self.end_rate = end_rate
        super().__init__(info, self._hashed)

    def _hashed(self, position: int, visible: tuple[int, ...], size: int) -> tuple[tuple[int, ...], float]:
        text = f"mbd1|{self.seed}|{position}|{','.join(map(str, visible))}"
        digest = sha256(text.encode("ascii")).digest()
        ends = int.from_bytes(digest[4:6], "big") < self.end_rate
        token = 62 if ends else int.from_bytes(digest[:4], "big") % 62
        if position % 8 == 3 and not ends and digest[8] < 96:
            other = int.from_bytes(digest[9:13], "big") % 62
            if other != token:
                return (token, other), 0.5
        doubt = 65536 - int.from_bytes(digest[6:8], "big")
        left = visible[-size:].count(63)
        height = 999 - 979 * doubt * doubt * (size + left) // (2 * size * 65536 * 65536)
        return (token,), (16 * height + 2 * (position % 8) + 1) / 16000
