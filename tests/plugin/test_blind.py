"""Blind gates: one bit is shown and nothing else, it is in the ledger, and each one halves delta for the next."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from gate_runner import Gate, text_of, told_by

from pytest_redline.ledger import NAME, line_of, read_ledger

GOOD: Mapping[str, Iterable[int]] = {"original": (), "swift": range(1), "hasty": range(40)}
BAD: Mapping[str, Iterable[int]] = {"original": (), "swift": range(37), "hasty": range(40)}
HIDDEN = "gate not passed; --redline-blind shows nothing else"


def statements(gate: Gate) -> list[dict[str, Any]]:
    return [each for line in (gate.path / NAME).read_text().splitlines() if "statement" in (each := json.loads(line))]


def test_a_gate_passes_on_what_is_required_and_the_ledger_keeps_the_bit(gate: Gate) -> None:
    gate.write(GOOD, 120, serving="swift")
    result = gate.run("--redline-blind", "-v")
    assert result.ret == 0, text_of(result)
    assert "g.redline.yaml::gate PASSED" in text_of(result)
    assert "g: blind gate 1 on its prompts: alpha 0.1, delta 0.1 * 2^-0, n 120, m 3" in result.outlines
    assert f"Statement 1 on its prompts is new: commit {NAME}" in result.outlines
    (line,) = statements(gate)
    assert (line["passed"], line["delta"], line["reuse"]["number"]) == (True, 0.1, 1)


def test_what_is_not_required_does_not_fail_it(gate: Gate) -> None:
    gate.write(GOOD, 120)  # without `serving` all candidates are required
    assert gate.run("--redline-blind").ret == 1
    assert statements(gate)[0]["passed"] is False


def test_running_again_spends_nothing_and_another_candidate_halves_delta(gate: Gate) -> None:
    gate.write(GOOD, 120, serving="swift")
    assert gate.run("--redline-blind").ret == 0
    before = (gate.path / NAME).read_bytes()
    again = gate.run("--redline-blind")
    assert again.ret == 0
    assert "is new" not in text_of(again)
    assert (gate.path / NAME).read_bytes() == before
    for bits, label in enumerate(("second", "third", "fourth"), start=1):
        gate.write({"original": (), label: range(1)}, 120)
        result = gate.run("--redline-blind")
        assert result.ret == 0
        assert f"blind gate {bits + 1} on its prompts: alpha 0.1, delta 0.1 * 2^-{bits}, n 120, m 2" in text_of(result)
    assert [line["delta"] for line in statements(gate)] == [0.1, 0.05, 0.025, 0.0125]
    assert statements(gate)[-1]["reuse"]["together"] == pytest.approx(0.4)
    gate.write(GOOD, 120, serving="swift")
    assert "blind gate 1 on its prompts" in text_of(gate.run("--redline-blind"))


def test_the_same_candidate_fails_once_enough_bits_are_out(gate: Gate) -> None:
    seven = {"original": (), "swift": range(7)}  # of 150: p is 0.0139
    gate.write(seven, 150, alpha=0.1)
    assert gate.run("--redline-blind").ret == 0
    (gate.path / NAME).unlink()
    for label in ("one", "two", "three"):
        gate.write({"original": (), label: ()}, 150)
        assert gate.run("--redline-blind").ret == 0
    gate.write(seven, 150, alpha=0.1)
    assert gate.run("--redline-blind").ret == 1
    assert [line["passed"] for line in statements(gate)] == [True, True, True, False]


def test_new_outcomes_of_one_statement_are_another_bit(gate: Gate) -> None:
    gate.write(GOOD, 120, serving="swift")
    assert gate.run("--redline-blind").ret == 0
    gate.write(BAD, 120, serving="swift")
    assert gate.run("--redline-blind").ret == 1
    first, second = statements(gate)
    assert first["statement"] == second["statement"]
    assert (second["delta"], second["passed"]) == (0.05, False)


@pytest.mark.parametrize("wrong", [GOOD, BAD], ids=["passed", "failed"])
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["alone", "xdist"])
def test_nothing_else_leaves_the_gate(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, wrong: Mapping[str, Iterable[int]], workers: tuple[str, ...]
) -> None:
    summary = gate.path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    gate.write(wrong, 120, serving="swift")
    there = {path.name for path in gate.path.iterdir()}
    result = gate.run("--redline-blind", "-vv", "-rA", "--tb=long", "--showlocals", "--junitxml=junit.xml", *workers)
    passed = wrong is GOOD
    assert result.ret == (0 if passed else 1)
    made = {path.name for path in gate.path.iterdir() if path.is_file()} - there
    assert made == {NAME, "junit.xml", "summary.md"}
    junit = (gate.path / "junit.xml").read_text()
    shown = text_of(result) + junit + summary.read_text()
    for told in ("swift", "hasty", "original", "certified", "undecided", "breach", "p =", "k/n", "risk", "::error"):
        assert told not in told_by(shown).lower(), told
    assert "<propert" not in junit
    numbers = re.findall(r"\b(?:1|37|40)/120\b", shown)
    assert numbers == []
    assert (HIDDEN in shown) == (not passed)
    assert not re.search(r"Traceback|blind\.py", shown)
    assert summary.read_text() == ""


@pytest.mark.parametrize("wrong", [GOOD, BAD], ids=["passed", "failed"])
def test_passed_and_failed_differ_in_the_bit_only(gate: Gate, wrong: Mapping[str, Iterable[int]]) -> None:
    gate.write(wrong, 120, serving="swift")
    lines = {
        line
        for line in gate.run("--redline-blind", "-q").outlines
        if line and not re.search(r" in \d|^[.F] |^rootdir|^\S*=+|^FAILED|^_+ ", line)
    }
    said = {
        "g: blind gate 1 on its prompts: alpha 0.1, delta 0.1 * 2^-0, n 120, m 3",
        f"Statement 1 on its prompts is new: commit {NAME}",
    }
    assert lines == (said if wrong is GOOD else said | {HIDDEN})


def test_a_reference_that_is_hardly_ever_right_is_a_failed_gate_and_no_error(gate: Gate) -> None:
    gate.write({"original": range(115), "swift": range(115)}, 120)
    result = gate.run("--redline-blind")
    assert result.ret == 1
    assert HIDDEN in text_of(result)
    assert "seldom" not in text_of(result)
    assert "always wrong" not in text_of(result)
    assert statements(gate)[0]["passed"] is False


def test_too_many_bits_for_the_prompts_are_said(gate: Gate) -> None:
    for label in ("one", "two"):
        gate.write({"original": (), label: ()}, 30)
        result = gate.run("--redline-blind")
    assert result.ret == 1
    assert "even zero violations" in text_of(result)
    assert len(statements(gate)) == 1


def test_open_and_blind_do_not_mix(gate: Gate) -> None:
    gate.write(GOOD, 120, serving="swift")
    assert gate.run("--redline-blind").ret == 0
    before = (gate.path / NAME).read_bytes()
    for options in ((), ("--redline-partial",), ("--redline-alpha=0.2",), ("-k", "swift")):
        result = gate.run(*options)
        assert result.ret != 0
        assert "blind gates on these prompts: 1" in text_of(result)
        assert "k/n" not in text_of(result)
    assert gate.command("state", "g.redline.yaml").ret != 0
    assert (gate.path / NAME).read_bytes() == before
    (gate.path / NAME).unlink()
    assert gate.run().ret == 0
    result = gate.run("--redline-blind")
    assert result.ret == 1
    assert "holds a statement on these prompts that was not blind" in text_of(result).replace("\n", " ")
    assert all("passed" not in line for line in statements(gate))


def test_a_merge_of_branches_counts_every_answer_that_may_have_told_something(gate: Gate) -> None:
    """One branch asks g; the other b, and then g at half of delta, or g in the open."""
    gate.write(GOOD, 120, serving="swift")
    assert gate.run("--redline-blind", "g.redline.yaml").ret == 0
    first = (gate.path / NAME).read_text().splitlines()
    (gate.path / NAME).unlink()
    gate.write(BAD, 120, serving="swift", file="b.redline.yaml", recording="b.csv")
    assert gate.run("--redline-blind", "b.redline.yaml").ret == 1
    assert gate.run("--redline-blind", "g.redline.yaml").ret == 0
    second = (gate.path / NAME).read_text().splitlines()
    gate.write({"original": (), "third": range(1)}, 120, file="c.redline.yaml", recording="c.csv")
    for merged in (first + second, second + first):
        (gate.path / NAME).write_text("".join(f"{line}\n" for line in dict.fromkeys(merged)))
        assert "c: blind gate 4 on its prompts" in text_of(gate.run("--redline-blind", "c.redline.yaml"))
    (gate.path / NAME).unlink()
    assert gate.run("g.redline.yaml").ret == 0
    opened = (gate.path / NAME).read_text().splitlines()
    for merged in (first + opened, opened + first):
        (gate.path / NAME).write_text("".join(f"{line}\n" for line in dict.fromkeys(merged)))
        result = gate.run("--redline-blind", "c.redline.yaml")
        assert "holds a statement on these prompts that was not blind" in text_of(result).replace("\n", " ")


def test_a_ledger_that_counts_absurdly_many_bits_is_an_error_that_says_so(gate: Gate) -> None:
    gate.write(GOOD, 120, serving="swift")
    assert gate.run("--redline-blind").ret == 0
    ledger = read_ledger(gate.path / NAME)
    (line,) = ledger.statements
    for number in (999_999, 10**30):
        forged = line.model_copy(update={"reuse": line.reuse.model_copy(update={"number": number})})
        kept = [*map(line_of, ledger.sets.values()), line_of(forged)]
        (gate.path / NAME).write_text("".join(f"{each}\n" for each in kept))
        result = gate.run("--redline-blind")
        assert result.ret != 0
        assert "nothing is left of delta 0.1; take new prompts" in text_of(result).replace("\n", " ")


@pytest.mark.parametrize("option", ["--redline-report=out", "--redline-partial", "--redline-deploy-only"])
def test_options_that_show_more_are_refused(gate: Gate, option: str) -> None:
    gate.write(GOOD, 120, serving="swift")
    result = gate.run("--redline-blind", option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "a blind gate shows nothing but passed or failed" in text_of(result)
    assert not (gate.path / NAME).exists()


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"delta": {"total": 0.1, "spend": "series"}}, "delta.total"),
        ({"serving": "original"}, "serving"),
        ({"serving": "swift", "weights": {"serving": 0.5}}, "weights"),
    ],
)
def test_grids_that_say_more_are_refused(gate: Gate, keys: dict[str, Any], key: str) -> None:
    gate.write(GOOD, 120, **keys)
    result = gate.run("--redline-blind")
    assert result.ret == 2
    assert f"g.redline.yaml {key}: with --redline-blind" in text_of(result)
    assert not (gate.path / NAME).exists()


@pytest.mark.parametrize("mark", ["xfail(strict=False)", "skip(reason='no')"])
def test_a_gate_cannot_be_made_green(gate: Gate, mark: str) -> None:
    gate.write(BAD, 120, serving="swift")
    gate.pytester.makeconftest(
        f"import pytest\ndef pytest_collection_modifyitems(items):\n    items[0].add_marker(pytest.mark.{mark})\n"
    )
    assert gate.run("--redline-blind").ret == 1


def test_a_gate_that_was_left_out_is_not_passed(gate: Gate) -> None:
    gate.write(GOOD, 120, serving="swift")
    gate.pytester.makepyfile(test_it="def test_it(): pass")
    result = gate.run("--redline-blind", "-k", "test_it")
    assert result.ret == 1
    assert "the blind gate was not judged" in text_of(result)


def test_a_bit_that_cannot_be_recorded_is_not_shown(gate: Gate) -> None:
    gate.write(GOOD, 120, serving="swift")
    gate.pytester.makeconftest(
        "import pytest_redline.ledger as ledger\n"
        "def fail(*arguments): raise OSError('no space')\n"
        "ledger.replace_file = fail\n"
    )
    result = gate.run_alone("--redline-blind")
    assert result.ret == 1
    assert "cannot be recorded" in text_of(result)
    assert HIDDEN not in text_of(result)


def test_grids_on_the_same_prompts_share_the_bits(gate: Gate) -> None:
    for name in ("a", "b", "c"):
        gate.write({"original": (), name: ()}, 120, file=f"{name}.redline.yaml", recording=f"{name}.csv")
    assert gate.run_alone("--redline-blind", "-p", "xdist", "-n", "2").ret == 0
    assert sorted(line["delta"] for line in statements(gate)) == [0.025, 0.05, 0.1]
