"""A lane: all walkers of one block size, the states they stand in, and the way from the one to the other.

The engine (`engine.py`) has a lane for each block size among its configurations. Everything here is done for many
walkers at once; letters as in `walker.py` and `states.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from redline_engine.config import DecodeKnobs, Sampling
from redline_engine.models.base import Answer, Batch, Model, ModelInfo
from redline_engine.replies import Said
from redline_engine.states import States, spoilt
from redline_engine.stops import Detokenize
from redline_engine.table import Flags, Rows, WalkerTable
from redline_engine.walker import Walkers

FEW = 16  # one in so many walkers: what a round of fewer saves is less than the round takes

_NONE = np.zeros(0, np.int64)


class Family(NamedTuple):
    """Configurations of a prompt whose states may be the same, and which of all its configurations they are."""

    block_size: int
    sampling: Sampling | None
    edits: bool
    numbers: tuple[int, ...]
    configurations: tuple[DecodeKnobs, ...]


class Finished(NamedTuple):
    """A walker that has finished: its prompt, which of the prompt's configurations it is, what it said, and a problem.

    The problem is empty, or why what the model said could not be used.
    """

    ticket: int
    number: int
    said: Said
    problem: str


class Lane:
    """Walkers of one block size.

    Parameters
    ----------
    block_size
        ``B``.
    info
        Of the model.
    detokenize, record
        As of the engine.

    Attributes
    ----------
    forwards_run
        Distinct states that walkers came to.
    """

    def __init__(self, block_size: int, info: ModelInfo, detokenize: Detokenize | None, record: bool) -> None:
        self.states = States(block_size, info.mask_id)
        self.table = WalkerTable(block_size, info.mask_id)
        self.forwards_run = 0
        self._end_ids = info.end_ids
        self._walkers = Walkers(self.table, detokenize, record)
        self._pending = _NONE  # a row that stands in each state which nobody has asked about
        self._waiting = _NONE  # rows in states that were not answered when they came there, and a few others
        self._finished: list[Rows] = []

    def add(self, ticket: int, prompt: Sequence[int], family: Family) -> Rows:
        """Make the walkers of a prompt in one family; returns their rows."""
        tokens = np.asarray(prompt, np.int32)
        book, nodes = self.states.open(ticket, tokens, family.sampling, family.edits, len(family.numbers))
        return self._walkers.add(tokens, family.configurations, self._end_ids, book, nodes, family.numbers)

    def begin(self, rows: Rows) -> None:
        """Put walkers at the start of their prompts, and let them go as far as they can."""
        self._walkers.begin(rows)
        self._go_on(self._stand(rows))

    def pending(self) -> Rows:
        """Return tickets of the states that nobody has asked about, in the order in which walkers came to them."""
        return self._tickets(self._pending)

    def forward(self, model: Model, chosen: Rows) -> bool:
        """Ask the model about some of the pending states, by their places; says whether there were any."""
        if not chosen.size:
            return False
        rows = self._pending[chosen]
        self._pending = np.delete(self._pending, chosen) if chosen.size < self._pending.size else _NONE
        depths = self.table.walkers["run_end"][rows]
        question = self.states.ask(self.table.nodes[rows, 1 : 1 + depths.max()], depths)
        answer = model.forward(question.batch)
        bad = spoilt(question.batch, answer)
        if bad.any():
            _ask_by_block(model, question.batch, answer, bad)
            bad = spoilt(question.batch, answer)
        self.states.hear(question, answer, bad)
        return True

    def advance(self) -> None:
        """Let walkers in answered states step, until nearly all are finished or wait in a state without an answer."""
        # those that were answered beside others, while their rows still stand there
        self._pending = self._pending[~self.states.answered(self._standing(self._pending))]
        known = self.states.answered(self._standing(self._waiting))
        rows, self._waiting = self._waiting[known], self._waiting[~known]
        self._go_on(rows)

    def _stand(self, rows: Rows) -> Rows:
        """Place walkers in their states; returns those whose states are answered, the others wait there."""
        table, states = self.table, self.states
        base, end = table.walkers["base"][rows], table.walkers["run_end"][rows]
        for block in range(int((end - base).max(initial=0))):
            deep = rows[base + block < end]
            at = table.walkers["base"][deep] + block
            table.nodes[deep, at + 1] = states.find(table.nodes[deep, at], table.tokens[deep, at])
        standing = table.nodes[rows, end]
        new, known = states.visit(standing), states.answered(standing)
        self.forwards_run += len(new)
        self._pending = np.concatenate([self._pending, rows[new[~known[new]]]])
        self._waiting = np.concatenate([self._waiting, rows[~known]])
        ready: Rows = rows[known]
        return ready

    def _go_on(self, rows: Rows) -> None:
        """Let walkers, which stand in answered states, step until few still do; those go on in the next step."""
        few = rows.size // FEW
        while rows.size > few:
            if self.states.any_bad:
                rows = self._without_bad(rows)
                if not rows.size:
                    break
            done = self._walkers.advance(rows, self._hear)
            self._finished.append(rows[done])
            rows = self._stand(rows[~done])
        self._waiting = np.concatenate([self._waiting, rows])

    def release(self) -> tuple[list[Finished], list[int]]:
        """Hand out the walkers that have finished, and forget them.

        Returns
        -------
        The walkers, and a ticket for each book that has none left, whose states and pages are gone with the last one.
        """
        rows = np.concatenate([*self._finished, _NONE])
        self._finished = []
        if not rows.size:
            return [], []
        walkers = self.table.walkers.take(rows)
        tickets, numbers = self._tickets(rows).tolist(), walkers["number"].tolist()
        said, problems = self._walkers.said(rows), self._problems(rows)
        self._walkers.release(rows)
        closed = self.states.leave(walkers["book"])
        return list(map(Finished, tickets, numbers, said, problems)), self.states.tickets(closed).tolist()

    def _hear(self, rows: Rows, blocks: Rows) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """What is said in blocks of rows."""
        return self.states.said(self.table.nodes[rows, blocks + 1])

    def _standing(self, rows: Rows) -> Rows:
        """States that walkers stand in."""
        states: Rows = self.table.nodes[rows, self.table.walkers["run_end"][rows]]
        return states

    def _tickets(self, rows: Rows) -> Rows:
        return self.states.tickets(self.table.walkers["book"][rows])

    def _path(self, row: int) -> Rows:
        """Nodes of the blocks of the state that a walker stands in."""
        path: Rows = self.table.nodes[row, 1 : 1 + self.table.walkers["run_end"][row]]
        return path

    def _without_bad(self, rows: Rows) -> Rows:
        """End the walkers that hear what is not finite; returns the others."""
        bad = np.array([self.states.bad(self._path(row)).any() for row in rows.tolist()], np.bool_)
        if bad.any():
            self._walkers.fail(rows[bad])
            self._finished.append(rows[bad])
        return rows[~bad]

    def _problems(self, rows: Rows) -> list[str]:
        if not self.states.any_bad:
            return [""] * len(rows)
        failed = zip(rows.tolist(), self._walkers.failed(rows), strict=True)
        return [self.states.problem(self._path(row)) if bad else "" for row, bad in failed]


def _ask_by_block(model: Model, batch: Batch, answer: Answer, bad: Flags) -> None:
    """Ask again about queries with answers that are not finite, one block after the other, and correct the answer.

    `bad` says in which blocks they are.

    A masked position that is not finite spoils those it is masked for as well, as 0 times NaN is NaN. So what a bad
    block did to those before it in its query, or to queries that read their pages, is undone.
    """
    owners = np.repeat(np.arange(len(batch.run)), batch.run)
    again = np.isin(owners, owners[bad]).nonzero()[0]
    blocks = batch.by_block()
    for block in again.tolist():
        piece, _ = blocks.take(np.array([block]))
        answer.tokens[block], answer.confidence[block] = (said[0] for said in model.forward(piece))
