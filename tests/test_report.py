"""The HTML page: well-formed, self-contained, escaped, readable in both themes, and with the numbers of the results."""

from __future__ import annotations

import re
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from dropmargin import DropoutNoise
from dropmargin.evaluation import DeletionCurve
from dropmargin.evaluation.nightmare import MethodResult, Search
from dropmargin.report import (
    Code,
    Facts,
    Figure,
    Figures,
    Heading,
    Line,
    Paragraphs,
    Table,
    heat_map,
    line_chart,
    render_page,
    write_page,
)
from dropmargin.report.chart import percent, ticks
from dropmargin.report.nightmare import gains, nightmare_page
from pages import assert_self_contained, parse

_HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>&'\x00"
_SVG = "{http://www.w3.org/2000/svg}"


def contestant(method, treatment, errors, levels=(0.0, 0.5, 0.9), search=None):
    scores = 1.0 - np.array(errors)[:, None] + np.array([[-0.01, 0.01]])
    curve = DeletionCurve(scores, "accuracy", np.array(levels), "entries", 0.0, False)
    noise = DropoutNoise(rate=0.3) if method == "Dropout-SVM" else None
    return MethodResult(method, treatment, noise, 0.1, SimpleNamespace(), curve, search, True)


def a_search():
    return Search((None, DropoutNoise(rate=0.3)), np.array([0.1, 1.0]), np.array([[0.5, 0.625], [0.75, 0.7]]), (1, 0))


def contestants(ours=(0.1, 0.2, 0.4), peer=(0.1, 0.5, 0.7), levels=(0.0, 0.5, 0.9)):
    return [
        contestant("Dropout-SVM", "zero", [0.11, 0.36, 0.56][: len(levels)], levels, a_search()),
        contestant("LinearSVC", "zero", [0.09, 0.43, 0.73][: len(levels)], levels),
        contestant("LogisticRegression", "zero", [0.12, 0.41, 0.71][: len(levels)], levels),
        contestant("Dropout-SVM", "missing", ours, levels),
        contestant("LinearSVC", "missing", peer, levels),
    ]


def a_page(found=None, facts=None, command="dropmargin nightmare a b"):
    parts = nightmare_page(
        found or contestants(),
        n_test=1000,
        chosen_at="with 50 % of the features deleted",
        deletion="Each entry was deleted.",
        facts={"rows": "1000"} if facts is None else facts,
        command=command,
    )
    return render_page("When features go missing", parts)


def words(page):
    return " ".join("".join(parse(page).texts).replace("\N{NO-BREAK SPACE}", " ").split())


# The page -----------------------------------------------------------------------------------------------------------


def test_page_is_well_formed_and_needs_nothing_else():
    page = a_page()
    assert page.startswith("<!DOCTYPE html>\n<html lang=")
    assert_self_contained(page)
    assert len(page.encode()) < 60_000


def test_page_fits_a_phone_and_both_themes_and_print():
    page = a_page()
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "@media screen and (prefers-color-scheme: dark)" in page
    assert "@media print" in page
    for tag, attributes in parse(page).elements:
        if tag == "table":
            break
        box = attributes.get("class")
    assert box == "scroll"  # what is just around a table


def test_every_colour_of_the_light_theme_has_one_in_the_dark():
    style = re.search(r"<style>(.*?)</style>", a_page(), re.S)[1]
    light, dark = re.findall(r":root \{(.*?)\}", style, re.S)
    assert set(re.findall(r"(--[\w]+):", light)) == set(re.findall(r"(--[\w]+):", dark))


def _contrast(first, second):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_accessibility_guidelines():
    style = re.search(r"<style>(.*?)</style>", a_page(), re.S)[1]
    for theme in re.findall(r":root \{(.*?)\}", style, re.S):
        colours = dict(re.findall(r"(--\w+): (#[0-9a-f]{6});", theme))
        for text in ("--ink", "--soft"):
            assert _contrast(colours[text], colours["--paper"]) >= 4.5
        assert _contrast(colours["--ink"], colours["--good"]) >= 4.5
        assert _contrast(colours["--ink"], colours["--tint"]) >= 4.5
        for index in range(6):
            assert _contrast(colours[f"--s{index}"], colours["--paper"]) >= 3.0


def test_hostile_names_are_text():
    parts = [
        Heading(_HOSTILE),
        Paragraphs([_HOSTILE]),
        Paragraphs([_HOSTILE], lead=True),
        Table(_HOSTILE, [_HOSTILE, _HOSTILE], [[_HOSTILE, _HOSTILE]], frozenset({(0, 1)})),
        Facts({_HOSTILE: _HOSTILE}),
        Code(_HOSTILE),
        Figures(
            [
                Figure(
                    line_chart(
                        [Line(_HOSTILE, [0, 1], [0, 1])], description=_HOSTILE, x_label=_HOSTILE, y_label=_HOSTILE
                    ),
                    _HOSTILE,
                    _HOSTILE,
                ),
                Figure(
                    heat_map(
                        [[1.0]],
                        description=_HOSTILE,
                        rows=[_HOSTILE],
                        columns=[_HOSTILE],
                        row_label=_HOSTILE,
                        column_label=_HOSTILE,
                    ),
                    _HOSTILE,
                    _HOSTILE,
                ),
            ]
        ),
    ]
    page = render_page(_HOSTILE, parts)
    assert_self_contained(page)
    assert "\x00" not in page
    assert page.count("<script") == page.count("<img") == 0
    assert words(page).count("<script>alert(1)</script>") >= 20


def test_names_of_files_and_the_command_are_text():
    page = a_page(facts={"training file": _HOSTILE}, command=_HOSTILE)
    assert_self_contained(page)
    assert "<script>alert(1)</script>" in words(page)


def test_pictures_have_words_for_those_who_do_not_see_them():
    images = [attributes for tag, attributes in parse(a_page()).elements if tag == "svg"]
    assert len(images) == 3
    assert all(image["role"] == "img" and len(image["aria-label"]) > 40 for image in images)
    assert "LinearSVC 73 %" in images[0]["aria-label"]


def test_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("before")

    class Broken:
        def html(self):
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        write_page(path, "title", [Broken()])
    assert path.read_text() == "before"
    write_page(path, "half a pair \ud800", [])
    assert "<h1>half a pair ?</h1>" in path.read_text(encoding="utf-8")
    assert [found.name for found in tmp_path.iterdir()] == ["page.html"]


# Its numbers --------------------------------------------------------------------------------------------------------


def test_tables_have_the_errors_and_mark_the_lowest():
    page = a_page()
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page)
    cells = [(name, re.findall(r"<td( class=\"best\")?>([\d.]+)</td>", row)) for name, row in rows]
    cells = [(name, row) for name, row in cells if row]
    for one, (name, row) in zip(contestants(), cells, strict=True):
        assert name == one.method
        assert [float(text) for _, text in row] == pytest.approx((100 * one.error).round(1))
    assert [bool(mark) for mark, _ in cells[0][1]] == [False, True, True]
    assert [bool(mark) for mark, _ in cells[1][1]] == [True, False, False]
    # Equal errors are marked alike.
    assert [bool(mark) for mark, _ in cells[4][1]] == [True, False, False]


def test_marks_of_a_chart_stand_where_the_numbers_are():
    svg = line_chart([Line("a", [0.0, 1.0, 0.5], [0.0, 0.4, 0.2])], description="d", x_label="x", y_label="y")
    marks = ElementTree.fromstring(svg).findall(f".//{_SVG}g[@class='s0']/{_SVG}path[@class='mark']")
    places = [tuple(map(float, re.findall(r"[\d.]+", mark.get("transform")))) for mark in marks][:3]
    titles = [mark.find(f"{_SVG}title").text for mark in marks[:3]]
    assert titles == ["a, 0 %: 0 %", "a, 50 %: 20 %", "a, 100 %: 40 %"]
    assert places[1] == pytest.approx(np.mean([places[0], places[2]], axis=0), abs=0.1)
    assert places[0][1] > places[2][1]  # upwards


def test_lines_differ_in_marks_and_classes():
    lines = [Line(str(i), [0, 1], [0.1 * i, 0.2]) for i in range(6)]
    root = ElementTree.fromstring(line_chart(lines, description="d", x_label="x", y_label="y"))
    groups = {group.get("class"): group for group in root.findall(f"{_SVG}g") if group.get("class")}
    assert set(groups) == {f"s{i}" for i in range(6)}
    assert len({group.find(f"{_SVG}path[@class='mark']").get("d") for group in groups.values()}) == 6


def test_heat_map_shades_by_value_and_frames_the_choice():
    svg = heat_map(
        [[0.1, 0.2], [0.3, float("nan")]],
        description="d",
        rows=["a", "b"],
        columns=["c", "d"],
        row_label="r",
        column_label="c",
        chosen=(1, 0),
    )
    root = ElementTree.fromstring(svg)
    cells = root.findall(f"{_SVG}rect[@class='cell']")
    shades = [float(cell.get("fill-opacity")) for cell in cells]
    assert shades[0] < shades[1] < shades[2]
    assert shades[3] == shades[0]
    frame = root.find(f"{_SVG}rect[@class='chosen']")
    assert (frame.get("x"), frame.get("y")) == (cells[2].get("x"), cells[2].get("y"))


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 0.9, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.0, 0.07, [0.0, 0.02, 0.04, 0.06, 0.08]),
        (0.0, 0.0, [0.0, 1.0]),
        (3.0, 3.0, [3.0, 4.0]),
    ],
)
def test_ticks_are_round_and_cover_the_range(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_one_level_is_a_chart_too():
    svg = line_chart([Line("a", [0.5], [0.0], [0.0])], description="d", x_label="x", y_label="y")
    assert "nan" not in svg
    ElementTree.fromstring(svg)


@pytest.mark.parametrize("lines", [[], [Line("a", [], [])], [Line("a", [0, 1], [0])]])
def test_a_chart_of_nothing_is_refused(lines):
    with pytest.raises(ValueError, match="A chart needs lines"):
        line_chart(lines, description="d", x_label="x", y_label="y")


def test_a_heat_map_with_names_amiss_is_refused():
    with pytest.raises(ValueError, match="one name per row"):
        heat_map([[1.0]], description="d", rows=["a", "b"], columns=["c"], row_label="r", column_label="c")


def test_percentages():
    assert [percent(share) for share in (0.0, 0.5, 0.125, 1.0)] == ["0 %", "50 %", "12.5 %", "100 %"]


# Its sentences ------------------------------------------------------------------------------------------------------


def test_gains_are_said_in_words_with_their_numbers():
    texts = gains(contestants(), 1000)
    assert texts[0] == (
        "With 50 % of the features deleted, LinearSVC is wrong on 43.0 % of the test rows and LogisticRegression on "
        "41.0 %. Dropout-SVM with its rule for missing features is wrong on 20.0 %: 21.0 points less than the best of "
        "them. That has two parts, the training and the rule."
    )
    assert (
        "36.0 % at 50 % deleted and the best of the others, LogisticRegression, on 41.0 %: 5.0 points gained"
        in texts[1]
    )
    assert texts[1].endswith("Of the 3 levels it is ahead at 2 (50 % to 90 %), behind at 1 (0 %).")
    assert "20.0 % at 50 % deleted and the best of the others, LinearSVC, on 50.0 %: 30.0 points gained" in texts[2]
    assert texts[3].endswith("10.0 % and LinearSVC on 10.0 %: too close to call.")
    assert all(text in words(a_page()) for text in texts)


def test_losses_are_said_as_plainly():
    texts = gains(contestants(ours=(0.3, 0.5, 0.7), peer=(0.1, 0.2, 0.4)), 1000)
    assert texts[0].endswith("9.0 points more than the best of them.")
    assert "30.0 points lost by the training. At all 3 levels it is behind." in texts[2]
    assert texts[3].endswith("that is the price, 20.0 points.")


def test_few_rows_decide_nothing():
    texts = gains(contestants(ours=(0.1, 0.3, 0.4), peer=(0.1, 0.3, 0.5)), 10)
    assert texts[0].endswith("is wrong on 30.0 %: too close to call.")
    assert "too close to call. At all 3 levels it is too close to call." in texts[2]


def test_one_treatment_and_one_level():
    texts = gains(contestants(ours=(0.2,), peer=(0.4,), levels=(0.7,))[3:], 1000)
    assert texts == [
        "If all use the rule, Dropout-SVM is wrong on 20.0 % at 70 % deleted and the best of the others, LinearSVC, on "
        "40.0 %: 20.0 points gained by the training."
    ]
