"""What a request cost, and tokens per forward: the one definition and, by name, those of others.

A request is charged the forwards it would need alone. That several configurations shared a forward shows in the
engine's own counts, never in a request's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

FinishReason = Literal["stop", "stop_string", "length", "max_forwards", "error"]
"""Why a request ended.

"stop": an end token with nothing unresolved before it. "stop_string": a stop string in the text resolved without a gap.
"length": every block through that of the position limit is resolved. "max_forwards": the cap on forwards came first.
"error": the model's answer could not be used.
"""


@dataclass(frozen=True)
class ForwardRecord:
    """One forward of one request, as the request sees it (tokens before the forward, accepted by it).

    Parameters
    ----------
    cached, first_open, end_open
        Blocks whose pages existed; the first block of the buffer; one past the last open block. In a prefill the full
        blocks of the prompt lie between ``cached`` = 0 and ``first_open``.
    masked
        Unresolved positions of the open blocks.
    accepted
        Absolute position to token.
    rows_run
        Positions whose hidden states were computed.
    rows_useful
        Those that could accept a token or were committed.
    """

    cached: int
    first_open: int
    end_open: int
    masked: int
    accepted: Mapping[int, int]
    rows_run: int
    rows_useful: int


class Trace(NamedTuple):
    """Accounting of one request.

    Parameters
    ----------
    finish_reason
        See `FinishReason`.
    forwards
        Every forward the request took part in, the prefill and commit-only ones included. The first is the prefill.
    zero_token_forwards
        Forwards that accepted nothing: commit-only ones, and the prefill of a prompt that fills its last block.
    commit_only_forwards
        Forwards after the prefill that ran resolved blocks alone, to write their pages.
    tokens_resolved
        Positions accepted, wherever they lie.
    reply_tokens
        Length of the reply, an end token included.
    end_token
        Whether an end token ends it.
    tokens_after_reply
        Positions accepted that the reply does not hold: behind its end token, stop string, limit, or a gap.
    masks_left
        Open positions that were still unresolved at the end, none of them inside the reply.
    records
        One per forward, if the engine was asked to keep them; else empty.
    """

    finish_reason: FinishReason
    forwards: int
    zero_token_forwards: int
    commit_only_forwards: int
    tokens_resolved: int
    reply_tokens: int
    end_token: bool
    tokens_after_reply: int
    masks_left: int
    records: tuple[ForwardRecord, ...] = ()

    @property
    def prefill_forwards(self) -> int:
        """1: prompts are prefilled in one piece."""
        return 1

    @property
    def decode_forwards(self) -> int:
        """Forwards after the prefill."""
        return self.forwards - self.prefill_forwards


def tokens_per_forward(traces: Sequence[Trace]) -> float:
    """Sum of reply tokens over sum of forwards, pooled over requests.

    Reply tokens count up to and including the first end token, cut at ``max_new_tokens``; forwards are all that a
    request takes part in. Source: the ratio of means in the tables of the paper that this project certifies.

    Raises
    ------
    ValueError
        Without any forward there is no ratio.
    """
    return _ratio(sum(trace.reply_tokens for trace in traces), sum(trace.forwards for trace in traces))


def reply_before_end_per_forward(traces: Sequence[Trace]) -> float:
    """As `tokens_per_forward` without the end token. Source: the statistics file of Diffulex mbd-lms."""
    tokens = sum(trace.reply_tokens - trace.end_token for trace in traces)
    return _ratio(tokens, sum(trace.forwards for trace in traces))


def mean_resolved_per_forward(traces: Sequence[Trace]) -> float:
    """Mean over requests of resolved tokens (also behind the end) over forwards. Source: Diffulex mbd-lms outputs."""
    return _ratio(sum(_ratio(trace.tokens_resolved, trace.forwards) for trace in traces), len(traces))


def mean_resolved_per_decode_forward(traces: Sequence[Trace]) -> float:
    """Mean over requests of resolved tokens over forwards without the prefill. Source: Diffulex main since e7566c2."""
    return _ratio(sum(_ratio(trace.tokens_resolved, trace.decode_forwards) for trace in traces), len(traces))


CONVENTIONS = {
    "redline": tokens_per_forward,
    "diffulex-stats": reply_before_end_per_forward,
    "diffulex-mbd-lms": mean_resolved_per_forward,
    "diffulex-main": mean_resolved_per_decode_forward,
}


def _ratio(tokens: float, forwards: int) -> float:
    if forwards == 0:
        raise ValueError("tokens per forward of no forwards; at least one is needed")
    return tokens / forwards
