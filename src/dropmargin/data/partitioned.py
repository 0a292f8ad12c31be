"""Training data whose rows are nowhere one matrix: what `data.training` does for arrays, partition by partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from dropmargin.data import missing_values
from dropmargin.data.blocks import Block, EntryFunction
from dropmargin.data.matrix import (
    ROUNDING,
    column_counts,
    column_means,
    column_variances,
    full_columns,
    has_full_columns,
    keep_columns,
    means_to_subtract,
    no_rows,
    nonempty_features,
    row_block,
    subtract,
)
from dropmargin.data.outputs import Output
from dropmargin.data.partitions import Partitions, PerPartition
from dropmargin.data.rows import Rows, TargetSummary, set_target_summary
from dropmargin.data.training import (
    SMALL_WEIGHT,
    SUBSAMPLE_EVERY,
    BinaryRows,
    ClassRows,
    Subsample,
    is_represented,
)
from dropmargin.typing import Array


@dataclass(frozen=True)
class LabelEncoding:
    """How the rows and labels of all partitions become numbers.

    Parameters
    ----------
    classes : ndarray
        All labels, sorted.
    index, factors : ndarray, one per class
        The index of each among those with any weight, or -1; the factor of its weights. In a regression, where each
        target is a class, the targets and ones.
    n_features : int
    is_dense : bool
    dtype : dtype
        Of the rows.
    has_missing : bool
        Whether NaN becomes minus zero.
    used : ndarray or None
        The features to keep, if only some are not empty.
    """

    classes: Array
    index: Array
    factors: Array
    n_features: int
    is_dense: bool
    dtype: Any
    has_missing: bool
    used: Array | None = None


def encode_rows(rows: Rows, encoding: LabelEncoding) -> Rows:
    """Return the rows as a fit needs them, with the index of their class and their final weights."""
    classes = np.searchsorted(encoding.classes, np.asarray(rows.y).astype(encoding.classes.dtype, copy=False))
    weights = np.ones(len(classes)) if rows.sample_weight is None else np.asarray(rows.sample_weight, dtype=np.float64)
    return Rows(rows.transformed(_prepare, encoding), encoding.index[classes], weights * encoding.factors[classes])


def find_used_features(data: Partitions[Rows], n_stored: int, n_features: int, is_dense: bool) -> Array | None:
    """Return the features that are not empty, if it is worth dropping the others."""
    if is_dense or has_full_columns(n_stored, n_features):
        return None
    (counts,) = data.map_sum(_column_counts)
    return nonempty_features(counts > 0)


def feature_statistics(data: Partitions[Rows], has_missing: bool) -> missing_values.FeatureStatistics:
    """Return mean and deviation of each feature's observed entries, see `missing_values.feature_statistics`."""
    return missing_values.statistics_by_sums(
        data.map_sum(_mean_sums, has_missing), partial(data.map_sum, _feature_squares, has_missing)
    )


def mean_square(data: Partitions[Rows], is_dense: bool) -> float:
    """Return the weighted mean of the squared norm of a row, as `matrix.mean_square`: dense rows are centred."""
    mean, deviation, *_ = feature_statistics(data, False)
    assert deviation is not None
    square, centre = float(deviation @ deviation), float(mean @ mean)
    if not is_dense:
        return square + centre
    return square if square > ROUNDING * centre else 0.0


class ClassPartitions(ClassRows):
    """Encoded rows in partitions.

    All classes share every pass over the data, sparse or not: to read or send the rows once for each would cost more.

    Parameters
    ----------
    rows : Partitions of Rows
        See `encode_rows`.
    shape : tuple of int
        Rows and features of ``X``.
    class_weights : ndarray of shape (n_classes,)
        The weight of all rows of each class.
    is_dense : bool
    used_features : tuple of ndarray and int, default=None
        See `BinaryRows`.
    has_missing : bool, default=False
    """

    shares_products = True

    def __init__(
        self,
        rows: Partitions[Rows],
        shape: tuple[int, int],
        class_weights: Array,
        is_dense: bool,
        used_features: tuple[Array, int] | None = None,
        has_missing: bool = False,
    ) -> None:
        self.rows = rows
        self.shape = shape
        self.has_missing = has_missing
        self.n_features, self.n_classes = shape[1], len(class_weights)
        self.class_weights = class_weights
        self.is_dense = is_dense
        self.used_features = used_features

    @cached_property
    def feature_means(self) -> Array:
        means = missing_values.means_by_sums(*self.rows.map_sum(_mean_sums, self.has_missing))
        if self.used_features is None:
            return means
        used, n_features = self.used_features
        whole = np.zeros(n_features)
        whole[used] = means
        return whole

    @cached_property
    def filled(self) -> ClassPartitions:
        means = self.feature_means if self.used_features is None else self.feature_means[self.used_features[0]]
        rows = self.rows.map_partitions(_fill_missing, means)
        return ClassPartitions(rows, self.shape, self.class_weights, self.is_dense, self.used_features)

    def open(self, outputs: Sequence[Output], n_threads: int = 1) -> BinaryPartitions:
        weights, positive = self.class_weights, np.array([output.positive for output in outputs])
        if outputs[0].negative is not None:
            (output,) = outputs
            rows = self.rows.map_partitions(_take_pair, output, stored=True)
            (n_rows,) = rows.map_sum(_count_rows)
            both = np.stack([weights[output.positive], weights[output.negative]])[:, None]
            shape = n_rows, self.shape[1]
            return BinaryPartitions(rows, shape, positive, both, self.is_dense, self.used_features, is_own=True)
        # The others are added up: a difference would lose the digits of a small weight beside a large one.
        both = np.stack([weights[positive], [np.delete(weights, k).sum() for k in positive]])
        return BinaryPartitions(self.rows, self.shape, positive, both, self.is_dense, self.used_features)


class NumberPartitions(ClassPartitions):
    """Rows in partitions with the numbers that a regression is to predict in place of classes: one output."""

    #: The intercept to start from.
    first_intercept = 0.0

    @cached_property
    def filled(self) -> NumberPartitions:
        means = self.feature_means if self.used_features is None else self.feature_means[self.used_features[0]]
        rows = self.rows.map_partitions(_fill_missing, means)
        filled = NumberPartitions(rows, self.shape, self.class_weights, self.is_dense, self.used_features)
        filled.first_intercept = self.first_intercept
        return filled

    def outputs(self, multi_class: str) -> list[Output]:
        return [Output(0)]

    def open(self, outputs: Sequence[Output], n_threads: int = 1) -> BinaryPartitions:
        both = np.array([[self.class_weights.sum()], [0.0]])
        rows = _NumberRows(self.rows, self.shape, np.zeros(1), both, self.is_dense, self.used_features)
        rows.first_intercept = self.first_intercept
        return rows


class BinaryPartitions(BinaryRows):
    """Encoded rows in partitions, as the rows of some outputs.

    Parameters
    ----------
    rows : Partitions of Rows
    shape : tuple of int
        Rows and features of ``X``.
    positive : ndarray of int
        The class with target +1, for each output; all others have -1.
    target_weights : ndarray of shape (2, n_outputs)
        The weight of all rows with target +1, and of those with -1.
    is_dense : bool
    is_own : bool, default=False
        Whether to close the partitions with these rows.
    """

    def __init__(
        self,
        rows: Partitions[Rows],
        shape: tuple[int, int],
        positive: Array,
        target_weights: Array,
        is_dense: bool,
        used_features: tuple[Array, int] | None = None,
        is_own: bool = False,
    ) -> None:
        super().__init__((*shape, len(positive)), is_dense, used_features)
        self.rows = rows
        self.positive = positive
        self.target_weights = target_weights
        self.weight = float(target_weights[:, 0].sum())
        self.is_own = is_own

    def subsample(self) -> Subsample | None:
        numbers = PerPartition(range(self.rows.n_partitions))
        inside, number, n_rows = self.rows.map_sum(_count_subsample, numbers, self.positive, self.weight / self.n_rows)
        if not is_represented(inside, self.target_weights, number):
            return None
        rows = self.rows.map_partitions(_take_subsample, numbers, stored=True)
        shape = n_rows, self.n_features
        part = BinaryPartitions(rows, shape, self.positive, inside, self.is_dense, is_own=True)
        return Subsample(part, part.weight / self.weight)

    def _find_means(self, ratio: float) -> Array | None:
        full = np.arange(self.n_features)
        if not self.is_dense:
            (counts,) = self.rows.map_sum(_column_counts)
            full = full_columns(counts, self.n_rows)
            if not len(full):
                return None
        (mean,) = self.rows.map_sum(_column_means, self.weight, full)
        (square,) = self.rows.map_sum(_column_variances, self.weight, full, mean)
        return means_to_subtract(mean, square, full, self.n_features, ratio, not self.is_dense)

    @property
    def _set_targets(self) -> Any:
        """The function of a partition that sets the targets."""
        return _with_targets

    def _partitions(
        self, C: float, entry: EntryFunction | None, feature_means: Array | None, shared_cache: dict[Any, Any]
    ) -> Partitions[Rows]:
        args = self.positive, C, entry, feature_means
        data = self.rows.map_partitions(self._set_targets, *args, shared_cache=shared_cache)
        set_target_summary(data, TargetSummary(self.n_rows, C * self.target_weights))
        return data

    def close(self) -> None:
        if self.is_own:
            self.rows.close()


class _NumberRows(BinaryPartitions):
    """Rows in partitions whose targets are numbers."""

    @property
    def _set_targets(self) -> Any:
        return _with_numbers

    def subsample(self) -> None:
        return None


# Functions of one partition ---------------------------------------------------------------------------------------


def _prepare(X: Any, encoding: LabelEncoding) -> Any:
    if not X.shape[0]:  # whatever its width
        X = no_rows(encoding.n_features, encoding.is_dense)
    if encoding.has_missing:
        X = missing_values.nan_to_negative_zero(X)
    X = X.astype(encoding.dtype, copy=False)
    return X if encoding.used is None else keep_columns(X, encoding.used)


def _with_targets(
    rows: Rows, positive: Array, C: float, entry: EntryFunction | None, feature_means: Array | None
) -> Rows:
    targets = np.where(rows.y[:, None] == positive, 1.0, -1.0)
    return Rows(rows.transformed(_as_block, entry, feature_means), targets, C * rows.sample_weight)


def _with_numbers(rows: Rows, _: Array, C: float, entry: EntryFunction | None, feature_means: Array | None) -> Rows:
    return Rows(rows.transformed(_as_block, entry, feature_means), rows.y[:, None], C * rows.sample_weight)


def _as_block(X: Any, entry: EntryFunction | None, feature_means: Array | None) -> Block:
    return row_block(subtract(X, feature_means), entry)


def _take_pair(rows: Rows, output: Output) -> Rows:
    return rows.take(np.flatnonzero(output.takes_part(rows.y)))


def _take_subsample(rows: Rows, number: int) -> Rows:
    return rows.take(_drawn(len(rows.y), number))


def _drawn(n_rows: int, number: int) -> Array:
    """Return the rows of a subsample of the partition of this number, always the same ones."""
    size = n_rows // SUBSAMPLE_EVERY
    return np.sort(np.random.default_rng([0, number]).choice(n_rows, size=size, replace=False))


def _count_subsample(rows: Rows, number: int, positive: Array, mean_weight: float) -> tuple[Array, Array, int]:
    """Return weight and number of the rows of a subsample with either target, a row each, and the number of all."""
    index = _drawn(len(rows.y), number)
    is_positive = rows.y[index, None] == positive
    targets = np.stack([is_positive, ~is_positive])
    weights = rows.sample_weight[index]
    counted = weights > SMALL_WEIGHT * mean_weight
    return np.einsum("i,lik->lk", weights, targets), np.count_nonzero(targets & counted[:, None], axis=1), len(index)


def _count_rows(rows: Rows) -> tuple[int]:
    return (len(rows.y),)


def _column_counts(rows: Rows) -> tuple[Array]:
    return (column_counts(rows.X),)


def _column_means(rows: Rows, total: float, columns: Array) -> tuple[Array]:
    return (column_means(rows.X, rows.sample_weight / total, columns),)


def _column_variances(rows: Rows, total: float, columns: Array, mean: Array) -> tuple[Array]:
    return (column_variances(rows.X, rows.sample_weight / total, columns, mean),)


def _mean_sums(rows: Rows, has_missing: bool) -> missing_values.Sums:
    return missing_values.mean_sums(rows.X, rows.sample_weight, has_missing)


def _fill_missing(rows: Rows, values: Array) -> Rows:
    filled = rows.transformed(missing_values.fill_missing, values)
    return Rows(filled, rows.y, rows.sample_weight)


def _feature_squares(rows: Rows, has_missing: bool, mean: Array) -> tuple[Array, Array]:
    return missing_values.feature_squares(rows.X, rows.sample_weight, has_missing, mean)
