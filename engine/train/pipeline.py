"""Make the bundled checkpoints, from nothing to files; run again after an interruption to go on.

tokenizer  learnt from the generator's text
stages     `schedule.py`, each one checkpointed (`stage.py`); before the stage that learns them, the base model
           decodes training prompts with the reference configuration, and what is right is kept
export     three checkpoints in the Hugging Face layout, and the calibration pool
measure    a grid of configurations on held-out prompts, decoded by the engine
cards      README.md of each
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch.multiprocessing.spawn import spawn

from engine.train.card import write_cards
from engine.train.decode import correct_decodes, measure, read_rows, write_rows
from engine.train.export import export_checkpoint, write_json, write_prompts
from engine.train.problems import distinct
from engine.train.schedule import (
    BLOCK_SIZE,
    CHECKPOINTS,
    DECODES,
    DIFFUSION,
    POOL,
    SEED,
    SHAPE,
    STAGES,
    TEST,
)
from engine.train.stage import Stage, Worker, load_state, run_stage
from engine.train.vocabulary import learn_tokenizer, save


def main() -> None:
    """Do every part that is not done, in order."""
    parser = argparse.ArgumentParser(prog="python -m engine.train", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="directory of training states, log and measurements")
    parser.add_argument("--fixtures", type=Path, help="where to write checkpoints/ and prompts/; default: OUT/fixtures")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes, one thread each")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ["OMP_NUM_THREADS"] = "1"
    make(out, arguments.fixtures or out / "fixtures", arguments.workers)


def make(out: Path, fixtures: Path, workers: int) -> None:
    """Train, export, measure, describe."""
    if not (out / "tokenizer.json").exists():
        save(learn_tokenizer(SEED), out / "tokenizer.json")
    for stage in STAGES:
        if stage.targets == "decodes":
            _decode_to_learn(out, workers)
        state = load_state(out, stage.name)
        if state is None or state["step"] < stage.steps:
            _together(_train, workers, out, stage)
    for name, stage in CHECKPOINTS.items():
        _export(out, fixtures / "checkpoints" / name, stage)
    write_prompts(fixtures / "prompts" / "arithmetic.jsonl", distinct(f"{SEED}/pool", "pool", POOL), "arithmetic")
    _together(_measure, min(workers, len(CHECKPOINTS)), out, fixtures)
    write_cards(out, fixtures)


def _together(work: Callable[..., None], workers: int, out: Path, *arguments: object) -> None:
    """Run ``work(rank, workers, out, *arguments)`` in processes of their own, one thread each."""
    (out / "meeting").unlink(missing_ok=True)
    spawn(_work, (work, workers, out, *arguments), nprocs=workers)  # type: ignore[no-untyped-call]


def _work(rank: int, work: Callable[..., None], workers: int, out: Path, *arguments: object) -> None:
    """Do a process's part, and stop when its parent is gone, whose successor would write the same files."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    torch.set_num_threads(1)
    work(rank, workers, out, *arguments)


def _leave_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _train(rank: int, workers: int, out: Path, stage: Stage) -> None:
    if workers > 1:
        meeting = f"file://{out.resolve() / 'meeting'}"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=workers)
    decodes = read_rows(out / "decodes.jsonl") if stage.targets == "decodes" else ()
    run_stage(stage, SHAPE, Tokenizer.from_file(str(out / "tokenizer.json")), out, Worker(rank, workers), decodes)


def _export(out: Path, directory: Path, stage: Stage) -> None:
    state = load_state(out, stage.name)
    assert state is not None
    export_checkpoint(directory, state["average"], SHAPE, BLOCK_SIZE, out / "tokenizer.json")


def _decode_to_learn(out: Path, workers: int) -> None:
    """Leave the correct reference decodes of the base model in ``decodes.jsonl``."""
    if (out / "decodes.jsonl").exists():
        return
    _export(out, out / "base", DIFFUSION)
    _together(_decode_share, workers, out)
    rows = [row for rank in range(workers) for row in read_rows(out / f"decodes-{rank}.jsonl")]
    write_rows(out / "decodes.jsonl", sorted(rows))


def _decode_share(rank: int, workers: int, out: Path) -> None:
    if not (out / f"decodes-{rank}.jsonl").exists():
        mine = distinct(f"{SEED}/decodes", "train", DECODES)[rank::workers]
        write_rows(out / f"decodes-{rank}.jsonl", correct_decodes(out / "base", mine))


def _measure(rank: int, workers: int, out: Path, fixtures: Path) -> None:
    """Leave ``measured-CHECKPOINT.json`` for this process's share of the checkpoints."""
    problems = distinct(f"{SEED}/test", "test", TEST)
    for name in list(CHECKPOINTS)[rank::workers]:
        measured: dict[str, Any] = measure(fixtures / "checkpoints" / name, problems)
        write_json(out / f"measured-{name}.json", measured)
