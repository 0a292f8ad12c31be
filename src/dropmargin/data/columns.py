"""Vector work on blocks of columns."""

from __future__ import annotations

import numpy as np

from dropmargin.typing import Array


def column_dots(a: Array, b: Array) -> Array:
    """Return the inner product of each column of ``a`` with that of ``b``."""
    if a.shape[1] == 1:  # the usual case, and several times faster
        with np.errstate(over="ignore", invalid="ignore"):  # as einsum has it: whoever asks looks at the result
            return np.dot(a[:, 0], b[:, 0])[None]
    return np.einsum("dk,dk->k", a, b)
