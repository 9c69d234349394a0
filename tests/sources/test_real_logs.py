"""Public evaluation logs give the counts that were computed from them independently, through a map of columns alone.

The trimmed copies in ``tests/data/eval_logs`` are always read. The whole logs are read where the environment variable
REDLINE_EVAL_LOGS names the folder that holds them; not all of them may be redistributed.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.stats import binom

from pytest_redline.errors import OutcomesError
from pytest_redline.gate import certificate_of
from pytest_redline.grid import Columns, CorrectColumn, RecordedSource
from pytest_redline.grid_file import load_grid
from pytest_redline.outcomes import Outcomes
from pytest_redline.sources.recorded import Recorded, load_recorded

TRIMMED = Path(__file__).parents[1] / "data" / "eval_logs"
WHOLE = Path(os.environ.get("REDLINE_EVAL_LOGS", "") or "REDLINE_EVAL_LOGS is not set")
needs_whole_logs = pytest.mark.skipif(
    not (WHOLE / "expected_pairs.csv").is_file(), reason="REDLINE_EVAL_LOGS names no folder with the whole logs"
)


def expected_pairs(folder: Path) -> list[dict[str, str]]:
    path = folder / "expected_pairs.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


@dataclass(frozen=True)
class Log:
    """How to read one dataset: ``file`` names one file for all configurations, or the pattern of one for each."""

    file: str
    labels: tuple[str, ...]
    columns: Columns
    measures: tuple[str, ...] = ()
    scoring: str | None = None  # the rows of expected_pairs.csv, where a dataset has several kinds

    def load(self, folder: Path) -> Recorded:
        if "{label}" not in self.file:
            return load_recorded(RecordedSource(folder / self.file, self.columns), self.labels, {}, self.measures)
        logs = {label: folder / self.file.format(label=label) for label in self.labels}
        return load_recorded(RecordedSource(None, self.columns), self.labels, logs, self.measures)


def columns(prompt: str | tuple[str, ...], correct: CorrectColumn, **others: Any) -> Columns:
    declared = frozenset({"prompt", "correct", *others})
    return Columns(
        prompt=(prompt,) if isinstance(prompt, str) else prompt, correct=correct, declared=declared, **others
    )


VERIFIER_LABELS = ("175b_verification", "175b_finetuning", "6b_verification", "6b_finetuning")
SPECDEC = {
    "labels": ("autoregressive", "eagle3", "ngram", "suffix"),
    "columns": columns(("full_name", "instr_kind"), CorrectColumn("status", equals="OK")),
    "scoring": "status==OK (timeouts counted wrong)",
}
PASSED = columns("task_id", CorrectColumn("passed"))
MMLU_LABELS = ("fp16", "q8_0", "q4_K_M")
MMLU_COLUMNS = columns(
    "example_id", CorrectColumn("score"), config="arm", measures={"tokens_per_second": "timing.tokens_per_second"}
)

WHOLE_LOGS = {
    "gpt3_verifier_gsm8k": Log(
        "gpt3_verifier_gsm8k/example_model_solutions.jsonl",
        VERIFIER_LABELS,
        columns("question", CorrectColumn("{config}.is_correct"), output="{config}.solution"),
    ),
    "coda1.7b_gptq_humaneval": Log(
        "coda1.7b_gptq_humaneval/{label}.jsonl",
        ("unquantized", "gptq8", "gptq4", "gptq3", "gptq2"),
        columns("doc_id", CorrectColumn("pass@1"), prompt_text="doc.prompt", prompt_hash="doc_hash"),
    ),
    "gpt35_humaneval_results": Log(
        "gpt35_humaneval_results/{label}.jsonl_results.jsonl",
        ("run0", "rerun1", "rerun2", "calls100x5tok", "diluted_half"),
        PASSED,
    ),
    "llama31-8b_specdec_canitedit": Log("llama31-8b_specdec_canitedit/{label}.jsonl", **SPECDEC),  # type: ignore[arg-type]
    "qwen3-32b_specdec_canitedit": Log("qwen3-32b_specdec_canitedit/{label}.jsonl", **SPECDEC),  # type: ignore[arg-type]
    "llama31-8b_ollama_mmlu": Log("{label}.jsonl", MMLU_LABELS, MMLU_COLUMNS, ("tokens_per_second",)),
}
TRIMMED_LOGS = {
    "gpt3_verifier_gsm8k": Log(
        "gpt3_verifier_gsm8k.jsonl.gz", VERIFIER_LABELS, columns("line", CorrectColumn("{config}.is_correct"))
    ),
    "gpt35_humaneval_results": Log(
        "gpt35_humaneval_{label}.jsonl.gz", ("run0", "rerun1", "rerun2", "diluted_half"), PASSED
    ),
    "llama31-8b_ollama_mmlu": Log("{label}.jsonl", MMLU_LABELS, MMLU_COLUMNS, ("tokens_per_second",)),
}


def counts_and_p(outcomes: Outcomes, reference: str, candidate: str) -> tuple[int, int, int, dict[str, float]]:
    """n, k, gained, and P(Bin(n, alpha) <= k) at three budgets."""
    ref, cand = (outcomes.correct[outcomes.configurations.index(label)] for label in (reference, candidate))
    n, k = len(outcomes.prompts), int(np.count_nonzero(ref & ~cand))
    p = {key: float(binom.cdf(k, n, alpha)) for key, alpha in (("p_a05", 0.05), ("p_a10", 0.10), ("p_a20", 0.20))}
    return n, k, int(np.count_nonzero(~ref & cand)), p


def check_pairs(outcomes: Outcomes, rows: Sequence[dict[str, str]]) -> None:
    assert rows
    for row in rows:
        n, k, gained, p = counts_and_p(outcomes, row["ref"], row["cand"])
        assert (n, k, gained) == tuple(int(row[key]) for key in ("n", "k", "gained")), row
        assert p == {key: pytest.approx(float(row[key]), rel=1e-5) for key in p}, row


def without_line(path: Path, number: int, to: Path) -> Path:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    lines = data.splitlines(keepends=True)
    to.write_bytes(b"".join(lines[: number - 1] + lines[number:]))
    return to


def check_mmlu(log: Log, files: dict[str, Path], pairs: list[dict[str, str]], folder: Path) -> None:
    """One id stands for two questions: refused as it is, and as expected without the second of the two rows."""
    with pytest.raises(OutcomesError) as caught:
        load_recorded(RecordedSource(None, log.columns), log.labels, files, log.measures)
    repeated = "prompt high_school_mathematics::d3f3d532 has 2 rows for {label} (lines 72 and 222)"
    (problem,) = caught.value.problems
    assert f"{repeated.format(label=log.labels[0])}, likewise for {', '.join(log.labels[1:])}; allowed is" in problem
    for label, path in files.items():
        without_line(path, 222, folder / f"{label}.jsonl")
    recorded = log.load(folder)
    assert np.all(recorded.outcomes.measures["tokens_per_second"] > 0)
    check_pairs(recorded.outcomes, pairs)


def pairs_of(folder: Path, dataset: str, log: Log) -> list[dict[str, str]]:
    return [
        row
        for row in expected_pairs(folder)
        if row["dataset"] == dataset and row["scoring"] == (log.scoring or row["scoring"])
    ]


@pytest.mark.parametrize("dataset", [name for name in TRIMMED_LOGS if "mmlu" not in name])
def test_trimmed_logs_give_the_expected_pairs(dataset: str) -> None:
    log = TRIMMED_LOGS[dataset]
    recorded = log.load(TRIMMED)
    assert recorded.warnings == ()
    check_pairs(recorded.outcomes, pairs_of(TRIMMED, dataset, log))


def test_the_trimmed_mmlu_log_with_one_id_twice_is_refused(tmp_path: Path) -> None:
    dataset = "llama31-8b_ollama_mmlu"
    log = TRIMMED_LOGS[dataset]
    files = {label: TRIMMED / f"llama31_mmlu_{label}.jsonl.gz" for label in log.labels}
    check_mmlu(log, files, pairs_of(TRIMMED, dataset, log), tmp_path)


def test_a_wide_log_with_undeclared_configurations_is_warned_of() -> None:
    log = TRIMMED_LOGS["gpt3_verifier_gsm8k"]
    source = RecordedSource(TRIMMED / log.file, log.columns)
    recorded = load_recorded(source, ["6b_verification", "6b_finetuning"], {}, ())
    assert ["175b_verification, 175b_finetuning" in warning for warning in recorded.warnings] == [True]


@needs_whole_logs
@pytest.mark.parametrize("dataset", [name for name in WHOLE_LOGS if "mmlu" not in name])
def test_whole_logs_give_the_expected_pairs(dataset: str) -> None:
    log = WHOLE_LOGS[dataset]
    check_pairs(log.load(WHOLE).outcomes, pairs_of(WHOLE, dataset, log))


@needs_whole_logs
def test_the_whole_mmlu_log_with_one_id_twice_is_refused(tmp_path: Path) -> None:
    dataset = "llama31-8b_ollama_mmlu"
    log = WHOLE_LOGS[dataset]
    files = {label: WHOLE / dataset / f"{label}.jsonl" for label in log.labels}
    check_mmlu(log, files, pairs_of(WHOLE, dataset, log), tmp_path)


@needs_whole_logs
def test_ten_samples_for_each_task_are_refused() -> None:
    path = WHOLE / "gpt35_humaneval_results" / "ten_samples_per_task.jsonl_results.jsonl"
    with pytest.raises(OutcomesError) as caught:
        load_recorded(RecordedSource(None, PASSED), ["ten"], {"ten": path}, ())
    assert len(caught.value.problems) == 164
    assert "prompt HumanEval/0 has 10 rows for ten (lines 1, 2, 3, " in caught.value.problems[0]


@needs_whole_logs
def test_two_rows_a_prompt_by_filter_are_refused() -> None:
    labels = ("standard", "adaptive", "sparse", "margin")
    log = Log("llada8b_sparseattn_gsm8k/{label}.jsonl", labels, columns("doc_id", CorrectColumn("exact_match")))
    with pytest.raises(OutcomesError) as caught:
        log.load(WHOLE)
    assert len(caught.value.problems) == 100
    assert (
        "prompt 0 has 2 rows for standard (lines 1 and 101), likewise for adaptive, sparse, margin;"
        in caught.value.problems[0]
    )


def test_a_setting_served_again_is_the_noise_floor_of_real_logs(tmp_path: Path) -> None:
    files = {label: str(TRIMMED / f"gpt35_humaneval_{label}.jsonl.gz") for label in ("run0", "rerun2", "diluted_half")}
    grid = {
        "redline": 1,
        "name": "humaneval",
        "population": "HumanEval",
        "alpha": 0.05,
        "cost": "unknown",
        "source": {"outcomes": {"columns": {"prompt": "task_id", "correct": "passed"}}},
        "reference": "run0",
        "serving": "rerun2",
        "noise_floor": {"log": str(TRIMMED / "gpt35_humaneval_rerun1.jsonl.gz")},
        "lossless": ["rerun2", "diluted_half"],
        "configurations": {label: {"log": file} for label, file in files.items()},
    }
    path = tmp_path / "h.redline.yaml"
    path.write_text(yaml.safe_dump(grid, sort_keys=False))
    certificate = certificate_of(load_grid(path))
    noise = certificate.noise_floor
    assert noise is not None
    assert (noise.label, noise.k, noise.n, noise.gained) == ("A/A", 2, 164, 0)
    assert noise.standard_error == pytest.approx(0.0086, abs=5e-5)
    rerun, diluted = noise.configurations
    assert (rerun.label, rerun.worse, rerun.better, rerun.p) == ("rerun2", 0, 2, 1.0)
    assert (diluted.worse, diluted.better) == (90, 0)
    assert diluted.p == pytest.approx(2.0**-90)
    assert certificate.failing == certificate.worse_than_noise == ("diluted_half",)
    assert [Path(record.path).name for record in certificate.provenance.outcomes][-1].endswith("rerun1.jsonl.gz")


@needs_whole_logs
def test_the_trimmed_logs_are_those_of_the_whole_ones() -> None:
    rows = {(row["dataset"], row["ref"], row["cand"], row["scoring"]): row for row in expected_pairs(WHOLE)}
    for row in expected_pairs(TRIMMED):
        assert rows[row["dataset"], row["ref"], row["cand"], row["scoring"]].items() >= row.items()
    for label in ("run0", "rerun1", "rerun2", "diluted_half"):
        path = WHOLE / "gpt35_humaneval_results" / f"{label}.jsonl_results.jsonl"
        whole = [json.loads(line) for line in path.read_text().splitlines()]
        trimmed = gzip.decompress((TRIMMED / f"gpt35_humaneval_{label}.jsonl.gz").read_bytes()).splitlines()
        assert [(row["task_id"], row["passed"]) for row in whole] == [
            tuple(json.loads(row).values()) for row in trimmed
        ]
    whole = map(json.loads, (WHOLE / WHOLE_LOGS["gpt3_verifier_gsm8k"].file).read_text().splitlines())
    trimmed = gzip.decompress((TRIMMED / "gpt3_verifier_gsm8k.jsonl.gz").read_bytes()).splitlines()
    assert [json.loads(row) for row in trimmed] == [
        {
            "line": line,
            "steps": row["ground_truth"].count("\n"),
            **{
                label: {"is_correct": row[label]["is_correct"], "length": len(row[label]["solution"])}
                for label in VERIFIER_LABELS
            },
        }
        for line, row in enumerate(whole)
    ]
