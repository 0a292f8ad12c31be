"""The most useful columns deleted first: `deletion_curve(strategy="worst")`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from datasets import make_binary, make_multiclass
from dropmargin import DropoutSVC, deletion_curve
from dropmargin.evaluation import trial, usefulness
from recorder import Recorder

# The worst case -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "estimator",
    [LinearSVC(), LogisticRegression(), SVC(), GaussianNB(), make_pipeline(StandardScaler(), LinearSVC())],
    ids=["svc", "logistic", "kernel", "bayes", "pipeline"],
)
@pytest.mark.parametrize("make", [make_binary, make_multiclass])
def test_the_worst_columns_hurt_more_than_random_ones(estimator, make):
    X, y = make(300)
    model = estimator.fit(X, y)
    worst = deletion_curve(model, X, y, strategy="worst", random_state=0)
    random = deletion_curve(model, X, y, strategy="columns", n_repeats=10, random_state=0)
    assert worst.scores.shape == (10, 1)
    assert worst.mean.mean() < random.mean.mean() - 0.02


@pytest.mark.parametrize("make", [make_binary, make_multiclass])
@pytest.mark.parametrize("fill", [0.0, 0.7, np.linspace(0.0, 1.0, 8)])
def test_the_short_way_for_linear_classifiers_ranks_as_the_long_one(make, fill):
    X, y = make()
    case = trial.make_trial(LinearSVC().fit(X, y), X, y, "accuracy", None, "test")
    rows = np.arange(len(y))
    assert usefulness._is_linear(case, rows)
    short = usefulness._linear_losses(case, rows, fill)
    assert_allclose(short, usefulness._losses_one_by_one(case, rows, fill, 0), atol=1e-12)
    if np.ndim(fill) == 0 and fill == 0.0:
        layout = trial.make_trial(case.estimator, sparse.csr_array(X), y, "accuracy", None, "test")
        assert_allclose(usefulness._linear_losses(layout, rows, fill), short, atol=1e-12)


@pytest.mark.parametrize(
    "estimator", [SVC(), SVC(kernel="linear"), DropoutSVC(multi_class="ovo"), GaussianNB(), make_pipeline(LinearSVC())]
)
def test_what_is_not_linear_is_not_taken_for_linear(estimator):
    X, y = make_multiclass()
    case = trial.make_trial(estimator.fit(X, y), X, y, "accuracy", None, "test")
    assert not usefulness._is_linear(case, np.arange(len(y)))


def test_a_classifier_with_predict_alone_has_a_worst_case_too():
    X, y = make_binary()

    class Sign(Recorder):
        def predict(self, X):
            return (X[:, 3] > 0.0).astype(int)

    y = (X[:, 3] > 0.0).astype(int)
    curve = deletion_curve(Sign().fit(X, y), X, y, levels=[0.0, 1 / 8], strategy="worst", random_state=0)
    assert curve.mean[0] == 1.0
    assert curve.mean[1] == np.mean(y == 0)


def test_the_worst_case_asks_at_most_a_thousand_rows_about_each_column(monkeypatch):
    monkeypatch.setattr(usefulness, "_MOST_ROWS", 50)
    X, y = make_multiclass(300)
    model = GaussianNB().fit(X, y)
    sizes = []
    original = usefulness._margins
    monkeypatch.setattr(usefulness, "_margins", lambda *parts: sizes.append(len(parts[1])) or original(*parts))
    deletion_curve(model, X, y, strategy="worst", random_state=0)
    assert set(sizes) == {50}


def test_labels_that_the_classifier_never_saw_are_simply_wrong():
    X, y = make_multiclass()
    for model in (LinearSVC(), GaussianNB()):
        model.fit(X[y < 2], y[y < 2])
        curve = deletion_curve(model, X, y, strategy="worst", random_state=0)
        assert curve.mean[0] == model.score(X, y)
