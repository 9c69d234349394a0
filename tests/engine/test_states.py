"""States of prompts: what is one state, which blocks it runs, which pages they lie in, and its random numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redline_engine.config import Sampling
from redline_engine.models.base import NO_PAGE, Answer
from redline_engine.states import States, spoilt

MASK = 9
PROMPT = (1, 2, 3)  # with blocks of 2: one full block, and one shared with the reply


class Book:
    """One prompt's states, asked for by tokens."""

    def __init__(self, prompt=PROMPT, seed=None, edits=False, states=None, ticket=0):
        self.states = states or States(2, MASK)
        sampling = None if seed is None else Sampling(1.0, 1.0, 0, seed)
        self.book, self.trunk = self.states.open(ticket, np.array(prompt, np.int32), sampling, edits, 1)

    def path(self, *tokens):
        """Nodes of the blocks of a state, the root first."""
        path = self.trunk.tolist()
        for start in range(2 * len(path) - 2, len(tokens), 2):
            path += self.states.find(np.array(path[-1:]), np.array([tokens[start : start + 2]], np.int32)).tolist()
        return path

    def question(self, *states):
        """The question of a step about some states."""
        paths = [self.path(*tokens)[1:] for tokens in states]
        padded = np.zeros((len(paths), max(map(len, paths))), np.int64)
        for row, path in zip(padded, paths, strict=True):
            row[: len(path)] = path
        return self.states.ask(padded, np.array([len(path) for path in paths]))

    def ask(self, *states):
        """Pages, cached blocks and positions of each query of a step, which is answered with its positions."""
        question = self.question(*states)
        batch = question.batch
        positions = batch.cached.repeat(batch.run) + np.concatenate([np.arange(run) for run in batch.run])
        positions = 2 * positions[:, None] + np.arange(2)
        answer = Answer(positions.astype(np.int32), np.full(positions.shape, 0.5, np.float32))
        self.states.hear(question, answer, spoilt(question.batch, answer))
        ends = np.cumsum(batch.run)
        return [
            (
                tuple(page for page in pages.tolist() if page != NO_PAGE),
                cached,
                positions[end - run : end][batch.asked[end - run : end]].tolist(),
            )
            for pages, cached, end, run in zip(batch.pages, batch.cached.tolist(), ends, batch.run, strict=True)
        ]

    def heard(self, *tokens):
        """What was said in a state, masks only; None where it is not answered."""
        path = np.array(self.path(*tokens))
        if not self.states.answered(path[-1:])[0]:
            return None
        said = self.states.said(path[1:])[0].reshape(-1)
        return [int(each) for each, token in zip(said, tokens, strict=True) if token == MASK]

    def close(self):
        return self.states.leave(np.array([self.book])).tolist()


def test_equal_tokens_behind_equal_ones_are_one_node():
    here = Book()
    assert here.path(1, 2, 3, 4, MASK, MASK) == here.path(1, 2, 3, 4, MASK, MASK)
    longer, other = here.path(1, 2, 3, 4, MASK, 5), here.path(1, 2, 3, 5, MASK, 5)
    assert longer[:3] == here.path(1, 2, 3, 4)
    assert longer[-1] != other[-1]
    assert not set(Book(states=here.states).path(1, 2, 3, 4)) & set(longer), "another prompt's"


def test_a_state_is_new_once():
    here = Book()
    one, two = here.path(1, 2, 3, 4)[-1], here.path(1, 2, 3, MASK)[-1]
    assert here.states.visit(np.array([one, two, one])).tolist() == [0, 1]
    assert here.states.visit(np.array([two, here.path(1, 2, 5, MASK)[-1]])).tolist() == [1]


def test_a_state_without_a_masked_position_is_answered_at_once():
    assert Book().heard(1, 2, 3, MASK) is None
    assert Book().heard(1, 2, 3, 4) == []


def test_pages_are_shared_where_paths_agree_and_fork_where_they_part():
    here = Book()
    assert here.ask((1, 2, 3, MASK)) == [((0, 1), 0, [3])]
    assert here.ask((1, 2, 3, 4, MASK, MASK)) == [((0, 2, 3), 1, [4, 5])]
    assert here.ask((1, 2, 3, 4, MASK, 5)) == [((0, 2, 1), 2, [4])], "that of a state of two steps ago"
    assert here.ask((1, 2, 3, 5, MASK, MASK)) == [((0, 3, 4), 1, [4, 5])]
    assert here.ask((1, 2, 3, 5, 6, 7, MASK, MASK)) == [((0, 3, 1, 5), 2, [6, 7])]
    assert here.states.pages.in_use == 6
    assert here.close() == [here.book]
    assert here.states.pages.in_use == 0


def test_states_of_a_step_run_what_they_share_once():
    here = Book()
    states = [(1, 2, 3, MASK), (1, 2, 3, 4, MASK, MASK), (1, 2, 3, 4, MASK, 5), (1, 2, 3, MASK, MASK, MASK)]
    assert here.ask(*states) == [
        ((0, 1), 0, [3]),
        ((0, 2, 3), 1, [4, 5]),
        ((0, 2, 4), 2, [4]),
        ((0, 1, 5), 2, [4, 5]),
    ]
    assert here.ask((1, 2, 8, 8, 8, 8, MASK, 8)) == [((0, 6, 7, 8), 1, [6])], "two blocks at once"
    assert [here.heard(*tokens) for tokens in states] == [[3], [4, 5], [4], [3, 4, 5]]


def test_a_state_asked_about_by_others_of_its_step_asks_nothing():
    here = Book()
    assert here.ask((1, 2, 3, MASK, MASK, 5), (1, 2, 3, MASK)) == [((0, 1, 2), 0, [3, 4])]
    assert here.heard(1, 2, 3, MASK) == [3]
    assert here.ask((1, 2, 3, MASK, MASK, MASK, MASK, MASK)) == [((0, 1, 3, 4), 2, [4, 5, 6, 7])]
    assert here.heard(1, 2, 3, MASK, MASK, MASK, MASK, MASK) == [3, 4, 5, 6, 7]


def test_a_state_answered_by_others_in_an_earlier_step_asks_nothing_although_the_pages_are_gone():
    here = Book()
    here.ask((1, 2, 3, MASK, 5, MASK))
    for token in (2, 3):
        here.ask((1, 2, 3, 4, token, MASK))
    assert here.heard(1, 2, 3, MASK) == [3]


def test_pages_of_blocks_with_masks_are_given_back_after_a_step_without_use():
    here = Book()
    assert here.ask((1, 2, 3, MASK)) == [((0, 1), 0, [3])]
    assert here.ask((1, 2, 3, MASK, 5, MASK)) == [((0, 1, 2), 2, [5])]
    assert here.ask((1, 2, 3, MASK, 6, MASK)) == [((0, 1, 3), 2, [5])]
    assert here.ask((1, 2, 3, 4, 5, MASK)) == [((0, 2, 4), 1, [5])], "2 was not read in the third step"
    assert here.ask((1, 2, 3, 4, 6, MASK)) == [((0, 2, 3), 2, [5])], "2 is complete now and stays; 3 came back"
    (query,) = here.ask((1, 2, 3, MASK, 7, MASK))
    assert query[1:] == (1, [5]), "run again, not asked again"
    assert here.states.pages.in_use == 5
    here.close()
    assert here.states.pages.in_use == 0


def test_a_step_about_one_prompt_gives_back_no_page_of_another():
    here = Book()
    other = Book(states=here.states, ticket=1)
    assert here.ask((1, 2, 3, MASK)) == [((0, 1), 0, [3])]
    for token in range(4):
        other.ask((1, 2, 3, 4, token, MASK))
    ((pages, cached, _),) = here.ask((1, 2, 3, MASK, 5, MASK))
    assert (pages[:2], cached) == ((0, 1), 2)


def test_a_family_that_edits_asks_about_resolved_positions_of_the_last_block_only():
    here = Book(edits=True)
    assert here.ask((1, 2, 3, MASK)) == [((0, 1), 0, [3])]
    assert here.ask((1, 2, 3, 4, 5, MASK)) == [((0, 2, 3), 1, [4, 5])]
    assert here.ask((1, 2, 3, 4)) == [((0, 2), 1, [3])], "was run, not asked about"
    assert here.ask((1, 2, 3, 4, 5, 6)) == [((0, 2, 3), 2, [4, 5])]
    assert here.ask((1, 2, 3, 4, 5, 6, 7, MASK)) == [((0, 2, 3, 1), 3, [6, 7])]
    here.close()
    assert here.states.pages.in_use == 0


def test_a_block_that_is_run_for_one_state_is_asked_about_for_another():
    here = Book(edits=True)
    assert here.ask((1, 2, 3, 4, 5, MASK), (1, 2, 3, 4)) == [((0, 1, 2), 0, [3, 4, 5])]
    assert here.heard(1, 2, 3, 4) == []


@pytest.mark.parametrize("prompt", [[1], [1, 2], [1, 2, 3, 4]])
def test_a_prompt_of_any_length_is_kept_in_full_blocks(prompt):
    here, rest = Book(prompt), [5, MASK] if len(prompt) % 2 == 0 else [MASK]
    full = len(prompt) // 2
    assert here.ask((*prompt, *rest))[0][:2] == (tuple(range(full + 1)), 0)
    assert here.heard(*prompt, *rest) == [len(prompt) + len(rest) - 1]
    assert here.ask((*prompt, *rest[:-1], 5, MASK, MASK))[0][1] == full


def test_what_a_closed_book_took_is_used_again():
    states = States(2, MASK)
    for _ in range(20):
        books = [Book(states=states, ticket=ticket) for ticket in range(3)]
        for here in books:
            here.ask((1, 2, 3, MASK))
            assert here.heard(1, 2, 3, MASK) == [3], "nothing is remembered of others"
            here.ask((1, 2, 3, 4, MASK, MASK))
        for here in books:
            here.close()
    assert states.pages.in_use == 0
    assert len(states._nodes) <= 32


BLOCKS = st.lists(st.tuples(*[st.sampled_from([1, 2, 3, MASK])] * 2), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(asked=st.lists(BLOCKS, min_size=1, max_size=12))
def test_there_is_a_node_for_each_distinct_path_however_many_are_found_at_once(asked):
    here = Book([5])
    paths = [here.path(5, MASK, *(token for block in blocks for token in block)) for blocks in asked]
    parents, last = np.array([path[-2] for path in paths]), np.array([blocks[-1] for blocks in asked], np.int32)
    assert here.states.find(parents, last).tolist() == [path[-1] for path in paths]
    assert len(set(map(tuple, paths))) == len(set(map(tuple, asked)))

    new = (last - 1) % 8  # blocks that nobody has asked for, some of them several times
    found = here.states.find(parents, new)
    assert len(set(found.tolist())) == len(
        {(parent, *block) for parent, block in zip(parents.tolist(), new.tolist(), strict=True)}
    )
    assert here.states.find(parents, new).tolist() == found.tolist()


def uniforms(seed=1, prompt=PROMPT, tokens=(1, 2, 3, MASK, MASK, MASK), before=()):
    here = Book(prompt, seed)
    if before:
        here.ask(before)
    batch = here.question(tokens).batch
    return batch.uniforms[batch.asked].tolist()


def test_random_numbers_depend_on_seed_prompt_tokens_through_the_block_and_position_and_nothing_else():
    numbers = uniforms()
    assert numbers == uniforms() == uniforms(before=(1, 2, MASK, 4))
    assert all(0 <= number < 1 for number in numbers)
    assert uniforms(tokens=(1, 2, 3, MASK, MASK, 4))[0] == numbers[0], "what follows a block is not seen in it"
    others = [
        uniforms(seed=2),
        uniforms(prompt=[1, 2]),
        uniforms(tokens=(1, 2, 3, MASK, MASK, 4))[1:],
        uniforms(tokens=(1, 2, 3, 4, MASK, MASK)),
    ]
    every = [number for each in [numbers, *others] for number in each]
    assert len(set(every)) == len(every) == 12


def test_random_numbers_are_spread_evenly():
    numbers = np.concatenate([uniforms(seed=seed) for seed in range(400)])
    counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
    assert counts.sum() == 1200
    assert abs(counts - 120).max() < 5 * np.sqrt(120 * 0.9)


def test_greedy_states_have_none_and_families_are_told_apart():
    here = Book()
    drawn = Book(seed=4, states=here.states, ticket=1)
    assert not here.question((1, 2, 3, MASK)).batch.uniforms.any()
    batch = drawn.question((1, 2, 3, MASK)).batch
    assert batch.uniforms[batch.asked].all()
    assert [batch.samplings[kind] for kind in batch.kinds] == [Sampling(1.0, 1.0, 0, 4)]
