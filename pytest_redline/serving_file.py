"""The serving config file that a repository deploys, and which configuration of a grid it is."""

from __future__ import annotations

import json
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
        The label and no problems, or None and why: unreadable, a key that is not there, no configuration equal
        (with the keys that differ from the nearest one), or several equal.
    """
    try:
        data = _load(file)
    except OSError as error:
        return None, [f"{display(file)} cannot be read ({error.strerror or error})"]
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        return None, [f"{display(file)} is not valid: {str(error).splitlines()[0]}"]
    values = {knob: _lookup(data, key) for knob, key in keys.items()}
    missing = [f"{display(file)} has no key {keys[knob]!r}" for knob, value in values.items() if value is _MISSING]
    unknown = [
        f"keys.{knob}: no configuration has the knob {knob!r}"
        for knob in keys
        if not any(knob in configuration.knobs for configuration in configurations)
    ]
    if missing or unknown:
        return None, missing + unknown
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
        return None, [
            f"{display(file)} equals {' and '.join(equal)} in all mapped keys; map a key that tells them apart"
        ]
    nearest = min(configurations, key=lambda configuration: len(differing[configuration.label]))
    details = "; ".join(
        f"{keys[knob]} is {values[knob]!r}, {nearest.label} has {_or_none(nearest.knobs.get(knob, _MISSING))}"
        for knob in differing[nearest.label]
    )
    return None, [
        f"{display(file)} equals no configuration of this grid, so nothing would judge what is deployed; "
        f"nearest is {nearest.label}: {details}; declare the deployed values as a configuration"
    ]


def _or_none(value: Any) -> str:
    return "none" if value is _MISSING else repr(value)


def _load(file: Path) -> Any:
    content = file.read_bytes()
    if file.suffix == ".toml":
        return tomllib.loads(content.decode())
    if file.suffix == ".json":
        return json.loads(content, object_pairs_hook=_distinct)
    located = read(content.decode())
    if located.problems:
        line, path, text = located.problems[0]
        raise ValueError(f"line {line} {'.'.join(map(str, path))}: {text}")
    return located.data


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys are all different, as in YAML and TOML."""
    data = dict(pairs)
    if len(data) < len(pairs):
        doubled = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ValueError(f"doubled key {doubled!r}")
    return data


def _lookup(data: Any, key: str) -> Any:
    """Value at a key: exact first, then one level at a time."""
    if not isinstance(data, Mapping):
        return _MISSING
    if key in data:
        return data[key]
    for split in range(len(key) - 1, 0, -1):
        if key[split] == "." and key[:split] in data:
            found = _lookup(data[key[:split]], key[split + 1 :])
            if found is not _MISSING:
                return found
    return _MISSING


def _equal(left: Any, right: Any) -> bool:
    """Equality in which 0.85 equals 0.850 and 1 equals 1.0, but true is not 1 and "1" is not 1."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
