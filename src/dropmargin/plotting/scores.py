"""How scores are shown: as an error where one minus the score is one, else as they are; with their spread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dropmargin.typing import Array

SHOWS = ("auto", "error", "score")
SPREADS = ("band", "bars", "none")
#: Metrics of which one minus the score is an error rate.
SHARES = {"accuracy": "error", "balanced_accuracy": "balanced error"}


def metric_name(scoring: Any) -> str:
    """Return the name of a metric, ``"score"`` for a scorer without one."""
    return scoring if isinstance(scoring, str) else "score"


def common_metric(metrics: Iterable[str]) -> str:
    """Return the metric of all, ``"score"`` if there are several."""
    several = set(metrics)
    return several.pop() if len(several) == 1 else "score"


def shows_error(show: str, metrics: Iterable[str]) -> bool:
    """Return whether one minus the score is to be shown: by wish, or because it is an error rate for every metric."""
    return show == "error" or (show == "auto" and set(metrics) <= SHARES.keys())


def shown(scores: Array, error: bool) -> Array:
    """Return scores as they are shown."""
    return 1.0 - scores if error else scores


def shown_name(metric: str, error: bool) -> str:
    """Return what is shown, in words."""
    return (SHARES.get(metric, f"1 - {metric}") if error else metric).replace("_", " ")


def draw_spread(ax: Any, x: Array, middle: Array, spread: Array | None, how: str, colour: str) -> Any:
    """Draw a band or bars around a line; ``None`` for nothing."""
    if how == "none" or spread is None:
        return None
    if how == "bars":
        return ax.errorbar(x, middle, yerr=spread, fmt="none", ecolor=colour, capsize=3, zorder=2)
    return ax.fill_between(x, middle - spread, middle + spread, color=colour, alpha=0.2, linewidth=0, zorder=2)
