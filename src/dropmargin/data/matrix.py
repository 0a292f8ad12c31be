"""Whole matrices: canonical form, the cut into blocks, maps of the entries; checks before a fit, scores after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.data.blocks import Block, EntryFunction, chunks
from dropmargin.data.csr import SparseBlock, csr_of, row_view, with_data
from dropmargin.data.dense import DenseBlock
from dropmargin.data.structure import sound_csr
from dropmargin.typing import Array

# A partition holds at least this many stored entries: below that, handing it to a thread costs more than it saves.
_PARTITION_ENTRIES = 2**19
# The partition must not depend on the number of threads, or the results would.
_MOST_PARTITIONS = 8
# Empty columns are dropped if at most this share of all is not, and if there are no more entries than so many each.
_WORTH_DROPPING = 0.9
_ENTRIES_PER_COLUMN = 32
# A constant column of this size costs a solver its digits.
_LARGE_CONSTANT = 1e3
# A column whose mean is three times its spread or more has no more zeros than one entry in ten.
_FULL = 0.8
# Columns that vary by less than this share of their squares are constant but for rounding.
_ROUNDING = 1e-12
# Entries are worked on in chunks of about this many, where a copy is made of them.
_CHUNK_ENTRIES = 2**20


def canonical(X: Any) -> Any:
    """Return ``X`` as a dense array or as CSR without duplicate entries; the caller's arrays are never changed.

    A duplicate entry ``a + b`` must be summed before it is squared: ``a^2 + b^2`` would not be its square. Indices
    out of range are an error.
    """
    if not sparse.issparse(X):
        return X
    rows = sparse.csr_array(sound_csr(X))  # shares the arrays if X is CSR
    # Flags that came with X are not trusted: a new array scans the indices.
    rows = sparse.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape, copy=False)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def no_rows(n_features: int, is_dense: bool) -> Any:
    """Return a matrix of no rows."""
    return np.empty((0, n_features)) if is_dense else sparse.csr_array((0, n_features))


def row_block(X: Any, entry: EntryFunction | None = None) -> Block:
    """Return all rows of ``X`` as one block, without copying."""
    return SparseBlock(X, entry) if sparse.issparse(X) else DenseBlock(X, entry)


def row_blocks(X: Any, entry: EntryFunction | None = None) -> list[Block]:
    """Cut ``X`` into blocks of rows without copying; the cut depends on the data alone, never on the threads."""
    n_rows, n_features = X.shape
    stored = X.nnz if sparse.issparse(X) else n_rows * n_features
    count = int(min(_MOST_PARTITIONS, max(1, stored // _PARTITION_ENTRIES), max(1, n_rows)))
    if sparse.issparse(X):
        # Equal shares of the entries, a power of two for even work; a transposed product costs a vector of n_features
        # per block on top, and these are added by one thread.
        count = min(count, max(1, stored // max(1, 8 * n_features)))
        count = 2 ** (count.bit_length() - 1)
        inner = np.searchsorted(X.indptr, np.linspace(0, stored, count + 1)[1:-1])
    else:
        inner = np.linspace(0, n_rows, count + 1).astype(int)[1:-1]
    edges = np.unique(np.concatenate([[0], inner, [n_rows]])).astype(int)
    if sparse.issparse(X):
        return [SparseBlock(row_view(X, begin, end), entry) for begin, end in pairwise(edges)]
    return [DenseBlock(X[begin:end], entry) for begin, end in pairwise(edges)]


def drop_empty_columns(X: Any) -> tuple[Any, Array | None]:
    """Return ``X`` without its empty columns, and which are left; ``None`` if dropping them is not worth a copy.

    Vectors with an entry per column are most of the work where rows are few and features many, or hashed.
    """
    if is_dense_matrix(X) or has_full_columns(X.nnz, X.shape[1]):
        return X, None
    used = columns_worth_keeping(column_counts(X) > 0)
    return (X, None) if used is None else (keep_columns(X, used), used)


def has_full_columns(n_stored: int, n_features: int) -> bool:
    """Whether there are so many stored entries for each column that it is not worth looking for empty ones."""
    return n_stored > _ENTRIES_PER_COLUMN * n_features


def columns_worth_keeping(present: Array) -> Array | None:
    """Return the columns that are not empty; ``None`` if dropping the others is not worth it."""
    used = np.flatnonzero(present)
    return None if len(used) == 0 or len(used) > _WORTH_DROPPING * len(present) else used


def keep_columns(X: Any, used: Array) -> Any:
    """Return the columns of a sparse ``X`` that are used, if all its entries are in these."""
    position = np.zeros(X.shape[1], dtype=X.indices.dtype)
    position[used] = np.arange(len(used), dtype=X.indices.dtype)
    return sparse.csr_array((X.data, position[X.indices], X.indptr), shape=(X.shape[0], len(used)), copy=False)


def is_dense_matrix(X: Any) -> bool:
    """Whether a product of ``X`` with several columns costs less than as many products with one.

    A dense one does. A sparse one with many columns drags whole rows of weights through the cache, entry by entry: on
    20 newsgroups, 20 columns at a time took longer than one at a time, and twenty times the memory.
    """
    return not sparse.issparse(X)


def to_arrays(X: Any) -> list[Array]:
    """Return the arrays that a matrix is made of: itself if dense, or values, columns and row pointers."""
    return [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]


def from_arrays(arrays: Sequence[Array], shape: tuple[int, int]) -> Any:
    """Return the matrix of these arrays, shared: the inverse of `to_arrays`, without a look at them."""
    return arrays[0].reshape(shape) if len(arrays) == 1 else csr_of((arrays[0], arrays[1], arrays[2]), shape)


def stack_blocks(blocks: Sequence[Block]) -> Block:
    """Return the rows of several blocks as one block, copied."""
    rows = [block.rows for block in blocks]
    if isinstance(blocks[0], SparseBlock):
        return SparseBlock(sparse.csr_array(sparse.vstack(rows, format="csr")))
    return DenseBlock(np.concatenate(rows))


def row_slice(X: Any, begin: int, end: int) -> Any:
    """Return rows ``begin`` to ``end`` as a view: nothing is copied."""
    return row_view(X, begin, end) if sparse.issparse(X) else X[begin:end]


def stack_rows(matrices: Sequence[Any]) -> Any:
    """Return the rows of several matrices as one, copied; sparse if any of them is."""
    if any(sparse.issparse(X) for X in matrices):
        return sparse.csr_array(sparse.vstack([sparse.csr_array(X) for X in matrices], format="csr"))
    return np.concatenate(matrices)


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
    rows = canonical(X)
    changed = with_data(rows, function(rows.data, rows.indices))
    return changed if isinstance(X, sparse.sparray) else sparse.csr_matrix(changed)


def entry_range(X: Any) -> tuple[float, float]:
    """Return the smallest and the largest entry."""
    values = X.data if sparse.issparse(X) else X
    if values.size == 0:
        return 0.0, 0.0
    return float(values.min()), float(values.max())


def stores_zeros(X: Any) -> bool:
    """Whether zeros are entries like others, on which noise can fall: a sparse ``X`` would become dense."""
    return not sparse.issparse(X)


def nonzero_entries(X: Any) -> tuple[Array, Array, Array]:
    """Return the row, the column and the value of each entry that is not zero, row by row, columns ascending."""
    entries = sparse.coo_array(X)
    there = entries.data != 0.0
    return entries.row[there], entries.col[there], entries.data[there]


def worst_column(X: Any, smallest: bool) -> int:
    """Return the column of the smallest entry, or else of the largest in absolute value."""
    values = X.data if sparse.issparse(X) else X
    where = int(np.argmin(values))
    if not smallest:
        largest = int(np.argmax(values))
        where = largest if abs(values.flat[largest]) >= abs(values.flat[where]) else where
    return int(X.indices[where]) if sparse.issparse(X) else where % X.shape[1]


def mean_square(X: Any, weights: Array) -> float:
    """Return the weighted mean of the squared length of a row, about the mean row if ``X`` is dense."""
    share = weights / weights.sum()
    if sparse.issparse(X):
        return float(share @ with_data(X, np.square(X.data, dtype=np.float64)).sum(axis=1))
    mean = share @ X
    square = sum(
        share[rows] @ np.square(X[rows] - mean).sum(axis=1) for rows in chunks(X.shape[0], X.shape[1], _CHUNK_ENTRIES)
    )
    return float(square) if square > _ROUNDING * (mean @ mean) else 0.0


def feature_means_far_from_zero(X: Any, weights: Array, ratio: float) -> Array | None:
    """Return what to subtract from the features if the mean of one is ``ratio`` times its deviation, else ``None``.

    With an intercept the fit is invariant to a shift of the features, but its rounding errors are not.
    """
    share = weights / weights.sum()
    full = full_columns(column_counts(X), X.shape[0])
    mean = column_means(X, share, full)
    return harmful_means(mean, column_spreads(X, share, full, mean), full, X.shape[1], ratio, sparse.issparse(X))


def column_counts(X: Any) -> Array:
    """Return the number of stored entries of each column."""
    if not sparse.issparse(X):
        return np.full(X.shape[1], X.shape[0])
    counts = np.zeros(X.shape[1], dtype=np.int64)
    for begin in range(0, X.nnz, _CHUNK_ENTRIES):  # bincount copies 32-bit indices
        counts += np.bincount(X.indices[begin : begin + _CHUNK_ENTRIES], minlength=X.shape[1])
    return counts


def full_columns(counts: Array, n_rows: int) -> Array:
    """Return the columns that may be far from zero: zeros are no outliers there, so nearly all entries are stored."""
    return np.flatnonzero(counts >= _FULL * n_rows)


def column_means(X: Any, share: Array, columns: Array) -> Array:
    """Return the weighted sum of these columns; ``share`` are weights that add up to 1 over all rows."""
    chosen = _densely(X, columns)
    return np.asarray(chosen.T @ share.astype(chosen.dtype), dtype=np.float64)


def column_spreads(X: Any, share: Array, columns: Array, mean: Array) -> Array:
    """Return the weighted sum of the squares of these columns, less their mean."""
    chosen = _densely(X, columns)
    square = np.zeros(len(columns))
    for begin in range(0, X.shape[0], 1024):
        square += share[begin : begin + 1024] @ np.square(chosen[begin : begin + 1024] - mean)
    return square


def _densely(X: Any, columns: Array) -> Array:
    if sparse.issparse(X):
        return X[:, columns].toarray()
    return X if len(columns) == X.shape[1] else X[:, columns]


def harmful_means(
    mean: Array, square: Array, columns: Array, n_features: int, ratio: float, is_sparse: bool
) -> Array | None:
    """Return what to subtract from all features, given mean and variance of some; ``None`` if none is far from zero.

    A dense ``X`` is centred as a whole, a sparse one only in features that are far from zero and so are stored in full.
    """
    deviation, size = np.sqrt(square), np.abs(mean)
    # A constant column carries nothing; only if it is large does it do harm.
    harmful = (deviation > 1e-12 * size) | (size > _LARGE_CONSTANT)
    harmful &= size > ratio * deviation
    if not harmful.any():
        return None
    feature_means = np.zeros(n_features)
    feature_means[columns] = np.where(harmful, mean, 0.0) if is_sparse else mean
    return feature_means


def subtract(X: Any, feature_means: Array | None) -> Any:
    """Return ``X - feature_means``; a sparse ``X`` gets entries in the columns where they are not zero."""
    if feature_means is None:
        return X
    if not sparse.issparse(X):
        return X - feature_means.astype(X.dtype)
    columns = np.flatnonzero(feature_means).astype(X.indices.dtype)
    data = np.tile(feature_means[columns].astype(X.dtype), X.shape[0])
    begins = len(columns) * np.arange(X.shape[0] + 1, dtype=X.indptr.dtype)
    return X - sparse.csr_array((data, np.tile(columns, X.shape[0]), begins), shape=X.shape)


def linear_scores(X: Any, coef: Any, intercept: Array) -> Array:
    """Return ``X @ coef.T + intercept`` as a dense array of one column per row of ``coef``; both may be sparse."""
    product = X @ coef.T
    return (product.toarray() if sparse.issparse(product) else np.asarray(product)) + intercept


def as_sparse(coef: Any) -> Any:
    """Return coefficients as a CSR array."""
    return sparse.csr_array(coef)


def as_dense(coef: Any) -> Array:
    """Return coefficients as a dense array."""
    return coef.toarray() if sparse.issparse(coef) else coef
