r"""Newton's method for an l1 penalty by steps within an orthant, with exact zeros; one output at a time.

At ``w`` the penalty is linear on an orthant: the signs of ``w`` where it is not zero, and of the steepest descent where
it is. A coefficient at zero whose gradient is within ``l1`` stays there and out of the system. A Newton step of the
others that leaves the orthant is projected onto its boundary, which is where the zeros come from.

On most problems that takes a few steps. Where features are nearly dependent it may take many; then it stops early, and
`solvers.minimise` follows the central path, which does not depend on that. Convergence is stated only with a proof that
the gap is below ``10 tol``: with the least subgradient ``r`` of the objective ``J``, convexity gives::

    J - J* <= r.(w - w*) <= max|r| (|w|_1 + J / l1),      and  J - J* <= |r|^2 / (2 l2)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective import Curvature, DeflationSpace, Objective, Point
from dropmargin.penalties import Penalty
from dropmargin.solvers import conjugate_gradient
from dropmargin.solvers.result import Iteration, Monitor, Result
from dropmargin.typing import Array

_INNER_ITERATIONS = 100
_ARMIJO = 1e-4
_ROUNDING = 1e-13
_HALVINGS = 12
_MAJORISER_STEPS = 3
# An inner solve may leave this share of the gap that is asked for.
_LEAVE = 0.5
# After so many steps, or passes over the data, it gives up.
_MOST_STEPS, _MOST_PASSES = 40, 400
# The gap is estimated to be within `tol`, and proved to be within so many times `tol`.
_PROVED = 10.0
# Below this relative gap, steps that no longer help are due to rounding.
_PRECISION_GAP = 1e-9
_IDLE_STEPS = 4


def orthant(
    objective: Objective,
    start: Point,
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    warm: bool,
    scale: Array | None = None,
) -> Result:
    """Minimise an objective with an exact l1 penalty, or give up early."""
    point, penalty = start, objective.penalty
    n_rough = _MAJORISER_STEPS if objective.has_weights and not warm else 0
    history: list[Iteration] = []
    converged, begun, least, idle = False, objective.n_passes, np.inf, 0
    while not converged and len(history) < min(max_iter, _MOST_STEPS) and objective.n_passes < begun + _MOST_PASSES:
        is_rough = len(history) < n_rough
        # 1. The least subgradient, and the coefficients that may move.
        subgradient = least_subgradient(point, penalty)
        free = (point.coef != 0.0) | (subgradient != 0.0)
        free[-1] = True
        # 2. The Newton direction of the free coefficients; the majoriser's at first.
        size = np.abs(point.value) if scale is None else scale
        curvature = point.majoriser() if is_rough else point.hessian(direct=objective.is_stiff)
        direction, left, _ = conjugate_gradient.solve(
            _Restricted(curvature, free),
            -subgradient * free,
            0.5 if is_rough else 0.1,
            _INNER_ITERATIONS,
            _LEAVE * tol * size,
        )
        predicted = -0.5 * float(np.sum(subgradient * direction))
        # 3. The step, projected onto the orthant.
        moved = _step(objective, point, direction, subgradient)
        idle = 0 if predicted < 0.7 * least else idle + 1
        least = min(least, predicted)
        is_precise = proved_gap(point, penalty) <= _PRECISION_GAP * size[0]
        if moved is None or (idle >= _IDLE_STEPS and is_precise):
            converged = is_precise
            break
        missed = abs(predicted - float(point.value[0] - moved.value[0]))
        point = moved
        # 4. The estimated gap, and the proof.
        gap = predicted if is_rough else missed + float(left[0])
        history.append(Iteration(len(history) + 1, float(point.value[0]), gap, objective.n_passes, 1))
        monitor(history[-1])
        allowed = max(_PROVED * tol, _PRECISION_GAP) * size[0]
        converged = not is_rough and gap <= tol * size[0] and proved_gap(point, penalty) <= allowed
    message = (
        f"reached a relative gap of at most tol={tol:g}" if converged else "steps within an orthant did not suffice"
    )
    return Result(point.coef, point.value, len(history), converged, message, history, point)


def least_subgradient(point: Point, penalty: Penalty) -> Array:
    """Return the smallest subgradient of the objective at a point, intercept last."""
    at_zero = np.sign(point.gradient) * np.maximum(np.abs(point.gradient) - penalty.l1, 0.0)
    at_zero[-1] = point.gradient[-1]
    return np.where(point.coef != 0.0, point.gradient, at_zero)


def proved_gap(point: Point, penalty: Penalty) -> float:
    """Return a bound on the gap of a point whose intercept is the best for its coefficients, or nearly so."""
    subgradient = least_subgradient(point, penalty)
    r, w = subgradient[:-1], point.coef[:-1]
    value = abs(float(point.value[0]))
    bound = float(np.abs(r).max(initial=0.0) * (np.abs(w).sum() + value / penalty.l1))
    if penalty.l2:
        bound = min(bound, 0.5 * float(column_dots(r, r)[0]) / penalty.l2)
    return bound + float(np.abs(subgradient[-1] * (1.0 + np.abs(point.coef[-1])))[0])


def _step(objective: Objective, point: Point, direction: Array, subgradient: Array) -> Point | None:
    """Return the first point of ``project(coef + step * direction)``, step = 1, 1/2, ..., that descends enough."""
    signs = np.where(point.coef != 0.0, np.sign(point.coef), -np.sign(subgradient))
    step = 1.0
    for _ in range(_HALVINGS):
        coef = point.coef + step * direction
        coef[:-1][np.sign(coef[:-1]) != signs[:-1]] = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            trial = objective.at(coef)
            expected = float(np.sum(subgradient * (coef - point.coef)))
            bound = point.value[0] + _ARMIJO * min(expected, 0.0) + _ROUNDING * abs(point.value[0])
            if trial.value[0] <= bound:
                return trial
        step *= 0.5
    return None


class _Restricted(Curvature):
    """A curvature on the free coefficients, the identity on the others."""

    def __init__(self, whole: Curvature, free: Array) -> None:
        self.whole = whole
        self.free = free
        if whole.coarse is not None:
            self.coarse = DeflationSpace(
                whole.coarse.coef, whole.coarse.coef_image * free, whole.coarse.offset_image * free
            )

    def product(self, direction: Array) -> Array:
        return self.whole.product(direction) * self.free

    def precondition(self, residual: Array) -> Array:
        return self.whole.precondition(residual) * self.free

    def select(self, columns: Any) -> Curvature:
        return _Restricted(self.whole.select(columns), self.free[:, columns])
