"""The serving config file that a repository deploys, and which configuration of a grid it is."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from pytest_redline.grid import Configuration
from pytest_redline.located_yaml import read
from pytest_redline.paths import display

_MISSING = object()


def match_serving_file(
    file: Path, keys: Mapping[str, str], configurations: Sequence[Configuration]
) -> tuple[str | None, list[str]]:
    """Find the one configuration that equals a serving file in all mapped keys.

    Parameters
    ----------
    file
        YAML, JSON or TOML.
    keys
        Knob of the grid to key of the file; nested keys joined by dots, an exact key wins over its dotted reading.

    Returns
    -------
    label, problems
        The label and no problems, or None and why: unreadable, a key that is not there or has two values, a value that
        readers of YAML disagree on, no configuration equal (with the keys that differ from the nearest one), or several
        equal.
    """
    name = display(file)
    try:
        data, old = _load(file)
    except OSError as error:
        return None, [f"{name} cannot be read ({error.strerror or error})"]
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        return None, [f"{name} is not valid: {str(error).splitlines()[0]}"]
    values = {knob: _value(data, key) for knob, key in keys.items()}
    unclear = _unclear(name, data, old, list(dict.fromkeys(keys.values())))
    unknown = [
        f"keys.{knob}: no configuration has the knob {knob!r}"
        for knob in keys
        if not any(knob in configuration.knobs for configuration in configurations)
    ]
    if unclear or unknown:
        return None, unclear + unknown
    differing = {
        configuration.label: [
            knob for knob in keys if not _equal(configuration.knobs.get(knob, _MISSING), values[knob])
        ]
        for configuration in configurations
    }
    equal = [label for label, knobs in differing.items() if not knobs]
    if len(equal) == 1:
        return equal[0], []
    if equal:
        return None, [f"{name} equals {' and '.join(equal)} in all mapped keys; map a key that tells them apart"]
    apart = {knob: _distances(values[knob], [each.knobs.get(knob) for each in configurations]) for knob in keys}
    ranks = [
        (len(differing[each.label]), sum(apart[knob][row] for knob in differing[each.label]))
        for row, each in enumerate(configurations)
    ]
    nearest = configurations[ranks.index(min(ranks))]
    details = []
    for knob in differing[nearest.label]:
        found, declared = values[knob], nearest.knobs.get(knob, _MISSING)
        details.append(f"{keys[knob]} is {_named(found, declared)}, {nearest.label} has {_named(declared, found)}")
    return None, [
        f"{name} equals no configuration of this grid, so nothing would judge what is deployed; nearest is "
        f"{nearest.label}: {'; '.join(details)}; declare the deployed values as a configuration, or deploy "
        f"{_choice(configurations, list(keys))}"
    ]


def _unclear(name: str, data: Any, old: Any, keys: Sequence[str]) -> list[str]:
    """Name the keys that are not there, have two values, or are read differently by the two versions of YAML."""
    problems = []
    for key in keys:
        readings = _readings(data, key)
        other = next((each for each in readings[1:] if not _equal(each, readings[0])), _MISSING)
        before = _value(old, key)
        if not readings:
            problems.append(f"{name} has no key {key!r}")
        elif other is not _MISSING:
            problems.append(f"{name} holds {key!r} twice: {readings[0]!r} and {other!r}; keep one of the two")
        elif repr(before) != repr(readings[0]):
            problems.append(
                f"{name}: {key!r} is read as {_named(before, None)} by YAML 1.1 and as {_named(readings[0], None)} by "
                "YAML 1.2; write it so that both agree"
            )
    return problems


def _choice(configurations: Sequence[Configuration], knobs: Sequence[str]) -> str:
    """What may be deployed as it is: the values of the one mapped knob, or the configurations."""
    if len(knobs) > 1:
        return f"the values of one of: {', '.join(configuration.label for configuration in configurations)}"
    declared = [configuration.knobs[knobs[0]] for configuration in configurations if knobs[0] in configuration.knobs]
    return f"one of: {', '.join(dict.fromkeys(map(repr, declared)))}"


def _named(value: Any, other: Any) -> str:
    """Value as messages show it; a text is called one where the other value is none, since they may look the same."""
    if value is _MISSING:
        return "none"
    if value is None:
        return "null"
    return f"the text {value!r}" if isinstance(value, str) and not isinstance(other, str) else repr(value)


def _distances(found: Any, declared: Sequence[Any]) -> list[float]:
    """How far each declared value is from the one found, as a share of the farthest; 2 where they are no numbers."""
    apart = [abs(_number(found) - _number(value)) for value in declared]
    farthest = max((each for each in apart if each < math.inf), default=0.0) or 1.0
    return [each / farthest if each < math.inf else 2.0 for each in apart]


def _number(value: Any) -> float:
    """Value as a number, also where a text spells one; NaN for anything else."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _load(file: Path) -> tuple[Any, Any]:
    """Content of the file, and how readers of YAML 1.1, which many engines still are, would read it."""
    content = file.read_bytes()
    suffix = file.suffix.lower()
    if suffix in (".toml", ".json"):
        toml = suffix == ".toml"
        data = tomllib.loads(content.decode()) if toml else json.loads(content, object_pairs_hook=_distinct)
        return data, data
    located = read(content.decode())
    if located.problems:
        line, path, text = located.problems[0]
        raise ValueError(f"line {line} {'.'.join(map(str, path))}: {text}")
    try:
        return located.data, yaml.safe_load(content)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"readers of YAML 1.1 refuse it ({str(error).splitlines()[0]})") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different, as in YAML and TOML."""
    data = dict(pairs)
    if len(data) < len(pairs):
        doubled = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"doubled key {doubled!r}")
    return data


def _readings(data: Any, key: str) -> list[Any]:
    """All values at a key: that of the exact key, then those of its dotted readings."""
    if not isinstance(data, Mapping):
        return []
    found = [data[key]] if key in data else []
    for split in range(len(key) - 1, 0, -1):
        if key[split] == "." and key[:split] in data:
            found += _readings(data[key[:split]], key[split + 1 :])
    return found


def _value(data: Any, key: str) -> Any:
    return next(iter(_readings(data, key)), _MISSING)


def _equal(left: Any, right: Any) -> bool:
    """Equality in which 0.85 equals 0.850 and 1 equals 1.0, but true is not 1 and "1" is not 1."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
