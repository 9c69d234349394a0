"""Final numbers of answers: the known faults of such graders, and what counts as equal."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_redline.grading import GRADERS
from pytest_redline.grading.math import expected_problem, final_number, is_right


@pytest.mark.parametrize(
    ("answer", "expected", "right"),
    [
        # lm-evaluation-harness 3214 and helm 4337: what stands around a number is no part of it
        ("That makes 72, all told.", "72", True),
        ("#### $29.00", "29", True),
        ("#### 29.", "29", True),
        ("The total is **29** dollars", "29", True),
        ("29.5", "29", False),
        # opencompass 2647: thousands separators inside a box
        (r"\boxed{9{,}500}", "9500", True),
        (r"\boxed{\$9,500}", "9500", True),
        (r"\boxed{9500.00}", "9500", True),
        (r"\boxed{9\,500}", "9500", True),
        (r"\boxed{9{,}500}", "500", False),
        # ms-swift 10147: braces inside a box
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", True),
        (r"\boxed{\frac{1}{3}}", r"\frac{1}{2}", False),
        (r"\boxed{2\frac{1}{2}}", "2.5", True),
        (r"\boxed{2\frac{1}{2}}", "21/2", False),
        (r"\boxed{-2 \dfrac{1}{2}}", "-5/2", True),
        (r"\boxed{1.5\frac{1}{2}}", "1.51/2", False),
        (r"so 5-\frac{1}{2}", "1/2", True),
        # the last marker counts, and nothing else of an answer that has one
        ("7+5=12. #### 12", "12", True),
        ("#### 3\n#### 4", "4", True),
        ("12 #### none", "12", False),
        ("7-5=2", "2", True),
        ("7-5", "5", True),
        ("it is -5", "-5", True),
        ("1,234,567", "1234567", True),
        ("12,34", "34", True),
        ("0.50", "1/2", True),
        (r"\boxed{x=5}", "5", True),
        (r"\boxed{5 apples}", "5", False),
        (r"first \boxed{1}, so \boxed{2}", "2", True),
        ("", "0", False),
        ("no number", "0", False),
        (", . -", "0", False),
        ("1/2\n/ 3", "1/2", True),
        ("7" * 5000, "7", False),
        (r"\boxed{\frac{1}{%s}}" % ("3" * 5000), "1/3", False),
        ("7 and then " + "1" * 5000, "7", False),
        # a model that does not stop
        ("7" + "\n" * 10**6, "7", True),
        (r"\boxed{" * 10**5, "7", False),
        (r"\boxed{7} " + "{" * 10**6, "7", True),
    ],
)
def test_answer(answer: str, expected: str, right: bool) -> None:
    assert is_right(answer, expected) is right


@pytest.mark.parametrize("expected", ["", "ten", "1 or 2", "x"])
def test_expected_answers_that_are_no_number_are_named(expected: str) -> None:
    problem = expected_problem(expected)
    assert problem is not None
    assert repr(expected) in problem


@given(st.fractions(max_denominator=1), st.text(alphabet="abc .,\n", max_size=20))
def test_a_whole_number_behind_the_marker_is_read_exactly(value: Fraction, before: str) -> None:
    assert final_number(f"{before}#### {value.numerator:,}") == value
    assert final_number(f"{before}#### {value.numerator}") == value


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_graded_the_same_twice(answer: str, expected: str) -> None:
    if expected_problem(expected) is None:
        assert is_right(answer, expected) is is_right(answer, expected)


def test_the_statement_names_the_version_of_the_grader() -> None:
    assert GRADERS["math"].stated == "math (version 1)"
