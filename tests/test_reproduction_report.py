"""The report of the paper's experiments: measured and published lines, tables, differences and claims."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_array_equal

from dropmargin import __version__
from dropmargin.report import render_page
from made_up_experiment import COMMAND, HEADER, made_up_chart, made_up_experiment, made_up_summary
from pages import assert_self_contained, rows_of, words
from reproduction.experiments import EXPERIMENTS
from reproduction.report import (
    Chapter,
    chapter_of,
    chart_svg,
    count_text,
    difference_text,
    draw_chart,
    duration_text,
    reproduction_notes,
    reproduction_sections,
    reproduction_verdict,
    write_figures,
)
from reproduction.results_log import Measurement, ResultsLog, ResultsLogError, read_log
from reproduction.summary import Claim, Comparison, Series

SVG = "{http://www.w3.org/2000/svg}"
LOGS = sorted((Path(__file__).parent.parent / "results").glob("*.jsonl"))
HOSTILE = "\"><script>alert(1)</script>&'\x00 $x^2$"


def a_chapter(header=None, **changed):
    return Chapter("made-up", made_up_summary(**changed), HEADER if header is None else header, 12)


def a_page(*chapters, missing=None):
    chapters = chapters or [a_chapter()]
    verdict, notes = reproduction_verdict(chapters), reproduction_notes(chapters, missing)
    return render_page("A report", verdict, reproduction_sections(chapters), notes)


def drawn(chart):
    """Return the axes of a chart, and the names in its legend."""
    figure = Figure(layout="constrained")
    draw_chart(figure, chart, chart.series)
    return figure.axes[0], [text.get_text() for text in figure.legends[0].get_texts()]


# Plots ----------------------------------------------------------------------------------------------------------------


def test_published_lines_are_dashed_in_the_colour_of_their_method():
    ax, names = drawn(made_up_chart())
    ours, theirs, published = ax.get_lines()
    assert [line.get_linestyle() for line in (ours, theirs, published)] == ["-", "-", "--"]
    assert published.get_color() == theirs.get_color() != ours.get_color()
    assert published.get_markerfacecolor() != theirs.get_markerfacecolor()
    assert published.get_zorder() < theirs.get_zorder()
    assert names == ["ours", "theirs", "measured", "published"]


def test_a_missing_value_leaves_a_gap_and_points_are_sorted():
    ax, _ = drawn(made_up_chart(series=[Series("a", [2, 0, 1], [0.3, 0.1, None], "a")]))
    (line,) = ax.get_lines()
    assert_array_equal(line.get_xdata(), [0, 1, 2])
    assert_array_equal(line.get_ydata(), [0.1, np.nan, 0.3])
    assert chart_svg(made_up_chart(series=[Series("a", [0, 1], [None, None], "a")])) is None


def test_many_methods_differ_in_colour_or_marker():
    series = [Series(str(i), [0, 1], [0.1 * i, 0.2], str(i)) for i in range(16)]
    series += [Series(f"{one.name}, published", one.x, one.y, one.method, True) for one in series]
    ax, names = drawn(made_up_chart(series=series))
    styles = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in ax.get_lines()}
    assert len(styles) == 32
    assert names == [*map(str, range(16)), "measured", "published"]


def test_a_published_line_of_another_name_is_in_the_legend():
    series = [
        Series("SVM on copies", [0, 1], [0.1, 0.2], "copies"),
        Series("quadratic loss", [0, 1], [0.1, 0.3], "copies", True),
    ]
    assert drawn(made_up_chart(series=series))[1] == ["SVM on copies", "quadratic loss", "measured", "published"]


def test_names_on_the_horizontal_axis_and_in_the_description():
    series = [Series("a", [0, 1], [0.2, 0.1], "a"), Series("b", [0, 2], [0.3, 0.3], "b"), Series("c", [0], [None], "c")]
    chart = made_up_chart(series=series, x_names=["1", "4", "∞"])
    ax, _ = drawn(chart)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "4", "∞"]
    assert_array_equal(ax.get_xticks(), [0, 1, 2])
    description = ElementTree.fromstring(chart_svg(chart)).find(f"{SVG}desc").text
    assert description.endswith("The smallest value of each line: a .10 at 4; b .30 at 1.")
    assert "ours .15 at 0.5;" in ElementTree.fromstring(chart_svg(made_up_chart())).find(f"{SVG}desc").text


@pytest.mark.parametrize(
    ("values", "scale", "starts_at_0", "note"),
    [
        ([0.13, 0.17], "linear", False, "does not start at 0"),
        ([0.05, 0.4], "linear", True, ""),
        ([0.0, 0.4], "linear", True, ""),
        ([-1.5, 0.5], "linear", False, ""),
        ([0.1, 90.0], "log", False, "log scale"),
    ],
)
def test_scale_of_the_vertical_axis(values, scale, starts_at_0, note):
    chart = made_up_chart(series=[Series("a", [0, 1], values, "a")])
    ax, _ = drawn(chart)
    assert ax.get_yscale() == scale
    assert (ax.get_ylim()[0] == 0.0) == starts_at_0
    assert ax.get_ylim()[0] <= min(values)
    text = words(a_page(a_chapter(charts=[chart])))
    for candidate in ("does not start at 0", "log scale"):
        assert (candidate in text) == (candidate == note)


# The page -------------------------------------------------------------------------------------------------------------


def test_page_is_self_contained_and_complete():
    page = a_page()
    assert_self_contained(page)
    text = words(page)
    assert "Of the claims that were checked, 1 of 2 holds." in text
    assert "1 of 2 claims hold. Made up" in text
    assert "Nothing agrees. Nothing was measured." in text
    for fact in ("Datanone", "12, which took 90.0 seconds", "7, 2", "python 3.11.0, dropmargin 0.0.1", COMMAND):
        assert fact in text
    assert "quick" not in text


def test_quick_runs_and_missing_experiments_are_named():
    quick = a_chapter(HEADER | {"quick": True})
    assert "All of it is the quick form" in words(a_page(quick))
    text = words(a_page(a_chapter(), quick, missing={"cifar10": "cifar10.jsonl is not there."}))
    assert "Part of it (made-up) is the quick form" in text
    assert "Not on this page: cifar10. cifar10.jsonl is not there." in text
    assert "2 of 4 hold: A made-up experiment (Figure 0) 1 of 2; A made-up experiment (Figure 0) 1 of 2." in text


def test_table_has_measured_and_published_errors_and_their_difference():
    rows = [(sub, name, [text for _, text in cells]) for sub, name, cells in rows_of(a_page())]
    assert rows == [
        (False, "ours", [".200", ".150"]),
        (False, "theirs", [".210", ""]),
        (True, "published", [".200", ".160"]),
        (True, "difference", ["+1.0", ""]),
    ]
    alone = Comparison("c", ["a"], {"x": ([0.15], [None])})
    assert "difference" not in words(a_page(a_chapter(comparisons=[alone])))


@pytest.mark.parametrize(
    ("ours", "published", "expected"),
    [(0.15, 0.14, "+1.0"), (0.14, 0.15, "\N{MINUS SIGN}1.0"), (0.1, 0.1, "0.0"), (0.1, 0.1004, "0.0")],
)
def test_differences_are_signed_and_in_points(ours, published, expected):
    assert difference_text(ours, published) == expected


def test_claims_have_results_in_words():
    text = words(a_page())
    assert "holds Ours is lower. .200 against .210" in text
    assert "does not hold It is much lower. 1.0 points" in text


def test_an_experiment_without_charts_tables_and_claims_has_a_section():
    page = a_page(a_chapter({}, charts=[], comparisons=[], claims=[], settings={}))
    assert_self_contained(page)
    assert "unknown" in words(page)


def test_hostile_texts_are_escaped(tmp_path):
    series = [Series(HOSTILE, [0, 1], [0.1, 0.2], HOSTILE), Series(HOSTILE, [0, 1], [0.1, 0.2], HOSTILE, True)]
    known = dict.fromkeys(("title", "caption", "x_label", "y_label"), HOSTILE)
    hostile = a_chapter(
        {"command": HOSTILE, "versions": {HOSTILE: HOSTILE}, "seed": HOSTILE, "threads": HOSTILE},
        title=HOSTILE,
        verdict=[HOSTILE],
        charts=[made_up_chart(slug="../../" + HOSTILE, series=series, x_names=[HOSTILE, HOSTILE], **known)],
        comparisons=[Comparison(HOSTILE, [HOSTILE], {HOSTILE: ([0.1], [0.2])})],
        claims=[Claim(HOSTILE, True, HOSTILE)],
        settings={HOSTILE: HOSTILE},
    )
    page = a_page(hostile, missing={HOSTILE: HOSTILE})
    assert_self_contained(page)
    assert "<script" not in page
    (path,) = write_figures(tmp_path / "figures", [hostile])
    assert path.parent == tmp_path / "figures"
    assert path.name == "script-alert-1-script-x-2.svg"
    assert "<script" not in path.read_text(encoding="utf-8")


# Figures as files, and logs -------------------------------------------------------------------------------------------


def test_figures_are_self_contained_files(tmp_path):
    paths = write_figures(tmp_path, [a_chapter(), a_chapter(HEADER | {"quick": True})])
    assert [path.name for path in paths] == ["made-up.svg", "made-up-quick.svg"]
    text = paths[0].read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert "Made up" in [element.text for element in root.iter(f"{SVG}text")]
    assert "prefers-color-scheme: dark" in root.find(f"{SVG}style").text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_a_chapter_is_made_of_a_complete_log(tmp_path):
    log = ResultsLog(tmp_path / "made-up.jsonl", HEADER)
    experiment = made_up_experiment()
    log.add(Measurement({"i": 0}, {"error": 0.1}, 1.5))
    with pytest.raises(ResultsLogError, match=rf"no report can be made .*, 1 in number .* run {COMMAND} to go on"):
        chapter_of(experiment, log)
    log.add(Measurement({"i": 1}, {"error": 0.3}, 1.0))
    found = chapter_of(experiment, log)
    assert (found.name, found.n_measurements, found.quick) == ("made-up", 2, False)
    assert found.summary.seconds == 2.5
    assert "2, which took 2.5 seconds" in words(a_page(found))


@pytest.mark.skipif(not LOGS, reason="there are no results of full runs")
def test_the_report_of_the_results_of_the_project():
    logs = [read_log(path) for path in LOGS]
    chapters = [chapter_of(EXPERIMENTS[log.header["experiment"]], log) for log in logs]
    page = a_page(*chapters)
    assert_self_contained(page)
    assert page.count("<svg") == sum(len(found.summary.charts) for found in chapters)
    for found in chapters:
        assert found.summary.claims
        assert found.summary.title in words(page)


def test_counts_and_durations_in_words():
    claims = [Claim("", holds, "") for holds in (True, False, True)]
    assert [count_text(claims[:n]) for n in (0, 1, 3)] == ["0 of 0 hold", "1 of 1 holds", "2 of 3 hold"]
    assert [duration_text(s) for s in (3.21, 119, 600, 9000)] == [
        "3.2 seconds",
        "119.0 seconds",
        "10 minutes",
        "2.5 hours",
    ]


def test_the_page_names_the_version_if_it_is_another_one():
    (note,) = (text for text in reproduction_notes([a_chapter()]) if "Measured with" in text)
    assert note.startswith("Measured with dropmargin 0.0.1, not with the present version")
    present = a_chapter(header=HEADER | {"versions": {"dropmargin": __version__}})
    assert not [text for text in reproduction_notes([present]) if "Measured with" in text]
