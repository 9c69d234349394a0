"""What is printed and written about a verdict: terminal, markdown, step summary, annotations, JUnit, JSON."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from gate_runner import Gate, text_of

ANSI = re.compile(r"\x1b\[[\d;]*m")
PAPER = {  # the paper's labels, a realistic width
    "acc95/semi90": range(400, 660),
    "acc85/semi70": (*range(73), *range(430, 660)),
    "acc90/semi90/add0.10": range(20, 50),
    "acc80/semi50": range(300),
}


def summary_of(result: pytest.RunResult) -> list[str]:
    """Lines of the section "redline"."""
    lines = result.outlines
    start = next(i for i, line in enumerate(lines) if re.fullmatch(r"=+ redline =+", ANSI.sub("", line)))
    section = []
    for line in lines[start + 1 :]:
        if re.match(r"=+ .* =+$", ANSI.sub("", line)) or re.match(r"\d+ (passed|failed|error)", ANSI.sub("", line)):
            break
        section.append(line)
    return section


def sentences(result: pytest.RunResult) -> str:
    """The section "redline" without its line breaks."""
    return " ".join(" ".join(summary_of(result)).split())


def certificate(gate: Gate, name: str = "g") -> dict[str, Any]:
    data: dict[str, Any] = json.loads((gate.path / "out" / f"{name}.certificate.json").read_text())
    return data


# -- terminal


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-v",), ("-qq",)])
def test_the_summary_fits_80_columns(gate: Gate, arguments: tuple[str, ...]) -> None:
    gate.write(PAPER, n=1012)
    lines = summary_of(gate.run(*arguments, "--redline-report=out"))
    assert max(map(len, lines)) <= 80
    table = [line.split() for line in lines if re.search(r" \d+/1012 ", line)]
    assert [row[-1] for row in table] == ["reference", "certified", "certified", "breach"]
    assert [row[:3] for row in table[1:]] == [
        ["*", "acc85/semi70", "2.500"],
        [">*", "acc90/semi90/add0.10", "3.333"],
        ["*", "acc80/semi50", "5.000"],
    ]


def test_the_deployed_configuration_is_marked_and_named(gate: Gate) -> None:
    gate.write(serving="risky")
    lines = summary_of(gate.run())
    assert [line for line in lines if line.startswith(">")] == [
        ">   safe           2.500  +25.0%   +0.0   0/60  0.000  0.002  certified",
        "> fastest certified   * required",
    ]
    assert any(line.startswith(" *  risky ") for line in lines)
    assert "Deploy safe: +25.0%" in " ".join(lines)


@pytest.mark.parametrize("columns", ["40", "80", "100"])
def test_long_labels_are_neither_cut_nor_wrapped(gate: Gate, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    long = "accept_threshold0.85/semi_complete_threshold0.70/add_block_threshold0.10/buffer_size4"
    gate.write({"ref": (), long: range(1), "risky": range(20)})
    rows = [line for line in summary_of(gate.run()) if "/60 " in line]
    assert len(rows) == 3
    assert re.match(rf">\*  {re.escape(long)} +\+25\.0% +1/60 +0\.014  certified$", rows[1])
    assert re.match(r" \*  risky +\+66\.7% +20/60 +1\.000  breach$", rows[2])


def test_columns_that_can_be_spared_go_first(gate: Gate) -> None:
    gate.write({"ref": (), "a" * 35: (), "risky": range(20)})
    lines = summary_of(gate.run())
    header = next(line.split() for line in lines if "k/n" in line)
    assert {"configuration", "gain", "k/n", "p", "verdict"} <= set(header)
    assert "risk" not in header
    assert max(map(len, lines)) <= 80


def test_a_narrow_terminal_cuts_nothing(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.write(PAPER, n=1012)
    gate.run()  # later ones have no new statement to tell of
    wide = summary_of(gate.run())
    monkeypatch.setenv("COLUMNS", "40")
    assert summary_of(gate.run()) == wide


def test_a_terminal_of_few_letters_still_gets_lines(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    gate.write({"ref": (), "safe": ()}, population="Fragen aus Köln")
    lines = summary_of(gate.run_alone())
    assert any(line.startswith(">*  safe ") for line in lines)
    assert "Fragen aus K\\xf6ln" in " ".join(lines)


def test_seventy_configurations_show_what_decides(gate: Gate) -> None:
    wrong = {"ref": (), **{f"c{i:02}": range(20 + i % 7) for i in range(67)}, "safe": (), "served": range(20)}
    gate.write(wrong, n=80, serving="served")
    result = gate.run()
    lines = summary_of(result)
    rows = [line for line in lines if "/80 " in line]
    assert len(rows) == 60
    assert rows[0].startswith("    ref ")
    assert rows[-2].startswith(">   safe ")
    assert rows[-1].startswith(" *  served ")
    assert all(re.search(r"  \d+/80  ", row) for row in rows)
    assert "... and 10 configurations more; --redline-report=DIR lists all" in lines
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_pipe_gets_no_colour_and_color_yes_the_same_text_in_colour(gate: Gate, quiet: tuple[str, ...]) -> None:
    gate.write()
    gate.run()  # later ones have no new statement to tell of
    plain, coloured = gate.run(*quiet), gate.run(*quiet, "--color=yes")
    assert "\x1b" not in text_of(plain)
    lines = summary_of(coloured)
    assert any("\x1b[32mcertified" in line for line in lines)
    assert any("\x1b[31mbreach" in line for line in lines)
    assert [ANSI.sub("", line).rstrip() for line in lines] == summary_of(plain)


def test_the_promise_is_made_in_one_sentence(gate: Gate) -> None:
    gate.write(n=1200, population="support tickets of May", delta=0.1)
    result = gate.run("--redline-report=out")
    statement = certificate(gate)["statement"]["hash"]
    assert len(statement) == 64
    assert (
        "Promise: If these 1,200 prompts are an independent random draw from support tickets of May, then in at least "
        "90 % of such draws (of prompts and decoding randomness) no configuration marked certified has joint risk "
        f"above 0.1 there, for statement {statement[:12]} made when outcomes were known; it holds if nothing in it was "
        "chosen by them."
    ) in sentences(result)


def test_warnings_are_listed(gate: Gate) -> None:
    gate.write({"ref": (), "safe": ()})
    result = gate.run("--redline-alpha=0.2")
    assert "Warning: alpha 0.2 of --redline-alpha replaces the 0.1 that the grid file declares" in sentences(result)


def test_a_candidate_that_changes_nothing_is_inert_and_not_deployed(gate: Gate) -> None:
    gate.write({"ref": (), "same": ()})
    gate.edit("runs.csv", lambda text: text.replace(",40\n", ",50\n"))
    result = gate.run()
    assert result.ret == 0
    assert re.search(r"^ \*  same .* inert$", "\n".join(summary_of(result)), re.MULTILINE)
    assert "Deploy the reference ref: no faster configuration is certified." in sentences(result)
    assert "Warning: same gives the reference's outcomes on every prompt" in sentences(result)


def test_what_the_served_file_changes_is_shown_key_by_key(gate: Gate) -> None:
    gate.write(serving={"file": "serve.yaml", "keys": {"threshold": "dllm.accept"}})
    (gate.path / "serve.yaml").write_text("dllm: {accept: 0.89}\n")
    assert "Served differs from the reference in threshold (dllm.accept): 0.9 -> 0.89" in summary_of(gate.run())


@pytest.mark.parametrize("reads", ["ref", "safe"])
def test_a_knob_that_one_side_leaves_unset_is_called_so_and_null_is_a_value(gate: Gate, reads: str) -> None:
    more = {"edits": 0.9, "cache": None}
    knobs: dict[str, dict[str, Any]] = {"ref": {"mode": None}, "safe": {"mode": "fast"}}
    knobs[reads] |= more
    gate.write({"ref": (), "safe": ()}, serving="safe", configurations=knobs)
    console = sentences(gate.run("--redline-report=out"))
    markdown = (gate.path / "out" / "g.md").read_text()
    changes = {"mode": "null -> fast", "edits": "unset -> 0.9", "cache": "unset -> null"}
    if reads == "ref":
        changes |= {"edits": "0.9 -> unset", "cache": "null -> unset"}
    for knob, change in changes.items():
        assert f"Served differs from the reference in {knob}: {change}" in console
        assert f"- `{knob}: {change}`" in markdown
    assert "None" not in console + markdown
    assert gate.command("verify", "out/g.certificate.json").ret == 0


def test_groups_of_the_served_configuration_are_shown(gate: Gate) -> None:
    gate.write({"ref": (), "safe": range(2)}, n=120, groups={"by": "kind", "alpha": {"hard": 0.15}})
    header, *rows = (gate.path / "runs.csv").read_text().splitlines()
    grouped = [f"{row},{'hard' if int(row.split(',q')[1].split(',')[0]) < 50 else 'easy'}" for row in rows]
    (gate.path / "runs.csv").write_text("\n".join([f"{header},kind", *grouped]) + "\n")
    result = gate.run()
    assert result.ret == 0
    assert re.search(
        r"safe in group hard: 2/50 = 0\.040, budget 0\.15, p 0\.\d{3}, net -4\.0 points", sentences(result)
    )
    assert "safe in group easy: 0/70 = 0.000, net +0.0 points" in sentences(result)


# -- files


def test_the_markdown_report_has_the_table_what_is_lacking_and_the_promise(gate: Gate) -> None:
    gate.write({"ref": (), "safe": (1,), "risky": range(25)})
    gate.run("--redline-report=out")
    text = (gate.path / "out" / "g.md").read_text()
    assert text.startswith("## Redline g: NOT passed: `risky`\n")
    assert re.search(
        r"^\| fastest certified required \| `safe` \| 2\.500 \| \+25\.0% .*\| 1/60 \|.*\| certified \|$", text, re.M
    )
    assert re.search(r"^\| required \| `risky` \| 3\.333 \| .*\| 25/60 \|.*\| breach \|$", text, re.M)
    assert "### `risky` is not certified" in text
    assert "  it would pass with 23 violations fewer" in text
    assert "25 prompts right with ref and wrong with risky" in text
    assert f"{', '.join(f'`q{i}`' for i in range(20))}, and 5 more" in text
    assert certificate(gate)["promise"] in text
    assert certificate(gate)["digest"] in text
    columns = {line.count("|") for line in text.splitlines() if line.startswith(("| |", "|---|---|-", "| deployed r"))}
    assert len(columns) == 1


def test_a_passed_gate_says_so_in_the_heading(gate: Gate) -> None:
    gate.write({"ref": (), "safe": ()})
    gate.run("--redline-report=out")
    assert (gate.path / "out" / "g.md").read_text().startswith("## Redline g: passed\n")


def test_the_step_summary_is_appended(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = gate.path / "summary.md"
    summary.write_text("# An earlier step\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    gate.write()
    gate.write({"ref": (), "safe": ()}, file="other.redline.yaml", recording="other.csv")
    gate.run()
    headings = [line for line in summary.read_text().splitlines() if re.match("##? ", line)]
    assert headings == ["# An earlier step", "## Redline g: NOT passed: `risky`", "## Redline other: passed"]


def test_a_refusal_outside_the_root_folder_is_summed_up_and_annotated(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(gate.path / "summary.md"))
    gate.write(alpa=0.1)
    (gate.path / "sub").mkdir()
    result = gate.run("--rootdir=sub", "g.redline.yaml")
    assert result.ret == 2
    assert "alpa: unknown key" in (gate.path / "summary.md").read_text()
    assert any(line.startswith("::error") and "alpa" in line for line in result.outlines)


def test_a_partial_run_writes_no_step_summary(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(gate.path / "summary.md"))
    gate.write()
    gate.run("--redline-partial", "-k", "safe")
    assert not (gate.path / "summary.md").exists()


def test_the_certificate_has_the_keys_of_its_format_and_no_others(gate: Gate) -> None:
    gate.write()
    gate.run("--redline-report=out")
    made = certificate(gate)
    assert set(made) == {
        "redline_certificate", "name", "statement", "alpha", "delta", "n", "m", "reference", "serving", "deployed",
        "promise", "cost", "configurations", "groups", "frontier", "bootstrap", "warnings", "provenance", "outcomes",
        "reuse", "digest",
    }  # fmt: skip
    row = made["configurations"][2]
    assert {key: row[key] for key in ("label", "k", "n", "gained", "certified", "verdict", "required")} == {
        "label": "risky", "k": 20, "n": 60, "gained": 0, "certified": False, "verdict": "breach", "required": True
    }  # fmt: skip
    assert {"p", "cost", "gain"} <= set(row)
    assert made["deployed"] == "safe"


def test_the_certificate_verifies(gate: Gate) -> None:
    gate.write()
    gate.run("--redline-report=out")
    result = gate.command("verify", "out/g.certificate.json")
    assert result.ret == 0
    assert result.outlines[0] == "out/g.certificate.json: consistent and unchanged; gate NOT passed: risky"


def test_the_certificate_and_where_it_is_are_printed(gate: Gate) -> None:
    gate.write()
    result = gate.run("--redline-report=out")
    assert f"Certificate: out/g.certificate.json ({certificate(gate)['digest'][:19]})" in summary_of(result)
    assert "Certificate:" not in text_of(gate.run())


# -- annotations


def annotations(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith("::")]


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_failing_candidate_is_annotated_on_its_line(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, quiet: tuple[str, ...]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    grid = gate.write()
    line = 1 + grid.read_text().splitlines().index("  risky:")
    (found,) = annotations(gate.run(*quiet))
    assert found.startswith(
        f"::error file=g.redline.yaml,line={line},title=redline g%3A risky is not certified::"
        "breach: 20 of 60 prompts violated, alpha 0.1%0Aright with ref and wrong with risky"
    )


def test_annotations_escape_what_would_end_a_property(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    folder = gate.path / "50%,a:b"
    folder.mkdir()
    gate.write()
    for name in ("g.redline.yaml", "runs.csv"):
        (gate.path / name).rename(folder / name)
    (found,) = annotations(gate.run())
    assert found.startswith("::error file=50%25%2Ca%3Ab/g.redline.yaml,line=")


def test_a_passed_gate_is_a_notice(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    grid = gate.write(serving="safe")
    line = 1 + grid.read_text().splitlines().index("  safe:")
    assert annotations(gate.run()) == [
        f"::notice file=g.redline.yaml,line={line},title=redline g::safe is certified at alpha 0.1; deployable: safe"
    ]


@pytest.mark.parametrize("value", [None, "", "false"])
def test_there_are_no_annotations_elsewhere(gate: Gate, monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    if value is not None:
        monkeypatch.setenv("GITHUB_ACTIONS", value)
    gate.write()
    assert annotations(gate.run()) == []


def test_workers_annotate_the_same_line(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    gate.write()
    alone = annotations(gate.run())
    assert len(alone) == 1
    assert annotations(gate.run_alone("-p", "xdist", "-n2")) == alone


# -- JUnit


def test_junit_has_the_numbers_of_every_candidate(gate: Gate) -> None:
    gate.write({"ref": (), "safe": (), "risky": range(20), "bold": range(30)}, serving="risky")
    gate.run("--junitxml=junit.xml", "--redline-report=out")
    made = certificate(gate)
    rows = {row["label"]: row for row in made["configurations"]}
    cases = {case.get("name"): case for case in ElementTree.parse(gate.path / "junit.xml").iter("testcase")}
    assert list(cases) == ["safe", "risky", "bold"]
    for label, case in cases.items():
        row = rows[label]
        assert {each.get("name"): each.get("value") for each in case.iter("property")} == {
            "redline.verdict": row["verdict"],
            "redline.k": str(row["k"]),
            "redline.n": "60",
            "redline.p": str(row["p"]),
            "redline.bound": str(row["risk_upper_simultaneous"]),
            "redline.gain": str(row["gain"]),
            "redline.required": str(label == "risky"),
            "redline.deployed": "safe",
            "redline.digest": made["digest"],
        }
        assert len(list(case.iter("property"))) == 9
    assert [child.tag for child in cases["safe"]] == ["properties"]
    assert [child.tag for child in cases["risky"]] == ["properties", "failure"]
    assert [child.tag for child in cases["bold"]] == ["properties", "skipped"]
    assert cases["risky"][1].text.startswith("breach: 20 of 60 prompts violated, alpha 0.1\n  right with ref")
    assert cases["bold"][1].get("message") == "not certified: breach"


def test_junit_calls_a_refused_recording_an_error(gate: Gate) -> None:
    gate.write()
    (gate.path / "runs.csv").write_text("")
    gate.run("--junitxml=junit.xml")
    suite = ElementTree.parse(gate.path / "junit.xml").find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("2", "2", "0")
    assert "runs.csv: is empty" in (gate.path / "junit.xml").read_text()


def test_an_unknown_gain_is_a_word(gate: Gate) -> None:
    gate.write({"ref": (), "safe": ()}, cost="unknown")
    assert gate.run("--junitxml=junit.xml").ret == 0
    values = {p.get("name"): p.get("value") for p in ElementTree.parse(gate.path / "junit.xml").iter("property")}
    assert values["redline.gain"] == "unknown"
    assert values["redline.verdict"] == "certified"


def test_a_grid_that_cannot_be_judged_is_annotated_and_summed_up(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(gate.path / "summary.md"))
    path = gate.write()
    gate.edit(path.name, lambda text: text.replace("reference: ref", "reference: rf"))
    result = gate.run()
    assert result.ret == 2
    line = 1 + path.read_text().splitlines().index("reference: rf")
    found = [each for each in result.outlines if each.startswith("::error ")]
    assert len(found) == 1
    assert found[0].startswith(f"::error file=g.redline.yaml,line={line},title=redline%3A cannot be judged::")
    summary = (gate.path / "summary.md").read_text()
    assert "## Redline g.redline.yaml: could not be judged" in summary
    assert "did you mean ref?" in summary


def test_a_recording_that_is_refused_is_annotated_on_its_line(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(gate.path / "summary.md"))
    gate.write()
    gate.edit("runs.csv", lambda text: text.replace("ref,q0,1", "ref,q0,yes"))
    result = gate.run()
    assert result.ret == 1
    assert any(each.startswith("::error file=runs.csv,line=2,") for each in result.outlines)
    assert "could not be judged" in (gate.path / "summary.md").read_text()


def test_what_a_recording_says_cannot_pass_for_output(gate: Gate) -> None:
    gate.write({"ref": (), "risky": range(20)})
    gate.edit("runs.csv", lambda text: text.replace(",q3,", ',"q3`\n\n## Redline g: passed\n`",'))
    assert gate.run("--redline-report=out").ret == 1
    report = (gate.path / "out" / "g.md").read_text()
    assert [line for line in report.splitlines() if line.startswith("## ")] == ["## Redline g: NOT passed: `risky`"]
