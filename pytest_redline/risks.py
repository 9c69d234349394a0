"""Declared risks beside that of wrong answers: from measured values to budgets and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_redline.budgets import Budget, Counts, count
from pytest_redline.certificate_schema import RiskResult, RiskRow
from pytest_redline.claims import Risk
from pytest_redline.errors import NothingCertifiableError, OutcomesError
from pytest_redline.grid import Grid
from pytest_redline.loss_budgets import LossBudget, budget_of
from pytest_redline.outcomes import Outcomes, shown_id


class DeclaredBudget(NamedTuple):
    """A declared risk as measured; ``gained`` counts, ``[m]``, the prompts on which a row beats the reference."""

    risk: Risk
    budget: Budget
    gained: Counts

    @property
    def warnings(self) -> list[str]:
        """What a reviewer must not overlook."""
        if self.risk.test == "exact" or not (isinstance(self.budget, LossBudget) and self.budget.all_or_nothing):
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
            test=self.budget.test if isinstance(self.budget, LossBudget) else "exact",
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


def joint_losses(grid: Grid, outcomes: Outcomes, reference: int) -> NDArray[np.float64]:
    """``[m, n]`` from 0 to 1: what each configuration loses against the reference on each prompt."""
    right = outcomes.rightness
    if grid.loss is not None and grid.loss.kind == "drop":
        losses: NDArray[np.float64] = np.maximum(right[reference] - right, 0)
        return losses
    losses = right[reference] * (1 - right)  # the share of pairs that are right and wrong; one pair without repeats
    losses[reference] = 0
    return losses


def joint_budgets(
    grid: Grid, outcomes: Outcomes, groups: Mapping[str, Counts], losses: NDArray[np.float64]
) -> list[Budget]:
    """Budgets of wrong answers, of ``[m, n]`` losses: the pooled one, which comes first, and those of groups."""
    declared = grid.groups.alpha if grid.groups else {}
    return [
        budget_of(grid, outcomes, "all", grid.alpha, losses),
        *(joint_budget(grid, outcomes, name, groups[name], losses) for name in declared),
    ]


def joint_budget(grid: Grid, outcomes: Outcomes, name: str, members: Counts, losses: NDArray[np.float64]) -> Budget:
    """Budget of wrong answers in one group: its own, else the pooled one."""
    alpha = grid.groups.alpha.get(name, grid.alpha) if grid.groups else grid.alpha
    return budget_of(grid, outcomes, name, alpha, losses, members)


def refuse_hopeless(grid: Grid, budgets: Sequence[Budget]) -> None:
    """Refuse budgets of mean losses under which not even a configuration without any loss would be certified."""
    for budget in budgets:
        if isinstance(budget, LossBudget) and budget.best > grid.delta / grid.m:
            heavy = f" and one prompt standing for up to {budget.scale:.3g}" if budget.scale > 1 else ""
            raise NothingCertifiableError(
                f"{grid.name}: alpha={budget.alpha:g} with n={budget.n:,}{heavy} and m={grid.m}: even no loss at all "
                f"gives p={budget.best:.3g} > delta/m={grid.delta / grid.m:.3g} ({budget.name}), so no candidate can "
                "be certified; use more prompts" + (", above all of the group that is rare among them" if heavy else "")
            )


def refuse_weak_losses(grid: Grid, outcomes: Outcomes, reference: int) -> None:
    """Refuse when a candidate that is wrong on every prompt would be certified by a test of mean losses."""
    budget = budget_of(grid, outcomes, "all", grid.alpha, outcomes.rightness[[reference]])
    if not budget.fails(0, grid.delta):
        raise NothingCertifiableError(
            f"{grid.name}: the reference is right on {budget.estimate(0):.1%} only, so a candidate that is always "
            f"wrong would be certified at alpha={grid.alpha:g}; check the reference's outcomes and the grader, or use "
            "prompts that the reference can answer"
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
    if risk.test == "exact":
        met = _met(risk, values, outcomes).astype(np.float64)
        found = f"meets the requirement on {int(met[reference].sum()):,} of {met.shape[1]:,} prompts"
    else:
        met = values
        _refuse_outside(risk, values <= 1, "scores from 0 to 1", outcomes)
        found = f"has a mean {risk.measure} of {met[reference].mean():.3g}"
    if not budget_of(grid, outcomes, risk.name, risk.alpha, met[[reference]], declared=risk).fails(0, grid.delta):
        raise NothingCertifiableError(
            f"{grid.name}: risk {risk.name}: the reference {found} only, so a candidate that never does would pass at "
            f"alpha={risk.alpha:g}; check {risk.measure} of the reference, and what is asked of it"
        )
    change = met - met[reference]
    budget = budget_of(grid, outcomes, risk.name, risk.alpha, np.maximum(-change, 0), declared=risk)
    return DeclaredBudget(risk, budget, count(change > 0))


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
