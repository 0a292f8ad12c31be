"""The plot of error by noise level: one line per model, each level at its best ``C``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dropmargin.plotting.display import Display, ScoreAxis, check_mapping, named_estimators
from dropmargin.plotting.score_grid import NO_NOISE, NoiseKind, ScoreGrid
from dropmargin.plotting.style import LEGEND, LINE, by_height, line_style, plain_text, tidy
from dropmargin.typing import Array

_RING: dict[str, Any] = {"linestyle": "none", "marker": "o", "markerfacecolor": "none"}
_RING |= {"markersize": 13, "markeredgewidth": 1.6}


class NoisePathDisplay(Display):
    """Error by noise level, each level at its best ``C``: Figure 2 of the paper.

    Create one with `from_estimators`. No noise is level 0. Each kind of noise (dropout, Gaussian, ...)
    has a panel, as levels of different kinds cannot be compared; a noise without a level, such as Poisson, is a dotted
    horizontal line. A ring marks the noise that an estimator chose.

    Hollow markers are points that a search stopped early because they could not become the best. Their scores are those
    of inexact solutions and may be far worse than the exact ones, above all with many classes. Fit with ``prune=False``
    to compare all levels.

    Parameters
    ----------
    grids : mapping of str to ScoreGrid
        The scores of each grid by name.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The first panel.
    axes_ : list of matplotlib Axes
        All panels, one for each kind of noise that has levels.
    figure_ : matplotlib Figure
    lines_ : list of matplotlib Line2D
        Panel by panel, in the order of ``grids``: lines over levels, then horizontal lines.
    spreads_ : list of matplotlib artists
        The band of each line, or ``None``.
    inexact_ : list of matplotlib Line2D
        The hollow markers of each line, or ``None``.
    chosen_ : list of matplotlib Line2D
        The rings.

    See Also
    --------
    DeletionCurveDisplay : Scores by the share of features deleted.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutLogisticRegressionCV, DropoutSVCCV, NoisePathDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> models = [model(Cs=[0.1, 1.0]).fit(scale(X), y) for model in (DropoutSVCCV, DropoutLogisticRegressionCV)]
    >>> display = NoisePathDisplay.from_estimators(models)
    """

    def __init__(self, grids: Mapping[str, ScoreGrid]) -> None:
        self.grids = grids

    @classmethod
    def from_estimators(
        cls, estimators: Any, *, show: str = "auto", spread: str = "band", ax: Any = None
    ) -> NoisePathDisplay:
        """Plot the scores of cross-validation.

        Parameters
        ----------
        estimators : mapping of str to estimator, sequence of estimators, or estimator
            Fitted `DropoutSVCCV`, `DropoutLogisticRegressionCV` or `NoisyLinearClassifierCV`, or pipelines that end in
            one. Estimators without names are named after their class. Values of a mapping may also be results of
            `noise_path`: each level is at the ``C`` of its best score, so slightly optimistic.
        show : str, default="auto"
            As for `plot`.
        spread : str, default="band"
            As for `plot`.
        ax : matplotlib Axes, default=None
            As for `plot`.

        Returns
        -------
        NoisePathDisplay
        """
        named = named_estimators(estimators)
        grids = {name: ScoreGrid.of_estimator(estimator) for name, estimator in named.items()}
        return cls(grids).plot(ax, show=show, spread=spread)

    def plot(self, ax: Any = None, *, show: str = "auto", spread: str = "band") -> NoisePathDisplay:
        """Plot the lines.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of Axes, default=None
            Axes to plot on, one for each kind of noise; ``None`` for a new figure.
        show : {"auto", "error", "score"}, default="auto"
            ``"error"`` is one minus the score, or minus a score whose name begins with ``neg_``; ``"auto"`` is
            ``"error"`` for accuracy and for such scores, and ``"score"`` for others.
        spread : {"band", "none"}, default="band"
            How to show one standard error over the folds.

        Returns
        -------
        self : object
            The display, with its plot.
        """
        grids = check_mapping("grids", self.grids, ScoreGrid, "Use from_estimators.")
        axis = ScoreAxis.of([grid.metric for grid in grids.values()], show, spread)
        panels = panels_of(grids)
        size = (6.4 if len(panels) < 3 else 2.5 * len(panels), 4.4)
        self._set_axes(ax, panels, ncols=len(panels), sharey=True, figsize=size)
        self.inexact_: list[Any] = []
        for panel, (kind_name, label) in zip(self.axes_, panels.items(), strict=True):
            for index, (name, grid) in enumerate(grids.items()):
                self._draw(panel, grid, plain_text(name), kind_name, line_style(index), axis)
            panel.set_xlabel(label)
            if kind_name == NO_NOISE:
                panel.set_xticks([])
            tidy(panel, shares=(panel.yaxis,) if axis.in_percent else ())
        self.ax_.set_ylabel(_score_label(grids, axis))
        self._add_legend()
        return self

    def _draw(self, ax: Any, grid: ScoreGrid, name: str, panel: str, style: dict[str, Any], axis: ScoreAxis) -> None:
        """Draw one grid in the panel of one kind of noise."""
        rows, columns, errors = np.arange(len(grid.noises)), grid.best_columns(), grid.standard_error
        heights, colour = axis.values(grid.mean[rows, columns]), style["color"]
        for kind in grid.kinds():
            own = kind.indices
            if kind.name in (panel, NO_NOISE):
                (line,) = ax.plot(kind.levels, heights[own], label=name, zorder=3, **LINE, **style)
                deviations = None if errors is None else errors[own, columns[own]]
                self.spreads_.append(axis.draw_spread(ax, kind.levels, heights[own], deviations, colour))
                exact = np.full(len(own), True) if grid.refined is None else grid.refined[own, columns[own]]
                self.inexact_.append(_hollow_markers(ax, kind.levels[~exact], heights[own][~exact], style))
            elif kind.label is None:
                label = f"{name}, {kind.name}"
                line = ax.axhline(heights[own[0]], label=label, color=colour, linestyle=":", linewidth=1.8, zorder=2)
                self.spreads_.append(None)
                self.inexact_.append(None)
            else:
                continue  # it has its own panel
            self.lines_.append(line)
            self._mark_chosen(ax, grid, kind, colour, axis)

    def _mark_chosen(self, ax: Any, grid: ScoreGrid, kind: NoiseKind, colour: str, axis: ScoreAxis) -> None:
        """Draw a ring around the chosen point, if it is of this kind."""
        if grid.chosen is None or grid.chosen[0] not in kind.indices:
            return
        level = kind.levels[list(kind.indices).index(grid.chosen[0])]
        height = float(axis.values(grid.mean[grid.chosen]))
        if np.isnan(level):  # a horizontal line: the ring is near its right end
            (ring,) = ax.plot(0.97, height, color=colour, zorder=4, transform=ax.get_yaxis_transform(), **_RING)
        else:
            (ring,) = ax.plot(level, height, color=colour, zorder=4, **_RING)
        self.chosen_.append(ring)

    def _add_legend(self) -> None:
        """Add a legend with each name once, in the order of the lines' heights."""
        from matplotlib.lines import Line2D

        named: dict[str, Any] = {}
        for line in by_height(self.lines_):
            named.setdefault(line.get_label(), line)
        handles = list(named.values())
        if self.chosen_:
            handles.append(Line2D([], [], color="0.5", label="chosen", **(_RING | {"markersize": 10})))
        if any(markers is not None for markers in self.inexact_):
            hollow = _RING | {"markersize": LINE["markersize"], "markeredgewidth": 1.0}
            handles.append(Line2D([], [], color="0.5", label="hollow: stopped early", **hollow))
        self.ax_.legend(handles=handles, loc="best", **LEGEND)


def _hollow_markers(ax: Any, levels: Array, heights: Array, style: dict[str, Any]) -> Any:
    """Draw hollow markers over the full ones of a line; return ``None`` if there are none."""
    if not len(levels):
        return None
    hollow = style | {"linestyle": "none", "markerfacecolor": ax.get_facecolor(), "markersize": LINE["markersize"]}
    (markers,) = ax.plot(levels, heights, zorder=3.5, **hollow)
    return markers


def panels_of(grids: Mapping[str, ScoreGrid]) -> dict[str, str]:
    """Return the kinds of noise that have levels, with the labels of their axes; ``NO_NOISE`` if there is none."""
    panels: dict[str, str] = {}
    for grid in grids.values():
        for kind in grid.kinds():
            if kind.label is not None and len(kind.label) > len(panels.get(kind.name, "")):  # "mean ..." is longer
                panels[kind.name] = kind.label
    return panels or {NO_NOISE: ""}


def _score_label(grids: Mapping[str, ScoreGrid], axis: ScoreAxis) -> str:
    cross_validated = "cross-validated " * all(len(grid.scores) > 1 for grid in grids.values())
    return f"{cross_validated}{axis.label}" + " at the best C" * any(len(grid.Cs) > 1 for grid in grids.values())
