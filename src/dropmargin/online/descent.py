r"""Steps down the sum of the penalty, the parabola of the past and the exact loss of the rows at hand, for a column.

    F(w) = l2/2 |w|^2 + P(w) + sum_i s_i phi(y_i; m_i, v_i)

A round takes the gradient over the diagonal of the Hessian, on the features of the rows, as a direction ``p``, and
minimises over the space of ``p``, the coefficients and the intercept. With steps ``c = (c_p, c_w, c_b)`` there,

    m = m_0 + c_p X p + c_w X w + c_b,      v = (1 + c_w)^2 V w^2 + 2 c_p (1 + c_w) V (w p) + c_p^2 V p^2

so that one product with the rows is all that the Newton steps there and the scores after them need.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.online.past import Column, positive_inverse
from dropmargin.online.rows import Derivatives, Scores, Setting, StreamRows, expand, project, slope_and_diagonal
from dropmargin.typing import Array

_HALVINGS = 30
# Newton steps in the small space, until another would gain no more than this share of what they have gained.
_NEWTON_STEPS = 6
_ENOUGH = 0.1
_ROUNDING = 1e-12
_ARMIJO = 1e-4
# Added to the diagonal of the small system, relative to it.
_RIDGE = 1e-10
# A round that gained no more than this share of the loss of the rows is the last.
_WORTH_A_ROUND = 0.005


def descend(column: Column, rows: StreamRows, setting: Setting, most_rounds: int, *, keep: bool) -> float:
    """Minimise ``F`` by some rounds; change ``column``, which takes the rows in for good if ``keep`` is false.

    Returns the value of ``F``; the column's own value is that of the parabola alone.
    """
    at = _derivatives(column, rows, setting)
    for _ in range(most_rounds):
        coef = column.coef[rows.where]
        direction = _direction(column, rows.where, setting, *slope_and_diagonal(coef, at))
        space = _Space(column, rows.where, setting, direction)
        place, at, gained = _Search(space, coef, at).minimise()
        space.move(place)
        if gained <= _WORTH_A_ROUND * at.value:
            break
    value = at.value + _value(column, setting)
    if not keep:
        column.add(expand(column.coef[rows.where], at), rows.where)
    return value


def follow(column: Column, rows: StreamRows, setting: Setting) -> float:
    """Take rows in where the coefficients are, then make one step down the parabola; return the value of ``F``.

    This is for rows that are few next to those that are gone. The one thing that the parabola does not know is its
    curvature along the direction of the step: that of these rows, scaled up, stands for that of all.
    """
    at = _derivatives(column, rows, setting)
    column.add(expand(column.coef[rows.where], at), rows.where)
    space = _Space(column, rows.where, setting, _direction(column, rows.where, setting, 0.0, 0.0))
    along = rows.block.times(space.direction[:-1])
    hessian = space.matrix.copy()
    mean_curvature = float(at.mean_twice.sum())
    if mean_curvature > 0.0:
        hessian[0, 0] += column.mean_curvature / mean_curvature * float(at.mean_twice @ np.square(along))
    space.move(space.newton(space.slope, hessian))
    return _value(column, setting)


def take_in(column: Column, rows: StreamRows, setting: Setting) -> float:
    """Take rows in where the coefficients are, by the parabola above their loss; return the value of ``F``.

    Rows of one label alone would move the intercept to where their loss is flat, and a flat parabola would be lost
    against later rows. The majoriser has curvature everywhere.
    """
    at = _derivatives(column, rows, setting)
    at.majorise()
    column.add(expand(column.coef[rows.where], at), rows.where)
    return _value(column, setting)


def _value(column: Column, setting: Setting) -> float:
    """Return the penalty and the parabola."""
    return column.value + 0.5 * setting.l2 * float(column.coef[:-1] @ column.coef[:-1])


def _derivatives(column: Column, rows: StreamRows, setting: Setting) -> Derivatives:
    """Return the rows' loss and its derivatives at the column's coefficients."""
    coef = column.coef[rows.where]
    return Derivatives(rows, setting, Scores(*project(rows, setting.variance, coef, [np.square(coef[:-1])])))


def _direction(column: Column, where: Any, setting: Setting, gradient: Array | float, diagonal: Array | float) -> Array:
    """Return the gradient of ``F`` over the diagonal of its Hessian, from those of the rows; 0 for the intercept."""
    direction = column.gradient[where] + gradient
    direction[:-1] += setting.l2 * column.coef[where][:-1]
    whole = column.diagonal[where] + diagonal
    whole += setting.l2
    direction /= whole
    direction[-1] = 0.0
    return direction


class _Space:
    """The penalty and the past over the steps ``(c_p, c_w, c_b)`` from the present coefficients, but for a constant.

    ``slope`` and ``matrix`` are the gradient and the Hessian by the three numbers.
    """

    def __init__(self, column: Column, where: Any, setting: Setting, direction: Array) -> None:
        self.column, self.where, self.setting, self.direction = column, where, setting, direction
        features = slice(-1) if isinstance(where, slice) else where[:-1]
        p, w, l2 = direction[:-1], column.coef[:-1], setting.l2
        self._bent = column.diagonal * column.coef
        p_g, p_w, p_bent = (float(part[features] @ p) for part in (column.gradient, column.coef, self._bent))
        w_w, w_bent = float(w @ w), float(self._bent[:-1] @ w)
        self.slope = np.array([p_g + l2 * p_w, column.gradient[:-1] @ w + l2 * w_w, column.gradient[-1]])
        p_hp = float(column.diagonal[features] @ np.square(p))
        self.matrix = np.diag([p_hp + l2 * float(p @ p), w_bent + l2 * w_w, column.diagonal[-1]])
        self.matrix[[0, 1], [1, 0]] = p_bent + l2 * p_w
        # E' times the three directions, and the inverse of M = (w, e_b)'E
        images = (column.coef_image, column.intercept_image)
        self._onto = np.array([[part[features] @ p, part[:-1] @ w, part[-1]] for part in images])
        self._onto[0] -= [p_bent, w_bent, self._bent[-1]]
        self._onto[1, 2] -= column.diagonal[-1]
        small = self._onto[:, 1:].copy()
        small[:, 0] += small[:, 1] * column.coef[-1]
        self._inverse = positive_inverse(0.5 * (small + small.T))
        self.matrix += self._onto.T @ self._inverse @ self._onto

    def newton(self, gradient: Array, hessian: Array) -> Array:
        """Return the step of Newton's method."""
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

    def move(self, place: Array) -> None:
        """Move the column by the steps."""
        column = self.column
        step = place[1] * column.coef
        step[self.where] += place[0] * self.direction
        step[-1] = place[2]
        by_coef, by_intercept = self._inverse @ (self._onto @ place)
        image = column.diagonal * step
        image += by_coef * column.coef_image
        image -= by_coef * self._bent
        image += by_intercept * column.intercept_image
        image[-1] = image[-1] - by_intercept * column.diagonal[-1] if self.setting.fit_intercept else 0.0
        column.value += float(column.gradient @ step) + 0.5 * float(image @ step)
        column.coef += step
        column.gradient += image
        column.coef_image += image


class _Search:
    """The search for the minimum of ``F`` over the three numbers, with the exact loss of the rows."""

    def __init__(self, space: _Space, coef: Array, at: Derivatives) -> None:
        self.space, self.start, self.intercept = space, at, float(coef[-1])
        products = [coef[:-1] * space.direction[:-1], np.square(space.direction[:-1])]
        self.along, self.cross, self.square = project(at.rows, at.setting.variance, space.direction, products)

    def at(self, place: Array) -> Derivatives:
        """Return the rows' loss after the steps."""
        c_p, c_w, c_b = place
        start = self.start.scores
        mean = start.mean + c_p * self.along + c_w * (start.mean - self.intercept) + c_b
        variance = (1.0 + c_w) ** 2 * start.variance + c_p * (2.0 * (1.0 + c_w) * self.cross + c_p * self.square)
        # rounding may leave a variance a little below zero
        return Derivatives(self.start.rows, self.start.setting, Scores(mean, np.maximum(variance, 0.0)))

    def minimise(self) -> tuple[Array, Derivatives, float]:
        """Return where Newton steps lead to, each halved until ``F`` falls enough; the loss there; what was gained."""
        place, at, gained = np.zeros(3), self.start, 0.0
        moves = self._moves(place)
        value, gradient = at.value, self._gradient(place, at, moves)
        for _ in range(_NEWTON_STEPS):
            hessian = self._hessian(at, moves)
            step = self.space.newton(gradient, hessian)
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
            moves = self._moves(place)
            gradient = self._gradient(place, at, moves)
            # What the same Hessian promises for the new gradient tells whether another is worth it.
            if -float(gradient @ self.space.newton(gradient, hessian)) <= _ENOUGH * gained:
                break
        return place, at, gained

    def _value(self, place: Array, at: Derivatives) -> float:
        return at.value + float(self.space.slope @ place + 0.5 * place @ self.space.matrix @ place)

    def _moves(self, place: Array) -> tuple[Array, Array, Array, Array]:
        """Return the derivatives of the rows' means by ``c_p`` and ``c_w``, then those of their variances.

        By ``c_b`` they are one and zero.
        """
        c_p, grown, start = place[0], 1.0 + place[1], self.start.scores
        by_p = 2.0 * (grown * self.cross + c_p * self.square)
        return self.along, start.mean - self.intercept, by_p, 2.0 * (grown * start.variance + c_p * self.cross)

    def _gradient(self, place: Array, at: Derivatives, moves: tuple[Array, Array, Array, Array]) -> Array:
        """Return the gradient of ``F`` by the three numbers."""
        means, variances = moves[:2], moves[2:]
        of_rows = [a @ at.by_mean + b @ at.by_variance for a, b in zip(means, variances, strict=True)]
        return self.space.slope + self.space.matrix @ place + np.array([*of_rows, at.by_mean.sum()])

    def _hessian(self, at: Derivatives, moves: tuple[Array, Array, Array, Array]) -> Array:
        """Return the Hessian of ``F`` by the three numbers."""
        means, variances = moves[:2], moves[2:]
        of_rows = np.empty((3, 3))
        for k, (mean, variance) in enumerate(zip(means, variances, strict=True)):
            by_mean = at.mean_twice * mean + at.mixed * variance
            by_variance = at.mixed * mean + at.variance_twice * variance
            for j in range(k + 1):
                of_rows[k, j] = of_rows[j, k] = means[j] @ by_mean + variances[j] @ by_variance
            of_rows[k, 2] = of_rows[2, k] = by_mean.sum()
        of_rows[2, 2] = at.mean_twice.sum()
        # The variance is a parabola itself.
        of_rows[0, 0] += 2.0 * self.square @ at.by_variance
        of_rows[[0, 1], [1, 0]] += 2.0 * self.cross @ at.by_variance
        of_rows[1, 1] += 2.0 * self.start.scores.variance @ at.by_variance
        return self.space.matrix + of_rows
