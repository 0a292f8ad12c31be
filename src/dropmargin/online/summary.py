r"""The quadratic summary of the rows that are gone: a penalty in the objective of the rows at hand.

At the coefficients ``z`` (intercept last) where it was made, the objective of the rows that are gone is taken to be::

    P(z + x) = P(z) + g'x + x'Hx / 2          H = D - D z (z'Dz)^-1 z'D + K Z (Z'K Z)^-1 Z'K

``g`` is its gradient, ``D`` the diagonal of its Hessian ``K``, without an entry for the intercept, and ``Z`` are the
coefficients ``z`` and the intercept alone. ``H`` is the update of ``D`` by the formula of Broyden, Fletcher, Goldfarb
and Shanno: positive, and ``H Z = K Z``. Coefficients that grow with the stream move mostly along ``Z``, and the
products ``K Z`` follow from the scores (`MomentCurvature.with_deflation`).

A block of rows joins the summary by the expansion of its objective, whose penalty is the summary before it. The first
summary is the l2 penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective.curvature import MomentCurvature
from dropmargin.objective.moment import MomentPoint
from dropmargin.objective.preconditioner import Diagonal
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

# An eigenvalue of the scaled matrix Z'KZ below this is rounding.
_SINGULAR = 1e-10
_ARRAYS = "coef", "slope", "diagonal", "removed", "first", "second"


@dataclass(frozen=True, kw_only=True)
class Summary(Penalty):
    """See the module's docstring.

    Parameters
    ----------
    coef : ndarray of shape (n_features + 1, n_outputs)
        ``z``, where the summary was made.
    constant : ndarray of shape (n_outputs,)
        ``P(z)``.
    slope : ndarray of shape (n_features + 1, n_outputs)
        ``g``.
    diagonal : ndarray of shape (n_features, n_outputs)
        ``D``.
    removed, first, second : ndarray of shape (n_features + 1, n_outputs)
        Vectors with ``H = D - removed removed' + first first' + second second'``.
    """

    coef: Array
    constant: Array
    slope: Array
    diagonal: Array
    removed: Array
    first: Array
    second: Array

    @classmethod
    def start(cls, n_features: int, l2: float) -> Summary:
        """Return the summary of no rows for one output: the penalty alone."""
        arrays: dict[str, Any] = {name: np.zeros((n_features + 1, 1)) for name in _ARRAYS}
        return cls(constant=np.zeros(1), **arrays | {"diagonal": np.full((n_features, 1), l2)})

    @classmethod
    def join(cls, summaries: Sequence[Summary]) -> Summary:
        """Return the summaries of several outputs as one."""
        arrays: dict[str, Any] = {name: np.hstack([getattr(one, name) for one in summaries]) for name in _ARRAYS}
        return cls(constant=np.concatenate([one.constant for one in summaries]), **arrays)

    def select(self, outputs: Any) -> Summary:
        arrays: dict[str, Any] = {name: np.ascontiguousarray(getattr(self, name)[:, outputs]) for name in _ARRAYS}
        return replace(self, constant=self.constant[outputs], **arrays)

    def moved(self, coef: Array) -> Summary:
        """Return the same function, written at other coefficients."""
        return replace(self, coef=coef, constant=self.value(coef), slope=self.gradient(coef))

    def restricted(self, index: Array | None) -> Summary:
        """Return the summary as a function of some coefficients, the intercept last; ``None`` are all."""
        if index is None:
            return self
        arrays: dict[str, Any] = {name: getattr(self, name)[index] for name in _ARRAYS if name != "diagonal"}
        return replace(self, diagonal=self.diagonal[index[:-1]], **arrays)

    def after(self, point: MomentPoint, curvature: MomentCurvature, index: Array | None) -> Summary:
        """Return the summary after the rows of an objective, expanded at a point of it with a curvature there.

        The objective has this summary, restricted to the coefficients ``index``, as its penalty.
        """
        assert curvature.deflation is not None
        assert isinstance(curvature.preconditioner, Diagonal)
        coef, coef_image, intercept_image = curvature.deflation
        slope, diagonal = point.gradient, 1.0 / curvature.preconditioner.inverse[:-1]
        if not point.objective.fit_intercept:
            intercept_image = np.zeros_like(coef)
        if index is not None:
            # The other coefficients have not moved; they take part in the products by the low-rank part.
            coef_image = coef_image + self.low_rank_product(with_rows(self.coef, index, 0.0))[index]
            coef, diagonal = with_rows(self.coef, index, coef), with_rows(self.diagonal, index[:-1], diagonal)
            slope = with_rows(self.gradient(coef), index, slope)
            coef_image = with_rows(self._product(coef), index, coef_image)
            intercept = with_rows(np.zeros_like(coef), [-1], 1.0)
            intercept_image = with_rows(self._product(intercept), index, intercept_image)
        removed = with_rows(coef, slice(-1), diagonal * coef[:-1])
        removed[-1] = 0.0
        square = column_dots(coef, removed)
        removed /= np.sqrt(np.where(square > 0.0, square, 1.0))
        across = 0.5 * (coef_image[-1] + column_dots(coef, intercept_image))
        roots = _inverse_roots(np.array([[column_dots(coef, coef_image), across], [across, intercept_image[-1]]]))
        first, second = (coef_image * roots[:, 0, k] + intercept_image * roots[:, 1, k] for k in range(2))
        low_rank: dict[str, Any] = {"removed": removed, "first": first, "second": second}
        return replace(self, coef=coef, constant=point.value, slope=slope, diagonal=diagonal, **low_rank)

    @property
    def has_diagonal_curvature(self) -> bool:
        return False

    def value(self, coef: Array) -> Array:
        step = coef - self.coef
        square = column_dots(self.diagonal * step[:-1], step[:-1]) - column_dots(self.removed, step) ** 2
        square += column_dots(self.first, step) ** 2 + column_dots(self.second, step) ** 2
        return self.constant + column_dots(self.slope, step) + 0.5 * square

    def gradient(self, coef: Array) -> Array:
        return self.slope + self._product(coef - self.coef)

    def curvature(self, coef: Array) -> Array:
        return self.diagonal

    def majoriser(self, coef: Array) -> Array:
        return self.diagonal

    def low_rank_product(self, direction: Array) -> Array:
        out = column_dots(self.first, direction) * self.first
        out += column_dots(self.second, direction) * self.second
        out -= column_dots(self.removed, direction) * self.removed
        return out

    def _product(self, direction: Array) -> Array:
        """Return ``H`` times a direction."""
        out = self.low_rank_product(direction)
        out[:-1] += self.diagonal * direction[:-1]
        return out


def with_rows(array: Array, index: Any, values: Any) -> Array:
    """Return a copy of an array with other values in some rows."""
    out = array.copy()
    out[index] = values
    return out


def _inverse_roots(matrices: Array) -> Array:
    """Return ``A`` with ``A A'`` the inverse of each 2 x 2 matrix, without directions in which it is singular.

    ``matrices`` has shape ``(2, 2, n_outputs)``, the result ``(n_outputs, 2, 2)``.
    """
    matrices = np.moveaxis(matrices, 2, 0)
    scale = np.sqrt(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 0.0))
    scale = np.where(scale > 0.0, scale, 1.0)[:, :, None]
    values, vectors = np.linalg.eigh(matrices / (scale * np.swapaxes(scale, 1, 2)))
    kept = values > _SINGULAR
    return vectors / scale * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)[:, None, :]
