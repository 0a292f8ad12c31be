"""Cross-validation on a cluster: a grid of noises and values of ``C``, by folds of rows within the partitions.

Folds are made by weights: rows that are held out have weight zero, which is as if they were not there. So no row is
copied or moved, and every fit, which is the work of the whole cluster, starts from its neighbour in the grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from dropmargin.dask.base import ClusterClassifier
from dropmargin.data import Partitions, PerPartition, Rows
from dropmargin.estimators import validation
from dropmargin.estimators.base import MarginalisedClassifier
from dropmargin.estimators.inspection import check_rows, inspect
from dropmargin.estimators.partition_fit import fit_partitions
from dropmargin.noise import as_noise
from dropmargin.progress import Progress
from dropmargin.typing import Array


@dataclass(frozen=True)
class GridSearch:
    """What `grid_search` has found.

    Attributes
    ----------
    noises : tuple of Noise or None
    Cs : ndarray of shape (n_Cs,)
        In ascending order.
    scores : ndarray of shape (n_folds, n_noises, n_Cs)
        The accuracy on the rows held out, by weight.
    best_index : tuple of int
        The place of the highest mean score in ``noises`` and ``Cs``; of equal ones, the smallest ``C``, then the first
        noise.
    best_estimator : the classifier with that noise and that ``C``, fitted to all rows.
    """

    noises: tuple[Any, ...]
    Cs: Array
    scores: Array
    best_index: tuple[int, int]
    best_estimator: ClusterClassifier

    @property
    def best_score(self) -> float:
        """The highest mean score."""
        return float(self.scores.mean(axis=0)[self.best_index])


def grid_search(
    estimator: ClusterClassifier,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    noises: Sequence[Any],
    Cs: Sequence[float],
    cv: int = 5,
    random_state: int = 0,
    progress: bool = True,
) -> GridSearch:
    """Choose noise and ``C`` by cross-validation on the cluster, and fit to all rows with them.

    Parameters
    ----------
    estimator : classifier of `dropmargin.dask`
        All other parameters; left as it is.
    X, y, sample_weight
        As in its ``fit``.
    noises : sequence of float, Noise or None
    Cs : sequence of float
    cv : int, default=5
        The number of folds; each row is in one of them at random.
    random_state : int, default=0
        Of the folds. They depend on the partitions, too, and on nothing else.
    progress : bool, default=True
        Whether to show a bar with the time left.
    """
    if not isinstance(estimator, ClusterClassifier):
        raise TypeError(f"estimator must be a classifier of dropmargin.dask, got {type(estimator).__name__}.")
    n_folds = validation.check_integer("cv", cv, 2)
    seed = validation.check_integer("random_state", random_state, 0)
    grid = (
        tuple(as_noise(noise) for noise in noises),
        np.sort([validation.check_number("Cs", C, 0.0, low_open=True) for C in Cs]),
    )
    if not all(len(values) for values in grid):
        raise ValueError("noises and Cs need at least one value each.")
    model = clone(estimator)
    with model.open(X, y, sample_weight) as (data, names, feature_names):
        inspect(data, names, model.missing == "rescale")
        scores = np.empty((n_folds, len(grid[0]), len(grid[1])))
        with (
            data.map_partitions(check_rows) as rows,
            Progress(scores.size, "grid search", verbose=int(progress)) as bar,
        ):
            for fold in range(n_folds):
                _score_fold(clone(model), rows, Fold(fold, n_folds, seed), grid, scores[fold], bar)
        mean = scores.mean(axis=0)
        column = int(np.argmax(mean.max(axis=0)))
        best = int(np.argmax(mean[:, column])), column
        model.set_params(noise=grid[0][best[0]], C=float(grid[1][best[1]]))
        fit_partitions(model, data, names, feature_names)
    return GridSearch(*grid, scores, best, model)


@dataclass(frozen=True)
class Fold:
    """One of ``n_folds`` folds of rows."""

    fold: int
    n_folds: int
    seed: int

    def held_out(self, rows: Rows, number: int) -> Array:
        """Return which rows of the partition of this number are held out."""
        rng = np.random.default_rng([self.seed, number])
        return rng.integers(self.n_folds, size=len(rows.y)) == self.fold


def _score_fold(
    model: ClusterClassifier,
    rows: Partitions[Rows],
    fold: Fold,
    grid: tuple[tuple[Any, ...], Array],
    scores: Array,
    bar: Progress,
) -> None:
    """Fill in the scores of all points of the grid on one fold."""
    numbers = PerPartition(range(rows.n_partitions))
    model.set_params(warm_start=True)
    with rows.map_partitions(_without_fold, numbers, fold) as training:
        for i, noise in enumerate(grid[0]):
            for j, C in enumerate(grid[1]):
                fit_partitions(model.set_params(noise=noise, C=float(C)), training)
                right, total = rows.map_sum(_count_right, numbers, fold, model.to_local())
                if total == 0.0:
                    raise ValueError(f"Fold {fold.fold} of cv={fold.n_folds} has no rows of any weight: lower cv.")
                scores[i, j] = right / total
                bar.advance()


def _without_fold(rows: Rows, number: int, fold: Fold) -> Rows:
    weights = np.ones(len(rows.y)) if rows.sample_weight is None else np.asarray(rows.sample_weight, dtype=np.float64)
    return rows.with_targets(rows.y, np.where(fold.held_out(rows, number), 0.0, weights))


def _count_right(rows: Rows, number: int, fold: Fold, model: MarginalisedClassifier) -> tuple[float, float]:
    which = np.flatnonzero(fold.held_out(rows, number))
    if not len(which):
        return 0.0, 0.0
    weights = np.ones(len(which)) if rows.sample_weight is None else np.asarray(rows.sample_weight)[which]
    return float(weights @ (model.predict(rows.X[which]) == rows.y[which])), float(weights.sum())
