"""Cross-validation over the grid: an approximate path on every fold, then a precise solution of the finalists.

An approximate solution, solved to a large tolerance or interpolated between two such, has nearly the score of the
precise one. The error is estimated: the points of the highest scores are solved precisely first. Then every point whose
approximate score is below the best by less than twice the error is solved precisely, until there is no such point. The
error is the largest rise of a score so far, or the largest change for the same noise. (A score that falls says nothing
about lower ones: under noise that leaves few coefficients, approximate scores may be far too high.) The chosen point is
always solved precisely.
"""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
from sklearn import config_context, get_config
from sklearn.exceptions import ConvergenceWarning

from dropmargin.data import linear_scores
from dropmargin.data.missing_values import FeatureStatistics
from dropmargin.estimators.base import CheckedRows, MarginalisedModel
from dropmargin.estimators.classification import MarginalisedClassifier
from dropmargin.model_selection.grid import Grid, Point
from dropmargin.model_selection.path_solver import PathSolver, ScorePoint, Solution
from dropmargin.noise import Noise, as_noise
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


class Fold(ABC):
    """Training rows and test rows of a search, as a context. They are in memory (`ArrayFold`) or in partitions."""

    #: The type of the rows.
    dtype: Any

    @abstractmethod
    def prepare(self, search: Search, n_threads: int) -> tuple[PathSolver, MarginalisedModel]:
        """Return the solver of the training rows, and a classifier for `Search.score`."""

    @abstractmethod
    def score(self, scorer: Callable[..., Any], classifier: MarginalisedModel) -> Any:
        """Return the score of a fitted classifier on the test rows; the scorer is as in `Search`."""

    def __enter__(self) -> Fold:
        return self

    def __exit__(self, *_: object) -> None:  # noqa: B027 (rows in memory need no release)
        """Release what the fold alone uses."""


@dataclass(frozen=True)
class ArrayFold(Fold):
    """Rows in memory: training rows, test rows as the caller passed them, and further arguments of the scorer.

    ``test`` are the test rows after all checks, ``None`` if they have not been checked.
    """

    rows: CheckedRows
    test_rows: Any
    test_labels: Any
    score_params: dict[str, Any]
    test: CheckedRows | None = None

    @property
    def dtype(self) -> Any:
        return self.rows.X.dtype

    def prepare(self, search: Search, n_threads: int) -> tuple[PathSolver, MarginalisedModel]:
        template, rows = search.template, self.rows
        classes, encoded = template._encode(rows)
        classifier = copy(template)
        classifier._set_classes(classes)
        if search.scorer is not accuracy:
            # Scores of complete rows depend on the means at most; the Gaussian of the features takes longer.
            is_checked = isinstance(search.scorer, CheckedScorer) and self.test is not None and not rows.has_missing
            by_means = is_checked and template.missing == "conditional"
            means = FeatureStatistics(encoded.feature_means, None)
            classifier._set_statistics(means if by_means else template._statistics(encoded))
        return PathSolver(search.grid, search.problem, rows, encoded, n_threads), classifier

    def score(self, scorer: Callable[..., Any], classifier: MarginalisedModel) -> Any:
        if scorer is accuracy:
            return accuracy(classifier, self)
        if isinstance(scorer, CheckedScorer) and self.test is not None and not self.test.has_missing:
            return scorer.of_checked_rows(classifier, self)
        return scorer(classifier, self.test_rows, self.test_labels, **self.score_params)

    def noise(self, noise: Noise, model: MarginalisedModel) -> Noise:
        """Return a noise on the test rows for the feature names and the training means of a model."""
        return model._at_training_means(noise.resolve(self.rows.X.shape[1], self.rows.feature_names))


@dataclass(frozen=True)
class SearchData:
    """The rows of a search after all checks, in memory or elsewhere.

    Parameters
    ----------
    n_rows, n_features : int
    classes : ndarray or None
        ``None`` in a regression.
    has_missing : bool
        Whether any entry is missing.
    folds : sequence of callables
        Each loads a fold.
    refit : callable
        ``refit(classifier, start)`` fits a classifier to all rows, from coefficients or ``None``, and returns it.
    """

    n_rows: int
    n_features: int
    classes: Array | None
    has_missing: bool
    folds: Sequence[Callable[[], Fold]]
    refit: Callable[[MarginalisedModel, Array | None], MarginalisedModel]


@dataclass(frozen=True)
class Search:
    """A search over the grid: everything that is the same for all folds.

    Parameters
    ----------
    template : MarginalisedModel
        Unfitted, with all parameters except noise and ``C``, and with the feature names of the data.
    problem : Problem
        The problem of the template.
    grid : Grid
    scorer : callable
        ``scorer(estimator, X, y, **score_params)``; or `accuracy`, which needs checked rows without missing entries.
    tol : float
        The tolerance of the finalists.
    rough_tol : float
        The tolerance of the approximate path; ``tol`` to solve all points precisely.
    rule : {"best", "one-se"}
    store_coefs : bool
        Whether to store the coefficients of all points.
    n_threads : int
    n_rows : int
        The number of rows of the data.
    """

    template: MarginalisedModel
    problem: Problem
    grid: Grid
    scorer: Callable[..., Any]
    tol: float
    rough_tol: float
    rule: str
    store_coefs: bool
    n_threads: int
    n_rows: int

    def run(self, folds: Sequence[Callable[[], Fold]], verbose: int) -> Outcome:
        """Return the scores of all points on all folds; ``folds`` are functions that load a fold."""
        outcome = Outcome.empty(self.grid, len(folds), self.rough_tol <= self.tol)
        if self.scorer is accuracy:
            outcome.errors[:] = 1.0 / self.n_rows  # the smallest possible error: one row
        n_points = len(folds) * outcome.refined.size
        self._on_folds(self._solve, outcome, folds, n_points, "", verbose)
        while points := outcome.to_refine(self.rule):
            before = outcome.mean.copy()
            task = partial(self._refine, points, outcome)
            self._on_folds(task, outcome, folds, len(points) * len(folds), ", finalists", verbose)
            outcome.mark_refined(points, before)
        return outcome

    def _solve(self, index: int, solver: PathSolver, score_point: ScorePoint) -> None:
        approximate = self.rough_tol > self.tol
        solver.solve_all(self.rough_tol, score_point, approximate, skips_low=approximate and self.rule == "best")

    def _refine(
        self, points: list[Point], outcome: Outcome, index: int, solver: PathSolver, score_point: ScorePoint
    ) -> None:
        solver.refine(points, self.tol, partial(outcome.start, index), score_point)

    def _on_folds(
        self,
        task: Callable[[int, PathSolver, ScorePoint], None],
        outcome: Outcome,
        folds: Sequence[Callable[[], Fold]],
        n_points: int,
        label: str,
        verbose: int,
    ) -> None:
        """Call a task with the number and the solver of each fold, in threads, and store the points that it scores."""
        stop = threading.Event()

        def on_fold(index: int, load: Callable[[], Fold], progress: Progress) -> None:
            with load() as fold:
                solver, classifier = fold.prepare(self, 1)

                def score_point(point: Point, solution: Solution) -> float:
                    if stop.is_set():
                        raise KeyboardInterrupt
                    score = self.score(classifier, fold, point, solution)
                    outcome.store(index, point, solution, score, self.store_coefs)
                    progress.advance()
                    return score

                task(index, solver, score_point)

        with Progress(n_points, f"{type(self.template).__name__} path{label}", verbose=verbose) as progress:
            jobs = [partial(on_fold, index, load, progress) for index, load in enumerate(folds)]
            in_threads(_configured(jobs), self.n_threads, stop)

    def score(self, estimator: MarginalisedModel, fold: Fold, point: Point, solution: Solution) -> float:
        """Set parameters, coefficients and intercept of an estimator to those of a point, and return its score."""
        estimator.noise, estimator.C = self.grid.noises[point[0]], float(self.grid.Cs[point[1]])
        estimator._set_coefficients(solution.coef, fold.dtype)
        score = fold.score(self.scorer, estimator)
        score = score.item() if np.ndim(score) == 0 and hasattr(score, "item") else score  # arrays of no dimension
        if not isinstance(score, Real):
            raise ValueError(f"scoring must return one number, got {score!r}. Choose a single metric.")
        return float(score)


def _configured(jobs: Iterable[Callable[[], None]]) -> list[Callable[[], None]]:
    """Return jobs that run with the scikit-learn configuration of this thread, which new threads do not inherit."""
    config = get_config()

    def run(job: Callable[[], None]) -> None:
        with config_context(**config):
            job()

    return [partial(run, job) for job in jobs]


def accuracy(estimator: MarginalisedClassifier, fold: ArrayFold) -> float:
    """Return the weighted share of correct labels.

    It equals the accuracy of scikit-learn, for rows that have been checked: to check them at every point takes longer
    than to solve it.
    """
    assert fold.test is not None
    scores = linear_scores(fold.test.X, estimator.coef_, estimator.intercept_)
    correct = estimator.classes_[estimator._winners_of(scores)] == fold.test.y
    return float(np.average(correct, weights=fold.score_params.get("sample_weight")))


class CheckedScorer:
    """A scorer that can also score the rows of a fold without checking them again."""

    #: Whether the score is a weighted mean over the rows.
    is_mean = False

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the score of rows."""
        raise NotImplementedError

    def of_checked_rows(self, estimator: Any, fold: ArrayFold) -> float:
        """Return the score of a fold without missing entries."""
        raise NotImplementedError


class ExpectedAccuracy(CheckedScorer):
    """The score under ``target_noise``: the expected accuracy if the features are corrupted by that noise."""

    is_mean = True

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    def __call__(self, estimator: MarginalisedClassifier, X: Any, y: Any, sample_weight: Any = None) -> float:
        return estimator.expected_accuracy(X, y, self.noise, sample_weight)

    def of_checked_rows(self, estimator: MarginalisedClassifier, fold: ArrayFold) -> float:
        assert fold.test is not None
        noise = fold.noise(self.noise, estimator)
        return estimator._expected_accuracy(fold.test.X, fold.test.y, noise, fold.score_params.get("sample_weight"))


def target_scorer(target_noise: Any, scoring: Any, multi_class: str) -> ExpectedAccuracy | None:
    """Return the scorer of a parameter ``target_noise``; ``None`` if it is ``None``."""
    if target_noise is None:
        return None
    if scoring is not None:
        raise ValueError(
            f"scoring={scoring!r} scores complete rows, target_noise={target_noise!r} rows under noise by their "
            "expected accuracy: pass one of them."
        )
    if multi_class == "ovo":
        raise ValueError("target_noise needs multi_class='ovr', got multi_class='ovo'.")
    noise = as_noise(target_noise)
    assert noise is not None
    return ExpectedAccuracy(noise)


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


@dataclass(eq=False)
class Outcome:
    """Scores, iterations and coefficients of a search.

    ``refined`` are the points that are solved precisely, ``errors`` the errors of approximate scores, one per noise.
    """

    grid: Grid
    scores: Array
    n_iter: Array
    converged: Array
    refined: Array
    errors: Array
    coefs: Array | None = None
    lock: Any = None

    @classmethod
    def empty(cls, grid: Grid, n_folds: int, refined: bool) -> Outcome:
        shape = (n_folds, *grid.shape)
        return cls(
            grid,
            np.full(shape, np.nan),
            np.zeros(shape, dtype=int),
            np.ones(shape, dtype=bool),
            np.full(grid.shape, refined),
            np.zeros(grid.shape[0]),
            lock=threading.Lock(),
        )

    def store(self, fold: int, point: Point, solution: Solution, score: float, store_coef: bool) -> None:
        """Store the result of a point on a fold."""
        where = (fold, *point)
        self.scores[where], self.n_iter[where] = score, self.n_iter[where] + solution.n_iter
        self.converged[where] = solution.converged
        if store_coef:
            with self.lock:
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
        rows, columns = np.nonzero(mean >= self._threshold(rule) - _EQUAL)
        first = np.lexsort((rows, -mean[rows, columns], columns))[0]
        return int(rows[first]), int(columns[first])

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
            count = max(_MIN_LEADERS, mean.size // _LEADERS)
            leaders = np.unravel_index(np.argsort(-mean, axis=None, kind="stable")[:count], mean.shape)
            return _sorted({*_points(leaders), chosen})
        slack = _SLACK * self.errors[:, None] + _EQUAL
        is_candidate = mean >= mean[self.best()] - slack
        # The rule of one standard error may choose a point of lower C with a score below the best.
        is_candidate[:, : chosen[1] + 1] |= mean[:, : chosen[1] + 1] >= self._threshold(rule) - slack
        points = _points(np.nonzero(is_candidate & ~self.refined))
        return _sorted(points if self.refined[chosen] else {*points, chosen})

    def mark_refined(self, points: list[Point], before: Array) -> None:
        """Mark points as solved precisely, and update the error estimate by the change of their scores."""
        where = tuple(np.array(points).T)
        self.refined[where] = True
        with np.errstate(invalid="ignore"):  # scores may be infinite
            changes = self.mean[where] - before[where]
        changes = np.where(np.isfinite(changes), changes, 0.0)
        np.maximum.at(self.errors, where[0], np.abs(changes))
        np.maximum(self.errors, changes.max(), out=self.errors)


def _points(indices: tuple[Array, ...]) -> set[Point]:
    return {(int(row), int(column)) for row, column in zip(*indices, strict=True)}


def _sorted(points: Iterable[Point]) -> list[Point]:
    return sorted(points, key=lambda point: point[::-1])
