"""Model cards: what each checkpoint is, what it cost, what it can do, measured."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from engine.train.decode import LIMIT
from engine.train.export import hash_of, write_json
from engine.train.network import Network
from engine.train.schedule import BLOCK_SIZE, CHECKPOINTS, DECODES, SEED, SHAPE, STAGES
from engine.train.stage import Stage

ABOUT = {
    "arithmetic-base": "Plain block diffusion: a noisy block was always seen after clean ones. Decoding several blocks "
    "at once is foreign to it; it ships to show that.",
    "arithmetic-multiblock": "`arithmetic-base`, fine-tuned on noisy runs of up to four blocks with the answers of the "
    "generator as targets.",
    "arithmetic": "`arithmetic-base`, fine-tuned on noisy runs of up to four blocks with its own correct reference "
    "decodes as targets (self-distillation). The default.",
}
FILES = ("model.safetensors", "config.json", "generation_config.json", "tokenizer.json")


def write_cards(out: Path, fixtures: Path) -> None:
    """Write ``README.md`` and ``training.json`` of each checkpoint, and the README of the prompts."""
    log = [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    for name, stage in CHECKPOINTS.items():
        directory = fixtures / "checkpoints" / name
        measured = json.loads((out / f"measured-{name}.json").read_text(encoding="utf-8"))
        summary = summarise(log, list(lineage(stage)))
        write_json(directory / "training.json", summary)
        (directory / "README.md").write_text(card(name, stage, summary, measured, directory), encoding="utf-8")
    prompts = fixtures / "prompts"
    (prompts / "README.md").write_text(prompts_readme(prompts / "arithmetic.jsonl"), encoding="utf-8")


def lineage(stage: Stage) -> Iterable[Stage]:
    """Yield the stages that lead to a checkpoint, first one first."""
    before = next((each for each in STAGES if each.name == stage.after), None)
    if before:
        yield from lineage(before)
    yield stage


def summarise(log: list[dict[str, Any]], stages: list[Stage]) -> dict[str, Any]:
    """Return the log in short: per stage what was done, what it took, and a curve of ten points."""
    summary = {}
    for stage in stages:
        lines = [line for line in log if line["stage"] == stage.name]
        curve = [lines[round((number + 1) * len(lines) / 10) - 1] for number in range(10)] if len(lines) > 9 else lines
        summary[stage.name] = {
            "steps": stage.steps,
            "rows": stage.steps * stage.batch,
            "minutes": round(sum(line["seconds"] for line in lines) / 60, 1),
            "cpu_minutes_per_process": round(sum(line["cpu_seconds"] for line in lines) / 60, 1),
            "curve": [{key: line[key] for key in ("step", "loss", "token_accuracy")} for line in curve],
        }
    return {"torch": torch.__version__.split("+")[0], "seed": SEED, "stages": summary}


def table(measured: dict[str, Any]) -> str:
    """Return the measured configurations as a Markdown table."""
    count, groups = measured["n"], measured["groups"]
    lines = [
        "| configuration | right | easy | hard | TPF | gain | k | newly right |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in measured["configurations"]:
        easy, hard = (row["right_by_group"][group] / groups[group] for group in ("easy", "hard"))
        lines.append(
            f"| {row['label']} | {row['right'] / count:.1%} | {easy:.1%} | {hard:.1%} "
            f"| {row['tokens_per_forward']:.2f} | {row['gain']:+.1%} | {row['k']} | {row['gained']} |"
        )
    return "\n".join(lines)


def card(name: str, stage: Stage, summary: dict[str, Any], measured: dict[str, Any], directory: Path) -> str:
    """Return the text of a model card."""
    stages = summary["stages"]
    cost = "\n".join(
        f"| {key} | {each['steps']:,} | {each['rows']:,} | {each['curve'][-1]['loss']:.3f} "
        f"| {each['curve'][-1]['token_accuracy']:.1%} | {each['minutes']} | {each['cpu_minutes_per_process']} |"
        for key, each in stages.items()
    )
    work = sum(each["cpu_minutes_per_process"] for each in stages.values())
    groups, shape, count = measured["groups"], SHAPE, Network(SHAPE, 0).parameter_count()
    hashes = "\n".join(f"- `{file}`: `{hash_of(directory / file)}`" for file in FILES)
    network = _fill(
        f"""- SDAR: Qwen3 layers, block-causal attention, a mask predicts itself. {shape.num_hidden_layers} layers of
        width {shape.hidden_size}, {shape.num_attention_heads} heads of {shape.head_dim}, {shape.num_key_value_heads}
        key-value heads, MLP {shape.intermediate_size}, tied embedding; {count:,} parameters in float16. Block
        size {BLOCK_SIZE}."""
    )
    command = _fill(
        f"""`python -m engine.train --out DIR` (seed {SEED}, torch {summary["torch"]}) makes the three checkpoints and
        their cards. The learning curve is in `training.json`. CPU minutes are those of each of two processes of one
        thread; the machine was shared, so the minutes that passed say less."""
    )
    story = _fill(
        f"""Together {work:.0f} minutes on each of two cores. *warm* masks every answer token and predicts each from the
        clean ones before it. *diffusion* masks a random part of each block, and the rest of it in a second copy
        of the row. {_tuning(stage)} Weights are averaged over steps."""
    )
    conditions = _fill(
        f"""{measured["n"]} held-out prompts ({groups["easy"]} easy, {groups["hard"]} hard), greedy, float32 on a CPU,
        at most {LIMIT} new tokens, decoded by the engine of this project. acc: accept threshold; buf: buffer size;
        semi and add: the other two thresholds, 0.90 and 0.10 unless named. TPF: reply tokens over forwards,
        prefill and commit-only forwards included. k: prompts that the first configuration, the reference, gets
        right and this one wrong. At n = 512, m = 8 and alpha = delta = 0.10 a candidate with k <= 36 is
        certified whatever the others do."""
    )
    return f"""# {name}

{_fill(ABOUT[name])}

A block-diffusion language model that solves grade-school word problems of one kind, with worked steps, and nothing
else. It exists so that a gate has real decisions to make on any laptop. It was trained from random weights on generated
text alone: no outside data, no outside weights. Licence: Apache-2.0, as the project.

{network}
- Prompt: the text of a problem up to its question mark, without a template. The reply starts with a space, works in
  steps, and ends with `#### N` and `<eos>`.

## Data

`engine/train/problems.py`: five templates (one count that changes, the counts of two people, a bill, a book, boxes that
are sold), one to seven equations with values up to 299, in a quarter of them a sentence that does not matter, and for
each step a phrasing drawn at random. "hard": four or more equations, or a sentence that does not matter. Splits are
drawn by a hash of template and numbers, so problems that differ in names only are on the same side: 88 % to train on,
8 % for the calibration pool (`../../prompts/`), 4 % for the table below.

## Training

{command}

| stage | steps | rows | loss | tokens right | minutes | CPU minutes |
|---|---|---|---|---|---|---|
{cost}

{story}

## Measured

{conditions}

{table(measured)}

## Limits

- It knows the words of the generator only. Other text is encoded with gaps and answered with nonsense.
- Test prompts come from the generator that made the training prompts.
- TPF counts forwards, not seconds: on a CPU a forward over four open blocks costs more than one over a single block.
- One seed, one size. What each choice of the recipe contributes was not measured, but for the stages that ship.

## SHA-256

{hashes}
"""


def _fill(text: str) -> str:
    """Return a paragraph, or an item of a list, in lines of 120."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(" ".join(text.split()), 120, subsequent_indent=indent, break_on_hyphens=False)


def _tuning(stage: Stage) -> str:
    """Return the sentences about the last stage."""
    runs = f"*{stage.name}* lets noisy blocks see noisy ones before them, in {stage.noise.run_share:.0%} of rows"
    if stage.targets == "decodes":
        return f"{runs}; its targets are the correct ones among {DECODES:,} reference decodes of `arithmetic-base`."
    return f"{runs}." if stage.noise.run_share else ""


def prompts_readme(path: Path) -> str:
    """Return the text of the README of the calibration pool."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    easy = sum(line["group"] == "easy" for line in lines)
    hard = len(lines) - easy
    return f"""# Prompts that ship with Redline

`arithmetic.jsonl`: {len(lines):,} word problems (`id`, `prompt`, `answer`, `group`; {easy:,} easy, {hard:,} hard) for
the checkpoints `../checkpoints/arithmetic*`. A reply is right if the number behind its last `####` is the answer.

- Source: generated by this project (`engine/train/problems.py`); licence Apache-2.0.
- Made by: `python -m engine.train --out DIR`, seed {SEED}. No two have equal template and numbers, and none is among
  the prompts of training or of the model cards: the split is a hash of template and numbers.
- "hard": four or more equations, or a sentence that does not matter.
- SHA-256: `{hash_of(path)}`
"""
