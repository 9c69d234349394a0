"""The serving config file that a repository deploys is exactly one configuration of its grid, or an error says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_redline.errors import GridError
from pytest_redline.grid import Configuration
from pytest_redline.grid_file import load_grid
from pytest_redline.serving_file import _distances, match_serving_file

Match = Callable[..., tuple[str | None, list[str]]]
SLOW, FAST = {"accept": 0.95, "size": 4}, {"accept": 0.85, "size": 4}
KEYS = {"accept": "dllm.threshold", "size": "dllm.buffer"}


@pytest.fixture
def match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Match:
    monkeypatch.chdir(tmp_path)

    def run(
        content: str | bytes,
        keys: dict[str, str] | None = None,
        name: str = "serve.yaml",
        **rows: dict[str, Any],
    ) -> tuple[str | None, list[str]]:
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
        declared = rows or {"slow": SLOW, "fast": FAST}
        configurations = [Configuration(label, knobs, 1) for label, knobs in declared.items()]
        return match_serving_file(Path(name), KEYS if keys is None else keys, configurations)

    return run


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("serve.yaml", "dllm: {threshold: 0.85, buffer: 4}\nmodel: x\n"),
        ("serve.yml", "dllm:\n  threshold: .85\n  buffer: 4\n"),
        ("serve.conf", "dllm: {threshold: 0.85, buffer: 4}\n"),
        ("SERVE.YAML", "dllm: {threshold: 0.85, buffer: 4}\n"),
        ("serve.json", '{"dllm": {"threshold": 0.85, "buffer": 4}, "model": "x"}'),
        ("serve.toml", 'model = "x"\n[dllm]\nthreshold = 0.85\nbuffer = 4\n'),
        ("SERVE.TOML", "dllm.threshold = 0.85\ndllm.buffer = 4\n"),
        ("serve.JSON", '{"dllm": {"threshold": 85e-2, "buffer": 4}}'),
        ("serve.json", b'\xef\xbb\xbf{"dllm": {"threshold": 0.85, "buffer": 4}}'),
    ],
)
def test_yaml_json_and_toml_are_matched_by_their_mapped_keys(match, name, content):
    assert match(content, name=name) == ("fast", [])


@pytest.mark.parametrize("number", ["0.850", ".85", "8.5e-1", "+0.85", "0.8500000000000000"])
def test_spelling_of_a_number_does_not_matter(match, number):
    assert match(f"dllm: {{threshold: {number}, buffer: 4.0}}\n") == ("fast", [])


@pytest.mark.parametrize(
    ("value", "knob"), [("true", 1), ("1", True), ("'1'", 1), ("1", "1"), ("[true]", [1]), ("{a: 1}", {"a": True})]
)
def test_truth_text_and_number_are_not_the_same(match, value, knob):
    label, problems = match(f"key: {value}\n", {"x": "key"}, one={"x": knob}, two={"x": "other"})
    assert label is None
    assert "equals no configuration of this grid" in problems[0]


@pytest.mark.parametrize(
    ("value", "knob"),
    [("true", True), ("'1'", "1"), ("null", None), ("[1, 2.0]", [1.0, 2]), ("{a: {b: 1}}", {"a": {"b": 1.0}})],
)
def test_equal_values_of_every_kind_match(match, value, knob):
    assert match(f"key: {value}\n", {"x": "key"}, one={"x": knob}, two={"x": "other"}) == ("one", [])


@pytest.mark.parametrize(
    ("value", "knob"), [("[1]", [1, 2]), ("[2, 1]", [1, 2]), ("{a: 1}", {"a": 1, "b": 2}), ("no", False), ("on", True)]
)
def test_different_values_of_one_kind_do_not_match(match, value, knob):
    label, _ = match(f"key: {value}\n", {"x": "key"}, one={"x": knob}, two={"x": "other"})
    assert label is None


def test_exact_key_wins_over_its_dotted_reading(match):
    rows = {"flat": {"x": 1}, "nested": {"x": 2}}
    assert match("a.b: 1\na: {b: 1}\n", {"x": "a.b"}, **rows) == ("flat", [])
    assert match("a: {b: 2}\n", {"x": "a.b"}, **rows) == ("nested", [])
    assert match("a.b: {c: 2}\n", {"x": "a.b.c"}, **rows) == ("nested", [])
    assert match("a: {b.c: 2}\n", {"x": "a.b.c"}, **rows) == ("nested", [])
    assert match("a: 5\na.b: {c: 2}\n", {"x": "a.b.c"}, **rows) == ("nested", [])


@pytest.mark.parametrize(
    ("content", "key", "first", "second"),
    [
        ("a.b: 2\na: {b: 1}\n", "a.b", "2", "1"),
        ("a.b: {c: 1}\na: {b: {c: 2}}\n", "a.b.c", "1", "2"),
        ("a: {b.c: '1', b: {c: 1}}\n", "a.b.c", "'1'", "1"),
    ],
)
def test_key_with_two_different_values_is_a_problem(match, content, key, first, second):
    label, problems = match(content, {"x": key}, one={"x": 1}, two={"x": 2})
    assert label is None
    assert problems == [f"serve.yaml holds {key!r} twice: {first} and {second}; keep one of the two"]


@pytest.mark.parametrize(
    ("value", "old", "new"),
    [
        ("010", "8", "10"),
        ("0o17", "the text '0o17'", "15"),
        ("0b11", "3", "the text '0b11'"),
        ("1_000", "1000", "the text '1_000'"),
        ("1:30", "90", "the text '1:30'"),
        ("1e-1", "the text '1e-1'", "0.1"),
        ("1.5e3", "the text '1.5e3'", "1500.0"),
        ("yes", "True", "the text 'yes'"),
        ("off", "False", "the text 'off'"),
        ("[1, 010]", "[1, 8]", "[1, 10]"),
        ("2026-01-02", "datetime.date(2026, 1, 2)", "the text '2026-01-02'"),
    ],
)
def test_value_that_readers_of_yaml_disagree_on_is_a_problem(match, value, old, new):
    label, problems = match(f"key: {value}\nother: 010\n", {"x": "key"}, one={"x": 10}, two={"x": "yes"})
    assert label is None
    assert problems == [
        f"serve.yaml: 'key' is read as {old} by YAML 1.1 and as {new} by YAML 1.2; write it so that both agree"
    ]


def test_key_that_only_one_version_of_yaml_reads_as_text_is_a_problem(match):
    label, (problem,) = match("on: {size: 4}\n", {"size": "on.size"})
    assert label is None
    assert "'on.size' is read as none by YAML 1.1 and as 4 by YAML 1.2" in problem
    assert match("on: 1\nsize: 4\naccept: 0.85\n", {"size": "size", "accept": "accept"}) == ("fast", [])


@pytest.mark.parametrize("value", ["'010'", '"yes"', ".nan"])
def test_value_that_readers_of_yaml_agree_on_is_compared(match, value):
    _, (problem,) = match(f"key: {value}\n", {"x": "key"}, one={"x": 1}, two={"x": 2})
    assert "equals no configuration of this grid" in problem


def test_every_missing_key_is_named(match):
    assert match("dllm: {}\n") == (
        None,
        ["serve.yaml has no key 'dllm.threshold'", "serve.yaml has no key 'dllm.buffer'"],
    )
    assert match("[1]\n")[1][0] == "serve.yaml has no key 'dllm.threshold'"
    assert match("")[1][0] == "serve.yaml has no key 'dllm.threshold'"
    assert match("dllm: 5\n")[1][0] == "serve.yaml has no key 'dllm.threshold'"


def test_mapped_knob_that_no_configuration_has_is_an_error(match):
    label, problems = match("dllm: {threshold: 0.85, buffer: 4}\n", KEYS | {"acept": "dllm.threshold"})
    assert (label, problems) == (None, ["keys.acept: no configuration has the knob 'acept'"])


def test_file_that_equals_several_configurations_is_ambiguous(match):
    label, problems = match("dllm: {threshold: 0.85, buffer: 4}\n", {"size": "dllm.buffer"})
    assert label is None
    assert problems == ["serve.yaml equals slow and fast in all mapped keys; map a key that tells them apart"]


def test_file_that_equals_none_names_the_nearest_and_every_differing_key(match):
    rows = {"slow": SLOW, "fast": FAST, "bare": {"accept": 0.5}}
    assert match("dllm: {threshold: 0.86, buffer: 4}\n", **rows) == (
        None,
        [
            "serve.yaml equals no configuration of this grid, so nothing would judge what is deployed; nearest is "
            "fast: dllm.threshold is 0.86, fast has 0.85; declare the deployed values as a configuration, or deploy "
            "the values of one of: slow, fast, bare"
        ],
    )
    _, (problem,) = match("dllm: {threshold: 0.5, buffer: 9}\n", **rows)
    assert "nearest is bare: dllm.buffer is 9, bare has none;" in problem
    _, (problem,) = match("dllm: {threshold: 1, buffer: 9}\n", slow=SLOW, fast=FAST)
    assert "nearest is slow: dllm.threshold is 1, slow has 0.95; dllm.buffer is 9, slow has 4;" in problem


@pytest.mark.parametrize(
    ("value", "nearest"),
    [("0.81", "acc80"), ("0.9", "acc95"), ("0", "acc80"), ("7", "acc95"), ("none", "acc95"), ("'0.8'", "acc80")],
)
def test_nearest_in_numbers_is_named_where_as_many_keys_differ(match, value, nearest):
    rows = {"acc95": {"x": 0.95}, "acc80": {"x": 0.80}}
    _, (problem,) = match(f"key: {value}\n", {"x": "key"}, **rows)
    assert f"nearest is {nearest}: key is " in problem
    assert problem.endswith("; declare the deployed values as a configuration, or deploy one of: 0.95, 0.8")


def test_fewest_differing_keys_come_before_the_distance_in_numbers(match):
    rows = {"far": {"accept": 0.1, "size": 4}, "near": {"accept": 0.8, "size": 5}}
    _, (problem,) = match("dllm: {threshold: 0.81, buffer: 4}\n", **rows)
    assert "nearest is far: dllm.threshold is 0.81, far has 0.1;" in problem


@pytest.mark.parametrize(("left", "right"), [(10**400, 0.5), (float("inf"), 1), (1e308, -1e308), (True, 1), ("x", [1])])
def test_values_that_cannot_be_subtracted_are_as_far_apart_as_can_be(left, right):
    assert _distances(left, [right]) == _distances(right, [left]) == [2]


def test_distances_are_comparable_between_keys_of_any_scale():
    assert _distances(2, [1, 4, "3", 2, None]) == [0.5, 1, 0.5, 0, 2]
    assert _distances(2000, [1000, 4000, 2000.0]) == [0.5, 1, 0]
    assert _distances(5, [5]) == [0]


def test_text_that_looks_like_the_declared_number_is_called_text(match):
    _, (problem,) = match("key: '0.8'\n", {"x": "key"}, one={"x": 0.95}, two={"x": 0.8})
    assert "nearest is two: key is the text '0.8', two has 0.8;" in problem
    _, (problem,) = match("key: 0.8\n", {"x": "key"}, one={"x": "0.8"}, two={"x": "fast"})
    assert "nearest is one: key is 0.8, one has the text '0.8';" in problem


def test_declared_values_that_may_be_deployed_are_named_once(match):
    rows = {"a": {"x": 1}, "b": {"x": 2, "y": 0}, "c": {"x": 1, "y": 1}, "d": {"y": 1}}
    assert match("key: 5\n", {"x": "key"}, **rows)[1][0].endswith("or deploy one of: 1, 2")


def test_knob_that_a_configuration_does_not_set_never_equals_a_null_in_the_file(match):
    label, (problem,) = match("key: null\n", {"x": "key"}, one={"y": 1}, two={"x": 5})
    assert label is None
    assert "nearest is one: key is null, one has none;" in problem


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("serve.yaml", "a: [1"),
        ("serve.yaml", "a: 1\na: 2\n"),
        ("serve.yaml", "a: !include other.yaml\n"),
        ("serve.yaml", "a: 1\n---\na: 2\n"),
        ("serve.yaml", "a: 1\nday: 2026-13-45\n"),
        ("serve.yaml", "a: 1\nop: =\n"),
        ("serve.yaml", b"a: \xe9\n"),
        ("serve.yaml", "x: " + "[" * 1000),
        ("serve.json", "{"),
        ("serve.json", ""),
        ("serve.json", b'{"a": "\xe9"}'),
        ("serve.json", "[" * 100_000),
        ("serve.toml", "a = "),
        ("serve.toml", "a = 1\na = 2\n"),
        ("serve.toml", b'a = "\xe9"\n'),
    ],
)
def test_file_that_cannot_be_understood_is_one_problem(match, name, content):
    label, problems = match(content, {"x": "a"}, name=name, one={"x": 1}, two={"x": 2})
    assert label is None
    assert len(problems) == 1
    assert problems[0].startswith(f"{name} is not valid: ")
    assert "\n" not in problems[0]


def test_doubled_key_of_a_json_file_is_refused_as_in_yaml_and_toml(match):
    label, problems = match('{"a": 1, "a": 2}', {"x": "a"}, name="serve.json", one={"x": 1}, two={"x": 2})
    assert label is None
    assert problems == ["serve.json is not valid: doubled key 'a'"]


def test_missing_file_and_folder_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [Configuration("one", {"x": 1}, 1)]
    Path("folder").mkdir()
    assert match_serving_file(Path("gone.yaml"), {"x": "a"}, rows) == (
        None,
        ["gone.yaml cannot be read (No such file or directory)"],
    )
    assert match_serving_file(Path("folder"), {"x": "a"}, rows) == (None, ["folder cannot be read (Is a directory)"])


GRID = """\
redline: 1
name: made
alpha: 0.1
source: {outcomes: runs.csv}
reference: slow
configurations:
  slow: {accept: 0.95, size: 4}
  fast: {accept: 0.85, size: 4}
serving: {file: deploy/serve.yaml, keys: {accept: dllm.threshold, size: dllm.buffer}}
"""


def deploy(folder: Path, content: str) -> Path:
    (folder / "grids" / "deploy").mkdir(parents=True, exist_ok=True)
    (folder / "grids" / "deploy" / "serve.yaml").write_text(content, encoding="utf-8")
    (folder / "grids" / "redline.yaml").write_text(GRID, encoding="utf-8")
    return folder / "grids" / "redline.yaml"


def test_grid_follows_the_file_that_is_deployed(tmp_path):
    grid = load_grid(deploy(tmp_path, "dllm: {threshold: 0.85, buffer: 4}\n"))
    assert (grid.serving.label, grid.required) == ("fast", ("fast",))
    assert grid.serving.file == tmp_path / "grids" / "deploy" / "serve.yaml"
    assert grid.serving.keys == KEYS
    reference = load_grid(deploy(tmp_path, "dllm: {threshold: 0.95, buffer: 4}\n"))
    assert (reference.serving.label, reference.required) == ("slow", ())


def test_grid_with_an_undeclared_deployment_is_an_error_at_its_serving_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = deploy(tmp_path, "dllm: {threshold: 0.80, buffer: 4}\n")
    with pytest.raises(GridError) as caught:
        load_grid(path)
    (problem,) = caught.value.problems
    assert problem.startswith(
        "grids/redline.yaml:9 serving: grids/deploy/serve.yaml equals no configuration of this grid"
    )
    assert "dllm.threshold is 0.8, fast has 0.85" in problem
