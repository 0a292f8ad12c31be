"""Compiled sweeps over CSR rows (`_kernels.c`). They are optional: without them SciPy computes the products, slower.

`hatch_build.py` builds them when the package is installed, if the machine has a C compiler. The environment variable
``DROPMARGIN_KERNELS=0`` disables them.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dropmargin.compiled import load_library, warn_if_missing
from dropmargin.data.variance import Variance
from dropmargin.typing import Array

# The seed of the random order of the rows. It is fixed, so that fits are reproducible.
_SEED = 0x9E3779B97F4A7C15
_KINDS = ("f4i4", "f4i8", "f8i4", "f8i8", "ones_i4", "ones_i8")

LIBRARY_PATH = Path(__file__).with_name("_kernels.so")


class _Rows(ctypes.Structure):
    """``rows_t`` of the C code."""

    _fields_ = [(name, ctypes.c_int64) for name in ("n_rows", "n_features", "n_groups", "longest")] + [
        (name, ctypes.c_void_p) for name in ("indptr", "indices", "x", "g", "group", "slope", "reference", "floor")
    ]


class _Model(ctypes.Structure):
    """``model_t`` of the C code."""

    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("w", "curvature", "by_variance", "mean", "variance", "own", "free")]
        + [(name, ctypes.c_int64) for name in ("fit_intercept", "deflates_coef")]
        + [(name, ctypes.c_void_p) for name in ("coef_image", "intercept_image", "diagonal")]
    )


def _load() -> ctypes.CDLL | None:
    library = load_library(LIBRARY_PATH)
    if library is None:
        return None
    pointer, real, size, rows = ctypes.c_void_p, ctypes.c_double, ctypes.c_int64, ctypes.POINTER(_Rows)
    arguments: dict[str, list[Any]] = {
        "moments": [rows, *[pointer] * 4],
        "gradient": [rows, *[pointer] * 6],
        "solve": [rows, ctypes.POINTER(_Model), pointer, real, real, size, *[pointer] * 4],
        "descend_dual": [rows, size, *[pointer] * 3, *[real] * 3, *[pointer] * 7],
    }
    for kind in _KINDS:
        for name, types in arguments.items():
            function = getattr(library, f"{name}_{kind}")
            function.argtypes = types
            function.restype = size if name == "solve" else None
    return library


_LIBRARY = _load()


def available() -> bool:
    """Return whether the compiled kernels are in use; the first call warns if they are not there."""
    if _LIBRARY is None:
        warn_if_missing(LIBRARY_PATH)
    return _LIBRARY is not None


def _address(array: Array | None) -> int | None:
    return None if array is None else array.ctypes.data


class InnerSolution(NamedTuple):
    """The result of `CompiledRows.solve`.

    ``steps`` and ``ratios`` are the step lengths and the ratios of the squared residuals; ``left`` is the decrease that
    is left.
    """

    x: Array
    steps: Array
    ratios: Array
    left: float


class CompiledRows:
    """Sweeps over one CSR matrix; the object holds references to its arrays.

    Parameters
    ----------
    rows : csr_array
        If all entries are 1, compiled code reads only the indices.
    variance : Variance, default=None
        The variance of the entries of independent features.
    groups : FeatureGroups, default=None
        Columns must be sorted by group.
    """

    def __init__(self, rows: Any, variance: Variance | None = None, groups: Any = None) -> None:
        assert _LIBRARY is not None
        self.n_rows, self.n_features = rows.shape
        has_ones = bool((rows.data == 1.0).all())
        self._library = _LIBRARY
        self._kind = f"{'ones_' if has_ones else f'f{rows.data.itemsize}'}i{rows.indices.itemsize}"
        values, features, dtype = rows.data, rows.indices, rows.dtype
        if has_ones:
            values, features, dtype = np.ones(self.n_features), np.arange(self.n_features), np.dtype(np.float64)
        g = floor = None
        if groups is None and variance is not None:
            g = variance.stored(values, features).astype(dtype) if variance.depends_on_x else None
            constant = np.asarray(variance.constant, dtype=np.float64)
            floor = np.broadcast_to(constant, self.n_features) if constant.any() else None
        self._alive: list[Array | None] = [
            np.ascontiguousarray(rows.indptr),
            np.ascontiguousarray(rows.indices),
            None if has_ones else np.ascontiguousarray(rows.data),
            g,
        ]
        tables: list[Array | None] = [None] * 3
        if groups is not None:
            tables = [groups.numbers.astype(np.int32), groups.slope, groups.reference]
        self._alive += [*tables, None if floor is None else np.ascontiguousarray(floor)]
        longest = int(np.diff(rows.indptr).max(initial=0))
        n_groups = 0 if groups is None else groups.n_groups
        self._rows = _Rows(self.n_rows, self.n_features, n_groups, longest, *map(_address, self._alive))
        self.n_groups = n_groups

    def _call(self, name: str, *args: Any) -> Any:
        addresses = [_address(own) if isinstance(own, np.ndarray) else own for own in args]
        return getattr(self._library, f"{name}_{self._kind}")(ctypes.byref(self._rows), *addresses)

    def moments(self, coef: Array) -> tuple[Array, Array]:
        """Return mean and variance of the scores at coefficients with the intercept last."""
        mean, variance, buffer = np.empty(self.n_rows), np.empty(self.n_rows), np.empty(2 * self.n_features)
        self._call("moments", np.ascontiguousarray(coef), buffer, mean, variance)
        return mean, np.maximum(variance, 0.0, out=variance)  # far from the reference, less is rounding

    def gradient(self, coef: Array, by_mean: Array, by_variance: Array) -> tuple[Array, Array | None]:
        """Return the gradient of ``sum_i (by_mean_i m_i + by_variance_i v_i)``.

        For independent features, also ``sum_i by_variance_i V_d(x_id)`` of each feature.
        """
        out, buffer = np.empty(self.n_features + 1), np.empty(2 * self.n_features)
        own = None if self.n_groups else np.empty(self.n_features)
        left = np.ascontiguousarray(by_mean), np.ascontiguousarray(by_variance)
        self._call("gradient", np.ascontiguousarray(coef), *left, buffer, out, own)
        return out, own

    def solve(self, model: dict[str, Any], right: Array, rtol: float, atol: float, max_iter: int) -> InnerSolution:
        """Solve the system of a Newton step by conjugate gradients, see ``solve`` of the C code.

        ``model`` has the fields of ``model_t``; its last three arrays are results.
        """
        own = _Model(*(_address(v) if isinstance(v, np.ndarray) else v for v in model.values()))
        x, steps, ratios = np.empty(self.n_features + 1), np.empty(max_iter), np.empty(max_iter)
        left = np.empty(1)
        n_iter = self._call("solve", ctypes.byref(own), right, rtol, atol, max_iter, x, steps, ratios, left)
        if n_iter < 0:
            raise MemoryError("no memory for the vectors of conjugate gradients")
        return InnerSolution(x, steps[:n_iter], ratios[:n_iter], float(left[0]))


class DualDescent:
    """Dual coordinate descent for the hinge loss, over the rows of a CSR matrix.

    It minimises ``|w|^2 / (2 scale) + sum_i upper_i max(0, margin - label_i (x_i.w + b))``; the dual variables ``a_i``
    are in ``[0, upper_i]``.

    Parameters
    ----------
    rows : CompiledRows
    labels, upper : ndarrays of shape (n_rows,)
        Rows with an upper bound of zero are ignored.
    squares : ndarray of shape (n_rows,)
        The squared norms of the rows.
    margin, scale : float
    """

    def __init__(
        self, rows: CompiledRows, labels: Array, upper: Array, squares: Array, margin: float, scale: float
    ) -> None:
        self._rows, self._margin, self._scale = rows, margin, scale
        self._targets = [np.ascontiguousarray(values, dtype=np.float64) for values in (labels, upper, squares)]
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
        state = [self._order, self._n_active, self._violations, self._random_state, dual, coef, intercept]
        numbers = self._margin, self._scale, intercept_step
        self._rows._call("descend_dual", n_epochs, *self._targets, *numbers, *state)
