"""How sure a prediction is: closed forms against plain formulas, draws and integrals done by others."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal, norm

from datasets import N_FEATURES, blankout, make_binary, make_multiclass, with_nan
from dealing import deal
from dropmargin import DropoutSVC, GaussianNoise, LaplaceNoise, PoissonNoise
from dropmargin.estimators.stability import ScoreDifferences, guaranteed, normal, normal_given_predicted
from helpers import plain_variance

NOISES = [
    blankout(0.4),
    blankout(np.linspace(0.0, 0.8, N_FEATURES)),
    GaussianNoise(0.4),
    GaussianNoise(np.linspace(0.0, 0.9, N_FEATURES)),
    LaplaceNoise(0.3),
    PoissonNoise(),
]


def realised(model, rows, noise, n_draws):
    """Return the share of draws from the noise that leave each label as it is; what is missing stays missing."""
    rng, missing, before = np.random.RandomState(0), np.isnan(rows), model.predict(rows)
    kept = np.zeros(len(rows))
    for _ in range(n_draws // 50):  # 50 copies of all rows together
        drawn = noise.sample(np.tile(np.nan_to_num(rows), (50, 1)), rng)
        drawn[np.tile(missing, (50, 1))] = np.nan
        kept += (model.predict(drawn).reshape(50, len(rows)) == before).sum(axis=0)
    return kept / n_draws


def wide(n_samples, n_classes, n_features=60, seed=0):
    """Return rows with so many features that their noisy scores are nearly normal."""
    return make_multiclass(n_samples, n_features, n_classes, seed)


# Two classes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "layout"), deal(NOISES, [np.array, sparse.csr_array]), ids=str)
def test_two_classes_by_the_formulas(noise, layout):
    X, y = make_binary()
    model = DropoutSVC().fit(X, y)
    mean, variance = model.decision_function(X), plain_variance(noise, X) @ model.coef_[0] ** 2
    got = model.predict_stability(layout(X), noise, "normal")
    np.testing.assert_allclose(got, norm.cdf(np.abs(mean) / np.sqrt(variance)), rtol=1e-9)
    bound = model.predict_stability(layout(X), noise, "guaranteed")
    np.testing.assert_allclose(bound, mean**2 / (mean**2 + variance), rtol=1e-9)


# More classes -------------------------------------------------------------------------------------------------------


def normal_cdf(upper, covariance, **options):
    """Return the distribution function of SciPy, which is a random estimate; seeded where SciPy takes a generator."""
    if "rng" in inspect.signature(multivariate_normal.cdf).parameters:
        options["rng"] = np.random.default_rng(0)
    return multivariate_normal.cdf(upper, cov=covariance, **options)


def random_gaps(n_rivals, seed):
    """Return the differences of normal scores with random weights, and their covariance."""
    rng = np.random.RandomState(seed)
    weights, means = rng.randn(n_rivals + 1, 12), np.sort(rng.randn(n_rivals + 1) * 2.0)[::-1]
    ahead = weights[0] - weights[1:]
    covariance = (ahead @ ahead.T)[None]
    slope = ahead @ weights[0] / np.linalg.norm(weights[0])
    return ScoreDifferences((means[0] - means[1:])[None], np.diag(covariance[0])[None], slope[None]), covariance


@pytest.mark.parametrize(("n_rivals", "accuracy"), [(1, 1e-6), (2, 1e-3), (4, 3e-3), (9, 6e-3)])
def test_the_joint_probability_agrees_with_scipy(n_rivals, accuracy):
    for seed in range(8):
        differences, covariance = random_gaps(n_rivals, seed)
        exact = normal_cdf(differences.mean[0], covariance[0], maxpts=20_000, abseps=1e-4)
        assert normal(differences, covariance)[0] == pytest.approx(exact, abs=accuracy + 2e-4)
        assert guaranteed(differences)[0] <= exact
        # what is done for many classes, without the covariances
        assert normal_given_predicted(differences)[0] == pytest.approx(exact, abs=0.08)


@pytest.mark.parametrize("n_classes", [3, 6])
def test_the_bound_for_several_classes_by_the_formula(n_classes):
    X, y = make_multiclass(n_classes=n_classes)
    model = DropoutSVC().fit(X, y)
    scores, V = model.decision_function(X), plain_variance(blankout(0.3), X)
    for i, value in enumerate(model.predict_stability(X, blankout(0.3), "guaranteed")):
        k, fails = scores[i].argmax(), 0.0
        for j in set(range(n_classes)) - {k}:
            variance = V[i] @ (model.coef_[k] - model.coef_[j]) ** 2
            fails += variance / ((scores[i, k] - scores[i, j]) ** 2 + variance) if variance > 0.0 else 0.0
        assert value == pytest.approx(max(0.0, 1.0 - fails), abs=1e-9)


# Against draws ------------------------------------------------------------------------------------------------------

WIDE_NOISES = [
    blankout(0.3),
    blankout(np.linspace(0.0, 0.6, 60)),
    GaussianNoise(0.4),
    LaplaceNoise(0.3),
    PoissonNoise(),
]


@pytest.mark.parametrize(("noise", "n_classes", "missing"), deal(WIDE_NOISES, [2, 5], [0.0, 0.3]))
def test_closed_forms_agree_with_draws(noise, n_classes, missing):
    X, y = wide(150, n_classes)
    model = DropoutSVC(missing="rescale").fit(X, y)
    rows = with_nan(X, missing)
    share = realised(model, rows, noise, 300)
    predicted = model.predict_stability(rows, noise, "normal")
    sampling = np.sqrt(0.25 / 300)
    assert np.abs(predicted - share).mean() < 0.04  # of which sampling is half
    assert abs((predicted - share).mean()) < 0.025
    assert (model.predict_stability(rows, noise, "guaranteed") <= share + 4.0 * sampling).all()
    assert np.mean(share < 0.95) > 0.05  # there is something to predict


# Errors -------------------------------------------------------------------------------------------------------------
