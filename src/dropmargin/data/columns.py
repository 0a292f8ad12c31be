"""Operations on the columns of matrices, one per output; a single column, the usual case, takes BLAS."""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import daxpy, ddot

from dropmargin.typing import Array


def column_dots(a: Array, b: Array) -> Array:
    """Return the inner product of each column of ``a`` with the same column of ``b``."""
    if a.shape[1] == 1:
        return np.array([ddot(a[:, 0], b[:, 0])])
    return np.einsum("dk,dk->k", a, b)


def add_scaled(out: Array, factors: Array, columns: Array) -> None:
    """Add each column times its factor to the same column of ``out``, which is contiguous, in place."""
    if out.shape[1] == 1:
        daxpy(columns[:, 0], out[:, 0], a=factors[0])
    else:
        out += factors * columns
