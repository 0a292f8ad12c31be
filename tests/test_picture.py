"""The picture of the README and the start page shows the stored results."""

from __future__ import annotations

import html

from benchmarks import picture


def test_the_picture_has_the_numbers_of_the_stored_results():
    drawn = html.unescape(picture.PICTURE.read_text(encoding="utf-8"))
    assert picture.description() in drawn, "python -m benchmarks.picture"


def test_the_table_of_lost_columns_has_the_numbers_of_the_stored_results():
    page = (picture.ROOT / "README.md").read_text(encoding="utf-8")
    assert picture.markdown() in page, "python -m benchmarks.picture prints the table"
