"""Recordings of scores and of several generations a prompt."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Columns, CorrectColumn, RecordedSource
from pytest_redline.sources.recorded import Recorded, load_recorded

WHOLE = Path(os.environ.get("REDLINE_EVAL_LOGS", "") or "REDLINE_EVAL_LOGS is not set")
SCORE = CorrectColumn("score", score=True)
REPEATS = CorrectColumn("correct", repeats=True)


def read(tmp_path: Path, text: str, correct: CorrectColumn, name: str = "runs.csv", labels=("ref", "cand")) -> Recorded:
    (tmp_path / name).write_text(text)
    columns = Columns(correct=correct, declared=frozenset({"correct"}))
    return load_recorded(RecordedSource(tmp_path / name, columns), labels, {}, ())


def rows(*lines: str, header: str = "config,prompt,correct") -> str:
    return "\n".join((header, *lines)) + "\n"


def test_scores_are_kept_and_a_full_score_is_right(tmp_path):
    text = rows("ref,a,1", "ref,b,0.25", "cand,b,1.0", "cand,a,0", header="config,prompt,score")
    outcomes = read(tmp_path, text, SCORE).outcomes
    assert outcomes.scores.tolist() == [[1, 0.25], [0, 1]]
    assert outcomes.correct.tolist() == [[True, False], [False, True]]


@pytest.mark.parametrize("value", ["1.01", "-0.1", "nan", "", "good", "1e400", "true"])
def test_what_is_no_score_is_refused_with_its_line(tmp_path, value):
    text = rows("ref,a,1", f"cand,a,{value}", header="config,prompt,score")
    with pytest.raises(OutcomesError, match=r"runs.csv:3 score: .* is no score; allowed are numbers from 0 to 1"):
        read(tmp_path, text, SCORE)


def test_repeats_become_means_whatever_order_their_rows_come_in(tmp_path):
    lines = ["ref,a,1,10", "ref,a,0,30", "ref,b,1,10", "ref,b,1,10", "cand,a,1,5", "cand,b,0,7"]
    header = "config,prompt,correct,tokens"
    outcomes = read(tmp_path, rows(*lines, header=header), REPEATS).outcomes
    assert outcomes.scores.tolist() == [[0.5, 1], [1, 0]]
    assert outcomes.correct.tolist() == [[False, True], [True, False]]
    assert outcomes.measures["tokens"].tolist() == [[20, 10], [5, 7]]
    again = read(tmp_path, rows(*reversed(lines), header=header), REPEATS).outcomes
    assert np.array_equal(outcomes.scores, again.scores)


def test_repeats_that_nobody_declared_are_refused_and_the_way_is_named(tmp_path):
    text = rows("ref,a,1", "ref,a,1", "cand,a,1")
    with pytest.raises(OutcomesError, match=r"prompt a has 2 rows for ref .*`repeats: mean_loss` of columns.correct"):
        read(tmp_path, text, CorrectColumn("correct"))


def test_a_prompt_with_another_number_of_repeats_is_refused(tmp_path):
    text = rows("ref,a,1", "ref,a,1", "ref,b,1", "ref,b,1", "ref,c,1", "cand,a,1", "cand,b,1", "cand,c,1")
    with pytest.raises(OutcomesError, match=r"runs.csv:6: prompt c has 1 rows for ref, others have 2; record equally"):
        read(tmp_path, text, REPEATS)


def test_repeats_do_not_hide_a_missing_prompt(tmp_path):
    text = rows("ref,a,1", "ref,a,1", "ref,b,1", "ref,b,1", "cand,a,1", "cand,a,1")
    with pytest.raises(OutcomesError, match="prompt b has no outcome for cand"):
        read(tmp_path, text, REPEATS)


@pytest.mark.skipif(not (WHOLE / "expected_pairs.csv").is_file(), reason="REDLINE_EVAL_LOGS names no folder")
def test_ten_samples_a_task_against_one():
    folder = WHOLE / "gpt35_humaneval_results"
    logs = {label: folder / f"{label}.jsonl_results.jsonl" for label in ("ten_samples_per_task", "rerun1")}
    columns = Columns(("task_id",), CorrectColumn("passed", repeats=True), declared=frozenset({"prompt", "correct"}))
    outcomes = load_recorded(RecordedSource(None, columns), tuple(logs), logs, ()).outcomes
    by_task: dict[str, list[bool]] = {}
    for line in logs["ten_samples_per_task"].read_text().splitlines():
        row = json.loads(line)
        by_task.setdefault(row["task_id"], []).append(row["passed"])
    assert len(outcomes.prompts) == 164
    assert outcomes.scores[0].tolist() == [np.mean(by_task[prompt]) for prompt in outcomes.prompts]
    assert int(((outcomes.scores[0] > 0) & (outcomes.scores[0] < 1)).sum()) == 4  # the mixed tasks of its README
    assert set(outcomes.scores[1]) == {0, 1}
