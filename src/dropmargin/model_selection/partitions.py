"""Fits to rows in partitions, in files or on a cluster: of a model, or of a search over noise and ``C``.

The folds of a search are those of rows in memory: targets and sample weights are gathered, and split as there. In the
training rows of a fold, the test rows have the weight zero, so that no rows are copied or moved. The path over the grid
and the choice are those of `model_selection.search`. A few rows are gathered, and searched in memory: a search over a
small table solves all values of ``C`` together there, and two paths to a solution within ``tol`` may differ in the
label of a row, which may decide between two points of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from sklearn.base import clone, is_regressor

from dropmargin.data import Partitions, PerPartition, Rows, stack_rows
from dropmargin.estimators import validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.parameters import check_parameters
from dropmargin.estimators.partition_fit import Fit, PartitionRows, WeightedRows, checked_rows, fit_partitions
from dropmargin.model_selection.base import MarginalisedModelCV
from dropmargin.model_selection.grid import check_grid_of_scale
from dropmargin.model_selection.path_solver import PathSolver
from dropmargin.model_selection.search import CheckedScorer, Fold, Search, SearchData, accuracy
from dropmargin.progress import Progress
from dropmargin.solvers import Iteration, Problem, solve
from dropmargin.typing import Array

E = TypeVar("E", MarginalisedModel, MarginalisedModelCV)

_PROGRESS_STEPS = 1000
# A search gathers rows of at most this many bytes.
_GATHERED_BYTES = 2**24


def check_estimator(estimator: Any) -> Problem:
    """Return the problem of a model, or of a search without noise, after checking all parameters."""
    if isinstance(estimator, MarginalisedModelCV):
        check_parameters(estimator)
        return Fit(estimator._plain()).problem
    if not isinstance(estimator, MarginalisedModel):
        raise TypeError(
            "estimator must be a DropoutSVC, DropoutLogisticRegression, MCFClassifier, NoisyLinearClassifier, "
            "DropoutRidge, DropoutSVR or NoisyLinearRegressor, or one of those with CV in their names, got "
            f"{type(estimator).__name__}."
        )
    return Fit(estimator).problem


def fit_estimator(
    estimator: E,
    data: Partitions[Rows],
    names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    progress: bool = False,
) -> E:
    """Fit a model or a search to rows in partitions; the other parameters are those of `fit_partitions`.

    Parameters
    ----------
    progress : bool, default=False
        Whether to show a bar with the remaining time.
    """
    if isinstance(estimator, MarginalisedModelCV):
        return search_partitions(estimator, data, names, feature_names, progress)
    with _fit_progress(estimator, progress) as monitor:
        return fit_partitions(estimator, data, names, feature_names, monitor)


@contextmanager
def _fit_progress(estimator: MarginalisedModel, progress: bool) -> Iterator[Callable[[Iteration], None]]:
    """Yield a monitor that shows a bar: the digits of ``tol`` that are reached, by the relative gap."""
    with Progress(_PROGRESS_STEPS, f"fitting {type(estimator).__name__}", verbose=int(progress)) as bar:
        largest, shown = 0.0, 0

        def monitor(entry: Iteration) -> None:
            nonlocal largest, shown
            gap = entry.gap / max(abs(entry.objective), np.finfo(float).tiny)
            if not (np.isfinite(gap) and gap > 0.0):
                return
            largest = max(largest, gap)
            goal = max(estimator.tol, 1e-15)
            share = np.log(largest / gap) / np.log(largest / goal) if largest > goal else 1.0
            reached = int(_PROGRESS_STEPS * min(1.0, share))
            bar.advance(max(0, reached - shown))
            shown = max(shown, reached)

        yield monitor


def search_partitions(
    estimator: MarginalisedModelCV,
    data: Partitions[Rows],
    names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    progress: bool = False,
) -> MarginalisedModelCV:
    """Choose noise and ``C`` by cross-validation on rows in partitions, and fit to all rows with them."""
    with validation.unchanged_on_failure(estimator):
        check_parameters(estimator)
        template = estimator._plain()
        fit = Fit(template)
        with checked_rows(fit, data, names, feature_names) as rows:
            if rows.n_bytes <= _GATHERED_BYTES and (feature_names is None or rows.summary.whole.is_dense):
                return _search_in_memory(estimator, rows, estimator.verbose if progress else 0)
            # 1. The grid.
            n_features = rows.summary.whole.n_features
            targets = _gather_targets(rows)
            own = Rows(None, rows.classes[targets.codes], targets.sample_weight)
            scale = partial(_scale, rows, template._scale_of_C(own))
            grid = check_grid_of_scale(estimator.noises, estimator.Cs, n_features, feature_names, scale)
            for noise in grid.noises:
                rows.problem(Fit(template.set_params(noise=noise)).problem)
            problem = Fit(template.set_params(noise=None)).problem
            # 2. The folds.
            present, _, _ = fit.encode_classes(rows.classes, targets.totals(targets.sample_weight))
            classes = None if fit.is_regression else rows.classes[present]
            split_params, score_params = estimator._route(targets.sample_weight if targets.is_weighted else None, None)
            n_rows = len(targets.codes)
            splits = estimator._splits(np.zeros((n_rows, 1)), own.y, own, classes, split_params)
            folds: list[Callable[[], Fold]] = [
                partial(PartitionFold, rows, targets, train, np.sort(test), "sample_weight" in score_params)
                for train, test in splits
            ]
            # 3. The search. Folds are solved one after the other: each uses all threads or workers.
            searched = SearchData(
                n_rows, n_features, classes, rows.summary.whole.has_missing, folds, partial(_refit, rows)
            )
            return estimator._search(searched, template, problem, grid, 1, estimator.verbose if progress else 0)


def _scale(rows: PartitionRows, factor: float) -> float:
    return rows.mean_square() / factor


def _search_in_memory(estimator: MarginalisedModelCV, rows: PartitionRows, verbose: int) -> MarginalisedModelCV:
    """Fit a search to the gathered rows."""
    parts = [part for part in rows.rows.gather(rows.rows.map(_whole)) if len(part.y)]
    X: Any = stack_rows([part.X for part in parts])
    if rows.feature_names is not None:
        import pandas as pd

        X = pd.DataFrame(X, columns=list(rows.feature_names))
    weights = [np.ones(len(part.y)) if part.sample_weight is None else part.sample_weight for part in parts]
    is_weighted = any(part.sample_weight is not None for part in parts)
    own = clone(estimator).set_params(verbose=verbose)
    own.fit(X, np.concatenate([part.y for part in parts]), np.concatenate(weights) if is_weighted else None)
    params = estimator.get_params(deep=False)
    estimator.__dict__ = vars(own) | params
    return estimator


def _refit(rows: PartitionRows, best: MarginalisedModel, start: Array | None) -> MarginalisedModel:
    fit = Fit(best)
    with rows.encoded(fit) as encoded:
        result = solve(rows.problem(fit.problem), encoded.rows, start)
    fit.store(result, encoded, rows.summary.dtype)
    return best


@dataclass(frozen=True)
class Targets:
    """The index of the class of each row, its sample weight, and the numbers of rows of the partitions.

    In a regression, each number is a class.
    """

    codes: Array
    sample_weight: Array
    is_weighted: bool
    sizes: list[int]
    n_classes: int

    def totals(self, weights: Array) -> Array:
        """Return the sum of some weights for each class."""
        return np.bincount(self.codes, weights=weights, minlength=self.n_classes)

    def by_partition(self, values: Array) -> PerPartition:
        """Return the values of the rows of each partition."""
        return PerPartition(np.split(values, np.cumsum(self.sizes)[:-1]))


def _gather_targets(rows: PartitionRows) -> Targets:
    found = rows.rows.gather(rows.rows.map(_targets_of, rows.classes))
    weights = [np.ones(len(codes)) if own is None else own for codes, own in found]
    return Targets(
        np.concatenate([codes for codes, _ in found]),
        np.concatenate(weights),
        any(own is not None for _, own in found),
        [len(codes) for codes, _ in found],
        len(rows.classes),
    )


@dataclass
class PartitionFold(Fold):
    """Rows in partitions, with test rows of weight zero in the training rows.

    Parameters
    ----------
    rows : PartitionRows
    targets : Targets
    train, test : ndarray of int
        The training and the test rows; the latter sorted.
    weighted_scores : bool
        Whether the score uses the sample weights.
    """

    rows: PartitionRows
    targets: Targets
    train: Array
    test: Array
    weighted_scores: bool
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> PartitionFold:
        edges = np.cumsum([0, *self.targets.sizes])
        places = np.searchsorted(self.test, edges)
        index = PerPartition(self.test[a:b] - edge for a, b, edge in zip(places[:-1], places[1:], edges, strict=False))
        # Mapped, so that the index stays with the partition and is sent once.
        self._test_index = self.rows.rows.map(_own_value, index)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def dtype(self) -> Any:
        return self.rows.summary.dtype

    def prepare(self, search: Search, n_threads: int) -> tuple[PathSolver, MarginalisedModel]:
        targets = self.targets
        weights = targets.sample_weight * np.bincount(self.train, minlength=len(targets.codes))
        training = self.rows.rows.map_partitions(_with_weights, targets.by_partition(weights))
        self._stack.callback(training.close)
        weighted = WeightedRows(training, targets.totals(weights))
        classifier = copy(search.template)
        fit = Fit(classifier)
        encoded = self._stack.enter_context(self.rows.encoded(fit, weighted))
        fit.set_classes(encoded)
        solver = PathSolver(search.grid, search.problem, self.rows, encoded.rows, n_threads)
        self._stack.callback(solver.close)
        return solver, classifier

    def score(self, scorer: Callable[..., Any], classifier: MarginalisedModel) -> Any:
        model = copy(classifier)
        model.__dict__.pop("feature_names_in_", None)  # rows are arrays after the checks
        rows, targets = self.rows.rows, self.targets
        if scorer is accuracy:
            correct, total = rows.map_sum(_count_correct, self._test_index, model, self.weighted_scores)
            return correct / total
        if isinstance(scorer, CheckedScorer) and scorer.is_mean:
            expected, total = rows.map_sum(_sum_scores, self._test_index, model, scorer, self.weighted_scores)
            return expected / total
        scores = np.concatenate(rows.gather(rows.map(_scores_of, self._test_index, model)))
        weights = {"sample_weight": targets.sample_weight[self.test]} if self.weighted_scores else {}
        return scorer(_of_scores(model, scores), scores, self.rows.classes[targets.codes[self.test]], **weights)


def _of_scores(model: MarginalisedModel, scores: Array) -> MarginalisedModel:
    """Return a model whose features are the scores of a model: to compute any metric from these."""
    n_outputs = scores.shape[1]
    own = copy(model).set_params(missing="error")
    if getattr(model, "multi_class", None) == "ovo":
        own.set_params(multi_class="ovr")
    own._set_coefficients(np.eye(n_outputs + 1, n_outputs), np.float64)
    own.n_features_in_ = n_outputs
    return own


# Functions of one partition ---------------------------------------------------------------------------------------


def _whole(rows: Rows) -> Rows:
    return Rows(rows.X.copy(), rows.y, rows.sample_weight)


def _targets_of(rows: Rows, classes: Array) -> tuple[Array, Array | None]:
    codes = np.searchsorted(classes, np.asarray(rows.y).astype(classes.dtype, copy=False))
    return codes.astype(np.int32), rows.sample_weight


def _with_weights(rows: Rows, weights: Array) -> Rows:
    return rows.with_targets(rows.y, weights)


def _own_value(rows: Rows, value: Any) -> Any:
    return value


def _count_correct(rows: Rows, index: Array, model: MarginalisedModel, weighted: bool) -> tuple[float, float]:
    """Return the weight of the test rows with the right label, and that of all."""
    if not len(index):
        return 0.0, 0.0
    weights = _test_weights(rows, index, weighted)
    return float(weights @ (model.predict(rows.X[index]) == rows.y[index])), float(weights.sum())


def _sum_scores(
    rows: Rows, index: Array, model: MarginalisedModel, scorer: CheckedScorer, weighted: bool
) -> tuple[float, float]:
    """Return the sum of the scores of the test rows, times their weights, and the sum of the weights."""
    weights = _test_weights(rows, index, weighted)
    total = float(weights.sum())
    if not total:
        return 0.0, 0.0
    return total * scorer(model, rows.X[index], rows.y[index], weights), total


def _test_weights(rows: Rows, index: Array, weighted: bool) -> Array:
    return rows.sample_weight[index] if weighted and rows.sample_weight is not None else np.ones(len(index))


def _scores_of(rows: Rows, index: Array, model: MarginalisedModel) -> Array:
    """Return the scores of the test rows, one column per class, or one column for two classes or a regression."""
    if not len(index):
        n_classes = len(getattr(model, "classes_", ()))
        return np.empty((0, n_classes if n_classes > 2 else 1))
    respond = model.predict if is_regressor(model) else model.decision_function
    return respond(rows.X[index]).reshape(len(index), -1)
