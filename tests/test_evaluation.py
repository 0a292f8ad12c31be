"""Deletion and corruption curves: what is deleted, the rows that the model gets, scores, the worst columns, errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import root_mean_squared_error
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.svm import LinearSVC

from datasets import make_multiclass, make_sparse
from dealing import deal
from dropmargin import (
    DropoutNoise,
    DropoutRidge,
    DropoutSVC,
    GaussianNoise,
    LaplaceNoise,
    PoissonNoise,
    corruption_curve,
    deletion_curve,
)
from dropmargin.evaluation.scoring import repeat_seeds

LEVELS = [0.0, 0.3, 0.6, 1.0]
STRATEGIES = ["entries", "columns", "worst"]


class Recorder(ClassifierMixin, BaseEstimator):
    """A classifier that records the rows it gets, and predicts the first class."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.n_features_in_ = X.shape[1]
        self.seen_ = []
        return self

    def predict(self, X):
        self.seen_.append(X)
        return np.full(X.shape[0], self.classes_[0])


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
    weights = np.arange(len(y))
    options = {"strategy": strategy, "rescale": True, "sample_weight": weights, "random_state": 0}
    curve = deletion_curve(estimator.fit(X, y), X, y, levels=[0.5, 0.0], **options)
    assert_array_equal(curve.scores[1], estimator.score(X, y, sample_weight=weights))


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


def test_the_number_of_columns_is_rounded(ones):
    assert (seen(ones, levels=[0.35], strategy="columns")[0] == 0.0).sum() == 18  # of 50


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
        ({"levels": 0.5}, "one or more numbers"),
        ({"levels": [[0.1, 0.2]]}, "one or more numbers"),
        ({"strategy": "rows"}, r"strategy .*'entries', 'columns', 'worst'.*'rows'"),
        ({"n_repeats": 0}, "n_repeats .*got 0"),
        ({"fill": "mean"}, "fill .*'mean'"),
        ({"fill": np.inf}, "fill must be"),
        ({"fill": [1.0, 2.0]}, r"fill must be.*\(8 of them\)"),
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


def test_columns_are_ranked_on_at_most_a_thousand_rows():
    X = np.random.default_rng(0).normal(size=(1200, 3))
    recorder = Recorder().fit(X, X[:, 0] > 0.0)
    deletion_curve(recorder, X, X[:, 0] > 0.0, levels=[0.5], strategy="worst", random_state=0)
    assert [len(rows) for rows in recorder.seen_] == [1000] * 3 + [1200]  # without each column, and the score


def test_corrupted_rows_are_those_of_the_noise():
    X, y = make_multiclass()
    recorder = Recorder().fit(X, y)
    noises = [None, 0.3, GaussianNoise(scale=0.2), LaplaceNoise(scale=0.1), PoissonNoise()]
    curve = corruption_curve(recorder, X, y, noises, n_repeats=2, random_state=5)
    assert curve.scores.shape == (5, 2)
    assert [type(noise) for noise in curve.noises] == [
        type(None),
        DropoutNoise,
        GaussianNoise,
        LaplaceNoise,
        PoissonNoise,
    ]
    seeds = repeat_seeds(2, 5)
    expected = [X] + [noise.sample(X, seed) for noise in curve.noises[1:] for seed in seeds]
    for one, other in zip(recorder.seen_, expected, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("noises", "message"),
    [
        (GaussianNoise(), "noises must be a list"),
        ([], "noises is empty"),
        (["dropout"], "noise must be None"),
        ([0.5, 1.0], r"rate .*\[0, 1\), got 1.0"),
        ([GaussianNoise(scale=[1.0, 2.0])], "one number per feature"),
        ([PoissonNoise()], "needs X >= 0"),
    ],
)
def test_bad_noises_raise(noises, message):
    X, y = make_multiclass()
    X = X - 1.0
    recorder = Recorder().fit(X, y)
    with pytest.raises(ValueError, match=message):
        corruption_curve(recorder, X, y, noises)
    assert recorder.seen_ == []


def a_table(n_rows=80):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "left_size": rng.standard_normal(n_rows),
            "left_count": rng.integers(5, size=n_rows),
            "kind": pd.Categorical(rng.choice(["p", "q", "r"], n_rows)),
            "name": rng.choice(["u", "v"], n_rows),
        }
    )
    return table, ((table.left_size > 0.0) ^ (table.name == "u")).to_numpy().astype(int)


@pytest.mark.parametrize("make", [lambda table: table, pl.from_pandas], ids=["pandas", "polars"])
@pytest.mark.parametrize("strategy", ["entries", "columns", "worst"])
def test_cells_of_a_table_are_deleted_before_encoding(make, strategy):
    table, y = a_table()
    recorder = TableRecorder().fit(make(table), y)
    deletion_curve(recorder, make(table), y, levels=[0.5], n_repeats=1, strategy=strategy, random_state=0)
    seen = recorder.seen_[-1]
    assert type(seen) is type(make(table))
    assert list(seen.columns) == list(table.columns)
    values = pl.DataFrame(seen).to_pandas() if make is pl.from_pandas else seen
    missing = values.isna().to_numpy()
    given = table.astype(object)
    assert (values.astype(object).mask(missing, given) == given).all(axis=None)
    if strategy == "entries":
        assert 0.4 < missing.mean() < 0.6
        assert 0 < missing[:, 0].sum() < len(y)
    else:
        assert sorted(missing.mean(axis=0)) == [0.0, 0.0, 1.0, 1.0]


class TableRecorder(ClassifierMixin, BaseEstimator):
    """Predicts the first class, and keeps the rows that it is given."""

    def fit(self, X, y):
        self.classes_, self.seen_ = np.unique(y), []
        return self

    def predict(self, X):
        self.seen_.append(X)
        return np.full(len(X), self.classes_[0])
