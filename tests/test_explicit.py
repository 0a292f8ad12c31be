"""ExplicitCorruption: the limit of many copies, weights, delegation, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from datasets import blankout, make_binary, make_multiclass
from dealing import deal_checks, round_robin, together
from dropmargin import DropoutNoise, DropoutSVC, GaussianNoise, MCFClassifier, PoissonNoise
from dropmargin.baselines import ExplicitCorruption

_RANDOM = "a row twice is corrupted twice, a row of weight 2 once: equal on average only"


def _expected_failures(estimator):
    exact = estimator.noise is None
    names = ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data")
    return {} if exact else dict.fromkeys(names, _RANDOM)


@deal_checks(
    [ExplicitCorruption(LogisticRegression(), noise=None)],  # without expected failures
    [
        ExplicitCorruption(LinearSVC()),
        ExplicitCorruption(LogisticRegression()),
        ExplicitCorruption(GaussianNB(), noise=None),
        ExplicitCorruption(SGDClassifier(random_state=0)),
    ],
    stride=12,
    failing=_expected_failures,
)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# The limit of many copies --------------------------------------------------------------------------------------------


def test_many_copies_tend_to_the_expected_loss():
    """For the quadratic loss, whose expectation is exact, the difference falls as ``1 / sqrt(n_copies)``."""
    X, y = make_binary()
    limit = MCFClassifier("quadratic", noise=blankout(0.3), C=0.5, tol=1e-12).fit(X, y)
    distances = []
    for n_copies in (10, 1000):
        model = ExplicitCorruption(RidgeClassifier(alpha=1.0), noise=0.3, n_copies=n_copies, random_state=0).fit(X, y)
        distances.append(np.linalg.norm(model.estimator_.coef_ - limit.coef_) / np.linalg.norm(limit.coef_))
    assert distances[1] < 0.02
    assert distances[1] < 0.3 * distances[0]


def test_estimators_of_this_library():
    X, y = make_binary()
    noisy = ExplicitCorruption(MCFClassifier(noise=None, tol=1e-10), noise=0.3, n_copies=300, random_state=0).fit(X, y)
    limit = MCFClassifier(noise=blankout(0.3), tol=1e-10).fit(X, y)
    assert_allclose(noisy.estimator_.coef_, limit.coef_, atol=0.05 * np.abs(limit.coef_).max())


@pytest.mark.parametrize(
    ("noise", "inner"),
    round_robin(
        [0.0, None, GaussianNoise(scale=0.0)],
        [LogisticRegression(tol=1e-10, max_iter=1000), DropoutSVC(noise=0.2, tol=1e-10)],
    ),
)
def test_copies_without_noise_equal_the_plain_fit(noise, inner):
    X, y = make_multiclass()
    model = ExplicitCorruption(inner, noise=noise, n_copies=3).fit(X, y)
    assert_allclose(model.decision_function(X), clone(inner).fit(X, y).decision_function(X), atol=1e-4)


# Data of the classifier ----------------------------------------------------------------------------------------------


class Recorder(ClassifierMixin, BaseEstimator):
    """A classifier that stores its training data."""

    def fit(self, X, y, sample_weight=None):
        self.X_, self.y_, self.weights_, self.classes_ = X, y, sample_weight, np.unique(y)
        return self


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csr_matrix])
def test_copies_are_stacked_and_share_the_weight(kind):
    X, y = make_binary()
    weights = np.arange(len(y), dtype=float)  # the first row has weight 0
    given = ExplicitCorruption(Recorder(), noise=0.5, n_copies=4, random_state=0).fit(kind(X), y, weights).estimator_
    assert sparse.issparse(given.X_) == (kind is not np.asarray)
    copies = (given.X_.toarray() if sparse.issparse(given.X_) else given.X_).reshape(4, -1, X.shape[1])
    assert copies.shape == (4, len(y) - 1, X.shape[1])
    assert np.all((copies == 0.0) | np.isclose(copies, 2.0 * X[1:]))
    assert np.ptp(copies, axis=0).max() > 0.0  # copies differ
    assert_allclose(given.weights_.reshape(4, -1), np.tile(weights[1:] / 4.0, (4, 1)))
    assert_array_equal(given.y_, np.tile(y[1:], 4))


def test_classifiers_without_sample_weight_get_none():
    X, y = make_binary()
    model = ExplicitCorruption(KNeighborsClassifier(1), noise=None, n_copies=2).fit(X, y)
    assert model.score(X, y) == 1.0
    with pytest.raises(ValueError, match="KNeighborsClassifier"):
        model.fit(X, y, np.ones(len(y)))


def test_random_state():
    X, y = make_binary()
    model = ExplicitCorruption(LogisticRegression(), noise=0.5, n_copies=2)
    first, again, other = (clone(model).set_params(random_state=s).fit(X, y).decision_function(X) for s in (0, 0, 1))
    assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


# The scikit-learn API ------------------------------------------------------------------------------------------------


def test_methods_are_those_of_the_classifier():
    X, y = make_binary()
    svm = ExplicitCorruption(LinearSVC(), random_state=0)
    assert not hasattr(svm, "predict_proba")
    assert hasattr(svm, "decision_function")
    bayes = ExplicitCorruption(GaussianNB(), random_state=0).fit(X, y)
    assert not hasattr(bayes, "decision_function")
    assert_array_equal(bayes.predict_proba(X), bayes.estimator_.predict_proba(X))
    assert_allclose(bayes.predict_log_proba(X), np.log(bayes.predict_proba(X)))
    assert_array_equal(bayes.classes_, [0, 1])


def test_nested_parameters_can_be_searched():
    X, y = make_binary()
    model = ExplicitCorruption(LogisticRegression(), noise=DropoutNoise(0.1), n_copies=2, random_state=0)
    grid = {"estimator__C": [0.1, 1.0], "noise__rate": [0.1, 0.5]}
    best = GridSearchCV(model, grid, cv=2).fit(X, y).best_estimator_
    assert best.estimator_.C == best.estimator.C
    assert model.estimator.C == 1.0  # the search fits clones


def test_feature_names_are_stored():
    pandas = pytest.importorskip("pandas")
    X, y = make_binary()
    frame = pandas.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    model = ExplicitCorruption(LogisticRegression(), random_state=0).fit(frame, y)
    assert_array_equal(model.feature_names_in_, frame.columns)
    model.predict(frame)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"f0": "g0"}))


@together(
    ("params", "message"),
    [
        ({"estimator": LinearRegression()}, "estimator .*LinearRegression"),
        ({"n_copies": 0}, "n_copies .*got 0"),
        ({"n_copies": 2.5}, "n_copies .*got 2.5"),
        ({"noise": 1.0}, r"rate .*\[0, 1\), got 1.0"),
        ({"noise": "dropout"}, "noise .*'dropout'"),
        ({"noise": DropoutNoise(rate=[0.1, 0.2])}, r"rate .*\(2,\)"),
    ],
)
def test_errors_name_the_parameter(params, message):
    X, y = make_binary()
    model = ExplicitCorruption(LogisticRegression()).set_params(**params)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "estimator_")


def test_noise_that_does_not_fit_the_data_is_refused():
    X, y = make_binary()
    with pytest.raises(ValueError, match=r"Poisson.*X >= 0"):
        ExplicitCorruption(LogisticRegression(), noise=PoissonNoise()).fit(X - 1.0, y)
    with pytest.raises(ValueError, match=r"GaussianNoise.*dense"):
        ExplicitCorruption(LogisticRegression(), noise=GaussianNoise(0.1)).fit(sparse.csr_array(X), y)
