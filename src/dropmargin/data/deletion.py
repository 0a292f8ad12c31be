"""Deletion of entries and of columns: ``x~ = fill + kept * (x - fill) * factor``, dense or CSR; never in place.

``fill`` is what a deleted entry becomes: a number, one number per column, or NaN. A CSR matrix keeps its form with a
fill of 0, where only stored entries matter, and with NaN, where each deleted zero becomes a stored NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.data.csr import with_data
from dropmargin.data.matrix import canonical
from dropmargin.typing import Array

# Random numbers are drawn for this many entries at a time, so that a mask costs little memory beside the data.
_MASK_ENTRIES = 2**20


def delete_entries(X: Any, level: float, fill: Any, factor: float, rng: np.random.Generator) -> Any:
    """Return ``X`` with each entry deleted with probability ``level``, independently.

    Entries are deleted where a uniform number is below ``level``: with the same generator, those deleted at one level
    are deleted at every higher level, too. A dense and a CSR ``X`` do not meet the same numbers.
    """
    if not sparse.issparse(X):
        deleted = np.empty(X.shape, dtype=X.dtype)
        for begin, end in _chunks(*X.shape):
            gone = rng.random((end - begin, X.shape[1])) < level
            deleted[begin:end] = np.where(gone, fill, _rescaled(X[begin:end], fill, factor))
        return deleted
    fill = _sparse_fill(fill)
    rows = canonical(X)
    gone = rng.random(rows.nnz) < level
    kept = with_data(rows, np.where(gone, fill, rows.data * factor).astype(rows.dtype))
    if np.isnan(fill):
        zeros = [_deleted_zeros(rows, begin, end, level, rng) for begin, end in _chunks(*rows.shape)]
        kept = kept + sparse.vstack(zeros, format="csr")
    return _as_given(X, kept)


def delete_columns(X: Any, columns: Array, fill: Any, factor: float) -> Any:
    """Return ``X`` without the entries of these columns."""
    gone = np.zeros(X.shape[1], dtype=bool)
    gone[columns] = True
    if not sparse.issparse(X):
        return np.where(gone, fill, _rescaled(X, fill, factor)).astype(X.dtype)
    fill = _sparse_fill(fill)
    rows = canonical(X)
    if not np.isnan(fill):
        return _as_given(X, with_data(rows, np.where(gone[rows.indices], 0.0, rows.data * factor).astype(rows.dtype)))
    kept = with_data(rows, np.where(gone[rows.indices], 0.0, rows.data).astype(rows.dtype))
    everywhere = np.tile(np.flatnonzero(gone), rows.shape[0])
    starts = np.arange(rows.shape[0] + 1) * int(gone.sum())
    missing = np.full(len(everywhere), np.nan, dtype=rows.dtype)
    return _as_given(X, kept + sparse.csr_array((missing, everywhere, starts), shape=rows.shape))


def presence(X: Any) -> Array:
    """Return, per column, the share of rows whose entry is neither zero nor NaN."""
    if not sparse.issparse(X):
        return np.mean((X != 0.0) & ~np.isnan(X), axis=0)
    rows = canonical(X)
    there = (rows.data != 0.0) & ~np.isnan(rows.data)
    return np.bincount(rows.indices[there], minlength=rows.shape[1]) / rows.shape[0]


def column_entries(X: Any) -> Iterator[tuple[Any, Array]]:
    """Yield the rows and the values of each column's stored entries; all rows if ``X`` is dense."""
    if not sparse.issparse(X):
        yield from ((slice(None), column) for column in X.T)
        return
    columns = sparse.csc_array(X)
    for begin, end in pairwise(columns.indptr):
        yield columns.indices[begin:end], columns.data[begin:end]


def _rescaled(X: Array, fill: Any, factor: float) -> Array:
    return X if factor == 1.0 else fill + (X - fill) * factor


def _sparse_fill(fill: Any) -> float:
    """Return 0 or NaN, the fills that a sparse matrix can take."""
    if not np.any(fill):
        return 0.0
    if np.ndim(fill) == 0 and np.isnan(fill):
        return float("nan")
    raise ValueError(
        "With a fill other than 0 or NaN, a sparse X would become dense. Pass X.toarray() if that fits into memory."
    )


def _deleted_zeros(rows: Any, begin: int, end: int, level: float, rng: np.random.Generator) -> Any:
    """Return NaN where an entry that is not stored is deleted."""
    gone = rng.random((end - begin, rows.shape[1])) < level
    stored = np.repeat(np.arange(end - begin), np.diff(rows.indptr[begin : end + 1]))
    gone[stored, rows.indices[rows.indptr[begin] : rows.indptr[end]]] = False
    where = np.nonzero(gone)
    return sparse.csr_array((np.full(len(where[0]), np.nan, dtype=rows.dtype), where), shape=gone.shape)


def _chunks(n_rows: int, n_features: int) -> list[tuple[int, int]]:
    size = max(1, _MASK_ENTRIES // max(1, n_features))
    return [(begin, min(begin + size, n_rows)) for begin in range(0, n_rows, size)]


def _as_given(X: Any, rows: Any) -> Any:
    return rows if isinstance(X, sparse.sparray) else sparse.csr_matrix(rows)
