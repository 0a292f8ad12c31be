"""Directions whose products are known, taken out of the search by conjugate gradients (Saad et al. 2000)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.data import add_scaled, column_dots
from dropmargin.objective import DeflationSpace
from dropmargin.typing import Array

# Directions that are nearer to linear dependence than this count as one.
_INDEPENDENT = 1e-6


class Deflation:
    """The two directions of a `DeflationSpace`, ``z`` and ``e``, and the curvature ``H`` on the plane that they span.

    `solve` is exact on the plane. `project` makes a direction conjugate to it, so that conjugate gradients search
    only what is left.
    """

    def __init__(self, space: DeflationSpace) -> None:
        self.space = space
        a = column_dots(space.coef, space.coef_image)
        b = space.coef_image[-1]
        c = space.intercept_image[-1]
        with np.errstate(all="ignore"):
            determinant = a * c - b * b
            whole = determinant > _INDEPENDENT * a * c
            intercept_only = np.where(c > 0.0, 1.0 / c, 0.0)
            inverse = np.stack([c, -b, a]) / determinant
        self.inverse = np.where(whole, inverse, np.stack([np.zeros_like(c), np.zeros_like(c), intercept_only]))

    def solve(self, right: Array) -> tuple[Array, Array]:
        """Return the solution in the plane and its image."""
        space = self.space
        x, y = self._weights(column_dots(space.coef, right), right[-1])
        solution = x * space.coef
        solution[-1] += y
        return solution, x * space.coef_image + y * space.intercept_image

    def project(self, direction: Array) -> Array:
        """Return the direction without its part in the plane, conjugate to it; in place."""
        space = self.space
        along_coef = column_dots(space.coef_image, direction)
        x, y = self._weights(along_coef, column_dots(space.intercept_image, direction))
        add_scaled(direction, -x, space.coef)
        direction[-1] -= y
        return direction

    def _weights(self, along_coef: Array, along_intercept: Array) -> tuple[Array, Array]:
        p, q, r = self.inverse
        return p * along_coef + q * along_intercept, q * along_coef + r * along_intercept

    def select(self, outputs: Any) -> Deflation:
        """Return the deflation of these outputs alone."""
        return Deflation(self.space.select(outputs))
