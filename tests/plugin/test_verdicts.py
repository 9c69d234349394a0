"""How verdicts become outcomes of tests, and sessions become exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from gate_runner import Gate, text_of

import pytest_redline.gate

GREEN = {"ref": (), "safe": ()}
TWO_RED = {"ref": (), "safe": (), "risky": range(20), "bold": range(30)}
ONE_MORE = "though not among the tests that ran"


def certificate(gate: Gate, *arguments: str) -> dict[str, Any]:
    """Run the gate and read the certificate that it wrote."""
    gate.run("--redline-report=out", *arguments)
    (path,) = (gate.path / "out").glob("*.certificate.json")
    data: dict[str, Any] = json.loads(path.read_text())
    return data


def last_line(result: pytest.RunResult) -> str:
    """Counts of the last line, without times and rules."""
    return re.sub(r" in [\d.]+s.*", "", result.outlines[-1].strip("= "))


def verdict_lines(result: pytest.RunResult) -> list[str]:
    """Rows of the printed table."""
    return [
        line
        for line in result.outlines
        if re.search(r" \d+/\d+ .* (reference|certified|inert|undecided|breach)$", line)
    ]


# -- required or not


def test_without_serving_every_candidate_is_required(gate: Gate) -> None:
    gate.write()
    result = gate.run()
    assert result.ret == 1
    assert last_line(result) == "1 failed, 1 passed"
    assert [line[:2] for line in verdict_lines(result)] == ["  ", ">*", " *"]


def test_only_the_served_candidate_is_required(gate: Gate) -> None:
    gate.write(serving="safe")
    result = gate.run()
    assert result.ret == 0
    assert last_line(result) == "1 passed, 1 not required"
    assert [line[:2] for line in verdict_lines(result)] == ["  ", ">*", "  "]
    assert "It is what is served." in " ".join(result.outlines)


def test_a_served_candidate_that_is_not_certified_fails(gate: Gate) -> None:
    gate.write({**TWO_RED}, serving="risky")
    result = gate.run()
    assert result.ret == 1
    assert last_line(result) == "1 failed, 1 passed, 1 not required"
    assert "What is served is not certified: risky." in text_of(result)


def test_serving_the_reference_is_always_allowed(gate: Gate) -> None:
    gate.write({"ref": (), "risky": range(20)}, serving="ref")
    result = gate.run()
    assert result.ret == 0
    assert last_line(result) == "1 not required"


@pytest.mark.parametrize(("threshold", "code", "label"), [("0.89", 0, "safe"), ("0.88", 1, "risky"), ("0.9", 0, "ref")])
def test_the_served_configuration_is_found_through_its_file(gate: Gate, threshold: str, code: int, label: str) -> None:
    gate.write(serving={"file": "serve.json", "keys": {"threshold": "dllm.threshold"}})
    (gate.path / "serve.json").write_text(f'{{"dllm": {{"threshold": {threshold}}}}}')
    assert gate.run("--redline-report=out").ret == code
    made = json.loads((gate.path / "out" / "g.certificate.json").read_text())
    assert made["serving"] == label


# -- what a run prints


def test_verbose_words_name_the_verdict(gate: Gate) -> None:
    gate.write({**TWO_RED}, serving="risky")
    lines = gate.run("-v").outlines
    words = [re.sub(r" +\[ *\d+%\]", "", line) for line in lines if re.search(r"\[ *\d+%\]", line)]
    assert words == [
        "g.redline.yaml::safe CERTIFIED",
        "g.redline.yaml::risky NOT CERTIFIED",
        "g.redline.yaml::bold NOT REQUIRED (not certified: breach)",
    ]


def test_letters_of_a_quiet_run(gate: Gate) -> None:
    gate.write({**TWO_RED}, serving="risky")
    assert gate.run("-q").outlines[0].split() == [".Fn", "[100%]"]


def test_a_breach_shows_its_numbers_and_no_traceback(gate: Gate) -> None:
    gate.write()
    result = gate.run("--tb=long")
    shown = text_of(result).partition("redline: risky ___")[2].partition("=== redline ===")[0].splitlines()[1:-1]
    assert shown == [
        "breach: 20 of 60 prompts violated, alpha 0.1",
        "  right with ref and wrong with risky: risk 0.3333",
        "  one-sided bounds over the grid: 0.2330 and 0.4465",
        "  exact p = 1.000; Holm allows 0.1 here",
        "  it would pass with 18 violations fewer",
        "  its risk is above the budget: more prompts will not help",
    ]
    assert "items.py:" not in text_of(result)


def test_an_undecided_candidate_shows_what_would_certify_it(gate: Gate) -> None:
    gate.write({"ref": (), "near": range(3)})
    result = gate.run()
    assert result.ret == 1
    assert "undecided: 3 of 60 prompts violated, alpha 0.1" in text_of(result)
    assert "  it would pass with 1 violation fewer" in result.outlines
    needed = re.search(r"or with about (\d+) prompts in a new draw", text_of(result))
    assert needed is not None
    assert 60 < int(needed[1]) < 600


def test_one_violation_fewer_does_certify_it(gate: Gate) -> None:
    gate.write({"ref": (), "near": range(2)})
    assert gate.run().ret == 0


def test_a_refused_recording_is_an_error_of_every_item_and_no_failure(gate: Gate) -> None:
    gate.write(TWO_RED)
    (gate.path / "runs.csv").write_text("")
    result = gate.run()
    assert result.ret == 1
    assert last_line(result) == "3 errors"
    assert "EEE" in text_of(result)
    assert "redline: risky" in text_of(result)
    assert "items.py:" not in text_of(result)


def test_our_own_fault_shows_a_traceback(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(grid: object, live: object) -> None:
        raise ZeroDivisionError("a fault of the plugin")

    monkeypatch.setattr(pytest_redline.gate, "certificate_of", broken)
    gate.write()
    result = gate.run()
    assert result.ret == 1
    assert last_line(result) == "2 errors"
    assert "ZeroDivisionError: a fault of the plugin" in text_of(result)
    assert "self._certificate = certificate_of(self.grid, live)" in text_of(result)


# -- selection


def test_ids_select_again_what_they_name(gate: Gate) -> None:
    gate.write({"ref": (), "acc85/semi70": (), "acc80/semi50": ()}, serving="acc85/semi70")
    listed = [line for line in gate.run("--collect-only", "-q").outlines if "::" in line]
    assert listed == ["g.redline.yaml::acc85/semi70", "g.redline.yaml::acc80/semi50"]
    result = gate.run("-v", listed[0])
    assert last_line(result) == "1 passed"
    assert "g.redline.yaml::acc85/semi70 CERTIFIED" in text_of(result)


def test_collect_only_judges_nothing(gate: Gate) -> None:
    gate.write()
    result = gate.run("--collect-only", "--redline-report=out", "--redline-alpha=0.1")
    assert result.ret == 0
    assert "redline ===" not in text_of(result)
    assert not (gate.path / "out").exists()


def test_collect_only_leaves_a_certificate_where_it_is(gate: Gate) -> None:
    gate.write({"ref": (), "safe": ()})
    assert gate.run("--redline-report=out").ret == 0
    written = (gate.path / "out" / "g.certificate.json").read_bytes()
    assert gate.run("--collect-only", "--redline-report=out").ret == 0
    assert (gate.path / "out" / "g.certificate.json").read_bytes() == written


def test_a_deselected_candidate_that_is_not_required_does_not_count(gate: Gate) -> None:
    gate.write(serving="safe")
    result = gate.run("-k", "safe", "--redline-report=out")
    assert result.ret == 0
    assert last_line(result) == "1 passed, 1 deselected"
    assert (gate.path / "out" / "g.certificate.json").exists()


def test_a_certified_candidate_may_be_deselected(gate: Gate) -> None:
    gate.write({"ref": (), "safe": (), "calm": ()})
    result = gate.run("-k", "calm", "--redline-report=out")
    assert result.ret == 0
    assert last_line(result) == "1 passed, 1 deselected"
    assert json.loads((gate.path / "out" / "g.certificate.json").read_text())["m"] == 3


def test_m_is_that_of_the_grid_whatever_is_selected(gate: Gate) -> None:
    gate.write({"ref": (), "near": range(2), "risky": range(20), "bold": range(30)}, n=60, serving="near")
    everything, alone = gate.run(), gate.run("g.redline.yaml::near")
    assert verdict_lines(alone) == verdict_lines(everything)
    assert len(verdict_lines(alone)) == 4


def test_exitfirst_stops_and_tells_what_did_not_run(gate: Gate) -> None:
    gate.write(TWO_RED)
    result = gate.run("-x")
    assert result.ret == 1
    assert last_line(result) == "1 failed, 1 passed"
    assert "stopping after 1 failures" in text_of(result)
    assert f"required and not certified, {ONE_MORE}: bold" in text_of(result)


def test_partial_judges_what_is_selected_and_writes_nothing(gate: Gate) -> None:
    gate.write()
    result = gate.run("--redline-partial", "-k", "safe", "--redline-report=out")
    assert result.ret == 0
    assert "Partial run (--redline-partial): no certificate is written" in result.outlines
    assert not (gate.path / "out").exists()
    assert gate.run("--redline-partial", "-k", "risky").ret == 1


# -- last failed, reruns, workers


def lf(gate: Gate, *arguments: str) -> pytest.RunResult:
    return gate.run("-p", "cacheprovider", "--redline-report=out", *arguments)


def test_last_failed_is_green_once_the_recording_is_mended(gate: Gate) -> None:
    gate.write()
    assert lf(gate).ret == 1
    gate.write({"ref": (), "safe": (), "risky": ()})
    result = lf(gate, "--lf", "-v")
    assert result.ret == 0
    assert last_line(result) == "1 passed"
    assert json.loads((gate.path / "out" / "g.certificate.json").read_text())["m"] == 3


def test_last_failed_is_red_while_the_candidate_still_fails(gate: Gate) -> None:
    gate.write()
    lf(gate)
    result = lf(gate, "--lf")
    assert result.ret == 1
    assert last_line(result) == "1 failed"


def test_last_failed_judges_grids_that_had_no_failure(gate: Gate) -> None:
    gate.write(GREEN)
    test = gate.pytester.makepyfile(test_it="def test_it(): assert False")
    lf(gate)
    test.write_text("def test_it(): assert True")
    gate.write({"ref": (), "safe": range(20)})
    result = lf(gate, "--lf")
    assert result.ret == 1
    assert last_line(result) == "1 passed"
    assert f"g.redline.yaml: required and not certified, {ONE_MORE}: safe" in text_of(result)
    gate.write(GREEN)
    test.write_text("def test_it(): assert False")
    lf(gate)
    test.write_text("def test_it(): assert True")
    assert lf(gate, "--lf").ret == 0
    assert (gate.path / "out" / "g.certificate.json").exists()


def test_a_rerun_gives_the_same_verdict(gate: Gate) -> None:
    gate.write()
    once = gate.run("--redline-report=once", "--junitxml=once.xml")
    result = gate.run("-p", "rerunfailures", "--reruns=1", "--redline-report=again", "--junitxml=again.xml")
    assert result.ret == once.ret == 1
    assert last_line(result) == "1 failed, 1 passed, 1 rerun"
    assert verdict_lines(result) == verdict_lines(once)
    assert (gate.path / "again/g.certificate.json").read_bytes() == (gate.path / "once/g.certificate.json").read_bytes()
    cases = ElementTree.parse(gate.path / "again.xml").findall(".//testcase")
    assert [case.get("name") for case in cases] == ["safe", "risky", "risky"]  # the rerun has one of its own
    for case in cases:
        assert [each.get("name") for each in case.iter("property")].count("redline.k") == 1


@pytest.mark.parametrize("workers", ["-n2", "-n3"])
@pytest.mark.parametrize("wrong", [{"ref": (), "safe": (), "one": (4,)}, {"ref": (), "one": (4,), "many": range(8)}])
def test_workers_make_one_certificate_the_same_as_without(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, workers: str, wrong: dict[str, Any]
) -> None:
    gate.write(wrong, n=9, alpha=0.5)
    alone = gate.run("--redline-report=alone")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    result = gate.run_alone("-p", "xdist", workers, "--redline-report=out")
    assert result.ret == alone.ret == int("many" in wrong)
    assert sorted(path.name for path in (gate.path / "out").iterdir()) == ["g.certificate.json", "g.md"]
    for name in ("g.certificate.json", "g.md"):
        assert (gate.path / "out" / name).read_bytes() == (gate.path / "alone" / name).read_bytes()
    assert (gate.path / "summary.md").read_bytes() == (gate.path / "out" / "g.md").read_bytes()
    assert verdict_lines(result) == verdict_lines(alone)
    assert len(verdict_lines(result)) == 3
    assert text_of(result).count("Certificate: out/g.certificate.json") == 1
    assert last_line(result) == last_line(alone)


def test_a_worker_knows_grids_whose_items_were_all_deselected(gate: Gate) -> None:
    gate.write()
    gate.pytester.makepyfile(test_it="def test_it(): pass")
    result = gate.run_alone("-p", "xdist", "-n1", "-k", "test_it")
    assert result.ret == 1
    assert f"g.redline.yaml: required and not certified, {ONE_MORE}: risky" in text_of(result)


# -- options


@pytest.mark.parametrize(
    ("option", "file", "ini", "used"),
    [(0.2, 0.15, 0.3, 0.2), (0.2, None, 0.3, 0.2), (None, 0.15, 0.3, 0.15), (None, None, 0.3, 0.3)],
)
@pytest.mark.parametrize("name", ["alpha", "delta"])
def test_the_command_line_wins_over_the_file_and_the_file_over_the_ini_key(
    gate: Gate, name: str, option: float | None, file: float | None, ini: float, used: float
) -> None:
    gate.write(GREEN, **{name: file})
    (gate.path / "pytest.ini").write_text(f"[pytest]\nredline_{name} = {ini}\n")
    made = certificate(gate, *([f"--redline-{name}={option}"] if option else []))
    assert made[name] == made["statement"][name] == used


def test_delta_is_a_tenth_where_nobody_says_anything(gate: Gate) -> None:
    gate.write(GREEN)
    assert certificate(gate)["delta"] == 0.1


def test_replacing_what_the_file_declares_is_a_warning(gate: Gate) -> None:
    gate.write(GREEN, delta=0.2)
    made = certificate(gate, "--redline-alpha=2e-1", "--redline-delta=0.05")
    assert made["warnings"] == [
        "alpha 0.2 of --redline-alpha replaces the 0.1 that the grid file declares",
        "delta 0.05 of --redline-delta replaces the 0.2 that the grid file declares",
    ]
    assert certificate(gate, "--redline-alpha=0.1")["warnings"] == []


def test_the_report_folder_of_the_ini_file_is_relative_to_the_root(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.write(GREEN)
    (gate.path / "pytest.ini").write_text("[pytest]\nredline_report = out\n")
    (gate.path / "below").mkdir()
    monkeypatch.chdir(gate.path / "below")
    assert gate.run("..").ret == 0
    assert (gate.path / "out" / "g.certificate.json").exists()
    assert gate.run("..", "--redline-report=here").ret == 0
    assert (gate.path / "below" / "here" / "g.certificate.json").exists()


def passes(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    return gate.run()


def fails(gate: Gate) -> pytest.RunResult:
    gate.write()
    return gate.run()


def cannot_be_collected(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, alpha="high")
    return gate.run()


def is_used_wrongly(gate: Gate) -> pytest.RunResult:
    return gate.run("--redline-alpha=0.1")


def finds_nothing(gate: Gate) -> pytest.RunResult:
    return gate.run()


def selects_nothing_of_a_green_grid(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    return gate.run("-k", "nothing")


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (passes, pytest.ExitCode.OK),
        (fails, pytest.ExitCode.TESTS_FAILED),
        (cannot_be_collected, pytest.ExitCode.INTERRUPTED),
        (is_used_wrongly, pytest.ExitCode.USAGE_ERROR),
        (finds_nothing, pytest.ExitCode.NO_TESTS_COLLECTED),
        (selects_nothing_of_a_green_grid, pytest.ExitCode.NO_TESTS_COLLECTED),
    ],
)
def test_exit_codes_are_those_of_pytest(
    gate: Gate, run: Callable[[Gate], pytest.RunResult], code: pytest.ExitCode
) -> None:
    assert run(gate).ret == code


# -- what is a grid, and sessions without one


@pytest.mark.parametrize("name", ["redline.yaml", "redline.yml", "a.redline.yaml", "a.b.redline.yml"])
def test_grid_files_are_collected(gate: Gate, name: str) -> None:
    gate.write(GREEN, file=name, name="g")
    result = gate.run("-v")
    assert result.ret == 0
    assert f"{name}::safe CERTIFIED" in text_of(result)


@pytest.mark.parametrize("name", ["grid.yaml", "myredline.yaml", "a-redline.yaml", "redline.json", "redline.yaml.bak"])
def test_other_files_are_not(gate: Gate, name: str) -> None:
    gate.write(file=name, name="g")
    assert gate.run().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_session_without_grids_is_left_as_it_is(gate: Gate) -> None:
    gate.pytester.makepyfile(test_it="def test_it(): pass\ndef test_red(): assert False")
    before = sorted(path.name for path in gate.path.iterdir())
    plain = gate.pytester.runpytest_inprocess("--no-header", "-p", "no:cacheprovider")
    result = gate.run("--no-header", "-p", "no:cacheprovider")
    timeless = [re.sub(r"[\d.]+s", "", line) for line in result.outlines]
    assert timeless == [re.sub(r"[\d.]+s", "", line) for line in plain.outlines]
    assert "redline" not in text_of(result)
    assert [name for name in sorted(p.name for p in gate.path.iterdir()) if name != "__pycache__"] == before


def test_the_installed_plugin_is_found_and_can_be_switched_off(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    gate.write(GREEN)
    found = gate.pytester.runpytest_subprocess("--redline-alpha=0.1")
    assert found.ret == 0
    assert last_line(found) == "1 passed"
    off = gate.pytester.runpytest_subprocess("--no-header", "-p", "no:redline")
    assert off.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "redline" not in off.stdout.str().partition("test session starts")[2]


# -- which grids are judged


def test_a_grid_that_was_not_asked_for_is_not_judged(gate: Gate) -> None:
    gate.write(GREEN, file="a.redline.yaml", recording="a.csv")
    gate.write(file="b.redline.yaml", recording="b.csv")  # red
    (gate.path / "c.redline.yaml").write_text("broken: [")
    (gate.path / "test_ok.py").write_text("def test_ok(): pass\n")
    result = gate.run("a.redline.yaml", "--redline-report=out")
    assert result.ret == 0
    assert sorted(path.name for path in (gate.path / "out").iterdir()) == ["a.certificate.json", "a.md"]
    assert gate.run("test_ok.py").ret == 0
    assert gate.run("test_ok.py", "--redline-alpha=0.1").ret == 4
    assert gate.run("a.redline.yaml", "b.redline.yaml").ret == 1
    assert gate.run("a.redline.yaml", "c.redline.yaml").ret == 2


def test_a_folder_that_was_asked_for_is_judged_whole(gate: Gate) -> None:
    (gate.path / "gates").mkdir()
    gate.write(
        GREEN, file="gates/a.redline.yaml", recording="gates/runs.csv", name="a", source={"outcomes": "runs.csv"}
    )
    gate.write()  # red, and outside
    assert gate.run("gates").ret == 0
    assert gate.run(".").ret == 1
