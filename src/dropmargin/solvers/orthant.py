"""Newton's method for an l1 penalty: steps within an orthant, with exact zeros (one column at a time).

At ``w`` the penalty is linear on an orthant, the signs of ``w`` where it is not zero and of the steepest descent where
it is. A weight at zero whose gradient is within ``l1`` stays there and out of the system. A Newton step on the others
that leaves the orthant is put back onto its boundary, which is where the zeros come from. If that arc does not descend,
a step by the diagonal alone, which always does for a small enough step, takes its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.objective import Curvature, Objective, Point
from dropmargin.solvers import conjugate_gradient
from dropmargin.solvers.result import Iteration, Monitor, Result
from dropmargin.typing import Array

_INNER_ITERATIONS = 250
_ARMIJO = 1e-4
_ROUNDING = 1e-13
_ROUGH_STEPS = 3
_LEAVE = 0.5
# Next to the largest weight, this is dust.
_DUST = 1e-8
_DUST_PRICE = 1e-11
_PRECISION_GAP = 1e-8


def orthant(objective: Objective, start: Point, *, tol: float, max_iter: int, monitor: Monitor, warm: bool) -> Result:
    """Minimise ``J`` with its l1 term."""
    point, n_rough = start, _ROUGH_STEPS if objective.has_weights and not warm else 0
    history: list[Iteration] = []
    best, idle = np.inf, 0
    for iteration in range(1, max_iter + 1):
        # 1. The steepest descent of smooth part and penalty together, and the weights that may move.
        steepest = pseudo_gradient(point.coef, point.gradient, objective.penalty.l1)
        free = (point.coef != 0.0) | (steepest != 0.0)
        free[-1] = True
        # 2. The Newton direction of the free weights; where there is no curvature, the majoriser's.
        enough = _LEAVE * tol * np.abs(point.value)
        rough = iteration <= n_rough
        direction, left = _direction(objective, point, steepest, free, rough, enough)
        promised = -0.5 * float(np.sum(steepest * direction))
        unknown = promised > abs(float(point.value[0])) or (np.isinf(left[0]) and not direction.any())
        if unknown and objective.has_weights and not rough:
            direction, left = _direction(objective, point, steepest, free, True, enough)
            promised = -0.5 * float(np.sum(steepest * direction))
        # 3. The step along the arc, or else along the diagonal's.
        moved = _arc(objective, point, direction, steepest, halvings=12)
        if moved is None:
            diagonal = -point.hessian().precondition(steepest * free) * free
            moved = _arc(objective, point, diagonal, steepest, halvings=60)
        gained = 0.0 if moved is None else float(point.value[0] - moved.value[0])
        point = point if moved is None else moved
        # 4. How far it is still to go.
        value = abs(float(point.value[0]))
        gap = promised if rough else abs(promised - gained) + float(left[0])
        idle = 0 if promised < 0.7 * best else idle + 1
        best = min(best, promised)
        history.append(Iteration(iteration, float(point.value[0]), gap, objective.n_passes, 1))
        monitor(history[-1])
        arrived = not rough and gap <= tol * value
        precise = gap <= _PRECISION_GAP * value
        if arrived or moved is None or (idle >= 10 and precise):
            message = "no step decreased the objective"
            if arrived or precise:
                point = _with_exact_zeros(objective, point)
                limit = "reached the limit of floating-point precision"
                message = f"reached a relative gap of at most tol={tol:g}" if arrived else limit
            return Result(point.coef, point.value, iteration, arrived or precise, message, history, point)
    message = (
        f"stopped after max_iter={max_iter} iterations at an estimated relative gap of {gap / value:.1e} (tol={tol:g})"
    )
    return Result(point.coef, point.value, max_iter, False, message, history, point)


def _direction(
    objective: Objective, point: Point, steepest: Array, free: Array, majorise: bool, enough: Array
) -> tuple[Array, Array]:
    """Return the step of the free weights to the minimum of a quadratic model, and what the solve leaves of it."""
    whole = point.majoriser() if majorise else point.hessian(direct=objective.is_stiff)
    rtol = 0.5 if majorise else 0.1
    solution = conjugate_gradient.solve(_Restricted(whole, free), -steepest * free, rtol, _INNER_ITERATIONS, enough)
    return solution.x, solution.left


def _with_exact_zeros(objective: Objective, point: Point) -> Point:
    """Return the point with weights that are zero but for rounding set to zero, if the objective does not rise."""
    sizes = np.abs(point.coef[:-1])
    dust = (sizes > 0.0) & (sizes <= _DUST * sizes.max(initial=0.0))
    if not dust.any():
        return point
    coef = point.coef.copy()
    coef[:-1][dust] = 0.0
    cleaned = objective.at(coef)
    return cleaned if cleaned.value[0] <= point.value[0] + _DUST_PRICE * abs(point.value[0]) else point


def pseudo_gradient(coef: Array, gradient: Array, l1: float) -> Array:
    """Return the smallest subgradient of the smooth part plus ``l1 |w|_1``; the offset has no penalty."""
    out = gradient.copy()
    w, g = coef[:-1], gradient[:-1]
    shrunk = np.sign(g) * np.maximum(np.abs(g) - l1, 0.0)
    out[:-1] = np.where(w != 0.0, g + l1 * np.sign(w), shrunk)
    return out


def _arc(objective: Objective, point: Point, direction: Array, steepest: Array, halvings: int) -> Point | None:
    """Return the first point of ``project(coef + step * direction)``, step = 1, 1/2, ..., that descends enough."""
    signs = np.where(point.coef != 0.0, np.sign(point.coef), -np.sign(steepest))
    step = 1.0
    for _ in range(halvings):
        coef = point.coef + step * direction
        coef[:-1][np.sign(coef[:-1]) != signs[:-1]] = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            trial = objective.at(coef)
        expected = float(np.sum(steepest * (coef - point.coef)))
        bound = point.value[0] + _ARMIJO * min(expected, 0.0) + _ROUNDING * abs(point.value[0])
        if trial.value[0] <= bound:
            return trial
        step *= 0.5
    return None


class _Restricted(Curvature):
    """A curvature on the free weights, the identity on the others."""

    def __init__(self, whole: Curvature, free: Array) -> None:
        self.whole = whole
        self.free = free

    def product(self, direction: Array) -> Array:
        return self.whole.product(direction) * self.free

    def precondition(self, residual: Array) -> Array:
        return self.whole.precondition(residual) * self.free

    def select(self, columns: Any) -> Curvature:
        return _Restricted(self.whole.select(columns), self.free[:, columns])
