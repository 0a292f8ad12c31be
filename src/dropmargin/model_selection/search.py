"""Cross-validation over the grid: an approximate path on every fold, then a precise solution of the finalists.

An approximate solution, solved to a large tolerance or interpolated between two such, has nearly the score of the
precise one. The error is estimated: the points of the highest scores are solved precisely first. Then every point whose
approximate score is below the best by less than twice the error is solved precisely, until there is no such point. The
error is the largest rise of a score so far, or the largest change for the same noise. Interpolations between noises
have larger errors than solutions, so the rises of both are compared with points of the same kind alone, as soon as one
of it is solved precisely. (A score that falls says nothing about lower ones: under noise that leaves few coefficients,
approximate scores may be far too high.) The chosen point is always solved precisely.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn import config_context, get_config
from sklearn.base import is_regressor
from sklearn.exceptions import ConvergenceWarning

from dropmargin.data import TrainingData
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import n_outputs, set_classes, set_coefficients, training_data
from dropmargin.estimators.scorers import RowScorer
from dropmargin.model_selection.folds import Fold
from dropmargin.model_selection.grid import Grid, Point
from dropmargin.model_selection.path_solver import PathSolver, Solution
from dropmargin.progress import Progress
from dropmargin.solvers import Problem
from dropmargin.threads import in_threads
from dropmargin.typing import Array

#: The tolerance of the approximate path.
ROUGH_TOL = 3e-3
#: Finalists are solved to this share of the tolerance, so that scores do not depend on the warm start.
FINAL_SHARE = 1e-1
# The first finalists are one point in _LEADERS, and at least _MIN_LEADERS.
_LEADERS, _MIN_LEADERS = 32, 3
# An approximate score may have an error of this many times the largest error so far.
_SLACK = 2.0
# Mean scores that differ by less are considered equal.
_EQUAL = 1e-12

RULES = ("best", "one-se")


@dataclass(frozen=True)
class Search:
    """A search over the grid: everything that is the same for all folds.

    Parameters
    ----------
    model : MarginalisedModel
        Not fitted, without noise, with all other parameters except ``C``, and with the feature names.
    problem : Problem
        That of the model.
    grid : Grid
    scorer : callable
        ``scorer(estimator, X, y, **score_params)``, or a `RowScorer`.
    tol : float
        The tolerance of the finalists.
    rough_tol : float
        The tolerance of the approximate path; ``tol`` to solve all points precisely.
    n_rows : int
        The number of rows of the data.
    rule : {"best", "one-se"}
    store_coefs : bool
        Whether to store the coefficients of all points.
    n_threads : int
    """

    model: MarginalisedModel
    problem: Problem
    grid: Grid
    scorer: Callable[..., Any]
    tol: float
    rough_tol: float
    n_rows: int
    rule: str = "best"
    store_coefs: bool = True
    n_threads: int = 1

    def run(self, folds: Sequence[Callable[[], Fold]], verbose: int) -> Outcome:
        """Return the scores of all points on all folds; ``folds`` are functions that load a fold."""
        is_rough = self.rough_tol > self.tol
        outcome = Outcome(self.grid, len(folds), refined=not is_rough)
        if isinstance(self.scorer, RowScorer):
            outcome.errors[:] = self.scorer.smallest_change(self.n_rows)

        def solve(index: int, solver: PathSolver) -> None:
            solver.solve_all(self.rough_tol, is_rough, skips_low=is_rough and self.rule == "best")

        def refine(index: int, solver: PathSolver) -> None:
            solver.refine(points, self.tol, partial(outcome.start, index))

        self._on_folds(solve, outcome, folds, outcome.refined.size, "path", verbose)
        while points := outcome.to_refine(self.rule):
            before = outcome.mean
            self._on_folds(refine, outcome, folds, len(points), "path, finalists", verbose)
            outcome.mark_refined(points, before)
        return outcome

    def _on_folds(
        self,
        task: Callable[[int, PathSolver], None],
        outcome: Outcome,
        folds: Sequence[Callable[[], Fold]],
        n_points: int,
        label: str,
        verbose: int,
    ) -> None:
        """Call a task with the number and the solver of each fold, in threads, and store the points that it scores."""
        stop, config = threading.Event(), get_config()
        n_threads = max(1, self.n_threads // len(folds))

        def on_fold(index: int) -> None:
            with config_context(**config):  # that of scikit-learn, which new threads do not inherit
                fold = folds[index]()
                encoded, model = self.prepare(fold)

                def score(point: Point, solution: Solution) -> float:
                    if stop.is_set():
                        raise KeyboardInterrupt
                    found = self.score(model, fold, point, solution)
                    outcome.store(index, point, solution, found, self.store_coefs)
                    progress.advance()
                    return found

                task(index, PathSolver(self.grid, self.problem, fold.rows, encoded, n_threads, score))

        with Progress(n_points * len(folds), f"{type(self.model).__name__} {label}", verbose=verbose) as progress:
            in_threads([partial(on_fold, index) for index in range(len(folds))], self.n_threads, stop)

    def prepare(self, fold: Fold) -> tuple[TrainingData, MarginalisedModel]:
        """Return the training rows of a fold with the index of their class, and a model for `score`."""
        model, scorer = copy(self.model), self.scorer
        # Scores of complete rows depend on the means at most; the Gaussian of the features takes longer.
        data, statistics = training_data(model, fold.rows, not isinstance(scorer, RowScorer) or scorer.deletes)
        set_classes(model, data.classes, statistics)
        if isinstance(scorer, RowScorer) and scorer.deletes:
            fold.delete(scorer, model)
        return data, model

    def score(self, estimator: MarginalisedModel, fold: Fold, point: Point, solution: Solution) -> float:
        """Set parameters, coefficients and intercept of an estimator to those of a point, and return its score."""
        estimator.noise, estimator.C = self.grid.noises[point[0]], float(self.grid.Cs[point[1]])
        set_coefficients(estimator, solution.coef, fold.rows.dtype)
        score = fold.score(self.scorer, estimator)
        score = score.item() if np.ndim(score) == 0 and hasattr(score, "item") else score  # arrays of no dimension
        if not isinstance(score, Real):
            raise ValueError(f"scoring must return one number, got {score!r}. Choose a single metric.")
        return float(score)


def try_scorer(search: Search, fold: Fold) -> None:
    """Score a model with arbitrary coefficients, so that errors of the scorer are raised before the search."""
    _, model = search.prepare(fold)
    shape = fold.rows.n_features + 1, n_outputs(model, getattr(model, "classes_", None))
    coef = 1e-3 * np.cos(np.arange(shape[0] * shape[1])).reshape(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the model may not predict some class
        try:
            search.score(model, fold, (0, 0), Solution(coef))
        except (AttributeError, ValueError) as error:
            if is_regressor(model):
                remedy = "a score of regression, such as 'r2'"
            elif isinstance(error, AttributeError):
                remedy = "a score without probabilities, as 'accuracy', or the logistic loss with multi_class='ovr'"
            else:
                remedy = "a score of classification, such as 'accuracy' or 'f1_macro'"
            raise ValueError(
                f"scoring={search.scorer!r} cannot be computed for {type(model).__name__}: {error} Choose {remedy}."
            ) from error


def warn_unconverged(converged: Array, stacklevel: int) -> None:
    """Warn of the number of fits that did not converge; ``stacklevel`` is passed to `warnings.warn`."""
    failed = int(np.count_nonzero(~converged))
    if failed:
        warnings.warn(
            f"{failed} of {converged.size} fits did not converge. "
            "Increase max_iter or tol, scale the features of X to similar ranges, or remove the largest Cs.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )


class Outcome:
    """Scores, iterations, objectives and coefficients of a search; an interpolated point has the objective 0.

    ``refined`` are the points that are solved precisely, ``errors`` the errors of approximate scores, one per noise,
    and ``rises`` the largest rises of a score: of noises that were solved, and of those that were interpolated.
    """

    def __init__(self, grid: Grid, n_folds: int, refined: bool) -> None:
        shape = (n_folds, *grid.shape)
        self.scores, self.n_iter = np.full(shape, np.nan), np.zeros(shape, dtype=int)
        self.converged, self.refined = np.ones(shape, dtype=bool), np.full(grid.shape, refined)
        self.errors, self.objectives = np.zeros(grid.shape[0]), np.zeros(shape)
        self.rises, self._is_interpolated = np.full(2, np.nan), np.ones(grid.shape[0], dtype=int)
        for chain in grid.chains:
            self._is_interpolated[grid.knots(chain)] = 0
        self.coefs: Array | None = None
        self._lock = threading.Lock()

    def store(self, fold: int, point: Point, solution: Solution, score: float, store_coef: bool) -> None:
        """Store the result of a point on a fold."""
        where = (fold, *point)
        self.scores[where], self.n_iter[where] = score, self.n_iter[where] + solution.n_iter
        self.converged[where], self.objectives[where] = solution.converged, solution.objective.sum()
        if store_coef:
            with self._lock:
                if self.coefs is None:
                    self.coefs = np.zeros((*self.scores.shape, *solution.coef.T.shape))
            self.coefs[where] = solution.coef.T

    def start(self, fold: int, point: Point) -> Array | None:
        """Return the coefficients of a point on a fold, ``None`` if they were not stored."""
        return None if self.coefs is None else self.coefs[(fold, *point)].T

    @property
    def mean(self) -> Array:
        """The mean score of each point."""
        return self.scores.mean(axis=0)

    def best(self) -> Point:
        """Return the point of the highest mean score; among equal scores, the smallest ``C``, then the first noise."""
        mean = self.mean
        rows, columns = np.nonzero(mean >= np.nanmax(mean) - _EQUAL)
        first = np.lexsort((rows, columns))[0]
        return int(rows[first]), int(columns[first])

    def chosen(self, rule: str) -> Point:
        """Return the best point, or, by "one-se", the best of the smallest ``C`` within one standard error of it."""
        mean, best = self.mean, self.best()
        if rule == "best":
            return best
        column = int(np.argmax(np.any(mean >= self._threshold(rule) - _EQUAL, axis=0)))
        return int(np.argmax(mean[:, column] >= np.nanmax(mean[:, column]) - _EQUAL)), column

    def _threshold(self, rule: str) -> float:
        """Return the lowest mean score of a point that the rule may choose."""
        own = self.scores[(slice(None), *self.best())]
        error = np.std(own, ddof=1) / np.sqrt(len(own)) if rule == "one-se" and len(own) > 1 else 0.0
        return float(own.mean() - error)

    def to_refine(self, rule: str) -> list[Point]:
        """Return the points to solve precisely next; none if the search is finished."""
        mean = self.mean
        if self.refined.all() or not np.isfinite(mean).any():
            return []
        chosen = self.chosen(rule)
        if not self.refined.any():
            is_candidate = np.zeros(mean.shape, dtype=bool)
            count = max(_MIN_LEADERS, mean.size // _LEADERS)
            is_candidate.flat[np.argsort(-mean, axis=None, kind="stable")[:count]] = True
        else:
            rises = np.where(np.isnan(self.rises), np.nanmax(self.rises), self.rises)[self._is_interpolated]
            slack = _SLACK * np.maximum(self.errors, rises)[:, None] + _EQUAL
            is_candidate = mean >= mean[self.best()] - slack
            # The rule of one standard error may choose a point of lower C with a score below the best.
            is_candidate[:, : chosen[1] + 1] |= (mean >= self._threshold(rule) - slack)[:, : chosen[1] + 1]
        is_candidate[chosen] = True
        return [(int(row), int(column)) for column, row in np.argwhere((is_candidate & ~self.refined).T)]

    def mark_refined(self, points: list[Point], before: Array) -> None:
        """Mark points as solved precisely, and update the error estimate by the change of their scores."""
        where = tuple(np.array(points).T)
        self.refined[where] = True
        with np.errstate(invalid="ignore"):  # scores may be infinite
            changes = self.mean[where] - before[where]
        changes = np.where(np.isfinite(changes), changes, 0.0)
        np.maximum.at(self.errors, where[0], np.abs(changes))
        np.fmax.at(self.rises, self._is_interpolated[where[0]], np.maximum(changes, 0.0))
