"""Results as an HTML page: one file with Matplotlib plots as inline SVG, without scripts or external resources."""

from dropmargin.report.page import Plot, Section, Table, draw_svg, render_page, write_page

__all__ = ["Plot", "Section", "Table", "draw_svg", "render_page", "write_page"]
