"""The plot of convergence: the relative gap of fits after each pass over the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dropmargin.plotting.arguments import last_step, named_estimators
from dropmargin.plotting.style import LEGEND, LINE, import_matplotlib, line_style, plain_text, tidy

# A line of more points than this has markers at some of them only.
_MAX_MARKERS = 15


class ConvergenceDisplay:
    """The relative gap of one or more fits after each pass over the data, from their ``history_``.

    Create one with `from_estimators`. The gap is the one that the solver estimated, ``gap / |objective|``, and by which
    it stops. The first iterations have no estimate and are not drawn; ``solver="lbfgs"`` estimates no gap. Outputs that
    were solved one by one, as for sparse data, have a thin line each.

    Parameters
    ----------
    fits : mapping of str to classifier
        Fitted classifiers of dropmargin by name.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        In the order of ``fits``.
    tolerances_ : list of matplotlib Line2D
        The dotted line of each tolerance.

    See Also
    --------
    NoisePathDisplay : The score along the noise.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import ConvergenceDisplay, DropoutSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> models = {solver: DropoutSVC(solver=solver).fit(scale(X), y) for solver in ("newton", "irls")}
    >>> display = ConvergenceDisplay.from_estimators(models)
    """

    ax_: Any
    figure_: Any
    lines_: list[Any]
    tolerances_: list[Any]

    def __init__(self, fits: Mapping[str, Any]) -> None:
        self.fits = fits

    @classmethod
    def from_estimators(cls, estimators: Any, *, ax: Any = None) -> ConvergenceDisplay:
        """Plot the histories of fitted classifiers.

        Parameters
        ----------
        estimators : mapping of str to classifier, sequence of classifiers, or classifier
            Fitted classifiers of dropmargin, or pipelines that end in one; of a search, the final fit to all rows is
            plotted. Classifiers without names are named after their class.
        ax : matplotlib Axes, default=None
            As for `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        return cls({name: _with_gaps(estimator) for name, estimator in named_estimators(estimators).items()}).plot(ax)

    def plot(self, ax: Any = None) -> ConvergenceDisplay:
        """Plot the histories.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; ``None`` for a new figure.

        Returns
        -------
        self : object
            The display, with its plot.
        """
        if ax is None:
            _, ax = import_matplotlib().subplots(figsize=(6.4, 4.4), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self.lines_, self.tolerances_ = [], []
        for index, (name, model) in enumerate(self.fits.items()):
            self._draw(_split(model.history_), plain_text(name), line_style(index))
        for tol in sorted({float(model.tol) for model in self.fits.values()} - {0.0}, reverse=True):
            line = ax.axhline(tol, color="0.5", linestyle=":", linewidth=1.2, zorder=1, label=f"tol = {tol:g}")
            self.tolerances_.append(line)
        ax.set_yscale("log")
        ax.set_xlim(left=0.0)
        ax.set_xlabel("passes over the data")
        ax.set_ylabel("estimated relative gap")
        tidy(ax)
        ax.legend(loc="best", **LEGEND)
        return self

    def _draw(self, parts: list[Sequence[Any]], name: str, style: dict[str, Any]) -> None:
        style = style | LINE | ({"linewidth": 0.9, "markersize": 3.0} if len(parts) > 1 else {})
        for index, part in enumerate(parts):
            _, objectives, gaps, passes = np.array(part, dtype=float).T[:4]
            is_known = np.isfinite(gaps) & (gaps > 0.0) & (objectives != 0.0)
            height = np.divide(gaps, np.abs(objectives), out=np.full(len(gaps), np.nan), where=is_known)
            every = max(1, int(is_known.sum()) // _MAX_MARKERS)
            label = name if index == 0 else "_nolegend_"
            self.lines_ += self.ax_.plot(passes, height, label=label, markevery=every, zorder=3, **style)


def _with_gaps(estimator: Any) -> Any:
    """Return the fitted classifier that has the history."""
    model = last_step(estimator)
    if isinstance(model, type) or not hasattr(model, "fit"):
        raise TypeError(f"estimators must be fitted classifiers of dropmargin, got {model!r}.")
    check_is_fitted(model)
    model = getattr(model, "best_estimator_", model)
    if not hasattr(model, "history_"):
        raise TypeError(f"{type(model).__name__} has no history_. Give fitted classifiers of dropmargin.")
    if not any(np.isfinite(entry.gap) for entry in model.history_):
        raise ValueError(f"{model!r} has no gaps in its history_: solver='lbfgs' does not estimate them.")
    return model


def _split(history: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the histories of outputs that were solved one by one: each begins with iteration 1."""
    starts = [index for index, entry in enumerate(history) if entry.iteration == 1]
    return [history[begin:end] for begin, end in zip(starts, [*starts[1:], len(history)], strict=True)]
