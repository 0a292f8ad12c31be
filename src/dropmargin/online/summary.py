r"""The quadratic summary of earlier rows: a penalty in the objective of the rows at hand.

At the coefficients ``z`` (intercept last) where it was made, the objective of the earlier rows is approximated by::

    P(z + x) = P(z) + g'x + x'Hx / 2          H = D - D z (z'Dz)^-1 z'D + K Z (Z'K Z)^-1 Z'K

``g`` is its gradient and ``K`` its Hessian, ``Z`` are the coefficients ``z`` and the intercept ``e`` alone, and ``D``
is the diagonal of ``K - K e (e'K e)^-1 e'K``, that of centred features. ``H`` is the BFGS update of ``D``: it is
positive, and ``H Z = K Z``. Coefficients that grow with the number of rows move mostly along ``Z``, and the products
``K Z`` follow from the scores (`MomentCurvature.known_directions`).

A block of rows is added by the expansion of its objective, whose penalty is the summary before it. The first summary is
the l2 penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective.base import Curvature
from dropmargin.objective.curvature import MomentCurvature
from dropmargin.objective.preconditioner import Diagonal
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

if TYPE_CHECKING:
    from dropmargin.objective.moment import MomentPoint

# An eigenvalue of the scaled matrix Z'KZ below this is rounding.
_SINGULAR = 1e-10
# The signs of the three terms of rank one in H.
_SIGNS = np.array([-1.0, 1.0, 1.0])
# The axis of the outputs in each array of a summary.
_AXES = {"coef": 1, "slope": 1, "diagonal": 1, "constant": 0, "factors": 0, "last_step": 0}


@dataclass(frozen=True, kw_only=True)
class Summary(Penalty):
    """See the module's docstring.

    ``last_step`` is the length of the last step along the preconditioned gradient and its predicted decrease, as a
    share of the objective; zeros if there was a line search.
    """

    coef: Array  # z, (n_features + 1, n_outputs)
    constant: Array  # P(z), (n_outputs,)
    slope: Array  # g, (n_features + 1, n_outputs)
    diagonal: Array  # D, (n_features, n_outputs)
    factors: Array  # f with H = D - f_0 f_0' + f_1 f_1' + f_2 f_2', (n_outputs, 3, n_features + 1)
    last_step: Array  # (n_outputs, 2)

    @classmethod
    def start(cls, n_features: int, l2: float) -> Summary:
        """Return the summary of no rows for one output: the penalty alone."""
        return cls(
            coef=np.zeros((n_features + 1, 1)),
            constant=np.zeros(1),
            slope=np.zeros((n_features + 1, 1)),
            diagonal=np.full((n_features, 1), l2),
            factors=np.zeros((1, 3, n_features + 1)),
            last_step=np.zeros((1, 2)),
        )

    @classmethod
    def join(cls, summaries: Sequence[Summary]) -> Summary:
        """Return the summaries of several outputs as one."""
        parts: dict[str, Any] = {name: [getattr(one, name) for one in summaries] for name in _AXES}
        for name, axis in _AXES.items():
            parts[name] = np.concatenate(parts[name], axis)
        return cls(**parts)

    def select(self, outputs: Any) -> Summary:
        """Return the summary of these outputs alone."""
        index: Any = (outputs, (slice(None), outputs))  # by axis
        arrays = {name: getattr(self, name)[index[axis]] for name, axis in _AXES.items()}
        parts: dict[str, Any] = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return Summary(**parts)

    def moved(self, coef: Array) -> Summary:
        """Return the same function, written at other coefficients."""
        constant, slope = self.at(coef)
        return replace(self, coef=coef, constant=constant, slope=slope)

    def after(self, point: MomentPoint, curvature: Curvature) -> Summary:
        """Return the summary after the rows of an objective, expanded at a point of it with a curvature there.

        The objective has this summary as its penalty.
        """
        assert isinstance(curvature, MomentCurvature)
        assert curvature.deflation is not None
        coef, coef_image, intercept_image = curvature.deflation
        slope, diagonal = point.gradient, diagonal_of(curvature)
        factors = np.empty((coef.shape[1], 3, len(coef)))
        for k in range(coef.shape[1]):
            factors[k] = _factors(coef[:, k], diagonal[:, k], coef_image[:, k], intercept_image[:, k])
        return replace(self, coef=coef, constant=point.value, slope=slope, diagonal=diagonal, factors=factors)

    @property
    def is_positive_diagonal(self) -> bool:
        return False

    def centred(self, squares: Array, intercept_image: Array) -> Array:
        out = squares + np.square(self.factors[:, 1, :-1].T)
        out -= np.square(_intercept_factor(intercept_image)[:-1])
        return np.maximum(out, 0.0, out=out)  # a negative number is rounding

    def at(self, coef: Array) -> tuple[Array, Array]:
        if coef is self.coef:
            return self.constant, self.slope
        step = coef - self.coef
        image = self.low_rank_product(step)
        image[:-1] += self.diagonal * step[:-1]
        value = self.constant + column_dots(self.slope, step) + 0.5 * column_dots(image, step)
        image += self.slope
        return value, image

    def value(self, coef: Array) -> Array:
        return self.at(coef)[0]

    def gradient(self, coef: Array) -> Array:
        return self.at(coef)[1][:-1]

    def curvature(self, coef: Array) -> Array:
        return self.diagonal

    def majoriser(self, coef: Array) -> Array:
        return self.diagonal

    def low_rank_product(self, direction: Array) -> Array:
        out = np.empty_like(direction)
        for k, factors in enumerate(self.factors):
            out[:, k] = (_SIGNS * (factors @ direction[:, k])) @ factors
        return out


def diagonal_of(curvature: Curvature) -> Array:
    """Return the diagonal of a curvature of centred features, without the intercept."""
    assert isinstance(curvature, MomentCurvature)
    assert isinstance(curvature.preconditioner, Diagonal)
    return 1.0 / curvature.preconditioner.inverse[:-1]


def _intercept_factor(image: Array) -> Array:
    """Return ``K e / sqrt(e'K e)`` for the intercept ``e``; zero if it has no curvature."""
    return image / np.sqrt(np.where(image[-1] > 0.0, image[-1], np.inf))


def _factors(coef: Array, diagonal: Array, coef_image: Array, intercept_image: Array) -> Array:
    out = np.zeros((3, len(coef)))
    out[1] = _intercept_factor(intercept_image)
    along = out[1] @ coef
    square, rest = coef @ coef_image, coef @ coef_image - along**2
    if rest > _SINGULAR * square:
        np.multiply(diagonal, coef[:-1], out=out[0, :-1])
        out[0] /= np.sqrt(coef @ out[0])
        out[2] = (coef_image - along * out[1]) / np.sqrt(rest)
    return out
