"""What is served and what is claimed when not everything is: the schedule, replayed on full outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from made_outcomes import TABLES, TOKENS_PER_FORWARD, at, make_grid

from pytest_redline.certificate import certify, to_bytes
from pytest_redline.certificate_schema import Certificate
from pytest_redline.cost import fastest
from pytest_redline.errors import CertificateError, NothingCertifiableError, OutcomesError
from pytest_redline.grid import Grid, Serving
from pytest_redline.outcomes import Outcomes
from pytest_redline.report import markdown, terminal
from pytest_redline.schedule import Schedule
from pytest_redline.spending import DeclaredLooks, Stopping
from pytest_redline.statement import sha256_of
from pytest_redline.stats.multiplicity import holm
from pytest_redline.stats.risk import binomial_tail
from pytest_redline.verify import verify


def drawn(
    seed: int, risks: list[float], n: int = 160, right: float = 0.9, measured: bool = False, **grid: Any
) -> tuple[Grid, Outcomes]:
    """A grid of a reference and candidates of these joint risks, each faster than the one before, and its outcomes."""
    random = np.random.default_rng(seed)
    labels = ["ref", *(f"c{number}" for number in range(1, len(risks) + 1))]
    reference = random.random(n) < right
    rows = [reference]
    rows += [np.where(reference, random.random(n) >= risk / right, random.random(n) < 0.3) for risk in risks]
    shape = (len(rows), n)
    outcomes = Outcomes(
        tuple(labels),
        tuple(f"p{number}" for number in range(n)),
        np.array(rows),
        {
            "tokens": random.integers(50, 100, shape).astype(np.float64),
            "forwards": random.integers(10, 40, shape).astype(np.float64),
        },
        groups=tuple(random.choice(["a", "b"], n).tolist()),
        outputs=random.integers(1, 2**60, shape).astype(np.uint64),
        order=tuple(random.permutation(n).tolist()),
    )
    costs = None if measured else {label: 1.0 + number for number, label in enumerate(labels)}
    return make_grid(labels, costs=costs, cost=TOKENS_PER_FORWARD if measured else None, **grid), outcomes


def served(grid: Grid, full: Outcomes) -> Outcomes:
    """What is known after a run by the schedule."""
    assert full.order is not None
    schedule = Schedule(grid, full.prompts, full.groups, full.order)
    return only(full, schedule.replay(full.correct, np.ones_like(full.correct)))


def only(full: Outcomes, seen: np.ndarray) -> Outcomes:
    """Outcomes of what was seen."""
    return replace(
        full,
        correct=full.correct & seen,
        measures={name: values * seen for name, values in full.measures.items()},
        outputs=None if full.outputs is None else full.outputs * seen,
        known=None if seen.all() else seen,
    )


def run(grid: Grid, full: Outcomes) -> Certificate:
    """Certificate of a run by the schedule."""
    return certify(grid, served(grid, full), intervals=False)


def holm_on_everything(grid: Grid, full: Outcomes, looks: DeclaredLooks | None = None) -> np.ndarray:
    """Which rows Holm certifies on all outcomes, by p-values written down anew."""
    assert full.order is not None
    n, violated = len(full.prompts), full.violated(0)[:, full.order]
    sizes = (looks.at if looks else None) or (n,)
    shares = [looks.early / (len(sizes) - 1)] * (len(sizes) - 1) + [1 - looks.early] if looks else [1.0]
    group_of = np.array(full.groups)[list(full.order)]
    largest = np.zeros(grid.m)
    for name, alpha in {"all": grid.alpha, **(grid.groups.alpha if grid.groups else {})}.items():
        members = np.ones(n, dtype=bool) if name == "all" else group_of == name
        smallest = np.ones(grid.m)
        for size, share in zip(sizes, shares, strict=True):
            inside = members[:size]
            if inside.any():
                k = violated[:, :size][:, inside].sum(axis=1)
                smallest = np.minimum(smallest, binomial_tail(k, int(inside.sum()), alpha) / share)
        largest = np.maximum(largest, smallest)
    return holm(largest, grid.delta)


CASES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "risks": st.lists(st.sampled_from([0.0, 0.02, 0.05, 0.08, 0.12, 0.3]), min_size=1, max_size=5),
        "right": st.sampled_from([0.6, 0.9, 1.0]),
        "groups": st.sampled_from([None, {"a": 0.2}]),
    }
)
EVERY = st.sampled_from([5, 16, 50, 200])
SIZES = st.sampled_from([(80, 160), (40, 80, 120, 160), (10, 155, 160)])


# -- verdicts are those of the full run


@given(CASES, st.booleans(), EVERY)
@settings(max_examples=40, deadline=None)
def test_curtailed_and_full_runs_agree_on_every_configuration(case, where_right, every):
    grid, full = drawn(**case)
    stopped = at(grid, stopping=Stopping(where_reference_right=where_right, every=every))
    certificate = run(stopped, full)
    assert [row.certified for row in certificate.configurations] == holm_on_everything(grid, full).tolist()
    assert all(row.verdict != "not needed" for row in certificate.configurations)
    for row in certificate.configurations:
        assert row.p is not None
        assert row.unknown == 0 or not row.certified


@given(CASES, SIZES, st.booleans(), st.booleans(), EVERY)
@settings(max_examples=40, deadline=None)
def test_runs_that_stop_at_looks_certify_what_all_looks_certify(case, sizes, curtail, where_right, every):
    looks = DeclaredLooks(at=sizes)
    grid, full = drawn(**case)
    stopped = at(grid, stopping=Stopping(curtail, looks, where_right, every))
    certificate = run(stopped, full)
    expected = holm_on_everything(grid, full, looks)
    assert [row.certified for row in certificate.configurations] == expected.tolist()


@given(CASES, st.permutations(range(6)), st.sampled_from([0, 1, 2, None]), EVERY, st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_deploy_only_run_deploys_what_holm_on_everything_does(case, speeds, serving, every, with_looks):
    """Lazy Holm, whatever the order of speed, and the served configuration's verdict is always known."""
    grid, full = drawn(**case)
    label = f"c{serving}" if serving else "ref" if serving == 0 else None
    assume(label in (None, *grid.labels))
    looks = DeclaredLooks(at=(80, 160)) if with_looks else None
    configurations = tuple(
        replace(each, cost=1.0 + speed) for each, speed in zip(grid.configurations, speeds, strict=False)
    )
    lazy = at(
        grid,
        configurations=configurations,
        serving=Serving(label) if label else None,
        stopping=Stopping(looks=looks, every=every),
        deploy_only=True,
    )
    certificate = run(lazy, full)
    certified = holm_on_everything(grid, full, looks)
    wanted = fastest([each.cost for each in configurations], certified, 0, lazy.cost)
    assert certificate.deployed == grid.labels[wanted]
    for row, passes in zip(certificate.configurations, certified, strict=True):
        assert row.verdict == "not needed" or row.certified == passes
        assert row.verdict != "not needed" or (row.unknown > 0 and row.p is None and not row.required)
    if label is not None:
        assert certificate.row(label).verdict != "not needed"
        assert certificate.failing == (() if certified[grid.labels.index(label)] else (label,))
    else:
        assert certificate.required == ()


@given(CASES, st.integers(0, 2**32 - 1), st.sampled_from(["curtail", "looks", "where", "deploy"]))
@settings(max_examples=40, deadline=None)
def test_a_run_that_is_killed_anywhere_ends_with_the_same_certificate(case, kill, mode):
    """Whatever part of the generations a killed run left in the store, the rerun asks for the same ones."""
    grid, full = drawn(**case)
    looks = DeclaredLooks(at=(80, 160)) if mode == "looks" else None
    grid = at(grid, stopping=Stopping(True, looks, mode == "where", 16), deploy_only=mode == "deploy")
    assert full.order is not None
    schedule = Schedule(grid, full.prompts, full.groups, full.order)
    random = np.random.default_rng(kill)
    stored = np.zeros_like(full.correct)
    for _ in range(3):  # runs, each killed in the middle of some part
        seen = np.zeros_like(stored)
        for _ in range(int(random.integers(1, 8))):
            asked = schedule.next(np.where(stored, full.correct, random.random(stored.shape) < 0.5), seen)
            stored |= asked
            seen |= asked
        stored[asked] &= random.random(int(asked.sum())) < 0.5
    again = schedule.replay(full.correct, np.ones_like(stored))
    assert to_bytes(certify(grid, only(full, again), intervals=False)) == to_bytes(run(grid, full))
    assert not (stored & ~again).any()


# -- what is served


def test_a_hopeless_candidate_stops_and_the_others_go_on():
    grid, full = drawn(3, [0.0, 0.5])
    certificate = run(at(grid, stopping=Stopping(every=10)), full)
    spent = certificate.spent
    assert spent is not None
    assert spent.by_configuration["ref"] == spent.by_configuration["c1"] == 160
    assert spent.by_configuration["c2"] <= 60
    assert [row.certified for row in certificate.configurations] == [True, True, False]
    assert spent.generations_run == sum(spent.by_configuration.values())
    assert (spent.generations_full, spent.share) == (480, spent.generations_run / 480)


def test_what_is_known_is_the_start_of_the_random_order():
    grid, full = drawn(3, [0.01, 0.2, 0.5])
    known = served(at(grid, stopping=Stopping(looks=DeclaredLooks(at=(64, 160)), every=10)), full).known
    assert known is not None
    for row in known[:, full.order]:
        assert (row == (np.arange(160) < row.sum())).all()
        assert row.sum() % 10 == 0 or row.sum() in (64, 160)


def test_candidates_are_served_only_where_the_reference_is_right():
    grid, full = drawn(5, [0.02, 0.3], right=0.7)
    certificate = run(at(grid, stopping=Stopping(curtail=False, where_reference_right=True)), full)
    plain = certify(grid, replace(full, order=None), intervals=False)
    right = int(full.correct[0].sum())
    assert certificate.spent is not None
    assert certificate.spent.by_configuration == {"ref": 160, "c1": right, "c2": right}
    for label in ("c1", "c2"):
        row, whole = certificate.row(label), plain.row(label)
        assert (row.k, row.unknown, row.p, row.joint_risk) == (whole.k, 0, whole.p, whole.joint_risk)
        assert row.gained is row.net_accuracy is row.accuracy is None
        assert (row.risk_upper, row.risk_interval) == (whole.risk_upper, whole.risk_interval)
    assert certificate.frontier == plain.frontier
    assert certificate.row("ref").accuracy == right / 160


def test_costs_are_compared_on_equal_prompts_or_not_at_all():
    grid, full = drawn(5, [0.0, 0.01, 0.5], right=0.8, measured=True)
    stopping = Stopping(looks=DeclaredLooks(at=(80, 160)), where_reference_right=True, every=8)
    outcomes = served(at(grid, stopping=stopping), full)
    certificate = certify(at(grid, stopping=stopping), outcomes, intervals=True)
    known = outcomes.known
    assert known is not None
    rows = [index for index, row in enumerate(certificate.configurations) if row.certified]
    equal = np.flatnonzero(known[rows].all(axis=0))
    assert certificate.spent is not None
    assert certificate.spent.cost_prompts == len(equal)
    assert 0 < len(equal) < 80
    for index, row in enumerate(certificate.configurations):
        tokens, forwards = (full.measures[name][index, equal] for name in ("tokens", "forwards"))
        assert row.cost == (tokens.sum() / forwards.sum() if known[index, equal].all() else None)
        assert (row.gain is None) == (row.cost is None)
    assert certificate.row("c3").cost is None
    assert certificate.row(certificate.deployed).gain_interval is not None
    assert certificate.row(certificate.deployed).net_accuracy_interval is None


def test_a_deploy_only_run_serves_the_fastest_and_the_reference_on_demand():
    grid, full = drawn(11, [0.3, 0.25, 0.0, 0.01])
    certificate = run(at(grid, deploy_only=True), full)
    spent = certificate.spent
    assert spent is not None
    assert certificate.deployed == "c4"
    assert {row.label: row.verdict for row in certificate.configurations} == {
        "ref": "reference",
        "c1": "not needed",
        "c2": "not needed",
        "c3": "not needed",
        "c4": "certified",
    }
    assert spent.by_configuration["c1"] == spent.by_configuration["c3"] == 0
    outcomes = served(at(grid, deploy_only=True), full)
    assert outcomes.known is not None
    assert (outcomes.known[0] == (outcomes.known[4] & ~full.correct[4])).all()
    assert certificate.row("c4").gain == 4.0


def test_a_served_configuration_is_judged_even_where_another_is_deployed():
    grid, full = drawn(11, [0.3, 0.25, 0.0, 0.01])
    judged = run(at(grid, deploy_only=True, serving=Serving("c1")), full)
    assert judged.deployed == "c4"
    assert judged.row("c1").verdict in ("undecided", "breach")
    assert judged.failing == ("c1",)


# -- the shares that were computed for the paper's outcomes


MATH = TABLES["llada2_math_outcomes"]
SPEEDS = {
    "acc95/semi90": 4.4015,
    "acc85/semi70": 6.05,
    "acc85/semi90": 5.85,
    "acc90/semi70": 5.456,
    "acc90/semi90": 5.165,
    "acc95/semi70": 4.571,
    "acc99/semi90": 4.0,
}


@pytest.fixture(scope="module")
def resampled() -> Callable[[int], Outcomes]:
    """A function that resamples the prompts of the paper's LLaDA2 math outcomes."""
    n = MATH["n"]
    labels = list(SPEEDS)
    correct = np.ones((7, n), dtype=np.bool_)
    for row, label in enumerate(labels):
        wrong = MATH["wrong"][label]
        correct[row, [*wrong["gsm8k"], *(512 + place for place in wrong["math500"])]] = False

    def sample(seed: int) -> Outcomes:
        chosen = np.random.default_rng(seed).integers(0, n, n)
        return Outcomes(tuple(labels), tuple(map(str, range(n))), correct[:, chosen], order=tuple(range(n)))

    return sample


class Shares(NamedTuple):
    """Means over runs: share of the faster candidates that were served at all, shares of generations, the gain."""

    begun: float
    faster: float
    reference: float
    gain: float


def shares_of(sample: Callable[[int], Outcomes], alpha: float, runs: int, **keys: Any) -> Shares:
    used = np.zeros((runs, 4))
    for seed in range(runs):
        full = sample(seed)
        grid = at(make_grid(full.configurations, reference=MATH["reference"], alpha=alpha, costs=SPEEDS), **keys)
        outcomes = served(grid, full)
        known = np.ones_like(full.correct) if outcomes.known is None else outcomes.known
        schedule = Schedule(grid, full.prompts, None, full.order or ())
        certified = schedule.verdicts(full.correct, known).certified
        deployed = fastest(list(SPEEDS.values()), certified, 0, grid.cost)
        gain = 100 * (list(SPEEDS.values())[deployed] / SPEEDS[MATH["reference"]] - 1)
        used[seed] = known[1:6].any(axis=1).mean(), known[1:6].mean(), known[0].mean(), gain
    return Shares(*used.mean(axis=0).tolist())


@pytest.mark.parametrize(("alpha", "share"), [(0.08, 0.70), (0.09, 0.49), (0.10, 0.30), (0.12, 0.20)])
def test_lazy_holm_serves_the_shares_of_faster_candidates_that_were_computed(resampled, alpha, share):
    found = shares_of(resampled, alpha, 200, deploy_only=True, stopping=Stopping(every=1012))
    assert found.begun == pytest.approx(share, abs=0.04)
    assert found.faster <= found.begun  # none is served where the reference is known to be wrong
    if alpha == 0.10:
        assert found.reference == pytest.approx(0.19, abs=0.01)


@pytest.mark.parametrize(
    ("alpha", "share", "gain"), [(0.08, 0.89, 24.4), (0.09, 0.78, 34.1), (0.10, 0.63, 37.0), (0.12, 0.36, 37.5)]
)
def test_looks_and_curtailment_serve_the_shares_and_deploy_the_gains_that_were_computed(resampled, alpha, share, gain):
    looks = Stopping(looks=DeclaredLooks(number=10), every=51)

    def without_the_slower_one(seed: int) -> Outcomes:  # the figures were computed so
        full = resampled(seed)
        full.correct[6] = False
        return full

    found = shares_of(without_the_slower_one, alpha, 40, stopping=looks)
    assert found.faster == pytest.approx(share, abs=0.05)
    assert found.gain == pytest.approx(gain, abs=4 if alpha < 0.1 else 1)
    assert found.reference >= found.faster


# -- what is said


EVERYTHING = Stopping(looks=DeclaredLooks(at=(80, 160)), where_reference_right=True, every=16)


@pytest.fixture
def written() -> Callable[..., Certificate]:
    """A function that makes a certificate of a run that stopped."""

    def make(measured: bool = True, **keys: Any) -> Certificate:
        grid, full = drawn(5, [0.0, 0.02, 0.5], right=0.8, measured=measured, groups={"a": 0.3})
        grid = at(grid, **{"stopping": EVERYTHING, **keys})
        return certify(grid, served(grid, full), intervals=True)

    return make


def test_a_run_that_stops_says_what_it_served_and_claims_nothing_it_cannot_know(written):
    certificate = written()
    stopped = certificate.row("c3")
    assert stopped.verdict in ("undecided", "breach")
    assert stopped.unknown > 0
    assert stopped.p is not None
    assert stopped.p > stopped.level
    assert stopped.joint_risk is stopped.cost is stopped.gain is stopped.needed is stopped.risk_interval is None
    assert certificate.frontier is None
    text, page = terminal.render(certificate), markdown.render(certificate)
    for shown in (" ".join(text.split()), page):
        assert f"{stopped.k}+/160" in shown
        assert "Served " in shown
        assert "2 looks" in shown
        assert "only where the reference is right" in shown
        assert "net accuracy not known" in shown
    assert f"{certificate.deployed} in group b: " in text
    assert "= -" not in text
    assert "net - points" not in text
    assert all(len(line) <= 80 for line in text.splitlines()[:8])
    assert "| served |" in page
    assert "None" not in text
    assert "None" not in page


def test_looks_belong_to_the_statement_and_the_rest_of_stopping_does_not(written):
    hashes = {
        name: written(stopping=stopping).statement.hash
        for name, stopping in {
            "looks": Stopping(looks=DeclaredLooks(at=(80, 160))),
            "looks, not curtailed": Stopping(False, DeclaredLooks(at=(80, 160)), True, 8),
            "by number": Stopping(looks=DeclaredLooks(number=2)),
            "other looks": Stopping(looks=DeclaredLooks(at=(40, 160))),
            "other share": Stopping(looks=DeclaredLooks(at=(80, 160), early=0.5)),
            "curtailed": Stopping(),
        }.items()
    }
    assert hashes["looks"] == hashes["looks, not curtailed"] == hashes["by number"]
    assert len(set(hashes.values())) == 4
    looks = written().statement.looks
    assert looks is not None
    assert (looks.sizes, looks.early) == ([80, 160], 0.2)


@pytest.mark.parametrize("keys", [{}, {"measured": False, "deploy_only": True}, {"stopping": Stopping(every=7)}])
def test_a_certificate_of_a_run_that_stops_verifies(tmp_path, written, keys):
    path = tmp_path / "made.certificate.json"
    path.write_bytes(to_bytes(written(**keys)))
    assert verify(path) == written(**keys)


def changed(certificate: Certificate, tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> str:
    """Why a certificate does not verify after a change, its digests computed anew."""
    data = json.loads(to_bytes(certificate))
    change(data)
    data["statement"]["hash"] = sha256_of({key: each for key, each in data["statement"].items() if key != "hash"})
    data["digest"] = "sha256:" + sha256_of({key: each for key, each in data.items() if key != "digest"})
    path = tmp_path / "made.certificate.json"
    path.write_text(json.dumps(data, indent=1) + "\n")
    with pytest.raises(CertificateError) as error:
        verify(path)
    return "\n".join(error.value.problems)


def without_one(outcomes: Outcomes, label: str) -> Outcomes:
    """Outcomes as if the last prompt served to a configuration had not been."""
    assert outcomes.known is not None
    known, row = outcomes.known.copy(), outcomes.configurations.index(label)
    served_last = [place for place in outcomes.order or () if known[row, place]][-1]
    known[row, served_last] = False
    return only(outcomes, known)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data["spent"].update(generations_run=1), "spent.generations_run: says 1"),
        (lambda data: data["spent"].update(share=0.01), "spent.share: says 0.01"),
        (lambda data: data["spent"]["by_configuration"].update(c1=3), "spent.by_configuration.c1: says 3"),
        (lambda data: data["spent"].update(cost_prompts=160), "spent.cost_prompts: says 160"),
        (lambda data: data["spent"].update(every=17), "which"),
        (lambda data: data["spent"].update(candidates="everywhere"), "which it needs"),
        (lambda data: data.pop("spent"), "outcomes in part"),
        (lambda data: data["outcomes"].pop("known"), "an outcome|does not ask for"),
        (lambda data: data["outcomes"].pop("order"), "order of the prompts is not known"),
        (lambda data: data["configurations"][3].update(unknown=0), "unknown"),
        (lambda data: data["configurations"][3].update(p=0.5), "configurations[c3].p: says 0.5"),
        (lambda data: data["configurations"][1].update(gained=1), "configurations[c1].gained: says 1"),
        (lambda data: data["statement"]["looks"].update(early=0.9), "p"),
        (lambda data: data["statement"]["looks"].update(order="0" * 64), "statement.looks.order"),
    ],
)
def test_what_a_certificate_says_of_its_stopping_is_computed_again(tmp_path, written, change, problem):
    said = changed(written(), tmp_path, change)
    assert any(part in said for part in problem.split("|")), said


@pytest.mark.parametrize("label", ["ref", "c1", "c3"])
def test_outcomes_that_the_schedule_does_not_ask_for_or_that_it_lacks_are_refused(label):
    grid, full = drawn(5, [0.0, 0.02, 0.5], right=0.8)
    grid = at(grid, stopping=Stopping(looks=DeclaredLooks(at=(80, 160)), every=16))
    right = served(grid, full)
    with pytest.raises(OutcomesError, match=rf"{label} was not served prompt .*, which it needs"):
        certify(grid, without_one(right, label))
    with pytest.raises(OutcomesError, match=r"was served prompt .*, which the schedule does not ask for"):
        certify(grid, replace(full, known=None))
    with pytest.raises(OutcomesError, match="an outcome stands where nothing was served"):
        certify(grid, replace(full, known=right.known))
    with pytest.raises(OutcomesError, match="outcomes in part, of a grid that is served in full"):
        certify(at(grid, stopping=None), right)


def test_a_reference_that_is_seldom_right_is_refused_at_a_look_too():
    grid, full = drawn(5, [0.0], right=0.001)
    for stopping in (Stopping(looks=DeclaredLooks(at=(80, 160)), every=16), Stopping(every=16)):
        with pytest.raises(NothingCertifiableError, match="always wrong would be certified"):
            certify(at(grid, stopping=stopping), served(at(grid, stopping=stopping), full))


def test_looks_cost_prompts_where_hardly_any_suffice():
    grid, full = drawn(5, [0.0], n=29, alpha=0.1)
    assert run(at(grid, stopping=Stopping()), full).row("c1").certified
    with pytest.raises(NothingCertifiableError, match=r"> 0.8 delta/m=0.04.*use at least 31"):
        run(at(grid, stopping=Stopping(looks=DeclaredLooks(number=2))), full)
