"""Fit an estimator to rows in partitions, in files or on a cluster; the first pass checks and summarizes them.

`fit_partitions` is the fit of a plain model; the search over noise and ``C`` (`model_selection.partitions`) uses the
same checked rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from dropmargin.data import Partitions, Rows, canonical, entry_range, inputs, is_dense_matrix, worst_column
from dropmargin.data.matrix import no_rows
from dropmargin.data.missing_values import nan_to_negative_zero
from dropmargin.estimators import validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import TrainingRows, fit_rows, problem_of, set_or_delete
from dropmargin.estimators.held_out import refuse
from dropmargin.solvers import Monitor, Problem
from dropmargin.typing import Array


class ValidRows(Rows):
    """Rows whose matrix is an array or canonical CSR, so that it is not checked at every use."""


@dataclass(frozen=True)
class PartitionSummary:
    """Summary of one partition or of all; if ``fault`` is set, the other attributes are not."""

    fault: str | None = None  # a description of the error in the partition
    n_rows: int = 0
    n_features: int = 0
    n_stored: int = 0
    is_dense: bool = True
    is_single: bool = True  # in single precision
    has_missing: bool = False
    lowest: float = 0.0
    highest: float = 0.0
    worst: tuple[int, int] = (0, 0)  # the features of the lowest and the largest entry, if these may be invalid
    classes: Array = field(default_factory=lambda: np.empty(0))
    totals: Array = field(default_factory=lambda: np.empty(0))  # the sum of the sample weights of each class
    columns: tuple[Any, ...] | None = None  # the names of the columns of data frames

    @property
    def largest(self) -> float:
        """The largest absolute value of an entry."""
        return max(abs(self.lowest), abs(self.highest))


def check_rows(rows: Rows, columns: Sequence[Any] | None = None) -> Rows:
    """Return the rows as an array or canonical CSR, the labels as a vector, the sample weights in double precision.

    The columns of a data frame take the order of ``columns``.
    """
    inputs.check_unmasked(rows.y, "y")
    X, y, weights = rows.X, column_or_1d(rows.y), rows.sample_weight
    if not isinstance(rows, ValidRows):
        X = inputs.check_rows(inputs.with_columns(X, columns), order="C", ensure_all_finite=False, ensure_min_samples=0)
        X = canonical(X, is_sound=True)
    if len(y) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but y has {len(y)} labels")
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    if weights is not None:
        weights = validation.check_weights(weights, len(y), is_whole=False)
    return Rows(X, y, weights, rows.number)


def summarize_partition(rows: Rows, allow_missing: bool) -> PartitionSummary:
    columns = inputs.column_names(rows.X)
    try:
        rows = check_rows(rows)
    except (ValueError, TypeError) as error:
        return PartitionSummary(fault=str(error).removesuffix("."))
    X = rows.X
    low, high = entry_range(X)
    has_missing = bool(np.isnan(low) or np.isnan(high))
    if has_missing and not allow_missing:
        return PartitionSummary(fault="X has NaN; impute it, or set missing='rescale' to treat NaN as missing features")
    filled = nan_to_negative_zero(X) if has_missing else X
    if has_missing:
        low, high = entry_range(filled)
    if np.isinf(low) or np.isinf(high):
        return PartitionSummary(fault=f"X has infinity in feature {worst_column(filled, bool(np.isinf(low)))}")
    is_suspect = low < 0.0 or high > validation.LARGEST
    n_rows, n_features = X.shape
    classes, codes = np.unique(rows.y, return_inverse=True)
    weights = np.ones(n_rows) if rows.sample_weight is None else rows.sample_weight
    return PartitionSummary(
        n_rows=n_rows,
        n_features=n_features,
        n_stored=int(X.size),
        is_dense=is_dense_matrix(X),
        is_single=X.dtype == np.float32,
        has_missing=has_missing,
        lowest=low,
        highest=high,
        worst=(worst_column(filled, True), worst_column(filled, False)) if is_suspect else (0, 0),
        classes=classes,
        totals=np.bincount(codes, weights=weights, minlength=len(classes)),
        columns=None if columns is None else tuple(columns),
    )


@dataclass(frozen=True)
class DataSummary(PartitionSummary):
    """Summary of all partitions, and the names of those with the lowest and the largest entry."""

    places: tuple[str, str] = ("", "")

    @property
    def dtype(self) -> Any:
        """The precision of the products: single if all rows are in single precision and it holds their squares."""
        return np.dtype(np.float32 if self.is_single and validation.holds_squares(self.largest) else np.float64)


def inspect(
    data: Partitions,
    names: Sequence[str],
    allow_missing: bool,
    is_regression: bool = False,
    columns: Sequence[Any] | None = None,
) -> DataSummary:
    """Return the summary of all partitions; an error names the first partition that is invalid.

    A partition may be empty, and may lack some classes. In a regression, each target is a class. Data frames must have
    the columns ``columns``, by default those of the first one, in any order.
    """
    summaries = data.map(summarize_partition, allow_missing)
    for name, summary in zip(names, summaries, strict=True):
        if summary.fault is not None:
            raise ValueError(f"{name}: {summary.fault}.")
    nonempty = [(name, summary) for name, summary in zip(names, summaries, strict=True) if summary.n_rows]
    if not nonempty:
        raise ValueError("There are no rows: every partition is empty.")
    first_name, first = nonempty[0]
    columns = first.columns if columns is None or first.columns is None else tuple(columns)
    for k, (name, summary) in enumerate(nonempty):
        nonempty[k] = name, _with_columns(name, summary, columns)
        if summary.n_features != first.n_features:
            raise ValueError(
                f"{name} has {summary.n_features} features, but {first_name} has {first.n_features}: "
                "all partitions need the same features."
            )
        if summary.is_dense != first.is_dense:
            kinds = ["dense" if own.is_dense else "sparse" for own in (summary, first)]
            raise ValueError(f"{name} is {kinds[0]}, but {first_name} is {kinds[1]}: make all partitions the same.")
    return replace(_merge(nonempty, is_regression), columns=columns)


def _with_columns(name: str, summary: PartitionSummary, columns: tuple[Any, ...] | None) -> PartitionSummary:
    """Return the summary of a partition with its features in the order of ``columns``."""
    own = summary.columns
    if own is None and columns is None:
        return summary
    if own is None or columns is None:
        which = "no column names, but other partitions have" if own is None else "column names, but others have none"
        raise ValueError(f"{name} has {which}: make all partitions data frames, or none.")
    try:
        inputs.check_columns(own, columns)
    except ValueError as error:
        raise ValueError(f"{name}: {error}, in any order.") from None
    low, large = summary.worst
    return replace(summary, worst=(columns.index(own[low]), columns.index(own[large])))


def _merge(nonempty: list[tuple[str, PartitionSummary]], is_regression: bool) -> DataSummary:
    names, every = zip(*nonempty, strict=True)
    classes, totals = _merge_classes(nonempty, is_regression)
    low = int(np.argmin([summary.lowest for summary in every]))
    large = int(np.argmax([summary.largest for summary in every]))
    return DataSummary(
        n_rows=sum(summary.n_rows for summary in every),
        n_features=every[0].n_features,
        n_stored=sum(summary.n_stored for summary in every),
        is_dense=every[0].is_dense,
        is_single=all(summary.is_single for summary in every),
        has_missing=any(summary.has_missing for summary in every),
        lowest=every[low].lowest,
        highest=max(summary.highest for summary in every),
        worst=(every[low].worst[0], every[large].worst[1]),
        classes=classes,
        totals=totals,
        places=(names[low], names[large]),
    )


def _merge_classes(nonempty: list[tuple[str, PartitionSummary]], is_regression: bool) -> tuple[Array, Array]:
    """Return all labels, and the sum of their sample weights in the order of the partitions."""
    kinds = {name: "text" if summary.classes.dtype.kind in "OUST" else "numbers" for name, summary in nonempty}
    first = next(iter(kinds))
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise ValueError(
                f"{name} has {kind} as labels, but {first} has {kinds[first]}: make all labels of one kind."
            )
    classes = np.unique(np.concatenate([summary.classes for _, summary in nonempty]))
    if not is_regression:
        check_classification_targets(classes)
    elif kinds[first] == "text":
        raise ValueError(f"{first} has text as targets; a regressor needs numbers.")
    else:
        classes = validation.check_targets(classes)
    totals = np.zeros(len(classes))
    for _, summary in nonempty:
        totals[np.searchsorted(classes, summary.classes.astype(classes.dtype, copy=False))] += summary.totals
    return classes, totals


# Rows in partitions -------------------------------------------------------------------------------------------------


E = TypeVar("E", bound=MarginalisedModel)


def encode_rows(rows: Rows, summary: DataSummary) -> Rows:
    """Return checked rows with the index of their label, and minus zeros for NaN; weights may be ``None``."""
    labels = np.asarray(rows.y).astype(summary.classes.dtype, copy=False)
    X = rows.X if len(labels) else no_rows(summary.n_features, summary.is_dense)  # whatever its width
    X = (nan_to_negative_zero(X) if summary.has_missing else X).astype(summary.dtype, copy=False)
    return Rows(X, np.searchsorted(summary.classes, labels), rows.sample_weight, rows.number)


def partition_problem(estimator: MarginalisedModel) -> Problem:
    """Return the problem of an estimator whose rows are in partitions, after checking its parameters."""
    if estimator.missing == "conditional":
        raise ValueError(
            "missing='conditional' needs all rows in memory, got rows in files or on a cluster: set "
            "missing='rescale', or fit to an array."
        )
    refuse(estimator, "rows in files or on a cluster")
    return problem_of(estimator)


def checked_rows(
    estimator: MarginalisedModel, data: Partitions, names: Sequence[str] | None, feature_names: Sequence[str] | None
) -> TrainingRows:
    """Return the rows after the first pass, which checks all partitions; ``names`` are those of errors."""
    if names is None:
        names = [f"partition {i}" for i in range(data.n_partitions)]
    is_regression, allows_missing = isinstance(estimator, RegressorMixin), estimator.missing == "rescale"
    summary = inspect(data, names, allows_missing, is_regression, feature_names)
    if feature_names is None and summary.columns and all(isinstance(name, str) for name in summary.columns):
        feature_names = summary.columns

    def where(smallest: bool) -> str:
        which = 0 if smallest else 1
        return f"{validation.feature_label(summary.worst[which], feature_names)} of {summary.places[which]}"

    estimator.n_features_in_ = summary.n_features
    given_names = None if feature_names is None else np.array(feature_names, dtype=object)
    set_or_delete(estimator, "feature_names_in_", given_names)
    rows = data.transformed(check_rows, summary.columns).transformed(encode_rows, summary)
    sizes = summary.n_rows, summary.n_features, summary.n_stored, summary.is_dense, summary.dtype, summary.has_missing
    entries = summary.lowest, summary.highest, where
    found = TrainingRows(rows, *sizes, summary.classes, summary.totals, *entries, feature_names)
    found.check_range(None)
    return found


def fit_partitions(
    estimator: E,
    data: Partitions,
    names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    monitor: Monitor | None = None,
) -> E:
    """Fit an estimator to rows in partitions; if the fit fails or is interrupted, the estimator is unchanged.

    Partitions are `Rows` with their numbers; they may be empty, and may lack some classes. ``names`` are those of the
    partitions in errors. ``monitor`` is called with each `solvers.Iteration`, in addition to that of ``verbose``.
    """
    with validation.unchanged_on_failure(estimator):
        problem = partition_problem(estimator)
        fit_rows(estimator, problem, checked_rows(estimator, data, names, feature_names), monitor=monitor)
    return estimator
