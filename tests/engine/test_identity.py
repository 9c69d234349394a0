"""With real weights, a reply is the same alone and in any company, unless a decision was nearer than rounding decides.

Where a reply differs, the records of its forwards show the first one that accepted something else. All that was decided
before is the same in both, so Qwen3 over those tokens tells how near the decision was: each position that one run
accepted and the other did not must have had a confidence at the threshold, or at that of a position accepted in its
place; each token that differs, a probability at that of the token in its place.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from qwen3_oracle import oracle_logits, qwen3_of  # noqa: E402

from redline_engine.config import DecodeKnobs, ModelSpec  # noqa: E402
from redline_engine.engine import Engine  # noqa: E402
from redline_engine.models.checkpoint import load  # noqa: E402
from redline_engine.request import Prompt  # noqa: E402

FIXTURES = Path(__file__).parents[2] / "fixtures"
CHECKPOINT = FIXTURES / "checkpoints" / "arithmetic"
NEAR = 1e-4  # what design allows rounding to decide
PROMPTS = 24
KNOBS = [
    replace(knobs, max_new_tokens=64)
    for knobs in (
        DecodeKnobs(buffer_size=1, accept_threshold=0.95),
        DecodeKnobs(accept_threshold=0.7, semi_complete_threshold=0.5),
        DecodeKnobs(buffer_size=2, schedule="count", accept_count=2, add_block_threshold=0.5),
        DecodeKnobs(block_size=4, buffer_size=3, accept_threshold=0.8),
        DecodeKnobs(buffer_size=2, accept_threshold=0.6, temperature=0.8, top_p=0.9, seed=5),
    )
]


@pytest.fixture(scope="module")
def model():
    return load(ModelSpec(str(CHECKPOINT), device="cpu"))


@pytest.fixture(scope="module")
def oracle():
    return qwen3_of(CHECKPOINT)


@pytest.fixture(scope="module")
def prompts():
    tokenizer = tokenizers.Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    lines = (FIXTURES / "prompts" / "arithmetic.jsonl").read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["prompt"] for line in lines[:: len(lines) // PROMPTS][:PROMPTS]]
    return [Prompt(str(number), tokenizer.encode(text).ids) for number, text in enumerate(texts)]


def decode_alone(model, prompt, knobs):
    ((reply,),) = Engine(model, 1, record=True).generate([prompt], [knobs])
    return reply


@pytest.fixture(scope="module")
def alone(model, prompts):
    return {(prompt.id, knobs): decode_alone(model, prompt, knobs) for knobs in KNOBS for prompt in prompts}


def divergence(one, other):
    """First forward of two replies to one prompt that accepted something else; None if there is none."""
    pairs = zip(one.trace.records, other.trace.records, strict=False)
    return next((number for number, (here, there) in enumerate(pairs) if here.accepted != there.accepted), None)


def margin(oracle, info, prompt, knobs, one, other):
    """How far the decision in which two replies part was from the other one; infinite if nothing near explains it."""
    forward = divergence(one, other)
    if forward is None:
        return float("inf")
    here, there = (reply.trace.records[forward] for reply in (one, other))
    size = knobs.block_size or info.block_size
    tokens = [*prompt.tokens, *[info.mask_id] * (here.end_open * size - len(prompt.tokens))]
    for record in one.trace.records[:forward]:
        for position, token in record.accepted.items():
            tokens[position] = token
    logits = oracle_logits(oracle, tokens, size).double()
    logits[:, info.mask_id] = -torch.inf
    probable = logits.softmax(dim=1)

    def explained(position):
        said = [record.accepted.get(position) for record in (here, there)]
        if None not in said:  # both accept it, with other tokens
            worse = min(float(probable[position, token]) for token in said)
            return float("inf") if knobs.temperature else float(probable[position].max()) - worse
        taken, left = (here, there) if said[1] is None else (there, here)
        confidence = float(probable[position, taken.accepted[position]])
        rivals = [
            float(probable[rival, token])
            for rival, token in left.accepted.items()
            if rival // size == position // size and rival not in taken.accepted
        ]
        bounds = [*rivals, *([knobs.accept_threshold] if knobs.schedule == "threshold" else [])]
        return min((abs(confidence - bound) for bound in bounds), default=float("inf"))

    positions = here.accepted.keys() | there.accepted.keys()
    return max(explained(each) for each in positions if here.accepted.get(each) != there.accepted.get(each))


def is_same(oracle, info, prompt, knobs, one, other):
    """Whether two replies to one prompt are equal; they must be if no decision was near."""
    if (one.tokens, one.trace, one.error) == (other.tokens, other.trace, other.error):
        return True
    found = margin(oracle, info, prompt, knobs, one, other)
    assert found < NEAR, f"prompt {prompt.id}, {knobs}: replies part at a decision that was {found} away from the other"
    return False


@pytest.mark.parametrize(
    ("batch_size", "threads", "share"),
    [(1, 1, 1.0), (7, 1, 1.0), (64, 1, 1.0), (64, 2, 1.0), (64, 1, 0.4)],
    ids=["1", "7", "64", "64 in parts", "64 in other company"],
)
def test_a_reply_is_the_same_alone_and_in_any_company(model, oracle, prompts, alone, batch_size, threads, share):
    """Prompts and configurations are shuffled, and in the last case many of them are left out."""
    order = random.Random(f"{batch_size}, {threads}, {share}")
    columns, rows = (order.sample(each, round(share * len(each))) for each in (prompts, KNOBS))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        grid = Engine(model, batch_size, record=True).generate(columns, rows)
    finally:
        torch.set_num_threads(before)
    same = [
        is_same(oracle, model.info, prompt, knobs, alone[prompt.id, knobs], reply)
        for knobs, replies in zip(rows, grid, strict=True)
        for prompt, reply in zip(columns, replies, strict=True)
    ]
    assert len(same) == round(share * PROMPTS) * round(share * len(KNOBS))
    assert sum(same) > 0.9 * len(same)


def test_the_replies_are_worth_comparing(alone):
    assert all(reply.error is None for reply in alone.values())
    assert len({reply.tokens for reply in alone.values()}) > 1.5 * PROMPTS
    assert sum(reply.trace.finish_reason == "stop" for reply in alone.values()) > 0.9 * len(alone)


def second_confidence(oracle, info, prompt):
    """The second largest confidence of the first forward's block, and how far the nearest other one is."""
    size = info.block_size
    end = (len(prompt.tokens) // size + 1) * size
    logits = oracle_logits(oracle, [*prompt.tokens, *[info.mask_id] * (end - len(prompt.tokens))], size).double()
    logits[:, info.mask_id] = -torch.inf
    *others, second, first = sorted(logits.softmax(dim=1)[len(prompt.tokens) :].amax(dim=1).tolist())
    return second, min(first - second, *(second - each for each in others[-1:]))


@pytest.mark.parametrize(("step", "accepted"), [(2e-5, True), (2e-3, False)])
def test_only_a_divergence_at_a_near_decision_is_let_pass(model, oracle, prompts, step, accepted):
    """Thresholds on both sides of a confidence, near it or not, stand for rounding and for a real difference."""
    tried = 0
    for prompt in prompts:
        if len(prompt.tokens) % model.info.block_size > model.info.block_size - 3:
            continue  # fewer than three masks in the block
        confidence, gap = second_confidence(oracle, model.info, prompt)
        if gap < 0.005:
            continue
        knobs = DecodeKnobs(buffer_size=1, accept_threshold=confidence, max_new_tokens=32)
        low, high = (
            decode_alone(model, prompt, replace(knobs, accept_threshold=confidence + side)) for side in (-step, step)
        )
        assert divergence(low, high) == 0
        judged = replace(knobs, accept_threshold=confidence - step)
        if accepted:
            assert not is_same(oracle, model.info, prompt, judged, low, high)
        else:
            with pytest.raises(AssertionError, match="replies part at a decision"):
                is_same(oracle, model.info, prompt, judged, low, high)
        tried += 1
    assert tried >= 5


def with_record(reply, forward, accepted):
    records = list(reply.trace.records)
    records[forward] = replace(records[forward], accepted=accepted)
    return reply._replace(trace=reply.trace._replace(records=tuple(records)))


@pytest.mark.parametrize("knobs", KNOBS, ids=range(len(KNOBS)))
def test_other_tokens_positions_and_ends_are_refused(model, oracle, prompts, alone, knobs):
    for prompt in prompts[:6]:
        reply = alone[prompt.id, knobs]
        forward = max(number for number, each in enumerate(reply.trace.records) if each.accepted)
        accepted = dict(reply.trace.records[forward].accepted)
        position, token = next(iter(accepted.items()))
        changed = [
            with_record(reply, forward, accepted | {position: (token + 7) % model.info.mask_id or 3}),
            with_record(reply, forward, {}),
            reply._replace(tokens=reply.tokens[:-1]),
            reply._replace(trace=reply.trace._replace(forwards=reply.trace.forwards + 1)),
        ]
        for other in changed:
            with pytest.raises(AssertionError, match="replies part at a decision"):
                is_same(oracle, model.info, prompt, knobs, reply, other)
