"""The heat map of scores by noise and ``C``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.plotting.display import SHARES, Display
from dropmargin.plotting.score_grid import NoiseKind, ScoreGrid

# Numbers in more columns or rows than these are too small to read; more columns than the last are not all labelled.
_MAX_COLUMNS, _MAX_ROWS, _MAX_LABELS = 14, 30, 7
# This share of the cells is below the colour scale: a few very low scores would leave one colour for all the others.
_BELOW_SCALE = 0.25


class NoiseGridDisplay(Display):
    """A heat map of the mean score by noise and ``C``, with a frame around the chosen point.

    Create one with `from_estimator`. Each kind of noise (dropout, Gaussian, ...) has a panel; no noise is level 0. The
    colour scale covers the better three quarters of the points. Unless a search was fitted with ``prune=False``, points
    that cannot be the best are solved approximately, and their scores may be too low.

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
    images_ : list of matplotlib AxesImage
        The cells of each panel, weakest noise first.
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

    def __init__(self, grid: ScoreGrid) -> None:
        self.grid = grid

    @classmethod
    def from_estimator(cls, estimator: Any, *, cmap: Any = "viridis", ax: Any = None) -> NoiseGridDisplay:
        """Plot the scores of cross-validation.

        Parameters
        ----------
        estimator : estimator
            A fitted search, such as `DropoutSVCCV`, a pipeline that ends in one, or a result of `noise_path`, in which
            no point is chosen.
        cmap : str or matplotlib Colormap, default="viridis"
            The default and ``"cividis"`` are readable for the colour-blind and in grey.
        ax : matplotlib Axes or sequence of Axes, default=None
            Axes to plot on, one for each kind of noise; ``None`` for a new figure.

        Returns
        -------
        NoiseGridDisplay
            The display, with its plot.
        """
        return cls(ScoreGrid.of_estimator(estimator)).plot(ax, cmap=cmap)

    def plot(self, ax: Any = None, *, cmap: Any = "viridis") -> NoiseGridDisplay:
        """Plot the heat map.

        Parameters
        ----------
        ax : matplotlib Axes or sequence of Axes, default=None
            As for `from_estimator`.
        cmap : str or matplotlib Colormap, default="viridis"
            As for `from_estimator`.

        Returns
        -------
        self : object
            The display, with its plot.
        """
        grid, kinds = self.grid, self.grid.kinds()
        heights = [len(kind.indices) for kind in kinds]
        size = 6.4, 1.5 + 0.27 * min(max(8, sum(heights) + len(heights)), 34)
        names = [kind.name for kind in kinds]
        self._set_axes(ax, names, nrows=len(kinds), sharex=True, figsize=size, height_ratios=heights)
        self.images_ = [self._draw(panel, kind, cmap) for panel, kind in zip(self.axes_, kinds, strict=True)]
        self.axes_[-1].set_xlabel("C")
        if grid.chosen is not None:
            self.ax_.set_title(f"chosen: {grid.describe_chosen()}", fontsize="medium", loc="left")
        name, n_folds = grid.metric.replace("_", " "), len(grid.scores)
        label = f"mean {name} over {n_folds} folds" if n_folds > 1 else name
        label += ", %" if grid.metric in SHARES else ""
        self.colorbar_ = self.figure_.colorbar(self.images_[0], ax=self.axes_, label=label, aspect=30, extend="min")
        return self

    def _draw(self, ax: Any, kind: NoiseKind, cmap: Any) -> Any:
        """Draw the cells of one kind of noise: a column per ``C``, a row per level."""
        grid, rows = self.grid, kind.indices
        mean = (100.0 if grid.metric in SHARES else 1.0) * grid.mean
        limits = {"vmin": np.nanquantile(mean, _BELOW_SCALE), "vmax": np.nanmax(mean)}
        image = ax.imshow(mean[rows], cmap=cmap, origin="lower", aspect="auto", **limits)
        columns = np.arange(0, len(grid.Cs), -(-len(grid.Cs) // _MAX_LABELS))
        ax.set_xticks(columns, [f"{float(f'{C:.2g}'):g}" for C in grid.Cs[columns]])
        labels = [kind.name] * len(rows) if kind.label is None else [f"{level:.3g}" for level in kind.levels]
        ax.set_yticks(np.arange(len(rows)), labels)
        ax.set_ylabel(kind.label or "")
        ax.spines[:].set_visible(False)
        if len(grid.Cs) <= _MAX_COLUMNS and grid.mean.shape[0] <= _MAX_ROWS:
            for (row, column), value in np.ndenumerate(mean[rows]):
                # White is readable on the darker half of the colours, black on the other.
                colour = "white" if image.norm(value) < 0.5 else "black"
                ax.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize=6.5, color=colour)
        if grid.chosen is not None and grid.chosen[0] in rows:
            from matplotlib.patches import Rectangle

            corner = grid.chosen[1] - 0.5, list(rows).index(grid.chosen[0]) - 0.5
            frame = Rectangle(corner, 1.0, 1.0, fill=False, edgecolor="red", linewidth=2.0, clip_on=False)
            self.chosen_.append(ax.add_patch(frame))
        return image
