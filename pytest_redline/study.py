"""How selectors would have done: on random halves of a recording, and on subsets as small as others would record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_redline.certificate_schema import FileRecord
from pytest_redline.cost import stated_cost
from pytest_redline.stats.risk import fewest_prompts
from pytest_redline.stats.selectors import Samples, Selector, Setting, deploy, mean_within, selector
from pytest_redline.stats.splits import counted, half, half_splits, proportional, subsets, summed
from pytest_redline.studied import Studied
from pytest_redline.study_schema import (
    BudgetResult,
    Interval,
    Matched,
    MeanRule,
    MeasuredAgain,
    SelectorResult,
    StudiedConfiguration,
    Study,
    SubsetBudget,
    Subsets,
)

_GATE = selector("REDLINE")
_PERCENTS = range(1, 31)  # budgets among which the smallest with a faster deployment is looked for
_MOST_POINTS = 100  # of the rules on mean accuracy


@dataclass(frozen=True)
class Plan:
    """What to do with a recording.

    Parameters
    ----------
    alphas
        Risk budgets, each once.
    delta
        Failure probability of the whole grid.
    splits
        Half splits, and draws of each kind of subset.
    seed
        Of the splits; subsets draw from streams of their own beside it.
    selectors
        Names, each once.
    sizes
        Prompts of the subsets; empty for none.
    stratified
        Draw subsets also with each group at its share.
    """

    alphas: tuple[float, ...]
    delta: float
    splits: int
    seed: int
    selectors: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    stratified: bool = False

    @property
    def samples(self) -> int:
        """How many samples are drawn in all."""
        return self.splits * (1 + len(self.sizes) * (1 + self.stratified))


def study(studied: Studied, plan: Plan, told: Callable[[int], None] = lambda _: None) -> Study:
    """Study selectors on a recording.

    Parameters
    ----------
    studied
        The outcomes and costs, with groups where the plan is stratified.
    plan
        What to do.
    told
        Is called with a number of samples whenever so many are done; the numbers add up to ``plan.samples``.

    Raises
    ------
    ValueError
        A selector does not exist; a size, a budget or the number of splits is out of range.
    """
    table = _Table.of(studied)
    settings = [Setting(alpha, plan.delta, studied.reference, studied.gain) for alpha in plan.alphas]
    m, n = table.lost.shape
    halves = _halves(table, plan, settings, told)
    cost = stated_cost(studied.measure)
    assert cost is not None
    groups = studied.outcomes.groups if plan.stratified else None
    return Study(
        files=[FileRecord(path=path, sha256=digest) for path, digest in studied.files],
        n=n,
        m=m,
        reference=table.labels[studied.reference],
        delta=plan.delta,
        cost=cost,
        seed=plan.seed,
        splits=plan.splits,
        calibration=half(n),
        test=n - half(n),
        configurations=[_configuration(table, row) for row in range(m)],
        budgets=[_budget(table, halves, plan, setting) for setting in settings],
        subsets=[
            _subsets(table, plan, settings, size, strata, told)
            for size in plan.sizes
            for strata in ((None,) if groups is None else (None, groups))
        ],
        warnings=[*studied.warnings, *_warnings(plan, m, half(n)), *_beyond(studied, plan)],
    )


@dataclass(frozen=True)
class _Table:
    """The recording as the samples see it.

    ``lost`` and ``gained`` are ``[m, n]`` bool. ``cost`` is one or two ``[m, n]`` arrays whose sums, or whose ratio of
    sums, is the cost; None where costs are declared.
    """

    labels: tuple[str, ...]
    lost: NDArray[np.bool_]
    gained: NDArray[np.bool_]
    gain: NDArray[np.float64]
    reference: int
    cost: tuple[NDArray[np.float64], ...] | None
    higher: bool

    @classmethod
    def of(cls, studied: Studied) -> _Table:
        outcomes, measure, reference = studied.outcomes, studied.measure, studied.reference
        cost = None if measure.declared else tuple(outcomes.measures[name] for name in measure.measures)
        if cost is not None and measure.pool == "mean_of_ratios":
            with np.errstate(divide="ignore", invalid="ignore"):  # in rows of unknown cost, which nothing deploys
                cost = (cost[0] / cost[1],)
        return cls(
            outcomes.configurations,
            outcomes.violated(reference),
            ~outcomes.correct[reference] & outcomes.correct,
            studied.gain,
            reference,
            cost,
            measure.better == "higher",
        )


@dataclass(frozen=True)
class _Halves:
    """What the splits hold, and what rules that look at the order of prompts allow, by budget and name.

    ``test``: prompts of a test half. ``test_lost``, ``test_gained``: ``[S, m]`` counts there. ``test_gain``: ``[S, m]``
    gain there, or None.
    """

    samples: Samples
    test: int
    test_lost: NDArray[np.int64]
    test_gained: NDArray[np.int64]
    test_gain: NDArray[np.float64] | None
    allowed: dict[tuple[float, str], NDArray[np.bool_]]


def _halves(table: _Table, plan: Plan, settings: Sequence[Setting], told: Callable[[int], None]) -> _Halves:
    """Draw the splits."""
    n = table.lost.shape[1]
    net = table.lost.astype(np.int8) - table.gained
    ordered = [each for each in map(selector, plan.selectors) if each.ordered]
    lost, gained, costs = [], [], []
    allowed: dict[tuple[float, str], list[NDArray[np.bool_]]] = {}
    for chosen in half_splits(n, plan.splits, plan.seed):
        lost.append(counted(table.lost, chosen))
        gained.append(counted(table.gained, chosen))
        if table.cost is not None:
            costs.append([values.sum(axis=1) - summed(values, chosen) for values in table.cost])
        if ordered:
            samples = Samples(half(n), lost[-1], gained[-1], net[:, chosen])
            for setting in settings:
                for each in ordered:
                    allowed.setdefault((setting.alpha, each.name), []).append(each.allowed(samples, setting))
        told(len(chosen))
    samples = Samples(half(n), np.concatenate(lost), np.concatenate(gained))
    return _Halves(
        samples,
        n - half(n),
        table.lost.sum(axis=1) - samples.lost,
        table.gained.sum(axis=1) - samples.gained,
        _test_gain(table, costs) if table.cost is not None else None,
        {key: np.concatenate(parts) for key, parts in allowed.items()},
    )


def _test_gain(table: _Table, costs: Sequence[Sequence[NDArray[np.float64]]]) -> NDArray[np.float64]:
    """``[S, m]`` gain over the reference on the test halves; NaN where a cost there is 0 or unknown."""
    sums = [np.concatenate(parts) for parts in zip(*costs, strict=True)]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = sums[0] / sums[1] if len(sums) == 2 else sums[0]
        ratio = cost / cost[:, [table.reference]]
        gain: NDArray[np.float64] = (ratio if table.higher else 1 / ratio) - 1
    return np.where(np.isfinite(gain), gain, np.nan)


def _configuration(table: _Table, row: int) -> StudiedConfiguration:
    n = table.lost.shape[1]
    k, gained, gain = int(table.lost[row].sum()), int(table.gained[row].sum()), float(table.gain[row])
    return StudiedConfiguration(
        label=table.labels[row],
        k=k,
        joint_risk=k / n,
        gained=gained,
        net_accuracy=100 * (gained - k) / n,
        gain=None if np.isnan(gain) else gain,
    )


def _budget(table: _Table, halves: _Halves, plan: Plan, setting: Setting) -> BudgetResult:
    """Everything at one budget."""
    gate = deploy(_GATE.allowed(halves.samples, setting), setting)
    return BudgetResult(
        alpha=setting.alpha,
        selectors=[_selected(table, halves, selector(name), setting) for name in plan.selectors],
        again=_again(table, halves, gate, setting),
        mean_matched=_matched(halves, float(table.gain[gate].mean()), setting),
    )


def _selected(table: _Table, halves: _Halves, rule: Selector, setting: Setting) -> SelectorResult:
    """What one selector did."""
    known = halves.allowed.get((setting.alpha, rule.name))
    deployed = deploy(rule.allowed(halves.samples, setting) if known is None else known, setting)
    pool = table.lost.sum(axis=1) / table.lost.shape[1] > setting.alpha
    splits = np.bincount(deployed, minlength=len(table.labels))
    return SelectorResult(
        selector=rule.name,
        mean_gain=float(table.gain[deployed].mean()),
        test_exceedance=_exceedance(halves, deployed, setting),
        pool_exceedance=float(pool[deployed].mean()),
        reference_share=float((deployed == setting.reference).mean()),
        deployed={label: int(count) for label, count in zip(table.labels, splits, strict=True) if count},
    )


def _exceedance(halves: _Halves, deployed: NDArray[np.int64], setting: Setting) -> float:
    """Share of splits whose deployment has a joint risk above the budget on the test half."""
    lost = np.take_along_axis(halves.test_lost, deployed[:, None], axis=1)[:, 0]
    return float((lost / halves.test > setting.alpha).mean())


def _again(table: _Table, halves: _Halves, gate: NDArray[np.int64], setting: Setting) -> MeasuredAgain:
    """Measure on the test halves what REDLINE deploys on all prompts."""
    n = table.lost.shape[1]
    whole = Samples(n, table.lost.sum(axis=1)[None], table.gained.sum(axis=1)[None])
    chosen = int(deploy(_GATE.allowed(whole, setting), setting)[0])
    same = gate == chosen
    net = 100 * (halves.test_gained - halves.test_lost)[same, chosen] / halves.test
    return MeasuredAgain(
        deployed=table.labels[chosen],
        gain=float(table.gain[chosen]),
        net_accuracy=100 * int((whole.gained - whole.lost)[0, chosen]) / n,
        splits_reference=int((gate == setting.reference).sum()),
        splits_same=int(same.sum()),
        held_gain=None if halves.test_gain is None else _interval(halves.test_gain[same, chosen]),
        held_net_accuracy=_interval(net),
    )


def _interval(values: NDArray[np.float64]) -> Interval | None:
    known = values[~np.isnan(values)]
    if not known.size:
        return None
    lower, upper = np.percentile(known, [2.5, 97.5])
    return Interval(mean=float(known.mean()), lower=float(lower), upper=float(upper))


def _matched(halves: _Halves, gain: float, setting: Setting) -> Matched:
    """Find the rules on mean accuracy around a gain: the more points they allow, the more they gain."""
    slower = None
    for points in range(_MOST_POINTS + 1):
        deployed = deploy(mean_within(points).allowed(halves.samples, setting), setting)
        found = MeanRule(
            points=points,
            mean_gain=float(setting.gain[deployed].mean()),
            test_exceedance=_exceedance(halves, deployed, setting),
        )
        if found.mean_gain >= gain:
            return Matched(slower=slower, faster=found)
        slower = found
    return Matched(slower=slower, faster=None)


def _subsets(
    table: _Table,
    plan: Plan,
    settings: Sequence[Setting],
    size: int,
    strata: tuple[str, ...] | None,
    told: Callable[[int], None],
) -> Subsets:
    """Draw subsets of one size."""
    n = table.lost.shape[1]
    lost, gained = [], []
    for chosen in subsets(n, size, plan.splits, plan.seed, strata):
        lost.append(counted(table.lost, chosen))
        gained.append(counted(table.gained, chosen))
        told(len(chosen))
    samples = Samples(size, np.concatenate(lost), np.concatenate(gained))
    smallest = np.full(plan.splits, np.inf)
    for percent in reversed(_PERCENTS):
        setting = Setting(percent / 100, plan.delta, table.reference, table.gain)
        smallest[deploy(_GATE.allowed(samples, setting), setting) != table.reference] = percent
    deployed = [(setting.alpha, deploy(_GATE.allowed(samples, setting), setting)) for setting in settings]
    return Subsets(
        size=size,
        strata=None if strata is None else _strata(size, strata),
        draws=plan.splits,
        histogram={f"{percent / 100:.2f}": int((smallest == percent).sum()) for percent in _PERCENTS},
        none=int(np.isinf(smallest).sum()),
        median=_percentile(smallest, 50),
        quartiles=(_percentile(smallest, 25), _percentile(smallest, 75)),
        budgets=[
            SubsetBudget(
                alpha=alpha,
                reference_share=float((rows == table.reference).mean()),
                mean_gain=float(table.gain[rows].mean()),
            )
            for alpha, rows in deployed
        ],
    )


def _strata(size: int, strata: Sequence[str]) -> dict[str, int]:
    names = list(dict.fromkeys(strata))
    return dict(zip(names, proportional(size, [strata.count(name) for name in names]), strict=True))


def _percentile(percents: NDArray[np.float64], which: float) -> float | None:
    """A percentile of budgets, in whole percents and infinite where there is none, as a fraction."""
    beyond = _PERCENTS[-1] + 1
    found = float(np.percentile(np.minimum(percents, beyond), which))
    return found / 100 if found < beyond else None


def _warnings(plan: Plan, m: int, calibration: int) -> list[str]:
    """Say where nothing could be certified however good the candidates."""
    needed = [(alpha, fewest_prompts(alpha, plan.delta / m)) for alpha in plan.alphas]
    return [
        f"samples of {size:,} certify nothing at alpha {alpha:g}, where it takes {least:,}: there REDLINE and BONF "
        "keep the reference"
        for size in (calibration, *plan.sizes)
        for alpha, least in needed
        if size < least
    ]


def _beyond(studied: Studied, plan: Plan) -> list[str]:
    """Say where no configuration can exceed a budget, as the reference is right so seldom."""
    right, n = int(studied.outcomes.correct[studied.reference].sum()), len(studied.outcomes.prompts)
    return [
        f"the reference is right on {right:,} of {n:,} prompts, so that nothing, an always wrong candidate included, "
        f"can exceed alpha {alpha:g}"
        for alpha in plan.alphas
        if right / n <= alpha
    ]
