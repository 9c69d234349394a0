"""A grid file is read as it is meant: defaults, paths, budgets, costs and columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from grid_text import BASE, more

from pytest_redline.grid_file import load_grid
from pytest_redline.paths import fixtures

# -- What a valid file becomes ------------------------------------------------------------------------------------


def test_smallest_grid_has_the_documented_defaults(load, tmp_path):
    grid = load()
    assert (grid.name, grid.alpha, grid.delta, grid.reference, grid.m) == ("made", 0.1, 0.1, "ref", 2)
    assert [(each.label, each.knobs, each.line) for each in grid.configurations] == [
        ("ref", {"x": 1}, 7),
        ("cand", {"x": 2}, 8),
    ]
    assert grid.required == ("cand",)
    assert grid.source.file == Path("runs.csv")
    assert grid.cost.name == "tokens_per_forward"
    assert (grid.serving, grid.groups, grid.prompts) == (None, None, None)
    assert grid.notes == ("no population is named, so the promise speaks of whatever is behind runs.csv",)


def test_every_shipped_grid_is_valid():
    grids = sorted(fixtures().glob("grids/*.yaml"))
    assert grids
    for path in grids:
        assert load_grid(path).m > 1


def test_full_grid_is_read_as_it_is_meant(load):
    grid = load(
        """\
redline: 1
name: arithmetic
population: additions of two numbers
prompts: {file: prompts/arithmetic.jsonl}
alpha: 0.10
delta: 0.05
cost: {measure: seconds/calls, better: lower, pool: mean_of_ratios}
source:
  outcomes:
    file: runs.jsonl
    columns: {prompt: [task, id], correct: {column: score, threshold: 0.5}, config: run, seconds: timing.total}
reference: acc95/semi90
configurations:
  acc95/semi90: {accept_threshold: 0.95, semi_complete_threshold: 0.90}
  odd: {accept_threshold: 0.85, cost: unknown}
grid:
  accept_threshold: [0.80, 0.90]
  semi_complete_threshold: [0.50, 0.70]
serving: acc80/semi70
groups: {by: kind, alpha: {hard: 0.15}}
"""
    )
    assert grid.labels == ("acc95/semi90", "odd", "acc80/semi50", "acc80/semi70", "acc90/semi50", "acc90/semi70")
    assert grid.configurations[3].knobs == {"accept_threshold": 0.8, "semi_complete_threshold": 0.7}
    assert [each.cost_unknown for each in grid.configurations] == [False, True, False, False, False, False]
    assert grid.required == ("acc80/semi70",)
    assert grid.prompts == Path("prompts/arithmetic.jsonl")
    assert (grid.alpha, grid.delta) == (0.10, 0.05)
    assert (grid.cost.numerator, grid.cost.denominator, grid.cost.better) == ("seconds", "calls", "lower")
    assert (grid.cost.pool, grid.cost.declared) == ("mean_of_ratios", False)
    assert grid.source.columns.prompt == ("task", "id")
    assert (grid.source.columns.correct.path, grid.source.columns.correct.threshold) == ("score", 0.5)
    assert grid.source.columns.measures == {"seconds": "timing.total"}
    assert grid.source.columns.group == "kind"
    assert grid.groups.alpha == {"hard": 0.15}
    assert grid.population == "additions of two numbers"
    assert grid.grader == "recorded: score >= 0.5"


def test_paths_are_relative_to_the_grid_file_and_not_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("inner").mkdir()
    Path("inner/redline.yaml").write_text(BASE, encoding="utf-8")
    assert load_grid(Path("inner/redline.yaml")).source.file == Path("inner/runs.csv")


# -- alpha and delta: who wins ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["alpha", "delta"])
def test_option_wins_over_file_and_file_over_ini(load, name):
    without = ("alpha: 0.1\n", "alpha: 0.1\n" if name == "delta" else "")
    with_it = ("alpha: 0.1\n", f"{name}: 0.2\n" + ("alpha: 0.1\n" if name == "delta" else ""))
    option, ini = {name: 0.3}, {f"ini_{name}": 0.4}
    assert getattr(load(BASE, with_it, **option, **ini), name) == 0.3
    assert getattr(load(BASE, with_it, **ini), name) == 0.2
    assert getattr(load(BASE, without, **ini), name) == 0.4
    assert getattr(load(BASE, without, **option), name) == 0.3


def test_alpha_has_no_default_and_delta_has_the_papers(load, problems):
    assert problems(BASE, ("alpha: 0.1\n", "")) == [
        "redline.yaml:1 alpha: not declared; write it here, give --redline-alpha, or set the ini key redline_alpha"
    ]
    assert load().delta == 0.1


def test_option_that_replaces_the_files_value_is_noted_and_an_equal_one_is_not(load):
    assert load(BASE, alpha=0.2).notes[:-1] == (
        "alpha 0.2 of --redline-alpha replaces the 0.1 that the grid file declares",
    )
    assert load(BASE, alpha=0.1).notes[:-1] == ()
    assert load(BASE, delta=0.2).notes[:-1] == ()  # the file declares none


def test_option_leaves_budgets_of_groups_alone(load):
    grid = load(BASE, more("groups: {by: kind, alpha: {hard: 0.15}}"), alpha=0.3)
    assert (grid.alpha, grid.groups.alpha) == (0.3, {"hard": 0.15})


# -- Costs, columns, files ----------------------------------------------------------------------------------------


def test_declared_costs_need_no_columns(load):
    grid = load(BASE, ("{x: 1}", "{x: 1, cost: 4.4}"), ("{x: 2}", "{x: 2, cost: unknown}"))
    assert (grid.cost.declared, grid.cost.better, grid.cost.measures) == (True, "higher", ())
    assert [(each.cost, each.cost_unknown) for each in grid.configurations] == [(4.4, False), (None, True)]
    assert "cost" not in grid.configurations[0].knobs


@pytest.mark.parametrize(
    ("cost", "better"),
    [("seconds_per_prompt", "lower"), ("{measure: memory, better: lower}", "lower"), ("memory", "higher")],
)
def test_direction_of_declared_costs(load, cost, better):
    grid = load(BASE, ("{x: 1}", "{x: 1, cost: 4}"), ("{x: 2}", "{x: 2, cost: 5}"), more(f"cost: {cost}"))
    assert (grid.cost.better, grid.cost.declared) == (better, True)


def test_known_measures_imply_direction_and_pool(load):
    found = {
        name: load(BASE, more(f"cost: {name}")).cost
        for name in ("tokens_per_forward", "accepted_per_forward", "tokens_per_second", "seconds_per_prompt")
    }
    assert {name: (cost.better, cost.pool, cost.measures) for name, cost in found.items()} == {
        "tokens_per_forward": ("higher", "ratio_of_sums", ("tokens", "forwards")),
        "accepted_per_forward": ("higher", "mean_of_ratios", ("accepted", "forwards")),
        "tokens_per_second": ("higher", "ratio_of_sums", ("tokens", "seconds")),
        "seconds_per_prompt": ("lower", "ratio_of_sums", ("seconds",)),
    }
    assert load(BASE, more("cost: {measure: tokens_per_forward, pool: mean_of_ratios}")).cost.pool == "mean_of_ratios"
    assert load(BASE, more("cost: unknown")).cost is None


@pytest.mark.parametrize(
    ("swaps", "problem"),
    [
        ([("{x: 2}", "{x: 2, cost: 3}")], "7 configurations.ref: other configurations declare `cost:`; give a number"),
        (
            [("{x: 2}", "{x: 2, cost: 3}"), ("{x: 1}", "{x: 1, cost: unknown}")],
            "7 configurations.ref: other configurations declare `cost:`; give a number here too",
        ),
        (
            [("{x: 1}", "{x: 1, cost: 3}")],
            "8 configurations.cand: other configurations declare `cost:`; give a number, or unknown here too",
        ),
        ([("{x: 1}", "{x: 1, cost: unknown}")], "7 configurations.ref.cost: the reference's cost is what the others"),
        (
            [("{x: 2}", "{x: 2, cost: 3}"), more("cost: unknown")],
            "9 configurations.cand.cost: the grid says `cost: unknown`; remove one of the two",
        ),
        ([more("cost: tokens_per_foward")], "5 cost: 'tokens_per_foward' is not one of tokens_per_forward,"),
        (
            [more("cost: {measure: tokens_per_forward, better: lower}")],
            "5 cost.better: tokens_per_forward is better when higher",
        ),
        ([more("cost: {measure: 'a/', better: lower}")], "5 cost.measure: found 'a/'; write NAME or NAME/NAME"),
        ([more("cost: {measure: '/b', better: lower}")], "5 cost.measure: found '/b'; write NAME or NAME/NAME"),
        ([more("cost: {measure: x, better: up}")], "5 cost.better: found 'up'; 'higher' or 'lower' is allowed"),
        (
            [("runs.csv", "{file: r.csv, columns: {correct: {column: c, threshold: 1, equals: x}}}")],
            "4 source.outcomes.columns.correct: has both threshold and equals; keep one of the two",
        ),
        (
            [("{x: 2}", "{x: 2, log: a.csv}")],
            "8 configurations.cand.log: the source already names one file for all; remove one of the two",
        ),
        (
            [("runs.csv", "{}"), ("{x: 2}", "{x: 2, log: a.csv}")],
            "7 configurations.ref: other configurations have a `log:`; name one here too",
        ),
        ([("runs.csv", "{}")], "4 source.outcomes: no recording; name a `file:` here, or a `log:` in every"),
        (
            [
                ("runs.csv", "{sha256: " + "a" * 64 + "}"),
                ("{x: 1}", "{x: 1, log: a.csv}"),
                ("{x: 2}", "{x: 2, log: b.csv}"),
            ],
            "4 source.outcomes.sha256: goes with `file:`",
        ),
        (
            [("runs.csv", "{file: r.csv, columns: {group: other}}"), more("groups: {by: kind}")],
            "5 groups.by: found 'kind', but the columns name 'other' as the group",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_one_problem(problems, swaps, problem):
    (found,) = problems(BASE, *swaps)
    assert found.startswith(f"redline.yaml:{problem}")


def test_a_log_in_every_configuration_replaces_the_file(load):
    grid = load(BASE, ("runs.csv", "{}"), ("{x: 1}", "{x: 1, log: a.csv}"), ("{x: 2}", "{x: 2, log: b.csv}"))
    assert grid.source.file is None
    assert [each.log for each in grid.configurations] == [Path("a.csv"), Path("b.csv")]
    assert "log" not in grid.configurations[0].knobs


@pytest.mark.parametrize(
    ("correct", "grader"),
    [
        ("score", "recorded: score"),
        ("{column: score, threshold: 0.5}", "recorded: score >= 0.5"),
        ("{column: score, equals: C}", 'recorded: score == "C"'),
    ],
)
def test_grader_says_how_verdicts_are_read(load, correct, grader):
    assert load(BASE, ("runs.csv", f"{{file: r.csv, columns: {{correct: {correct}}}}}")).grader == grader
