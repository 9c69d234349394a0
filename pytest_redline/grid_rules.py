"""What the keys of a grid file mean together: from the model of a file to a grid."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pytest_redline.checkpoint_rules import decided_by_checkpoint
from pytest_redline.claim_rules import (
    ENGINE_MEASURES,
    SMALLEST,
    declared_draw,
    declared_mix,
    declared_risks,
    joint_loss,
)
from pytest_redline.claims import Risk
from pytest_redline.complaints import Complaints, KeyPath, no_such_label, suggest
from pytest_redline.grading import GRADERS
from pytest_redline.grid import (
    KNOWN_MEASURES,
    MODEL_KNOBS,
    Columns,
    Configuration,
    CorrectColumn,
    CostMeasure,
    EngineSource,
    Grid,
    Groups,
    RecordedSource,
    Sample,
    Serving,
    Slice,
    Spending,
    Weight,
)
from pytest_redline.grid_schema import (
    ColumnsModel,
    CorrectModel,
    CostModel,
    EngineModel,
    GridModel,
    OutcomesModel,
    SpendingModel,
)
from pytest_redline.labels import label_of, label_problem
from pytest_redline.noise_rules import declared_noise_floor, lossless_labels
from pytest_redline.serving_file import match_serving_file
from pytest_redline.spending_rules import check_deploy_only, stopping_of
from redline_engine.config import DecodeKnobs, KnobError, ModelSpec

DEFAULT_DELTA = 0.1  # the paper's
STAND_INS: Mapping[str, Any] = {"redline": 1, "name": "x", "reference": "-", "source": {"outcomes": "-"}}
_MOST_CONFIGURATIONS = 10_000
_COSTS = (1e-9, 1e12)  # what a declared cost may lie between


class Budgets(NamedTuple):
    """alpha and delta of the command line and of the ini file; None where they say nothing."""

    alpha: float | None
    delta: float | None
    ini_alpha: float | None
    ini_delta: float | None


class Rules:
    """Builds the parts of a grid from the model of its file, and complains about what cannot be carried out."""

    def __init__(self, complaints: Complaints) -> None:
        self.complaints = complaints
        self.complain = complaints.complain
        self.is_tainted = complaints.is_tainted
        self.folder = complaints.path.parent
        self.risks: tuple[Risk, ...] = ()

    def check_labels(self, data: Mapping[str, Any]) -> None:
        """Labels and what refers to them, on data of any shape."""
        declared = data.get("configurations")
        labels = list(declared) if isinstance(declared, dict) else []
        for label in labels:
            if problem := label_problem(label):
                self.complain(("configurations", label), problem)
        product = data.get("grid")
        if isinstance(product, dict) and all(isinstance(values, list) and values for values in product.values()):
            if math.prod(map(len, product.values())) > _MOST_CONFIGURATIONS:
                return
            labels += [label_of(knobs) for knobs in _product(product)]
        for key in ("reference", "serving"):
            label = data.get(key)
            if isinstance(label, str) and label not in labels and not self.is_tainted(("configurations",)):
                self.complain((key,), no_such_label(label, labels))

    def build(self, model: GridModel, given: Budgets, deploy_only: bool = False) -> Grid | None:
        """Model to grid; None when there are problems."""
        configurations = self.configurations(model)
        self.check_labels(self.complaints.located.data)
        labels = [configuration.label for configuration in configurations]
        unread = any(path[:1] == ("configurations",) for path in self.complaints.tainted)
        if len(labels) < 2 and not unread and model.reference in (*labels, STAND_INS["reference"]):
            self.complain(("configurations",), "no candidate beside the reference; a gate needs one to judge")
        cost = self.cost(model, configurations)
        self.risks = declared_risks(self.complaints, model, {*ENGINE_MEASURES[:2], *(cost.measures if cost else ())})
        source, grader, origin = self.source(model, configurations, cost)
        if isinstance(source, EngineSource):
            configurations = self.effective(source, configurations, model.grade)
        self.check_equal_knobs(configurations)
        serving = self.serving(model, configurations)
        if model.prompts and model.prompts.sample and model.prompts.slice:
            self.complain(("prompts", "slice"), "goes with no `sample`, which is another draw; remove one of the two")
        if model.prompts and model.prompts.slice and model.clusters:
            self.complain(("prompts", "slice"), "would cut clusters apart; make a pool of one prompt of each cluster")
        stopping = stopping_of(model, source, self.complaints)
        if deploy_only:
            check_deploy_only(model, configurations, source, cost, self.complaints)
        if model.weights and serving is None and not self.is_tainted(("serving",)):
            self.complain(("weights", "serving"), "needs `serving`, which says which configuration is served")
        elif model.weights and serving is not None and serving.label == model.reference:
            self.complain(("weights", "serving"), "the reference is served, which needs no weight; remove it")
        if (stopping is not None or deploy_only) and (isinstance(model.delta, SpendingModel) or model.weights):
            key = "weights" if model.weights else "delta"
            self.complain((key,), "goes with no `stopping` and no --redline-deploy-only yet; remove one of the two")
        if model.groups and "all" in model.groups.alpha:
            self.complain(("groups", "alpha", "all"), "stands for all prompts together; rename the group")
        for key, named in (("groups", model.groups), ("clusters", model.clusters)):
            if named and model.prompts and named.by in ("id", "prompt", "answer"):
                self.complain((key, "by"), f"{named.by!r} is another column of the prompts file")
        noise_floor = declared_noise_floor(self.complaints, model, configurations)
        lossless = lossless_labels(self.complaints, model, labels, deploy_only)
        alpha = self.budget("alpha", given.alpha, model.alpha, given.ini_alpha, None)
        spending = self.spending(model)
        written_delta = model.delta.total if isinstance(model.delta, SpendingModel) else model.delta
        delta = self.budget("delta", given.delta, written_delta, given.ini_delta, DEFAULT_DELTA)
        loss = joint_loss(self.complaints, model)
        design, clusters = declared_draw(self.complaints, model, self.risks, loss, delta)
        mix = declared_mix(self.complaints, model, design, clusters, loss, delta)
        if self.complaints.problems or alpha is None or delta is None or source is None:
            return None
        notes = [
            f"{name} {option:g} of --redline-{name} replaces the {written:g} that the grid file declares"
            for name, option, written in (("alpha", given.alpha, model.alpha), ("delta", given.delta, written_delta))
            if option is not None and written is not None and option != written
        ]
        population = model.population
        if deploy_only and noise_floor is not None:
            noise_floor = None
            notes.append("the noise floor is not measured in a deploy-only run")
        if population is None:
            notes.append(f"no population is named, so the promise speaks of whatever is behind {origin}")
        sample, part = (model.prompts.sample, model.prompts.slice) if model.prompts else (None, None)
        return Grid(
            path=self.complaints.path,
            name=model.name,
            alpha=alpha,
            delta=delta,
            spending=spending if given.delta is None else None,
            weight=self.weight(model, serving),
            reference=model.reference,
            configurations=configurations,
            source=source,
            cost=cost,
            grader=grader,
            population=(population if isinstance(population, str) else population.name)
            if population
            else f"the population behind {origin}",
            design=design,
            clusters=clusters,
            loss=loss,
            mix=mix,
            prompts=self.folder / model.prompts.file if model.prompts else None,
            sample=Sample(sample.n, sample.seed, sample.shares) if sample else None,
            slice=Slice(part.n, part.nonce) if part else None,
            grade=model.grade,
            serving=serving,
            groups=Groups(model.groups.by, dict(model.groups.alpha)) if model.groups else None,
            risks=self.risks,
            stopping=stopping,
            deploy_only=deploy_only,
            noise_floor=noise_floor,
            lossless=lossless,
            notes=tuple(notes),
            sha256=hashlib.sha256(self.complaints.content).hexdigest(),
        )

    def spending(self, model: GridModel) -> Spending | None:
        """How delta is shared out over statements, where it is."""
        written = model.delta
        if not isinstance(written, SpendingModel):
            return None
        if (written.spend is None) == (written.gates is None):
            self.complain(("delta",), "beside `total`, name one of `spend: series` and `gates: NUMBER`")
        return Spending(written.total, written.gates)

    def weight(self, model: GridModel, serving: Serving | None) -> Weight | None:
        """Weight on the configuration that is served."""
        if model.weights is None or serving is None:
            return None
        return Weight(serving.label, model.weights.serving)

    def budget(
        self, name: str, option: float | None, written: float | None, ini: float | None, default: float | None
    ) -> float | None:
        """Value of alpha or delta that wins, or None after a complaint."""
        value = next((each for each in (option, written, ini, default) if each is not None), None)
        if value is None:
            self.complain(
                (name,), f"not declared; write it here, give --redline-{name}, or set the ini key redline_{name}"
            )
        elif not SMALLEST <= value <= 1 - SMALLEST:
            self.complain((name,), f"{value!r} is too near to 0 or 1; from {SMALLEST:g} to 1 - {SMALLEST:g} is allowed")
        return value

    def configurations(self, model: GridModel) -> tuple[Configuration, ...]:
        """All rows of the grid: the declared ones, then those of the product."""
        rows: dict[str, Configuration] = {}
        for label, written in model.configurations.items():
            knobs = dict(written.__pydantic_extra__ or {}) if written else {}
            cost = written.cost if written else None
            rows[label] = Configuration(
                label,
                knobs,
                self.complaints.located.line(("configurations", label)),
                log=self.folder / written.log if written and written.log else None,
                cost=cost if isinstance(cost, float | int) else None,
                cost_unknown=cost == "unknown",
            )
        for knobs in self.product_of(model.grid):
            label = label_of(knobs)
            line = self.complaints.located.line(("grid",))
            if problem := label_problem(label):
                self.complain(("grid",), problem)
            elif label not in rows:
                rows[label] = Configuration(label, knobs, line)
            elif not _same(rows[label].knobs, knobs):
                self.complain(
                    ("configurations", label),
                    f"the grid makes the same label from other knobs ({knobs}); rename this one",
                )
        return tuple(rows.values())

    def product_of(self, grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
        """Knobs of each row of the product."""
        size, doubled = 1, False
        for knob, values in grid.items():
            if knob in ("cost", "log"):
                self.complain(("grid", knob), "is no knob; declare it under configurations")
                doubled = True
            for index, value in enumerate(values):
                if any(_same(value, earlier) for earlier in values[:index]):
                    self.complain(("grid", knob), f"value {value!r} stands twice")
                    doubled = True
            size *= len(values)
        if size > _MOST_CONFIGURATIONS:
            self.complain(("grid",), f"makes {size:,} configurations; at most {_MOST_CONFIGURATIONS:,} are allowed")
            return []
        return [] if doubled else _product(grid)

    def check_equal_knobs(self, rows: Iterable[Configuration]) -> None:
        """Two labels for one configuration would be two looks at one hypothesis, and a choice of label."""
        stated = [row for row in rows if row.knobs]
        seen: dict[str, Configuration] = {}
        for row in stated:
            earlier = seen.setdefault(_frozen(row.knobs), row)
            if earlier is not row:
                self.complain(
                    ("configurations", row.label),
                    f"has the same knobs as {earlier.label!r}; keep one of the two",
                    row.line,
                )

    def cost(self, model: GridModel, configurations: tuple[Configuration, ...]) -> CostMeasure | None:
        """Cost measure of the grid, or None where no cost is known."""
        declared = [each for each in configurations if each.cost is not None]
        written = CostModel(measure=model.cost) if isinstance(model.cost, str) else model.cost
        if written is not None and written.measure == "unknown":
            for each in declared:
                self.complain(
                    ("configurations", each.label, "cost"), "the grid says `cost: unknown`; remove one of the two"
                )
            return None
        measure = self.measure(written, bool(declared))
        for each in declared:
            if each.cost is not None and not _COSTS[0] <= each.cost <= _COSTS[1]:
                self.complain(
                    ("configurations", each.label, "cost"),
                    f"found {each.cost:g}; from {_COSTS[0]:g} to {_COSTS[1]:g} is allowed",
                )
        if declared:
            for each in configurations:
                if each.cost is None and (each.label == model.reference or not each.cost_unknown):
                    needed = "a number" if each.label == model.reference else "a number, or unknown"
                    self.complain(
                        ("configurations", each.label), f"other configurations declare `cost:`; give {needed} here too"
                    )
        elif any(each.cost_unknown and each.label == model.reference for each in configurations):
            self.complain(
                ("configurations", model.reference, "cost"), "the reference's cost is what the others are compared with"
            )
        return measure

    def measure(self, written: CostModel | None, declared: bool) -> CostMeasure:
        """Cost measure that a name, or columns of one's own, stand for."""
        if written is None:
            written = CostModel(measure="declared cost" if declared else "tokens_per_forward")
        known = KNOWN_MEASURES.get(written.measure)
        if known is not None and written.better not in (None, known.better):
            self.complain(("cost", "better"), f"{known.name} is better when {known.better}")
        better = written.better or (known.better if known else "higher" if declared else None)
        if better is None and not any(path[0] == "cost" for path in self.complaints.tainted):
            names = ", ".join(KNOWN_MEASURES)
            self.complain(
                ("cost",),
                f"{written.measure!r} is not one of {names}; for columns of your own say also `better: higher` or "
                "`better: lower`",
            )
        better = better or "higher"
        numerator, _, denominator = written.measure.partition("/")
        base = known or CostMeasure(
            written.measure, better, "ratio_of_sums", numerator.strip() or None, denominator.strip() or None
        )
        if declared:
            return CostMeasure(written.measure, better, base.pool, None, None, declared=True)
        if base.numerator is None or (written.measure.endswith("/") and not base.denominator):
            self.complain(("cost", "measure"), f"found {written.measure!r}; write NAME or NAME/NAME")
        return replace(base, pool=written.pool or base.pool)

    def source(
        self, model: GridModel, configurations: tuple[Configuration, ...], cost: CostMeasure | None
    ) -> tuple[RecordedSource | EngineSource | None, str, str]:
        """Source, how verdicts come about, and where prompts come from, both in words."""
        kinds = model.source.model_fields_set
        if any(path[:1] == ("source",) and len(path) < 3 for path in self.complaints.tainted):
            return None, "", ""
        if len(kinds) != 1:
            self.complain(("source",), f"found {len(kinds)} kinds; name one of outcomes, engine")
        if model.source.engine is not None:
            return self.engine(model.source.engine, model, configurations, cost)
        if model.source.outcomes is not None:
            recorded = self.recorded(model.source.outcomes, model, configurations, cost)
            file = recorded.file.name if recorded.file else "these logs"
            return recorded, _recorded_grader(recorded.columns.correct), file
        return None, "", ""

    def recorded(
        self,
        written: str | OutcomesModel,
        model: GridModel,
        configurations: tuple[Configuration, ...],
        cost: CostMeasure | None,
    ) -> RecordedSource:
        """Source of recorded outcomes, which bring their own verdicts."""
        at: KeyPath = ("source", "outcomes")
        if isinstance(written, str):
            written = OutcomesModel(file=written)
        logs = [each for each in configurations if each.log is not None]
        if written.file is not None:
            for each in logs:
                self.complain(
                    ("configurations", each.label, "log"),
                    "the source already names one file for all; remove one of the two",
                )
        elif any(path[:2] == at for path in self.complaints.tainted):
            pass  # the file may be what could not be read
        elif not logs:
            self.complain(at, "no recording; name a `file:` here, or a `log:` in every configuration")
        else:
            for each in configurations:
                if each.log is None:
                    self.complain(
                        ("configurations", each.label), "other configurations have a `log:`; name one here too"
                    )
        if written.sha256 is not None and written.file is None:
            self.complain((*at, "sha256"), "goes with `file:`")
        columns = self.columns(written.columns, model, cost)
        file = self.folder / written.file if written.file else None
        return RecordedSource(file, columns, written.sha256, self.complaints.located.line(at))

    def engine(
        self,
        written: EngineModel,
        model: GridModel,
        configurations: tuple[Configuration, ...],
        cost: CostMeasure | None,
    ) -> tuple[EngineSource, str, str]:
        """Source that serves the prompts with the bundled engine."""
        if model.prompts is None:
            self.complain(("prompts",), "the engine needs prompts to serve; name their file")
        if model.grade is None:
            self.complain(("grade",), f"the engine's answers need a grader; name one of {', '.join(GRADERS)}")
        elif model.grade not in GRADERS:
            self.complain(
                ("grade",), f"{model.grade!r} is no grader; {suggest(model.grade, GRADERS) or ', '.join(GRADERS)}"
            )
        for each in configurations:
            if each.log is not None:
                self.complain(("configurations", each.label, "log"), "the engine reads no log; remove it")
        unmeasured = [name for name in (cost.measures if cost else ()) if name not in ("tokens", "forwards")]
        if unmeasured:
            self.complain(("cost",), f"the engine does not measure {', '.join(unmeasured)}; use tokens, forwards")
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
        )
        self.knobs({}, source.defaults, ("source", "engine"))
        self.model(source, {}, ("source", "engine"))
        grader = GRADERS[model.grade].stated if model.grade in GRADERS else ""
        return source, grader, model.prompts.file.rpartition("/")[2] if model.prompts else ""

    def effective(
        self, source: EngineSource, configurations: tuple[Configuration, ...], grade: str | None
    ) -> tuple[Configuration, ...]:
        """Configurations with every knob that the engine will read, at the value it will have."""
        rows = []
        for each in configurations:
            decoding = {name: value for name, value in each.knobs.items() if name not in MODEL_KNOBS}
            knobs = self.knobs(decoding, source.defaults, ("configurations", each.label), each.line)
            used = {name: each.knobs[name] for name in MODEL_KNOBS if name in each.knobs}
            spec = self.model(source, used, ("configurations", each.label), each.line)
            if spec is not None:
                used = {name: getattr(spec, name) for name in MODEL_KNOBS} | {"batch_size": source.batch_size}
            if knobs is not None:
                used |= knobs.effective()
            if spec is not None and knobs is not None:
                directory = self.folder / spec.checkpoint
                decided, problem = decided_by_checkpoint(spec, directory, grade, knobs.block_size)
                used |= decided
                if problem:
                    self.complain(("configurations", each.label, "template"), problem, each.line)
            used = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in used.items()
                if value is not None
            }
            rows.append(replace(each, knobs=used))
        return tuple(rows)

    def knobs(
        self, knobs: Mapping[str, Any], defaults: Mapping[str, Any], at: KeyPath, line: int | None = None
    ) -> DecodeKnobs | None:
        """Knobs as the engine reads them, or None after complaints."""
        try:
            return DecodeKnobs.from_mapping(knobs, defaults)
        except KnobError as error:
            for problem in error.problems:
                name, _, text = problem.partition(": ")
                if name in knobs or not knobs or name not in defaults:
                    self.complain((*at, name), text, line if name not in knobs else None)
            return None

    def model(
        self, source: EngineSource, knobs: Mapping[str, Any], at: KeyPath, line: int | None = None
    ) -> ModelSpec | None:
        """Model that is run with these knobs, or None after complaints; each stands where its cause is written."""
        try:
            return source.model_of(knobs)
        except KnobError as error:
            for problem in error.problems:
                name, _, text = problem.partition(": ")
                if knobs or at[0] == "source":
                    self.complain((*at, name), text, line if name not in knobs else None)
            return None

    def columns(self, written: ColumnsModel, model: GridModel, cost: CostMeasure | None) -> Columns:
        """Where the recording keeps what."""
        at = ("source", "outcomes", "columns")
        measures = dict(written.__pydantic_extra__ or {})
        usable = {"tokens", "forwards", *(cost.measures if cost else ()), *(risk.measure for risk in self.risks)}
        for name in measures:
            if name not in usable:
                names = sorted({*ColumnsModel.model_fields, *usable})
                self.complain((*at, name), f"unknown key; {suggest(name, names) or 'allowed are ' + ', '.join(names)}")
        group, by = written.group, model.groups.by if model.groups else None
        if group is not None and by is not None and group != by:
            self.complain(("groups", "by"), f"found {by!r}, but the columns name {group!r} as the group")
        correct = written.correct
        if isinstance(correct, CorrectModel):
            if correct.threshold is not None and "equals" in correct.model_fields_set:
                self.complain((*at, "correct"), "has both threshold and equals; keep one of the two")
            elif "equals" in correct.model_fields_set and correct.equals is None:
                self.complain((*at, "correct", "equals"), "null equals nothing that a recording may hold; name a value")
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
            flags=frozenset(risk.measure for risk in self.risks if risk.flag),
            declared=frozenset(declared),
        )

    def serving(self, model: GridModel, configurations: tuple[Configuration, ...]) -> Serving | None:
        """Configuration that the repository deploys."""
        if model.serving is None or isinstance(model.serving, str):
            return Serving(model.serving) if model.serving else None
        file = self.folder / model.serving.file
        label, problems = match_serving_file(file, model.serving.keys, configurations)
        for problem in problems:
            self.complain(("serving",), problem)
        if label is None:
            return None
        return Serving(label, file, dict(model.serving.keys), hashlib.sha256(file.read_bytes()).hexdigest())


def _recorded_grader(correct: CorrectColumn) -> str:
    """How recorded verdicts are read, in words; part of the statement."""
    if correct.threshold is not None:
        return f"recorded: {correct.path} >= {correct.threshold:g}"
    score = " (a score from 0 to 1)" if correct.score else ""
    return f"recorded: {correct.path}{score}" + ("" if correct.equals is None else f" == {json.dumps(correct.equals)}")


def _product(grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    if not grid:
        return []
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _same(left: Any, right: Any) -> bool:
    """Equality under which true is not 1, at any depth."""
    return _frozen(left) == _frozen(right)


def _frozen(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key!r}:{_frozen(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_frozen, value)) + "]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(float(value)) if abs(value) < 2**53 else repr(value)
    return repr(value)
