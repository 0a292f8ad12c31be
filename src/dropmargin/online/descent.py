r"""Steps down the sum of the penalty, the parabola of the past and the exact loss of the rows at hand, for a column.

    F(w) = l2/2 |w|^2 + P(w) + sum_i s_i phi(y_i; m_i, v_i)

A round takes the gradient over the diagonal of the Hessian, on the features of the rows, as a direction ``p``, and
minimises over the space of ``p``, the coefficients and the offset. With steps ``c = (c_p, c_w, c_b)`` there,

    m = m_0 + c_p X p + c_w X w + c_b,      v = (1 + c_w)^2 V w^2 + 2 c_p (1 + c_w) V (w p) + c_p^2 V p^2

so that one product with the rows is all that the Newton steps there and the scores after them need.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.online.past import Column, Curvature
from dropmargin.online.rows import Derivatives, Expansion, Rows, Scores, Setting, Slope, project
from dropmargin.typing import Array

_HALVINGS = 30
# Newton steps in the small space, until another would gain no more than this share of what they have gained.
_NEWTON_STEPS = 6
_ENOUGH = 0.1
_ROUNDING = 1e-12
_ARMIJO = 1e-4
# Added to the diagonal of the small system, relative to it.
_RIDGE = 1e-10
_TINY = 1e-300
# Another round must promise to gain more than this share of the loss of the rows.
_WORTH_A_ROUND = 0.02


def descend(column: Column, rows: Rows, setting: Setting, most_rounds: int, *, keep: bool) -> float:
    """Minimise ``F`` by some rounds; change ``column``, which takes the rows in for good if ``keep`` is false.

    Returns the value of ``F``; the column's own value is that of the parabola alone.
    """
    coef = column.coef[rows.where]
    scores = Scores(*project(rows, setting.variance, coef, [np.square(coef[:-1])]))
    at = Derivatives(rows, setting, scores)
    slope = Slope(coef, at)
    gradient = _whole_gradient(column, rows, setting, slope)
    for _ in range(most_rounds):
        # 1. The direction: the gradient over the diagonal, on the features of the rows.
        expansion = Expansion(at, slope, at.second)
        diagonal = expansion.diagonal(1.0) + column.diagonal[rows.where]
        diagonal[:-1] += setting.l2
        np.maximum(diagonal, _TINY, out=diagonal)
        direction = -gradient / diagonal
        direction[-1] = 0.0
        # 2. The step in the space of the direction, the coefficients and the offset.
        space = _Space(column, coef, direction, at)
        place, at = space.minimise()
        space.move(column, place)
        # 3. The gradient there, and by it what another round would gain.
        coef = column.coef[rows.where]
        slope = Slope(coef, at)
        gradient = _whole_gradient(column, rows, setting, slope)
        if 0.5 * float(gradient[:-1] @ (gradient[:-1] / diagonal[:-1])) <= _WORTH_A_ROUND * at.value:
            break
    value = at.value + column.value + 0.5 * setting.l2 * float(column.coef[:-1] @ column.coef[:-1])
    if not keep:
        column.add(expansion.moved(at.value, slope), rows.where)
    return value


def take_in(column: Column, rows: Rows, setting: Setting) -> float:
    """Take rows in where the coefficients are, by the parabola above their loss; return the value of ``F``.

    Rows of one label alone would drive the offset to where their loss is flat, and a flat parabola does not hold
    against what comes later. The majoriser, which has curvature everywhere, does.
    """
    coef = column.coef[rows.where]
    scores = Scores(*project(rows, setting.variance, coef, [np.square(coef[:-1])]))
    at = Derivatives(rows, setting, scores)
    slope = Slope(coef, at)
    column.add(Expansion(at, slope, at.majorised()).moved(at.value, slope), rows.where)
    return column.value + 0.5 * setting.l2 * float(column.coef[:-1] @ column.coef[:-1])


def _whole_gradient(column: Column, rows: Rows, setting: Setting, slope: Slope) -> Array:
    """Return the gradient of ``F`` by the features of the rows and the offset."""
    gradient = slope.gradient + column.gradient[rows.where]
    gradient[:-1] += setting.l2 * slope.coef[:-1]
    return gradient


class _Space:
    """``F`` over the steps ``(c_p, c_w, c_b)`` from the present coefficients, but for a constant."""

    def __init__(self, column: Column, coef: Array, direction: Array, at: Derivatives) -> None:
        self.rows, self.setting, self.start = at.rows, at.setting, at
        self.direction, self.offset = direction, float(coef[-1])
        products = [coef[:-1] * direction[:-1], np.square(direction[:-1])]
        self.along, self.cross, self.square = project(at.rows, at.setting.variance, direction, products)
        self.curvature = column.curvature()
        self.slope, self.matrix = self._parabola(column, coef)

    def _parabola(self, column: Column, coef: Array) -> tuple[Array, Array]:
        """Return the gradient and the Hessian of the penalty and the past by the three numbers."""
        where, l2 = self.rows.where, self.setting.l2
        p, whole = self.direction[:-1], column.coef[:-1]
        outer = column.gradient[where]
        weights = coef[:-1]
        squared_norm = float(whole @ whole)
        slope = np.array(
            [
                p @ outer[:-1] + l2 * (p @ weights),
                whole @ column.gradient[:-1] + l2 * squared_norm,
                outer[-1],
            ]
        )
        h = self.curvature.diagonal
        matrix = np.zeros((3, 3))
        bent = h[where][:-1] * p
        matrix[0, 0] = bent @ p + l2 * (p @ p)
        matrix[0, 1] = matrix[1, 0] = bent @ weights + l2 * (p @ weights)
        matrix[1, 1] = float(np.einsum("i,i,i->", h[:-1], whole, whole)) + l2 * squared_norm
        matrix[2, 2] = h[-1]
        # The spikes' products with the three directions.
        self.onto = _onto(self.curvature, where, p, whole)
        return slope, matrix + self.onto.T @ self.onto

    def at(self, place: Array) -> Derivatives:
        """Return the rows' loss after the steps."""
        c_p, c_w, c_b = place
        start = self.start.scores
        mean = start.mean + c_p * self.along + c_w * (start.mean - self.offset) + c_b
        variance = (1.0 + c_w) ** 2 * start.variance + c_p * (2.0 * (1.0 + c_w) * self.cross + c_p * self.square)
        # rounding may leave a variance a little below zero
        return Derivatives(self.rows, self.setting, Scores(mean, np.maximum(variance, 0.0)))

    def minimise(self) -> tuple[Array, Derivatives]:
        """Return the place that Newton steps lead to, each halved until ``F`` falls enough, and the loss there."""
        place, at, gained = np.zeros(3), self.start, 0.0
        value, gradient = at.value, self._gradient(place, at)
        for _ in range(_NEWTON_STEPS):
            hessian = self._hessian(place, at)
            step = self._newton(gradient, hessian)
            promised = -float(gradient @ step)
            if not promised > _ROUNDING * abs(value):
                break
            for _ in range(_HALVINGS):
                there = self.at(place + step)
                after = self._value(place + step, there)
                if np.isfinite(after) and after <= value - _ARMIJO * promised:
                    break
                step, promised = 0.5 * step, 0.5 * promised
            else:
                break
            gained += value - after
            place, at, value = place + step, there, after
            gradient = self._gradient(place, at)
            # What the same Hessian promises for the new gradient tells whether another is worth it.
            if -float(gradient @ self._newton(gradient, hessian)) <= _ENOUGH * gained:
                break
        return place, at

    def _value(self, place: Array, at: Derivatives) -> float:
        return at.value + float(self.slope @ place + 0.5 * place @ self.matrix @ place)

    def _moves(self, place: Array) -> tuple[Array, Array]:
        """Return the derivatives of the rows' means and variances by the three numbers, a row each."""
        c_p, grown, start = place[0], 1.0 + place[1], self.start.scores
        means, variances = np.empty((3, len(start.mean))), np.zeros((3, len(start.mean)))
        means[0], means[1], means[2] = self.along, start.mean - self.offset, 1.0
        variances[0] = 2.0 * (grown * self.cross + c_p * self.square)
        variances[1] = 2.0 * (grown * start.variance + c_p * self.cross)
        return means, variances

    def _gradient(self, place: Array, at: Derivatives) -> Array:
        """Return the gradient of ``F`` by the three numbers."""
        means, variances = self._moves(place)
        by_mean, by_variance = at.first
        return self.slope + self.matrix @ place + means @ by_mean + variances @ by_variance

    def _hessian(self, place: Array, at: Derivatives) -> Array:
        """Return the Hessian of ``F`` by the three numbers."""
        means, variances = self._moves(place)
        (_, by_variance), (mean_twice, mixed, variance_twice) = at.first, at.second
        coupled = (means * mixed) @ variances.T
        hessian = self.matrix + (means * mean_twice) @ means.T + coupled + coupled.T
        hessian += (variances * variance_twice) @ variances.T
        # The variance is a parabola itself.
        hessian[0, 0] += 2.0 * self.square @ by_variance
        hessian[[0, 1], [1, 0]] += 2.0 * self.cross @ by_variance
        hessian[1, 1] += 2.0 * self.start.scores.variance @ by_variance
        return hessian

    def _newton(self, gradient: Array, hessian: Array) -> Array:
        free = np.diag(hessian) > 0.0
        free[2] &= self.setting.fit_intercept
        step = np.zeros(3)
        if not free.any():
            return step
        scale = 1.0 / np.sqrt(np.diag(hessian)[free])
        system = hessian[np.ix_(free, free)] * np.outer(scale, scale) + _RIDGE * np.eye(len(scale))
        step[free] = -scale * np.linalg.solve(system, scale * gradient[free])
        if not gradient @ step < 0.0:  # by rounding: the direction of the diagonal descends
            step[free] = -np.square(scale) * gradient[free]
        return step

    def move(self, column: Column, place: Array) -> None:
        """Move the column by the steps."""
        where = self.rows.where
        step = place[1] * column.coef
        step[where] += place[0] * self.direction
        step[-1] = place[2]
        image = self.curvature.diagonal * step
        if len(self.onto):
            image += (self.onto @ place) @ self.curvature.spikes
        image[-1] = image[-1] if self.setting.fit_intercept else 0.0
        rise = float(column.gradient @ step) + 0.5 * float(image @ step)
        column.move(step, image, rise)


def _onto(curvature: Curvature, where: Any, p: Array, whole: Array) -> Array:
    """Return the products of the spikes with a direction, the coefficients and the offset, a row per spike."""
    rows = [[spike[where][:-1] @ p, spike[:-1] @ whole, spike[-1]] for spike in curvature.spikes]
    return np.array(rows).reshape(-1, 3)
