"""Labels and rows of a grid: what is one configuration, and what is refused because it could be two."""

from __future__ import annotations

import time

import pytest
from grid_text import BASE, more

from pytest_redline.grid import Serving
from pytest_redline.labels import label_of

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
