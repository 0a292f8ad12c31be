"""Results as an HTML page: one file with Matplotlib plots as inline SVG, without scripts or external resources."""

from dropmargin.report.page import Plot, Section, Table, render_page, write_page
from dropmargin.report.svg import draw_svg

__all__ = ["Plot", "Section", "Table", "draw_svg", "render_page", "write_page"]
