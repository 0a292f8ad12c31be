"""Fit an estimator to rows in partitions, in files or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from dropmargin.data import Partitions, Rows
from dropmargin.data.missing_values import FeatureStatistics
from dropmargin.data.partitioned import (
    ClassPartitions,
    LabelEncoding,
    encode_rows,
    feature_statistics,
    find_used_features,
)
from dropmargin.estimators import missing, validation
from dropmargin.estimators.base import MarginalisedClassifier
from dropmargin.estimators.inspection import DataSummary, check_rows, inspect
from dropmargin.solvers import Iteration, Monitor, Problem, solve

E = TypeVar("E", bound=MarginalisedClassifier)


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
    estimator : MarginalisedClassifier
    data : Partitions of Rows
        They are not closed. A partition may be empty, and may lack some classes.
    names : sequence of str, default=None
        Names of the partitions in errors; ``partition 0``, ``partition 1``, ... by default.
    feature_names : sequence of str, default=None
    monitor : callable, default=None
        Called with each `solvers.Iteration`, in addition to the monitor of ``verbose``.

    Returns
    -------
    estimator : MarginalisedClassifier
        The fitted estimator. If the fit fails or is interrupted, its attributes are those before the call.
    """
    with validation.unchanged_on_failure(estimator):
        problem = estimator._problem()
        if monitor is not None:
            problem = replace(problem, monitor=partial(_both, problem.monitor, monitor))
        if names is None:
            names = [f"partition {i}" for i in range(data.n_partitions)]
        # 1. Check all partitions; errors about the data are raised here.
        summary = inspect(data, names, estimator.missing == "rescale")
        estimator._set_feature_names(summary.whole.n_features, feature_names)
        if problem.noise is not None:
            problem = replace(problem, noise=problem.noise.resolve(summary.whole.n_features, feature_names))
        summary.check_range(problem.noise, feature_names)
        if summary.whole.has_missing:
            problem = replace(problem, noise=missing.exclude_entries_from_noise(summary.has_implicit, problem.noise))
        # 2. Encode the labels and solve.
        with data.map_partitions(check_rows) as checked:
            _fit_checked(estimator, problem, summary, checked)
    return estimator


def _both(first: Monitor, second: Monitor, entry: Iteration) -> None:
    first(entry)
    second(entry)


def _fit_checked(
    estimator: MarginalisedClassifier, problem: Problem, summary: DataSummary, checked: Partitions[Rows]
) -> None:
    whole = summary.whole
    assert whole.classes is not None
    assert whole.totals is not None
    present, index, factors = validation.encode_classes(
        whole.classes, whole.totals, estimator.class_weight, type(estimator).__name__
    )
    classes, weights = whole.classes[present], (whole.totals * factors)[present]
    encoding = LabelEncoding(
        whole.classes, index, factors, whole.n_features, whole.is_dense, summary.dtype, whole.has_missing
    )
    with checked.map_partitions(encode_rows, encoding) as rows:
        used = find_used_features(rows, whole.n_stored, whole.n_features, whole.is_dense)
        statistics = feature_statistics(rows, whole.has_missing) if estimator.missing == "rescale" else None
    with checked.map_partitions(encode_rows, replace(encoding, used=used)) as rows:
        used_features = None if used is None else (used, whole.n_features)
        shape = whole.n_rows, whole.n_features if used is None else len(used)
        start = estimator._warm_coefficients(classes, whole.n_features)
        encoded = ClassPartitions(rows, shape, weights, whole.is_dense, used_features, whole.has_missing)
        result = solve(problem, encoded, start)
        if statistics is None and problem.noise is not None and problem.noise.needs_means:
            statistics = FeatureStatistics(encoded.feature_means, None)
    estimator._store(result, classes, summary.dtype, statistics)
