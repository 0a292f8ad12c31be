"""The report of the paper's experiments, an HTML page: measured and published numbers, and the claims one by one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dropmargin.io.atomic import write_atomically
from dropmargin.plotting.style import LEGEND, LINE, line_style, plain_text, tidy
from dropmargin.report import Plot, Section, Table, draw_svg
from reproduction.harness import Experiment
from reproduction.results_log import ResultsLog, ResultsLogError, code_version, command_of, version_of
from reproduction.summary import Chart, Claim, Comparison, Series, Summary, three_digits

TITLE = "Dropout Training for Support Vector Machines: the experiments, reproduced"
_SOURCES = (
    "The experiments of the paper Dropout Training for Support Vector Machines (Chen, Zhu, Chen and Zhang, 2014), run "
    "again on real data with dropmargin. Published numbers are those of that paper and of Learning with Marginalized "
    "Corrupted Features (van der Maaten, Chen, Tyree, Weinberger, 2013); all others were measured."
)
_DASHES = (0.0, (4.0, 2.5))
_MINUS = "\N{MINUS SIGN}"
# An axis is logarithmic if its values differ by more than this factor ...
_LOG_FACTOR = 50.0
# ... and does not start at 0 if the smallest value is above this share of the largest.
_NEAR = 0.3


@dataclass(frozen=True)
class Chapter:
    """An experiment in the report.

    Parameters
    ----------
    name : str
        Its name on the command line.
    summary : Summary
    header : mapping
        The first line of its results log.
    n_measurements : int
    """

    name: str
    summary: Summary
    header: Mapping[str, Any]
    n_measurements: int

    @property
    def quick(self) -> bool:
        """Whether it is the short form of the experiment."""
        return bool(self.header.get("quick"))


def chapter_of(experiment: Experiment, log: ResultsLog) -> Chapter:
    """Return the chapter on a results log.

    Raises
    ------
    ResultsLogError
        If the log is not complete.
    """
    try:
        summary = experiment.summarise(log)
    except Exception as error:  # a missing measurement can raise any of them
        raise ResultsLogError(
            f"no report can be made of the results in {log.path}, {len(log)} in number ({type(error).__name__}: "
            f"{error}). If they are not complete, run {_command(experiment.name, log.header)} to go on."
        ) from error
    return Chapter(experiment.name, summary, log.header, len(log))


def _command(name: str, header: Mapping[str, Any]) -> str:
    return command_of(name, bool(header.get("quick")), header.get("seed", 0))


def reproduction_verdict(chapters: Sequence[Chapter]) -> str:
    """Return how many claims hold, in all and by experiment."""
    text = count_text([claim for chapter in chapters for claim in chapter.summary.claims])
    each = "; ".join(f"{chapter.summary.title} {_holding(chapter.summary.claims)}" for chapter in chapters)
    return f"Of the claims that were checked, {text}" + (f": {each}." if len(chapters) > 1 else ".")


def reproduction_notes(chapters: Sequence[Chapter], missing: Mapping[str, str] | None = None) -> list[str]:
    """Return the sources, and notes on experiments that are quick, missing, or of another version.

    Parameters
    ----------
    chapters : sequence of Chapter
    missing : mapping of str to str, optional
        The experiments without a chapter: the reasons by name.
    """
    texts = [_SOURCES]
    quick = [chapter.name for chapter in chapters if chapter.quick]
    if quick:
        which = "All of it" if len(quick) == len(chapters) else f"Part of it ({', '.join(quick)})"
        texts.append(f"{which} is the quick form of the experiments: fewer settings or less data than the full runs.")
    by_version: dict[str, list[str]] = {}
    for chapter in chapters:
        by_version.setdefault(version_of(chapter.header), []).append(chapter.name)
    for version, names in by_version.items():
        if version != code_version():
            texts.append(
                f"Measured with dropmargin {version}, not with the present {code_version()}: {', '.join(names)}."
            )
    return texts + [f"Not on this page: {name}. {reason}" for name, reason in (missing or {}).items()]


def reproduction_sections(chapters: Sequence[Chapter]) -> list[Section]:
    """Return a section for each experiment."""
    return [
        Section(
            chapter.summary.title,
            verdict=f"{_holding(chapter.summary.claims)} claims hold." if chapter.summary.claims else "",
            plots=[plot for chart in chapter.summary.charts if (plot := _plot(chart)) is not None],
            paragraphs=chapter.summary.verdict,
            tables=[_comparison_table(comparison) for comparison in chapter.summary.comparisons],
            claims=[(claim.text, claim.holds, claim.evidence) for claim in chapter.summary.claims],
            facts=_facts(chapter),
            command=_command(chapter.name, chapter.header),
        )
        for chapter in chapters
    ]


def write_figures(folder: str | os.PathLike[str], chapters: Sequence[Chapter]) -> list[Path]:
    """Write each chart as an SVG file and return the paths."""
    paths = []
    for chapter in chapters:
        for chart in chapter.summary.charts:
            svg = chart_svg(chart, standalone=True)
            if svg is None:
                continue
            Path(folder).mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^a-z0-9]+", "-", chart.slug.lower()).strip("-") + "-quick" * chapter.quick
            paths.append(Path(folder) / f"{name}.svg")
            write_atomically(paths[-1], [f"{svg}\n".encode()])
    return paths


def count_text(claims: Sequence[Claim]) -> str:
    """Return how many claims hold, in words."""
    return f"{_holding(claims)} {'holds' if sum(claim.holds for claim in claims) == 1 else 'hold'}"


def _holding(claims: Sequence[Claim]) -> str:
    return f"{sum(claim.holds for claim in claims)} of {len(claims)}"


def result_text(claim: Claim) -> str:
    """Return whether a claim holds."""
    return "holds" if claim.holds else "does not hold"


def _facts(chapter: Chapter) -> dict[str, str]:
    header, summary = chapter.header, chapter.summary
    versions = header.get("versions")
    named = versions if isinstance(versions, Mapping) else {}
    facts = dict(summary.settings)
    facts["Measurements"] = f"{chapter.n_measurements}, which took {duration_text(summary.seconds)}"
    if chapter.quick:
        facts["Form"] = "quick"
    facts["Seed, threads"] = f"{header.get('seed', '?')}, {header.get('threads', '?')}"
    facts["Versions"] = ", ".join(f"{name} {version}" for name, version in named.items()) or "unknown"
    return facts


def duration_text(seconds: float) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds < 120.0:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60.0:.0f} minutes" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} hours"


# Plots ----------------------------------------------------------------------------------------------------------------


def chart_svg(chart: Chart, *, standalone: bool = False) -> str | None:
    """Return the plot of a chart, or None if it has no values; a standalone one has the title above it."""
    series = [one for one in chart.series if any(y is not None for y in one.y)]
    if not series:
        return None

    def draw(figure: Any) -> None:
        draw_chart(figure, chart, series)
        if standalone:
            figure.suptitle(plain_text(chart.title), fontsize="medium", fontweight="bold")

    size = (4.9, 3.6 + 0.1 * len(series))
    return draw_svg(draw, title=chart.title, description=_description(chart), size=size, standalone=standalone)


def draw_chart(figure: Any, chart: Chart, series: Sequence[Series]) -> None:
    """Draw the lines of a chart, the first on top: measured ones solid, published ones dashed in the same colour."""
    from matplotlib.lines import Line2D

    ax = figure.subplots()
    methods = list(dict.fromkeys(one.method for one in series))
    measured = {one.method for one in series if not one.published}
    handles = []
    for index, one in enumerate(series):
        style = line_style(methods.index(one.method)) | {"linestyle": "-"}
        if one.published:
            style |= {"linestyle": _DASHES, "markerfacecolor": ax.get_facecolor(), "linewidth": 1.2}
        points = sorted(zip(one.x, one.y, strict=True), key=lambda point: point[0])
        y = [float("nan") if value is None else value for _, value in points]
        zorder = (2.0 if one.published else 3.0) - 0.01 * index
        (line,) = ax.plot([x for x, _ in points], y, zorder=zorder, **(LINE | style))
        if not (one.published and one.method in measured and one.name.endswith(", published")):
            line.set_label(plain_text(one.name))
            handles.append(line)
    if any(one.published for one in series):
        ink = ax.xaxis.label.get_color()
        handles += [Line2D([], [], color=ink, label="measured"), Line2D([], [], color=ink, label="published")]
        handles[-1].set_linestyle(_DASHES)
    _set_axes(ax, chart)
    columns = 2 if max(len(handle.get_label()) for handle in handles) <= 24 else 1
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=9, **LEGEND)


def _set_axes(ax: Any, chart: Chart) -> None:
    scale = _scale(chart)
    ax.set_xlabel(plain_text(chart.x_label))
    ax.set_ylabel(plain_text(chart.y_label) + " (log scale)" * (scale == "log"))
    if scale == "log":
        ax.set_yscale("log")
    elif scale == "zero" and min(_values(chart)) >= 0.0:
        ax.set_ylim(bottom=0.0)
    ax.yaxis.set_major_formatter(lambda value, _: _short(value))
    if chart.x_names is not None:
        ax.set_xticks(range(len(chart.x_names)), [plain_text(name) for name in chart.x_names])
    tidy(ax)


def _plot(chart: Chart) -> Plot | None:
    svg = chart_svg(chart)
    note = " The vertical axis does not start at 0." if _scale(chart) == "near" else ""
    return None if svg is None else Plot(svg, chart.title, chart.caption.rstrip() + note)


def _values(chart: Chart) -> list[float]:
    return [y for series in chart.series for y in series.y if y is not None]


def _scale(chart: Chart) -> str:
    """Return the scale of the vertical axis: ``"zero"`` (starts at 0), ``"near"`` (does not) or ``"log"``."""
    values = _values(chart)
    if not values or min(values) <= 0.0:
        return "zero"
    if max(values) > _LOG_FACTOR * min(values):
        return "log"
    return "near" if min(values) > _NEAR * max(values) else "zero"


def _short(value: float) -> str:
    """Return a number as the papers print errors, ``.14``: with two digits, or as many more as it has up to four."""
    text = f"{value:.4g}"
    if 0.0 < value < 1.0 and len(text.partition(".")[2]) < 2:
        text = f"{value:.2f}"
    return text if value == 0.0 else text.removeprefix("0")


def _description(chart: Chart) -> str:
    """Return the chart in words: the smallest value of each line and its position."""
    least = []
    for series in chart.series:
        found = [(y, x) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        if found:
            y, x = min(found)
            where = f"{x:g}" if chart.x_names is None else chart.x_names[int(x)]
            least.append(f"{series.name} {_short(y)} at {where}")
    return f"{chart.title}: {chart.y_label} by {chart.x_label}. The smallest value of each line: {'; '.join(least)}."


# Tables ---------------------------------------------------------------------------------------------------------------


def difference_text(ours: float, published: float) -> str:
    """Return a difference of errors in points, of a percent each, with its sign."""
    text = f"{100.0 * (ours - published):+.1f}".replace("-", _MINUS)
    return "0.0" if text in ("+0.0", f"{_MINUS}0.0") else text


def _comparison_table(comparison: Comparison) -> Table:
    """Return up to three rows per method: measured, published, difference."""
    rows: list[list[str]] = []
    sub_rows: set[int] = set()
    for name, (ours, published) in comparison.rows.items():
        rows.append([name, *map(_cell, ours)])
        if any(value is not None for value in published):
            sub_rows |= {len(rows), len(rows) + 1}
            rows.append(["published", *map(_cell, published)])
            pairs = zip(ours, published, strict=True)
            differences = ["" if a is None or b is None else difference_text(a, b) for a, b in pairs]
            rows.append(["difference", *differences])
    caption = f"{comparison.caption}."
    if sub_rows:
        caption += " The difference is the measured error minus the published one, in points of a percent."
    return Table(caption, ["", *comparison.columns], rows, sub_rows=frozenset(sub_rows))


def _cell(error: float | None) -> str:
    return "" if error is None else three_digits(error)
