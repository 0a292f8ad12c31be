"""Deletion curves: deleted entries, the rows that the classifier gets, scores, and errors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from datasets import make_multiclass, make_sparse
from dealing import deal
from dropmargin import DropoutSVC, deletion_curve
from recorder import Recorder

LEVELS = [0.0, 0.3, 0.6, 1.0]
STRATEGIES = ["entries", "columns", "worst"]


def seen(X, **settings):
    """Return the rows that a classifier gets at one level of one repeat."""
    y = np.arange(X.shape[0]) % 2
    recorder = Recorder().fit(X, y)
    deletion_curve(recorder, X, y, **{"n_repeats": 1, "random_state": 0} | settings)
    return recorder.seen_[-1]


@pytest.fixture(scope="module")
def ones():
    return np.ones((400, 50))


# Deleted entries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "strategy"), deal([LinearSVC(), KNeighborsClassifier(), DropoutSVC()], STRATEGIES)
)
def test_level_zero_is_the_plain_score(estimator, strategy):
    X, y = make_multiclass()
    estimator.fit(X, y)
    curve = deletion_curve(estimator, X, y, levels=[0.5, 0.0], strategy=strategy, rescale=True, random_state=0)
    assert_array_equal(curve.scores[1], estimator.score(X, y))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_at_level_one_all_rows_are_equal(strategy):
    X, y = make_multiclass()
    model = LogisticRegression().fit(X, y)
    curve = deletion_curve(model, X, y, levels=[1.0], strategy=strategy, rescale=True, random_state=0)
    assert_array_equal(curve.scores, np.mean(y == model.predict(np.zeros((1, X.shape[1])))))


@pytest.mark.parametrize(("level", "layout"), deal([0.1, 0.5, 0.9], [np.asarray, sparse.csr_array]))
def test_entries_are_deleted_independently_at_the_rate_of_the_level(ones, level, layout):
    kept = np.asarray(seen(layout(ones), levels=[level]) @ np.eye(50))
    deleted = 1.0 - kept
    assert_allclose(deleted.mean(), level, atol=4.0 * np.sqrt(level * (1.0 - level) / deleted.size))
    # counts by row and by column are as scattered as those of independent entries
    assert_allclose(deleted.sum(axis=1).var(), 50 * level * (1 - level), rtol=0.35)
    assert_allclose(deleted.sum(axis=0).var(), 400 * level * (1 - level), rtol=0.75)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_seed_gives_the_same_scores_with_any_number_of_threads(strategy):
    X, y = make_multiclass()
    model = GaussianNB().fit(X, y)
    curves = [
        deletion_curve(model, X, y, strategy=strategy, random_state=7, n_jobs=n_jobs).scores for n_jobs in (None, 1, 2)
    ]
    assert_array_equal(curves[0], curves[1])
    assert_array_equal(curves[0], curves[2])
    other = deletion_curve(model, X, y, strategy=strategy, random_state=8).scores
    assert strategy == "worst" or (other != curves[0]).any()


# Rows for the classifier --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("strategy", "container"), deal(["entries", "columns"], [sparse.csr_array, sparse.csr_matrix]))
def test_nan_in_sparse_rows_is_stored_for_deleted_zeros(strategy, container):
    X = make_sparse(40_000, 30, 0.2)[0].astype(np.float32)  # random numbers are drawn for a million entries at a time
    missing = seen(container(X), levels=[0.4], strategy=strategy, fill=np.nan)
    zeros = seen(container(X), levels=[0.4], strategy=strategy)
    assert isinstance(missing, container)
    assert missing.dtype == np.float32
    deleted = np.isnan(missing.toarray())
    if strategy == "columns":
        assert_array_equal(deleted, np.tile(deleted[0], (40_000, 1)))
        assert deleted[0].sum() == 12
    assert_allclose(deleted.mean(), 0.4, atol=0.003)
    assert_array_equal(np.where(deleted, 0.0, X.toarray()), zeros.toarray())


# Scores -------------------------------------------------------------------------------------------------------------


def test_mean_and_spread_are_over_the_repeats():
    X, y = make_multiclass()
    curve = deletion_curve(LinearSVC().fit(X, y), X, y, levels=LEVELS, n_repeats=4, random_state=0)
    assert curve.scores.shape == (4, 4)
    assert_array_equal(curve.levels, LEVELS)
    assert_allclose(curve.mean, np.mean(curve.scores, axis=1))
    assert_allclose(curve.std, np.std(curve.scores, axis=1))
    assert (curve.strategy, curve.fill, curve.rescale, curve.scoring) == ("entries", 0.0, False, "accuracy")
    with pytest.raises(AttributeError):
        curve.levels = []


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"levels": [0.1, -0.1]}, r"levels must be in \[0, 1\].*-0\.1"),
        ({"levels": [30]}, r"levels must be in \[0, 1\].*30.*Write 0\.3 for 30 %"),
        ({"levels": [np.nan]}, r"levels must be in \[0, 1\].*nan"),
        ({"levels": []}, "one or more numbers"),
        ({"levels": 0.5}, "one or more numbers"),
        ({"levels": ["a"]}, "one or more numbers"),
        ({"levels": [True]}, "one or more numbers"),
        ({"levels": [[0.1, 0.2]]}, "one or more numbers"),
        ({"levels": [[0.1], 0.2]}, "one or more numbers"),
        ({"levels": None}, "one or more numbers"),
        ({"strategy": "rows"}, r"strategy .*'entries', 'columns', 'worst'.*'rows'"),
        ({"strategy": None}, "strategy .*None"),
        ({"n_repeats": 0}, "n_repeats .*got 0"),
        ({"n_repeats": 2.0}, "n_repeats .*got 2.0"),
        ({"fill": "mean"}, "fill .*'mean'"),
        ({"fill": np.inf}, "fill must be"),
        ({"fill": True}, "fill must be"),
        ({"fill": [1.0, 2.0]}, r"fill must be.*\(8 of them\)"),
        ({"fill": [np.nan] * 8}, "fill must be"),
        ({"rescale": "anchored"}, r"rescale .*fill=X_train"),
        ({"rescale": True, "fill": np.nan}, "rescale=True .*fill=nan"),
        ({"n_jobs": 0}, "n_jobs must be"),
        ({"scoring": "beauty"}, "beauty"),
        ({"scoring": ["accuracy", "f1_macro"]}, "one number per data set"),
        ({"random_state": "seed"}, "seed"),
    ],
)
def test_bad_parameters_raise(settings, message):
    X, y = make_multiclass()
    recorder = Recorder().fit(X, y)
    with pytest.raises(ValueError, match=message):
        deletion_curve(recorder, X, y, **settings)
