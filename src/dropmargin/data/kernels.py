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

from dropmargin.compiled import load_library, warn_if_missing
from dropmargin.typing import Array

#: The function ``f`` of ``f(X)``, as the C code numbers it: none, the square, the identity, an array of values,
#: ``x (x - r)`` with one ``r`` per feature; the identity of values that are all 1 and are not read.
MODE_NONE, MODE_SQUARE, MODE_IDENTITY, MODE_ARRAY, MODE_DEVIATION, MODE_PRESENCE = range(6)
# The C code has a buffer for one row of results, of at most this width.
MAX_WIDTH = 512
# The seed of the random order of the rows. It is fixed, so that fits are reproducible.
_SEED = 0x9E3779B97F4A7C15


LIBRARY_PATH = Path(__file__).with_name("_kernels.so")


def _load() -> ctypes.CDLL | None:
    library = load_library(LIBRARY_PATH)
    if library is None:
        return None
    pointer, integer, real, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_double, ctypes.c_int64
    matrix = [size, pointer, pointer, pointer]
    by_mode, by_group = [*matrix, pointer, integer], [*matrix, integer, *[pointer] * 3, size, pointer]
    arguments: dict[str, list[Any]] = {
        "forward": [*by_mode, integer, integer, pointer, pointer],
        "backward": [*by_mode, integer, integer, pointer, pointer],
        "sandwich": [*by_mode, integer, integer, *[pointer] * 5],
        "coupled": [*by_mode, *[pointer] * 6],
        "images": [*by_mode, pointer, pointer, pointer],
        "group_runs": [size, pointer, pointer, size, *[pointer] * 5],
        "group_forward": [*by_group, pointer, pointer],
        "group_sandwich": [*by_group, integer, *[pointer] * 5],
        "group_backward": [*by_group, integer, *[pointer] * 3],
        "descend_dual": [*[pointer] * 4, integer, *[pointer] * 3, *[real] * 3, *[pointer] * 7],
    }
    for kind in ("f4i4", "f4i8", "f8i4", "f8i8"):
        for name, types in arguments.items():
            function = getattr(library, f"{name}_{kind}")
            function.argtypes = types
            function.restype = size if name == "group_runs" else None
    return library


_LIBRARY = _load()


def available() -> bool:
    """Return whether the compiled kernels are in use; the first call warns if they are not there."""
    if _LIBRARY is None:
        warn_if_missing(LIBRARY_PATH)
    return _LIBRARY is not None


def kind_of(rows: Any) -> str:
    """Return the suffix of the C functions for the data and index types of a CSR matrix."""
    return f"f{rows.data.itemsize}i{rows.indices.itemsize}"


class CSRKernels:
    """Products with one CSR matrix; the object holds references to its arrays.

    Parameters
    ----------
    rows : csr_array
    mode : int
        The function ``f``.
    entries : ndarray, default=None
        Its values, for ``MODE_ARRAY``.
    reference : ndarray of shape (n_features,), default=None
        ``r`` of ``f(x) = x (x - r)``, for ``MODE_DEVIATION`` and ``MODE_PRESENCE``.
    """

    def __init__(self, rows: Any, mode: int, entries: Array | None = None, reference: Array | None = None) -> None:
        library = _LIBRARY
        assert library is not None
        kind = kind_of(rows)
        self.n_rows, self.n_features = rows.shape
        self._forward, self._backward, self._sandwich, self._coupled, self._images = (
            getattr(library, f"{name}_{kind}") for name in ("forward", "backward", "sandwich", "coupled", "images")
        )
        self._group_runs, self._group_forward, self._group_sandwich, self._group_backward = (
            getattr(library, f"group_{name}_{kind}") for name in ("runs", "forward", "sandwich", "backward")
        )
        self._runs_of: tuple[Array, Array, Array] | None = None
        self._most_members = 1 + 3 * len(rows.indices) // 2 + self.n_rows
        arrays = [np.ascontiguousarray(array) for array in (rows.indptr, rows.indices, rows.data)]
        entries = None if entries is None else np.ascontiguousarray(entries, dtype=rows.dtype)
        self._alive = [*arrays, entries]
        self._matrix = (self.n_rows, *(array.ctypes.data for array in arrays))
        self._rows = (*self._matrix, None if entries is None else entries.ctypes.data)
        self._longest = int(np.diff(rows.indptr).max(initial=0))
        self._mode = mode
        self._mode_of_x = MODE_PRESENCE if mode == MODE_PRESENCE else MODE_NONE
        self._reference = reference if mode == MODE_DEVIATION else None
        # x (x - r) is (1 - r) x if every x is 1: a factor of each feature, outside of the sweep over the entries.
        self._factor = None if mode != MODE_PRESENCE or reference is None else 1.0 - reference[:, None]

    def _operand(self, right: Array, n_x: int) -> tuple[int, Array]:
        """Return the mode and an operand of ``X`` and ``f(X)`` in the form that the C code reads."""
        if right.shape[1] == n_x:
            return self._mode_of_x, np.ascontiguousarray(right, dtype=np.float64)
        if self._reference is not None:
            right = np.column_stack([right, self._reference])
        elif self._factor is not None:
            right = np.hstack([right[:, :n_x], self._factor * right[:, n_x:]])
        return self._mode, np.ascontiguousarray(right, dtype=np.float64)

    def _scaled(self, out: Array, width: int, n_x: int) -> Array:
        """Return a transposed product from the results of the C code."""
        if self._factor is not None and width > n_x:
            out[:, n_x:] *= self._factor
        return out[:, :width]

    def _results(self, width: int, n_x: int) -> tuple[int, Array]:
        """Return the mode and memory for a transposed product."""
        if width == n_x:
            return self._mode_of_x, np.zeros((self.n_features, width))
        if self._reference is None:
            return self._mode, np.zeros((self.n_features, width))
        out = np.zeros((self.n_features, width + 1))
        out[:, -1] = self._reference
        return self._mode, out

    def forward(self, right: Array, n_x: int) -> Array:
        """Return ``X`` times the first ``n_x`` columns of ``right`` and ``f(X)`` times the others, side by side."""
        width = right.shape[1]
        mode, right = self._operand(right, n_x)
        out = np.empty((self.n_rows, width))
        self._forward(*self._rows, mode, n_x, width - n_x, right.ctypes.data, out.ctypes.data)
        return out

    def backward(self, left: Array, n_x: int) -> Array:
        """Return ``X'`` times the first ``n_x`` columns of ``left`` and ``f(X)'`` times the others, side by side."""
        width = left.shape[1]
        left = np.ascontiguousarray(left, dtype=np.float64)
        mode, out = self._results(width, n_x)
        self._backward(*self._rows, mode, n_x, width - n_x, left.ctypes.data, out.ctypes.data)
        return self._scaled(out, width, n_x)

    def sandwich(self, right: Array, shift: Array, curvature_weight: Array, n: int) -> tuple[Array, Array]:
        """Return the Hessian products and the sums over the rows, as `Block.sandwich` defines them."""
        width = right.shape[1]
        mode, right = self._operand(right, n)
        _, out = self._results(width, n)
        sums = np.zeros(width)
        operands = [np.ascontiguousarray(a, dtype=np.float64) for a in (right, shift, curvature_weight)]
        self._sandwich(*self._rows, mode, n, width - n, *_addresses(*operands, out, sums))
        return self._scaled(out, width, n), sums

    def coupled(self, direction: Array, scale: Array, shift: Array, curvature_weight: Array) -> tuple[Array, Array]:
        """Return the Hessian product of one output and the sums, as `Block.coupled_product` defines them."""
        weight = np.ascontiguousarray(curvature_weight)
        if self._mode == MODE_PRESENCE:
            right = np.empty((self.n_features, 2))
            right[:, 0] = direction[:, 0]
            scale = scale if self._factor is None else self._factor * scale
            np.multiply(direction[:, 0], scale[:, 0], out=right[:, 1])
            both, sums = np.zeros((self.n_features, 2)), np.zeros(2)
            self._sandwich(*self._rows, self._mode, 1, 1, *_addresses(right, shift, weight, both, sums))
            out = scale * both[:, 1:]
            out += both[:, :1]
            return out, sums
        columns = [direction, scale] if self._reference is None else [direction, scale, self._reference[:, None]]
        right = np.hstack(columns)
        out, sums, scratch = np.zeros((self.n_features, 1)), np.zeros(2), np.empty(self._longest)
        self._coupled(*self._rows, self._mode, *_addresses(right, shift, weight, scratch, out, sums))
        return out, sums

    def images(self, left: Array, scale: Array) -> Array:
        """Return ``X'a + s f(X)'c``, ``X'b + s f(X)'d`` and ``(X * X)'h``, for ``left = (a, b, c, d, h)``."""
        _, right = self._operand(scale, 0)
        left = np.ascontiguousarray(left)
        out = np.zeros((self.n_features, 3))
        self._images(*self._rows, self._mode, *_addresses(right, left, out))
        return out

    def _runs(self, numbers: Array) -> tuple[Array, Array]:
        """Return the runs of entries that share a group, as the C code describes them; found once for all products."""
        known = self._runs_of
        if known is not None and (known[0] is numbers or np.array_equal(known[0], numbers)):
            return known[1:]
        (indptr, indices, _), longest = self._matrix[1:], self._longest
        first, members = np.empty(self.n_rows + 1, np.int64), np.empty(self._most_members, np.int32)
        own, stamp = np.zeros(3 * (longest + 1), np.int32), np.zeros(int(numbers.max()) + 1, np.int64)
        arrays = _addresses(numbers, stamp, own, first, members)
        size = self._group_runs(self.n_rows, indptr, indices, longest, *arrays)
        self._runs_of = numbers, first, members[:size].copy()
        return self._runs_of[1:]

    @property
    def are_ones(self) -> bool:
        """Whether all values are one."""
        return self._mode == MODE_PRESENCE

    def _for_groups(self, along: Any, k: int) -> tuple[tuple[Any, ...], list[Array]]:
        """Return the arguments that the functions for groups have in common, and arrays that must stay alive."""
        alive = [*self._runs(along.operand.groups.short_numbers), along.scaled[k], np.empty(2 * self._longest)]
        *addresses, memory = _addresses(*alive)
        return (*self._matrix, self._mode, *addresses, self._longest, memory), alive

    def group_forward(self, along: Any, k: int) -> Array:
        """Return ``a`` and ``t`` of output ``k``, less what every row has in common."""
        out, right = np.empty((self.n_rows, 2)), along.factors_of_ones if self.are_ones else along.factors_of_values
        common, _alive = self._for_groups(along, k)
        self._group_forward(*common, *_addresses(right[k], out))
        return out

    def group_sandwich(self, along: Any, k: int, shift: Array, weights: Array) -> tuple[Array, Array]:
        """Return the sums over the rows that the C function describes: by feature and in total."""
        is_coupled, weights = bool(weights[:, 1:3].any()), np.ascontiguousarray(weights)
        if is_coupled:
            right = along.factors_of_ones[k] if self.are_ones else along.factors_of_values[k]
        else:
            right = np.ascontiguousarray(along.direction[:, [k]])
        out, totals = np.zeros((self.n_features, 1 + is_coupled)), np.zeros(2)
        common, _alive = self._for_groups(along, k)
        self._group_sandwich(*common, is_coupled, *_addresses(right, shift, weights, out, totals))
        return out, totals

    def group_backward(self, along: Any, k: int, left: Array) -> tuple[Array, Array]:
        """Return the sums over the rows that the C function describes: ``out`` and ``second``."""
        n, left = left.shape[1] // 2, np.ascontiguousarray(left)
        out = np.zeros((self.n_features, 2 * n if self.are_ones else 4 * n - 1))
        second = np.zeros(self.n_features if n == 2 else 0)
        common, _alive = self._for_groups(along, k)
        self._group_backward(*common, n, *_addresses(left, out, second))
        return out, second


def _addresses(*arrays: Array) -> list[int]:
    return [array.ctypes.data for array in arrays]


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
