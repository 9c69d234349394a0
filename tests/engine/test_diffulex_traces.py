"""The naive loop, with the deviations of Diffulex, reproduces what was recorded from Diffulex: see traces/README.md."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import naive
import pytest

TRACES = Path(__file__).parent / "traces"
REASONS = {"stop": "eos_token_generated", "length": "max_new_tokens_reached", "max_forwards": "max_nfe_reached"}


def load(name: str) -> dict[str, Any]:
    with gzip.open(TRACES / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        return json.load(file)


SINGLE = load("single")["cases"]
BATCH = load("batch")["batches"]


def as_case(request: dict[str, Any], shared: dict[str, Any]) -> naive.Case:
    return naive.Case(
        prompt=request["prompt"],
        block_size=shared["block_size"],
        buffer_size=shared["buffer_size"],
        accept_threshold=shared["accept_threshold"],
        semi_complete_threshold=shared["semi_complete_threshold"],
        add_block_threshold=shared["add_block_threshold"],
        max_new_tokens=request["max_tokens"],
        max_forwards=request["max_nfe"],
    )


def model_of(request: dict[str, Any], block_size: int) -> naive.Model:
    return partial(naive.hashed, request["seed"], request["eos_rate"], block_size)


def as_recorded(run: naive.Run, rules: naive.Deviations) -> dict[str, Any]:
    return {
        "forwards": [
            {
                "i": number,
                "kind": "decode" if number else "prefill",
                "added": each.added,
                "accepted": {str(position): token for position, token in sorted(each.accepted.items())},
                "buffer": [[block, status] for block, status in each.buffer],
                "cached": each.cached,
            }
            for number, each in enumerate(run.forwards)
        ],
        "nfe": len(run.forwards),
        "finish_reason": REASONS[run.finish_reason],
        "raw": run.raw,
        "reply": naive.reply(run, rules),
    }


def recorded(request: dict[str, Any]) -> dict[str, Any]:
    kept = {key: request[key] for key in ("nfe", "finish_reason", "raw", "reply")}
    forwards = [{key: value for key, value in each.items() if key != "step"} for each in request["forwards"]]
    return {"forwards": forwards, **kept}


def test_the_recordings_are_complete():
    assert (len(SINGLE), len(BATCH)) == (205, 12)


@pytest.mark.parametrize("case", SINGLE, ids=lambda case: case["id"])
def test_one_request(case):
    run = naive.decode(as_case(case, case), model_of(case, case["block_size"]), naive.DIFFULEX)
    assert as_recorded(run, naive.DIFFULEX) == recorded(case)


@pytest.mark.parametrize("batch", BATCH, ids=lambda batch: batch["id"])
def test_several_requests(batch):
    """Requests do not influence each other's tokens; the scheduler decides only in which step each one runs."""
    requests = batch["requests"]
    runs = [naive.start(as_case(request, batch)) for request in requests]
    models = [model_of(request, batch["block_size"]) for request in requests]
    waiting = sorted(range(len(requests)), key=lambda number: (requests[number]["arrive_step"], number))
    running: list[int] = []
    steps: list[dict[str, Any]] = []
    ran_in: list[list[int]] = [[] for _ in requests]
    while waiting or running:
        kind, chosen = naive.schedule(
            [(number, runs[number]) for number in waiting if requests[number]["arrive_step"] <= len(steps)],
            running,
            batch["max_num_reqs"],
            batch["max_num_batched_tokens"],
        )
        for number in chosen:
            naive.forward(runs[number], models[number], naive.DIFFULEX)
            ran_in[number].append(len(steps))
        waiting = [number for number in waiting if number not in chosen]
        running += chosen if kind == "prefill" else []
        running = [number for number in running if not runs[number].finish_reason]
        steps.append({"step": len(steps), "kind": kind, "requests": chosen})
    assert steps == batch["steps"]
    assert [as_recorded(run, naive.DIFFULEX) for run in runs] == [recorded(request) for request in requests]
    assert ran_in == [[each["step"] for each in request["forwards"]] for request in requests]


@pytest.mark.parametrize("name", naive.Deviations.__dataclass_fields__)
def test_every_deviation_is_visible_in_the_recordings(name):
    """Were one of them not needed, it would be no deviation."""
    rules = replace(naive.DIFFULEX, **{name: False})
    assert any(
        as_recorded(naive.decode(as_case(case, case), model_of(case, case["block_size"]), rules), rules)
        != recorded(case)
        for case in SINGLE
    )
