"""Directions whose products are known, taken out of the search by conjugate gradients (Saad et al. 2000)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective import DeflationSpace
from dropmargin.typing import Array

# Directions that are closer to dependent than this count as one.
_INDEPENDENT = 1e-6


class Deflation:
    """The two directions of a `DeflationSpace`, ``z`` and ``e``, and the curvature ``H`` on the plane that they span.

    `solve` is exact on the plane. `project` makes a direction conjugate to it, so that conjugate gradients search
    only what is left.
    """

    def __init__(self, coarse: DeflationSpace) -> None:
        self.coarse = coarse
        a = column_dots(coarse.coef, coarse.coef_image)
        b = coarse.coef_image[-1]
        c = coarse.offset_image[-1]
        with np.errstate(all="ignore"):
            determinant = a * c - b * b
            whole = determinant > _INDEPENDENT * a * c
            offset_only = np.where(c > 0.0, 1.0 / c, 0.0)
            inverse = np.stack([c, -b, a]) / determinant
        self.inverse = np.where(whole, inverse, np.stack([np.zeros_like(c), np.zeros_like(c), offset_only]))

    def solve(self, right: Array) -> tuple[Array, Array]:
        """Return the solution in the plane and its image."""
        coarse = self.coarse
        x, y = self._weights(column_dots(coarse.coef, right), right[-1])
        solution = x * coarse.coef
        solution[-1] += y
        return solution, x * coarse.coef_image + y * coarse.offset_image

    def project(self, direction: Array) -> Array:
        """Return the direction without its part in the plane, conjugate to it; in place."""
        coarse = self.coarse
        along_coef = column_dots(coarse.coef_image, direction)
        x, y = self._weights(along_coef, column_dots(coarse.offset_image, direction))
        direction -= x * coarse.coef
        direction[-1] -= y
        return direction

    def _weights(self, along_coef: Array, along_offset: Array) -> tuple[Array, Array]:
        p, q, r = self.inverse
        return p * along_coef + q * along_offset, q * along_coef + r * along_offset

    def select(self, columns: Any) -> Deflation:
        """Return the deflation of these columns alone."""
        return Deflation(self.coarse.select(columns))
