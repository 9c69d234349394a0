"""Make the bundled checkpoints, from nothing; run again after an interruption to go on."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from tokenizers import Tokenizer

from engine.train.schedule import DIFFUSION, SEED, SHAPE, WARM
from engine.train.stage import Stage, Worker, load_state, run_stage
from engine.train.vocabulary import learn_tokenizer, save


def main() -> None:
    """Run every stage that is not finished, in order."""
    parser = argparse.ArgumentParser(prog="python -m engine.train", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory of checkpoints, log and results")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes, one thread each")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ["OMP_NUM_THREADS"] = "1"
    if not (out / "tokenizer.json").exists():
        save(learn_tokenizer(SEED), out / "tokenizer.json")
    for stage in (WARM, DIFFUSION):
        state = load_state(out, stage.name)
        if state is None or state["step"] < stage.steps:
            together(train, arguments.workers, out, stage)


def together(work: Callable[..., None], workers: int, out: Path, *arguments: object) -> None:
    """Run ``work(rank, workers, out, *arguments)`` in processes of their own."""
    meeting = out / "meeting"
    meeting.unlink(missing_ok=True)
    processes.start_processes(work, (workers, out, *arguments), nprocs=workers, start_method="spawn")


def train(rank: int, workers: int, out: Path, stage: Stage) -> None:
    """Train a stage in one of several processes."""
    torch.set_num_threads(1)
    if workers > 1:
        meeting = f"file://{out.resolve() / 'meeting'}"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=workers)
    run_stage(stage, SHAPE, Tokenizer.from_file(str(out / "tokenizer.json")), out, Worker(rank, workers))
