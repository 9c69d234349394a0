"""States of a prompt: what is one state, which pages it reads and stores, and its random numbers."""

from __future__ import annotations

import numpy as np

from redline_engine.config import Sampling
from redline_engine.models.base import Store
from redline_engine.states import PagePool, StateBook
from redline_engine.walker import Stance

MASK = 9
PROMPT = [1, 2, 3]  # with blocks of 2: one full block, and one shared with the reply


def book(pool=None, prompt=PROMPT, seed=None):
    sampling = None if seed is None else Sampling(1.0, 1.0, 0, seed)
    return StateBook(0, np.array(prompt, np.int32), 2, MASK, sampling, pool or PagePool(), 1)


def stance(tokens, cached, commit_end):
    return Stance(cached, commit_end, np.array(tokens, np.int32))


def test_equal_stances_are_one_state_and_cached_blocks_tell_them_apart():
    here = book()
    state, new = here.find(stance([1, 2, 3, 4, MASK, MASK], 1, 2))
    assert new
    assert here.find(stance([1, 2, 3, 4, MASK, MASK], 1, 2)) == (state, False)
    assert here.find(stance([1, 2, 3, 4, MASK, MASK], 2, 2))[1]
    assert here.find(stance([1, 2, 3, 4, MASK, 5], 1, 2))[1]
    assert here.find(stance([1, 2, 3, 4], 1, 2))[1]


def test_a_state_keeps_its_tokens_when_the_walker_moves_on():
    here, moving = book(), stance([1, 2, 3, MASK], 0, 1)
    state, _ = here.find(moving)
    moving.tokens[3] = 4
    assert here.query(state).tokens.tolist() == [1, 2, 3, MASK]


def test_pages_are_shared_where_paths_agree_and_fork_where_they_part():
    pool = PagePool()
    here = book(pool)

    def ask(tokens, cached, commit_end):
        query = here.query(here.find(stance(tokens, cached, commit_end))[0])
        return query.pages, query.stores

    assert ask([1, 2, 3, MASK], 0, 1) == ((), (Store(0, 0),))
    assert ask([1, 2, 3, 4, MASK, MASK], 1, 2) == ((0,), (Store(1, 1),))
    assert ask([1, 2, 3, 4, MASK, 5], 1, 2) == ((0,), ()), "the first to commit a block stores it"
    assert ask([1, 2, 3, 5, MASK, MASK], 1, 2) == ((0,), (Store(1, 2),))
    assert ask([1, 2, 3, 5, 6, 7, MASK, MASK], 2, 3) == ((0, 2), (Store(2, 3),))
    assert ask([1, 2, 3, 4, 6, 7, MASK, MASK], 2, 3) == ((0, 1), (Store(2, 4),)), "equal blocks on other paths"
    assert pool.in_use == 5
    here.close()
    assert (pool.in_use, pool.peak) == (0, 5)


def test_pages_given_back_are_used_again():
    pool = PagePool()
    taken = [pool.take() for _ in range(3)]
    pool.give_back(taken[:2])
    assert sorted([pool.take(), pool.take(), pool.take()]) == [0, 1, 3]
    assert pool.peak == 4


def test_positions_are_the_masked_ones():
    here = book()
    assert here.query(here.find(stance([1, 2, 3, MASK, MASK, 5], 0, 1))[0]).positions.tolist() == [3, 4]
    assert here.query(here.find(stance([1, 2, 3, 4], 1, 2))[0]).positions.tolist() == []


def uniforms(seed=1, prompt=PROMPT, tokens=(1, 2, 3, MASK, MASK, MASK), cached=0):
    here = book(prompt=prompt, seed=seed)
    if cached:
        here.query(here.find(stance(tokens, 0, cached))[0])
    return here.query(here.find(stance(tokens, cached, 1))[0]).uniforms.tolist()


def test_random_numbers_depend_on_seed_prompt_state_and_position_and_nothing_else():
    numbers = uniforms()
    assert numbers == uniforms()
    assert all(0 <= number < 1 for number in numbers)
    others = [
        uniforms(seed=2),
        uniforms(prompt=[1, 2]),
        uniforms(tokens=(1, 2, 3, MASK, MASK, 4)),
        uniforms(tokens=(1, 2, 3, MASK, MASK, MASK, 4, 4)),
        uniforms(cached=1),
    ]
    every = [number for each in [numbers, *others] for number in each]
    assert len(set(every)) == len(every) == 17


def test_random_numbers_are_spread_evenly():
    numbers = np.concatenate([uniforms(seed=seed) for seed in range(400)])
    counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
    assert counts.sum() == 1200
    assert abs(counts - 120).max() < 5 * np.sqrt(120 * 0.9)


def test_greedy_states_have_none():
    here = book()
    assert here.query(here.find(stance([1, 2, 3, MASK], 0, 1))[0]).uniforms.size == 0
