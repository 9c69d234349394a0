"""Plots: what stands in the SVG, where it is drawn, and what is refused."""

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_redline.report.plot import Series, line_plot

SVG = "{http://www.w3.org/2000/svg}"
AXES = {"title": "Speed", "x_label": "budget", "y_label": "gain, %"}
SIMPLE = [Series("one", [(0.05, 0.0), (0.10, 37.5)]), Series("two", [(0.05, 8.0), (0.20, 37.5)], step=True)]


def parsed(*args, **kwargs):
    return ElementTree.fromstring(line_plot(*args, **kwargs))


def texts(root):
    return [each.text for each in root.iter(f"{SVG}text")]


def lines(root):
    """The corners of each drawn series, legend samples aside."""
    found = []
    for path in root.iter(f"{SVG}path"):
        d = path.get("d")
        if path.get("stroke-width") == "2" and "h24" not in d:
            x = y = 0.0
            corners = []
            for command, numbers in re.findall(r"([MLHV])([-\d. ]+)", d):
                values = [float(value) for value in numbers.split()]
                x = values[0] if command != "V" else x
                y = values[-1] if command != "H" else y
                corners.append((x, y))
            found.append(corners)
    return found


def test_texts_axes_and_legend_are_there_and_nothing_comes_from_elsewhere():
    svg = line_plot(SIMPLE, description="Two selectors.", **AXES)
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert root[0].tag == f"{SVG}title"
    assert root[0].text == "Speed"
    assert root[1].text == "Two selectors. one: 0 at 0.05, 37.5 at 0.1. two: 8 at 0.05, 37.5 at 0.2."
    assert {"Speed", "budget", "gain, %", "one", "two", "0", "10", "20", "30", "40", "0.05", "0.2"} <= set(texts(root))
    assert not re.search(r"<script|<style|<image|<use|href|url\(|@|on\w+=", svg)
    assert svg.replace("http://www.w3.org/2000/svg", "").count("http") == 0


def test_a_line_rises_to_the_right_and_a_step_holds_its_value():
    straight, stepped = lines(parsed(SIMPLE, **AXES))
    (x0, y0), (x1, y1) = straight
    assert x0 < x1
    assert y0 > y1, "up is up"
    start, held, end = stepped
    assert start[1] == held[1]
    assert held[0] == end[0]
    assert end[1] == y1, "equal values are equally high"


def test_equal_ratios_are_equally_wide_on_a_logarithmic_axis():
    ((a, b, c),) = (
        [x for x, _ in corners]
        for corners in lines(parsed([Series("s", [(1, 0), (7, 1), (49, 2)])], log_x=True, **AXES))
    )
    assert b - a == pytest.approx(c - b, abs=0.2)


numbers = st.floats(-1e9, 1e9).filter(lambda value: value == 0 or abs(value) > 1e-9)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), st.booleans())
def test_everything_is_drawn_within_the_axes(points, log_x):
    points = sorted((abs(x) + 1 if log_x else x, y) for x, y in points)
    root = parsed([Series("s", points)], log_x=log_x, **AXES)
    ((*corners,),) = lines(root)
    assert len(corners) == len(points)
    assert all(72 <= x <= 736 and 48 <= y <= 344 for x, y in corners)
    assert 5 <= len(texts(root)) <= 30, "a few ticks, not hundreds"


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "a & b", "]]>", "\x00\x1b[31m", "\ud800", "‮txt"])
def test_any_text_can_be_shown(hostile):
    axes = {"title": hostile, "x_label": hostile, "y_label": hostile, "description": hostile}
    root = parsed([Series(hostile, [(0, 0), (1, 1)])], **axes)
    assert root.find(f"{SVG}script") is None
    assert len(set(texts(root))) > 3


def test_many_series_differ_in_colour_or_dashes_and_their_legend_is_flowed():
    root = parsed([Series(f"configuration {i}", [(0, i), (1, i)]) for i in range(20)], **AXES)
    strokes = [
        (path.get("stroke"), path.get("stroke-dasharray")) for path in root.iter(f"{SVG}path") if "h24" in path.get("d")
    ]
    assert len(set(strokes)) == 20
    height = float(root.get("height"))
    places = [
        (float(each.get("x")), float(each.get("y"))) for each in root.iter(f"{SVG}text") if "configuration" in each.text
    ]
    assert len({y for _, y in places}) > 3
    assert all(x < 736 and y < height for x, y in places)


def test_equal_arguments_give_equal_bytes():
    assert line_plot(SIMPLE, **AXES) == line_plot(SIMPLE, **AXES)


@pytest.mark.parametrize(
    ("series", "log_x", "found"),
    [
        ([], False, "series is empty"),
        ([Series("bare", [])], False, "bare: a series needs"),
        ([Series("odd", [(0, math.nan)])], False, "odd: .* finite"),
        ([Series("odd", [(math.inf, 1)])], False, "odd: .* finite"),
        ([Series("back", [(1, 1), (0, 1)])], False, "back: .* order"),
        ([Series("low", [(0, 1), (1, 1)])], True, "low: x=0 has no place"),
    ],
)
def test_what_cannot_be_drawn_is_refused(series, log_x, found):
    with pytest.raises(ValueError, match=found):
        line_plot(series, log_x=log_x, **AXES)
