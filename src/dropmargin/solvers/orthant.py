r"""Newton's method for an l1 penalty by steps within an orthant, with exact zeros; one output at a time.

At ``w`` the penalty is linear on an orthant: the signs of ``w`` where it is not zero, and of the steepest descent where
it is. A coefficient at zero whose gradient is within ``l1`` stays there and out of the system. A Newton step of the
others that leaves the orthant is projected onto its boundary, which is where the zeros come from.

On most problems that takes a few steps. Where features are nearly dependent it may take many; then it stops early, and
the central path, which does not depend on that, takes over. Convergence is stated only with a proof that the gap is
below ``10 tol``: the loss is above its tangent, so with its gradient ``g`` at ``w``, ``e = max(|g| - l1, 0)`` and
``|w*|_1 <= J / l1``::

    J - J* <= R(w) + g.w - min_u (R(u) + g.u) <= R(w) + g.w + |e|^2 / (2 l2),    or  R(w) + g.w + max(e) J / l1
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
        free[-objective.penalty.n_intercepts :] = True
        # 2. The Newton direction of the free coefficients; the majoriser's at first.
        scale = np.abs(point.value) if options.scale is None else options.scale
        model = point.majoriser() if is_first else point.hessian(direct=objective.is_stiff)
        rtol, atol = 0.5 if is_first else 0.1, _INNER_SHARE * tol * scale
        restricted = _Restricted(model, free, has_kink=options.scale is not None)
        direction, remaining, _ = conjugate_gradient.solve(
            restricted, -subgradient * free, rtol, _INNER_ITERATIONS, atol
        )
        predicted = -0.5 * float(np.sum(subgradient * direction))
        # 3. The step, projected onto the orthant.
        trial = _search(point, direction, subgradient, model)
        n_stagnant = 0 if predicted < _STAGNATION * least else n_stagnant + 1
        least = min(least, predicted)
        if trial is None or n_stagnant >= _STAGNANT_STEPS:
            converged = proved_gap(point) <= _PRECISION_GAP * scale[0]
            if trial is None or converged:
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
    """Return the bound of the module's docstring, for an intercept that is the best for its coefficients, or nearly."""
    penalty = point.objective.penalty
    n = penalty.n_intercepts
    w, g = point.coef[:-n], point.gradient[:-n] - penalty.gradient(point.coef)
    excess = np.maximum(np.abs(g) - penalty.l1, 0.0)
    if penalty.l2:
        best = 0.5 * float(column_dots(excess, excess)[0]) / penalty.l2
    else:
        best = float(excess.max(initial=0.0)) * abs(float(point.value[0])) / penalty.l1
    bound = float(penalty.value(point.coef)[0] + column_dots(g, w)[0]) + best
    return max(bound, 0.0) + float(np.abs(point.gradient[-n:] * (1.0 + np.abs(point.coef[-n:]))).sum())


def _search(point: Point, direction: Array, subgradient: Array, model: Curvature) -> Point | None:
    """Return the first point of ``project(coef + length * direction)``, length = 1, 1/2, ..., that descends enough.

    The intercept takes the value that is best for the projected coefficients in the quadratic model.
    """
    objective, length = point.objective, 1.0
    known = None if model.deflation is None else model.deflation.intercept_image
    for _ in range(_HALVINGS):
        moved = point.coef + length * direction
        coef = objective.penalty.project(moved, point.coef, subgradient)
        if known is not None and known[-1, 0] > 0.0:  # the curvature along the intercept
            coef[-1] -= column_dots(known[:-1], (coef - moved)[:-1]) / known[-1]
        with np.errstate(over="ignore", invalid="ignore"):
            trial = objective.at(coef)
            expected = float(np.sum(subgradient * (coef - point.coef)))
            bound = point.value[0] + _ARMIJO * min(expected, 0.0) + _ROUNDING * abs(point.value[0])
            if trial.value[0] <= bound:
                return trial
        length *= 0.5
    return None


class _Restricted(Curvature):
    """A curvature on the free coefficients, the identity on the others.

    A hinge is nearly flat along the coefficients, so that deflation saves steps. Other losses take twice as many with
    it, as steps along the coefficients leave the orthant: only their intercept, which is coupled to all, is deflated.
    """

    def __init__(self, whole: Curvature, free: Array, has_kink: bool) -> None:
        self.whole, self.free, self.has_kink = whole, free, has_kink
        if whole.deflation is not None:
            coef, coef_image, intercept_image = whole.deflation
            if not has_kink:
                coef = coef_image = np.zeros_like(coef)
            self.deflation = DeflationSpace(coef, coef_image * free, intercept_image * free)

    def product(self, direction: Array) -> Array:
        return self.whole.product(direction) * self.free

    def precondition(self, residual: Array) -> Array:
        return self.whole.precondition(residual) * self.free

    def select(self, outputs: Any) -> Curvature:
        return _Restricted(self.whole.select(outputs), self.free[:, outputs], self.has_kink)
