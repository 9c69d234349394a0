"""What to ask for next, so that no more is served than the verdicts need.

A pure function of the grid, the order of the prompts and the outcomes seen so far. The engine serves what it asks for;
``check_schedule`` runs it again on finished outcomes. So what a certificate is made of does not depend on when a run
was interrupted, nor on what else is stored.

All active candidates go through the random order together, some prompts at a time; after each step those whose verdict
is final (``stats/stopping.py``) drop out. In a deploy-only run they are served one after the other, fastest first, and
the reference only where one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pytest_redline.budgets import group_members, in_part, p_ends
from pytest_redline.certificate_schema import Spent
from pytest_redline.cost import fastest
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Grid
from pytest_redline.outcomes import Outcomes
from pytest_redline.partial import looks_of, losses
from pytest_redline.risks import joint_budgets
from pytest_redline.spending import Stopping
from pytest_redline.stats.multiplicity import HOLM, Family, holm
from pytest_redline.stats.stopping import Final, final, steps

Bools = NDArray[np.bool_]


class Schedule:
    """The schedule of one grid on its prompts.

    Parameters
    ----------
    grid
        The statement, and how it spends less.
    prompts, groups, order
        Ids, groups and random order of the n prompts, as in `Outcomes`.
    family
        How delta is shared.

    Raises
    ------
    OutcomesError
        Looks that do not go with the number of prompts, or budgets of groups that no prompt has.
    """

    def __init__(
        self,
        grid: Grid,
        prompts: Sequence[str],
        groups: Sequence[str] | None,
        order: Sequence[int],
        family: Family = HOLM,
    ) -> None:
        nothing = np.zeros((grid.m, len(prompts)), dtype=np.bool_)
        self.grid, self.family = grid, family
        self.stopping = grid.stopping or Stopping()
        self.reference = grid.labels.index(grid.reference)
        self.order = np.asarray(order)
        self.blank = Outcomes(
            grid.labels, tuple(prompts), nothing, groups=tuple(groups) if groups else None, order=tuple(order)
        )
        self.members = group_members(grid, self.blank)
        ends = steps(looks_of(grid, len(prompts)), self.stopping.every)
        self.parts = [self.order[start:end] for start, end in zip((0, *ends), ends, strict=False)]

    def verdicts(self, correct: Bools, seen: Bools) -> Final:
        """Which rows are certified for good, and which may still be, on what was seen."""
        outcomes = replace(self.blank, correct=correct & seen, known=seen)
        found = losses(outcomes, self.reference)
        budgets = joint_budgets(self.grid, outcomes, self.members, found.ones.astype(np.float64))
        budgets = in_part(budgets, self.grid, found, self.blank.order or (), self.members)
        return final(p_ends(budgets), lambda p: holm(p, self.grid.delta, self.family))

    def next(self, correct: Bools, seen: Bools) -> Bools:
        """Ask for generations, ``[m, n]`` bool; none where all is done.

        Parameters
        ----------
        correct
            ``[m, n]`` verdicts; read only where seen.
        seen
            ``[m, n]`` what was asked for before, and got.
        """
        if not self.grid.spends_less:
            return ~seen
        if self.grid.deploy_only:
            return self._next_to_deploy(correct, seen)
        asked = np.zeros_like(seen)
        active = self._active(self.verdicts(correct, seen))
        for places in self.parts if active.size else ():
            wanted = places
            if self.stopping.where_reference_right:
                asked[self.reference, places] = ~seen[self.reference, places]
                wanted = places[correct[self.reference, places]]
                if asked.any():
                    return asked
            rows = np.append(active, self.reference)
            asked[np.ix_(rows, wanted)] = ~seen[np.ix_(rows, wanted)]
            if asked.any():
                return asked
        return asked

    def _active(self, now: Final) -> NDArray[np.intp]:
        """Candidates that are served further."""
        stopped = np.zeros(self.grid.m, dtype=np.bool_)
        stopped[self.reference] = True
        if self.stopping.curtail:
            stopped |= ~now.possible
        if self.stopping.looks:
            stopped |= now.certified
        return np.flatnonzero(~stopped)

    def _next_to_deploy(self, correct: Bools, seen: Bools) -> Bools:
        """Ask in a deploy-only run: the reference where it decides a loss, else the next part of a candidate."""
        asked = np.zeros_like(seen)
        needed = (seen & ~correct).any(axis=0) & ~seen[self.reference]
        if needed.any():
            asked[self.reference] = needed
            return asked
        now = self.verdicts(correct, seen)
        settled = now.certified | ~now.possible
        cost = [each.cost for each in self.grid.configurations]
        chosen = [fastest(cost, rows, self.reference, self.grid.cost) for rows in now]
        queue = self.ranked()
        if chosen[0] == chosen[1]:
            serving = self.grid.labels.index(self.grid.serving.label) if self.grid.serving else self.reference
            if settled[serving]:
                return asked
            queue = [serving, *queue]
        reference_wrong = seen[self.reference] & ~correct[self.reference]
        for row in queue:
            open_losses = ~seen[row] & ~reference_wrong
            for places in self.parts if not settled[row] else ():
                if open_losses[places].any():
                    asked[row, places] = open_losses[places]
                    return asked
        return asked

    def ranked(self) -> list[int]:
        """Candidates in the order in which a deploy-only run serves them: fastest first, unknown costs last."""
        sign = -1 if self.grid.cost is None or self.grid.cost.better == "higher" else 1
        rows = [
            (each.cost is None, sign * (each.cost or 0.0), index) for index, each in enumerate(self.grid.configurations)
        ]
        return [index for *_, index in sorted(rows) if index != self.reference]

    def replay(self, correct: Bools, known: Bools) -> Bools:
        """Return ``[m, n]`` what is asked for in all, on outcomes that are at hand.

        Raises
        ------
        OutcomesError
            Something is asked for that is not known.
        """
        seen = np.zeros_like(known)
        while (asked := self.next(correct, seen)).any():
            if (lacking := asked & ~known).any():
                row, place = np.argwhere(lacking)[0]
                raise OutcomesError(
                    f"{self.grid.labels[row]} was not served prompt {self.blank.prompts[place]}, which it needs"
                )
            seen |= asked
        return seen


def check_schedule(grid: Grid, outcomes: Outcomes, family: Family = HOLM) -> None:
    """Refuse outcomes that are not exactly those that the schedule asks for.

    Raises
    ------
    OutcomesError
        Something is lacking or was not asked for, a value stands where nothing was served, or there is no order.
    """
    known = outcomes.known
    if not grid.spends_less:
        if known is not None or outcomes.order is not None:
            raise OutcomesError(f"{grid.name}: outcomes in part, of a grid that is served in full")
        return
    if grid.risks or grid.test != "exact":
        raise OutcomesError(f"{grid.name}: declared risks and cluster means need every outcome; serve in full")
    if outcomes.order is None or sorted(outcomes.order) != list(range(len(outcomes.prompts))):
        raise OutcomesError(f"{grid.name}: the order of the prompts is not known, and stopping depends on it")
    if known is None:
        known = np.ones_like(outcomes.correct)
    elif known.all():
        raise OutcomesError(f"{grid.name}: everything is known, yet that is said for each prompt")
    values = [outcomes.correct, *outcomes.measures.values(), *([] if outcomes.outputs is None else [outcomes.outputs])]
    if any((value[~known] != 0).any() for value in values):
        raise OutcomesError(f"{grid.name}: an outcome stands where nothing was served")
    schedule = Schedule(grid, outcomes.prompts, outcomes.groups, outcomes.order, family)
    if (extra := known & ~schedule.replay(outcomes.correct, known)).any():
        row, place = np.argwhere(extra)[0]
        raise OutcomesError(
            f"{grid.labels[row]} was served prompt {outcomes.prompts[place]}, which the schedule does not ask for"
        )


def spent(grid: Grid, outcomes: Outcomes, compared: int) -> Spent | None:
    """What was served of all generations; None where everything was to be.

    Parameters
    ----------
    compared
        Number of prompts that costs are compared on.
    """
    if not grid.spends_less:
        return None
    stopping = grid.stopping or Stopping()
    known = np.ones_like(outcomes.correct) if outcomes.known is None else outcomes.known
    run = {label: int(number) for label, number in zip(grid.labels, known.sum(axis=1), strict=True)}
    return Spent(
        curtail=stopping.curtail,
        candidates="where_reference_right" if stopping.where_reference_right else "everywhere",
        deploy_only=grid.deploy_only,
        every=stopping.every,
        generations_run=sum(run.values()),
        generations_full=known.size,
        share=sum(run.values()) / known.size,
        by_configuration=run,
        cost_prompts=compared,
    )
