"""Operations on whole matrices, dense or sparse: canonical form, row blocks, functions of the entries, statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.data.structure import sound_csr
from dropmargin.typing import Array

# Empty features of sparse rows are dropped if there are at most so many stored entries per feature, and if at most this
# share of the features is not empty.
_ENTRIES_PER_FEATURE, _MAX_USED_SHARE = 32, 0.75
# A constant feature larger than this makes a solver lose precision.
_LARGE_CONSTANT = 1e3
# Features whose variance is below this share of their mean square are constant up to rounding errors.
ROUNDING = 1e-12
# Entries that are copied are processed in chunks of about this many.
_CHUNK_ENTRIES = 2**20


def canonical(X: Any, *, is_sound: bool = False) -> Any:
    """Return ``X`` as a dense array or as CSR without duplicate entries; the arrays of ``X`` are not changed.

    Duplicate entries must be summed before they are squared. Indices out of range raise an error, unless ``is_sound``
    says that they have been checked.
    """
    if not sparse.issparse(X):
        return X
    rows = sparse.csr_array(X if is_sound else sound_csr(X))  # shares the arrays if X is CSR
    # The flags of X may be wrong; a new array computes them from the indices.
    rows = sparse.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape, copy=False)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def no_rows(n_features: int, is_dense: bool) -> Any:
    """Return a matrix without rows."""
    return np.empty((0, n_features)) if is_dense else sparse.csr_array((0, n_features))


def is_dense_matrix(X: Any) -> bool:
    """Return whether ``X`` is dense, so that a product with several vectors is faster than a product with each.

    For a sparse ``X`` each stored entry needs a whole row of the coefficients: on 20 newsgroups, a product with 20
    vectors took longer than 20 products, and twenty times the memory.
    """
    return not sparse.issparse(X)


def to_arrays(X: Any) -> list[Array]:
    """Return the arrays of a matrix: the matrix itself if it is dense; values, indices and row pointers if CSR."""
    return [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]


def from_arrays(arrays: Sequence[Array], shape: tuple[int, int]) -> Any:
    """Return the matrix that shares these arrays, without checks: the inverse of `to_arrays`."""
    return arrays[0].reshape(shape) if len(arrays) == 1 else csr_of((arrays[0], arrays[1], arrays[2]), shape)


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


def take_columns(X: Any, index: Array) -> Any:
    """Return some columns, in this order."""
    if not sparse.issparse(X):
        return np.ascontiguousarray(X[:, index])
    if (np.diff(index) > 0).all():
        position = np.full(X.shape[1], -1, dtype=X.indices.dtype)
        position[index] = np.arange(len(index), dtype=X.indices.dtype)
        indices = position[X.indices]
        if (indices >= 0).all():  # the others are empty
            return csr_of((X.data, indices, X.indptr), (X.shape[0], len(index)))
    out = sparse.csr_array(X)[:, index]
    out.sort_indices()
    return out


def drop_empty_columns(X: Any) -> tuple[Any, Array | None]:
    """Return ``X`` without its empty features, and the indices of the others; ``X`` and ``None`` if few are empty."""
    if is_dense_matrix(X) or has_full_columns(X.nnz, X.shape[1]):
        return X, None
    used = nonempty_features(column_counts(X))
    return (X, None) if used is None else (take_columns(X, used), used)


def has_full_columns(n_stored: int, n_features: int) -> bool:
    """Return whether the number of stored entries per feature is so large that few features can be empty."""
    return n_stored > _ENTRIES_PER_FEATURE * n_features


def nonempty_features(counts: Array) -> Array | None:
    """Return the indices of the features that have entries; ``None`` if few features are empty."""
    used = np.flatnonzero(counts > 0)
    return used if 0 < len(used) <= _MAX_USED_SHARE * len(counts) else None


def row_slice(X: Any, begin: int, end: int) -> Any:
    """Return rows ``begin`` to ``end`` as a view."""
    return row_view(X, begin, end) if sparse.issparse(X) else X[begin:end]


def stack_rows(matrices: Sequence[Any]) -> Any:
    """Return a copy of the rows of several matrices as one matrix, sparse if any of them is."""
    if any(sparse.issparse(X) for X in matrices):
        return sparse.csr_array(sparse.vstack([sparse.csr_array(X) for X in matrices], format="csr"))
    return np.concatenate(matrices)


def map_entries(X: Any, function: Callable[[Array, Any], Array], *, zeros_stay: bool, what: str) -> Any:
    """Return ``X`` with ``function(values, features)`` applied to its stored entries.

    ``features`` has the feature of each value: an index per value if ``X`` is sparse, the full slice if it is dense.
    Unless ``zeros_stay``, a sparse ``X`` raises a `ValueError`, whose text begins with ``what``.
    """
    if not sparse.issparse(X):
        return function(np.asarray(X), slice(None))
    if not zeros_stay:
        raise ValueError(
            f"{what} has no zeros, so a sparse X would become dense. "
            "Pass X.toarray() if that fits into memory, or choose Dropout or Poisson noise."
        )
    rows = canonical(X)
    changed = with_data(rows, function(rows.data, rows.indices))
    return changed if isinstance(X, sparse.sparray) else sparse.csr_matrix(changed)


def entry_rows(X: Any) -> Array | None:
    """Return the row of each stored entry of a sparse ``X`` in canonical form; ``None`` if ``X`` is dense."""
    return np.repeat(np.arange(X.shape[0]), np.diff(X.indptr)) if sparse.issparse(X) else None


def entry_range(X: Any) -> tuple[float, float]:
    """Return the smallest and the largest entry."""
    values = X.data if sparse.issparse(X) else X
    if values.size == 0:
        return 0.0, 0.0
    return float(values.min()), float(values.max())


def stores_zeros(X: Any) -> bool:
    """Return whether ``X`` stores its zeros, so that noise can corrupt them without making ``X`` dense."""
    return not sparse.issparse(X)


def nonzero_entries(X: Any) -> tuple[Array, Array, Array]:
    """Return row, feature and value of each entry that is not zero, sorted by row and feature."""
    entries = sparse.coo_array(X)
    is_nonzero = entries.data != 0.0
    # 64 bits: products of row and feature numbers do not overflow.
    row, feature = (index[is_nonzero].astype(np.int64) for index in (entries.row, entries.col))
    return row, feature, entries.data[is_nonzero]


def row_entries(X: Any) -> Iterator[tuple[Any, Array]]:
    """Yield, for each row, the features of its stored entries and their values; all features if ``X`` is dense."""
    if not sparse.issparse(X):
        yield from ((slice(None), row) for row in X)
        return
    rows = canonical(X)
    for begin, end in pairwise(rows.indptr.tolist()):
        yield rows.indices[begin:end], rows.data[begin:end]


def worst_column(X: Any, smallest: bool) -> int:
    """Return the feature of the smallest entry, or, unless ``smallest``, of the entry of largest absolute value."""
    values = X.data if sparse.issparse(X) else X
    where = int(np.argmin(values))
    if not smallest:
        largest = int(np.argmax(values))
        where = largest if abs(values.flat[largest]) >= abs(values.flat[where]) else where
    return int(X.indices[where]) if sparse.issparse(X) else where % X.shape[1]


def column_counts(X: Any) -> Array:
    """Return the number of stored entries of each feature."""
    if not sparse.issparse(X):
        return np.full(X.shape[1], X.shape[0])
    counts = np.zeros(X.shape[1], dtype=np.int64)
    for begin in range(0, X.nnz, _CHUNK_ENTRIES):  # bincount copies 32-bit indices
        counts += np.bincount(X.indices[begin : begin + _CHUNK_ENTRIES], minlength=X.shape[1])
    return counts


def means_to_subtract(mean: Array, deviation: Array, ratio: float, is_sparse: bool) -> Array | None:
    """Return the feature means to subtract if one is over ``ratio`` standard deviations from zero, else ``None``.

    Every feature of a dense ``X`` is centred; of a sparse one, only those whose mean is far from zero: nearly all of
    their entries are stored, at least nine in ten for a ratio of three.
    """
    size = np.abs(mean)
    # A constant feature has no effect on the fit, except for a loss of precision if it is large.
    is_far = (deviation > 1e-12 * size) | (size > _LARGE_CONSTANT)
    is_far &= size > ratio * deviation
    if not is_far.any():
        return None
    return np.where(is_far, mean, 0.0) if is_sparse else mean


def subtract(X: Any, feature_means: Array | None) -> Any:
    """Return ``X - feature_means``; a sparse ``X`` stores all entries of features whose mean is not zero."""
    if feature_means is None:
        return X
    if not sparse.issparse(X):
        return X - feature_means.astype(X.dtype)
    features = np.flatnonzero(feature_means).astype(X.indices.dtype)
    data = np.tile(feature_means[features].astype(X.dtype), X.shape[0])
    indptr = len(features) * np.arange(X.shape[0] + 1, dtype=X.indptr.dtype)
    return X - sparse.csr_array((data, np.tile(features, X.shape[0]), indptr), shape=X.shape)


def linear_scores(X: Any, coef: Any, intercept: Array) -> Array:
    """Return ``X @ coef.T + intercept``, a dense array with one column per output; ``X`` and ``coef`` may be sparse."""
    product = X @ coef.T
    return (product.toarray() if sparse.issparse(product) else np.asarray(product)) + intercept


def as_sparse(coef: Any) -> Any:
    """Return coefficients as a CSR array."""
    return sparse.csr_array(coef)


def as_dense(coef: Any) -> Array:
    """Return coefficients as a dense array."""
    return coef.toarray() if sparse.issparse(coef) else coef


def group_sums(X: Any, coef: Array, groups: Array) -> Array:
    """Return the sums of ``coef_d x_id`` over the features of each group, a dense array of shape (n_rows, n_groups)."""
    shape = X.shape[1], int(groups.max()) + 1
    sums = X @ sparse.csr_array((coef, (np.arange(X.shape[1]), groups)), shape=shape)
    return sums.toarray() if sparse.issparse(sums) else sums
