"""Training data: rows with the index of their class, and the rows of the outputs made of them, wherever they are.

`EncodedRows` are all rows of a classification or regression; `EncodedRows.open` makes the `OutputRows` of some outputs,
which a solver uses for several values of ``C``, of the noise or of the tolerance. Rows in memory are one partition, the
whole matrix, which `OutputRows` cuts into blocks; in files and on a cluster, each partition is one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import missing_values
from dropmargin.data.blocks import Block, EntryFunction
from dropmargin.data.encoding import stored_counts
from dropmargin.data.matrix import (
    ROUNDING,
    drop_empty_columns,
    is_dense_matrix,
    means_to_subtract,
    row_block,
    row_blocks,
    subtract,
)
from dropmargin.data.outputs import Output, binary_outputs, class_sums, output_targets, target_weights
from dropmargin.data.partitions import LocalPartitions, Partitions, PerPartition
from dropmargin.data.rows import Rows, TargetSummary, one_partition, set_target_summary
from dropmargin.typing import Array

#: A subsample has one row in so many.
SUBSAMPLE_EVERY = 10
# A subsample represents a target if it has so many of its rows, not counting those of very small weight, and at least
# this share of the weight to be expected.
_LEAST_OF_TARGET = 10
_SMALL_WEIGHT = 0.01
_REPRESENTED = 0.5
# A feature whose mean is at least three times its standard deviation has at most one zero in ten entries.
_FULL = 0.8


@dataclass(eq=False)
class EncodedRows:
    """All rows of a classification, with the index of their class (-1: none) and their weight; or of a regression.

    Parameters
    ----------
    rows : Partitions of Rows
        See `encoding.encode_rows`.
    n_rows, n_features : int
        The shape of ``X``.
    class_weights : ndarray of shape (n_classes,)
        The weight of all rows of each class. A regression has one class, and numbers in place of the index.
    is_dense : bool
    classes : ndarray of shape (n_classes,), default=None
        The labels; not those of a regression.
    used_features : tuple of ndarray and int, default=None
        The features that ``X`` has, and the number of all: the coefficients of the others are zero.
    has_missing : bool, default=False
        Whether minus zeros are missing entries.
    first_intercept : float, default=0.0
        The intercept to start from.
    is_matrix : bool, default=False
        Whether the rows are one matrix in memory.
    """

    rows: Partitions[Rows]
    n_rows: int
    n_features: int
    class_weights: Array
    is_dense: bool
    classes: Array | None = None
    used_features: tuple[Array, int] | None = None
    has_missing: bool = False
    first_intercept: float = 0.0
    is_matrix: bool = False
    _filled: dict[bytes, EncodedRows] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of_matrix(cls, X: Any, y: Array, sample_weight: Array, n_classes: int, **given: Any) -> EncodedRows:
        """Return rows in memory; ``y`` is the index of each row's class, or the targets of a regression.

        ``given`` are other parameters of the constructor.
        """
        n_all = X.shape[1]
        X, used = drop_empty_columns(X)
        return cls(
            one_partition(X, sample_weight, y),
            X.shape[0],
            X.shape[1],
            class_sums(y, sample_weight, n_classes),
            is_dense_matrix(X),
            used_features=None if used is None else (used, n_all),
            is_matrix=True,
            **given,
        )

    @property
    def n_classes(self) -> int:
        return len(self.class_weights)

    @property
    def shares_products(self) -> bool:
        """Whether the outputs of a one-vs-rest problem share their products.

        To read or send the rows once for each output would cost more than it saves.
        """
        return self.is_dense or not self.is_matrix

    def _of_all_features(self, values: Array) -> Array:
        """Return values of the features of ``X`` as those of all features; that of an empty one is 0."""
        if self.used_features is None:
            return values
        used, n_features = self.used_features
        out = np.zeros(n_features)
        out[used] = values
        return out

    @cached_property
    def _own_means(self) -> Array:
        return missing_values.feature_means(self.rows, self.has_missing)

    @cached_property
    def _own_deviations(self) -> Array:
        return missing_values.feature_deviations(self.rows, self.has_missing, self._own_means)

    @property
    def feature_means(self) -> Array:
        """The weighted mean of each feature's observed entries, see `missing_values.feature_means`."""
        return self._of_all_features(self._own_means)

    def feature_statistics(self) -> missing_values.FeatureStatistics:
        """Return mean and deviation of each feature's observed entries."""
        return missing_values.FeatureStatistics(self.feature_means, self._of_all_features(self._own_deviations))

    def own_statistics(self) -> tuple[Array, Array] | None:
        """Return mean and deviation of the features of ``X``; ``None`` if most entries of a sparse ``X`` are zero."""
        if not self._has_full_feature:
            return None
        return self._own_means, self._own_deviations

    def mean_square(self) -> float:
        """Return the weighted mean of the squared norm of a row; dense rows are centred."""
        mean, deviation = self._own_means, self._own_deviations
        square, centre = float(deviation @ deviation), float(mean @ mean)
        if not self.is_dense:
            return square + centre
        return square if square > ROUNDING * centre else 0.0

    def filled(self, values: Array) -> EncodedRows:
        """Return the rows with these values, one per feature, for missing entries; they are computed once."""
        own = values if self.used_features is None else values[self.used_features[0]]
        key = own.tobytes()
        if key not in self._filled:
            rows = self.rows.map_partitions(_fill_missing, own)
            self._filled[key] = replace(self, rows=rows, has_missing=False)
        return self._filled[key]

    @cached_property
    def by_class(self) -> EncodedRows:
        """The rows sorted by class if they are in memory, for products that are computed class by class."""
        return replace(self, rows=self.rows.map_partitions(_sort_by_class)) if self.is_matrix else self

    def means_far_from_zero(self, ratio: float) -> Array | None:
        """Return what to subtract from the features if the mean of one is ``ratio`` times its standard deviation.

        With an intercept the solution does not depend on a shift of the features, but its rounding errors do.
        """
        if not self._has_full_feature:
            return None
        return means_to_subtract(self._own_means, self._own_deviations, ratio, not self.is_dense)

    @cached_property
    def _has_full_feature(self) -> bool:
        """Whether nearly all entries of a feature are stored; if not, its mean is not far from zero."""
        if self.is_dense:
            return True
        (counts,) = self.rows.map_sum(stored_counts)
        return bool(np.any(counts >= _FULL * self.n_rows))

    def outputs(self, multi_class: str) -> list[Output]:
        """Return the outputs: the classes against the rest, or their pairs; one of a regression."""
        return binary_outputs(self.n_classes, multi_class)

    def open(self, outputs: Sequence[Output], n_threads: int = 1) -> OutputRows:
        """Return the rows of some outputs: of several classes against the rest, or of one pair.

        ``n_threads`` work on blocks of a matrix in memory; partitions elsewhere have threads or workers of their own.
        """
        if outputs[0].negative is None:
            return OutputRows(self, outputs, n_threads)
        (pair,) = outputs
        rows = self.rows.map_partitions(_take_pair, pair, stored=True)
        (n_rows,) = rows.map_sum(_count_rows)
        weights = np.where(pair.takes_part(np.arange(self.n_classes)), self.class_weights, 0.0)
        return OutputRows(replace(self, rows=rows, n_rows=n_rows, class_weights=weights), outputs, n_threads, True)


class Subsample(NamedTuple):
    """Some of the rows, and their share of the weight of all."""

    rows: OutputRows
    weight_share: float


class OutputRows:
    """Rows with targets, -1 or +1 or the numbers of a regression, one column per output, which are solved together.

    Parameters
    ----------
    source : EncodedRows
        The rows that take part.
    outputs : sequence of Output
    n_threads : int
    is_own : bool, default=False
        Whether to close the partitions of ``source`` with these rows.
    """

    def __init__(self, source: EncodedRows, outputs: Sequence[Output], n_threads: int, is_own: bool = False) -> None:
        self.source, self.n_threads, self.is_own = source, n_threads, is_own
        self.n_rows, self.n_features, self.is_dense = source.n_rows, source.n_features, source.is_dense
        self.outputs, self.n_outputs = outputs, len(outputs)
        self.target_weights = target_weights(outputs, source.class_weights)
        self._caches: dict[bool, dict[Any, Any]] = {}
        self._blocks: dict[Any, list[Rows]] = {}

    def with_outputs(self, index: Array) -> OutputRows:
        """Return the same rows, not copied, with some of the outputs, which may be repeated."""
        rows = copy(self)
        rows.outputs, rows.n_outputs = [self.outputs[k] for k in index], len(index)
        rows.target_weights = self.target_weights[:, index]
        return rows

    def subsample(self) -> Subsample | None:
        """Return a subsample, always the same one; ``None`` if it does not represent each target of each output."""
        source, numbers = self.source, PerPartition(range(self.source.rows.n_partitions))
        total = float(source.class_weights.sum())
        smallest = _SMALL_WEIGHT * total / self.n_rows
        weights, counts, n_rows = source.rows.map_sum(_count_subsample, numbers, source.n_classes, smallest)
        is_light = SUBSAMPLE_EVERY * target_weights(self.outputs, weights) < _REPRESENTED * self.target_weights
        is_few = target_weights(self.outputs, counts) < _LEAST_OF_TARGET
        if np.any((is_light | is_few) & (self.target_weights > 0.0)):
            return None
        rows = source.rows.map_partitions(_take_subsample, numbers, stored=True)
        part = replace(source, rows=rows, n_rows=n_rows, class_weights=weights, used_features=None)
        return Subsample(OutputRows(part, self.outputs, self.n_threads, True), float(weights.sum()) / total)

    def partitions(self, C: float, entry: EntryFunction | None, feature_means: Array | None) -> Partitions[Rows]:
        """Return the rows less ``feature_means`` as blocks, with their targets and ``C`` times their weights."""
        shared_cache = self._caches.setdefault(feature_means is not None, {})
        if self.source.is_matrix:
            blocks = self._cut(entry, feature_means)
            parts = [_with_targets(rows, self.outputs, C) for rows in blocks]
            data: Partitions[Rows] = LocalPartitions(parts, self.n_threads, shared_cache)
        else:
            given = self.outputs, C, entry, feature_means
            data = self.source.rows.map_partitions(_block_with_targets, *given, shared_cache=shared_cache)
        set_target_summary(data, TargetSummary(self.n_rows, C * self.target_weights))
        return data

    def _cut(self, entry: EntryFunction | None, feature_means: Array | None) -> list[Rows]:
        """Return the matrix as blocks of rows, which are made once: they cache what is computed of their entries."""
        key = entry, feature_means is not None
        if key not in self._blocks:
            # One kind at a time: blocks may hold copies.
            self._blocks.clear()
            rows = (self.source.rows.rows_in_memory() or [])[0]
            blocks = row_blocks(subtract(rows.X, feature_means), entry)
            edges = np.cumsum([0] + [block.n_rows for block in blocks])
            self._blocks[key] = [
                Rows(block, rows.y[begin:end], rows.sample_weight[begin:end])
                for block, begin, end in zip(blocks, edges[:-1], edges[1:], strict=True)
            ]
        return self._blocks[key]

    def close(self) -> None:
        """Release what these rows alone use."""
        if self.is_own:
            self.source.rows.close()

    def __enter__(self) -> OutputRows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Functions of one partition ---------------------------------------------------------------------------------------


def _block_with_targets(
    rows: Rows, outputs: Sequence[Output], C: float, entry: EntryFunction | None, feature_means: Array | None
) -> Rows:
    block = rows.transformed(_as_block, entry, feature_means)
    return _with_targets(Rows(block, rows.y, rows.sample_weight), outputs, C)


def _as_block(X: Any, entry: EntryFunction | None, feature_means: Array | None) -> Block:
    return row_block(subtract(X, feature_means), entry)


def _with_targets(rows: Rows, outputs: Sequence[Output], C: float) -> Rows:
    return rows.with_targets(output_targets(outputs, rows.y), C * rows.sample_weight)


def _take_pair(rows: Rows, output: Output) -> Rows:
    return rows.take(np.flatnonzero(output.takes_part(rows.y)))


def _sort_by_class(rows: Rows) -> Rows:
    order = np.argsort(rows.y, kind="stable")
    return rows if np.array_equal(order, np.arange(len(order))) else rows.take(order)


def _take_subsample(rows: Rows, number: int) -> Rows:
    return rows.take(_drawn(len(rows.y), number))


def _drawn(n_rows: int, number: int) -> Array:
    """Return the rows of a subsample of the partition of this number, always the same ones.

    They are drawn at random and not every tenth row: rows may come in an order that has a period.
    """
    size = n_rows // SUBSAMPLE_EVERY
    return np.sort(np.random.default_rng([0, number]).choice(n_rows, size=size, replace=False))


def _count_subsample(rows: Rows, number: int, n_classes: int, smallest: float) -> tuple[Array, Array, int]:
    """Return by class the weight of a subsample and its rows of more than the smallest weight; and its size."""
    index = _drawn(len(rows.y), number)
    y, weights = rows.y[index], rows.sample_weight[index]
    return class_sums(y, weights, n_classes), class_sums(y, weights > smallest, n_classes), len(index)


def _count_rows(rows: Rows) -> tuple[int]:
    return (len(rows.y),)


def _fill_missing(rows: Rows, values: Array) -> Rows:
    filled = rows.transformed(missing_values.fill_missing, values)
    return Rows(filled, rows.y, rows.sample_weight)
