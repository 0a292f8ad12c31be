"""L-BFGS on the objective, the paper's numerical method: SciPy's, one output at a time."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from dropmargin.objective import Objective, Point
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array


def lbfgs(objective: Objective, start: Point, options: Options) -> Result:
    """Minimise by L-BFGS; it stops when an iteration decreases the objective by less than ``tol / 100`` of it."""
    tol, max_iter = options.tol, options.max_iter
    history: list[Iteration] = []
    latest = [0.0]

    def value_and_gradient(flat: Array) -> tuple[float, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            point = objective.at(flat[:, None])
            latest[0] = float(point.value[0])
            return latest[0], np.nan_to_num(point.gradient[:, 0])

    def record(flat: Array) -> None:
        history.append(Iteration(len(history) + 1, latest[0], np.nan, objective.n_passes, 1))
        options.monitor(history[-1])

    found = minimize(
        value_and_gradient,
        start.coef[:, 0],
        jac=True,
        method="L-BFGS-B",
        callback=record,
        options={"maxiter": max_iter, "maxfun": 20 * max_iter, "ftol": 0.01 * tol, "gtol": 0.0, "maxls": 50},
    )
    # Status 2 is a line search that cannot improve on rounding: at a tight tolerance that is convergence.
    converged = found.status == 0 or (found.status == 2 and tol < 1e-8)
    message = (
        f"an iteration decreased the objective by less than {0.01 * tol:g} of it"
        if converged
        else f"stopped after {found.nit} iterations (max_iter={max_iter}): {found.message}"
    )
    return Result(found.x[:, None], np.array([found.fun]), max(1, int(found.nit)), bool(converged), message, history)
