"""The acceptance rule: which masked positions of a block take their token in this forward. Its only home.

Every schedule is one rule with two numbers for each block. A position is accepted if its confidence exceeds the
*threshold*; and if the block must move, its *quota* of most confident positions is accepted in any case. Schedules
only choose the numbers: "threshold" has quota 1, "count" and "steps" have a threshold that nothing exceeds.

The comparisons, each decided here and nowhere else:

====================  ========  ======================================================================
accept                ``>``     confidence against ``accept_threshold``
must move             ``>=``    progress of the block before against ``semi_complete_threshold``
open the next block   ``>=``    progress of the last open block against ``add_block_threshold``
====================  ========  ======================================================================

Equal confidences are taken from left to right. Ties between tokens of one position are decided where tokens are
proposed (`redline_engine.models`), always for the lowest id. Confidences are float32 and thresholds float64: compared
as float64.

Source of the three comparisons: Diffulex mbd-lms 9d1a04e. Letters: ``R`` blocks to be judged, ``B`` block size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from redline_engine.config import DecodeKnobs

NEVER = np.inf  # a threshold that no confidence exceeds


def rule_numbers(knobs: DecodeKnobs) -> tuple[float, int, int]:
    """Threshold, quota and denoising steps of a configuration; steps is 0 unless the quota comes from them."""
    match knobs.schedule:
        case "threshold":
            return knobs.accept_threshold, 1, 0
        case "count":
            return NEVER, knobs.accept_count, 0
        case "steps":
            return NEVER, 0, knobs.denoising_steps


def quotas(
    quota: NDArray[np.int64], steps: NDArray[np.int64], turn: NDArray[np.int32], block_size: int
) -> NDArray[np.int64]:
    """Positions that a block has to accept if it must move.

    Parameters
    ----------
    quota, steps
        ``[R]``, as `rule_numbers` gives them.
    turn
        ``[R]`` forwards in which the block has accepted something so far. A block that waits for the one before it
        does not use up turns.
    block_size
        Of a full block: a block shared with the prompt follows the same schedule and is done early (as SDAR's
        low_confidence_static does).

    Returns
    -------
    ``[R]``, each at least 1.
    """
    if not steps.any():
        return np.maximum(quota, 1)
    share, remainder = np.divmod(block_size, np.maximum(steps, 1))
    return np.maximum(np.where(steps > 0, share + (turn < remainder), quota), 1)


def must_move(progress_before: NDArray[np.float64], semi_complete_threshold: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether a block has to accept something, by the progress of the block before it (1 where there is none)."""
    return progress_before >= semi_complete_threshold


def may_open(progress_last: NDArray[np.float64], add_block_threshold: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the next block may open, by the progress of the last open one."""
    return progress_last >= add_block_threshold


def accept(
    confidence: NDArray[np.float32],
    masked: NDArray[np.bool_],
    moving: NDArray[np.bool_],
    threshold: NDArray[np.float64],
    quota: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Positions that take their token.

    Parameters
    ----------
    confidence
        ``[R, B]``, read at masked positions only.
    masked
        ``[R, B]`` unresolved positions.
    moving
        ``[R]`` blocks that must move, from `must_move`.
    threshold, quota
        ``[R]``, of `rule_numbers` and `quotas`.

    Returns
    -------
    ``[R, B]``, true at masked positions only; a moving block with a masked position accepts at least one.
    """
    accepted = masked & (confidence > threshold[:, None])
    short = np.flatnonzero(moving & (accepted.sum(axis=1) < quota))
    if short.size and (quota[short] == 1).all():  # the common case, and an order would take several times as long
        best = np.where(masked[short], confidence[short], -1).argmax(axis=1)
        accepted[short, best] = masked[short, best]
    elif short.size:
        order = np.argsort(np.where(masked[short], -confidence[short], np.inf), axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.broadcast_to(np.arange(masked.shape[1]), order.shape), axis=1)
        accepted[short] |= masked[short] & (rank < quota[short, None])
    return accepted
