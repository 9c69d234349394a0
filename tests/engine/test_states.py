"""States of a prompt: what is one state, which pages it reads and stores, and its random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from redline_engine.config import Sampling
from redline_engine.models.base import Store
from redline_engine.states import PagePool, StateBook

MASK = 9
PROMPT = [1, 2, 3]  # with blocks of 2: one full block, and one shared with the reply


def book(pool=None, prompt=PROMPT, seed=None):
    sampling = None if seed is None else Sampling(1.0, 1.0, 0, seed)
    return StateBook(0, np.array(prompt, np.int32), 2, MASK, sampling, pool or PagePool(), 1)


def find(here, *tokens):
    return here.find(np.array(tokens, np.int32))


def ask(here, *tokens):
    query = here.query(find(here, *tokens)[0])
    return query.pages, query.stores


def test_equal_tokens_are_one_state():
    here = book()
    state, new = find(here, 1, 2, 3, 4, MASK, MASK)
    assert new
    assert find(here, 1, 2, 3, 4, MASK, MASK) == (state, False)
    assert find(here, 1, 2, 3, 4, MASK, 5)[1]
    assert find(here, 1, 2, 3, 4)[1]


def test_a_state_without_a_masked_position_is_answered_at_once():
    assert find(book(), 1, 2, 3, MASK)[0].answer is None
    assert find(book(), 1, 2, 3, 4)[0].answer.tokens.size == 0


def test_a_state_keeps_its_tokens_when_the_walker_moves_on():
    here, moving = book(), np.array([1, 2, 3, MASK], np.int32)
    state, _ = here.find(moving)
    moving[3] = 4
    assert here.query(state).tokens.tolist() == [1, 2, 3, MASK]


def test_pages_are_shared_where_paths_agree_and_fork_where_they_part():
    pool = PagePool()
    here = book(pool)

    assert ask(here, 1, 2, 3, MASK) == ((), (Store(0, 0),))
    assert ask(here, 1, 2, 3, 4, MASK, MASK) == ((0,), (Store(1, 1),))
    assert ask(here, 1, 2, 3, 4, MASK, 5) == ((0, 1), ())
    assert ask(here, 1, 2, 3, 5, MASK, MASK) == ((0,), (Store(1, 2),))
    assert ask(here, 1, 2, 3, 5, 6, 7, MASK, MASK) == ((0, 2), (Store(2, 3),))
    assert ask(here, 1, 2, 3, 4, 6, 7, MASK, MASK) == ((0, 1), (Store(2, 4),)), "equal blocks on other paths"
    assert ask(here, 1, 2, 8, 8, 8, 8, MASK, 8) == ((0,), (Store(1, 5), Store(2, 6))), "two blocks at once"
    assert pool.in_use == 7
    here.close()
    assert (pool.in_use, pool.peak) == (0, 7)


def test_a_page_is_stored_by_the_first_query_and_read_by_the_next():
    here = book()
    assert ask(here, 1, 2, 3, 4, MASK, MASK) == ((), (Store(0, 0), Store(1, 1)))
    assert ask(here, 1, 2, 3, 4, MASK, 5) == ((0, 1), ())
    assert ask(here, 1, 2, 3, 4, 5, 6, MASK, 5) == ((0, 1), (Store(2, 2),))


@pytest.mark.parametrize("prompt", [[1], [1, 2], [1, 2, 3, 4]])
def test_a_prompt_of_any_length_is_stored_in_full_blocks(prompt):
    here, rest = book(prompt=prompt), [5, MASK] if len(prompt) % 2 == 0 else [MASK]
    full = len(prompt) // 2
    assert ask(here, *prompt, *rest) == ((), tuple(Store(block, block) for block in range(full)))
    assert ask(here, *prompt, *rest) == (tuple(range(full)), ())


def test_pages_given_back_are_used_again():
    pool = PagePool()
    taken = [pool.take() for _ in range(3)]
    pool.give_back(taken[:2])
    assert sorted([pool.take(), pool.take(), pool.take()]) == [0, 1, 3]
    assert pool.peak == 4


def test_positions_are_the_masked_ones():
    here = book()
    assert here.query(find(here, 1, 2, 3, MASK, MASK, 5)[0]).positions.tolist() == [3, 4]


def uniforms(seed=1, prompt=PROMPT, tokens=(1, 2, 3, MASK, MASK, MASK), before=()):
    here = book(prompt=prompt, seed=seed)
    if before:
        ask(here, *before)
    return here.query(find(here, *tokens)[0]).uniforms.tolist()


def test_random_numbers_depend_on_seed_prompt_state_and_position_and_nothing_else():
    numbers = uniforms()
    assert numbers == uniforms() == uniforms(before=(1, 2, MASK, 4))
    assert all(0 <= number < 1 for number in numbers)
    others = [
        uniforms(seed=2),
        uniforms(prompt=[1, 2]),
        uniforms(tokens=(1, 2, 3, MASK, MASK, 4)),
        uniforms(tokens=(1, 2, 3, MASK, MASK, MASK, 4, 4)),
    ]
    every = [number for each in [numbers, *others] for number in each]
    assert len(set(every)) == len(every) == 14


def test_random_numbers_are_spread_evenly():
    numbers = np.concatenate([uniforms(seed=seed) for seed in range(400)])
    counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
    assert counts.sum() == 1200
    assert abs(counts - 120).max() < 5 * np.sqrt(120 * 0.9)


def test_greedy_states_have_none():
    here = book()
    assert here.query(find(here, 1, 2, 3, MASK)[0]).uniforms.size == 0
