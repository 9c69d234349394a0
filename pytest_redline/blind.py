"""A blind gate: one bit about a grid, and nothing else. Start reading at ``ask``.

Whoever sees of a gate only whether it passed has learned one bit about the prompts. After B bits there are 2^B
candidates at most that could have been made of what was seen, so a test at delta * 2^-B holds for the one that was,
however it was chosen. The bit is in the ledger before it is shown, or it is not shown.
"""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

from pytest_redline.budgets import refuse_too_few
from pytest_redline.certificate import certify
from pytest_redline.certificate_schema import Reuse
from pytest_redline.clusters import units
from pytest_redline.errors import LedgerError, LoadError, OutcomesError, RedlineError
from pytest_redline.gate import Live, recorded_outcomes
from pytest_redline.grid import EngineSource, Grid
from pytest_redline.ledger import (
    Ledger,
    PromptsLine,
    StatementLine,
    append,
    ledger_path,
    locked,
    prompts_line,
)
from pytest_redline.outcomes import Outcomes, unknown
from pytest_redline.paths import display
from pytest_redline.progress import Progress
from pytest_redline.prompts import Prompts, read_calibration_prompts
from pytest_redline.reuse import identities, known_ledger, outcomes_hash
from pytest_redline.statement import sha256_of, state
from pytest_redline.statement_schema import Statement
from pytest_redline.stats.series import after_bits
from pytest_redline.store import Store

_ROUNDS = 200_000  # about a tenth of a second for each guess at the outcomes


class Answer(NamedTuple):
    """Whether a gate is passed, and lines that say at what delta it was asked; nothing in them is of the outcomes."""

    passed: bool
    said: tuple[str, ...]


class _Asked(NamedTuple):
    """What is judged; ``content`` and ``checkpoints`` are hashes of what was served."""

    outcomes: Outcomes
    statement: Statement
    content: str | None = None
    checkpoints: Mapping[str, str] | None = None
    texts: Sequence[str] = ()


def ask(grid: Grid, live: Live) -> Answer:
    """Judge a grid, write the one bit into its ledger, and return it.

    Raises
    ------
    RedlineError
        The outcomes cannot be read or served, outcomes on these prompts were shown, nothing can be certified after so
        many bits, or the bit cannot be recorded. What depends on who was right where is no error but "not passed".
    """
    asked = _served(grid, live) if isinstance(grid.source, EngineSource) else _recorded(grid)
    path, statement, outcomes = ledger_path(grid.path), asked.statement, asked.outcomes
    described, mark = prompts_line(outcomes.prompts), _mark(statement, outcomes)
    with locked(path), Store(live.store) if asked.texts else nullcontext() as store:
        ledger = known_ledger(grid.path, statement.hash, store, live.run)
        earlier = blind_only(grid, ledger, described)
        same = next((each for each in earlier if (each.statement, each.outcomes) == (statement.hash, mark)), None)
        bits = len(earlier) if same is None else same.reuse.number - 1
        try:
            delta = after_bits(grid.delta, bits)
        except ValueError:
            raise LedgerError(
                f"{grid.name}: --redline-blind: {display(path)} counts {bits:,} bits on these prompts; nothing is left "
                f"of delta {grid.delta:g}; take new prompts"
            ) from None
        passed = _passed(replace(grid, delta=delta), asked)
        if same is not None:
            passed = passed and bool(same.passed)
        else:
            line = StatementLine(
                statement=statement.hash,
                grid=grid.name,
                prompts=described.prompts,
                reference=statement.reference,
                configurations=identities(statement),
                alpha=grid.alpha,
                delta=delta,
                reuse=Reuse(
                    number=bits + 1,
                    counted=grid.m,
                    together=min(1.0, sum(each.delta * 2 ** (each.reuse.number - 1) for each in earlier) + grid.delta),
                    before=False,
                ),
                outcomes=mark,
                passed=passed,
            )
            append(ledger, [described], [line])
        if store is not None:
            store.ask(asked.texts)
    said = (
        f"{grid.name}: blind gate {bits + 1:,} on its prompts: alpha {grid.alpha:g}, delta {grid.delta:g} * 2^-{bits}, "
        f"n {len(outcomes.prompts):,}, m {grid.m}",
        *([f"Statement {bits + 1} on its prompts is new: commit {display(path)}"] if same is None else []),
    )
    return Answer(passed, said)


def blind_only(grid: Grid, ledger: Ledger, prompts: PromptsLine) -> tuple[StatementLine, ...]:
    """Blind gates on these prompts.

    Raises
    ------
    LedgerError
        Another statement is on them, so that outcomes may have been seen.
    """
    earlier = ledger.on(prompts)
    if any(each.passed is None for each in earlier):
        raise LedgerError(
            f"{grid.name}: --redline-blind: {display(ledger.path)} holds a statement on these prompts that was not "
            "blind, and how much its outcomes told cannot be counted; take new prompts, with new ids"
        )
    return earlier


def _passed(grid: Grid, asked: _Asked) -> bool:
    """Is all that is required certified; too few prompts for any candidate is an error, as it tells of none."""
    outcomes = asked.outcomes
    refuse_too_few(grid, units(grid.clusters, outcomes.groups, outcomes.clusters, len(outcomes.prompts)))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what numbers warn of depends on outcomes
            certificate = certify(grid, outcomes, content=asked.content, checkpoints=asked.checkpoints, intervals=False)
    except RedlineError:
        return False
    return not certificate.failing


def _mark(statement: Statement, outcomes: Outcomes) -> str:
    """Tell outcomes of a statement from others; slow, so that few guesses at them can be tried."""
    known = outcomes_hash(statement, outcomes).encode()
    return hashlib.pbkdf2_hmac("sha256", known, statement.hash.encode(), _ROUNDS).hex()[:16]


def _recorded(grid: Grid) -> _Asked:
    assert not isinstance(grid.source, EngineSource)
    recorded, _, _ = recorded_outcomes(grid, grid.source)
    return _Asked(recorded.outcomes, state(grid, recorded.outcomes))


def _served(grid: Grid, live: Live) -> _Asked:
    """Serve a grid in silence; why serving failed is said only if nothing was served, or a model was not loaded."""
    from filelock import FileLock

    from pytest_redline.sources.engine import serve

    assert grid.prompts is not None
    prompts = read_calibration_prompts(
        grid.prompts, grid.groups.by if grid.groups else "group", grid.sample, grid.clusters
    )
    content = sha256_of([prompts.texts, prompts.answers])
    known = unknown(grid.labels, prompts.ids, prompts.groups, prompts.clusters, prompts.order)
    begun = False

    def before(checkpoints: Mapping[str, str]) -> None:
        nonlocal begun
        _refuse_seen(grid, state(grid, known, content, checkpoints), prompts, store, live)
        begun = True

    try:
        live.store.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(live.store.with_name(f"{grid.name}.lock")), Store(live.store) as store:
            served = serve(grid, prompts, store, live.device, live.generate, Progress(), before)
    except (OSError, sqlite3.Error) as error:
        raise OutcomesError(f"{display(live.store)}: cannot be used as a store ({error}); name another") from None
    except RedlineError as error:
        if not begun or isinstance(error, LoadError):
            raise
        raise OutcomesError(
            f"{grid.name}: could not be served; the reason may tell of outcomes, and --redline-blind does not show it"
        ) from error
    statement = state(grid, known, content, served.checkpoints)
    return _Asked(served.outcomes, statement, content, served.checkpoints, prompts.texts)


def _refuse_seen(grid: Grid, statement: Statement, prompts: Prompts, store: Store, live: Live) -> None:
    """Refuse prompts on which something was judged that the ledger does not count, before more is served."""
    earlier = blind_only(grid, known_ledger(grid.path, statement.hash, store, live.run), prompts_line(prompts.ids))
    if not earlier and store.were_asked(prompts.texts):
        raise LedgerError(
            f"{grid.name}: --redline-blind: {display(live.store)} shows that some of these prompts were judged before, "
            "which the ledger does not know of; restore the ledger, or take new prompts"
        )
