"""Scores in plots: shown as an error or unchanged, with a band or bars for their spread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dropmargin.estimators.validation import check_choice
from dropmargin.typing import Array

#: Metrics of which one minus the score is an error rate.
SHARES = {"accuracy": "error", "balanced_accuracy": "balanced error"}
# The beginning of the names of scikit-learn's metrics that are minus an error.
_NEGATIVE = "neg_"


@dataclass(frozen=True)
class ScoreAxis:
    """What a vertical axis of scores shows: a metric, or its error; and how the spread is drawn.

    The error is minus a metric whose name begins with ``neg_``, and one minus any other.
    """

    metric: str
    is_error: bool
    spread: str

    @classmethod
    def of(cls, metrics: Iterable[str], show: str, spread: str) -> ScoreAxis:
        """Return the axis for scores of these metrics; ``"score"`` stands for several."""
        check_display_options(show, spread)
        distinct = set(metrics)
        metric = next(iter(distinct)) if len(distinct) == 1 else "score"
        has_error = distinct <= SHARES.keys() or metric.startswith(_NEGATIVE)
        return cls(metric, show == "error" or (show == "auto" and has_error), spread)

    @property
    def in_percent(self) -> bool:
        """Whether the values are shares."""
        return self.metric in SHARES

    @property
    def is_negative(self) -> bool:
        """Whether the metric is minus an error, which may be large and far from zero."""
        return self.metric.startswith(_NEGATIVE)

    @property
    def label(self) -> str:
        """The name of what is shown."""
        name = self.metric
        if self.is_error:
            name = SHARES.get(name, name.removeprefix(_NEGATIVE) if self.is_negative else f"1 - {name}")
        return name.replace("_", " ")

    def values(self, scores: Array) -> Array:
        """Return scores as they are shown."""
        if not self.is_error:
            return scores
        return -scores if self.is_negative else 1.0 - scores

    def draw_spread(self, ax: Any, x: Array, middle: Array, spread: Array | None, colour: str) -> Any:
        """Draw a band or bars around a line; return ``None`` if there is nothing to draw."""
        if self.spread == "none" or spread is None:
            return None
        if self.spread == "bars":
            return ax.errorbar(x, middle, yerr=spread, fmt="none", ecolor=colour, capsize=3, zorder=2)
        return ax.fill_between(x, middle - spread, middle + spread, color=colour, alpha=0.2, linewidth=0, zorder=2)


def check_display_options(show: Any, spread: Any) -> None:
    """Raise a ValueError if ``show`` or ``spread`` is not one of its values."""
    check_choice("show", show, ("auto", "error", "score"))
    check_choice("spread", spread, ("band", "bars", "none"))


def metric_name(scoring: Any, default: str = "score") -> str:
    """Return the name of a metric: ``default`` for None, ``"score"`` for a callable."""
    return scoring if isinstance(scoring, str) else default if scoring is None else "score"
