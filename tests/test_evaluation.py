"""Deletion curves: deleted entries, the rows that the classifier gets, scores, and errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, make_scorer, roc_auc_score
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from datasets import make_binary, make_multiclass, make_sparse
from dealing import round_robin, together
from dropmargin import DropoutSVC, PoissonNoise, corruption_curve, deletion_curve
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
    ("estimator", "strategy"), round_robin([LinearSVC(), KNeighborsClassifier(), DropoutSVC()], STRATEGIES)
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


@pytest.mark.parametrize(("level", "layout"), round_robin([0.1, 0.5, 0.9], [np.asarray, sparse.csr_array]))
def test_entries_are_deleted_independently_at_the_rate_of_the_level(ones, level, layout):
    kept = np.asarray(seen(layout(ones), levels=[level]) @ np.eye(50))
    deleted = 1.0 - kept
    assert_allclose(deleted.mean(), level, atol=4.0 * np.sqrt(level * (1.0 - level) / deleted.size))
    # counts by row and by column are as scattered as those of independent entries
    assert_allclose(deleted.sum(axis=1).var(), 50 * level * (1 - level), rtol=0.35)
    assert_allclose(deleted.sum(axis=0).var(), 400 * level * (1 - level), rtol=0.75)


def test_random_columns_are_deleted_in_all_rows(ones):
    kept = seen(ones, levels=[0.3], strategy="columns")
    assert sorted(kept.sum(axis=0)) == [0.0] * 15 + [400.0] * 35


@together(("level", "n_deleted"), [(0.04, 0), (0.05, 1), (0.14, 1), (0.15, 2), (0.97, 10)])
def test_the_number_of_columns_is_rounded_to_the_nearest(level, n_deleted, rows):
    assert (seen(rows, levels=[level], strategy="columns") == 0.0).all(axis=0).sum() == n_deleted


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_deleted_entries_are_deleted_at_higher_levels(ones, strategy):
    low, high = (seen(ones, levels=[level], strategy=strategy) == 0.0 for level in (0.3, 0.5))
    assert high.sum() > low.sum() > 0
    assert not (low & ~high).any()


def test_repeats_differ():
    X, y = make_multiclass()
    recorder = Recorder().fit(X, y)
    deletion_curve(recorder, X, y, levels=[0.5], n_repeats=3, random_state=0)
    first, second, third = recorder.seen_
    assert (first != second).any()
    assert (second != third).any()


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


def test_deletions_depend_on_the_seed_and_not_on_the_classifier(ones):
    X, y = make_multiclass()
    recorders = [Recorder().fit(X, y), make_pipeline(Recorder()).fit(X, y)]
    for model in recorders:
        deletion_curve(model, X, y, random_state=3)
    for one, other in zip(recorders[0].seen_, recorders[1][-1].seen_, strict=True):
        assert_array_equal(one, other)


# Rows for the classifier --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fill", "strategy"), round_robin([0.0, -1.5, np.linspace(0.0, 3.0, 10), 2.5], ["entries", "columns"])
)
def test_rescaling_moves_observed_entries_away_from_the_fill(fill, strategy, rows):
    plain = seen(rows, levels=[0.4], strategy=strategy, fill=fill)
    rescaled = seen(rows, levels=[0.4], strategy=strategy, fill=fill, rescale=True)
    fills = np.broadcast_to(fill, rows.shape)
    deleted = plain == fills
    assert 0.2 < deleted.mean() < 0.6
    assert_array_equal(plain, np.where(deleted, fills, rows))
    assert_allclose(rescaled, np.where(deleted, fills, fills + (rows - fills) / 0.6))


def test_rescaling_by_columns_uses_the_actual_share(rows):
    rescaled = seen(rows, levels=[0.33], strategy="columns", rescale=True)
    kept = (rescaled != 0.0).all(axis=0)
    assert kept.sum() == 7
    assert_allclose(rescaled[:, kept], rows[:, kept] / 0.7)


def test_with_training_means_rescaling_is_anchored():
    X, y = make_binary()
    model = LinearSVC().fit(X, y)
    mean = X.mean(axis=0)
    recorder = Recorder().fit(X, y)
    deletion_curve(recorder, X, y, levels=[0.4], n_repeats=1, fill=mean, rescale=True, random_state=0)
    kept = seen(X + 1.0, levels=[0.4], random_state=0) != 0.0
    anchored = model.intercept_ + model.coef_[0] @ mean + (kept * (X - mean) / 0.6) @ model.coef_[0]
    assert_allclose(model.decision_function(recorder.seen_[0]), anchored)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nan_marks_the_same_entries_as_zero(rows, strategy):
    missing = seen(rows, levels=[0.4], strategy=strategy, fill=np.nan)
    zeros = seen(rows, levels=[0.4], strategy=strategy)
    assert_array_equal(np.isnan(missing), zeros == 0.0)
    assert_array_equal(np.nan_to_num(missing), zeros)


@pytest.mark.parametrize(
    ("strategy", "container"), round_robin(["entries", "columns"], [sparse.csr_array, sparse.csr_matrix])
)
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


def test_classifiers_that_accept_nan():
    X, y = make_multiclass(200)
    model = make_pipeline(SimpleImputer(), LogisticRegression()).fit(X, y)
    curve = deletion_curve(model, X, y, levels=[0.0, 0.4], fill=np.nan, random_state=0)
    assert curve.mean[0] > curve.mean[1] > 0.3
    with pytest.raises(ValueError, match="NaN"):
        deletion_curve(LinearSVC().fit(X, y), X, y, fill=np.nan, random_state=0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sparse_rows_stay_sparse(strategy):
    X, y = make_sparse(100, 40, 0.2)
    model = LinearSVC().fit(X, y)
    curve = deletion_curve(model, X, y, levels=LEVELS, strategy=strategy, rescale=True, random_state=0)
    assert curve.mean[0] > curve.mean[-1]
    assert sparse.issparse(seen(X, levels=[0.5], strategy=strategy))
    if strategy != "entries":  # where the draws do not depend on the format
        dense = deletion_curve(model, X.toarray(), y, levels=LEVELS, strategy=strategy, rescale=True, random_state=0)
        assert_array_equal(curve.scores, dense.scores)


def test_duplicate_entries_are_deleted_together():
    X = sparse.csr_matrix((np.ones(200), np.zeros(200, dtype=int), np.arange(0, 201, 2)), shape=(100, 1))
    assert set(np.unique(seen(X, levels=[0.5]).toarray())) == {0.0, 2.0}


@pytest.mark.parametrize(("strategy", "frame"), round_robin(STRATEGIES, [pd.DataFrame, pl.DataFrame]))
@pytest.mark.filterwarnings("error:X :UserWarning")  # scikit-learn's warnings about feature names
def test_data_frames_stay_data_frames(frame, strategy):
    X, y = make_multiclass()
    named = frame({f"f{column}": X[:, column] for column in range(X.shape[1])})
    model = make_pipeline(StandardScaler(), LinearSVC()).fit(named, y)
    curve = deletion_curve(model, named, y, strategy=strategy, random_state=0)
    plain = deletion_curve(
        make_pipeline(StandardScaler(), LinearSVC()).fit(X, y), X, y, strategy=strategy, random_state=0
    )
    assert_array_equal(curve.scores, plain.scores)


def test_a_pandas_index_is_kept():
    X = pd.DataFrame(np.ones((4, 2)), columns=["a", "b"], index=[7, 3, 9, 1])
    shown = seen(X, levels=[0.5])
    assert list(shown.index) == [7, 3, 9, 1]
    assert list(shown.columns) == ["a", "b"]


def test_integers_and_lists_are_accepted():
    X, y = make_multiclass()
    counts = np.round(3 * X).astype(int)
    model = MultinomialNB().fit(counts, y)
    expected = deletion_curve(model, counts.astype(float), y, random_state=0).scores
    assert_array_equal(deletion_curve(model, counts, y, random_state=0).scores, expected)
    assert_array_equal(deletion_curve(model, counts.tolist(), y.tolist(), random_state=0).scores, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept(rows, dtype):
    for strategy in ("entries", "columns"):
        shown = seen(rows.astype(dtype), levels=[0.5], strategy=strategy, fill=np.ones(10), rescale=True)
        assert shown.dtype == dtype


@pytest.mark.parametrize("layout", [np.array, sparse.csr_array, sparse.csc_array, pd.DataFrame])
def test_inputs_are_not_changed(layout):
    X, y = make_multiclass()
    given = layout(X)
    model = make_pipeline(LinearSVC()).fit(given, y)
    for strategy in ("entries", "columns", "worst"):
        deletion_curve(model, given, y, strategy=strategy, rescale=True, random_state=0)
    deletion_curve(Recorder().fit(given, y), given, y, fill=np.nan, random_state=0)
    corruption_curve(model, given, y, [0.5, PoissonNoise()], random_state=0)
    assert_array_equal(given.toarray() if sparse.issparse(given) else np.asarray(given), X)


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


@pytest.mark.parametrize(
    ("scoring", "expected"),
    [
        ("roc_auc", lambda m, X, y: roc_auc_score(y, m.decision_function(X))),
        ("neg_log_loss", lambda m, X, y: -log_loss(y, m.predict_proba(X))),
        (make_scorer(lambda y, p: float(np.sum(y == p))), lambda m, X, y: np.sum(y == m.predict(X))),
        (lambda m, X, y: 3.0, lambda m, X, y: 3.0),
        (None, lambda m, X, y: m.score(X, y)),
    ],
    ids=["auc", "log-loss", "scorer", "callable", "own"],
)
def test_scorers_of_scikit_learn(scoring, expected):
    X, y = make_binary()
    model = LogisticRegression().fit(X, y)
    curve = deletion_curve(model, X, y, levels=[0.0], scoring=scoring)
    assert_allclose(curve.mean, expected(model, X, y))


def test_sample_weight_is_passed_to_the_scorer():
    X, y = make_multiclass()
    model = LinearSVC().fit(X, y)
    weights = np.r_[np.ones(30), np.zeros(60)]
    curve = deletion_curve(model, X, y, levels=[0.0], sample_weight=weights)
    assert_allclose(curve.mean, model.score(X[:30], y[:30]))


# Bad input ----------------------------------------------------------------------------------------------------------


@together(
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


def test_a_fill_that_would_make_a_sparse_matrix_dense_raises():
    X, y = make_sparse(50, 20, 0.2)
    model = LinearSVC().fit(X, y)
    for fill in (1.0, np.ones(20)):
        for strategy in ("entries", "columns", "worst"):
            with pytest.raises(ValueError, match=r"dense.*toarray"):
                deletion_curve(model, X, y, fill=fill, strategy=strategy)
    assert_array_equal(
        deletion_curve(model, X, y, fill=np.zeros(20), random_state=0).scores,
        deletion_curve(model, X, y, random_state=0).scores,
    )


@pytest.mark.parametrize("estimator", [LinearSVC(), DropoutSVC(), make_pipeline(StandardScaler(), LinearSVC())])
def test_an_estimator_must_be_fitted(estimator):
    X, y = make_multiclass()
    with pytest.raises(NotFittedError, match=r"deletion_curve .*fitted"):
        deletion_curve(estimator, X, y)
    with pytest.raises(NotFittedError, match=r"corruption_curve .*fitted"):
        corruption_curve(estimator, X, y, [0.5])


@pytest.mark.parametrize("estimator", [None, "svm", LinearSVC, StandardScaler().fit([[1.0]])])
def test_an_estimator_must_predict(estimator):
    with pytest.raises(TypeError, match=r"deletion_curve .*predict\(\)"):
        deletion_curve(estimator, [[1.0]], [1])


def test_columns_and_rows_must_match():
    X, y = make_multiclass()
    model = make_pipeline(StandardScaler(), LinearSVC()).fit(X, y)
    with pytest.raises(ValueError, match=r"7 features, .*Pipeline .*8"):
        deletion_curve(model, X[:, :7], y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        deletion_curve(model, X, y[:-1])
    with pytest.raises(ValueError, match="could not convert string to float"):
        deletion_curve(model, np.full(X.shape, "word"), y)
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    named = LinearSVC().fit(frame, y)
    with pytest.raises(ValueError, match="feature names should match"):
        deletion_curve(named, frame[frame.columns[::-1]], y, levels=[0.5])


def test_sample_weight_for_a_scorer_without_it_raises():
    X, y = make_binary()
    model = DropoutSVC().fit(X, y)
    weights = np.ones(len(y))
    with pytest.raises(ValueError, match="takes no sample_weight"):
        deletion_curve(model, X, y, scoring=lambda estimator, X, y: 1.0, sample_weight=weights)
    curve = deletion_curve(model, X, y, levels=[0.0], scoring="f1", sample_weight=weights)
    assert curve.mean[0] == deletion_curve(model, X, y, levels=[0.0], scoring="f1").mean[0]
