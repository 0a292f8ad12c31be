"""Results as a page to be read: one HTML file, without network and script."""

from dropmargin.report.chart import Line, heat_map, line_chart
from dropmargin.report.page import (
    Code,
    Facts,
    Figure,
    Figures,
    Heading,
    Paragraphs,
    Table,
    render_page,
    write_page,
)

__all__ = [
    "Code",
    "Facts",
    "Figure",
    "Figures",
    "Heading",
    "Line",
    "Paragraphs",
    "Table",
    "heat_map",
    "line_chart",
    "render_page",
    "write_page",
]
