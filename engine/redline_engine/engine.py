"""The engine: prompts and configurations in, replies out. Start reading here.

A prompt is submitted with all configurations that shall decode it. Each becomes a walker (`walker.py`); walkers that
stand in the same decode state (`states.py`) share one forward. Those of a block size form a lane (`lane.py`).
`Engine.step` is the whole loop::

    admit     put walkers at the start of further prompts while there is room
    forward   run states that some walker stands in and nobody has run, in one batch for each block size
    advance   every walker in an answered state judges the answer and takes a step (`accept.py`, `walker.py`) into its
              next state; if that one was answered before, it goes on, for free
    release   hand out finished replies; the states and pages of a prompt in a family go with its last walker there

The engine knows token ids only. Text, if wanted, comes from a `detokenize` function.

A reply does not depend on the company its prompt is decoded in, as far as the model's answers do not: exactly for a
model whose answers are exact; in float32 on a CPU up to decisions nearer to a threshold than rounding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import is_
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np

from redline_engine.config import DecodeKnobs, KnobError, Sampling
from redline_engine.lane import Family, Lane
from redline_engine.models.base import Model
from redline_engine.request import Prompt, Reply, check_request
from redline_engine.stops import Detokenize
from redline_engine.table import Rows


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


MOST_PLANS = 64  # that are remembered
STARTS = 4  # states that the configurations of a prompt are assumed to begin in, before it is known

_ENGINES: WeakKeyDictionary[Model, ref[Engine]] = WeakKeyDictionary()  # that each model's pages are numbered by


class _Plan(NamedTuple):
    """Configurations with a block size each, and their families."""

    configurations: tuple[DecodeKnobs, ...]
    families: tuple[Family, ...]


class _Submitted(NamedTuple):
    ticket: int
    prompt: Prompt
    families: tuple[Family, ...]


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
        self._planned: dict[tuple[DecodeKnobs, ...], _Plan] = {}
        self._last: tuple[tuple[DecodeKnobs, ...], _Plan] = (), _Plan((), ())  # of the prompt before
        self._queue: deque[_Submitted] = deque()
        self._prompts: dict[int, Prompt] = {}  # by ticket, while a walker lives
        self._tickets = 0
        self._lanes: dict[int, Lane] = {}  # by block size
        self._books: dict[int, int] = {}  # ticket -> books still open

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

        Raises
        ------
        RuntimeError
            If another engine has begun to decode with the same model since this one did: pages are numbered by the
            engine, so it has overwritten this one's.
        """
        owner = _ENGINES.get(self.model)
        if self._prompts and (owner is None or owner() is not self):
            raise RuntimeError("another engine decodes with this model now; give each a model of its own")
        _ENGINES[self.model] = ref(self)
        self._admit()
        self._forward()
        for lane in self._lanes.values():
            lane.advance()
        return self._release()

    @property
    def busy(self) -> bool:
        """Whether some prompt is not finished."""
        return bool(self._queue or self._prompts)

    @property
    def pages_in_use(self) -> int:
        """Pages that are kept for the prompts alive."""
        return sum(lane.states.pages.in_use for lane in self._lanes.values())

    def effective(self, knobs: DecodeKnobs) -> dict[str, Any]:
        """Every knob that is read, with the value in force here; equal maps decode equally."""
        return self._resolve(knobs).effective()

    def _resolve(self, knobs: DecodeKnobs) -> DecodeKnobs:
        return knobs if knobs.block_size else replace(knobs, block_size=self.model.info.block_size)

    def _plan(self, configurations: Sequence[DecodeKnobs]) -> _Plan:
        """Block sizes and families of configurations; hashing many takes long, so the last ones are looked at first."""
        last, plan = self._last
        if len(configurations) == len(last) and all(map(is_, configurations, last)):
            return plan
        asked = tuple(configurations)
        if len(self._planned) >= MOST_PLANS:
            self._planned.clear()
        if asked not in self._planned:
            resolved = tuple(map(self._resolve, asked))
            families: dict[tuple[int, Sampling | None, bool], list[int]] = {}
            for number, knobs in enumerate(resolved):
                size = knobs.block_size or self.model.info.block_size
                families.setdefault((size, knobs.sampling, knobs.edits), []).append(number)
            self._planned[asked] = _Plan(
                resolved,
                tuple(
                    Family(*key, tuple(numbers), tuple(resolved[number] for number in numbers))
                    for key, numbers in families.items()
                ),
            )
        self._last = asked, self._planned[asked]
        return self._planned[asked]

    def _check(self, prompt: Prompt, configurations: Sequence[DecodeKnobs]) -> _Submitted:
        """Refuse what cannot be decoded, and give the rest a ticket."""
        plan = self._plan(configurations)
        check_request(prompt, plan.configurations, self.model.info, has_text=self._detokenize is not None)
        self._tickets += 1
        return _Submitted(self._tickets - 1, prompt, plan.families)

    def _admit(self) -> None:
        """Admit prompts while fewer states than a batch wait."""
        while self._queue:
            room = self.batch_size - max(self._pending().size, len(self._prompts))
            if room <= 0:
                break
            rows: dict[int, list[Rows]] = {}
            while self._queue and room > 0:
                submitted = self._queue.popleft()
                room -= min(STARTS, sum(len(family.numbers) for family in submitted.families))
                for size, added in self._add(submitted):
                    rows.setdefault(size, []).append(added)
            for size, started in rows.items():
                self._lanes[size].begin(np.concatenate(started))
            self.counts.peak_prompts = max(self.counts.peak_prompts, len(self._prompts))

    def _add(self, submitted: _Submitted) -> Iterator[tuple[int, Rows]]:
        """Make the walkers of a prompt; yields block size and rows of each family."""
        ticket, prompt, families = submitted
        self._prompts[ticket], self._books[ticket] = prompt, len(families)
        for family in families:
            size = family.block_size
            if size not in self._lanes:
                self._lanes[size] = Lane(size, self.model.info, self._detokenize, self._record)
            yield size, self._lanes[size].add(ticket, prompt.tokens, family)

    def _pending(self) -> Rows:
        """Tickets of the states that nobody has asked about, lane after lane."""
        return np.concatenate([np.zeros(0, np.int64), *(lane.pending() for lane in self._lanes.values())])

    def _forward(self) -> None:
        """Run a batch of pending states, oldest prompts first."""
        tickets, start = self._pending(), 0
        oldest = np.argsort(tickets, kind="stable")[: self.batch_size]
        for lane in self._lanes.values():
            end = start + lane.pending().size
            self.counts.model_calls += lane.forward(self.model, oldest[(start <= oldest) & (oldest < end)] - start)
            start = end
        self.counts.peak_pages = max(self.counts.peak_pages, self.pages_in_use)

    def _release(self) -> list[Reply]:
        """Make the replies of finished walkers, and forget the prompts that have none left."""
        replies = []
        for lane in self._lanes.values():
            finished, closed = lane.release()
            for ticket, number, (tokens, text, trace), problem in finished:
                error = f"prompt {self._prompts[ticket].id}: {problem}; decoding stopped" if problem else None
                replies.append(Reply(ticket, number, tuple(tokens), text, trace, error))
                self.counts.forwards_charged += trace.forwards
            for ticket in closed:
                self._books[ticket] -= 1
                if not self._books[ticket]:
                    del self._books[ticket], self._prompts[ticket]
        self.counts.forwards_run = sum(lane.forwards_run for lane in self._lanes.values())
        return replies
