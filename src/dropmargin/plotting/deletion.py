"""The picture of deletion curves: several classifiers, how each of them falls as features are deleted."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from dropmargin.estimators.validation import check_choice
from dropmargin.evaluation import DeletionCurve, deletion_curve
from dropmargin.evaluation.deletion import DEFAULT_LEVELS
from dropmargin.plotting.naming import named_estimators
from dropmargin.plotting.scores import (
    SHARES,
    SHOWS,
    SPREADS,
    common_metric,
    draw_spread,
    metric_name,
    shown,
    shown_name,
    shows_error,
)
from dropmargin.plotting.style import LEGEND, LINE, by_height, import_pyplot, in_percent, line_style, tidy

_DELETED = {
    "entries": "features deleted at random",
    "columns": "columns deleted at random",
    "worst": "columns deleted, most useful first",
}


class DeletionCurveDisplay:
    """Deletion curves of one or more classifiers in one picture.

    Make one with `from_estimator` or `from_estimators`, or from curves of your own, which may differ in how a deleted
    feature is filled in.

    Parameters
    ----------
    curves : mapping of str to DeletionCurve
        A name for each curve.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        The mean of each curve, in the order of ``curves``.
    spreads_ : list of matplotlib artists
        The band or the bars of each curve; ``None`` for a curve of one repeat.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.svm import LinearSVC
    >>> from dropmargin import DeletionCurveDisplay, DropoutSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> models = {"SVM": LinearSVC(C=0.1), "Dropout-SVM": DropoutSVC(noise=0.3)}
    >>> models = {name: model.fit(X[:1000] / 16, y[:1000]) for name, model in models.items()}
    >>> display = DeletionCurveDisplay.from_estimators(models, X[1000:] / 16, y[1000:], random_state=0)
    """

    ax_: Any
    figure_: Any
    lines_: list[Any]
    spreads_: list[Any]

    def __init__(self, curves: Mapping[str, DeletionCurve]) -> None:
        self.curves = curves

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        name: str | None = None,
        levels: Any = DEFAULT_LEVELS,
        strategy: str = "entries",
        n_repeats: int = 5,
        fill: Any = 0.0,
        rescale: bool = False,
        scoring: Any = "accuracy",
        sample_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 1,
        show: str = "auto",
        spread: str = "band",
        ax: Any = None,
    ) -> DeletionCurveDisplay:
        """Compute and draw the deletion curve of one fitted classifier.

        Parameters
        ----------
        estimator, X, y
            As for `deletion_curve`.
        levels, strategy, n_repeats, fill, rescale, scoring, sample_weight, random_state, n_jobs, verbose
            As for `deletion_curve`.
        name : str, default=None
            Name of the line; ``None`` for that of the estimator's class.
        show, spread, ax
            As for `plot`.

        Returns
        -------
        DeletionCurveDisplay
        """
        return cls.from_estimators(
            {type(estimator).__name__ if name is None else name: estimator},
            X,
            y,
            levels=levels,
            strategy=strategy,
            n_repeats=n_repeats,
            fill=fill,
            rescale=rescale,
            scoring=scoring,
            sample_weight=sample_weight,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
            show=show,
            spread=spread,
            ax=ax,
        )

    @classmethod
    def from_estimators(
        cls,
        estimators: Any,
        X: Any,
        y: Any,
        *,
        levels: Any = DEFAULT_LEVELS,
        strategy: str = "entries",
        n_repeats: int = 5,
        fill: Any = 0.0,
        rescale: bool = False,
        scoring: Any = "accuracy",
        sample_weight: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 1,
        show: str = "auto",
        spread: str = "band",
        ax: Any = None,
    ) -> DeletionCurveDisplay:
        """Compute and draw the deletion curves of several fitted classifiers, all of which meet the same deletions.

        Parameters
        ----------
        estimators : mapping of str to classifier, or sequence of classifiers
            Classifiers without names are named after their class.
        X, y, levels, strategy, n_repeats, fill, rescale, scoring, sample_weight, random_state, n_jobs, verbose
            As for `deletion_curve`.
        show, spread, ax
            As for `plot`.

        Returns
        -------
        DeletionCurveDisplay
        """
        import_pyplot()  # before the work, not after it
        check_choice("show", show, SHOWS)
        check_choice("spread", spread, SPREADS)
        seed = random_state
        if not isinstance(seed, Integral):  # None and a RandomState would give each classifier other deletions
            seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
        curves = {
            name: deletion_curve(
                estimator,
                X,
                y,
                levels=levels,
                strategy=strategy,
                n_repeats=n_repeats,
                fill=fill,
                rescale=rescale,
                scoring=scoring,
                sample_weight=sample_weight,
                random_state=seed,
                n_jobs=n_jobs,
                verbose=verbose,
            )
            for name, estimator in named_estimators(estimators).items()
        }
        return cls(curves).plot(ax, show=show, spread=spread)

    def plot(self, ax: Any = None, *, show: str = "auto", spread: str = "band") -> DeletionCurveDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; ``None`` for a new figure.
        show : {"auto", "error", "score"}, default="auto"
            ``"error"`` is one minus the score; ``"auto"`` is that for accuracy, and the score for other metrics.
        spread : {"band", "bars", "none"}, default="band"
            How to show one standard deviation over the repeats.

        Returns
        -------
        self
        """
        curves = _check_curves(self.curves)
        check_choice("show", show, SHOWS)
        check_choice("spread", spread, SPREADS)
        plt = import_pyplot()
        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
        metrics = [metric_name(curve.scoring) for curve in curves.values()]
        metric, error = common_metric(metrics), shows_error(show, metrics)
        self.ax_, self.figure_ = ax, ax.figure
        self.lines_, self.spreads_ = [], []
        for index, (name, curve) in enumerate(curves.items()):
            self._draw(curve, name, line_style(index), error, spread)
        strategies = {curve.strategy for curve in curves.values()}
        ax.set_xlabel(_DELETED[strategies.pop()] if len(strategies) == 1 else "features deleted")
        ax.set_ylabel(shown_name(metric, error))
        if error:
            ax.set_ylim(bottom=0.0)
        self._finish(percent=metric in SHARES)
        return self

    def _draw(self, curve: DeletionCurve, name: str, style: dict[str, Any], error: bool, spread: str) -> None:
        order = np.argsort(curve.levels, kind="stable")
        levels, mean, std = curve.levels[order], shown(curve.mean[order], error), curve.std[order]
        (line,) = self.ax_.plot(levels, mean, label=name, zorder=3, **LINE, **style)
        self.lines_.append(line)
        spread = "none" if curve.scores.shape[1] == 1 else spread
        self.spreads_.append(draw_spread(self.ax_, levels, mean, std, spread, style["color"]))

    def _finish(self, percent: bool) -> None:
        """Set the axes, and name the lines from top to bottom as they lie in the picture."""
        in_percent(self.ax_.xaxis)
        if percent:
            in_percent(self.ax_.yaxis)
        tidy(self.ax_)
        self.ax_.legend(handles=by_height(self.lines_), loc="best", **LEGEND)


def _check_curves(curves: Any) -> Mapping[str, DeletionCurve]:
    valid = isinstance(curves, Mapping) and all(isinstance(curve, DeletionCurve) for curve in curves.values())
    if not valid or not curves:
        raise ValueError(f"curves must be a dict of names and results of deletion_curve, got {curves!r}.")
    return curves
