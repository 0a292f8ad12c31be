"""One softmax over all classes, ``multi_class="multinomial"``: optima, derivatives, probabilities, and refusals.

The objective is written out here from its formula, with NumPy alone, and minimised by `scipy.optimize`.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from datasets import make_binary, make_multiclass, relative_difference
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutSVC,
    MCFClassifier,
    NoisyLinearClassifier,
    streaming,
)
from dropmargin.model_selection import partitions
from dropmargin.streaming import cache
from helpers import N_FEATURES, NOISES, as_format, plain_score_log_mgf, plain_score_variance

C = 0.7
_X, _y = make_multiclass(n_samples=80, n_features=N_FEATURES, n_classes=4)
_weights = np.random.default_rng(0).uniform(0.5, 2.0, len(_y))


def model(**params):
    return DropoutLogisticRegression(**({"multi_class": "multinomial", "C": C, "tol": 1e-11} | params))


def mcf(**params):
    return MCFClassifier(loss="logistic", **({"multi_class": "multinomial", "C": C, "tol": 1e-11} | params))


MODELS = {"logistic": model, "mcf-logistic": mcf}


def plain_exponents(loss, noise, rows, d):
    """Return ``e`` of rows for the differences ``d`` of the coefficients, without intercepts."""
    if noise is None:
        return rows @ d
    if loss == "logistic":
        return rows @ d + 0.5 * plain_score_variance(noise, rows, d)
    return np.stack([plain_score_log_mgf(noise, rows, own) for own in d.T], axis=1)


def plain_value(noise, W, b, l1_ratio=0.0, loss="logistic"):
    """Return the objective; it holds for complex numbers, too."""
    total = 0.5 * (1.0 - l1_ratio) * (W**2).sum()
    for label in range(len(b)):
        rows, d = _X[_y == label], W - W[:, [label]]
        e = plain_exponents(loss, noise, rows, d) + b - b[label]
        highest = e.real.max(axis=1)
        total += C * _weights[_y == label] @ (highest + np.log(np.exp(e - highest[:, None]).sum(axis=1)))
    return total


def assert_optimal(fitted, noise, fit_intercept=True, loss="logistic"):
    """Check that a model states the objective at its coefficients, and that no others have a lower one.

    The derivatives are those of complex steps. The penalty makes the objective strongly convex in the coefficients: the
    distance to those of the optimum is at most the norm of the gradient, once the intercepts have none.
    """
    W, b = fitted.coef_.T, fitted.intercept_
    assert fitted.converged_
    assert fitted.objective_ == pytest.approx(plain_value(noise, W, b, loss=loss), rel=1e-10)
    by_coef = [plain_value(noise, W + step.reshape(W.shape), b, loss=loss).imag for step in 1e-30j * np.eye(W.size)]
    assert np.linalg.norm(by_coef) / 1e-30 < 1e-5 * np.linalg.norm(W)
    if fit_intercept:
        by_intercept = [plain_value(noise, W, b + step, loss=loss).imag for step in 1e-30j * np.eye(b.size)]
        assert np.linalg.norm(by_intercept) / 1e-30 < 1e-5 * np.linalg.norm(W)
        assert abs(b.sum()) < 1e-9  # only their differences matter
    else:
        assert not b.any()


def assert_reaches(fitted, exact):
    assert fitted.converged_
    assert fitted.objective_ == pytest.approx(exact.objective_, rel=1e-8)
    assert relative_difference(fitted, exact) < 1e-5


# Optima -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "name"), deal(MODELS, [name for name in NOISES if name != "laplace per feature"]))
def test_no_coefficients_have_a_lower_objective(loss, name):
    fitted = MODELS[loss](noise=NOISES[name]).fit(_X, _y, sample_weight=_weights)
    exact = MODELS[loss](noise=NOISES[name], tol=1e-14).fit(as_format(_X, "sparse"), _y, sample_weight=_weights)
    assert_optimal(exact, NOISES[name], loss=loss)
    assert_reaches(fitted, exact)


def test_optimum_of_dropout_towards_the_mean_and_without_intercept():
    mean = np.average(_X, axis=0, weights=_weights)
    for fit_intercept, given, noise in [
        (True, 0.3, DropoutNoise(0.3, reference=mean)),
        (False, NOISES["dropout"], NOISES["dropout"]),
    ]:
        fitted, exact = (
            model(noise=given, fit_intercept=fit_intercept, tol=tol).fit(_X, _y, sample_weight=_weights)
            for tol in (1e-11, 1e-14)
        )
        assert_optimal(exact, noise, fit_intercept)
        assert_reaches(fitted, exact)


@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
def test_optimum_under_an_l1_penalty(l1_ratio):
    n, noise = 4 * N_FEATURES, NOISES["dropout"]

    def value(theta):  # positive and negative parts of the coefficients, then the intercepts
        W = (theta[:n] - theta[n : 2 * n]).reshape(-1, 4)
        return plain_value(noise, W, theta[2 * n :], l1_ratio) + l1_ratio * theta[: 2 * n].sum()

    fitted = model(noise=noise, l1_ratio=l1_ratio, tol=1e-8).fit(_X, _y, sample_weight=_weights)
    start = np.concatenate([np.maximum(fitted.coef_.T, 0).ravel(), np.maximum(-fitted.coef_.T, 0).ravel()])
    start = np.concatenate([start + 0.01, fitted.intercept_])
    bounds = [(0.0, None)] * (2 * n) + [(None, None)] * 4
    least = minimize(value, start, method="L-BFGS-B", bounds=bounds, options={"maxfun": 10**5, "ftol": 1e-12}).fun
    assert fitted.converged_
    assert fitted.objective_ <= least * (1.0 + 1e-6)
    assert (fitted.coef_ == 0.0).any()


@pytest.mark.parametrize(("make", "solver"), deal([model, mcf], ["newton", "lbfgs"]))
def test_without_noise_it_is_the_logistic_regression_of_scikit_learn(make, solver):
    ours = make(noise=None, solver=solver, tol=1e-13).fit(_X, _y, sample_weight=_weights)
    theirs = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(_X, _y, sample_weight=_weights)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    assert_allclose(ours.predict_proba(_X), theirs.predict_proba(_X), atol=1e-6)


# Probabilities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["error", "rescale", "conditional"])
def test_probabilities_are_a_softmax(missing):
    fitted = model(missing=missing, tol=1e-4).fit(_X, _y)
    assert_allclose(fitted.predict_proba(_X), softmax(fitted.decision_function(_X), axis=1), rtol=1e-10)
    if missing == "error":
        return
    X = np.where(np.random.default_rng(5).random(_X.shape) < 0.4, np.nan, _X)
    probabilities = fitted.predict_proba(X)
    assert_allclose(probabilities.sum(axis=1), 1.0)
    if missing == "conditional":  # what is unknown makes them less certain
        assert probabilities.max(axis=1).mean() < softmax(fitted.decision_function(X), axis=1).max(axis=1).mean()


# Searches, files, exports, command line -----------------------------------------------------------------------------


# Refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [DropoutSVC(), MCFClassifier("exponential"), NoisyLinearClassifier("quadratic"), model(approximation="gaussian")],
    ids=lambda estimator: type(estimator).__name__,
)
def test_other_losses_are_refused(estimator):
    estimator = clone(estimator).set_params(multi_class="multinomial")
    with pytest.raises(ValueError, match="multi_class='multinomial' is for the logistic loss"):
        estimator.fit(_X, _y)
    assert not hasattr(estimator, "coef_")


def test_streams_of_batches_and_irls_are_refused():
    with pytest.raises(AttributeError, match=r"no partial_fit with .*Set multi_class='ovr' or 'ovo', or use fit"):
        model().partial_fit(_X, _y, classes=np.unique(_y))
    with pytest.raises(ValueError, match="solver='irls' needs a quadratic majoriser"):
        model(solver="irls").fit(_X, _y)


# Searches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["memory", "blocks"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_search_scores_every_point_as_a_fit_does(n_classes, place, monkeypatch):
    monkeypatch.setattr(partitions, "_GATHERED_BYTES", 0)
    monkeypatch.setattr(cache, "BLOCK_BYTES", 1500)
    X, y = make_multiclass(n_classes=n_classes) if n_classes > 2 else make_binary()
    noises, Cs = [0.1, 0.5], [0.1, 1.0]
    given = {"multi_class": "multinomial", "cv": 2, "scoring": "neg_log_loss", "tol": 1e-9, "prune": False}
    search = DropoutLogisticRegressionCV(noises=noises, Cs=Cs, verbose=0, **given)
    search = search.fit(X, y) if place == "memory" else streaming.fit(search, X, y, progress=False)
    for fold, (train, test) in enumerate(StratifiedKFold(2).split(X, y)):
        for i, k in np.ndindex(2, 2):
            alone = model(noise=noises[i], C=Cs[k]).fit(X[train], y[train])
            loss = log_loss(y[test], alone.predict_proba(X[test]))
            assert search.scores_[fold, i, k] == pytest.approx(-loss, rel=1e-4)
    assert search.predict_proba(X).shape == (len(X), n_classes)
