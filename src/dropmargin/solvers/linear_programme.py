r"""The hinge loss without noise under a pure l1 penalty: no curvature anywhere, a linear programme, solved by HiGHS.

With ``w = p - q``, ``p, q >= 0`` and slacks ``xi >= 0``::

    minimise  l1 sum(p + q) + sum_i c_i xi_i      subject to   y_i (x_i.(p - q) + b) + xi_i >= margin

A solution is a vertex, so its zeros are exact.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from dropmargin.linalg import local_parts, stack_blocks
from dropmargin.objective import MomentObjective
from dropmargin.solvers.result import Iteration, Monitor, Result


def solve_linear_programme(objective: MomentObjective, *, tol: float, monitor: Monitor) -> Result:
    """Minimise the noise-free hinge loss of one column with an l1 penalty; ``tol`` is HiGHS's feasibility tolerance."""
    parts, (column,) = local_parts(objective.data), objective.columns
    rows = sparse.csr_array(stack_blocks([part.block for part in parts]).rows, dtype=np.float64)
    labels = np.concatenate([part.labels[:, column] for part in parts])
    weights = np.concatenate([part.weights[:, 0] for part in parts])
    n_rows, n_features = rows.shape
    signed = sparse.diags_array(labels) @ rows
    offsets = sparse.csr_array(labels[:, None] if objective.fit_intercept else np.zeros((n_rows, 1)))
    found = linprog(
        np.concatenate([np.full(2 * n_features, objective.penalty.l1), [0.0], weights]),
        A_ub=-sparse.hstack([signed, -signed, offsets, sparse.eye_array(n_rows)], format="csr"),
        b_ub=np.full(n_rows, -objective.loss.kink),
        bounds=[(0.0, None)] * (2 * n_features) + [(None, None)] + [(0.0, None)] * n_rows,
        options={"dual_feasibility_tolerance": float(np.clip(tol, 1e-10, 1e-7))},
    )
    coef = np.zeros((n_features + 1, 1))
    if found.x is not None:
        coef[:-1, 0] = found.x[:n_features] - found.x[n_features : 2 * n_features]
        coef[-1, 0] = found.x[2 * n_features]
    point = objective.at(coef)
    entry = Iteration(1, float(point.value[0]), 0.0 if found.status == 0 else np.inf, objective.n_passes, 1)
    monitor(entry)
    return Result(coef, point.value, 1, found.status == 0, f"HiGHS: {found.message}", [entry])
