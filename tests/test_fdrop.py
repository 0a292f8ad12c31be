"""FDropSVC: the exact optimum on small problems, the proved gap, the planes, limits of K, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize

from dealing import deal_checks
from reproduction.fdrop import FDropSVC


# Some checks have max_iter=1 or unscaled data, which give a warning.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@deal_checks([], [FDropSVC(), FDropSVC(n_deleted=0, C=0.1), FDropSVC(fit_intercept=False)], stride=3)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# The optimum ---------------------------------------------------------------------------------------------------------


def exact_optimum(X, signs, weights, *, n_deleted, C, fit_intercept=True):
    """Return the minimum, by a general solver of the paper's quadratic program.

    Variables (w, b, xi_i, t_i, z_id): the worst case is ``min K t + sum_d z_d`` with ``t + z_d >= y w_d x_d``.
    """
    n, d = X.shape
    size = d + 1 + 2 * n + n * d
    xi, t, z = d + 1 + np.arange(n), d + 1 + n + np.arange(n), (d + 1 + 2 * n + np.arange(n * d)).reshape(n, d)
    rows = np.zeros((n + n * d, size))
    for i in range(n):
        rows[i, :d], rows[i, d] = signs[i] * X[i], signs[i] * fit_intercept
        rows[i, xi[i]], rows[i, t[i]], rows[i, z[i]] = 1.0, -n_deleted, -1.0
        for j in range(d):
            rows[n + i * d + j, [j, t[i], z[i, j]]] = -signs[i] * X[i, j], 1.0, 1.0
    right = np.concatenate([np.ones(n), np.zeros(n * d)])
    cost = np.zeros(size)
    cost[xi] = C * weights
    quadratic = np.zeros(size)
    quadratic[:d] = 1.0
    start = np.zeros(size)
    start[xi] = 1.0
    found = minimize(
        lambda v: 0.5 * quadratic @ v**2 + cost @ v,
        start,
        jac=lambda v: quadratic * v + cost,
        bounds=[(None, None)] * (d + 1) + [(0.0, None)] * (size - d - 1),
        constraints=LinearConstraint(rows, right, np.inf),
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert found.success, found.message
    return found.fun


@pytest.mark.parametrize("n_deleted", [0, 1, 2, 3])
@pytest.mark.parametrize(("C", "fit_intercept"), [(0.3, True), (3.0, True), (1.0, False)])
def test_objective_equals_that_of_the_exact_quadratic_program(n_deleted, C, fit_intercept):
    rng = np.random.default_rng(n_deleted)
    X = rng.normal(size=(14, 4)) * (rng.uniform(size=(14, 4)) < 0.8)
    signs = np.where(X @ [1.0, -1.0, 1.5, 0.5] + 0.5 * rng.normal(size=14) > 0.3, 1.0, -1.0)
    X += 0.7 * signs[:, None]
    weights = rng.uniform(0.5, 2.0, 14)
    exact = exact_optimum(X, signs, weights, n_deleted=n_deleted, C=C, fit_intercept=fit_intercept)
    model = FDropSVC(n_deleted, C=C, fit_intercept=fit_intercept, tol=1e-7).fit(X, signs, weights)
    assert model.objective_ == pytest.approx(exact, rel=1e-6)
