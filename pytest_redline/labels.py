"""Labels of configurations: how they are made from knobs, and what they may look like."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

_ALLOWED = re.compile(r"[\w.+/-]+")
_READ_AS_OTHER = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})  # YAML 1.1 words
_PERCENT = {"accept_threshold": "acc", "semi_complete_threshold": "semi"}
_SHORT = {"buffer_size": "buf", "block_size": "block"}
_VALUE_ALONE = frozenset({"checkpoint", "weights"})


def label_problem(label: str) -> str | None:
    """Say why a text cannot be a label, or None.

    A label is part of a test id (``FILE::LABEL``) and is selected on a command line, so blanks, colons and brackets
    are out; words that many YAML readers turn into booleans are out in any spelling.
    """
    if label.lower() in _READ_AS_OTHER:
        return f"{label!r} cannot name a configuration, as many YAML readers take it for true, false or null; rename it"
    if not _ALLOWED.fullmatch(label):
        return f"{label!r} cannot name a configuration; letters, digits and . _ + / - are allowed"
    if label != label.strip("/") or "//" in label:
        return f"{label!r} cannot name a configuration; a / stands between two names"
    return None


def label_of(knobs: Mapping[str, Any]) -> str:
    """Make a label from knobs: ``acc85/semi70/add0.10``, in the order of the knobs.

    Thresholds that are whole percents are written as such (the paper's notation, tables 4 and 8 to 13).

    >>> label_of({"accept_threshold": 0.85, "semi_complete_threshold": 0.7, "add_block_threshold": 0.1})
    'acc85/semi70/add0.10'
    >>> label_of({"buffer_size": 4, "temperature": 0.5})
    'buf4/temperature0.5'
    """
    return "/".join(_part(knob, value) for knob, value in knobs.items())


def _part(knob: str, value: Any) -> str:
    if knob in _PERCENT and isinstance(value, int | float) and not isinstance(value, bool):
        return f"{_PERCENT[knob]}{value * 100:.6g}"
    if knob == "add_block_threshold" and isinstance(value, int | float) and not isinstance(value, bool):
        return f"add{value:.2f}" if round(value, 2) == value else f"add{value}"
    if knob in _VALUE_ALONE and isinstance(value, str):
        return _clean(PurePath(value.rpartition(":")[2]).name)
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return (
        _SHORT.get(knob, _clean(knob)) + ("-" if isinstance(value, str | bool) or value is None else "") + _clean(text)
    )


def _clean(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text).strip("-")
