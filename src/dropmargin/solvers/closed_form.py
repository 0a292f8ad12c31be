"""The quadratic loss: one ridge system, solved to full precision."""

from __future__ import annotations

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective import Objective, Point
from dropmargin.solvers import conjugate_gradient
from dropmargin.solvers.result import Iteration, Monitor, Result


def closed_form(
    objective: Objective, start: Point, *, tol: float, max_iter: int, monitor: Monitor, warm: bool
) -> Result:
    """Solve ``(l2 + 2 C X'SX + 2 C diag(V's)) w = 2 C X'Sy`` directly, with conjugate gradients as refinement."""
    rtol = min(1e-6, np.sqrt(tol) * 1e-3)
    direction = conjugate_gradient.solve(start.majoriser(direct=True), -start.gradient, rtol, max_iter).x
    point = objective.at(start.coef + direction)
    left = column_dots(point.gradient, point.majoriser(direct=True).precondition(point.gradient))
    converged = bool(np.all(0.5 * left <= max(tol, 1e-14) * np.abs(point.value)))
    message = (
        "solved the ridge system" if converged else f"the ridge system was not solved in max_iter={max_iter} steps"
    )
    history = [Iteration(1, float(point.value.sum()), float(0.5 * left.sum()), objective.n_passes, objective.n_columns)]
    monitor(history[-1])
    return Result(point.coef, point.value, 1, converged, message, history)
