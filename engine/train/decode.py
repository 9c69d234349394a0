"""Decoding with the engine: correct decodes to learn from, and the table that a model card shows."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from engine.train.problems import Problem, read_result
from engine.train.vocabulary import END_ID, Encoded
from redline_engine.config import DecodeKnobs, ModelSpec
from redline_engine.engine import Engine
from redline_engine.models.checkpoint import load
from redline_engine.request import Prompt
from redline_engine.trace import Trace, tokens_per_forward

LIMIT = 96  # new tokens; the longest answers of the generator need about 80
BATCH = 256

REFERENCE: dict[str, Any] = {"accept_threshold": 0.95, "buffer_size": 1}


def _several(accept: float, semi: float = 0.9, add: float = 0.1, buffer: int = 4) -> dict[str, Any]:
    return {
        "accept_threshold": accept,
        "semi_complete_threshold": semi,
        "add_block_threshold": add,
        "buffer_size": buffer,
    }


GRID: dict[str, dict[str, Any]] = {
    "acc95/buf1": REFERENCE,
    "acc90/buf1": {"accept_threshold": 0.90, "buffer_size": 1},
    "acc80/buf1": {"accept_threshold": 0.80, "buffer_size": 1},
    "acc60/buf1": {"accept_threshold": 0.60, "buffer_size": 1},
    "acc95/buf2/add100": _several(0.95, add=1.0, buffer=2),
    "acc95/buf2/add75": _several(0.95, add=0.75, buffer=2),
    "acc95/buf2": _several(0.95, buffer=2),
    "acc98/buf4/add50": _several(0.98, add=0.5),
    "acc98/buf4": _several(0.98),
    "acc95/buf4/add50": _several(0.95, add=0.5),
    "acc95/buf4": _several(0.95),
    "acc90/buf4": _several(0.90),
    "acc90/buf4/semi50": _several(0.90, semi=0.5),
    "acc80/buf4": _several(0.80),
    "acc60/buf4": _several(0.60),
}


class Decoded(NamedTuple):
    """One configuration on one problem."""

    tokens: tuple[int, ...]
    right: bool
    trace: Trace


def decode(
    checkpoint: Path, problems: Sequence[Problem], configurations: Sequence[Mapping[str, Any]]
) -> list[list[Decoded]]:
    """Decode problems under configurations; returns ``[configurations][problems]``."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    engine = Engine(load(ModelSpec(str(checkpoint), device="cpu")), BATCH)
    prompts = [
        Prompt(str(number), encoding.ids)
        for number, encoding in enumerate(tokenizer.encode_batch([problem.prompt for problem in problems]))
    ]
    knobs = [DecodeKnobs.from_mapping(each, {"max_new_tokens": LIMIT}) for each in configurations]
    return [
        [
            Decoded(reply.tokens, read_result(tokenizer.decode(list(reply.tokens))) == problem.result, reply.trace)
            for reply, problem in zip(replies, problems, strict=True)
        ]
        for replies in engine.generate(prompts, knobs)
    ]


def correct_decodes(checkpoint: Path, problems: Sequence[Problem]) -> list[Encoded]:
    """Decode with the reference and return what was right and ended by itself, as rows to train on."""
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    (replies,) = decode(checkpoint, problems, [REFERENCE])
    return [
        Encoded(tokenizer.encode(problem.prompt).ids, list(reply.tokens[:-1]))
        for problem, reply in zip(problems, replies, strict=True)
        if reply.right and reply.tokens[-1] == END_ID
    ]


def measure(checkpoint: Path, problems: Sequence[Problem]) -> dict[str, Any]:
    """Decode the grid and count: what a model card shows, without rounding."""
    started = time.monotonic()
    rows = decode(checkpoint, problems, list(GRID.values()))
    reference, cost = rows[0], tokens_per_forward([each.trace for each in rows[0]])
    configurations = []
    for (label, knobs), row in zip(GRID.items(), rows, strict=True):
        speed = tokens_per_forward([each.trace for each in row])
        configurations.append(
            {
                "label": label,
                "knobs": knobs,
                "right": sum(each.right for each in row),
                "right_by_group": {
                    group: sum(
                        each.right for each, problem in zip(row, problems, strict=True) if problem.group == group
                    )
                    for group in ("easy", "hard")
                },
                "k": sum(old.right and not new.right for old, new in zip(reference, row, strict=True)),
                "gained": sum(new.right and not old.right for old, new in zip(reference, row, strict=True)),
                "tokens_per_forward": speed,
                "gain": speed / cost - 1,
                "same_text": sum(old.tokens == new.tokens for old, new in zip(reference, row, strict=True)),
            }
        )
    return {
        "n": len(problems),
        "groups": {group: sum(problem.group == group for problem in problems) for group in ("easy", "hard")},
        "configurations": configurations,
        "seconds": round(time.monotonic() - started, 1),
    }


def write_rows(path: Path, rows: Sequence[Encoded]) -> None:
    """Write encoded rows as JSON lines."""
    draft = path.with_suffix(".draft")
    draft.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    draft.replace(path)


def read_rows(path: Path) -> list[Encoded]:
    """Read encoded rows back."""
    return [Encoded(*json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
