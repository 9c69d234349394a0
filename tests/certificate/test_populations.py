"""Prompts that are not independent draws: clusters, their remedies, and the sampling design in the promise's words."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_outcomes import certify_counts, make_grid, make_outcomes, violations
from scipy import stats

from pytest_redline import certificate as certificate_module
from pytest_redline.certificate import certify, to_bytes
from pytest_redline.claims import Clusters, Design, Risk
from pytest_redline.clusters import cluster_means, one_of_each, thinned, unnoticed_clusters
from pytest_redline.errors import CertificateError, NothingCertifiableError, OutcomesError
from pytest_redline.grid import Groups
from pytest_redline.report import words
from pytest_redline.statement import sha256_of
from pytest_redline.stats import bootstrap
from pytest_redline.stats.bounded import UNIT, betting, hoeffding_bentkus, in_units
from pytest_redline.stats.risk import binomial_tail, largest_passing
from pytest_redline.verify import verify

MEANS = Clusters("template", "cluster_means", "hb")
ONE = Clusters("template", "one_per_cluster")


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    for module in (bootstrap, certificate_module):
        monkeypatch.setattr(module, "default_resamples", lambda n: 60)


# -- Size ---------------------------------------------------------------------------------------------------------

ALPHA, DELTA, SIZE, RHO, NUMBER, RUNS = 0.10, 0.10, 10, 0.3, 100, 3000


@pytest.fixture(scope="module")
def clustered() -> np.ndarray:
    """``[runs, clusters, prompts]`` losses at a risk of exactly alpha, correlated by rho within a cluster of ten."""
    rng = np.random.default_rng(11)
    spread = (1 - RHO) / RHO
    risks = rng.beta(ALPHA * spread, (1 - ALPHA) * spread, size=(RUNS, NUMBER, 1))
    return rng.random((RUNS, NUMBER, SIZE)) < risks


def size_of(p: np.ndarray) -> float:
    return float((p <= DELTA).mean())


def test_exact_test_of_clustered_prompts_errs_far_more_often_than_delta(clustered):
    naive = binomial_tail(clustered.sum(axis=(1, 2)).astype(np.int64), NUMBER * SIZE, ALPHA)
    assert 0.22 < size_of(naive) < 0.29  # the .25 of the warning


def test_remedies_err_no_more_often_than_delta(clustered):
    allowed = DELTA + 3 * (DELTA * (1 - DELTA) / RUNS) ** 0.5
    kept = clustered[:, :, 0].sum(axis=1).astype(np.int64)
    assert 0.02 < size_of(binomial_tail(kept, NUMBER, ALPHA)) <= allowed
    means = clustered.mean(axis=2)
    assert size_of(hoeffding_bentkus(in_units(means).sum(axis=1), NUMBER, ALPHA, UNIT)) <= allowed
    assert 0 < size_of(betting(means, ALPHA)) <= allowed


@pytest.mark.parametrize(("first", "size"), [(0.1, 0.0130), (0.03, 0.0111), (0.0, 0.0092)])
def test_fixed_numbers_of_each_stratum_make_the_test_conservative(first, size):
    """512 and 500 prompts of two groups whose mix has risk .10, at the nominal level .10/7 = .0143."""
    passing = largest_passing(1012, 0.10, 0.10 / 7)
    second = (101.2 - 512 * first) / 500
    total = np.convolve(stats.binom.pmf(range(513), 512, first), stats.binom.pmf(range(501), 500, second))
    assert passing == 80
    assert total[: passing + 1].sum() == pytest.approx(size, abs=5e-5)


def test_draws_from_a_finite_pool_make_the_test_conservative():
    passing = largest_passing(1012, 0.10, 0.10 / 7)
    assert stats.hypergeom.cdf(passing, 1319, 132, 1012) == pytest.approx(9e-6, rel=0.15)


# -- Cluster means ------------------------------------------------------------------------------------------------


def outcomes_with(clusters, wrong, groups=None, **measures):
    numbers = np.arange(len(clusters))
    made = make_outcomes(
        {"ref": numbers >= 0, "cand": ~np.isin(numbers, wrong)},
        measures={name: dict(zip(("ref", "cand"), rows, strict=True)) for name, rows in measures.items()},
        groups=groups,
    )
    return replace(made, clusters=tuple(clusters))


UNEQUAL = [f"t{number}" for number in range(200) for _ in range(1 + number % 3)]


def test_a_cluster_is_one_observation_whatever_its_size():
    outcomes = outcomes_with(UNEQUAL, wrong=[0, 3, 4, 5])  # t0 whole, t2 whole
    made = certify(replace(make_grid(["ref", "cand"]), clusters=MEANS), outcomes, intervals=False)
    row = made.row("cand")
    assert (row.k, row.n, made.statement.clusters.n) == (4, 399, 200)
    assert row.joint_risk == pytest.approx(2 / 200)
    assert row.p == pytest.approx(float(hoeffding_bentkus(2, 200, 0.1)), rel=1e-9)
    names, means = cluster_means(outcomes.violated(0).astype(float), outcomes.clusters)
    assert dict(zip(names, means[1], strict=True))["t2"] == 1


def test_groups_and_further_risks_take_cluster_means_too():
    groups = ["a" if number < 300 else "b" for number in range(399)]
    late = np.where(np.arange(399) < 6, 3.0, 1.0)
    outcomes = outcomes_with(UNEQUAL, [0], groups, seconds=(np.ones(399), late))
    grid = replace(
        make_grid(["ref", "cand"], groups={"a": 0.2}),
        clusters=MEANS,
        risks=(Risk("late", "seconds", 0.2, over=2),),
    )
    made = certify(grid, outcomes, intervals=False)
    in_a = len(set(UNEQUAL[:300]))
    assert made.groups[0].configurations[1].p == pytest.approx(float(hoeffding_bentkus(1, in_a, 0.2)), rel=1e-9)
    assert made.groups[0].configurations[1].joint_risk == pytest.approx(1 / in_a)
    assert (made.risks[0].n, made.risks[0].test) == (200, "hb")
    assert words.risk_counts(made.risks[0], "cand") == "0.0150"  # a mean over clusters is no count of prompts
    assert made.risks[0].configurations[1].p == pytest.approx(float(hoeffding_bentkus(3, 200, 0.2)), rel=1e-9)


def test_clusters_are_in_the_statement_and_the_promise():
    outcomes = outcomes_with(UNEQUAL, [0])
    grid = make_grid(["ref", "cand"])
    hashes = set()
    for clusters in (MEANS, replace(MEANS, test="wsr"), replace(MEANS, test="wsr", seed=1)):
        made = certify(replace(grid, clusters=clusters), outcomes, intervals=False)
        hashes.add(made.statement.hash)
        assert made.promise.startswith(
            "If the 200 clusters by template of these 399 prompts are an independent random draw from made prompts, "
            "then in at least 90 % of such draws"
        )
    assert len(hashes) == 3


def test_what_cluster_means_need_is_told_as_a_mean_loss_and_clusters():
    made = certify(replace(make_grid(["ref", "cand"]), clusters=MEANS), outcomes_with(UNEQUAL, range(40)))
    needed = made.row("cand").needed
    assert list(needed.mean_losses) == ["all"]
    assert 0 < needed.mean_losses["all"] < made.row("cand").joint_risk
    assert needed.violations_fewer == {}


def test_reference_that_is_seldom_right_is_refused_under_cluster_means():
    outcomes = outcomes_with(UNEQUAL, range(399))
    outcomes.correct[0, 10:] = False
    with pytest.raises(NothingCertifiableError, match="a candidate that is always wrong would be certified"):
        certify(replace(make_grid(["ref", "cand"]), clusters=MEANS), outcomes)


# -- One per cluster ----------------------------------------------------------------------------------------------


def test_one_prompt_of_each_cluster_is_chosen_from_the_prompts_alone():
    ids = [f"p{number}" for number in range(len(UNEQUAL))]
    chosen = one_of_each(ids, UNEQUAL, 3)
    assert sorted(UNEQUAL[position] for position in chosen) == sorted(set(UNEQUAL))
    assert chosen == one_of_each(ids, UNEQUAL, 3) != one_of_each(ids, UNEQUAL, 4)
    places = [[1, 2].index(position) for position in (one_of_each(ids, UNEQUAL, seed)[1] for seed in range(200))]
    assert 60 < sum(places) < 140  # either prompt of t1 about as often


def test_outcomes_are_thinned_on_every_column():
    outcomes = outcomes_with(UNEQUAL, range(50), ["a"] * 399, seconds=(np.arange(399.0), np.arange(399.0)))
    smaller, notes = thinned(outcomes, ONE)
    kept = [int(prompt[1:]) for prompt in smaller.prompts]
    assert len(kept) == len(set(smaller.clusters)) == 200
    assert np.array_equal(smaller.correct, outcomes.correct[:, kept])
    assert np.array_equal(smaller.measures["seconds"][0], kept)
    assert notes == ["399 prompts fall into 200 clusters by template; one random prompt of each is used (seed 0)"]
    assert thinned(outcomes, MEANS) == (outcomes, [])
    made = certify(replace(make_grid(["ref", "cand"]), clusters=ONE), smaller, intervals=False)
    row = made.row("cand")
    assert row.p == binomial_tail(row.k, 200, 0.1)
    assert "a random one of each of 200 clusters by template" in made.promise


# -- Verified -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["hb", "wsr", "one"])
def written(request, tmp_path) -> Path:
    clusters = ONE if request.param == "one" else replace(MEANS, test=request.param)
    outcomes, _ = thinned(outcomes_with(UNEQUAL, range(20)), clusters)
    path = tmp_path / "it.certificate.json"
    path.write_bytes(to_bytes(certify(replace(make_grid(["ref", "cand"]), clusters=clusters), outcomes)))
    return path


def test_certificate_of_clusters_verifies(written):
    assert verify(written).statement.clusters.n == 200


@pytest.mark.parametrize("change", ["p", "joint_risk", "risk_upper_simultaneous", "clusters", "n", "none"])
def test_no_number_of_clusters_can_be_changed(written, change):
    data = json.loads(written.read_bytes())
    if change == "clusters":
        data["outcomes"]["clusters"] = data["outcomes"]["prompts"]
    elif change == "none":
        data["outcomes"].pop("clusters")
    elif change == "n":
        data["statement"]["clusters"]["n"] = 399
    else:
        data["configurations"][1][change] /= 2
    data["digest"] = "sha256:" + sha256_of({key: each for key, each in data.items() if key != "digest"})
    written.write_bytes(json.dumps(data, indent=1).encode() + b"\n")
    with pytest.raises(CertificateError):
        verify(written)


# -- The sampling design ------------------------------------------------------------------------------------------


def promise_for(design: Design | None) -> str:
    grid = replace(make_grid(["ref", "cand"]), design=design, groups=Groups("kind", {}))
    outcomes = replace(violations(100, {"cand": 1}), groups=("easy",) * 60 + ("hard",) * 40)
    return certify(grid, outcomes, intervals=False).promise


@pytest.mark.parametrize(
    ("design", "words"),
    [
        (None, "If these 100 prompts are an independent random draw from made prompts, then in at least 90 % of such"),
        (
            Design("stratified"),
            "If these 100 prompts are independent random draws from made prompts with fixed numbers by group (easy 60, "
            "hard 40), then in at least 90 % of such draws (of prompts and decoding randomness) no configuration "
            "marked certified has joint risk above 0.1 there, in this mix of groups, for statement",
        ),
        (
            Design("finite_pool", 1319),
            "If these 100 prompts were drawn at random, without replacement, from the 1,319 prompts of made prompts, "
            "then in at least 90 % of such draws (of prompts and decoding randomness) no configuration marked "
            "certified has joint risk above 0.1 over these, for statement",
        ),
        (
            Design("census"),
            "These 100 prompts are all of made prompts: on this run no configuration marked certified has joint risk "
            "above 0.1 over them, for statement",
        ),
    ],
)
def test_promise_says_how_the_prompts_were_drawn(design, words):
    assert promise_for(design).startswith(words)


def test_design_that_is_independent_is_the_default_and_changes_no_statement():
    assert promise_for(Design("independent")) == promise_for(None)
    assert len({promise_for(design) for design in (None, Design("stratified"), Design("census"))}) == 3


def test_more_prompts_than_the_pool_holds_are_refused():
    grid = replace(make_grid(["ref", "cand"]), design=Design("finite_pool", 99))
    with pytest.raises(OutcomesError, match="100 prompts cannot be drawn without replacement from 99"):
        certify(grid, violations(100, {"cand": 1}))


def test_certificate_of_every_design_verifies(tmp_path):
    path = tmp_path / "it.certificate.json"
    for design in (Design("stratified"), Design("finite_pool", 200), Design("census")):
        grid = replace(make_grid(["ref", "cand"]), design=design, groups=Groups("kind", {}))
        outcomes = replace(violations(100, {"cand": 1}), groups=("easy",) * 60 + ("hard",) * 40)
        path.write_bytes(to_bytes(certify(grid, outcomes)))
        assert verify(path).statement.prompts.design.kind == design.kind


def test_certified_census_is_within_its_budget_on_this_run():
    """For every delta that is allowed beside a census, a count that passes is below n alpha."""
    for n in range(30, 400, 7):
        for alpha in (0.05, 0.1, 0.3):
            assert largest_passing(n, alpha, 0.25) < n * alpha - 1 or largest_passing(n, alpha, 0.25) == -1


# -- Clusters that nobody declared --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "texts", "found"),
    [
        ([f"gsm8k/{number}" for number in range(50)], None, False),
        ([f"arithmetic/{number:04}" for number in range(50)], None, False),
        ([f"name/{number // 5}#{number % 5}" for number in range(50)], None, True),
        ([f"chat-{number // 2}/turn-{number % 2}" for number in range(50)], None, True),
        ([f"q{number}:v2" for number in range(50)], None, False),
        ([str(number) for number in range(50)], [f"What is {number} plus {2 * number}?" for number in range(50)], True),
        ([str(number) for number in range(50)], [f"Tell me {'a' * number}!" for number in range(50)], False),
        ([str(number) for number in range(500)], ["a 1", "a 2", *("b" * number for number in range(498))], False),
    ],
)
def test_prompts_that_look_alike_are_warned_of(ids, texts, found):
    warnings = unnoticed_clusters(make_grid(["ref", "cand"]), ids, texts)
    assert bool(warnings) is found
    if found:
        (warning,) = warnings
        assert re.match(r"50 of 50 prompts have an? (id|text) that another one has", warning)
        assert ".13 to .25 at a nominal .10" in warning


@pytest.mark.parametrize(
    "said", [{"clusters": ONE}, {"clusters": MEANS}, {"design": Design("independent")}, {"design": Design("census")}]
)
def test_grid_that_says_how_prompts_relate_is_not_warned(said):
    assert unnoticed_clusters(replace(make_grid(["ref", "cand"]), **said), ["a#1", "a#2"], None) == []


def test_certificates_without_clusters_hold_no_trace_of_them():
    data = json.loads(to_bytes(certify_counts(100, {"cand": 1})))
    assert "clusters" not in data["statement"]
    assert "clusters" not in data["outcomes"]
    assert "design" not in data["statement"]["prompts"]
