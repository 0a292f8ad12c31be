"""Coordinate descent in the dual of the noise-free hinge: the optimum of the other ways, and a gap that is proved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.svm import LinearSVC

from dealing import deal
from dropmargin import DropoutSVC
from dropmargin.data import kernels
from dropmargin.losses import Hinge
from dropmargin.penalties import Penalty
from dropmargin.solvers import Options
from dropmargin.solvers.dual_coordinate import descend_dual
from helpers import given_objective

pytestmark = pytest.mark.skipif(not kernels.available(), reason="the kernels were not built: no C compiler")


def _text(n_rows=150, n_features=60, seed=0, noise=1.0):
    """Return sparse rows, labels in {-1, +1} and weights; one row is empty, and two contradict each other."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.15, (n_rows, n_features)) * rng.uniform(0.5, 2.0, (n_rows, n_features))
    y = np.where((X - X.mean(axis=0)) @ rng.normal(size=n_features) + noise * rng.normal(size=n_rows) > 0.0, 1.0, -1.0)
    X[3] = 0.0
    X[5], y[5], y[4] = X[4], 1.0, -1.0
    return sparse.csr_array(X), y, rng.uniform(0.0, 2.0, n_rows) * (rng.uniform(size=n_rows) > 0.1)


def _objective(X, y, weights, *, fit_intercept=True, l2=1.0, margin=1.0, n_parts=2, n_threads=1, cache=None):
    """Return the objective of the rows; problems with the same ``cache`` share their rows."""
    options = {"fit_intercept": fit_intercept, "penalty": Penalty(l2=l2), "n_parts": n_parts}
    objective = given_objective(X, (y > 0.0).astype(int), weights, Hinge(margin), None, 2, **options).objective
    objective.data.n_threads = n_threads
    return replace(objective, cache={} if cache is None else cache)


def _primal(X, y, weights, coef, l2=1.0, margin=1.0):
    losses = np.maximum(0.0, margin - y * (X @ coef[:-1] + coef[-1]))
    return 0.5 * l2 * coef[:-1] @ coef[:-1] + weights @ losses


def _dual_variables(objective):
    """Return what the last descent of the objective's rows left in their cache."""
    (known,) = objective.cache["dual variables"].values()
    return known


def _dual(X, y, a, l2=1.0, margin=1.0):
    combined = X.T @ (a * y)
    return margin * a.sum() - 0.5 / l2 * combined @ combined, abs(a @ y)


def _solve(objective, tol, max_iter=1000):
    """Return the result of coordinate descent, which must not give up."""
    result = descend_dual(objective, Options(tol, max_iter))
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("tol", "C", "scales", "fit_intercept"),
    deal([1e-2, 1e-4, 1e-6, 1e-10], [1e-3, 0.1, 1.0], [(1.0, 1.0), (0.3, 2.0)], [True, False]),
)
def test_the_gap_is_at_most_the_tolerance_by_the_plain_formulas(tol, C, scales, fit_intercept):
    (l2, margin), (X, y, weights) = scales, _text()
    objective = _objective(X, y, C * weights, fit_intercept=fit_intercept, l2=l2, margin=margin)
    result = _solve(objective, tol)
    assert result.converged
    value = _primal(X, y, C * weights, result.coef[:, 0], l2, margin)
    dual_values, upper = _dual_variables(objective)
    below, imbalance = _dual(X, y, dual_values, l2, margin)
    assert result.objective[0] == pytest.approx(value, rel=1e-12)
    assert value - below <= tol * value * (1.0 + 1e-6) + 1e-13 * value
    np.testing.assert_array_equal(upper, C * weights)
    assert np.all((dual_values >= 0.0) & (dual_values <= upper))
    if fit_intercept:
        assert imbalance <= 1e-4 * tol * C * weights.sum() + 1e-13
    else:
        assert result.coef[-1, 0] == 0.0


def test_without_an_offset_the_optimum_is_that_of_liblinear():
    X, y, weights = _text()
    model = DropoutSVC(noise=None, C=0.3, tol=1e-10, fit_intercept=False).fit(X, y, sample_weight=weights)
    theirs = LinearSVC(loss="hinge", C=0.3, fit_intercept=False, tol=1e-10, max_iter=10**6).fit(X, y, weights)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5)


def test_one_feature_and_no_feature_at_all():
    y = np.array([1.0, 1.0, -1.0, -1.0, -1.0])
    X = sparse.csr_array(np.array([[3.0], [1.0], [-1.0], [-2.0], [0.0]]))
    model = DropoutSVC(noise=None, C=1e3, tol=1e-10).fit(X, y)
    np.testing.assert_allclose([model.coef_[0, 0], model.intercept_[0]], [2.0, -1.0], atol=1e-4)
    empty = DropoutSVC(noise=None, tol=1e-10).fit(sparse.csr_array((5, 1)), y)
    assert empty.objective_ == pytest.approx(4.0)  # the two of the smaller class lose 2 each
    assert empty.coef_[0, 0] == 0.0


def test_the_other_solver_takes_over_without_kernels(monkeypatch):
    X, y, weights = _text()
    options = Options(1e-4, 100)
    assert descend_dual(_objective(X, y, weights), options) is not None
    monkeypatch.setattr(kernels, "_LIBRARY", None)
    assert descend_dual(_objective(X, y, weights), options) is None
    assert DropoutSVC(noise=None, tol=1e-6).fit(X, y, sample_weight=weights).converged_


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "no intercept"])
def test_small_tables_reach_the_optimum_of_a_low_tolerance(C, fit_intercept):
    # The default tolerance takes the interior point, the low one the smoothed hinge.
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(120, 6)), rng.integers(0, 3, 120)
    y = np.argmax(X[:, :3] + rng.normal(size=(120, 3)), axis=1)
    model = DropoutSVC(noise=None, C=C, fit_intercept=fit_intercept)
    rough, precise = (clone(model).set_params(tol=tol).fit(X, y, weights) for tol in (1e-4, 1e-9))
    assert precise.objective_ * (1.0 - 1e-8) <= rough.objective_ <= precise.objective_ * (1.0 + 1e-4)
    last = rough.history_[-1]
    assert last.objective == pytest.approx(rough.objective_)
    assert last.gap <= 1e-4 * last.objective
    # Every entry is the sum over the outputs, so the first ones are of the size of the objective of zero.
    assert rough.history_[0].objective <= 3 * 3 * C * weights.sum()
