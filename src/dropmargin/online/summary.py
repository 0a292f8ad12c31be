r"""The quadratic summary of the rows that are gone: a penalty in the objective of the rows at hand.

At the coefficients ``z`` (intercept last) where it was made, the objective of the rows that are gone is taken to be::

    P(z + x) = P(z) + g'x + x'Hx / 2          H = diag(h) + E M^-1 E'          E = K Z - diag(h) Z          M = Z'E

``g`` is the gradient, penalty included, and ``K Z`` are the exact products of the Hessian with two directions ``Z``:
the coefficients and the intercept. So ``H Z = K Z``. Coefficients that grow with the stream move mostly along these
two, and both products follow from the scores (`MomentPoint.expansion`). ``h`` is the diagonal of penalty and noise, and
a share of the diagonal of the rows' own products; the intercept has none.

A block of rows joins the summary by the expansion of its objective, whose penalty is the summary before it. The first
summary is the l2 penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective.moment import MomentPoint
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

# The share of the diagonal of X'AX that goes into h. With 0.1 and with 1 a pass ended farther from the optimum, on
# text and on dense rows.
_DIAGONAL_SHARE = 0.5
# An eigenvalue of the scaled matrix M below this is rounding, or h is more than all that the rows have.
_SINGULAR = 1e-10
_ARRAYS = "coef", "slope", "diagonal", "coef_factor", "intercept_factor"


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
        ``h``.
    coef_factor, intercept_factor : ndarray of shape (n_features + 1, n_outputs)
        Vectors ``u`` and ``v`` with ``E M^-1 E' = u u' + v v'``.
    """

    coef: Array
    constant: Array
    slope: Array
    diagonal: Array
    coef_factor: Array
    intercept_factor: Array

    @classmethod
    def start(cls, n_features: int, l2: float) -> Summary:
        """Return the summary of no rows for one output: the penalty alone."""
        arrays = {name: np.zeros((n_features + 1, 1)) for name in _ARRAYS}
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
        arrays = {name: getattr(self, name)[index] for name in _ARRAYS if name != "diagonal"}
        return replace(self, diagonal=self.diagonal[index[:-1]], **arrays)

    def after(self, point: MomentPoint, index: Array | None, is_majoriser: bool = False) -> Summary:
        """Return the summary after the rows of an objective, expanded at a point of it.

        The objective has this summary, restricted to the coefficients ``index``, as its penalty. ``is_majoriser`` takes
        the majoriser of the loss in place of its Hessian.
        """
        curvature, squares = point.expansion(is_majoriser)
        assert curvature.deflation is not None
        coef, coef_image, intercept_image = curvature.deflation
        slope, diagonal = point.gradient, curvature.diagonal + _DIAGONAL_SHARE * squares
        first = coef_image.copy()
        first[:-1] -= diagonal * coef[:-1]
        second = intercept_image if point.objective.fit_intercept else np.zeros_like(first)
        if index is not None:
            # The other coefficients have not moved; they take part in the products by the low-rank part.
            first += self.low_rank_product(with_rows(self.coef, index, 0.0))[index]
            coef, diagonal = with_rows(self.coef, index, coef), with_rows(self.diagonal, index[:-1], diagonal)
            slope = with_rows(self.gradient(coef), index, slope)
            intercept = with_rows(np.zeros_like(coef), [-1], 1.0)
            first = with_rows(self.low_rank_product(coef), index, first)
            second = with_rows(self.low_rank_product(intercept), index, second)
        product = 0.5 * (first[-1] + column_dots(coef, second))
        roots = _inverse_roots(np.array([[column_dots(coef, first), product], [product, second[-1]]]))
        factors = (first * roots[:, 0, k] + second * roots[:, 1, k] for k in range(2))
        named = dict(zip(("coef_factor", "intercept_factor"), factors, strict=True))
        return replace(self, coef=coef, constant=point.value, slope=slope, diagonal=diagonal, **named)

    @property
    def has_diagonal_curvature(self) -> bool:
        return False

    def value(self, coef: Array) -> Array:
        step = coef - self.coef
        square = column_dots(self.diagonal * step[:-1], step[:-1])
        square += column_dots(self.coef_factor, step) ** 2 + column_dots(self.intercept_factor, step) ** 2
        return self.constant + column_dots(self.slope, step) + 0.5 * square

    def gradient(self, coef: Array) -> Array:
        step = coef - self.coef
        out = self.slope + self.low_rank_product(step)
        out[:-1] += self.diagonal * step[:-1]
        return out

    def curvature(self, coef: Array) -> Array:
        return self.diagonal

    def majoriser(self, coef: Array) -> Array:
        return self.diagonal

    def low_rank_product(self, direction: Array) -> Array:
        out = column_dots(self.coef_factor, direction) * self.coef_factor
        out += column_dots(self.intercept_factor, direction) * self.intercept_factor
        return out


def with_rows(array: Array, index: Any, values: Any) -> Array:
    """Return a copy of an array with other values in some rows."""
    out = array.copy()
    out[index] = values
    return out


def _inverse_roots(matrices: Array) -> Array:
    """Return ``A`` with ``A A'`` the inverse of each 2 x 2 matrix, without directions in which it is not positive.

    ``matrices`` has shape ``(2, 2, n_outputs)``, the result ``(n_outputs, 2, 2)``.
    """
    matrices = np.moveaxis(matrices, 2, 0)
    scale = np.sqrt(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 0.0))
    scale = np.where(scale > 0.0, scale, 1.0)[:, :, None]
    values, vectors = np.linalg.eigh(matrices / (scale * np.swapaxes(scale, 1, 2)))
    kept = values > _SINGULAR
    return vectors / scale * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)[:, None, :]
