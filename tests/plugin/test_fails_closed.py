"""Ways to cheat the gate or to break it. None of them ends green, and each is told by name."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gate_runner import HEADER, Gate, text_of

from pytest_redline.certificate import digest, to_bytes
from pytest_redline.certificate_schema import Certificate

GREEN = {"ref": (), "safe": ()}  # a grid that passes as it is, so that a case shows what it changes and nothing else
RED = {"ref": (), "safe": (), "risky": range(20)}  # risky is required and not certified
UNSEEN = "g.redline.yaml: required and not certified, though not among the tests that ran: risky"

Attack = Callable[[Gate], pytest.RunResult]
ATTACKS: list[object] = []


def attack(code: int, *messages: str) -> Callable[[Attack], Attack]:
    """Register a case: the exit code that it must have, and texts that the run must print."""

    def register(function: Attack) -> Attack:
        ATTACKS.append(pytest.param(function, code, messages, id=function.__name__))
        return function

    return register


def without(start: str) -> Callable[[str], str]:
    """Drop the lines that start so."""
    return lambda text: "".join(line for line in text.splitlines(True) if not line.startswith(start))


def with_line(line: str) -> Callable[[str], str]:
    return lambda text: text + line + "\n"


def swapped(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new)


def with_column(name: str, value: Callable[[str, str], str]) -> Callable[[str], str]:
    """Append a column; its values come from configuration and prompt."""

    def change(text: str) -> str:
        header, *rows = text.splitlines()
        return "\n".join([f"{header},{name}", *(f"{row},{value(*row.split(',')[:2])}" for row in rows)]) + "\n"

    return change


# -- prompts and rows


@attack(1, "runs.csv: prompt q7 has no outcome for safe (1 of 120 rows missing)")
def prompt_missing_in_one_configuration(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("runs.csv", without("safe,q7,"))
    return gate.run()


@attack(
    1,
    "prompt q7 has no outcome for ref (2 of 120 rows missing)",
    "(2 of 120 rows missing), likewise for safe; record it, or remove the prompt from prompts.csv",
)
def prompt_missing_in_every_configuration(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, prompts={"file": "prompts.csv"})
    (gate.path / "prompts.csv").write_text("id\n" + "".join(f"q{i}\n" for i in range(60)))
    gate.edit("runs.csv", lambda text: without("ref,q7,")(without("safe,q7,")(text)))
    return gate.run()


@attack(1, "prompt extra, recorded for ref, is not in prompts.csv", "is not in prompts.csv, likewise for safe;")
def prompts_that_the_prompts_file_does_not_have(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, prompts={"file": "prompts.csv"})
    (gate.path / "prompts.csv").write_text("id\n" + "".join(f"q{i}\n" for i in range(60)))
    gate.edit("runs.csv", with_line("ref,extra,1,100,50\nsafe,extra,1,100,40"))
    return gate.run()


@attack(1, "runs.csv: prompt easy has no outcome for ref")
def easy_prompt_added_to_a_candidate(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("runs.csv", with_line("safe,easy,1,100,40"))
    return gate.run()


@attack(1, "runs.csv:122: prompt q3 has 2 rows for safe (lines 65 and 122); allowed is one")
def row_doubled(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("runs.csv", with_line("safe,q3,1,100,40"))
    return gate.run()


@attack(1, "runs.jsonl:2: prompt a has 2 rows for ref (lines 1 and 2)", "prompt b has no outcome for safe")
def two_examples_of_one_id_that_disagree(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, source={"outcomes": "runs.jsonl"}, cost="unknown")
    rows = [("ref", "a", False), ("ref", "a", True), ("ref", "b", True), ("safe", "a", True)]
    (gate.path / "runs.jsonl").write_text(
        "".join(json.dumps({"config": c, "prompt": p, "correct": ok}) + "\n" for c, p, ok in rows)
    )
    return gate.run("--redline-report=out")


@attack(
    1,
    'runs.csv:4: prompt 5 has the text "What is 2+2?" here and "What is 5+5?" in runs.csv:3',
    'runs.csv:5: prompt 2 has the text "What is 5+5?" here and "What is 2+2?" in runs.csv:2',
)
def one_id_with_two_prompt_texts(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, cost="unknown")
    (gate.path / "runs.csv").write_text(
        "config,prompt,prompt_text,correct\n"
        "ref,2,What is 2+2?,1\nref,5,What is 5+5?,1\nsafe,5,What is 2+2?,1\nsafe,2,What is 5+5?,1\n"
    )
    return gate.run()


@attack(1, 'prompt q9 has the hash "other" here and "h-q9" in runs.csv:11; one id stands for one hash')
def one_id_with_two_prompt_hashes(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("runs.csv", with_column("prompt_hash", lambda c, p: "other" if (c, p) == ("safe", "q9") else f"h-{p}"))
    return gate.run()


@attack(1, 'prompts q4 and q5 have the same text "text q4"; a prompt counts once')
def one_prompt_under_two_ids(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("runs.csv", with_column("prompt_text", lambda _, p: f"text {'q4' if p == 'q5' else p}"))
    return gate.run()


@attack(1, "runs.csv: configuration safe has no rows")
def configuration_without_rows(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("runs.csv", without("safe,"))
    return gate.run()


@attack(1, 'config: "tried" is not a configuration of the grid', "every configuration that was tried counts")
def rows_of_a_configuration_that_is_not_declared(gate: Gate) -> pytest.RunResult:
    gate.write({**GREEN, "tried": range(30)}, configurations={"ref": {"t": 1}, "safe": {"t": 2}})
    return gate.run()


# -- values


@attack(1, 'runs.csv:65 correct: "nan" is neither right nor wrong')
def verdict_that_is_not_a_number(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("runs.csv", swapped("safe,q3,1,", "safe,q3,nan,"))
    return gate.run()


@attack(1, "runs.jsonl:2 correct: NaN cannot be compared with the threshold 0.5")
def score_that_is_not_a_number(gate: Gate) -> pytest.RunResult:
    columns = {"correct": {"column": "correct", "threshold": 0.5}}
    gate.write(GREEN, source={"outcomes": {"file": "runs.jsonl", "columns": columns}}, cost="unknown")
    (gate.path / "runs.jsonl").write_text(
        '{"config": "ref", "prompt": "a", "correct": 1}\n{"config": "safe", "prompt": "a", "correct": NaN}\n'
    )
    return gate.run()


@attack(1, 'runs.csv:65 forwards: "nan" is no measurement')
def cost_that_is_not_a_number(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("runs.csv", swapped("safe,q3,1,100,40", "safe,q3,1,100,nan"))
    return gate.run()


@attack(1, 'runs.csv:65 correct: "0.7" is neither right nor wrong', "threshold: NUMBER")
def partial_score_without_a_threshold(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("runs.csv", swapped("safe,q3,1,", "safe,q3,0.7,"))
    return gate.run()


# -- files


@attack(1, "runs.csv: is empty; a recording has at least one row")
def empty_recording(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    (gate.path / "runs.csv").write_text("")
    return gate.run()


@attack(1, "runs.csv: has only a header; a recording has at least one row")
def recording_of_a_header_only(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    (gate.path / "runs.csv").write_text(HEADER + "\n")
    return gate.run()


@attack(1, "run.csv: no such file (did you mean runs.csv?)")
def recording_that_is_not_there(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, source={"outcomes": "run.csv"})
    return gate.run()


@attack(1, "folder.csv: is a folder; a recording is one file")
def recording_that_is_a_folder(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, source={"outcomes": "folder.csv"})
    (gate.path / "folder.csv").mkdir()
    return gate.run()


@attack(1, "runs.csv.gz: the gzip data is cut off or damaged")
def recording_cut_off(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, source={"outcomes": "runs.csv.gz"})
    packed = gzip.compress((gate.path / "runs.csv").read_bytes())
    (gate.path / "runs.csv.gz").write_bytes(packed[: len(packed) // 2])
    return gate.run()


@attack(1, "the file is not the one that was declared")
def recording_edited_after_its_hash_was_declared(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    declared = hashlib.sha256((gate.path / "runs.csv").read_bytes()).hexdigest()
    gate.write(RED, source={"outcomes": {"file": "runs.csv", "sha256": declared}})
    gate.edit("runs.csv", lambda text: text.replace(",0,100,", ",1,100,"))
    return gate.run()


# -- the grid


@attack(4, "--redline-alpha given, but no grid was collected")
def grid_renamed_so_that_it_is_not_collected(gate: Gate) -> pytest.RunResult:
    gate.write(RED).rename(gate.path / "g.redline.yaml.off")
    return gate.run("--redline-alpha=0.1")


@attack(4, "--redline-delta, --redline-report, --redline-partial given, but no grid was collected")
def other_options_without_a_grid(gate: Gate) -> pytest.RunResult:
    gate.pytester.makepyfile(test_it="def test_it(): pass")
    return gate.run("--redline-delta=0.1", "--redline-report=out", "--redline-partial")


@attack(2, "g.redline.yaml:7 reference: 'baseline' is not a configuration of this grid; declared are ref, safe")
def reference_that_is_not_declared(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, reference="baseline")
    return gate.run()


@attack(2, "serving: 'saef' is not a configuration of this grid; did you mean safe?")
def serving_label_that_is_not_declared(gate: Gate) -> pytest.RunResult:
    gate.write(RED, serving="saef")
    return gate.run()


@attack(
    2,
    "serve.yaml equals no configuration of this grid, so nothing would judge what is deployed; nearest is safe: "
    "decoding.threshold is 0.5, safe has 0.89",
)
def serving_file_edited_to_a_value_that_nobody_measured(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, serving={"file": "serve.yaml", "keys": {"threshold": "decoding.threshold"}})
    (gate.path / "serve.yaml").write_text("decoding: {threshold: 0.89}\n")
    assert gate.run().ret == 0
    (gate.path / "serve.yaml").write_text("decoding: {threshold: 0.5}\n")
    return gate.run()


@attack(2, "g.redline.yaml:5 serving: serve.yaml cannot be read (No such file or directory)")
def serving_file_that_is_not_there(gate: Gate) -> pytest.RunResult:
    grid = gate.write(GREEN)
    grid.write_text(
        "redline: 1\nname: g\nalpha: 0.1\nreference: ref\n"
        "serving: {file: serve.yaml, keys: {t: t}}\n"
        "source: {outcomes: runs.csv}\nconfigurations: {ref: {t: 1}, safe: {t: 2}}\n"
    )
    return gate.run()


@attack(2, "g.redline.yaml:15 alpha: doubled key; it already stands on line 4")
def key_of_the_grid_doubled(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    gate.edit("g.redline.yaml", with_line("alpha: 0.9"))
    return gate.run()


@attack(2, "configurations.safe: has the same knobs as 'ref'; keep one of the two")
def two_labels_for_one_configuration(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, configurations={"ref": {"threshold": 0.9}, "safe": {"threshold": 0.90}})
    return gate.run()


@attack(2, "no candidate beside the reference; a gate needs one to judge")
def grid_without_a_candidate(gate: Gate) -> pytest.RunResult:
    gate.write({"ref": ()})
    return gate.run()


@attack(2, "source.outcome: unknown key; did you mean outcomes?")
def source_of_an_unknown_kind(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, source={"outcome": "runs.csv"})
    return gate.run()


@attack(2, "configurations.no: 'no' cannot name a configuration")
def configuration_called_no(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.edit("g.redline.yaml", swapped("  safe:", "  no:"))
    return gate.run()


@attack(2, "g.redline.yaml:1: found nothing; a grid file is a map of keys")
def empty_grid_file(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    (gate.path / "g.redline.yaml").write_text("")
    return gate.run()


@attack(2, "bad.redline.yaml:4 alpa: unknown key; did you mean alpha?", "bad.redline.yaml:1 alpha: not declared")
def broken_grid_beside_a_good_one(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.write(GREEN, file="bad.redline.yaml", recording="bad.csv")
    gate.edit("bad.redline.yaml", swapped("alpha:", "alpa:"))
    return gate.run()


@attack(1, "bad.redline.yaml:3 alpa: unknown key", "1 passed, 1 error")
def broken_grid_beside_a_good_one_when_collection_goes_on(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.write(GREEN, file="bad.redline.yaml", recording="bad.csv", alpha=None)
    gate.edit("bad.redline.yaml", swapped("name: bad\n", "name: bad\nalpa: 0.1\n"))
    return gate.run("--continue-on-collection-errors")


# -- budgets and prompts that decide nothing


@attack(2, "alpha: not declared; write it here, give --redline-alpha, or set the ini key redline_alpha")
def alpha_nowhere(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, alpha=None)
    return gate.run()


@attack(2, "g.redline.yaml:4 alpha: found 1.5; a number under 1")
def alpha_out_of_range_in_the_grid(gate: Gate) -> pytest.RunResult:
    gate.write(RED, alpha=1.5)
    return gate.run()


@attack(4, "argument --redline-alpha: '1.0' is not a number between 0 and 1, both excluded")
def alpha_out_of_range_on_the_command_line(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    return gate.run("--redline-alpha=1.0")


@attack(4, "argument --redline-delta: 'nan' is not a number between 0 and 1")
def delta_that_is_not_a_number(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    return gate.run("--redline-delta=nan")


@attack(4, "pytest.ini: redline_alpha: '2' is not a number between 0 and 1")
def alpha_out_of_range_in_the_ini_file(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    (gate.path / "pytest.ini").write_text("[pytest]\nredline_alpha = 2\n")
    return gate.run_alone()


@attack(1, "alpha=0.1 with n=28 and m=2: even zero violations give p=0.0523 > delta/m=0.05", "use at least 29 prompts")
def too_few_prompts_to_certify_anything(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, n=28)
    return gate.run()


@attack(1, "the reference is right on 0 of 60 prompts only", "always wrong would be certified")
def reference_that_is_never_right(gate: Gate) -> pytest.RunResult:
    gate.write({"ref": range(60), "safe": range(60)})
    return gate.run()


@attack(1, "the reference is right on 2 of 60 prompts only", "always wrong would be certified")
def reference_so_bad_that_a_candidate_that_is_always_wrong_passes(gate: Gate) -> pytest.RunResult:
    gate.write({"ref": range(2, 60), "wrong": range(60)})
    return gate.run()


# -- items that do not run, or are made to pass


@attack(1, UNSEEN, "1 passed, 1 deselected")
def failing_candidate_not_selected_by_k(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    return gate.run("-k", "safe")


@attack(1, "required and not certified, though not among the tests that ran: risky", "2 deselected")
def nothing_selected_at_all(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    return gate.run("-k", "nothing")


@attack(1, UNSEEN)
def failing_candidate_deselected(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    return gate.run("--deselect", "g.redline.yaml::risky")


@attack(1, UNSEEN)
def another_candidate_named_by_id(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    return gate.run("g.redline.yaml::safe")


@attack(1, "not judged: runs.csv: configuration risky has no rows", "2 deselected")
def recording_that_is_refused_and_every_item_deselected(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    gate.edit("runs.csv", without("risky,"))
    return gate.run("-k", "nothing")


def with_conftest(gate: Gate, code: str, *arguments: str) -> pytest.RunResult:
    gate.write(RED)
    gate.pytester.makeconftest("import pytest\n" + code)
    return gate.run(*arguments)


MARK = "def pytest_collection_modifyitems(items):\n    for item in items: item.add_marker(pytest.mark.{})"


@attack(1, UNSEEN, "2 skipped")
def skip_marker(gate: Gate) -> pytest.RunResult:
    return with_conftest(gate, MARK.format("skip"))


@attack(1, "breach: 20 of 60 prompts violated, alpha 0.1", "1 failed, 1 passed")
def xfail_marker(gate: Gate) -> pytest.RunResult:
    return with_conftest(gate, MARK.format("xfail"))


@attack(1, UNSEEN, "2 xfailed")
def xfail_marker_that_keeps_the_test_from_running(gate: Gate) -> pytest.RunResult:
    return with_conftest(gate, MARK.format("xfail(run=False)"))


@attack(1, "not judged: runs.csv: is empty", "2 xfailed")
def xfail_marker_on_a_recording_that_is_refused(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    (gate.path / "runs.csv").write_text("")
    gate.pytester.makeconftest("import pytest\n" + MARK.format("xfail"))
    return gate.run()


@attack(1, "breach: 20 of 60 prompts violated, alpha 0.1", "1 failed, 1 passed")
def runxfail(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    return gate.run("--runxfail")


@attack(1, "breach: 20 of 60 prompts violated, alpha 0.1", "1 failed, 1 deselected, 1 not required")
def runxfail_with_a_serving_label(gate: Gate) -> pytest.RunResult:
    gate.write({**RED, "bold": range(30)}, serving="risky")
    return gate.run("--runxfail", "-k", "risky or bold")


@attack(1, UNSEEN, "1 passed")
def conftest_that_drops_the_item(gate: Gate) -> pytest.RunResult:
    return with_conftest(gate, "def pytest_collection_modifyitems(items): items[:] = items[:1]")


@attack(1, UNSEEN, "no tests ran")
def conftest_that_runs_no_item(gate: Gate) -> pytest.RunResult:
    return with_conftest(gate, "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_protocol(item): return True")


@attack(1, "breach: 20 of 60 prompts violated, alpha 0.1", "1 failed, 1 passed")
def conftest_that_swallows_the_exception(gate: Gate) -> pytest.RunResult:
    return with_conftest(
        gate,
        "@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_call(item):\n"
        "    try: return (yield)\n    except Exception: return None",
    )


@attack(1, "required and not certified, though its test did not fail: risky", "2 passed")
def conftest_that_turns_the_report(gate: Gate) -> pytest.RunResult:
    return with_conftest(
        gate,
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_runtest_makereport(item, call):\n"
        "    report = yield\n    report.outcome, report.longrepr = 'passed', None\n    return report",
    )


@attack(1, "required and not certified, though its test did not fail: risky", "1 passed")
def conftest_that_turns_the_report_in_a_partial_run(gate: Gate) -> pytest.RunResult:
    return with_conftest(
        gate,
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\ndef pytest_runtest_makereport(item, call):\n"
        "    report = yield\n    report.outcome, report.longrepr = 'passed', None\n    return report",
        "--redline-partial",
        "-k",
        "risky",
    )


@attack(1, "breach: 20 of 60 prompts violated, alpha 0.1")
def conftest_that_replaces_the_verdict(gate: Gate) -> pytest.RunResult:
    return with_conftest(
        gate,
        "@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_setup(item): item.runtest = lambda: None",
    )


@attack(1, "RuntimeError: from a hook", "1 failed")
def conftest_that_raises_before_the_verdict(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.pytester.makeconftest("def pytest_runtest_call(item): raise RuntimeError('from a hook')")
    return gate.run()


@attack(1, "1 failed, 1 passed", "!! _pytest.outcomes.Exit: enough !!")
def conftest_that_leaves_with_exit_code_0(gate: Gate) -> pytest.RunResult:
    return with_conftest(
        gate,
        "def pytest_runtest_logreport(report):\n    if report.failed: pytest.exit('enough', returncode=0)",
    )


@attack(1, "1 failed, 1 passed")
def conftest_that_resets_the_exit_status(gate: Gate) -> pytest.RunResult:
    return with_conftest(
        gate, "@pytest.hookimpl(tryfirst=True)\ndef pytest_sessionfinish(session): session.exitstatus = 0"
    )


@attack(1, "worker 'gw", "crashed while running 'g.redline.yaml::")
def worker_that_crashes(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    gate.pytester.makeconftest("import os\ndef pytest_runtest_call(item): os._exit(0)")
    return gate.run_alone("-p", "xdist", "-n1", "--max-worker-restart=0")


@attack(1, "g.redline.yaml: grid, outcomes, prompts or serving file changed while the session ran")
def recording_that_changes_while_workers_run(gate: Gate) -> pytest.RunResult:
    gate.write({"ref": (), "safe": (), "calm": ()})
    gate.pytester.makeconftest(
        """
        import os, pathlib, time
        import pytest

        done, runs = pathlib.Path("done"), pathlib.Path("runs.csv")
        worker = os.environ.get("PYTEST_XDIST_WORKER")

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_setup(item):
            if worker == "gw1":
                until = time.monotonic() + 30
                while not done.exists() and time.monotonic() < until:
                    time.sleep(0.02)
                runs.write_text(runs.read_text().replace("calm,q0,1", "calm,q0,0"))

        def pytest_runtest_teardown(item):
            if worker == "gw0":
                done.touch()
        """
    )
    result = gate.run_alone("-p", "xdist", "-n2", "--redline-report=out")
    assert not (gate.path / "out").exists()
    return result


# -- certificates


@attack(2, "the report cannot be written", "Not a directory")
def report_folder_that_is_a_file(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    (gate.path / "out").write_text("")
    return gate.run("--redline-report=out")


@attack(1, "the report cannot be written: [Errno 17] File exists")
def report_folder_that_cannot_be_made(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    (gate.path / "out").symlink_to("nowhere/at/all")
    return gate.run("--redline-report=out")


@attack(1, "a.redline.yaml and b.redline.yaml are both named 'same', so their reports would overwrite each other")
def two_grids_of_one_name(gate: Gate) -> pytest.RunResult:
    for name in "ab":
        gate.write(GREEN, file=f"{name}.redline.yaml", recording=f"{name}.csv", name="same")
    return gate.run("--redline-report=out")


@attack(1, "are both named 'same', so their reports would overwrite each other")
def two_grids_whose_names_differ_in_case(gate: Gate) -> pytest.RunResult:
    for file, name in {"a": "same", "b": "Same"}.items():
        gate.write(GREEN, file=f"{file}.redline.yaml", recording=f"{file}.csv", name=name)
    result = gate.run("--redline-report=out")
    assert not (gate.path / "out").exists()
    return result


@attack(1, "no certificate is left", "runs.csv: is empty")
def certificate_of_an_earlier_run(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    assert gate.run("--redline-report=out").ret == 0
    assert sorted(path.name for path in (gate.path / "out").iterdir()) == ["g.certificate.json", "g.md"]
    (gate.path / "runs.csv").write_text("")
    result = gate.run("--redline-report=out")
    result.outlines.append("a certificate is left" if list((gate.path / "out").iterdir()) else "no certificate is left")
    return result


@attack(2, "unknown key; did you mean reference?")
def certificate_of_an_earlier_run_when_the_grid_file_is_broken(gate: Gate) -> pytest.RunResult:
    path = gate.write()
    gate.run("--redline-report=out", "--redline-alpha=0.9")
    assert (gate.path / "out" / "g.certificate.json").exists()
    gate.edit(path.name, lambda text: text.replace("reference: ", "refrence: "))
    result = gate.run("--redline-report=out")
    assert not (gate.path / "out" / "g.certificate.json").exists()
    return result


@attack(1, "no certificate is left", "not judged: runs.csv: is empty")
def certificate_of_an_earlier_run_when_no_item_is_collected(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    (gate.path / "other").mkdir()
    (gate.path / "other" / "test_red.py").write_text("def test_red(): assert False")
    assert gate.run("-p", "cacheprovider", "--redline-report=out").ret == 1
    (gate.path / "other" / "test_red.py").write_text("def test_red(): pass")
    (gate.path / "runs.csv").write_text("")
    result = gate.run("--lf", "--redline-report=out")
    result.outlines.append("a certificate is left" if list((gate.path / "out").iterdir()) else "no certificate is left")
    return result


@attack(1, "grid, outcomes, prompts or serving file changed while the session ran")
def serving_file_edited_after_it_was_read(gate: Gate) -> pytest.RunResult:
    gate.write(serving={"file": "s.yaml", "keys": {"threshold": "t"}})
    (gate.path / "s.yaml").write_text("t: 0.89\n")
    (gate.path / "test_a.py").write_text(
        "import pathlib\ndef test_a(): (pathlib.Path(__file__).parent / 's.yaml').write_text('t: 0.88\\n')\n"
    )
    return gate.run("test_a.py", "g.redline.yaml", "--redline-report=out")


def edited_after_it_was_read(gate: Gate, name: str) -> pytest.RunResult:
    """A test that runs behind the gate's adds a line to a file."""
    (gate.path / "test_z.py").write_text(
        "import pathlib\n"
        "def test_z():\n"
        f"    with open(pathlib.Path(__file__).parent / {name!r}, 'a') as file:\n"
        "        file.write('\\n')\n"
    )
    return gate.run("g.redline.yaml", "test_z.py", "--redline-report=out")


@attack(1, "grid, outcomes, prompts or serving file changed while the session ran")
def recording_edited_after_it_was_judged(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    return edited_after_it_was_read(gate, "runs.csv")


@attack(1, "grid, outcomes, prompts or serving file changed while the session ran")
def prompts_file_edited_after_it_was_read(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN, prompts={"file": "prompts.jsonl"})
    rows = [f'{{"id": "q{number}"}}\n' for number in range(60)]
    (gate.path / "prompts.jsonl").write_text("".join(rows))
    return edited_after_it_was_read(gate, "prompts.jsonl")


@attack(1, "grid, outcomes, prompts or serving file changed while the session ran")
def grid_edited_after_it_was_read(gate: Gate) -> pytest.RunResult:
    path = gate.write(GREEN)
    (gate.path / "test_a.py").write_text(
        "import pathlib\n"
        "def test_a():\n"
        "    path = pathlib.Path(__file__).parent / 'g.redline.yaml'\n"
        "    path.write_text(path.read_text().replace('alpha: 0.1', 'alpha: 0.01'))\n"
    )
    return gate.run("test_a.py", path.name)


@attack(1, UNSEEN)
def worker_that_dies_at_its_end_with_all_items_deselected(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    (gate.path / "test_ok.py").write_text("def test_ok(): pass\n")
    (gate.path / "conftest.py").write_text(
        "import os, signal\n"
        "def pytest_sessionfinish(session):\n"
        "    if hasattr(session.config, 'workerinput'):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    return gate.run_alone("-p", "xdist", "-n1", "-k", "test_ok")


def with_status_reset(gate: Gate, how: str, before: str = "") -> pytest.RunResult:
    gate.write(RED)
    (gate.path / "conftest.py").write_text(
        "import pytest\n"
        f"@pytest.hookimpl({how})\n"
        f"def pytest_sessionfinish(session):\n{before}    session.exitstatus = 0\n"
    )
    return gate.run_alone()


@attack(1, "1 failed")
def plain_hook_that_resets_the_exit_status(gate: Gate) -> pytest.RunResult:
    return with_status_reset(gate, "")


@attack(1, "1 failed")
def last_hook_that_resets_the_exit_status(gate: Gate) -> pytest.RunResult:
    return with_status_reset(gate, "trylast=True")


@attack(1, "1 failed")
def wrapper_that_resets_the_exit_status(gate: Gate) -> pytest.RunResult:
    return with_status_reset(gate, "wrapper=True", "    yield\n")


@attack(1, "NOT CERTIFIED")
def exit_with_success_at_the_very_end(gate: Gate) -> pytest.RunResult:
    gate.write(RED)
    (gate.path / "conftest.py").write_text(
        "import pytest\ndef pytest_terminal_summary(): pytest.exit('done', returncode=0)\n"
    )
    return gate.run_alone()


@attack(1, "selected and never judged: risky, safe")
def skip_markers_in_a_partial_run(gate: Gate) -> pytest.RunResult:
    gate.write()
    (gate.path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items: item.add_marker(pytest.mark.skip)\n"
    )
    return gate.run_alone("--redline-partial")


@attack(4, "--redline-report: found nothing")
def report_folder_whose_variable_is_empty(gate: Gate) -> pytest.RunResult:
    gate.write(GREEN)
    return gate.run("--redline-report=")


def verify_after(gate: Gate, change: Callable[[Path], None]) -> pytest.RunResult:
    """Make the certificate of a grid that fails, change it, verify it."""
    gate.write(RED)
    assert gate.run("--redline-report=out").ret == 1
    change(gate.path / "out" / "g.certificate.json")
    return gate.command("verify", "out/g.certificate.json")


def rewrite(edit: Callable[[dict], None]) -> Callable[[Path], None]:  # type: ignore[type-arg]
    """Change what a certificate says, and give it a digest that fits."""

    def change(path: Path) -> None:
        data = json.loads(path.read_bytes())
        edit(data)
        certificate = Certificate.model_validate(data)
        path.write_bytes(to_bytes(certificate.model_copy(update={"digest": digest(certificate)})))

    return change


@attack(1, "out/g.certificate.json: the digest is not that of the content")
def certificate_edited(gate: Gate) -> pytest.RunResult:
    return verify_after(
        gate, lambda path: path.write_text(path.read_text().replace('"certified": false', '"certified": true'))
    )


@attack(1, "out/g.certificate.json: not the bytes that were written")
def certificate_reformatted(gate: Gate) -> pytest.RunResult:
    return verify_after(gate, lambda path: path.write_text(path.read_text() + "\n"))


@attack(1, "configurations[risky].certified: says True, the outcomes give False", "configurations[risky].k: says 0")
def certificate_forged_with_a_digest_that_fits(gate: Gate) -> pytest.RunResult:
    def forge(data: dict) -> None:  # type: ignore[type-arg]
        data["configurations"][2].update(certified=True, verdict="certified", k=0)

    return verify_after(gate, rewrite(forge))


@attack(1, "out/g.certificate.json: cannot be read (No such file or directory)")
def certificate_that_is_not_there(gate: Gate) -> pytest.RunResult:
    return verify_after(gate, Path.unlink)


@pytest.mark.parametrize(("attack", "code", "messages"), ATTACKS)
def test_no_attack_ends_green(gate: Gate, attack: Attack, code: int, messages: tuple[str, ...]) -> None:
    result = attack(gate)
    assert code != 0
    assert result.ret == code
    printed = text_of(result) + "\n".join(result.outlines)
    for message in messages:
        assert message in printed
    assert "Traceback" not in printed


def test_at_least_thirty_attacks_are_tried() -> None:
    assert len(ATTACKS) >= 30


def test_the_grids_that_attacks_start_from_are_green_and_red(gate: Gate) -> None:
    gate.write(GREEN)
    assert gate.run().ret == 0
    gate.write(RED)
    assert gate.run().ret == 1


def test_29_prompts_certify_one_candidate_without_violations(gate: Gate) -> None:
    gate.write(GREEN, n=29)
    result = gate.run()
    assert result.ret == 0
    assert "0/29" in text_of(result)


def test_a_failed_run_leaves_no_certificate_of_two_grids_with_one_name(gate: Gate) -> None:
    result = two_grids_of_one_name(gate)
    assert not list((gate.path / "out").glob("same*"))
    assert "Certificate:" not in text_of(result)
