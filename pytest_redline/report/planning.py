"""What ``pytest-redline plan`` prints, within 80 columns unless labels are long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_redline.report import layout, words
from pytest_redline.stats.planning import Level, PilotRow, Reach, RiskPlan
from pytest_redline.text import spelled

_LEVELS = {
    "delta/m": "on the safe side for any row of the grid.",
    "delta/(m-1)": "what a candidate must meet while every other one fails.",
    "delta": "what it must meet once every other one passes.",
}


def heading(alpha: float, delta: float, m: int, fewest: Mapping[str, int], width: int) -> str:
    """Say what is planned for, and the fewest prompts that certify anything, in "all" and in groups with a budget."""
    groups = [
        f"{words.counted(least, 'prompt')} in group {spelled(name)}" for name, least in fewest.items() if name != "all"
    ]
    more = f", or below {', '.join(groups)}" if groups else ""
    least = f"Below {words.counted(fewest['all'], 'prompt')}{more}, not even zero violations certify anything."
    return "\n".join([f"alpha {alpha:g}, delta {delta:g}, m {m}", layout.filled(least, width)])


def reach(reached: Sequence[Reach], n: int) -> str:
    """Make the table of what n prompts can show."""
    table = layout.table(("level", "", "most violations", "share", "zero violations prove"), left=1)
    for each in reached:
        most, share = (
            (words.NONE, words.NONE) if each.share is None else (words.share(each.most, n), f"{each.share:.4f}")
        )
        table.add_row(each.level.name, f"{each.level.value:.4g}", most, share, words.upper(each.alpha_of_zero))
    return "\n".join([f"What {words.counted(n, 'prompt')} can show:", *layout.drawn(table)])


def risks(plans: Sequence[RiskPlan], levels: Sequence[Level], n: int | None, power: float, width: int) -> str:
    """Make the table of the prompts that candidates need, with their chances at n where that is known."""
    table = layout.table(("true risk", *(level.name for level in levels)), left=0)
    for row in plans:
        chances = [f" ({chance:.3f})" for chance in row.power] if row.power else [""] * len(levels)
        needed = [_prompts(each) for each in row.prompts]
        table.add_row(f"{row.risk:.4g}", *(each + chance for each, chance in zip(needed, chances, strict=True)))
    chance = f" (and its chance with {n:,})" if n is not None else ""
    return "\n".join(
        [
            layout.filled(f"Prompts from which on a candidate is certified with probability {power:g}{chance}:", width),
            *layout.drawn(table),
            *(layout.filled(f"{level.name} = {level.value:.4g}: {_LEVELS[level.name]}", width) for level in levels),
        ]
    )


def pilot(
    labels: Sequence[str], rows: Sequence[PilotRow], reference: str, size: int, n: int, power: float, width: int
) -> str:
    """Make the text on a pilot of ``size`` prompts, before a new draw of n."""
    table = layout.table(("candidate", "k/n", "risk, 95 %", "chance", "were risk as measured", "prompts"), left=1)
    for label, row in zip(labels, rows, strict=True):
        table.add_row(
            spelled(label),
            words.share(row.k, size),
            f"{words.lower(row.interval.lower)}-{words.upper(row.interval.upper)}",
            f"{row.holm:.2f}",
            f"{row.as_measured:.2f} ({row.over_interval.lower:.2f}-{row.over_interval.upper:.2f})",
            _prompts(row.prompts),
        )
    notes = (
        "chance: that Holm certifies it in the new draw, averaged over what its risk may be after the pilot (Jeffreys' "
        "prior; what candidates have in common as in the pilot; simulated, standard error at most 0.005). were risk as "
        "measured: while every other candidate fails; in parentheses over the interval of the risk. prompts: for power "
        f"{power:g} in that case. The {n:,} are new prompts: to add them to the pilot's, or to go on until it passes, "
        "voids the promise. A candidate picked for looking well in the pilot will tend to look worse in the draw."
    )
    return "\n".join(
        [
            layout.filled(
                f"After a pilot of {words.counted(size, 'prompt')} against {spelled(reference)}, with a new draw of "
                f"{words.counted(n, 'prompt')}:",
                width,
            ),
            *layout.drawn(table),
            layout.filled(notes, width),
        ]
    )


def warnings(texts: Sequence[str], width: int) -> str:
    """Make a paragraph for each warning."""
    return "\n".join(layout.filled(f"Warning: {spelled(text)}", width) for text in texts)


def _prompts(number: int | None) -> str:
    return "no number" if number is None else f"{number:,}"
