r"""Newton's method for an l1 penalty by steps within an orthant, with exact zeros; one output at a time.

At ``w`` the penalty is linear on an orthant: the signs of ``w`` where it is not zero, and of the steepest descent where
it is. A coefficient at zero whose gradient is within ``l1`` stays there and out of the system. A Newton step of the
others that leaves the orthant is projected onto its boundary, which is where the zeros come from.

On most problems that takes a few steps. Where features are nearly dependent it may take many; then it stops early, and
the central path, which does not depend on that, takes over. Convergence is stated only with a proof that the gap is
below ``10 tol``: with the least subgradient ``r`` of the objective ``J``, convexity gives::

    J - J* <= r.(w - w*) <= max|r| (|w|_1 + J / l1),      and  J - J* <= |r|^2 / (2 l2)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective import Curvature, DeflationSpace, Objective, Point
from dropmargin.solvers import conjugate_gradient
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

_INNER_ITERATIONS = 100
_ARMIJO = 1e-4
_ROUNDING = 1e-13
_HALVINGS = 12
_MAJORISER_STEPS = 3
# Conjugate gradients may leave this share of the tolerance.
_INNER_SHARE = 0.5
# After so many steps, or passes over the data, the central path takes over.
_MOST_STEPS, _MOST_PASSES = 40, 400
# The gap is estimated to be within `tol`, and proved to be within so many times `tol`.
_PROVED = 10.0
# Below this relative gap, predicted decreases that stagnate show that working precision is reached.
_PRECISION_GAP = 1e-9
_STAGNATION = 0.7
_STAGNANT_STEPS = 4


def orthant(objective: Objective, start: Point, options: Options) -> Result:
    """Minimise an objective with an exact l1 penalty, or stop early."""
    point, tol = start, options.tol
    n_majoriser = 0 if options.warm or not objective.has_quadratic_bound else _MAJORISER_STEPS
    history: list[Iteration] = []
    converged, begun, least, n_stagnant = False, objective.n_passes, np.inf, 0
    max_iter = min(options.max_iter, _MOST_STEPS)
    while not converged and len(history) < max_iter and objective.n_passes < begun + _MOST_PASSES:
        is_first = len(history) < n_majoriser
        # 1. The least subgradient, and the coefficients that may move.
        subgradient = objective.penalty.least_subgradient(point.coef, point.gradient)
        free = (point.coef != 0.0) | (subgradient != 0.0)
        free[-1] = True
        # 2. The Newton direction of the free coefficients; the majoriser's at first.
        scale = np.abs(point.value) if options.scale is None else options.scale
        model = point.majoriser() if is_first else point.hessian(direct=objective.is_stiff)
        rtol, atol = 0.5 if is_first else 0.1, _INNER_SHARE * tol * scale
        restricted = _Restricted(model, free)
        direction, remaining, _ = conjugate_gradient.solve(
            restricted, -subgradient * free, rtol, _INNER_ITERATIONS, atol
        )
        predicted = -0.5 * float(np.sum(subgradient * direction))
        # 3. The step, projected onto the orthant.
        trial = _search(point, direction, subgradient)
        n_stagnant = 0 if predicted < _STAGNATION * least else n_stagnant + 1
        least = min(least, predicted)
        is_precise = proved_gap(point) <= _PRECISION_GAP * scale[0]
        if trial is None or (n_stagnant >= _STAGNANT_STEPS and is_precise):
            converged = is_precise
            break
        error = abs(predicted - float(point.value[0] - trial.value[0]))
        point = trial
        # 4. The estimated gap, and the proof.
        gap = predicted if is_first else error + float(remaining[0])
        history.append(Iteration(len(history) + 1, float(point.value[0]), gap, objective.n_passes, 1))
        options.monitor(history[-1])
        allowed = max(_PROVED * tol, _PRECISION_GAP) * scale[0]
        converged = not is_first and gap <= tol * scale[0] and proved_gap(point) <= allowed
    message = (
        f"reached a relative gap of at most tol={tol:g}" if converged else "steps within an orthant did not suffice"
    )
    return Result(point.coef, point.value, len(history), converged, message, history, point)


def proved_gap(point: Point) -> float:
    """Return a bound on the gap of a point whose intercept is the best for its coefficients, or nearly so."""
    penalty = point.objective.penalty
    subgradient = penalty.least_subgradient(point.coef, point.gradient)
    r, w = subgradient[:-1], point.coef[:-1]
    value = abs(float(point.value[0]))
    bound = float(np.abs(r).max(initial=0.0) * (np.abs(w).sum() + value / penalty.l1))
    if penalty.l2:
        bound = min(bound, 0.5 * float(column_dots(r, r)[0]) / penalty.l2)
    return bound + float(np.abs(subgradient[-1] * (1.0 + np.abs(point.coef[-1])))[0])


def _search(point: Point, direction: Array, subgradient: Array) -> Point | None:
    """Return the first point of ``project(coef + length * direction)``, length = 1, 1/2, ..., that descends enough."""
    objective, length = point.objective, 1.0
    for _ in range(_HALVINGS):
        coef = objective.penalty.project(point.coef + length * direction, point.coef, subgradient)
        with np.errstate(over="ignore", invalid="ignore"):
            trial = objective.at(coef)
            expected = float(np.sum(subgradient * (coef - point.coef)))
            bound = point.value[0] + _ARMIJO * min(expected, 0.0) + _ROUNDING * abs(point.value[0])
            if trial.value[0] <= bound:
                return trial
        length *= 0.5
    return None


class _Restricted(Curvature):
    """A curvature on the free coefficients, the identity on the others."""

    def __init__(self, whole: Curvature, free: Array) -> None:
        self.whole = whole
        self.free = free
        if whole.deflation is not None:
            coef, *images = whole.deflation
            self.deflation = DeflationSpace(coef, *(image * free for image in images))

    def product(self, direction: Array) -> Array:
        return self.whole.product(direction) * self.free

    def precondition(self, residual: Array) -> Array:
        return self.whole.precondition(residual) * self.free

    def select(self, outputs: Any) -> Curvature:
        return _Restricted(self.whole.select(outputs), self.free[:, outputs])
