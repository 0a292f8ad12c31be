"""Blocks of rows of the data matrix, dense or CSR, behind one interface.

A block knows its rows ``X`` and an element-wise function ``f`` with ``f(0) = 0`` (the noise's variance is
``slope_d * f(x_d) + floor_d``). It answers two kinds of questions:

- products: ``X @ A`` and ``f(X) @ B``, ``X' @ A`` and ``f(X)' @ B``, the two of a pair in one sweep over the rows;
- entries: the stored values with their columns, for what is not a product (moment generating functions).

``f(X)`` is never stored for a dense block: it is computed a few rows at a time, while they are in cache.
Products run in the precision of ``X`` and come back in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from dropmargin.typing import Array

EntryFunction = Callable[[Array], Array]

# Rows are squared in chunks of about this many entries, so that a chunk and its squares stay in cache.
_CHUNK_ENTRIES = 2**16
# A partition holds at least this many stored entries: below that, handing it to a thread costs more than it saves.
_PARTITION_ENTRIES = 2**18
# The partition must not depend on the number of threads, or the results would.
_MOST_PARTITIONS = 8


class Block(Protocol):
    """Rows of the data matrix: what `DenseBlock` and `SparseBlock` have in common."""

    n_rows: int
    n_features: int

    def products(self, weights: Array | None, entry_weights: Array | None) -> tuple[Array | None, Array | None]:
        """Return ``X @ weights`` and ``f(X) @ entry_weights``, each ``None`` where its argument is."""

    def transposed_products(self, left: Array | None, entry_left: Array | None) -> tuple[Array | None, Array | None]:
        """Return ``X' @ left`` and ``f(X)' @ entry_left``, each ``None`` where its argument is."""

    def squares_transposed(self, left: Array) -> Array:
        """Return ``(X * X)' @ left``."""

    def weighted_gram(self, weights: Array) -> Array:
        """Return ``X' diag(weights) X``, a dense matrix."""

    def outer_gram(self, scale: Array) -> Array:
        """Return ``X diag(scale) X'``, a dense matrix."""

    def dense_chunks(self) -> Iterator[tuple[slice, Array]]:
        """Yield slices of rows, and these rows as a dense array in double precision."""

    def take_rows(self, mask: Array) -> Block:
        """Return the rows of a mask, copied."""

    def entries(self) -> Array:
        """Return the stored values: a matrix if dense, one vector if sparse."""

    def spread(self, values: Array) -> Array:
        """Return one value per feature in the shape of, or broadcastable to, `entries`."""

    def spread_rows(self, values: Array) -> Array:
        """Return one value per row in the shape of, or broadcastable to, `entries`."""

    def with_entries(self, entries: Array) -> Block:
        """Return a block with the same pattern and other stored values."""

    def row_sums(self, entries: Array) -> Array:
        """Return the sum of ``entries`` in each row."""


class DenseBlock:
    """Rows of a dense matrix, in any memory order."""

    def __init__(self, rows: Array, entry: EntryFunction | None = None) -> None:
        self.rows = rows
        self.entry = entry
        self.n_rows, self.n_features = rows.shape

    def _transformed_chunks(self) -> Iterator[tuple[slice, Array]]:
        """Yield slices of rows and ``f`` of these rows."""
        for where in _chunks(self.n_rows, self.n_features):
            rows = self.rows[where]
            yield where, rows if self.entry is None else self.entry(rows)

    def products(self, weights: Array | None, entry_weights: Array | None) -> tuple[Array | None, Array | None]:
        first = None if weights is None else _double(self.rows @ _like(weights, self.rows))
        if entry_weights is None:
            return first, None
        entry_weights = _like(entry_weights, self.rows)
        second = np.empty((self.n_rows, entry_weights.shape[1]))
        for where, transformed in self._transformed_chunks():
            second[where] = transformed @ entry_weights
        return first, second

    def transposed_products(self, left: Array | None, entry_left: Array | None) -> tuple[Array | None, Array | None]:
        first = None if left is None else _double(self.rows.T @ _like(left, self.rows))
        if entry_left is None:
            return first, None
        entry_left = _like(entry_left, self.rows)
        second = np.zeros((self.n_features, entry_left.shape[1]))
        for where, transformed in self._transformed_chunks():
            second += transformed.T @ entry_left[where]
        return first, second

    def squares_transposed(self, left: Array) -> Array:
        total = DenseBlock(self.rows, np.square).transposed_products(None, left)[1]
        assert total is not None
        return total

    def weighted_gram(self, weights: Array) -> Array:
        total = np.zeros((self.n_features, self.n_features))
        for where in _chunks(self.n_rows, self.n_features, least=1024):
            rows = self.rows[where]
            total += rows.T @ (rows * _like(weights[where, None], rows))
        return total

    def outer_gram(self, scale: Array) -> Array:
        rows = _double(self.rows)
        return (rows * scale) @ rows.T

    def dense_chunks(self) -> Iterator[tuple[slice, Array]]:
        for where in _chunks(self.n_rows, self.n_features):
            yield where, _double(self.rows[where])

    def take_rows(self, mask: Array) -> DenseBlock:
        return DenseBlock(self.rows[mask])

    def entries(self) -> Array:
        return self.rows

    def spread(self, values: Array) -> Array:
        return values

    def spread_rows(self, values: Array) -> Array:
        return values[:, None]

    def with_entries(self, entries: Array) -> DenseBlock:
        return DenseBlock(entries)

    def row_sums(self, entries: Array) -> Array:
        return entries.sum(axis=1, dtype=np.float64)


class SparseBlock:
    """Rows of a CSR matrix in canonical form (no duplicate entries)."""

    def __init__(self, rows: sparse.csr_array, entry: EntryFunction | None = None) -> None:
        self.rows = rows
        self.n_rows, self.n_features = rows.shape
        self.transformed = rows if entry is None else self._transform(entry)

    def _transform(self, entry: EntryFunction) -> sparse.csr_array:
        """Return ``f(X)``; word presence (zeros and ones) is its own square, and then costs no memory."""
        data = entry(self.rows.data)
        if np.array_equal(data, self.rows.data):
            return self.rows
        return _same_pattern(self.rows, data)

    def products(self, weights: Array | None, entry_weights: Array | None) -> tuple[Array | None, Array | None]:
        first = None if weights is None else _double(self.rows @ _like(weights, self.rows))
        second = None if entry_weights is None else _double(self.transformed @ _like(entry_weights, self.rows))
        return first, second

    def transposed_products(self, left: Array | None, entry_left: Array | None) -> tuple[Array | None, Array | None]:
        first = None if left is None else _double(self.rows.T @ _like(left, self.rows))
        second = None if entry_left is None else _double(self.transformed.T @ _like(entry_left, self.rows))
        return first, second

    def squares_transposed(self, left: Array) -> Array:
        squares = _same_pattern(self.rows, np.square(self.rows.data))
        return _double(squares.T @ _like(left, self.rows))

    def weighted_gram(self, weights: Array) -> Array:
        counts = np.diff(self.rows.indptr)
        scaled = _same_pattern(self.rows, self.rows.data * np.repeat(weights, counts))
        return _double((self.rows.T @ scaled).toarray())

    def outer_gram(self, scale: Array) -> Array:
        scaled = _same_pattern(self.rows, self.rows.data * scale[self.rows.indices])
        return _double((scaled @ self.rows.T).toarray())

    def dense_chunks(self) -> Iterator[tuple[slice, Array]]:
        for where in _chunks(self.n_rows, self.n_features):
            yield where, _double(_row_view(self.rows, where.start, where.stop).toarray())

    def take_rows(self, mask: Array) -> SparseBlock:
        return SparseBlock(self.rows[mask])

    def entries(self) -> Array:
        return self.rows.data

    def spread(self, values: Array) -> Array:
        return values[self.rows.indices] if np.ndim(values) else values

    def spread_rows(self, values: Array) -> Array:
        return np.repeat(values, np.diff(self.rows.indptr))

    def with_entries(self, entries: Array) -> SparseBlock:
        return SparseBlock(_same_pattern(self.rows, entries))

    def row_sums(self, entries: Array) -> Array:
        return _same_pattern(self.rows, entries) @ np.ones(self.n_features)


def row_blocks(X: Any, entry: EntryFunction | None = None) -> list[Block]:
    """Cut ``X`` into blocks of rows without copying; the cut depends on the data alone, never on the threads."""
    n_rows, n_features = X.shape
    stored = X.nnz if sparse.issparse(X) else n_rows * n_features
    count = int(min(_MOST_PARTITIONS, max(1, stored // _PARTITION_ENTRIES), max(1, n_rows)))
    if sparse.issparse(X):
        # Equal shares of the entries; a transposed product costs a vector of n_features per block on top.
        count = min(count, max(1, stored // max(1, 2 * n_features)))
        targets = np.linspace(0, stored, count + 1)[1:-1]
        inner = np.searchsorted(X.indptr, targets)
    else:
        inner = np.linspace(0, n_rows, count + 1).astype(int)[1:-1]
    edges = np.unique(np.concatenate([[0], inner, [n_rows]]))
    if sparse.issparse(X):
        return [SparseBlock(_row_view(X, begin, end), entry) for begin, end in pairwise(edges)]
    return [DenseBlock(X[begin:end], entry) for begin, end in pairwise(edges)]


def map_entries(X: Any, function: Callable[[Array, Any], Array], *, zeros_stay: bool, what: str) -> Any:
    """Return ``X`` with ``function(values, columns)`` applied to its stored entries.

    ``columns`` are the entries' columns: an index per value if ``X`` is sparse, the full slice if it is dense. A
    function that does not leave zeros as they are is refused for a sparse ``X``, in the name of ``what``.
    """
    if not sparse.issparse(X):
        return function(np.asarray(X), slice(None))
    if not zeros_stay:
        raise ValueError(
            f"{what} has no zeros left, so a sparse X would become dense. "
            "Pass X.toarray() if that fits into memory, or choose Dropout or Poisson noise."
        )
    rows = sparse.csr_array(X)
    changed = _same_pattern(rows, function(rows.data, rows.indices))
    return changed if isinstance(X, sparse.sparray) else sparse.csr_matrix(changed)


def stack_blocks(blocks: Sequence[Block]) -> Block:
    """Return the rows of several blocks as one block, copied."""
    if isinstance(blocks[0], SparseBlock):
        return SparseBlock(sparse.csr_array(sparse.vstack([block.rows for block in blocks], format="csr")))  # type: ignore[attr-defined]
    return DenseBlock(np.concatenate([block.rows for block in blocks]))  # type: ignore[attr-defined]


def _chunks(n_rows: int, n_features: int, least: int = 16) -> Iterator[slice]:
    """Yield slices of rows that stay in cache, of at least so many rows."""
    step = max(least, _CHUNK_ENTRIES // max(1, n_features))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(begin + step, n_rows))


def _row_view(X: Any, begin: int, end: int) -> sparse.csr_array:
    """Return rows ``begin`` to ``end`` of a CSR matrix as a view of its arrays (SciPy's slicing copies them)."""
    first, last = X.indptr[begin], X.indptr[end]
    parts = (X.data[first:last], X.indices[first:last], X.indptr[begin : end + 1] - first)
    return _csr(parts, (end - begin, X.shape[1]))


def _same_pattern(rows: sparse.csr_array, data: Array) -> sparse.csr_array:
    return _csr((data, rows.indices, rows.indptr), rows.shape)


def _csr(parts: tuple[Array, Array, Array], shape: tuple[int, int]) -> sparse.csr_array:
    """Build a CSR array that shares ``parts`` and keeps their index type (the constructor may copy to change it)."""
    out = sparse.csr_array(shape, dtype=parts[0].dtype)
    out.data, out.indices, out.indptr = parts
    out.has_canonical_format = True
    return out


def _like(values: Array, rows: Any) -> Array:
    return np.ascontiguousarray(values, dtype=rows.dtype)


def _double(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)
