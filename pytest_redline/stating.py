"""Recording what a grid states without judging it: before there are outcomes, if the statement is to come first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_redline.clusters import thinned
from pytest_redline.errors import LedgerError
from pytest_redline.grid import EngineSource, Grid, RecordedSource
from pytest_redline.ledger import append, ledger_path, locked
from pytest_redline.outcomes import natural_key, unknown
from pytest_redline.paths import display
from pytest_redline.prompts import read_calibration_prompts, read_prompts
from pytest_redline.reuse import Run, Standing, file_of, known_ledger, standing
from pytest_redline.slices import sliced
from pytest_redline.sources.checkpoints import checkpoint_hashes
from pytest_redline.sources.recorded import mentions
from pytest_redline.statement import sha256_of, state
from pytest_redline.statement_schema import Statement
from pytest_redline.store import Store


class Stated(NamedTuple):
    """A statement that is in its ledger."""

    standing: Standing
    ids: Sequence[str]
    ledger: Path


def record_statement(grid: Grid, store: Path) -> Stated:
    """Record the statement of a grid in its ledger, unless it is there; nothing is served or judged.

    Parameters
    ----------
    store
        File of the store, which tells whether any of the prompts was served.

    Returns
    -------
    The statement's place, the ids that it is on, and the ledger's file.

    Raises
    ------
    RedlineError
        The prompts are not known, a file cannot be read, or the ledger cannot be read or written.
    """
    path = ledger_path(grid.path)
    grid, part = sliced(grid, store, Run())
    if isinstance(grid.source, EngineSource):
        prompts, statement, unseen = _served(grid, grid.source, store, part)
    else:
        prompts, statement, unseen = _recorded(grid, grid.source, part)
    with locked(path):
        ledger = known_ledger(grid.path, statement.hash, None, Run())
        found = standing(ledger, grid.name, statement, prompts, None, unseen, file_of(grid))
        append(ledger, [found.prompts], [found.line] if not found.known else [])
    return Stated(found, prompts, path)


def _served(
    grid: Grid, source: EngineSource, store: Path, part: tuple[str, ...] | None
) -> tuple[Sequence[str], Statement, bool]:
    assert grid.prompts is not None
    group = grid.groups.by if grid.groups else "group"
    prompts = read_calibration_prompts(grid.prompts, group, grid.sample, grid.clusters)
    prompts = prompts if part is None else prompts.only(set(part))
    unseen = True
    if store.is_file():
        with Store(store) as opened:
            unseen = not opened.were_asked(prompts.texts)
    content = sha256_of([prompts.texts, prompts.answers])
    asked = unknown(grid.labels, prompts.ids, prompts.groups, prompts.clusters, prompts.order)
    statement = state(grid, asked, content, checkpoint_hashes(grid, source))
    return prompts.ids, statement, unseen


def _recorded(
    grid: Grid, source: RecordedSource, part: tuple[str, ...] | None
) -> tuple[Sequence[str], Statement, bool]:
    by = grid.groups.by if grid.groups else "group"
    cluster = grid.clusters.by if grid.clusters else None
    where = display(grid.path)
    if grid.prompts is None:
        raise LedgerError(
            f"{where} prompts: none are named, so it is not known what the statement is on; name a file with a column "
            "`id`"
        )
    listed = read_prompts(grid.prompts, group=by, cluster=cluster)
    listed = listed if part is None else listed.only(set(part))
    if grid.groups and listed.groups is None:
        raise LedgerError(
            f"{where} groups.by: {display(grid.prompts)} has no column {by!r}; the groups are part of the statement"
        )
    if grid.clusters and listed.clusters is None:
        raise LedgerError(
            f"{where} clusters.by: {display(grid.prompts)} has no column {cluster!r}; they are part of the statement"
        )
    order = sorted(range(len(listed.ids)), key=lambda place: natural_key(listed.ids[place]))
    ids, groups, clusters = (
        None if column is None else tuple(column[place] for place in order)
        for column in (listed.ids, listed.groups, listed.clusters)
    )
    asked, _ = thinned(unknown(grid.labels, ids or (), groups, clusters), grid.clusters)
    files = [source.file, *(each.log for each in grid.configurations)]
    seen = any(mentions(file, source.columns, asked.prompts) for file in files if file is not None and file.exists())
    return asked.prompts, state(grid, asked), not seen
