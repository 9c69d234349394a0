"""The report for a pull request, in GitHub's markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_redline.certificate_schema import Certificate, Frontier, GroupResult, RiskResult
from pytest_redline.packing import unpack
from pytest_redline.report import words
from pytest_redline.text import spelled

_MOST_VIOLATIONS = 20  # prompts listed for each configuration
_STEP_SUMMARY_BYTES = 900_000  # GitHub drops a step's whole summary over 1 MiB


def render(certificate: Certificate) -> str:
    """Make the report of one grid."""
    return (
        "\n\n".join(
            [
                _heading(certificate),
                _table(certificate),
                *_sections(certificate),
                *_violations(certificate),
                _promise(certificate),
            ]
        )
        + "\n"
    )


def step_summary(certificates: Sequence[Certificate]) -> str:
    """Make the step summary of a session: full reports while they fit, then headings and decisions only."""
    parts: list[str] = []
    size = 0
    for certificate in certificates:
        text = render(certificate)
        if size + len(text.encode()) > _STEP_SUMMARY_BYTES:
            text = _heading(certificate) + "\n\nThe full report is too long for a step summary; see the artifact.\n"
        size += len(text.encode())
        parts.append(text)
    return "\n".join(parts)


def refused(path: str, refusal: str) -> str:
    """Make the report of a grid that cannot be judged."""
    return f"## Redline {spelled(path)}: could not be judged\n\n```text\n{refusal}\n```\n"


def _heading(certificate: Certificate) -> str:
    passed = not certificate.failing
    status = "passed" if passed else "NOT passed: " + ", ".join(f"`{label}`" for label in certificate.failing[:8])
    settings = (
        f"alpha {certificate.alpha:g}, delta {certificate.delta:g}, {certificate.n:,} prompts, "
        f"{certificate.m}{words.counted_too(certificate)} configurations, reference `{certificate.reference}`"
    )
    texts = (
        words.weight(certificate),
        words.sharing(certificate),
        words.spent(certificate),
        words.shared_costs(certificate),
    )
    shared = "".join(f"\n\n{text}" for text in texts if text)
    return f"## Redline {certificate.name}: {status}\n\n{words.decision(certificate)}\n\n{settings}{shared}"


def _table(certificate: Certificate) -> str:
    cost = f" {_code(certificate.cost.name)} |" if certificate.cost else ""
    noise = certificate.noise_floor
    served, served_rule = (" served |", "---:|") if certificate.spent else ("", "")
    compared, compared_rule = (" vs A/A |", "---:|") if noise else ("", "")
    lines = [
        f"| | configuration |{cost} gain | k/n | risk | risk at most | p | net points | gained |"
        f"{served}{compared} verdict |",
        f"|---|---|{'---:|' if cost else ''}{7 * '---:|'}{served_rule}{compared_rule}---|",
    ]
    for row in certificate.configurations:
        marks = ("fastest certified " if row.label == certificate.deployed else "") + (
            "required" if row.required else ""
        )
        against = f" {words.against_noise(certificate, row.label)} |" if noise else ""
        shown_cost = f" {words.number(row.cost)} |" if cost else ""
        gain = words.NONE if row.verdict == "reference" else words.gain(row.gain)
        lines.append(
            f"| {marks.strip()} | `{row.label}` |{shown_cost} {gain}{words.interval(row.gain_interval, 100)} | "
            f"{words.share(row.k, row.n, row.unknown)} | {words.measured(row.joint_risk, 4)} | "
            f"{words.upper(row.risk_upper_simultaneous)} | {words.p_value(row.p)} | "
            f"{words.points(row.net_accuracy)}{words.interval(row.net_accuracy_interval)} | "
            f"{_count(row.gained)} |{_served(certificate, row.label)}{against} {words.verdict(row)} |"
        )
    if noise is not None:
        lines.append(
            f"| | {_code(noise.label)} |{' |' if cost else ''} | {words.share(noise.k, noise.n)} | {noise.rate:.4f} | "
            f"| | {words.points(noise.net_accuracy)} | {noise.gained} |{' |' if served else ''} | noise floor |"
        )
    return "\n".join(lines)


def _sections(certificate: Certificate) -> list[str]:
    """What changed, what is lacking, groups, the frontier, warnings: each only where there is something to say."""
    sections = []
    row = certificate.row(certificate.serving or certificate.deployed)
    if row.changes:
        kind = "Served" if certificate.serving else "Deployed"
        changes = "\n".join(f"- `{change}`" for change in words.changed_knobs(certificate, row))
        sections.append(f"### {kind} configuration against the reference\n\n{changes}")
    for label in certificate.failing:
        text = "\n".join(words.shortfall(certificate, certificate.row(label)))
        sections.append(f"### `{label}` {words.fault(certificate, label)}\n\n```\n{text}\n```")
    if certificate.noise_floor:
        sections.append(spelled(words.noise(certificate)))
    sections += [_risk(certificate, risk) for risk in certificate.risks]
    sections += [_group(certificate, group) for group in certificate.groups]
    if certificate.frontier:
        sections.append(_frontier(certificate.frontier))
    if certificate.warnings:
        sections.append("### Warnings\n\n" + "\n".join(f"- {spelled(warning)}" for warning in certificate.warnings))
    return sections


def _risk(certificate: Certificate, risk: RiskResult) -> str:
    lines = [
        f"### Risk `{risk.name}` (budget {risk.alpha:g}, {risk.test} test): {spelled(risk.loss)}",
        "",
        f"| configuration | {'k/n' if risk.test == 'exact' else 'mean loss'} | risk | p | gained | |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in risk.configurations:
        failed = "over what it allows" if risk.name in words.failed(certificate.row(row.label)) else ""
        lines.append(
            f"| `{row.label}` | {words.risk_counts(risk, row.label)} | {row.risk:.4f} | {words.p_value(row.p)} | "
            f"{row.gained} | {failed} |"
        )
    return "\n".join(lines)


def _group(certificate: Certificate, group: GroupResult) -> str:
    budget = "no budget of its own" if group.alpha is None else f"budget {group.alpha:g}"
    lines = [
        f"### Group {_code(group.name)} ({group.n:,} prompts, {budget})",
        "",
        "| configuration | gain | k/n | risk | p | net points | gained |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in group.configurations:
        p = words.NONE if row.p is None else words.p_value(row.p)
        gain = words.NONE if row.label == certificate.reference else words.gain(row.gain)
        lines.append(
            f"| `{row.label}` | {gain}{words.interval(row.gain_interval, 100)} | "
            f"{words.share(row.k, group.n, row.unknown)} | {words.measured(row.joint_risk)} | {p} | "
            f"{words.points(row.net_accuracy)}{words.interval(row.net_accuracy_interval)} | {_count(row.gained)} |"
        )
    return "\n".join(lines)


def _count(number: int | None) -> str:
    return words.NONE if number is None else str(number)


def _served(certificate: Certificate, label: str) -> str:
    """Cell of the prompts that a configuration was served; empty where all were to be served all."""
    return f" {certificate.spent.by_configuration[label]:,} |" if certificate.spent else ""


def _frontier(frontier: Frontier) -> str:
    """Stretches of alpha with the same deployment."""
    lines = ["<details><summary>What other budgets would have deployed (a description)</summary>", ""]
    lines += [frontier.note, "", "| alpha | deployed |", "|---|---|"]
    rows = frontier.rows
    start = 0
    for index, row in enumerate(rows):
        if index + 1 == len(rows) or rows[index + 1].deployed != row.deployed:
            first = rows[start].alpha
            span = f"{first:.2f}" if start == index else f"{first:.2f} to {row.alpha:.2f}"
            lines.append(f"| {span} | `{row.deployed}` |")
            start = index + 1
    smallest = frontier.alpha_min
    if smallest is not None:
        lines += [
            "",
            f"alpha_min {smallest:.2f}: the smallest of these at which anything but the reference is deployed.",
        ]
    return "\n".join([*lines, "", "</details>"])


def _violations(certificate: Certificate) -> list[str]:
    """Prompts that the reference answers and the served (else the deployed) or a failing configuration does not."""
    labels = [each.label for each in certificate.statement.configurations]
    outcomes = unpack(certificate.outcomes, tuple(labels))
    violated = outcomes.rightness < outcomes.rightness[labels.index(certificate.reference)]
    wanted = dict.fromkeys([certificate.serving or certificate.deployed, *certificate.failing])
    texts = []
    for label in wanted:
        prompts = [outcomes.prompts[position] for position in np.flatnonzero(violated[labels.index(label)])]
        if not prompts:
            continue
        listed = ", ".join(_code(prompt) for prompt in prompts[:_MOST_VIOLATIONS])
        more = f", and {len(prompts) - _MOST_VIOLATIONS:,} more" if len(prompts) > _MOST_VIOLATIONS else ""
        texts.append(
            f"<details><summary>{words.counted(len(prompts), 'prompt')} {_less_right(certificate, label)}</summary>"
            f"\n\n{listed}{more}\n\n</details>"
        )
    return texts


def _less_right(certificate: Certificate, label: str) -> str:
    if certificate.statement.loss is None:
        return f"right with {certificate.reference} and wrong with {label}"
    return f"where {label} is right less often, or to a lesser part, than {certificate.reference}"


def _promise(certificate: Certificate) -> str:
    return (
        f"**What is promised.** {spelled(certificate.promise)}\n\n"
        "**What is not.** It is not the probability that a certified configuration is safe, and it covers neither "
        "gains nor the words undecided and breach.\n\n"
        f"Statement `{certificate.statement.hash}`, digest `{certificate.digest}`; check with "
        f"`pytest-redline verify {certificate.name}.certificate.json`."
    )


def _code(text: str) -> str:
    """Text of a recording as a code span: nothing in it is markdown, whatever it holds."""
    safe = spelled(text).replace("`", "'").replace("|", "\\|")
    return f"`{safe}`"
