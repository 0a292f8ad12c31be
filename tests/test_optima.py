"""The optimum: the ordinary models without noise, the margin, every solver, and an independent minimum."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from datasets import blankout
from dealing import deal
from dropmargin import NoisyLinearClassifier
from dropmargin.losses import GaussianHinge, Hinge
from helpers import LOSSES, MGF_LOSSES, MOMENT_LOSSES, N_FEATURES, NOISES, RADIAL, as_format, make_data, plain_objective

LAYOUTS = ["dense", "sparse"]

# Without noise: the ordinary models ---------------------------------------------------------------------------------

TIGHT = {"tol": 1e-13, "max_iter": 5000}


@cache
def _support_vector_machine(C, seed=0):
    """Return the ordinary SVM with its slack variables, by a quadratic program.

    It starts from libsvm's answer, whose kernel is in single precision and so good for six digits only.
    """
    X, labels, weights = make_data(n_samples=60, seed=seed)
    y = labels[:, 0]
    n_slacks, n_weights = X.shape
    libsvm = SVC(kernel="linear", C=C, tol=1e-6).fit(X, y, sample_weight=weights)
    coef = np.append(libsvm.coef_, libsvm.intercept_)
    rows = y[:, None] * np.hstack([X, np.ones((n_slacks, 1))])
    margins = np.hstack([rows, np.eye(n_slacks)])
    linear = np.append(np.zeros(n_weights + 1), C * weights)
    square = np.append(np.ones(n_weights), np.zeros(n_slacks + 1))
    found = minimize(
        lambda u: 0.5 * (square * u) @ u + linear @ u,
        np.append(coef, np.maximum(0.0, 1.0 - rows @ coef)),
        jac=lambda u: square * u + linear,
        method="SLSQP",
        bounds=[(None, None)] * (n_weights + 1) + [(0.0, None)] * n_slacks,
        constraints={"type": "ineq", "fun": lambda u: margins @ u - 1.0, "jac": lambda u: margins},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x[: n_weights + 1], coef


@pytest.mark.parametrize(("C", "layout", "noise"), deal([0.05, 1.0, 20.0], LAYOUTS, [None, blankout(0.0)]), ids=repr)
def test_hinge_without_noise_is_the_support_vector_machine(C, noise, layout):
    X, labels, weights = make_data(n_samples=60)
    y = labels[:, 0]
    exact, libsvm = _support_vector_machine(C)
    model = NoisyLinearClassifier("hinge", noise=noise, C=C, tol=1e-11, max_iter=5000)
    model.fit(as_format(X, layout), y, sample_weight=weights)
    found = np.append(model.coef_, model.intercept_)
    assert model.objective_ == pytest.approx(plain_objective("hinge", None, X, y, weights, C, exact), rel=1e-9)
    assert model.objective_ <= plain_objective("hinge", None, X, y, weights, C, libsvm) * (1.0 + 1e-9)
    assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())
    assert_allclose(found, libsvm, atol=1e-2 * np.abs(exact).max())


@pytest.mark.parametrize(
    ("solver", "C", "fit_intercept", "layout"),
    deal(["newton", "irls", "lbfgs"], [0.1, 1.0, 10.0], [True, False], LAYOUTS),
)
def test_logistic_without_noise_is_logistic_regression(C, fit_intercept, solver, layout):
    X, labels, weights = make_data(n_samples=60)
    y = labels[:, 0]
    reference = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=500, fit_intercept=fit_intercept)
    reference.fit(X, y, sample_weight=weights)
    # an error of the weights is the square root of a gap: eight digits of them take the last digit of the objective
    options = TIGHT | ({"tol": 1e-16} if solver == "newton" else {})
    model = NoisyLinearClassifier("logistic", noise=None, C=C, solver=solver, fit_intercept=fit_intercept, **options)
    model.fit(as_format(X, layout), y, sample_weight=weights)
    size = np.abs(reference.coef_).max()
    bar = 1e-8 if solver == "newton" else 1e-6
    assert_allclose(model.coef_, reference.coef_, atol=bar * size)
    assert_allclose(model.intercept_, reference.intercept_, atol=bar * size)


# The margin ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "cls", "margin"), deal(NOISES, [Hinge, GaussianHinge], [0.25, 3.0]))
def test_the_margin_is_redundant(noise, margin, cls):
    """w(c, l) = l w(c / l, 1)."""
    X, labels, _ = make_data(n_samples=60)
    y = labels[:, 0]
    options = {"noise": NOISES[noise], "tol": 1e-12, "max_iter": 5000}
    scaled = NoisyLinearClassifier(cls(margin), C=0.9, **options).fit(X, y)
    unit = NoisyLinearClassifier(cls(1.0), C=0.9 / margin, **options).fit(X, y)
    size = margin * np.abs(unit.coef_).max()
    assert_allclose(scaled.coef_, margin * unit.coef_, atol=1e-6 * size)
    assert scaled.objective_ == pytest.approx(margin**2 * unit.objective_, rel=1e-10)


# One optimum, whatever the solver -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "noise", "C", "layout"), deal(RADIAL, NOISES, [0.1, 10.0], LAYOUTS))
def test_irls_never_rises(loss, noise, C, layout):
    X, labels, weights = make_data(n_samples=60)
    with warnings.catch_warnings():
        # without noise its tail is long; here only the way down matters
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = NoisyLinearClassifier(loss, noise=NOISES[noise], C=C, solver="irls", tol=1e-10, max_iter=300)
        model.fit(as_format(X, layout), labels[:, 0], sample_weight=weights)
    values = np.array([entry.objective for entry in model.history_])
    assert len(values) >= (1 if loss == "quadratic" else 4)
    assert np.all(np.diff(values) <= 1e-12 * np.abs(values[:-1]))
    assert model.objective_ <= values[-1] * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("loss", "noise", "C"),
    deal(RADIAL, ["dropout", "dropout per feature", "gaussian", "laplace", "poisson"], [0.1, 5.0]),
)
def test_all_solvers_find_the_same_weights(loss, noise, C):
    X, labels, weights = make_data(n_samples=60)
    solvers = ["newton", "irls", "lbfgs"]
    found = []
    for solver in solvers:
        model = NoisyLinearClassifier(loss, noise=NOISES[noise], C=C, solver=solver, tol=1e-13, max_iter=20000)
        model.fit(X, labels[:, 0], sample_weight=weights)
        found.append(np.append(model.coef_, model.intercept_))
    for coef in found[1:]:
        assert np.linalg.norm(coef - found[0]) <= 1e-6 * np.linalg.norm(found[0])


# Every pair against an independent minimum --------------------------------------------------------------------------

C_REFERENCE = 0.8


@cache
def _reference_minimum(loss, noise):
    """Return the minimum of the plain formula, by SciPy without derivatives; by a QP where it has a kink."""
    X, labels, weights = make_data(n_samples=60, seed=3)
    y = labels[:, 0]

    def value(coef):
        with np.errstate(over="ignore", invalid="ignore"):
            return plain_objective(loss, NOISES[noise], X, y, weights, C_REFERENCE, coef)

    if noise == "none" and "hinge" in loss:
        return value(_support_vector_machine(C_REFERENCE, seed=3)[0])
    found = minimize(value, np.zeros(N_FEATURES + 1), method="BFGS", jac="3-point", options={"gtol": 1e-7})
    return found.fun


@pytest.mark.parametrize(
    ("loss", "noise", "layout"), deal(MOMENT_LOSSES, NOISES, LAYOUTS) + deal(MGF_LOSSES, NOISES, LAYOUTS)
)
def test_objective_is_an_independent_minimum(loss, noise, layout):
    X, labels, weights = make_data(n_samples=60, seed=3)
    model = NoisyLinearClassifier(LOSSES[loss], noise=NOISES[noise], C=C_REFERENCE, tol=1e-9, max_iter=5000)
    model.fit(as_format(X, layout), labels[:, 0], sample_weight=weights)
    assert model.converged_
    assert model.objective_ == pytest.approx(_reference_minimum(loss, noise), rel=1e-6)
    coef = np.append(model.coef_, model.intercept_)
    stated = plain_objective(loss, NOISES[noise], X, labels[:, 0], weights, C_REFERENCE, coef)
    assert model.objective_ == pytest.approx(stated, rel=1e-7)


@pytest.mark.parametrize(("loss", "noise", "tol"), deal(LOSSES, ["none", "dropout", "gaussian"], [1e-2, 1e-4, 1e-6]))
def test_the_tolerance_is_kept(loss, noise, tol):
    """`tol` is the relative gap to the minimum."""
    X, labels, weights = make_data(n_samples=60, seed=3)
    model = NoisyLinearClassifier(LOSSES[loss], noise=NOISES[noise], C=C_REFERENCE, tol=tol)
    model.fit(X, labels[:, 0], sample_weight=weights)
    minimum = _reference_minimum(loss, noise)
    assert minimum * (1.0 - 1e-7) <= model.objective_ <= minimum * (1.0 + 1.5 * tol)


@pytest.mark.parametrize(("C", "tol"), [(0.1, 1e-2), (1.0, 1e-2), (1.0, 1e-5)])
def test_gap_is_within_tol_for_a_hinge_without_noise_and_many_features_under_an_l1_penalty(C, tol):
    """The minimum is that of a linear program in the positive and negative parts of the coefficients and the slacks."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 200))
    y = np.where(X[:, :4].sum(axis=1) + rng.normal(size=60) > 0.0, 1.0, -1.0)
    rows = y[:, None] * np.hstack([X, -X, np.ones((60, 1))])
    costs = np.concatenate([np.ones(400), np.zeros(1), np.full(60, C)])
    bounds = [(0.0, None)] * 400 + [(None, None)] + [(0.0, None)] * 60
    minimum = linprog(costs, A_ub=-np.hstack([rows, np.eye(60)]), b_ub=-np.ones(60), bounds=bounds).fun
    model = NoisyLinearClassifier(Hinge(), noise=None, C=C, l1_ratio=1.0, tol=tol).fit(X, y)
    assert minimum * (1.0 - 1e-7) <= model.objective_ <= minimum * (1.0 + tol)
