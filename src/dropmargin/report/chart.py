"""Pictures as SVG text: lines with marks, and a map of shaded cells. One picture for light and dark, print and screen.

Colours are classes, to which the style sheet of pictures (``chart.css``) gives values, theme by theme. Every text is
escaped. Nothing is drawn by a script; what a mark stands for is its ``<title>``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

# Units of the picture, which is as wide as its column: about pixels on a telephone.
_WIDTH = 400.0
# Many lines need more room.
_PLOT_HEIGHT, _TALL_PLOT_HEIGHT, _MANY_LINES = 250.0, 350.0, 9
_LEFT, _RIGHT, _TOP, _BELOW = 62.0, 16.0, 12.0, 46.0
_LEGEND_LINE = 20.0
_CELL_HEIGHT = 30.0
_TITLE_HEIGHT = 26.0
_N_COLOURS = 8
# What the names of published lines may end with; the legend has a key for that.
_PUBLISHED = ", published"
# About how wide a letter is.
_LETTER = 6.6
# A logarithmic axis has a tick at each power of ten; further apart than this many, at every second, third, ... one.
_MOST_POWERS = 8

#: The outline of each mark, around (0, 0).
_MARKS = (
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M-3.6,-3.6h7.2v7.2h-7.2z",
    "M0,-4.8L4.4,3.2L-4.4,3.2z",
    "M0,-5L5,0L0,5L-5,0z",
    "M0,4.8L4.4,-3.2L-4.4,-3.2z",
    "M-4,-1.4h2.6v-2.6h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6z",
    "M-2,-4.6h4v9.2h-4z",
    "M-4.6,-2h9.2v4h-9.2z",
)

Axis = Literal["zero", "near", "log"]
Place = Callable[[float], float]


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Parameters
    ----------
    name : str
    x : sequence of float
    y : sequence of float or None
        None leaves a gap.
    spread : sequence of float, optional
        Half the width of a band around the line, such as a standard deviation.
    method : str, optional
        Lines of one method have one colour, and those named ``m`` and ``m, published`` one place in the legend. If
        lines have methods, dashes tell published lines from measured ones; else they tell each line from the others.
    published : bool
        Whether to draw it dashed, with hollow marks.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    spread: Sequence[float] | None = None
    method: str | None = None
    published: bool = False


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
    y_axis: Axis = "zero",
    x_names: Sequence[str] | None = None,
    title: str = "",
    write: Callable[[float], str] = percent,
    write_x: Callable[[float], str] | None = None,
) -> str:
    """Return the SVG of lines over a common axis, with the legend below.

    Parameters
    ----------
    lines : sequence of Line
    description : str
        What the picture shows, for those who do not see it.
    x_label, y_label : str
    y_max : float, optional
        The end of the vertical axis at least, so that pictures can be compared.
    y_axis : {"zero", "near", "log"}
        Where the vertical axis starts: at 0, or at a round number just below the least value; or whether it is
        logarithmic.
    x_names : sequence of str, optional
        What is written at the places 0, 1, 2, ... of the horizontal axis, which all ``x`` are then among.
    title : str
        A line above the picture, if it is to stand alone.
    write : callable
        How numbers on the axes are written.
    write_x : callable, optional
        How those of the horizontal axis are, if it is another way.
    """
    lines = [line for line in lines if any(y is not None for y in line.y) or len(line.x) != len(line.y)]
    if not lines or any(len(line.x) != len(line.y) for line in lines):
        raise ValueError("A chart needs lines, and each of them as many values of y as of x, at least one.")
    write_x = write if write_x is None else write_x
    if x_names is not None:
        write_x = _names_of_places(lines, x_names)
    bottom = _TOP + (_PLOT_HEIGHT if len(lines) < _MANY_LINES else _TALL_PLOT_HEIGHT)
    x_ticks, x_place = _horizontal(lines, x_names)
    y_ticks, y_place = _vertical(lines, y_axis, y_max, bottom)
    canvas = _Canvas(x_place, y_place, write_x, write, bottom)
    parts = [f'<path class="grid" d="M{_LEFT:g},{y_place(y):.1f}H{_WIDTH - _RIGHT:g}"/>' for y in y_ticks]
    parts += [_text(_LEFT - 6, y_place(y) + 4, write(y), "end") for y in y_ticks]
    parts += _without_overlap([(x_place(x), write_x(x)) for x in x_ticks], bottom + 18)
    parts.append(f'<path class="axis" d="M{_LEFT:g},{bottom:g}H{_WIDTH - _RIGHT:g}"/>')
    parts += _labels(x_label, y_label, (_LEFT + _WIDTH - _RIGHT) / 2, bottom)
    styles = _styles(lines)
    # Later lines are drawn first: the first one, which matters most, is on top; and measured ones on published ones.
    for index in sorted(range(len(lines)), key=lambda i: (not lines[i].published, -i)):
        parts.append(_drawn(lines[index], styles[index], canvas))
    legend, height = _legend(lines, styles, bottom + _BELOW)
    kind = ' class="paired"' if any(line.method is not None for line in lines) else ""
    return _svg("\n".join([*parts, *legend]), bottom + _BELOW + height, description, title, kind)


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
    room = width >= _LETTER * max(len(write(value)) for row in values for value in row)
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
    parts += _labels(column_label, row_label, (left + _WIDTH - _RIGHT) / 2, bottom)
    return _svg("\n".join([*parts, frame]), bottom + _BELOW, description)


# Axes ---------------------------------------------------------------------------------------------------------------


def _scale(first: float, last: float, begin: float, end: float) -> Place:
    """Return where numbers from ``first`` to ``last`` are drawn; a single one in the middle."""
    return lambda value: begin + (end - begin) * ((value - first) / (last - first) if last > first else 0.5)


def _names_of_places(lines: Sequence[Line], names: Sequence[str]) -> Callable[[float], str]:
    """Return what is written at the places of a named axis, after checking that all lines keep to them."""
    for line in lines:
        for x in line.x:
            if x not in range(len(names)):
                raise ValueError(f"x must be among 0 to {len(names) - 1}, the places that x_names has, got {x}.")
    return lambda place: names[int(place)]


def _horizontal(lines: Sequence[Line], names: Sequence[str] | None) -> tuple[list[float], Place]:
    """Return the ticks of the horizontal axis, and where its numbers are."""
    if names is not None:
        return [float(place) for place in range(len(names))], _scale(0, len(names) - 1, _LEFT + 12, _WIDTH - _RIGHT - 8)
    low, high = min(min(line.x) for line in lines), max(max(line.x) for line in lines)
    found = [x for x in ticks(low, high) if low - 1e-9 <= x <= high + 1e-9] or [low]
    return found, _scale(low, high, _LEFT + 8.0, _WIDTH - _RIGHT)


def _vertical(lines: Sequence[Line], axis: Axis, y_max: float | None, bottom: float) -> tuple[list[float], Place]:
    """Return the ticks of the vertical axis, and where its numbers are."""
    values = [y for line in lines for y in line.y if y is not None]
    low, high = min(values), max([1e-9 if y_max is None else y_max, *values])
    if axis == "log":
        first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
        step = math.ceil((last - first) / _MOST_POWERS) or 1
        powers = range(first, max(last, first + 1) + step, step)
        place = _scale(powers[0], powers[-1], bottom, _TOP)
        return [10.0**power for power in powers], lambda value: place(math.log10(value))
    found = ticks(low if axis == "near" else min(0.0, low), high)
    return found, _scale(found[0], found[-1], bottom, _TOP)


def _without_overlap(places: Sequence[tuple[float, str]], y: float) -> list[str]:
    """Return the texts along an axis, but for those that have no room beside the last one and those before."""
    last_x, last_text = places[-1]
    limit = last_x - _LETTER * len(last_text) / 2
    kept, end = [], -math.inf
    for x, text in places[:-1]:
        half = _LETTER * len(text) / 2
        if x - half > end + 2.0 and x + half + 2.0 < limit:
            kept.append((x, text))
            end = x + half
    return [_text(x, y, text, "middle") for x, text in [*kept, places[-1]]]


def _labels(x_label: str, y_label: str, middle: float, bottom: float) -> list[str]:
    """Return what the axes stand for."""
    upright = _text(0, 0, y_label, "middle", "label")
    return [
        _text(middle, bottom + 38, x_label, "middle", "label"),
        f'<g transform="translate(12,{(_TOP + bottom) / 2:g}) rotate(-90)">{upright}</g>',
    ]


# Lines and their legend -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Canvas:
    """Where numbers are drawn, how they are written, and where the plot ends."""

    x_place: Place
    y_place: Place
    write_x: Callable[[float], str]
    write_y: Callable[[float], str]
    bottom: float


@dataclass(frozen=True)
class _Style:
    """The colour of a line, whose number is its class, and its mark."""

    colour: int
    mark: int
    published: bool

    @property
    def kind(self) -> str:
        return f"s{self.colour % _N_COLOURS}" + " published" * self.published


def _styles(lines: Sequence[Line]) -> list[_Style]:
    """Return the style of each line: a colour per method, and a mark per method unless it has several lines alike."""
    colours: dict[str, int] = {}
    taken: dict[tuple[str, bool], int] = {}
    styles: list[_Style] = []
    for line in lines:
        method = line.name if line.method is None else line.method
        colour = len(styles) if line.method is None else colours.setdefault(method, len(colours))
        before = 0 if line.method is None else taken.get((method, line.published), 0)
        taken[method, line.published] = before + 1
        # Beyond the last colour they begin anew, with other marks.
        styles.append(_Style(colour, colour + colour // _N_COLOURS + 3 * before, line.published))
    return styles


def _legend(lines: Sequence[Line], styles: Sequence[_Style], top: float) -> tuple[list[str], float]:
    """Return what the lines are, and how high that is: an entry per method, or per line if they have no methods."""
    paired = any(line.method is not None for line in lines)
    entries = _entries(lines, styles)
    samples = max(len(found) for _, found in entries)
    left, name_at = (12.0, 32.0 * samples + 8.0) if paired else (_LEFT, 44.0)
    width = (_WIDTH - _RIGHT - left) / 2
    columns = 2 if paired and name_at + _LETTER * max(len(name) for name, _ in entries) <= width else 1
    rows = math.ceil(len(entries) / columns)
    parts = []
    for index, (name, found) in enumerate(entries):
        x, y = left + width * (index // rows), top + _LEGEND_LINE * (index % rows + 0.5)
        for place, style in enumerate(found):
            parts.append(_sample(x + 32.0 * place, y, style, 28.0 if paired else 34.0))
        parts.append(_text(x + name_at, y + 4, name))
    if any(style.published for style in styles):
        y = top + _LEGEND_LINE * (rows + 0.75)
        parts.append(f'<g class="key"><path class="line" d="M{left:g},{y:g}h28"/></g>')
        parts.append(_text(left + 36, y + 4, "measured here"))
        parts.append(f'<g class="key published"><path class="line" d="M{left + 146:g},{y:g}h28"/></g>')
        parts.append(_text(left + 182, y + 4, "published"))
        rows += 1
    return parts, _LEGEND_LINE * (rows + 0.5)


def _entries(lines: Sequence[Line], styles: Sequence[_Style]) -> list[tuple[str, list[_Style]]]:
    """Return the names of the legend, each with the styles of its lines.

    A published line stands beside the measured one of its method if it has the same name, but for what is added to it.
    """
    measured = {line.name: index for index, line in enumerate(lines) if not line.published}
    beside: dict[int, list[_Style]] = {}
    entries = []
    for index, (line, style) in enumerate(zip(lines, styles, strict=True)):
        name = line.name.removesuffix(_PUBLISHED) if line.published else line.name
        partner = measured.get(name, index)
        if line.published and partner != index and lines[partner].method == line.method and partner not in beside:
            beside[partner] = [styles[partner], style]
        else:
            entries.append((index, name))
    return [(name, beside.get(index, [styles[index]])) for index, name in entries]


def _sample(x: float, y: float, style: _Style, width: float) -> str:
    line = f'<path class="line" d="M{x:g},{y:g}h{width:g}"/>'
    return f'<g class="{style.kind}">{line}{_mark(x + width / 2, y, style.mark, "")}</g>'


def _drawn(line: Line, style: _Style, canvas: _Canvas) -> str:
    """Return the bands, the lines and the marks of one line, from left to right, with gaps where there is no value."""
    x_place, y_place, write = canvas.x_place, canvas.y_place, canvas.write_y
    bands, paths, marks = [], [], []
    for run in _runs(line):
        points = [(x_place(x), y_place(y)) for x, y, _ in run]
        if line.spread is not None:
            above = [(x_place(x), max(_TOP, y_place(y + spread))) for x, y, spread in run]
            below = [(x_place(x), min(canvas.bottom, y_place(y - spread))) for x, y, spread in reversed(run)]
            bands.append(f'<path class="band" d="M{_path([*above, *below])}z"/>')
        paths.append(f"M{_path(points)}")
        for (x, y, spread), (left, top) in zip(run, points, strict=True):
            said = "" if line.spread is None else f" ± {write(spread)}"
            marks.append(_mark(left, top, style.mark, f"{line.name}, {canvas.write_x(x)}: {write(y)}{said}"))
    drawn = [*bands, f'<path class="line" d="{"".join(paths)}"/>', *marks]
    return f'<g class="{style.kind}">' + "".join(drawn) + "</g>"


def _runs(line: Line) -> list[list[tuple[float, float, float]]]:
    """Return the points of a line, from left to right, with their spreads: one list for each part without a gap."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for i in sorted(range(len(line.x)), key=lambda i: line.x[i]):
        y = line.y[i]
        if y is not None:
            runs[-1].append((line.x[i], y, 0.0 if line.spread is None else line.spread[i]))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


# Parts --------------------------------------------------------------------------------------------------------------


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _mark(x: float, y: float, index: int, title: str) -> str:
    said = f"<title>{escape(title)}</title>" if title else ""
    return f'<path class="mark" transform="translate({x:.1f},{y:.1f})" d="{_MARKS[index % len(_MARKS)]}">{said}</path>'


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "tick") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(content: str, height: float, description: str, title: str = "", kind: str = "") -> str:
    above = _TITLE_HEIGHT if title else 0.0
    heading = _text(_WIDTH / 2, -8.0, title, "middle", "title") + "\n" if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg"{kind} viewBox="0 {-above:g} {_WIDTH:g} {height + above:g}" '
        f'role="img" aria-label="{escape(description)}">\n{heading}{content}\n</svg>'
    )
