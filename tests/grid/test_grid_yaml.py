"""YAML is read without surprises, and whatever a grid file holds, it is a grid or an error."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
from grid_text import BASE
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_redline.errors import GridError
from pytest_redline.grid import Grid
from pytest_redline.grid_file import load_grid

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
