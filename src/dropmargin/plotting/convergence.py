"""The plot of convergence: the relative gap of fits after each pass over the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dropmargin.estimators.validation import check_choice, check_number
from dropmargin.plotting.arguments import check_mapping, last_step, named_estimators
from dropmargin.plotting.style import LEGEND, LINE, import_matplotlib, line_style, plain_text, tidy
from dropmargin.typing import Array

_SHOWS = ("auto", "gap", "excess")
_AGAINST = {"passes": "passes over the data", "iterations": "iterations"}
_LABELS = {"gap": "estimated relative gap", "excess": "relative excess of the objective"}
# Parameters of the solver, which do not change the problem.
_SOLVER_PARAMETERS = ("solver", "tol", "max_iter", "warm_start", "n_jobs", "verbose")
# A line of more points than this has markers at some of them only.
_MAX_MARKERS = 15


@dataclass(frozen=True, eq=False)
class Descent:
    """The history of one output, or of outputs that were solved together, and the minimum of their objective."""

    minimum: float
    iterations: Array
    objectives: Array
    gaps: Array
    passes: Array

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
    """The histories of one fit, several if its outputs were solved one by one, and its tolerance."""

    descents: Sequence[Descent]
    tol: float


class ConvergenceDisplay:
    """The relative gap of one or more fits after each pass over the data, from their ``history_``.

    Create one with `from_estimators`. There are two measures of the distance to the minimum:

    ``"gap"``: the gap that the solver estimated, ``gap / |objective|``, and by which it stops. The first iterations
    have no estimate and are not drawn; ``solver="lbfgs"`` estimates no gap.

    ``"excess"``: ``(objective - minimum) / |minimum|``, which exists for every solver. The minimum is the largest lower
    bound that the final gaps give, and at most the smallest objective, over all fits of the same problem: the same
    class, the same parameters except those of the solver, the same number of features and the same labels.

    Outputs that were solved one by one, as for sparse data, have a thin line each.

    Parameters
    ----------
    fits : mapping of str to Convergence
        The histories of each fit by name.

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
        """Plot the histories of fitted classifiers.

        Parameters
        ----------
        estimators : mapping of str to classifier, sequence of classifiers, or classifier
            Fitted classifiers of dropmargin, or pipelines that end in one; of a search, the final fit to all rows is
            plotted. Classifiers without names are named after their class.
        minimum : float, default=None
            The minimum of the objective for ``"excess"``, if it is known more accurately than from these fits.
        show : str, default="auto"
            As for `plot`.
        against : str, default="passes"
            As for `plot`.
        ax : matplotlib Axes, default=None
            As for `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        if minimum is not None:
            check_number("minimum", minimum, -np.inf)
        models = {name: _with_history(estimator) for name, estimator in named_estimators(estimators).items()}
        minima = _minima(list(models.values()))
        fits = {}
        for (name, model), own in zip(models.items(), minima, strict=True):
            parts = _split(model.history_)
            known = own if minimum is None else np.full(len(parts), float(minimum))
            descents = [
                Descent(float(least), *np.array(part, dtype=float).T[:4])
                for part, least in zip(parts, known, strict=True)
            ]
            fits[name] = Convergence(descents, float(model.tol))
        return cls(fits).plot(ax, show=show, against=against)

    def plot(self, ax: Any = None, *, show: str = "auto", against: str = "passes") -> ConvergenceDisplay:
        """Plot the histories.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; ``None`` for a new figure.
        show : {"auto", "gap", "excess"}, default="auto"
            The measure, see above; ``"auto"`` is ``"gap"`` if every fit has estimates of it, else ``"excess"``.
        against : {"passes", "iterations"}, default="passes"
            The horizontal axis: passes over the data, or iterations of the solver.

        Returns
        -------
        self : object
            The display, with its plot.
        """
        fits = check_mapping("fits", self.fits, Convergence, "Use from_estimators.")
        check_choice("show", show, _SHOWS)
        check_choice("against", against, tuple(_AGAINST))
        if show == "auto":
            descents = [descent for fit in fits.values() for descent in fit.descents]
            show = "gap" if all(np.isfinite(descent.gaps).any() for descent in descents) else "excess"
        if ax is None:
            _, ax = import_matplotlib().subplots(figsize=(6.4, 4.4), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self.lines_, self.tolerances_ = [], []
        for index, (name, fit) in enumerate(fits.items()):
            self._draw(fit, plain_text(name), line_style(index), show, against)
        for tol in sorted({fit.tol for fit in fits.values()} - {0.0}, reverse=True):
            line = ax.axhline(tol, color="0.5", linestyle=":", linewidth=1.2, zorder=1, label=f"tol = {tol:g}")
            self.tolerances_.append(line)
        ax.set_yscale("log")
        ax.set_xlim(left=0.0)
        ax.set_xlabel(_AGAINST[against])
        ax.set_ylabel(_LABELS[show])
        tidy(ax)
        ax.legend(loc="best", **LEGEND)
        return self

    def _draw(self, fit: Convergence, name: str, style: dict[str, Any], show: str, against: str) -> None:
        several = len(fit.descents) > 1
        style = style | LINE | ({"linewidth": 0.9, "markersize": 3.0} if several else {})
        for index, descent in enumerate(fit.descents):
            x, height = getattr(descent, against), descent.relative(show)
            every = max(1, int(np.isfinite(height).sum()) // _MAX_MARKERS)
            label = name if index == 0 else "_nolegend_"
            (line,) = self.ax_.plot(x, height, label=label, markevery=every, zorder=3, **style)
            self.lines_.append(line)


def _with_history(estimator: Any) -> Any:
    """Return the fitted classifier that has the history."""
    model = last_step(estimator)
    if isinstance(model, type) or not hasattr(model, "fit"):
        raise TypeError(f"estimators must be fitted classifiers of dropmargin, got {model!r}.")
    check_is_fitted(model)
    model = getattr(model, "best_estimator_", model)
    if not hasattr(model, "history_"):
        raise TypeError(f"{type(model).__name__} has no history_. Give fitted classifiers of dropmargin.")
    return model


def _split(history: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the histories of outputs that were solved one by one: each begins with iteration 1."""
    starts = [index for index, entry in enumerate(history) if entry.iteration == 1]
    return [history[begin:end] for begin, end in zip(starts, [*starts[1:], len(history)], strict=True)]


def _minima(models: Sequence[Any]) -> list[Array]:
    """Return the minimum of each output of each model, from all models of the same problem."""
    reached, bounds, problems = [], [], []
    for model in models:
        parts = _split(model.history_)
        # The final objective is exact; those of the history may be smoothed.
        ends = [model.objective_] if len(parts) == 1 else [part[-1].objective for part in parts]
        gaps = np.array([part[-1].gap for part in parts])
        reached.append(np.array(ends, dtype=float))
        bounds.append(np.where(np.isfinite(gaps), reached[-1] - gaps, -np.inf))
        problems.append((type(model), len(parts), _problem_key(model)))
    minima = []
    for problem in problems:
        same = [index for index, other in enumerate(problems) if other == problem]
        lowest = np.min([reached[index] for index in same], axis=0)
        bound = np.max([bounds[index] for index in same], axis=0)
        minima.append(np.where(np.isfinite(bound), np.minimum(bound, lowest), lowest))
    return minima


def _problem_key(model: Any) -> str:
    parameters = {name: value for name, value in model.get_params().items() if name not in _SOLVER_PARAMETERS}
    return repr((sorted(parameters.items()), model.classes_.tolist(), model.coef_.shape))
