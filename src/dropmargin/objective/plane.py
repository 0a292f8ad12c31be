r"""Points of a moment objective that differ by the coefficients, the intercept and one more direction, by one product.

If the scores at ``(w, b)`` have mean ``m`` and variance ``v``, those at ``(1 + x) (w, b) + y (0, 1) + z p`` have::

    mean       (1 + x) m + y + z a                           a = X p + p_b
    variance   (1 + x)^2 v + 2 (1 + x) z t + z^2 u           t = V (w * p),  u = V p^2
"""

from __future__ import annotations

import numpy as np

from dropmargin.data import Rows, column_dots
from dropmargin.objective.curvature import CurvatureWeights, MomentCurvature, as_column
from dropmargin.objective.moment import MomentPoint
from dropmargin.objective.row_functions import Scores, row_scores
from dropmargin.typing import Array


class MomentPlane:
    """See the module's docstring; ``direction`` is ``p``, intercept last."""

    def __init__(self, point: MomentPoint, direction: Array) -> None:
        self.point, self.direction = point, direction
        p, w, variance = direction[:-1], point.coef[:-1], point.objective.variance
        n, shift = p.shape[1], np.zeros(3 * p.shape[1])
        shift[:n] = direction[-1]
        if variance.has_floor:
            scaled = as_column(variance.floor) * p
            shift[n:] = np.concatenate([column_dots(scaled, w), column_dots(scaled, p)])
        factors = p
        if variance.moves_entries:
            scaled = as_column(variance.slope) * p
            factors = np.concatenate([p, scaled * w, scaled * p], axis=1)
        self._along = point.objective.data.map(row_scores, factors, shift, n)

    def curvature(self, model: MomentCurvature) -> Array:
        """Return ``p'Hp`` for a curvature ``H`` at the point; no product is needed."""
        p, objective = self.direction, self.point.objective
        (of_rows,) = objective.data.map_sum(_quadratic_form, model.weights, self._along)
        return of_rows + column_dots(model.diagonal * p[:-1], p[:-1]) + objective.penalty.low_rank_square(p)

    def at(self, x: Array, y: Array, z: Array) -> MomentPoint:
        """Return the point after these steps, one per output; no product is needed."""
        point = self.point
        coef = (1.0 + x) * point.coef
        coef += z * self.direction
        coef[-1] += y
        scores = point.objective.data.map(_moved, point.scores, self._along, x, y, z)
        return type(point)(point.objective, coef, scores)


def _moved(part: Rows, scores: Scores, along: Scores, x: Array, y: Array, z: Array) -> Scores:
    n, grown = scores.mean.shape[1], 1.0 + x
    mean = grown * scores.mean + (y + z * along.mean)
    cross, square = along.variance[:, :n], along.variance[:, n:]
    variance = np.square(grown) * scores.variance + z * (2.0 * grown * cross + z * square)
    return Scores(mean, np.maximum(variance, 0.0))  # rounding may leave a variance a little below zero


def _quadratic_form(part: Rows, weights: CurvatureWeights, along: Scores) -> tuple[Array]:
    a = along.mean
    if not weights.is_coupled:
        return (np.einsum("ik,ik,ik->k", weights.by_mean, a, a),)
    t = along.variance[:, : weights.n]
    by_a = weights.by_mean * a + 2.0 * weights.mixed * t
    return (np.einsum("ik,ik->k", by_a, a) + np.einsum("ik,ik,ik->k", weights.by_variance, t, t),)
