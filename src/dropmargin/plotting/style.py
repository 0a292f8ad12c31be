"""The style of all plots: colours, markers, dashes, legends; and the import of Matplotlib."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

#: Sizes that all lines share, and the style of all legends.
LINE: dict[str, Any] = {"linewidth": 1.8, "markersize": 5.5}
LEGEND: dict[str, Any] = {"framealpha": 0.85, "edgecolor": "none", "handlelength": 3.2}

#: Colours of lines: those of Okabe and Ito (2008), darkened until their contrast on white is at least 3.
COLOURS = ("#0072b2", "#c84c00", "#00805d", "#a8457f", "#6a5acd", "#7a6a00", "#737b85", "#1b1f24")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
#: Characters that neither a font nor an XML file has.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def line_style(index: int) -> dict[str, Any]:
    """Return the colour, marker and dashes of a line; the first lines differ in each of the three."""
    cycles: dict[str, Any] = {"color": COLOURS, "marker": _MARKERS, "linestyle": _DASHES}
    return {name: values[index % len(values)] for name, values in cycles.items()}


def import_matplotlib(module: str = "pyplot") -> Any:
    """Return a module of Matplotlib, or raise an error that names the extra to install."""
    try:
        return import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise ImportError("Plots need Matplotlib. Install it with: pip install 'dropmargin[plots]'") from error


def plain_text(text: object) -> str:
    """Return a text that Matplotlib shows as it is, neither as a formula nor as a hidden label."""
    shown = UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text)).replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{shown}" if shown.startswith("_") else shown


def tidy(ax: Any, shares: Sequence[Any] = ()) -> None:
    """Give axes a light grid behind the data, no frame above and to the right, and label some of them in percent."""
    for axis in shares:
        axis.set_major_formatter(lambda share, _: f"{100.0 * share:.4g} %")
    ax.grid(color=ax.xaxis.label.get_color(), alpha=0.12, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def by_height(lines: Sequence[Any]) -> list[Any]:
    """Return lines from the highest to the lowest, for a legend in the order of the plot."""
    return sorted(lines, key=lambda line: -float(np.nanmean(line.get_ydata())))
