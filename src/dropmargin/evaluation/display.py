"""The plot of deletion curves: the scores of several models by the share of features deleted."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from dropmargin.evaluation.curves import DeletionCurve, deletion_curve
from dropmargin.plotting.display import (
    Display,
    ScoreAxis,
    check_display_options,
    check_mapping,
    metric_name,
    named_estimators,
)
from dropmargin.plotting.style import LEGEND, LINE, by_height, import_matplotlib, line_style, plain_text, tidy

_X_LABELS = {
    "entries": "features deleted at random",
    "columns": "columns deleted at random",
    "worst": "columns deleted, most useful first",
}


class DeletionCurveDisplay(Display):
    """Deletion curves of one or more models in one plot.

    Create one with `from_estimator` or `from_estimators`; or with the constructor, from curves that may differ in the
    parameters of `deletion_curve`.

    Parameters
    ----------
    curves : mapping of str to DeletionCurve
        The curves by name.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        The mean of each curve, in the order of ``curves``.
    spreads_ : list of matplotlib artists
        The band of each curve; ``None`` for a curve of one repeat.

    See Also
    --------
    deletion_curve : Computes the scores that are plotted.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.svm import LinearSVC
    >>> from dropmargin import DeletionCurveDisplay, DropoutSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> models = [model.fit(X[:1000] / 16, y[:1000]) for model in (LinearSVC(C=0.1), DropoutSVC(noise=0.3))]
    >>> display = DeletionCurveDisplay.from_estimators(models, X[1000:] / 16, y[1000:], random_state=0)
    """

    def __init__(self, curves: Mapping[str, DeletionCurve]) -> None:
        self.curves = curves

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, name: str | None = None, **options: Any
    ) -> DeletionCurveDisplay:
        """Compute and plot the deletion curve of one fitted model.

        Parameters
        ----------
        estimator : classifier or regressor
            Any fitted scikit-learn classifier, regressor or pipeline.
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Test rows.
        y : array-like of shape (n_samples,)
            Their labels, or numbers.
        name : str, default=None
            Name of the line; ``None`` for the name of the estimator's class.
        **options
            As for `from_estimators`.

        Returns
        -------
        DeletionCurveDisplay
        """
        return cls.from_estimators(estimator if name is None else {name: estimator}, X, y, **options)

    @classmethod
    def from_estimators(
        cls,
        estimators: Any,
        X: Any,
        y: Any,
        *,
        random_state: Any = None,
        show: str = "auto",
        spread: str = "band",
        ax: Any = None,
        **options: Any,
    ) -> DeletionCurveDisplay:
        """Compute and plot the deletion curves of several fitted models, with the same deletions for all.

        Parameters
        ----------
        estimators : mapping of str to model, sequence of models, or model
            Fitted classifiers, regressors or pipelines. Models without names are named after their class.
        X : {array-like, sparse matrix, data frame} of shape (n_samples, n_features)
            Test rows.
        y : array-like of shape (n_samples,)
            Their labels, or numbers.
        random_state : int, RandomState instance or None, default=None
            Seed of the deletions.
        show : str, default="auto"
            As for `plot`.
        spread : str, default="band"
            As for `plot`.
        ax : matplotlib Axes, default=None
            As for `plot`.
        **options
            Other parameters of `deletion_curve`: ``levels``, ``strategy``, ``n_repeats``, ``fill``, ``rescale``,
            ``scoring``, ``sample_weight``, ``n_jobs``, ``verbose``.

        Returns
        -------
        DeletionCurveDisplay
        """
        import_matplotlib()  # a missing library is reported before the curves are computed
        check_display_options(show, spread)
        seed = random_state
        if not isinstance(seed, Integral):  # None and a RandomState would give each classifier different deletions
            seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        curves = {
            name: deletion_curve(estimator, X, y, random_state=seed, **options)
            for name, estimator in named_estimators(estimators).items()
        }
        return cls(curves).plot(ax, show=show, spread=spread)

    def plot(self, ax: Any = None, *, show: str = "auto", spread: str = "band") -> DeletionCurveDisplay:
        """Plot the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; ``None`` for a new figure.
        show : {"auto", "error", "score"}, default="auto"
            ``"error"`` is one minus the score, or minus a score whose name begins with ``neg_``; ``"auto"`` is
            ``"error"`` for accuracy and for such scores, and ``"score"`` for others.
        spread : {"band", "none"}, default="band"
            How to show one standard deviation over the repeats.

        Returns
        -------
        self : object
            The display, with its plot.
        """
        curves = check_mapping("curves", self.curves, DeletionCurve, "deletion_curve returns them.")
        axis = ScoreAxis.of([metric_name(curve.scoring) for curve in curves.values()], show, spread)
        self._set_axes(ax, figsize=(6.4, 4.4))
        ax = self.ax_
        for index, (name, curve) in enumerate(curves.items()):
            style, order = line_style(index), np.argsort(curve.levels, kind="stable")
            levels, mean = curve.levels[order], axis.values(curve.mean[order])
            std = curve.std[order] if curve.scores.shape[1] > 1 else None
            zorder = 3.0 - 0.01 * index  # the first curve is on top
            self.lines_ += ax.plot(levels, mean, label=plain_text(name), zorder=zorder, **LINE, **style)
            self.spreads_.append(axis.draw_spread(ax, levels, mean, std, style["color"]))
        strategies = {curve.strategy for curve in curves.values()}
        ax.set_xlabel(_X_LABELS[strategies.pop()] if len(strategies) == 1 else "features deleted")
        ax.set_ylabel(axis.label)
        if axis.is_error and not axis.is_negative:
            ax.set_ylim(bottom=0.0)
        tidy(ax, shares=(ax.xaxis, ax.yaxis) if axis.in_percent else (ax.xaxis,))
        ax.legend(handles=by_height(self.lines_), loc="best", **LEGEND)
        return self
