"""L-BFGS on the objective, the paper's numerical method: SciPy's, one output at a time."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from dropmargin.objective import Objective
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

# A kink is smoothed to this share of the tolerance, relative to the objective at the start.
_SMOOTHING = 0.1


def lbfgs(objective: Objective, coef: Array, options: Options) -> Result:
    """Minimise by L-BFGS; it stops when an iteration decreases the objective by less than ``tol / 100`` of it."""
    tol, max_iter = options.tol, options.max_iter
    history: list[Iteration] = []
    latest = [0.0]
    if objective.has_kink:
        value = np.abs(objective.at(coef).value)
        objective = objective.smoothed(np.maximum(_SMOOTHING * tol, 1e-13) * value / objective.weight)

    def value_and_gradient(flat: Array) -> tuple[float, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            point = objective.at(flat.reshape(coef.shape))
            latest[0] = float(point.value[0])
            return latest[0], np.nan_to_num(point.gradient.ravel())

    def record(flat: Array) -> None:
        history.append(Iteration(len(history) + 1, latest[0], np.nan, objective.n_passes, 1))
        options.monitor(history[-1])

    found = minimize(
        value_and_gradient,
        coef.ravel(),
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
    n_iter, coef = max(1, int(found.nit)), found.x.reshape(coef.shape)
    return Result(coef, objective.value(coef), n_iter, bool(converged), message, history)
