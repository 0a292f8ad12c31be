"""What the displays share: axes, checks of their arguments, and scores shown as errors, with their spread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.estimators.validation import check_choice
from dropmargin.plotting.style import COLOURS, import_matplotlib, plain_text, tidy
from dropmargin.typing import Array

# Longest name beside a bar.
_MAX_NAME = 40


def named_estimators(estimators: Any) -> dict[str, Any]:
    """Return estimators by name: as given, or by the names of their classes."""
    given = [estimators] if hasattr(estimators, "fit") and not isinstance(estimators, type) else estimators
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise ValueError(f"estimators must be a dict of names and fitted classifiers, or a list; got {estimators!r}.")
    given = given if isinstance(given, Mapping) else list(given)
    named = dict(given) if isinstance(given, Mapping) else {type(last_step(one)).__name__: one for one in given}
    if len(named) < len(given):
        raise ValueError("Two of the estimators are of one class: name them, as in {'C = 1': ..., 'C = 10': ...}.")
    if not named:
        raise ValueError("estimators is empty: give at least one fitted classifier.")
    return named


def last_step(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the estimator itself."""
    steps = getattr(estimator, "steps", None)
    return steps[-1][1] if steps else estimator


def check_mapping(name: str, value: Any, kind: type, advice: str) -> Mapping[str, Any]:
    """Return a mapping after checking that it is not empty and that its values are of one type."""
    if not isinstance(value, Mapping) or not value or not all(isinstance(entry, kind) for entry in value.values()):
        raise ValueError(f"{name} must be a dict of names and {kind.__name__} objects, got {value!r}. {advice}")
    return value


class Display:
    """Base of the displays: the axes that a plot is on, and the artists in it."""

    def _set_axes(self, ax: Any, panels: Iterable[str] = ("",), panel: str = "kind of noise", **settings: Any) -> None:
        """Set the axes, one per panel: the given ones, or those of a new figure with these settings.

        ``panel`` is what a panel shows, for the error.
        """
        if ax is None:
            _, ax = import_matplotlib().subplots(layout="constrained", **settings)
        self.axes_, names = list(np.ravel(np.asarray(ax, dtype=object))), list(panels)
        if not all(hasattr(one, "plot") and hasattr(one, "figure") for one in self.axes_):
            raise TypeError(f"ax must be matplotlib Axes or None, got {ax!r}.")
        if len(self.axes_) != len(names):
            raise ValueError(
                f"ax has {len(self.axes_)} axes, but {len(names)} are needed, one for each {panel}: "
                f"{', '.join(names)}. Give as many, or None for a new figure."
            )
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        self.lines_: list[Any] = []
        self.spreads_: list[Any] = []
        self.chosen_: list[Any] = []


def draw_bars(ax: Any, names: Sequence[str], values: Array) -> Any:
    """Draw horizontal bars, the first on top; positive and negative values have different colours."""
    colours = [COLOURS[0] if value >= 0.0 else COLOURS[1] for value in values]
    bars = ax.barh(range(len(names)), values, color=colours, height=0.7)
    shown = [name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}\N{HORIZONTAL ELLIPSIS}" for name in names]
    ax.set_yticks(range(len(names)), [plain_text(name) for name in shown])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.locator_params(axis="x", nbins=4)
    tidy(ax)
    ax.grid(visible=False, axis="y")
    ax.axvline(0.0, color=ax.xaxis.label.get_color(), linewidth=0.8)
    return bars


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
        """Draw a band around a line; return ``None`` if there is nothing to draw."""
        if self.spread == "none" or spread is None:
            return None
        return ax.fill_between(x, middle - spread, middle + spread, color=colour, alpha=0.2, linewidth=0, zorder=2)


def check_display_options(show: Any, spread: Any) -> None:
    """Raise a ValueError if ``show`` or ``spread`` is not one of its values."""
    check_choice("show", show, ("auto", "error", "score"))
    check_choice("spread", spread, ("band", "none"))


def metric_name(scoring: Any, default: str = "score") -> str:
    """Return the name of a metric: ``default`` for None, ``"score"`` for a callable."""
    return scoring if isinstance(scoring, str) else default if scoring is None else "score"
