"""How serving a grid together pays: python -m engine.bench.sharing

The same prompts are decoded with grids of growing size, all configurations of a grid together, each grid in a process
of its own. Printed as a table, and drawn on request:

- *charged*: forwards that the configurations would need alone, each as its own request (`Trace.forwards`);
- *run*: forwards that the engine ran, and *asked*, the queries that it put to the model for them;
- *distinct*: states that differ, the floor of what can be run, counted apart from the engine: every configuration's
  trace is replayed and what its forwards saw is hashed;
- wall and processor time of decoding, and the most memory that the process had.

The first grid is the reference alone; that of 8 is `fixtures/grids/arithmetic.redline.yaml`, that of 50
`fixtures/studies/arithmetic_50.redline.yaml`, smaller ones are parts of these, and the one of 200 a finer product.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import product
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from pytest_redline.report.plot import Series, line_plot
from redline_engine.config import DecodeKnobs, ModelSpec
from redline_engine.engine import Engine
from redline_engine.models.base import Answer, Batch, Model, ModelInfo
from redline_engine.models.checkpoint import load
from redline_engine.request import Prompt
from redline_engine.trace import Trace

ROOT = Path(__file__).parents[2]
NEW_TOKENS = 96
SIZES = (1, 2, 4, 8, 16, 50, 200)
ADDS = (0.10, 0.50, 0.75)


def knobs(accept: float, buffer: int = 1, semi: float = 0.9, add: float = 0.1) -> DecodeKnobs:
    """One configuration."""
    return DecodeKnobs(
        block_size=8,
        accept_threshold=accept,
        buffer_size=buffer,
        semi_complete_threshold=semi,
        add_block_threshold=add,
        max_new_tokens=NEW_TOKENS,
    )


def make_grid(m: int) -> list[DecodeKnobs]:
    """Make the grid of `m` configurations, the reference first.

    Raises
    ------
    ValueError
        There is none of this size.
    """
    conservative = [knobs(0.95), knobs(0.90)]
    eight = [
        *conservative,
        knobs(0.80),
        knobs(0.95, 2, add=0.75),
        knobs(0.95, 2),
        knobs(0.98, 4, add=0.50),
        knobs(0.90, 4),
        knobs(0.80, 4),
    ]
    fifty = [*conservative, *(knobs(*each) for each in product((0.80, 0.90, 0.95, 0.98), (2, 4), (0.5, 0.9), ADDS))]
    finer = [0.70, 0.75, 0.80, 0.82, 0.85, 0.88, 0.90, 0.92, 0.95, 0.97, 0.98]
    most = [*conservative, *(knobs(*each) for each in product(finer, (2, 4), (0.5, 0.7, 0.9), ADDS))]
    if 1 <= m <= len(eight):
        return eight[:m]
    for whole in (fifty, most):
        if m <= len(whole):
            return [whole[0], *(whole[1 + number * (len(whole) - 1) // (m - 1)] for number in range(m - 1))]
    raise ValueError(f"{m} configurations: a grid has 1 to {len(most)}")


@dataclass(frozen=True)
class Cost:
    """What decoding a grid together took; seconds and megabytes."""

    charged: int
    run: int
    asked: int
    wall: float
    processor: float
    memory: float


class Asked:
    """A model that counts its queries."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.info: ModelInfo = model.info
        self.queries = 0

    def forward(self, batch: Batch) -> Answer:
        """Answer as the model does."""
        self.queries += len(batch.run)
        return self._model.forward(batch)


def read_prompts(checkpoint: Path, count: int) -> list[Prompt]:
    """`count` of the bundled prompts, evenly spread over the file."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    lines = (ROOT / "fixtures" / "prompts" / "arithmetic.jsonl").read_text(encoding="utf-8").splitlines()
    chosen = [json.loads(line) for line in lines[:: len(lines) // count][:count]]
    texts = tokenizer.encode_batch([each["prompt"] for each in chosen])
    return [Prompt(each["id"], text.ids) for each, text in zip(chosen, texts, strict=True)]


def decode(model: Model, prompts: Sequence[Prompt], grid: Sequence[DecodeKnobs], batch_size: int) -> Cost:
    """Decode and measure; the memory is the process's peak so far."""
    asked = Asked(model)
    engine = Engine(asked, batch_size)
    wall, processor = time.perf_counter(), time.process_time()
    for prompt in prompts:
        engine.submit(prompt, grid)
    while engine.busy:
        engine.step()
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    counts = engine.counts
    return Cost(counts.forwards_charged, counts.forwards_run, asked.queries, wall, processor, peak / 1e6)


def count_distinct(model: Model, prompts: Sequence[Prompt], grid: Sequence[DecodeKnobs], batch_size: int) -> int:
    """Count the distinct states of a grid by what the forwards of each reply saw, whoever ran them."""
    engine = Engine(model, batch_size, record=True)
    tickets = {engine.submit(prompt, grid): prompt for prompt in prompts}
    seen: set[bytes] = set()
    while engine.busy:
        for reply in engine.step():
            size = grid[reply.configuration].block_size or model.info.block_size
            own = reply.ticket.to_bytes(8, "little") + size.to_bytes(8, "little")
            seen.update(own + state for state in replay(tickets[reply.ticket], reply.trace, size, model.info.mask_id))
    return len(seen)


def replay(prompt: Prompt, trace: Trace, block_size: int, mask_id: int) -> Iterator[bytes]:
    """Hash the tokens that each forward of a recorded trace ran on or had cached."""
    ends = [record.cached * block_size + record.rows_run for record in trace.records]
    tokens = np.full(max(ends), mask_id, np.int32)
    tokens[: len(prompt.tokens)] = prompt.tokens
    for record, end in zip(trace.records, ends, strict=True):
        yield blake2b(tokens[:end].tobytes(), digest_size=16).digest()
        tokens[list(record.accepted)] = list(record.accepted.values())


def table(sizes: Sequence[int], costs: Sequence[Cost], floors: Sequence[int]) -> str:
    """Markdown table of the grids; the first is the one that times are compared with."""
    head = [
        "m",
        "charged",
        "run",
        "distinct",
        "run / distinct",
        "run / charged",
        "asked",
        "s",
        "CPU s",
        "x first",
        "MB",
    ]
    rows = [
        [
            str(m),
            f"{cost.charged:,}",
            f"{cost.run:,}",
            f"{floor:,}",
            f"{cost.run / floor:.3f}",
            f"{cost.run / cost.charged:.1%}",
            f"{cost.asked:,}",
            f"{cost.wall:.1f}",
            f"{cost.processor:.1f}",
            f"{cost.wall / costs[0].wall:.1f}",
            f"{cost.memory:.0f}",
        ]
        for m, cost, floor in zip(sizes, costs, floors, strict=True)
    ]
    lines = [head, ["---:"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw(folder: Path, sizes: Sequence[int], found: dict[str, tuple[list[Cost], list[int]]]) -> None:
    """Write the two figures."""
    shares = [
        Series(f"{name}: {what}", [(m, 100 * part / cost.charged) for m, cost, part in zip(sizes, costs, parts)])  # noqa: B905
        for name, (costs, floors) in found.items()
        for what, parts in (("run", [cost.run for cost in costs]), ("distinct states", floors))
    ]
    times = [
        Series(name, [(m, cost.wall / costs[0].wall) for m, cost in zip(sizes, costs, strict=True)])
        for name, (costs, _) in found.items()
    ]
    for file, series, title, label in [
        ("sharing-forwards.svg", shares, "Forwards run, of those charged", "%"),
        ("sharing-time.svg", times, "Time of a grid, in times that of its reference", "times"),
    ]:
        text = line_plot(series, title=title, x_label="configurations in the grid", y_label=label, log_x=True)
        (folder / file).write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure each grid in a process of its own, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configurations", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--checkpoints", nargs="+", default=["arithmetic"], help="names of bundled checkpoints")
    parser.add_argument("--prompts", type=int, default=512)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="the fastest one is shown")
    parser.add_argument("--figures", type=Path, help="folder to draw into")
    parser.add_argument("--part", choices=["cost", "distinct"], help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.figures:
        _make_folder(parser, asked.figures)  # before anything is measured
    if asked.part:
        print(json.dumps(_measure(asked)))
        return
    print(f"threads {asked.threads}, torch {torch.__version__}, {asked.prompts} prompts, batch {asked.batch}")
    found = {}
    for name in asked.checkpoints:
        runs = [[_in_child(asked, name, m, "cost") for m in asked.configurations] for _ in range(asked.repeats)]
        costs = [min((Cost(**run[place]) for run in runs), key=lambda cost: cost.wall) for place in range(len(runs[0]))]
        floors = [int(_in_child(asked, name, m, "distinct")["distinct"]) for m in asked.configurations]
        found[name] = costs, floors
        print(f"\n{name}\n\n{table(asked.configurations, costs, floors)}", flush=True)
    if asked.figures:
        draw(asked.figures, asked.configurations, found)


def _make_folder(parser: argparse.ArgumentParser, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--figures {folder}: cannot be made ({error.strerror}); name a folder")


def _measure(asked: argparse.Namespace) -> dict[str, float]:
    torch.set_num_threads(asked.threads)
    (name,), (m,) = asked.checkpoints, asked.configurations
    directory = ROOT / "fixtures" / "checkpoints" / name
    model = load(ModelSpec(str(directory), device="cpu"))
    prompts, grid = read_prompts(directory, asked.prompts), make_grid(m)
    if asked.part == "distinct":
        return {"distinct": count_distinct(model, prompts, grid, asked.batch)}
    decode(model, prompts[:8], grid[:1], 8)  # what is set up once is not timed
    return asdict(decode(model, prompts, grid, asked.batch))


def _in_child(asked: argparse.Namespace, name: str, m: int, part: str) -> dict[str, float]:
    options = {"checkpoints": name, "configurations": m, "part": part}
    options |= {key: getattr(asked, key) for key in ("prompts", "batch", "threads")}
    command = [sys.executable, "-m", "engine.bench.sharing", *(f"--{key}={value}" for key, value in options.items())]
    own = {"OMP_WAIT_POLICY": "passive", **os.environ}  # as the gate decodes
    printed = subprocess.run(command, cwd=ROOT, env=own, check=True, stdout=subprocess.PIPE, text=True).stdout
    made: dict[str, float] = json.loads(printed)
    return made


if __name__ == "__main__":
    main()
