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

Walkers are the rows of arrays and advance together; no row reads another. Letters: ``W`` rows of a call, ``J`` their
blocks that are heard about, ``B`` block size.

Source of steps 1, 2 and 4: multi-block decoding of Diffulex mbd-lms 9d1a04e; the reply's end differs from it
(docs/decisions/0020-where-a-reply-ends.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redline_engine.accept import accept, may_open, must_move, quotas, rule_numbers
from redline_engine.config import DecodeKnobs
from redline_engine.edits import replaced, settle
from redline_engine.replies import REASONS, RUNNING, Replies, Said
from redline_engine.stops import Detokenize
from redline_engine.table import NOWHERE, WALKER, Flags, Rows, WalkerTable, put
from redline_engine.trace import ForwardRecord

_STOP, _LENGTH, _CAPPED = (REASONS.index(name) for name in ("stop", "length", "max_forwards"))

Hear = Callable[[Rows, NDArray[np.int64]], tuple[NDArray[np.int32], NDArray[np.float32]]]

MOST_STARTS = 64  # that are remembered


class _Judged(NamedTuple):
    """Blocks that were heard about.

    Parameters
    ----------
    owner, slot, block
        ``[J]`` place of its walker in the call, of the block in the walker's buffer, and the block's number.
    accepted, written
        ``[J, B]`` masks that took their token; those and the tokens that were replaced.
    tokens
        ``[J, B]`` now.
    edits
        Whether some walker edits.
    """

    owner: Rows
    slot: Rows
    block: NDArray[np.int64]
    accepted: Flags
    written: Flags
    tokens: NDArray[np.int32]
    edits: bool


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
        self._table.left[rows, length // size] = -length % size
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

    def advance(self, rows: Rows, hear: Hear) -> Flags:
        """Take one step with each of `rows`; says which of them are finished.

        Parameters
        ----------
        rows
            ``[W]``, all different.
        hear
            Gives what the model says in blocks ``[J]`` of rows ``[J]``: tokens and confidence ``[J, B]``. They are read
            at masked positions; of a row that edits, at every position of its open block that is no prompt's.
        """
        table, size = self._table, self.block_size
        walkers = table.walkers.take(rows)
        blocks, before = self._buffers(rows, walkers)
        judged = self._judge(rows, walkers, blocks, before, hear)
        after = before.copy()
        after[judged.owner, judged.slot] -= _count(judged.accepted)
        table.left[rows[:, None], blocks] = after
        if self.record:
            self._keep_records(rows, walkers, before, judged)

        left = before.sum(axis=1)
        count = left - after.sum(axis=1)
        walkers["resolved"] += count
        walkers["zero_token"] += count == 0
        walkers["commit_only"] += (left == 0) & (walkers["forwards"] > 0)
        walkers["forwards"] += 1
        gaps = after > 0
        first = walkers["base"] + gaps.argmax(axis=1)
        offset = (table.tokens[rows, first] == self.mask_id).argmax(axis=1)
        walkers["settled"] = np.where(gaps.any(axis=1), first * size + offset, walkers["opened"] * size)
        if judged.edits:
            full = before[judged.owner, judged.slot] == 0
            settle(walkers, judged.owner, judged.block, judged.tokens, judged.written, full, self._end_sets.items())
        walkers["base"] = walkers["commit_end"]
        walkers["reason"] = self._finish(walkers)
        if self._replies.watches:
            put(table.walkers, rows, walkers)
            walkers["reason"][self._replies.find_stops(rows)] = REASONS.index("stop_string")
        self._open(rows, walkers)
        finished: Flags = walkers["reason"] != RUNNING
        return finished

    def fail(self, rows: Rows) -> None:
        """End walkers whose last forward gave no usable answer, so that it accepted nothing."""
        if self.record:
            walkers = self._table.walkers.take(rows)
            _, left = self._buffers(rows, walkers)
            self._keep_records(rows, walkers, left)
        self._table.walkers["zero_token"][rows] += 1
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

    def _buffers(self, rows: Rows, walkers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Numbers of the open blocks and one more, as many in each row, and how many positions each has to resolve."""
        base = walkers["base"]
        blocks = base[:, None] + np.arange(int((walkers["opened"] - base).max()) + 1)
        left: NDArray[np.int32] = self._table.left[rows[:, None], blocks]
        return blocks, left

    def _judge(
        self,
        rows: Rows,
        walkers: NDArray[Any],
        blocks: NDArray[np.int64],
        left: NDArray[np.int32],
        hear: Hear,
    ) -> _Judged:
        """Judge the blocks that rows hear about, all on the tokens as they stood, and write what is taken."""
        table, size = self._table, self.block_size
        editing = np.isfinite(walkers["edit"])
        edits = bool(editing.any())
        listens = left > 0
        if edits:
            listens[:, 0] |= editing & (walkers["opened"] > walkers["base"])
        owner, slot = listens.nonzero()
        if not owner.size:
            nothing = np.zeros((0, size), np.bool_)
            return _Judged(owner, slot, owner, nothing, nothing, nothing.astype(np.int32), False)
        own, row, block = walkers.take(owner), rows[owner], blocks[owner, slot]
        said, confidence = hear(row, block)
        tokens, turn = table.tokens[row, block], table.turns[row, block]
        masked = tokens == self.mask_id
        accepted = accept(
            confidence,
            masked,
            must_move(np.where(slot > 0, (size - left[owner, slot - 1]) / size, 1.0), own["semi"]),
            own["threshold"],
            quotas(own["quota"], own["steps"], turn, size),
        )
        written = accepted | replaced(own, block, tokens, ~masked, said, confidence) if edits else accepted
        table.tokens[row, block] = tokens = np.where(written, said, tokens)
        table.turns[row, block] = turn + accepted.any(axis=1)
        self._note_ends(walkers, owner, block, written, tokens)
        return _Judged(owner, slot, block, accepted, written, tokens, edits)

    def _note_ends(
        self,
        walkers: NDArray[Any],
        owner: Rows,
        block: NDArray[np.int64],
        written: Flags,
        tokens: NDArray[np.int32],
    ) -> None:
        """Note the leftmost end token within the limit, among those written to blocks ``[J]`` of walkers ``[J]``."""
        room = walkers["limit"][owner] - block * self.block_size
        inside = written & (np.arange(self.block_size) < room[:, None])
        for ends, number in self._end_sets.items():
            hits = inside & (walkers["end_set"][owner, None] == number) & (tokens[:, :, None] == ends).any(axis=2)
            some = hits.any(axis=1).nonzero()[0]
            leftmost = block[some] * self.block_size + hits[some].argmax(axis=1)
            np.minimum.at(walkers["end"], owner[some], leftmost)

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
        blocks, left = self._buffers(rows, walkers)
        last = np.maximum(opened - base - 1, 0)
        progress = (self.block_size - left[np.arange(len(rows)), last]) / self.block_size
        may = np.where(opened > base, may_open(progress, walkers["add"]), walkers["forwards"] > 0)
        may &= (opened - base < walkers["buffer_size"]) & (opened <= walkers["last_block"])
        may &= (walkers["end"] == NOWHERE) & (walkers["reason"] == RUNNING)
        left[may, (opened - base)[may]] = self._table.left[rows[may], opened[may]] = self.block_size
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
        left: NDArray[np.int32],
        judged: _Judged | None = None,
    ) -> None:
        """Append the record of this forward, before the counters move on; nothing was accepted where none is judged."""
        size = self.block_size
        for index, row in enumerate(rows.tolist()):
            walker = walkers[index]
            cached = int(walker["base"]) if walker["forwards"] else 0
            taken: dict[int, int] = {}
            if judged is not None:
                mine = (judged.owner == index).nonzero()[0]
                which, offset = judged.accepted[mine].nonzero()
                positions = judged.block[mine][which] * size + offset
                taken = dict(zip(positions.tolist(), judged.tokens[mine][which, offset].tolist(), strict=True))
            self._records[row].append(
                ForwardRecord(
                    cached=cached,
                    first_open=int(walker["base"]),
                    end_open=int(walker["opened"]),
                    masked=int(left[index].sum()),
                    accepted=taken,
                    rows_run=(int(walker["run_end"]) - cached) * size,
                    rows_useful=int(left[index].sum()) + (int(walker["commit_end"]) - cached) * size,
                )
            )


def _count(flags: Flags) -> NDArray[np.int16]:
    """How many are set in each row; added up column by column, which takes a fraction of the time of short sums."""
    columns = np.ascontiguousarray(flags.T).view(np.uint8)
    counts: NDArray[np.int16] = np.add.reduce(columns, axis=0, dtype=np.int16)
    return counts
