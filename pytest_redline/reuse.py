"""Which statement on its prompts a statement is, and what that means for it: start reading at ``standing``.

Outcomes that are known make it free to cut a grid to the candidates that look best and to state it anew. So from the
second statement on a set of prompts on, every configuration whose outcomes on these prompts are known counts in
Holm's m, and the certificate says what the statements hold together. A statement that was made before keeps what it
was given then.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pytest_redline.certificate_schema import Certificate, Reuse
from pytest_redline.errors import LedgerError, RedlineError
from pytest_redline.grid import Grid
from pytest_redline.ledger import (
    Ledger,
    PromptsLine,
    StatementLine,
    append,
    ledger_path,
    line_of,
    locked,
    members,
    prompts_line,
    read_ledger,
)
from pytest_redline.outcomes import Outcomes
from pytest_redline.packing import unpack
from pytest_redline.paths import display
from pytest_redline.prompts import Prompts
from pytest_redline.statement import delta_of, sha256_of
from pytest_redline.statement_schema import StatedConfiguration, Statement
from pytest_redline.store import Store

_SHORT = 16  # letters of a hash that tells configurations, or outcomes, of one set of prompts apart


class Standing(NamedTuple):
    """A statement's lines of the ledger; ``known``: it is there already, judged on the same outcomes."""

    prompts: PromptsLine
    line: StatementLine
    known: bool

    def section(self, statement: Statement) -> Reuse | None:
        """What the certificate says of it; None for a first one before the outcomes, which stands for itself."""
        reuse = self.line.reuse
        alone = reuse.number == 1 and reuse.counted == len(statement.configurations) and reuse.before
        return None if alone and not statement.spending and not statement.weight else reuse


def standing(
    ledger: Ledger,
    name: str,
    statement: Statement,
    prompts: Sequence[str],
    outcomes: str | None,
    unseen: bool,
    pool: str | None,
) -> Standing:
    """Find a statement in the ledger, or give it its place there.

    Parameters
    ----------
    name
        Of the grid.
    prompts
        The n ids.
    outcomes
        ``outcomes_hash`` of what it is judged on; None where it is only stated. Other outcomes than those it was judged
        on before are another draw, and make another statement of it.
    unseen
        Is no outcome on these prompts known, as far as the source can tell.
    pool
        Name of the file that the prompts are from. Where an earlier statement was on another random part of it, the
        promise can speak of the file only.

    Raises
    ------
    LedgerError
        delta is used up, a weight comes too late, or blind gates were judged on these prompts.
    """
    described = prompts_line(prompts, statement.prompts.slice.nonce if statement.prompts.slice else None)
    earlier = ledger.on(described)
    if blind := sum(each.passed is not None for each in earlier):
        raise LedgerError(
            f"{name}: blind gates on these prompts: {blind:,}; an open statement would show what they hid, and void "
            "what they and later ones promise; add --redline-blind, or take new prompts, with new ids"
        )
    own = [each for each in earlier if each.statement == statement.hash]
    same = next((each for each in own if outcomes is None or each.outcomes in (None, outcomes)), None)
    if same is not None:
        return Standing(described, _judged_on(same, outcomes), outcomes is None or same.outcomes is not None)
    configurations = identities(statement)
    number = len(earlier) + 1
    try:
        delta = delta_of(statement, number)
    except ValueError:
        raise LedgerError(
            f"{name}: delta.gates: all {number - 1:,} statements among which delta was divided are made; take new "
            "prompts, with new ids"
        ) from None
    before = any(each.reuse.before for each in own) or (unseen and all(each.outcomes is None for each in earlier))
    if statement.weight is not None and not before:
        raise LedgerError(
            f"{name}: weights: outcomes on these prompts were known before this statement was recorded, and a weight "
            "that is chosen then voids the promise; remove `weights`, or take new prompts (new ids, or a slice) and "
            "record the statement with `pytest-redline state` before there are outcomes"
        )
    counted = set(configurations.values()).union(*(each.configurations.values() for each in earlier))
    line = StatementLine(
        statement=statement.hash,
        grid=name,
        prompts=described.prompts,
        reference=statement.reference,
        configurations=configurations,
        alpha=statement.alpha,
        delta=delta,
        reuse=Reuse(
            number=number,
            counted=len(counted),
            together=min(1.0, round(sum(each.delta for each in earlier) + delta, 12)),
            before=before,
            pool=pool
            if statement.prompts.sample and any(each.prompts != described.prompts for each in earlier)
            else None,
        ),
        outcomes=outcomes,
    )
    return Standing(described, line, known=False)


def _judged_on(line: StatementLine, outcomes: str | None) -> StatementLine:
    return line if outcomes is None else line.model_copy(update={"outcomes": outcomes})


def identities(statement: Statement) -> dict[str, str]:
    """Label to what identifies a configuration: its knobs and model beside those of the reference, and the grader.

    One without knobs is known by its label.
    """

    def key(each: StatedConfiguration) -> object:
        model = statement.checkpoints.get(str(each.knobs.get("checkpoint")))
        return [each.knobs, model] if each.knobs else each.label

    reference = next(key(each) for each in statement.configurations if each.label == statement.reference)
    return {
        each.label: sha256_of([key(each), reference, statement.grader])[:_SHORT] for each in statement.configurations
    }


def outcomes_hash(statement: Statement, outcomes: Outcomes) -> str:
    """Hash of who was right where, and of what further risks count, whatever the labels and their order."""
    names = [identities(statement)[label] for label in outcomes.configurations]
    known = [
        outcomes.correct,
        *([] if outcomes.scores is None else [outcomes.scores]),
        *(outcomes.measures[name] for name in sorted({risk.measure for risk in statement.risks})),
    ]
    rows = {name: [hashlib.sha256(each[row].tobytes()).hexdigest() for each in known] for row, name in enumerate(names)}
    return sha256_of(rows)[:_SHORT]


@dataclass(frozen=True)
class Run:
    """One run of the gate: what it states itself does not count against it, as none of it came after outcomes.

    Parameters
    ----------
    name
        Tells it from others in the store.
    partial
        Nothing that it states is kept.
    """

    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    partial: bool = False


def known_ledger(grid: Path, statement: str, store: Store | None, run: Run) -> Ledger:
    """Read a grid's ledger, with the statements that the store has beside it, of this run the one statement only."""
    ledger = read_ledger(ledger_path(grid))
    if store is None:
        return ledger
    return ledger.with_lines(store.statements(_place(ledger, store), run.name, statement), store.path)


def note(grid: Grid, statement: Statement, prompts: Prompts, store: Store, run: Run) -> bool:
    """Keep in the store, before anything is served, what is stated and which prompts are asked.

    Returns
    -------
    Was the statement made before any outcome on these prompts was known.
    """
    ledger = known_ledger(grid.path, statement.hash, store, run)
    found = standing(
        ledger, grid.name, statement, prompts.ids, None, not store.were_asked(prompts.texts), file_of(grid)
    )
    store.ask(prompts.texts)
    if not run.partial:
        text = f"{line_of(found.prompts)}\n{line_of(found.line)}"
        store.state(_place(ledger, store), run.name, statement.hash, text)
    return found.line.reuse.before


def file_of(grid: Grid) -> str | None:
    """Name of the prompts file."""
    return None if grid.prompts is None else grid.prompts.name


def _place(ledger: Ledger, store: Store) -> str:
    """Name of a ledger in a store, which both may be moved together."""
    return Path(os.path.relpath(ledger.path, store.path.parent)).as_posix()


class Recorded(NamedTuple):
    """What recording the statements of a session gave: news and problems, by grid file."""

    news: dict[Path, str]
    problems: dict[Path, list[str]]


def record_statements(certificates: Mapping[Path, Certificate], store: Path, run: Run) -> Recorded:
    """Write the statements of certificates into their ledgers, all of a ledger in one go.

    Parameters
    ----------
    certificates
        By grid file.
    """
    done = Recorded({}, {})
    for path in sorted({ledger_path(grid) for grid in certificates}):
        made = {grid: each for grid, each in certificates.items() if ledger_path(grid) == path}
        try:
            with locked(path):
                _record(made, read_ledger(path), store, run, done)
        except (RedlineError, OSError) as error:
            problems = list(error.problems) if isinstance(error, RedlineError) else [f"{display(path)}: {error}"]
            done.problems.update(dict.fromkeys(made, problems))
    return done


def _record(certificates: Mapping[Path, Certificate], file: Ledger, store: Path, run: Run, done: Recorded) -> None:
    new: dict[Path, Standing] = {}
    sets, missing = {}, {}
    for grid, certificate in sorted(certificates.items()):
        statement = certificate.statement
        is_live = statement.prompts.content is not None and store.is_file()
        with Store(store) if is_live else nullcontext() as opened:
            ledger = known_ledger(grid, statement.hash, opened, run)
        outcomes = unpack(certificate.outcomes, tuple(row.label for row in certificate.configurations))
        judged = outcomes_hash(statement, outcomes)
        read = certificate.provenance.prompts
        pool = None if read is None else Path(read.path).name
        found = standing(ledger, certificate.name, statement, outcomes.prompts, judged, False, pool)
        if found.section(statement) != certificate.reuse:
            done.problems[grid] = [
                f"{display(file.path)}: another session stated something on the same prompts while this one ran; run "
                "again"
            ]
        elif not found.known and all(found.line.statement != each.line.statement for each in new.values()):
            new[grid] = found
            sets.update({name: each for name, each in ledger.sets.items() if name not in file.sets})
            missing.update({line_of(each): each for each in ledger.statements if each not in file.statements})
    judged_now = {found.line.statement for found in new.values()}
    append(
        file,
        [*sets.values(), *(found.prompts for found in new.values())],
        [
            *(each for each in missing.values() if each.statement not in judged_now),
            *(found.line for found in new.values()),
        ],
    )
    done.news.update({grid: _news(file, found.line.reuse.number) for grid, found in new.items()})


def _news(ledger: Ledger, number: int) -> str:
    return f"Statement {number} on its prompts is new: commit {display(ledger.path)}"


def shared_prompts(certificates: Sequence[Certificate]) -> list[str]:
    """Say of grids that were judged on the same prompts what they hold together."""
    groups: list[tuple[list[Certificate], set[bytes]]] = []
    for certificate in certificates if len(certificates) > 1 else ():
        outcomes = unpack(certificate.outcomes, tuple(row.label for row in certificate.configurations))
        same, its = [certificate], set(members(prompts_line(outcomes.prompts)))
        for group in [each for each in groups if each[1] & its]:
            groups.remove(group)
            same, its = [*group[0], *same], its | group[1]
        groups.append((same, its))
    return [
        f"{', '.join(each.name for each in same)} judge the same prompts: together they hold at delta "
        f"{min(1.0, sum(each.delta for each in same)):g}"
        for same, _ in groups
        if len(same) > 1
    ]
