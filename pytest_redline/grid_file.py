"""Reading a grid file: every mistake of the file in one go, each as ``FILE:LINE key.path: ...``.

Here is its text and structure; what the keys mean together is in ``grid_rules.py``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pytest_redline.claim_rules import LITERALS, MIX_WAYS, REWEIGHTING
from pytest_redline.complaints import Complaints, KeyPath, suggest
from pytest_redline.grid import Grid
from pytest_redline.grid_rules import STAND_INS, Budgets, Rules
from pytest_redline.grid_schema import (
    ClustersModel,
    CostModel,
    GridModel,
    GroupsModel,
    LooksModel,
    MixModel,
    NoiseFloorModel,
    PopulationModel,
    PromptsModel,
    RiskModel,
    SampleModel,
    ServingModel,
    SliceModel,
    SpendingModel,
    StoppingModel,
    WeightsModel,
)
from pytest_redline.located_yaml import read
from pytest_redline.source_schema import CorrectModel, OutcomesModel, SourceModel
from pytest_redline.text import on_one_line

_MOST_REPAIRS = 10
_LATER_SOURCES = {"logs", "server"}


ANY_ALPHA = 0.5  # where a grid may leave alpha to the command line or the ini file, and nothing depends on it


def load_grid(
    path: Path,
    *,
    alpha: float | None = None,
    delta: float | None = None,
    ini_alpha: float | None = None,
    ini_delta: float | None = None,
    deploy_only: bool = False,
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
    deploy_only
        Serve only what decides which configuration to deploy.

    Raises
    ------
    GridError
        With one problem per mistake, in the order of the file's lines.
    """
    complaints = Complaints(path)
    model = _Reader(complaints).parse()
    budgets = Budgets(alpha, delta, ini_alpha, ini_delta)
    grid = None if model is None else Rules(complaints).build(model, budgets, deploy_only)
    if grid is None:
        raise complaints.error()
    return grid


class _Reader:
    """Text to model; what is faulty is complained about and left out, so that the rest is still checked."""

    def __init__(self, complaints: Complaints) -> None:
        self.complaints = complaints

    def parse(self) -> GridModel | None:
        """Text to model; None when there is nothing to check further."""
        try:
            self.complaints.content = self.complaints.path.read_bytes()
            text = self.complaints.content.decode("utf-8-sig")
        except OSError as error:
            self.complaints.complain((), f"cannot be read ({error.strerror or error})")
            return None
        except UnicodeDecodeError as error:
            self.complaints.complain((), f"not UTF-8 at byte {error.start}; save the file as UTF-8")
            return None
        try:
            self.complaints.located = read(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self.complaints.complain((), f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else 1)
            return None
        except (yaml.YAMLError, RecursionError) as error:
            self.complaints.complain((), f"not YAML: {str(error).splitlines()[0]}")
            return None
        for line, path, problem in self.complaints.located.problems:
            self.complaints.complain(path, problem, line)
        data = self.complaints.located.data
        # What could not be read is left out, and nothing more is said of it.
        self.complaints.tainted.update(
            path for _, path, _ in self.complaints.located.problems if path and _value(data, path) is None
        )
        if not isinstance(data, dict):
            found = "nothing" if data is None else f"a {type(data).__name__}"
            self.complaints.complain((), f"found {found}; a grid file is a map of keys such as name, source, reference")
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
                self.complaints.tainted.update(faulty)
                for path in faulty:
                    _remove(data, path)
                for key, stand_in in STAND_INS.items():
                    if (key,) in self.complaints.tainted:
                        data[key] = stand_in
        return None

    def check_values(self, value: Any, path: KeyPath) -> None:
        """Numbers that are no numbers, and characters that could pass for more output, may stand nowhere."""
        if isinstance(value, dict):
            for key, inner in value.items():
                if not on_one_line(key):
                    self.complaints.complain(path, f"the key {key!r} holds a control character; remove it")
                self.check_values(inner, (*path, key))
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                self.check_values(inner, (*path, index))
        elif isinstance(value, str) and not on_one_line(value):
            self.complaints.complain(path, f"{value[:40]!r} holds a control character or line break; remove it")
        elif _is_odd_number(value):
            self.complaints.complain(path, f"found {value}; a finite number is needed")

    def translate(self, error: ValidationError) -> list[KeyPath]:
        """Say pydantic's complaints in the words of the file; returns what must be left out to go on."""
        faulty = []
        for fault in error.errors():
            path = _data_path(self.complaints.located.data, fault["loc"])
            kind, found = fault["type"], fault["input"]
            faulty.append(path[:-1] if kind == "missing" and len(path) > 1 else path)
            if kind == "missing":
                self.complaints.complain(path, "required key is missing")
            elif kind == "extra_forbidden":
                self.complaints.complain(path, self.unknown_key(path))
            elif not _is_odd_number(found):  # those are already said by check_values
                self.complaints.complain(path, f"found {_shown(found)}; {_allowed(fault)}")
        return faulty

    def unknown_key(self, path: KeyPath) -> str:
        key = str(path[-1])
        if path[:-1] == ("source",) and key in _LATER_SOURCES:
            return f"source {key!r} is not part of this version; outcomes and engine are"
        if path[:-1] == () and key in REWEIGHTING:
            return f"unknown key; {MIX_WAYS}"
        place = (*path[:1], "*") if path[:1] == ("risks",) else path[:-1]
        if place not in _MODELS:
            return "unknown key"
        names = sorted(_MODELS[place].model_fields)
        return f"unknown key; {suggest(key, names) or 'allowed are ' + ', '.join(names)}"


def _data_path(data: Any, location: KeyPath) -> KeyPath:
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


def _value(data: Any, path: KeyPath) -> Any:
    """Value at a path, None where there is none."""
    for part in path:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _remove(data: Any, path: KeyPath) -> None:
    for part in path[:-1]:
        if isinstance(data, list) or (isinstance(data, dict) and isinstance(data.get(part), list)):
            break  # taking one item out would move the others: the whole list goes
        data = data.get(part) if isinstance(data, dict) else None
    else:
        part = path[-1]
    if isinstance(data, dict):
        data.pop(part, None)


_MODELS: Mapping[KeyPath, type[BaseModel]] = {
    (): GridModel,
    ("prompts",): PromptsModel,
    ("prompts", "sample"): SampleModel,
    ("prompts", "slice"): SliceModel,
    ("delta",): SpendingModel,
    ("weights",): WeightsModel,
    ("cost",): CostModel,
    ("source",): SourceModel,
    ("source", "outcomes"): OutcomesModel,
    ("source", "outcomes", "columns", "correct"): CorrectModel,
    ("serving",): ServingModel,
    ("groups",): GroupsModel,
    ("risks", "*"): RiskModel,
    ("population",): PopulationModel,
    ("clusters",): ClustersModel,
    ("mix",): MixModel,
    ("stopping",): StoppingModel,
    ("stopping", "looks"): LooksModel,
    ("noise_floor",): NoiseFloorModel,
}  # every closed map of a grid file


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _allowed(fault: Any) -> str:
    """What a value should have been."""
    context = fault.get("ctx", {})
    words = {
        "float_type": "a number is needed",
        "int_type": "the whole number 1 is allowed"  # the version of the format, the only one there is
        if fault["loc"] == ("redline",)
        else "a whole number is needed",
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
        "greater_than_equal": f"at least {context.get('ge')} is needed",
        "less_than_equal": f"at most {context.get('le')} is allowed",
        "literal_error": "a number over 0, or unknown, is needed"
        if context.get("expected") == "'unknown'"
        else f"{context.get('expected')} is allowed{LITERALS.get((fault['loc'][0], fault['loc'][-1]), '')}",
        "string_pattern_mismatch": f"text that matches {context.get('pattern')} is needed",
    }
    return str(words.get(fault["type"], fault["msg"]))
