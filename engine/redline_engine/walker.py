"""Walkers: one configuration on one prompt each, a multi-block state machine that knows nothing about models.

A walker's reply is cut into blocks on absolute positions. Its *buffer* holds the consecutive blocks that are not
committed yet; the first `opened - base` of them are open, i.e. take part in forwards::

    block     0 ........ base-1 | base ........ opened-1 | ... base+buffer_size-1
              committed         | open: some masks left, | empty
                                | or none: to be         |
                                | committed, or waiting  |

Between two forwards a walker stands still and a model answers for each masked position of the open blocks (token and
confidence). `Walkers.advance` then takes the step:

1. judge every open block by the acceptance rule, all on the tokens as they stood before the forward; write the tokens;
2. the leading blocks that were complete *before* the forward have now been run with clean tokens: they are committed,
   and the buffer moves past them;
3. finish, if the reply is settled or a limit is met;
4. else open at most one block: the next one, if there is room, no end token stands anywhere in the reply, the last
   open block has progressed far enough, and it does not lie beyond the block of the position limit.

A walker that edits (`edits.py`) also replaces resolved tokens of its one open block, and commits the block when it has
become stable.

A prompt's full blocks are committed by the first forward, the prefill. If the prompt fills its last block, no block is
open in the prefill and it accepts nothing; otherwise the shared last block is open from the start.

The first block with masks always has a complete block before it, so it must move: every forward that runs a masked
position accepts at least one token. The reply is settled once an end token has nothing unresolved before it, which no
later step could change; nothing waits for the blocks behind it.

Walkers are the rows of arrays and advance together; no row reads another. Letters: ``W`` rows of a call, ``N`` blocks
of the widest buffer among them, ``B`` block size. Source of steps 1, 2 and 4: multi-block decoding of Diffulex mbd-lms
9d1a04e; the reply's end differs from it (docs/decisions/0020-where-a-reply-ends.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redline_engine.accept import accept, may_open, must_move, quotas, rule_numbers
from redline_engine.config import DecodeKnobs
from redline_engine.edits import Window, editable, replaced, settle
from redline_engine.replies import REASONS, RUNNING, Replies, Said
from redline_engine.stops import Detokenize
from redline_engine.table import NOWHERE, WALKER, Rows, WalkerTable, put
from redline_engine.trace import ForwardRecord

_STOP, _LENGTH, _CAPPED = (REASONS.index(name) for name in ("stop", "length", "max_forwards"))

MOST_STARTS = 64  # that are remembered


class Walkers:
    """All walkers that share a block size.

    Parameters
    ----------
    table
        Whose rows they are.
    detokenize
        Token ids to text; needed by configurations with stop strings only.
    record
        Keep a `ForwardRecord` of each forward.
    """

    def __init__(self, table: WalkerTable, detokenize: Detokenize | None = None, record: bool = False) -> None:
        self.block_size = table.block_size
        self.mask_id = table.mask_id
        self.record = record
        self._table = table
        self._end_sets: dict[tuple[int, ...], int] = {}
        self._starts: dict[int, tuple[tuple[DecodeKnobs, ...], NDArray[Any]]] = {}  # by identity: hashing takes long
        self._replies = Replies(table, detokenize)
        self._records: dict[int, list[ForwardRecord]] = {}

    def add(
        self,
        prompt: NDArray[np.int32],
        knobs: tuple[DecodeKnobs, ...],
        end_ids: Sequence[int],
        book: int,
        nodes: Rows,
        numbers: Sequence[int],
    ) -> Rows:
        """Make one walker per configuration of a prompt; `begin` puts them at its start.

        Parameters
        ----------
        prompt
            At least one token and no mask.
        knobs
            Configurations; remembered, so prompts that are decoded under the same ones should give the same tuple.
        end_ids
            The model's own.
        book, nodes
            Of the walkers' states: its number, its root and the prompt's full blocks.
        numbers
            Of the configurations, in order.

        Returns
        -------
        Their rows, in order.
        """
        size, length = self.block_size, len(prompt)
        if len(self._starts) >= MOST_STARTS:
            self._starts.clear()
        if id(knobs) not in self._starts:
            self._starts[id(knobs)] = knobs, self._start(knobs, end_ids)
        start = self._starts[id(knobs)][1].copy()
        start["prompt_length"], start["base"], start["opened"] = length, length // size, -(-length // size)
        start["settled"] = length
        start["limit"] += length
        start["last_block"] = (start["limit"] - 1) // size
        rows = self._table.take(len(knobs), int(start["last_block"].max()), int(start["buffer_size"].max()))
        start["book"], start["number"] = book, numbers
        self._table.flat[rows, :length] = prompt
        self._table.nodes[rows, : len(nodes)] = nodes
        for row, knob in zip(rows.tolist(), knobs, strict=True):
            self._replies.watch(row, knob.stop_strings)
            if self.record:
                self._records[row] = []
        put(self._table.walkers, rows, start)
        return rows

    def begin(self, rows: Rows) -> None:
        """Put walkers at the start of their prompts."""
        self._open(rows, self._table.walkers.take(rows))

    def _start(self, knobs: Sequence[DecodeKnobs], end_ids: Sequence[int]) -> NDArray[Any]:
        """Return rows of walkers that stand at the start of an empty prompt."""
        start = np.zeros(len(knobs), WALKER)
        start["end"], start["reason"] = NOWHERE, RUNNING
        for walker, knob in zip(start, knobs, strict=True):
            walker["limit"] = knob.max_new_tokens
            walker["buffer_size"] = knob.buffer_size
            walker["max_forwards"] = NOWHERE if knob.max_forwards is None else knob.max_forwards
            ends = tuple(sorted({*end_ids, *knob.stop_tokens}))
            walker["end_set"] = self._end_sets.setdefault(ends, len(self._end_sets))
            walker["threshold"], walker["quota"], walker["steps"] = rule_numbers(knob)
            walker["semi"], walker["add"] = knob.semi_complete_threshold, knob.add_block_threshold
            walker["edit"] = knob.edit_threshold if knob.edits else np.inf
            walker["max_post"] = knob.max_post_edit_steps
        return start

    def window(self, rows: Rows) -> NDArray[np.int64]:
        """Numbers ``[W, N]`` of the blocks that rows hear about: those of their buffers, as far as some is open."""
        base, opened = self._table.walkers["base"][rows], self._table.walkers["opened"][rows]
        return _blocks(base, most=max(1, int((opened - base).max())))

    def advance(self, rows: Rows, tokens: NDArray[np.int32], confidence: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Take one step with each of `rows`; says which of them are finished.

        Parameters
        ----------
        rows
            ``[W]``, all different.
        tokens, confidence
            ``[W, N, B]`` the model's answers in the blocks of `window`. They are read at masked positions of open
            blocks; of a row that edits, at every position of its open block that is no prompt's.
        """
        walkers = self._table.walkers.take(rows)
        blocks = _blocks(walkers["base"], most=tokens.shape[1])
        masked = self._masked(rows, walkers, blocks)
        window = self._seen(rows, walkers, blocks) if np.isfinite(walkers["edit"]).any() else None
        left = _count(masked)
        progress = (self.block_size - left) / self.block_size

        judged, slot = np.nonzero(left)
        accepted = np.zeros(masked.shape, np.bool_)
        if judged.size:
            turn = self._table.turns[rows[judged], blocks[judged, slot]]
            takes = accept(
                confidence[judged, slot],
                masked[judged, slot],
                must_move(np.where(slot > 0, progress[judged, slot - 1], 1.0), walkers["semi"][judged]),
                walkers["threshold"][judged],
                quotas(walkers["quota"][judged], walkers["steps"][judged], turn, self.block_size),
            )
            self._table.turns[rows[judged], blocks[judged, slot]] = turn + takes.any(axis=1)
            accepted[judged, slot] = takes
        written = accepted
        if window is not None:
            written = accepted | replaced(walkers, window, editable(walkers, window) & ~masked, tokens, confidence)
        self._write(rows, walkers, blocks, written, tokens)
        if self.record:
            self._keep_records(rows, walkers, left, blocks, accepted)

        count = accepted.sum(axis=(1, 2))
        walkers["resolved"] += count
        walkers["zero_token"] += count == 0
        walkers["commit_only"] += ~left.any(axis=1) & (walkers["forwards"] > 0)
        walkers["forwards"] += 1
        still = (masked & ~accepted).reshape(len(rows), -1)
        walkers["settled"] = np.where(
            still.any(axis=1),
            walkers["base"] * self.block_size + still.argmax(axis=1),
            walkers["opened"] * self.block_size,
        )
        if window is not None:
            full = window.opened[:, 0] & (left[:, 0] == 0)
            settle(walkers, self._seen(rows, walkers, blocks), full, written, self._end_sets.items())
        walkers["base"] = walkers["commit_end"]
        walkers["reason"] = self._finish(walkers)
        if self._replies.watches:
            put(self._table.walkers, rows, walkers)
            walkers["reason"][self._replies.find_stops(rows)] = REASONS.index("stop_string")
        self._open(rows, walkers)
        finished: NDArray[np.bool_] = walkers["reason"] != RUNNING
        return finished

    def fail(self, rows: Rows) -> None:
        """End walkers whose last forward gave no usable answer."""
        self._table.walkers["forwards"][rows] += 1
        self._table.walkers["reason"][rows] = REASONS.index("error")

    def failed(self, rows: Rows) -> list[bool]:
        """Whether finished walkers were ended by `fail`."""
        ended: list[bool] = (self._table.walkers["reason"][rows] == REASONS.index("error")).tolist()
        return ended

    def said(self, rows: Rows) -> list[Said]:
        """Reply and accounting of finished walkers."""
        return self._replies.said(rows, self._records)

    def release(self, rows: Rows) -> None:
        """Forget walkers; their rows may be used again."""
        self._table.give_back(rows)
        self._replies.forget(rows)
        if self.record:
            for row in rows.tolist():
                del self._records[row]

    def _masked(self, rows: Rows, walkers: NDArray[Any], blocks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Masked positions ``[W, N, B]`` of those blocks that are open."""
        is_open = blocks < walkers["opened"][:, None]
        flags: NDArray[np.bool_] = (self._table.blocks(rows, blocks) == self.mask_id) & is_open[:, :, None]
        return flags

    def _seen(self, rows: Rows, walkers: NDArray[Any], blocks: NDArray[np.int64]) -> Window:
        """Tokens of the buffers as they stand."""
        return Window(blocks, self._table.blocks(rows, blocks), blocks < walkers["opened"][:, None])

    def _write(
        self,
        rows: Rows,
        walkers: NDArray[Any],
        blocks: NDArray[np.int64],
        accepted: NDArray[np.bool_],
        tokens: NDArray[np.int32],
    ) -> None:
        """Write the accepted tokens and note the leftmost end token within the limit."""
        places = accepted.reshape(-1).nonzero()[0]
        if not places.size:
            return
        slots, offset = np.divmod(places, self.block_size)
        walker, block = slots // blocks.shape[1], blocks.reshape(-1)[slots]
        tokens = tokens.reshape(-1)[places]
        self._table.tokens[rows[walker], block, offset] = tokens
        position = block * self.block_size + offset
        inside = position < walkers["limit"][walker]
        for ends, number in self._end_sets.items():
            hits = inside & (walkers["end_set"][walker] == number) & (tokens[:, None] == ends).any(axis=1)
            np.minimum.at(walkers["end"], walker[hits], position[hits])

    def _finish(self, walkers: NDArray[Any]) -> NDArray[np.int64]:
        """Return the number of each walker's finish reason, or `RUNNING`."""
        stop = walkers["end"] < walkers["settled"]
        length = walkers["settled"] >= (walkers["last_block"] + 1) * self.block_size
        capped = walkers["forwards"] >= walkers["max_forwards"]
        reason = np.where(capped, _CAPPED, RUNNING)
        reason[length] = _LENGTH
        reason[stop] = _STOP
        return reason

    def _open(self, rows: Rows, walkers: NDArray[Any]) -> None:
        """Open at most one block per walker, measure what its next forward commits and how far it runs; note it.

        Of one that has finished nothing opens.
        """
        base, opened = walkers["base"], walkers["opened"]
        blocks = _blocks(base, most=int((opened - base).max()) + 1)
        left = _count(self._masked(rows, walkers, blocks))
        last = np.maximum(opened - base - 1, 0)
        progress = (self.block_size - left[np.arange(len(rows)), last]) / self.block_size
        may = np.where(opened > base, may_open(progress, walkers["add"]), walkers["forwards"] > 0)
        may &= (opened - base < walkers["buffer_size"]) & (opened <= walkers["last_block"])
        may &= (walkers["end"] == NOWHERE) & (walkers["reason"] == RUNNING)
        left[may, (opened - base)[may]] = self.block_size
        walkers["opened"] += may
        complete = (left == 0) & (blocks < walkers["opened"][:, None])
        walkers["commit_end"] = base + complete.argmin(axis=1)  # the last one is not open
        reach = np.where(left > 0, blocks + 1, 0).max(axis=1)
        walkers["run_end"] = np.maximum(reach, walkers["commit_end"])
        put(self._table.walkers, rows, walkers)

    def _keep_records(
        self,
        rows: Rows,
        walkers: NDArray[Any],
        left: NDArray[np.int64],
        blocks: NDArray[np.int64],
        accepted: NDArray[np.bool_],
    ) -> None:
        """Append the record of this forward, before the counters move on."""
        size = self.block_size
        for index, row in enumerate(rows.tolist()):
            walker = walkers[index]
            cached = int(walker["base"]) if walker["forwards"] else 0
            slot, offset = np.nonzero(accepted[index])
            block = blocks[index, slot]
            self._records[row].append(
                ForwardRecord(
                    cached=cached,
                    first_open=int(walker["base"]),
                    end_open=int(walker["opened"]),
                    masked=int(left[index].sum()),
                    accepted=dict(
                        zip(
                            (block * size + offset).tolist(),
                            self._table.tokens[row, block, offset].tolist(),
                            strict=True,
                        )
                    ),
                    rows_run=(int(walker["run_end"]) - cached) * size,
                    rows_useful=int(left[index].sum()) + (int(walker["commit_end"]) - cached) * size,
                )
            )


def _blocks(base: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Numbers of the first blocks ``[W, N]`` of buffers, `most` of each."""
    return base[:, None] + np.arange(most)


def _count(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many are set along the last dimension; a product is several times as fast as a sum over so few."""
    ones = np.ones(flags.shape[-1], np.float32)
    counts: NDArray[np.int64] = (flags.astype(np.float32) @ ones).astype(np.int64)
    return counts
