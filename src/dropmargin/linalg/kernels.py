"""The compiled sweeps over CSR rows (`_kernels.c`), if they were built; everything works without them, more slowly.

They are built by `hatch_build.py` when the package is installed, if the machine has a C compiler. Set the environment
variable ``DROPMARGIN_KERNELS=0`` to do without.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.typing import Array

#: What ``f(X)`` is, by the numbers of the C code: nothing, the square, ``X`` itself, an array of its own.
MODE_NONE, MODE_SQUARE, MODE_IDENTITY, MODE_ARRAY = range(4)
# The C code keeps a row of results of at most this width.
MAX_WIDTH = 512


def _load() -> ctypes.CDLL | None:
    if os.environ.get("DROPMARGIN_KERNELS") == "0":
        return None
    path = Path(__file__).with_name("_kernels.so")
    if not path.exists():
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:  # built for another machine
        return None
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    for kind in ("f4i4", "f4i8", "f8i4", "f8i8"):
        rows = [ctypes.c_int64, pointer, pointer, pointer, pointer, integer]
        for name, rest in (
            ("forward", [integer, integer, pointer, pointer]),
            ("backward", [integer, integer, pointer, pointer]),
            ("sandwich", [integer, pointer, pointer, pointer, pointer, pointer]),
        ):
            function = getattr(library, f"{name}_{kind}")
            function.argtypes = rows + rest
            function.restype = None
    return library


_LIBRARY = _load()


def available() -> bool:
    """Return whether the compiled kernels are in use."""
    return _LIBRARY is not None


class CSRKernels:
    """The sweeps over one CSR matrix, whose arrays it keeps alive."""

    def __init__(self, rows: Any, mode: int, entries: Array | None) -> None:
        library = _LIBRARY
        assert library is not None
        kind = f"f{rows.data.itemsize}i{rows.indices.itemsize}"
        self.n_rows, self.n_features = rows.shape
        self._forward, self._backward, self._sandwich = (
            getattr(library, f"{name}_{kind}") for name in ("forward", "backward", "sandwich")
        )
        arrays = [np.ascontiguousarray(array) for array in (rows.indptr, rows.indices, rows.data)]
        self._alive = [*arrays, entries]
        pointers = [array.ctypes.data for array in arrays]
        self._rows = (self.n_rows, *pointers, None if entries is None else entries.ctypes.data)
        self._mode = mode

    def forward(self, weights: Array, n_x: int) -> Array:
        """Return ``X`` times the first ``n_x`` columns of ``weights`` and ``f(X)`` times the others, side by side."""
        width = weights.shape[1]
        weights = np.ascontiguousarray(weights, dtype=np.float64)
        out = np.empty((self.n_rows, width))
        mode = self._mode if width > n_x else MODE_NONE
        self._forward(*self._rows, mode, n_x, width - n_x, weights.ctypes.data, out.ctypes.data)
        return out

    def backward(self, left: Array, n_x: int) -> Array:
        """Return ``X'`` times the first ``n_x`` columns of ``left`` and ``f(X)'`` times the others, side by side."""
        width = left.shape[1]
        left = np.ascontiguousarray(left, dtype=np.float64)
        out = np.zeros((self.n_features, width))
        mode = self._mode if width > n_x else MODE_NONE
        self._backward(*self._rows, mode, n_x, width - n_x, left.ctypes.data, out.ctypes.data)
        return out

    def sandwich(self, weights: Array, shift: Array, curved: Array, n: int) -> tuple[Array, Array]:
        """Return both products of a curvature, forth and back in one sweep, and their sums over the rows."""
        weights, shift, curved = (np.ascontiguousarray(a, dtype=np.float64) for a in (weights, shift, curved))
        out, sums = np.zeros((self.n_features, weights.shape[1])), np.zeros(weights.shape[1])
        mode = self._mode if weights.shape[1] > n else MODE_NONE
        pointers = (weights.ctypes.data, shift.ctypes.data, curved.ctypes.data, out.ctypes.data, sums.ctypes.data)
        self._sandwich(*self._rows, mode, n, *pointers)
        return out, sums
