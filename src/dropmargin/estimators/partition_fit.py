"""Fit an estimator to rows in partitions, in files or on a cluster.

`fit_partitions` is the fit of a plain model; the search over noise and ``C`` (`model_selection.partitions`) uses the
same checked rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

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
from dropmargin.estimators import validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import EncodedRows, Fit, TrainingRows, first_intercept
from dropmargin.estimators.inspection import DataSummary, check_rows, inspect
from dropmargin.noise import Noise
from dropmargin.solvers import Monitor
from dropmargin.typing import Array

E = TypeVar("E", bound=MarginalisedModel)


class PartitionRows(TrainingRows):
    """Training rows in partitions, after all checks."""

    def __init__(self, rows: Partitions[Rows], summary: DataSummary, feature_names: Sequence[str] | None) -> None:
        self.rows, self.summary, self.feature_names = rows, summary, feature_names
        self.n_features, self.has_missing = summary.whole.n_features, summary.whole.has_missing
        self.has_implicit, self.dtype = summary.has_implicit, summary.dtype

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

    def with_weights(self, rows: Partitions[Rows], totals: Array) -> PartitionRows:
        """Return the same rows with other sample weights; ``totals`` are the sums of these for each class."""
        whole = replace(self.summary.whole, totals=totals)
        return PartitionRows(rows, replace(self.summary, whole=whole), self.feature_names)

    def check_range(self, noise: Noise) -> None:
        self.summary.check_range(noise, self.feature_names)

    @contextmanager
    def encoded(self, fit: Fit) -> Iterator[EncodedRows]:
        whole, classes, totals = self.summary.whole, self.classes, self.summary.whole.totals
        assert totals is not None
        present, index, factors = fit.encode_classes(classes, totals)
        encoding = self._encoding(index, factors)
        with self.rows.map_partitions(encode_rows, encoding) as encoded:
            used = find_used_features(encoded, whole.n_stored, whole.n_features, whole.is_dense)
            statistics = feature_statistics(encoded, whole.has_missing) if fit.uses_deviations else None
        with self.rows.map_partitions(encode_rows, replace(encoding, used=used)) as encoded:
            used_features = None if used is None else (used, whole.n_features)
            shape = whole.n_rows, whole.n_features if used is None else len(used)
            weights = (totals * factors)[present]
            given = encoded, shape, weights, whole.is_dense, used_features, whole.has_missing
            outputs: ClassPartitions = NumberPartitions(*given) if fit.is_regression else ClassPartitions(*given)
            if isinstance(outputs, NumberPartitions):
                outputs.first_intercept = first_intercept(fit.problem.loss, classes[present], weights)
            if statistics is None:
                statistics = FeatureStatistics(outputs.feature_means, None)
            found = statistics
            yield EncodedRows(None if fit.is_regression else classes[present], outputs, lambda: found)

    def mean_square(self) -> float:
        n_classes = len(self.classes)
        with self.rows.map_partitions(encode_rows, self._encoding(np.arange(n_classes), np.ones(n_classes))) as rows:
            return mean_square(rows, self.summary.whole.is_dense)

    def _encoding(self, index: Array, factors: Array) -> LabelEncoding:
        whole = self.summary.whole
        return LabelEncoding(
            self.classes, index, factors, whole.n_features, whole.is_dense, self.summary.dtype, whole.has_missing
        )


def partition_fit(estimator: MarginalisedModel) -> Fit:
    """Return what an estimator contributes to a fit to rows in partitions, after checking its parameters."""
    if estimator.missing == "conditional":
        raise ValueError(
            "missing='conditional' needs all rows in memory, got rows in files or on a cluster: set "
            "missing='rescale', or fit to an array."
        )
    return Fit(estimator)


@contextmanager
def checked_rows(
    fit: Fit, data: Partitions[Rows], names: Sequence[str] | None, feature_names: Sequence[str] | None
) -> Iterator[PartitionRows]:
    """Yield the rows after the first pass, which checks all partitions; ``names`` are those of errors."""
    if names is None:
        names = [f"partition {i}" for i in range(data.n_partitions)]
    summary = inspect(data, names, fit.uses_deviations, fit.is_regression)
    summary.check_range(None, feature_names)
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
    """Fit an estimator to rows in partitions; if the fit fails or is interrupted, the estimator is unchanged.

    Partitions are not closed; they may be empty, and may lack some classes. ``names`` are those of the partitions in
    errors. ``monitor`` is called with each `solvers.Iteration`, in addition to that of ``verbose``.
    """
    with validation.unchanged_on_failure(estimator):
        fit = partition_fit(estimator)
        with checked_rows(fit, data, names, feature_names) as rows:
            fit.run(rows, monitor=monitor)
    return estimator
