"""Further risks and scores on public evaluation logs, against counts made from the files by a few lines here."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy.stats import binom

from pytest_redline.certificate import to_bytes
from pytest_redline.certificate_schema import Certificate
from pytest_redline.gate import certificate_of
from pytest_redline.grid_file import load_grid
from pytest_redline.verify import verify

LOGS = Path(__file__).parents[1] / "data" / "eval_logs"
LABELS = ("fp16", "q8_0", "q4_K_M")
GRID = """\
redline: 1
name: mmlu
population: MMLU questions
alpha: 0.2
cost: unknown
source:
  outcomes:
    columns: {{prompt: example_id, correct: {correct}, config: arm, speed: timing.tokens_per_second}}
reference: fp16
configurations: {{{logs}}}
{more}
"""


SLOW = "risks: {slow: {measure: speed, under: 40, alpha: 0.3}}"
DOUBLED = "high_school_mathematics::d3f3d532"  # stands twice, with different answers: refused elsewhere, left out here


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, dict]]:
    def read(label: str) -> dict[str, dict]:
        found = map(json.loads, gzip.decompress((LOGS / f"llama31_mmlu_{label}.jsonl.gz").read_bytes()).splitlines())
        return {row["example_id"]: row for row in found if row["example_id"] != DOUBLED}

    return {label: read(label) for label in LABELS}


@pytest.fixture
def certified(tmp_path, rows) -> Callable[[str, str], Certificate]:
    """Certificate of the logs with this reading of verdicts and these further keys; it verifies."""
    for label in LABELS:
        (tmp_path / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[label].values()))

    def make(correct: str, more: str) -> Certificate:
        path = tmp_path / "g.redline.yaml"
        logs = ", ".join(f"{label}: {{log: {label}.jsonl}}" for label in LABELS)
        path.write_text(GRID.format(correct=correct, logs=logs, more=more))
        made = certificate_of(load_grid(path))
        written = tmp_path / "it.certificate.json"
        written.write_bytes(to_bytes(made))
        assert verify(written) == made
        return made

    return make


def test_speed_below_a_limit_is_counted_where_the_reference_is_fast_enough(certified, rows):
    made = certified("score", SLOW)

    def fast(label, prompt):
        return rows[label][prompt]["timing"]["tokens_per_second"] >= 40

    n = len(rows["fp16"])
    for row, result in zip(made.risks[0].configurations, made.configurations, strict=True):
        slow = sum(fast("fp16", prompt) and not fast(row.label, prompt) for prompt in rows["fp16"])
        wrong = sum(rows["fp16"][prompt]["score"] > rows[row.label][prompt]["score"] for prompt in rows["fp16"])
        assert (row.k, result.k) == (slow, wrong)
        assert result.p == pytest.approx(max(binom.cdf(slow, n, 0.3), binom.cdf(wrong, n, 0.2)), rel=1e-9)


@pytest.mark.parametrize("test", ["hb", "wsr"])
def test_scores_of_a_log_that_are_all_0_or_1_are_warned_of(certified, test):
    made = certified(f"{{column: score, loss: drop, test: {test}}}", SLOW)
    assert any(
        f"every loss is 0 or 1, where {test} certifies less than the exact test" in each for each in made.warnings
    )
    exact = certified("score", SLOW)
    assert [row.k for row in made.configurations] == [row.k for row in exact.configurations]
    assert all(one.p >= other.p for one, other in zip(made.configurations, exact.configurations, strict=True))
