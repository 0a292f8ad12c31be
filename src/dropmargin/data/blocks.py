"""Rows as an objective uses them: products with ``X`` and with ``G``, the variances of its entries, dense or CSR.

``G`` has the part of the variance of each entry that depends on it, ``linear x + quadratic x^2`` (`Variance.stored`).
Dense rows come in chunks that fit into the CPU cache, and ``G`` of a chunk is computed when it is used; rows of a
CSR matrix are one chunk with ``G`` stored. A chunk answers four requests, with one column per output::

    forward(P, Q)           X P,  G Q
    backward(U, V)          X'U,  G'V
    squares_backward(U)     (X * X)'U
    cells                   the groups of each row, see `DenseCells`
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.data import kernels
from dropmargin.data.matrix import csr_of, row_slice, with_data
from dropmargin.data.partitions import LocalPartitions
from dropmargin.data.variance import Variance
from dropmargin.typing import Array

# Dense rows are processed in chunks of about this many entries, so that a chunk and G of it fit into the CPU cache.
_CHUNK_ENTRIES = 2**18
# Up to this many entries chunks are made once, with G.
_STORED_ENTRIES = 2**17


class FeatureGroups:
    """Groups of features that are dropped together; features are sorted by group.

    Parameters
    ----------
    numbers : ndarray of int of shape (n_features,)
        The group of each feature, in ascending order.
    slope : ndarray of shape (n_groups,)
        ``c_g = q_g / (1 - q_g)``.
    reference : ndarray of shape (n_features,)
    """

    def __init__(self, numbers: Array, slope: Array, reference: Array) -> None:
        self.numbers, self.slope, self.reference = numbers, slope, np.ascontiguousarray(reference, dtype=np.float64)
        self.n_groups = len(slope)
        self.starts = np.searchsorted(numbers, np.arange(self.n_groups))
        self.has_reference = bool(self.reference.any())
        ends = np.append(self.starts[1:], len(numbers))
        self.slices = [slice(a, b) for a, b in zip(self.starts.tolist(), ends.tolist(), strict=True)]

    @classmethod
    def of(cls, variance: Variance, n_features: int) -> FeatureGroups:
        """Return the groups of a variance whose features are sorted by group."""
        assert variance.groups is not None
        slope = np.zeros(int(variance.groups.max()) + 1)
        slope[variance.groups] = variance.quadratic
        return cls(variance.groups, slope, np.broadcast_to(variance.reference, n_features))

    def by_group(self, values: Array) -> Array:
        """Return the sums of values of features, one row each, over the features of each group."""
        return np.add.reduceat(values, self.starts, axis=0)

    def at_reference(self, coef: Array) -> Array:
        """Return the sums of ``w_d r_d`` over the features of each group."""
        return self.by_group(coef * (self.reference if coef.ndim == 1 else self.reference[:, None]))


class Rows:
    """A partition of rows with targets and weights.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_rows, n_features)
    y : array-like of shape (n_rows,)
        As a user gives them, labels; after encoding, the index of each row's class (-1: none), or the numbers of a
        regression.
    sample_weight : array-like of shape (n_rows,), default=None
        ``None``: all ones.
    number : int, default=0
        The number of the partition.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None, number: int = 0) -> None:
        self.X, self.y, self.sample_weight, self.number = X, y, sample_weight, number

    def take(self, index: Array) -> Rows:
        """Return some of the rows, copied."""
        return Rows(self.X[index], self.y[index], self.sample_weight[index], self.number)

    def __len__(self) -> int:
        return len(self.y)


class Block(Rows):
    """Rows of an objective: their matrix is dense or CSR, their targets numbers.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_rows, n_features)
    y : ndarray of shape (n_rows,)
        The index of each row's class, or the numbers of a regression.
    sample_weight : ndarray of shape (n_rows,)
    variance : Variance
    groups : FeatureGroups, default=None

    Attributes
    ----------
    memo : dict
        What was computed of these rows and may be used again: it is empty wherever a block is made anew for each use.
    """

    def __init__(
        self, X: Any, y: Array, sample_weight: Array, variance: Variance, groups: FeatureGroups | None = None
    ) -> None:
        super().__init__(X, y, sample_weight)
        self.variance, self.groups = variance, groups
        self.memo: dict[str, Any] = {}
        kind: Any = SparseChunk if sparse.issparse(X) else DenseChunk
        is_one = sparse.issparse(X) or X.size <= _STORED_ENTRIES
        self._one_chunk = kind(X, variance, groups) if is_one else None

    def __reduce__(self) -> Any:
        return Block, (self.X, self.y, self.sample_weight, self.variance, self.groups)

    def without_memo(self) -> Block:
        """Return a block of the same rows, for another output; both share what a chunk stores."""
        other = Block(self.X, self.y, self.sample_weight, self.variance, self.groups)
        other._one_chunk = self._one_chunk
        return other

    def chunks(self) -> Iterator[tuple[slice, Any]]:
        """Yield slices of rows and these rows as a chunk."""
        n_rows = self.X.shape[0]
        if self._one_chunk is not None:
            if n_rows:
                yield slice(0, n_rows), self._one_chunk
            return
        size = max(16, _CHUNK_ENTRIES // max(1, self.X.shape[1]))
        for begin in range(0, n_rows, size):
            where = slice(begin, min(n_rows, begin + size))
            yield where, DenseChunk(self.X[where], self.variance, self.groups)

    def class_chunks(self, n_classes: int) -> Iterator[tuple[int, Array, Any]]:
        """Yield classes, the indices of their rows and these rows as a chunk; made once."""
        if "classes" not in self.memo:
            found = []
            for own in range(n_classes):
                index = np.flatnonzero(self.y == own)
                if len(index):
                    part = Block(self.X[index], self.y[index], self.sample_weight[index], self.variance, self.groups)
                    found += [(own, index[where], chunk) for where, chunk in part.chunks()]
            self.memo["classes"] = found
        return iter(self.memo["classes"])

    @property
    def compiled(self) -> kernels.CompiledRows | None:
        """The compiled sweeps of CSR rows, if there are any."""
        return self._one_chunk.compiled if sparse.issparse(self.X) and len(self.y) else None  # type: ignore[union-attr]


class DenseChunk:
    """Some dense rows."""

    group_scores: Any = None

    def __init__(self, X: Array, variance: Variance, groups: FeatureGroups | None) -> None:
        self.X, self.variance, self.groups = X, variance, groups

    @cached_property
    def _has_squares(self) -> bool:
        return self.variance.entry is None and not np.any(self.variance.linear)

    @cached_property
    def G(self) -> Array:  # noqa: N802
        """The squares of the entries if ``quadratic`` is a factor outside, else ``G``."""
        if self._has_squares:
            return self.X * self.X
        return self.variance.stored(self.X).astype(self.X.dtype, copy=False)

    def _outside(self, values: Array) -> Array:
        """Return values of features times the factor of ``G`` outside."""
        return np.reshape(self.variance.quadratic, (-1, 1)) * values if self._has_squares else values

    def _cast(self, values: Array) -> Array:
        return values.astype(self.X.dtype, copy=False)

    def forward(self, of_x: Array, of_g: Array | None = None) -> tuple[Array, Any]:
        """Return ``X @ of_x`` and ``G @ of_g``."""
        mean = (self.X @ self._cast(of_x)).astype(np.float64, copy=False)
        if of_g is None:
            return mean, 0.0
        return mean, (self.G @ self._cast(self._outside(of_g))).astype(np.float64, copy=False)

    def backward(self, of_x: Array, of_g: Array | None = None) -> tuple[Array, Any]:
        """Return ``X' @ of_x`` and ``G' @ of_g``."""
        first = (self._cast(of_x).T @ self.X).T.astype(np.float64, copy=False)
        if of_g is None:
            return first, 0.0
        return first, self._outside((self._cast(of_g).T @ self.G).T.astype(np.float64, copy=False))

    def squares_backward(self, left: Array) -> Array:
        """Return ``(X * X)' @ left``."""
        return (self._cast(left).T @ (self.X * self.X)).T.astype(np.float64, copy=False)

    @property
    def cells(self) -> DenseCells:
        """The groups of each row."""
        return DenseCells(self)

    def entries(self) -> tuple[Array, Any]:
        """Return the entries, in double precision, and their features."""
        return np.asarray(self.X, dtype=np.float64), slice(None)

    def with_entries(self, values: Array) -> Any:
        """Return the rows with other entries, as a matrix."""
        return values

    def dense(self) -> Array:
        """Return ``X`` in double precision."""
        return np.asarray(self.X, dtype=np.float64)


class SparseChunk:
    """Rows of a CSR matrix."""

    group_scores: Any = None

    def __init__(self, X: Any, variance: Variance, groups: FeatureGroups | None) -> None:
        self.X, self.variance, self.groups = X, variance, groups

    @cached_property
    def _G(self) -> Any:  # noqa: N802
        return with_data(self.X, self.variance.stored(self.X.data, self.X.indices).astype(self.X.dtype))

    @cached_property
    def compiled(self) -> kernels.CompiledRows | None:
        """The compiled sweeps, if there are any."""
        if not kernels.available():
            return None
        return kernels.CompiledRows(self.X, self.variance, self.groups)

    def forward(self, of_x: Array, of_g: Array | None = None) -> tuple[Array, Any]:
        return _times(self.X, of_x), 0.0 if of_g is None else _times(self._G, of_g)

    def backward(self, of_x: Array, of_g: Array | None = None) -> tuple[Array, Any]:
        return _times(self.X.T, of_x), 0.0 if of_g is None else _times(self._G.T, of_g)

    def squares_backward(self, left: Array) -> Array:
        return with_data(self.X, np.square(self.X.data)).T @ left

    @cached_property
    def cells(self) -> SparseCells:
        """The groups of each row."""
        return SparseCells(self)

    def entries(self) -> tuple[Array, Any]:
        return np.asarray(self.X.data, dtype=np.float64), self.X.indices

    def with_entries(self, values: Array) -> Any:
        return with_data(self.X, values)

    def dense(self) -> Array:
        return self.X.toarray().astype(np.float64, copy=False)


def _times(X: Any, values: Array) -> Array:
    """Return ``X @ values``: SciPy takes several times as long for a matrix of one column as for a vector."""
    return (X @ values[:, 0])[:, None] if values.shape[1] == 1 else X @ values


class DenseCells:
    """The groups of each row, in arrays of shape (n_groups, n_rows, n_outputs)."""

    has_zeros = False

    def __init__(self, chunk: DenseChunk) -> None:
        assert chunk.groups is not None
        self.chunk, self.groups = chunk, chunk.groups
        self.numbers = np.arange(self.groups.n_groups)[:, None]

    def sums(self, coef: Array) -> Array:
        """Return ``s_ig``, the sum of ``w_d (x_id - r_d)`` over the features of a group."""
        X, coef = self.chunk.X, coef.astype(self.chunk.X.dtype, copy=False)
        out = np.empty((self.groups.n_groups, len(X), coef.shape[1]), dtype=X.dtype)
        for own, where in zip(out, self.groups.slices, strict=True):
            np.matmul(X[:, where], coef[where], out=own)
        out = out.astype(np.float64, copy=False)
        return out - self.groups.at_reference(coef)[:, None] if self.groups.has_reference else out

    def transposed(self, values: Array) -> Array:
        """Return ``sum_i values_ig x_id`` by feature."""
        X, out = self.chunk.X, np.empty((self.chunk.X.shape[1], values.shape[2]))
        for own, where in zip(values.astype(X.dtype, copy=False), self.groups.slices, strict=True):
            out[where] = (own.T @ X[:, where]).T
        return out

    def by_row(self, values: Array) -> Array:
        """Return the sums over the cells of each row."""
        return values.sum(axis=0)

    def by_group(self, values: Array) -> Array:
        """Return the sums over the cells of each group."""
        return values.sum(axis=1)

    def of_rows(self, values: Array) -> Array:
        """Return values of rows as those of their cells."""
        return values

    def of_groups(self, values: Array) -> Array:
        """Return values of groups as those of their cells."""
        return values[:, None]


class SparseCells:
    """The same for CSR rows: a cell is a row and a group of which it has entries, a row of a finer CSR matrix.

    Arrays have the shape (n_cells, n_outputs). Where there is a reference, ``s_ig`` of a row without entries of a group
    is not zero, but the same for all rows.
    """

    def __init__(self, chunk: SparseChunk) -> None:
        groups, X = chunk.groups, chunk.X
        assert groups is not None
        numbers, row = groups.numbers[X.indices], np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        is_first = np.ones(len(numbers), dtype=bool)
        is_first[1:] = (np.diff(row) != 0) | (np.diff(numbers) != 0)
        first = np.flatnonzero(is_first)
        self.groups, self.has_zeros = groups, groups.has_reference
        self.numbers, self._rows = numbers[first], row[first]
        pointers = np.append(first, len(numbers)).astype(X.indices.dtype)
        self._entries = csr_of((X.data.astype(np.float64), X.indices, pointers), (len(first), X.shape[1]))
        counts = np.append(0, np.cumsum(np.bincount(self._rows, minlength=X.shape[0])))
        ones, index = np.ones(len(first)), np.arange(len(first))
        self._to_rows = sparse.csr_array((ones, index, counts), shape=(X.shape[0], len(first)))
        self._to_groups = sparse.csr_array((ones, (self.numbers, index)), shape=(groups.n_groups, len(first)))

    def sums(self, coef: Array) -> Array:
        sums = self._entries @ coef
        return sums - self.of_groups(self.groups.at_reference(coef)) if self.has_zeros else sums

    def transposed(self, values: Array) -> Array:
        return self._entries.T @ values

    def by_row(self, values: Array) -> Array:
        return self._to_rows @ values

    def by_group(self, values: Array) -> Array:
        return self._to_groups @ values

    def of_rows(self, values: Array) -> Array:
        return values[self._rows]

    def of_groups(self, values: Array) -> Array:
        return values[self.numbers]


def one_partition(X: Any, sample_weight: Array | None = None, y: Any = None) -> LocalPartitions:
    """Return rows in memory as one partition; ``None`` as weights means ones."""
    return LocalPartitions([Rows(X, y, np.ones(X.shape[0]) if sample_weight is None else sample_weight)])


def join_rows(parts: list[Rows], stack: Any) -> Rows:
    """Return a copy of the rows of several parts as one; ``stack`` joins matrices."""
    y = np.concatenate([part.y for part in parts])
    return Rows(stack([part.X for part in parts]), y, np.concatenate([part.sample_weight for part in parts]))


def cut(X: Any, n_parts: int) -> list[tuple[int, int]]:
    """Return the first and last row of so many parts of equal size."""
    edges = np.unique(np.linspace(0, X.shape[0], n_parts + 1).astype(int))
    return list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)) or [(0, 0)]


def slice_rows(rows: Rows, begin: int, end: int) -> Rows:
    """Return rows ``begin`` to ``end``, as views."""
    return Rows(row_slice(rows.X, begin, end), rows.y[begin:end], rows.sample_weight[begin:end], rows.number)
