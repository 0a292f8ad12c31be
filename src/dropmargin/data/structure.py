"""Checks of the index arrays of a sparse matrix.

SciPy does not compare the indices with the shape when it multiplies or converts a matrix: an index outside the shape
makes compiled code read or write outside the arrays. These checks read the indices once and prevent that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.typing import Array


def sound_csr(X: Any, name: str = "X") -> Any:
    """Return a sparse matrix of any format as CSR with valid indices, or raise a `ValueError`.

    A CSR matrix is returned unchanged. Duplicate and unsorted entries are valid.
    """
    if X.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, got a sparse array of shape {X.shape}.")
    check_structure(X, name)
    if X.format != "csr":
        X = X.tocsr()
        check_structure(X, name)  # formats without index arrays are checked here
    n_stored = int(X.indptr[-1])
    parts = X.data[:n_stored], _signed(X.indices[:n_stored]), _signed(X.indptr)
    if len(X.data) == n_stored and parts[1].dtype == X.indices.dtype and parts[2].dtype == X.indptr.dtype:
        return X
    make = sparse.csr_array if isinstance(X, sparse.sparray) else sparse.csr_matrix
    return make(parts, shape=X.shape)


def check_structure(X: Any, name: str = "X") -> None:
    """Raise a `ValueError` if the index arrays of a sparse matrix are inconsistent with each other or its shape."""
    fault = structure_fault(X)
    if fault is not None:
        raise ValueError(
            f"{name} is not a valid sparse matrix ({X.format}, shape {X.shape}): {fault}. Its arrays were changed "
            "after it was constructed, or belong to different matrices; construct it again from its entries."
        )


def structure_fault(X: Any, *, exact: bool = False) -> str | None:
    """Return a description of the error in the index arrays of a sparse matrix; ``None`` if there is none.

    SciPy allows stored values after those of the last row; with ``exact`` they are an error.
    """
    if not sparse.issparse(X):
        return None
    if X.format in ("csr", "csc"):
        n_lines, width = X.shape if X.format == "csr" else X.shape[::-1]
        fault = _array_fault(X, ("data",), "fiubcO") or _compressed_fault(X, n_lines, width)
        is_longer = fault is None and exact and X.indptr[-1] < len(X.indices)
        return f"indptr ends with {X.indptr[-1]}, but there are {len(X.indices)} indices" if is_longer else fault
    if X.format == "bsr":
        if X.data.ndim != 3 or any(n % size for n, size in zip(X.shape, X.data.shape[1:], strict=True)):
            return f"blocks of shape {X.data.shape[1:]} do not divide its shape"
        return _compressed_fault(X, X.shape[0] // X.data.shape[1], X.shape[1] // X.data.shape[2])
    if X.format == "coo":
        return _coordinate_fault(X)
    if X.format == "lil" and [len(row) for row in X.rows] != [len(row) for row in X.data]:
        return "the numbers of indices and values of a row differ"
    if X.format == "dia" and (X.data.ndim != 2 or X.data.shape[0] != len(X.offsets)):
        return f"there are {len(X.offsets)} offsets, but data has the shape {X.data.shape}"
    return None


def _compressed_fault(X: Any, n_lines: int, width: int) -> str | None:
    """Return the error in ``indices`` and ``indptr`` of this many rows (or columns), or ``None``."""
    fault = _array_fault(X, ("indices", "indptr"), "iu")
    if fault is not None:
        return fault
    indices, indptr = X.indices, X.indptr
    if len(indptr) != n_lines + 1:
        return f"indptr must have {n_lines + 1} entries, but has {len(indptr)}"
    if indptr[0] != 0:
        return f"indptr must begin with 0, but begins with {indptr[0]}"
    if (indptr[1:] < indptr[:-1]).any():
        return "indptr must not decrease"
    if len(indices) != len(X.data) or indptr[-1] > len(indices):
        return f"indptr ends with {indptr[-1]}, but there are {len(indices)} indices and {len(X.data)} values"
    return _range_fault("indices", indices[: int(indptr[-1])], width)


def _coordinate_fault(X: Any) -> str | None:
    fault = _array_fault(X, ("data",), "fiubcO") or _array_fault(X, ("row", "col"), "iu")
    if fault is not None:
        return fault
    if not len(X.row) == len(X.col) == len(X.data):
        return f"there are {len(X.row)} row indices, {len(X.col)} column indices and {len(X.data)} values"
    return _range_fault("row", X.row, X.shape[0]) or _range_fault("col", X.col, X.shape[1])


def _array_fault(X: Any, names: tuple[str, ...], kinds: str) -> str | None:
    for name in names:
        array = getattr(X, name)
        if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
            found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            wanted = "integers" if kinds == "iu" else "numbers"
            return f"{name} must be a one-dimensional array of {wanted}, not {found}"
    return None


def _range_fault(name: str, indices: Array, size: int) -> str | None:
    # A negative index is a large number if it is read as unsigned, so the maximum detects both errors.
    unsigned = indices.view(indices.dtype.str.replace("i", "u"))
    if not indices.size or unsigned.max() < size:
        return None
    where = int(np.argmax(unsigned >= size))
    return f"{name}[{where}] is {indices[where]}, but must be in [0, {size})"


def _signed(indices: Array) -> Array:
    """Return indices of a signed type, as the products of SciPy require."""
    return indices.astype(np.int64) if indices.dtype.kind == "u" else indices
