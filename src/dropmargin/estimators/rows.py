"""Training rows after all checks, in memory, in files or on a cluster, and what is known of all of them.

`check_rows` takes arrays, which are one partition; `check_partitions` makes a pass over the rows of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from dropmargin.data import (
    Partitions,
    Rows,
    TrainingData,
    canonical,
    entry_range,
    inputs,
    is_dense_matrix,
    one_partition,
    worst_column,
)
from dropmargin.data.matrix import no_rows
from dropmargin.data.missing_values import nan_to_negative_zero
from dropmargin.estimators import missing, validation
from dropmargin.noise import Noise
from dropmargin.solvers import Problem
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.estimators.base import MarginalisedModel


class ValidRows(Rows):
    """Rows whose matrix is an array or canonical CSR, so that it is not checked at every use."""


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows after all checks, wherever they are; or what is known of one partition.

    Parameters
    ----------
    n_rows, n_features, n_stored : int
        The shape of ``X``, and the number of stored entries.
    is_dense : bool
    is_single : bool
        Whether all entries are in single precision.
    has_missing : bool
    labels : ndarray
        All labels, sorted; those of a regression are the different targets.
    totals : ndarray
        The sum of the sample weights of each label.
    lowest, largest : float
        The lowest entry, and the largest absolute value.
    columns : sequence, default=None
        The names of the columns of data frames.
    feature_names : sequence of str, default=None
    names : sequence of str, default=()
        The names of the partitions in errors.
    are_filled : bool, default=False
        Whether missing entries take conditional means, so that noise corrupts them.
    partitions : Partitions of Rows
        Missing entries are minus zeros, and ``y`` is the index of each row's label.
    """

    n_rows: int
    n_features: int
    n_stored: int
    is_dense: bool
    is_single: bool
    has_missing: bool
    labels: Array
    totals: Array
    lowest: float
    largest: float
    columns: Sequence[Any] | None = None
    feature_names: Sequence[str] | None = None
    names: Sequence[str] = ()
    are_filled: bool = False
    partitions: Partitions = field(default=None, repr=False)  # type: ignore[assignment]

    @property
    def dtype(self) -> Any:
        """The precision of the products: single if all rows are in single precision and it holds their squares."""
        return np.dtype(np.float32 if self.is_single and validation.holds_squares(self.largest) else np.float64)

    def take(self, index: Array) -> TrainingRows:
        """Return some rows of those in memory."""
        rows = self.partitions.single().take(index)
        totals = np.bincount(rows.y, rows.sample_weight, minlength=len(self.labels))
        partitions = one_partition(rows.X, rows.sample_weight, rows.y)
        return replace(self, partitions=partitions, n_rows=len(rows), n_stored=int(rows.X.size), totals=totals)

    def check_range(self, noise: Noise | None) -> None:
        """Raise a `ValueError` if entries are too large, or negative where the noise does not allow it."""

        def where(smallest: bool) -> str:
            sizes, features = zip(*self.partitions.map(_worst, smallest), strict=True)
            number = int(np.argmax(sizes))
            label = validation.feature_label(features[number], self.feature_names)
            return f"{label} of {self.names[number]}" if self.names else label

        validation.check_range(self.lowest, self.largest, noise, where)

    def problem(self, problem: Problem) -> Problem:
        """Return the problem with its noise for these features; the noise excludes missing entries."""
        problem = replace(problem, is_single=self.dtype == np.float32)
        if problem.noise is None:
            return problem
        noise = problem.noise.resolve(self.n_features, self.feature_names)
        self.check_range(noise)
        if self.has_missing and not self.are_filled:
            noise = missing.exclude_missing_from_noise(noise, self.n_stored < self.n_rows * self.n_features)
        return replace(problem, noise=noise)

    def encoded(self, index: Array, factors: Array, class_weights: Array, **given: Any) -> TrainingData:
        """Return the rows with an index for each label, and a factor of its weights."""
        partitions = self.partitions.transformed(_encode, index, factors)
        sizes = self.n_rows, self.n_features, class_weights, self.is_dense, self.n_stored
        return TrainingData(partitions, *sizes, has_missing=self.has_missing, **given)

    def mean_square(self) -> float:
        """Return the weighted mean of the squared norm of a row; dense rows are centred."""
        return self.encoded(np.arange(len(self.labels)), np.ones(len(self.labels)), self.totals).mean_square()


def check_rows(estimator: MarginalisedModel, X: Any, y: Any, sample_weight: Any) -> TrainingRows:
    """Return training data in memory after all checks but those of the noise."""
    is_number = isinstance(estimator, RegressorMixin)
    X, y = inputs.validate_rows(estimator, X, y, ensure_all_finite=estimator._finite(), y_numeric=is_number)
    if is_number:
        y = validation.check_targets(y)
    else:
        check_classification_targets(y)
    rows = Rows(canonical(X, is_sound=True), y, validation.check_weights(sample_weight, X.shape[0]))
    names, are_filled = getattr(estimator, "feature_names_in_", None), estimator.missing == "conditional"
    found = replace(_summary(rows), feature_names=names, are_filled=are_filled)
    most, rank = (int(np.count_nonzero(rows.sample_weight)), found.n_features), estimator.missing_rank
    if are_filled and rank is not None and rank > min(most):
        raise ValueError(
            f"missing_rank must be at most the number of rows of positive weight, {most[0]}, and of features, "
            f"{most[1]}, got {rank}."
        )
    own = _index_labels(rows, found)
    found = replace(found, partitions=one_partition(own.X, own.sample_weight, own.y))
    found.check_range(None)
    return found


def check_partitions(
    estimator: MarginalisedModel,
    data: Partitions,
    names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
) -> TrainingRows:
    """Return rows in partitions after a pass that checks them; errors name the first invalid one by ``names``.

    A partition may be empty, and may lack some classes. Data frames have the columns ``feature_names``, by default
    those of the first one, in any order.
    """
    names = [f"partition {i}" for i in range(data.n_partitions)] if names is None else names
    parts = dict(zip(names, data.map(_checked_summary, estimator.missing == "rescale"), strict=True))
    for name, own in parts.items():
        if isinstance(own, str):
            raise ValueError(f"{name}: {own}.")
    parts = {name: own for name, own in parts.items() if own.n_rows}
    if not parts:
        raise ValueError("There are no rows: every partition is empty.")
    first_name, first = next(iter(parts.items()))
    columns = first.columns if feature_names is None or first.columns is None else tuple(feature_names)
    for name, own in parts.items():
        if own.columns is not None and columns is not None:
            try:
                inputs.check_columns(own.columns, columns)
            except ValueError as error:
                raise ValueError(f"{name}: {error}, in any order.") from None
        for kind, of_first in zip(_kinds(own), _kinds(first), strict=True):
            if kind != of_first:
                raise ValueError(f"{name} {kind}, but {first_name} {of_first}: make all partitions the same.")
    every = list(parts.values())
    labels, totals = _merge_labels(every, isinstance(estimator, RegressorMixin))
    if feature_names is None and columns and all(isinstance(name, str) for name in columns):
        feature_names = columns
    rows = replace(
        first,
        n_rows=sum(own.n_rows for own in every),
        n_stored=sum(own.n_stored for own in every),
        is_single=all(own.is_single for own in every),
        has_missing=any(own.has_missing for own in every),
        labels=labels,
        totals=totals,
        lowest=min(own.lowest for own in every),
        largest=max(own.largest for own in every),
        columns=columns,
        feature_names=feature_names,
        names=names,
    )
    rows = replace(rows, partitions=data.transformed(_check, columns).transformed(_index_labels, rows))
    rows.check_range(None)
    estimator.n_features_in_ = rows.n_features
    set_or_delete(estimator, "feature_names_in_", feature_names and np.array(feature_names, dtype=object))
    return rows


def _kinds(own: TrainingRows) -> tuple[str, ...]:
    """Return what all partitions must have in common, in words."""
    return (
        "has no column names" if own.columns is None else "has column names",
        f"has {own.n_features} features",
        "is dense" if own.is_dense else "is sparse",
        "has text as labels" if own.labels.dtype.kind in "OUST" else "has numbers as labels",
    )


def _merge_labels(parts: Sequence[TrainingRows], is_regression: bool) -> tuple[Array, Array]:
    """Return all labels, and the sum of their sample weights."""
    labels = np.unique(np.concatenate([own.labels for own in parts]))
    if not is_regression:
        check_classification_targets(labels)
    elif labels.dtype.kind in "OUST":
        raise ValueError("y has text as targets; a regressor needs numbers.")
    else:
        labels = validation.check_targets(labels)
    totals = np.zeros(len(labels))
    for own in parts:
        totals[np.searchsorted(labels, own.labels.astype(labels.dtype, copy=False))] += own.totals
    return labels, totals


# Functions of one partition ---------------------------------------------------------------------------------------


def _check(rows: Rows, columns: Sequence[Any] | None = None) -> Rows:
    """Return rows with an array or canonical CSR, labels as a vector, and weights in double precision.

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
    weights = np.ones(len(y)) if weights is None else validation.check_weights(weights, len(y), is_whole=False)
    return Rows(X, y, weights, rows.number)


def _checked_summary(rows: Rows, allows_missing: bool) -> TrainingRows | str:
    """Return what is known of a partition, or a description of what is wrong with it."""
    columns = inputs.column_names(rows.X)
    try:
        checked = _check(rows)
        found = _summary(checked)
    except (ValueError, TypeError) as error:
        return str(error).removesuffix(".")
    if found.has_missing and not allows_missing:
        return "X has NaN; impute it, or set missing='rescale' to treat NaN as missing features"
    if np.isinf(found.largest):
        return f"X has infinity in feature {worst_column(nan_to_negative_zero(checked.X), False)}"
    return replace(found, columns=None if columns is None else tuple(columns))


def _summary(rows: Rows) -> TrainingRows:
    """Return what is known of checked rows; NaN is a missing entry."""
    X = rows.X
    low, high = entry_range(X)
    has_missing = bool(np.isnan(low) or np.isnan(high))
    if has_missing:
        X = nan_to_negative_zero(X)
        low, high = entry_range(X)
    labels, codes = np.unique(rows.y, return_inverse=True)
    totals = np.bincount(codes, weights=rows.sample_weight, minlength=len(labels))
    sizes = X.shape[0], X.shape[1], int(X.size), is_dense_matrix(X), X.dtype == np.float32, has_missing
    return TrainingRows(*sizes, labels, totals, low, max(abs(low), abs(high)))


def _worst(rows: Rows, smallest: bool) -> tuple[float, int]:
    """Return the size of the smallest entry, or of the largest absolute value, and its feature."""
    low, high = entry_range(rows.X)
    return -low if smallest else max(-low, high), worst_column(rows.X, smallest) if rows.X.size else 0


def _index_labels(rows: Rows, known: TrainingRows) -> Rows:
    """Return checked rows with the index of their label, minus zeros for NaN, in the precision of all rows."""
    labels = np.asarray(rows.y).astype(known.labels.dtype, copy=False)
    X = rows.X if len(labels) else no_rows(known.n_features, known.is_dense)  # whatever its width
    X = (nan_to_negative_zero(X) if known.has_missing else X).astype(known.dtype, copy=False)
    return Rows(X, np.searchsorted(known.labels, labels), rows.sample_weight, rows.number)


def _encode(rows: Rows, index: Array, factors: Array) -> Rows:
    return Rows(rows.X, index[rows.y], rows.sample_weight * factors[rows.y], rows.number)


def set_or_delete(estimator: Any, name: str, value: Any) -> None:
    """Set an attribute; if the value is ``None``, delete that of an earlier fit."""
    if value is not None:
        setattr(estimator, name, value)
    elif hasattr(estimator, name):
        delattr(estimator, name)
