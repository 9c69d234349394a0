"""Outcomes served by the bundled engine: the only bridge from the gate to ``redline_engine``.

Every configuration of a grid decodes the same prompts, and those with one checkpoint decode together, so that each
distinct decode state costs one forward. What is asked for, all at once or in parts as verdicts become final, the
schedule says (``schedule.py``). Generations go to the store as they finish; what is there already is not served again.
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import redline_engine
from pytest_redline.checkpoint_rules import checkpoint_directory
from pytest_redline.errors import LoadError, OutcomesError
from pytest_redline.grading import GRADERS, Grader
from pytest_redline.grid import LOAD_KNOBS, Configuration, EngineSource, Grid, plain_knobs
from pytest_redline.outcomes import Outcomes
from pytest_redline.paths import display
from pytest_redline.progress import Progress
from pytest_redline.prompts import Prompts
from pytest_redline.schedule import Schedule
from pytest_redline.sources.book import Book
from pytest_redline.sources.checkpoints import checkpoint_hashes, hash_files
from pytest_redline.sources.devices import device_used, processor_of
from pytest_redline.sources.tokenizing import Tokenizing
from pytest_redline.sources.twins import twin_groups
from pytest_redline.stats.multiplicity import HOLM, Family
from pytest_redline.store import Generation, Store, key_of

if TYPE_CHECKING:
    from redline_engine.config import DecodeKnobs, ModelSpec
    from redline_engine.engine import Engine
    from redline_engine.models.network import NetworkModel

_SECONDS_BETWEEN_WRITES = 0.5


class Served(NamedTuple):
    """What serving gave.

    ``forwards_run`` counts the forwards that it took to serve these generations in one run, None where they were served
    in several goes or with others; ``forwards_charged`` counts those that each would have needed alone. ``checkpoints``
    maps what the grid names to a hash of the files; ``weights`` says what share of each model's bytes is kept at which
    precision.
    """

    outcomes: Outcomes
    forwards_run: int | None
    forwards_charged: int
    checkpoints: dict[str, str]
    weights: list[tuple[ModelSpec, dict[str, float]]]
    versions: dict[str, str]
    warnings: list[str]


class _Family(NamedTuple):
    """Configurations that share a model, and the keys of their generations ``[configuration][prompt]``.

    ``spec`` names the checkpoint as the grid does, ``loaded`` by its directory and the device that is used.
    """

    spec: ModelSpec
    loaded: ModelSpec
    checkpoint_hash: str
    rows: list[int]
    knobs: list[DecodeKnobs]
    keys: list[list[str]]


def serve(
    grid: Grid,
    prompts: Prompts,
    store: Store,
    device: str | None,
    generate: bool,
    progress: Progress,
    before: Callable[[Mapping[str, str]], None] = lambda checkpoints: None,
    judged_by: Callable[[Mapping[str, str]], Family] = lambda checkpoints: HOLM,
    replicate: int = 0,
) -> Served:
    """Serve the prompts with every configuration of a grid.

    Parameters
    ----------
    device
        Replaces the device of the grid file.
    generate
        Serve what the store lacks; otherwise lacking anything is an error.
    before
        Called before anything is served, with the hashes of the checkpoints.
    judged_by
        Says, with the same hashes, how delta is shared: it decides when a verdict is final.
    replicate
        Which run of the configurations this is: each has its own place in the store.

    Raises
    ------
    OutcomesError
        torch or the checkpoint is missing or unreadable, a prompt or expected answer cannot be used, or a configuration
        failed on over 1 % of the prompts. What was generated until then is stored.
    """
    source = grid.source
    assert isinstance(source, EngineSource)
    assert grid.grade is not None
    assert grid.prompts is not None
    grader = GRADERS[grid.grade]
    _check_answers(prompts, grader)
    used = device_used(device or source.device)
    checkpoints: dict[str, str] = {}
    families = _families(grid, source, prompts, used, checkpoints, replicate)
    progress.start(grid.labels, grid.reference, len(prompts.ids), at_most=grid.spends_less)
    book = Book(grid, prompts, grader, progress)
    schedule = Schedule(grid, prompts.ids, prompts.groups, prompts.order, judged_by(checkpoints))
    stored = [store.read([key for keys in family.keys for key in keys]) for family in families]
    kitchen = _Kitchen(source.batch_size, store, progress)
    begun = False
    while (asked := schedule.next(book.correct, book.asked)).any() or not begun:
        book.asked |= asked
        for family, known in zip(families, stored, strict=True):
            book.take(family.rows, family.keys, known)
        if not generate and (lacking := int((book.asked & ~book.there).sum())):
            raise OutcomesError(
                f"{grid.name}: {lacking:,} of {int(book.asked.sum()):,} generations were never served; run its tests"
            )
        if not begun:
            before(checkpoints)
            begun = True
        for family in families:
            if missing := book.missing(family.rows):
                _generate(family, missing, prompts, book, kitchen)
                if not grid.spends_less:
                    kitchen.free(family)
    outcomes, warnings = book.outcomes()
    warnings += twin_groups(display(grid.prompts), prompts.groups)
    run = key_of(
        {
            "keys": sorted(
                keys[prompt]
                for family in families
                for row, keys in zip(family.rows, family.keys, strict=True)
                for prompt in np.flatnonzero(book.asked[row])
            )
        }
    )
    if 0 < kitchen.served == book.asked.sum():
        store.write_forwards(run, kitchen.forwards)
    forwards_run = store.forwards_run(run)
    rounding = sorted({family.spec.dtype for family in families} - ({"float32"} if used == "cpu" else set()))
    if forwards_run is None and rounding:
        warnings.append(
            f"served in several runs: in {' and '.join(rounding)} on {used} the prompts that share a batch can change "
            "answers by rounding; for those of one run, start with an empty store"
        )
    return Served(
        outcomes,
        forwards_run,
        int(outcomes.measures["forwards"].sum()),
        checkpoints,
        [(family.spec, _shares(family)) for family in families],
        {"torch": version("torch"), "device": used, "processor": processor_of(used)},
        warnings,
    )


def _check_answers(prompts: Prompts, grader: Grader) -> None:
    problems = [
        f"prompt {prompt}: expected answer {problem}; the grader {grader.name} cannot use it"
        for prompt, answer in zip(prompts.ids, prompts.answers, strict=True)
        if (problem := grader.expected_problem(answer))
    ]
    if problems:
        raise OutcomesError(problems)


def _families(
    grid: Grid,
    source: EngineSource,
    prompts: Prompts,
    device: str,
    checkpoints: dict[str, str],
    replicate: int = 0,
) -> list[_Family]:
    engine_code = hash_files(Path(redline_engine.__file__).parent, "**/*.py")
    tokenizing_code = hash_files(Path(__file__).parent, "tokenizing.py")
    checkpoints.update(checkpoint_hashes(grid, source))
    families: dict[ModelSpec, _Family] = {}
    for row, configuration in enumerate(grid.configurations):
        spec = source.model_of(configuration.knobs)
        knobs = source.decode_knobs(configuration)
        family = families.get(spec)
        if family is None:
            directory = checkpoint_directory(spec.checkpoint, grid.path.parent)
            loaded = replace(spec, checkpoint=str(directory), device=device)
            family = families[spec] = _Family(spec, loaded, checkpoints[spec.checkpoint], [], [], [])
        common = {
            "engine": engine_code,
            "tokenizing": tokenizing_code,
            "torch": version("torch"),
            "tokenizers": version("tokenizers"),
            "machine": platform.machine(),
            "device": device,
            "processor": processor_of(device),
            "checkpoint": checkpoints[spec.checkpoint],
            "dtype": spec.dtype,
            "weights": spec.weights,
            "template": spec.template,
            "stated": [spec.mask_id, spec.end_ids],
            "batch_size": source.batch_size,
            "cuda_graphs": source.cuda_graphs,
            "knobs": knobs.effective(),
            "replicate": replicate,
        }
        family.rows.append(row)
        family.knobs.append(knobs)
        family.keys.append([key_of({**common, "prompt": text}) for text in prompts.texts])
    return [_with_block_size(family) for family in families.values()]


def _with_block_size(family: _Family) -> _Family:
    """Load a checkpoint that does not say its block size with a stated one, if no configuration leaves it out."""
    sizes = [knobs.block_size for knobs in family.knobs]
    return family if None in sizes else family._replace(loaded=replace(family.loaded, block_size=sizes[0]))


class _Kitchen:
    """The models of a run, loaded when first needed, and what was served with them."""

    def __init__(self, batch_size: int, store: Store, progress: Progress) -> None:
        self.batch_size, self.store, self.progress = batch_size, store, progress
        self.served = self.forwards = 0
        self._loaded: dict[ModelSpec, tuple[Engine, dict[str, list[int]]]] = {}

    def engine(self, family: _Family, prompts: Prompts) -> tuple[Engine, dict[str, list[int]]]:
        """Engine of a family, and the tokens of all prompts by id.

        Raises
        ------
        OutcomesError
            The checkpoint or a prompt cannot be read, or the checkpoint's files are not those that were hashed.
        """
        from redline_engine.engine import Engine

        if family.spec not in self._loaded:
            tokenizing = Tokenizing(Path(family.loaded.checkpoint), family.spec.template)
            tokens = tokenizing.encode_all(dict(zip(prompts.ids, prompts.texts, strict=True)))
            model = _load(family, min(self.batch_size, len(tokens)), max(map(len, tokens.values())))
            self._loaded[family.spec] = Engine(model, self.batch_size, tokenizing.decode), tokens
            if hash_files(Path(family.loaded.checkpoint), "*") != family.checkpoint_hash:
                raise OutcomesError(
                    f"{display(Path(family.loaded.checkpoint))}: its files changed while they were loaded; run again"
                )
        return self._loaded[family.spec]

    def free(self, family: _Family) -> None:
        """Let go of a model that has nothing more to serve."""
        self._loaded.pop(family.spec, None)


def _generate(
    family: _Family,
    missing: Mapping[int, Sequence[int]],
    prompts: Prompts,
    book: Book,
    kitchen: _Kitchen,
) -> None:
    """Serve what is missing, storing finished generations about twice a second and at the end, however it ends."""
    engine, tokens = kitchen.engine(family, prompts)
    lacking = sorted({place for places in missing.values() for place in places})
    _check_echo(engine, {place: book.grid.configurations[family.rows[place]] for place in lacking}, family.knobs)
    before = engine.counts.forwards_run
    labels = [book.grid.labels[row] for row in family.rows]
    tickets = _submit(engine, tokens, family.knobs, labels, missing, prompts)
    waiting: list[tuple[str, Generation]] = []
    written_at = 0.0
    kitchen.progress.serving([labels[place] for place in lacking])
    try:
        while engine.busy:
            for reply in engine.step():
                prompt, places = tickets[reply.ticket]
                place = places[reply.configuration]
                generation = Generation(
                    reply.text or "", reply.trace.reply_tokens, reply.trace.forwards, reply.trace.finish_reason
                )
                waiting.append((family.keys[place][prompt], generation))
                book.enter(family.rows[place], prompt, generation, stored=False)
                kitchen.served += 1
            kitchen.progress.forwards(kitchen.forwards + engine.counts.forwards_run - before)
            if time.monotonic() - written_at > _SECONDS_BETWEEN_WRITES:
                kitchen.store.write(waiting)
                waiting.clear()
                written_at = time.monotonic()
    finally:
        kitchen.store.write(waiting)
    kitchen.forwards += engine.counts.forwards_run - before


def _shares(family: _Family) -> dict[str, float]:
    from redline_engine.models.checkpoint import CheckpointError, weight_shares

    try:
        return weight_shares(family.loaded)
    except CheckpointError as error:
        raise OutcomesError(str(error).splitlines()) from None


def _load(family: _Family, batch_size: int, longest: int) -> NetworkModel:
    """Load a model that is to decode so many prompts at a time, of at most `longest` tokens."""
    from redline_engine.models.checkpoint import CheckpointError, Load, describe, load

    try:
        own = describe(family.loaded).facts.info.block_size
        use = Load(
            batch_size,
            longest,
            max(knobs.max_new_tokens for knobs in family.knobs),
            max(knobs.block_size or own for knobs in family.knobs),
            max(knobs.buffer_size for knobs in family.knobs),
        )
        return load(family.loaded, use)
    except CheckpointError as error:
        raise LoadError(str(error).splitlines()) from None
    except RuntimeError as error:  # PyTorch's own, of a device it does not know or that has no room
        raise LoadError(f"{family.spec.checkpoint} on {family.loaded.device}: {str(error).splitlines()[0]}") from None


def _labelled(text: str, labels: Sequence[str]) -> str:
    """Name configurations by label in a text of the engine, which knows only their numbers."""
    return re.sub(r"configurations\[(\d+)\]", lambda found: labels[int(found[1])], text)


def _check_echo(engine: Engine, configurations: Mapping[int, Configuration], knobs: Sequence[DecodeKnobs]) -> None:
    """Refuse configurations that the engine would not decode as they are stated; it says what it reads."""
    problems = []
    for place, configuration in configurations.items():
        stated = {name: value for name, value in configuration.knobs.items() if name not in LOAD_KNOBS}
        read = plain_knobs(engine.effective(knobs[place]))
        problems += [
            f"{configuration.label}: {name} is stated as {stated.get(name)!r}, and the engine reads {read.get(name)!r}"
            for name in sorted(stated.keys() | read.keys())
            if stated.get(name) != read.get(name)
        ]
    if problems:
        raise OutcomesError(problems)


def _submit(
    engine: Engine,
    tokens: Mapping[str, list[int]],
    knobs: Sequence[DecodeKnobs],
    labels: Sequence[str],
    missing: Mapping[int, Sequence[int]],
    prompts: Prompts,
) -> dict[int, tuple[int, Sequence[int]]]:
    """Queue every prompt with the configurations it lacks; ticket to prompt and configurations."""
    from redline_engine.config import KnobError
    from redline_engine.request import Prompt, PromptError

    tickets: dict[int, tuple[int, Sequence[int]]] = {}
    problems: list[str] = []
    for prompt, places in missing.items():
        name = prompts.ids[prompt]
        try:
            ticket = engine.submit(Prompt(name, tokens[name]), [knobs[place] for place in places])
        except (PromptError, KnobError) as error:
            problems += _labelled(str(error), [labels[place] for place in places]).splitlines()
        else:
            tickets[ticket] = (prompt, places)
    if problems:
        raise OutcomesError(list(dict.fromkeys(problems)))
    return tickets
