"""From a grid to its certificate: get the outcomes, certify, note what was read."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from pytest_redline.budgets import family_of, refuse_too_few
from pytest_redline.certificate import certify
from pytest_redline.certificate_schema import Certificate, FileRecord, Provenance, Reuse, Sharing, WeightsRecord
from pytest_redline.clusters import thinned, units, unnoticed_clusters
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import EngineSource, Grid, RecordedSource
from pytest_redline.outcomes import Outcomes, PromptList, Replicate, unknown
from pytest_redline.paths import display
from pytest_redline.progress import Progress
from pytest_redline.prompts import read_calibration_prompts, read_prompts
from pytest_redline.reuse import Run, file_of, known_ledger, note, outcomes_hash, standing
from pytest_redline.slices import sliced
from pytest_redline.sources.recorded import Recorded, load_recorded
from pytest_redline.statement import sha256_of, state
from pytest_redline.statement_schema import Statement
from pytest_redline.stats.multiplicity import HOLM, Family
from pytest_redline.store import Store, make_folder


@dataclass(frozen=True)
class Live:
    """How a source that serves is run.

    Parameters
    ----------
    store
        File of the store.
    device
        Replaces the device of the grid file; None leaves it.
    generate
        May anything be served; False judges from what the store holds.
    progress
        Makes what is told while serving, as a context manager.
    run
        What is stated in one run of the gate does not count against itself.
    """

    store: Path = Path(".redline/store.sqlite")
    device: str | None = None
    generate: bool = True
    progress: Callable[[], AbstractContextManager[Progress]] = lambda: nullcontext(Progress())
    run: Run = field(default_factory=Run)


def certificate_of(grid: Grid, live: Live | None = None) -> Certificate:
    """Certify a grid on the outcomes that its source names or serves.

    Raises
    ------
    RedlineError
        The outcomes cannot be read, served or aligned, or nothing could be certified on them.
    """
    live = live or Live()
    grid, part = sliced(grid, live.store, live.run)
    if isinstance(grid.source, EngineSource):
        return _served(grid, live, part)
    return _recorded(grid, grid.source, live.run, part)


def _recorded(grid: Grid, source: RecordedSource, run: Run, part: tuple[str, ...] | None) -> Certificate:
    recorded, replicate, prompts = recorded_outcomes(grid, source, part)
    provenance = _provenance(
        grid,
        outcomes=[FileRecord(path=_relative(grid, Path(path)), sha256=digest) for path, digest in recorded.files],
        prompts=prompts.sha256 if prompts else None,
    )
    reuse = _reuse(grid, state(grid, recorded.outcomes), recorded.outcomes.prompts, recorded.outcomes, run)
    return certify(
        grid, recorded.outcomes, provenance=provenance, notes=recorded.warnings, reuse=reuse, replicate=replicate
    )


def recorded_outcomes(
    grid: Grid, source: RecordedSource, part: tuple[str, ...] | None = None
) -> tuple[Recorded, Replicate | None, PromptList | None]:
    """Read what was recorded for a grid and its reference's second run, and the prompts file or that part of it.

    Raises
    ------
    OutcomesError
        The outcomes or the prompts cannot be read or aligned.
    """
    prompts = None
    if grid.prompts is not None:
        prompts = read_prompts(
            grid.prompts,
            group=grid.groups.by if grid.groups else "group",
            cluster=grid.clusters.by if grid.clusters else None,
        )
        prompts = prompts if part is None else prompts.only(set(part))
    logs = {each.label: each.log for each in grid.configurations if each.log is not None}
    labels = grid.labels
    if grid.noise_floor is not None:
        labels = (*labels, grid.noise_floor.label)
        logs |= {grid.noise_floor.label: grid.noise_floor.log} if grid.noise_floor.log else {}
    recorded = load_recorded(
        source,
        labels,
        logs,
        grid.measures,
        prompts,
    )
    outcomes, kept = thinned(recorded.outcomes, grid.clusters)
    warnings = (*recorded.warnings, *unnoticed_clusters(grid, recorded.outcomes.prompts, recorded.texts), *kept)
    outcomes, replicate = outcomes.split_last() if grid.noise_floor else (outcomes, None)
    return replace(recorded, outcomes=outcomes, warnings=warnings), replicate, prompts


def _served(grid: Grid, live: Live, part: tuple[str, ...] | None) -> Certificate:
    from filelock import FileLock

    from pytest_redline.sources.engine import Served, serve
    from pytest_redline.sources.second_run import second_run

    assert grid.prompts is not None
    group = grid.groups.by if grid.groups else "group"
    prompts = read_calibration_prompts(grid.prompts, group, grid.sample, grid.clusters)
    prompts = prompts if part is None else prompts.only(set(part))
    refuse_too_few(grid, units(grid.clusters, prompts.groups, prompts.clusters, len(prompts.ids)))
    content = sha256_of([prompts.texts, prompts.answers])
    asked = unknown(grid.labels, prompts.ids, prompts.groups, prompts.clusters, prompts.order)

    unseen = False

    def stated(checkpoints: Mapping[str, str]) -> Statement:
        return state(grid, asked, content, checkpoints)

    def before(checkpoints: Mapping[str, str]) -> None:
        nonlocal unseen
        unseen = note(grid, stated(checkpoints), prompts, store, live.run)

    try:
        make_folder(live.store)
        # One process serves a grid at a time; another waits and then finds everything in the store.
        with FileLock(live.store.with_name(f"{grid.name}.lock")), Store(live.store) as store, live.progress() as told:
            family = HOLM

            def judged_by(checkpoints: Mapping[str, str]) -> Family:
                nonlocal family
                if not grid.spends_less:
                    return family
                family = family_of(grid, _reuse(grid, stated(checkpoints), prompts.ids, None, live.run, store, unseen))
                return family

            def served_for(judged_by: Callable[[Mapping[str, str]], Family]) -> tuple[Served, Reuse | None]:
                served = serve(
                    grid,
                    prompts,
                    store,
                    live.device,
                    live.generate,
                    told,
                    before,
                    judged_by,
                )
                statement = stated(served.checkpoints)
                return served, _reuse(grid, statement, prompts.ids, served.outcomes, live.run, store, unseen)

            served, reuse = served_for(judged_by)
            if grid.spends_less and (counted := family_of(grid, reuse)) != family:
                # Other outcomes than those it was judged on before make another statement, in which more counts.
                served, reuse = served_for(lambda checkpoints: counted)
            replicate, lost = None, []
            if grid.noise_floor is not None:
                one, reordered = second_run(grid, grid.noise_floor, prompts)
                again = serve(one, reordered, store, live.device, live.generate, told, replicate=1)
                replicate, lost = again.outcomes.split_last()[1], again.warnings
    except (OSError, sqlite3.Error) as error:
        raise OutcomesError(f"{display(live.store)}: cannot be used as a store ({error}); name another") from None
    weights = [
        WeightsRecord(checkpoint=spec.checkpoint, dtype=spec.dtype, weights=spec.weights or spec.dtype, shares=shares)
        for spec, shares in served.weights
    ]
    provenance = _provenance(grid, prompts=prompts.sha256, weights=weights, versions=served.versions)
    return certify(
        grid,
        served.outcomes,
        provenance=provenance,
        notes=[*prompts.notes, *served.warnings, *lost, *unnoticed_clusters(grid, prompts.ids, prompts.texts)],
        replicate=replicate,
        content=content,
        checkpoints=served.checkpoints,
        sharing=Sharing(forwards_run=served.forwards_run, forwards_charged=served.forwards_charged)
        if served.forwards_run is not None
        else None,
        reuse=reuse,
    )


def _reuse(
    grid: Grid,
    statement: Statement,
    prompts: Sequence[str],
    outcomes: Outcomes | None,
    run: Run,
    store: Store | None = None,
    unseen: bool = False,
) -> Reuse | None:
    """What the certificate says of earlier statements on these prompts; without outcomes, before they are known."""
    ledger = known_ledger(grid.path, statement.hash, store, run)
    judged = outcomes_hash(statement, outcomes) if outcomes else None
    return standing(ledger, grid.name, statement, prompts, judged, unseen, file_of(grid)).section(statement)


def _provenance(
    grid: Grid,
    outcomes: list[FileRecord] | None = None,
    prompts: str | None = None,
    weights: list[WeightsRecord] | None = None,
    versions: dict[str, str] | None = None,
) -> Provenance:
    return Provenance(
        grid=FileRecord(path=_relative(grid, grid.path), sha256=grid.sha256),
        outcomes=outcomes or [],
        prompts=FileRecord(path=_relative(grid, grid.prompts), sha256=prompts) if prompts and grid.prompts else None,
        serving_file=FileRecord(path=_relative(grid, grid.serving.file), sha256=grid.serving.sha256)
        if grid.serving and grid.serving.file
        else None,
        serving_keys=dict(grid.serving.keys) if grid.serving else {},
        weights=weights or [],
        versions={
            "pytest-redline": version("pytest-redline"),
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "scipy": version("scipy"),
            **(versions or {}),
        },
    )


def _relative(grid: Grid, path: Path) -> str:
    """Path as the grid file would write it, so that the certificate does not depend on the working directory."""
    return Path(os.path.relpath(path, grid.path.parent)).as_posix()
