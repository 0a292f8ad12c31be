"""Training data in partitions that are nowhere one matrix: on disk, on a cluster, or cut up for the test of both.

A front end hands over `Partitions` of `Rows` and their names. One pass looks at every partition (`inspect`), so that
what is wrong with one is said, by its name, before any long work. Then labels become codes, and `PartitionedData`
answers as data in one matrix do: all by `map` and `map_sum`, with the functions of one partition below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from dropmargin.data import (
    Block,
    EntryFunction,
    Partitions,
    PerPartition,
    column_counts,
    column_means,
    column_spreads,
    columns_worth_keeping,
    full_columns,
    has_full_columns,
    keep_columns,
    no_rows,
    offset_of,
    row_block,
    subtract,
)
from dropmargin.estimators import missing
from dropmargin.estimators.fitting import (
    LITTLE_WEIGHT,
    SAMPLE_EVERY,
    Group,
    Sample,
    TrainingData,
    shows_label,
)
from dropmargin.losses import Loss, MomentLoss
from dropmargin.objective import Labelled, Shape, remember_shape
from dropmargin.typing import Array


class Rows:
    """A partition of rows, with their labels and weights.

    Parameters
    ----------
    X : ndarray, csr_array or the like of shape (n_rows, n_features), or callable
        The rows, or a function that fetches them, which is called whenever they are asked for: then they must come as
        an array or as CSR in canonical form, in single or double precision, one for each label. They are good until
        the mapped function returns.
    y : array-like of shape (n_rows,)
        Labels; further on, the index of each row's class (-1: none).
    weights : array-like of shape (n_rows,), default=None
        ``None``: all ones.
    """

    def __init__(self, X: Any, y: Any, weights: Any = None) -> None:
        self._X = X
        self.y = y
        self.weights = weights

    @property
    def is_fetched(self) -> bool:
        """Whether the rows are fetched each time."""
        return callable(self._X)

    @property
    def X(self) -> Any:  # noqa: N802
        """The rows."""
        return self._X() if callable(self._X) else self._X

    def replaced(self, X: Any | None, y: Array, weights: Array | None) -> Rows:
        """Return other rows, or these (``None``), with other labels and weights."""
        return Rows(self._X if X is None else X, y, weights)

    def under(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return ``function(X, *args)``, or how to fetch it, if the rows are fetched."""
        return partial(_fetch, self._X, function, args) if callable(self._X) else function(self._X, *args)


def _fetch(fetch: Callable[[], Any], function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    return function(fetch(), *args)


@dataclass(frozen=True)
class LabelEncoding:
    """How the rows and labels of all partitions become numbers.

    Parameters
    ----------
    classes : ndarray
        All labels that occur, sorted.
    numbers, factors : ndarray, one per class
        The index of each among those with any weight, or -1; the factor of its weights.
    n_features : int
    is_dense : bool
    dtype : dtype
        Of the rows.
    blanked : bool
        Whether NaN becomes minus zero.
    used : ndarray or None
        The columns to keep, if only some are not empty.
    """

    classes: Array
    numbers: Array
    factors: Array
    n_features: int
    is_dense: bool
    dtype: Any
    blanked: bool
    used: Array | None = None


def find_used_columns(data: Partitions[Rows], n_stored: int, n_features: int, is_dense: bool) -> Array | None:
    """Return the columns that are not empty, if it is worth dropping the others."""
    if is_dense or has_full_columns(n_stored, n_features):
        return None
    (counts,) = data.map_sum(_column_counts)
    return columns_worth_keeping(counts > 0)


def describe_columns(data: Partitions[Rows], blanked: bool) -> missing.Columns:
    """Return mean and deviation of each column's observed entries, see `missing.describe_columns`."""
    return missing.columns_by_sums(
        partial(data.map_sum, _column_sums, blanked), partial(data.map_sum, _column_squares, blanked)
    )


class PartitionedData(TrainingData):
    """Coded rows in partitions, as the data of some binary problems.

    Parameters
    ----------
    rows : Partitions of Rows
        Coded, see `code_rows`.
    shape : tuple of int
        Rows and columns of ``X``.
    positive : ndarray of int
        The classes that are +1, one for each column of labels; all others are -1.
    label_weights : ndarray of shape (2, n_columns)
        The weight of all rows that are +1, and of those that are -1.
    is_dense : bool
    is_own : bool, default=False
        Whether to close the partitions with these data.
    """

    def __init__(
        self,
        rows: Partitions[Rows],
        shape: tuple[int, int],
        positive: Array,
        label_weights: Array,
        is_dense: bool,
        features: tuple[Array, int] | None = None,
        is_own: bool = False,
    ) -> None:
        super().__init__((*shape, len(positive)), features)
        self.rows = rows
        self.positive = positive
        self.label_weights = label_weights
        self.weight = float(label_weights[:, 0].sum())
        self.is_dense = is_dense
        self.is_own = is_own

    def sample(self) -> Sample | None:
        numbers = PerPartition(range(self.rows.n_partitions))
        shown, number, n_rows = self.rows.map_sum(_count_sample, numbers, self.positive, self.weight / self.n_rows)
        if not shows_label(shown, self.label_weights, number):
            return None
        data = PartitionedData(
            self.rows.derive(_take_sample, numbers, stored=True),
            (n_rows, self.n_features),
            self.positive,
            shown,
            self.is_dense,
            is_own=True,
        )
        return Sample(data, data.weight / self.weight)

    def find_offset(self, ratio: float) -> Array | None:
        full = np.arange(self.n_features)
        if not self.is_dense:
            (counts,) = self.rows.map_sum(_column_counts)
            full = full_columns(counts, self.n_rows)
            if not len(full):
                return None
        (mean,) = self.rows.map_sum(_column_means, self.weight, full)
        (square,) = self.rows.map_sum(_column_spreads, self.weight, full, mean)
        return offset_of(mean, square, full, self.n_features, ratio, not self.is_dense)

    def partitions(
        self, C: float, entry: EntryFunction | None, offset: Array | None, kept: dict[Any, Any]
    ) -> Partitions[Labelled]:
        data = self.rows.derive(_label, self.positive, C, entry, offset, kept=kept)
        remember_shape(data, Shape(self.n_rows, C * self.label_weights))
        return data

    def close(self) -> None:
        if self.is_own:
            self.rows.close()


def group_partitions(
    loss: Loss,
    rows: Partitions[Rows],
    shape: tuple[int, int],
    is_dense: bool,
    features: tuple[Array, int] | None,
    weights: Array,
    multi_class: str,
) -> list[Group]:
    """Return the binary problems of a classification, in groups; see `fitting.group_columns`.

    ``weights`` are those of all rows of each class.

    All classes share every pass over the data, sparse or not, if the loss allows: to read or send the rows once for
    each would cost more.
    """
    n_classes = len(weights)
    if multi_class == "ovo" and n_classes > 2:

        def prepare_pair(first: int, second: int, n_threads: int) -> TrainingData:
            pair = rows.derive(_take_pair, first, second, stored=True)
            (n_rows,) = pair.map_sum(_count_rows)
            both = weights[[second, first]][:, None]
            return PartitionedData(pair, (n_rows, shape[1]), np.array([second]), both, is_dense, features, is_own=True)

        return [
            Group(slice(k, k + 1), partial(prepare_pair, *pair))
            for k, pair in enumerate(combinations(range(n_classes), 2))
        ]
    positive = np.arange(n_classes) if n_classes > 2 else np.array([1])
    # the others are added up: as a difference, a light one beside a heavy class would lose its digits
    label_weights = np.stack([weights[positive], [np.delete(weights, k).sum() for k in positive]])

    def prepare(columns: slice, n_threads: int) -> TrainingData:
        return PartitionedData(rows, shape, positive[columns], label_weights[:, columns], is_dense, features)

    width = len(positive) if isinstance(loss, MomentLoss) else 1
    return [
        Group(columns, partial(prepare, columns))
        for columns in (slice(k, k + width) for k in range(0, len(positive), width))
    ]


# Functions of one partition ---------------------------------------------------------------------------------------


def code_rows(rows: Rows, coding: LabelEncoding) -> Rows:
    """Return the rows as the fit needs them, with the numbers of their classes and their final weights."""
    codes = np.searchsorted(coding.classes, np.asarray(rows.y).astype(coding.classes.dtype, copy=False))
    weights = np.ones(len(codes)) if rows.weights is None else np.asarray(rows.weights, dtype=np.float64)
    return Rows(rows.under(_prepare, coding), coding.numbers[codes], weights * coding.factors[codes])


def _prepare(X: Any, coding: LabelEncoding) -> Any:
    if not X.shape[0]:  # whatever its width
        X = no_rows(coding.n_features, coding.is_dense)
    if coding.blanked:
        X = missing.nan_to_negative_zero(X)
    X = X.astype(coding.dtype, copy=False)
    return X if coding.used is None else keep_columns(X, coding.used)


def _label(rows: Rows, positive: Array, C: float, entry: EntryFunction | None, offset: Array | None) -> Labelled:
    labels = np.where(rows.y[:, None] == positive, 1.0, -1.0)
    return Labelled(rows.under(_as_block, entry, offset), labels, C * rows.weights[:, None])


def _as_block(X: Any, entry: EntryFunction | None, offset: Array | None) -> Block:
    return row_block(subtract(X, offset), entry)


def _take_pair(rows: Rows, first: int, second: int) -> Rows:
    return _take(rows, np.flatnonzero((rows.y == first) | (rows.y == second)))


def _take_sample(rows: Rows, number: int) -> Rows:
    return _take(rows, _drawn(len(rows.y), number))


def _take(rows: Rows, which: Array) -> Rows:
    return Rows(rows.X[which], rows.y[which], rows.weights[which])


def _drawn(n_rows: int, number: int) -> Array:
    """Return the rows of a sample of the partition of this number, always the same ones."""
    return np.sort(np.random.default_rng([0, number]).choice(n_rows, size=n_rows // SAMPLE_EVERY, replace=False))


def _count_sample(rows: Rows, number: int, positive: Array, mean_weight: float) -> tuple[Array, Array, int]:
    """Return, of the rows of a sample, weight and number of those with the positive and with the negative label (a row
    each), and how many they are in all."""
    which = _drawn(len(rows.y), number)
    is_positive = rows.y[which, None] == positive
    labels = np.stack([is_positive, ~is_positive])
    weights = rows.weights[which]
    counted = weights > LITTLE_WEIGHT * mean_weight
    return np.einsum("i,lik->lk", weights, labels), np.count_nonzero(labels & counted[:, None], axis=1), len(which)


def _count_rows(rows: Rows) -> tuple[int]:
    return (len(rows.y),)


def _column_counts(rows: Rows) -> tuple[Array]:
    return (column_counts(rows.X),)


def _column_means(rows: Rows, total: float, columns: Array) -> tuple[Array]:
    return (column_means(rows.X, rows.weights / total, columns),)


def _column_spreads(rows: Rows, total: float, columns: Array, mean: Array) -> tuple[Array]:
    return (column_spreads(rows.X, rows.weights / total, columns, mean),)


def _column_sums(rows: Rows, blanked: bool) -> missing.Sums:
    return missing.column_sums(rows.X, rows.weights, blanked)


def _column_squares(rows: Rows, blanked: bool, mean: Array) -> tuple[Array]:
    return missing.column_squares(rows.X, rows.weights, blanked, mean)
