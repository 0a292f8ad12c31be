"""The axes of pictures that may have several panels."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_axes(ax: Any, n_panels: int, why: str) -> list[Any]:
    """Return the axes that were given, one per panel."""
    axes = list(np.ravel(np.asarray(ax, dtype=object)))
    if not all(hasattr(one, "plot") and hasattr(one, "figure") for one in axes):
        raise TypeError(f"ax must be matplotlib Axes or None, got {ax!r}.")
    if len(axes) != n_panels:
        raise ValueError(
            f"ax has {len(axes)} axes, but {n_panels} are needed, {why}. Give as many, or None for a new figure."
        )
    return axes
