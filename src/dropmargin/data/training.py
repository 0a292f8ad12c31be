"""Training data: rows with the index of their class, and the binary problems made of them.

`ClassRows` are all rows of a classification; `ClassRows.open` makes the `BinaryRows` of some outputs, which a solver
uses for several values of ``C``, of the noise or of the tolerance. `ClassArray` and `BinaryArray` are those in memory;
`data.partitioned` has those in partitions elsewhere. A regression has one output, whose targets are the numbers
themselves: `NumberArray` has the interface of `ClassRows` for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data.blocks import Block, EntryFunction
from dropmargin.data.matrix import (
    drop_empty_columns,
    feature_means_far_from_zero,
    is_dense_matrix,
    row_blocks,
    subtract,
)
from dropmargin.data.missing_values import feature_means, fill_missing
from dropmargin.data.outputs import Output, binary_outputs
from dropmargin.data.partitions import LocalPartitions, Partitions
from dropmargin.data.rows import Rows
from dropmargin.typing import Array

#: A subsample has one row in so many.
SUBSAMPLE_EVERY = 10
# A subsample represents a target if it has so many of its rows, not counting those of very small weight, and at least
# this share of the weight to be expected.
_LEAST_OF_TARGET = 10
SMALL_WEIGHT = 0.01
_REPRESENTED = 0.5


class Subsample(NamedTuple):
    """Some of the rows, and their share of the weight of all."""

    rows: BinaryRows
    weight_share: float


class BinaryRows(ABC):
    """Rows with targets, -1 or +1 or the numbers of a regression, one column per output, which are solved together.

    Parameters
    ----------
    shape : tuple of int
        Rows, features and outputs.
    is_dense : bool
    used_features : tuple of ndarray and int, default=None
        The features that ``X`` has, and the number of all: the coefficients of the others are zero.
    """

    #: The intercept to start from.
    first_intercept = 0.0

    def __init__(
        self, shape: tuple[int, int, int], is_dense: bool, used_features: tuple[Array, int] | None = None
    ) -> None:
        self.n_rows, self.n_features, self.n_outputs = shape
        self.is_dense = is_dense
        self.used_features = used_features
        self._means: dict[float, Array | None] = {}
        self._caches: dict[bool, dict[Any, Any]] = {}

    @abstractmethod
    def subsample(self) -> Subsample | None:
        """Return a subsample, always the same one; ``None`` if it does not represent each target of each output."""

    @abstractmethod
    def _find_means(self, ratio: float) -> Array | None: ...

    @abstractmethod
    def _partitions(
        self, C: float, entry: EntryFunction | None, feature_means: Array | None, shared_cache: dict[Any, Any]
    ) -> Partitions[Rows]: ...

    def means_far_from_zero(self, ratio: float) -> Array | None:
        """Return what to subtract from the features if the mean of one is ``ratio`` times its standard deviation."""
        if ratio not in self._means:
            self._means[ratio] = self._find_means(ratio)
        return self._means[ratio]

    def partitions(self, C: float, entry: EntryFunction | None, feature_means: Array | None) -> Partitions[Rows]:
        """Return the rows less ``feature_means`` as blocks, with their targets and ``C`` times their weights."""
        shared_cache = self._caches.setdefault(feature_means is not None, {})
        return self._partitions(C, entry, feature_means, shared_cache)

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Release what these rows alone use."""

    def __enter__(self) -> BinaryRows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ClassRows(ABC):
    """All rows of a classification, with the index of their class (-1: none) and their weight; or of a regression."""

    n_features: int
    n_classes: int
    #: Whether the outputs of a one-vs-rest problem share their products.
    shares_products: bool
    #: Whether minus zeros are missing entries.
    has_missing: bool

    @cached_property
    @abstractmethod
    def feature_means(self) -> Array:
        """The weighted mean of each feature's observed entries, by one pass over the rows."""

    @cached_property
    @abstractmethod
    def filled(self) -> ClassRows:
        """The rows with the feature means for missing entries."""

    @property
    def by_class(self) -> ClassRows:
        """The rows sorted by class if they are in memory, for products that are computed class by class."""
        return self

    def outputs(self, multi_class: str) -> list[Output]:
        """Return the outputs: the classes against the rest, or their pairs."""
        return binary_outputs(self.n_classes, multi_class)

    @abstractmethod
    def open(self, outputs: Sequence[Output], n_threads: int = 1) -> BinaryRows:
        """Return the rows of some outputs: of several classes against the rest, or of one pair."""


class ClassArray(ClassRows):
    """Rows in memory as one matrix.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
    classes : ndarray of shape (n_samples,)
        The index of each row's class, -1 for none; in a regression, the targets.
    sample_weight : ndarray of shape (n_samples,)
    n_classes : int
    has_missing : bool, default=False
    """

    def __init__(self, X: Any, classes: Array, sample_weight: Array, n_classes: int, has_missing: bool = False) -> None:
        self.X, self.classes, self.sample_weight = X, classes, sample_weight
        self.has_missing = has_missing
        self.n_features, self.n_classes = X.shape[1], n_classes
        self.shares_products = is_dense_matrix(X)
        self._whole: tuple[Any, tuple[Array, int] | None] | None = None
        self._means: dict[float, Array | None] = {}  # of the rows of all classes, which all outputs share

    @cached_property
    def feature_means(self) -> Array:
        return feature_means(self.X, self.sample_weight, self.has_missing)

    @cached_property
    def filled(self) -> ClassArray:
        X = fill_missing(self.X, self.feature_means)
        return ClassArray(X, self.classes, self.sample_weight, self.n_classes)

    @cached_property
    def by_class(self) -> ClassArray:
        order = np.argsort(self.classes, kind="stable")
        if np.array_equal(order, np.arange(len(order))):
            return self
        rows = self.X[order], self.classes[order], self.sample_weight[order]
        return ClassArray(*rows, self.n_classes, self.has_missing)

    def open(self, outputs: Sequence[Output], n_threads: int = 1) -> BinaryArray:
        if outputs[0].negative is not None:
            (output,) = outputs
            index = np.flatnonzero(output.takes_part(self.classes))
            targets = output.targets(self.classes[index])[:, None]
            return BinaryArray(self.X[index], targets, self.sample_weight[index], n_threads)
        X, used_features = self._without_empty_columns()
        targets = np.stack([output.targets(self.classes) for output in outputs], axis=1)
        rows = BinaryArray(X, targets, self.sample_weight, n_threads, used_features)
        rows._means = self._means
        return rows

    def _without_empty_columns(self) -> tuple[Any, tuple[Array, int] | None]:
        if self._whole is None:
            X, used = drop_empty_columns(self.X)
            self._whole = X, None if used is None else (used, self.n_features)
        return self._whole


class NumberArray(ClassArray):
    """Rows in memory with the numbers that a regression is to predict in place of classes: one output."""

    #: The intercept to start from.
    first_intercept = 0.0

    @cached_property
    def filled(self) -> NumberArray:
        rows = NumberArray(fill_missing(self.X, self.feature_means), self.classes, self.sample_weight, 1)
        rows.first_intercept = self.first_intercept
        return rows

    def outputs(self, multi_class: str) -> list[Output]:
        return [Output(0)]

    def open(self, outputs: Sequence[Output], n_threads: int = 1) -> BinaryArray:
        X, used_features = self._without_empty_columns()
        rows = BinaryArray(X, self.classes[:, None], self.sample_weight, n_threads, used_features)
        rows.first_intercept, rows.is_binary = self.first_intercept, False
        return rows


class BinaryArray(BinaryRows):
    """Rows in memory, cut into blocks once.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
    targets : ndarray of shape (n_samples, n_outputs)
    sample_weight : ndarray of shape (n_samples,)
    n_threads : int
    """

    #: Whether the targets are -1 and +1, and not the numbers of a regression.
    is_binary = True

    def __init__(
        self,
        X: Any,
        targets: Array,
        sample_weight: Array,
        n_threads: int,
        used_features: tuple[Array, int] | None = None,
    ) -> None:
        super().__init__((*X.shape, targets.shape[1]), is_dense_matrix(X), used_features)
        self.X, self.targets, self.sample_weight = X, targets, sample_weight
        self.n_threads = n_threads
        self._blocks: dict[Any, list[Block]] = {}

    def subsample(self) -> Subsample | None:
        # Drawn at random, not every tenth row: rows may come in an order that has a period.
        rng = np.random.default_rng(0)
        index = np.sort(rng.choice(self.n_rows, size=self.n_rows // SUBSAMPLE_EVERY, replace=False))
        targets, weights = self.targets[index], self.sample_weight[index]
        counted = weights > SMALL_WEIGHT * self.sample_weight.mean()
        for target in (1.0, -1.0) if self.is_binary else ():
            inside, whole = weights @ (targets == target), self.sample_weight @ (self.targets == target)
            number = np.count_nonzero((targets == target) & counted[:, None], axis=0)
            if not is_represented(inside, whole, number):
                return None
        if np.count_nonzero(counted) < _LEAST_OF_TARGET:
            return None
        rows = BinaryArray(self.X[index], targets, weights, self.n_threads)
        rows.first_intercept, rows.is_binary = self.first_intercept, self.is_binary
        return Subsample(rows, weights.sum() / self.sample_weight.sum())

    def with_outputs(self, index: Array) -> BinaryArray:
        """Return the same rows, not copied, with some of the outputs, which may be repeated."""
        rows = copy(self)
        rows.targets, rows.n_outputs = self.targets[:, index], len(index)
        return rows

    def _find_means(self, ratio: float) -> Array | None:
        return feature_means_far_from_zero(self.X, self.sample_weight, ratio)

    def _partitions(
        self, C: float, entry: EntryFunction | None, feature_means: Array | None, shared_cache: dict[Any, Any]
    ) -> Partitions[Rows]:
        key = entry, feature_means is not None
        if key not in self._blocks:
            # One kind at a time: blocks may hold copies.
            self._blocks = {key: row_blocks(subtract(self.X, feature_means), entry)}
        blocks = self._blocks[key]
        edges = np.cumsum([0] + [block.n_rows for block in blocks])
        scaled = C * self.sample_weight
        parts = (
            Rows(block, self.targets[begin:end], scaled[begin:end])
            for block, begin, end in zip(blocks, edges[:-1], edges[1:], strict=True)
        )
        return LocalPartitions(parts, self.n_threads, shared_cache)


def is_represented(inside: Array, whole: Array, number: Array) -> bool:
    """Return whether a subsample represents a target, by weight and by number of rows, in every output.

    ``inside`` and ``whole`` are the target's weights in the subsample and in all rows; ``number`` counts the rows of
    the subsample with more than `SMALL_WEIGHT` times the mean weight.
    """
    return not (np.any(SUBSAMPLE_EVERY * inside < _REPRESENTED * whole) or np.any(number < _LEAST_OF_TARGET))
