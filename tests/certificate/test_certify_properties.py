"""Verdicts against closed testing in fractions, and what may never turn one."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from made_outcomes import certified_labels, make_grid, make_outcomes

from pytest_redline.certificate import certify

VERDICTS = ("verdict", "certified", "k", "p", "level", "gained", "needed", "risk_upper", "risk_upper_simultaneous")


def verdicts(certificate):
    return {row.label: tuple(getattr(row, name) for name in VERDICTS) for row in certificate.configurations}


@st.composite
def small_grids(draw, most=4):
    """A grid and outcomes of 24 to 40 prompts, with groups or without, that is not refused."""
    m, n = draw(st.integers(2, most)), draw(st.integers(24, 40))
    labels = ["ref", *(f"c{number}" for number in range(1, m))]
    seed, rate = draw(st.integers(0, 2**32)), draw(st.sampled_from([0.02, 0.08, 0.15, 0.3]))
    rng = np.random.default_rng(seed)
    correct = rng.random((m, n)) >= rate
    correct[0] = rng.random(n) >= draw(st.sampled_from([0.0, 0.1]))
    groups = None
    if draw(st.booleans()):
        groups = ["a"] * (n // 2) + ["b"] * (n - n // 2)
    budgets = {"a": draw(st.sampled_from([0.4, 0.5]))} if groups else None
    grid = make_grid(
        labels,
        alpha=draw(st.sampled_from([0.2, 0.3, 0.35])),
        delta=draw(st.sampled_from([0.1, 0.3])),
        costs={label: 1.0 + number for number, label in enumerate(labels)},
        groups=budgets,
    )
    return grid, make_outcomes(dict(zip(labels, correct, strict=True)), groups=groups)


def tail(k: int, n: int, alpha: float) -> Fraction:
    exact = Fraction(alpha)
    return sum((comb(n, i) * exact**i * (1 - exact) ** (n - i) for i in range(k + 1)), Fraction(0))


def brute_force(grid, outcomes) -> set[str]:
    """Closed testing: a row is certified if Bonferroni rejects every set of rows that it is in. In fractions."""
    n = len(outcomes.prompts)
    everyone = range(n)
    budgets = [(everyone, grid.alpha)] + [
        ([i for i in everyone if outcomes.groups[i] == name], alpha)
        for name, alpha in (grid.groups.alpha if grid.groups else {}).items()
    ]
    right = {label: list(map(bool, row)) for label, row in zip(grid.labels, outcomes.correct, strict=True)}
    p = {
        label: max(
            tail(sum(right["ref"][i] and not right[label][i] for i in members), len(members), alpha)
            for members, alpha in budgets
        )
        for label in grid.labels
    }
    sets = [chosen for size in range(1, grid.m + 1) for chosen in itertools.combinations(grid.labels, size)]
    return {
        label
        for label in grid.labels
        if all(
            min(p[each] for each in chosen) <= Fraction(grid.delta) / len(chosen) for chosen in sets if label in chosen
        )
    }


@given(small_grids())
@settings(max_examples=100, deadline=None)
def test_verdicts_equal_closed_testing_in_fractions(case):
    grid, outcomes = case
    assert certified_labels(certify(grid, outcomes, intervals=False)) == brute_force(grid, outcomes)


@given(small_grids(), st.data())
@settings(max_examples=60, deadline=None)
def test_adding_a_violation_never_turns_fail_into_pass(case, data):
    grid, outcomes = case
    before = certified_labels(certify(grid, outcomes, intervals=False))
    row = data.draw(st.integers(1, grid.m - 1))
    both = np.flatnonzero(outcomes.correct[0] & outcomes.correct[row])
    if not len(both):
        return
    worse = outcomes.correct.copy()
    worse[row, data.draw(st.sampled_from(list(both)))] = False
    assert certified_labels(certify(grid, replace(outcomes, correct=worse), intervals=False)) <= before


@given(small_grids(), st.data())
@settings(max_examples=60, deadline=None)
def test_adding_a_configuration_never_turns_another_from_fail_to_pass(case, data):
    grid, outcomes = case
    keep = [0, *sorted(data.draw(st.sets(st.integers(1, grid.m - 1), min_size=1)))]
    labels = tuple(grid.labels[index] for index in keep)
    fewer = certify(
        replace(grid, configurations=tuple(grid.configurations[index] for index in keep)),
        replace(outcomes, configurations=labels, correct=outcomes.correct[keep]),
        intervals=False,
    )
    assert certified_labels(certify(grid, outcomes, intervals=False)) & set(labels) <= certified_labels(fewer)


@given(small_grids(), st.data())
@settings(max_examples=40, deadline=None)
def test_order_of_prompts_and_of_rows_changes_no_verdict(case, data):
    grid, outcomes = case
    before = certify(grid, outcomes, intervals=False)
    n, m = len(outcomes.prompts), grid.m
    prompts = np.array(data.draw(st.permutations(range(n))))
    shuffled = replace(
        outcomes,
        prompts=tuple(outcomes.prompts[index] for index in prompts),
        correct=outcomes.correct[:, prompts],
        groups=tuple(outcomes.groups[index] for index in prompts) if outcomes.groups else None,
    )
    after = certify(grid, shuffled, intervals=False)
    assert after.configurations == before.configurations
    assert (after.groups, after.frontier, after.deployed) == (before.groups, before.frontier, before.deployed)
    rows = data.draw(st.permutations(range(m)))
    turned = replace(
        outcomes,
        configurations=tuple(grid.labels[index] for index in rows),
        correct=outcomes.correct[list(rows)],
    )
    other = certify(
        replace(grid, configurations=tuple(grid.configurations[index] for index in rows)), turned, intervals=False
    )
    assert certified_labels(other) == certified_labels(before)
    assert other.deployed == before.deployed  # costs differ, so no tie is decided by order
    without_level = {label: values[:4] + values[5:] for label, values in verdicts(other).items()}
    assert without_level == {label: values[:4] + values[5:] for label, values in verdicts(before).items()}
