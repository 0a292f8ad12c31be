"""Tables of the pages are those that the stored results of the benchmarks give."""

from __future__ import annotations

import re

import pytest

from benchmarks import __main__ as suite
from benchmarks import results, tables


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


def test_numbers():
    assert [tables.decimals(value) for value in (0.5, -0.25, 1.5, None)] == [".500", "-.250", "1.500", ""]
    assert [tables.ratio(value) for value in (0.123, 3.26)] == [".12", "3.3"]


def test_every_benchmark_of_the_suite_is_a_module_that_says_what_it_does():
    readme = (tables.ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for name in suite.SUITE:
        module = (tables.ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")
        assert re.search(rf"python -m benchmarks\.{name}\b", module)
        assert f"`{name}`" in readme
