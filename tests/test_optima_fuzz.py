"""No fit reports convergence far from the optimum: a sample of the problems of ``python -m tests.fuzz.optima``."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from dealing import deal
from dropmargin import DropoutLogisticRegression, NoisyLinearClassifier
from fuzz import optima
from fuzz.reference import MGF_LOSSES, MOMENT_LOSSES, REGRESSION_LOSSES, BinaryProblem, minimise

# Twenty problems, without those that take half a second or more.
_QUICK = sorted(set(range(22)) - {16, 21})
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


# Near a kink that the noise hardly smooths, a step of which a small share decreases the objective proves nothing.
@pytest.mark.parametrize(("seed", "index"), [(31337, 907)])
def test_problems_that_once_stopped_silently(seed, index):
    outcome = optima.run(seed, index, peer=False)
    assert outcome.verdict == "converged", optima.describe(seed, outcome)


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 32, 2))])
def test_no_multinomial_problem_stops_silently(first):
    outcomes = [optima.run(0, index, peer=False, multinomial=True) for index in range(first, first + 2)]
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
