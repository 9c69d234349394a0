"""Reading a grid file: every mistake of the file in one go, each as ``FILE:LINE key.path: ...``."""

from __future__ import annotations

import copy
import difflib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pytest_redline.errors import GridError
from pytest_redline.grid import (
    KNOWN_MEASURES,
    Columns,
    Configuration,
    CorrectColumn,
    CostMeasure,
    Grid,
    Groups,
    RecordedSource,
    Serving,
)
from pytest_redline.grid_schema import (
    NAME_PATTERN,
    ColumnsModel,
    CorrectModel,
    CostModel,
    GridModel,
    GroupsModel,
    OutcomesModel,
    PromptsModel,
    ServingModel,
    SourceModel,
)
from pytest_redline.labels import label_of, label_problem
from pytest_redline.located_yaml import LocatedYaml, read
from pytest_redline.paths import display
from pytest_redline.serving_file import match_serving_file

DEFAULT_DELTA = 0.1  # the paper's
_MOST_CONFIGURATIONS = 10_000
_MOST_REPAIRS = 10
_STAND_INS: Mapping[str, Any] = {"redline": 1, "name": "x", "reference": "-", "source": {"outcomes": "-"}}
_LATER_SOURCES = {"engine", "logs", "server"}


def load_grid(
    path: Path,
    *,
    alpha: float | None = None,
    delta: float | None = None,
    ini_alpha: float | None = None,
    ini_delta: float | None = None,
) -> Grid:
    """Read and check a grid file.

    Parameters
    ----------
    path
        The grid file; paths in it are relative to its folder.
    alpha, delta
        Values of the command line; they win over the file.
    ini_alpha, ini_delta
        Values of pytest's ini file; the file wins over them.

    Raises
    ------
    GridError
        With one problem per mistake, in the order of the file's lines.
    """
    checker = _Checker(path)
    model = checker.parse()
    if model is None:
        raise checker.error()
    grid = checker.build(model, alpha, delta, ini_alpha, ini_delta)
    if grid is None:
        raise checker.error()
    return grid


class _Checker:
    """Collects the problems of one file while its parts are built."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.parent
        self.located = LocatedYaml()
        self.problems: list[tuple[int, str]] = []
        self.tainted: set[tuple[str | int, ...]] = set()  # complained about and left out

    # -- complaints ---------------------------------------------------------------------------------------------

    def is_tainted(self, path: tuple[str | int, ...]) -> bool:
        """Is a path, or what it stands in, already known to be faulty."""
        return any(path[:length] in self.tainted for length in range(1, len(path) + 1))

    def complain(self, path: tuple[str | int, ...], text: str, line: int | None = None) -> None:
        if self.is_tainted(path):
            return
        where = f"{display(self.path)}:{line or self.located.line(path)}"
        key = _dotted(path)
        self.problems.append((line or self.located.line(path), f"{where} {key}: {text}" if key else f"{where}: {text}"))

    def error(self) -> GridError:
        ordered = sorted(self.problems, key=lambda problem: problem[0])
        error = GridError(list(dict.fromkeys(text for _, text in ordered)))
        data = self.located.data
        name = data.get("name") if isinstance(data, dict) else None
        if isinstance(name, str) and re.fullmatch(NAME_PATTERN, name):
            error.name = name
        return error

    # -- text and structure -------------------------------------------------------------------------------------

    def parse(self) -> GridModel | None:
        """Text to model; None when there is nothing to check further."""
        try:
            text = self.path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            self.complain((), f"cannot be read ({error.strerror or error})")
            return None
        except UnicodeDecodeError as error:
            self.complain((), f"not UTF-8 at byte {error.start}; save the file as UTF-8")
            return None
        try:
            self.located = read(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.complain((), f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else 1)
            return None
        except (yaml.YAMLError, RecursionError) as error:
            self.complain((), f"not YAML: {str(error).splitlines()[0]}")
            return None
        for line, path, problem in self.located.problems:
            self.complain(path, problem, line)
        data = self.located.data
        # What could not be read is left out, and nothing more is said of it.
        self.tainted.update(path for _, path, _ in self.located.problems if path and _value(data, path) is None)
        if not isinstance(data, dict):
            found = "nothing" if data is None else f"a {type(data).__name__}"
            self.complain((), f"found {found}; a grid file is a map of keys such as redline, name, source, reference")
            return None
        self.check_values(data, ())
        return self.validated(data)

    def validated(self, data: dict[str, Any]) -> GridModel | None:
        """Model of a file; what is faulty is said and left out, so that the rest is still checked."""
        data = copy.deepcopy(data)
        for _ in range(_MOST_REPAIRS):
            try:
                return GridModel.model_validate(data)
            except ValidationError as error:
                faulty = self.translate(error)
                self.tainted.update(faulty)
                for path in faulty:
                    _remove(data, path)
                for key, stand_in in _STAND_INS.items():
                    if (key,) in self.tainted:
                        data[key] = stand_in
        return None

    def check_values(self, value: Any, path: tuple[str | int, ...]) -> None:
        """Numbers that are no numbers may stand nowhere in a grid file."""
        if isinstance(value, dict):
            for key, inner in value.items():
                self.check_values(inner, (*path, key))
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                self.check_values(inner, (*path, index))
        elif _is_odd_number(value):
            self.complain(path, f"found {value}; a finite number is needed")

    def translate(self, error: ValidationError) -> list[tuple[str | int, ...]]:
        """Say pydantic's complaints in the words of the file; returns what must be left out to go on."""
        faulty = []
        for fault in error.errors():
            path = _data_path(self.located.data, fault["loc"])
            kind, found = fault["type"], fault["input"]
            faulty.append(path[:-1] if kind == "missing" and len(path) > 1 else path)
            if kind == "missing":
                self.complain(path, "required key is missing")
            elif kind == "extra_forbidden":
                self.complain(path, self.unknown_key(path))
            elif not _is_odd_number(found):  # those are already said by check_values
                self.complain(path, f"found {_shown(found)}; {_allowed(fault)}")
        return faulty

    def unknown_key(self, path: tuple[str | int, ...]) -> str:
        key = str(path[-1])
        if path[:-1] == ("source",) and key in _LATER_SOURCES:
            return f"source {key!r} is not part of this version; outcomes is"
        if path[:-1] not in _MODELS:
            return "unknown key"
        names = sorted(_MODELS[path[:-1]].model_fields)
        return f"unknown key; {_suggest(key, names) or 'allowed are ' + ', '.join(names)}"

    # -- meaning ------------------------------------------------------------------------------------------------

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
                self.complain((key,), _no_such_label(label, labels))

    def build(
        self,
        model: GridModel,
        alpha: float | None,
        delta: float | None,
        ini_alpha: float | None,
        ini_delta: float | None,
    ) -> Grid | None:
        """Model to grid; None when there are problems."""
        configurations = self.configurations(model)
        self.check_labels(self.located.data)
        labels = [configuration.label for configuration in configurations]
        unread = any(path[:1] == ("configurations",) for path in self.tainted)
        if len(labels) < 2 and not unread and model.reference in (*labels, _STAND_INS["reference"]):
            self.complain(("configurations",), "no candidate beside the reference; a gate needs one to judge")
        cost = self.cost(model, configurations)
        source = None if self.is_tainted(("source", "outcomes")) else self.source(model, configurations, cost)
        serving = self.serving(model, configurations)
        used_alpha = self.budget("alpha", alpha, model.alpha, ini_alpha, None)
        used_delta = self.budget("delta", delta, model.delta, ini_delta, DEFAULT_DELTA)
        if self.problems or used_alpha is None or used_delta is None or source is None:
            return None
        overrides = tuple(
            f"{name} {option:g} of --redline-{name} replaces the {written:g} that the grid file declares"
            for name, option, written in (("alpha", alpha, model.alpha), ("delta", delta, model.delta))
            if option is not None and written is not None and option != written
        )
        return Grid(
            path=self.path,
            name=model.name,
            alpha=used_alpha,
            delta=used_delta,
            reference=model.reference,
            configurations=configurations,
            source=source,
            cost=cost,
            grader=_grader(source.columns.correct),
            population=model.population or f"the population behind {source.file.name if source.file else 'these logs'}",
            prompts=self.folder / model.prompts.file if model.prompts else None,
            serving=serving,
            groups=Groups(model.groups.by, dict(model.groups.alpha)) if model.groups else None,
            overrides=overrides,
        )

    def budget(
        self, name: str, option: float | None, written: float | None, ini: float | None, default: float | None
    ) -> float | None:
        value = next((each for each in (option, written, ini, default) if each is not None), None)
        if value is None:
            self.complain(
                (name,), f"not declared; write it here, give --redline-{name}, or set the ini key redline_{name}"
            )
        return value

    def configurations(self, model: GridModel) -> tuple[Configuration, ...]:
        rows: dict[str, Configuration] = {}
        for label, written in model.configurations.items():
            knobs = dict(written.__pydantic_extra__ or {}) if written else {}
            cost = written.cost if written else None
            rows[label] = Configuration(
                label,
                knobs,
                self.located.line(("configurations", label)),
                log=self.folder / written.log if written and written.log else None,
                cost=cost if isinstance(cost, float | int) else None,
                cost_unknown=cost == "unknown",
            )
        for knobs in self.product_of(model.grid):
            label = label_of(knobs)
            line = self.located.line(("grid",))
            if problem := label_problem(label):
                self.complain(("grid",), problem)
            elif label not in rows:
                rows[label] = Configuration(label, knobs, line)
            elif not _same(rows[label].knobs, knobs):
                self.complain(
                    ("configurations", label),
                    f"the grid makes the same label from other knobs ({knobs}); rename this one",
                )
        self.check_equal_knobs(rows.values())
        return tuple(rows.values())

    def product_of(self, grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
        size, doubled = 1, False
        for knob, values in grid.items():
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
        declared = [each for each in configurations if each.cost is not None]
        written = CostModel(measure=model.cost) if isinstance(model.cost, str) else model.cost
        if written is not None and written.measure == "unknown":
            for each in declared:
                self.complain(
                    ("configurations", each.label, "cost"), "the grid says `cost: unknown`; remove one of the two"
                )
            return None
        measure = self.measure(written, bool(declared))
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
        if written is None:
            written = CostModel(measure="declared cost" if declared else "tokens_per_forward")
        known = KNOWN_MEASURES.get(written.measure)
        if known is not None and written.better not in (None, known.better):
            self.complain(("cost", "better"), f"{known.name} is better when {known.better}")
        better = written.better or (known.better if known else "higher" if declared else None)
        if better is None and not any(path[0] == "cost" for path in self.tainted):
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
    ) -> RecordedSource | None:
        at: tuple[str | int, ...] = ("source", "outcomes")
        written = model.source.outcomes
        if isinstance(written, str):
            written = OutcomesModel(file=written)
        logs = [each for each in configurations if each.log is not None]
        if written.file is not None:
            for each in logs:
                self.complain(
                    ("configurations", each.label, "log"),
                    "the source already names one file for all; remove one of the two",
                )
        elif any(path[:2] == at for path in self.tainted):
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
        return RecordedSource(file, columns, written.sha256, self.located.line(at))

    def columns(self, written: ColumnsModel, model: GridModel, cost: CostMeasure | None) -> Columns:
        at = ("source", "outcomes", "columns")
        measures = dict(written.__pydantic_extra__ or {})
        usable = {"tokens", "forwards", *(cost.measures if cost else ())}
        for name in measures:
            if name not in usable:
                names = sorted({*ColumnsModel.model_fields, *usable})
                self.complain((*at, name), f"unknown key; {_suggest(name, names) or 'allowed are ' + ', '.join(names)}")
        group, by = written.group, model.groups.by if model.groups else None
        if group is not None and by is not None and group != by:
            self.complain(("groups", "by"), f"found {by!r}, but the columns name {group!r} as the group")
        correct = written.correct
        if isinstance(correct, CorrectModel):
            if correct.threshold is not None and "equals" in correct.model_fields_set:
                self.complain((*at, "correct"), "has both threshold and equals; keep one of the two")
            chosen = CorrectColumn(correct.column, correct.threshold, correct.equals)
        else:
            chosen = CorrectColumn(correct)
        declared = set(written.model_fields_set) | set(measures) | ({"group"} if by else set())
        return Columns(
            prompt=(written.prompt,) if isinstance(written.prompt, str) else tuple(written.prompt),
            correct=chosen,
            config=written.config,
            group=by or group,
            prompt_text=written.prompt_text,
            prompt_hash=written.prompt_hash,
            output=written.output,
            measures=measures,
            declared=frozenset(declared),
        )

    def serving(self, model: GridModel, configurations: tuple[Configuration, ...]) -> Serving | None:
        if model.serving is None or isinstance(model.serving, str):
            return Serving(model.serving) if model.serving else None
        file = self.folder / model.serving.file
        label, problems = match_serving_file(file, model.serving.keys, configurations)
        for problem in problems:
            self.complain(("serving",), problem)
        return Serving(label, file, dict(model.serving.keys)) if label is not None else None


def _grader(correct: CorrectColumn) -> str:
    """How recorded verdicts are read, in words; part of the statement."""
    if correct.threshold is not None:
        return f"recorded: {correct.path} >= {correct.threshold:g}"
    return f"recorded: {correct.path}" + ("" if correct.equals is None else f" == {json.dumps(correct.equals)}")


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


def _no_such_label(label: str, labels: list[str]) -> str:
    shown = ", ".join(labels[:8]) + (f", ... ({len(labels)} in all)" if len(labels) > 8 else "")
    hint = _suggest(label, labels) or f"declared are {shown or 'none'}"
    return f"{label!r} is not a configuration of this grid; {hint}"


def _suggest(word: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(names), n=1)
    return f"did you mean {close[0]}?" if close else ""


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _data_path(data: Any, location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Pydantic's location without the tags of unions, which are no keys of the file."""
    path: list[str | int] = []
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if isinstance(data, dict) and (part in data or last):
            path.append(part)
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            path.append(part)
            data = data[part]
    return tuple(path)


def _is_odd_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _value(data: Any, path: tuple[str | int, ...]) -> Any:
    """Value at a path, None where there is none."""
    for part in path:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _remove(data: Any, path: tuple[str | int, ...]) -> None:
    for part in path[:-1]:
        if isinstance(data, list) or (isinstance(data, dict) and isinstance(data.get(part), list)):
            break  # taking one item out would move the others: the whole list goes
        data = data.get(part) if isinstance(data, dict) else None
    else:
        part = path[-1]
    if isinstance(data, dict):
        data.pop(part, None)


_MODELS: Mapping[tuple[str | int, ...], type[BaseModel]] = {
    (): GridModel,
    ("prompts",): PromptsModel,
    ("cost",): CostModel,
    ("source",): SourceModel,
    ("source", "outcomes"): OutcomesModel,
    ("source", "outcomes", "columns", "correct"): CorrectModel,
    ("serving",): ServingModel,
    ("groups",): GroupsModel,
}  # every closed map of a grid file


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _allowed(fault: Any) -> str:
    """What a value should have been."""
    context = fault.get("ctx", {})
    words = {
        "float_type": "a number is needed",
        "int_type": "the whole number 1 is allowed",  # the version of the format, the only one there is
        "string_type": "text is needed",
        "list_type": "a list is needed",
        "dict_type": "a map is needed",
        "model_type": "a map is needed",
        "bool_type": "true or false is needed",
        "too_short": "at least one is needed",
        "string_too_short": "text that is not empty is needed",
        "union_tag_invalid": "a name or a map is needed",
        "greater_than": f"a number over {context.get('gt')} is needed",
        "less_than": f"a number under {context.get('lt')} is needed",
        "greater_than_equal": f"{context.get('ge')} is allowed",
        "less_than_equal": f"{context.get('le')} is allowed",
        "literal_error": "a number over 0, or unknown, is needed"
        if context.get("expected") == "'unknown'"
        else f"{context.get('expected')} is allowed",
        "string_pattern_mismatch": f"text that matches {context.get('pattern')} is needed",
    }
    return str(words.get(fault["type"], fault["msg"]))
