"""Line and step plots as one self-contained SVG: no script, no font, no style sheet from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from pytest_redline.text import spelled

WIDTH: Final = 760
_PLOT: Final = 400  # height of the plot with its title; the legend goes below
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 24, 48, 56  # what title, axes and tick labels take
_LEGEND_ROW: Final = 20
_LETTER: Final = 8.6  # width of a capital in the legend's size, so that no label reaches the next
_MOST_TICKS: Final = 8
# Told apart without colour too: the palette of Okabe and Ito, which the colour-blind see, with dashes and marks.
_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Series:
    """One line of a plot.

    Parameters
    ----------
    label
        What the legend calls it.
    points
        (x, y) in ascending order of x, finite numbers, at least one.
    step
        Hold each value until the next x, instead of a straight line to it.
    marks
        Show the points themselves.
    """

    label: str
    points: Sequence[tuple[float, float]]
    step: bool = False
    marks: bool = True


def line_plot(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    description: str = "",
    log_x: bool = False,
) -> str:
    """Draw series over common axes.

    Parameters
    ----------
    series
        At least one; the legend lists them in this order.
    title, x_label, y_label
        Texts of the figure; the title is also its accessible name.
    description
        What the figure shows, for who cannot see it; the data, point by point, follow in any case.
    log_x
        Logarithmic x axis; every x is then above 0.

    Returns
    -------
    svg
        A standalone SVG document, equal for equal arguments.

    Raises
    ------
    ValueError
        No series, or one without points, with points out of order, or with a number that cannot be drawn.
    """
    if not series:
        raise ValueError("series is empty; a plot needs at least one")
    for each in series:
        _check(each, log_x)
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points]
    across = _axis(xs, _LEFT, WIDTH - _RIGHT, log=log_x)
    up = _axis(ys, _PLOT - _BOTTOM, _TOP)
    legend, rows = _legend(series)
    height = _PLOT + rows * _LEGEND_ROW + 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'role="img" font-family="sans-serif" font-size="12" fill="#222">',
            f"<title>{_text(title)}</title>",  # without ids, so that several figures can stand in one page
            f"<desc>{_text(' '.join([description, *map(_told, series)]).strip())}</desc>",
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="26" font-size="15" font-weight="bold">{_text(title)}</text>',
            *_frame(across, up, x_label, y_label),
            *(line for index, each in enumerate(series) for line in _drawn(each, index, across, up)),
            *legend,
            "</svg>\n",
        ]
    )


class _Axis(NamedTuple):
    """Where a value is drawn, and which values are written beside it."""

    place: Callable[[float], float]
    ticks: list[float]


def _check(series: Series, log_x: bool) -> None:
    """Refuse what cannot be drawn."""
    if not series.points:
        raise ValueError(f"{series.label}: a series needs at least one point")
    xs = [x for x, _ in series.points]
    if odd := [point for point in series.points if not all(map(math.isfinite, point))]:
        raise ValueError(f"{series.label}: {odd[0]} is no point; both numbers must be finite")
    if log_x and min(xs) <= 0:
        raise ValueError(f"{series.label}: x={min(xs)} has no place on a logarithmic axis; every x must be above 0")
    if xs != sorted(xs):
        raise ValueError(f"{series.label}: points are not in ascending order of x")


def _axis(values: Sequence[float], start: float, end: float, log: bool = False) -> _Axis:
    """Fit an axis to values: from a round number to a round number, both written."""
    low, high = min(values), max(values)
    if log:
        ticks = _log_ticks(low, high)
        scale: Callable[[float], float] = math.log10
    else:
        ticks = _even_ticks(low, high)
        scale = float
    first, last = scale(ticks[0]), scale(ticks[-1])
    return _Axis(lambda value: start + (scale(value) - first) / (last - first) * (end - start), ticks)


def _even_ticks(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten around the values, few enough to read."""
    span = (high - low) or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span))
    step = next(step * factor for factor in (0.1, 0.2, 0.5, 1, 2, 5) if span / (step * factor) < _MOST_TICKS - 1)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if first == last:
        first, last = first - 1, last + 1
    return [index * step for index in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten around the values; powers of ten only where that is too many."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for factors in ((1, 2, 5), (1,)):
        ticks = [factor * 10.0**exponent for exponent in exponents for factor in factors]
        below = max(index for index, tick in enumerate(ticks) if tick <= low * (1 + 1e-9))
        above = min(index for index, tick in enumerate(ticks) if tick >= high * (1 - 1e-9))
        ticks = ticks[below : max(above, below + 1) + 1]
        if len(ticks) <= _MOST_TICKS:
            break
    return ticks


def _frame(across: _Axis, up: _Axis, x_label: str, y_label: str) -> list[str]:
    """Grid lines, tick labels and the names of the axes."""
    floor, ceiling = _PLOT - _BOTTOM, _TOP
    lines = []
    for value in up.ticks:
        y = f"{up.place(value):.1f}"
        lines.append(f'<path d="M{_LEFT} {y}H{WIDTH - _RIGHT}" stroke="#ddd"/>')
        lines.append(f'<text x="{_LEFT - 8}" y="{y}" dy="4" text-anchor="end">{_number(value)}</text>')
    for value in across.ticks:
        x = f"{across.place(value):.1f}"
        lines.append(f'<path d="M{x} {floor}v5" stroke="#222"/>')
        lines.append(f'<text x="{x}" y="{floor + 19}" text-anchor="middle">{_number(value)}</text>')
    lines.append(f'<path d="M{_LEFT} {ceiling}V{floor}H{WIDTH - _RIGHT}" fill="none" stroke="#222"/>')
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    lines.append(f'<text x="{middle:.0f}" y="{floor + 42}" text-anchor="middle">{_text(x_label)}</text>')
    turned = f'transform="translate(18 {(floor + ceiling) / 2:.0f}) rotate(-90)"'
    lines.append(f'<text {turned} text-anchor="middle">{_text(y_label)}</text>')
    return lines


def _drawn(series: Series, index: int, across: _Axis, up: _Axis) -> list[str]:
    """One series as a path, and its points."""
    spots = [(f"{across.place(x):.1f}", f"{up.place(y):.1f}") for x, y in series.points]
    path = "M{} {}".format(*spots[0]) + "".join(f"H{x}V{y}" if series.step else f"L{x} {y}" for x, y in spots[1:])
    lines = [f'<path d="{path}" fill="none" {_stroke(index)}/>']
    if series.marks:
        lines += [_mark(index, float(x), float(y)) for x, y in spots]
    return lines


def _legend(series: Sequence[Series]) -> tuple[list[str], int]:
    """The legend below the plot, flowed into as many rows as its labels take."""
    lines, x, row = [], float(_LEFT), 0
    for index, each in enumerate(series):
        label = spelled(each.label)
        wide = 44 + _LETTER * len(label)
        if x > _LEFT and x + wide > WIDTH - _RIGHT:
            x, row = float(_LEFT), row + 1
        y = _PLOT + row * _LEGEND_ROW + 4
        lines.append(f'<path d="M{x:.1f} {y}h24" {_stroke(index)}/>')
        if each.marks:
            lines.append(_mark(index, x + 12, y))
        lines.append(f'<text x="{x + 30:.1f}" y="{y}" dy="4">{escape(label)}</text>')
        x += wide
    return lines, row + 1


def _stroke(index: int) -> str:
    """Colour and dashes of a series: no two alike until both run out."""
    dashes = _DASHES[index // len(_COLORS) % len(_DASHES)]
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'stroke="{_COLORS[index % len(_COLORS)]}" stroke-width="2"{dashed}'


def _mark(index: int, x: float, y: float) -> str:
    """A disc, square, triangle or diamond of the series' colour."""
    shape = (
        f"M{x - 3.5:.1f} {y:.1f}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
        f"M{x - 3:.1f} {y - 3:.1f}h6v6h-6z",
        f"M{x:.1f} {y - 4:.1f}l4 7h-8z",
        f"M{x:.1f} {y - 4.5:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    )[index % 4]
    return f'<path d="{shape}" fill="{_COLORS[index % len(_COLORS)]}"/>'


def _told(series: Series) -> str:
    """The data of a series as a sentence."""
    return f"{series.label}: " + ", ".join(f"{_number(y)} at {_number(x)}" for x, y in series.points) + "."


def _number(value: float) -> str:
    """At most four significant digits, without the noise of floats: a tick at 3 * 0.1 is 0.3."""
    return f"{value:,.0f}" if abs(value) >= 1000 and value == round(value) else f"{value + 0.0:.4g}"


def _text(text: str) -> str:
    """A text that can stand in XML, whatever is in it."""
    return escape(spelled(text))
