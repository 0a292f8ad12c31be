"""What a stream keeps of rows that are gone: for each column a parabola, in five vectors.

At the present coefficients ``w`` (the last entry is the intercept) the loss of all rows that are gone is taken to be

    P(w + x) = P(w) + g.x + 1/2 x'Hx,        H = diag(h) + E M^-1 E'

with the gradient ``g``, a diagonal ``h``, and two directions along which ``H`` is right: the coefficients and the
intercept. As ``w`` grows with the stream, it moves mostly along these two. The products of a row's Hessian with both
follow from its score, by one product with the transpose. With ``Hw`` and ``Hb`` the sums of these products,

    E = (Hw, Hb) - diag(h) (w, e_b),        M = (w, e_b)'E

``h`` is the diagonal that noise adds to the Hessian, and a share only of the diagonal of the rows' own products: with
all of it, what many rows have in common would be learnt too slowly.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.typing import Array

#: The share of the diagonal of ``X'AX`` that goes into ``h``.
DIAGONAL_SHARE = 0.1
# An eigenvalue of the scaled matrix M below this is rounding.
_SINGULAR = 1e-10


@dataclass(frozen=True)
class RowsModel:
    """The loss of some rows to second order at the present coefficients; vectors end with the intercept.

    Parameters
    ----------
    value : float
    gradient : ndarray
    diagonal : ndarray
        What these rows add to ``h``.
    coef_image, intercept_image : ndarray
        The products of their Hessian with the coefficients and with the intercept.
    mean_curvature : float
        The sum of the second derivatives by the mean score.
    """

    value: float
    gradient: Array
    diagonal: Array
    coef_image: Array
    intercept_image: Array
    mean_curvature: float


@dataclass
class Column:
    """The coefficients of one binary problem and the parabola of the rows that are gone; see the module's docstring.

    ``labels`` are the weights of all rows with label -1 and of those with +1, ``mean_curvature`` is the sum of their
    second derivatives by the mean score.
    """

    coef: Array
    gradient: Array
    diagonal: Array
    coef_image: Array
    intercept_image: Array
    labels: Array
    value: float = 0.0
    mean_curvature: float = 0.0

    @classmethod
    def start(cls, n_features: int) -> Column:
        """Return a column that has seen nothing."""
        coef, gradient, diagonal, coef_image, intercept_image = (np.zeros(n_features + 1) for _ in range(5))
        return cls(coef, gradient, diagonal, coef_image, intercept_image, np.zeros(2))

    def copy(self) -> Column:
        """Return a copy that shares nothing."""
        return copy.deepcopy(self)

    def add(self, rows: RowsModel, where: Any) -> None:
        """Take rows in, as they are at the present coefficients; their vectors belong to the entries ``where``."""
        self.value += rows.value
        self.mean_curvature += rows.mean_curvature
        self.gradient[where] += rows.gradient
        self.diagonal[where] += rows.diagonal
        self.coef_image[where] += rows.coef_image
        self.intercept_image[where] += rows.intercept_image


def positive_inverse(matrix: Array) -> Array:
    """Return the inverse of a small matrix, without the directions in which it is not positive.

    There are such only by rounding, or where the diagonal is more than all that the rows have: it is enough then.
    """
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    kept = values > _SINGULAR
    vectors = vectors[:, kept] / scale[:, None]
    return (vectors / values[kept]) @ vectors.T
