"""The summary at the end of a pytest session: a table and a few sentences, within 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from pytest_redline.certificate_schema import Certificate, ConfigurationResult
from pytest_redline.report import words
from pytest_redline.report.layout import console
from pytest_redline.text import spelled

_MOST_ROWS = 60
_STYLES = {
    "reference": "bold",
    "certified": "green",
    "inert": "yellow",
    "undecided": "yellow",
    "breach": "red",
    "not needed": "dim",
}


class Column(NamedTuple):
    """A column of the table; columns with the highest ``dispensable`` go first when the width is short."""

    header: str
    cells: list[str]
    right: bool
    dispensable: int = 0


def render(certificate: Certificate, width: int = 80, color: bool = False) -> str:
    """Make the summary of one grid.

    Parameters
    ----------
    width
        Columns of the terminal; labels and counts are never cut, so a line may be longer for very long labels.
    color
        Write ANSI colours.
    """
    rows, hidden = _shown(certificate)
    columns = _fitting(_with_noise(certificate, rows, _columns(certificate, rows)), width)
    screen, stream = console(max(width, _width(columns)), color)
    screen.print(
        Text(
            f"{certificate.name}: alpha {certificate.alpha:g}, delta {certificate.delta:g}, n {certificate.n:,}, "
            f"m {certificate.m}{words.counted_too(certificate)}",
            style="bold",
        )
    )
    screen.print(_table(columns, rows))
    if hidden:
        screen.print(f"... and {words.counted(hidden, 'configuration')} more; --redline-report=DIR lists all")
    for line in _left_out(certificate, columns, rows):
        screen.print(line)
    budgets = [f"{spelled(group.name)} {group.alpha:g}" for group in certificate.groups if group.alpha is not None]
    budgets += [words.budget(risk) for risk in certificate.risks]
    if budgets:
        screen.print(f"budgets: all {certificate.alpha:g}, {', '.join(budgets)}; p is the largest over them")
    if weight := words.weight(certificate):
        screen.print(weight)
    if any(row.label == certificate.deployed or row.required for row in rows):
        marks = "   ! over what this budget allows" if certificate.risks else ""
        screen.print(Text(f"> fastest certified   * required{marks}", style="dim"))
    if any(row.unknown for row in rows):
        screen.print(Text("k+ at least k: not every loss is known", style="dim"))
    passed = not certificate.failing
    screen.print(Text(words.decision(certificate), style="bold green" if passed else "bold red"))
    for line in _details(certificate):
        screen.print(line)
    if certificate.noise_floor:
        screen.print(Text(words.noise(certificate)))
    if certificate.sharing:
        screen.print(words.sharing(certificate))
    for text in (words.spent(certificate), words.shared_costs(certificate)):
        if text:
            screen.print(text)
    screen.print(Text(f"Promise: {spelled(certificate.promise)}"))
    for warning in certificate.warnings:
        screen.print(Text(f"Warning: {spelled(warning)}", style="yellow"))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _shown(certificate: Certificate) -> tuple[list[ConfigurationResult], int]:
    """Rows of the table, and how many are left out: in a large grid, those that decide nothing."""
    rows = certificate.configurations
    if len(rows) <= _MOST_ROWS:
        return list(rows), 0
    first = {certificate.reference, certificate.deployed, certificate.serving, *certificate.failing[:_MOST_ROWS]}
    ranked = sorted(rows, key=lambda row: (row.label not in first, row.verdict != "certified", -(row.gain or 0)))
    kept = {row.label for row in ranked[:_MOST_ROWS]}
    return [row for row in rows if row.label in kept], len(rows) - len(kept)


def _columns(certificate: Certificate, rows: Sequence[ConfigurationResult]) -> list[Column]:
    cost = certificate.cost
    columns = [
        Column(
            "",
            [(">" if row.label == certificate.deployed else " ") + ("*" if row.required else " ") for row in rows],
            False,
        ),
        Column("configuration", [row.label for row in rows], False),
    ]
    if cost is not None:
        name = "TPF" if cost.name == "tokens_per_forward" else "cost"
        columns += [
            Column(name, [words.number(row.cost) for row in rows], True, 2),
            Column("gain", [words.NONE if row.verdict == "reference" else words.gain(row.gain) for row in rows], True),
        ]
    return [
        *columns,
        Column("net", [words.points(row.net_accuracy) for row in rows], True, 3),
        Column("k/n", [words.share(row.k, row.n, row.unknown) + _mark(certificate, row, "all") for row in rows], True),
        *(
            Column(
                risk.name,
                [words.risk_counts(risk, row.label) + _mark(certificate, row, risk.name) for row in rows],
                True,
                1,
            )
            for risk in certificate.risks
        ),
        Column(
            "risk",
            [words.measured(row.joint_risk) for row in rows],
            True,
            4 if certificate.statement.test == "exact" else 0,
        ),
        Column("p", [words.p_value(row.p) for row in rows], True),
        Column("verdict", [words.verdict(row) for row in rows], False),
    ]


def _with_noise(certificate: Certificate, rows: Sequence[ConfigurationResult], columns: list[Column]) -> list[Column]:
    """Put the reference's second run below the rows, and how each of them compares with it before its verdict."""
    noise = certificate.noise_floor
    if noise is None:
        return columns
    compared = Column("vs A/A", [words.against_noise(certificate, row.label) for row in rows], True, 1)
    below = {
        "configuration": spelled(noise.label),
        "net": words.points(noise.net_accuracy),
        "k/n": words.share(noise.k, noise.n) + (" " if certificate.risks else ""),
        "risk": f"{noise.rate:.3f}",
        "verdict": "noise floor",
    }
    return [
        column._replace(cells=[*column.cells, below.get(column.header, "")])
        for column in (*columns[:-1], compared, columns[-1])
    ]


def _left_out(
    certificate: Certificate, columns: Sequence[Column], rows: Sequence[ConfigurationResult]
) -> Iterator[Text]:
    """Name the risks that a row fails and whose columns had no room."""
    headers = {column.header for column in columns}
    hidden = [risk for risk in certificate.risks if risk.name not in headers]
    for row in rows:
        over = words.failed(row)
        failed = [f"{risk.name} {words.risk_counts(risk, row.label)}!" for risk in hidden if risk.name in over]
        if failed:
            yield Text(f"{row.label}: {', '.join(failed)}")


def _mark(certificate: Certificate, row: ConfigurationResult, budget: str) -> str:
    """Where several budgets stand in one table, tell which of them keeps a row from being certified."""
    return "" if not certificate.risks else "!" if budget in words.failed(row) else " "


def _width(columns: Sequence[Column]) -> int:
    return sum(max(len(cell) for cell in (column.header, *column.cells)) for column in columns) + 2 * (len(columns) - 1)


def _fitting(columns: list[Column], width: int) -> list[Column]:
    while _width(columns) > width and any(column.dispensable for column in columns):
        columns.remove(max(columns, key=lambda column: column.dispensable))
    return columns


def _table(columns: Sequence[Column], rows: Sequence[ConfigurationResult]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column.header, justify="right" if column.right else "left", no_wrap=True)
    for index, row in enumerate(rows):
        cells = [Text(column.cells[index]) for column in columns]
        cells[-1].stylize(_STYLES[words.verdict(row)])
        table.add_row(*cells)
    for index in range(len(rows), len(columns[0].cells)):
        table.add_row(*(column.cells[index] for column in columns), style="dim")
    return table


def _details(certificate: Certificate) -> list[Text]:
    """What a reviewer asks next: what changed, and how groups fare, for the served (else the deployed) row."""
    row = certificate.row(certificate.serving or certificate.deployed)
    if row.label == certificate.reference:
        return []
    lines = [
        Text(f"{'Served' if certificate.serving else 'Deployed'} differs from the reference in {change}")
        for change in words.changed_knobs(certificate, row)
    ]
    for group in certificate.groups:
        part = next(each for each in group.configurations if each.label == row.label)
        risk = "" if part.joint_risk is None else f" = {words.measured(part.joint_risk)}"
        net = "" if part.net_accuracy is None else f", net {words.points(part.net_accuracy)} points"
        budget = "" if group.alpha is None else f", budget {group.alpha:g}, p {words.p_value(part.p)}"
        lines.append(
            Text(
                f"{row.label} in group {spelled(group.name)}: {words.share(part.k, group.n, part.unknown)}{risk}"
                f"{budget}{net}"
            )
        )
    return lines
