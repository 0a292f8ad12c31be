"""The picture of convergence: how far fits were from the minimum after each pass over the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dropmargin.estimators.validation import check_choice, check_number
from dropmargin.plotting.naming import last_step, named_estimators
from dropmargin.plotting.style import LEGEND, LINE, import_pyplot, line_style, tidy
from dropmargin.typing import Array

_SHOWS = ("auto", "gap", "excess")
_AGAINST = {"passes": "passes over the data", "iterations": "iterations"}
_LABELS = {"gap": "estimated relative gap", "excess": "relative excess of the objective"}
# Parameters that say how a problem is solved, and not which.
_SOLVING = ("solver", "tol", "max_iter", "warm_start", "n_jobs", "verbose")
# A line of more points has a mark at some of them only.
_MOST_MARKS = 15


@dataclass(frozen=True, eq=False)
class Descent:
    """The history of one binary problem, or of several that were solved as one, and the minimum it is compared with."""

    iterations: Array
    passes: Array
    objectives: Array
    gaps: Array
    minimum: float

    def relative(self, show: str) -> Array:
        """Return the relative gap or excess of each iteration; NaN where it is unknown or not above zero."""
        if show == "gap":
            values, scale = self.gaps, np.abs(self.objectives)
        else:
            values, scale = self.objectives - self.minimum, np.abs(self.minimum)
        known = np.isfinite(values) & (values > 0.0) & (scale > 0.0)
        return np.divide(values, scale, out=np.full(len(values), np.nan), where=known)


@dataclass(frozen=True, eq=False)
class Convergence:
    """The descents of one fit, several if its classes were solved apart; and the tolerance it stopped at."""

    descents: Sequence[Descent]
    tol: float


class ConvergenceDisplay:
    """The relative gap of one or more fits after each pass over the data, from their ``history_``.

    Make one with `from_estimators`. There are two measures of the way that is left:

    ``"gap"``: what the solver itself estimated at the time, ``gap / |objective|``, by which it stops. The first steps,
    of which it could not tell yet, are not drawn; and ``solver="lbfgs"`` estimates none.

    ``"excess"``: ``(objective - minimum) / |minimum|``, known in hindsight, for every solver. The minimum is taken to
    be the highest lower bound that the final gaps give, and at most the lowest objective reached, over all fits of the
    same problem: those of one class with the same parameters but the ones of solving, and with as many features and
    the same classes.

    Classes that were solved apart, as on sparse data, are a thin line each.

    Parameters
    ----------
    fits : mapping of str to Convergence
        A name for the history of each fit.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        In the order of ``fits``.
    tolerances_ : list of matplotlib Line2D
        The dotted lines at each tolerance.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import ConvergenceDisplay, DropoutSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> models = {solver: DropoutSVC(solver=solver).fit(scale(X), y) for solver in ("newton", "irls", "lbfgs")}
    >>> display = ConvergenceDisplay.from_estimators(models)
    """

    ax_: Any
    figure_: Any
    lines_: list[Any]
    tolerances_: list[Any]

    def __init__(self, fits: Mapping[str, Convergence]) -> None:
        self.fits = fits

    @classmethod
    def from_estimators(
        cls,
        estimators: Any,
        *,
        minimum: float | None = None,
        show: str = "auto",
        against: str = "passes",
        ax: Any = None,
    ) -> ConvergenceDisplay:
        """Draw the histories of fitted classifiers.

        Parameters
        ----------
        estimators : mapping of str to classifier, sequence of classifiers, or classifier
            Fitted classifiers of dropmargin, or pipelines that end in one; of one that chose its noise and ``C``, the
            fit to all rows is shown. Classifiers without names are named after their class.
        minimum : float, default=None
            The lowest value of the objective, if it is known better than from these fits; for ``"excess"``.
        show, against, ax
            As for `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        if minimum is not None:
            check_number("minimum", minimum, -np.inf)
        models = {
            name: _with_history(estimator) for name, estimator in named_estimators(estimators, alone=True).items()
        }
        minima = _minima(list(models.values()))
        fits = {}
        for (name, model), own in zip(models.items(), minima, strict=True):
            parts = _split(model.history_)
            known = own if minimum is None else np.full(len(parts), float(minimum))
            descents = [_descent(part, float(least)) for part, least in zip(parts, known, strict=True)]
            fits[name] = Convergence(descents, float(model.tol))
        return cls(fits).plot(ax, show=show, against=against)

    def plot(self, ax: Any = None, *, show: str = "auto", against: str = "passes") -> ConvergenceDisplay:
        """Draw the histories.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; ``None`` for a new figure.
        show : {"auto", "gap", "excess"}, default="auto"
            See above; ``"auto"`` is ``"gap"`` if every fit has estimated it, else ``"excess"``.
        against : {"passes", "iterations"}, default="passes"
            Passes over the data, or the solver's iterations, which cost more or less.

        Returns
        -------
        self
        """
        fits = _check_fits(self.fits)
        check_choice("show", show, _SHOWS)
        check_choice("against", against, tuple(_AGAINST))
        plt = import_pyplot()
        if show == "auto":
            descents = [descent for fit in fits.values() for descent in fit.descents]
            show = "gap" if all(np.isfinite(descent.gaps).any() for descent in descents) else "excess"
        if ax is None:
            _, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self.lines_, self.tolerances_ = [], []
        for index, (name, fit) in enumerate(fits.items()):
            self._draw(fit, name, line_style(index), show, against)
        for tol in sorted({fit.tol for fit in fits.values()} - {0.0}, reverse=True):
            line = ax.axhline(tol, color="0.4", linestyle=":", linewidth=1.2, zorder=1, label=f"tol = {tol:g}")
            self.tolerances_.append(line)
        ax.set_yscale("log")
        ax.set_xlim(left=0.0)
        ax.set_xlabel(_AGAINST[against])
        ax.set_ylabel(_LABELS[show])
        tidy(ax)
        ax.legend(loc="best", **LEGEND)
        return self

    def _draw(self, fit: Convergence, name: str, style: dict[str, Any], show: str, against: str) -> None:
        apart = len(fit.descents) > 1
        look = style | LINE | ({"linewidth": 0.9, "markersize": 3.0} if apart else {})
        for index, descent in enumerate(fit.descents):
            along, height = getattr(descent, against), descent.relative(show)
            every = max(1, int(np.isfinite(height).sum()) // _MOST_MARKS)
            label = name if index == 0 else "_nolegend_"
            (line,) = self.ax_.plot(along, height, label=label, markevery=every, zorder=3, **look)
            self.lines_.append(line)


def _with_history(estimator: Any) -> Any:
    """Return the fitted classifier whose history is meant."""
    model = last_step(estimator)
    if isinstance(model, type) or not hasattr(model, "fit"):
        raise TypeError(f"estimators must be fitted classifiers of dropmargin, got {model!r}.")
    check_is_fitted(model)
    model = getattr(model, "best_estimator_", model)
    if not hasattr(model, "history_"):
        raise TypeError(f"{type(model).__name__} has no history_; classifiers of dropmargin have.")
    return model


def _split(history: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the histories of problems that were solved apart: each begins with iteration 1."""
    starts = [index for index, entry in enumerate(history) if entry.iteration == 1]
    return [history[begin:end] for begin, end in zip(starts, [*starts[1:], len(history)], strict=True)]


def _descent(part: Sequence[Any], minimum: float) -> Descent:
    columns = {name: np.array([getattr(entry, name) for entry in part], dtype=float) for name in part[0]._fields}
    return Descent(columns["iteration"], columns["passes"], columns["objective"], columns["gap"], minimum)


def _minima(models: Sequence[Any]) -> list[Array]:
    """Return the minimum of each problem of each model, as far as all models of the same problems know it."""
    reached, bounds, problems = [], [], []
    for model in models:
        parts = _split(model.history_)
        # the objective at the end is exact, that of the history may be smoothed
        ends = [model.objective_] if len(parts) == 1 else [part[-1].objective for part in parts]
        gaps = np.array([part[-1].gap for part in parts])
        reached.append(np.array(ends, dtype=float))
        bounds.append(np.where(np.isfinite(gaps), reached[-1] - gaps, -np.inf))
        problems.append((type(model), len(parts), _which_problem(model)))
    minima = []
    for problem in problems:
        same = [index for index, other in enumerate(problems) if other == problem]
        lowest = np.min([reached[index] for index in same], axis=0)
        bound = np.max([bounds[index] for index in same], axis=0)
        minima.append(np.where(np.isfinite(bound), np.minimum(bound, lowest), lowest))
    return minima


def _which_problem(model: Any) -> str:
    parameters = {name: value for name, value in model.get_params().items() if name not in _SOLVING}
    return repr((sorted(parameters.items()), model.classes_.tolist(), model.coef_.shape))


def _check_fits(fits: Any) -> Mapping[str, Convergence]:
    valid = isinstance(fits, Mapping) and all(isinstance(fit, Convergence) for fit in fits.values())
    if not valid or not fits:
        raise ValueError(f"fits must be a dict of names and histories, got {fits!r}. Use from_estimators.")
    return fits
