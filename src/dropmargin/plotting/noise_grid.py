"""The heat map of scores by noise and ``C``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.plotting.display import SHARES, Display
from dropmargin.plotting.score_grid import NoiseKind, ScoreGrid
from dropmargin.typing import Array

# Numbers in more columns or rows than these are too small to read; more ticks than these are not all labelled.
_MAX_COLUMNS, _MAX_ROWS = 14, 30
_MAX_LABELS = 7
# This share of the cells is below the colour scale: a few very low scores would leave one colour for all the others.
_BELOW_SCALE = 0.25
# Space to the right of the colour bar's label, in inches.
_MARGIN = 0.2
# Above this luminance black has more contrast than white (WCAG 2).
_LIGHT = 0.179


class NoiseGridDisplay(Display):
    """A heat map of the mean score by noise and ``C``, with a frame around the chosen point.

    Create one with `from_estimator`. Each kind of noise (dropout, Gaussian, ...) has a panel; no noise
    is level 0. The colour scale covers the better three quarters of the points; ``meshes_[0].set_clim`` changes it.

    Bold numbers are those of points that were solved to the full tolerance. The others belong to points that a search
    stopped early because they could not become the best: their scores are those of inexact solutions and may be far
    worse than the exact ones. Fit with ``prune=False`` to compare all points.

    Parameters
    ----------
    grid : ScoreGrid
        The scores.

    Attributes
    ----------
    ax_ : matplotlib Axes
        The first panel.
    axes_ : list of matplotlib Axes
        All panels, one per kind of noise.
    figure_ : matplotlib Figure
    meshes_ : list of matplotlib QuadMesh
        The cells of each panel, weakest noise first.
    texts_ : list of matplotlib Text
        The numbers in the cells, panel by panel; empty if ``values`` is False.
    chosen_ : list of matplotlib Rectangle
        The frames of the chosen point, one for each panel that has it.
    colorbar_ : matplotlib Colorbar

    See Also
    --------
    NoisePathDisplay : The best score for each noise.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from dropmargin import DropoutSVCCV, NoiseGridDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> display = NoiseGridDisplay.from_estimator(DropoutSVCCV(Cs=[0.01, 0.1, 1]).fit(scale(X), y))
    """

    meshes_: list[Any]
    texts_: list[Any]

    def __init__(self, grid: ScoreGrid) -> None:
        self.grid = grid

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, values: bool | None = None, cmap: Any = "viridis", ax: Any = None
    ) -> NoiseGridDisplay:
        """Plot the scores of cross-validation.

        Parameters
        ----------
        estimator : estimator
            A fitted `DropoutSVCCV`, `DropoutLogisticRegressionCV` or `NoisyLinearClassifierCV`, a pipeline that ends
            in one, or a result of `noise_path`, in which no point is chosen.
        values : bool or "auto", default="auto"
            As for `plot`.
        cmap : str or Colormap, default=None
            As for `plot`.
        ax : matplotlib Axes, default=None
            As for `plot`.

        Returns
        -------
        NoiseGridDisplay
        """
        return cls(ScoreGrid.of_estimator(estimator)).plot(ax, values=values, cmap=cmap)

    def plot(self, ax: Any = None, *, values: bool | None = None, cmap: Any = "viridis") -> NoiseGridDisplay:
        """Plot the heat map.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of Axes, default=None
            Axes to plot on, one for each kind of noise; ``None`` for a new figure.
        values : bool or None, default=None
            Whether to write the scores into the cells; ``None``: if there is room for them.
        cmap : str or matplotlib Colormap, default="viridis"
            The default and ``"cividis"`` are readable for the colour-blind and in grey.

        Returns
        -------
        self : object
            The display, with its plot.
        """
        if not isinstance(self.grid, ScoreGrid):
            raise ValueError(f"grid must be a ScoreGrid, got {self.grid!r}. Use from_estimator.")
        kinds = self.grid.kinds()
        heights = [len(kind.indices) for kind in kinds]
        size = (6.4, 1.5 + 0.27 * min(max(8, sum(heights) + len(heights)), 34))
        names = [kind.name for kind in kinds]
        self._set_axes(ax, names, nrows=len(kinds), sharex=True, figsize=size, height_ratios=heights)
        self.meshes_, self.texts_ = [], []
        if values is None:
            values = len(self.grid.Cs) <= _MAX_COLUMNS and sum(heights) <= _MAX_ROWS
        for panel, kind in zip(self.axes_, kinds, strict=True):
            self._draw(panel, kind, values, cmap)
        bold = self.texts_ and self._some_stopped_early
        self.axes_[-1].set_xlabel("C    (bold: solved to the full tolerance)" if bold else "C")
        if self.grid.chosen is not None:
            noise, C = self.grid.describe(self.grid.chosen[0]), self.grid.Cs[self.grid.chosen[1]]
            self.ax_.set_title(f"chosen: {noise}, C = {C:.2g}", fontsize="medium", loc="left")
        self._add_colorbar()
        return self

    def _draw(self, ax: Any, kind: NoiseKind, values: bool, cmap: Any) -> None:
        """Draw the cells of one kind of noise: ``C`` along a logarithmic axis, a row per level."""
        grid, n_rows = self.grid, len(kind.indices)
        mean, edges = self._shown_mean, _edges(grid.Cs)
        scale = {"cmap": cmap, "vmin": np.nanquantile(mean, _BELOW_SCALE), "vmax": np.nanmax(mean)}
        rows = np.arange(n_rows + 1) - 0.5
        mesh = ax.pcolormesh(edges, rows, mean[kind.indices], edgecolors="white", linewidth=0.5, **scale)
        self.meshes_.append(mesh)
        ax.set_xscale("log")
        ax.set_xlim(edges[0], edges[-1])
        ax.minorticks_off()
        ax.set_xticks(grid.Cs, _c_labels(grid.Cs))
        every = -(-n_rows // _MAX_ROWS)
        if kind.label is None:
            ax.set_yticks(np.arange(n_rows), [kind.name] * n_rows)
        else:
            ax.set_yticks(np.arange(n_rows)[::every], [f"{level:.3g}" for level in kind.levels[::every]])
            ax.set_ylabel(kind.label)
        ax.tick_params(axis="y", length=0)
        ax.spines[:].set_visible(False)
        if values:
            self._write(ax, kind, mesh)
        if grid.chosen is not None and grid.chosen[0] in kind.indices:
            self._frame(ax, list(kind.indices).index(grid.chosen[0]), grid.chosen[1], edges)

    def _write(self, ax: Any, kind: NoiseKind, mesh: Any) -> None:
        """Write the scores into the cells, in black or white, whichever has more contrast."""
        grid, mean = self.grid, self._shown_mean
        size, digits = 8.0 if len(grid.Cs) <= 8 else 6.5, _digits(mean)
        style = {"ha": "center", "va": "center", "fontsize": size}
        for row, index in enumerate(kind.indices):
            for column, C in enumerate(grid.Cs):
                value = mean[index, column]
                light = _luminance(mesh.cmap(mesh.norm(value))) > _LIGHT
                exact = self._some_stopped_early and grid.refined[index, column]  # type: ignore[index]
                look = style | {"fontweight": "bold" if exact else "normal", "color": "black" if light else "white"}
                self.texts_.append(ax.text(C, row, f"{value:.{digits}f}", **look))

    def _frame(self, ax: Any, row: int, column: int, edges: Array) -> None:
        """Draw a frame around the chosen cell; black around white is visible on every colour."""
        from matplotlib.patches import Rectangle
        from matplotlib.patheffects import Normal, withStroke

        look: dict[str, Any] = {"fill": False, "edgecolor": "white", "linewidth": 1.5, "zorder": 3, "clip_on": False}
        look["path_effects"] = [withStroke(linewidth=4.0, foreground="black"), Normal()]
        frame = Rectangle((edges[column], row - 0.5), edges[column + 1] - edges[column], 1.0, **look)
        self.chosen_.append(ax.add_patch(frame))

    def _add_colorbar(self) -> None:
        """Add a colour bar; without a layout engine, fit it with its label into the width of the given axes."""
        grid, figure = self.grid, self.figure_
        name, n_folds = grid.metric.replace("_", " "), len(grid.scores)
        label = f"mean {name} over {n_folds} folds" if n_folds > 1 else name
        start = min(panel.get_position().x0 for panel in self.axes_)
        end = max(panel.get_position().x1 for panel in self.axes_)
        self.colorbar_ = figure.colorbar(
            self.meshes_[0],
            ax=self.axes_ if len(self.axes_) > 1 else self.ax_,  # a list does not work with tight_layout
            label=f"{label}, %" if grid.metric in SHARES else label,
            aspect=30,
            extend="min" if self.meshes_[0].norm.vmin > np.nanmin(self._shown_mean) else "neither",
        )
        self.colorbar_.outline.set_visible(False)
        if figure.get_layout_engine() is not None:
            return
        # Ticks and label keep their size; the panels and the bar share the rest of the width. A margin is left for the
        # label of the axes to the right, which usually fills the gap between the two.
        bar = self.colorbar_.ax
        outer = bar.get_tightbbox().padded(_MARGIN * figure.dpi).transformed(figure.transSubfigure.inverted())
        text_width = outer.x1 - bar.get_position().x1
        shrink = max(0.2, (end - start - text_width) / (bar.get_position().x1 - start))
        for ax in (*self.axes_, bar):
            box = ax.get_position()
            ax.set_position([start + shrink * (box.x0 - start), box.y0, shrink * box.width, box.height])

    @property
    def _shown_mean(self) -> Array:
        """The mean scores as they are shown: shares in percent."""
        return (100.0 if self.grid.metric in SHARES else 1.0) * self.grid.mean

    @property
    def _some_stopped_early(self) -> bool:
        return self.grid.refined is not None and not self.grid.refined.all()


def _edges(Cs: Array) -> Array:
    """Return the edges of cells around values on a logarithmic axis."""
    if len(Cs) == 1:
        return Cs[0] * np.array([0.5, 2.0])
    logs = np.log(Cs)
    middles = 0.5 * (logs[1:] + logs[:-1])
    return np.exp(np.concatenate([[2.0 * logs[0] - middles[0]], middles, [2.0 * logs[-1] - middles[-1]]]))


def _c_labels(Cs: Array) -> list[str]:
    """Return labels of values of ``C``, at most a few; powers of ten, if there are."""
    every = -(-len(Cs) // _MAX_LABELS)
    exponents = np.log10(Cs)
    whole = np.flatnonzero(np.abs(exponents - np.round(exponents)) < 1e-9)
    first = int(whole[0]) % every if len(whole) else 0
    return [_c_label(C) if index % every == first else "" for index, C in enumerate(Cs)]


def _c_label(C: float) -> str:
    exponent = int(np.floor(np.log10(C) + 1e-9))
    if -3 <= exponent <= 3:
        return f"{C:.2g}" if C < 100.0 else f"{C:.0f}"
    factor = f"{C / 10.0**exponent:.2g}"
    return rf"$10^{{{exponent}}}$" if factor == "1" else rf"${factor}\cdot10^{{{exponent}}}$"


def _luminance(colour: Any) -> float:
    """Return the relative luminance of a colour, from 0 for black to 1 for white."""
    red, green, blue = np.asarray(colour[:3], dtype=float) ** 2.2
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)


def _digits(values: Array) -> int:
    """Return how many decimals show three digits of the largest value."""
    largest = np.nanmax(np.abs(values))
    return int(np.clip(2 - np.floor(np.log10(largest)), 0, 4)) if largest > 0.0 else 1
