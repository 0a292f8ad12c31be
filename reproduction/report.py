"""The report of the paper's experiments, an HTML page: measured and published numbers, and the claims one by one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from dropmargin.io.model.atomic import write_atomically
from dropmargin.report.chart import Axis, Line, line_chart
from dropmargin.report.page import Code, Facts, Figure, Figures, Heading, Paragraphs, Part, Table
from reproduction.harness import Experiment
from reproduction.results_log import ResultsLog, ResultsLogError, command_of
from reproduction.summary import Chart, Claim, Comparison, Summary, three_digits

TITLE = "Dropout Training for Support Vector Machines: the experiments, reproduced"
_MINUS = "\N{MINUS SIGN}"
# An axis of values that differ by more than this factor is logarithmic ...
_ORDERS = 50.0
# ... and one whose least value is above this share of the greatest does not start at 0.
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


def reproduction_page(chapters: Sequence[Chapter], missing: Mapping[str, str] | None = None) -> list[Part]:
    """Return the parts of the page.

    Parameters
    ----------
    chapters : sequence of Chapter
        The experiments that were run, in their order.
    missing : mapping of str to str, optional
        Those that were not: why not, by their names.
    """
    parts: list[Part] = [Paragraphs(_lead(chapters), lead=True)]
    if missing:
        parts.append(Paragraphs([f"Not on this page: {name}. {why}" for name, why in missing.items()], small=True))
    for chapter in chapters:
        parts += _chapter(chapter)
    return parts


def write_figures(folder: str | os.PathLike[str], chapters: Sequence[Chapter]) -> list[Path]:
    """Write each chart as an SVG file and return the paths."""
    found = []
    for chapter in chapters:
        for chart in chapter.summary.charts:
            svg = chart_svg(chart, with_title=True)
            if svg is None:
                continue
            Path(folder).mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^a-z0-9]+", "-", chart.slug.lower()).strip("-") + "-quick" * chapter.quick
            path = Path(folder) / f"{name}.svg"
            write_atomically(path, [_standalone(svg).encode("utf-8", errors="replace")])
            found.append(path)
    return found


def _standalone(svg: str) -> str:
    """Return a chart as SVG with its style inside, for a separate file; it follows the viewer's light or dark theme."""
    style = files("dropmargin.report").joinpath("chart.css").read_text(encoding="utf-8")
    start, rest = svg.split(">", 1)
    own = "svg { background: var(--paper); font-family: system-ui, 'DejaVu Sans', sans-serif; }"
    return f"{start}>\n<style>\n{style}{own}\n</style>{rest}\n"


def count_text(claims: Sequence[Claim]) -> str:
    """Return how many claims hold, in words."""
    return f"{_holding(claims)} {'holds' if sum(claim.holds for claim in claims) == 1 else 'hold'}"


def _holding(claims: Sequence[Claim]) -> str:
    return f"{sum(claim.holds for claim in claims)} of {len(claims)}"


def result_text(claim: Claim) -> str:
    """Return whether a claim holds."""
    return "holds" if claim.holds else "does not hold"


# Words ----------------------------------------------------------------------------------------------------------------


def _lead(chapters: Sequence[Chapter]) -> list[str]:
    claims = [claim for chapter in chapters for claim in chapter.summary.claims]
    count = count_text(claims)
    each = "; ".join(f"{chapter.summary.title}: {_holding(chapter.summary.claims)}" for chapter in chapters)
    texts = [
        "The experiments of the paper Dropout Training for Support Vector Machines (Chen, Zhu, Chen and Zhang, 2014), "
        "run anew on real data with dropmargin. Our numbers were all measured; the published ones are those of that "
        "paper and of Learning with Marginalized Corrupted Features (van der Maaten, Chen, Tyree, Weinberger, 2013).",
        f"Of the claims that were checked, {count}." + (f" {each}." if len(chapters) > 1 else ""),
    ]
    quick = [chapter.name for chapter in chapters if chapter.quick]
    if quick:
        which = "All of it" if len(quick) == len(chapters) else f"Part of it ({', '.join(quick)})"
        texts.append(f"{which} is the quick form of the experiments: fewer settings or less data than the full runs.")
    return texts


def _chapter(chapter: Chapter) -> list[Part]:
    summary = chapter.summary
    figures = [figure for chart in summary.charts if (figure := _figure(chart)) is not None]
    parts: list[Part] = [Heading(summary.title), Paragraphs(summary.verdict)]
    if figures:
        parts.append(Figures(figures))
    parts += [_comparison_table(comparison) for comparison in summary.comparisons]
    if summary.claims:
        parts.append(_claims_table(summary))
    return [*parts, Facts(_facts(chapter)), Code(_command(chapter.name, chapter.header))]


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


# Pictures -------------------------------------------------------------------------------------------------------------


def chart_svg(chart: Chart, *, with_title: bool = False) -> str | None:
    """Return the plot of a chart, or None if it has no values."""
    lines = [
        Line(series.name, series.x, series.y, method=series.method, published=series.published)
        for series in chart.series
        if any(y is not None for y in series.y)
    ]
    if not lines:
        return None
    axis = _axis(chart)
    return line_chart(
        lines,
        description=_description(chart),
        x_label=chart.x_label,
        y_label=chart.y_label + (" (log scale)" if axis == "log" else ""),
        y_axis=axis,
        x_names=chart.x_names,
        title=chart.title if with_title else "",
        write=_short,
        write_x=lambda x: f"{x:g}",
    )


def _figure(chart: Chart) -> Figure | None:
    svg = chart_svg(chart)
    note = " The vertical axis does not start at 0." if _axis(chart) == "near" else ""
    return None if svg is None else Figure(svg, chart.title, chart.caption.rstrip() + note)


def _axis(chart: Chart) -> Axis:
    """Return the axis on which the values differ visibly."""
    values = [y for series in chart.series for y in series.y if y is not None]
    if not values or min(values) <= 0.0:
        return "zero"
    if max(values) > _ORDERS * min(values):
        return "log"
    return "near" if min(values) > _NEAR * max(values) else "zero"


def _short(value: float) -> str:
    """Return a number as the papers print errors, ``.14``: with two digits, or as many more as it has up to four."""
    text = f"{value:.4g}"
    if 0.0 < value < 1.0 and len(text.partition(".")[2]) < 2:
        text = f"{value:.2f}"
    return text if value == 0.0 else text.removeprefix("0")


def _description(chart: Chart) -> str:
    """Return the chart in words: the least value of each line and where it is."""
    least = []
    for series in chart.series:
        found = [(y, x) for x, y in zip(series.x, series.y, strict=True) if y is not None]
        if found:
            y, x = min(found)
            where = f"{x:g}" if chart.x_names is None else chart.x_names[int(x)]
            least.append(f"{series.name} {_short(y)} at {where}")
    return f"{chart.title}: {chart.y_label} by {chart.x_label}. The least of each line: {'; '.join(least)}."


# Tables ---------------------------------------------------------------------------------------------------------------


def difference_text(ours: float, published: float) -> str:
    """Return a difference of errors in points, of a percent each, with its sign."""
    text = f"{100.0 * (ours - published):+.1f}".replace("-", _MINUS)
    return "0.0" if text in ("+0.0", f"{_MINUS}0.0") else text


def _comparison_table(comparison: Comparison) -> Table:
    """Return up to three rows per method: ours, the published ones, the differences."""
    rows: list[list[str]] = []
    below, of_ours = set(), []
    for name, (ours, published) in comparison.rows.items():
        of_ours.append(len(rows))
        rows.append([name, *map(_cell, ours)])
        if any(value is not None for value in published):
            below |= {len(rows), len(rows) + 1}
            rows.append(["published", *map(_cell, published)])
            pairs = zip(ours, published, strict=True)
            differences = ["" if a is None or b is None else difference_text(a, b) for a, b in pairs]
            rows.append(["difference", *differences])
    caption, lowest = f"{comparison.caption}.", frozenset[tuple[int, int]]()
    if len(of_ours) > 1:  # a single row has nothing to be lower than
        lowest = _lowest(rows, of_ours, len(comparison.columns))
        caption += " The lowest of ours in each column is marked."
    if below:
        caption += " The difference is ours less the published one, in points of a percent."
    return Table(caption, ["", *comparison.columns], rows, lowest, below=frozenset(below))


def _lowest(rows: Sequence[Sequence[str]], which: Sequence[int], n_columns: int) -> frozenset[tuple[int, int]]:
    """Return the cells of the lowest number of each column, as printed: what reads the same is marked the same."""
    found = set()
    for column in range(1, n_columns + 1):
        numbers = {row: float(rows[row][column]) for row in which if rows[row][column]}
        found |= {(row, column) for row, number in numbers.items() if number == min(numbers.values())}
    return frozenset(found)


def _cell(error: float | None) -> str:
    return "" if error is None else three_digits(error)


def _claims_table(summary: Summary) -> Table:
    claims = summary.claims
    rows = [[claim.text, result_text(claim), claim.evidence] for claim in claims]
    return Table(
        f"{summary.title}: the claims, of which {count_text(claims)}",
        ["claim", "here", "evidence"],
        rows,
        frozenset((i, 1) for i, claim in enumerate(claims) if claim.holds),
        words=True,
        worst=frozenset((i, 1) for i, claim in enumerate(claims) if not claim.holds),
        sentences=True,
    )
