"""Compiled products with CSR rows (`_kernels.c`). They are optional: without them SciPy computes the products, slower.

`hatch_build.py` builds them when the package is installed, if the machine has a C compiler. The environment variable
``DROPMARGIN_KERNELS=0`` disables them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.compiled import load_library
from dropmargin.typing import Array

#: The function ``f`` of ``f(X)``, as the C code numbers it: none, the square, the identity, an array of values, or
#: ``x (x - r)`` with an array of one ``r`` per feature.
MODE_NONE, MODE_SQUARE, MODE_IDENTITY, MODE_ARRAY, MODE_DEVIATION = range(5)
# The C code has a buffer for one row of results, of at most this width.
MAX_WIDTH = 512
# The seed of the random order of the rows. It is fixed, so that fits are reproducible.
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
        matrix = [ctypes.c_int64, pointer, pointer, pointer]
        groups: dict[str, list[Any]] = {
            "group_forward": [pointer] * 8,
            "group_sandwich": [pointer] * 5 + [integer] + [pointer] * 7,
        }
        for name, own in groups.items():
            function = getattr(library, f"{name}_{kind}")
            function.argtypes = matrix + own
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
    """Return the suffix of the C functions for the data and index types of a CSR matrix."""
    return f"f{rows.data.itemsize}i{rows.indices.itemsize}"


class CSRKernels:
    """Products with one CSR matrix; the object holds references to its arrays."""

    def __init__(self, rows: Any, mode: int, entries: Array | None) -> None:
        library = _LIBRARY
        assert library is not None
        kind = kind_of(rows)
        self.n_rows, self.n_features = rows.shape
        self._forward, self._backward, self._sandwich = (
            getattr(library, f"{name}_{kind}") for name in ("forward", "backward", "sandwich")
        )
        arrays = [np.ascontiguousarray(array) for array in (rows.indptr, rows.indices, rows.data)]
        entries = None if entries is None else np.ascontiguousarray(entries, dtype=rows.dtype)
        self._alive = [*arrays, entries]
        pointers = [array.ctypes.data for array in arrays]
        self._rows = (self.n_rows, *pointers, None if entries is None else entries.ctypes.data)
        self._mode = mode

    def forward(self, right: Array, n_x: int) -> Array:
        """Return ``X`` times the first ``n_x`` columns of ``right`` and ``f(X)`` times the others, side by side."""
        width = right.shape[1]
        right = np.ascontiguousarray(right, dtype=np.float64)
        out = np.empty((self.n_rows, width))
        mode = self._mode if width > n_x else MODE_NONE
        self._forward(*self._rows, mode, n_x, width - n_x, right.ctypes.data, out.ctypes.data)
        return out

    def backward(self, left: Array, n_x: int) -> Array:
        """Return ``X'`` times the first ``n_x`` columns of ``left`` and ``f(X)'`` times the others, side by side."""
        width = left.shape[1]
        left = np.ascontiguousarray(left, dtype=np.float64)
        out = np.zeros((self.n_features, width))
        mode = self._mode if width > n_x else MODE_NONE
        self._backward(*self._rows, mode, n_x, width - n_x, left.ctypes.data, out.ctypes.data)
        return out

    def sandwich(self, right: Array, shift: Array, curvature_weight: Array, n: int) -> tuple[Array, Array]:
        """Return the Hessian products and the sums over the rows, as `Block.sandwich` defines them."""
        operands = [np.ascontiguousarray(a, dtype=np.float64) for a in (right, shift, curvature_weight)]
        out, sums = np.zeros((self.n_features, right.shape[1])), np.zeros(right.shape[1])
        mode = self._mode if right.shape[1] > n else MODE_NONE
        self._sandwich(*self._rows, mode, n, *(array.ctypes.data for array in (*operands, out, sums)))
        return out, sums


class GroupKernels:
    """Products with one CSR matrix whose features are in groups, for one output at a time; see `data.groups`."""

    def __init__(self, rows: Any, groups: Any) -> None:
        assert _LIBRARY is not None
        kind = kind_of(rows)
        self._forward, self._sandwich = (
            getattr(_LIBRARY, f"{name}_{kind}") for name in ("group_forward", "group_sandwich")
        )
        self.n_rows, self.n_features = rows.shape
        self._n_groups = groups.n_groups
        self._alive = [np.ascontiguousarray(array) for array in (rows.indptr, rows.indices, rows.data)]
        self._alive += [np.ascontiguousarray(groups.numbers, dtype=np.int32), groups.slope]
        self._rows = (self.n_rows, *(array.ctypes.data for array in self._alive))

    def _scratch(self) -> list[Array]:
        n = self._n_groups
        return [np.empty((n, 2)), np.zeros(n, dtype=np.int64), np.empty(n, dtype=np.int32)]

    def forward(self, right: Array, at: Array) -> Array:
        """Return mean and variance of the scores, less what every row has in common."""
        out = np.empty((self.n_rows, 2))
        arrays = [np.ascontiguousarray(at), np.ascontiguousarray(right), *self._scratch(), out]
        self._forward(*self._rows, *(array.ctypes.data for array in arrays))
        return out

    def sandwich(self, right: Array, at: Array, shift: Array, weights: Array) -> tuple[Array, Array, Array]:
        """Return the sums over the rows that the C function describes: by feature, by group, and in total."""
        weights = np.ascontiguousarray(weights)
        results = [np.zeros(self.n_features), np.zeros(self._n_groups), np.zeros(3)]
        before = [np.ascontiguousarray(array) for array in (at, right, shift)]
        after = [weights, *self._scratch(), *results]
        self._sandwich(
            *self._rows,
            *(array.ctypes.data for array in before),
            weights.shape[1],
            *(array.ctypes.data for array in after),
        )
        return results[0], results[1], results[2]


class DualDescent:
    """Dual coordinate descent for the hinge loss, over the rows of one or more CSR matrices of the same types.

    It minimises ``|w|^2 / (2 scale) + sum_i upper_i max(0, margin - label_i (x_i.w + b))``; the dual variables ``a_i``
    are in ``[0, upper_i]``.

    Parameters
    ----------
    matrices : sequence of csr_array
    labels, upper : ndarrays of shape (n_rows,)
        Rows with an upper bound of zero are ignored.
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
        self._random_state = np.array([_SEED], dtype=np.uint64)
        self._order = np.flatnonzero(upper > 0.0).astype(np.int64)
        self.restart()

    def restart(self) -> None:
        """Make all rows active again."""
        self._n_active = np.array([len(self._order)], dtype=np.int64)
        self._violations = np.array([-np.inf, np.inf])

    def left_out(self) -> Array:
        """Return the inactive rows: their dual variables are at a bound and likely to stay there (shrinking)."""
        return self._order[self._n_active[0] :]

    def run(self, n_epochs: int, intercept_step: float, dual: Array, coef: Array, intercept: Array) -> None:
        """Run epochs over the active rows, in a random order with a fixed seed.

        Parameters
        ----------
        n_epochs : int
        intercept_step : float
            The step of the intercept for a change of the sum of ``label * dual``, which is zero at the optimum; zero
            for a model without intercept.
        dual, coef : ndarrays of shape (n_rows,) and (n_features,), in double precision
            The dual variables, and ``scale`` times the sum of ``label * dual`` times the row. Changed in place.
        intercept : ndarray of shape (2,), in double precision
            The intercept, and the sum of ``label * dual``. Changed in place.
        """
        arrays = [self._edges, *self._matrices]
        state = [self._order, self._n_active, self._violations, self._random_state, dual, coef, intercept]
        self._descend(
            *(array.ctypes.data for array in arrays),
            n_epochs,
            *(array.ctypes.data for array in self._rows),
            self._margin,
            self._scale,
            intercept_step,
            *(array.ctypes.data for array in state),
        )
