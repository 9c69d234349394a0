"""One stage of training: steps, learning rate, averaging, checkpoints, log.

A stage is a function of its description and of the weights it starts from. The rows and the noise of a step are drawn
from (seed, step, row), so nothing random has to be remembered: a stage that was killed goes on from its last checkpoint
and ends with the same bits. With several processes each takes every other row of a batch, and the gradients are summed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from engine.train.batches import Batch, Noise, make_batch, order_by_length
from engine.train.muon import Muon
from engine.train.network import Network, Shape
from engine.train.problems import problems
from engine.train.vocabulary import Encoded, encode

CHUNK = 16  # batches that are ordered by length together
LOG_EVERY = 50
AVERAGE = 0.99  # share that the averaged weights keep in each step


@dataclass(frozen=True)
class Stage:
    """A stage's description.

    Parameters
    ----------
    name
        Names its checkpoint, its lines in the log, and its stream of problems.
    noise
        What rows are made.
    steps, batch
        Optimiser steps and rows of each.
    after
        Stage that it starts from; None for random weights.
    carry_on
        Start from that stage's last weights and optimiser, as if it had not ended, rather than from its averaged
        weights with a fresh optimiser.
    rate
        Peak learning rate of matrices; that of the embedding and the norms is a fifth.
    warm_up
        Steps over which the rate rises from 0.
    cool_down
        Share of the steps, the last ones, over which the rate falls to 0.
    targets
        Answers to learn: the generator's, or correct decodes of another stage.
    seed
        Of weights, problems and noise.
    """

    name: str
    noise: Noise
    steps: int
    batch: int = 24
    after: str | None = None
    carry_on: bool = False
    rate: float = 0.02
    warm_up: int = 30
    cool_down: float = 0.0
    targets: Literal["generator", "decodes"] = "generator"
    seed: int = 1

    def scale(self, step: int) -> float:
        """Share of the peak rate at a step."""
        rise = min(1.0, (step + 1) / self.warm_up) if self.warm_up else 1.0
        cooling = self.steps * self.cool_down
        return min(rise, (self.steps - step) / cooling) if cooling else rise


@dataclass(frozen=True)
class Worker:
    """One of the processes that train together."""

    rank: int = 0
    world: int = 1


def rows_of(stage: Stage, chunk: int, tokenizer: Tokenizer, decodes: Sequence[Encoded]) -> list[list[Encoded]]:
    """Return the `CHUNK` batches that a stage takes its steps on, from number ``chunk * CHUNK`` on."""
    count, random = CHUNK * stage.batch, np.random.default_rng([stage.seed, chunk])
    if stage.targets == "decodes":
        rows = [decodes[number] for number in random.choice(len(decodes), count, replace=len(decodes) < count)]
    else:
        rows = encode(tokenizer, list(islice(problems(f"{stage.seed}/{stage.name}/{chunk}", "train"), count)))
    return order_by_length(rows, stage.batch, random)


def run_stage(
    stage: Stage,
    shape: Shape,
    tokenizer: Tokenizer,
    out: Path,
    worker: Worker = Worker(),
    decodes: Sequence[Encoded] = (),
    save_every: int = 250,
    stop_at: int | None = None,
) -> None:
    """Train to the end of a stage, from wherever its checkpoint in `out` is.

    Parameters
    ----------
    stage, shape, tokenizer
        What to train.
    out
        Directory of checkpoints (``STAGE.pt``) and of ``log.jsonl``.
    worker
        This process; the process group must exist if there are several.
    decodes
        Encoded decodes, for a stage that learns them.
    save_every
        Steps between checkpoints.
    stop_at
        Leave before this step without a checkpoint, as if killed; for tests.
    """
    network = Network(shape, stage.seed)
    optimiser = Muon(network, stage.rate, stage.rate / 5, worker.rank, worker.world)
    average = {name: each.detach().clone() for name, each in network.named_parameters()}
    step = _restore(stage, network, optimiser, average, out)
    log = _Log(stage, out, step) if worker.rank == 0 else None
    for rows in _steps(stage, step, tokenizer, decodes):
        if step == stop_at:
            return
        mine = range(worker.rank, stage.batch, worker.world)
        randoms = (np.random.default_rng([stage.seed, step, number]) for number in mine)
        batch = make_batch([rows[number] for number in mine], stage.noise, shape, randoms)
        loss, right = _gradient(network, batch, worker)
        optimiser.step(stage.scale(step))
        step += 1
        _fold_in(average, network, step)
        if log:
            log.note(step, loss, right)
            if step % save_every == 0 or step == stage.steps:
                save(out / f"{stage.name}.pt", network, optimiser, average, step)


def _steps(stage: Stage, step: int, tokenizer: Tokenizer, decodes: Sequence[Encoded]) -> Iterator[list[Encoded]]:
    """Yield the batches of the steps from `step` on."""
    for chunk in range(step // CHUNK, -(-stage.steps // CHUNK)):
        batches = rows_of(stage, chunk, tokenizer, decodes)
        yield from batches[max(0, step - chunk * CHUNK) : stage.steps - chunk * CHUNK]


def _gradient(network: Network, batch: Batch, worker: Worker) -> tuple[float, float]:
    """Leave the gradient of the mean loss, over all processes, in the parameters; returns loss and share right."""
    logits = network(batch.clean, batch.noisy, batch.view, batch.asked)
    losses = functional.cross_entropy(logits, batch.targets, reduction="none") * batch.weights
    network.zero_grad()
    torch.autograd.backward(losses.sum())
    full = batch.weights == 1
    right = ((logits.argmax(dim=1) == batch.targets) & full).sum()
    parameters = list(network.parameters())
    sums = torch.stack([losses.detach().sum(), batch.weights.sum(), right.float(), full.sum().float()])
    flat = torch.cat([sums, *(_grad(each).flatten() for each in parameters)])
    if worker.world > 1:
        dist.all_reduce(flat)
    start = len(sums)
    for each in parameters:
        each.grad = flat[start : start + each.numel()].view_as(each) / flat[1]
        start += each.numel()
    return float(flat[0] / flat[1]), float(flat[2] / flat[3])


def _grad(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


@torch.no_grad()
def _fold_in(average: dict[str, Tensor], network: Network, step: int) -> None:
    """Move the averaged weights towards the present ones, faster at first."""
    keep = min(AVERAGE, step / (step + 10))
    for name, each in network.named_parameters():
        average[name].lerp_(each, 1 - keep)


def save(path: Path, network: Network, optimiser: Muon, average: dict[str, Tensor], step: int) -> None:
    """Write a checkpoint in one piece or not at all."""
    state = {"network": network.state_dict(), "optimiser": optimiser.state(), "average": average, "step": step}
    draft = path.with_suffix(".draft")
    torch.save(state, draft)
    os.replace(draft, path)


def load_state(out: Path, name: str) -> dict[str, Any] | None:
    """Return what a stage last saved, or None."""
    path = out / f"{name}.pt"
    state: dict[str, Any] | None = torch.load(path, weights_only=True) if path.exists() else None
    return state


def _restore(stage: Stage, network: Network, optimiser: Muon, average: dict[str, Tensor], out: Path) -> int:
    """Bring everything to where the stage stands; returns the number of steps taken."""
    state = load_state(out, stage.name)
    if state is None and stage.after is None:
        return 0
    start = state or load_state(out, str(stage.after))
    if start is None:
        raise FileNotFoundError(f"{out / f'{stage.after}.pt'}: stage {stage.name} starts from it")
    whole = state is not None or stage.carry_on
    network.load_state_dict(start["network"] if whole else start["average"])
    if whole:
        optimiser.restore(start["optimiser"])
    for name, each in (start["average"] if whole else dict(network.named_parameters())).items():
        average[name].copy_(each.detach())
    return int(start["step"]) if state is not None else 0


class _Log:
    """Lines of ``log.jsonl``: means over the steps since the line before."""

    def __init__(self, stage: Stage, out: Path, step: int) -> None:
        self.stage, self.path = stage, out / "log.jsonl"
        self.losses: list[float] = []
        self.rights: list[float] = []
        self.clock, self.work = time.monotonic(), time.process_time()
        if self.path.exists():  # lines that a killed run wrote behind its last checkpoint
            lines = map(json.loads, self.path.read_text(encoding="utf-8").splitlines())
            kept = [line for line in lines if line["stage"] != stage.name or line["step"] <= step]
            self.path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def note(self, step: int, loss: float, right: float) -> None:
        """Note a step; write a line now and then."""
        self.losses.append(loss)
        self.rights.append(right)
        if step % LOG_EVERY and step != self.stage.steps:
            return
        clock, work = time.monotonic(), time.process_time()
        line = {
            "stage": self.stage.name,
            "step": step,
            "loss": round(float(np.mean(self.losses)), 4),
            "token_accuracy": round(float(np.mean(self.rights)), 4),
            "rate": round(self.stage.rate * self.stage.scale(step - 1), 6),
            "seconds": round(clock - self.clock, 1),
            "cpu_seconds": round(work - self.work, 1),
        }
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.losses, self.rights, self.clock, self.work = [], [], clock, work
