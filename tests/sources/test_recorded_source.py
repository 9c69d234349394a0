"""A recording is read as its columns are declared, or refused with the line and what to do."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Columns, CorrectColumn, RecordedSource
from pytest_redline.outcomes import PromptList
from pytest_redline.prompts import read_calibration_prompts, read_prompts
from pytest_redline.sources.recorded import Recorded, load_recorded
from pytest_redline.sources.values import as_id, as_number, lookup, output_hash, verdict_of

HEADER = "config,prompt,correct,tokens,forwards\n"
GOOD = HEADER + "ref,1,1,10,5\nref,2,1,20,10\ncand,2,0,20,4\ncand,1,1,10,2\n"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def jsonl(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def load(
    content: str | bytes,
    columns: Columns | None = None,
    name: str = "runs.csv",
    labels: Sequence[str] = ("ref", "cand"),
    measures: Sequence[str] = (),
    prompts: PromptList | None = None,
) -> Recorded:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return load_recorded(RecordedSource(Path(name), columns or Columns()), labels, {}, measures, prompts)


def load_logs(
    logs: Mapping[str, str], columns: Columns | None = None, labels: Sequence[str] = ("ref", "cand")
) -> Recorded:
    paths = {label: Path(f"{label}.jsonl") for label in logs}
    for label, content in logs.items():
        paths[label].write_text(content)
    return load_recorded(RecordedSource(None, columns or Columns()), labels, paths, ())


def load_logs_at(paths: Mapping[str, Path]) -> Recorded:
    return load_recorded(RecordedSource(None, Columns()), ["ref", "cand"], paths, ())


def refusal(*args: object, **kwargs: object) -> str:
    with pytest.raises(OutcomesError) as caught:
        load(*args, **kwargs)  # type: ignore[arg-type]
    return "\n".join(caught.value.problems)


def refusal_of_logs(*args: object, **kwargs: object) -> str:
    with pytest.raises(OutcomesError) as caught:
        load_logs(*args, **kwargs)  # type: ignore[arg-type]
    return "\n".join(caught.value.problems)


# Shapes


def test_long_one_row_for_each_configuration_and_prompt() -> None:
    recorded = load(GOOD, measures=["tokens", "forwards"])
    outcomes = recorded.outcomes
    assert outcomes.prompts == ("1", "2")
    assert outcomes.correct.tolist() == [[True, True], [True, False]]
    assert outcomes.measures["tokens"].tolist() == [[10, 20], [10, 20]]
    assert outcomes.measures["forwards"].tolist() == [[5, 10], [2, 4]]
    assert [name for name, _ in recorded.files] == ["runs.csv"]
    assert recorded.warnings == ()


def test_a_packed_recording_equals_the_plain_one_but_for_its_hash() -> None:
    plain, packed = load(GOOD), load(gzip.compress(GOOD.encode()), name="runs.csv.gz")
    assert plain.outcomes.correct.tolist() == packed.outcomes.correct.tolist()
    assert plain.files != packed.files


def test_one_file_for_each_configuration() -> None:
    ref = jsonl({"prompt": 1, "correct": True}, {"prompt": "2", "correct": 0})
    recorded = load_logs({"cand": jsonl({"prompt": 2, "correct": 1.0}, {"prompt": 1, "correct": 0.0}), "ref": ref})
    assert recorded.outcomes.correct.tolist() == [[True, False], [False, True]]
    assert [name for name, _ in recorded.files] == ["ref.jsonl", "cand.jsonl"]


def test_wide_one_row_for_all_configurations() -> None:
    columns = Columns(
        prompt=("id",),
        correct=CorrectColumn("{config}.ok"),
        output="{config}.text",
        measures={"tokens": "{config}.n.tokens"},
    )
    rows = [
        {
            "id": 1,
            "ref": {"ok": 1, "text": "x", "n": {"tokens": 3}},
            "cand": {"ok": 0, "text": "y", "n": {"tokens": 4}},
        },
        {
            "id": 0,
            "ref": {"ok": 1, "text": "x", "n": {"tokens": 5}},
            "cand": {"ok": 1, "text": "x", "n": {"tokens": 6}},
        },
    ]
    outcomes = load(jsonl(*rows), columns, "wide.jsonl", measures=["tokens"]).outcomes
    assert outcomes.prompts == ("0", "1")
    assert outcomes.correct.tolist() == [[True, True], [True, False]]
    assert outcomes.measures["tokens"].tolist() == [[5, 3], [6, 4]]
    assert outcomes.outputs is not None
    assert outcomes.outputs.tolist() == [[output_hash("x")] * 2, [output_hash("x"), output_hash("y")]]


def test_wide_as_csv_with_the_label_inside_the_column_name() -> None:
    columns = Columns(correct=CorrectColumn("{config}_ok"))
    outcomes = load("prompt,ref_ok,cand_ok\na,1,0\nb,true,FALSE\n", columns).outcomes
    assert outcomes.correct.tolist() == [[True, True], [False, False]]


def test_a_wide_recording_of_more_configurations_than_declared_is_warned_of() -> None:
    columns = Columns(correct=CorrectColumn("{config}.ok"))
    row = {"prompt": 1, "ref": {"ok": 1}, "cand": {"ok": 1}, "third": {"ok": 0}, "meta": {"ok": "?"}, "other": 1}
    assert ["third" in text and "meta" not in text for text in load(jsonl(row), columns, "w.jsonl").warnings] == [True]
    columns = Columns(correct=CorrectColumn("ok_{config}"))
    text = "prompt,ok_ref,ok_cand,ok_third,ok_text\na,1,1,0,fine\n"
    assert ["declare: third;" in warning for warning in load(text, columns).warnings] == [True]


@pytest.mark.parametrize("columns", ["prompt,ref.ok,cand.ok,third.ok", "prompt,ref.ok,cand.ok,third.x.ok"])
def test_a_wide_recording_with_dotted_columns_is_warned_of_too(columns: str) -> None:
    recorded = load(f"{columns}\na,1,1,0\n", Columns(correct=CorrectColumn("{config}.ok")))
    assert [f"declare: {columns.split(',')[3][:-3]};" in warning for warning in recorded.warnings] == [True]


OK = CorrectColumn("{config}.ok")


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        (Columns(measures={"tokens": "{config}.n"}), "columns.correct: 'correct' is the same column for every"),
        (Columns(correct=OK, measures={"tokens": "n"}), "columns.tokens: 'n' is the same column"),
        (Columns(correct=OK, output="text"), "columns.output: 'text' is the same column"),
        (Columns(correct=OK, prompt=("{config}.id",)), "columns.prompt[0]: '{config}.id' differs by configuration"),
        (Columns(correct=OK, group="{config}.g"), "columns.group: '{config}.g' differs by configuration"),
        (Columns(correct=OK, declared=frozenset(["config"])), "columns.config: a row that holds every configuration"),
    ],
)
def test_wide_columns_under_which_configurations_would_share_a_verdict_are_refused(columns: Columns, part: str) -> None:
    assert part in refusal(jsonl({"prompt": 1}), columns, "w.jsonl")


def test_a_cost_without_the_label_in_a_wide_recording_is_refused() -> None:
    columns = Columns(correct=CorrectColumn("{config}.ok"))
    row = {"prompt": 1, "ref": {"ok": 1}, "cand": {"ok": 1}, "tokens": 3}
    assert "columns.tokens: 'tokens' is the same column" in refusal(jsonl(row), columns, "w.jsonl", measures=["tokens"])


def test_a_usual_column_of_a_wide_recording_is_not_taken_for_that_of_every_configuration() -> None:
    row = {"prompt": 1, "ref": {"ok": 1}, "cand": {"ok": 1}, "tokens": 3, "forwards": 2, "output": "x", "group": "g"}
    outcomes = load(jsonl(row), Columns(correct=CorrectColumn("{config}.ok")), "w.jsonl").outcomes
    assert (dict(outcomes.measures), outcomes.outputs, outcomes.groups) == ({}, None, ("g",))
    text = "prompt,ref_ok,cand_ok,tokens,output\na,1,1,9,x\n"
    recorded = load(text, Columns(correct=CorrectColumn("{config}_ok")))
    assert (dict(recorded.outcomes.measures), recorded.outcomes.outputs, recorded.warnings) == ({}, None, ())
    columns = Columns(correct=CorrectColumn("{config}.ok"), output="{config}.text", measures={"tokens": "{config}.n"})
    row |= {"ref": {"ok": 1, "text": "y", "n": 5}, "cand": {"ok": 1, "text": "z", "n": 4}}
    outcomes = load(jsonl(row), columns, "w.jsonl").outcomes
    assert {name: values.tolist() for name, values in outcomes.measures.items()} == {"tokens": [[5], [4]]}
    assert outcomes.outputs is not None
    assert outcomes.outputs.tolist() == [[output_hash("y")], [output_hash("z")]]


# Column lookup


@pytest.mark.parametrize(
    ("row", "path", "value"),
    [
        ({"pass@1": 1}, "pass@1", 1),
        ({"timing": {"tokens_per_second": 4.5}}, "timing.tokens_per_second", 4.5),
        ({"175b_verification": {"is_correct": True}}, "175b_verification.is_correct", True),
        ({"a.b": 1, "a": {"b": 2}}, "a.b", 1),
        ({"a.b": {"c": 1}, "a": {"b.c": 2}}, "a.b.c", 1),
        ({"a.b": 5, "a": {"b": {"c": 2}}}, "a.b.c", 2),
        ({"acc0.85": {"ok": 1}}, "acc0.85.ok", 1),
        ({".a": 1}, ".a", 1),
    ],
)
def test_an_exact_key_wins_over_the_dotted_reading(row: dict[str, object], path: str, value: object) -> None:
    assert lookup(row, path) == value


def test_a_missing_column_is_named_with_those_there_are() -> None:
    text = refusal("config,prompt,corect\nref,1,1\ncand,1,1\n")
    assert 'runs.csv:2: no column "correct" (did you mean corect?), here and in 1 more row; ' in text
    assert 'columns here are "config", "prompt", "corect"; map columns.correct' in text
    assert 'no column "prompt"' in refusal("config,id,correct\nref,1,1\ncand,1,1\n")
    assert 'no column "config"' in refusal("run,prompt,correct\nref,1,1\ncand,1,1\n")
    assert "name one file per configuration with `log:`" in refusal("run,prompt,correct\nref,1,1\ncand,1,1\n")


def test_a_column_that_some_rows_lack_is_refused_by_the_first_such_line() -> None:
    rows = [{"config": c, "prompt": p, "correct": 1} for c in ("ref", "cand") for p in (1, 2)]
    del rows[2]["correct"]
    assert 'runs.jsonl:3: no column "correct"; columns here' in refusal(jsonl(*rows), name="runs.jsonl")


def test_several_columns_make_one_id() -> None:
    columns = Columns(prompt=("name", "kind"))
    text = "config,name,kind,correct\nref,x,1,1\nref,x,2,0\ncand,x,2,1\ncand,x,1,1\n"
    assert load(text, columns).outcomes.prompts == ("x/1", "x/2")
    text = refusal("config,name,kind,correct\nref,a/b,c,1\nref,a,b/c,0\ncand,a,b/c,1\ncand,a/b,c,1\n", columns)
    assert 'runs.csv:3: ["a", "b/c"] and ["a/b", "c"] would both be prompt a/b/c' in text


# Ids, labels and verdicts


@pytest.mark.parametrize("value", [True, None, 1.0, "", " ", "\t", [1], {"a": 1}, "\ud800"])
def test_what_is_no_id_is_refused(value: object) -> None:
    assert as_id(value) is None
    text = refusal(jsonl({"config": "ref", "prompt": value, "correct": 1}), name="runs.jsonl", labels=["ref"])
    assert "runs.jsonl:1 prompt: " in text
    assert "is no prompt id; allowed are texts that are not blank, and integers" in text


def test_integers_and_texts_are_ids() -> None:
    assert [as_id(value) for value in (0, 17, "x", " x", "é", "007")] == ["0", "17", "x", " x", "é", "007"]


def test_csv_ids_are_kept_as_text() -> None:
    text = "config,prompt,correct\nref,01,1\nref,1,1\nref,1.0,0\n"
    recorded = load(text, labels=["ref"])
    assert recorded.outcomes.prompts == ("01", "1", "1.0")
    assert [warning.partition(";")[0] for warning in recorded.warnings] == [
        'runs.csv: the ids "01" and "1" differ only in blanks, case, Unicode form or leading zeros'
    ]


def test_ids_that_look_like_one_prompt_are_warned_of_once() -> None:
    rows = [
        {"config": "ref", "prompt": p, "correct": 1} for p in ("q1", "q1 ", "Q1", "q01", "\uff511", "q2", "x.05", "x.5")
    ]
    (warning,) = load(jsonl(*rows), name="r.jsonl", labels=["ref"]).warnings
    assert warning.startswith(
        'r.jsonl: the ids "Q1" and "q01" differ only in blanks, case, Unicode form or leading zeros'
    )
    assert ", and 3 more likewise; a prompt counts once; if they stand for the same prompt, give it" in warning
    listed = PromptList("p.csv", tuple(str(row["prompt"]) for row in rows))
    assert load(jsonl(*rows), name="r.jsonl", labels=["ref"], prompts=listed).warnings[0].startswith("p.csv: the ids ")
    distinct = [
        {"config": "ref", "prompt": p, "correct": 1} for p in ("q1", "q10", "q100", "a b", "ab", "0", "00x", "v1.05")
    ]
    assert load(jsonl(*distinct), name="r.jsonl", labels=["ref"]).warnings == ()


NAN, INF = float("nan"), float("inf")
PLAIN = CorrectColumn("c")
HALF = CorrectColumn("c", threshold=0.5)
NEARLY_OK = ["ok", "Ok", " OK", "OK\t", "\uff2f\uff2b"]


@pytest.mark.parametrize(
    ("column", "textual", "right", "wrong", "neither"),
    [
        (PLAIN, False, [True, 1, 1.0], [False, 0, 0.0, -0.0], [None, "1", "true", 0.4, 2, -1, NAN, [], [1], {}, ""]),
        (
            PLAIN,
            True,
            ["1", "1.0", "true", "True", "TRUE"],
            ["0", "0.0", "false", "False", "FALSE"],
            ["", " ", "nan", "NaN", "0.4", "yes", "no", "2", "-1", "null", "None", " 1", "tRUE"],
        ),
        (HALF, False, [0.5, 1, 3.0], [0, 0.49, -1], [None, True, "0.7", NAN, INF, [], 10**400]),
        (HALF, True, ["0.5", "1", "3e2"], ["0", "0.49", "-1"], ["", "nan", "inf", "1e999", "yes", "True", "1_0", "٣"]),
        (CorrectColumn("c", threshold=0), False, [0, 0.0], [-0.1], [False]),
        (CorrectColumn("c", equals="OK"), False, ["OK"], ["x", 1, True], [None, "", " ", [], {}, NAN, *NEARLY_OK]),
        (CorrectColumn("c", equals="OK"), True, ["OK"], ["Exception", "1"], ["", " ", *NEARLY_OK]),
        (CorrectColumn("c", equals=1), False, [1, 1.0], [0, 2, "x", False], [None, True, "1", "1.0", "true"]),
        (
            CorrectColumn("c", equals=1),
            True,
            ["1", "1.0", "+1"],
            ["0", "2", "x"],
            ["", "1 ", " 1", "1\t", "true", "\uff11"],
        ),
        (CorrectColumn("c", equals=True), False, [True], [0, 2, False, "x"], [None, 1, 1.0, "true", "True "]),
        (
            CorrectColumn("c", equals=True),
            True,
            ["true", "True", "TRUE"],
            ["0", "false", "x"],
            ["", "1", "true ", " True", "tRUE"],
        ),
        (CorrectColumn("c", equals=False), True, ["false"], ["1", "true"], ["", "0", "false "]),
        (CorrectColumn("c", equals="1"), False, ["1"], ["0", 2], [1, True, "1.0", "01"]),
    ],
)
def test_verdicts(
    column: CorrectColumn, textual: bool, right: list[object], wrong: list[object], neither: list[object]
) -> None:
    judge = verdict_of(column, textual)
    assert [value for value in right if judge(value) is not True] == []
    assert [value for value in wrong if judge(value) is not False] == []
    assert [value for value in neither if judge(value) is not None] == []


@pytest.mark.parametrize("value", ["", "NaN", "0.4", "yes"])
def test_a_verdict_that_is_neither_right_nor_wrong_is_refused_by_line(value: str) -> None:
    text = refusal(f"config,prompt,correct\nref,1,1\ncand,1,{value}\n")
    assert f'runs.csv:3 correct: "{value}" is neither right nor wrong; allowed are true/false and 1/0' in text
    assert "threshold: NUMBER" in text


def test_a_verdict_that_cannot_be_compared_is_refused_by_line() -> None:
    text = "config,prompt,correct\nref,1,0.7\ncand,1,nan\n"
    assert 'runs.csv:3 correct: "nan" cannot be compared with the threshold 0.5' in refusal(
        text, Columns(correct=CorrectColumn("correct", threshold=0.5))
    )
    text = "config,prompt,correct\nref,1,OK\ncand,1,\n"
    assert 'runs.csv:3 correct: "" cannot be compared with "OK"' in refusal(
        text, Columns(correct=CorrectColumn("correct", equals="OK"))
    )


def test_another_spelling_of_what_is_right_is_refused_by_line() -> None:
    # Read as wrong where it is the reference's, it would take a violation away from every candidate.
    text = "config,prompt,correct\nref,1,OK\nref,2,ok\ncand,1,fail\ncand,2,OK \n"
    text = refusal(text, Columns(correct=CorrectColumn("correct", equals="OK")))
    assert [line.partition(";")[0] for line in text.splitlines()] == [
        'runs.csv:3 correct: "ok" is "OK" in another spelling',
        'runs.csv:5 correct: "OK " is "OK" in another spelling',
    ]
    row = {"config": "ref", "prompt": 1, "correct": "true"}
    columns = Columns(correct=CorrectColumn("correct", equals=True))
    assert '1 correct: "true" is true in another spelling' in refusal(jsonl(row), columns, "r.jsonl", labels=["ref"])


@pytest.mark.parametrize(
    ("rule", "part"),
    [
        (
            {"equals": "passed"},
            'is equal to "passed"; found are "Error", "OK"; when nothing is right nothing can be broken',
        ),
        ({"threshold": 50.0}, 'is at or over 50.0; found are "0.25", "0.75"'),
    ],
)
def test_a_rule_under_which_nothing_is_right_is_refused(rule: dict[str, object], part: str) -> None:
    one, other = ("OK", "Error") if "equals" in rule else ("0.75", "0.25")
    columns = Columns(correct=CorrectColumn("correct", **rule))  # type: ignore[arg-type]
    assert f"runs.csv: no value of 'correct' {part}" in refusal(
        f"config,prompt,correct\nref,1,{one}\ncand,1,{other}\n", columns
    )


def test_rows_of_undeclared_configurations_are_refused_with_counts_and_suggestions() -> None:
    text = refusal(GOOD + "candd,1,1,1,1\ncandd,2,1,1,1\nother,1,1,1,1\n")
    unknown = "is not a configuration of the grid"
    assert f'runs.csv:6 config: "candd" {unknown} (did you mean cand?), here and in 1 more row; ' in text
    assert f'runs.csv:8 config: "other" {unknown}; every configuration that was tried counts' in text


def test_a_declared_configuration_without_rows_is_refused() -> None:
    assert "runs.csv: configuration third has no rows" in refusal(GOOD, labels=["ref", "cand", "third"])


@pytest.mark.parametrize("value", [None, True, 0.5, "", [1]])
def test_what_is_no_label_is_refused(value: object) -> None:
    text = refusal(jsonl({"config": value, "prompt": 1, "correct": 1}), name="runs.jsonl", labels=["ref"])
    assert "runs.jsonl:1 config: " in text
    assert "is no label" in text


# Alignment through files


def test_missing_extra_and_doubled_rows_are_refused() -> None:
    assert "runs.csv: prompt 3 has no outcome for cand (1 of 6 rows missing)" in refusal(GOOD + "ref,3,1,1,1\n")
    assert "runs.csv:6: prompt 1 has 2 rows for cand (lines 5 and 6)" in refusal(GOOD + "cand,1,1,1,1\n")
    listed = PromptList("p.csv", ("1",))
    assert "runs.csv:3: prompt 2, recorded for ref, is not in p.csv" in refusal(GOOD, prompts=listed)


def test_two_examples_with_one_id_do_not_overwrite_each_other() -> None:
    # sgl-eval#39: a dict by id would call the score 1.0.
    log = jsonl({"id": "a", "correct": False}, {"id": "a", "correct": True}, {"id": "b", "correct": True})
    text = refusal_of_logs({"ref": log}, Columns(prompt=("id",)), labels=["ref"])
    assert "ref.jsonl:2: prompt a has 2 rows for ref (lines 1 and 2)" in text


@pytest.mark.parametrize("key", ["prompt_text", "prompt_hash"])
def test_swapped_ids_are_refused_wherever_text_or_hash_is_recorded(key: str) -> None:
    ref = jsonl({"prompt": 2, "correct": 1, key: "What is 2+2?"}, {"prompt": 5, "correct": 1, key: "What is 5+5?"})
    cand = jsonl({"prompt": 5, "correct": 1, key: "What is 2+2?"}, {"prompt": 2, "correct": 0, key: "What is 5+5?"})
    noun = key.removeprefix("prompt_")
    text = refusal_of_logs({"ref": ref, "cand": cand})
    assert f'cand.jsonl:1: prompt 5 has the {noun} "What is 2+2?" here and "What is 5+5?" in ref.jsonl:2' in text


def test_a_prompt_recorded_under_two_ids_is_refused() -> None:
    text = "config,prompt,correct,prompt_text\nref,1,1,same\nref,2,1,same\n"
    assert 'prompts 1 and 2 have the same text "same"' in refusal(text, labels=["ref"])


@settings(deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(tmp_path_factory: pytest.TempPathFactory, rng: random.Random) -> None:
    header = "config,prompt,correct,tokens,forwards,group,output\n"
    rows = [
        f"{label},q/{p},{p % every == 0:d},{p},{every},g{p % 3},{p * every}\n"
        for every, label in ((2, "ref"), (3, "cand"))
        for p in range(12)
    ]
    folder = tmp_path_factory.mktemp("order")
    loaded = []
    for _ in range(2):
        (folder / "runs.csv").write_text(header + "".join(rows))
        source = RecordedSource(folder / "runs.csv", Columns())
        loaded.append(load_recorded(source, ["ref", "cand"], {}, ["tokens"]).outcomes)
        rng.shuffle(rows)
    one, other = loaded
    assert (one.prompts, one.groups, one.correct.tolist()) == (other.prompts, other.groups, other.correct.tolist())
    assert one.outputs is not None
    assert other.outputs is not None
    assert one.outputs.tolist() == other.outputs.tolist()
    assert {k: v.tolist() for k, v in one.measures.items()} == {k: v.tolist() for k, v in other.measures.items()}


# Measures


@pytest.mark.parametrize("value", ["", "nan", "inf", "-1", "1e999", "1e308", "2e15", "1e-300", "many", "True", "1_000"])
def test_what_is_no_measurement_is_refused_by_line(value: str) -> None:
    text = refusal(HEADER + f"ref,1,1,10,5\ncand,1,1,{value},5\n")
    assert f'runs.csv:3 tokens: "{value}" is no measurement; allowed are 0 and numbers from 1e-15 to 1e+15; ' in text


@pytest.mark.parametrize("value", [True, None, "10", float("nan"), float("inf"), 1e308, 10**16, 5e-324, -1, [1]])
def test_what_is_no_measurement_in_json_is_refused_by_line(value: object) -> None:
    row = {"config": "ref", "prompt": 1, "correct": 1, "tokens": value}
    assert "runs.jsonl:1 tokens: " in refusal(jsonl(row), name="runs.jsonl", labels=["ref"])


def test_the_largest_and_the_smallest_measurements_are_read() -> None:
    text = HEADER + "ref,1,1,1e15,0\ncand,1,1,-0,1e-15\n"
    assert load(text).outcomes.measures["tokens"].tolist() == [[1e15], [0]]


def test_numbers_are_read_as_they_are_meant() -> None:
    assert [as_number(value, False) for value in (0, 1.5, 10**400, "1")] == [0, 1.5, None, None]
    assert [as_number(value, True) for value in ("0", " 1.5 ", "1e3", "0x10", 1)] == [0, 1.5, 1000, None, None]


def test_a_cost_that_was_not_recorded_is_refused_with_what_to_do() -> None:
    text = refusal("config,prompt,correct\nref,1,1\ncand,1,1\n", measures=["seconds"])
    assert 'runs.csv:2: no column "seconds", here and in 1 more row; ' in text
    assert "map seconds under columns, or write `cost: unknown`" in text


def test_a_mapped_measure_must_be_recorded() -> None:
    text = refusal("config,prompt,correct\nref,1,1\ncand,1,1\n", Columns(measures={"tokens": "n"}))
    assert 'runs.csv:2: no column "n"' in text


def test_costs_are_read_through_the_map_and_by_their_default_names() -> None:
    columns = Columns(measures={"seconds": "timing.s"})
    rows = [{"config": c, "prompt": 1, "correct": 1, "forwards": 3, "timing": {"s": 0.5}} for c in ("ref", "cand")]
    measures = load(jsonl(*rows), columns, "runs.jsonl", measures=["seconds"]).outcomes.measures
    read = {name: values.tolist() for name, values in measures.items()}
    assert read == {"seconds": [[0.5], [0.5]], "forwards": [[3], [3]]}


def test_a_cost_that_no_one_needs_is_left_out_with_a_warning_where_rows_lack_it() -> None:
    rows = [{"config": "ref", "prompt": 1, "correct": 1, "tokens": 3}, {"config": "ref", "prompt": 2, "correct": 1}]
    recorded = load(jsonl(*rows), name="runs.jsonl", labels=["ref"])
    assert dict(recorded.outcomes.measures) == {}
    assert recorded.warnings == ("runs.jsonl: tokens is recorded for 1 of 2 rows of ref; it is left out",)


# Groups, texts and answers


@pytest.mark.parametrize("key", ["group", "prompt_text", "prompt_hash", "output"])
def test_a_declared_column_must_exist_in_every_row(key: str) -> None:
    columns = replace(Columns(), **{key: "x"})
    assert 'runs.csv:2: no column "x"' in refusal("config,prompt,correct\nref,1,1\n", columns, labels=["ref"])
    rows = [{"config": "ref", "prompt": p, "correct": 1, "x": None if p else "v"} for p in (0, 1)]
    text = refusal(jsonl(*rows), columns, "runs.jsonl", labels=["ref"])
    assert 'runs.jsonl:2: no value in "x"; columns here are' in text
    assert "give every row one, or leave it out of columns" in text


def test_groups_that_look_like_one_are_warned_of() -> None:
    names = ("x", "X", "x ", "\uff58", "x\u200b", "y")
    rows = [{"config": "ref", "prompt": n, "correct": n % 2, "group": name} for n, name in enumerate(names)]
    warnings = load(jsonl(*rows), Columns(group="group"), "r.jsonl", labels=["ref"]).warnings
    assert len(warnings) == 4
    assert all("differ only in blanks, case or Unicode form" in warning for warning in warnings)
    assert not any('"y"' in warning for warning in warnings)


@pytest.mark.parametrize(
    "correct",
    [
        CorrectColumn("correct", threshold=0.0),
        CorrectColumn("correct", threshold=-1),
        CorrectColumn("correct", equals=1),
    ],
)
def test_a_rule_under_which_everything_is_right_is_warned_of(correct: CorrectColumn) -> None:
    rows = [{"config": label, "prompt": 1, "correct": 1} for label in ("ref", "cand")]
    columns = Columns(correct=correct)
    (warning,) = load(jsonl(*rows), columns, "r.jsonl").warnings
    assert "so every answer of every configuration counts as right" in warning
    rows.append({"config": "ref", "prompt": 2, "correct": -2})
    rows.append({"config": "cand", "prompt": 2, "correct": -2})
    assert not load(jsonl(*rows), columns, "r.jsonl").warnings


def test_a_link_to_nothing_says_so(tmp_path: Path) -> None:
    for label in ("ref", "cand"):
        (tmp_path / f"{label}.jsonl").symlink_to(f"{label}.gone")
    with pytest.raises(OutcomesError, match=r"ref.jsonl: is a link to ref.gone, which is not there"):
        load_logs_at({label: tmp_path / f"{label}.jsonl" for label in ("ref", "cand")})


def test_groups_come_from_the_recording_or_the_prompts_file() -> None:
    text = "config,prompt,correct,group\nref,1,1,easy\nref,2,1,hard\n"
    assert load(text, labels=["ref"]).outcomes.groups == ("easy", "hard")
    listed = PromptList("p.csv", ("1", "2"), None, ("a", "b"))
    text = "config,prompt,correct\nref,1,1\nref,2,1\n"
    assert load(text, Columns(group="group"), labels=["ref"], prompts=listed).outcomes.groups == ("a", "b")


@pytest.mark.parametrize("group", ["\udfff", "a\ud800b", "a\nb", "\x1b[31m", "a\u2028b", ["a\udfff"]])
def test_what_is_no_group_is_refused_by_line(group: object) -> None:
    row = {"config": "ref", "prompt": 1, "correct": 1, "group": group}
    text = refusal(jsonl(row), name="r.jsonl", labels=["ref"])
    assert "r.jsonl:1 group: " in text
    assert "is no group; allowed are texts without control characters, in UTF-8; correct it" in text
    assert text.isprintable()
    Path("p.jsonl").write_text(jsonl({"id": 1, "group": group}))
    with pytest.raises(OutcomesError, match=r"p\.jsonl:1 group: .* is no group; allowed are"):
        read_prompts(Path("p.jsonl"))
    Path("live.jsonl").write_text(jsonl({"id": 1, "prompt": "x", "answer": "y", "group": group}))
    with pytest.raises(OutcomesError, match=r"live\.jsonl:1 group: .* is no group; allowed are"):
        read_calibration_prompts(Path("live.jsonl"), "group", None)


def test_groups_of_every_script_and_ids_that_are_whole_questions_are_allowed() -> None:
    row = {"config": "ref", "prompt": "Why?\nBecause.", "correct": 1, "group": "d\u00e9j\u00e0 vu \u0928\u200d"}
    assert load(jsonl(row), name="r.jsonl", labels=["ref"]).outcomes.prompts == ("Why?\nBecause.",)


def test_a_group_that_some_rows_lack_is_refused() -> None:
    text = "config,prompt,correct,group\nref,1,1,easy\nref,2,1,\n"
    assert "runs.csv: prompt 2 has no group, while others do" in refusal(text, labels=["ref"])
    text = "config,prompt,correct,group\nref,1,1,easy\ncand,1,1,hard\n"
    assert 'prompt 1 has the group "hard" here and "easy" in runs.csv:2' in refusal(text)


def test_answers_are_hashed_only_if_all_rows_have_them() -> None:
    full = jsonl({"prompt": 1, "correct": 1, "output": "x"}, {"prompt": 2, "correct": 1, "output": ""})
    outputs = load_logs({"ref": full, "cand": full}).outcomes.outputs
    assert outputs is not None
    assert outputs.tolist() == [[output_hash("x"), output_hash("")]] * 2
    part = jsonl({"prompt": 1, "correct": 1, "output": "x"}, {"prompt": 2, "correct": 1})
    assert load_logs({"ref": full, "cand": part}).outcomes.outputs is None
    assert output_hash("") == 0xE3B0C44298FC1C14


# One file for each configuration


def test_a_log_that_names_another_configuration_is_refused() -> None:
    log = jsonl({"prompt": 1, "correct": 1, "config": "ref"})
    text = refusal_of_logs({"ref": log, "cand": log})
    assert 'cand.jsonl:1 config: "ref" in the recording of cand; allowed is "cand"' in text
    assert load_logs({"ref": jsonl({"prompt": 1, "correct": 1, "config": {"x": 1}})}, labels=["ref"]).warnings == ()


def test_a_declared_label_column_is_checked_in_every_log() -> None:
    columns = Columns(config="arm", declared=frozenset(["config"]))
    good = jsonl({"prompt": 1, "correct": 1, "arm": "ref"})
    assert load_logs({"ref": good}, columns, labels=["ref"]).outcomes.prompts == ("1",)
    assert 'no column "arm"' in refusal_of_logs({"ref": jsonl({"prompt": 1, "correct": 1})}, columns, labels=["ref"])


def test_one_file_for_two_configurations_is_refused() -> None:
    Path("a.jsonl").write_text(jsonl({"prompt": 1, "correct": 1}))
    Path("link.jsonl").symlink_to("a.jsonl")
    for other in ("a.jsonl", "./a.jsonl", "link.jsonl"):
        with pytest.raises(OutcomesError, match="is the recording of both ref and cand"):
            load_logs_at({"ref": Path("a.jsonl"), "cand": Path(other)})


def test_two_files_of_equal_bytes_are_warned_of() -> None:
    log = jsonl({"prompt": 1, "correct": 1})
    (warning,) = load_logs({"ref": log, "cand": log}).warnings
    assert "cand.jsonl (cand) holds the same bytes as ref.jsonl" in warning


def test_logs_must_match_the_grid() -> None:
    log = jsonl({"prompt": 1, "correct": 1})
    text = refusal_of_logs({"ref": log, "other": log})
    assert "configuration cand has no `log:`" in text
    assert "a `log:` is given for other, which is not in the grid" in text
    with pytest.raises(OutcomesError, match="one file for all configurations, and some have a `log:`"):
        load_recorded(RecordedSource(Path("a.csv"), Columns()), ["ref"], {"ref": Path("b.csv")}, ())


def test_all_missing_logs_are_named() -> None:
    with pytest.raises(OutcomesError) as caught:
        load_logs_at({"ref": Path("a.jsonl"), "cand": Path("b.jsonl")})
    assert [text.partition(";")[0] for text in caught.value.problems] == [
        "a.jsonl: no such file",
        "b.jsonl: no such file",
    ]


def test_an_edited_recording_is_refused() -> None:
    sha256 = load(GOOD).files[0][1]
    source = RecordedSource(Path("runs.csv"), Columns(), sha256)
    assert load_recorded(source, ["ref", "cand"], {}, ()).files == (("runs.csv", sha256),)
    Path("runs.csv").write_text(GOOD.replace("cand,2,0", "cand,2,1"))
    with pytest.raises(OutcomesError, match=r"runs\.csv: its sha256 is"):
        load_recorded(source, ["ref", "cand"], {}, ())


def test_faults_of_rows_are_listed_together() -> None:
    text = refusal(HEADER + "ref,1,yes,10,5\nref,,1,10,5\nref,3,1,x,5\nref,4\nnew,1,1,1,1\n")
    assert [f"runs.csv:{line}" in text for line in (2, 3, 4, 5, 6)] == [True] * 5


# Prompts files


def test_a_prompts_file_gives_ids_texts_and_groups() -> None:
    Path("p.jsonl").write_text(jsonl({"id": 0, "prompt": "x", "group": "g"}, {"id": "b", "prompt": "y", "group": "h"}))
    prompts = read_prompts(Path("p.jsonl"))
    assert (prompts.file, prompts.ids, prompts.texts, prompts.groups) == ("p.jsonl", ("0", "b"), ("x", "y"), ("g", "h"))
    Path("p.csv").write_text("id,level\n1,easy\n")
    assert read_prompts(Path("p.csv")).groups is None
    assert read_prompts(Path("p.csv"), group="level").groups == ("easy",)


@pytest.mark.parametrize("group", ["id", "prompt", "answer"])
def test_any_column_of_a_prompts_file_can_be_the_group(group: str) -> None:
    Path("p.jsonl").write_text(jsonl({"id": 1, "prompt": "x", "answer": "y"}, {"id": 2, "prompt": "z", "answer": "y"}))
    found = {"id": ("1", "2"), "prompt": ("x", "z"), "answer": ("y", "y")}[group]
    prompts = read_prompts(Path("p.jsonl"), group=group)
    assert (prompts.texts, prompts.groups) == (("x", "z"), found)
    calibration = read_calibration_prompts(Path("p.jsonl"), group, None)
    assert (calibration.texts, calibration.answers, calibration.groups) == (("x", "z"), ("y", "y"), found)


@pytest.mark.parametrize("column", ["prompt", "answer"])
def test_a_prompt_that_cannot_be_written_as_text_is_not_served(column: str) -> None:
    Path("p.jsonl").write_text(jsonl({"id": "a", "prompt": "x", "answer": "y", column: "\udfff"}))
    with pytest.raises(OutcomesError, match=rf'p\.jsonl:1: prompt "a" has a lone surrogate in its {column}; allowed'):
        read_calibration_prompts(Path("p.jsonl"), "group", None)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("name\nx\n", "p.csv:2 id: no id among the columns 'name'"),
        ("id,a\n ,1\n", 'p.csv:2 id: " " is no id'),
        ("id\nx\ny\nx\n", 'p.csv:4: prompt "x" stands on line 2 too'),
        ("id,prompt\nx,one\ny,\n", "p.csv: 1 of 2 prompts have no 'prompt'; give all or none"),
        ("id,group\nx,\ny,g\n", "p.csv: 1 of 2 prompts have no 'group'"),
        ("id\n", "p.csv: has only a header"),
        ("id\nx\ny", "p.csv:3: the last line does not end with a line break"),
        ("id;group\nx;y\n", "p.csv:1: one column, 'id;group': the separator looks like `;`; allowed is a comma"),
    ],
)
def test_a_prompts_file_with_gaps_is_refused(text: str, part: str) -> None:
    Path("p.csv").write_text(text)
    with pytest.raises(OutcomesError) as caught:
        read_prompts(Path("p.csv"))
    assert part in "\n".join(caught.value.problems)


# Documentation


def test_the_documented_conversions_give_recordings() -> None:
    text = (Path(__file__).parents[2] / "docs" / "recordings.md").read_text(encoding="utf-8")
    filters, listed = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    logged = [
        {"doc_id": 0, "filter": name, "exact_match": score} for name, score in (("strict-match", 0), ("flexible", 1))
    ]
    Path("samples.jsonl").write_text(jsonl(*logged))
    Path("results.json").write_text(json.dumps({"model": "m", "results": [{"prompt": "a", "correct": True}]}))
    for program in (filters, listed):
        assert len([line for line in program.splitlines() if line]) == 3
        subprocess.run([sys.executable, "-c", program], check=True)
    columns = Columns(prompt=("doc_id",), correct=CorrectColumn("exact_match"))
    for path, chosen, right in ((Path("run.jsonl"), columns, False), (Path("results.jsonl"), Columns(), True)):
        outcomes = load_recorded(RecordedSource(None, chosen), ["ref"], {"ref": path}, ()).outcomes
        assert outcomes.correct.tolist() == [[right]]


def test_reading_a_recording_loads_nothing_heavy() -> None:
    program = "import sys, pytest_redline.sources.recorded; print(*sys.modules)"
    folder = Path(__file__).parents[2]
    run = [sys.executable, "-c", program]
    loaded = subprocess.run(run, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(folder)})
    assert {"pytest", "rich", "pydantic", "scipy", "torch"}.isdisjoint(loaded.stdout.split())
