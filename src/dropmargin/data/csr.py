"""Rows of a CSR matrix: products by the compiled kernels if they were built, by SciPy otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.data import kernels
from dropmargin.data.blocks import Block, EntryFunction, apply_curvature, chunks
from dropmargin.typing import Array

# Rows are converted to dense arrays in chunks of about this many entries.
_CHUNK_ENTRIES = 2**17


class SparseBlock(Block):
    """Rows of a CSR matrix in canonical form (no duplicate entries)."""

    def __init__(self, rows: sparse.csr_array, entry: EntryFunction | None = None) -> None:
        self.rows = rows
        self.entry = entry
        self.n_rows, self.n_features = rows.shape

    @cached_property
    def transformed(self) -> sparse.csr_array:
        """``f(X)``; the same object as ``X`` if the values agree, as for the square of zeros and ones."""
        data = self.rows.data if self.entry is None else self.entry(self.rows.data)
        return self.rows if np.array_equal(data, self.rows.data) else with_data(self.rows, data)

    @cached_property
    def _kernels(self) -> kernels.CSRKernels | None:
        if not kernels.available():
            return None
        if self.entry is np.square:  # squares are computed on the fly and not stored
            return kernels.CSRKernels(self.rows, kernels.MODE_SQUARE, None)
        if self.transformed is self.rows:
            return kernels.CSRKernels(self.rows, kernels.MODE_IDENTITY, None)
        return kernels.CSRKernels(self.rows, kernels.MODE_ARRAY, self.transformed.data)

    def forward(self, right: Array, n_x: int) -> Array:
        if self._kernels is not None:
            return self._kernels.forward(right, n_x)
        out = np.empty((self.n_rows, right.shape[1]))
        out[:, :n_x] = self.rows @ _like(right[:, :n_x], self.rows)
        if right.shape[1] > n_x:
            out[:, n_x:] = self.transformed @ _like(right[:, n_x:], self.rows)
        return out

    def backward(self, left: Array, n_x: int) -> Array:
        if self._kernels is not None:
            return self._kernels.backward(left, n_x)
        out = np.empty((self.n_features, left.shape[1]))
        out[:, :n_x] = self.rows.T @ _like(left[:, :n_x], self.rows)
        if left.shape[1] > n_x:
            out[:, n_x:] = self.transformed.T @ _like(left[:, n_x:], self.rows)
        return out

    def sandwich(self, right: Array, shift: Array, curvature_weight: Array, n: int) -> tuple[Array, Array]:
        if self._kernels is not None and right.shape[1] <= kernels.MAX_WIDTH:
            return self._kernels.sandwich(right, shift, curvature_weight, n)
        left = apply_curvature(self.forward(right, n) + shift, curvature_weight, n)
        return self.backward(left, n), left.sum(axis=0)

    def squares_transposed(self, left: Array) -> Array:
        return SparseBlock(self.rows, np.square).backward(left, 0)

    def weighted_gram(self, curvature_weight: Array) -> Array:
        scaled = with_data(self.rows, self.rows.data * self.spread_rows(curvature_weight))
        return np.asarray((self.rows.T @ scaled).toarray(), dtype=np.float64)

    def outer_gram(self, scale: Array) -> Array:
        scaled = with_data(self.rows, self.rows.data * scale[self.rows.indices])
        return np.asarray((scaled @ self.rows.T).toarray(), dtype=np.float64)

    def dense_chunks(self) -> Iterator[tuple[slice, Array]]:
        for where in chunks(self.n_rows, self.n_features, _CHUNK_ENTRIES, min_rows=256):
            yield where, row_view(self.rows, where.start, where.stop).toarray().astype(np.float64, copy=False)

    def take_rows(self, mask: Array) -> SparseBlock:
        return SparseBlock(self.rows[mask])

    def entries(self) -> Array:
        return self.rows.data

    def spread(self, values: Array) -> Array:
        return values[self.rows.indices] if np.ndim(values) else values

    def spread_rows(self, values: Array) -> Array:
        return np.repeat(values, np.diff(self.rows.indptr))

    def with_entries(self, entries: Array) -> SparseBlock:
        return SparseBlock(with_data(self.rows, entries))

    def row_sums(self, entries: Array) -> Array:
        return with_data(self.rows, entries) @ np.ones(self.n_features)


def rows_for_descent(blocks: Sequence[Block]) -> list[sparse.csr_array] | None:
    """Return the rows for `kernels.DualDescent`, as CSR; ``None`` if it is not compiled or the types differ."""
    if not kernels.available():
        return None
    matrices = [block.rows if isinstance(block, SparseBlock) else sparse.csr_array(block.rows) for block in blocks]
    return matrices if len({kernels.kind_of(rows) for rows in matrices}) == 1 else None


def row_view(X: Any, begin: int, end: int) -> sparse.csr_array:
    """Return rows ``begin`` to ``end`` of a CSR matrix as a view of its arrays (SciPy's slicing copies them)."""
    first, last = X.indptr[begin], X.indptr[end]
    parts = (X.data[first:last], X.indices[first:last], X.indptr[begin : end + 1] - first)
    return csr_of(parts, (end - begin, X.shape[1]))


def with_data(X: Any, data: Array) -> sparse.csr_array:
    """Return a CSR array with other values that shares the index arrays of ``X``."""
    return csr_of((data, X.indices, X.indptr), X.shape)


def csr_of(parts: tuple[Array, Array, Array], shape: tuple[int, int]) -> sparse.csr_array:
    """Return a CSR array that shares ``parts``: values, indices and row pointers.

    The constructor of SciPy may copy the indices to change their type.
    """
    out = sparse.csr_array(shape, dtype=parts[0].dtype)
    out.data, out.indices, out.indptr = parts
    return out


def _like(values: Array, rows: Any) -> Array:
    return np.ascontiguousarray(values, dtype=rows.dtype)
