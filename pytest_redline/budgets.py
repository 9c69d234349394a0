"""Risk budgets: the pooled one, those of groups and of declared risks; to be certified, a row must keep them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pytest_redline.certificate_schema import Needed, Reuse
from pytest_redline.errors import NothingCertifiableError, OutcomesError
from pytest_redline.grid import Grid
from pytest_redline.outcomes import Outcomes
from pytest_redline.partial import Losses, Partial, at_looks, looks_of
from pytest_redline.stats.bounded import betting
from pytest_redline.stats.intervals import clopper_pearson, lower_bound, upper_bound
from pytest_redline.stats.mean_bounds import fewest_for_betting
from pytest_redline.stats.multiplicity import HOLM, Family, level_to_meet, share_of_weight
from pytest_redline.stats.risk import binomial_tail, fewest_prompts, largest_passing, prompts_for_power
from pytest_redline.stats.series import spent
from pytest_redline.stats.stopping import PBounds

Counts = NDArray[np.int64]

POWER = 0.8  # chance to be certified that sample sizes are given for


@dataclass(frozen=True)
class Budget:
    """One risk that must hold: ``k`` violations of each of the m configurations on n prompts, and their alpha.

    ``partial`` counts the same at looks, and what is not known, where not everything has to be served.
    """

    name: str  # "all", a group, or a declared risk
    n: int
    alpha: float
    k: Counts
    partial: Partial | None = field(default=None, kw_only=True)

    @property
    def counted(self) -> bool:
        """Is every loss 0 or 1, so that k says all."""
        return True

    def p(self, alpha: float | None = None) -> NDArray[np.float64]:
        """``[m]`` exact p-values, at the budget's own alpha if none is given; the most that they can be."""
        if self.partial is not None:
            return self.partial.bounds(alpha or self.alpha).high
        return binomial_tail(self.k, self.n, alpha or self.alpha)

    def bounds(self) -> PBounds:
        """Both ends of the ``[m]`` p-values; the same where all losses are known."""
        if self.partial is not None:
            return self.partial.bounds(self.alpha)
        p = self.p()
        return PBounds(p, p)

    def unknown(self, row: int) -> int:
        """Losses of a row that are not known."""
        return 0 if self.partial is None else int(self.partial.unknown[-1, row])

    @property
    def last_weight(self) -> float:
        """Share of a level that is left for the full sample."""
        return 1.0 if self.partial is None else self.partial.looks.last_weight

    def estimate(self, row: int) -> float:
        """Measured risk of a row."""
        return int(self.k[row]) / self.n

    def fails(self, row: int, level: float) -> bool:
        """Is a row's p-value over this level."""
        return float(self.bounds().high[row]) > level

    def interval(self, row: int) -> tuple[float, float]:
        """Two-sided 95 % interval of a row's risk."""
        return clopper_pearson(int(self.k[row]), self.n)

    def upper(self, row: int, level: float) -> float:
        """One-sided upper bound of a row's risk."""
        if self.partial is not None:
            return self.partial.upper(row, level)
        return upper_bound(int(self.k[row]), self.n, level)

    def lower(self, row: int, level: float) -> float:
        """One-sided lower bound of a row's risk."""
        return lower_bound(int(self.k[row]), self.n, level)

    def prompts(self, row: int, level: float, power: float) -> int | None:
        """Prompts with which a row would meet this level with this chance; None where no number would."""
        return prompts_for_power(self.alpha, self.estimate(row), level * self.last_weight, power)

    def most(self, row: int, level: float) -> float:
        """Largest measured risk with which a row would meet this level; below 0 where none does."""
        return largest_passing(self.n, self.alpha, level * self.last_weight) / self.n


def group_members(grid: Grid, outcomes: Outcomes) -> dict[str, Counts]:
    """Positions of each group's prompts, groups by name; refuses budgets of groups that no prompt has."""
    positions: dict[str, list[int]] = {}
    for position, name in enumerate(outcomes.groups or ()):
        positions.setdefault(name, []).append(position)
    members = {name: np.array(positions[name]) for name in sorted(positions)}
    if grid.groups:
        unknown = [name for name in grid.groups.alpha if name not in members]
        if unknown:
            raise OutcomesError(
                f"groups.alpha: no prompt is in group {', '.join(map(repr, unknown))}; the groups are "
                f"{', '.join(members) or 'none'}"
            )
    return members


def in_part(
    budgets: Sequence[Budget], grid: Grid, found: Losses, order: Sequence[int], groups: Mapping[str, Counts]
) -> list[Budget]:
    """Budgets with their losses counted at the grid's looks, known and unknown."""
    looks = looks_of(grid, len(order))
    return [
        replace(budget, partial=at_looks(found, order, looks, groups[budget.name] if budget.name != "all" else None))
        for budget in budgets
    ]


def count(violated: NDArray[np.bool_]) -> Counts:
    """``[m]`` violations, as integers."""
    counted: Counts = np.count_nonzero(violated, axis=1).astype(np.int64)
    return counted


def family_of(grid: Grid, reuse: Reuse | None) -> Family:
    """How the grid shares delta among its rows and whatever else counts on these prompts."""
    beside = 0 if reuse is None else reuse.counted - grid.m
    if grid.weight is not None:
        return share_of_weight(grid.labels.index(grid.weight.label), grid.weight.share, grid.m, beside)
    return Family(others=float(beside))


def spending_of(grid: Grid, reuse: Reuse | None) -> Grid:
    """The grid with the delta of this statement, where delta is shared out over statements."""
    if grid.spending is None:
        return grid
    return replace(grid, delta=spent(grid.spending.total, reuse.number if reuse else 1, grid.spending.gates))


def refuse_too_few(grid: Grid, sizes: Mapping[str, int], family: Family = HOLM) -> None:
    """Refuse when not even zero violations would certify anything.

    Parameters
    ----------
    sizes
        Number of prompts in "all" and in each group.
    """
    counted = grid.m + int(family.others)
    left = 1 - grid.stopping.looks.early if grid.stopping and grid.stopping.looks else 1.0
    heaviest = max(family.weights or (1.0,))
    level = left * grid.delta * heaviest / (sum(family.weights or (1.0,) * grid.m) + family.others)
    share = "delta/m" if family.weights is None else "the largest share of delta"
    named = share if left == 1 else f"{left:g} {share}"
    groups = grid.groups.alpha if grid.groups else {}
    betting_on_all = grid.test == "wsr"
    limits = [("all", "", grid.alpha, betting_on_all)]
    limits += [(name, f" in group {name}", alpha, betting_on_all) for name, alpha in groups.items()]
    limits += [("all", f" for risk {risk.name}", risk.alpha, risk.test == "wsr") for risk in grid.risks]
    for name, where, alpha, bets in limits:
        n = sizes.get(name, 0)
        needed = fewest_for_betting(alpha, level) if bets else fewest_prompts(alpha, level)
        if n < needed:  # without any loss, Hoeffding-Bentkus is the exact test
            best = 1.0 if not n else float(betting(np.zeros(n), alpha)) if bets else binomial_tail(0, n, alpha)
            raise NothingCertifiableError(
                f"{grid.name}: alpha={alpha:g} with n={n:,}{where} and m={counted}: even zero violations give "
                f"p={best:.3g} > {named}={level:.3g}, so no candidate can be certified; use at least {needed:,} "
                f"prompts{where}; pytest-redline plan says what more would show"
            )


def refuse_weak_reference(grid: Grid, outcomes: Outcomes, reference: int, family: Family = HOLM) -> None:
    """Refuse when a candidate that is wrong on every prompt would be certified."""
    row = [reference]
    always_wrong = outcomes.correct[row]
    open_losses = np.zeros_like(always_wrong) if outcomes.known is None else ~outcomes.known[row]
    n = len(outcomes.prompts)
    order = outcomes.order or range(n)
    p = at_looks(Losses(always_wrong, open_losses), order, looks_of(grid, n)).bounds(grid.alpha).high[0]
    right = int(always_wrong.sum())
    heaviest = max(family.weights or (1.0,))
    if p <= grid.delta * heaviest / (heaviest + family.others):  # the level of Holm's last step
        raise NothingCertifiableError(
            f"{grid.name}: the reference is right on {right:,} of {n:,} prompts only, so a candidate that "
            f"is always wrong would be certified at alpha={grid.alpha:g}; check the reference's outcomes and the "
            "grader, or use prompts that the reference can answer"
        )


def p_values(budgets: Sequence[Budget]) -> NDArray[np.float64]:
    """``[m]`` p-value of each row, the most that it can be where losses are not known."""
    return p_ends(budgets).high


def p_ends(budgets: Sequence[Budget]) -> PBounds:
    """Both ends of the ``[m]`` p-values: the largest over the budgets, as all must hold (intersection-union)."""
    each = [budget.bounds() for budget in budgets]
    return PBounds(*(np.max(ends, axis=0) for ends in zip(*each, strict=True)))


def what_is_needed(
    index: int, budgets: Sequence[Budget], p: NDArray[np.float64], delta: float, family: Family = HOLM
) -> Needed:
    """What would certify a row, all other rows as they are."""
    level = level_to_meet(index, p, delta, family)
    fewer: dict[str, int] = {}
    losses: dict[str, float] = {}
    needed: list[int | None] = []
    chance = 1 - (1 - POWER) / len(budgets)  # of each, so that all of them hold together with probability POWER
    for budget in budgets:
        if budget.fails(index, level):
            if budget.counted:
                most = largest_passing(budget.n, budget.alpha, level * budget.last_weight)
                fewer[budget.name] = int(budget.k[index]) - most
            else:
                losses[budget.name] = budget.most(index, level)
        wanted = budget.prompts(index, level, chance)
        needed.append(None if wanted is None else -(-wanted * budgets[0].n // budget.n))
    known = [each for each in needed if each is not None]
    return Needed(
        level=level,
        violations_fewer=fewer,
        mean_losses=losses,
        prompts=max(known) if len(known) == len(needed) else None,
    )
