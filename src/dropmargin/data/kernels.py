"""The compiled sweeps over CSR rows (`_kernels.c`), if they were built; everything works without them, more slowly.

They are built by `hatch_build.py` when the package is installed, if the machine has a C compiler. Set the environment
variable ``DROPMARGIN_KERNELS=0`` to do without.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.compiled import load_library
from dropmargin.typing import Array

#: What ``f(X)`` is, by the numbers of the C code: nothing, the square, ``X`` itself, an array of its own.
MODE_NONE, MODE_SQUARE, MODE_IDENTITY, MODE_ARRAY = range(4)
# The C code keeps a row of results of at most this width.
MAX_WIDTH = 512
# Where the random order of the rows begins: always the same, so that a fit gives the same digits every time.
_SEED = 0x9E3779B97F4A7C15


def _load() -> ctypes.CDLL | None:
    library = load_library(Path(__file__).with_name("_kernels.so"))
    if library is None:
        return None
    pointer, integer, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_double
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
        function = getattr(library, f"descend_dual_{kind}")
        function.argtypes = [pointer] * 4 + [integer] + [pointer] * 3 + [real] * 3 + [pointer] * 7
        function.restype = None
    return library


_LIBRARY = _load()


def available() -> bool:
    """Return whether the compiled kernels are in use."""
    return _LIBRARY is not None


def kind_of(rows: Any) -> str:
    """Return the name of the kind of data and indices of a CSR matrix."""
    return f"f{rows.data.itemsize}i{rows.indices.itemsize}"


class CSRKernels:
    """The sweeps over one CSR matrix, whose arrays it keeps alive."""

    def __init__(self, rows: Any, mode: int, entries: Array | None) -> None:
        library = _LIBRARY
        assert library is not None
        kind = kind_of(rows)
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


class DualDescent:
    """Coordinate descent in the dual of the hinge loss, over the rows of one or more CSR matrices of the same kind.

    The problem is to minimise ``|w|^2 / (2 scale) + sum_i upper_i max(0, margin - label_i (x_i.w + b))``, and the dual
    variables ``a_i`` are in ``[0, upper_i]``.

    Parameters
    ----------
    matrices : sequence of csr_array
    labels, upper : ndarrays of shape (n_rows,)
        Rows with an upper bound of zero take no part.
    squares : ndarray of shape (n_rows,)
        The squared norms of the rows.
    margin, scale : float
    """

    def __init__(
        self, matrices: Sequence[Any], labels: Array, upper: Array, squares: Array, margin: float, scale: float
    ) -> None:
        assert _LIBRARY is not None
        self._descend = getattr(_LIBRARY, f"descend_dual_{kind_of(matrices[0])}")
        self._edges = np.cumsum([0] + [rows.shape[0] for rows in matrices], dtype=np.int64)
        names = ("indptr", "indices", "data")
        self._alive = [[np.ascontiguousarray(getattr(rows, name)) for rows in matrices] for name in names]
        self._matrices = [np.array([array.ctypes.data for array in own], dtype=np.uintp) for own in self._alive]
        self._rows = [np.ascontiguousarray(values, dtype=np.float64) for values in (labels, upper, squares)]
        self._margin, self._scale = margin, scale
        self._state = np.array([_SEED], dtype=np.uint64)
        self._order = np.flatnonzero(upper > 0.0).astype(np.int64)
        self.restart()

    def restart(self) -> None:
        """Put all rows to work again."""
        self._n_active = np.array([len(self._order)], dtype=np.int64)
        self._beyond = np.array([-np.inf, np.inf])

    def left_out(self) -> Array:
        """Return the rows that are not at work at present: those at a bound that seem to stay there."""
        return self._order[self._n_active[0] :]

    def run(self, n_epochs: int, offset_scale: float, dual: Array, weights: Array, offset: Array) -> None:
        """Go over the rows at work so many times, in a random order that is always the same.

        Parameters
        ----------
        n_epochs : int
        offset_scale : float
            How far the offset follows the sum of ``label * dual``, which is to become zero; zero for no offset.
        dual, weights : ndarrays of shape (n_rows,) and (n_features,), in double precision
            The dual variables, and ``scale`` times the sum of ``label * dual`` times the row. Changed in place.
        offset : ndarray of shape (2,), in double precision
            The offset, and the sum of ``label * dual``. Changed in place.
        """
        arrays = [self._edges, *self._matrices]
        state = [self._order, self._n_active, self._beyond, self._state, dual, weights, offset]
        self._descend(
            *(array.ctypes.data for array in arrays),
            n_epochs,
            *(array.ctypes.data for array in self._rows),
            self._margin,
            self._scale,
            offset_scale,
            *(array.ctypes.data for array in state),
        )
