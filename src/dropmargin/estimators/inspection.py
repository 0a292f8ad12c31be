"""The first pass over training data in partitions: what is wrong with one is said by its name, before any long work."""

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
    """What is known of one partition, or of all; a partition with ``fault`` has nothing else to say."""

    fault: str | None = None
    n_rows: int = 0
    n_features: int = 0
    n_stored: int = 0
    is_dense: bool = True
    is_single: bool = True  # in single precision
    has_missing: bool = False
    lowest: float = 0.0
    highest: float = 0.0
    worst: tuple[int, int] = (0, 0)  # the columns of the lowest entry and of the largest, if they could be at fault
    classes: Array | None = None
    totals: Array | None = None  # the weights of the classes


def check_rows(rows: Rows) -> Rows:
    """Return rows as an array or as CSR in canonical form, labels as a vector, weights in double precision.

    Rows that are fetched are in order already.
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
    # Order: sums depend on it, if only in their last digit.
    return canonical(inputs.check_rows(X, order="C", ensure_all_finite=False, ensure_min_samples=0))


def summarize_partition(rows: Rows, allow_missing: bool) -> PartitionSummary:
    """Return the facts of a partition."""
    try:
        rows = check_rows(rows)
    except (ValueError, TypeError) as error:
        return PartitionSummary(fault=str(error).removesuffix("."))
    X = rows.X
    low, high = entry_range(X)
    has_missing = bool(np.isnan(low) or np.isnan(high))
    if has_missing and not allow_missing:
        return PartitionSummary(
            fault="X has NaN; impute it, or let the estimator do with what is there: missing='rescale'"
        )
    filled = nan_to_negative_zero(X) if has_missing else X
    if has_missing:
        low, high = entry_range(filled)
    if np.isinf(low) or np.isinf(high):
        return PartitionSummary(fault=f"X has infinity, in column {worst_column(filled, bool(np.isinf(low)))}")
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
    """All partitions together: their facts as one, and which has the lowest and the largest entry."""

    whole: PartitionSummary
    has_implicit: bool
    places: tuple[str, str]
    largest: float

    def check_range(self, noise: Noise | None, feature_names: Any) -> None:
        """Refuse entries that the noise or double precision cannot take; see `validation.check_range`."""

        def where(smallest: bool) -> str:
            column, place = (pair[0 if smallest else 1] for pair in (self.whole.worst, self.places))
            named = f"column {column}" if feature_names is None else f"column {feature_names[column]!r}"
            return f"{named} of {place}"

        validation.check_range(self.whole.lowest, self.whole.highest, noise, where)

    @property
    def dtype(self) -> Any:
        """The precision of the products: single, if all rows are, and if it holds their squares."""
        single = self.whole.is_single and validation.holds_squares(self.largest)
        return np.dtype(np.float32 if single else np.float64)


def inspect(data: Partitions[Rows], names: Sequence[str], allow_missing: bool) -> DataSummary:
    """Look at every partition; an error names the first that is at fault.

    An empty partition contributes nothing, and one without some class is fine.
    """
    every = data.gather(data.map(summarize_partition, allow_missing))
    for name, facts in zip(names, every, strict=True):
        if facts.fault is not None:
            raise ValueError(f"{name}: {facts.fault}.")
    there = [(name, facts) for name, facts in zip(names, every, strict=True) if facts.n_rows]
    if not there:
        raise ValueError("There are no rows: every partition is empty.")
    (first_name, first), *others = there
    for name, facts in others:
        if facts.n_features != first.n_features:
            raise ValueError(
                f"{name} has {facts.n_features} features, but {first_name} has {first.n_features}: "
                "all partitions need the same columns."
            )
        if facts.is_dense != first.is_dense:
            kinds = ["dense" if own.is_dense else "sparse" for own in (facts, first)]
            raise ValueError(f"{name} is {kinds[0]}, but {first_name} is {kinds[1]}: all need to be one or the other.")
    return _merge(there)


def _merge(there: list[tuple[str, PartitionSummary]]) -> DataSummary:
    every = [facts for _, facts in there]
    classes, totals = _merge_classes(there)
    low = int(np.argmin([facts.lowest for facts in every]))
    sizes = [max(abs(facts.lowest), abs(facts.highest)) for facts in every]
    large = int(np.argmax(sizes))
    n_rows, n_stored = sum(facts.n_rows for facts in every), sum(facts.n_stored for facts in every)
    whole = PartitionSummary(
        n_rows=n_rows,
        n_features=every[0].n_features,
        n_stored=n_stored,
        is_dense=every[0].is_dense,
        is_single=all(facts.is_single for facts in every),
        has_missing=any(facts.has_missing for facts in every),
        lowest=every[low].lowest,
        highest=max(facts.highest for facts in every),
        worst=(every[low].worst[0], every[large].worst[1]),
        classes=classes,
        totals=totals,
    )
    return DataSummary(
        whole, n_stored < n_rows * whole.n_features, (there[low][0], there[large][0]), float(sizes[large])
    )


def _merge_classes(there: list[tuple[str, PartitionSummary]]) -> tuple[Array, Array]:
    """Return all labels that occur, and their weights, added in the order of the partitions."""
    kinds = {name: "text" if facts.classes.dtype.kind in "OUST" else "numbers" for name, facts in there}  # type: ignore[union-attr]
    first = next(iter(kinds))
    for name, kind in kinds.items():
        if kind != kinds[first]:
            raise ValueError(
                f"{name} has {kind} as labels, but {first} has {kinds[first]}: make them all one or the other."
            )
    classes = np.unique(np.concatenate([facts.classes for _, facts in there]))
    check_classification_targets(classes)
    totals = np.zeros(len(classes))
    for _, facts in there:
        assert facts.classes is not None
        assert facts.totals is not None
        totals[np.searchsorted(classes, facts.classes.astype(classes.dtype, copy=False))] += facts.totals
    return classes, totals
