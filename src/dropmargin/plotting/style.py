"""Colours and marks that tell lines apart in colour, in grey and for the colour-blind; the import of Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Sizes that all lines share, and the look of all legends.
LINE: dict[str, Any] = {"linewidth": 1.8, "markersize": 5.5}
LEGEND: dict[str, Any] = {"framealpha": 0.85, "edgecolor": "none", "handlelength": 3.2}

# Okabe and Ito (2008), without the yellow, which vanishes on white; darker and lighter ones take turns.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def line_style(index: int) -> dict[str, Any]:
    """Return what Matplotlib needs to draw the line of this index unlike the others."""
    return {
        "color": _COLOURS[index % len(_COLOURS)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "linestyle": _DASHES[index % len(_DASHES)],
    }


def import_pyplot() -> Any:
    """Return ``matplotlib.pyplot``, or say how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "Plots need Matplotlib, which is not installed. Install it with: pip install 'dropmargin[plots]'"
        ) from error
    return plt


def tidy(ax: Any) -> None:
    """Give axes a light grid behind what is drawn, and no frame above and to the right."""
    ax.grid(color="0.9", linewidth=0.8, zorder=0)
    ax.set_axisbelow(True)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def in_percent(axis: Any) -> None:
    """Label a share in percent, with no more decimals than it has."""
    axis.set_major_formatter(lambda share, _: f"{100.0 * share:.4g} %")


def by_height(lines: Sequence[Any]) -> list[Any]:
    """Return lines from top to bottom, as they lie in the picture."""
    return sorted(lines, key=lambda line: -float(np.nanmean(line.get_ydata())))
