"""Declared risks beside that of wrong answers: from measured values to budgets and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_redline.budgets import Budget, Counts, count
from pytest_redline.certificate_schema import RiskResult, RiskRow
from pytest_redline.claims import Risk
from pytest_redline.errors import NothingCertifiableError, OutcomesError
from pytest_redline.grid import Grid
from pytest_redline.loss_budgets import LossBudget, loss_budget
from pytest_redline.outcomes import Outcomes, shown_id
from pytest_redline.stats.risk import largest_passing


class DeclaredBudget(NamedTuple):
    """A declared risk as measured; ``gained`` counts, ``[m]``, the prompts on which a row beats the reference."""

    risk: Risk
    budget: Budget
    gained: Counts

    @property
    def warnings(self) -> list[str]:
        """What a reviewer must not overlook."""
        if not isinstance(self.budget, LossBudget) or not self.budget.all_or_nothing:
            return []
        return [
            f"risk {self.risk.name}: every loss is 0 or 1, where {self.risk.test} certifies less than the exact test; "
            f"in a new statement declare {self.risk.measure} without `loss`"
        ]

    def result(self, labels: Sequence[str]) -> RiskResult:
        """What the certificate says of it."""
        p = self.budget.p()
        return RiskResult(
            name=self.risk.name,
            loss=self.risk.words,
            test=self.risk.test,
            n=self.budget.n,
            alpha=self.budget.alpha,
            configurations=[
                RiskRow(
                    label=label,
                    k=int(self.budget.k[row]),
                    gained=int(self.gained[row]),
                    risk=self.budget.estimate(row),
                    p=float(p[row]),
                )
                for row, label in enumerate(labels)
            ],
        )


def declared_budgets(grid: Grid, outcomes: Outcomes, reference: int) -> list[DeclaredBudget]:
    """Budgets of the declared risks, in their order.

    Raises
    ------
    OutcomesError
        A value is none that the risk can be read from.
    NothingCertifiableError
        The reference meets a requirement so seldom that a configuration that never does would pass.
    """
    return [_declared(grid, risk, outcomes, reference) for risk in grid.risks]


def _declared(grid: Grid, risk: Risk, outcomes: Outcomes, reference: int) -> DeclaredBudget:
    values = outcomes.measures[risk.measure]
    n = values.shape[1]
    if risk.test != "exact":
        return _scored(grid, risk, outcomes, reference)
    met = _met(risk, values, outcomes)
    kept = int(met[reference].sum())
    if kept <= largest_passing(n, risk.alpha, grid.delta):
        raise NothingCertifiableError(
            f"{grid.name}: risk {risk.name}: the reference meets the requirement on {kept:,} of {n:,} prompts only, so "
            f"a candidate that never does would pass at alpha={risk.alpha:g}; check {risk.measure} of the reference, "
            "and the limit"
        )
    return DeclaredBudget(
        risk, Budget(risk.name, n, risk.alpha, count(met[reference] & ~met)), count(met & ~met[reference])
    )


def _scored(grid: Grid, risk: Risk, outcomes: Outcomes, reference: int) -> DeclaredBudget:
    """Budget of a drop in a score."""
    values = outcomes.measures[risk.measure]
    _refuse_outside(risk, values <= 1, "scores from 0 to 1", outcomes)
    change = values - values[reference]

    def budget(losses: NDArray[np.float64]) -> Budget:
        return loss_budget(risk.name, risk.alpha, losses, risk.test, risk.seed, outcomes.prompts)

    if not budget(values[[reference]]).fails(0, grid.delta):
        raise NothingCertifiableError(
            f"{grid.name}: risk {risk.name}: the reference's mean {risk.measure} is {values[reference].mean():.3g}, so "
            f"a candidate that always has 0 would pass at alpha={risk.alpha:g}; check {risk.measure} of the reference"
        )
    return DeclaredBudget(risk, budget(np.maximum(-change, 0)), count(change > 0))


def _met(risk: Risk, values: NDArray[np.float64], outcomes: Outcomes) -> NDArray[np.bool_]:
    """``[m, n]``: is the requirement met."""
    met: NDArray[np.bool_]
    if risk.over is not None:
        met = values <= risk.over
    elif risk.under is not None:
        met = values >= risk.under
    else:
        met = values == 1
        _refuse_outside(risk, met | (values == 0), "0 and 1", outcomes)
    return met


def _refuse_outside(risk: Risk, fine: NDArray[np.bool_], allowed: str, outcomes: Outcomes) -> None:
    wrong = np.argwhere(~fine)
    if len(wrong):
        row, prompt = wrong[0]
        found = outcomes.measures[risk.measure][row, prompt]
        raise OutcomesError(
            f"risk {risk.name}: {risk.measure} of {outcomes.configurations[row]} is {found:g} on prompt "
            f"{shown_id(outcomes.prompts[prompt])}; allowed are {allowed}; correct it, or say what the measure is"
        )
