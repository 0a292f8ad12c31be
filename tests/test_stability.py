"""How sure a prediction is: closed forms against plain formulas, all patterns, draws, and integrals done by others."""

from __future__ import annotations

import inspect
from itertools import product

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import multivariate_normal, norm

from datasets import N_FEATURES, blankout, make_binary, make_multiclass
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


# Against draws ------------------------------------------------------------------------------------------------------


PER_FEATURE = np.linspace(0.0, 0.9, N_FEATURES)
MOST_ERROR = 5.0 * 0.5  # five standard errors of one draw


def by_all_patterns(model, rows, rate, reference=0.0):
    """Return the total probability of the patterns that leave each label as it is; NaN stays NaN."""
    rate = np.broadcast_to(rate, rows.shape[1])
    kept = np.array(list(product([0.0, 1.0], repeat=rows.shape[1])))
    probability = np.prod(np.where(kept == 1.0, 1.0 - rate, rate), axis=1)
    out = []
    for row in rows:
        corrupted = reference + (row - reference) * kept / (1 - rate)
        out.append(probability @ (model.predict(corrupted) == model.predict([row])[0]))
    return np.array(out)


def many_features(n_features=20, n_samples=40, n_classes=3):
    X, y = make_multiclass(n_samples, n_features, n_classes)
    return DropoutSVC(noise=0.1).fit(X, y), X


# Few features: exact ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "make", "options"),
    deal(
        [0.1, 0.5, 0.95, PER_FEATURE],
        [make_binary, make_multiclass],
        [{}, {"fit_intercept": False}, {"multi_class": "ovo"}],
    ),
)
def test_few_features_are_exact(rate, make, options):
    X, y = make()
    model = DropoutSVC(noise=0.2, **options).fit(X, y)
    exact = by_all_patterns(model, X[:15], rate)
    np.testing.assert_allclose(model.predict_stability(X[:15], blankout(rate)), exact, rtol=0, atol=1e-12)
    assert np.ptp(exact) > 0.1  # there is something to find


# Many features: draws -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.3, 0.9])
def test_draws_are_within_their_standard_error(rate):
    model, X = many_features(14)
    exact = model.predict_stability(X, blankout(rate), n_draws=2**12)  # 2^14 patterns are enumerated
    np.testing.assert_allclose(exact[:3], by_all_patterns(model, X[:3], rate), rtol=0, atol=1e-12)
    drawn = model.predict_stability(X, blankout(rate), n_draws=256)
    assert 0.0 < np.abs(drawn - exact).max() < MOST_ERROR / np.sqrt(256)
