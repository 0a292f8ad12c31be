"""The plot of the README and the start page shows the stored results."""

from __future__ import annotations

import html

from benchmarks import plot


def test_the_plot_has_the_numbers_of_the_stored_results():
    drawn = html.unescape(plot.PLOT.read_text(encoding="utf-8"))
    assert plot.description() in drawn, "python -m benchmarks.plot"
