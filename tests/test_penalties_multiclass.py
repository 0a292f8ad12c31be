"""Penalties, and several classes against separate binary fits or one softmax."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from datasets import (
    N_FEATURES,
    TIGHT,
    estimators,
    make_binary,
    make_multiclass,
    noises,
    parameters,
    relative_difference,
)
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutSVC,
    MCFClassifier,
    NoisyLinearClassifier,
    streaming,
)
from dropmargin.model_selection import partitions
from dropmargin.penalties import Penalty
from dropmargin.streaming import cache

_ESTIMATORS = estimators(tol=TIGHT, C=0.5)
_NOISES = noises()
_FORMATS = {"dense": np.asarray, "sparse": sparse.csr_array}


def _fit(estimator, X, y, sample_weight=None, **params):
    estimator = _ESTIMATORS[estimator] if isinstance(estimator, str) else estimator
    return clone(estimator).set_params(**params).fit(X, y, sample_weight=sample_weight)


# One-vs-rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "noise", "layout"), deal(_ESTIMATORS, _NOISES, _FORMATS))
def test_one_vs_rest_is_one_binary_fit_per_class(name, noise, layout):
    X, y = make_multiclass(seed=15)  # where no class is best served by no weights at all
    X, noise = _FORMATS[layout](X), _NOISES[noise]
    together = _fit(name, X, y, noise=noise)
    alone = [_fit(name, X, y == k, noise=noise) for k in range(3)]
    # Without noise the smoothing of the hinge ends at widths that depend on the other classes.
    bar = 1e-6 if noise is None else 1e-10
    assert relative_difference(parameters(together), np.vstack([parameters(a) for a in alone])) <= bar
    assert together.objective_ == pytest.approx(sum(a.objective_ for a in alone), rel=1e-10)
    scores = np.column_stack([a.decision_function(X) for a in alone])
    np.testing.assert_allclose(together.decision_function(X), scores, rtol=1e-7, atol=10.0 * bar)
    np.testing.assert_array_equal(together.predict(X), scores.argmax(axis=1))


# One-vs-one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "noise", "layout"), deal(_ESTIMATORS, ["none", "gaussian", "dropout-per-feature"], _FORMATS)
)
def test_one_vs_one_is_one_binary_fit_per_pair(name, noise, layout):
    X, y = make_multiclass(n_classes=4, n_samples=100)
    weights = np.linspace(0.5, 1.5, len(y))
    noise = _NOISES[noise]
    together = _fit(name, _FORMATS[layout](X), y, weights, noise=noise, multi_class="ovo")
    pairs = list(combinations(range(4), 2))
    assert together.coef_.shape == (len(pairs), N_FEATURES)
    for row, (first, second) in zip(parameters(together), pairs, strict=True):
        rows = np.flatnonzero((y == first) | (y == second))
        alone = _fit(name, X[rows], y[rows], weights[rows], noise=noise)
        assert relative_difference(row[None, :], parameters(alone)) <= 1e-10


@pytest.mark.parametrize("name", ["svc", "logistic", "mcf-exponential"])
def test_one_vs_one_predicts_by_votes(name):
    X, y = make_multiclass(n_classes=4, n_samples=120)
    model = _fit(name, X, np.array(list("abcd"))[y], multi_class="ovo")
    pair_scores = X @ model.coef_.T + model.intercept_
    votes = np.zeros((len(X), 4))
    for column, (first, second) in enumerate(combinations(range(4), 2)):
        votes[:, second] += pair_scores[:, column] > 0.0
        votes[:, first] += pair_scores[:, column] <= 0.0
    predicted = np.searchsorted(model.classes_, model.predict(X))
    assert (votes[np.arange(len(X)), predicted] == votes.max(axis=1)).all()
    scores = model.decision_function(X)
    assert scores.shape == (len(X), 4)
    np.testing.assert_array_equal(scores.argmax(axis=1), predicted)
    np.testing.assert_array_equal(np.round(scores), votes)  # what breaks a tie is worth less than half a vote


@pytest.mark.parametrize("penalty", [Penalty(0.7, 0.4, width=0.3), Penalty(0.0, 2.0, width=1e-3), Penalty(0.7, 0.4)])
def test_derivatives_of_the_penalty_by_finite_differences(penalty):
    coef, step = np.random.default_rng(0).normal(size=(6, 1)), 1e-6
    for d in range(5):
        above, below = coef.copy(), coef.copy()
        above[d] += step
        below[d] -= step
        slope = (penalty.value(above) - penalty.value(below)) / (2.0 * step)
        bend = (penalty.at(above)[1] - penalty.at(below)[1])[d] / (2.0 * step)
        np.testing.assert_allclose(penalty.at(coef)[1][d], slope, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(np.broadcast_to(penalty.curvature(coef), (5, 1))[d], bend, rtol=1e-5, atol=1e-7)
    assert penalty.at(coef)[1][-1] == 0.0


C = 0.7
_X, _y = make_multiclass(n_samples=80, n_features=6, n_classes=4)
_weights = np.random.default_rng(0).uniform(0.5, 2.0, len(_y))


def model(**params):
    return DropoutLogisticRegression(**({"multi_class": "multinomial", "C": C, "tol": 1e-11} | params))


def mcf(**params):
    return MCFClassifier(loss="logistic", **({"multi_class": "multinomial", "C": C, "tol": 1e-11} | params))


# Optima -------------------------------------------------------------------------------------------------------------


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
    with pytest.raises(AttributeError) as raised:
        model().partial_fit(_X, _y, classes=np.unique(_y))
    assert "Set multi_class='ovr' or 'ovo', or use fit" in str(raised.value.__cause__)
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
