"""Rotary positions as ``config.json`` has them: beside the other keys, in ``rope_parameters`` or ``rope_scaling``.

Newer versions of transformers write both numbers into ``rope_parameters`` and prefer those to the older keys, which
older versions and the published code read. Where the two differ, the file means one model to one reader and another to
the next, so it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redline_engine.models.settings import Settings

_GROUPS = ("rope_parameters", "rope_scaling")
_KINDS = ("rope_type", "type")
_READ = (*_KINDS, "rope_theta", "partial_rotary_factor")


def rope_theta(found: Settings) -> float:
    """Base of the rotary frequencies, after a complaint about every setting that would scale them."""
    for name in _GROUPS:
        _refuse_scaling(found, name)
    said = _said(found, "rope_theta")
    if not said and not found.sound(*_GROUPS):
        return 1.0  # it may stand in what cannot be read
    return found.agreed_number("rope_theta", said)


def rotary_dim(found: Settings, head_dim: int, usual: float) -> int:
    """Dimensions of a head that are rotated; `usual` is the share where nothing says it."""
    given = found.whole("rotary_dim", most=2**12) if found.given("rotary_dim") else None
    said = _said(found, "partial_rotary_factor")
    unsaid = usual if given is None else given / head_dim
    factor = found.agreed_number("partial_rotary_factor", said) if said else unsaid
    if not found.sound("head_dim", "partial_rotary_factor", "rotary_dim"):
        return head_dim
    dim = round(factor * head_dim)
    if dim % 2 or head_dim % 2 or not 0 < dim <= head_dim:
        fault = f"partial_rotary_factor {factor:g} of head_dim {head_dim} is no even number of dimensions"
        found.complain("partial_rotary_factor", fault)
        return head_dim
    if given not in (None, dim):
        fault = f"rotary_dim {given} contradicts partial_rotary_factor {factor:g} of head_dim {head_dim}"
        found.complain("rotary_dim", fault)
    if usual == 1 and dim != head_dim:
        found.complain("partial_rotary_factor", f"partial_rotary_factor {factor:g}; this family rotates whole heads")
    return dim


def _group(found: Settings, name: str) -> Mapping[str, Any]:
    value = found.values.get(name)
    return value if isinstance(value, Mapping) else {}


def _said(found: Settings, name: str) -> dict[str, Any]:
    """Everything that gives one number, by the key that holds it; what transformers prefers goes first."""
    inner = {f"{group}.{name}": _group(found, group).get(name) for group in _GROUPS}
    return {key: value for key, value in (inner | {name: found.values.get(name)}).items() if value is not None}


def _refuse_scaling(found: Settings, name: str) -> None:
    value, group = found.values.get(name), _group(found, name)
    if value is not None and not isinstance(value, Mapping):
        found.complain(name, f"{name}: {json.dumps(value)[:60]} is not allowed; it must be null or an object")
    kinds = {
        group[key] if isinstance(group[key], str) else json.dumps(group[key])[:60] for key in _KINDS if key in group
    }
    if odd := sorted(kinds - {"default", "null"}):
        found.complain(name, f"rotary scaling {', '.join(odd)}; none is implemented")
        return
    for key, each in group.items():
        if key not in _READ and each is not None:
            found.complain(name, f"{name}.{key} {json.dumps(each)[:60]}; no such rotary setting is implemented")
