r"""The quadratic summary of the rows that are gone: a penalty in the objective of the rows at hand.

At the coefficients ``z`` (intercept last) where it was made, the objective of the rows that are gone is taken to be::

    P(z + x) = P(z) + g'x + x'Hx / 2          H = diag(h) + E M^-1 E'          E = K Z - diag(h) Z          M = Z'E

``g`` is the gradient, penalty included, and ``K Z`` are the exact products of the Hessian with two directions ``Z``: the
coefficients and the intercept. Coefficients that grow with the stream move mostly along these two, and both products
follow from the scores (`MomentPoint.expansion`). So ``H Z = K Z``. ``h`` is the diagonal of penalty and noise, and a
share of the diagonal of the rows' own products: with all of it, what many rows have in common is learned too slowly.

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

# The share of the diagonal of X'AX that goes into h.
import os
_DIAGONAL_SHARE = float(os.environ.get("SHARE", 0.5))
# An eigenvalue of the scaled matrix M below this is rounding, or h is more than all that the rows have.
_SINGULAR = 1e-10


@dataclass(frozen=True)
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
        ``h``; the intercept has none.
    factors : tuple of two ndarray of shape (n_features + 1, n_outputs)
        Vectors ``u`` with ``E M^-1 E'`` as the sum of ``u u'``.
    """

    coef: Array = None  # type: ignore[assignment]
    constant: Array = None  # type: ignore[assignment]
    slope: Array = None  # type: ignore[assignment]
    diagonal: Array = None  # type: ignore[assignment]
    factors: tuple[Array, ...] = ()

    @classmethod
    def start(cls, n_features: int, l2: float) -> Summary:
        """Return the summary of no rows for one output: the penalty alone."""
        coef, slope = np.zeros((2, n_features + 1, 1))
        return cls(l2, 0.0, 0.0, coef, np.zeros(1), slope, np.full((n_features, 1), l2))

    def moved(self, coef: Array) -> Summary:
        """Return the same function, written at other coefficients."""
        return replace(self, coef=coef, constant=self.value(coef), slope=self.gradient(coef))

    def restricted(self, index: Array | None) -> Summary:
        """Return the summary as a function of some coefficients, the intercept among them; ``None`` are all."""
        if index is None:
            return self
        coef, slope, *factors = (array[index] for array in (self.coef, self.slope, *self.factors))
        return replace(self, coef=coef, slope=slope, diagonal=self.diagonal[index[:-1]], factors=tuple(factors))

    def after(self, point: MomentPoint, index: Array | None, is_majoriser: bool = False) -> Summary:
        """Return the summary after the rows of an objective, expanded at a point of it.

        The objective has this summary, restricted to the coefficients ``index``, as its penalty. ``is_majoriser`` takes
        the majoriser of the loss in place of its Hessian.
        """
        curvature, squares = point.expansion(is_majoriser)
        assert curvature.deflation is not None
        coef, coef_image, intercept_image = curvature.deflation
        slope, diagonal = point.gradient, curvature.diagonal + _DIAGONAL_SHARE * squares
        coef_image = coef_image.copy()
        coef_image[:-1] -= diagonal * coef[:-1]
        images = [coef_image, intercept_image] if point.objective.fit_intercept else [coef_image]
        if index is not None:
            # The other coefficients have not moved; they take part in the products by the low-rank part.
            coef_image += self.low_rank_product(_put(self.coef, index, 0.0))[index]
            coef, diagonal = _put(self.coef, index, coef), _put(self.diagonal, index[:-1], diagonal)
            slope = _put(self.gradient(coef), index, slope)
            intercept = _put(np.zeros_like(coef), [-1], 1.0)
            pairs = zip((coef, intercept), images, strict=False)
            images = [_put(self.low_rank_product(direction), index, image) for direction, image in pairs]
        M = np.array([[column_dots(coef, image), image[-1]] for image in images])[:, : len(images)]  # noqa: N806
        roots = _inverse_roots(np.moveaxis(M, 2, 0))
        factors = tuple(
            sum(roots[:, j, k] * image for j, image in enumerate(images))  # type: ignore[misc]
            for k in range(len(images))
        )
        return replace(self, coef=coef, constant=point.value, slope=slope, diagonal=diagonal, factors=factors)

    @classmethod
    def join(cls, summaries: Sequence[Summary]) -> Summary:
        """Return the summaries of several outputs as one."""
        if len(summaries) == 1:
            return summaries[0]
        names = "coef", "slope", "diagonal"
        arrays = {name: np.hstack([getattr(one, name) for one in summaries]) for name in names}
        n_features = len(arrays["diagonal"])
        none = np.zeros((n_features + 1, 1))
        n_factors = max(len(one.factors) for one in summaries)
        factors = tuple(
            np.hstack([one.factors[k] if k < len(one.factors) else none for one in summaries]) for k in range(n_factors)
        )
        constant = np.concatenate([one.constant for one in summaries])
        return cls(summaries[0].l2, 0.0, 0.0, constant=constant, factors=factors, **arrays)

    def select(self, outputs: Any) -> Summary:
        coef, slope, diagonal, *factors = (
            np.ascontiguousarray(array[:, outputs]) for array in (self.coef, self.slope, self.diagonal, *self.factors)
        )
        return Summary(self.l2, 0.0, 0.0, coef, self.constant[outputs], slope, diagonal, tuple(factors))

    @property
    def has_diagonal_curvature(self) -> bool:
        return False

    def value(self, coef: Array) -> Array:
        step = coef - self.coef
        return self.constant + 0.5 * column_dots(self.slope + self.gradient(coef), step)

    def gradient(self, coef: Array) -> Array:
        step = coef - self.coef
        out = self.low_rank_product(step)
        out += self.slope
        out[:-1] += self.diagonal * step[:-1]
        return out

    def curvature(self, coef: Array) -> Array:
        return self.diagonal

    def majoriser(self, coef: Array) -> Array:
        return self.diagonal

    def low_rank_product(self, direction: Array) -> Array:
        out = np.zeros_like(direction)
        for factor in self.factors:
            out += column_dots(factor, direction) * factor
        return out


def _put(array: Array, index: Any, values: Any) -> Array:
    """Return a copy of an array with other values in some rows."""
    out = array.copy()
    out[index] = values
    return out


def _inverse_roots(matrices: Array) -> Array:
    """Return ``A`` with ``A A'`` the inverse of each small matrix, without directions in which it is not positive."""
    matrices = 0.5 * (matrices + np.swapaxes(matrices, 1, 2))
    scale = np.sqrt(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 0.0))
    scale = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrices / (scale[:, :, None] * scale[:, None, :]))
    kept = values > _SINGULAR
    return vectors / scale[:, :, None] * np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)[:, None, :]
