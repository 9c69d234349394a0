"""From logits to what the engine needs: a token for each position and how confident the model is of it.

Confidence is the softmax probability over all tokens but the mask, computed in float32 whatever the logits' type, and
always *before* temperature and filters: a threshold then means the same at every temperature, and top-k 1 does not
turn every confidence into 1 (docs/decisions/0021-confidence-of-a-draw.md).

Letters: ``n`` positions, ``V`` vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from redline_engine.config import Sampling


class Proposal(NamedTuple):
    """Tokens ``[n]`` int64 and confidence ``[n]`` float32, on the device of the logits.

    The confidence is NaN where some logit is NaN or infinite; the token means nothing there.
    """

    tokens: Tensor
    confidence: Tensor


def propose(logits: Tensor, mask_id: int, sampling: Sampling | None, uniforms: Tensor) -> Proposal:
    """Choose a token for each position.

    Parameters
    ----------
    logits
        ``[n, V]`` of any floating type; those of the mask are overwritten.
    mask_id
        Excluded before the softmax.
    sampling
        None: the most probable token, ties to the lowest id. Else a draw: temperature, then the ``top_k`` most
        probable (ties to the lowest ids), then the smallest leading set whose probability reaches ``top_p``, then the
        inverse of the cumulative distribution at `uniforms`, tokens in order of probability.
    uniforms
        ``[n]`` float64 in [0, 1); read if sampling.
    """
    scores = logits.float()
    spoilt = scores.sum(dim=1, keepdim=True) * 0  # 0, or NaN where there is a bad logit
    scores[:, mask_id] = -torch.inf
    tokens = scores.argmax(dim=1) if sampling is None else _draw(scores, sampling, uniforms)  # the first of equals
    confidence = torch.softmax(scores, dim=1).gather(1, tokens[:, None])[:, 0]
    return Proposal(tokens, confidence + spoilt[:, 0])


def _draw(scores: Tensor, sampling: Sampling, uniforms: Tensor) -> Tensor:
    exact = scores.double()
    exact -= exact.amax(dim=1, keepdim=True)  # 0 at most: however small the temperature, nothing overflows to NaN
    tempered = torch.softmax(exact / sampling.temperature, dim=1)
    ranked, order = tempered.sort(dim=1, descending=True, stable=True)  # [n, V]
    if sampling.top_k:
        ranked[:, sampling.top_k :] = 0
        ranked /= ranked.sum(dim=1, keepdim=True)
    before = ranked.cumsum(dim=1) - ranked
    ranked = torch.where(before < sampling.top_p, ranked, 0)
    edges = ranked.cumsum(dim=1)
    # the rank whose edge first exceeds the number; rounding must not push it onto a token that was filtered out
    rank = torch.minimum((edges <= (uniforms * edges[:, -1])[:, None]).sum(dim=1), (ranked > 0).sum(dim=1) - 1)
    return order.gather(1, rank.clamp(min=0)[:, None])[:, 0]  # of a row with NaN nothing exceeds 0
