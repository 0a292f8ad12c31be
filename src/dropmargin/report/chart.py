"""Pictures as SVG text: lines with marks, and a map of shaded cells. One picture for light and dark, print and screen.

Colours are classes, to which the style sheet of the page (``page.css``) gives values, theme by theme. Every text is
escaped. Nothing is drawn by a script; what a mark stands for is its ``<title>``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

# Units of the picture, which is as wide as its column: about pixels on a telephone.
_WIDTH, _PLOT_HEIGHT = 400.0, 250.0
_LEFT, _RIGHT, _TOP, _BELOW = 62.0, 16.0, 12.0, 46.0
_LEGEND_LINE = 20.0
_CELL_HEIGHT = 30.0
_N_STYLES = 6

#: The outline of each mark, around (0, 0).
_MARKS = (
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M-3.6,-3.6h7.2v7.2h-7.2z",
    "M0,-4.8L4.4,3.2L-4.4,3.2z",
    "M0,-5L5,0L0,5L-5,0z",
    "M0,4.8L4.4,-3.2L-4.4,-3.2z",
    "M-4,-1.4h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z",
)


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Parameters
    ----------
    name : str
    x, y : sequence of float
    spread : sequence of float, optional
        Half the width of a band around the line, such as a standard deviation.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] | None = None


def percent(share: float) -> str:
    """Return a share as a percentage, with as many digits as it needs up to one."""
    return f"{100.0 * share:.1f}".removesuffix(".0") + " %"


def percent_to_a_tenth(share: float) -> str:
    """Return a share as a percentage with one digit behind the point, so that numbers side by side look alike."""
    return f"{100.0 * share:.1f} %"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers, about ``count`` of them, from ``low`` or a little less to ``high`` or a little more."""
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0.0 else 1.0
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= raw * (1.0 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, max(last, first + 1) + 1)]


def line_chart(
    lines: Sequence[Line],
    *,
    description: str,
    x_label: str,
    y_label: str,
    y_max: float | None = None,
    write: Callable[[float], str] = percent,
) -> str:
    """Return the SVG of lines over a common axis, with the legend below.

    Parameters
    ----------
    lines : sequence of Line
    description : str
        What the picture shows, for those who do not see it.
    x_label, y_label : str
    y_max : float, optional
        The end of the vertical axis at least, so that pictures can be compared; it starts at 0.
    write : callable
        How numbers on the axes are written.
    """
    if not lines or any(len(line.x) != len(line.y) or not len(line.x) for line in lines):
        raise ValueError("A chart needs lines, and each of them as many values of y as of x, at least one.")
    x_low, x_high = min(min(line.x) for line in lines), max(max(line.x) for line in lines)
    x_ticks = [x for x in ticks(x_low, x_high) if x_low - 1e-9 <= x <= x_high + 1e-9] or [x_low]
    y_ticks = ticks(0.0, max([1e-9 if y_max is None else y_max, *(max(line.y) for line in lines)]))
    bottom = _TOP + _PLOT_HEIGHT
    x_place = _scale(x_low, x_high, _LEFT + 8.0, _WIDTH - _RIGHT)
    y_place = _scale(y_ticks[0], y_ticks[-1], bottom, _TOP)
    parts = [f'<path class="grid" d="M{_LEFT:g},{y_place(y):.1f}H{_WIDTH - _RIGHT:g}"/>' for y in y_ticks]
    parts += [_text(_LEFT - 6, y_place(y) + 4, write(y), "end") for y in y_ticks]
    parts += [_text(x_place(x), bottom + 18, write(x), "middle") for x in x_ticks]
    parts.append(f'<path class="axis" d="M{_LEFT:g},{bottom:g}H{_WIDTH - _RIGHT:g}"/>')
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, bottom + 38, x_label, "middle", "label"))
    parts.append(
        f'<g transform="translate(12,{_TOP + _PLOT_HEIGHT / 2:g}) rotate(-90)">'
        + _text(0, 0, y_label, "middle", "label")
        + "</g>"
    )
    # Later lines are drawn first: the first one, which matters most, is on top.
    for index, line in reversed(list(enumerate(lines))):
        parts.append(_drawn(line, index, x_place, y_place, write))
    for index, line in enumerate(lines):
        y = bottom + _BELOW + _LEGEND_LINE * (index + 0.5)
        parts.append(
            f'<g class="s{index % _N_STYLES}"><path class="line" d="M{_LEFT:g},{y:g}h34"/>'
            + _mark(_LEFT + 17, y, index, "")
            + "</g>"
            + _text(_LEFT + 44, y + 4, line.name)
        )
    return _svg("\n".join(parts), bottom + _BELOW + _LEGEND_LINE * (len(lines) + 0.5), description)


def heat_map(
    values: Sequence[Sequence[float]],
    *,
    description: str,
    rows: Sequence[str],
    columns: Sequence[str],
    row_label: str,
    column_label: str,
    chosen: tuple[int, int] | None = None,
    write: Callable[[float], str] = percent,
) -> str:
    """Return the SVG of a table of shaded cells, the highest darkest; the chosen one has a frame.

    Parameters
    ----------
    values : nested sequence of float, one row of values per row
    description : str
    rows, columns : sequence of str
        What stands at the left of the rows and below the columns.
    row_label, column_label : str
    chosen : tuple of int, optional
        Row and column of the cell with a frame.
    write : callable
        How a value is written into its cell, if there is room for it; else it is the cell's title alone.
    """
    if len(values) != len(rows) or any(len(row) != len(columns) for row in values) or not columns or not rows:
        raise ValueError("A heat map needs one name per row and per column.")
    finite = [value for row in values for value in row if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    left = min(0.5 * _WIDTH, 36.0 + 7.0 * max(map(len, rows)))
    width, bottom = (_WIDTH - _RIGHT - left) / len(columns), _TOP + _CELL_HEIGHT * len(rows)
    room = width >= 6.6 * max(len(write(value)) for row in values for value in row)
    parts, frame = [], ""
    for i, row in enumerate(values):
        y = _TOP + _CELL_HEIGHT * i
        parts.append(_text(left - 6, y + _CELL_HEIGHT / 2 + 4, rows[i], "end"))
        for j, value in enumerate(row):
            share = (value - low) / (high - low) if math.isfinite(value) and high > low else 0.0
            box = f'x="{left + width * j:.1f}" y="{y:g}" width="{width:.1f}" height="{_CELL_HEIGHT:g}"'
            title = escape(f"{row_label} {rows[i]}, {column_label} {columns[j]}: {write(value)}")
            parts.append(
                f'<rect class="cell" {box} fill-opacity="{0.03 + 0.45 * share:.2f}"><title>{title}</title></rect>'
            )
            if room:
                parts.append(_text(left + width * (j + 0.5), y + _CELL_HEIGHT / 2 + 4, write(value), "middle", "value"))
            if chosen == (i, j):
                frame = f'<rect class="chosen" {box}/>'
    parts += [_text(left + width * (j + 0.5), bottom + 18, name, "middle") for j, name in enumerate(columns)]
    parts.append(_text((left + _WIDTH - _RIGHT) / 2, bottom + 38, column_label, "middle", "label"))
    parts.append(
        f'<g transform="translate(12,{(_TOP + bottom) / 2:g}) rotate(-90)">'
        + _text(0, 0, row_label, "middle", "label")
        + "</g>"
    )
    return _svg("\n".join([*parts, frame]), bottom + _BELOW, description)


# Parts --------------------------------------------------------------------------------------------------------------


def _scale(first: float, last: float, begin: float, end: float) -> Callable[[float], float]:
    """Return where numbers from ``first`` to ``last`` are drawn; a single one in the middle."""
    return lambda value: begin + (end - begin) * ((value - first) / (last - first) if last > first else 0.5)


def _drawn(
    line: Line, index: int, x_place: Callable[[float], float], y_place: Callable[[float], float], write: Callable
) -> str:
    """Return the band, the line and the marks of one line, from left to right."""
    order = sorted(range(len(line.x)), key=lambda i: line.x[i])
    points = [(x_place(line.x[i]), y_place(line.y[i])) for i in order]
    parts = []
    if line.spread is not None:
        bottom = _TOP + _PLOT_HEIGHT
        above = [(x_place(line.x[i]), max(_TOP, y_place(line.y[i] + line.spread[i]))) for i in order]
        below = [(x_place(line.x[i]), min(bottom, y_place(line.y[i] - line.spread[i]))) for i in reversed(order)]
        parts.append(f'<path class="band" d="M{_path([*above, *below])}z"/>')
    parts.append(f'<path class="line" d="M{_path(points)}"/>')
    for i, (x, y) in zip(order, points, strict=True):
        spread = "" if line.spread is None else f" ± {write(line.spread[i])}"
        parts.append(_mark(x, y, index, f"{line.name}, {write(line.x[i])}: {write(line.y[i])}{spread}"))
    return f'<g class="s{index % _N_STYLES}">' + "".join(parts) + "</g>"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _mark(x: float, y: float, index: int, title: str) -> str:
    said = f"<title>{escape(title)}</title>" if title else ""
    return f'<path class="mark" transform="translate({x:.1f},{y:.1f})" d="{_MARKS[index % len(_MARKS)]}">{said}</path>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(content: str, height: float, description: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {height:g}" role="img" '
        f'aria-label="{escape(description)}">\n{content}\n</svg>'
    )
