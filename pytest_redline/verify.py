"""Checking a certificate offline, from itself alone.

A certificate holds its outcomes, so everything it says can be computed again. That proves that it is consistent and
unchanged; it does not prove who made it, nor that the outcomes were really served.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from pytest_redline.certificate import certify, digest, to_bytes
from pytest_redline.certificate_schema import Certificate, Cost
from pytest_redline.claims import Clusters, Design, JointLoss, Mix, Risk, contradictions
from pytest_redline.clusters import apportioned
from pytest_redline.errors import CertificateError, RedlineError
from pytest_redline.grid import (
    KNOWN_MEASURES,
    Columns,
    Configuration,
    CorrectColumn,
    CostMeasure,
    Drawn,
    Grid,
    Groups,
    NoiseFloor,
    RecordedSource,
    Sample,
    Serving,
    Spending,
    Weight,
)
from pytest_redline.grid_schema import NAME_PATTERN
from pytest_redline.labels import label_problem
from pytest_redline.outcomes import Outcomes, natural_key
from pytest_redline.packing import unpack, unpack_replicate
from pytest_redline.paths import display
from pytest_redline.spending import DeclaredLooks, Stopping
from pytest_redline.statement_schema import Statement
from pytest_redline.text import on_one_line, spelled

_RESAMPLED = ("net_accuracy_interval", "gain_interval")
_RESAMPLED_SLACK = 0.1  # of an interval's width: another numpy may draw other resamples
_ROUNDING = 1e-9
# Outcomes are what everything else is computed from, and zlib may be another that compresses otherwise.
_TAKEN_AS_GIVEN = ("provenance", "outcomes", "digest", "redline_certificate")
_NAME: TypeAdapter[str] = TypeAdapter(Annotated[str, Field(pattern=NAME_PATTERN, max_length=100)])
_SURROGATE = re.compile("[\ud800-\udfff]")


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
        if hidden := _control_characters(data):
            raise _refusal(name, [f"{place}: holds a control character" for place in hidden])
        certificate = Certificate.model_validate(data)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise _refusal(name, faults) from None
    except (ValueError, RecursionError) as error:
        raise _refusal(name, [f"not a certificate ({_reason(error)})"]) from None
    problems = []
    try:
        if digest(certificate) != certificate.digest:
            problems.append("the digest is not that of the content: the certificate was changed after it was made")
        elif to_bytes(certificate) != content:
            problems.append("not the bytes that were written: the file was changed after it was made")
        problems += differences(certificate)
    except RedlineError as error:
        problems += error.problems
    except (ValueError, ArithmeticError, RecursionError) as error:  # values that no certificate was ever made from
        problems.append(f"cannot be computed again ({_reason(error)})")
    if problems:
        raise _refusal(name, problems)
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
    _check_ids(certificate, outcomes)
    again = certify(
        grid,
        outcomes,
        provenance=certificate.provenance,
        content=certificate.statement.prompts.content,
        checkpoints=certificate.statement.checkpoints,
        sharing=certificate.sharing,
        reuse=certificate.reuse,
        replicate=None
        if certificate.outcomes.replicate is None
        else unpack_replicate(certificate.outcomes.replicate, len(outcomes.prompts)),
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
    reuse = certificate.reuse
    if reuse is not None and reuse.number == 1 and not math.isclose(reuse.together, again.delta):
        found.append(f"reuse.together: says {reuse.together!r}, and a first statement holds at its own {again.delta!r}")
    recorded = certificate.provenance.versions.get("numpy", "")
    same_draws = recorded.split(".")[:2] == np.__version__.split(".")[:2]
    _compare(said, computed, "", found, 0.0 if same_draws else _RESAMPLED_SLACK)
    return found


def _check_ids(certificate: Certificate, outcomes: Outcomes) -> None:
    """Refuse prompts and groups that no source hands over."""
    prompts = outcomes.prompts
    if any(not prompt.strip() or _SURROGATE.search(prompt) for prompt in prompts):
        raise CertificateError("outcomes.prompts: an id is blank or holds half a character")
    if list(prompts) != sorted(prompts, key=natural_key):
        raise CertificateError("outcomes.prompts: not in natural order")
    for what, names in (("group", outcomes.groups), ("cluster", outcomes.clusters)):
        if not all(on_one_line(name) for name in set(names or ())):
            raise CertificateError(f"outcomes.{what}s: the name of a {what} holds a control character")
    if (certificate.statement.loss is None) != (outcomes.scores is None):
        raise CertificateError("outcomes.scores: not as the statement says")
    drawn = certificate.statement.prompts
    if drawn.shares and Counter(outcomes.groups or ()) != apportioned(drawn.n, drawn.shares):
        raise CertificateError("statement.prompts.shares: not those of the groups")
    clusters = certificate.statement.clusters
    if (clusters is None) != (outcomes.clusters is None):
        raise CertificateError("outcomes.clusters: not as the statement says")
    if clusters and clusters.remedy == "one_per_cluster" and len(set(outcomes.clusters or ())) < len(prompts):
        raise CertificateError("outcomes.clusters: a cluster has more than one prompt")


def _claims(statement: Statement) -> dict[str, Any]:
    """Further claims as fields of a grid; refuses what no grid file can state."""
    design, clusters, loss, mix = statement.prompts.design, statement.clusters, statement.loss, statement.mix
    made: dict[str, Any] = {
        "risks": tuple(Risk(**risk.model_dump()) for risk in statement.risks),
        "design": Design(design.kind, design.pool) if design else None,
        "clusters": Clusters(clusters.by, clusters.remedy, clusters.test, clusters.seed) if clusters else None,
        "loss": JointLoss(**loss.model_dump()) if loss else None,
    }
    shares = mix.shares if mix else statement.prompts.shares
    if wrong := contradictions(**made, shares=shares, delta=statement.delta):
        raise CertificateError([f"statement.{each}" for each in wrong])
    return {**made, "mix": Mix(mix.shares) if mix else None}


def _grid(certificate: Certificate) -> Grid:
    """The grid that a certificate states; refuses what no grid file can state."""
    statement, cost = certificate.statement, certificate.cost
    rows = {row.label: row for row in certificate.configurations}
    labels = [each.label for each in statement.configurations]
    if sorted(rows) != sorted(labels) or len(labels) != len(certificate.configurations) or len(set(labels)) < 2:
        raise CertificateError("configurations: not those of the statement")
    for name, label in (("reference", statement.reference), ("serving", certificate.serving)):
        if label is not None and label not in rows:
            raise CertificateError(f"{name}: {label!r} is not one of the configurations")
    try:
        _NAME.validate_python(certificate.name)
    except ValidationError:
        raise CertificateError(f"name: {certificate.name!r} cannot name a grid") from None
    for label in labels:
        if problem := label_problem(label):
            raise CertificateError(f"configurations: {problem}")
    reuse = certificate.reuse
    if reuse is not None and (reuse.counted < len(labels) or reuse.together < certificate.delta * (1 - _ROUNDING)):
        raise CertificateError("reuse: counts fewer configurations, or holds together at less, than this grid alone")
    lossless = set(statement.lossless)
    if len(lossless) < len(statement.lossless) or not lossless <= set(labels) - {statement.reference}:
        raise CertificateError("statement.lossless: not different candidates of the statement")
    if lossless and certificate.noise_floor is None:
        raise CertificateError("noise_floor: is missing, though the statement names lossless configurations")
    if certificate.noise_floor is not None and certificate.noise_floor.label in rows:
        raise CertificateError(f"noise_floor.label: {certificate.noise_floor.label!r} is one of the configurations")
    sample = statement.prompts.sample
    if sample is not None and (sample.keys() != {"n", "seed"} or sample["n"] != statement.prompts.n):
        raise CertificateError("statement.prompts.sample: not a draw of these prompts")
    if (statement.spending or statement.weight) and reuse is None:
        raise CertificateError("reuse: is missing, and says which statement this is")
    weight = statement.weight
    if weight is not None and (weight.label != certificate.serving or reuse is None or not reuse.before):
        raise CertificateError("statement.weight: not on what is served, or not fixed before the outcomes")
    part = statement.prompts.slice
    if part is not None and (part.pool < statement.prompts.n or sample is not None):
        raise CertificateError("statement.prompts.slice: not a part of its pool")
    measure = None if cost is None else _measure(cost)
    if measure is not None and rows[statement.reference].cost is None:
        raise CertificateError(f"configurations[{statement.reference}].cost: is missing, and is the reference's")
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
    wanted = [] if measure is None or measure.declared else list(measure.measures)
    wanted += [risk.measure for risk in statement.risks]
    if missing := [name for name in dict.fromkeys(wanted) if name not in certificate.outcomes.measures]:
        raise CertificateError(f"outcomes.measures: {', '.join(missing)} is missing")
    made = _claims(statement)
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
        sample=None if sample is None else Sample(sample["n"], sample["seed"], statement.prompts.shares),
        spending=Spending(statement.delta, statement.spending.gates) if statement.spending else None,
        weight=Weight(**weight.model_dump()) if weight else None,
        drawn=Drawn(**part.model_dump()) if part else None,
        serving=Serving(certificate.serving) if certificate.serving else None,
        groups=Groups(statement.groups.by, statement.groups.alpha) if statement.groups else None,
        stopping=_stopping(certificate),
        deploy_only=certificate.spent is not None and certificate.spent.deploy_only,
        noise_floor=NoiseFloor(certificate.noise_floor.label) if certificate.noise_floor else None,
        lossless=tuple(statement.lossless),
        grader=statement.grader,
        **made,
    )


def _stopping(certificate: Certificate) -> Stopping | None:
    """The rules by which a certificate says that not everything was served."""
    spent, looks = certificate.spent, certificate.statement.looks
    if spent is None:
        return None
    return Stopping(
        spent.curtail,
        DeclaredLooks(tuple(looks.sizes), early=looks.early) if looks else None,
        spent.candidates == "where_reference_right",
        spent.every,
    )


def _measure(cost: Cost) -> CostMeasure:
    """The measure that a certificate states; refuses one that is not what its name stands for."""
    numerator, _, denominator = (part.strip() or None for part in cost.name.partition("/"))
    known = KNOWN_MEASURES.get(cost.name)
    named = known or CostMeasure(cost.name, cost.better, "ratio_of_sums", numerator, denominator)
    if cost.declared:
        named = replace(named, numerator=None, denominator=None, declared=True)
    elif named.numerator is None:
        raise CertificateError(f"cost.name: {cost.name!r} names no measure")
    else:
        named = replace(named, pool=cost.pool)
    stated = CostMeasure(**cost.model_dump())
    wrong = [
        f"cost.{key}: says {getattr(stated, key)!r}, {cost.name} has {getattr(named, key)!r}"
        for key in ("better", "pool", "numerator", "denominator")
        if getattr(stated, key) != getattr(named, key)
    ]
    if wrong:
        raise CertificateError(wrong)
    return stated


def _compare(said: Any, computed: Any, path: str, found: list[str], share: float) -> None:
    """Note every difference; bounds of a resampled interval may differ by this share of its width."""
    if isinstance(said, dict) and isinstance(computed, dict):
        for key in [*said, *(key for key in computed if key not in said)]:
            inner = f"{path}.{key}" if path else key
            if key not in said or key not in computed:
                found.append(f"{inner}: {'is missing' if key not in said else 'does not follow from the outcomes'}")
            elif key in _RESAMPLED and said[key] is not None and computed[key] is not None:
                low, high = computed[key]
                slack = share * (high - low) + _ROUNDING * max(1, abs(low), abs(high))
                if any(abs(left - right) > slack for left, right in zip(said[key], computed[key], strict=True)):
                    found.append(f"{inner}: says {said[key]}, the outcomes give {computed[key]}")
            else:
                _compare(said[key], computed[key], inner, found, share)
    elif isinstance(said, list) and isinstance(computed, list) and len(said) == len(computed):
        for index, (left, right) in enumerate(zip(said, computed, strict=True)):
            name = left.get("label", left.get("name")) if isinstance(left, dict) else None
            _compare(left, right, f"{path}[{name or index}]", found, share)
    elif isinstance(said, float) and isinstance(computed, float):
        if not math.isclose(said, computed, rel_tol=_ROUNDING, abs_tol=1e-300):
            found.append(f"{path}: says {said!r}, the outcomes give {computed!r}")
    elif type(said) is not type(computed) or said != computed:
        found.append(f"{path}: says {_short(said)}, the outcomes give {_short(computed)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _control_characters(data: Any) -> list[str]:
    """Where JSON data holds a control character, in keys as well."""
    found, pending = [], [("", data)]
    while pending:  # no recursion: data may be nested as deeply as it can be read
        place, value = pending.pop()
        if isinstance(value, dict):
            for key, each in value.items():
                inner = f"{place}.{key}" if place else key
                pending += [(inner, key), (inner, each)]
        elif isinstance(value, list):
            pending += [(f"{place}[{index}]", each) for index, each in enumerate(value)]
        elif isinstance(value, str) and not on_one_line(value):
            found.append(place)
    return found[::-1]


def _refusal(name: str, problems: Sequence[str]) -> CertificateError:
    """The error of a file: one line for each problem, whatever stands in the certificate."""
    return CertificateError([spelled(f"{name}: {problem}") for problem in problems])


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")
