"""The statement: everything that is claimed, fixed before the data, and what is promised about it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from pytest_redline.certificate_schema import PromptSet, StatedConfiguration, StatedGroups, StatedRisk, Statement
from pytest_redline.claims import Risk
from pytest_redline.grid import Grid
from pytest_redline.outcomes import Outcomes


def state(
    grid: Grid, outcomes: Outcomes, content: str | None = None, checkpoints: Mapping[str, str] | None = None
) -> Statement:
    """The statement and its hash: all that was fixed before the data, and nothing of the outcomes.

    ``content`` is a hash of what the prompts say and what answers are expected, ``checkpoints`` holds hashes of the
    models that are served, where these are known.
    """
    claim = Statement(
        hash="",
        prompts=PromptSet(
            n=len(outcomes.prompts),
            sha256=sha256_of(list(outcomes.prompts)),
            content=content,
            sample=grid.sample._asdict() if grid.sample else None,
            population=grid.population,
        ),
        grader=grid.grader,
        reference=grid.reference,
        configurations=[StatedConfiguration(label=each.label, knobs=dict(each.knobs)) for each in grid.configurations],
        alpha=grid.alpha,
        delta=grid.delta,
        groups=StatedGroups(by=grid.groups.by, alpha=dict(grid.groups.alpha), sha256=sha256_of(list(outcomes.groups)))
        if grid.groups and outcomes.groups
        else None,
        checkpoints=dict(checkpoints or {}),
        risks=[StatedRisk(**asdict(risk)) for risk in grid.risks],
    )
    return claim.model_copy(update={"hash": sha256_of(claim.model_dump(mode="json", exclude={"hash"}))})


def promise(statement: Statement) -> str:
    """What a certificate promises, on what assumption."""
    budget = "its budget" if statement.groups and statement.groups.alpha else repr(statement.alpha)
    risks = [Risk(**risk.model_dump()) for risk in statement.risks]
    others = "".join(f", nor {risk.name} risk above {risk.alpha!r} ({risk.words})" for risk in risks)
    share = 100 * (1 - Decimal(repr(statement.delta)))
    return (
        f"If these {statement.prompts.n:,} prompts are an independent random draw from {statement.prompts.population}, "
        f"then in at least {share.normalize():f} % of such draws (of prompts and decoding randomness) no "
        f"configuration marked certified has joint risk above {budget} there{others}, for statement "
        f"{statement.hash[:12]} fixed before the outcomes."
    )


def canonical(value: Any) -> bytes:
    """The one byte string that stands for a JSON value in hashes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def sha256_of(value: Any) -> str:
    """Hash of a JSON value."""
    return hashlib.sha256(canonical(value)).hexdigest()
