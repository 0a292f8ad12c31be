"""Training data: rows with the index of their class, wherever they are, and the blocks that an objective needs."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import missing_values
from dropmargin.data.blocks import Block, FeatureGroups, Rows, cut, one_partition, slice_rows
from dropmargin.data.matrix import (
    ROUNDING,
    column_counts,
    has_full_columns,
    is_dense_matrix,
    means_to_subtract,
    nonempty_features,
    subtract,
    take_columns,
)
from dropmargin.data.outputs import Output, binary_outputs, class_sums, target_weights
from dropmargin.data.partitions import LocalPartitions, Partitions
from dropmargin.data.variance import Variance
from dropmargin.typing import Array

#: A subsample has one row in so many.
SUBSAMPLE_EVERY = 10
# A subsample represents a target if it has so many of its rows, not counting those of very small weight, and at least
# this share of the weight to be expected.
_LEAST_OF_TARGET, _SMALL_WEIGHT, _REPRESENTED = 10, 0.01, 0.5
# A feature whose mean is at least three times its standard deviation has at most one zero in ten entries.
_FULL = 0.8
# Dense rows in memory are cut into blocks of at least this many entries, for threads; their number is limited by a
# constant, so that results do not depend on the number of threads.
_BLOCK_ENTRIES, _MAX_BLOCKS = 2**19, 8


class Columns(NamedTuple):
    """The features of blocks: their indices, in this order, and the number of all features."""

    features: Array
    n_all: int

    def restore(self, coef: Array) -> Array:
        """Return coefficients of all features, zero for those that the blocks do not have; intercept last."""
        out = np.zeros((self.n_all + 1, coef.shape[1]))
        out[np.append(self.features, self.n_all)] = coef
        return out

    def select(self, coef: Array) -> Array:
        """Return the coefficients of the features of the blocks."""
        return coef[np.append(self.features, self.n_all)]


@dataclass(eq=False)
class TrainingData:
    """All rows of a classification, with the index of their class (-1: none) and their weight; or of a regression.

    Parameters
    ----------
    rows : Partitions of Rows
    n_rows, n_features : int
        The shape of ``X``.
    class_weights : ndarray of shape (n_classes,)
        The weight of all rows of each class. A regression has one class, and numbers in place of the index.
    is_dense : bool
    n_stored : int
        The number of stored entries.
    classes : ndarray of shape (n_classes,), default=None
        The labels; not those of a regression.
    has_missing : bool, default=False
        Whether minus zeros are missing entries.
    first_intercept : float, default=0.0
        The intercept to start a regression from.
    """

    rows: Partitions
    n_rows: int
    n_features: int
    class_weights: Array
    is_dense: bool
    n_stored: int
    classes: Array | None = None
    has_missing: bool = False
    first_intercept: float = 0.0
    cache: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_matrix(cls, X: Any, y: Array, sample_weight: Array, n_classes: int, **given: Any) -> TrainingData:
        """Return rows in memory; ``y`` is the index of each row's class, or the targets of a regression."""
        weights = class_sums(y, sample_weight, n_classes)
        rows = one_partition(X, sample_weight, y)
        return cls(rows, X.shape[0], X.shape[1], weights, is_dense_matrix(X), int(X.size), **given)

    @property
    def n_classes(self) -> int:
        return len(self.class_weights)

    @property
    def weight(self) -> float:
        """The weight of all rows."""
        return float(self.class_weights.sum())

    @property
    def is_matrix(self) -> bool:
        """Whether the rows are one matrix in memory."""
        return self.rows.single() is not None

    @cached_property
    def feature_means(self) -> Array:
        """The weighted mean of each feature's observed entries."""
        return missing_values.feature_means(self.rows, self.has_missing)

    @cached_property
    def feature_deviations(self) -> Array:
        """The standard deviation of each feature's observed entries."""
        return missing_values.feature_deviations(self.rows, self.has_missing, self.feature_means)

    def mean_square(self) -> float:
        """Return the weighted mean of the squared norm of a row; dense rows are centred."""
        mean, deviation = self.feature_means, self.feature_deviations
        square, centre = float(deviation @ deviation), float(mean @ mean)
        if not self.is_dense:
            return square + centre
        return square if square > ROUNDING * centre else 0.0

    def filled(self, values: Array) -> TrainingData:
        """Return the rows with these values, one per feature, for missing entries; they are computed once."""
        key = "filled", values.tobytes()
        if key not in self.cache:
            self.cache[key] = replace(self, rows=self.rows.transformed(_fill_missing, values), has_missing=False)
        return self.cache[key]

    def outputs(self, multi_class: str) -> list[Output]:
        """Return the outputs: the classes against the rest, or their pairs; one of a regression."""
        return binary_outputs(self.n_classes, multi_class)

    def of_pair(self, pair: Output) -> TrainingData:
        """Return the rows of two classes."""
        key = "pair", pair
        if key not in self.cache:
            rows = self.rows.transformed(_take_pair, pair)
            n_rows, n_stored = rows.map_sum(_sizes)
            weights = np.where(pair.takes_part(np.arange(self.n_classes)), self.class_weights, 0.0)
            self.cache[key] = replace(self, rows=rows, n_rows=n_rows, n_stored=n_stored, class_weights=weights)
        return self.cache[key]

    def subsample(self, outputs: Sequence[Output]) -> TrainingData | None:
        """Return a subsample, always the same one; ``None`` if it does not represent each target of each output."""
        smallest = _SMALL_WEIGHT * self.weight / self.n_rows
        rows = self.rows.transformed(_take_subsample)
        weights, counts, n_rows, n_stored = rows.map_sum(_count_targets, self.n_classes, smallest)
        own = target_weights(outputs, self.class_weights)
        is_light = SUBSAMPLE_EVERY * target_weights(outputs, weights) < _REPRESENTED * own
        is_few = target_weights(outputs, counts) < _LEAST_OF_TARGET
        if np.any((is_light | is_few) & (own > 0.0)):
            return None
        return replace(self, rows=rows, n_rows=n_rows, n_stored=n_stored, class_weights=weights)

    # What an objective needs -----------------------------------------------------------------------------------------

    @cached_property
    def used_features(self) -> Array | None:
        """The features of sparse rows that are not empty; ``None`` if few are empty, or rows are dense.

        With few rows and many (or hashed) features, most time is spent on vectors with one entry per feature.
        """
        if self.is_dense or has_full_columns(self.n_stored, self.n_features):
            return None
        return nonempty_features(self._stored_counts)

    def columns(self, variance: Variance) -> Columns:
        """Return the features of the blocks: those that are not empty, sorted by group."""
        index = np.arange(self.n_features) if self.used_features is None else self.used_features
        if variance.groups is not None:
            index = index[np.argsort(variance.groups[index], kind="stable")]
        return Columns(index, self.n_features)

    def means_far_from_zero(self, ratio: float) -> Array | None:
        """Return what to subtract from the features if the mean of one is ``ratio`` times its standard deviation.

        With an intercept the solution does not depend on a shift of the features, but its rounding errors do.
        """
        if not self._has_full_feature:
            return None
        return means_to_subtract(self.feature_means, self.feature_deviations, ratio, not self.is_dense)

    @cached_property
    def _has_full_feature(self) -> bool:
        """Whether nearly all entries of a feature are stored; if not, its mean is not far from zero."""
        return self.is_dense or bool(np.any(self._stored_counts >= _FULL * self.n_rows))

    @cached_property
    def _stored_counts(self) -> Array:
        """The number of stored entries of each feature."""
        return self.rows.map_sum(_stored_counts)[0]

    def blocks(self, variance: Variance, columns: Columns, means: Array | None, n_threads: int = 1) -> Partitions:
        """Return the rows less ``means`` as blocks with the features of ``columns``.

        ``variance`` is that of these features, less the means. The matrix of rows in memory, and the blocks of the last
        variance, are kept from one call to the next: outputs and values of ``C`` share them.
        """
        key = columns.features.tobytes(), None if means is None else means.tobytes()
        known = self.cache.get("matrix")
        if known is None or known[0] != key:
            is_all = np.array_equal(columns.features, np.arange(self.n_features))
            matrix = self.rows.transformed(_prepare, None if is_all else columns.features, means)
            if self.is_matrix:
                matrix = _cut(matrix.single())
            known = self.cache["matrix"] = key, matrix
        groups = variance.groups
        numbers = (
            variance.linear,
            variance.quadratic,
            variance.constant,
            variance.slope,
            -1 if groups is None else groups,
        )
        noise = variance.entry, *(np.asarray(own).tobytes() for own in numbers)
        last = self.cache.get("blocks")
        if last is None or last[0] is not known[1] or last[1] != noise:
            own_groups = None if groups is None else FeatureGroups.of(variance, len(columns.features))
            last = self.cache["blocks"] = known[1], noise, known[1].transformed(_as_block, variance, own_groups)
        blocks = copy(last[2])
        if isinstance(blocks, LocalPartitions):
            blocks.n_threads = n_threads
        return blocks


# Functions of one partition ---------------------------------------------------------------------------------------


def _prepare(rows: Rows, index: Array | None, means: Array | None) -> Rows:
    X = subtract(rows.X, means)
    return Rows(X if index is None else take_columns(X, index), rows.y, rows.sample_weight)


def _cut(rows: Rows) -> LocalPartitions:
    """Return dense rows in memory as several partitions, sparse ones as one."""
    count = min(_MAX_BLOCKS, max(1, rows.X.size // _BLOCK_ENTRIES)) if is_dense_matrix(rows.X) else 1
    return LocalPartitions([slice_rows(rows, *ends) for ends in cut(rows.X, count)] if count > 1 else [rows])


def _as_block(rows: Rows, variance: Variance, groups: FeatureGroups | None) -> Block:
    return Block(rows.X, rows.y, rows.sample_weight, variance, groups)


def _take_pair(rows: Rows, output: Output) -> Rows:
    return rows.take(np.flatnonzero(output.takes_part(rows.y)))


def _take_subsample(rows: Rows) -> Rows:
    """Return rows drawn at random, always the same ones; rows may come in an order that has a period."""
    size = len(rows) // SUBSAMPLE_EVERY
    return rows.take(np.sort(np.random.default_rng([0, rows.number]).choice(len(rows), size=size, replace=False)))


def _count_targets(rows: Rows, n_classes: int, smallest: float) -> tuple[Array, Array, int, int]:
    """Return by class the weight of some rows and the number of those of more than the smallest weight; and sizes."""
    y, weights = rows.y, rows.sample_weight
    return class_sums(y, weights, n_classes), class_sums(y, weights > smallest, n_classes), *_sizes(rows)


def _sizes(rows: Rows) -> tuple[int, int]:
    return len(rows), int(rows.X.size)


def _stored_counts(rows: Rows) -> tuple[Array]:
    return (column_counts(rows.X),)


def _fill_missing(rows: Rows, values: Array) -> Rows:
    return Rows(missing_values.fill_missing(rows.X, values), rows.y, rows.sample_weight, rows.number)
