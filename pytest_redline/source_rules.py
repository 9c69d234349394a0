"""What the keys below ``source:`` of a grid file mean together: recorded outcomes, or the engine and its knobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_redline.checkpoint_rules import BUNDLED, checkpoint_directory, decided_by_checkpoint
from pytest_redline.claims import Risk
from pytest_redline.complaints import Complaints, KeyPath, suggest
from pytest_redline.errors import OutcomesError
from pytest_redline.grading import GRADERS
from pytest_redline.grid import (
    MODEL_KNOBS,
    Columns,
    Configuration,
    CorrectColumn,
    CostMeasure,
    EngineSource,
    RecordedSource,
    plain_knobs,
)
from pytest_redline.grid_schema import GridModel
from pytest_redline.source_schema import ColumnsModel, CorrectModel, EngineModel, OutcomesModel
from redline_engine.config import DecodeKnobs, KnobError, ModelSpec


def declared_source(
    complaints: Complaints,
    model: GridModel,
    configurations: tuple[Configuration, ...],
    cost: CostMeasure | None,
    risks: Sequence[Risk],
) -> tuple[RecordedSource | EngineSource | None, str, str]:
    """Source, how verdicts come about, and where prompts come from, both in words."""
    kinds = model.source.model_fields_set
    if any(path[:1] == ("source",) and len(path) < 3 for path in complaints.tainted):
        return None, "", ""
    if len(kinds) != 1:
        complaints.complain(("source",), f"found {len(kinds)} kinds; name one of outcomes, engine")
    if model.source.engine is not None:
        return _engine(complaints, model.source.engine, model, configurations, cost)
    if model.source.outcomes is not None:
        recorded = _recorded(complaints, model.source.outcomes, model, configurations, cost, risks)
        file = recorded.file.name if recorded.file else "these logs"
        return recorded, _recorded_grader(recorded.columns.correct), file
    return None, "", ""


def _recorded(
    complaints: Complaints,
    written: str | OutcomesModel,
    model: GridModel,
    configurations: tuple[Configuration, ...],
    cost: CostMeasure | None,
    risks: Sequence[Risk],
) -> RecordedSource:
    """Source of recorded outcomes, which bring their own verdicts."""
    at: KeyPath = ("source", "outcomes")
    if isinstance(written, str):
        written = OutcomesModel(file=written)
    logs = [each for each in configurations if each.log is not None]
    if written.file is not None:
        for each in logs:
            complaints.complain(
                ("configurations", each.label, "log"),
                "the source already names one file for all; remove one of the two",
            )
    elif any(path[:2] == at for path in complaints.tainted):
        pass  # the file may be what could not be read
    elif not logs:
        complaints.complain(at, "no recording; name a `file:` here, or a `log:` in every configuration")
    else:
        for each in configurations:
            if each.log is None:
                complaints.complain(
                    ("configurations", each.label), "other configurations have a `log:`; name one here too"
                )
    if written.sha256 is not None and written.file is None:
        complaints.complain((*at, "sha256"), "goes with `file:`")
    columns = _columns(complaints, written.columns, model, cost, risks)
    file = complaints.path.parent / written.file if written.file else None
    return RecordedSource(file, columns, written.sha256, complaints.located.line(at))


def _engine(
    complaints: Complaints,
    written: EngineModel,
    model: GridModel,
    configurations: tuple[Configuration, ...],
    cost: CostMeasure | None,
) -> tuple[EngineSource, str, str]:
    """Source that serves the prompts with the bundled engine."""
    if model.prompts is None:
        complaints.complain(("prompts",), "the engine needs prompts to serve; name their file")
    if model.grade is None:
        complaints.complain(("grade",), f"the engine's answers need a grader; name one of {', '.join(GRADERS)}")
    elif model.grade not in GRADERS:
        complaints.complain(
            ("grade",), f"{model.grade!r} is no grader; {suggest(model.grade, GRADERS) or ', '.join(GRADERS)}"
        )
    for each in configurations:
        if each.log is not None:
            complaints.complain(("configurations", each.label, "log"), "the engine reads no log; remove it")
    unmeasured = [name for name in (cost.measures if cost else ()) if name not in ("tokens", "forwards")]
    if unmeasured:
        complaints.complain(("cost",), f"the engine does not measure {', '.join(unmeasured)}; use tokens, forwards")
    source = EngineSource(
        written.checkpoint,
        written.device,
        written.dtype,
        written.batch_size,
        dict(written.__pydantic_extra__ or {}),
        written.weights,
        written.template,
        written.mask_id,
        written.end_ids,
        written.cuda_graphs,
    )
    _knobs(complaints, {}, source.defaults, ("source", "engine"))
    _model(complaints, source, {}, ("source", "engine"))
    grader = GRADERS[model.grade].stated if model.grade in GRADERS else ""
    return source, grader, model.prompts.file.rpartition("/")[2] if model.prompts else ""


def effective(
    complaints: Complaints, source: EngineSource, configurations: tuple[Configuration, ...], grade: str | None
) -> tuple[Configuration, ...]:
    """Configurations with every knob that the engine will read, at the value it will have."""
    rows = []
    read: set[str] = set()
    faulty = False
    for each in configurations:
        decoding = {name: value for name, value in each.knobs.items() if name not in MODEL_KNOBS}
        knobs = _knobs(complaints, decoding, source.defaults, ("configurations", each.label), each.line)
        used = {name: each.knobs[name] for name in MODEL_KNOBS if name in each.knobs}
        spec = _model(complaints, source, used, ("configurations", each.label), each.line)
        if spec is None or knobs is None:
            rows.append(each)  # as written, so that it is like no other for being wrong
            faulty = True
            continue
        used = {name: getattr(spec, name) for name in MODEL_KNOBS} | {"batch_size": source.batch_size}
        used |= {"cuda_graphs": True} if source.cuda_graphs else {}
        used |= knobs.effective()
        read |= knobs.effective().keys()
        try:
            directory = checkpoint_directory(spec.checkpoint, complaints.path.parent)
        except OutcomesError:
            pass  # serving says so; what was served before may be looked at without the checkpoint
        else:
            decided, problem = decided_by_checkpoint(spec, directory, grade, knobs.block_size)
            used |= decided
            if problem:
                complaints.complain(("configurations", each.label, "template"), problem, each.line)
        rows.append(replace(each, knobs=plain_knobs(used)))
    for name in () if faulty else sorted(source.defaults.keys() - read):
        complaints.complain(("source", "engine", name), "no configuration reads it; remove it")
    return tuple(rows)


def _knobs(
    complaints: Complaints, knobs: Mapping[str, Any], defaults: Mapping[str, Any], at: KeyPath, line: int | None = None
) -> DecodeKnobs | None:
    """Knobs as the engine reads them, or None after complaints."""
    try:
        return DecodeKnobs.from_mapping(knobs, defaults)
    except KnobError as error:
        for problem in error.problems:
            name, _, text = problem.partition(": ")
            if name in knobs or not knobs or name not in defaults:
                complaints.complain((*at, name), text, line if name not in knobs else None)
        return None


def _model(
    complaints: Complaints, source: EngineSource, knobs: Mapping[str, Any], at: KeyPath, line: int | None = None
) -> ModelSpec | None:
    """Model that is run with these knobs, or None after complaints; each stands where its cause is written."""
    try:
        spec = source.model_of(knobs)
        if spec.checkpoint.startswith(BUNDLED) and ("checkpoint" in knobs or at[0] == "source"):
            checkpoint_directory(spec.checkpoint, complaints.path.parent)
        return spec
    except OutcomesError as error:
        complaints.complain((*at, "checkpoint"), str(error), line if "checkpoint" not in knobs else None)
        return None
    except KnobError as error:
        for problem in error.problems:
            name, _, text = problem.partition(": ")
            if knobs or at[0] == "source":
                complaints.complain((*at, name), text, line if name not in knobs else None)
        return None


def _columns(
    complaints: Complaints, written: ColumnsModel, model: GridModel, cost: CostMeasure | None, risks: Sequence[Risk]
) -> Columns:
    """Where the recording keeps what."""
    at = ("source", "outcomes", "columns")
    measures = dict(written.__pydantic_extra__ or {})
    usable = {"tokens", "forwards", *(cost.measures if cost else ()), *(risk.measure for risk in risks)}
    for name in measures:
        if name not in usable:
            names = sorted({*ColumnsModel.model_fields, *usable})
            complaints.complain(
                (*at, name), f"unknown key; {suggest(name, names) or 'allowed are ' + ', '.join(names)}"
            )
    group, by = written.group, model.groups.by if model.groups else None
    if group is not None and by is not None and group != by:
        complaints.complain(("groups", "by"), f"found {by!r}, but the columns name {group!r} as the group")
    correct = written.correct
    if isinstance(correct, CorrectModel):
        if correct.threshold is not None and "equals" in correct.model_fields_set:
            complaints.complain((*at, "correct"), "has both threshold and equals; keep one of the two")
        elif "equals" in correct.model_fields_set and correct.equals is None:
            complaints.complain(
                (*at, "correct", "equals"), "null equals nothing that a recording may hold; name a value"
            )
        chosen = CorrectColumn(
            correct.column, correct.threshold, correct.equals, bool(correct.loss), bool(correct.repeats)
        )
    else:
        chosen = CorrectColumn(correct)
    declared = set(written.model_fields_set) | set(measures) | ({"group"} if by else set())
    return Columns(
        prompt=(written.prompt,) if isinstance(written.prompt, str) else tuple(written.prompt),
        correct=chosen,
        config=written.config,
        group=by or group,
        cluster=model.clusters.by if model.clusters else None,
        prompt_text=written.prompt_text,
        prompt_hash=written.prompt_hash,
        output=written.output,
        measures=measures,
        flags=frozenset(risk.measure for risk in risks if risk.flag),
        declared=frozenset(declared),
    )


def _recorded_grader(correct: CorrectColumn) -> str:
    """How recorded verdicts are read, in words; part of the statement."""
    if correct.threshold is not None:
        return f"recorded: {correct.path} >= {correct.threshold:g}"
    score = " (a score from 0 to 1)" if correct.score else ""
    return f"recorded: {correct.path}{score}" + ("" if correct.equals is None else f" == {json.dumps(correct.equals)}")
