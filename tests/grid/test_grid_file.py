"""A grid file is read as it is meant, or every mistake of it is named with its line and key."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_redline.errors import GridError
from pytest_redline.grid import Grid, Serving
from pytest_redline.grid_file import load_grid
from pytest_redline.labels import label_of
from pytest_redline.paths import fixtures

BASE = """\
redline: 1
name: made
alpha: 0.1
source: {outcomes: runs.csv}
reference: ref
configurations:
  ref: {x: 1}
  cand: {x: 2}
"""
Load = Callable[..., Grid]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Read a grid from its text, or from BASE with parts replaced."""
    monkeypatch.chdir(tmp_path)

    def read(text: str | bytes = BASE, *swaps: tuple[str, str], **options: float) -> Grid:
        if isinstance(text, str):
            for old, new in swaps:
                assert old in text
                text = text.replace(old, new)
        Path("redline.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_grid(Path("redline.yaml"), **options)

    return read


@pytest.fixture
def problems(load: Load) -> Callable[..., list[str]]:
    """Every problem of a grid that has some."""

    def read(*arguments: object, **options: float) -> list[str]:
        with pytest.raises(GridError) as caught:
            load(*arguments, **options)
        return list(caught.value.problems)

    return read


def more(text: str) -> tuple[str, str]:
    """One more top-level key, on line 5."""
    return ("reference: ref", text + "\nreference: ref")


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


# -- Numbers and words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-1", 0.1),
        (".1", 0.1),
        ("1.", 1.0),
        ("+1", 1),
        ("0x1F", 31),
        ("0o17", 15),
        ("08", 8),
        ("-0", 0),
        ("1E3", 1000.0),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("0.1.2", "0.1.2"),
        ("2001-01-01", "2001-01-01"),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1e-1'", "1e-1"),
        ("!!str 2", "2"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(load, text, value):
    found = load(BASE, ("x: 1", "y: 1"), ("x: 2", f"x: {text}")).configurations[1].knobs["x"]
    assert found == value
    assert type(found) is type(value)


def test_case_13_in_its_own_words(problems):
    found = problems("alpha: 1e-1\ndelta: 0.1\nspeculative: no\nconfigs:\n  no: {threshold: 0.9}\n")
    assert "redline.yaml:4 configs: unknown key; did you mean configurations?" in found
    assert any(problem.startswith("redline.yaml:3 speculative: unknown key; allowed are alpha, ") for problem in found)
    assert not any(".yaml:1 alpha" in problem for problem in found)


def test_case_13_in_this_formats_words(load, problems):
    assert load(BASE, ("0.1", "1e-1")).alpha == 0.1
    (problem,) = problems(BASE, ("0.1", "1e-1"), ("cand:", "no:"))
    assert problem.startswith("redline.yaml:8 configurations.no: 'no' cannot name a configuration")


@pytest.mark.parametrize("value", ["'0.1'", "ten", "true", "[0.1]", "0.1%", "1,5"])
def test_alpha_that_is_no_number_is_one_line_that_names_alpha(problems, value):
    (problem,) = problems(BASE, ("alpha: 0.1", f"alpha: {value}"))
    assert re.fullmatch(r"redline\.yaml:3 alpha: found .*; a number is needed", problem)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0", "found 0; a number over 0.0 is needed"),
        ("-0.1", "found -0.1; a number over 0.0 is needed"),
        ("1", "found 1; a number under 1.0 is needed"),
        ("10", "found 10; a number under 1.0 is needed"),
        (".nan", "found nan; a finite number is needed"),
        (".inf", "found inf; a finite number is needed"),
        ("1e999", "found inf; a finite number is needed"),
        ("9" * 400, f"'{'9' * 40}' cannot be read (too large a number)"),
    ],
)
@pytest.mark.parametrize("key", ["alpha", "delta"])
def test_budget_out_of_range_is_one_problem(problems, key, value, text):
    swap = ("alpha: 0.1", f"alpha: {value}" if key == "alpha" else f"alpha: 0.1\ndelta: {value}")
    assert problems(BASE, swap) == [f"redline.yaml:{3 if key == 'alpha' else 4} {key}: {text}"]


def test_numbers_that_are_none_may_stand_nowhere(problems):
    assert problems(BASE, ("x: 2", "x: [1, .nan, {y: -.inf}]")) == [
        "redline.yaml:8 configurations.cand.x[1]: found nan; a finite number is needed",
        "redline.yaml:8 configurations.cand.x[2].y: found -inf; a finite number is needed",
    ]


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "0x" + "f" * 5000, "0o" + "7" * 5000])
@pytest.mark.parametrize("place", ["x: 2", "reference: ref"])
def test_integers_that_no_float_holds_are_refused_anywhere(problems, number, place):
    new = f"x: {number}" if place == "x: 2" else f"grid: {{accept_threshold: [{number}, 1]}}\nreference: ref"
    (problem,) = problems(BASE, (place, new))
    assert "cannot be read" in problem


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


# -- Closed schema ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("swap", "problem"),
    [
        (more("colour: red"), "5 colour: unknown key; allowed are alpha, clusters, configurations, cost,"),
        (more("serveing: cand"), "5 serveing: unknown key; did you mean serving?"),
        (("name: made", "nmae: made"), "2 nmae: unknown key; did you mean name?"),
        (more("cost: {measure: tokens_per_forward, bettr: higher}"), "5 cost.bettr: unknown key; did you mean better?"),
        (more("prompts: {file: p.csv, n: 5}"), "5 prompts.n: unknown key; allowed are file"),
        (more("groups: {by: g, alphas: {}}"), "5 groups.alphas: unknown key; did you mean alpha?"),
        (more("serving: {file: s.yaml, key: {x: x}}"), "5 serving.key: unknown key; did you mean keys?"),
        (("runs.csv", "{fil: runs.csv}"), "4 source.outcomes.fil: unknown key; did you mean file?"),
        (("runs.csv", "{file: r.csv, column: {}}"), "4 source.outcomes.column: unknown key; did you mean columns?"),
        (
            ("runs.csv", "{file: r.csv, columns: {correct: {column: c, threshhold: 1}}}"),
            "4 source.outcomes.columns.correct.threshhold: unknown key; did you mean threshold?",
        ),
        (
            ("runs.csv", "{file: r.csv, columns: {promt: id}}"),
            "4 source.outcomes.columns.promt: unknown key; did you mean prompt?",
        ),
        (
            ("runs.csv", "{file: r.csv, columns: {tokns: t}}"),
            "4 source.outcomes.columns.tokns: unknown key; did you mean tokens?",
        ),
        (("{outcomes:", "{outcome:"), "4 source.outcome: unknown key; did you mean outcomes?"),
        (("{outcomes: runs.csv}", "{logs: {}}"), "4 source.logs: source 'logs' is not part of this version"),
        (("{outcomes: runs.csv}", "{server: {}}"), "4 source.server: source 'server' is not part of this version"),
    ],
)
def test_unknown_key_is_an_error_with_a_suggestion(problems, swap, problem):
    assert any(found.startswith(f"redline.yaml:{problem}") for found in problems(BASE, swap))


@pytest.mark.parametrize("word", ["short", "map", "list", "text", "number", "<map>", "str"])
@pytest.mark.parametrize("place", ["cost: {%s: {a: 1}}", "serving: {%s: 1}", "prompts: {%s: 1}"])
def test_words_of_the_schema_itself_are_unknown_keys_like_others(problems, word, place):
    key = place.partition(":")[0]
    assert any(
        f"{key}.{word}: unknown key" in found.replace("<map>.<map>", "<map>")
        for found in problems(BASE, more(place % word))
    )
    if key == "cost":
        assert problems(BASE, ("runs.csv", f"{{{word}: {{foo: 1}}}}"))
        assert problems(BASE, ("runs.csv", f"{{file: r.csv, columns: {{correct: {{{word}: {{x: 1}}}}}}}}"))


@pytest.mark.parametrize("key", ["redline", "name", "source", "reference"])
def test_required_key_that_is_missing_is_one_problem(problems, key):
    text = "\n".join(line for line in BASE.splitlines() if not line.startswith(key))
    assert problems(text) == [f"redline.yaml:1 {key}: required key is missing"]


@pytest.mark.parametrize(
    ("swap", "problem"),
    [
        (("redline: 1", "redline: 2"), "1 redline: found 2; at most 1 is allowed"),
        (("redline: 1", "redline: true"), "1 redline: found True; the whole number 1 is allowed"),
        (("redline: 1", "redline: 1.0"), "1 redline: found 1.0; the whole number 1 is allowed"),
        (("redline: 1", "redline: '1'"), "1 redline: found '1'; the whole number 1 is allowed"),
        (("name: made", "name: a/b"), r"2 name: found 'a/b'; text that matches ^\w[\w.-]*$ is needed"),
        (("name: made", "name: 5"), "2 name: found 5; text is needed"),
        (("runs.csv", "5"), "4 source.outcomes: found 5; text is needed"),
        (("runs.csv", "''"), "4 source.outcomes: found ''; text that is not empty is needed"),
        (("{outcomes: runs.csv}", "runs.csv"), "4 source: found 'runs.csv'; a map is needed"),
        (("reference: ref", "reference: 7"), "5 reference: found 7; text is needed"),
        (("{x: 2}", "5"), "8 configurations.cand: found 5; a map is needed"),
        (("{x: 2}", "{x: 2, log: 5}"), "8 configurations.cand.log: found 5; text is needed"),
        (("{x: 2}", "{x: 2, cost: -3}"), "8 configurations.cand.cost: found -3; a number over 0.0 is needed"),
        (("{x: 2}", "{x: 2, cost: 0}"), "8 configurations.cand.cost: found 0; a number over 0.0 is needed"),
        (
            ("{x: 2}", "{x: 2, cost: fast}"),
            "8 configurations.cand.cost: found 'fast'; a number over 0, or unknown, is needed",
        ),
        (more("cost: [a]"), "5 cost: found ['a']; a name or a map is needed"),
        (more("grid: {x: []}"), "5 grid.x: found []; at least one is needed"),
        (more("grid: {x: 5}"), "5 grid.x: found 5; a list is needed"),
        (more("grid: {x: [[1]]}"), "5 grid.x[0]: found [1]; text, a number, true, false or null is needed"),
        (more("grid: {x: [1, {a: 2}]}"), "5 grid.x[1]: found {'a': 2}; text, a number, true, false or null is needed"),
        (more("groups: {by: g, alpha: {hard: 0}}"), "5 groups.alpha.hard: found 0; a number over 0.0 is needed"),
        (more("groups: {by: g, alpha: {hard: 1}}"), "5 groups.alpha.hard: found 1; a number under 1.0 is needed"),
        (more("groups: {alpha: {hard: 0.1}}"), "5 groups.by: required key is missing"),
        (more("prompts: {}"), "5 prompts.file: required key is missing"),
        (more("serving: ''"), "5 serving: found ''; text that is not empty is needed"),
        (more("serving: {file: s.yaml}"), "5 serving.keys: required key is missing"),
        (
            ("runs.csv", "{file: r.csv, sha256: abc}"),
            "4 source.outcomes.sha256: found 'abc'; text that matches ^[0-9a-f]{64}$ is needed",
        ),
    ],
)
def test_value_of_the_wrong_kind_is_one_problem_that_says_what_is_needed(problems, swap, problem):
    assert problems(BASE, swap) == [f"redline.yaml:{problem}"]


def test_all_mistakes_of_a_file_come_in_one_go_in_the_order_of_its_lines(problems):
    found = problems(
        """\
redline: 2
nam: x
name: ""
alpha: "0.1"
delta: 1.5
cost: {measur: tokens, better: up}
prompts: {}
source: {outcomes: {file: 5, colums: {}, sha256: zz}, logs: {}}
reference: 7
configurations:
  on: {x: 1}
  1: {x: 2}
  a b: {x: 4}
  dup: {x: 5}
  dup: {x: 6}
  same1: {x: 9}
  same2: {x: 9.0}
grid: {x: []}
serving: {file: a.yaml}
groups: {by: g, alpha: {hard: 2}}
"""
    )
    where = [re.match(r"redline\.yaml:(\d+) ([^:]+): ", problem).groups() for problem in found]
    assert [int(line) for line, _ in where] == sorted(int(line) for line, _ in where)
    assert where == [
        ("1", "redline"),
        ("2", "nam"),
        ("3", "name"),
        ("4", "alpha"),
        ("5", "delta"),
        ("6", "cost.measure"),
        ("6", "cost.better"),
        ("6", "cost.measur"),
        ("7", "prompts.file"),
        ("8", "source.outcomes.file"),
        ("8", "source.outcomes.sha256"),
        ("8", "source.outcomes.colums"),
        ("8", "source.logs"),
        ("9", "reference"),
        ("11", "configurations.on"),
        ("12", "configurations.1"),
        ("13", "configurations.a b"),
        ("15", "configurations.dup"),
        ("17", "configurations.same2"),
        ("18", "grid.x"),
        ("19", "serving.keys"),
        ("20", "groups.alpha.hard"),
    ]


# -- Keys and labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("swap", "problem"),
    [
        (("alpha: 0.1", "alpha: 0.1\nalpha: 0.2"), "4 alpha: doubled key; it already stands on line 3"),
        (("x: 2", "x: 2, x: 2"), "8 configurations.cand.x: doubled key; it already stands on line 8"),
        (
            ("cand: {x: 2}", "ref: {x: 2}\n  cand: {x: 2}"),
            "8 configurations.ref: doubled key; it already stands on line 7",
        ),
    ],
)
def test_doubled_key_is_an_error_that_names_both_lines(problems, swap, problem):
    assert problems(BASE, swap) == [f"redline.yaml:{problem}"]


@pytest.mark.parametrize("label", ["no", "No", "NO", "yes", "on", "off", "Off", "y", "n", "'true'", "'NULL'"])
def test_label_that_yaml_readers_take_for_something_else_is_refused_by_name(problems, label):
    (problem,) = problems(BASE, ("cand:", f"{label}:"))
    bare = label.strip("'")
    assert problem.startswith(f"redline.yaml:8 configurations.{bare}: {bare!r} cannot name a configuration")


@pytest.mark.parametrize(
    ("label", "shown"), [("1", "1"), ("1.5", "1.5"), ("1e3", "1000.0"), ("true", "True"), ("~", "None"), ("0x10", "16")]
)
def test_label_that_is_read_as_a_number_or_boolean_is_refused_as_one_problem(problems, label, shown):
    assert problems(BASE, ("cand:", f"{label}:")) == [
        f"redline.yaml:8 configurations.{label}: the key '{label}' is read as {shown}, not as text; rename or quote it"
    ]


@pytest.mark.parametrize("label", ["'1'", "a+b.c_d-e/f", "acc85/semi70/add0.10", "été", "1:30x".replace(":", "-")])
def test_labels_of_letters_digits_and_a_few_signs_are_allowed(load, label):
    assert load(BASE, ("cand:", f"{label}:")).labels[1] == label.strip("'")


@pytest.mark.parametrize("label", ["a b", "'a::b'", "'a[1]'", "'a,b'", "''", "/a", "a/", "a//b", "'a\\b'", "'*'"])
def test_labels_that_no_test_id_can_hold_are_refused(problems, label):
    (problem,) = problems(BASE, ("cand:", f"{label}:"))
    assert "cannot name a configuration" in problem
    assert problem.startswith("redline.yaml:8 configurations.")


def test_key_that_is_a_list_or_a_map_is_refused(problems):
    assert any("a key must be plain text" in problem for problem in problems(BASE, ("cand:", "? [a]\n  :")))
    assert any("a key must be plain text" in problem for problem in problems(BASE, ("x: 2", "{y: 1}: 2")))


# -- Rows ---------------------------------------------------------------------------------------------------------

PRODUCT = more("grid: {accept_threshold: [0.80, 0.90], semi_complete_threshold: [0.50]}")


def test_product_is_labelled_by_its_knobs_in_the_order_of_its_values(load):
    grid = load(BASE, PRODUCT)
    assert grid.labels == ("ref", "cand", "acc80/semi50", "acc90/semi50")


@pytest.mark.parametrize(
    ("knobs", "label"),
    [
        (
            {"accept_threshold": 0.85, "semi_complete_threshold": 0.7, "add_block_threshold": 0.1},
            "acc85/semi70/add0.10",
        ),
        ({"accept_threshold": 0.855}, "acc85.5"),
        ({"accept_threshold": 1}, "acc100"),
        ({"accept_threshold": True}, "accept_threshold-true"),
        ({"add_block_threshold": 0.125}, "add0.125"),
        ({"buffer_size": 4, "block_size": 32}, "buf4/block32"),
        ({"checkpoint": "bundled:arithmetic", "weights": "int8"}, "arithmetic/int8"),
        ({"mode": "very fast!", "flag": False, "none": None}, "mode-very-fast/flag-false/none-null"),
        ({"temperature": 0.5}, "temperature0.5"),
    ],
)
def test_automatic_labels(knobs, label):
    assert label_of(knobs) == label


def test_reference_and_serving_may_name_rows_of_the_product(load):
    grid = load(BASE, PRODUCT, ("reference: ref", "reference: acc80/semi50\nserving: acc90/semi50"))
    assert (grid.reference, grid.required) == ("acc80/semi50", ("acc90/semi50",))


def test_same_label_with_the_same_knobs_is_one_row(load):
    grid = load(BASE, PRODUCT, ("cand: {x: 2}", "acc80/semi50: {semi_complete_threshold: 0.5, accept_threshold: 0.8}"))
    assert grid.labels == ("ref", "acc80/semi50", "acc90/semi50")


def test_same_label_with_other_knobs_is_an_error(problems):
    (problem,) = problems(
        BASE, PRODUCT, ("cand: {x: 2}", "acc80/semi50: {semi_complete_threshold: 0.6, accept_threshold: 0.8}")
    )
    assert problem.startswith(
        "redline.yaml:9 configurations.acc80/semi50: the grid makes the same label from other knobs"
    )


def test_values_of_a_product_that_share_a_label_are_an_error(problems):
    (problem,) = problems(BASE, more("grid: {accept_threshold: [0.8, 0.80000001]}"))
    assert "the grid makes the same label from other knobs" in problem


@pytest.mark.parametrize("other", ["{x: 1}", "{x: 1.0}", "{x: 0x1}"])
def test_two_labels_with_equal_knobs_are_an_error(problems, other):
    assert problems(BASE, ("{x: 2}", other)) == [
        "redline.yaml:8 configurations.cand: has the same knobs as 'ref'; keep one of the two"
    ]


@pytest.mark.parametrize("other", ["{x: true}", "{x: '1'}", "{x: [1]}", "{y: 1}", "{x: 1, y: null}", "{}"])
def test_knobs_that_only_look_alike_are_different(load, other):
    assert load(BASE, ("{x: 2}", other)).m == 2


def test_product_row_with_the_knobs_of_a_named_row_is_an_error(problems):
    (problem,) = problems(BASE, more("grid: {accept_threshold: [0.8]}"), ("{x: 2}", "{accept_threshold: 0.80}"))
    assert problem.endswith("has the same knobs as 'cand'; keep one of the two")


def test_value_that_stands_twice_in_a_product_is_an_error(problems, load):
    assert problems(BASE, more("grid: {accept_threshold: [0.8, 0.80]}")) == [
        "redline.yaml:5 grid.accept_threshold: value 0.8 stands twice"
    ]
    assert load(BASE, more("grid: {flag: [1, true]}")).m == 4


def test_product_of_a_billion_rows_is_refused_at_once(problems):
    knobs = ", ".join(f"k{number}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for number in range(9))
    start = time.monotonic()
    assert problems(BASE, more(f"grid: {{{knobs}}}")) == [
        "redline.yaml:5 grid: makes 1,000,000,000 configurations; at most 10,000 are allowed"
    ]
    assert time.monotonic() - start < 5


def test_product_value_that_makes_a_bad_label_is_an_error(problems):
    (problem,) = problems(BASE, more("grid: {checkpoint: ['no', x]}"))
    assert problem.startswith("redline.yaml:5 grid: 'no' cannot name a configuration")


def test_grid_without_a_candidate_is_an_error(problems):
    assert problems(BASE, ("  cand: {x: 2}\n", "")) == [
        "redline.yaml:6 configurations: no candidate beside the reference; a gate needs one to judge"
    ]


def test_unknown_reference_and_serving_are_errors_with_suggestions(problems):
    assert problems(BASE, ("reference: ref", "reference: reff\nserving: can")) == [
        "redline.yaml:5 reference: 'reff' is not a configuration of this grid; did you mean ref?",
        "redline.yaml:6 serving: 'can' is not a configuration of this grid; did you mean cand?",
    ]
    assert problems(BASE, ("reference: ref", "reference: zzz")) == [
        "redline.yaml:5 reference: 'zzz' is not a configuration of this grid; declared are ref, cand"
    ]


def test_serving_may_name_the_reference_and_then_nothing_is_required(load):
    grid = load(BASE, more("serving: ref"))
    assert (grid.serving, grid.required) == (Serving("ref"), ())


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


# -- YAML itself --------------------------------------------------------------------------------------------------


def test_merge_keys_and_aliases_are_written_out(load):
    grid = load(
        BASE,
        (
            "  cand: {x: 2}\n",
            "  cand: {<<: &d {x: 7, y: 8}, x: 2}\n  more: {<<: *d, z: 1}\n  list: {<<: [*d, {q: 1}]}\n",
        ),
    )
    assert [each.knobs for each in grid.configurations[1:]] == [
        {"x": 2, "y": 8},
        {"x": 7, "y": 8, "z": 1},
        {"x": 7, "y": 8, "q": 1},
    ]


@pytest.mark.parametrize(
    ("swap", "problem"),
    [
        (("{x: 2}", "{<<: 5, x: 2}"), "8 configurations.cand: '<<' takes a map or a list of maps"),
        (("x: 2", "x: &a [1, *a]"), "8 configurations.cand.x[1]: an alias that contains itself; write the value out"),
        (("x: 2", "x: &a {y: *a}"), "8 configurations.cand.x.y: an alias that contains itself; write the value out"),
        (("x: 2", "x: *nope"), "8: not YAML: found undefined alias 'nope'"),
        (("x: 2", "x: !foo 2"), "8 configurations.cand.x: tag '!foo' is not allowed; write plain values"),
        (("{x: 2}", "!foo {x: 2}"), "8 configurations.cand: tag '!foo' is not allowed; write plain values"),
        (("x: 2", "x: !foo [2]"), "8 configurations.cand.x: tag '!foo' is not allowed; write plain values"),
        (
            ("configurations:", "configurations: !foo"),
            "6 configurations: tag '!foo' is not allowed; write plain values",
        ),
        (("x: 2", "x: !!set {a, b}"), "8 configurations.cand.x: tag 'tag:yaml.org,2002:set' is not allowed"),
        (("x: 2", "x: !!binary aGk="), "8 configurations.cand.x: tag 'tag:yaml.org,2002:binary' is not allowed"),
        (("x: 2", "x: !!timestamp 2001-01-01"), "8 configurations.cand.x: tag 'tag:yaml.org,2002:timestamp' is not"),
        (("x: 2", "x: !!python/object/apply:os.system [x]"), "8 configurations.cand.x: tag 'tag:yaml.org,2002:python/"),
        (("x: 2", "x: !!int two"), "8 configurations.cand.x: 'two' cannot be read"),
        (("x: 2", "x: !!map two"), "8 configurations.cand.x: tag 'tag:yaml.org,2002:map' is not allowed"),
        (("redline: 1", "redline: !x 1"), "1 redline: tag '!x' is not allowed; write plain values"),
        (("x: 2", "x: [2"), "8: not YAML: "),
        (("reference: ref", "\treference: ref"), "5: not YAML: "),
        (("name: made", "name: ma\x07de"), "1: not YAML: "),
        (("x: 2", "x: " + "[" * 120 + "]" * 120), "8: not YAML: nested over 100 deep"),
        (("x: 2", "x: " + "{a: " * 120 + "1" + "}" * 120), "8: not YAML: nested over 100 deep"),
        (("x: 2", "x: " + "[" * 1000 + "]" * 1000), "1: not YAML: "),
    ],
)
def test_yaml_that_could_surprise_is_one_problem(problems, swap, problem):
    (found,) = problems(BASE, swap)
    assert found.startswith(f"redline.yaml:{problem}")


def test_nested_aliases_end_quickly_with_an_error(problems):
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + level)}: &{chr(98 + level)} [{','.join(['*' + chr(97 + level)] * 9)}]\n" for level in range(9)
    )
    start = time.monotonic()
    (problem,) = problems(bomb + BASE)
    assert "not YAML: over 200,000 values once aliases are written out" in problem
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + BASE.encode(),
        BASE.replace("\n", "\r\n").encode(),
        BASE.encode() + b"...\n",
        b"---\n" + BASE.encode(),
        b"%YAML 1.2\n---\n" + BASE.encode(),
        BASE.rstrip("\n").encode(),
    ],
    ids=["BOM", "CRLF", "document end", "document start", "directive", "no last newline"],
)
def test_harmless_dress_of_the_file_changes_nothing(load, content):
    grid = load(content)
    assert (grid.labels, grid.alpha) == (("ref", "cand"), 0.1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "1: found nothing; a grid file is a map of keys"),
        (b"# only this\n", "1: found nothing; a grid file is a map of keys"),
        (b"- a\n", "1: found a list; a grid file is a map of keys"),
        (b"hello", "1: found a str; a grid file is a map of keys"),
        (BASE.encode() + b"---\n" + BASE.encode(), "9: not YAML: but found another document"),
        (BASE.encode() + b"# \xe9", "1: not UTF-8 at byte 124; save the file as UTF-8"),
        (BASE.encode("utf-16"), "1: not UTF-8 at byte 0; save the file as UTF-8"),
    ],
)
def test_what_is_no_grid_file_is_one_problem(problems, content, problem):
    (found,) = problems(content)
    assert found.startswith(f"redline.yaml:{problem}")


def test_folder_and_missing_file_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, reason in [(tmp_path, "Is a directory"), (Path("none.yaml"), "No such file or directory")]:
        with pytest.raises(GridError, match=rf":1: cannot be read \({reason}\)"):
            load_grid(path)


def test_more_than_20_problems_are_counted_but_kept(problems, load):
    rows = "".join(f"  bad {number}: {{x: {number + 5}}}\n" for number in range(30))
    assert len(problems(BASE + rows)) == 30
    with pytest.raises(GridError, match="and 10 more of the kind"):
        load(BASE + rows)


# -- Anything at all ----------------------------------------------------------------------------------------------

RICH = """\
redline: 1
name: rich
population: &who made prompts
prompts: {file: prompts.jsonl}
alpha: 1e-1
delta: .1
cost: {measure: tokens/forwards, better: higher, pool: ratio_of_sums}
source:
  outcomes:
    file: runs.csv
    columns: {prompt: [a, b], correct: {column: c, threshold: 0.5}, config: d, tokens: t}
    sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
reference: ref
configurations:
  ref: &r {accept_threshold: 0.95, note: [1, {y: null}]}
  cand: {<<: *r, accept_threshold: 0.85}
  other:
    weights: int8
    cost: unknown
grid:
  accept_threshold: [0.80, 0.90]
  buffer_size: [2, 4]
serving: cand
groups: {by: kind, alpha: {hard: 0.15}}
"""
PIECES = [
    *RICH.splitlines(keepends=True),
    *"{}[]:,&*!|>'\"%@`#-?\n\t ~",
    "<<: *r",
    "!!set ",
    "!x ",
    ".nan",
    "0x",
    "1e9",
    "--- ",
]


def test_the_file_that_is_mutated_is_valid(load):
    assert load(RICH).m == 7


@given(st.integers(0, 2**32), st.integers(1, 4))
@settings(max_examples=250, deadline=None)
def test_any_mutation_of_a_grid_file_is_a_grid_or_a_grid_error(tmp_path_factory, seed, steps):
    chooser = random.Random(seed)
    text = RICH
    for _ in range(steps):
        lines = text.splitlines(keepends=True) or [""]
        line, place = chooser.randrange(len(lines)), chooser.randrange(len(text) + 1)
        kind = chooser.randrange(7)
        if kind == 0:
            del lines[line]
        elif kind == 1:
            lines.insert(chooser.randrange(len(lines) + 1), lines[line])
        elif kind == 2:
            lines[line] = chooser.choice(PIECES)
        elif kind == 3:
            lines[line] = re.sub(
                r":.*", ": " + chooser.choice(["", "5", "[]", "{}", "x", "{map: {a: 1}}", "~"]), lines[line]
            )
        if kind < 4:
            text = "".join(lines)
        elif kind == 4:
            text = text[:place] + chooser.choice(PIECES) + text[place:]
        elif kind == 5:
            text = text[:place] + text[place + chooser.randrange(1, 4) :]
        else:
            text = (
                text[:place]
                + chr(chooser.choice([0, 9, 0x85, 0xA0, 0xFEFF, 0x1F600, chooser.randrange(32, 127)]))
                + text[place:]
            )
    _loads_or_complains(tmp_path_factory, text.encode())


@given(st.binary(max_size=200))
@settings(max_examples=60, deadline=None)
def test_any_bytes_are_a_grid_error(tmp_path_factory, content):
    assert not _loads_or_complains(tmp_path_factory, content)


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.sampled_from(["ref", "map"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["file", "keys", "map", "str", "measure", "columns", "correct", "by", "alpha", "cost", "x"]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(["alpha", "cost", "source", "reference", "configurations", "grid", "serving", "groups", "prompts"]),
    VALUES,
)
@settings(max_examples=150, deadline=None)
def test_any_value_of_any_key_is_a_grid_or_a_grid_error(tmp_path_factory, key, value):
    import yaml

    data = {**yaml.safe_load(BASE), key: value}
    _loads_or_complains(tmp_path_factory, yaml.safe_dump(data, allow_unicode=True).encode())


def _loads_or_complains(tmp_path_factory, content: bytes) -> bool:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "fuzz.redline.yaml"
    path.write_bytes(content)
    problems: list[str] = []
    try:
        assert isinstance(load_grid(path), Grid)
    except GridError as error:
        problems += error.problems or ["no reason at all"]
    assert all(re.match(r".*fuzz\.redline\.yaml:\d+[ :]", problem) for problem in problems)
    return not problems
