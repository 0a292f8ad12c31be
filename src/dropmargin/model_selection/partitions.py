"""Fits to rows in partitions, in files or on a cluster: of a model, or of a search over noise and ``C``.

The folds of a search are those of rows in memory: targets and sample weights are gathered, and split as there. In the
training rows of a fold, the test rows have the weight zero, so that no rows are copied or moved. The path over the grid
and the choice are those of `model_selection.search`. A few rows are gathered, and searched in memory: a search over a
small table solves all values of ``C`` together there, and two paths to a solution within ``tol`` may differ in the
label of a row, which may decide between two points of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np

from dropmargin.data import Partitions, PerPartition, Rows, stack_rows
from dropmargin.estimators import validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import set_coefficients
from dropmargin.estimators.parameters import check_parameters
from dropmargin.estimators.partition_fit import PartitionRows, checked_rows, fit_partitions, partition_fit
from dropmargin.estimators.scorers import MeanScorer, scores_of_rows
from dropmargin.model_selection.base import Given, MarginalisedModelCV, plain_model, run_search, search_arrays
from dropmargin.model_selection.search import Fold
from dropmargin.progress import Progress
from dropmargin.solvers import Iteration, Problem
from dropmargin.typing import Array

E = TypeVar("E", MarginalisedModel, MarginalisedModelCV)

_PROGRESS_STEPS = 1000
# A search gathers rows of at most this many bytes.
_GATHERED_BYTES = 2**24


def check_estimator(estimator: Any) -> Problem:
    """Return the problem of a model, or of a search without noise, after checking all parameters."""
    if isinstance(estimator, MarginalisedModelCV):
        check_parameters(estimator)
        return partition_fit(plain_model(estimator)).problem
    if not isinstance(estimator, MarginalisedModel):
        raise TypeError(
            "estimator must be a DropoutSVC, DropoutLogisticRegression, MCFClassifier, NoisyLinearClassifier, "
            "DropoutRidge, DropoutSVR or NoisyLinearRegressor, or one of those with CV in their names, got "
            f"{type(estimator).__name__}."
        )
    return partition_fit(estimator).problem


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
        fit = partition_fit(plain_model(estimator))
        verbose = estimator.verbose if progress else 0
        with checked_rows(fit, data, names, feature_names) as rows:
            targets = _gather_targets(rows)
            own = Rows(None, targets.labels[targets.codes], targets.sample_weight)
            given = Given(np.zeros((len(own.y), 1)), own.y, own.sample_weight if targets.is_weighted else None)
            if rows.n_bytes <= _GATHERED_BYTES and (rows.feature_names is None or rows.summary.is_dense):
                search_arrays(estimator, given._replace(X=_gather_features(rows)), verbose)
                return estimator
            # Folds are solved one after the other: each uses all threads or workers.
            run_search(estimator, fit, rows, own, given, partial(PartitionFold, rows, targets), 1, verbose)
    return estimator


def _gather_features(rows: PartitionRows) -> Any:
    """Return the features of all rows, as a data frame if they have names."""
    X = stack_rows([part for part in rows.rows.gather(rows.rows.map(_features_of)) if part.shape[0]])
    if rows.feature_names is None:
        return X
    import pandas as pd

    return pd.DataFrame(X, columns=list(rows.feature_names))


@dataclass(frozen=True)
class Targets:
    """The labels, the index of that of each row, its sample weight, and the numbers of rows of the partitions.

    In a regression, the labels are numbers.
    """

    labels: Array
    codes: Array
    sample_weight: Array
    is_weighted: bool
    sizes: list[int]

    def totals(self, weights: Array) -> Array:
        """Return the sum of some weights for each class."""
        return np.bincount(self.codes, weights=weights, minlength=len(self.labels))

    def by_partition(self, values: Array) -> PerPartition:
        """Return the values of the rows of each partition."""
        return PerPartition(np.split(values, np.cumsum(self.sizes)[:-1]))


def _gather_targets(rows: PartitionRows) -> Targets:
    found = rows.rows.gather(rows.rows.map(_targets_of, rows.classes))
    weights = [np.ones(len(codes)) if own is None else own for codes, own in found]
    return Targets(
        rows.classes,
        np.concatenate([codes for codes, _ in found]),
        np.concatenate(weights),
        any(own is not None for _, own in found),
        [len(codes) for codes, _ in found],
    )


class PartitionFold(Fold):
    """Rows in partitions, with test rows of weight zero in the training rows.

    Parameters
    ----------
    rows : PartitionRows
        All rows.
    targets : Targets
    train, test : ndarray of int
        The training and the test rows.
    score_params : dict
        Whether it has sample weights, which the score then uses.
    """

    def __init__(
        self, rows: PartitionRows, targets: Targets, train: Array, test: Array, score_params: dict[str, Any]
    ) -> None:
        self.every, self.targets = rows.rows, targets
        self.train, self.test, self.is_weighted = train, np.sort(test), "sample_weight" in score_params
        weights = targets.sample_weight * np.bincount(train, minlength=len(targets.codes))
        training = self.every.map_partitions(_with_weights, targets.by_partition(weights))
        super().__init__(rows.with_weights(training, targets.totals(weights)))
        self.stack.callback(training.close)

    def __enter__(self) -> Self:
        edges = np.cumsum([0, *self.targets.sizes])
        places = np.searchsorted(self.test, edges)
        index = PerPartition(self.test[a:b] - edge for a, b, edge in zip(places[:-1], places[1:], edges, strict=False))
        # Mapped, so that the index stays with the partition and is sent once.
        self._test_index = self.every.map(_own_value, index)
        return self

    def score(self, scorer: Callable[..., Any], model: MarginalisedModel) -> Any:
        if isinstance(scorer, MeanScorer):
            first = PerPartition(np.cumsum([0, *self.targets.sizes[:-1]]).tolist())
            found, total = self.every.map_sum(_sum_scores, self._test_index, first, model, scorer, self.is_weighted)
            return found / total
        scores = np.concatenate(self.every.gather(self.every.map(_scores_of, self._test_index, model)))
        weights = {"sample_weight": self.targets.sample_weight[self.test]} if self.is_weighted else {}
        return scorer(_of_scores(model, scores), scores, self.targets.labels[self.targets.codes[self.test]], **weights)


def _of_scores(model: MarginalisedModel, scores: Array) -> MarginalisedModel:
    """Return a model whose features are the scores of a model: to compute any metric from these."""
    n_outputs = scores.shape[1]
    own = copy(model).set_params(missing="error")
    if getattr(model, "multi_class", None) == "ovo":
        own.set_params(multi_class="ovr")
    set_coefficients(own, np.eye(n_outputs + 1, n_outputs), np.float64)
    own.n_features_in_ = n_outputs
    own.__dict__.pop("feature_names_in_", None)
    return own


# Functions of one partition ---------------------------------------------------------------------------------------


def _features_of(rows: Rows) -> Any:
    return rows.X.copy()


def _targets_of(rows: Rows, classes: Array) -> tuple[Array, Array | None]:
    codes = np.searchsorted(classes, np.asarray(rows.y).astype(classes.dtype, copy=False))
    return codes.astype(np.int32), rows.sample_weight


def _with_weights(rows: Rows, weights: Array) -> Rows:
    return rows.with_targets(rows.y, weights)


def _own_value(rows: Rows, value: Any) -> Any:
    return value


def _sum_scores(
    rows: Rows, index: Array, first: int, model: MarginalisedModel, scorer: MeanScorer, is_weighted: bool
) -> tuple[float, float]:
    """Return the sum of the scores of the test rows, times their weights, and the sum of the weights.

    ``first`` is the place of the first row of the partition in the data.
    """
    if not len(index):
        return 0.0, 0.0
    weights = rows.sample_weight[index] if is_weighted and rows.sample_weight is not None else np.ones(len(index))
    X = scorer.prepare(model, rows.X[index], first + index)
    return float(weights @ scorer.of_rows(model, X, rows.y[index])), float(weights.sum())


def _scores_of(rows: Rows, index: Array, model: MarginalisedModel) -> Array:
    """Return the scores of the test rows, one column per class, or one column for two classes or a regression."""
    if not len(index):
        n_classes = len(getattr(model, "classes_", ()))
        return np.empty((0, n_classes if n_classes > 2 else 1))
    return scores_of_rows(model, rows.X[index])
