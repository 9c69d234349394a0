"""Configurations are compared prompt by prompt only where it is certain that the prompts are the same."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_redline.alignment import Records, Rows, align
from pytest_redline.errors import OutcomesError
from pytest_redline.outcomes import PromptList, natural_key, quoted, shown_id


def record(
    label: str,
    verdicts: Sequence[tuple[str, int]],
    notes: Mapping[str, list[str | None]] | None = None,
    measures: Mapping[str, list[float]] | None = None,
    outputs: Sequence[int] = (),
) -> Records:
    """One configuration whose rows stand on lines 2, 3, ... of LABEL.csv."""
    rows = Rows(
        f"{label}.csv", label, [p for p, _ in verdicts], array("q", range(2, len(verdicts) + 2)), **(notes or {})
    )
    columns = {name: array("d", values) for name, values in (measures or {}).items()}
    return Records(label, rows, bytearray(v for _, v in verdicts), columns, array("Q", outputs))


def refused(
    *records: Records, labels: Sequence[str] = ("ref", "cand"), prompts: PromptList | None = None
) -> tuple[str, ...]:
    with pytest.raises(OutcomesError) as caught:
        align(labels, records, prompts)
    return caught.value.problems


def test_rows_are_paired_by_id_and_prompts_stand_in_natural_order() -> None:
    ref = record("ref", [("q/10", 1), ("q/2", 0)], {"groups": ["hard", "easy"]}, {"tokens": [10, 2]}, [7, 8])
    cand = record(
        "cand", [("q/2", 1), ("q/10", 0)], {"groups": ["easy", "hard"]}, {"tokens": [3, 11], "extra": [1, 1]}, [8, 9]
    )
    outcomes = align(["ref", "cand"], [cand, ref])
    assert outcomes.configurations == ("ref", "cand")
    assert outcomes.prompts == ("q/2", "q/10")
    assert outcomes.correct.tolist() == [[False, True], [True, False]]
    assert {name: values.tolist() for name, values in outcomes.measures.items()} == {"tokens": [[2, 10], [3, 11]]}
    assert outcomes.groups == ("easy", "hard")
    assert outcomes.outputs is not None
    assert outcomes.outputs.tolist() == [[8, 7], [8, 9]]


def test_what_not_all_rows_know_is_left_out() -> None:
    outcomes = align(["ref", "cand"], [record("ref", [("a", 1)], outputs=[1]), record("cand", [("a", 1)])])
    assert (outcomes.outputs, outcomes.groups, dict(outcomes.measures)) == (None, None, {})


def test_a_row_that_holds_every_configuration_is_read_once_for_all() -> None:
    rows = Rows("wide.csv", None, ["b", "a", "b"], array("q", [2, 3, 4]))
    records = [Records(label, rows, bytearray([1, 0, 1])) for label in ("ref", "cand")]
    assert refused(*records, prompts=PromptList("p.csv", ("a", "b", "c"))) == (
        "wide.csv: prompt c has no outcome (2 of 6 rows missing); record it, or remove the prompt from p.csv "
        "and from every configuration",
        "wide.csv:4: prompt b has 2 rows (lines 2 and 4); allowed is one; keep one by a rule fixed beforehand, or give "
        "different prompts different ids; several generations of a prompt are `repeats: mean_loss` of columns.correct",
    )


@settings(deadline=None)
@given(st.data())
def test_the_order_of_rows_and_records_changes_nothing(data: st.DataObject) -> None:
    prompts = data.draw(st.lists(st.text(min_size=1), min_size=1, max_size=12, unique=True))
    labels = ["ref", "cand", "third"]
    verdicts = {label: [(p, data.draw(st.integers(0, 1))) for p in prompts] for label in labels}
    group = {p: data.draw(st.sampled_from(["x", "y"])) for p in prompts}

    def build(shuffled: bool) -> list[Records]:
        records = []
        for label in labels:
            rows = data.draw(st.permutations(verdicts[label])) if shuffled else verdicts[label]
            tokens = [float(len(p) + v) for p, v in rows]
            notes = {"groups": [group[p] for p, _ in rows], "texts": ["text " + p for p, _ in rows]}
            records.append(record(label, rows, notes, {"tokens": tokens}, [hash((p, v)) % 2**64 for p, v in rows]))
        return data.draw(st.permutations(records)) if shuffled else records

    one, other = align(labels, build(False)), align(labels, build(True))
    assert (one.configurations, one.prompts, one.groups) == (other.configurations, other.prompts, other.groups)
    assert np.array_equal(one.correct, other.correct)
    assert np.array_equal(one.measures["tokens"], other.measures["tokens"])
    assert one.outputs is not None
    assert other.outputs is not None
    assert np.array_equal(one.outputs, other.outputs)
    assert {p: bool(one.correct[0, i]) for i, p in enumerate(one.prompts)} == {p: bool(v) for p, v in verdicts["ref"]}


ALL = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 1)]
A, AB = [("a", 1)], [("a", 1), ("b", 1)]
LIST = PromptList("p.csv", ("a", "b"))

REFUSALS: dict[str, tuple[list[Records], PromptList | None, list[str]]] = {
    "a prompt missing": (
        [record("ref", AB), record("cand", A)],
        None,
        ["cand.csv: prompt b has no outcome for cand (1 of 4 rows missing); record it, or remove the prompt from"],
    ),
    "many missing": (
        [record("ref", ALL), record("cand", A)],
        None,
        ["cand.csv: prompts b, c, d and 2 more have no outcome for cand (5 of 12 rows missing)"],
    ),
    "a prompt of its own": (
        [record("ref", A), record("cand", AB)],
        None,
        ["ref.csv: prompt b has no outcome for ref (1 of 4 rows missing)"],
    ),
    "a listed prompt missing everywhere": ([record("ref", A), record("cand", A)], LIST, ["(2 of 4 rows missing)"]),
    "a listed prompt that all configurations lack": (
        [record("ref", A), record("cand", A)],
        LIST,
        [
            "ref.csv: prompt b has no outcome for ref (2 of 4 rows missing), likewise for cand; record it, or remove "
            "the prompt from p.csv and from every configuration"
        ],
    ),
    "a prompt that all configurations have and the list has not": (
        [record("ref", [*AB, ("c ", 1)]), record("cand", [("c ", 1), *AB])],
        LIST,
        ['ref.csv:4: prompt "c ", recorded for ref, is not in p.csv, likewise for cand; a recording has exactly its'],
    ),
    "a prompt twice in all configurations": (
        [record("ref", [*AB, ("a", 1)]), record("cand", [*A, *AB])],
        None,
        ["ref.csv:4: prompt a has 2 rows for ref (lines 2 and 4), likewise for cand; allowed is one"],
    ),
    "a prompt not on the list": (
        [record("ref", AB), record("cand", [("z", 1), ("a", 1), ("b", 0), ("y", 1)])],
        LIST,
        ["cand.csv:2: prompt z and 1 more, recorded for cand, is not in p.csv"],
    ),
    "a prompt twice": (
        [record("ref", AB), record("cand", [("a", 1), ("b", 1), ("a", 0)])],
        None,
        ["cand.csv:4: prompt a has 2 rows for cand (lines 2 and 4); allowed is one"],
    ),
    "a prompt many times": (
        [record("ref", A), record("cand", A * 12)],
        None,
        ["cand.csv:3: prompt a has 12 rows for cand (lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and more)"],
    ),
    "texts differ": (
        [record("ref", AB, {"texts": ["one", "two"]}), record("cand", AB, {"texts": ["one", "three"]})],
        None,
        ['cand.csv:3: prompt b has the text "three" here and "two" in ref.csv:3; one id stands for one text'],
    ),
    "the listed text differs": (
        [record("ref", A, {"texts": ["one"]}), record("cand", A)],
        PromptList("p.csv", ("a",), ("uno",)),
        ['ref.csv:2: prompt a has the text "one" here and "uno" in p.csv'],
    ),
    "hashes differ": (
        [record("ref", A, {"hashes": ["0f"]}), record("cand", A, {"hashes": ["1e"]})],
        None,
        ['cand.csv:2: prompt a has the hash "1e" here and "0f" in ref.csv:2'],
    ),
    "one text under two ids": (
        [record("ref", AB, {"texts": ["same", "same"]}), record("cand", AB)],
        None,
        ['prompts a and b have the same text "same"; a prompt counts once'],
    ),
    "one hash under two ids": (
        [record("ref", AB), record("cand", AB, {"hashes": ["0f", "0f"]})],
        None,
        ['prompts a and b have the same hash "0f"'],
    ),
    "one listed text under two ids": (
        [record("ref", AB), record("cand", AB)],
        PromptList("p.csv", ("a", "b"), ("same", "same")),
        ['prompts a and b have the same text "same"'],
    ),
    "groups differ": (
        [record("ref", A, {"groups": ["x"]}), record("cand", A, {"groups": ["y"]})],
        None,
        ['cand.csv:2: prompt a has the group "y" here and "x" in ref.csv:2'],
    ),
    "the listed group differs": (
        [record("ref", A, {"groups": ["x"]}), record("cand", A)],
        PromptList("p.csv", ("a",), None, ("y",)),
        ['ref.csv:2: prompt a has the group "x" here and "y" in p.csv'],
    ),
    "a group missing": (
        [record("ref", AB, {"groups": ["x", None]}), record("cand", AB)],
        None,
        ["prompt b has no group, while others do"],
    ),
    "no rows": ([record("ref", A), record("cand", [])], None, ["ref.csv: configuration cand has no rows"]),
    "no record": ([record("ref", A)], None, ["configuration cand has no rows; every configuration"]),
    "nothing at all": (
        [],
        None,
        ["configuration ref has no rows", "cand has no rows", "outcomes: there are no prompts"],
    ),
    "an empty list": ([record("ref", A), record("cand", A)], PromptList("p.csv", ()), ["p.csv: there are no prompts"]),
    "no number": (
        [record("ref", AB, measures={"tokens": [1, float("nan")]}), record("cand", AB, measures={"tokens": [-1, 0]})],
        None,
        ["ref.csv:3: tokens of ref is nan on prompt b", "cand.csv:2: tokens of cand is -1.0 on prompt a"],
    ),
    "no measurement": (
        [record("ref", A, measures={"tokens": [1e16]}), record("cand", A, measures={"tokens": [1e-300]})],
        None,
        ["tokens of ref is 1e+16", "tokens of cand is 1e-300", "allowed are 0 and numbers from 1e-15 to 1e+15"],
    ),
    "lines unknown": (
        [record("ref", A), Records("cand", Rows("server", "cand", ["a", "a"]), bytearray(2))],
        None,
        ["server: prompt a has 2 rows for cand; allowed is one"],
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_incomparable_outcomes_are_refused(refusal: str) -> None:
    records, prompts, parts = REFUSALS[refusal]
    text = "\n".join(refused(*records, prompts=prompts))
    assert [part for part in parts if part not in text] == [], text


@pytest.mark.parametrize(
    "records",
    [
        [record("ref", A), record("ref", A)],
        [record("ref", A), record("other", A)],
        [Records("ref", Rows("x", "ref", ["a", "b"]), bytearray(1))],
        [record("ref", AB, measures={"tokens": [1]})],
        [record("ref", AB, outputs=[1])],
    ],
)
def test_records_that_would_drop_or_repeat_something_are_a_fault_of_their_source(records: list[Records]) -> None:
    with pytest.raises(ValueError, match=r"records of|other lengths"):
        align(["ref", "cand"], records)


def test_what_many_configurations_share_is_one_problem() -> None:
    labels = ["ref", "a", "b", "c", "d", "e"]
    problems = refused(*[record(label, [*AB, ("z", 1)]) for label in labels], labels=labels, prompts=LIST)
    assert [problem.partition(";")[0] for problem in problems] == [
        "ref.csv:4: prompt z, recorded for ref, is not in p.csv, likewise for a, b, c and 2 more"
    ]
    gaps = [record("ref", AB), *[record(label, A) for label in labels[1:3]], *[record(each, ALL) for each in "cde"]]
    assert [problem.partition(" (")[0] for problem in refused(*gaps, labels=labels)] == [
        "ref.csv: prompts c, d, e and 1 more have no outcome for ref",
        "a.csv: prompts b, c, d and 2 more have no outcome for a",
    ]


def test_all_problems_are_named_at_once() -> None:
    ref = record("ref", AB, {"texts": ["one", "two"]})
    cand = record("cand", [("a", 1), ("a", 1)], {"texts": ["one", "uno"]})
    problems = refused(ref, cand, labels=["ref", "cand", "third"])
    assert [word for problem in problems for word in ("no rows", "no outcome", "2 rows", "uno") if word in problem] == [
        "no rows",
        "no outcome",
        "2 rows",
        "uno",
    ]


def test_swapped_ids_are_refused_as_two_texts_of_one_id() -> None:
    # lm-evaluation-harness#4084: by id alone, k would be computed between different questions.
    ref = record("ref", [("2", 1), ("5", 1)], {"texts": ["What is 2+2?", "What is 5+5?"]})
    cand = record("cand", [("5", 1), ("2", 1)], {"texts": ["What is 2+2?", "What is 5+5?"]})
    problems = refused(ref, cand)
    assert [
        'prompt 5 has the text "What is 2+2?"' in problems[0],
        'prompt 2 has the text "What is 5+5?"' in problems[1],
    ] == [
        True,
        True,
    ]


@settings(deadline=None)
@given(st.lists(st.text("0123456789ab/é²٣", max_size=6), unique=True), st.randoms())
def test_natural_order_is_total(ids: list[str], random: object) -> None:
    shuffled = ids.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert sorted(ids, key=natural_key) == sorted(shuffled, key=natural_key)


def test_natural_order_counts_digits_as_numbers() -> None:
    ids = ["r/1", "q/" + "9" * 5000, "q/100", "q/10", "q/2", "q/02", "q"]
    assert sorted(ids, key=natural_key) == ["q", "q/02", "q/2", "q/10", "q/100", "q/" + "9" * 5000, "r/1"]


def test_messages_stay_on_one_printable_line() -> None:
    assert shown_id("gsm8k/1") == "gsm8k/1"
    assert shown_id("a\nb") == '"a\\nb"'
    assert (shown_id("a "), shown_id("\xa0a"), shown_id("a b")) == ('"a "', '"\\xa0a"', "a b")
    assert quoted("a\u202eb\x85") == '"a\\u202eb\\x85"'
    assert len(shown_id("x" * 500)) == 60
    assert quoted("\ud800").isascii()
    assert [quoted(value) for value in (None, True, 0.5, "yes", [1])] == ["null", "true", "0.5", '"yes"', "[1]"]
