"""``pytest-redline study``: the paper's tables through the command, what is read, what is written, what is refused."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator

from pytest_redline.cli import main
from pytest_redline.study_schema import json_schema

ROOT = Path(__file__).parents[1]
GRID = ROOT / "fixtures" / "grids" / "llada2_math.redline.yaml"
TABLES = json.loads((ROOT / "tests" / "data" / "redline_tables.json").read_text())["tables"]
COMMAND = Path(sys.executable).parent / "pytest-redline"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def study(*arguments: object) -> dict[str, Any]:
    """The JSON that the command writes."""
    assert main(["study", *map(str, arguments), "--json", "study.json"]) == 0
    found: dict[str, Any] = json.loads(Path("study.json").read_text())
    Draft202012Validator(json_schema()).validate(found)
    return found


def refused(capsys, *arguments: object) -> str:
    assert main(["study", *map(str, arguments)]) == 1
    out, err = capsys.readouterr()
    assert not out
    return err


def write_recording(file: str = "runs.csv", prompts: int = 200, **risks: float) -> Path:
    """A reference that is always right; candidates break the first prompts, and are faster the more they break."""
    rows = [["config", "prompt", "correct", "tokens", "forwards", "kind"]]
    for label, risk in {"ref": 0.0, **risks}.items():
        for i in range(prompts):
            rows.append(
                [label, f"q{i}", int(i >= risk * prompts), 100, round(50 * (1 - risk)), "easy" if i % 4 else "hard"]
            )
    with Path(file).open("w", newline="") as lines:
        csv.writer(lines).writerows(rows)
    return Path(file)


# -- The paper's tables ---------------------------------------------------------------------------------------------


def test_the_published_study_of_llada2_math(capsys):
    found = study(GRID, "--subsample", 542, "--stratify", "group")
    assert (found["splits"], found["seed"], found["calibration"], found["test"]) == (1000, 20260918, 506, 506)
    assert [budget["alpha"] for budget in found["budgets"]] == [0.05, 0.10, 0.15, 0.20]

    exceeded = {
        (budget["alpha"], row["selector"]): [round(100 * row[key], 1) for key in ("test_exceedance", "pool_exceedance")]
        for budget in found["budgets"]
        for row in budget["selectors"]
    }
    columns = [name.replace("_", "-") for name in TABLES["table15"]["columns"]]
    _, test, pool, _ = (dict(zip(columns, row["values"], strict=True)) for row in TABLES["table15"]["rows"])
    for name in set(columns) - {"MEAN-slower", "MEAN-faster"}:
        assert exceeded[0.05, name] == [test[name], pool[name]], name

    for budget, row14, row16 in zip(
        found["budgets"], TABLES["table14"]["rows"], TABLES["table16"]["rows"], strict=True
    ):
        gate, matched, again = budget["selectors"][0], budget["mean_matched"], budget["again"]
        assert round(100 * gate["mean_gain"], 1) == row14["redline"]["gain"]
        assert round(100 * gate["reference_share"], 1) == row14["redline"]["ref"]
        for rule, printed in (
            (matched["slower"], row14["mean_just_slower"]),
            (matched["faster"], row14["mean_at_or_faster"]),
        ):
            assert (rule is None) == (printed is None)
            if rule:
                assert rule["points"] == printed["t"]
                assert round(100 * rule["mean_gain"], 1) == printed["gain"]
                assert round(100 * rule["test_exceedance"], 1) == printed["exceed"]
        assert (again["splits_reference"], again["splits_same"]) == (row16["splits_ref"], row16["splits_same"])
        assert again["held_gain"] is None, "costs are declared"
        net = again["held_net_accuracy"]
        assert round(net["mean"], 1) == row16["held_net"]
        if "held_net_range" in row16:
            assert [round(net[end], 1) for end in ("lower", "upper")] == row16["held_net_range"]

    assert [subset["strata"] for subset in found["subsets"]] == [None, {"gsm8k": 274, "math500": 268}]
    for subset, row in zip(found["subsets"], TABLES["table6"]["rows"], strict=False):
        budgets = [f"{alpha:.2f}" for alpha in TABLES["table6"]["histogram_budgets"]]
        assert [subset["histogram"][alpha] for alpha in budgets] == row["histogram"]
        assert (subset["median"], subset["quartiles"]) == (row["median"], row["iqr"])
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    shown = (ROOT / "docs" / "study.md").read_text().split("```")[3].strip().splitlines()
    assert len(shown) > 10
    assert set(shown) <= set(out.splitlines()), "the documentation shows what the command prints"


# -- What it measures -----------------------------------------------------------------------------------------------


def test_a_recording_alone_is_enough(capsys):
    recording = write_recording(safe=0.02, risky=0.3)
    found = study(recording, "--reference", "ref", "--alpha", 0.2, "--splits", 200, "--selectors", "REDLINE", "PLUGIN")
    assert found["files"][0]["path"] == "runs.csv"
    assert found["cost"]["name"] == "tokens_per_forward"
    assert [(row["label"], row["k"]) for row in found["configurations"]] == [("ref", 0), ("safe", 4), ("risky", 60)]
    (budget,) = found["budgets"]
    assert [row["selector"] for row in budget["selectors"]] == ["REDLINE", "PLUGIN"]
    gate = budget["selectors"][0]
    assert gate["deployed"] == {"safe": 200}
    assert gate["test_exceedance"] == gate["pool_exceedance"] == gate["reference_share"] == 0
    assert budget["again"]["held_gain"]["mean"] == pytest.approx(budget["again"]["gain"])
    assert "safe" in capsys.readouterr().out


def test_every_configuration_of_a_wide_recording_is_there():
    found = study(
        write_recording(prompts=20, **{f"c{i}": 0.0 for i in range(300)}), "--reference", "ref", "--splits", 2
    )
    assert found["m"] == 301


def test_gains_on_the_other_half_are_those_of_its_prompts():
    """Prompts differ in tokens and forwards; the splits are drawn again here, one by one."""
    rng = np.random.default_rng(8)
    tokens, forwards = (
        rng.integers(50, 900, 100),
        {"ref": rng.integers(40, 400, 100), "fast": rng.integers(20, 200, 100)},
    )
    rows = [f"{label},q{i},1,{tokens[i]},{values[i]}" for label, values in forwards.items() for i in range(100)]
    Path("runs.csv").write_text("\n".join(["config,prompt,correct,tokens,forwards", *rows, ""]))
    found = study("runs.csv", "--reference", "ref", "--alpha", 0.2, "--splits", 30, "--seed", 5)
    generator, gains = np.random.default_rng(5), []
    for _ in range(30):
        test = generator.permutation(100)[50:]
        speed = {label: tokens[test].sum() / values[test].sum() for label, values in forwards.items()}
        gains.append(speed["fast"] / speed["ref"] - 1)
    held = found["budgets"][0]["again"]["held_gain"]
    expected = [np.mean(gains), *np.percentile(gains, [2.5, 97.5])]
    assert [held[key] for key in ("mean", "lower", "upper")] == pytest.approx(expected)


def test_a_lower_cost_is_faster_and_prompts_can_be_averaged():
    rows = [f"{label},q{i},1,{seconds + i % 3}" for label, seconds in (("ref", 8), ("fast", 3)) for i in range(60)]
    Path("runs.csv").write_text("\n".join(["config,prompt,correct,seconds", *rows, ""]))
    found = study("runs.csv", "--reference", "ref", "--cost", "seconds_per_prompt", "--alpha", 0.2, "--splits", 20)
    again = found["budgets"][0]["again"]
    assert (again["deployed"], again["gain"]) == ("fast", pytest.approx(9 / 4 - 1))
    assert again["held_gain"]["mean"] == pytest.approx(again["gain"], rel=0.1)


def test_column_maps_of_a_grid_are_obeyed():
    with gzip.open(ROOT / "tests" / "data" / "eval_logs" / "gpt3_verifier_gsm8k.jsonl.gz", "rb") as file:
        Path("logs.jsonl").write_bytes(file.read())
    labels = {"175b_verification": 1.0, "175b_finetuning": 5.0, "6b_verification": 20.0, "6b_finetuning": 25.0}
    grid = {
        "redline": 1,
        "name": "verifier",
        "alpha": 0.3,
        "source": {"outcomes": {"file": "logs.jsonl", "columns": {"prompt": "line", "correct": "{config}.is_correct"}}},
        "reference": "175b_verification",
        "configurations": {label: {"cost": speed} for label, speed in labels.items()},
    }
    Path("verifier.redline.yaml").write_text(yaml.safe_dump(grid, sort_keys=False))
    found = study("verifier.redline.yaml", "--splits", 100)
    assert [row["k"] for row in found["configurations"]] == [0, 360, 306, 499]
    assert found["budgets"][-1]["alpha"] == 0.3, "the grid's own, beside the usual ones"
    rules = {row["selector"]: row for row in found["budgets"][-1]["selectors"]}
    assert rules["REDLINE"]["pool_exceedance"] == 0
    assert rules["PLUGIN"]["deployed"].get("6b_finetuning", 0) == 0
    other = study("verifier.redline.yaml", "--reference", "6b_verification", "--splits", 10)
    assert [row["k"] for row in other["configurations"]][-1] == 293


def test_a_real_log_with_measured_speeds():
    """Llama 3.1 8B on MMLU, Ollama: 4-bit weights break 5.4 % and mend 3.8 %, which mean accuracy does not tell."""
    for label in ("fp16", "q8_0", "q4_K_M"):
        with gzip.open(ROOT / "tests" / "data" / "eval_logs" / f"llama31_mmlu_{label}.jsonl.gz") as file:
            lines = file.readlines()
        del lines[221]  # the second question under one id
        Path(f"{label}.jsonl").write_bytes(b"".join(lines))
    grid = {
        "redline": 1,
        "name": "mmlu",
        "alpha": 0.05,
        "cost": {"measure": "speed", "better": "higher"},
        "source": {
            "outcomes": {
                "columns": {
                    "prompt": "example_id",
                    "correct": "score",
                    "config": "arm",
                    "speed": "timing.tokens_per_second",
                }
            }
        },
        "reference": "fp16",
        "configurations": {label: {"log": f"{label}.jsonl"} for label in ("fp16", "q8_0", "q4_K_M")},
    }
    Path("mmlu.redline.yaml").write_text(yaml.safe_dump(grid, sort_keys=False))
    found = study("mmlu.redline.yaml", "--alpha", 0.05)
    assert [(row["k"], row["gained"]) for row in found["configurations"]] == [(0, 0), (1, 2), (27, 19)]
    (budget,) = found["budgets"]
    over = {row["selector"]: row["pool_exceedance"] for row in budget["selectors"]}
    assert over["REDLINE"] < 0.02
    assert over["MEANCI"] > 0.7
    assert over["MEAN-5"] > 0.9
    held = budget["again"]["held_gain"]
    assert budget["again"]["deployed"] == "q8_0"
    assert held["lower"] < budget["again"]["gain"] < held["upper"]


def test_subsets_too_small_for_any_certificate_are_named(capsys):
    recording = write_recording(safe=0.02)
    found = study(recording, "--reference", "ref", "--alpha", 0.05, "--splits", 50, "--subsample", 20, 100)
    small, large = found["subsets"]
    assert small["histogram"]["0.05"] == 0
    assert small["budgets"][0]["reference_share"] == 1
    assert sum(large["histogram"].values()) + large["none"] == 50
    assert any(
        warning.startswith("samples of 20 certify nothing at alpha 0.05, where it takes 59")
        for warning in found["warnings"]
    )
    assert "samples of 20 certify nothing" in capsys.readouterr().out


def test_no_budget_suits_is_null():
    found = study(write_recording(bad=0.9), "--reference", "ref", "--splits", 20, "--subsample", 100)
    (subset,) = found["subsets"]
    assert (subset["none"], subset["median"], subset["quartiles"]) == (20, None, [None, None])


def test_warns_of_what_a_grid_claims_beyond_the_pooled_risk():
    grid = yaml.safe_load(GRID.read_text())
    grid["source"]["outcomes"] = str(ROOT / "fixtures" / "recorded" / "llada2_math.csv")
    grid["groups"] = {"by": "group", "alpha": {"gsm8k": 0.1}}
    Path("own.redline.yaml").write_text(yaml.safe_dump(grid, sort_keys=False))
    found = study("own.redline.yaml", "--splits", 5, "--selectors", "REDLINE")
    assert any("budgets of groups play no part here" in warning for warning in found["warnings"])
    grid |= {"weights": {"serving": 0.5}, "serving": "acc85/semi70", "delta": {"total": 0.1, "gates": 5}}
    Path("own.redline.yaml").write_text(yaml.safe_dump(grid, sort_keys=False))
    (warning,) = study("own.redline.yaml", "--splits", 5, "--selectors", "REDLINE")["warnings"]
    assert "the weight on what is served and the sharing out of delta play no part here" in warning


def test_warns_of_a_reference_that_is_seldom_right():
    rows = [
        f"{label},q{i},{int(i < right)},100,{f}"
        for label, right, f in (("ref", 9, 50), ("bad", 0, 9))
        for i in range(90)
    ]
    Path("runs.csv").write_text("\n".join(["config,prompt,correct,tokens,forwards", *rows, ""]))
    found = study("runs.csv", "--reference", "ref", "--alpha", 0.05, 0.1, "--splits", 5)
    (warning,) = [warning for warning in found["warnings"] if "an always wrong candidate included" in warning]
    assert "right on 9 of 90 prompts" in warning
    assert "alpha 0.1" in warning


# -- What it writes -------------------------------------------------------------------------------------------------


def test_equal_studies_are_equal_bytes_and_the_seed_is_obeyed():
    recording = write_recording(safe=0.06, risky=0.12)
    arguments = ["study", str(recording), "--reference", "ref", "--splits", "40", "--subsample", "90"]
    written = []
    for index, seed in enumerate(["7", "7", "8"]):
        files = ["--json", f"{index}.json", "--plot", f"{index}.svg"]
        done = subprocess.run([COMMAND, *arguments, "--seed", seed, *files], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        written.append((Path(f"{index}.json").read_bytes(), Path(f"{index}.svg").read_bytes(), done.stdout))
    assert written[0] == written[1]
    assert written[0][0] != written[2][0]


def test_the_plot_has_a_line_for_every_selector():
    study(
        write_recording(safe=0.06),
        "--reference",
        "ref",
        "--splits",
        20,
        "--plot",
        "study.svg",
        "--selectors",
        "PLUGIN",
        "MEAN-3",
    )
    root = ElementTree.parse("study.svg").getroot()
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"PLUGIN", "MEAN-3", "risk budget alpha"} <= set(texts)


def test_long_labels_are_not_cut(capsys):
    label = "a-very-long-label/" + "x" * 90
    study(write_recording(**{label: 0.02}), "--reference", "ref", "--splits", 5)
    assert label in capsys.readouterr().out


def test_schema_is_printed(capsys):
    assert main(["schema", "--study"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()


# -- What it refuses ------------------------------------------------------------------------------------------------


def test_a_recording_needs_a_reference_that_it_holds(capsys):
    recording = write_recording(safe=0.02)
    assert "runs.csv: a recording does not say what its reference is; add --reference" in refused(capsys, recording)
    assert "'slow' is none of its configurations; there are ref, safe" in refused(
        capsys, recording, "--reference", "slow"
    )


def test_a_recording_without_costs_is_refused_with_the_ways_to_give_one(capsys):
    Path("runs.csv").write_text("config,prompt,correct\n" + "".join(f"{c},q{i},1\n" for c in "ab" for i in range(50)))
    said = refused(capsys, "runs.csv", "--reference", "a")
    assert "has no cost, so nothing is faster than anything; columns that give one are tokens and forwards," in said
    assert "pytest-redline init runs.csv" in said


def test_a_grid_whose_reference_has_no_known_cost_is_refused(capsys):
    said = refused(capsys, GRID, "--reference", "acc99/semi90")
    assert "the cost of acc99/semi90 is unknown" in said


def test_served_outcomes_and_faulty_files_are_refused(capsys):
    assert "its outcomes are served, not recorded" in refused(
        capsys, ROOT / "fixtures" / "grids" / "arithmetic.redline.yaml"
    )
    scored = yaml.safe_load(GRID.read_text())
    scored["source"] = {
        "outcomes": {"file": "runs.csv", "columns": {"correct": {"column": "score", "loss": "drop", "test": "hb"}}}
    }
    Path("scored.redline.yaml").write_text(yaml.safe_dump(scored, sort_keys=False))
    assert "its verdicts are scores or repeats" in refused(capsys, "scored.redline.yaml")
    assert "missing.csv" in refused(capsys, "missing.csv", "--reference", "a")
    Path("other.csv").write_text("task,ok\n1,1\n")
    assert "other.csv: has no column config, prompt, correct; columns here are task, ok" in refused(
        capsys, "other.csv", "--reference", "a"
    )
    gap = write_recording("gap.csv", prompts=3, safe=0.0).read_text().splitlines()
    Path("gap.csv").write_text("\n".join([*gap[:-1], ""]))
    assert "gap.csv" in refused(capsys, "gap.csv", "--reference", "ref")
    assert "holds ref only" in refused(capsys, write_recording(), "--reference", "ref")
    assert "holds one prompt; a split takes at least two" in refused(
        capsys, write_recording(prompts=1, safe=0.0), "--reference", "ref"
    )


def test_sizes_columns_and_places_that_cannot_be(capsys):
    recording = write_recording(safe=0.02)
    assert "--subsample 201: the recording holds 200 prompts" in refused(
        capsys, recording, "--reference", "ref", "--subsample", 201
    )
    assert "nowhere" in refused(capsys, recording, "--reference", "ref", "--subsample", 20, "--stratify", "nowhere")
    assert "cannot be written" in refused(
        capsys, recording, "--reference", "ref", "--splits", 2, "--json", "no/such/folder.json"
    )
    before = recording.read_bytes()
    assert "--json runs.csv: the study reads this file" in refused(
        capsys, recording, "--reference", "ref", "--splits", 2, "--json", "runs.csv"
    )
    assert recording.read_bytes() == before
    assert "a grid says its own cost" in refused(capsys, GRID, "--cost", "tokens_per_forward")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--alpha", "1.5"], "between 0 and 1"),
        (["--splits", "0"], "whole number from 1"),
        (["--selectors", "REDLIN"], "'REDLIN' is no selector; there are REDLINE, BONF"),
        (["--cost", "speed"], "--cost speed: there are tokens_per_forward"),
        (["--stratify", "group"], "--stratify goes with --subsample"),
    ],
)
def test_wrong_usage_is_told_apart(arguments, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["study", "runs.csv", *arguments])
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err
