"""The report of the paper's experiments: measured and published lines, tables, differences and claims."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropmargin.report import render_page
from made_up_experiment import COMMAND, HEADER, made_up_summary
from pages import assert_self_contained, rows_of, words
from reproduction.experiments import EXPERIMENTS
from reproduction.report import Chapter, chapter_of, reproduction_notes, reproduction_sections, reproduction_verdict
from reproduction.results_log import read_log
from reproduction.summary import Comparison

LOGS = sorted((Path(__file__).parent.parent / "results").glob("*.jsonl"))


def a_chapter(header=None, **changed):
    return Chapter("made-up", made_up_summary(**changed), HEADER if header is None else header, 12)


def a_page(*chapters, missing=None):
    chapters = chapters or [a_chapter()]
    verdict, notes = reproduction_verdict(chapters), reproduction_notes(chapters, missing)
    return render_page("A report", verdict, reproduction_sections(chapters), notes)


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


# Figures as files, and logs -------------------------------------------------------------------------------------------


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
