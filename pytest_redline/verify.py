"""Checking a certificate offline, from itself alone.

A certificate holds its outcomes, so everything it says can be computed again. That proves that it is consistent and
unchanged; it does not prove who made it, nor that the outcomes were really served.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_redline.certificate import certify, digest, to_bytes
from pytest_redline.certificate_schema import Certificate
from pytest_redline.errors import CertificateError, RedlineError
from pytest_redline.grid import (
    Columns,
    Configuration,
    CorrectColumn,
    CostMeasure,
    Grid,
    Groups,
    RecordedSource,
    Sample,
    Serving,
)
from pytest_redline.packing import unpack
from pytest_redline.paths import display

_RESAMPLED = ("net_accuracy_interval", "gain_interval")
_RESAMPLED_SLACK = 0.1  # of an interval's width: another numpy may draw other resamples
_ROUNDING = 1e-9
_TAKEN_AS_GIVEN = ("provenance", "digest", "redline_certificate")


def verify(path: Path) -> Certificate:
    """Read a certificate and compute everything in it again.

    Raises
    ------
    CertificateError
        The file cannot be read, is no certificate, differs in any byte from what was written, or says anything that
        does not follow from its own outcomes.
    """
    name = display(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{name}: cannot be read ({error.strerror or error})") from None
    try:
        data = json.loads(content, parse_constant=_refuse_constant)
        certificate = Certificate.model_validate(data)
    except ValidationError as error:
        raise CertificateError(
            [f"{name}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        ) from None
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"{name}: not a certificate ({str(error).splitlines()[0]})") from None
    problems = []
    try:
        if digest(certificate) != certificate.digest:
            problems.append(
                f"{name}: the digest is not that of the content: the certificate was changed after it was made"
            )
        elif to_bytes(certificate) != content:
            problems.append(f"{name}: not the bytes that were written: the file was changed after it was made")
        problems += [f"{name}: {problem}" for problem in differences(certificate)]
    except RedlineError as error:
        problems += [f"{name}: {problem}" for problem in error.problems]
    except (ValueError, ArithmeticError) as error:  # numbers that no certificate was ever made from
        problems.append(f"{name}: cannot be computed again ({str(error).splitlines()[0]})")
    if problems:
        raise CertificateError(problems)
    return certificate


def differences(certificate: Certificate) -> list[str]:
    """Everything that a certificate says and its own outcomes do not.

    Raises
    ------
    RedlineError
        The outcomes cannot be unpacked, or could never have been certified.
    """
    grid = _grid(certificate)
    outcomes = unpack(certificate.outcomes, grid.labels)
    again = certify(
        grid,
        outcomes,
        provenance=certificate.provenance,
        content=certificate.statement.prompts.content,
        sharing=certificate.sharing,
        intervals=bool(certificate.bootstrap),
    )
    said, computed = certificate.model_dump(mode="json"), again.model_dump(mode="json")
    for key in _TAKEN_AS_GIVEN:
        del said[key], computed[key]
    found = [
        f"warnings: {warning!r} is missing"
        for warning in computed.pop("warnings")
        if warning not in said.get("warnings", [])
    ]
    del said["warnings"]
    if certificate.sharing is not None:
        charged = int(outcomes.measures["forwards"].sum()) if "forwards" in outcomes.measures else 0
        if certificate.sharing.forwards_charged != charged:
            found.append(
                f"sharing.forwards_charged: says {certificate.sharing.forwards_charged}, outcomes give {charged}"
            )
    _compare(said, computed, "", found)
    return found


def _grid(certificate: Certificate) -> Grid:
    """The grid that a certificate states."""
    statement, cost = certificate.statement, certificate.cost
    rows = {row.label: row for row in certificate.configurations}
    labels = [each.label for each in statement.configurations]
    if sorted(rows) != sorted(labels) or len(labels) != len(certificate.configurations) or len(set(labels)) < 2:
        raise CertificateError("configurations: not those of the statement")
    for name, label in (("reference", statement.reference), ("serving", certificate.serving)):
        if label is not None and label not in rows:
            raise CertificateError(f"{name}: {label!r} is not one of the configurations")
    measure = None if cost is None else CostMeasure(**cost.model_dump())
    configurations = tuple(
        Configuration(
            each.label,
            each.knobs,
            line=0,
            cost=rows[each.label].cost if measure is not None and measure.declared else None,
            cost_unknown=rows[each.label].cost is None,
        )
        for each in statement.configurations
    )
    if measure is not None and not measure.declared:
        if measure.numerator is None:
            raise CertificateError("cost.numerator: is missing")
        missing = [name for name in measure.measures if name not in certificate.outcomes.measures]
        if missing:
            raise CertificateError(f"outcomes.measures: {', '.join(missing)} is missing")
    return Grid(
        path=Path(certificate.provenance.grid.path if certificate.provenance.grid else certificate.name),
        name=certificate.name,
        alpha=statement.alpha,
        delta=statement.delta,
        reference=statement.reference,
        configurations=configurations,
        source=RecordedSource(None, Columns(correct=CorrectColumn(""))),
        cost=measure,
        population=statement.prompts.population,
        sample=Sample(**statement.prompts.sample) if statement.prompts.sample else None,
        serving=Serving(certificate.serving) if certificate.serving else None,
        groups=Groups(statement.groups.by, statement.groups.alpha) if statement.groups else None,
        grader=statement.grader,
    )


def _compare(said: Any, computed: Any, path: str, found: list[str]) -> None:
    if isinstance(said, dict) and isinstance(computed, dict):
        for key in [*said, *(key for key in computed if key not in said)]:
            inner = f"{path}.{key}" if path else key
            if key not in said or key not in computed:
                found.append(f"{inner}: {'is missing' if key not in said else 'does not follow from the outcomes'}")
            elif key in _RESAMPLED and said[key] is not None and computed[key] is not None:
                slack = _RESAMPLED_SLACK * (computed[key][1] - computed[key][0]) + _ROUNDING
                if any(abs(left - right) > slack for left, right in zip(said[key], computed[key], strict=True)):
                    found.append(f"{inner}: says {said[key]}, the outcomes give {computed[key]}")
            else:
                _compare(said[key], computed[key], inner, found)
    elif isinstance(said, list) and isinstance(computed, list) and len(said) == len(computed):
        for index, (left, right) in enumerate(zip(said, computed, strict=True)):
            name = left.get("label", left.get("name")) if isinstance(left, dict) else None
            _compare(left, right, f"{path}[{name or index}]", found)
    elif isinstance(said, float) and isinstance(computed, float):
        if not math.isclose(said, computed, rel_tol=_ROUNDING, abs_tol=1e-300):
            found.append(f"{path}: says {said!r}, the outcomes give {computed!r}")
    elif type(said) is not type(computed) or said != computed:
        found.append(f"{path}: says {_short(said)}, the outcomes give {_short(computed)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")
