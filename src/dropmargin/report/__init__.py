"""Results as a page to be read: one HTML file, without network and script."""

from dropmargin.report.chart import Line, heat_map, line_chart
from dropmargin.report.page import (
    Code,
    Figure,
    Figures,
    Heading,
    Paragraphs,
    PartitionSummary,
    Table,
    render_page,
    write_page,
)

__all__ = [
    "Code",
    "Figure",
    "Figures",
    "Heading",
    "Line",
    "Paragraphs",
    "PartitionSummary",
    "Table",
    "heat_map",
    "line_chart",
    "render_page",
    "write_page",
]
