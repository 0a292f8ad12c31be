"""The report of the experiments: ours solid, published dashed; numbers, differences and claims as in the log."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dropmargin.report import Line, Table, line_chart, render_page
from made_up_experiment import COMMAND, HEADER, made_up_chart, made_up_experiment, made_up_summary
from pages import assert_self_contained, parse
from reproduction.experiments import EXPERIMENTS
from reproduction.report import (
    Chapter,
    chapter_of,
    chart_svg,
    count_text,
    difference_text,
    duration_text,
    reproduction_page,
    write_figures,
)
from reproduction.results_log import Measurement, ResultsLog, ResultsLogError, read_log
from reproduction.summary import Claim, Comparison, Series

_SVG = "{http://www.w3.org/2000/svg}"
_LOGS = sorted((Path(__file__).parent.parent / "results").glob("*.jsonl"))
_HOSTILE = "\"><script>alert(1)</script>&'\x00"


def chapter(header=None, **changed):
    return Chapter("made-up", made_up_summary(**changed), HEADER if header is None else header, 12)


def a_page(*chapters, missing=None):
    return render_page("A report", reproduction_page(chapters or [chapter()], missing))


def words(page):
    return " ".join("".join(parse(page).texts).replace("\N{NO-BREAK SPACE}", " ").split())


def chart(lines, **options):
    return ElementTree.fromstring(line_chart(lines, **({"description": "d", "x_label": "x", "y_label": "y"} | options)))


def groups(root):
    """Return the groups of lines and of the legend's samples by their classes."""
    found = {}
    for group in root.findall(f"{_SVG}g"):
        if group.get("class"):
            found.setdefault(group.get("class"), []).append(group)
    return found


def texts(root):
    return [text.text for text in root.iter(f"{_SVG}text")]


# Charts ---------------------------------------------------------------------------------------------------------------


def test_published_lines_are_dashed_and_have_the_colour_of_their_method():
    root = ElementTree.fromstring(chart_svg(made_up_chart()))
    assert root.get("class") == "paired"
    found = groups(root)
    # A line and a sample in the legend each; the key explains what dashes are.
    assert {kind: len(items) for kind, items in found.items()} == {
        "s0": 2,
        "s1": 2,
        "s1 published": 2,
        "key": 1,
        "key published": 1,
    }
    style = re.search(r"<style>(.*?)</style>", a_page(), re.S)[1]
    assert ".paired .line { stroke-dasharray: none; }" in style
    assert re.search(r"\.paired \.published \.line \{ stroke-dasharray: \d", style)
    assert [text for text in texts(root) if text in ("ours", "theirs", "measured here", "published")] == [
        "ours",
        "theirs",
        "measured here",
        "published",
    ]


def test_measured_lines_are_drawn_over_published_ones():
    root = ElementTree.fromstring(chart_svg(made_up_chart()))
    drawn = [group.get("class") for group in root.findall(f"{_SVG}g") if group.find(f".//{_SVG}title") is not None]
    assert drawn == ["s1 published", "s1", "s0"]


def test_a_missing_value_leaves_a_gap():
    root = chart([Line("a", [0, 1, 2, 3, 4], [0.1, 0.2, None, 0.3, 0.4], [0.0] * 5)])
    group = groups(root)["s0"][0]
    path = group.find(f"{_SVG}path[@class='line']").get("d")
    assert [part.count("L") for part in path.split("M")[1:]] == [1, 1]
    assert len(group.findall(f"{_SVG}path[@class='mark']")) == 4
    assert len(group.findall(f"{_SVG}path[@class='band']")) == 2
    with pytest.raises(ValueError, match="A chart needs lines"):
        chart([Line("a", [0, 1], [None, None])])
    assert chart_svg(made_up_chart(series=[Series("a", [0, 1], [None, None], "a")])) is None


def test_many_methods_differ_in_colour_or_mark():
    lines = [Line(str(i), [0, 1], [0.1 * i, 0.2], method=str(i)) for i in range(16)]
    lines += [replace(line, name=f"{line.name}, published", published=True) for line in lines]
    root = chart(lines)
    seen = set()
    for kind, items in groups(root).items():
        seen |= {(kind, group.find(f"{_SVG}path[@class='mark']").get("d")) for group in items if "key" not in kind}
    assert len(seen) == 32
    assert len({kind for kind, _ in seen}) == 16  # eight colours, each solid and dashed


def test_lines_of_one_method_have_its_colour_other_marks_and_their_own_names():
    lines = [Line(f"SVM, {way}", [0, 1], [0.1, 0.2], method="SVM") for way in ("raw", "rescaled", "anchored")]
    root = chart(lines)
    found = groups(root)
    assert list(found) == ["s0"]
    assert len({group.find(f"{_SVG}path[@class='mark']").get("d") for group in found["s0"]}) == 3
    assert [text for text in texts(root) if text.startswith("SVM")] == [line.name for line in lines]


def test_a_published_line_of_another_name_is_named():
    lines = [
        Line("SVM on copies", [0, 1], [0.1, 0.2], method="copies"),
        Line("quadratic loss", [0, 1], [0.1, 0.3], method="copies", published=True),
    ]
    root = chart(lines)
    assert set(groups(root)) == {"s0", "s0 published", "key", "key published"}
    assert {"SVM on copies", "quadratic loss"} <= set(texts(root))


def test_names_on_the_horizontal_axis_are_at_equal_distances():
    root = chart([Line("a", range(4), [0.4, 0.3, 0.2, 0.1])], x_names=["1", "4", "16", "∞"])
    marks = groups(root)["s0"][0].findall(f"{_SVG}path[@class='mark']")
    places = [float(re.search(r"\(([\d.]+),", mark.get("transform"))[1]) for mark in marks]
    steps = [b - a for a, b in pairwise(places)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)
    names = {text.text: float(text.get("x")) for text in root.iter(f"{_SVG}text")}
    assert [names[name] for name in ("1", "4", "16", "∞")] == pytest.approx(places, abs=0.1)
    assert marks[3].find(f"{_SVG}title").text == "a, ∞: 10 %"


def test_a_line_may_have_a_part_of_the_named_places():
    root = chart([Line("a", [0, 2], [0.1, 0.2])], x_names=["1", "2", "∞"])
    assert {"1", "2", "∞"} <= set(texts(root))
    for x in (3, 0.5, -1, float("inf")):
        with pytest.raises(ValueError, match=f"x must be among 0 to 2, .* got {x}"):
            chart([Line("a", [0, x], [0.1, 0.2])], x_names=["1", "2", "∞"])


def test_a_picture_in_words_has_the_names_of_the_places():
    series = [Series("a", [0, 1], [0.2, 0.1], "a"), Series("b", [0, 2], [0.3, 0.3], "b"), Series("c", [0], [None], "c")]
    root = ElementTree.fromstring(chart_svg(made_up_chart(series=series, x_names=["1", "4", "∞"])))
    assert root.get("aria-label").endswith("The least of each line: a .10 at 4; b .30 at 1.")
    assert "ours .15 at 0.5;" in ElementTree.fromstring(chart_svg(made_up_chart())).get("aria-label")


def test_names_without_room_are_left_out_but_for_the_last():
    names = [*map(str, range(20)), "infinity"]
    root = chart([Line("a", range(21), [0.1] * 21)], x_names=names)
    ends = -1.0
    found = [text for text in root.iter(f"{_SVG}text") if text.text in names]
    assert found[0].text == "0"
    assert found[-1].text == "infinity"
    for text in found:
        half = 3.3 * len(text.text)
        assert float(text.get("x")) - half > ends
        ends = float(text.get("x")) + half


def y_ticks(values, **options):
    root = chart([Line("a", range(len(values)), values)], write=lambda y: f"y{y:g}", write_x=str, **options)
    return [float(text[1:]) for text in texts(root) if text.startswith("y") and len(text) > 1]


def test_where_the_vertical_axis_starts():
    assert y_ticks([0.13, 0.17])[0] == 0.0
    assert y_ticks([0.134, 0.172], y_axis="near")[0] == pytest.approx(0.13)
    assert y_ticks([0.02, 40.0], y_axis="log") == pytest.approx([0.01, 0.1, 1.0, 10.0, 100.0])
    assert y_ticks([-1.5, 0.5])[0] == -1.5  # nothing falls out of the picture
    assert len(y_ticks([1e-30, 1.0], y_axis="log")) <= 10


@pytest.mark.parametrize(
    ("values", "said"), [([0.13, 0.17], "does not start at 0"), ([0.05, 0.4], ""), ([0.1, 90.0], "log scale")]
)
def test_axes_that_are_not_plain_say_so(values, said):
    page = words(a_page(chapter(charts=[made_up_chart(series=[Series("a", [0, 1], values, "a")])])))
    for text in ("does not start at 0", "log scale"):
        assert (text in page) == (text == said)


# The page -------------------------------------------------------------------------------------------------------------


def test_page_is_self_contained_and_says_what_it_is():
    page = a_page()
    assert_self_contained(page)
    text = words(page)
    assert "Of the claims that were checked, 1 of 2 holds." in text
    assert "Nothing agrees. Nothing was measured." in text
    for fact in ("Datanone", "12, which took 90.0 seconds", "7, 2", "python 3.11.0, dropmargin 0.0.1", COMMAND):
        assert fact in text
    assert "quick" not in text


def test_quick_runs_and_missing_experiments_are_said():
    quick = chapter(HEADER | {"quick": True})
    assert "All of it is the quick form" in words(a_page(quick))
    text = words(a_page(chapter(), quick, missing={"cifar10": "cifar10.jsonl is not there."}))
    assert "Part of it (made-up) is the quick form" in text
    assert "Not on this page: cifar10. cifar10.jsonl is not there." in text
    assert "2 of 4 hold. A made-up experiment (Figure 0): 1 of 2; A made-up experiment (Figure 0): 1 of 2." in text


def rows_of(page):
    """Return the classes and cells of the rows of all tables."""
    found = re.findall(r'<tr( class="below")?><th scope="row">(.*?)</th>(.*?)</tr>', page)
    return [(bool(below), name, re.findall(r"<td[^>]*>(.*?)</td>", cells)) for below, name, cells in found]


def test_table_has_ours_published_and_the_difference():
    page = a_page()
    assert rows_of(page)[:4] == [
        (False, "ours", [".200", ".150"]),
        (False, "theirs", [".210", ""]),
        (True, "published", [".200", ".160"]),
        (True, "difference", ["+1.0", ""]),
    ]
    # The lowest of ours stands out; published ones are not in the race.
    assert re.findall(r'<td class="best">(\.\d+)</td>', page) == [".200", ".150"]


def test_equal_numbers_are_marked_alike_and_a_column_of_nothing_not_at_all():
    table = Comparison("c", ["a", "b"], {"x": ([0.1501, None], [None] * 2), "y": ([0.1499, None], [None] * 2)})
    page = a_page(chapter(comparisons=[table]))
    assert re.findall(r'<td class="best">(\.\d+)</td>', page) == [".150", ".150"]
    assert "difference" not in page


def test_in_a_table_of_one_method_nothing_is_marked():
    page = a_page(chapter(comparisons=[Comparison("c", ["a", "b"], {"x": ([0.15, 0.1], [0.2, 0.1])})], claims=[]))
    assert 'class="best"' not in page
    assert "marked" not in page


@pytest.mark.parametrize(
    ("ours", "published", "expected"),
    [(0.15, 0.14, "+1.0"), (0.14, 0.15, "\N{MINUS SIGN}1.0"), (0.1, 0.1, "0.0"), (0.1, 0.1004, "0.0")],
)
def test_differences_are_signed_and_in_points(ours, published, expected):
    assert difference_text(ours, published) == expected


def test_claims_are_marked_in_words_and_colours():
    page = a_page()
    assert '<td class="best">holds</td>' in page
    assert '<td class="worst">does not hold</td>' in page
    assert rows_of(page)[-2:] == [
        (False, "Ours is lower.", ["holds", ".200 against .210"]),
        (False, "It is much lower.", ["does not hold", "1.0 points"]),
    ]


def test_an_experiment_without_charts_tables_and_claims_has_a_chapter():
    page = a_page(chapter({}, charts=[], comparisons=[], claims=[], settings={}))
    assert_self_contained(page)
    assert "unknown" in words(page)


def test_hostile_texts_are_text(tmp_path):
    series = [Series(_HOSTILE, [0, 1], [0.1, 0.2], _HOSTILE), Series(_HOSTILE, [0, 1], [0.1, 0.2], _HOSTILE, True)]
    known = dict.fromkeys(("title", "caption", "x_label", "y_label"), _HOSTILE)
    hostile = chapter(
        {"command": _HOSTILE, "versions": {_HOSTILE: _HOSTILE}, "seed": _HOSTILE, "threads": _HOSTILE},
        title=_HOSTILE,
        verdict=[_HOSTILE],
        charts=[made_up_chart(slug="../../" + _HOSTILE, series=series, x_names=[_HOSTILE, _HOSTILE], **known)],
        comparisons=[Comparison(_HOSTILE, [_HOSTILE], {_HOSTILE: ([0.1], [0.2])})],
        claims=[Claim(_HOSTILE, True, _HOSTILE)],
        settings={_HOSTILE: _HOSTILE},
    )
    page = a_page(hostile, missing={_HOSTILE: _HOSTILE})
    assert_self_contained(page)
    assert "<script" not in page
    (path,) = write_figures(tmp_path / "figures", [hostile])
    assert path.parent == tmp_path / "figures"
    assert path.name == "script-alert-1-script.svg"
    assert "<script" not in path.read_text(encoding="utf-8")


def test_tables_are_as_before_unless_asked():
    html = Table("c", ["a", "b"], [["x", "1"]]).html()
    assert '<table>\n<thead><tr><th scope="col">a</th>' in html
    assert '<tr><th scope="row">x</th><td>1</td></tr>' in html


def test_colours_of_the_style_have_contrast_in_both_themes():
    style = re.search(r"<style>(.*?)</style>", a_page(), re.S)[1]
    for theme in re.findall(r":root \{(.*?)\}", style, re.S):
        colours = dict(re.findall(r"(--\w+): (#[0-9a-f]{6});", theme))
        assert _contrast(colours["--ink"], colours["--bad"]) >= 4.5
        lines = [colours[f"--s{index}"] for index in range(8)]
        assert min(_contrast(line, colours["--paper"]) for line in lines) >= 3.0
        assert len(set(lines)) == 8


def _contrast(first, second):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        return sum(
            weight * (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4)
            for weight, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
        )

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# Figures as files, and logs -------------------------------------------------------------------------------------------


def test_figures_are_files_that_need_nothing_else(tmp_path):
    paths = write_figures(tmp_path, [chapter(), chapter(HEADER | {"quick": True})])
    assert [path.name for path in paths] == ["made-up.svg", "made-up-quick.svg"]
    text = paths[0].read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert "Made up" in texts(root)
    assert "prefers-color-scheme: dark" in text
    assert "--own" in root.find(f"{_SVG}style").text
    assert not re.search(r"https?:|url\(|@import", text.replace("http://www.w3.org/2000/svg", ""))


def test_a_chapter_is_what_the_log_says(tmp_path):
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


@pytest.mark.skipif(not _LOGS, reason="there are no results of full runs")
def test_the_report_builds_from_the_results_of_the_project(tmp_path):
    logs = [read_log(path) for path in _LOGS]
    chapters = [chapter_of(EXPERIMENTS[log.header["experiment"]], log) for log in logs]
    page = a_page(*chapters)
    assert_self_contained(page)
    for found in chapters:
        assert found.summary.claims
        assert found.summary.title in words(page)
    assert len(write_figures(tmp_path, chapters)) == sum(len(found.summary.charts) for found in chapters)


def test_counts_and_durations_in_words():
    claims = [Claim("", holds, "") for holds in (True, False, True)]
    assert [count_text(claims[:n]) for n in (0, 1, 3)] == ["0 of 0 hold", "1 of 1 holds", "2 of 3 hold"]
    assert [duration_text(s) for s in (3.21, 119, 600, 9000)] == [
        "3.2 seconds",
        "119.0 seconds",
        "10 minutes",
        "2.5 hours",
    ]
