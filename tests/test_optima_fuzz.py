"""No fit reports convergence far from the optimum: a sample of the problems of ``python -m tests.fuzz.optima``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.linear_model import LogisticRegression

from datasets import blankout
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, DropoutSVR, GaussianNoise, NoisyLinearClassifier
from fuzz import optima
from fuzz.multinomial import MultinomialProblem
from fuzz.reference import MGF_LOSSES, MOMENT_LOSSES, REGRESSION_LOSSES, BinaryProblem, minimise

# Forty problems, without those that take half a second or more.
_QUICK = sorted(set(range(44)) - {16, 22, 26, 37})
_BATCHES = [_QUICK[first : first + 10] for first in range(0, len(_QUICK), 10)]
_MORE = [pytest.param(range(first, first + 10), marks=pytest.mark.slow) for first in range(0, 200, 10)]


@pytest.mark.parametrize("indices", [*_BATCHES, *_MORE], ids=lambda indices: f"from {indices[0]}")
def test_no_problem_stops_silently(indices):
    outcomes = [optima.run(0, index, peer=False) for index in indices]
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


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(4, 32, 4))])
def test_no_multinomial_problem_stops_silently(first):
    outcomes = [optima.run(0, index, peer=False, multinomial=True) for index in range(first, first + 4)]
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
    assert any(optima.run(0, index, peer=False).verdict == "silent" for index in range(20))


# Features that are not centred ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "layout"),
    deal(
        [
            DropoutLogisticRegression(l1_ratio=1.0, noise=None, C=10),
            DropoutSVC(l1_ratio=1.0, noise=GaussianNoise(scale=0.01), C=10),
            DropoutLogisticRegression(l1_ratio=0.3, noise=None, C=10),
        ],
        ["dense", "sparse"],
    ),
    ids=str,
)
def test_the_objective_does_not_depend_on_the_shift_of_the_features(estimator, layout):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 30))
    y = X @ rng.normal(size=30) + 3.0 * rng.normal(size=150) > 0.0
    shifts = (0.0, 50.0, 500.0) if layout == "sparse" else (0.0, 50.0, 500.0, 1e8)
    found = []
    for shift in shifts:
        rows = optima.sparse.csr_array(X + shift) if layout == "sparse" else X + shift
        found.append(estimator.fit(rows, y).objective_)
        assert estimator.converged_
    np.testing.assert_allclose(found, found[0], rtol=1e-3)


# The hinge with very weak noise, and without any ----------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "C"), deal(range(6), [1e3, 1e4], n=6))
def test_weak_noise_large_c_and_weights_over_two_decades(seed, C):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 20))
    y = np.where(X @ rng.normal(size=20) + 0.3 * rng.normal(size=60) > 0.0, 1.0, -1.0)
    weight = 10.0 ** rng.uniform(-1.0, 1.0, 60)
    model = DropoutSVC(noise=1e-6, C=C, tol=1e-3).fit(X, y, sample_weight=weight)
    problem = BinaryProblem("hinge", ("dropout", 1e-6, "zero"), X, y, C * weight, 0.0, 1.0, True)
    assert optima.relative_gap(problem, np.append(model.coef_, model.intercept_)) <= optima.ALLOWED * model.tol


@pytest.mark.parametrize(("seed", "tol"), deal(range(3), [1e-2, 1e-3], n=3))
def test_the_barrier_at_the_kinks_costs_a_small_share_of_the_tolerance(seed, tol):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 12))
    y = X @ rng.normal(size=12) + rng.normal(size=60)
    for model, target in ((DropoutSVR(noise=None), y), (DropoutSVC(noise=1e-6), y > 0.0)):
        exact = model.set_params(tol=1e-10).fit(X, target).objective_
        assert model.set_params(tol=tol).fit(X, target).objective_ <= (1.0 + 0.1 * tol) * exact


def test_columns_of_very_different_scales_without_noise():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 10)) * 10.0 ** np.linspace(0.0, 10.0, 10)
    y = np.where(rng.normal(size=150) > 0.0, 1.0, -1.0)
    model = DropoutSVC(noise=None).fit(X, y)
    problem = BinaryProblem("hinge", ("none",), X, y, np.ones(150), 0.0, 1.0, True)
    assert optima.relative_gap(problem, np.append(model.coef_, model.intercept_)) <= optima.ALLOWED * model.tol


# The reference itself -------------------------------------------------------------------------------------------------


def test_the_reference_is_scikit_learn_without_noise():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 5)) + 3.0
    y = np.where(rng.normal(size=80) + X[:, 0] > 3.0, 1.0, -1.0)
    theirs = LogisticRegression(C=0.7, tol=1e-12, solver="newton-cholesky").fit(X, y)
    ours = minimise(BinaryProblem("logistic", ("none",), X, y, np.full(80, 0.7), 0.0, 1.0, True))
    np.testing.assert_allclose(ours, np.append(theirs.coef_, theirs.intercept_), rtol=1e-6)


@pytest.mark.parametrize(
    ("loss", "noise"),
    deal(
        tuple(dict.fromkeys(MOMENT_LOSSES + MGF_LOSSES + REGRESSION_LOSSES)),
        [("dropout", 0.4, 0.7), ("gaussian", 0.3), ("laplace", 0.2), ("poisson",), ("dropout", 0.4, "zero")],
        n=30,
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


@pytest.mark.parametrize(
    ("loss", "noise"),
    deal(["logistic", "mcf-logistic"], [("dropout", 0.4, 0.7), ("gaussian", 0.3), ("laplace", 0.2), ("poisson",)], n=4),
    ids=str,
)
def test_the_multinomial_reference_is_a_stationary_point(loss, noise):
    rng = np.random.default_rng(4)
    X = rng.poisson(1.0, (40, 4)) + 0.1
    y = (rng.normal(size=(40, 3)) + X[:, :3]).argmax(axis=1)
    problem = MultinomialProblem(loss, noise, X, y, np.full(40, 0.3), 0.0, 1.0, True)
    slope = approx_fprime(minimise(problem), problem.value, 1e-6)
    assert np.abs(slope).max() <= 1e-4 * problem.value(np.zeros(15))


def test_the_reference_reads_the_noise_of_the_package():
    """The objective that the package states is the reference's value at its solution."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(50, 3)), np.where(rng.normal(size=50) > 0.0, 1.0, -1.0)
    model = DropoutSVC(noise=blankout(0.3), C=2.0).fit(X, y)
    problem = BinaryProblem("hinge", ("dropout", 0.3, "zero"), X, y, np.full(50, 2.0), 0.0, 1.0, True)
    assert problem.value(np.append(model.coef_, model.intercept_)) == pytest.approx(model.objective_, rel=1e-10)
