"""The picture of error against noise: one line per loss, each noise level at its best ``C``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dropmargin.estimators.validation import check_choice
from dropmargin.model_selection import NoisePath
from dropmargin.plotting.naming import named_estimators
from dropmargin.plotting.panels import check_axes
from dropmargin.plotting.score_grid import NO_NOISE, Kind, ScoreGrid
from dropmargin.plotting.scores import (
    SHARES,
    SHOWS,
    SPREADS,
    common_metric,
    draw_spread,
    shown,
    shown_name,
    shows_error,
)
from dropmargin.plotting.style import LEGEND, LINE, by_height, import_pyplot, in_percent, line_style, tidy
from dropmargin.typing import Array

_RING: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 13,
    "markerfacecolor": "none",
    "markeredgewidth": 1.6,
}


class NoisePathDisplay:
    """Error against the noise level, each level at its best ``C``: Figure 2 of the paper.

    Make one with `from_estimators` or `from_paths`. No noise is level 0. Noises of several kinds (dropout, Gaussian,
    ...) have a panel each, as their levels have nothing in common; a noise without a level, such as Poisson, is a
    dotted line across. What an estimator chose has a ring around it.

    Hollow marks are points that a search stopped early, because they could not win: their scores are those of rough
    solutions, which may be far worse than the true ones, above all with many classes. To compare all levels, fit with
    ``prune=False``.

    Parameters
    ----------
    grids : mapping of str to ScoreGrid
        A name for the scores of each grid.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The first panel.
    axes_ : list of matplotlib Axes
        All panels, one per kind of noise that has levels.
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        Panel by panel, in the order of ``grids``: levels, then what has no level.
    spreads_ : list of matplotlib artists
        The band or the bars of each line; ``None`` where there are none.
    rough_ : list of matplotlib Line2D
        The hollow marks of each line; ``None`` where there are none.
    chosen_ : list of matplotlib Line2D
        The rings.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutLogisticRegressionCV, DropoutSVCCV, NoisePathDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> Cs = [0.1, 1.0]
    >>> models = {"Dropout-SVM": DropoutSVCCV(Cs=Cs), "Dropout-Logistic": DropoutLogisticRegressionCV(Cs=Cs)}
    >>> models = {name: model.fit(scale(X), y) for name, model in models.items()}
    >>> display = NoisePathDisplay.from_estimators(models)
    """

    ax_: Any
    axes_: list[Any]
    figure_: Any
    lines_: list[Any]
    spreads_: list[Any]
    rough_: list[Any]
    chosen_: list[Any]

    def __init__(self, grids: Mapping[str, ScoreGrid]) -> None:
        self.grids = grids

    @classmethod
    def from_estimators(
        cls, estimators: Any, *, show: str = "auto", spread: str = "band", ax: Any = None
    ) -> NoisePathDisplay:
        """Draw what cross-validation found.

        Parameters
        ----------
        estimators : mapping of str to estimator, sequence of estimators, or estimator
            Fitted `DropoutSVCCV`, `DropoutLogisticRegressionCV` or `NoisyLinearClassifierCV`, or pipelines that end in
            one. Estimators without names are named after their class.
        show, spread, ax
            As for `plot`.

        Returns
        -------
        NoisePathDisplay
        """
        named = named_estimators(estimators, alone=True)
        grids = {name: ScoreGrid.of_estimator(estimator) for name, estimator in named.items()}
        return cls(grids).plot(ax, show=show, spread=spread)

    @classmethod
    def from_paths(cls, paths: Any, *, scoring: Any = None, show: str = "auto", ax: Any = None) -> NoisePathDisplay:
        """Draw the scores along paths; the best ``C`` is that of the best score, which flatters a little.

        Parameters
        ----------
        paths : mapping of str to NoisePath, or NoisePath
            What `noise_path` returned.
        scoring : str, callable or None, default=None
            What the scores are, as it was given to `noise_path`; ``None`` means accuracy.
        show, ax
            As for `plot`.

        Returns
        -------
        NoisePathDisplay
        """
        if isinstance(paths, NoisePath):
            paths = {"path": paths}
        if not isinstance(paths, Mapping) or not paths:
            raise ValueError(f"paths must be a dict of names and results of noise_path, or one result; got {paths!r}.")
        return cls({name: ScoreGrid.of_path(path, scoring) for name, path in paths.items()}).plot(ax, show=show)

    def plot(self, ax: Any = None, *, show: str = "auto", spread: str = "band") -> NoisePathDisplay:
        """Draw the lines.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of Axes, default=None
            Where to draw, one for each kind of noise; ``None`` for a new figure.
        show : {"auto", "error", "score"}, default="auto"
            ``"error"`` is one minus the score; ``"auto"`` is that for accuracy, and the score for other metrics.
        spread : {"band", "bars", "none"}, default="band"
            How to show one standard error over the folds.

        Returns
        -------
        self
        """
        grids = _check_grids(self.grids)
        check_choice("show", show, SHOWS)
        check_choice("spread", spread, SPREADS)
        plt = import_pyplot()
        panels = _panels(grids)
        own_figure = ax is None
        if own_figure:
            size = (6.4 if len(panels) < 3 else 2.5 * len(panels), 4.4)
            _, ax = plt.subplots(1, len(panels), sharey=True, figsize=size, layout="constrained")
        self.axes_ = check_axes(ax, len(panels), "one for each kind of noise: " + ", ".join(panels))
        self.ax_, self.figure_ = self.axes_[0], self.axes_[0].figure
        self.lines_, self.spreads_, self.rough_, self.chosen_ = [], [], [], []
        metrics = [grid.metric for grid in grids.values()]
        metric, error = common_metric(metrics), shows_error(show, metrics)
        for panel, (kind_name, label) in zip(self.axes_, panels.items(), strict=True):
            for index, (name, grid) in enumerate(grids.items()):
                self._draw(panel, grid, name, kind_name, line_style(index), error, spread)
            panel.set_xlabel(label)
            if kind_name == NO_NOISE:
                panel.set_xticks([])
            if metric in SHARES:
                in_percent(panel.yaxis)
            tidy(panel)
        self.ax_.set_ylabel(_score_label(grids, metric, error))
        self._name_lines(outside=own_figure and len(panels) > 1)
        return self

    def _draw(
        self, ax: Any, grid: ScoreGrid, name: str, panel: str, style: dict[str, Any], error: bool, spread: str
    ) -> None:
        """Draw one grid in the panel of one kind of noise."""
        rows, columns, errors = np.arange(len(grid.noises)), grid.best_columns(), grid.standard_error
        heights, colour = shown(grid.mean[rows, columns], error), style["color"]
        for kind in grid.kinds():
            own = kind.indices
            if kind.name in (panel, NO_NOISE):
                (line,) = ax.plot(kind.levels, heights[own], label=name, zorder=3, **LINE, **style)
                deviations = None if errors is None else errors[own, columns[own]]
                self.spreads_.append(draw_spread(ax, kind.levels, heights[own], deviations, spread, colour))
                solved = np.full(len(own), True) if grid.refined is None else grid.refined[own, columns[own]]
                self.rough_.append(_hollow(ax, kind.levels[~solved], heights[own][~solved], style))
            elif kind.label is None:
                label = f"{name}, {kind.name}"
                line = ax.axhline(heights[own[0]], label=label, color=colour, linestyle=":", linewidth=1.8, zorder=2)
                self.spreads_.append(None)
                self.rough_.append(None)
            else:
                continue  # it has a panel of its own
            self.lines_.append(line)
            self._mark(ax, grid, kind, colour, error)

    def _mark(self, ax: Any, grid: ScoreGrid, kind: Kind, colour: str, error: bool) -> None:
        """Put a ring around the chosen point, if it is of this kind."""
        if grid.chosen is None or grid.chosen[0] not in kind.indices:
            return
        level = kind.levels[list(kind.indices).index(grid.chosen[0])]
        height = float(shown(grid.mean[grid.chosen], error))
        if np.isnan(level):  # a line across has no place along the axis: near its right end
            (ring,) = ax.plot(0.97, height, color=colour, zorder=4, transform=ax.get_yaxis_transform(), **_RING)
        else:
            (ring,) = ax.plot(level, height, color=colour, zorder=4, **_RING)
        self.chosen_.append(ring)

    def _name_lines(self, outside: bool) -> None:
        """Name each line once and say what the rings are; inside a panel, from top to bottom as the lines lie there."""
        from matplotlib.lines import Line2D

        lines = self.lines_ if outside else by_height(self.lines_)
        named: dict[str, Any] = {}
        for line in lines:
            named.setdefault(line.get_label(), line)
        handles = list(named.values())
        if self.chosen_:
            handles.append(Line2D([], [], color="0.3", label="chosen", **(_RING | {"markersize": 10})))
        if any(marks is not None for marks in self.rough_):
            hollow = _RING | {"markersize": LINE["markersize"], "markeredgewidth": 1.0}
            handles.append(Line2D([], [], color="0.3", label="hollow: stopped early", **hollow))
        if outside:
            n_columns = len(handles) if len(handles) <= 3 else -(-len(handles) // 2)
            self.figure_.legend(handles=handles, loc="outside lower center", ncols=n_columns, **LEGEND)
        else:
            self.ax_.legend(handles=handles, loc="best", **LEGEND)


def _hollow(ax: Any, levels: Array, heights: Array, style: dict[str, Any]) -> Any:
    """Draw hollow marks over the full ones of a line; ``None`` if there are none to draw."""
    if not len(levels):
        return None
    look = style | {"linestyle": "none", "markerfacecolor": "white", "markersize": LINE["markersize"]}
    (marks,) = ax.plot(levels, heights, zorder=3.5, **look)
    return marks


def _check_grids(grids: Any) -> Mapping[str, ScoreGrid]:
    valid = isinstance(grids, Mapping) and all(isinstance(grid, ScoreGrid) for grid in grids.values())
    if not valid or not grids:
        raise ValueError(f"grids must be a dict of names and score grids, got {grids!r}. Use from_estimators.")
    return grids


def _panels(grids: Mapping[str, ScoreGrid]) -> dict[str, str]:
    """Return the kinds of noise that have levels, with the label of these; one for all if none has."""
    panels: dict[str, str] = {}
    for grid in grids.values():
        for kind in grid.kinds():
            if kind.label is not None and len(kind.label) > len(panels.get(kind.name, "")):  # "mean ..." is longer
                panels[kind.name] = kind.label
    return panels or {NO_NOISE: ""}


def _score_label(grids: Mapping[str, ScoreGrid], metric: str, error: bool) -> str:
    name = shown_name(metric, error)
    if all(len(grid.scores) > 1 for grid in grids.values()):
        name = f"cross-validated {name}"
    return f"{name} at the best C" if any(len(grid.Cs) > 1 for grid in grids.values()) else name
