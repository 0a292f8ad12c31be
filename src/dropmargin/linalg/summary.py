"""What must be known of a matrix before a fit (canonical form, range, offsets), and scores after it."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.typing import Array

# A column whose mean is this many standard deviations from zero costs a solver all its digits.
_LARGE_OFFSET = 1e3


def canonical(X: Any) -> Any:
    """Return ``X`` as a dense array or as CSR without duplicate entries; the caller's arrays are never changed.

    A duplicate entry ``a + b`` must be summed before it is squared: ``a^2 + b^2`` would not be its square.
    """
    if not sparse.issparse(X):
        return X
    rows = sparse.csr_array(X)  # shares the arrays if X is CSR
    # Flags that came with X are not trusted: a new array scans the indices.
    rows = sparse.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape, copy=False)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def entry_range(X: Any) -> tuple[float, float]:
    """Return the smallest and the largest entry."""
    values = X.data if sparse.issparse(X) else X
    if values.size == 0:
        return 0.0, 0.0
    return float(values.min()), float(values.max())


def worst_column(X: Any, smallest: bool) -> int:
    """Return the column of the smallest entry, or else of the largest in absolute value."""
    values = X.data if sparse.issparse(X) else X
    where = int(np.argmin(values) if smallest else np.argmax(np.abs(values)))
    return int(X.indices[where]) if sparse.issparse(X) else where % X.shape[1]


def large_offset(X: Any, weights: Array) -> Array | None:
    """Return the weighted column means of a dense ``X`` if one of them dwarfs its column's spread, else ``None``.

    An unpenalised offset makes the fit invariant to a shift of the columns, but finite precision does not.
    """
    if sparse.issparse(X):
        return None
    share = weights / weights.sum()
    mean = np.asarray(X.T @ share.astype(X.dtype), dtype=np.float64)
    square = np.zeros(X.shape[1])
    for begin in range(0, X.shape[0], 1024):
        square += share[begin : begin + 1024] @ np.square(X[begin : begin + 1024] - mean)
    deviation = np.sqrt(square)
    large = (np.abs(mean) > _LARGE_OFFSET * deviation) & (
        (deviation > 1e-12 * np.abs(mean)) | (np.abs(mean) > _LARGE_OFFSET)
    )
    return mean if large.any() else None


def linear_scores(X: Any, coef: Array, intercept: Array) -> Array:
    """Return ``X @ coef.T + intercept`` as a dense array of one column per row of ``coef``."""
    return np.asarray(X @ coef.T) + intercept
