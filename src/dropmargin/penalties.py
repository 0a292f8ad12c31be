r"""The penalty ``R(w) = l2 / 2 |w|_2^2 + l1 |w|_1``; the intercept, the last row of the coefficients, is not penalised.

The kink of ``|w|`` can be smoothed as those of the losses are, with ``r = sqrt(w^2 + mu^2)``::

    |w|  ->  r - mu - mu log((r + mu) / (2 mu)),     first derivative w / (r + mu)

which is below ``|w|`` by less than ``mu`` times a small number, and self-concordant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dropmargin.typing import Array

# What is below this share of a number was lost to rounding errors.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Penalty:
    """A penalty on coefficients of shape ``(n_features + 1, n_columns)``.

    The derivatives of ``l1 |w|`` are those within the orthant of ``w``, and zero is taken for the derivative at zero.

    Parameters
    ----------
    l2 : float, or ndarray of shape (n_columns,)
        Strength of the squared norm, the same for all columns or one per column.
    l1 : float
        Strength of the absolute values.
    width : float, default=0.0
        ``mu``, over which their kink is smoothed; zero is the exact penalty.
    """

    l2: Any = 1.0
    l1: float = 0.0
    width: float = 0.0

    #: Whether the second derivative is a diagonal matrix.
    is_diagonal = True

    @property
    def is_ridge(self) -> bool:
        """Whether it is the squared norm alone."""
        return bool(np.min(self.l2) > 0.0) and not self.l1

    def select(self, columns: Array) -> Penalty:
        """Return the penalty of these columns alone."""
        return self if np.ndim(self.l2) == 0 else replace(self, l2=self.l2[columns])

    def value(self, coef: Array) -> Array:
        """Return ``R``, one value per column."""
        w = coef[:-1]
        total = 0.5 * self.l2 * np.einsum("ij,ij->j", w, w)
        if not self.l1:
            return total
        size = np.abs(w)
        if self.width:
            above = w * w / (np.hypot(w, self.width) + self.width)  # r - mu, without the difference
            size = above - self.width * np.log1p(above / (2.0 * self.width))
        return total + self.l1 * size.sum(axis=0)

    def at(self, coef: Array) -> tuple[Array, Array]:
        """Return the value, and the gradient by all coefficients; by the intercept it is zero."""
        gradient = np.zeros_like(coef)
        gradient[:-1] = self.l2 * coef[:-1]
        if self.l1:
            w = coef[:-1]
            gradient[:-1] += self.l1 * (w / (np.hypot(w, self.width) + self.width) if self.width else np.sign(w))
        return self.value(coef), gradient

    def curvature(self, coef: Array) -> Any:
        """Return the diagonal of the second derivative: a number, one per column, or one per coefficient."""
        if not self.width:
            return self.l2
        w = coef[:-1]
        r = np.hypot(w, self.width)
        return self.l2 + self.l1 * (r + self.width - w * (w / r)) / np.square(r + self.width)

    def low_rank_product(self, direction: Array) -> Any:
        """Return the part of the second derivative that is not diagonal, times a direction."""
        return 0.0

    def centred(self, diagonal: Array, intercept_image: Array) -> Array:
        """Return the diagonal of a preconditioner for directions conjugate to the intercept, given its product."""
        level = intercept_image[-1]
        of_intercept = np.square(intercept_image[:-1]) / np.where(level > 0.0, level, np.inf)
        return np.maximum(diagonal - of_intercept, _ROUNDING * diagonal)

    # For an l1 penalty ---------------------------------------------------------------------------------------------

    def least_subgradient(self, coef: Array, gradient: Array) -> Array:
        """Return the smallest subgradient of an objective, given the gradient that takes zero for that of ``l1 |0|``.

        A coefficient at zero whose gradient is within ``l1`` has the subgradient zero.
        """
        at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - self.l1, 0.0)
        at_zero[-1] = gradient[-1]
        return np.where(coef != 0.0, gradient, at_zero)

    def project(self, coef: Array, start: Array, subgradient: Array) -> Array:
        """Return coefficients with zeros for those that have left the orthant of ``start``.

        Its signs are those of ``start``, and of the steepest descent where a coefficient of ``start`` is zero.
        """
        signs = np.where(start != 0.0, np.sign(start), -np.sign(subgradient))
        left = np.sign(coef) != signs
        left[-1] = False
        return np.where(left, 0.0, coef)
