"""Every value of a grid file that is none, and every key that is unknown or missing, is named with its line and key."""

from __future__ import annotations

import re

import pytest
from grid_text import BASE, more

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
