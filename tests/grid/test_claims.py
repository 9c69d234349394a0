"""Risks of a grid file: what they become, and every mistake in one go."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_redline.claims import Clusters, Design, JointLoss, Mix, Risk
from pytest_redline.errors import GridError
from pytest_redline.grid import CorrectColumn, Sample
from pytest_redline.grid_file import load_grid

GRID = """\
redline: 1
name: made
population: made prompts
alpha: 0.1
source: {outcomes: runs.csv}
reference: ref
configurations: {ref: {x: 1}, cand: {x: 2}}
"""
ENGINE = GRID.replace(
    "{outcomes: runs.csv}", '{engine: {checkpoint: "bundled:arithmetic"}}\ngrade: math\nprompts: {file: p.jsonl}'
).replace("{ref: {x: 1}, cand: {x: 2}}", "{ref: {accept_threshold: 0.9}, cand: {accept_threshold: 0.8}}")


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def read(text: str):
        Path("g.redline.yaml").write_text(text)
        return load_grid(Path("g.redline.yaml"))

    return read


@pytest.fixture
def problems(load):
    def read(text: str) -> list[str]:
        with pytest.raises(GridError) as error:
            load(text)
        return list(error.value.problems)

    return read


def test_risks_are_read_as_they_are_meant(load):
    grid = load(
        GRID
        + "risks:\n  format: {measure: has_answer, alpha: 0.02}\n"
        + "  latency: {measure: seconds, over: 2.5, alpha: 0.10}\n  speed: {measure: rate, under: 20, alpha: 0.10}\n"
        + "  score: {measure: judge, loss: drop, test: wsr, seed: 4, alpha: 0.05}\n"
    )
    assert grid.risks == (
        Risk("format", "has_answer", 0.02),
        Risk("latency", "seconds", 0.10, over=2.5),
        Risk("speed", "rate", 0.10, under=20),
        Risk("score", "judge", 0.05, test="wsr", seed=4),
    )
    assert grid.measures == ("tokens", "forwards", "has_answer", "seconds", "rate", "judge")
    assert grid.source.columns.flags == {"has_answer"}


def test_measure_of_a_risk_may_be_mapped_to_a_column(load):
    source = "{outcomes: {file: runs.csv, columns: {seconds: timing.total}}}"
    text = GRID.replace("{outcomes: runs.csv}", source) + "risks: {slow: {measure: seconds, over: 2, alpha: 0.1}}\n"
    assert load(text).source.columns.measures == {"seconds": "timing.total"}


def test_all_mistakes_of_risks_come_in_one_go(problems):
    text = (
        GRID
        + """\
groups: {by: kind, alpha: {hard: 0.2}}
risks:
  all: {measure: a, alpha: 0.1}
  hard: {measure: a, alpha: 0.1}
  two words: {measure: a, alpha: 0.1}
  both: {measure: a, over: 1, under: 2, alpha: 0.1}
  loss: {measure: a, loss: drop, alpha: 0.1}
  exact: {measure: a, over: 1, test: hb, alpha: 0.1}
  order: {measure: a, loss: drop, test: hb, seed: 1, alpha: 0.1}
  number: {measure: tokens, alpha: 0.1}
  auto: {measure: a, loss: drop, test: auto, alpha: 0.1}
  typo: {measur: a, alpha: 0.1}
  never: {measure: a, over: 1, alpha: 0.0000001}
"""
    )
    found = problems(text)
    for line, key, words in (
        (10, "all", "is the name of another budget"),
        (11, "hard", "is the name of another budget"),
        (12, "two words", "a name of up to 20 letters, digits and . _ - is needed"),
        (13, "both", "has over and under; keep one of them"),
        (14, "loss", "is tested by `test: hb` or `test: wsr`; declare one before the data, since the smaller of two"),
        (15, "exact.test", "where every loss is 0 or 1, the exact test is sharper"),
        (16, "order.seed", "goes with `test: wsr`"),
        (17, "number", "tokens is a number; say from where it counts with `over` or `under`"),
        (18, "auto.test", "found 'auto'; 'hb' or 'wsr' is allowed; declare one before the data, since the smaller of"),
        (19, "typo.measur", "unknown key; did you mean measure?"),
        (20, "never.alpha", "is too near to 0 or 1"),
    ):
        (problem,) = [each for each in found if each.startswith(f"g.redline.yaml:{line} risks.{key}: ")]
        assert words in problem
    assert len(found) == 12  # and the measure that the typo leaves missing


def test_engine_measures_what_it_measures(load, problems):
    assert load(ENGINE + "risks: {cut: {measure: finished, alpha: 0.1}}\n").risks[0].flag
    assert load(ENGINE + "risks: {long: {measure: forwards, over: 60, alpha: 0.1}}\n").risks[0].over == 60
    (problem,) = problems(ENGINE + "risks: {slow: {measure: seconds, over: 2, alpha: 0.1}}\n")
    assert problem.endswith("the engine does not measure 'seconds'; it knows tokens, forwards, finished")


# -- Populations --------------------------------------------------------------------------------------------------


def test_population_and_clusters_are_read_as_they_are_meant(load):
    grid = load(GRID.replace("made prompts", "{name: traffic, design: finite_pool, pool: 1319}"))
    assert (grid.population, grid.design) == ("traffic", Design("finite_pool", 1319))
    grid = load(GRID + "clusters: {by: template, remedy: cluster_means, test: wsr, seed: 3}\n")
    assert grid.clusters == Clusters("template", "cluster_means", "wsr", 3)
    assert grid.source.columns.cluster == "template"
    assert load(GRID + "clusters: {by: template, remedy: one_per_cluster}\n").clusters == Clusters(
        "template", "one_per_cluster"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GRID.replace("made prompts", "{name: x, design: finite_pool}"), "3 population.pool: goes with"),
        (GRID.replace("made prompts", "{name: x, design: census, pool: 5}"), "3 population.pool: goes with"),
        (GRID.replace("made prompts", "{name: x, design: stratified}"), "3 population.design: stratified: by what; "),
        (
            GRID.replace("made prompts", "{name: x, design: census}") + "delta: 0.3\n",
            "3 population.design: census draws are covered for delta up to 0.25, found 0.3",
        ),
        (
            GRID.replace("made prompts", "{name: x, design: census}") + "clusters: {by: t, remedy: one_per_cluster}\n",
            "3 population.design: census does not go with `clusters`",
        ),
        (
            GRID.replace("made prompts", "{name: x, design: census}")
            + "risks: {score: {measure: judge, loss: drop, test: wsr, alpha: 0.1}}\n",
            "3 population.design: census does not go with `test: wsr`",
        ),
        (GRID + "clusters: {by: t, remedy: cluster_means}\n", "8 clusters: cluster means are tested by `test: hb` or"),
        (GRID + "clusters: {by: t, remedy: one_per_cluster, test: hb}\n", "8 clusters.test: goes with `remedy: clus"),
        (GRID + "clusters: {by: t, remedy: cluster_means, test: hb, seed: 1}\n", "8 clusters.seed: goes with"),
        (GRID + "clusters: {by: t, remedy: reweight}\n", "8 clusters.remedy: found 'reweight'; "),
        (GRID + "prompts: {file: p.csv}\nclusters: {by: prompt, remedy: one_per_cluster}\n", "9 clusters.by: 'prompt'"),
    ],
)
def test_population_that_does_not_hold_together_is_one_problem(problems, text, problem):
    (found,) = problems(text)
    assert found.startswith(f"g.redline.yaml:{problem}")


# -- Beside stopping ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("swap", "problem"),
    [
        (("{file: p.jsonl}", "{file: p.jsonl, sample: {n: 100, seed: 1, shares: {a: 0.7, b: 0.3}}}"), "are stratified"),
        (("made prompts", "{name: x, design: stratified}"), "the prompts are stratified, which no look but the last"),
        (("made prompts", "{name: x, design: census}"), "a census says what this run did on all prompts"),
        (("reference:", "risks: {cut: {measure: finished, alpha: 0.1}}\nreference:"), "declared risks need every"),
    ],
)
def test_looks_go_with_draws_that_each_look_is_one_of(problems, swap, problem):
    (found,) = problems(ENGINE.replace(*swap) + "groups: {by: kind}\nstopping: {looks: 3}\n")
    assert problem in found


# -- Scores and repeats -------------------------------------------------------------------------------------------


def with_correct(correct: str) -> str:
    return GRID.replace("{outcomes: runs.csv}", f"{{outcomes: {{file: runs.csv, columns: {{correct: {correct}}}}}}}")


def test_scores_and_repeats_are_read_as_they_are_meant(load):
    grid = load(with_correct("{column: score, loss: drop, test: wsr, seed: 2}"))
    assert (grid.loss, grid.test, grid.order_seed) == (JointLoss("drop", "wsr", 2), "wsr", 2)
    assert (grid.source.columns.correct, grid.grader) == (
        CorrectColumn("score", score=True),
        "recorded: score (a score from 0 to 1)",
    )
    grid = load(with_correct("{column: status, equals: OK, repeats: mean_loss, test: hb}"))
    assert grid.loss == JointLoss("repeats", "hb")
    assert grid.source.columns.correct == CorrectColumn("status", equals="OK", repeats=True)


@pytest.mark.parametrize(
    ("correct", "problem"),
    [
        ("{column: s, loss: drop}", ": a loss between 0 and 1 is tested by `test: hb` or `test: wsr`; declare one"),
        ("{column: s, repeats: mean_loss}", ": a loss between 0 and 1 is tested by `test: hb` or `test: wsr`; declare"),
        ("{column: s, loss: drop, test: auto}", ".test: found 'auto'; 'hb' or 'wsr' is allowed; declare one before"),
        ("{column: s, test: hb}", ".test: goes with `loss: drop` or `repeats: mean_loss`; a verdict has the exact"),
        ("{column: s, loss: drop, threshold: 0.5, test: hb}", ": has loss beside threshold or equals"),
        ("{column: s, loss: drop, repeats: mean_loss, test: hb}", ": has both loss and repeats; keep one of the two"),
        ("{column: s, loss: drop, test: hb, seed: 1}", ".seed: goes with `test: wsr`"),
        ("{column: s, loss: square, test: hb}", ".loss: found 'square'; "),
    ],
)
def test_score_that_does_not_hold_together_is_one_problem(problems, correct, problem):
    (found,) = problems(with_correct(correct))
    assert found.startswith(f"g.redline.yaml:5 source.outcomes.columns.correct{problem}")


def test_one_loss_has_one_test(problems):
    text = with_correct("{column: s, loss: drop, test: hb}") + "clusters: {by: t, remedy: cluster_means, test: wsr}\n"
    (found,) = problems(text)
    assert "tests by wsr, seed 0, and columns.correct by hb, seed 0; one loss has one test" in found


def test_betting_on_scores_needs_independent_draws(problems):
    text = with_correct("{column: s, loss: drop, test: wsr}").replace("made prompts", "{name: x, design: census}")
    (found,) = problems(text)
    assert "census does not go with `test: wsr`" in found


# -- Another mix of groups ----------------------------------------------------------------------------------------

MIXED = GRID + "groups: {by: kind}\nmix: {shares: {math: 0.7, code: 0.3}, test: hb}\n"


def test_mix_and_shares_of_a_sample_are_read_as_they_are_meant(load):
    assert load(MIXED).mix == Mix({"math": 0.7, "code": 0.3})
    assert load(MIXED.replace("made prompts", "{name: x, design: independent}")).mix is not None
    sample = "{file: p.jsonl, sample: {n: 100, seed: 1, shares: {math: 0.7, code: 0.3}}}"
    text = ENGINE.replace("{file: p.jsonl}", sample) + "groups: {by: kind}\n"
    assert load(text).sample == Sample(100, 1, {"math": 0.7, "code": 0.3})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MIXED.replace(", test: hb", ""), "9 mix.test: required key is missing"),
        (MIXED.replace("hb", "exact"), "9 mix.test: found 'exact'; 'hb' is allowed; to claim the risk of another mix"),
        (MIXED.replace("hb", "wsr"), "9 mix.test: found 'wsr'; 'hb' is allowed; to claim the risk of another mix"),
        (MIXED.replace("0.3", "0.4"), "9 mix.shares: add up to 1.1; shares of a whole add up to 1"),
        (MIXED.replace("groups: {by: kind}\n", ""), "8 mix.shares: shares of what; name the column of the groups"),
        (MIXED.replace("made prompts", "{name: x, design: census}"), "9 mix.shares: does not go with `design: census`"),
        (MIXED + "clusters: {by: t, remedy: one_per_cluster}\n", "9 mix.shares: does not go with `clusters`"),
        (
            MIXED + "risks: {s: {measure: j, loss: drop, test: wsr, alpha: 0.1}}\n",
            "9 mix.shares: does not go with `test: wsr`",
        ),
        (GRID + "reweight: w\n", "8 reweight: unknown key; to claim the risk of another mix of groups, draw that mix"),
    ],
)
def test_mix_that_does_not_hold_together_is_one_problem(problems, text, problem):
    (found,) = problems(text)
    assert found.startswith(f"g.redline.yaml:{problem}")


def test_message_says_why_the_binomial_cannot_be_kept(problems):
    (found,) = problems(GRID + "reweight: w\n")
    assert "the risk estimate cannot be reweighted and the binomial test kept, since a weighted count is no" in found


def test_mix_is_drawn_or_reweighted_to_and_not_both(problems):
    sample = "{file: p.jsonl, sample: {n: 100, seed: 1, shares: {math: 0.7, code: 0.3}}}"
    text = ENGINE.replace("{file: p.jsonl}", sample) + "groups: {by: kind}\nmix: {shares: {math: 1.0}, test: hb}\n"
    found = problems(text.replace("{math: 1.0}", "{math: 0.5, code: 0.5}"))
    assert ["mix: " in each for each in found] == [True]
