"""The engine, with whatever company a request has, decodes as the naive loop decodes it alone.

Each example is a small grid: a few prompts under a few configurations, in batches of some size. The naive loop runs
every pair by itself, without cache or shared states; replies, forwards, what each forward accepted, and the number of
distinct states must be the same.
"""

from __future__ import annotations

from functools import partial

import naive
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redline_engine.config import DecodeKnobs
from redline_engine.engine import Engine
from redline_engine.models.scripted import HashModel
from redline_engine.request import Prompt
from redline_engine.trace import ForwardRecord

THRESHOLDS = st.integers(0, 20).map(lambda twentieths: twentieths / 20)


@st.composite
def configurations(draw, block_sizes):
    schedule = draw(st.sampled_from(["threshold", "threshold", "count", "steps"]))
    return DecodeKnobs(
        block_size=draw(block_sizes),
        buffer_size=draw(st.integers(1, 5)),
        schedule=schedule,
        accept_threshold=draw(THRESHOLDS),
        accept_count=draw(st.integers(1, 5)),
        denoising_steps=draw(st.integers(1, 9)),
        semi_complete_threshold=draw(THRESHOLDS),
        add_block_threshold=draw(THRESHOLDS),
        max_new_tokens=draw(st.integers(1, 30)),
        max_forwards=draw(st.one_of(st.none(), st.none(), st.integers(1, 12))),
        stop_tokens=draw(st.sampled_from([(), (), (5, 17)])),
        stop_strings=draw(st.sampled_from([(), (), ("abca",), ("dd", "cab")])),
    )


@st.composite
def grids(draw):
    """Prompts, configurations (many share a block size, as the rows of a grid do), model and batch size."""
    size = draw(st.sampled_from([1, 2, 3, 4, 8]))
    own = st.one_of(st.just(size), st.just(size), st.sampled_from([1, 2, 4]))
    token = st.integers(0, 61)
    return (
        draw(st.lists(st.lists(token, min_size=1, max_size=2 * size + 3), min_size=1, max_size=3)),
        draw(st.lists(configurations(own), min_size=1, max_size=4)),
        draw(st.integers(0, 2**16)),
        draw(st.sampled_from([0, 600, 3000, 12000])),
        draw(st.integers(1, 6)),
    )


def naive_case(prompt, knobs):
    by_threshold = knobs.schedule == "threshold"
    return naive.Case(
        prompt=prompt,
        block_size=knobs.block_size,
        buffer_size=knobs.buffer_size,
        semi_complete_threshold=knobs.semi_complete_threshold,
        add_block_threshold=knobs.add_block_threshold,
        max_new_tokens=knobs.max_new_tokens,
        accept_threshold=knobs.accept_threshold if by_threshold else None,
        quota=knobs.accept_count if knobs.schedule == "count" else 1,
        steps=knobs.denoising_steps if knobs.schedule == "steps" else None,
        max_forwards=knobs.max_forwards,
        end_ids=(62, *knobs.stop_tokens),
        stop_strings=knobs.stop_strings,
    )


@settings(max_examples=1200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(grids())
def test_a_grid_decodes_as_each_of_its_requests_alone(grid):
    tokens, knobs, seed, end_rate, batch_size = grid
    engine = Engine(HashModel(seed, end_rate), batch_size, naive.spell, record=True)
    replies = engine.generate([Prompt(str(number), each) for number, each in enumerate(tokens)], knobs)

    states = set()
    for row, configuration in zip(replies, knobs, strict=True):
        for number, (reply, prompt) in enumerate(zip(row, tokens, strict=True)):
            model = partial(naive.hashed, seed, end_rate, configuration.block_size)
            run = naive.decode(naive_case(prompt, configuration), model)
            trace = reply.trace
            assert (trace.finish_reason, trace.forwards) == (run.finish_reason, len(run.forwards))
            assert list(reply.tokens) == naive.reply(run)
            assert list(trace.records) == naive_records(run)
            states |= {(number, configuration.block_size, each.seen) for each in run.forwards}
            check_truths(reply, run, engine.model.info)
    assert engine.counts.forwards_run == len(states)
    assert engine.counts.forwards_charged == sum(reply.trace.forwards for row in replies for reply in row)
    assert not engine.busy
    assert engine.pages_in_use == 0
    assert engine.counts.peak_prompts <= batch_size


def naive_records(run):
    """What the engine should have kept of each forward."""
    size, mask = run.case.block_size, run.case.mask
    records = []
    base = len(run.case.prompt) // size
    for each in run.forwards:
        cached = base if records else 0
        masked = each.seen[base * size :].count(mask)
        records.append(
            ForwardRecord(
                cached=cached,
                first_open=base,
                end_open=max(
                    (block + 1 for block, status in each.buffer if status != naive.EMPTY), default=each.cached
                ),
                masked=masked,
                accepted=each.accepted,
                rows_run=len(each.seen) - cached * size,
                rows_useful=masked + (each.cached - cached) * size,
            )
        )
        base = each.cached
    return records


def check_truths(reply, run, info):
    """What holds of any reply, whatever the knobs."""
    trace, ends = reply.trace, run.case.end_ids
    assert info.mask_id not in reply.tokens
    assert not set(reply.tokens[:-1]) & set(ends)
    assert len(reply.tokens) == trace.reply_tokens <= run.case.max_new_tokens
    assert trace.tokens_resolved == sum(len(each.accepted) for each in trace.records)
    assert trace.tokens_after_reply == trace.tokens_resolved - trace.reply_tokens
    assert trace.masks_left == sum(len(run.masks(block)) for block in run.open_blocks)
    assert trace.end_token == (trace.finish_reason != "stop_string" and bool(set(reply.tokens) & set(ends)))
    assert trace.zero_token_forwards == sum(not each.accepted for each in trace.records)
    assert trace.commit_only_forwards == sum(not each.masked for each in trace.records[1:])
    for each in trace.records:  # every forward that can accept does
        assert bool(each.accepted) == bool(each.masked)
        assert 0 < each.rows_useful <= each.rows_run
    text = naive.spell([token for token in reply.tokens if token not in ends])
    if trace.finish_reason == "stop_string":
        assert not any(string in reply.text for string in run.case.stop_strings)
        assert text.startswith(reply.text)
    else:
        assert reply.text == text
