"""The first pass over training data in partitions: checks of all partitions, and a summary of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from dropmargin.data import Partitions, Rows, canonical, entry_range, inputs, is_dense_matrix, worst_column
from dropmargin.data.missing_values import nan_to_negative_zero
from dropmargin.estimators import validation
from dropmargin.noise import Noise
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
    classes: Array | None = None
    totals: Array | None = None  # the sum of the sample weights of each class


def check_rows(rows: Rows) -> Rows:
    """Return the rows as an array or canonical CSR, the labels as a vector, the sample weights in double precision.

    Fetched rows are valid already and are not read.
    """
    inputs.check_unmasked(rows.y, "y")
    y = column_or_1d(rows.y)
    X = None if rows.is_fetched else _as_matrix(rows.X)
    if X is not None and len(y) != X.shape[0]:
        raise ValueError(f"X has {X.shape[0]} rows, but y has {len(y)} labels")
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    weights = None
    if rows.sample_weight is not None:
        weights = validation.check_weights(rows.sample_weight, len(y), is_whole=False)
    return rows.with_targets(y, weights) if X is None else Rows(X, y, weights)


def _as_matrix(X: Any) -> Any:
    # The memory order changes the order of sums, and so their rounding errors.
    return canonical(inputs.check_rows(X, order="C", ensure_all_finite=False, ensure_min_samples=0))


def summarize_partition(rows: Rows, allow_missing: bool) -> PartitionSummary:
    """Return the summary of a partition."""
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
    )


@dataclass(frozen=True)
class DataSummary:
    """Summary of all partitions, and the names of those with the lowest and the largest entry."""

    whole: PartitionSummary
    has_implicit: bool
    places: tuple[str, str]
    largest: float

    def check_range(self, noise: Noise | None, feature_names: Any) -> None:
        """Raise a `ValueError` if entries are too large, or negative where the noise does not allow it."""

        def where(smallest: bool) -> str:
            which = 0 if smallest else 1
            return f"{validation.feature_label(self.whole.worst[which], feature_names)} of {self.places[which]}"

        validation.check_range(self.whole.lowest, self.whole.highest, noise, where)

    @property
    def dtype(self) -> Any:
        """The precision of the products: single if all rows are in single precision and it holds their squares."""
        single = self.whole.is_single and validation.holds_squares(self.largest)
        return np.dtype(np.float32 if single else np.float64)


def inspect(
    data: Partitions[Rows], names: Sequence[str], allow_missing: bool, is_regression: bool = False
) -> DataSummary:
    """Return the summary of all partitions; an error names the first partition that is invalid.

    A partition may be empty, and may lack some classes. In a regression, each target is a class.
    """
    summaries = data.gather(data.map(summarize_partition, allow_missing))
    for name, summary in zip(names, summaries, strict=True):
        if summary.fault is not None:
            raise ValueError(f"{name}: {summary.fault}.")
    nonempty = [(name, summary) for name, summary in zip(names, summaries, strict=True) if summary.n_rows]
    if not nonempty:
        raise ValueError("There are no rows: every partition is empty.")
    (first_name, first), *others = nonempty
    for name, summary in others:
        if summary.n_features != first.n_features:
            raise ValueError(
                f"{name} has {summary.n_features} features, but {first_name} has {first.n_features}: "
                "all partitions need the same features."
            )
        if summary.is_dense != first.is_dense:
            kinds = ["dense" if own.is_dense else "sparse" for own in (summary, first)]
            raise ValueError(f"{name} is {kinds[0]}, but {first_name} is {kinds[1]}: make all partitions the same.")
    return _merge(nonempty, is_regression)


def _merge(nonempty: list[tuple[str, PartitionSummary]], is_regression: bool) -> DataSummary:
    every = [summary for _, summary in nonempty]
    classes, totals = _merge_classes(nonempty, is_regression)
    low = int(np.argmin([summary.lowest for summary in every]))
    sizes = [max(abs(summary.lowest), abs(summary.highest)) for summary in every]
    large = int(np.argmax(sizes))
    n_rows, n_stored = sum(summary.n_rows for summary in every), sum(summary.n_stored for summary in every)
    whole = PartitionSummary(
        n_rows=n_rows,
        n_features=every[0].n_features,
        n_stored=n_stored,
        is_dense=every[0].is_dense,
        is_single=all(summary.is_single for summary in every),
        has_missing=any(summary.has_missing for summary in every),
        lowest=every[low].lowest,
        highest=max(summary.highest for summary in every),
        worst=(every[low].worst[0], every[large].worst[1]),
        classes=classes,
        totals=totals,
    )
    return DataSummary(
        whole, n_stored < n_rows * whole.n_features, (nonempty[low][0], nonempty[large][0]), float(sizes[large])
    )


def _merge_classes(nonempty: list[tuple[str, PartitionSummary]], is_regression: bool) -> tuple[Array, Array]:
    """Return all labels, and the sum of their sample weights in the order of the partitions."""
    kinds = {name: "text" if summary.classes.dtype.kind in "OUST" else "numbers" for name, summary in nonempty}  # type: ignore[union-attr]
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
        assert summary.classes is not None
        assert summary.totals is not None
        totals[np.searchsorted(classes, summary.classes.astype(classes.dtype, copy=False))] += summary.totals
    return classes, totals
