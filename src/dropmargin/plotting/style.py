"""Colours and marks that tell lines apart in colour, in grey and for the colour-blind; the import of Matplotlib."""

from __future__ import annotations

from typing import Any

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
