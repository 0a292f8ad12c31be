"""What the displays share: the checks of their arguments, and their axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dropmargin.plotting.style import import_matplotlib


def named_estimators(estimators: Any) -> dict[str, Any]:
    """Return estimators by name: as given, or by the names of their classes."""
    if isinstance(estimators, Mapping):
        named = dict(estimators)
    elif hasattr(estimators, "fit") and not isinstance(estimators, type):
        named = {type(last_step(estimators)).__name__: estimators}
    elif isinstance(estimators, Iterable) and not isinstance(estimators, str):
        listed = list(estimators)
        named = {type(last_step(estimator)).__name__: estimator for estimator in listed}
        if len(named) < len(listed):
            raise ValueError("Two of the estimators are of one class: name them, as in {'C = 1': ..., 'C = 10': ...}.")
    else:
        raise ValueError(f"estimators must be a dict of names and fitted classifiers, or a list; got {estimators!r}.")
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

    ax_: Any
    axes_: list[Any]
    figure_: Any
    lines_: list[Any]
    spreads_: list[Any]
    chosen_: list[Any]

    def _set_axes(self, ax: Any, panels: Iterable[str] = ("",), **settings: Any) -> None:
        """Set the axes, one per panel: the given ones, or those of a new figure with these settings."""
        if ax is None:
            _, ax = import_matplotlib().subplots(layout="constrained", **settings)
        self.axes_, names = list(np.ravel(np.asarray(ax, dtype=object))), list(panels)
        if not all(hasattr(one, "plot") and hasattr(one, "figure") for one in self.axes_):
            raise TypeError(f"ax must be matplotlib Axes or None, got {ax!r}.")
        if len(self.axes_) != len(names):
            raise ValueError(
                f"ax has {len(self.axes_)} axes, but {len(names)} are needed, one for each kind of noise: "
                f"{', '.join(names)}. Give as many, or None for a new figure."
            )
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        self.lines_, self.spreads_, self.chosen_ = [], [], []
