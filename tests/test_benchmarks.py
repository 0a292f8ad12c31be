"""The benchmarks' results, and the tables and plots of the pages, which are those that the stored results give."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from benchmarks import __main__ as suite
from benchmarks import plot, results, tables


def test_rows_of_the_same_key_are_replaced_and_others_keep_their_run(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    results.write("errors", [{"table": name, "error": 1} for name in ("wine", "iris")], key=["table"])
    monkeypatch.setattr(results, "describe", lambda libraries=(): {"command": "another"})
    results.write("errors", [{"table": "wine", "error": 2}], key=["table"])
    found = {row["table"]: (row["error"], row["run"]["command"] == "another") for row in results.read("errors")}
    assert found == {"iris": (1, False), "wine": (2, True)}
    lines = [json.loads(text) for text in (tmp_path / "results" / "errors.jsonl").read_text().splitlines()]
    assert [isinstance(line["run"], dict) for line in lines] == [True, False, True, False]


@pytest.mark.parametrize("path", tables.PAGES, ids=lambda path: str(path.relative_to(tables.ROOT)))
def test_pages_have_the_tables_of_the_stored_results(path):
    page = path.read_text(encoding="utf-8")
    assert tables.with_tables(page) == page, "run python -m benchmarks.tables --write"


def test_pages_have_tables():
    """The test above would pass without any."""
    readme, page = (
        {match[1] for match in tables.BLOCK.finditer(path.read_text(encoding="utf-8"))} for path in tables.PAGES[:2]
    )
    assert readme == {"lost-columns", "text", "speed"}
    assert {"fits", "gaps", "searches", "text-weightings", "missing-cells", "embeddings", "torch-head"} <= page


def test_a_table_follows_its_results(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    page = "before\n<!-- table: text -->\nold\n<!-- end -->\nafter\n"
    assert "Not measured yet: `python -m benchmarks.text`" in tables.with_tables(page)
    methods = ("DropoutSVC", "DropoutLogisticRegression", "LinearSVC", "LogisticRegression")
    rows = [{"corpus": "books", "weighting": "presence", "method": name, "test_error": 0.25} for name in methods]
    results.write("text", rows)
    assert "| LinearSVC | **.250** |" in tables.with_tables(page)
    rows[2]["test_error"] = 0.3
    results.write("text", rows)
    assert "| LinearSVC | .300 |" in tables.with_tables(page)


def test_an_unknown_table_is_an_error():
    with pytest.raises(ValueError, match="no table 'nothing'"):
        tables.with_tables("<!-- table: nothing -->\n<!-- end -->")


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_is_one_with_the_same_number_of_cells_in_all_lines(name):
    lines = tables.TABLES[name]().splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[0].startswith(("| ", "Not measured"))


def test_every_benchmark_of_the_suite_is_a_module_that_says_what_it_does():
    readme = (tables.ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for name in suite.SUITE:
        module = (tables.ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
        assert re.search(rf"python -m benchmarks\.{name}\b", module)
        assert f"`{name}`" in readme


def test_the_plot_has_the_numbers_of_the_stored_results():
    drawn = html.unescape(plot.PLOT.read_text(encoding="utf-8"))
    assert plot.description() in drawn, "python -m benchmarks.plot"


DOCS = Path(__file__).parents[1] / "docs" / "probabilities.md"


def test_tables_of_probabilities_are_those_of_the_results():
    pytest.importorskip("pandas")
    from benchmarks import calibration, coverage

    text = DOCS.read_text(encoding="utf-8")
    for name in ("calibration_error", "log_loss"):
        assert calibration.markdown(results.read("calibration"), name) in text
    for own in (coverage.NUMBERS, coverage.LABELS):
        assert coverage.markdown(results.read("coverage"), own) in text
