"""A fit to rows in partitions, on disk or on other machines: the one entry point of all front ends for such data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from dropmargin.data import Partitions
from dropmargin.estimators import missing, validation
from dropmargin.estimators.base import MarginalisedClassifier
from dropmargin.estimators.fitting import Problem, fit_groups
from dropmargin.estimators.inspection import DataSummary, check_rows, inspect
from dropmargin.estimators.partitioned import (
    LabelEncoding,
    Rows,
    code_rows,
    describe_columns,
    find_used_columns,
    group_partitions,
)
from dropmargin.solvers import Iteration, Monitor

E = TypeVar("E", bound=MarginalisedClassifier)


def fit_partitions(
    estimator: E,
    data: Partitions[Rows],
    names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    monitor: Monitor | None = None,
) -> E:
    """Fit an estimator to rows in partitions.

    The same parameters, checks, objective and solvers as in `fit`, and the same attributes after it. All classes are
    solved together.

    Parameters
    ----------
    estimator : MarginalisedClassifier
    data : Partitions of Rows
        Left open. An empty partition, or one that lacks a class, is fine.
    names : sequence of str, default=None
        What to call the partitions in errors; ``partition 0``, ``partition 1``, ... by default.
    feature_names : sequence of str, default=None
    monitor : callable, default=None
        Called with each `solvers.Iteration`, besides what ``verbose`` shows.

    Returns
    -------
    estimator : fitted. If the fit fails or is interrupted, it is as it was before.
    """
    with validation.unchanged_on_failure(estimator):
        problem = estimator._problem()
        if monitor is not None:
            problem = replace(problem, monitor=partial(_both, problem.monitor, monitor))
        if names is None:
            names = [f"partition {i}" for i in range(data.n_partitions)]
        # 1. Look at everything once; all that can be wrong is said here.
        found = inspect(data, names, estimator.missing == "rescale")
        estimator._take_feature_names(found.whole.n_features, feature_names)
        if problem.noise is not None:
            problem.noise.check(found.whole.n_features)
        found.check_range(problem.noise, feature_names)
        if found.whole.has_missing:
            problem = replace(problem, noise=missing.exclude_entries_from_noise(found.has_implicit, problem.noise))
        # 2. Labels become numbers, and the fit is as any other.
        with data.derive(check_rows) as checked:
            _fit_checked(estimator, problem, found, checked)
    return estimator


def _both(first: Monitor, second: Monitor, entry: Iteration) -> None:
    first(entry)
    second(entry)


def _fit_checked(
    estimator: MarginalisedClassifier, problem: Problem, found: DataSummary, checked: Partitions[Rows]
) -> None:
    whole = found.whole
    assert whole.classes is not None
    assert whole.totals is not None
    present, numbers, factors = validation.encode_classes(
        whole.classes, whole.totals, estimator.class_weight, type(estimator).__name__
    )
    classes, weights = whole.classes[present], (whole.totals * factors)[present]
    coding = LabelEncoding(
        whole.classes, numbers, factors, whole.n_features, whole.is_dense, found.dtype, whole.has_missing
    )
    with checked.derive(code_rows, coding) as rows:
        used = find_used_columns(rows, whole.n_stored, whole.n_features, whole.is_dense)
        columns = describe_columns(rows, whole.has_missing) if estimator.missing == "rescale" else None
    with checked.derive(code_rows, replace(coding, used=used)) as rows:
        features = None if used is None else (used, whole.n_features)
        shape = whole.n_rows, whole.n_features if used is None else len(used)
        groups = group_partitions(problem.loss, rows, shape, whole.is_dense, features, weights, estimator.multi_class)
        start = estimator._warm_coefficients(classes, whole.n_features, groups[-1].columns.stop)
        result, passes = fit_groups(problem, groups, start, 1)
    estimator._check_finite(result)
    estimator._keep_columns(columns)
    estimator._store(result, passes, classes, found.dtype)
