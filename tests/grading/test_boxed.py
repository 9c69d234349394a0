"""Answers in a box: the last balanced one, numbers exactly, other answers as evened-out LaTeX."""

from __future__ import annotations

import doctest

import pytest

from pytest_redline.grading import GRADERS, boxed


@pytest.mark.parametrize(
    ("answer", "expected", "right"),
    [
        (r"so \boxed{72}.", "72", True),
        (r"first \boxed{71}, no: \boxed{72}", "72", True),
        (r"\boxed{71} then \boxed{7", "71", True),
        (r"\boxed{9{,}500}", "9,500", True),
        (r"\boxed{\$29.00}", "29", True),
        (r"\boxed{\dfrac{1}{2}}", "0.5", True),
        (r"\boxed{x = 5}", "5", True),
        ("#### Step 1\nAdd 3 and 4.\n\n#### Result\nIt is 7", "7", True),
        ("#### Step 1\nAdd 3 and 4: \\boxed{7}", "7", True),
        ("no number at all", "7", False),
        (r"\boxed{}", "7", False),
        (r"\boxed{(3, \frac{\pi}{2})}", r"\left( 3, \frac{\pi}{2} \right)", True),
        (r"\boxed{(3, \dfrac\pi2)}", r"(3,\frac{\pi}{2})", False),
        (r"\boxed{\text{Evelyn}}", "Evelyn", True),
        (r"\boxed{p - q}", "p-q", True),
        (r"\boxed{q - p}", "p-q", False),
        (r"p - q", "p-q", False),
        (r"\boxed{90^\circ}", "90", True),
        (r"\boxed{29\ \text{ cm}}", "29", True),
        (r"\boxed{50\%}", "50", True),
        (r"\boxed{\frac12 x}", r"\frac{1}{2}x", True),
        (r"\boxed{7}", "x", False),
        (r"\boxed{\boxed{7}}", "7", True),
        (r"\boxed{7} \fbox{8", "7", True),
        (r"\boxed{7}} }", "7", True),
        ("7" * 5000, "7", False),
        (r"\boxed{%s}" % ("7" * 5000), "7" * 5000, True),
        (r"\boxed{%s}" % ("7" * 5000), "7" * 4999, False),
        ("\n" * 10**6 + r"\boxed{" * 10**5, "x", False),
    ],
)
def test_verdicts(answer, expected, right):
    assert GRADERS["boxed"].right(answer, expected) is right


def test_an_expected_answer_needs_some_text():
    assert boxed.expected_problem(" $ $ ") == "' $ $ ' is empty"
    assert boxed.expected_problem(r"x+1") is None
    assert GRADERS["boxed"].stated == "boxed (version 1)"


def test_the_examples_come_out_as_printed():
    assert doctest.testmod(boxed).attempted > 0
    assert not doctest.testmod(boxed).failed
