"""What the keys of a grid file mean together: from the model of a file to a grid."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pytest_redline.claim_rules import (
    ENGINE_MEASURES,
    SMALLEST,
    declared_draw,
    declared_mix,
    declared_risks,
    joint_loss,
)
from pytest_redline.complaints import Complaints, no_such_label
from pytest_redline.cost_rules import declared_cost
from pytest_redline.grid import (
    DEFAULT_DELTA,
    Configuration,
    EngineSource,
    Grid,
    Groups,
    Sample,
    Serving,
    Slice,
    Spending,
    Weight,
)
from pytest_redline.grid_schema import GridModel, SpendingModel
from pytest_redline.labels import label_of, label_problem
from pytest_redline.noise_rules import declared_noise_floor, lossless_labels
from pytest_redline.serving_file import match_serving_file
from pytest_redline.source_rules import declared_source, effective
from pytest_redline.spending_rules import check_deploy_only, stopping_of

STAND_INS: Mapping[str, Any] = {"redline": 1, "name": "x", "reference": "-", "source": {"outcomes": "-"}}
_MOST_CONFIGURATIONS = 10_000


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
        cost = declared_cost(self.complaints, model, configurations)
        risks = declared_risks(self.complaints, model, {*ENGINE_MEASURES[:2], *(cost.measures if cost else ())})
        source, grader, origin = declared_source(self.complaints, model, configurations, cost, risks)
        if isinstance(source, EngineSource):
            configurations = effective(self.complaints, source, configurations, model.grade)
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
        design, clusters = declared_draw(self.complaints, model, risks, loss, delta)
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
            risks=risks,
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
