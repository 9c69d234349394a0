"""YAML read as YAML 1.2, with the line of every key, and no silent surprises.

PyYAML alone follows YAML 1.1: ``1e-1`` would be text, ``no`` a boolean, ``1:30`` ninety, and the second of two equal
keys would win. Here scalars follow the core schema of YAML 1.2 (section 10.3) and doubled keys are errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

_MOST_VALUES = 200_000  # nested aliases grow exponentially
_DEEPEST = 100  # far beyond any grid or serving file, well within what everything that walks the data can take
_PREFIX = "tag:yaml.org,2002:"
_PLAIN_TAGS = {
    yaml.ScalarNode: {"str", "null", "bool", "int", "float"},
    yaml.SequenceNode: {"seq"},
    yaml.MappingNode: {"map"},
}


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema instead of YAML 1.1's."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = node.value
    value = int(text, 8) if text.startswith("0o") else int(text, 16) if text.startswith("0x") else int(text)
    if value.bit_length() > 1000:
        raise ValueError("too large a number")  # no float holds it, and much larger ones cannot even be printed
    return value


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(re.sub(r"\.(?=(?:inf|nan)$)", "", node.value.lower()))


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


@dataclass
class LocatedYaml:
    """Plain data, the line of each of its keys, and what was wrong with the text itself.

    Attributes
    ----------
    data
        dict, list, str, int, float, bool and None only.
    lines
        Path of a value ("configurations", "acc85") to the 1-based line of its key (of the item itself in a list).
    problems
        ``(line, path, text)`` of doubled or non-text keys and unreadable values; the data then holds what is left.
    """

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[tuple[int, Path, str]] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Line of a path, or of its nearest parent that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read(text: str) -> LocatedYaml:
    """Read one YAML document.

    Raises
    ------
    yaml.YAMLError
        When the text is not one YAML document; ``problem_mark`` has the line.
    """
    loader = _Loader(text)
    result = LocatedYaml()
    try:
        node = loader.get_single_node()
        if node is not None:
            result.data = _Converter(loader, result).convert(node, ())
    finally:
        loader.dispose()
    return result


class _Converter:
    """Walks the node graph once, noting lines and problems."""

    def __init__(self, loader: _Loader, result: LocatedYaml) -> None:
        self.loader, self.result = loader, result
        self.open: set[int] = set()  # nodes being converted: meeting one again is an alias to its own parent
        self.converted = 0

    def complain(self, node: yaml.Node, path: Path, text: str) -> None:
        self.result.problems.append((_line(node), path, text))

    def convert(self, node: yaml.Node, path: Path) -> Any:
        self.converted += 1
        if self.converted > _MOST_VALUES:
            raise yaml.MarkedYAMLError(
                problem=f"over {_MOST_VALUES:,} values once aliases are written out", problem_mark=node.start_mark
            )
        if len(path) > _DEEPEST:
            raise yaml.MarkedYAMLError(problem=f"nested over {_DEEPEST} deep", problem_mark=node.start_mark)
        if not self.is_plain(node, path):
            return None
        if id(node) in self.open:
            self.complain(node, path, "an alias that contains itself; write the value out")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self.item(value, (*path, index)) for index, value in enumerate(node.value)]
            return self.scalar(node, path)
        finally:
            self.open.discard(id(node))

    def item(self, node: yaml.Node, path: Path) -> Any:
        self.result.lines[path] = _line(node)
        return self.convert(node, path)

    def is_plain(self, node: yaml.Node, path: Path) -> bool:
        """Has a node no tag but those of plain values; complains of others, as nothing here would obey them."""
        plain = node.tag.removeprefix(_PREFIX) in _PLAIN_TAGS[type(node)]
        if not plain:
            self.complain(node, path, f"tag {node.tag!r} is not allowed; write plain values")
        return plain

    def scalar(self, node: yaml.Node, path: Path) -> Any:
        try:
            return self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self.complain(node, path, f"{node.value[:40]!r} cannot be read ({str(error).splitlines()[0]})")
            return None

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        first_line: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                for part in self.merged_parts(value_node, path):
                    merged = {**part, **merged}
                continue
            key = self.key(key_node, path)
            if key is None:
                continue
            inner, line = (*path, key), _line(key_node)
            if key in first_line:
                self.result.problems.append((line, inner, f"doubled key; it already stands on line {first_line[key]}"))
                continue
            first_line[key] = self.result.lines[inner] = line
            data[key] = self.convert(value_node, inner)
        return {**merged, **data}

    def merged_parts(self, node: yaml.Node, path: Path) -> Iterator[dict[str, Any]]:
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            value = self.convert(part, path)
            if isinstance(value, dict):
                yield value
            else:
                self.complain(part, path, "'<<' takes a map or a list of maps")

    def key(self, node: yaml.Node, path: Path) -> str | None:
        if isinstance(node, yaml.ScalarNode):
            if not self.is_plain(node, path):
                return None
            value = self.scalar(node, path)
            if isinstance(value, str):
                return value
            self.complain(
                node,
                (*path, node.value),
                f"the key {node.value!r} is read as {value!r}, not as text; rename or quote it",
            )
            return None
        self.complain(node, path, "a key must be plain text")
        return None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
