"""From logits to what the engine needs: a token for each position and how confident the model is of it.

Confidence is the softmax probability over all tokens but the mask, computed in float32 whatever the logits' type, and
always *before* temperature and filters: a threshold then means the same at every temperature, and top-k 1 does not
turn every confidence into 1 (docs/decisions/0021-confidence-of-a-draw.md).

No softmax is made for it: with the largest logit m, the probability of the token with logit s is ``exp(s - m)`` over
the sum of ``exp(t - m)`` over all logits t. Of the most probable token that is 1 over the sum. The exponentials take
the place of the logits, so that nothing as large is allocated and the vocabulary is gone through as often as must be.

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


def propose(logits: Tensor, mask_id: int, sampling: Sampling | None, uniforms: Tensor | None = None) -> Proposal:
    """Choose a token for each position.

    Parameters
    ----------
    logits
        ``[n, V]`` of any floating type; overwritten.
    mask_id
        Excluded: neither proposed nor part of the probability.
    sampling
        None: the most probable token, ties to the lowest id. Else a draw: temperature, then the ``top_k`` most
        probable (ties to the lowest ids), then the smallest leading set whose probability reaches ``top_p``, then the
        inverse of the cumulative distribution at `uniforms`, tokens in order of probability.
    uniforms
        ``[n]`` float64 in [0, 1), needed if sampling, on any device.
    """
    scores = logits.float()
    spoilt = scores.sum(dim=1).mul_(0)  # 0, or NaN where there is a bad logit
    scores.select(1, mask_id).fill_(-torch.inf)
    largest, tokens = scores.max(dim=1)  # the first of equals
    if sampling is not None:
        assert uniforms is not None
        tokens = _draw(scores, sampling, uniforms.to(scores.device))
    odds = scores.sub_(largest[:, None]).exp_()  # to those of the most probable token
    total = odds.sum(dim=1).add_(spoilt)
    return Proposal(tokens, total.reciprocal_() if sampling is None else odds.gather(1, tokens[:, None])[:, 0] / total)


def _draw(scores: Tensor, sampling: Sampling, uniforms: Tensor) -> Tensor:
    exact = scores.double()
    exact -= exact.amax(dim=1, keepdim=True)  # 0 at most: however small the temperature, nothing overflows to NaN
    tempered = torch.softmax(exact.div_(sampling.temperature), dim=1)
    ranked, order = tempered.sort(dim=1, descending=True, stable=True)  # [n, V]
    if sampling.top_k:
        ranked[:, sampling.top_k :] = 0
        ranked /= ranked.sum(dim=1, keepdim=True)
    ranked *= ranked.cumsum(dim=1).sub_(ranked) < sampling.top_p  # what is before it
    edges = ranked.cumsum(dim=1)
    # the rank whose edge first exceeds the number; rounding must not push it onto a token that was filtered out
    rank = torch.minimum((edges <= (uniforms * edges[:, -1])[:, None]).sum(dim=1), (ranked > 0).sum(dim=1) - 1)
    return order.gather(1, rank.clamp(min=0)[:, None])[:, 0]  # of a row with NaN nothing exceeds 0
