"""Numbers and verdicts as words, the same in every report."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_redline.certificate_schema import Certificate, ConfigurationResult, RiskResult
from pytest_redline.text import spelled

NONE = "-"
_MOST_NAMED = 8


def p_value(p: float | None) -> str:
    """Print a p-value as the paper does: three decimals, or one significant digit below 0.001.

    >>> p_value(0.00126), p_value(2.5e-14), p_value(0.0004), p_value(0.0)
    ('0.001', '3e-14', '4e-4', '<1e-300')
    """
    if p is None:
        return NONE
    if p < 1e-300:
        return "<1e-300"
    if p >= 1e-3:
        return f"{p:.3f}"
    digit, _, exponent = f"{p:.0e}".partition("e")
    return f"{digit}e{int(exponent)}"


def gain(value: float | None) -> str:
    """Print a gain in percent, signed."""
    return NONE if value is None else f"{100 * value:+.1f}%"


def percent(share: float) -> str:
    """Print a share in percent."""
    return f"{100 * share:.1f}%"


def number(value: float | None) -> str:
    """Print a cost with four significant digits."""
    return NONE if value is None else f"{value:#,.4g}".rstrip(".")


def upper(bound: float) -> str:
    """Print an upper bound, rounded up so that the printed number is still a bound.

    >>> upper(0.091412)
    '0.0915'
    """
    return f"{math.ceil(bound * 10_000 - 1e-9) / 10_000:.4f}"


def lower(bound: float) -> str:
    """Print a lower bound, rounded down."""
    return f"{math.floor(bound * 10_000 + 1e-9) / 10_000:.4f}"


def points(value: float | None) -> str:
    """Print a change of accuracy in percentage points, signed."""
    return NONE if value is None else f"{value:+.1f}"


def measured(value: float | None, digits: int = 3) -> str:
    """Print a measured risk."""
    return NONE if value is None else f"{value:.{digits}f}"


def interval(bounds: tuple[float, float] | None, scale: float = 1.0) -> str:
    """Print an interval in parentheses after a blank, or nothing."""
    return "" if bounds is None else f" ({scale * bounds[0]:+.1f} to {scale * bounds[1]:+.1f})"


def drawn(certificate: Certificate) -> str:
    """Name what a draw consists of."""
    clusters = certificate.statement.clusters
    return "clusters" if clusters and clusters.remedy == "cluster_means" else "prompts"


def failed(row: ConfigurationResult) -> frozenset[str]:
    """Names of the budgets that keep a configuration from being certified: "all", groups and declared risks."""
    return frozenset((*row.needed.violations_fewer, *row.needed.mean_losses) if row.needed else ())


def budget(risk: RiskResult) -> str:
    """Print a declared risk's budget, and what counts as its loss."""
    return f"{risk.name} {risk.alpha:g} ({spelled(risk.loss)})"


def risk_counts(risk: RiskResult, label: str) -> str:
    """Print what a configuration lost under a declared risk: a count, or the mean where losses are between 0 and 1."""
    row = next(each for each in risk.configurations if each.label == label)
    return share(row.k, risk.n) if risk.test == "exact" else f"{row.risk:.4f}"


def share(k: int, n: int, unknown: int = 0) -> str:
    """Print a count over its total; with a plus where more may be among what is not known.

    >>> share(73, 1012), share(5, 512, unknown=300)
    ('73/1012', '5+/512')
    """
    return f"{k}{'+' if unknown else ''}/{n}"


def counted(number: int, noun: str) -> str:
    """Print a count with its noun, plural where it is one.

    >>> counted(1, "violation"), counted(1012, "prompt")
    ('1 violation', '1,012 prompts')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def verdict(row: ConfigurationResult) -> str:
    """One word for the table."""
    return "inert" if row.inert and row.certified else row.verdict


def speedup(certificate: Certificate, row: ConfigurationResult) -> str:
    """Say how much faster than the reference a row is, and by what measure; empty where that is not known."""
    cost, base = certificate.cost, certificate.row(certificate.reference)
    if cost is None or row.gain is None:
        return ""
    spread = interval(row.gain_interval, 100)
    if cost.better == "higher":
        return f"{gain(row.gain)}{spread} {spelled(cost.name)} over {base.label}"
    return (
        f"{1 + row.gain:.2f}x as fast as {base.label} ({gain(row.gain)}{spread}; {spelled(cost.name)} "
        f"{number(row.cost)} instead of {number(base.cost)})"
    )


def decision(certificate: Certificate) -> str:
    """Say in a sentence or two what is not certified, what may be deployed, and whether what is served may."""
    deployed = certificate.row(certificate.deployed)
    sentences = []
    if certificate.uncertified:
        served = (
            "What is served is not certified" if certificate.serving in certificate.uncertified else "Not certified"
        )
        sentences.append(f"{served}: {_some(certificate.uncertified)}.")
    if certificate.worse_than_noise:
        sentences.append(f"Declared lossless and worse than noise: {_some(certificate.worse_than_noise)}.")
    if certificate.cost is None:
        sentences.append("No cost is known, so none is preferred to the reference.")
    elif certificate.deployed == certificate.reference:
        sentences.append(f"Deploy the reference {certificate.reference}: no faster configuration is certified.")
    else:
        net = (
            "net accuracy not known"
            if deployed.net_accuracy is None
            else f"net accuracy {points(deployed.net_accuracy)} points{interval(deployed.net_accuracy_interval)}"
        )
        said = [text for text in (speedup(certificate, deployed), net) if text]
        sentences.append(f"Deploy {deployed.label}: {', '.join(said)}.")
    if certificate.serving is not None and certificate.serving not in certificate.failing:
        serving = certificate.row(certificate.serving)
        state = "the reference" if serving.verdict == "reference" else "certified"
        same = certificate.serving == certificate.deployed
        sentences.append(
            "It is what is served." if same else f"Served is {serving.label} ({gain(serving.gain)}), which is {state}."
        )
    return " ".join(sentences)


def _some(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - _MOST_NAMED} more" if len(labels) > _MOST_NAMED else ""
    return f"{', '.join(labels[:_MOST_NAMED])}{more}"


def fault(certificate: Certificate, label: str) -> str:
    """Say in a few words why the gate does not pass a configuration."""
    reasons = [
        reason
        for reason, labels in (
            ("is not certified", certificate.uncertified),
            ("is declared lossless and worse than noise", certificate.worse_than_noise),
        )
        if label in labels
    ]
    return " and ".join(reasons)


def noise(certificate: Certificate) -> str:
    """Say how the reference fares against itself; empty where it ran once."""
    found = certificate.noise_floor
    if found is None:
        return ""
    texts = "" if found.texts_differ is None else f", with another text on {found.texts_differ:,}"
    ends = found.risk_interval
    spread = "" if ends is None else f", 95 % {lower(ends[0])} to {upper(ends[1])}"
    return (
        f"Noise floor: run twice, the reference loses {share(found.k, found.n)} to itself{texts}; rate "
        f"{found.rate:.4f} (se {found.standard_error:.4f}{spread}). vs A/A: the chance that a lossless candidate comes "
        "out worse than its second run by as much."
    )


def against_noise(certificate: Certificate, label: str) -> str:
    """Print the p-value of a candidate against the second run, marked where it fails by it."""
    for row in certificate.noise_floor.configurations if certificate.noise_floor else ():
        if row.label == label:
            return p_value(row.p) + ("!" if label in certificate.worse_than_noise else "")
    return ""


def _worse_than_noise(certificate: Certificate, label: str) -> list[str]:
    """Say what shows that a configuration is not lossless; empty where nothing does."""
    found = certificate.noise_floor
    if found is None or found.level is None or label not in certificate.worse_than_noise:
        return []
    row = next(each for each in found.configurations if each.label == label)
    return [
        f"worse than noise: declared lossless, and alone wrong on {counted(row.worse, 'prompt')}",
        f"  {found.label}, the second run of {certificate.reference}, is alone wrong on {row.better:,}",
        f"  exact one-sided McNemar p = {p_value(row.p)}, and {found.level:.3g} allows no more",
        "  not run-to-run noise: look for a fault of the engine, or do not call it lossless",
    ]


def sharing(certificate: Certificate) -> str:
    """Say what serving configurations together saved; empty where nothing was served."""
    counts = certificate.sharing
    if counts is None:
        return ""
    return (
        f"Served together: {counts.forwards_run:,} forwards instead of {counts.forwards_charged:,} "
        f"({100 * counts.forwards_run / counts.forwards_charged:.0f} %)."
    )


def counted_too(certificate: Certificate) -> str:
    """Say of how many counted configurations those of the grid are, where others count too; empty where none does."""
    reuse = certificate.reuse
    return "" if reuse is None or reuse.counted == certificate.m else f" of {reuse.counted:,} counted"


def weight(certificate: Certificate) -> str:
    """Say which share of delta is tried on what is served; empty where all configurations weigh the same."""
    found = certificate.statement.weight
    if found is None:
        return ""
    counted_all = certificate.m if certificate.reuse is None else certificate.reuse.counted
    return (
        f"Weights: {found.label} has {found.share:g} of delta, and the other {counted_all - 1:,} that count share the "
        "rest; verdicts go by p over the weight."
    )


def spent(certificate: Certificate) -> str:
    """Say what share of the generations was served, and why not all; empty where all were to be."""
    counts = certificate.spent
    if counts is None:
        return ""
    looks = certificate.statement.looks
    rules = [
        "only what decides the deployment" if counts.deploy_only else "",
        "candidates that can no longer pass stop" if counts.curtail else "",
        f"{len(looks.sizes)} looks" if looks else "",
        "candidates only where the reference is right"
        if counts.candidates == "where_reference_right" and not counts.deploy_only
        else "",
    ]
    return (
        f"Served {counts.generations_run:,} of {counted(counts.generations_full, 'generation')} "
        f"({100 * counts.share:.0f} %): {'; '.join(rule for rule in rules if rule)}."
    )


def shared_costs(certificate: Certificate) -> str:
    """Say on which prompts costs are compared; empty where on all, or where costs are declared."""
    counts, cost = certificate.spent, certificate.cost
    if counts is None or cost is None or cost.declared or counts.cost_prompts == certificate.n:
        return ""
    return (
        f"Costs are compared on the {counted(counts.cost_prompts, 'prompt')} that {certificate.reference} and every "
        "certified configuration were served."
    )


def changed_knobs(certificate: Certificate, row: ConfigurationResult) -> list[str]:
    """Key-by-key difference of a configuration from the reference, one text per knob.

    The served configuration's knobs are named with their key in the serving file. A knob that one of the two leaves
    unset is not one that is set to null.
    """
    keys = certificate.provenance.serving_keys if row.label == certificate.serving else {}
    knobs = {each.label: each.knobs for each in certificate.statement.configurations}

    def value(label: str, knob: str) -> str:
        if knob not in knobs[label]:
            return "unset"
        return "null" if knobs[label][knob] is None else str(knobs[label][knob])

    return [
        f"{change.knob}{f' ({keys[change.knob]})' if keys.get(change.knob, change.knob) != change.knob else ''}: "
        f"{value(certificate.reference, change.knob)} -> {value(row.label, change.knob)}"
        for change in row.changes
    ]


def shortfall(certificate: Certificate, row: ConfigurationResult) -> list[str]:
    """Say what a configuration shows that does not pass, and what would certify it; one text per line."""
    worse, needed = _worse_than_noise(certificate, row.label), row.needed
    if needed is None:
        return worse or _stopped(certificate, row)
    over = failed(row)
    drop = certificate.statement.loss is not None and certificate.statement.loss.kind == "drop"
    violated = "lower in score" if drop else "violated"
    heads = [f"{row.k:,} of {counted(row.n, 'prompt')} {violated}, alpha {certificate.alpha:g}"]
    risks = [risk for risk in certificate.risks if risk.name in over]
    if "all" not in over:  # what a one-line summary shows is what failed
        heads = [f"risk {risk.name} {risk_counts(risk, row.label)}, budget {risk.alpha:g}" for risk in risks] + heads
    lines = [
        *worse,
        f"{row.verdict}: {heads[0]}",
        *(f"  {head}" for head in heads[1:]),
        f"  mean drop below {certificate.reference}: {measured(row.joint_risk, 4)}"
        if drop
        else f"  right with {certificate.reference} and wrong with {row.label}: risk {measured(row.joint_risk, 4)}",
        f"  one-sided bounds over the grid: {lower(row.risk_lower_simultaneous)} and "
        f"{upper(row.risk_upper_simultaneous)}",
        f"  {certificate.statement.test} p = {p_over(row.p, needed.level)}; Holm allows {needed.level:.3g} here",
    ]
    for group in certificate.groups:
        part = next(each for each in group.configurations if each.label == row.label)
        if group.alpha is not None and part.p is not None and part.p > needed.level:
            lines.append(
                f"  group {spelled(group.name)}: {share(part.k, group.n)} = {measured(part.joint_risk, 4)} against "
                f"its budget {group.alpha:g}, p = {p_over(part.p, needed.level)}"
            )
    for risk in risks:
        own = next(each for each in risk.configurations if each.label == row.label)
        lines += [
            f"  risk {risk.name}: {spelled(risk.loss)}",
            f"    {risk_counts(risk, row.label)}, risk {own.risk:.4f} against {risk.alpha:g}, {risk.test} p = "
            f"{p_over(own.p, needed.level)}",
        ]
    declared = {risk.name for risk in certificate.risks}
    fewer = [
        f"{counted(number, 'violation')} fewer"
        + ("" if name == "all" else f" for {name}" if name in declared else f" in group {spelled(name)}")
        for name, number in needed.violations_fewer.items()
    ]
    fewer += [
        f"a mean loss of at most {lower(mean)}"
        + ("" if name == "all" else f" for {name}" if name in declared else f" in group {spelled(name)}")
        for name, mean in needed.mean_losses.items()
        if mean >= 0
    ]
    if fewer:
        lines.append(f"  it would pass with {' and '.join(fewer)}")
    if row.verdict == "breach":
        lines.append("  its risk is above the budget: more prompts will not help")
    elif needed.prompts is None:
        lines.append("  its measured risk is not below the budget: more prompts are not expected to help")
    else:
        lines.append(
            f"  or with about {needed.prompts:,} {drawn(certificate)} in a new draw (chance 0.8 if its risk is as "
            "measured)"
        )
        if certificate.statement.test == "exact":
            lines.append(f"  how sure that is: pytest-redline plan --pilot DIR/{certificate.name}.certificate.json")
    return lines


def _stopped(certificate: Certificate, row: ConfigurationResult) -> list[str]:
    """Say why a configuration was not served to the end."""
    if row.verdict == "not needed":
        return [f"not needed: {row.unknown:,} of {row.n:,} losses are not known, and no verdict depended on them"]
    served = certificate.spent.by_configuration[row.label] if certificate.spent else row.n
    return [
        f"{row.verdict}: at least {row.k:,} of {counted(row.n, 'prompt')} violated, alpha {certificate.alpha:g}",
        f"  right with {certificate.reference} and wrong with {row.label}",
        f"  stopped after {counted(served, 'generation')}: it can no longer be certified, whatever the others are",
        f"  one-sided lower bound over the grid: {lower(row.risk_lower_simultaneous)}",
        f"  exact p is {p_value(row.p)} or more",
    ]


def p_over(p: float | None, level: float) -> str:
    """Print a p-value that exceeds a level with as many digits as it takes to see that.

    >>> p_over(0.1003, 0.1), p_over(0.5, 0.1)
    ('0.1003', '0.500')
    """
    text = p_value(p)
    for digits in range(4, 17):
        if p is None or ("<" not in text and float(text) > level):
            break
        text = f"{p:.{digits}f}"
    return text
