"""A study in the terminal, within 80 columns unless labels are long, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_redline.report import layout, words
from pytest_redline.report.plot import Series, line_plot
from pytest_redline.study_schema import BudgetResult, Interval, Matched, Study, Subsets
from pytest_redline.text import spelled

_LEGEND = (
    "gain: mean over splits, on all prompts. over: share of splits whose deployment has a joint risk above alpha on "
    "the other half, and on all prompts. kept: share that keeps the reference."
)
_SUBSETS = "Subsets: the smallest budget at which REDLINE deploys something faster, and what it does at each"


def render(study: Study, width: int = 80) -> str:
    """Make the text of a study.

    Parameters
    ----------
    width
        Columns of the terminal; tables are wider where labels are very long.
    """
    files = spelled(study.files[0].path)
    if len(study.files) > 1:
        files += f" and {words.counted(len(study.files) - 1, 'file')} more"
    drawn = (
        f"{words.counted(study.splits, 'split')} (seed {study.seed}): {study.calibration:,} prompts calibrate, "
        f"{study.test:,} test"
    )
    heading = f"{files}: n {study.n:,}, m {study.m}, reference {spelled(study.reference)}, delta {study.delta:g}"
    parts = [
        "\n".join([layout.filled(heading, width), *_configurations(study)]),
        "\n".join([drawn, *_selectors(study), layout.filled(_LEGEND, width)]),
        *(layout.filled(_again(budget, study), width) for budget in study.budgets),
    ]
    if study.subsets:
        parts.append("\n".join([layout.filled(_SUBSETS, width), *_subsets(study.subsets)]))
    if study.warnings:
        parts.append("\n".join(layout.filled(f"Warning: {spelled(text)}", width) for text in study.warnings))
    return "\n\n".join(parts)


def plot(study: Study) -> str:
    """Draw how often each selector exceeds the budget, over budgets, as an SVG document."""
    series = [
        Series(
            name,
            [
                (budget.alpha, 100 * result.test_exceedance)
                for budget in study.budgets
                for result in budget.selectors
                if result.selector == name
            ],
        )
        for name in (result.selector for result in study.budgets[0].selectors)
    ]
    return line_plot(
        series,
        title=f"Deployments over the risk budget: {study.n:,} prompts, {study.m} configurations",
        x_label="risk budget alpha",
        y_label="splits over it on the other half, %",
        description=f"Share of {words.counted(study.splits, 'random half split')} in which a selector deploys a "
        "configuration whose joint risk on the other half is above the budget.",
    )


def _configurations(study: Study) -> list[str]:
    table = layout.table(("configuration", "k/n", "risk", "gained", "net acc", "gain"), left=1)
    for row in study.configurations:
        table.add_row(
            spelled(row.label),
            words.share(row.k, study.n),
            f"{row.joint_risk:.4f}",
            str(row.gained),
            words.points(row.net_accuracy),
            words.gain(row.gain),
        )
    return layout.drawn(table)


def _selectors(study: Study) -> list[str]:
    table = layout.table(("alpha", "selector", "gain", "over: other half", "all", "kept"), left=2)
    for budget in study.budgets:
        for index, result in enumerate(budget.selectors):
            table.add_row(
                f"{budget.alpha:g}" if index == 0 else "",
                result.selector,
                words.gain(result.mean_gain),
                words.percent(result.test_exceedance),
                words.percent(result.pool_exceedance),
                words.percent(result.reference_share),
            )
    return layout.drawn(table)


def _again(budget: BudgetResult, study: Study) -> str:
    """Sentences on what the gate deploys on all prompts, and on the rules on mean accuracy beside it."""
    again = budget.again
    if again.deployed == study.reference:
        deployed = "REDLINE keeps the reference on all prompts"
    else:
        deployed = (
            f"REDLINE deploys {spelled(again.deployed)} on all prompts ({words.gain(again.gain)}, "
            f"{words.points(again.net_accuracy)} points)"
        )
    same = f", and in {again.splits_same:,} of {words.counted(study.splits, 'split')}"
    measured = [
        f"{name} {text}"
        for name, text in (
            ("gain", _spread(again.held_gain, 100, "%")),
            ("net accuracy", _spread(again.held_net_accuracy, 1, "")),
        )
        if text and again.deployed != study.reference
    ]
    held = f"; on their other halves {', '.join(measured)}" if measured else ""
    return f"alpha {budget.alpha:g}: {deployed}{same}{held}. {_matched(budget.mean_matched)}".rstrip()


def _spread(interval: Interval | None, scale: float, unit: str) -> str:
    if interval is None:
        return ""
    return f"{scale * interval.mean:+.1f}{unit}{words.interval((interval.lower, interval.upper), scale)}"


def _matched(matched: Matched) -> str:
    if matched.faster is None:
        return "No tolerance of mean accuracy gains as much."
    rule = matched.faster
    if rule.mean_gain == 0:  # nothing was gained, so there is nothing to match
        return ""
    return (
        f"Allowing a mean loss of {words.counted(rule.points, 'point')} first gains as much "
        f"({words.gain(rule.mean_gain)}), and is over the budget in {words.percent(rule.test_exceedance)} of splits."
    )


def _subsets(subsets: Sequence[Subsets]) -> list[str]:
    table = layout.table(("prompts", "drawn", "median", "quartiles", "alpha", "gain", "kept"), left=2)
    for each in subsets:
        drawn = "uniform" if each.strata is None else "stratified"
        whole = [f"{each.size:,}", drawn, _budget(each.median), " to ".join(map(_budget, each.quartiles))]
        for index, budget in enumerate(each.budgets):
            table.add_row(
                *(whole if index == 0 else [""] * len(whole)),
                f"{budget.alpha:g}",
                words.gain(budget.mean_gain),
                words.percent(budget.reference_share),
            )
    return layout.drawn(table)


def _budget(alpha: float | None) -> str:
    return "over 0.30" if alpha is None else f"{alpha:.4g}"
