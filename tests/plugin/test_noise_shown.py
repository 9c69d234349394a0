"""A second run of the reference in a test session: shown beside every candidate, and what fails by it cannot pass."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree

import pytest
from gate_runner import text_of

RUNS = {"ref": (), "safe": (), "fast": range(9), "again": (50,)}
PLAIN = {"ref": {"x": 1}, "safe": {"x": 2}, "fast": {"x": 3}}
KEYS = {"configurations": PLAIN, "noise_floor": "again"}


def row(result: pytest.RunResult, label: str) -> list[str]:
    (found,) = [line for line in result.outlines if line.strip().lstrip(">* ").startswith(f"{label} ")]
    return found.split()


def test_the_second_run_stands_below_the_rows_and_beside_each(gate):
    gate.write(RUNS, 200, **KEYS)
    result = gate.run("-v", "--redline-report=report", "--junitxml=junit.xml")
    result.assert_outcomes(passed=2)
    assert row(result, "again")[-4:] == ["1/200", "0.005", "noise", "floor"]
    assert row(result, "fast")[-2:] == ["0.011", "certified"]
    assert row(result, "safe")[-2:] == ["1.000", "certified"]
    text = " ".join(text_of(result).split())
    assert "run twice, the reference loses 1/200 to itself; rate 0.0050 (se 0.0050, 95 % 0.0001 to 0.0276)" in text
    assert (
        max(
            map(
                len,
                result.outlines[
                    result.outlines.index(next(line for line in result.outlines if line.startswith("g: alpha"))) :
                ],
            )
        )
        <= 80
    )
    certificate = json.loads((gate.path / "report" / "g.certificate.json").read_text())
    assert certificate["m"] == 3
    assert certificate["noise_floor"]["k"] == 1
    assert "| | `again` | | | 1/200 | 0.0050 |" in (gate.path / "report" / "g.md").read_text()
    properties = {each.get("name"): each.get("value") for each in ElementTree.parse("junit.xml").iter("property")}
    assert properties["redline.noise_k"] == "1"
    assert properties["redline.noise_p"] == "1.0" or float(properties["redline.noise_p"]) < 0.02
    assert gate.command("verify", "--require-passed", "report/g.certificate.json").ret == 0


@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n2")])
def test_a_lossless_candidate_that_is_worse_than_noise_fails(gate, workers):
    gate.write(RUNS, 200, **KEYS, lossless=["fast"], serving="safe")
    result = gate.run_alone("-v", "--redline-report=report", *workers)
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 1
    text = " ".join(text_of(result).split())
    assert "WORSE THAN NOISE" in text
    assert "declared lossless, and alone wrong on 9 prompts" in text
    assert "exact one-sided McNemar p = 0.011, and 0.1 allows no more" in text
    assert "Declared lossless and worse than noise: fast." in text
    assert "Deploy safe" in text
    assert "Not certified" not in text
    assert row(result, "fast")[-2:] == ["0.011!", "certified"]
    verified = gate.command("verify", "--require-passed", "report/g.certificate.json")
    assert verified.ret == 1
    assert "as fast is declared lossless and worse than noise" in text_of(verified)
    assert "### `fast` is declared lossless and worse than noise" in (gate.path / "report" / "g.md").read_text()


def test_as_noisy_as_the_second_run_it_passes(gate):
    gate.write({**RUNS, "again": range(100, 109)}, 200, **KEYS, lossless=["fast", "safe"])
    gate.run().assert_outcomes(passed=2)


def test_one_that_is_neither_certified_nor_lossless_says_both(gate):
    gate.write({**RUNS, "fast": range(60)}, 200, **KEYS, lossless=["fast"])
    text = " ".join(text_of(gate.run()).split())
    assert "Not certified: fast. Declared lossless and worse than noise: fast." in text
    assert "worse than noise: declared lossless" in text
    assert "breach: 60 of 200 prompts violated" in text


def test_left_out_by_a_selection_it_fails_all_the_same(gate):
    gate.write(RUNS, 200, **KEYS, lossless=["fast"], serving="safe")
    result = gate.run("-k", "safe")
    assert result.ret == 1
    assert "declared lossless and worse than noise, though not among the tests that ran: fast" in text_of(result)


def test_made_to_pass_it_fails_all_the_same(gate):
    gate.write(RUNS, 200, **KEYS, lossless=["fast"], serving="safe")
    gate.pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_runtest_makereport(item, call):
            report = yield
            report.outcome = "passed"
            return report
        """
    )
    result = gate.run_alone()
    assert result.ret == 1
    assert "declared lossless and worse than noise, though its test did not fail: fast" in text_of(result)


def test_a_pull_request_gets_it_on_the_line(gate, monkeypatch):
    gate.write(RUNS, 200, **KEYS, lossless=["fast"], serving="safe")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = gate.run()
    result.stdout.fnmatch_lines(
        ["::error file=g.redline.yaml,*title=redline g%3A fast is declared lossless and worse*"]
    )


def test_warns_where_the_budget_is_within_the_noise(gate):
    gate.write({**RUNS, "again": range(100, 112)}, 200, **KEYS, alpha=0.09)
    assert "standard errors of the noise floor 12/200" in " ".join(text_of(gate.run()).split())


@pytest.mark.parametrize(
    ("runs", "says"),
    [
        ({"ref": (), "safe": (), "fast": ()}, "again"),
        ({**RUNS, "more": ()}, "more"),
    ],
)
def test_rows_that_are_missing_or_of_nobody_are_errors(gate, runs, says):
    gate.write(runs, 200, **KEYS)
    result = gate.run()
    assert result.ret == 1
    assert says in text_of(result)


def test_a_second_run_lacks_a_prompt_like_any_configuration_does(gate):
    gate.write(RUNS, 200, **KEYS)
    gate.edit("runs.csv", lambda text: text.replace("again,q7,1,100,20\n", ""))
    result = gate.run()
    assert result.ret == 1
    assert "prompt q7 has no outcome" in text_of(result)
