"""The classifiers that choose noise and ``C`` inside scikit-learn: pipelines, searches, wrappers, copies, checks."""

from __future__ import annotations

import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from datasets import N_FEATURES, assert_bitwise_equal, make_binary, make_multiclass, make_sparse
from dealing import deal_checks, round_robin
from dropmargin import (
    DropoutLogisticRegression,
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutRidgeCV,
    DropoutSVC,
    DropoutSVCCV,
    DropoutSVRCV,
    GaussianNoise,
    NoisyLinearClassifierCV,
    PoissonNoise,
)

_SMALL = {"noises": [0.1, 0.5], "Cs": [0.1, 1.0], "cv": 3}
_SEARCHES = [DropoutSVCCV(**_SMALL), DropoutLogisticRegressionCV(**_SMALL), NoisyLinearClassifierCV(**_SMALL)]
every_search = pytest.mark.parametrize("search", _SEARCHES, ids=lambda model: type(model).__name__)


@every_search
def test_in_a_pipeline(search):
    X, y = make_sparse(120, 40, 0.3)
    pipeline = make_pipeline(TfidfTransformer(), clone(search)).fit(X, y)
    rows = TfidfTransformer().fit_transform(X)
    alone = clone(search).fit(rows, y)
    assert_bitwise_equal(pipeline[-1], alone)
    np.testing.assert_array_equal(pipeline.predict(X), alone.predict(rows))
    dense = make_pipeline(StandardScaler(), clone(search))
    scores = cross_val_score(dense, *make_binary(), cv=3)
    assert scores.mean() > 0.7


def test_searches_over_the_parameters_of_a_search():
    X, y = make_binary()
    grid = {"noises": [[0.1, 0.5], [GaussianNoise(0.2), PoissonNoise()]], "rule": ["best", "one-se"]}
    outer = GridSearchCV(DropoutSVCCV(Cs=[0.1, 1.0], cv=3), grid, cv=2).fit(X, y)
    assert np.isfinite(outer.cv_results_["mean_test_score"]).all()
    assert outer.best_estimator_.noise_ is not None
    pipeline = make_pipeline(StandardScaler(), DropoutSVCCV(**_SMALL))
    outer = GridSearchCV(pipeline, {"dropoutsvccv__class_weight": [None, "balanced"]}, cv=2).fit(X, y)
    assert outer.best_score_ > 0.7


def test_a_search_over_the_rate_finds_what_the_search_over_noises_finds():
    X, y = make_binary()
    rates, Cs = [0.1, 0.4, 0.7], [0.1, 1.0]
    inner = DropoutSVCCV(noises=rates, Cs=Cs, cv=3, tol=1e-10, prune=False).fit(X, y)
    plain = GridSearchCV(DropoutSVC(noise=DropoutNoise(), tol=1e-10), {"noise__rate": rates, "C": Cs}, cv=3).fit(X, y)
    means = plain.cv_results_["mean_test_score"].reshape(len(Cs), len(rates)).T
    np.testing.assert_allclose(inner.scores_.mean(axis=0), means, rtol=1e-12)


@pytest.mark.parametrize("model", [DropoutSVC(noise=0.3), DropoutLogisticRegressionCV(**_SMALL)], ids=str)
def test_wrappers_of_scikit_learn(model):
    X, y = make_binary()
    y[:10] = 1
    tuned = TunedThresholdClassifierCV(model, cv=3).fit(X, y)
    assert tuned.score(X, y) > 0.6
    calibrated = CalibratedClassifierCV(model, cv=3).fit(X, y)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1.0)
    assert calibrated.score(X, y) > 0.6
    X, y = make_multiclass()
    together = OneVsRestClassifier(model).fit(X, y)
    assert together.score(X, y) > 0.6
    assert cross_val_predict(model, X, y, cv=3, method="decision_function").shape == (90, 3)


# Copies -------------------------------------------------------------------------------------------------------------


@every_search
def test_clones(search):
    X, y = make_binary()
    model = clone(search).set_params(noises=[0.3, GaussianNoise(scale=np.linspace(0.0, 1.0, N_FEATURES))]).fit(X, y)
    copy = clone(model)
    assert not hasattr(copy, "coef_")
    assert copy.noises is not model.noises
    assert repr(copy.get_params()) == repr(model.get_params())
    assert_bitwise_equal(copy.fit(X, y), model)


def _by_pickle(model, path):
    return pickle.loads(pickle.dumps(model))


def _by_joblib(model, path):
    joblib.dump(model, path / "model.joblib")
    return joblib.load(path / "model.joblib")


@pytest.mark.parametrize(("search", "copy"), round_robin(_SEARCHES, [_by_pickle, _by_joblib]))
def test_pickle_and_joblib_keep_the_model(search, copy, tmp_path):
    X, y = make_multiclass()
    labels = np.array(["a", "b", "c"])[y]
    model = clone(search).set_params(n_jobs=2, scoring="f1_macro").fit(X, labels)
    again = copy(model, tmp_path)
    assert vars(again).keys() == vars(model).keys()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.scores_, model.scores_)
    assert repr(again) == repr(model)
    assert_bitwise_equal(again.fit(X, labels), model)
    assert copy(clone(search), tmp_path).get_params().keys() == search.get_params().keys()


def test_parameters_and_their_names():
    assert repr(DropoutSVCCV()) == "DropoutSVCCV()"
    assert (
        repr(DropoutLogisticRegressionCV(noises=[0, 0.5], cv=3)) == "DropoutLogisticRegressionCV(cv=3, noises=[0, 0.5])"
    )
    assert repr(NoisyLinearClassifierCV("quadratic")) == "NoisyLinearClassifierCV(loss='quadratic')"
    model = DropoutSVCCV().set_params(noises=3, Cs=4, cv=2)
    assert (model.get_params()["noises"], model.get_params()["Cs"]) == (3, 4)
    assert model.fit(*make_binary()).scores_.shape == (2, 3, 4)
    with pytest.raises(ValueError, match="Invalid parameter 'noise'"):
        model.set_params(noise=0.5)
    own = {"noises", "Cs", "cv", "scoring", "target_noise", "rule", "prune", "store_coefs"}
    for plain, search in [(DropoutSVC, DropoutSVCCV), (DropoutLogisticRegression, DropoutLogisticRegressionCV)]:
        assert set(search().get_params()) - own == set(plain().get_params()) - {"noise", "C", "warm_start"}


@pytest.mark.parametrize(
    ("search", "method"), round_robin(_SEARCHES, ["predict", "decision_function", "predict_stability"])
)
def test_an_estimator_that_is_not_fitted_says_so(search, method):
    with pytest.raises(NotFittedError, match=type(search).__name__):
        getattr(clone(search), method)(make_binary()[0])


# scikit-learn's own checks ------------------------------------------------------------------------------------------


# some checks compare seven digits of two fits: without stored coefficients, both start from zero
_CHECKED = {"noises": [0.1, 0.3], "Cs": [1], "cv": 2, "store_coefs": False}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@deal_checks(
    [DropoutLogisticRegressionCV(**_CHECKED)],
    [
        DropoutSVCCV(**_CHECKED),
        NoisyLinearClassifierCV("quadratic", **_CHECKED),
        DropoutRidgeCV(**_CHECKED),
        DropoutSVRCV(**_CHECKED),
    ],
    stride=10,
    keep_slow=True,
    slow=("check_estimator_sparse_matrix",),  # what a search does with rows is the same as for arrays
)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    if check.func.__name__.startswith("check_estimator_sparse"):
        # dozens of fits to random labels, of which any will do
        estimator = clone(estimator).set_params(tol=0.1, max_iter=3, noises=[0.1])
    check(estimator)
