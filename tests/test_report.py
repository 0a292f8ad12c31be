"""The HTML report: self-contained, escaped, deterministic, readable in both themes."""

from __future__ import annotations

import sys
from functools import partial

import matplotlib
import matplotlib.pyplot as plt
import pytest
from jinja2.exceptions import UndefinedError

from dropmargin.plotting.style import COLOURS, plain_text
from dropmargin.report import Plot, Section, Table, draw_svg, render_page, write_page
from dropmargin.report.page import colour_sheet
from pages import assert_self_contained, contrast, parse, rows_of, themes, words

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>&'\x00 $x^2$ {{ 7 * 7 }}"


def a_page():
    """Return a page with two plots and three tables."""
    plots = [
        Plot(draw_svg(partial(draw_line, name=name), title=name, description=f"about {name}"), name, "caption")
        for name in ("first", "second")
    ]
    header, rows = ["deleted", "0 %", "50 %"], [["ours", "0.1", "0.2"], ["other", "0.1", "0.5"]]
    tables = [Table(f"errors {k}", header, rows, frozenset({(0, 2)})) for k in range(3)]
    sections = [Section("Errors", plots=plots, tables=tables), Section("Measurement", facts={"rows": "1000"})]
    return render_page("When features go missing", "Half are lost.", [*sections, Section("Command", command="x")])


@pytest.fixture(scope="module")
def page():
    return a_page()


def draw_line(figure, name="a line"):
    ax = figure.subplots()
    ax.plot([0.0, 1.0], [0.0, 1.0], marker="o", label=plain_text(name), color=COLOURS[1])
    ax.set_xlabel(plain_text(name))
    ax.legend()


# The page -----------------------------------------------------------------------------------------------------------


def test_page_is_self_contained_and_has_one_verdict(page):
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    assert_self_contained(page)
    assert len(page.encode()) < 100_000
    assert page.count('class="verdict"') == 1
    assert page.index('class="verdict"') < page.index("<svg")


def test_tables_scroll_in_a_focusable_box_and_have_captions(page):
    elements = parse(page).elements
    tables = [index for index, (tag, _) in enumerate(elements) if tag == "table"]
    assert len(tables) == 3
    for index in tables:
        assert elements[index - 1][1].items() >= {"class": "scroll", "tabindex": "0", "role": "region"}.items()
        assert elements[index + 1][0] == "caption"
    for rule in ("overflow-x: auto", "position: sticky", "prefers-color-scheme: dark", "@media print", "viewport"):
        assert rule in page


def test_contrast_in_both_themes():
    light, dark = themes(colour_sheet())
    assert light.keys() == dark.keys()
    assert [light[f"line-{index}"] for index in range(len(COLOURS))] == list(COLOURS)
    for colours in (light, dark):
        for background in ("paper", "good", "bad", "tint"):
            assert contrast(colours["ink"], colours[background]) >= 4.5
        assert contrast(colours["soft"], colours["paper"]) >= 4.5
        lines = [colours[f"line-{index}"] for index in range(len(COLOURS))]
        assert min(contrast(line, colours["paper"]) for line in lines) >= 3.0
        assert len(set(lines)) == len(COLOURS)


def test_hostile_texts_are_escaped():
    svg = draw_svg(lambda figure: draw_line(figure, HOSTILE), title=HOSTILE, description=HOSTILE)
    section = Section(
        HOSTILE,
        verdict=HOSTILE,
        plots=[Plot(svg, HOSTILE, HOSTILE)],
        paragraphs=[HOSTILE],
        tables=[Table(HOSTILE, [HOSTILE, HOSTILE], [[HOSTILE, HOSTILE]], frozenset({(0, 1)}))],
        claims=[(HOSTILE, True, HOSTILE)],
        facts={HOSTILE: HOSTILE},
        command=HOSTILE,
    )
    page = render_page(HOSTILE, HOSTILE, [section], [HOSTILE])
    assert_self_contained(page)
    assert "\x00" not in page
    # In the plot: the label of the axis, the legend, title and description; no formula is rendered.
    assert words(svg).count("<script>alert(1)</script>") == 4
    assert words(svg).count("$x^2$ {{ 7 * 7 }}") == 4
    assert words(page).count("$x^2$ {{ 7 * 7 }}") >= 20


def test_page_is_written_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("before")
    with pytest.raises(UndefinedError):
        write_page(path, "title", "verdict", [None])
    assert path.read_text() == "before"
    write_page(path, "unpaired \ud800", "verdict", [])
    assert "<h1>unpaired ?</h1>" in path.read_text(encoding="utf-8")
    assert [found.name for found in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(("module", "extra"), [("jinja2", "cli"), ("matplotlib.figure", "plots")])
def test_a_missing_library_is_named_with_its_extra(monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"pip install 'dropmargin\[{extra}\]'"):
        a_page()


# Plots --------------------------------------------------------------------------------------------------------------


def test_bold_cells_and_names_of_rows(page):
    assert [(name, cells) for _, name, cells in rows_of(page)][:2] == [
        ("ours", [(False, "0.1"), (True, "0.2")]),
        ("other", [(False, "0.1"), (False, "0.5")]),
    ]


def test_equal_results_give_equal_pages_and_global_state_is_untouched(page):
    figures = plt.get_fignums()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        before = dict(matplotlib.rcParams)
        assert a_page() == page
        assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == figures
