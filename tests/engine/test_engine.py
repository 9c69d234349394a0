"""The engine's promises: company changes nothing, memory is bounded, and what cannot be decoded is refused by name."""

from __future__ import annotations

import gc
import weakref
from dataclasses import fields, replace
from hashlib import sha256
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redline_engine.config import DecodeKnobs, KnobError
from redline_engine.engine import MOST_PLANS, Engine
from redline_engine.models.base import ModelInfo
from redline_engine.models.scripted import HashModel, ScriptedModel
from redline_engine.request import Prompt, PromptError
from redline_engine.states import States
from redline_engine.walker import MOST_STARTS

INFO = ModelInfo(vocab_size=20, mask_id=19, end_ids=(18,), block_size=4, max_positions=1024)


def letters(tokens):
    return "".join(chr(ord("a") + token % 26) for token in tokens)


def outcome(reply):
    return reply.tokens, reply.text, reply.trace, reply.error


class Watched(HashModel):
    """Keeps a hash of everything that decides an answer, for every block that is asked about."""

    def __init__(self, seed, end_rate):
        super().__init__(seed, end_rate)
        self.hashes, self.queries = [], 0

    def forward(self, batch):
        owners = np.repeat(np.arange(len(batch.run)), batch.run)
        assert set(owners[batch.asked.any(axis=1)]) == set(owners), "a query that asks nothing"
        self.queries += len(batch.run)
        return super().forward(batch)

    def _answer(self, tokens, positions, size, sampling, uniforms):
        if positions.size:
            self.hashes.append(sha256(repr((size, tokens, sampling)).encode()).hexdigest())
        return super()._answer(tokens, positions, size, sampling, uniforms)


KNOBS = st.builds(
    DecodeKnobs,
    block_size=st.sampled_from([4, 8]),
    buffer_size=st.integers(1, 4),
    schedule=st.sampled_from(["threshold", "threshold", "count", "steps"]),
    accept_threshold=st.integers(0, 20).map(lambda twentieths: twentieths / 20),
    accept_count=st.integers(1, 4),
    semi_complete_threshold=st.sampled_from([0.25, 0.5, 0.9]),
    add_block_threshold=st.sampled_from([0.1, 0.5, 0.9]),
    max_new_tokens=st.integers(1, 24),
    max_forwards=st.sampled_from([None, None, 6]),
    temperature=st.sampled_from([0.0, 0.0, 0.5, 1.0] if find_spec("torch") else [0.0]),
    top_p=st.sampled_from([1.0, 0.5]),
    top_k=st.sampled_from([0, 3]),
    seed=st.integers(0, 2),
    stop_strings=st.sampled_from([(), ("ab", "c")]),
)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    knobs=st.lists(KNOBS, min_size=2, max_size=5),
    prompts=st.lists(
        st.lists(st.integers(0, 61), min_size=1, max_size=11),
        min_size=1,
        max_size=5,
        unique_by=lambda tokens: tokens[0],
    ),
    seed=st.integers(0, 1000),
    end_rate=st.sampled_from([600, 6000]),
    batch_size=st.integers(1, 9),
    order=st.randoms(use_true_random=False),
)
def test_a_reply_is_the_same_alone_and_in_any_company(knobs, prompts, seed, end_rate, batch_size, order):
    """Random grids over all knobs and seeds, shuffled prompts and configurations, any batch size."""
    rows, columns = list(range(len(knobs))), list(range(len(prompts)))
    order.shuffle(rows)
    order.shuffle(columns)
    named = [Prompt(str(number), tokens) for number, tokens in enumerate(prompts)]
    model = Watched(seed, end_rate)
    engine = Engine(model, batch_size, letters, record=True)
    grid = engine.generate([named[column] for column in columns], [knobs[row] for row in rows])
    assert len(model.hashes) == len(set(model.hashes))
    assert model.queries <= engine.counts.forwards_run <= engine.counts.forwards_charged
    for row, replies in zip(rows, grid, strict=True):
        for column, reply in zip(columns, replies, strict=True):
            alone = Engine(HashModel(seed, end_rate), 1, letters, record=True)
            ((expected,),) = alone.generate([named[column]], [knobs[row]])
            assert outcome(reply) == outcome(expected)
            assert alone.counts.forwards_run == alone.counts.forwards_charged == reply.trace.forwards


def test_every_state_of_a_step_is_another_one_and_not_answered(monkeypatch):
    """Although some that wait for a later step are answered beside longer ones."""
    asked = []

    def watched(states, paths, depths):
        last = paths[np.arange(len(paths)), depths - 1]
        assert len(set(last.tolist())) == len(last)
        assert not states.answered(last).any()
        asked.append(len(last))
        return ask(states, paths, depths)

    ask = States.ask
    monkeypatch.setattr(States, "ask", watched)
    knobs = [
        DecodeKnobs(buffer_size=size, accept_threshold=accept, add_block_threshold=add, max_new_tokens=40)
        for size, accept, add in product((1, 2, 4), (0.5, 0.7, 0.9, 0.95), (0.1, 0.5))
    ]
    prompts = [Prompt(str(number), [number] * (number + 1)) for number in range(9)]
    for batch_size in (2, 3, 7):
        Engine(HashModel(2, 300), batch_size).generate(prompts, knobs)
        assert max(asked) == batch_size
        asked.clear()


def test_another_seed_is_another_reply_and_the_same_seed_is_not():
    pytest.importorskip("torch")
    knobs = [DecodeKnobs(temperature=1, seed=seed, max_new_tokens=40) for seed in (1, 2, 1)]
    replies = [row[0].tokens for row in Engine(HashModel(1, 0)).generate([Prompt("p", [1, 2])], knobs)]
    assert replies[0] != replies[1]
    assert replies[0] == replies[2]


def test_prompts_are_admitted_as_others_finish():
    """No more prompts live at once than a batch holds, and all pages come back."""
    engine = Engine(HashModel(3, 2000), batch_size=6)
    knobs = [DecodeKnobs(accept_threshold=each, max_new_tokens=48) for each in (0.5, 0.7, 0.9)]
    prompts = [Prompt(str(number), [number % 62, number // 62]) for number in range(150)]
    alive, finished = [], 0
    tickets = [engine.submit(prompt, knobs) for prompt in prompts]
    while engine.busy:
        finished += len(engine.step())
        alive.append(len(engine._prompts))
    assert tickets == list(range(150))
    assert finished == 450
    assert max(alive) <= engine.counts.peak_prompts <= 6
    assert engine.counts.peak_pages < 6 * 3 * 8
    assert engine.pages_in_use == 0
    assert all(len(lane.table.walkers) <= 6 * 3 * 2 for lane in engine._lanes.values())


def test_prompts_may_be_submitted_while_others_are_decoded():
    knobs = [DecodeKnobs(max_new_tokens=30)]
    (expected,) = Engine(HashModel(3)).generate([Prompt("a", [1]), Prompt("b", [2, 3])], knobs)
    engine = Engine(HashModel(3))
    engine.submit(Prompt("a", [1]), knobs)
    replies = [*engine.step(), *engine.step()]
    engine.submit(Prompt("b", [2, 3]), knobs)
    while engine.busy:
        replies += engine.step()
    assert {reply.ticket: outcome(reply) for reply in replies} == dict(enumerate(map(outcome, expected)))


def test_one_forward_serves_configurations_that_do_not_differ_in_effect():
    knobs = [DecodeKnobs(buffer_size=1, semi_complete_threshold=each) for each in (0.1, 0.5, 0.9)]
    engine = Engine(HashModel(3))
    rows = engine.generate([Prompt("a", [1])], knobs)
    assert len({row[0].tokens for row in rows}) == 1
    assert engine.counts.forwards_charged == 3 * engine.counts.forwards_run


def say(tokens, confidence=0.99):
    """A script that says the given tokens from position 1 on."""
    return lambda position, visible, block_size: ((tokens[position - 1],), confidence)


def test_nothing_behind_the_first_end_token_is_in_the_reply():
    """All seven positions are accepted at once: the reply is three tokens, the rest is counted and thrown away."""
    engine = Engine(ScriptedModel(INFO, say([4, 5, 18, 9, 9, 9, 9, 3, 3, 3, 3])), detokenize=letters)
    knobs = DecodeKnobs(block_size=8, buffer_size=1, max_new_tokens=11)
    ((reply,),) = engine.generate([Prompt("p", [1])], [knobs])
    assert (reply.tokens, reply.text) == ((4, 5, 18), "ef")
    assert (reply.trace.finish_reason, reply.trace.reply_tokens, reply.trace.tokens_after_reply) == ("stop", 3, 4)


def test_masks_behind_the_end_are_reported_and_not_decoded():
    def script(position, visible, block_size):
        return (18 if position == 2 else 7,), 0.99 if position in (1, 2) else 0.2

    engine = Engine(ScriptedModel(INFO, script), detokenize=letters)
    ((reply,),) = engine.generate([Prompt("p", [1])], [DecodeKnobs(block_size=8, buffer_size=1)])
    assert (reply.tokens, reply.trace.masks_left, reply.trace.forwards) == ((7, 18), 5, 1)


def test_an_end_token_behind_a_gap_waits_for_it_and_opens_no_block():
    def script(position, visible, block_size):
        return (18 if position == 3 else 7,), 0.99 if position == 3 else 0.2

    engine = Engine(ScriptedModel(INFO, script), record=True)
    ((reply,),) = engine.generate([Prompt("p", [1])], [DecodeKnobs(accept_threshold=0.9, add_block_threshold=0.5)])
    assert reply.tokens == (7, 7, 18)
    assert [dict(each.accepted) for each in reply.trace.records] == [{3: 18}, {1: 7}, {2: 7}]
    assert {each.end_open for each in reply.trace.records} == {1}


def test_an_end_token_beyond_the_limit_does_not_count():
    engine = Engine(ScriptedModel(INFO, say([4, 5, 18])))
    ((reply,),) = engine.generate([Prompt("p", [1])], [DecodeKnobs(max_new_tokens=2)])
    assert (reply.tokens, reply.trace.finish_reason) == ((4, 5), "length")


def test_the_cap_on_forwards_has_its_own_reason_and_leaves_no_gap():
    def script(position, visible, block_size):
        return (7,), (0.5, 0.6, 0.8)[position - 1]

    knobs = DecodeKnobs(buffer_size=1, max_forwards=2)
    ((reply,),) = Engine(ScriptedModel(INFO, script)).generate([Prompt("p", [1])], [knobs])
    assert (reply.tokens, reply.trace.finish_reason) == ((), "max_forwards")
    assert (reply.trace.tokens_resolved, reply.trace.tokens_after_reply) == (2, 2)


def test_a_stop_string_ends_the_reply_and_is_cut_from_its_text():
    tokens = [4, 5, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    engine = Engine(ScriptedModel(INFO, say(tokens)), detokenize=letters)
    ((reply,),) = engine.generate([Prompt("p", [1])], [DecodeKnobs(stop_strings=("xx", "bcd"))])
    assert (reply.text, reply.tokens, reply.trace.finish_reason) == ("ef", (4, 5, 1, 2, 3), "stop_string")
    assert not reply.trace.end_token


def test_an_unusable_answer_stops_only_the_walkers_that_meet_it():
    """The second prompt holds a 9; its fast configuration meets the bad position, its slow one is capped before."""

    def script(position, visible, block_size):
        bad = 9 in visible[:2] and position >= 6
        return (7,), float("nan") if bad else 0.6

    fast = DecodeKnobs(accept_threshold=0.5, max_new_tokens=12, buffer_size=1)
    slow = DecodeKnobs(accept_threshold=0.9, max_new_tokens=12, buffer_size=1, max_forwards=1)
    prompts = [Prompt("good", [1, 2]), Prompt("bad", [9, 2])]
    (first, second), (third, fourth) = Engine(ScriptedModel(INFO, script), record=True).generate(prompts, [fast, slow])
    assert (first.trace.finish_reason, first.error) == ("length", None)
    assert (second.trace.finish_reason, second.tokens) == ("error", ())
    assert second.error == "prompt bad: position 6: logits are not finite; decoding stopped"
    assert second.trace.forwards == len(second.trace.records) == 3
    assert second.trace.zero_token_forwards == sum(not each.accepted for each in second.trace.records)
    assert not second.trace.records[-1].accepted
    assert second.trace.records[-1].masked > 0
    assert [third.error, fourth.error] == [None, None]


def test_a_bad_block_stops_only_those_that_look_at_it_although_it_spoils_its_whole_query():
    """In a network a masked position that is not finite spoils those before it too: so does this model."""

    class Spoilt(ScriptedModel):
        def forward(self, batch):
            answer = super().forward(batch)
            owners = np.repeat(np.arange(len(batch.run)), batch.run)
            answer.confidence[np.isin(owners, owners[np.isnan(answer.confidence).any(axis=1)])] = np.nan
            return answer

    def script(position, visible, block_size):
        return (7,), float("nan") if position >= 16 else 0.9 - position % 8 / 100

    knobs = [
        DecodeKnobs(buffer_size=1, accept_threshold=0.5, max_new_tokens=12),
        DecodeKnobs(buffer_size=3, accept_threshold=0.85, add_block_threshold=0.0, max_new_tokens=40),
    ]
    prompt = [Prompt("p", [1, 2])]
    (alone,), (far,) = Engine(Spoilt(INFO, script)).generate(prompt, knobs)
    assert (alone.error, alone.trace.finish_reason) == (None, "length")
    assert far.error == "prompt p: position 16: logits are not finite; decoding stopped"


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "prompt p: no tokens; at least one is needed"),
        ([1, 19], "prompt p: token 19 at position 1 is the mask"),
        ([20], "prompt p: token 20 at position 0 is outside the vocabulary of 20"),
        ([-1], "prompt p: token -1 at position 0 is outside the vocabulary of 20"),
        (
            [1] * 1020,
            "prompt p: its 1020 tokens and max_new_tokens 8 of configurations[0] need 1028 positions; "
            "the model has 1024",
        ),
    ],
)
def test_a_prompt_that_cannot_be_decoded_is_refused_by_name(tokens, message):
    engine = Engine(ScriptedModel(INFO, say([])))
    with pytest.raises(PromptError) as caught:
        engine.generate([Prompt("fine", [1]), Prompt("p", tokens)], [DecodeKnobs(max_new_tokens=8)])
    assert str(caught.value) == message
    assert not engine.busy


def test_knobs_that_this_engine_cannot_carry_out_are_refused():
    engine = Engine(ScriptedModel(INFO, say([])))
    with pytest.raises(KnobError) as caught:
        engine.submit(Prompt("p", [1]), [DecodeKnobs(stop_strings=("x",)), DecodeKnobs(stop_tokens=(3, 19, 20))])
    assert caught.value.problems == (
        "configurations[0] stop_strings: need an engine with a detokenize function",
        "configurations[1] stop_tokens: the model cannot propose [19, 20]",
    )
    with pytest.raises(KnobError, match="no configuration"):
        engine.submit(Prompt("p", [1]), [])
    with pytest.raises(KnobError, match="batch_size"):
        Engine(engine.model, batch_size=0)


def test_generate_does_not_take_the_replies_of_prompts_submitted_before():
    engine = Engine(HashModel(1))
    engine.submit(Prompt("p", [1]), [DecodeKnobs()])
    with pytest.raises(RuntimeError, match="not finished"):
        engine.generate([Prompt("q", [1])], [DecodeKnobs()])


def test_an_engine_whose_pages_another_one_has_overwritten_stops():
    model, knobs = HashModel(1), [DecodeKnobs(max_new_tokens=40)]
    first, second = Engine(model), Engine(model)
    first.submit(Prompt("p", [1]), knobs)
    first.step()
    ((reply,),) = second.generate([Prompt("q", [2])], knobs)
    with pytest.raises(RuntimeError, match="another engine decodes with this model now"):
        first.step()
    ((alone,),) = Engine(HashModel(1)).generate([Prompt("q", [2])], knobs)
    assert outcome(reply) == outcome(alone)
    gone = weakref.ref(model)
    del model, first, second
    gc.collect()
    assert gone() is None, "nothing keeps a model alive"


def test_what_is_remembered_of_configurations_does_not_grow():
    engine = Engine(HashModel(1))
    for number in range(200):
        knobs = [DecodeKnobs(accept_threshold=number / 200, max_new_tokens=4), DecodeKnobs(max_new_tokens=4)]
        assert len(engine.generate([Prompt("p", [1])], knobs)) == 2
    assert len(engine._planned) <= MOST_PLANS
    (lane,) = engine._lanes.values()
    assert len(lane._walkers._starts) <= MOST_STARTS


def test_effective_knobs_name_the_block_size_in_force():
    engine = Engine(HashModel(1, block_size=16))
    assert engine.effective(DecodeKnobs())["block_size"] == 16
    assert engine.effective(DecodeKnobs(block_size=4))["block_size"] == 4


ALTERNATIVES = {
    "block_size": 8,
    "buffer_size": 1,
    "schedule": "count",
    "accept_threshold": 0.4,
    "accept_count": 3,
    "denoising_steps": 2,
    "semi_complete_threshold": 0.2,
    "add_block_threshold": 0.9,
    "edit_threshold": 0.5,
    "max_post_edit_steps": 0,
    "max_new_tokens": 17,
    "max_forwards": 3,
    "temperature": 0.8,
    "top_p": 0.3,
    "top_k": 2,
    "seed": 1,
    "stop_tokens": (3, 4, 5),
    "stop_strings": ("a", "b"),
}


@pytest.mark.parametrize(
    "base",
    [
        {},
        {"buffer_size": 1},
        {"buffer_size": 1, "edit_threshold": 0.3},
        {"schedule": "count"},
        {"schedule": "steps", "denoising_steps": 3, "semi_complete_threshold": 0.5},
        {"temperature": 1},
    ],
)
@pytest.mark.parametrize("name", ALTERNATIVES)
def test_a_knob_changes_something_exactly_if_it_is_read(name, base):
    assert set(ALTERNATIVES) == {field.name for field in fields(DecodeKnobs)}
    knobs = DecodeKnobs(**({"max_new_tokens": 40, "block_size": 4} | base))
    if getattr(knobs, name) == ALTERNATIVES[name]:
        pytest.skip(f"{name} has this value already")
    if name == "edit_threshold" and knobs.buffer_size > 1:
        with pytest.raises(KnobError, match="edit_threshold"):
            replace(knobs, **{name: ALTERNATIVES[name]})
        return
    changed = replace(knobs, **{name: ALTERNATIVES[name]})
    if changed.temperature:
        pytest.importorskip("torch")
    engine = Engine(HashModel(3, 300), detokenize=letters)
    prompts = [Prompt(str(number), [number] * (number + 1)) for number in range(12)]
    row, other = engine.generate(prompts, [knobs, changed])
    differs = any(outcome(one) != outcome(two) for one, two in zip(row, other, strict=True))
    read = name in knobs.effective() or name in changed.effective()
    assert differs == read == (engine.effective(knobs) != engine.effective(changed))
