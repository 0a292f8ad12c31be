"""The optimum: the ordinary models without noise, every solver, an independent optimiser, and random problems."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime, linprog, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from datasets import blankout
from dealing import deal
from dropmargin import DropoutLogisticRegression, NoisyLinearClassifier
from dropmargin.losses import Hinge
from fuzz import optima
from fuzz.draws import Case
from fuzz.optima import relative_gap
from fuzz.reference import MGF_LOSSES, MOMENT_LOSSES, REGRESSION_LOSSES, BinaryProblem, minimise
from helpers import LOSSES, NOISES, RADIAL, as_format, make_data, make_table, plain_objective

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


# Every loss and noise against the independent optimiser ------------------------------------------------------------

_REFERENCE = np.array([0.5, 1.0, -0.3, 0.0, 0.2, 0.7])
_NOISES = {
    "none": ("none",),
    "dropout": ("dropout", 0.4, "zero"),
    "dropout per feature": ("dropout", np.linspace(0.0, 0.9, 6), "zero"),
    "dropout to the mean": ("dropout", 0.3, "mean"),
    "dropout in groups": ("dropout", np.array([0.4, 0.2, 0.4, 0.5, 0.2, 0.4]), _REFERENCE),
    "gaussian": ("gaussian", 0.3),
    "laplace per feature": ("laplace", np.array([0.2, 0.0, 0.1, 0.3, 0.25, 0.05])),
    "poisson": ("poisson",),
}
_TASKS = [("ovr", loss) for loss in LOSSES] + [("ovo", "hinge"), ("ovo", "mcf-logistic")]
_TASKS += [("multinomial", loss) for loss in ("logistic", "mcf-logistic")]
_TASKS += [("regression", loss) for loss in REGRESSION_LOSSES]


@pytest.mark.parametrize(
    ("task", "noise", "layout", "l1_ratio", "has_holes", "tol"),
    deal(_TASKS, _NOISES, LAYOUTS, [0.0, 0.0, 0.5, 1.0], [False, True], [1e-8, 1e-4, 1e-2], n=56),
    ids=str,
)
def test_the_optimum_is_that_of_the_reference(task, noise, layout, l1_ratio, has_holes, tol):
    (kind, loss), X, labels, weights = task, *make_data(n_samples=60, n_columns=3, seed=3)
    y = make_table(60)[1] if kind == "regression" else labels.argmax(axis=1)
    if has_holes and (layout, noise[:5]) not in [("sparse", "gauss"), ("sparse", "lapla")]:
        X[np.random.default_rng(0).uniform(size=X.shape) < 0.2] = np.nan
    groups = np.array([0, 1, 0, 2, 1, 0]) if noise == "dropout in groups" else None
    data = X, y, weights, loss, _NOISES[noise], 0.3, l1_ratio, tol
    case = Case(*data, True, kind, layout, None, groups=groups, parameter=0.5)
    model = case.estimator().fit(case.rows(), y, sample_weight=weights)
    problems = case.problems(getattr(model, "classes_", None))
    coefs = np.column_stack([np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)]).reshape(len(problems), -1)
    assert model.converged_
    stated = sum(problem.value(coef) for problem, coef in zip(problems, coefs, strict=True))
    assert model.objective_ == pytest.approx(stated, rel=1e-7 if "gaussian" in loss else 1e-9)
    gaps = [relative_gap(problem, coef) for problem, coef in zip(problems, coefs, strict=True)]
    assert -1e-7 < max(gaps) <= 1.5 * tol


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


# Twenty problems, without those that take half a second or more.
_QUICK = sorted(set(range(22)) - {16, 21})
_BATCHES = [_QUICK[first : first + 10] for first in range(0, len(_QUICK), 10)]
_MORE = [pytest.param(range(first, first + 10), marks=pytest.mark.slow) for first in range(0, 200, 10)]


@pytest.mark.parametrize("indices", [*_BATCHES, *_MORE], ids=lambda indices: f"from {indices[0]}")
def test_no_problem_stops_silently(indices):
    outcomes = [optima.run(0, index) for index in indices]
    wrong = [outcome for outcome in outcomes if outcome.verdict in ("silent", "error")]
    assert not wrong, "\n".join(optima.describe(0, outcome) for outcome in wrong)


# The quadratic model predicts a decrease that the step does not bring: without that difference in the estimated gap,
# fits stop after the first Newton step, at 20 to 200 times the tolerance; with half of it, the last one at twice.
@pytest.mark.parametrize(
    ("seed", "estimator"),
    [
        (10, DropoutLogisticRegression(noise=None, C=1e3)),
        (55, DropoutLogisticRegression(noise=None, C=1e3)),
        (10, DropoutLogisticRegression(noise=0.05, approximation="gaussian", C=1e5)),
        (4, DropoutLogisticRegression(noise=0.05, approximation="gaussian", C=1e5)),
    ],
)
def test_a_step_that_decreases_less_than_predicted_is_no_proof_of_convergence(seed, estimator):
    rng = np.random.default_rng(seed)
    n_samples, n_features = rng.integers(40, 200), rng.integers(3, 30)
    X = rng.normal(size=(n_samples, n_features)) * 10.0 ** rng.uniform(-2.0, 2.0, n_features)
    scores = X @ (rng.normal(size=n_features) / np.abs(X).mean(axis=0))
    y = scores + rng.normal(size=n_samples) * rng.choice([0.05, 0.5, 3.0]) > 0.0
    exact = estimator.set_params(tol=1e-11).fit(X, y).objective_
    model = estimator.set_params(tol=1e-2).fit(X, y)
    assert model.converged_
    assert model.objective_ <= (1.0 + model.tol) * exact


# Near kinks, a share of a step proved too much, or one that decreased the objective by another amount than predicted;
# the preconditioner did not know the reference of groups, the noise of a log-MGF, or how groups couple classes.
@pytest.mark.parametrize(
    ("seed", "index"), [(31337, 907), (31337, 1306), (31337, 1559), (31337, 1639), (90210, 1054), (90210, 1093)]
)
def test_problems_that_once_stopped_silently(seed, index):
    outcome = optima.run(seed, index)
    assert outcome.verdict == "converged", optima.describe(seed, outcome)


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 32, 2))])
def test_no_multinomial_problem_stops_silently(first):
    outcomes = [optima.run(0, index, multinomial=True) for index in range(first, first + 2)]
    wrong = [outcome for outcome in outcomes if outcome.verdict in ("silent", "error")]
    assert not wrong, "\n".join(optima.describe(0, outcome) for outcome in wrong)


def test_the_harness_sees_a_silent_stop(monkeypatch):
    """A fit that is stopped early and says that it converged is reported."""
    whole = NoisyLinearClassifier.fit

    def stopped(self, X, y, sample_weight=None):
        self.set_params(tol=0.5)
        try:
            return whole(self, X, y, sample_weight)
        finally:
            self.set_params(tol=1e-6)

    monkeypatch.setattr(NoisyLinearClassifier, "fit", stopped)
    assert any(optima.run(0, index).verdict == "silent" for index in range(20))


# The reference itself -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "noise"),
    deal(
        tuple(dict.fromkeys(MOMENT_LOSSES + MGF_LOSSES + REGRESSION_LOSSES)),
        [("dropout", 0.4, 0.7), ("gaussian", 0.3), ("laplace", 0.2), ("poisson",), ("dropout", 0.4, "zero")],
    ),
    ids=str,
)
def test_the_reference_is_a_stationary_point(loss, noise):
    rng = np.random.default_rng(2)
    X = rng.poisson(1.0, (40, 4)) + 0.1
    y = np.where(rng.normal(size=40) + X[:, 0] > 1.0, 1.0, -1.0)
    others = {
        "groups": np.array([0, 1, 0, 1]) if "zero" in noise else None,
        "is_missing": rng.uniform(size=X.shape) < 0.1,
    }
    if loss in REGRESSION_LOSSES:
        y = X[:, 0] + rng.normal(size=40)
    problem = BinaryProblem(loss, noise, X, y, np.full(40, 0.3), 0.0, 1.0, True, parameter=0.3, **others)
    slope = approx_fprime(minimise(problem), problem.value, 1e-6)
    assert np.abs(slope).max() <= 1e-4 * problem.value(np.zeros(5))
