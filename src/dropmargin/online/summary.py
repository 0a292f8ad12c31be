r"""The quadratic summary of earlier rows: a penalty in the objective of the rows at hand.

At the coefficients ``z`` (intercept last) where it was made, the objective of the earlier rows is approximated by::

    P(z + x) = P(z) + g'x + x'Hx / 2          H = D - D z (z'Dz)^-1 z'D + K Z (Z'K Z)^-1 Z'K

``g`` is its gradient and ``K`` its Hessian, ``Z`` are the coefficients ``z`` and the intercept ``e`` alone, and ``D``
is the diagonal of ``K - K e (e'K e)^-1 e'K``, that of centred features. ``H`` is the BFGS update of ``D``: it is
positive, and ``H Z = K Z``. Coefficients that grow with the number of rows move mostly along ``Z``, and the products
``K Z`` follow from the scores (`IterativeModel.deflation`).

A block of rows is added by the expansion of its objective, whose penalty is the summary before it. The first summary is
the l2 penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dropmargin.objective import IterativeModel, Point
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

# A share of Z'KZ below this is rounding.
_SINGULAR = 1e-10
# The signs of the three terms of rank one in H.
_SIGNS = np.array([-1.0, 1.0, 1.0])
_ARRAYS = ("coef", "constant", "slope", "diagonal", "factors")


@dataclass(frozen=True, kw_only=True)
class Summary(Penalty):
    """See the module's docstring."""

    coef: Array  # z, (n_features + 1, n_outputs)
    constant: Array  # P(z), (n_outputs,)
    slope: Array  # g, (n_features + 1, n_outputs)
    diagonal: Array  # D, (n_features, n_outputs)
    factors: Array  # f with H = D - f_0 f_0' + f_1 f_1' + f_2 f_2', (3, n_features + 1, n_outputs)

    is_diagonal = False
    is_ridge = False

    @classmethod
    def start(cls, coef: Array, l2: float) -> Summary:
        """Return the summary of no rows, the penalty alone, written at some coefficients."""
        value, slope = Penalty(l2).at(coef)
        diagonal, factors = np.full_like(coef[:-1], l2), np.zeros((3, *coef.shape))
        return cls(coef=coef, constant=value, slope=slope, diagonal=diagonal, factors=factors)

    @classmethod
    def of(cls, point: Point, model: IterativeModel) -> Summary:
        """Return the expansion of an objective at a point, with a model there; its penalty is the summary before it."""
        known, diagonal = model.deflation, model.diagonal[:-1]
        assert known is not None
        factors = np.zeros((3, *point.coef.shape))
        factors[1] = _intercept_factor(known.intercept_image)
        along, square = _dot(factors[1], known.coef), _dot(known.coef, known.coef_image)
        rest = np.where(square - along**2 > _SINGULAR * square, square - along**2, np.inf)
        factors[2] = (known.coef_image - along * factors[1]) / np.sqrt(rest)
        image = diagonal * known.coef[:-1]
        factors[0, :-1] = image / np.sqrt(np.where(np.isinf(rest), np.inf, _dot(image, known.coef[:-1])))
        own: Any = {"coef": point.coef, "constant": point.value, "slope": point.gradient}
        return cls(**own, diagonal=diagonal, factors=factors)

    @classmethod
    def join(cls, summaries: Sequence[Summary]) -> Summary:
        """Return the summaries of several outputs as one."""
        own: Any = {name: np.concatenate([getattr(one, name) for one in summaries], axis=-1) for name in _ARRAYS}
        return cls(**own)

    def select(self, columns: Any) -> Summary:
        own: Any = {name: np.ascontiguousarray(getattr(self, name)[..., columns]) for name in _ARRAYS}
        return Summary(**own)

    def reordered(self, order: Array) -> Summary:
        """Return the summary with the coefficients in another order, in which the intercept is last."""
        own: Any = {"diagonal": self.diagonal[order[:-1]], "factors": self.factors[:, order]}
        return replace(self, coef=self.coef[order], slope=self.slope[order], **own)

    def centred(self, diagonal: Array, intercept_image: Array) -> Array:
        centred = diagonal + np.square(self.factors[1, :-1]) - np.square(_intercept_factor(intercept_image)[:-1])
        return np.maximum(centred, self.diagonal)  # less is rounding

    def at(self, coef: Array) -> tuple[Array, Array]:
        step = coef - self.coef
        image = self.low_rank_product(step)
        image[:-1] += self.diagonal * step[:-1]
        return self.constant + _dot(self.slope + 0.5 * image, step), self.slope + image

    def value(self, coef: Array) -> Array:
        return self.at(coef)[0]

    def curvature(self, coef: Array) -> Array:
        return self.diagonal

    def low_rank_product(self, direction: Array) -> Array:
        weights = _SIGNS[:, None] * np.stack([_dot(own, direction) for own in self.factors])
        return sum(own * weight for own, weight in zip(self.factors, weights, strict=True))


def _dot(first: Array, second: Array) -> Array:
    return np.einsum("ij,ij->j", first, second)


def _intercept_factor(image: Array) -> Array:
    """Return ``K e / sqrt(e'K e)`` for the intercept ``e``; zero if it has no curvature."""
    return image / np.sqrt(np.where(image[-1] > 0.0, image[-1], np.inf))
