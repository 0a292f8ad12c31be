"""Noise as a step of a pipeline: corrupted in training, untouched at prediction unless asked for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from datasets import blankout, make_binary, make_sparse
from dealing import deal_checks, together
from dropmargin import DropoutNoise, GaussianNoise, LaplaceNoise, NoiseTransformer, PoissonNoise


@deal_checks(
    [NoiseTransformer()],
    [
        NoiseTransformer(None),
        NoiseTransformer(0.5, when="always", random_state=0),
        NoiseTransformer(LaplaceNoise(scale=0.5)),
        NoiseTransformer(GaussianNoise(scale=0.5), when="always"),
    ],
    stride=12,
)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "noise", [0.4, blankout(np.linspace(0, 0.9, 8)), GaussianNoise(0.3), LaplaceNoise(0.2), PoissonNoise()]
)
def test_training_rows_are_a_sample_of_the_noise(noise):
    X, _ = make_binary()
    step = NoiseTransformer(noise, random_state=3)
    expected = (blankout(noise) if isinstance(noise, float) else noise).sample(X, 3)
    assert_array_equal(step.fit_transform(X), expected)
    assert (expected != X).any()


def test_rows_to_predict_are_left_alone_by_default():
    X, _ = make_binary()
    step = NoiseTransformer(0.5, random_state=0).fit(X)
    assert_array_equal(step.transform(X), X)
    assert_array_equal(NoiseTransformer(None).fit_transform(X), X)


def test_rows_to_predict_are_corrupted_if_asked_for():
    X, _ = make_binary()
    step = NoiseTransformer(0.5, when="always", random_state=0).fit(X)
    assert_array_equal(step.transform(X), blankout(0.5).sample(X, 0))


def test_a_pipeline_trains_on_corrupted_rows_and_predicts_from_intact_ones():
    X, y = make_binary()
    model = make_pipeline(NoiseTransformer(0.5, random_state=1), LogisticRegression()).fit(X, y)
    direct = LogisticRegression().fit(blankout(0.5).sample(X, 1), y)
    assert_array_equal(model[-1].coef_, direct.coef_)
    assert_array_equal(model.predict_proba(X), direct.predict_proba(X))


def test_a_number_repeats_itself_and_a_random_state_goes_on():
    X, _ = make_binary()
    fixed = NoiseTransformer(0.5, random_state=1)
    assert_array_equal(fixed.fit_transform(X), fixed.fit_transform(X))
    moving = NoiseTransformer(0.5, random_state=np.random.RandomState(1))
    assert (moving.fit_transform(X) != moving.fit_transform(X)).any()


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_in_sparse_out(container):
    X, _ = make_sparse(50, 20, 0.2)
    given = container(X)
    out = NoiseTransformer(0.5, random_state=0).fit_transform(given)
    assert isinstance(out, container)
    assert set(np.unique(out.data / given.data)) == {0.0, 2.0}
    assert_array_equal(given.toarray(), X.toarray())
    with pytest.raises(ValueError, match=r"GaussianNoise.*dense"):
        NoiseTransformer(GaussianNoise()).fit_transform(given)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept(dtype):
    X = make_binary()[0].astype(dtype)
    step = NoiseTransformer(GaussianNoise(0.1), when="always")
    assert step.fit_transform(X).dtype == step.transform(X).dtype == dtype


@pytest.mark.parametrize("method", ["transform", "fit_transform"])
def test_names_of_columns_go_through(method):
    frame = pd.DataFrame(make_binary()[0], columns=list("abcdefgh"), index=np.arange(60) + 5)
    step = NoiseTransformer(0.5, random_state=0).set_output(transform="pandas").fit(frame)
    out = getattr(step, method)(frame)
    assert list(out.columns) == list(step.get_feature_names_out()) == list("abcdefgh")
    assert_array_equal(out.index, frame.index)


def test_the_noise_can_be_searched_for_and_cloned():
    X, y = make_binary(200)
    model = make_pipeline(NoiseTransformer(blankout(0.1), random_state=0), KNeighborsClassifier())
    search = GridSearchCV(model, {"noisetransformer__noise__rate": [0.1, 0.5]}, cv=2).fit(X, y)
    assert search.best_params_["noisetransformer__noise__rate"] in (0.1, 0.5)
    assert clone(model)[0].noise is not model[0].noise


@together(
    ("settings", "message"),
    [
        ({"noise": 1.0}, r"rate .*\[0, 1\), got 1.0"),
        ({"noise": "dropout"}, "noise .*'dropout'"),
        ({"noise": DropoutNoise(rate=[0.1, 0.2])}, r"rate .*\(2,\)"),
        ({"noise": PoissonNoise()}, "Poisson.*X >= 0"),
        ({"when": "predict"}, r"when .*'fit', 'always'.*'predict'"),
        ({"when": None}, "when .*None"),
        ({"random_state": "seed"}, "seed"),
    ],
)
def test_bad_settings_are_refused_by_name(settings, message):
    X = make_binary()[0] - 1.0
    with pytest.raises(ValueError, match=message):
        NoiseTransformer(**settings).fit_transform(X)


def test_bad_rows_are_refused():
    X, _ = make_binary()
    with pytest.raises(NotFittedError):
        NoiseTransformer().transform(X)
    step = NoiseTransformer().fit(X)
    with pytest.raises(ValueError, match=r"7 features.*expecting 8"):
        step.transform(X[:, :7])
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        step.fit_transform(X)
