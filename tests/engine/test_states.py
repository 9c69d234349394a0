"""States of a prompt: what is one state, which blocks it runs, which pages they lie in, and its random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from redline_engine.config import Sampling
from redline_engine.models.base import Answer
from redline_engine.states import PagePool, StateBook

MASK = 9
PROMPT = [1, 2, 3]  # with blocks of 2: one full block, and one shared with the reply


def book(pool=None, prompt=PROMPT, seed=None):
    sampling = None if seed is None else Sampling(1.0, 1.0, 0, seed)
    return StateBook(0, np.array(prompt, np.int32), 2, MASK, sampling, pool or PagePool(), 1)


def find(here, *tokens):
    return here.find(np.array(tokens, np.int32))


def ask(here, *tokens, step=0):
    """Pages, cached blocks and positions of a question, which is answered; None where nothing need be run."""
    question = here.ask(find(here, *tokens)[0], step)
    if question is None:
        return None
    query = question.query
    count = len(query.positions)
    question.hear(Answer(query.positions.astype(np.int32), np.full(count, 0.5, np.float32)))
    return query.pages, query.cached, query.positions.tolist()


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
    assert here.ask(state, 0).query.tokens.tolist() == [1, 2, 3, MASK]


def test_pages_are_shared_where_paths_agree_and_fork_where_they_part():
    pool = PagePool()
    here = book(pool)

    assert ask(here, 1, 2, 3, MASK) == ((0, 1), 0, [3])
    assert ask(here, 1, 2, 3, 4, MASK, MASK) == ((0, 2, 3), 1, [4, 5])
    assert ask(here, 1, 2, 3, 4, MASK, 5) == ((0, 2, 4), 2, [4])
    assert ask(here, 1, 2, 3, 5, MASK, MASK) == ((0, 5, 6), 1, [4, 5])
    assert ask(here, 1, 2, 3, 5, 6, 7, MASK, MASK) == ((0, 5, 7, 8), 2, [6, 7])
    assert ask(here, 1, 2, 3, 4, 6, 7, MASK, MASK) == ((0, 2, 9, 10), 2, [6, 7]), "equal blocks on other paths"
    assert ask(here, 1, 2, 8, 8, 8, 8, MASK, 8) == ((0, 11, 12, 13), 1, [6]), "two blocks at once"
    assert pool.in_use == 14
    here.close()
    assert pool.in_use == 0


def test_blocks_with_masks_are_run_once_for_all_states_that_begin_with_them():
    here = book()
    first = (1, 2, 3, MASK)
    assert ask(here, *first, MASK, MASK) == ((0, 1, 2), 0, [3, 4, 5])
    assert find(here, *first)[0].answer.tokens.tolist() == [3], "heard as part of the longer one"
    assert ask(here, *first, MASK, MASK, MASK, MASK) == ((0, 1, 2, 3), 3, [6, 7])
    longer, _ = find(here, *first, MASK, MASK, MASK, MASK)
    here.recall(longer)
    assert longer.answer.tokens.tolist() == [3, 4, 5, 6, 7]
    assert ask(here, *first, MASK, 5) == ((0, 1, 4), 2, [4])


def test_a_state_asked_about_by_others_of_its_step_asks_nothing():
    here = book()
    short, _ = find(here, 1, 2, 3, MASK)
    assert ask(here, 1, 2, 3, MASK, MASK, 5) == ((0, 1, 2), 0, [3, 4])
    assert short.answer is None
    assert here.ask(short, 0) is None
    here.recall(short)
    assert short.answer.tokens.tolist() == [3]


def test_a_state_answered_by_others_in_an_earlier_step_asks_nothing_although_the_pages_are_gone():
    here = book()
    late, _ = find(here, 1, 2, 3, MASK)
    ask(here, 1, 2, 3, MASK, 5, MASK, step=1)
    for step in (2, 3):
        ask(here, 1, 2, 3, 4, step, MASK, step=step)
    assert here.ask(late, 3) is None
    here.recall(late)
    assert late.answer.tokens.tolist() == [3]


def test_pages_of_blocks_with_masks_are_given_back_after_a_step_without_use():
    pool = PagePool()
    here = book(pool)
    assert ask(here, 1, 2, 3, MASK, step=1) == ((0, 1), 0, [3])
    assert ask(here, 1, 2, 3, MASK, 5, MASK, step=2) == ((0, 1, 2), 2, [5])
    assert ask(here, 1, 2, 3, MASK, 6, MASK, step=3) == ((0, 1, 3), 2, [5])
    assert ask(here, 1, 2, 3, 4, 5, MASK, step=4) == ((0, 2, 4), 1, [5]), "2 was not read in step 3"
    assert ask(here, 1, 2, 3, 4, 6, MASK, step=5) == ((0, 2, 3), 2, [5]), "2 is complete now and stays; 3 came back"
    assert ask(here, 1, 2, 3, MASK, 7, MASK, step=6) == ((0, 4, 1), 1, [5]), "run again, not asked again"
    assert pool.in_use == 5
    here.close()
    assert pool.in_use == 0


def test_a_family_that_edits_asks_about_resolved_positions_of_the_last_block_only():
    pool = PagePool()
    here = StateBook(0, np.array(PROMPT, np.int32), 2, MASK, None, pool, 1, edits=True)
    assert ask(here, 1, 2, 3, MASK, step=1) == ((0, 1), 0, [3])
    assert ask(here, 1, 2, 3, 4, 5, MASK, step=2) == ((0, 2, 3), 1, [4, 5])
    assert ask(here, 1, 2, 3, 4, step=3) == ((0, 2), 1, [3]), "was run, not asked about"
    assert ask(here, 1, 2, 3, 4, 5, 6, step=9) == ((0, 2, 3), 2, [4, 5])
    assert ask(here, 1, 2, 3, 4, 5, 6, 7, MASK, step=20) == ((0, 2, 3, 1), 3, [6, 7])
    here.close()
    assert pool.in_use == 0


@pytest.mark.parametrize("prompt", [[1], [1, 2], [1, 2, 3, 4]])
def test_a_prompt_of_any_length_is_kept_in_full_blocks(prompt):
    here, rest = book(prompt=prompt), [5, MASK] if len(prompt) % 2 == 0 else [MASK]
    full = len(prompt) // 2
    assert ask(here, *prompt, *rest)[:2] == (tuple(range(full + 1)), 0)
    assert ask(here, *prompt, *rest) is None
    assert ask(here, *prompt, *rest[:-1], 5, MASK, MASK)[1] == full


def test_pages_given_back_are_used_again():
    pool = PagePool()
    taken = [pool.take() for _ in range(3)]
    pool.give_back(taken[:2])
    assert sorted([pool.take(), pool.take(), pool.take()]) == [0, 1, 3]
    assert pool.in_use == 4


def test_positions_are_the_masked_ones():
    here = book()
    assert find(here, 1, 2, 3, MASK, MASK, 5)[0].positions.tolist() == [3, 4]


def uniforms(seed=1, prompt=PROMPT, tokens=(1, 2, 3, MASK, MASK, MASK), before=()):
    here = book(prompt=prompt, seed=seed)
    if before:
        ask(here, *before)
    return here.ask(find(here, *tokens)[0], 0).query.uniforms.tolist()


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


def test_greedy_states_have_none():
    here = book()
    assert here.ask(find(here, 1, 2, 3, MASK)[0], 0).query.uniforms.size == 0
