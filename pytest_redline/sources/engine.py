"""Outcomes served by the bundled engine: the only bridge from the gate to ``redline_engine``.

Every configuration of a grid decodes the same prompts, and those with one checkpoint decode together, so that each
distinct decode state costs one forward. Generations go to the store as they finish; what is there already is not
served again.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import redline_engine
from pytest_redline.errors import OutcomesError
from pytest_redline.grading import GRADERS, Grader
from pytest_redline.grid import EngineSource, Grid
from pytest_redline.outcomes import Outcomes
from pytest_redline.paths import display
from pytest_redline.progress import Progress
from pytest_redline.prompts import Prompts
from pytest_redline.sources.checkpoints import checkpoint_directory, checkpoint_hashes, hash_files
from pytest_redline.sources.tokenizing import Tokenizing
from pytest_redline.sources.values import output_hash
from pytest_redline.store import Generation, Store, key_of

if TYPE_CHECKING:
    from redline_engine.config import DecodeKnobs, ModelSpec
    from redline_engine.engine import Engine
    from redline_engine.models.sdar import SdarModel

_SECONDS_BETWEEN_WRITES = 0.5
_MOST_LOST = 0.01  # share of prompts that a configuration may fail on before it counts as not served
_ERROR = "error"
_ENDED = ("stop", "stop_string")  # finish reasons of a reply that ended by itself, before any limit


class Served(NamedTuple):
    """What serving gave.

    ``forwards_run`` counts the forwards that it took to serve these generations together, None where they were served
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

    Raises
    ------
    OutcomesError
        torch or the checkpoint is missing or unreadable, a prompt or expected answer cannot be used, or a configuration
        failed on over 1 % of the prompts. What was generated until then is stored.
    """
    source = grid.source
    assert isinstance(source, EngineSource)
    assert grid.grade is not None
    grader = GRADERS[grid.grade]
    _check_answers(prompts, grader)
    used = _device(device or source.device)
    checkpoints: dict[str, str] = {}
    families = _families(grid, source, prompts, used, checkpoints)
    run = key_of({"keys": sorted(key for family in families for keys in family.keys for key in keys)})
    progress.start(grid.labels, grid.reference, len(prompts.ids))
    book = _Book(grid, prompts, grader, progress)
    for family in families:
        book.take(family, store.read([key for keys in family.keys for key in keys]))
    lacking = sum(len(places) for family in families for places in book.missing(family).values())
    if lacking and not generate:
        raise OutcomesError(
            f"{grid.name}: {lacking:,} of {grid.m * len(prompts.ids):,} generations were never served; run its tests"
        )
    before(checkpoints)
    forwards = 0
    for family in families:
        if missing := book.missing(family):
            forwards += _generate(family, missing, prompts, source.batch_size, book, store, progress)
    if lacking == grid.m * len(prompts.ids):
        store.write_forwards(run, forwards)
    outcomes, warnings = book.outcomes()
    return Served(
        outcomes,
        store.forwards_run(run),
        int(outcomes.measures["forwards"].sum()),
        checkpoints,
        [(family.spec, _shares(family)) for family in families],
        {"torch": version("torch"), "device": used, "processor": _processor(used)},
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


def _device(asked: str) -> str:
    """Name of the device that is really used."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads slow everything on a machine with other work
    try:
        import torch
    except ModuleNotFoundError:
        raise OutcomesError(
            "source engine: torch is not installed; install it with pip install 'pytest-redline[engine]'"
        ) from None
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked.startswith("cuda") and not torch.cuda.is_available():
        raise OutcomesError(f"device {asked!r}: this machine has no CUDA device; use cpu or auto")
    return asked


def _processor(device: str) -> str:
    """Kind of the processor: another one may round otherwise."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else torch.backends.cpu.get_cpu_capability()


def _families(
    grid: Grid, source: EngineSource, prompts: Prompts, device: str, checkpoints: dict[str, str]
) -> list[_Family]:
    engine_code = hash_files(Path(redline_engine.__file__).parent, "**/*.py")
    checkpoints.update(checkpoint_hashes(grid, source))
    families: dict[ModelSpec, _Family] = {}
    for row, configuration in enumerate(grid.configurations):
        spec = source.model_of(configuration.knobs)
        knobs = source.decode_knobs(configuration)
        family = families.get(spec)
        if family is None:
            directory = checkpoint_directory(spec.checkpoint, grid.path.parent)
            loaded = replace(spec, checkpoint=str(directory), device=device, block_size=knobs.block_size)
            family = families[spec] = _Family(spec, loaded, checkpoints[spec.checkpoint], [], [], [])
        common = {
            "engine": engine_code,
            "torch": version("torch"),
            "tokenizers": version("tokenizers"),
            "machine": platform.machine(),
            "device": device,
            "processor": _processor(device),
            "checkpoint": checkpoints[spec.checkpoint],
            "dtype": spec.dtype,
            "weights": spec.weights,
            "template": spec.template,
            "stated": [spec.mask_id, spec.end_ids],
            "batch_size": source.batch_size,
            "knobs": knobs.effective(),
            "replicate": 0,
        }
        family.rows.append(row)
        family.knobs.append(knobs)
        family.keys.append([key_of({**common, "prompt": text}) for text in prompts.texts])
    return list(families.values())


class _Book:
    """Generations and verdicts as they become known."""

    def __init__(self, grid: Grid, prompts: Prompts, grader: Grader, progress: Progress) -> None:
        self.grid, self.prompts, self.grader, self.progress = grid, prompts, grader, progress
        self.found: list[list[Generation | None]] = [[None] * len(prompts.ids) for _ in grid.configurations]
        self.correct = np.zeros((grid.m, len(prompts.ids)), dtype=np.bool_)
        self.verdicts: dict[tuple[str, int], bool] = {}  # equal texts have equal verdicts

    def take(self, family: _Family, known: Mapping[str, Generation]) -> None:
        """Enter what the store holds."""
        for row, keys in zip(family.rows, family.keys, strict=True):
            for prompt, key in enumerate(keys):
                if key in known:
                    self.enter(row, prompt, known[key])

    def enter(self, row: int, prompt: int, generation: Generation) -> None:
        """Enter and grade one generation."""
        self.found[row][prompt] = generation
        reference = self.grid.configurations[row].label == self.grid.reference
        if generation.finish_reason == _ERROR:
            right = reference  # a lost answer counts against the candidate
        else:
            asked = (generation.text, prompt)
            if asked not in self.verdicts:
                self.verdicts[asked] = self.grader.right(generation.text, self.prompts.answers[prompt])
            right = self.verdicts[asked]
        self.correct[row, prompt] = right
        self.progress.generation(self.grid.configurations[row].label, prompt, right, generation)

    def missing(self, family: _Family) -> dict[int, list[int]]:
        """Prompts that lack a generation, in serving order, with the family's configurations that they lack."""
        lacking = {
            prompt: [place for place, row in enumerate(family.rows) if self.found[row][prompt] is None]
            for prompt in self.prompts.order
        }
        return {prompt: places for prompt, places in lacking.items() if places}

    def outcomes(self) -> tuple[Outcomes, list[str]]:
        """Outcomes of the whole grid, and what must be said about them."""
        n = len(self.prompts.ids)
        problems, warnings = [], []
        complete: list[list[Generation]] = []
        for configuration, row in zip(self.grid.configurations, self.found, strict=True):
            done = [each for each in row if each is not None]
            assert len(done) == n, "every prompt was served"
            lost = [self.prompts.ids[place] for place, each in enumerate(done) if each.finish_reason == _ERROR]
            if len(lost) > _MOST_LOST * n:
                problems.append(
                    f"{configuration.label}: no usable answer on {len(lost):,} of {n:,} prompts (first {lost[0]}), "
                    f"over {100 * _MOST_LOST:g} %; the model's answers there are NaN or infinite"
                )
            elif lost:
                counted = "right" if configuration.label == self.grid.reference else "wrong"
                warnings.append(f"{configuration.label}: no usable answer on {', '.join(lost)}, counted as {counted}")
            complete.append(done)
        if problems:
            raise OutcomesError(problems)
        measures = {
            name: np.array([[getattr(each, name) for each in row] for row in complete], dtype=np.float64)
            for name in ("tokens", "forwards")
        }
        if "finished" in self.grid.measures:
            measures["finished"] = np.array(
                [
                    [self._finished(each, configuration.label) for each in row]
                    for configuration, row in zip(self.grid.configurations, complete, strict=True)
                ]
            )
        outputs = np.array([[output_hash(each.text) for each in row] for row in complete], dtype=np.uint64)
        return (
            Outcomes(
                self.grid.labels,
                self.prompts.ids,
                self.correct,
                measures,
                self.prompts.groups,
                outputs,
                self.prompts.clusters,
            ),
            warnings,
        )

    def _finished(self, generation: Generation, label: str) -> float:
        """Did a reply end by itself: 1 or 0; as with verdicts, a lost answer counts against the candidate."""
        if generation.finish_reason == _ERROR:
            return float(label == self.grid.reference)
        return float(generation.finish_reason in _ENDED)


def _generate(
    family: _Family,
    missing: Mapping[int, Sequence[int]],
    prompts: Prompts,
    batch_size: int,
    book: _Book,
    store: Store,
    progress: Progress,
) -> int:
    """Serve what is missing, storing finished generations about twice a second and at the end, however it ends.

    Returns
    -------
    The number of forwards that were run.
    """
    from redline_engine.engine import Engine

    tokenizing = Tokenizing(Path(family.loaded.checkpoint), family.spec.template)
    tokens = tokenizing.encode_all({prompts.ids[prompt]: prompts.texts[prompt] for prompt in missing})
    engine = Engine(
        _load(family, min(batch_size, len(tokens)), max(map(len, tokens.values()))), batch_size, tokenizing.decode
    )
    if hash_files(Path(family.loaded.checkpoint), "*") != family.checkpoint_hash:
        raise OutcomesError(
            f"{display(Path(family.loaded.checkpoint))}: its files changed while they were loaded; run again"
        )
    tickets = _submit(engine, tokens, family, missing, prompts)
    waiting: list[tuple[str, Generation]] = []
    written_at = 0.0
    try:
        while engine.busy:
            for reply in engine.step():
                prompt, places = tickets[reply.ticket]
                place = places[reply.configuration]
                generation = Generation(
                    reply.text or "", reply.trace.reply_tokens, reply.trace.forwards, reply.trace.finish_reason
                )
                waiting.append((family.keys[place][prompt], generation))
                book.enter(family.rows[place], prompt, generation)
            progress.forwards(engine.counts.forwards_run)
            if time.monotonic() - written_at > _SECONDS_BETWEEN_WRITES:
                store.write(waiting)
                waiting.clear()
                written_at = time.monotonic()
    finally:
        store.write(waiting)
    return engine.counts.forwards_run


def _shares(family: _Family) -> dict[str, float]:
    from redline_engine.models.checkpoint import CheckpointError, weight_shares

    try:
        return weight_shares(family.loaded)
    except CheckpointError as error:
        raise OutcomesError(str(error).splitlines()) from None


def _load(family: _Family, batch_size: int, longest: int) -> SdarModel:
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
        raise OutcomesError(str(error).splitlines()) from None
    except RuntimeError as error:  # PyTorch's own, of a device it does not know or that has no room
        raise OutcomesError(
            f"{family.spec.checkpoint} on {family.loaded.device}: {str(error).splitlines()[0]}"
        ) from None


def _submit(
    engine: Engine,
    tokens: Mapping[str, list[int]],
    family: _Family,
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
            ticket = engine.submit(Prompt(name, tokens[name]), [family.knobs[place] for place in places])
        except (PromptError, KnobError) as error:
            problems += str(error).splitlines()
        else:
            tickets[ticket] = (prompt, places)
    if problems:
        raise OutcomesError(list(dict.fromkeys(problems)))
    return tickets
