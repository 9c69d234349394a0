"""The engine: prompts and configurations in, replies out. Start reading here.

A prompt is submitted with all configurations that shall decode it. Each becomes a walker (`walker.py`); walkers that
stand in the same decode state (`states.py`) share one forward. `Engine.step` is the whole loop::

    collect   admit prompts while there is room, and gather the states that some walker stands on and nobody has run
    forward   run them in one batch for each block size, prefills beside decodes
    accept    give every walker on an answered state its answer; it judges and takes a step (`accept.py`, `walker.py`)
    advance   place it on its next state; if that one was answered before, it goes on at once, for free
    release   hand out finished replies; a prompt's states and pages go with its last walker

The engine knows token ids only. Text, if wanted, comes from a `detokenize` function.

A reply does not depend on the company its prompt is decoded in, as far as the model's answers do not: exactly for a
model whose answers are exact; in float32 on a CPU up to decisions nearer to a threshold than rounding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, NamedTuple, cast

import numpy as np

from redline_engine.config import DecodeKnobs, KnobError, Sampling
from redline_engine.models.base import Answer, Model
from redline_engine.request import Prompt, Reply, check_request
from redline_engine.states import PagePool, Question, State, StateBook
from redline_engine.stops import Detokenize
from redline_engine.table import Rows
from redline_engine.walker import Walkers


@dataclass
class Counts:
    """What the engine did so far.

    Parameters
    ----------
    forwards_run, forwards_charged
        Distinct states that walkers came to; forwards that the finished requests would have needed alone.
    model_calls
        Batches.
    peak_prompts, peak_pages
        Most prompts, and most pages, alive at one time.
    """

    forwards_run: int = 0
    forwards_charged: int = 0
    model_calls: int = 0
    peak_prompts: int = 0
    peak_pages: int = 0


class _Submitted(NamedTuple):
    ticket: int
    prompt: Prompt
    configurations: tuple[DecodeKnobs, ...]


class _Standing(NamedTuple):
    """A walker and the state it stands in."""

    row: int
    state: State


_Arrived = tuple[State, list[int]]
"""A state and walkers that stand in it."""


class Engine:
    """Decode prompts under many configurations with one model.

    Parameters
    ----------
    model
        Anything with the interface of `redline_engine.models.base.Model`.
    batch_size
        Most states in one step. New prompts are admitted only while fewer wait to be run, so it also bounds the
        prompts alive, and with them pages and remembered answers.
    detokenize
        Token ids to text; without it replies have no text and stop strings are refused.
    record
        Keep a record of each forward in the traces.

    Examples
    --------
    Three configurations decode a prompt; alone they would need 14 forwards, together 11.

    >>> from redline_engine.models.scripted import HashModel
    >>> engine = Engine(HashModel(seed=2, end_rate=2000))
    >>> knobs = [DecodeKnobs(accept_threshold=threshold) for threshold in (0.95, 0.9, 0.8)]
    >>> replies = engine.generate([Prompt("p", [1, 2, 3])], knobs)
    >>> [reply.trace.forwards for (reply,) in replies], engine.counts.forwards_run
    ([5, 5, 4], 11)
    """

    def __init__(
        self, model: Model, batch_size: int = 256, detokenize: Detokenize | None = None, record: bool = False
    ) -> None:
        if batch_size < 1:
            raise KnobError([f"batch_size: {batch_size} is not allowed; it must be at least 1"])
        self.model = model
        self.batch_size = batch_size
        self.counts = Counts()
        self._detokenize = detokenize
        self._record = record
        self._resolved: dict[DecodeKnobs, DecodeKnobs] = {}  # with a block size; the same for every prompt
        self._queue: deque[_Submitted] = deque()
        self._prompts: dict[int, Prompt] = {}  # by ticket, while a walker lives
        self._tickets = 0
        self._steps = 0
        self._walkers: dict[int, Walkers] = {}  # by block size
        self._pools: dict[int, PagePool] = {}
        self._configuration: dict[tuple[int, int], int] = {}  # (block size, row) -> number within its prompt
        self._books: dict[int, int] = {}  # ticket -> books still open
        self._pending: list[State] = []
        self._finished: list[_Standing] = []

    def generate(self, prompts: Iterable[Prompt], configurations: Sequence[DecodeKnobs]) -> list[list[Reply]]:
        """Decode every prompt under every configuration.

        Returns
        -------
        Replies ``[configurations][prompts]``, in the orders given. A prompt whose decoding failed has a reply with an
        ``error``; the others are not affected.

        Raises
        ------
        PromptError, KnobError
            Before anything is decoded: see `submit`.
        RuntimeError
            If prompts submitted before are not finished.
        """
        if self.busy:
            raise RuntimeError("generate: prompts submitted before are not finished; call step until it is not busy")
        submitted = [self._check(prompt, configurations) for prompt in prompts]
        self._queue.extend(submitted)
        column = {each.ticket: number for number, each in enumerate(submitted)}
        grid: dict[tuple[int, int], Reply] = {}
        while self.busy:
            grid.update({(reply.configuration, column[reply.ticket]): reply for reply in self.step()})
        return [[grid[row, number] for number in range(len(submitted))] for row in range(len(configurations))]

    def submit(self, prompt: Prompt, configurations: Sequence[DecodeKnobs]) -> int:
        """Queue a prompt to be decoded under each of the configurations; returns its ticket.

        Raises
        ------
        PromptError
            If it is empty, holds a mask or an unknown token, or would outgrow the model's positions.
        KnobError
            If there is no configuration, or one asks for what this engine cannot do; lists every fault.
        """
        submitted = self._check(prompt, configurations)
        self._queue.append(submitted)
        return submitted.ticket

    def step(self) -> list[Reply]:
        """Run one batch of states and hand out the replies that are finished by it.

        Whatever the model raises passes through; the states of that batch are lost then, so make a new engine.
        """
        states = self._collect()
        self._forward(states)
        self._advance([(state, state.waiting) for state in states])
        return self._release()

    @property
    def busy(self) -> bool:
        """Whether some prompt is not finished."""
        return bool(self._queue or self._prompts)

    def effective(self, knobs: DecodeKnobs) -> dict[str, Any]:
        """Every knob that is read, with the value in force here; equal maps decode equally."""
        return self._resolve(knobs).effective()

    def _resolve(self, knobs: DecodeKnobs) -> DecodeKnobs:
        if knobs.block_size:
            return knobs
        known = self._resolved.get(knobs)
        if known is None:
            known = self._resolved[knobs] = replace(knobs, block_size=self.model.info.block_size)
        return known

    def _check(self, prompt: Prompt, configurations: Sequence[DecodeKnobs]) -> _Submitted:
        """Refuse what cannot be decoded, and give the rest a ticket."""
        resolved = tuple(self._resolve(knobs) for knobs in configurations)
        check_request(prompt, resolved, self.model.info, has_text=self._detokenize is not None)
        self._tickets += 1
        return _Submitted(self._tickets - 1, prompt, resolved)

    def _collect(self) -> list[State]:
        """Admit prompts while fewer states than a batch wait; take a batch of them, oldest prompts first."""
        while self._queue and max(len(self._pending), len(self._prompts)) < self.batch_size:
            self._admit(self._queue.popleft())
        self._pending.sort(key=lambda state: state.book.ticket)
        states, self._pending = self._pending[: self.batch_size], self._pending[self.batch_size :]
        return states

    def _admit(self, submitted: _Submitted) -> None:
        """Put a walker of each configuration at the start of the prompt, one book per family."""
        families: dict[tuple[int, Sampling | None, bool], list[int]] = {}
        for number, knobs in enumerate(submitted.configurations):
            size = knobs.block_size or self.model.info.block_size
            families.setdefault((size, knobs.sampling, knobs.edits), []).append(number)
        tokens = np.asarray(submitted.prompt.tokens, np.int32)
        info = self.model.info
        self._prompts[submitted.ticket] = submitted.prompt
        self._books[submitted.ticket] = len(families)
        self.counts.peak_prompts = max(self.counts.peak_prompts, len(self._prompts))
        for (size, sampling, edits), numbers in families.items():
            walkers = self._walkers.get(size)
            if walkers is None:
                walkers = self._walkers[size] = Walkers(size, info.mask_id, self._detokenize, self._record)
            pool = self._pools.setdefault(size, PagePool())
            book = StateBook(submitted.ticket, tokens, size, info.mask_id, sampling, pool, len(numbers), edits)
            chosen = [submitted.configurations[number] for number in numbers]
            rows = walkers.add(submitted.prompt.tokens, chosen, info.end_ids)
            self._configuration |= {(size, row): number for number, row in zip(numbers, rows.tolist(), strict=True)}
            self._advance(self._stand([book] * len(rows), rows, walkers))

    def _stand(self, books: Sequence[StateBook], rows: Rows, walkers: Walkers) -> list[_Arrived]:
        """Place walkers on their states; returns those whose states are answered, the others wait there."""
        ready: dict[State, list[int]] = {}
        for book, row, tokens in zip(books, rows.tolist(), walkers.stances(rows), strict=True):
            state, new = book.find(tokens)
            if new:
                self.counts.forwards_run += 1
                if state.answer is None:
                    self._pending.append(state)
            if state.answer is None:
                state.waiting.append(row)
            else:
                ready.setdefault(state, []).append(row)
        return list(ready.items())

    def _forward(self, states: Sequence[State]) -> None:
        """Ask the model for the states, those of a block size together."""
        self._steps += 1
        batches: dict[int, list[Question]] = {}
        for state in states:
            question = state.book.ask(state, self._steps)
            if question is not None:
                batches.setdefault(state.book.block_size, []).append(question)
        for size, batch in batches.items():
            answers = self.model.forward(size, [question.query for question in batch])
            for question, answer in zip(batch, answers, strict=True):
                bad = bool(np.isnan(answer.confidence).any())
                question.hear(self._ask_by_block(size, question) if bad else answer)
            self.counts.model_calls += 1
        for state in states:
            state.book.recall(state)
        self.counts.peak_pages = max(self.counts.peak_pages, sum(pool.in_use for pool in self._pools.values()))

    def _ask_by_block(self, size: int, question: Question) -> Answer:
        """Ask again, one block after the other.

        A masked position that is not finite spoils those it is masked for as well, as 0 times NaN is NaN. So what a bad
        block did to those before it in its query, or to queries that read their pages, is undone.
        """
        answers = [self.model.forward(size, [piece])[0] for piece in question.pieces(size)]
        return Answer(*map(np.concatenate, zip(*answers, strict=True)))

    def _advance(self, ready: list[_Arrived]) -> None:
        """Let walkers on answered states step until each is finished or waits on a state without an answer."""
        while ready:
            by_size: dict[int, list[_Arrived]] = {}
            for state, rows in ready:
                size = state.book.block_size
                if state.problem:
                    for row in rows:
                        self._walkers[size].fail(row)
                        self._finished.append(_Standing(row, state))
                else:
                    by_size.setdefault(size, []).append((state, rows))
            ready = []
            for size, group in by_size.items():
                standing = np.array([row for _, rows in group for row in rows])
                answers = [cast(Answer, state.answer) for state, rows in group for _ in rows]
                done = self._walkers[size].advance(
                    standing,
                    np.concatenate([answer.tokens for answer in answers]),
                    np.concatenate([answer.confidence for answer in answers]),
                )
                states = [state for state, rows in group for _ in rows]
                self._finished += map(_Standing, standing[done].tolist(), compress(states, done))
                books = [state.book for state in compress(states, ~done)]
                ready += self._stand(books, standing[~done], self._walkers[size])

    def _release(self) -> list[Reply]:
        """Make the replies of finished walkers, and free the prompts that have no walker left."""
        replies = []
        finished, self._finished = self._finished, []
        for row, state in finished:
            book = state.book
            walkers = self._walkers[book.block_size]
            error = None
            if state.problem:
                error = f"prompt {self._prompts[book.ticket].id}: {state.problem}; decoding stopped"
            tokens, text, trace = walkers.said(row)
            number = self._configuration.pop((book.block_size, row))
            replies.append(Reply(book.ticket, number, tuple(tokens), text, trace, error))
            self.counts.forwards_charged += trace.forwards
            walkers.release(row)
            book.walkers -= 1
            if not book.walkers:
                book.close()
                self._books[book.ticket] -= 1
                if not self._books[book.ticket]:
                    del self._books[book.ticket], self._prompts[book.ticket]
        return replies
