"""Fit an estimator to rows in partitions, in files or on a cluster; the first pass checks and summarizes them.

`fit_partitions` is the fit of a plain model; the search over noise and ``C`` (`model_selection.partitions`) uses the
same checked rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from dropmargin.data import EncodedRows, Partitions, Rows, canonical, entry_range, inputs, is_dense_matrix, worst_column
from dropmargin.data.encoding import LabelEncoding, encode_rows, find_used_features
from dropmargin.data.missing_values import nan_to_negative_zero
from dropmargin.estimators import validation
from dropmargin.estimators.base import MarginalisedModel
from dropmargin.estimators.fitting import Fit, TrainingRows
from dropmargin.noise import Noise
from dropmargin.solvers import Monitor
from dropmargin.typing import Array


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

    The columns of a data frame take the order of ``columns``. Fetched rows are valid already and are not read.
    """
    inputs.check_unmasked(rows.y, "y")
    y = column_or_1d(rows.y)
    X = None
    if not rows.is_fetched:  # the memory order changes the order of sums, and so their rounding errors
        X = inputs.with_columns(rows.X, columns)
        X = canonical(inputs.check_rows(X, order="C", ensure_all_finite=False, ensure_min_samples=0))
    if X is not None and len(y) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but y has {len(y)} labels")
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    weights = None
    if rows.sample_weight is not None:
        weights = validation.check_weights(rows.sample_weight, len(y), is_whole=False)
    return rows.with_targets(y, weights) if X is None else Rows(X, y, weights)


def summarize_partition(rows: Rows, allow_missing: bool) -> PartitionSummary:
    columns = None if rows.is_fetched else inputs.column_names(rows.X)
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
    def has_implicit(self) -> bool:
        return self.n_stored < self.n_rows * self.n_features

    @property
    def dtype(self) -> Any:
        """The precision of the products: single if all rows are in single precision and it holds their squares."""
        return np.dtype(np.float32 if self.is_single and validation.holds_squares(self.largest) else np.float64)

    def check_range(self, noise: Noise | None, feature_names: Any) -> None:
        """Raise a `ValueError` if entries are too large, or negative where the noise does not allow it."""

        def where(smallest: bool) -> str:
            which = 0 if smallest else 1
            return f"{validation.feature_label(self.worst[which], feature_names)} of {self.places[which]}"

        validation.check_range(self.lowest, self.highest, noise, where)


def inspect(
    data: Partitions[Rows],
    names: Sequence[str],
    allow_missing: bool,
    is_regression: bool = False,
    columns: Sequence[Any] | None = None,
) -> DataSummary:
    """Return the summary of all partitions; an error names the first partition that is invalid.

    A partition may be empty, and may lack some classes. In a regression, each target is a class. Data frames must have
    the columns ``columns``, by default those of the first one, in any order.
    """
    summaries = data.gather(data.map(summarize_partition, allow_missing))
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


class PartitionRows(TrainingRows):
    """Training rows in partitions, after all checks."""

    def __init__(self, rows: Partitions[Rows], summary: DataSummary, feature_names: Sequence[str] | None) -> None:
        self.rows, self.summary, self.feature_names = rows, summary, feature_names
        self.n_features, self.has_missing = summary.n_features, summary.has_missing
        self.has_implicit, self.dtype = summary.has_implicit, summary.dtype

    @property
    def classes(self) -> Array:
        return self.summary.classes

    @property
    def n_bytes(self) -> int:
        """The size of all rows in double precision; a stored entry of sparse rows has an index."""
        return self.summary.n_stored * (8 if self.summary.is_dense else 12)

    def with_weights(self, rows: Partitions[Rows], totals: Array) -> PartitionRows:
        """Return the same rows with other sample weights; ``totals`` are the sums of these for each class."""
        return PartitionRows(rows, replace(self.summary, totals=totals), self.feature_names)

    def check_range(self, noise: Noise) -> None:
        self.summary.check_range(noise, self.feature_names)

    @contextmanager
    def encoded(self, fit: Fit) -> Iterator[EncodedRows]:
        whole, classes, totals = self.summary, self.classes, self.summary.totals
        present, index, factors = fit.encode_classes(classes, totals)
        encoding = self._encoding(index, factors)
        with self.rows.map_partitions(encode_rows, encoding) as encoded:
            used = find_used_features(encoded, whole.n_stored, whole.n_features, whole.is_dense)
        with self.rows.map_partitions(encode_rows, replace(encoding, used=used)) as encoded:
            weights = (totals * factors)[present]
            yield EncodedRows(
                encoded,
                whole.n_rows,
                whole.n_features if used is None else len(used),
                np.array([weights.sum()]) if fit.is_regression else weights,
                whole.is_dense,
                None if fit.is_regression else classes[present],
                None if used is None else (used, whole.n_features),
                whole.has_missing,
                fit.first_intercept(classes[present], weights),
            )

    def mean_square(self) -> float:
        whole, index = self.summary, np.arange(len(self.classes))
        with self.rows.map_partitions(encode_rows, self._encoding(index, np.ones(len(index)))) as rows:
            return EncodedRows(rows, whole.n_rows, whole.n_features, whole.totals, whole.is_dense).mean_square()

    def _encoding(self, index: Array, factors: Array) -> LabelEncoding:
        is_dense, has_missing = self.summary.is_dense, self.has_missing
        return LabelEncoding(self.classes, index, factors, self.n_features, is_dense, self.dtype, has_missing)


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
    summary = inspect(data, names, fit.uses_deviations, fit.is_regression, feature_names)
    if feature_names is None and summary.columns and all(isinstance(name, str) for name in summary.columns):
        feature_names = summary.columns
    summary.check_range(None, feature_names)
    fit.set_features(summary.n_features, feature_names)
    with data.map_partitions(check_rows, summary.columns) as checked:
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
