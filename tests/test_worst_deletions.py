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
from dealing import deal, round_robin
from dropmargin import DropoutRidge, DropoutSVC, deletion_curve
from dropmargin.evaluation import usefulness
from dropmargin.evaluation.scoring import make_case
from dropmargin.evaluation.usefulness import _is_linear as is_linear
from recorder import Recorder


@pytest.mark.parametrize(
    ("estimator", "make"),
    round_robin(
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


@pytest.mark.parametrize(
    ("fill", "make", "model"),
    deal([0.0, 0.7, np.linspace(0.0, 1.0, 8)], [make_binary, make_multiclass], [LinearSVC(), DropoutRidge()], n=6),
)
def test_linear_models_are_ranked_as_any_other(make, fill, model, monkeypatch):
    X, y = make()
    case = make_case(model.fit(X, y), X, y, "auto", None, "test")
    short = usefulness.column_losses(case, fill, 0, 0)
    if np.ndim(fill) == 0 and fill == 0.0:
        layout = make_case(model, sparse.csr_array(X), y, "auto", None, "test")
        assert_allclose(usefulness.column_losses(layout, fill, 0, 0), short, atol=1e-12)
    recognised = []
    monkeypatch.setattr(usefulness, "_is_linear", lambda *args: recognised.append(is_linear(*args)))
    assert_allclose(usefulness.column_losses(case, fill, 0, 0), short, atol=1e-12)
    assert recognised == [True]


@pytest.mark.parametrize(
    "estimator", [SVC(), SVC(kernel="linear"), DropoutSVC(multi_class="ovo"), GaussianNB(), make_pipeline(LinearSVC())]
)
def test_nonlinear_classifiers_are_recognised(estimator):
    X, y = make_multiclass()
    model = estimator.fit(X, y)
    responses = getattr(model, "decision_function", getattr(model, "predict_proba", None))(X)
    assert not is_linear(model, X, responses)


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
    assert [len(rows) for rows in recorder.seen_] == [1000] * 4 + [1200]  # all columns, without each, and the score


def test_unknown_labels_are_errors():
    X, y = make_multiclass()
    for model in (LinearSVC(), GaussianNB()):
        model.fit(X[y < 2], y[y < 2])
        curve = deletion_curve(model, X, y, strategy="worst", random_state=0)
        assert curve.mean[0] == model.score(X, y)
