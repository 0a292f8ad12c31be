"""Fit an estimator to rows in partitions, in files or on a cluster.

`fit_partitions` is the fit of a plain model. `PartitionRows` and `Fit` are its parts: the rows after all checks,
and what the estimator contributes. The search over noise and ``C`` (`model_selection.partitions`) uses them, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dropmargin.data import Partitions, Rows
from dropmargin.data.missing_values import FeatureStatistics
from dropmargin.data.partitioned import (
    ClassPartitions,
    LabelEncoding,
    NumberPartitions,
    encode_rows,
    feature_statistics,
    find_used_features,
    mean_square,
)
from dropmargin.estimators import missing, validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.inspection import DataSummary, check_rows, inspect
from dropmargin.estimators.regression import MarginalisedRegressor, first_intercept
from dropmargin.solvers import Iteration, Monitor, Problem, Result, solve
from dropmargin.typing import Array

E = TypeVar("E", bound=MarginalisedModel)


class Fit:
    """What an estimator contributes to a fit, wherever the rows are: the problem, the start and the fitted attributes.

    Parameters
    ----------
    estimator : MarginalisedModel
        Its parameters are checked.
    """

    def __init__(self, estimator: MarginalisedModel) -> None:
        self.estimator = estimator
        self.problem: Problem = estimator._problem()
        self.is_regression = isinstance(estimator, MarginalisedRegressor)
        if estimator.missing == "conditional":
            raise ValueError(
                "missing='conditional' needs all rows in memory, got rows in files or on a cluster: set "
                "missing='rescale', or fit to an array."
            )
        self.uses_statistics: bool = estimator.missing == "rescale"

    def set_features(self, n_features: int, names: Sequence[str] | None) -> None:
        """Set number and names of the features."""
        self.estimator._set_feature_names(n_features, names)

    def encode_classes(self, classes: Array, totals: Array) -> tuple[Array, Array, Array]:
        """Return which classes take part, the index of each, and its weight factor; ``totals`` are their weights."""
        own = self.estimator
        if isinstance(own, MarginalisedRegressor):
            return totals > 0.0, classes, np.ones(len(classes))
        return validation.encode_classes(classes, totals, own.class_weight, type(own).__name__)

    def start(self, classes: Array | None, n_features: int) -> Array | None:
        """Return the coefficients of an earlier fit to start from, if there are any (``warm_start``)."""
        return self.estimator._warm_coefficients(classes, n_features)

    def set_classes(self, encoded: EncodedRows) -> None:
        """Set the classes and what prediction needs to know of the features."""
        self.estimator._set_classes(encoded.classes)
        self.estimator._set_statistics(encoded.statistics)

    def store(self, result: Result, encoded: EncodedRows, dtype: Any) -> None:
        """Set the fitted attributes; warn if the solver has not converged."""
        self.estimator._store(result, encoded.classes, dtype, encoded.statistics)


class WeightedRows(NamedTuple):
    """Checked rows with other sample weights, and the sum of these for each class."""

    rows: Partitions[Rows]
    totals: Array


class EncodedRows(NamedTuple):
    """The classes, the rows with the index of their class, and the statistics of the features, if they are needed.

    A regression has no classes, and rows with their targets.
    """

    classes: Array | None
    rows: ClassPartitions
    statistics: FeatureStatistics | None


@dataclass(frozen=True)
class PartitionRows:
    """Training rows in partitions, after all checks.

    Parameters
    ----------
    rows : Partitions of Rows
    summary : DataSummary
    feature_names : sequence of str or None
    """

    rows: Partitions[Rows]
    summary: DataSummary
    feature_names: Sequence[str] | None

    @property
    def classes(self) -> Array:
        """All labels, sorted."""
        assert self.summary.whole.classes is not None
        return self.summary.whole.classes

    @property
    def n_bytes(self) -> int:
        """The size of all rows in double precision; a stored entry of sparse rows has an index."""
        whole = self.summary.whole
        return whole.n_stored * (8 if whole.is_dense else 12)

    def problem(self, problem: Problem) -> Problem:
        """Return the problem with a noise that does not corrupt missing entries; an error if it cannot be used."""
        noise = problem.noise
        if noise is not None:
            noise = noise.resolve(self.summary.whole.n_features, self.feature_names)
        self.summary.check_range(noise, self.feature_names)
        if self.summary.whole.has_missing:
            noise = missing.exclude_entries_from_noise(self.summary.has_implicit, noise)
        return replace(problem, noise=noise)

    @contextmanager
    def encoded(self, fit: Fit, weighted: WeightedRows | None = None) -> Iterator[EncodedRows]:
        """Yield the rows as a solver needs them, or ``weighted``: the same rows with other sample weights."""
        whole, classes = self.summary.whole, self.classes
        rows, totals = (self.rows, whole.totals) if weighted is None else weighted
        assert totals is not None
        present, index, factors = fit.encode_classes(classes, totals)
        encoding = self._encoding(index, factors)
        with rows.map_partitions(encode_rows, encoding) as encoded:
            used = find_used_features(encoded, whole.n_stored, whole.n_features, whole.is_dense)
            statistics = feature_statistics(encoded, whole.has_missing) if fit.uses_statistics else None
        with rows.map_partitions(encode_rows, replace(encoding, used=used)) as encoded:
            used_features = None if used is None else (used, whole.n_features)
            shape = whole.n_rows, whole.n_features if used is None else len(used)
            weights = (totals * factors)[present]
            given = encoded, shape, weights, whole.is_dense, used_features, whole.has_missing
            outputs: ClassPartitions = NumberPartitions(*given) if fit.is_regression else ClassPartitions(*given)
            if isinstance(outputs, NumberPartitions):
                outputs.first_intercept = first_intercept(fit.problem.loss, classes[present], weights)
            if statistics is None:
                statistics = FeatureStatistics(outputs.feature_means, None)
            yield EncodedRows(None if fit.is_regression else classes[present], outputs, statistics)

    def mean_square(self) -> float:
        """Return the weighted mean of the squared norm of a row; dense rows are centred."""
        n_classes = len(self.classes)
        with self.rows.map_partitions(encode_rows, self._encoding(np.arange(n_classes), np.ones(n_classes))) as rows:
            return mean_square(rows, self.summary.whole.is_dense)

    def _encoding(self, index: Array, factors: Array) -> LabelEncoding:
        whole = self.summary.whole
        return LabelEncoding(
            self.classes, index, factors, whole.n_features, whole.is_dense, self.summary.dtype, whole.has_missing
        )


@contextmanager
def checked_rows(
    fit: Fit, data: Partitions[Rows], names: Sequence[str] | None, feature_names: Sequence[str] | None
) -> Iterator[PartitionRows]:
    """Yield the rows after the first pass, which checks all partitions; ``names`` are those of errors."""
    if names is None:
        names = [f"partition {i}" for i in range(data.n_partitions)]
    summary = inspect(data, names, fit.uses_statistics, fit.is_regression)
    fit.set_features(summary.whole.n_features, feature_names)
    with data.map_partitions(check_rows) as checked:
        yield PartitionRows(checked, summary, feature_names)


def fit_partitions(
    estimator: E,
    data: Partitions[Rows],
    names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    monitor: Monitor | None = None,
) -> E:
    """Fit an estimator to rows in partitions.

    Parameters, checks, objective, solvers and fitted attributes are those of `fit`. All classes are solved together.

    Parameters
    ----------
    estimator : MarginalisedModel
    data : Partitions of Rows
        They are not closed. A partition may be empty, and may lack some classes.
    names : sequence of str, default=None
        Names of the partitions in errors; ``partition 0``, ``partition 1``, ... by default.
    feature_names : sequence of str, default=None
    monitor : callable, default=None
        Called with each `solvers.Iteration`, in addition to the monitor of ``verbose``.

    Returns
    -------
    estimator : MarginalisedModel
        The fitted estimator. If the fit fails or is interrupted, its attributes are those before the call.
    """
    with validation.unchanged_on_failure(estimator):
        fit = Fit(estimator)
        problem = fit.problem
        if monitor is not None:
            problem = replace(problem, monitor=partial(_both, problem.monitor, monitor))
        with checked_rows(fit, data, names, feature_names) as rows:
            problem = rows.problem(problem)
            with rows.encoded(fit) as encoded:
                start = fit.start(encoded.classes, rows.summary.whole.n_features)
                result = solve(problem, encoded.rows, start)
        fit.store(result, encoded, rows.summary.dtype)
    return estimator


def _both(first: Monitor, second: Monitor, entry: Iteration) -> None:
    first(entry)
    second(entry)
