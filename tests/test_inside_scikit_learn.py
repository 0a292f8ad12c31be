"""Life inside scikit-learn: pipelines, searches, clones and pickles; and which attributes are there and which not."""

from __future__ import annotations

import pickle

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from datasets import (
    N_FEATURES,
    assert_bitwise_equal,
    estimators,
    make_binary,
    make_multiclass,
    make_sparse,
    noises,
)
from dealing import round_robin
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    GaussianNoise,
    MCFClassifier,
    NoisyLinearClassifier,
    PoissonNoise,
)

_ESTIMATORS = estimators()
every_loss = pytest.mark.parametrize("estimator", _ESTIMATORS.values(), ids=_ESTIMATORS.keys())


# Life inside scikit-learn -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_grid_search_over_noise_and_c_in_two_processes():
    X, y = make_multiclass()
    grid = {"noise": [None, 0.5, GaussianNoise(scale=0.3)], "C": [0.1, 1.0]}
    in_two, in_one = (GridSearchCV(DropoutSVC(), grid, cv=3, n_jobs=n_jobs).fit(X, y) for n_jobs in (2, None))
    assert np.isfinite(in_two.cv_results_["mean_test_score"]).all()
    np.testing.assert_array_equal(in_two.cv_results_["mean_test_score"], in_one.cv_results_["mean_test_score"])
    assert_bitwise_equal(in_two.best_estimator_, in_one.best_estimator_)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_grid_search_over_the_rate_of_a_noise_object():
    X, y = make_binary()
    search = GridSearchCV(DropoutSVC(noise=DropoutNoise()), {"noise__rate": [0.1, 0.5, 0.9]}, cv=3, n_jobs=2).fit(X, y)
    by_number = GridSearchCV(DropoutSVC(), {"noise": [0.1, 0.5, 0.9]}, cv=3).fit(X, y)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], by_number.cv_results_["mean_test_score"])
    assert search.best_estimator_.noise.rate == by_number.best_params_["noise"]


def test_parameters_of_the_noise_can_be_set_through_the_estimator():
    X, y = make_binary()
    model = DropoutSVC(noise=DropoutNoise(rate=0.1)).set_params(noise__rate=0.7, C=0.5)
    assert model.get_params()["noise__rate"] == 0.7
    assert_bitwise_equal(model.fit(X, y), DropoutSVC(noise=0.7, C=0.5).fit(X, y))
    with pytest.raises(ValueError, match="Invalid parameter 'scale'"):
        model.set_params(noise__scale=1.0)


@pytest.mark.parametrize(("name", "noise"), round_robin(_ESTIMATORS, noises()))
def test_clone_copies_the_parameters_and_not_the_fit(name, noise):
    X, y = make_binary()
    noise = noises()[noise]
    model = clone(_ESTIMATORS[name]).set_params(noise=noise).fit(X, y)
    copy = clone(model)
    assert not hasattr(copy, "coef_")
    assert repr(copy.get_params(deep=False)) == repr(model.get_params(deep=False))
    assert copy.noise is not model.noise or not hasattr(noise, "get_params")
    assert_bitwise_equal(copy.fit(X, y), model)


def test_a_fit_does_not_change_the_parameters():
    X, y = make_binary()
    noise = DropoutNoise(rate=[0.3] * N_FEATURES)
    model = DropoutSVC(noise=noise, class_weight={0: 2.0})
    before = repr(model.get_params())
    model.fit(X, y)
    assert model.noise is noise
    assert noise.rate == [0.3] * N_FEATURES
    assert repr(model.get_params()) == before


def _by_pickle(model, path):
    return pickle.loads(pickle.dumps(model))


def _by_joblib(model, path):
    joblib.dump(model, path / "model.joblib")
    return joblib.load(path / "model.joblib")


@pytest.mark.parametrize(
    ("name", "copy", "labels"), round_robin(_ESTIMATORS, [_by_pickle, _by_joblib], [[0, 1, 2], ["a", "b", "c"]])
)
def test_pickle_and_joblib_keep_the_model(name, copy, labels, tmp_path):
    X, y = make_multiclass()
    model = clone(_ESTIMATORS[name]).set_params(noise=GaussianNoise(scale=np.linspace(0.0, 1.0, N_FEATURES)), n_jobs=2)
    model.fit(X, np.array(labels)[y])
    again = copy(model, tmp_path)
    assert_bitwise_equal(again, model)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.history_ == model.history_
    assert_bitwise_equal(again.fit(X, np.array(labels)[y]), model)


def test_a_pipeline_from_text_to_labels():
    texts = ["good great fine", "bad poor awful", "great good", "awful bad bad", "fine great", "poor awful"] * 3
    labels = ["up", "down"] * 9
    for noise in (0.5, PoissonNoise()):
        pipeline = make_pipeline(CountVectorizer(), DropoutLogisticRegression(noise=noise)).fit(texts, labels)
        assert pipeline.score(texts, labels) == 1.0
        assert pipeline.predict(["great"])[0] == "up"
        np.testing.assert_allclose(pipeline.predict_proba(texts).sum(axis=1), 1.0)


def test_cross_validation_in_a_pipeline_of_sparse_data():
    X, y = make_sparse(200, 40, 0.3)
    pipeline = make_pipeline(MaxAbsScaler(), DropoutSVC(noise=0.3))
    scores = cross_val_score(pipeline, X, y, cv=4)
    assert scores.min() > 0.6


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_calibration_gives_the_hinge_its_probabilities(multi_class):
    X, y = make_multiclass(n_samples=120)
    model = CalibratedClassifierCV(DropoutSVC(multi_class=multi_class), cv=3).fit(X, y)
    probabilities = model.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.mean(model.predict(X) == y) > 0.5


# What is and is not there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "method"),
    round_robin(
        [DropoutSVC(), MCFClassifier("quadratic"), MCFClassifier("exponential"), NoisyLinearClassifier("hinge")],
        ["predict_proba", "predict_log_proba"],
    ),
    ids=str,
)
def test_scores_that_are_no_log_odds_have_no_probabilities_and_say_where_to_get_them(estimator, method):
    X, y = make_binary()
    for model in (estimator, clone(estimator).fit(X, y)):
        assert not hasattr(model, method)
        with pytest.raises(AttributeError) as caught:
            getattr(model, method)
        reasons = f"{caught.value} {caught.value.__cause__}"
        assert type(model).__name__ in reasons
        assert "CalibratedClassifierCV" in reasons


def test_one_vs_one_has_no_probabilities_and_says_where_to_get_them():
    with pytest.raises(AttributeError) as caught:
        DropoutLogisticRegression(multi_class="ovo").predict_proba  # noqa: B018
    assert "multi_class='ovr'" in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize(("name", "method"), round_robin(_ESTIMATORS, ["predict", "decision_function", "score"]))
def test_an_estimator_that_is_not_fitted_says_so(name, method):
    X, y = make_binary()
    estimator = _ESTIMATORS[name]
    arguments = (X, y) if method == "score" else (X,)
    with pytest.raises(NotFittedError, match=type(estimator).__name__):
        getattr(clone(estimator), method)(*arguments)


@pytest.mark.parametrize("name", ["logistic", "mcf-logistic"])
def test_probabilities_of_an_estimator_that_is_not_fitted_say_so(name):
    with pytest.raises(NotFittedError):
        clone(_ESTIMATORS[name]).predict_proba(make_binary()[0])


@every_loss
def test_prediction_refuses_another_number_of_features(estimator):
    X, y = make_binary()
    with pytest.raises(ValueError, match="8 features"):
        clone(estimator).fit(X, y).predict(X[:, :3])


@pytest.mark.parametrize(("name", "n_classes"), round_robin(_ESTIMATORS, [2, 3]))
def test_the_attributes_of_a_fit_are_all_there(name, n_classes):
    X, y = make_binary() if n_classes == 2 else make_multiclass()
    model = clone(_ESTIMATORS[name]).fit(X, y)
    n_columns = 1 if n_classes == 2 else n_classes
    assert model.coef_.shape == (n_columns, N_FEATURES)
    assert model.intercept_.shape == (n_columns,)
    assert model.n_features_in_ == N_FEATURES
    assert model.converged_ is True
    assert isinstance(model.n_iter_, int)
    assert model.n_iter_ >= 1
    assert model.n_passes_ > 0.0
    assert np.isfinite(model.objective_)
    assert [entry.iteration for entry in model.history_][:1] == [1]
    assert {"iteration", "objective", "gap", "passes"} <= set(model.history_[0]._fields)
    scores = model.decision_function(X)
    assert scores.shape == ((len(y),) if n_classes == 2 else (len(y), n_classes))


@every_loss
def test_without_an_intercept_there_is_none(estimator):
    X, y = make_binary()
    y[:10] = 1
    for fit_intercept in (False, True):
        model = clone(estimator).set_params(fit_intercept=fit_intercept).fit(X, y)
        assert np.all((model.intercept_ != 0.0) == fit_intercept)
