"""The interior-point method of small hinge problems without noise, and the search that solves all ``C`` together."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, load_wine

from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, GaussianNoise, noise_path
from dropmargin.data import LocalPartitions, Rows, canonical, row_blocks
from dropmargin.losses import Hinge
from dropmargin.noise import Variance
from dropmargin.objective import MomentObjective
from dropmargin.penalties import Penalty
from dropmargin.solvers import Options
from dropmargin.solvers.central_path import follow_central_path
from dropmargin.solvers.interior_point import interior_point, suits_interior_point
from dropmargin.solvers.newton import newton


def _objective(n_rows=90, *, separable=False, fit_intercept=True, l2=1.0, scale=1.0, margin=1.0, last_weight=1.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 4)) * np.array([1.0, scale, 1.0, 1.0 / scale]) + 1.0
    scores = (X - 1.0) / np.array([1.0, scale, 1.0, 1.0 / scale]) @ rng.normal(size=(4, 2))
    y = np.where(scores + (0.0 if separable else 0.8 * rng.normal(size=scores.shape)) > 0.3, 1.0, -1.0)
    weights = np.append(rng.uniform(0.2, 2.0, n_rows - 1), last_weight)
    (block,) = row_blocks(canonical(X))
    data = LocalPartitions([Rows(block, y, weights)])
    return MomentObjective(data, Hinge(margin), Variance(), Penalty(l2=l2), fit_intercept, 4, np.arange(2))


@pytest.mark.parametrize(
    ("l2", "scale", "separable", "fit_intercept", "margin"),
    deal([1.0, 1e-5, 1e4], [1.0, 1e3], [False, True], [True, False], [1.0, 0.2], n=12),
)
def test_the_optimum_is_that_of_the_central_path_and_the_gap_is_proved(l2, scale, separable, fit_intercept, margin):
    options = {"separable": separable, "fit_intercept": fit_intercept, "l2": l2, "scale": scale, "margin": margin}
    objective = _objective(**options)
    assert suits_interior_point(objective)
    found = interior_point(objective, Options(1e-8, 1000))
    assert found.converged
    assert found.n_iter < 50
    assert_allclose(objective.value(found.coef), found.objective, rtol=1e-12)
    assert fit_intercept or not found.coef[-1].any()
    start = objective.at(np.zeros((5, 2)))
    exact = follow_central_path(newton, objective, start, Options(1e-9, 1000))
    assert np.all(found.objective <= exact.objective * (1.0 + 1e-8))
    assert np.all(found.objective >= exact.objective * (1.0 - 2e-9))


@pytest.mark.parametrize("kind", ["the optimum", "that of ten times C", "that of a hundredth of C", "random", "zero"])
def test_any_start_leads_to_the_optimum_and_a_good_one_in_fewer_steps(kind):
    objective = _objective(l2=1e-3)
    cold = interior_point(objective, Options(1e-8, 100))
    starts = {
        "the optimum": cold.coef,
        "that of ten times C": interior_point(_objective(l2=1e-4), Options(1e-3, 100)).coef,
        "that of a hundredth of C": interior_point(_objective(l2=0.1), Options(1e-3, 100)).coef,
        "random": 100.0 * np.random.default_rng(0).normal(size=(5, 2)),
        "zero": np.zeros((5, 2)),
    }
    rough, warm = (interior_point(objective, Options(tol, 100), starts[kind]) for tol in (3e-3, 1e-8))
    assert rough.converged
    assert warm.converged
    assert_allclose(warm.objective, cold.objective, rtol=1e-7)
    if kind == "the optimum":
        assert rough.n_iter < interior_point(objective, Options(3e-3, 100)).n_iter


def test_outputs_with_penalties_of_their_own_are_those_solved_alone():
    together = interior_point(_objective(l2=np.array([1.0, 1e-3])), Options(1e-9, 100))
    for k, l2 in enumerate([1.0, 1e-3]):
        alone = interior_point(_objective(l2=l2), Options(1e-9, 100))
        assert_allclose(together.coef[:, k], alone.coef[:, k], rtol=1e-4, atol=1e-6)


def test_rows_of_weight_zero_are_for_the_other_methods():
    assert not suits_interior_point(_objective(last_weight=0.0))


def test_few_iterations_are_reported_as_unconverged():
    found = interior_point(_objective(), Options(1e-8, 3))
    assert not found.converged
    assert found.n_iter == len(found.history) == 3
    assert "duality gap" in found.message


@pytest.mark.parametrize(("plain", "load"), [(DropoutSVC, load_wine), (DropoutLogisticRegression, load_iris)])
def test_values_of_c_that_are_solved_together_have_the_optima_of_single_fits(plain, load):
    X, y = load(return_X_y=True)
    noises, Cs = [0.0, 0.2, GaussianNoise(scale=0.3), 0.7], [1e-3, 0.1, 30.0]
    path = noise_path(X, y, noises, Cs, estimator=plain(tol=1e-6), verbose=0)
    assert path.converged.all()
    for noise, C in [(0, 0), (0, 2), (1, 1), (2, 1), (3, 2)]:
        alone = plain(noise=noises[noise], C=Cs[C], tol=1e-8).fit(X, y)
        assert path.objectives[noise, C] == pytest.approx(alone.objective_, rel=2e-6)
        scores = X @ path.coefs[noise, C].T + path.intercepts[noise, C]
        assert_allclose(scores, alone.decision_function(X), atol=0.05)
