"""The HTML report: self-contained, escaped, deterministic, readable in both themes; its numbers and words."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from jinja2.exceptions import UndefinedError

from datasets import make_binary
from dropmargin import DropoutNoise, DropoutSVCCV
from dropmargin.evaluation import DeletionCurve
from dropmargin.evaluation.stress import MethodResult
from dropmargin.plotting.style import COLOURS, plain_text
from dropmargin.report import Plot, Section, Table, draw_svg, render_page, write_page
from dropmargin.report.page import colour_sheet
from dropmargin.report.stress import error_tables, percent, stress_sections, verdict
from pages import assert_self_contained, contrast, parse, rows_of, themes, words

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>&'\x00 $x^2$ {{ 7 * 7 }}"
SVG = "{http://www.w3.org/2000/svg}"
LEVELS = (0.0, 0.5, 0.9)


def a_result(method, treatment, errors, levels=LEVELS, search=None, n_test=1000):
    scores = 1.0 - np.array(errors)[:, None] + np.array([[-0.01, 0.01]])
    curve = DeletionCurve(scores, "accuracy", np.array(levels), "entries", 0.0, False)
    noise = {"noise": DropoutNoise(rate=0.3)} if method == "DropoutSVC" else {}
    standard_error = np.sqrt(curve.mean * (1.0 - curve.mean) / n_test)
    parameters = noise | {"C": 0.1}
    return MethodResult(
        method, treatment, parameters, SimpleNamespace(), curve, standard_error, search, True, (1.0, 0.5)
    )


def some_results(ours=(0.1, 0.2, 0.4), other=(0.1, 0.5, 0.7), levels=LEVELS, search=None, n_test=1000):
    n = len(levels)
    return [
        a_result("DropoutSVC", "zero", [0.11, 0.36, 0.56][:n], levels, search, n_test),
        a_result("LinearSVC", "zero", [0.08, 0.43, 0.73][:n], levels, n_test=n_test),
        a_result("LogisticRegression", "zero", [0.12, 0.41, 0.71][:n], levels, n_test=n_test),
        a_result("DropoutSVC", "missing", ours, levels, n_test=n_test),
        a_result("LinearSVC (rescaled)", "missing", other, levels, n_test=n_test),
        a_result("HistGradientBoosting", "missing", [0.05, 0.6, 0.8][:n], levels, n_test=n_test),
    ]


def numbers(results, unit=50.0):
    """Return the results of a regression: an error of 0.1 is an RMSE of 0.1 units, two of which are the deviation."""
    return [
        replace(
            one,
            method=one.method.replace("SVC", "Ridge").replace("LinearRidge", "Ridge"),
            curve=replace(one.curve, scores=unit * (one.curve.scores - 1.0), scoring="neg_root_mean_squared_error"),
            standard_error=unit * one.standard_error,
            target_deviation=2.0 * unit,
        )
        for one in results
    ]


def a_page(results, facts=None, command="dropmargin stress a b"):
    sections = stress_sections(
        results,
        chosen_at="with 50 % of the features deleted",
        deletion="Each entry was deleted.",
        facts={"rows": "1000"} if facts is None else facts,
        command=command,
    )
    return render_page("When features go missing", verdict(results), sections)


@pytest.fixture(scope="module")
def search():
    return DropoutSVCCV(noises=[None, 0.1, 0.5], Cs=[0.1, 1.0, 10.0, 100.0], cv=2).fit(*make_binary(60))


@pytest.fixture(scope="module")
def page(search):
    return a_page(some_results(search=search))


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
        a_page(some_results())


# Plots --------------------------------------------------------------------------------------------------------------


def test_plots_have_title_and_description(page):
    roots = [ElementTree.fromstring(f"<svg{part.split('</svg>')[0]}</svg>") for part in page.split("<svg")[1:]]
    assert len(roots) == 3
    for root in roots:
        assert root.get("role") == "img"
        assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert roots[0][0].text == "Deleted features are zeros"
    assert "at 90 % deleted DropoutSVC 56.0 %, LinearSVC 73.0 %" in roots[0][1].text
    assert roots[2][1].text.startswith(
        "Cross-validated error by noise, at the best C. Chosen: DropoutSVC, deleted = zero: dropout rate 0."
    )


def test_colours_of_a_plot_are_variables_of_the_theme():
    svg = draw_svg(draw_line, title="t", description="d")
    assert "stroke: var(--line-1)" in svg
    assert "fill: var(--ink)" in svg
    assert "var(--paper)" in svg
    assert "prefers-color-scheme" not in svg
    assert "prefers-color-scheme: dark" in draw_svg(draw_line, title="t", description="d", standalone=True)


def test_equal_results_give_equal_pages_and_global_state_is_untouched(page, search):
    figures = plt.get_fignums()
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        before = dict(matplotlib.rcParams)
        assert a_page(some_results(search=search)) == page
        assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == figures


def test_one_level_and_no_errors_can_be_plotted():
    results = [a_result(method, "zero", [0.0], (0.5,)) for method in ("DropoutSVC", "LinearSVC")]
    results = [replace(one, curve=replace(one.curve, scores=np.ones((1, 1)))) for one in results]
    page = a_page(results)
    assert_self_contained(page)
    assert "nan" not in page.lower()


# Numbers and words --------------------------------------------------------------------------------------------------


def test_tables_have_the_errors():
    results = some_results()
    rows = [row for row in rows_of(a_page(results)) if len(row[2]) == 3]
    for result, (_, name, cells) in zip(results, rows, strict=True):
        assert name == result.method
        assert [float(text) for _, text in cells] == pytest.approx((100 * result.error).round(1))


def test_only_clear_winners_are_bold():
    marks = [[bold for bold, _ in cells] for _, _, cells in rows_of(a_page(some_results())) if len(cells) == 3]
    assert marks == [
        [False, True, True],
        [True, False, False],
        [False, False, False],
        [False, True, True],
        [False, False, False],
        [True, False, False],
    ]
    page = a_page(some_results(n_test=2))
    assert "too close to call" in words(page)
    assert not any(bold for _, _, cells in rows_of(page) for bold, _ in cells)


def test_the_verdict_is_about_half_of_the_features(page):
    sentence = verdict(some_results())
    assert sentence == (
        "With half of the features missing, the error goes from 10.0 % to 20.0 % for DropoutSVC, from 10.0 % to 50.0 % "
        "for LinearSVC (rescaled), the best other, and from 5.0 % to 60.0 % for HistGradientBoosting, the worst."
    )
    assert sentence in words(page)


def test_the_verdict_reports_losses_and_close_results():
    # A method that loses to all others is not compared with the worst of them.
    sentence = verdict(some_results(ours=(0.3, 0.65, 0.7), other=(0.1, 0.2, 0.4)))
    assert sentence.endswith(
        "to 65.0 % for DropoutSVC, from 10.0 % to 20.0 % for LinearSVC (rescaled), the best other."
    )
    close = verdict(some_results(ours=(0.1, 0.31, 0.4), other=(0.1, 0.3, 0.5), n_test=10))
    assert close.endswith(" The first two are too close to call.")
    one = verdict(some_results(ours=(0.2,), other=(0.4,), levels=(0.7,))[3:5])
    assert one == (
        "With 70 % of the features missing, the error is 20.0 % for DropoutSVC, 40.0 % for LinearSVC (rescaled), the "
        "best other."
    )
    zero = verdict(some_results()[:3])
    assert zero.startswith("With half of the features set to zero, the error goes from 11.0 % to 36.0 % for DropoutSVC")


def test_a_regression_is_reported_in_the_units_of_its_targets():
    results = numbers(some_results())
    assert verdict(results) == (
        "With half of the features missing, the RMSE goes from 5.0 to 10.0 for DropoutRidge, from 5.0 to 25.0 for "
        "Ridge (rescaled), the best other, and from 2.5 to 30.0 for HistGradientBoosting, the worst."
    )
    page = a_page(results)
    assert_self_contained(page)
    tables = [[text for _, text in cells] for _, _, cells in rows_of(page) if len(cells) == 3]
    assert tables[0] == ["5.5", "18.0", "28.0"]
    # The R^2 of the first treatment follows its errors: the mean of 1 - (RMSE / deviation)^2 over the repeats.
    squares = np.square(results[0].curve.scores / 100.0).mean(axis=1)
    assert tables[3] == [f"{1.0 - square:.3f}" for square in squares]
    assert "RMSE on the test rows" in words(page)
    assert "%" not in verdict(numbers(some_results(n_test=2)))
    assert verdict(numbers(some_results(n_test=2))).endswith("The first two are too close to call.")


@pytest.mark.parametrize(
    ("unit", "texts"), [(5e-7, ["5.5e-08", "1.8e-07"]), (5.0, ["0.55", "1.80"]), (5e4, ["5500", "18000"])]
)
def test_errors_have_three_digits_in_any_unit(unit, texts):
    (table, _, *_) = error_tables(numbers(some_results(), unit))
    assert list(table.rows[0][1:3]) == texts


def test_parameters_and_limits_of_iterations_are_listed():
    results = some_results()
    results[1] = replace(results[1], converged=False)
    rows = [(name, [text for _, text in cells]) for _, name, cells in rows_of(a_page(results)) if len(cells) == 4]
    assert rows[0] == ("DropoutSVC", ["zero", "noise = DropoutNoise(rate=0.3), C = 0.1", "1.5 s", "yes"])
    assert rows[1] == ("LinearSVC", ["zero", "C = 0.1", "1.5 s", "no"])


def test_percentages():
    assert [percent(share) for share in (0.0, 0.5, 0.125, 1.0)] == ["0 %", "50 %", "12.5 %", "100 %"]
