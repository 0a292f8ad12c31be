"""The picture of deletion curves: several classifiers, how each of them falls as features are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from dropmargin.classifiers.validation import check_choice
from dropmargin.evaluation import DeletionCurve, deletion_curve
from dropmargin.evaluation.deletion import DEFAULT_LEVELS
from dropmargin.plotting.style import import_pyplot, line_style
from dropmargin.typing import Array

_DELETED = {
    "entries": "features deleted at random",
    "columns": "columns deleted at random",
    "worst": "columns deleted, most useful first",
}
_SHOWS = ("auto", "error", "score")
_SPREADS = ("band", "bars", "none")
#: Metrics of which one minus the score is an error rate.
_SHARES = {"accuracy": "error", "balanced_accuracy": "balanced error"}


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
        check_choice("show", show, _SHOWS)
        check_choice("spread", spread, _SPREADS)
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
            for name, estimator in _named(estimators).items()
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
        check_choice("show", show, _SHOWS)
        check_choice("spread", spread, _SPREADS)
        plt = import_pyplot()
        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
        metrics = {_metric(curve) for curve in curves.values()}
        error = show == "error" or (show == "auto" and metrics <= _SHARES.keys())
        self.ax_, self.figure_ = ax, ax.figure
        self.lines_, self.spreads_ = [], []
        for index, (name, curve) in enumerate(curves.items()):
            self._draw(curve, name, line_style(index), error, spread)
        metric = metrics.pop() if len(metrics) == 1 else "score"
        strategies = {curve.strategy for curve in curves.values()}
        ax.set_xlabel(_DELETED[strategies.pop()] if len(strategies) == 1 else "features deleted")
        ax.set_ylabel((_SHARES.get(metric, f"1 - {metric}") if error else metric).replace("_", " "))
        if error:
            ax.set_ylim(bottom=0.0)
        self._finish(percent=metric in _SHARES)
        return self

    def _draw(self, curve: DeletionCurve, name: str, style: dict[str, Any], error: bool, spread: str) -> None:
        order = np.argsort(curve.levels, kind="stable")
        levels, mean, std = curve.levels[order], _shown(curve.mean[order], error), curve.std[order]
        (line,) = self.ax_.plot(levels, mean, label=name, linewidth=1.8, markersize=5.5, zorder=3, **style)
        self.lines_.append(line)
        if spread == "none" or curve.scores.shape[1] == 1:
            self.spreads_.append(None)
        elif spread == "band":
            colour = style["color"]
            self.spreads_.append(
                self.ax_.fill_between(levels, mean - std, mean + std, color=colour, alpha=0.2, linewidth=0, zorder=2)
            )
        else:
            bars = self.ax_.errorbar(levels, mean, yerr=std, fmt="none", ecolor=style["color"], capsize=3, zorder=2)
            self.spreads_.append(bars)

    def _finish(self, percent: bool) -> None:
        """Set the axes, and name the lines from top to bottom as they lie in the picture."""
        from matplotlib.ticker import PercentFormatter

        self.ax_.xaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=None, symbol=" %"))
        if percent:
            self.ax_.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=None, symbol=" %"))
        self.ax_.grid(color="0.9", linewidth=0.8, zorder=0)
        self.ax_.set_axisbelow(True)
        for side in ("top", "right"):
            self.ax_.spines[side].set_visible(False)
        by_height = sorted(self.lines_, key=lambda line: -float(np.mean(line.get_ydata())))
        self.ax_.legend(handles=by_height, loc="best", frameon=False, handlelength=3.2)


def _named(estimators: Any) -> dict[str, Any]:
    """Return estimators by name."""
    if isinstance(estimators, Mapping):
        named = dict(estimators)
    elif isinstance(estimators, Iterable) and not hasattr(estimators, "predict"):
        listed = list(estimators)
        named = {type(estimator).__name__: estimator for estimator in listed}
        if len(named) < len(listed):
            raise ValueError("Two of the estimators are of one class: name them, as in {'C = 1': ..., 'C = 10': ...}.")
    else:
        raise ValueError(f"estimators must be a dict of names and fitted classifiers, or a list; got {estimators!r}.")
    if not named:
        raise ValueError("estimators is empty: give at least one fitted classifier.")
    return named


def _check_curves(curves: Any) -> Mapping[str, DeletionCurve]:
    valid = isinstance(curves, Mapping) and all(isinstance(curve, DeletionCurve) for curve in curves.values())
    if not valid or not curves:
        raise ValueError(f"curves must be a dict of names and results of deletion_curve, got {curves!r}.")
    return curves


def _metric(curve: DeletionCurve) -> str:
    return curve.scoring if isinstance(curve.scoring, str) else "score"


def _shown(scores: Array, error: bool) -> Array:
    return 1.0 - scores if error else scores
