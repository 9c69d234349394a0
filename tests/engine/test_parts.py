"""A batch in parts: what stays together, that all of it is computed, and what happens when a part fails."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from redline_engine.models.base import Query, batch_of  # noqa: E402
from redline_engine.models.parts import LEAST_ROWS, parts_of, run  # noqa: E402

B = 32


def batch(prompts, counts):
    """A query of each number of blocks, about the prompt of that number."""
    queries = [
        Query([0] * (B * count), range(100 * place, 100 * place + count), 0, [0], prompt)
        for place, (prompt, count) in enumerate(zip(prompts, counts, strict=True))
    ]
    return batch_of(B, queries)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    queries=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=60),
    most=st.integers(1, 5),
)
def test_parts_hold_every_query_once_and_those_of_a_prompt_together(queries, most):
    prompts, counts = map(np.array, zip(*queries, strict=True))
    order = np.random.default_rng(0).permutation(len(queries))
    parts = parts_of(batch(prompts, counts), order, most)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(queries)))
    assert 1 <= len(parts) <= max(1, min(most, counts.sum() * B // LEAST_ROWS))
    assert all((np.diff(np.argsort(order)[part]) > 0).all() for part in parts), "in the order given"
    owners = [set(prompts[part].tolist()) for part in parts]
    assert sum(map(len, owners)) == len(set(prompts.tolist()))


def test_parts_of_prompts_alike_are_equally_large():
    parts = parts_of(batch(range(64), [1] * 64), np.arange(64), 4)
    assert [len(part) for part in parts] == [16] * 4


def test_parts_run_on_threads_of_their_own_with_one_thread_for_each_operation():
    before = torch.get_num_threads()
    seen = []
    torch.set_num_threads(3)
    together = threading.Barrier(3, timeout=60)
    try:

        def compute(part):
            together.wait()
            seen.append((threading.get_ident(), torch.get_num_threads()))
            return int(part[0])

        assert run(compute, [np.array([number]) for number in range(3)], divide=True) == [0, 1, 2]
        assert len({thread for thread, _ in seen}) == 3
        assert {count for _, count in seen} == {1}
        assert torch.get_num_threads() == 3, "as it was"
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bad", [0, 1])
def test_what_a_part_raises_is_raised_once_all_have_ended(bad):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    ended = []
    try:

        def compute(part):
            if part[0] == bad:
                raise MemoryError("no room")
            ended.append(int(part[0]))

        with pytest.raises(MemoryError, match="no room"):
            run(compute, [np.array([0]), np.array([1])], divide=True)
        assert ended == [1 - bad]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("divide", "expected"), [(True, 3), (False, 1)])
def test_a_single_part_has_all_threads_for_each_operation_or_one(divide, expected):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        count = run(lambda part: torch.get_num_threads(), [np.array([0])], divide)
        assert count == [expected]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
