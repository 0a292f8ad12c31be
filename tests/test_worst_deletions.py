"""The most useful columns deleted first: `deletion_curve(strategy="worst")`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import root_mean_squared_error
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from datasets import make_binary, make_multiclass
from dealing import deal
from dropmargin import DropoutRidge, deletion_curve
from recorder import Recorder


@pytest.mark.parametrize(
    ("estimator", "make"),
    deal(
        [LinearSVC(), LogisticRegression(), SVC(), GaussianNB(), make_pipeline(StandardScaler(), LinearSVC())],
        [make_binary, make_multiclass],
    ),
)
def test_the_worst_columns_cost_more_than_random_ones(estimator, make):
    X, y = make(300)
    model = estimator.fit(X, y)
    worst = deletion_curve(model, X, y, strategy="worst", random_state=0)
    random = deletion_curve(model, X, y, strategy="columns", n_repeats=10, random_state=0)
    assert worst.scores.shape == (10, 1)
    assert worst.mean.mean() < random.mean.mean() - 0.02


def test_columns_are_ranked_by_the_score_without_each():
    X, y = make_multiclass(200)
    model = LinearSVC().fit(X, y)
    scores = []
    for column in range(X.shape[1]):
        rows = X.copy()
        rows[:, column] = 0.0
        scores.append(model.score(rows, y))
    rows = X.copy()
    rows[:, np.argsort(scores, kind="stable")[:3]] = 0.0
    for given in (X, sparse.csr_array(X)):
        curve = deletion_curve(model, given, y, levels=[3 / 8], strategy="worst", random_state=0)
        assert curve.mean[0] == model.score(rows, y)


def test_groups_are_ranked_as_a_whole():
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = X[:, 0] + X[:, 1] > 0.0  # two columns of little use by themselves to each other
    model = LinearSVC().fit(X, y)
    curve = deletion_curve(model, X, y, levels=[0.5], strategy="worst", groups=[1, 1, 0, 0], random_state=0)
    rows = X.copy()
    rows[:, :2] = 0.0
    assert curve.mean[0] == model.score(rows, y)


@pytest.mark.parametrize("model", [DropoutRidge(), KNeighborsRegressor()], ids=["linear", "neighbours"])
def test_the_worst_columns_of_a_regressor_are_those_it_needs(model):
    X = np.random.default_rng(0).normal(size=(200, 5))
    y = 3.0 * X[:, 1] + X[:, 4]
    worst = deletion_curve(model.fit(X, y), X, y, levels=[0.0, 0.2, 0.4], strategy="worst", random_state=0)
    assert worst.scoring == "neg_root_mean_squared_error"
    for n_deleted, needed in ((1, [1]), (2, [1, 4])):
        rows = X.copy()
        rows[:, needed] = 0.0
        assert_allclose(worst.mean[n_deleted], -root_mean_squared_error(y, model.predict(rows)))


def test_a_classifier_that_only_predicts():
    X, y = make_binary()

    class Sign(Recorder):
        def predict(self, X):
            return (X[:, 3] > 0.0).astype(int)

    y = (X[:, 3] > 0.0).astype(int)
    curve = deletion_curve(Sign().fit(X, y), X, y, levels=[0.0, 1 / 8], strategy="worst", random_state=0)
    assert curve.mean[0] == 1.0
    assert curve.mean[1] == np.mean(y == 0)


def test_columns_are_ranked_on_at_most_a_thousand_rows():
    X = np.random.default_rng(0).normal(size=(1200, 3))
    recorder = Recorder().fit(X, X[:, 0] > 0.0)
    deletion_curve(recorder, X, X[:, 0] > 0.0, levels=[0.5], strategy="worst", random_state=0)
    assert [len(rows) for rows in recorder.seen_] == [1000] * 3 + [1200]  # without each column, and the score
