"""Cross-validation over the grid: a rough walk on every fold, and the full tolerance for the points that may win.

A rough solution, solved to a low tolerance or interpolated between two such, has nearly the score of the exact one. How
nearly is measured: the leaders are solved exactly first, and every other point whose rough score is behind the best by
less than twice the largest change seen so far is solved, too, until none is left. What is chosen is always exact.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn import config_context, get_config
from sklearn.exceptions import ConvergenceWarning

from dropmargin.data import linear_scores
from dropmargin.errors import ParameterError
from dropmargin.estimators.base import CheckedRows, MarginalisedClassifier
from dropmargin.model_selection.grid import Grid, Point
from dropmargin.model_selection.walk import Solution, Walker
from dropmargin.progress import Progress
from dropmargin.solvers import Problem
from dropmargin.threads import in_threads
from dropmargin.typing import Array

#: The tolerance of the first walk.
ROUGH_TOL = 3e-3
#: Finalists are re-solved to this share of the tolerance, so that scores do not depend on the warm start.
FINAL_SHARE = 1e-1
# As many points are solved to the full tolerance at first: one in so many, and at least a few.
_LEADERS, _FEWEST_LEADERS = 32, 3
# A rough score may be wrong by this many times the largest error seen so far.
_SLACK = 2.0
# Mean scores that differ by less are equal.
_EQUAL = 1e-12

RULES = ("best", "one-se")


@dataclass(frozen=True)
class Fold:
    """The rows to train on and those to score, as the caller gave them, and what the scorer takes beside them.

    ``test`` are the rows to score after all checks; there are none if they have not been checked.
    """

    rows: CheckedRows
    test_rows: Any
    test_labels: Any
    score_params: dict[str, Any]
    test: CheckedRows | None = None


@dataclass(frozen=True)
class Search:
    """What is the same for all folds.

    Parameters
    ----------
    template : MarginalisedClassifier
        Unfitted, with every parameter but noise and ``C``, and with the feature names of the data.
    problem : Problem
        As the template describes it.
    grid : Grid
    scorer : callable
        ``scorer(estimator, X, y, **score_params)``; or `accuracy`, which needs checked rows without missing entries.
    tol : float
        The tolerance of the finalists.
    rough_tol : float
        That of the first walk; the same if there is to be no early stop.
    rule : {"best", "one-se"}
    store_coefs : bool
        Whether all coefficients are kept.
    n_threads : int
    n_rows : int
        In all folds together.
    """

    template: MarginalisedClassifier
    problem: Problem
    grid: Grid
    scorer: Callable[..., Any]
    tol: float
    rough_tol: float
    rule: str
    store_coefs: bool
    n_threads: int
    n_rows: int

    def run(self, folds: list[Callable[[], Fold]], verbose: int) -> Outcome:
        """Return the scores of all points on all folds, each of which is loaded when it is needed."""
        outcome = Outcome.empty(self.grid, len(folds), self.rough_tol <= self.tol)
        if self.scorer is accuracy:
            outcome.error = 1.0 / self.n_rows  # one row more or less is no difference
        stop = threading.Event()
        n_points = len(folds) * self.grid.shape[0] * self.grid.shape[1]
        label = f"{type(self.template).__name__} path"
        with Progress(n_points, label, verbose=verbose) as progress:
            jobs = [partial(self._walk_fold, load, index, outcome, progress, stop) for index, load in enumerate(folds)]
            in_threads(_configured(jobs), self.n_threads, stop)
        while points := outcome.to_refine(self.rule):
            before = outcome.mean.copy()
            with Progress(len(points) * len(folds), f"{label}, finalists", verbose=verbose) as progress:
                jobs = [
                    partial(self._refine_fold, points, load, index, outcome, progress, stop)
                    for index, load in enumerate(folds)
                ]
                in_threads(_configured(jobs), self.n_threads, stop)
            outcome.note_refined(points, before)
        return outcome

    def _walk_fold(
        self, load: Callable[[], Fold], index: int, outcome: Outcome, progress: Progress, stop: threading.Event
    ) -> None:
        fold = load()
        walker, shell = self.prepare(fold)
        visit = partial(self._visit, shell, fold, index, outcome, progress, stop)
        walker.walk(self.rough_tol, visit, rough=self.rough_tol > self.tol)

    def _refine_fold(
        self,
        points: list[Point],
        load: Callable[[], Fold],
        index: int,
        outcome: Outcome,
        progress: Progress,
        stop: threading.Event,
    ) -> None:
        fold = load()
        walker, shell = self.prepare(fold)
        visit = partial(self._visit, shell, fold, index, outcome, progress, stop)
        walker.refine(points, self.tol, partial(outcome.start, index), visit)

    def prepare(self, fold: Fold, n_threads: int = 1) -> tuple[Walker, MarginalisedClassifier]:
        """Return the walker of a fold, on so many threads, and a classifier to put its coefficients in."""
        template, rows = self.template, fold.rows
        classes, encoded = template._encode(rows)
        shell = copy(template)
        shell.classes_ = classes
        shell._set_statistics(template._statistics(rows.X, encoded, rows.has_missing))
        return Walker(self.grid, self.problem, rows, encoded, n_threads), shell

    def _visit(
        self,
        shell: MarginalisedClassifier,
        fold: Fold,
        index: int,
        outcome: Outcome,
        progress: Progress,
        stop: threading.Event,
        point: Point,
        solution: Solution,
    ) -> float:
        if stop.is_set():
            raise KeyboardInterrupt
        put_coefficients(shell, self.grid, point, solution, fold.rows.X.dtype)
        score = score_once(self.scorer, shell, fold)
        outcome.note(index, point, solution, score, self.store_coefs)
        progress.advance()
        return score


def _configured(jobs: Iterable[Callable[[], None]]) -> list[Callable[[], None]]:
    """Return jobs that run under the scikit-learn configuration of this thread: scorers look at it, threads lose it."""
    config = get_config()

    def run(job: Callable[[], None]) -> None:
        with config_context(**config):
            job()

    return [partial(run, job) for job in jobs]


def put_coefficients(shell: MarginalisedClassifier, grid: Grid, point: Point, solution: Solution, dtype: Any) -> None:
    """Make a classifier that of a grid point."""
    shell.noise, shell.C = grid.noises[point[0]], float(grid.Cs[point[1]])
    shell.coef_ = np.ascontiguousarray(solution.coef[:-1].T.astype(dtype))
    shell.intercept_ = solution.coef[-1].astype(dtype)


def score_once(scorer: Callable[..., Any], estimator: Any, fold: Fold) -> float:
    """Return the score of a fitted classifier on the test rows of a fold."""
    if scorer is accuracy:
        return accuracy(estimator, fold)
    score = scorer(estimator, fold.test_rows, fold.test_labels, **fold.score_params)
    score = score.item() if np.ndim(score) == 0 and hasattr(score, "item") else score  # arrays of no dimension
    if not isinstance(score, Real):
        raise ValueError(f"scoring must give one number, got {score!r}. Choose a single metric.")
    return float(score)


def accuracy(estimator: MarginalisedClassifier, fold: Fold) -> float:
    """Return the share of right labels, by weight.

    It is what scikit-learn's accuracy is, for rows that have been checked: to check them again at every point would
    take longer than to solve it.
    """
    assert fold.test is not None
    scores = linear_scores(fold.test.X, estimator.coef_, estimator.intercept_)
    right = estimator.classes_[estimator._winners_of(scores)] == fold.test.y
    return float(np.average(right, weights=fold.score_params.get("sample_weight")))


def try_scorer(search: Search, fold: Fold) -> None:
    """Score a made-up model, so that a scorer that cannot work says so before the work has begun."""
    _, shell = search.prepare(fold)
    n_features, n_classes = fold.rows.X.shape[1], len(shell.classes_)
    n_pairs = n_classes * (n_classes - 1) // 2
    n_columns = 1 if n_classes == 2 else n_pairs if shell.multi_class == "ovo" else n_classes
    coef = 1e-3 * np.cos(np.arange((n_features + 1) * n_columns)).reshape(n_features + 1, n_columns)
    put_coefficients(shell, search.grid, (0, 0), Solution(coef, [], 0.0, 0, True), fold.rows.X.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a made-up model may never predict some class
        try:
            score_once(search.scorer, shell, fold)
        except AttributeError as error:
            raise ParameterError(
                f"scoring={search.scorer!r} cannot be computed for {type(shell).__name__}: {error} Choose a scoring "
                "that needs no probabilities, such as 'accuracy' or 'roc_auc', or the logistic loss with "
                "multi_class='ovr', which has them.",
                "scoring",
                "it needs probabilities, which this loss does not give (or does not give for pairs of classes); choose "
                "another score, such as accuracy, or the logistic loss",
            ) from error


def warn_unconverged(converged: Array, stacklevel: int) -> None:
    """Warn once of all fits that did not converge; ``stacklevel`` as in `warnings.warn`, here."""
    failed = int(np.count_nonzero(~converged))
    if failed:
        warnings.warn(
            f"{failed} of {converged.size} fits did not converge. "
            "Raise max_iter or tol, scale the columns of X to similar ranges, or leave out the largest Cs.",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )


@dataclass(eq=False)
class Outcome:
    """Scores, iterations and coefficients of a search; ``refined`` are the points solved to the full tolerance."""

    grid: Grid
    scores: Array
    n_iter: Array
    converged: Array
    refined: Array
    coefs: Array | None = None
    lock: Any = None
    error: float = 0.0

    @classmethod
    def empty(cls, grid: Grid, n_folds: int, refined: bool) -> Outcome:
        shape = (n_folds, *grid.shape)
        return cls(
            grid,
            np.full(shape, np.nan),
            np.zeros(shape, dtype=int),
            np.ones(shape, dtype=bool),
            np.full(grid.shape, refined),
            lock=threading.Lock(),
        )

    def note(self, fold: int, point: Point, solution: Solution, score: float, store: bool) -> None:
        """Keep the result of a point on a fold."""
        where = (fold, *point)
        self.scores[where], self.n_iter[where] = score, self.n_iter[where] + solution.n_iter
        self.converged[where] = solution.converged
        if store:
            with self.lock:
                if self.coefs is None:
                    self.coefs = np.zeros((*self.scores.shape, *solution.coef.T.shape))
            self.coefs[where] = solution.coef.T

    def start(self, fold: int, point: Point) -> Array | None:
        """Return the coefficients of a point on a fold, if they were kept."""
        return None if self.coefs is None else self.coefs[(fold, *point)].T

    @property
    def mean(self) -> Array:
        """The mean score of each point."""
        return self.scores.mean(axis=0)

    def best(self) -> Point:
        """Return the point of the highest mean score; of equals, the smallest ``C``, then the first noise."""
        mean = self.mean
        rows, columns = np.nonzero(mean >= np.nanmax(mean) - _EQUAL)
        first = np.lexsort((rows, columns))[0]
        return int(rows[first]), int(columns[first])

    def chosen(self, rule: str) -> Point:
        """Return the best point; or that of the smallest ``C`` within one standard error of it, the best of these."""
        mean, best = self.mean, self.best()
        if rule == "best":
            return best
        rows, columns = np.nonzero(mean >= self._enough(rule) - _EQUAL)
        first = np.lexsort((rows, -mean[rows, columns], columns))[0]
        return int(rows[first]), int(columns[first])

    def _enough(self, rule: str) -> float:
        """Return the mean score that a point must have to be chosen for its ``C``."""
        own = self.scores[(slice(None), *self.best())]
        error = np.std(own, ddof=1) / np.sqrt(len(own)) if rule == "one-se" and len(own) > 1 else 0.0
        return float(own.mean() - error)

    def to_refine(self, rule: str) -> list[Point]:
        """Return the points that are still to be solved to the full tolerance."""
        mean = self.mean
        if self.refined.all() or not np.isfinite(mean).any():
            return []
        chosen = self.chosen(rule)
        if not self.refined.any():
            count = max(_FEWEST_LEADERS, mean.size // _LEADERS)
            leaders = np.unravel_index(np.argsort(-mean, axis=None, kind="stable")[:count], mean.shape)
            return _sorted({*_points(leaders), chosen})
        slack = _SLACK * self.error + _EQUAL
        may_win = mean >= mean[self.best()] - slack
        # A lower C is chosen for less than the best score, by the rule of one standard error.
        may_win[:, : chosen[1] + 1] |= mean[:, : chosen[1] + 1] >= self._enough(rule) - slack
        points = _points(np.nonzero(may_win & ~self.refined))
        return _sorted(points if self.refined[chosen] else {*points, chosen})

    def note_refined(self, points: list[Point], before: Array) -> None:
        """Note that points were solved to the full tolerance, and by how much that changed their scores."""
        where = tuple(np.array(points).T)
        self.refined[where] = True
        with np.errstate(invalid="ignore"):  # scores may be infinite
            changes = np.abs(self.mean[where] - before[where])
        self.error = max(self.error, float(np.max(changes, where=np.isfinite(changes), initial=0.0)))


def _points(indices: tuple[Array, ...]) -> set[Point]:
    return {(int(row), int(column)) for row, column in zip(*indices, strict=True)}


def _sorted(points: Iterable[Point]) -> list[Point]:
    return sorted(points, key=lambda point: point[::-1])
