"""Editing equals, token for token, diffusers' LLaDA2 pipeline and a plain loop that recomputes all; and is shared."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import naive
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redline_engine.config import DecodeKnobs, KnobError
from redline_engine.engine import Engine
from redline_engine.models.scripted import HashModel
from redline_engine.request import Prompt


def decode(prompt, knobs, size, says, mask, ends):
    """One request in plain lists: reply, finish reason, and the tokens that each forward saw."""
    tokens, seen = list(prompt), []
    limit = len(prompt) + knobs.max_new_tokens
    if len(prompt) % size == 0:
        seen.append(tuple(tokens))
    block = len(prompt) // size
    cap = knobs.max_forwards or 10**9
    if len(seen) >= cap:
        return [], "max_forwards", seen
    while True:
        tokens += [mask] * ((block + 1) * size - len(tokens))
        mine = range(max(len(prompt), block * size), len(tokens))
        post = turn = 0
        while True:
            seen.append(tuple(tokens))
            said = {position: says(position, list(tokens)) for position in mine}
            masked = [position for position in mine if tokens[position] == mask]
            written = dict.fromkeys(accepted(knobs, size, masked, said, turn))
            turn += bool(written)
            if post <= knobs.max_post_edit_steps:
                for position in mine:
                    token, sure = min(said[position][0]), said[position][1]
                    if position not in masked and token != tokens[position] and sure > knobs.edit_threshold:
                        written[position] = None
            for position in written:
                tokens[position] = min(said[position][0])
            post += not masked
            gap = next((position for position in mine if tokens[position] == mask), len(tokens))
            end = next((position for position in mine if tokens[position] in ends), 10**9)
            final = not masked and (not written or post > knobs.max_post_edit_steps)
            final |= any(tokens[position] in ends for position in written) and end < gap
            capped = len(seen) >= cap
            if (final or capped) and end < limit and end < gap:
                return tokens[len(prompt) : end + 1], "stop", seen
            if (final and gap >= limit) or (capped and gap == (limit - 1) // size * size + size):
                return tokens[len(prompt) : limit], "length", seen
            if capped:
                return tokens[len(prompt) : min(gap, limit)], "max_forwards", seen
            if not masked and not written:
                break
        block += 1


def accepted(knobs, size, masked, said, turn):
    takes = []
    quota = knobs.accept_count if knobs.schedule == "count" else 1
    if knobs.schedule == "threshold":
        takes = [position for position in masked if said[position][1] > knobs.accept_threshold]
    if knobs.schedule == "steps":
        share, rest = divmod(size, knobs.denoising_steps)
        quota = max(1, share + (turn < rest))
    if masked and len(takes) < quota:
        takes = sorted(masked, key=lambda position: (-said[position][1], position))[:quota]
    return takes


TWENTIETHS = st.integers(1, 20).map(lambda number: number / 20)


@st.composite
def editing(draw, size):
    return DecodeKnobs(
        block_size=size,
        buffer_size=1,
        schedule=draw(st.sampled_from(["threshold", "count", "steps"])),
        accept_threshold=draw(TWENTIETHS),
        accept_count=draw(st.integers(1, 4)),
        denoising_steps=draw(st.integers(1, 6)),
        edit_threshold=draw(TWENTIETHS),
        max_post_edit_steps=draw(st.integers(0, 4)),
        max_new_tokens=draw(st.integers(1, 20)),
        max_forwards=draw(st.one_of(st.none(), st.none(), st.integers(1, 12))),
    )


@st.composite
def grids(draw):
    size = draw(st.sampled_from([1, 2, 4, 8]))
    token = st.integers(0, 61)
    return (
        size,
        draw(st.lists(st.lists(token, min_size=1, max_size=2 * size + 3), min_size=1, max_size=3)),
        draw(st.lists(editing(size), min_size=1, max_size=4)),
        draw(st.integers(0, 2**16)),
        draw(st.sampled_from([0, 600, 3000, 12000])),
        draw(st.integers(1, 6)),
    )


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(grids())
def test_a_grid_that_edits_decodes_as_each_of_its_requests_alone(grid):
    size, prompts, knobs, seed, end_rate, batch_size = grid
    engine = Engine(HashModel(seed, end_rate), batch_size)
    replies = engine.generate([Prompt(str(number), each) for number, each in enumerate(prompts)], knobs)
    states = set()
    for row, configuration in zip(replies, knobs, strict=True):
        for number, (reply, prompt) in enumerate(zip(row, prompts, strict=True)):
            says = partial(naive.hashed, seed, end_rate, size)
            tokens, reason, seen = decode(prompt, configuration, size, says, 63, {62})
            assert (list(reply.tokens), reply.trace.finish_reason) == (tokens, reason)
            assert reply.trace.forwards == len(seen)
            assert 63 not in reply.tokens
            states |= {(number, each) for each in seen}
    assert engine.counts.forwards_run == len(states)
    assert engine.counts.forwards_charged == sum(reply.trace.forwards for row in replies for reply in row)
    assert engine.pages_in_use == 0


def test_configurations_without_editing_are_not_asked_for_more_beside_one_that_edits():
    class Counting(HashModel):
        asked = 0

        def forward(self, batch):
            self.asked += batch.asked.sum()
            return super().forward(batch)

    plain = [DecodeKnobs(buffer_size=size, accept_threshold=0.8, max_new_tokens=30) for size in (1, 3)]
    edits = DecodeKnobs(buffer_size=1, edit_threshold=0.9, max_new_tokens=30)
    prompts = [Prompt("p", [1, 2, 3]), Prompt("q", [4] * 8)]
    counts, said = [], []
    for knobs in (plain, [edits], [*plain, edits]):
        model = Counting(seed=3)
        said.append([[reply.tokens for reply in row] for row in Engine(model).generate(prompts, knobs)])
        counts.append(model.asked)
    assert counts[2] == counts[0] + counts[1]
    assert said[2] == said[0] + said[1]
    assert any(said[1][0])
    assert said[1][0] != said[0][0]


def test_editing_needs_one_open_block_and_its_knobs_are_off_by_default():
    with pytest.raises(KnobError, match="edit_threshold: edits one block until it is stable, so it needs"):
        DecodeKnobs.from_mapping({"edit_threshold": 0.5})
    with pytest.raises(KnobError, match="max_post_edit_steps: nothing reads it while edit_threshold is 0"):
        DecodeKnobs.from_mapping({"max_post_edit_steps": 3})
    with pytest.raises(KnobError, match=r"edit_threshold: 2 is not allowed"):
        DecodeKnobs.from_mapping({"edit_threshold": 2, "buffer_size": 1})
    assert "edit_threshold" not in DecodeKnobs().effective()
    on = DecodeKnobs.from_mapping({"edit_threshold": 0.5, "buffer_size": 1}).effective()
    assert (on["edit_threshold"], on["max_post_edit_steps"]) == (0.5, 16)


# -- The independent code -------------------------------------------------------------------------------------------

EDITS = [(0.3, 0.3, 16), (0.3, 0.6, 0), (0.6, 0.2, 1), (0.6, 0.5, 16), (0.9, 0.4, 3), (0.95, 0.9, 16)]
LENGTHS = (1, 3, 4, 5, 17)


def test_replies_equal_the_pipelines(tmp_path):
    """Unless some decision was nearer than rounding can decide."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    diffusers = pytest.importorskip("diffusers", minversion="0.42")
    from qwen3_oracle import END, MASK, B, Margins, random_qwen3
    from test_llada2_pipeline import NEW, BlockCausal

    from redline_engine.config import ModelSpec
    from redline_engine.models.checkpoint import load

    oracle = random_qwen3(tied=False)
    oracle.save_pretrained(tmp_path)
    engine = Engine(load(ModelSpec(str(tmp_path), device="cpu", block_size=B, mask_id=MASK)))
    knobs = [
        DecodeKnobs(
            buffer_size=1, accept_threshold=accept, edit_threshold=edit, max_post_edit_steps=post, max_new_tokens=NEW
        )
        for accept, edit, post in EDITS
    ]
    prompts = [list(range(1, length + 1)) for length in LENGTHS]
    grid = engine.generate([Prompt(str(len(each)), each) for each in prompts], knobs)
    compared = changed = 0
    for knob, row in zip(knobs, grid, strict=True):
        for prompt, reply in zip(prompts, row, strict=True):
            margins = Margins(oracle, B, knob.accept_threshold)

            def says(position, visible, margins=margins, knob=knob):
                said = margins(position, visible)
                margins.closest = min(margins.closest, abs(said[1] - knob.edit_threshold))
                return said

            tokens, _, seen = decode(prompt, knob, B, says, MASK, {END})
            if margins.closest < 2e-5:
                continue
            pipeline = diffusers.LLaDA2Pipeline(BlockCausal(oracle), diffusers.BlockRefinementScheduler(block_length=B))
            pipeline.set_progress_bar_config(disable=True)
            made = (
                pipeline(
                    input_ids=torch.tensor([prompt]),
                    gen_length=NEW,
                    block_length=B,
                    num_inference_steps=B + 1,  # with B, a block that takes B forwards to fill is not edited when full
                    threshold=knob.accept_threshold,
                    editing_threshold=knob.edit_threshold,
                    max_post_steps=knob.max_post_edit_steps,
                    sampling_method="greedy",
                    eos_token_id=END,
                    mask_token_id=MASK,
                    output_type="seq",
                )
                .sequences[0]
                .tolist()
            )
            made = made[: made.index(END) + 1] if END in made else made
            assert list(reply.tokens) == made == tokens
            assert reply.trace.forwards == len(seen)
            compared += 1
            plain = decode(prompt, replace(knob, edit_threshold=1.0), B, margins, MASK, {END})
            changed += plain[0] != tokens
    assert compared >= 15
    assert changed >= 5, "editing changes replies"
