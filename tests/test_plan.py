"""``pytest-redline plan``: what it prints, as a table and as JSON, and what it refuses."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

from pytest_redline import pilot
from pytest_redline.certificate import to_bytes
from pytest_redline.cli import main
from pytest_redline.gate import certificate_of
from pytest_redline.grid_file import load_grid

ROOT = Path(__file__).parents[1]
LLADA2 = ROOT / "fixtures" / "grids" / "llada2_math.redline.yaml"
# alpha, true risk, prompts for power 0.8 at delta/7 and delta/50 and delta, and the same for power 0.9
SIZES = [
    (0.02, 0.01, 1545, 2274, 828, 1914, 2775, 1120),
    (0.05, 0.03, 977, 1444, 515, 1257, 1776, 696),
    (0.10, 0.05, 292, 422, 152, 366, 522, 210),
    (0.10, 0.07, 863, 1285, 446, 1109, 1567, 620),
    (0.10, 0.09, 8133, 12179, 4070, 10576, 15138, 5828),
    (0.20, 0.15, 571, 847, 297, 735, 1040, 409),
]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def planned(capsys, *arguments: object) -> dict[str, Any]:
    assert main(["plan", "--json", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


def write_recording(file: str = "pilot.csv", n: int = 200, **wrong: int) -> Path:
    """A recording in which each configuration is wrong on so many prompts, and the reference on the last ten."""
    rows = ["config,prompt,correct"]
    for label, k in {"ref": 0, **wrong}.items():
        rows += [f"{label},q{i},{int(i >= k and i < n - 10)}" for i in range(n)]
    Path(file).write_text("\n".join(rows) + "\n")
    return Path(file)


def write_grid(**keys: Any) -> Path:
    grid = {
        "redline": 1,
        "name": "g",
        "source": {"outcomes": "pilot.csv"},
        "reference": "ref",
        "cost": "unknown",
        "configurations": {"ref": {}, "a": {"x": 1}, "b": {"x": 2}},
        **keys,
    }
    grid = {key: value for key, value in grid.items() if value is not None}
    Path("g.redline.yaml").write_text(yaml.safe_dump(grid))
    return Path("g.redline.yaml")


# -- without a pilot ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "risk", "sizes"), [(row[0], row[1], row[2:]) for row in SIZES])
def test_prompts_for_a_power_target(capsys, alpha, risk, sizes):
    found = []
    for power in (0.8, 0.9):
        for m in (7, 50):
            row = planned(capsys, "--alpha", alpha, "--m", m, "--risk", risk, "--power", power)["risks"][0]
            found.append(row["prompts"]["delta/m"])
        found.append(row["prompts"]["delta"])
    assert found == list(sizes)


def test_a_lone_candidate(capsys):
    found = planned(capsys, "--alpha", 0.1, "--m", 2, "--risk", 0.07)
    assert found["risks"] == [{"risk": 0.07, "prompts": {"delta/m": 593, "delta/(m-1)": 446}, "power": None}]
    assert found["fewest_prompts"] == {"all": 29}
    assert (found["delta"], found["wanted_power"], found["reach"]) == (0.1, 0.8, {})


def test_what_a_number_of_prompts_shows(capsys):
    found = planned(capsys, "--alpha", 0.1, "--m", 7, "--n", 1012, "--risk", 0.07, 0.08)
    assert [row["power"]["delta/m"] for row in found["risks"]] == pytest.approx([0.882, 0.485], abs=5e-4)
    assert found["reach"]["delta/m"]["violations"] == 80
    assert found["reach"]["delta"]["violations"] == 88
    assert found["reach"]["delta/m"]["alpha_of_zero"] == pytest.approx(0.0042, abs=5e-5)


def test_the_table_fits_80_columns_and_says_the_same(capsys):
    assert main(["plan", "--alpha", "0.1", "--m", "50", "--n", "100000", "--risk", "0.07", "0.099", "0.2"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "1,285 (1.000)" in out
    assert "no number (0.000)" in out
    assert "Below 59 prompts, not even zero violations certify anything." in out


def test_a_grid_brings_its_settings_and_the_size_of_its_sample(capsys):
    found = planned(capsys, "--grid", ROOT / "fixtures" / "grids" / "arithmetic.redline.yaml")
    assert (found["alpha"], found["m"], found["n"]) == (0.1, 8, 512)
    assert round(found["reach"]["delta/m"]["share"], 3) == 0.070
    assert [round(row["risk"], 3) for row in found["risks"]] == [0.02, 0.04, 0.06, 0.07, 0.08, 0.09]


def test_the_command_line_wins_over_the_grid(capsys):
    grid = write_grid(alpha=0.2, delta=0.05)
    found = planned(capsys, "--grid", grid, "--alpha", 0.1, "--m", 9)
    assert (found["alpha"], found["delta"], found["m"]) == (0.1, 0.05, 9)


def test_budgets_of_groups_have_their_own_fewest_prompts(capsys):
    grid = write_grid(alpha=0.1, groups={"by": "group", "alpha": {"hard": 0.02}})
    found = planned(capsys, "--grid", grid, "--delta", 0.3)
    assert found["fewest_prompts"] == {"all": 22, "hard": 114}
    assert "groups have budgets of their own" in found["warnings"][0]
    main(["plan", "--grid", str(grid)])
    assert "or below 169 prompts in group hard" in capsys.readouterr().out.replace("\n", " ")


# -- with a pilot -------------------------------------------------------------------------------------------------


def test_a_pilots_chances_are_those_of_its_counts(capsys):
    write_recording(a=4, b=15)
    found = planned(capsys, "--pilot", "pilot.csv", "--reference", "ref", "--alpha", 0.1, "--n", 2000)
    assert (found["m"], found["pilot"]["n"], found["pilot"]["reference"]) == (3, 200, "ref")
    a, b = found["pilot"]["candidates"]
    assert (a["label"], a["k"], b["label"], b["k"]) == ("a", 4, "b", 15)
    most = found["reach"]["delta/(m-1)"]["violations"]
    assert b["alone"] == pytest.approx(stats.betabinom.cdf(most, 2000, 15.5, 185.5))
    assert b["as_measured"] == pytest.approx(stats.binom.cdf(most, 2000, 0.075))
    assert b["alone"] - 0.02 <= b["holm"] <= b["at_best"] + 0.02
    assert a["holm"] > 0.99


def test_a_recording_a_grid_and_a_certificate_say_the_same(capsys):
    write_recording(a=4, b=15)
    grid = write_grid(alpha=0.1)
    Path("g.certificate.json").write_bytes(to_bytes(certificate_of(load_grid(grid))))
    pilots = [
        planned(capsys, "--pilot", "pilot.csv", "--reference", "ref", "--alpha", 0.1)["pilot"],
        planned(capsys, "--pilot", "pilot.csv", "--grid", grid)["pilot"],
        planned(capsys, "--pilot", grid)["pilot"],
        planned(capsys, "--pilot", "g.certificate.json")["pilot"],
    ]
    assert pilots == [pilots[0]] * 4


def test_a_grid_without_alpha_and_too_few_prompts_for_the_gate_can_be_a_pilot(capsys):
    write_recording(n=20, a=0, b=1)
    found = planned(capsys, "--pilot", write_grid(), "--alpha", 0.1, "--n", 300)
    assert [row["k"] for row in found["pilot"]["candidates"]] == [0, 1]


def test_columns_of_the_grid_are_those_of_the_pilot(capsys):
    write_recording(a=4, b=15)
    text = Path("pilot.csv").read_text().replace("config,prompt,correct", "who,id,ok", 1)
    Path("odd.csv.gz").write_bytes(gzip.compress(text.encode()))
    columns = {"config": "who", "prompt": "id", "correct": "ok"}
    grid = write_grid(alpha=0.1, source={"outcomes": {"file": "elsewhere.csv", "columns": columns}})
    found = planned(capsys, "--pilot", "odd.csv.gz", "--grid", grid)
    assert [row["k"] for row in found["pilot"]["candidates"]] == [4, 15]


def test_configurations_that_join_later_make_it_harder(capsys):
    write_recording(a=4, b=15)
    few = planned(capsys, "--pilot", "pilot.csv", "--reference", "ref", "--alpha", 0.1, "--n", 500)
    many = planned(capsys, "--pilot", "pilot.csv", "--reference", "ref", "--alpha", 0.1, "--n", 500, "--m", 50)
    assert many["pilot"]["candidates"][1]["holm"] < few["pilot"]["candidates"][1]["holm"]


def test_the_published_grid_as_a_pilot_fits_80_columns(capsys):
    assert main(["plan", "--pilot", str(LLADA2), "--alpha", "0.09", "--n", "2000"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    row = next(line.split() for line in out.splitlines() if line.startswith("acc85/semi70"))
    assert row[1:3] == ["73/1012", "0.0569-0.0899"]
    assert row[-1] == "2,183"
    with (ROOT / "fixtures" / "recorded" / "llada2_math.csv").open() as stream:
        assert len({each["config"] for each in csv.DictReader(stream)}) - 1 == out.count("/1012  0.0")


def test_a_gate_with_another_test_is_warned_of(capsys):
    grid = write_grid(alpha=0.1, clusters={"by": "template", "remedy": "cluster_means", "test": "hb"})
    assert "this gate tests by hb" in planned(capsys, "--grid", grid)["warnings"][0]


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "missing: --alpha, --m; give them"),
        (["--alpha", "0.1"], "missing: --m; give them"),
        (["--alpha", "1.1", "--m", "3"], "'1.1' is not a number between 0 and 1"),
        (["--alpha", "nan", "--m", "3"], "'nan' is not a number between 0 and 1"),
        (["--alpha", "0.1", "--m", "1"], "'1' is not a whole number from 2 to 10,000"),
        (["--alpha", "0.1", "--m", "3", "--n", "1e3"], "'1e3' is not a whole number"),
        (["--alpha", "0.1", "--m", "3", "--risk", "1"], "'1' is not a number from 0"),
        (["--alpha", "0.1", "--m", "3", "--reference", "ref"], "--reference goes with --pilot"),
        (["--alpha", "0.1", "--m", "2", "--pilot", "pilot.csv", "--reference", "ref"], "the pilot has 3"),
    ],
)
def test_wrong_usage_exits_with_2(capsys, arguments, says):
    write_recording(a=4, b=15)
    with pytest.raises(SystemExit, match="2"):
        main(["plan", *arguments])
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--pilot", "none.csv", "--reference", "ref"], "none.csv"),
        (["--pilot", "pilot.csv"], "add --reference"),
        (["--pilot", "pilot.csv", "--reference", "slow"], "'slow' is none of its configurations; there are ref, a, b"),
        (["--pilot", "odd.csv", "--reference", "ref"], "has no column correct"),
        (["--pilot", "alone.csv", "--reference", "ref"], "holds ref only"),
        (["--pilot", "bad.json"], "bad.json: not a certificate"),
        (["--grid", "none.redline.yaml"], "none.redline.yaml"),
        (["--pilot", str(ROOT / "fixtures" / "grids" / "arithmetic.redline.yaml")], "served, not recorded"),
    ],
)
def test_what_cannot_be_read_is_said(capsys, arguments, says):
    write_recording(a=4, b=15)
    write_recording("alone.csv")
    Path("odd.csv").write_text("config,prompt,right\nref,q1,1\n")
    Path("bad.json").write_text("{")
    assert main(["plan", "--alpha", "0.1", "--m", "3", *arguments]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "says"), [("scores", "holds scores or repeats"), ("known", "holds configurations that were not served")]
)
def test_outcomes_that_are_not_one_verdict_each_are_no_pilot(capsys, monkeypatch, column, says):
    write_recording(a=4, b=15)
    plain = pilot.load_recorded

    def odd(*arguments):
        recorded = plain(*arguments)
        outcomes = replace(recorded.outcomes, **{column: np.ones_like(recorded.outcomes.correct)})
        return replace(recorded, outcomes=outcomes)

    monkeypatch.setattr(pilot, "load_recorded", odd)
    assert main(["plan", "--pilot", "pilot.csv", "--reference", "ref", "--alpha", "0.1"]) == 1
    assert says in capsys.readouterr().err


def test_a_refused_gate_points_here(gate):
    gate.write(n=20)
    gate.run().stdout.fnmatch_lines(["*pytest-redline plan*"])


def test_an_undecided_candidate_points_here(gate):
    gate.write({"ref": (), "risky": range(8)}, n=100)
    gate.run().stdout.fnmatch_lines(["*pytest-redline plan --pilot DIR/g.certificate.json*"])


def test_the_documented_plan_is_what_is_printed(capsys):
    text = (ROOT / "docs" / "planning.md").read_text(encoding="utf-8")
    assert main(["plan", "--alpha", "0.1", "--m", "7", "--n", "1012", "--risk", "0.05", "0.07", "0.08"]) == 0
    assert capsys.readouterr().out in text
    assert main(["plan", "--pilot", str(LLADA2), "--alpha", "0.09", "--n", "2000"]) == 0
    out = capsys.readouterr().out
    rows = text[text.index("After a pilot of 1,012") :].partition("\n```")[0]
    assert rows in out
