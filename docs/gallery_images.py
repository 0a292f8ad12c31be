"""Plots of the gallery as SVG in the colours of the reader's theme, like those of the reports."""

from __future__ import annotations

from pathlib import Path

from matplotlib import pyplot
from sphinx_gallery.scrapers import figure_rst

from dropmargin.plotting.style import COLOURS
from dropmargin.report.page import PLOT_STYLE, themed_svg


def set_style(gallery_conf, name):
    """Give the next example the style of our plots."""
    pyplot.rcdefaults()
    pyplot.rcParams.update({**PLOT_STYLE, "axes.prop_cycle": pyplot.cycler(color=COLOURS)})
    pyplot.rcParams.update(
        {"axes.spines.top": False, "axes.spines.right": False, "figure.constrained_layout.use": True}
    )


def scrape(block, block_vars, gallery_conf):
    """Write the open figures to SVG files, and return their reStructuredText."""
    paths = []
    for number, path in zip(pyplot.get_fignums(), block_vars["image_path_iterator"], strict=False):
        path = Path(path).with_suffix(".svg")
        title = path.stem.removeprefix("sphx_glr_")
        path.write_text(themed_svg(pyplot.figure(number), title=title, description="", standalone=True), "utf-8")
        paths.append(path)
    pyplot.close("all")
    return figure_rst(paths, gallery_conf["src_dir"])
