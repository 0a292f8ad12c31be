"""NaN as a missing feature: the anchored score, training without mean and variance, frames that lack columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags

from datasets import (
    N_FEATURES,
    TIGHT,
    assert_bitwise_equal,
    assert_same_state,
    blankout,
    fitted_state,
    make_binary,
    make_multiclass,
    parameters,
    relative_difference,
)
from dealing import round_robin
from dropmargin import (
    DropoutLogisticRegression,
    DropoutSVC,
    DropoutSVCCV,
    GaussianNoise,
    LaplaceNoise,
    MCFClassifier,
    NoisyLinearClassifier,
    PoissonNoise,
)
from dropmargin.data import missing_values as missing_module
from dropmargin.data import one_partition
from dropmargin.noise import Noise, Variance
from helpers import as_format, plain_log_mgf, plain_moment_loss, plain_variance


def with_nan(X, share=0.3, seed=5):
    """Return a copy of ``X`` with a share of its entries NaN."""
    X = np.array(X)
    X[np.random.RandomState(seed).uniform(size=X.shape) < share] = np.nan
    return X


def explicit(X):
    """Return CSR with zeros left out and NaN stored."""
    stored = np.isnan(X) | (X != 0.0)
    rows, columns = np.nonzero(stored)
    return sparse.csr_array((X[stored], (rows, columns)), shape=X.shape)


def anchored(model, X):
    """Return the scores by the formula, row by row and column by column."""
    mean, out = model.feature_means_, np.empty((len(X), len(model.coef_)))
    for i, x in enumerate(X):
        seen = ~np.isnan(x)
        for k, (w, b) in enumerate(zip(model.coef_, model.intercept_, strict=True)):
            moves = np.abs(w) * model.feature_deviations_
            share = max(moves[seen].sum() / moves.sum(), seen.mean() / 2.0)
            out[i, k] = b + w @ mean + (w[seen] @ (x - mean)[seen] / share if seen.any() else 0.0)
    return out


# Prediction ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "make"),
    round_robin([np.array, explicit, lambda X: sparse.csr_matrix(explicit(X))], [make_binary, make_multiclass]),
)
def test_scores_are_anchored_at_the_training_mean(layout, make):
    X, y = make()
    model = DropoutSVC(missing="rescale").fit(X, y)
    np.testing.assert_allclose(model.feature_means_, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.feature_deviations_, X.std(axis=0), rtol=1e-12)
    bad = with_nan(X)
    wanted = anchored(model, bad)
    scores = model.decision_function(layout(bad))
    np.testing.assert_allclose(scores, wanted if wanted.shape[1] > 1 else wanted[:, 0], rtol=1e-12, atol=1e-13)


def test_complete_rows_have_their_plain_scores_to_the_last_bit():
    X, y = make_multiclass()
    model = DropoutSVC(missing="rescale").fit(X, y)
    plain = DropoutSVC().fit(X, y)
    assert_bitwise_equal(model, plain)
    np.testing.assert_array_equal(model.decision_function(X), plain.decision_function(X))
    mixed = np.vstack([X, with_nan(X)])
    np.testing.assert_array_equal(model.decision_function(mixed)[: len(X)], plain.decision_function(X))


def test_a_row_with_nothing_observed_has_the_score_of_the_mean_row():
    X, y = make_multiclass()
    model = DropoutSVC(missing="rescale").fit(X, y)
    nothing = np.full((2, N_FEATURES), np.nan)
    wanted = model.intercept_ + model.coef_ @ model.feature_means_
    for rows in (nothing, explicit(nothing)):
        np.testing.assert_allclose(model.decision_function(rows), [wanted, wanted], rtol=1e-12)


def test_results_do_not_depend_on_the_chunks(monkeypatch):
    X, y = make_multiclass(n_samples=200)
    bad = with_nan(X)
    model = DropoutSVC(missing="rescale").fit(bad, y)
    scores = model.decision_function(bad)
    monkeypatch.setattr(missing_module, "_CHUNK_ENTRIES", 1)
    np.testing.assert_allclose(model.decision_function(bad), scores, rtol=1e-12)
    np.testing.assert_allclose(clone_fit(model, bad, y).feature_means_, model.feature_means_, rtol=1e-12)


def clone_fit(model, X, y):
    return type(model)(**model.get_params()).fit(X, y)


def test_single_precision_stays_single_precision():
    X, y = make_multiclass()
    bad = with_nan(X)
    single = DropoutSVC(missing="rescale").fit(bad.astype(np.float32), y)
    scores = single.decision_function(bad.astype(np.float32))
    assert scores.dtype == np.float32
    double = DropoutSVC(missing="rescale").fit(bad, y)
    np.testing.assert_allclose(scores, double.decision_function(bad), atol=1e-2)


def test_a_sparse_matrix_is_never_made_dense():
    rng = np.random.RandomState(0)
    columns = np.sort(rng.randint(0, 2_000_000, (200, 20)), axis=1)
    X = sparse.csr_array((rng.uniform(size=4000), columns.ravel(), np.arange(0, 4001, 20)), shape=(200, 2_000_000))
    X.data[::7] = np.nan
    y = rng.randint(0, 2, 200)
    model = DropoutSVC(missing="rescale", C=0.1, tol=0.1).fit(X, y)  # 3 GB if it were dense
    assert model.feature_means_.shape == (2_000_000,)
    assert np.isfinite(model.decision_function(X)).all()
    assert np.isfinite(model.predict_stability(X)).all()


def test_pair_votes_and_probabilities_take_nan():
    X, y = make_multiclass()
    bad = with_nan(X)
    assert DropoutSVC(missing="rescale", multi_class="ovo").fit(bad, y).predict(bad).shape == y.shape
    proba = DropoutLogisticRegression(missing="rescale").fit(bad, y).predict_proba(bad)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


# Training -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [None, blankout(0.3), blankout(np.linspace(0.0, 0.8, N_FEATURES)), PoissonNoise()])
@pytest.mark.parametrize("loss", ["hinge", "logistic", "exponential"])
def test_a_missing_entry_is_a_zero_where_zeros_have_no_variance(loss, noise):
    X, y = make_binary()
    bad = with_nan(X)
    # Sparse rows of a hinge without noise have a solver of their own, which comes from elsewhere.
    options = {"noise": noise, "tol": 1e-12 if loss == "hinge" and noise is None else 1e-4}
    model = NoisyLinearClassifier(loss, missing="rescale", **options)
    plain = NoisyLinearClassifier(loss, **options).fit(np.nan_to_num(bad), y)
    assert relative_difference(model.fit(bad, y), plain) < 1e-12
    assert relative_difference(model.fit(explicit(bad), y), plain) < 1e-6


def plain_objective(loss, noise, X, y, coef):
    """Return the objective with neither mean nor variance for what is NaN."""
    w, b, seen, filled = coef[:-1], coef[-1], ~np.isnan(X), np.nan_to_num(X)
    if loss == "exponential":
        risk = np.exp((seen * plain_log_mgf(noise, -y[:, None] * w, filled)).sum(axis=1) - y * b)
    else:
        risk = plain_moment_loss(loss, y, filled @ w + b, (seen * plain_variance(noise, filled)) @ w**2)
    return 0.5 * w @ w + risk.sum()


@pytest.mark.parametrize(
    ("loss", "noise"),
    round_robin(
        ["hinge", "logistic", "quadratic", "exponential"],
        [GaussianNoise(0.5), LaplaceNoise(0.3), GaussianNoise(np.linspace(0.0, 0.9, N_FEATURES))],
    ),
)
def test_a_missing_entry_has_no_variance_under_additive_noise(loss, noise):
    X, y = make_binary()
    bad, signs = with_nan(X, 0.5), 2.0 * y - 1.0
    bad[0] = np.nan  # neither mean nor variance: a score of b and nothing else
    bad[1, 0] = -0.0
    model = NoisyLinearClassifier(loss, noise=noise, missing="rescale", tol=1e-12).fit(bad, y)
    coef = parameters(model)[0]
    value = plain_objective(loss, noise, bad, signs, coef)
    assert model.objective_ == pytest.approx(value, rel=1e-9)
    best = minimize(lambda c: plain_objective(loss, noise, bad, signs, c), coef, options={"gtol": 1e-7})
    assert value <= best.fun * (1.0 + 1e-7)
    unaware = NoisyLinearClassifier(loss, noise=noise, tol=1e-12).fit(np.nan_to_num(bad), y)
    assert relative_difference(unaware, model) > 1e-3


def test_gaussian_hinge_takes_rows_without_any_variance():
    X, y = make_binary()
    bad = with_nan(X, 0.5)
    bad[:5] = np.nan
    DropoutSVC(noise=GaussianNoise(0.5), approximation="gaussian", l1_ratio=1.0, missing="rescale").fit(bad, y)


@pytest.mark.parametrize("layout", [np.array, explicit])
def test_fit_and_predict_never_change_x(layout):
    X, y = make_binary()
    bad = layout(with_nan(X))
    values = bad.data if hasattr(bad, "indptr") else bad
    before = values.copy()
    model = DropoutSVC(missing="rescale").fit(bad, y)
    model.decision_function(bad)
    model.predict_stability(bad)
    assert before.tobytes() == values.tobytes()


@pytest.mark.parametrize("layout", [np.array, explicit])
def test_means_and_deviations_are_of_observed_entries_by_weight(layout):
    X, y = make_binary()
    bad = with_nan(X)
    bad[:, 3] = np.nan
    weights = np.random.RandomState(0).randint(0, 3, len(y))
    observed = np.repeat(bad[:, :3], weights, axis=0)
    model = DropoutSVC(missing="rescale").fit(layout(bad), y, weights)
    np.testing.assert_allclose(model.feature_means_[:3], np.nanmean(observed, axis=0), rtol=1e-12)
    np.testing.assert_allclose(model.feature_deviations_[:3], np.nanstd(observed, axis=0), rtol=1e-12)
    assert model.feature_means_[3] == model.feature_deviations_[3] == 0.0


def test_deviations_of_columns_far_from_zero_keep_their_digits():
    X, y = make_binary()
    weights = np.random.RandomState(0).uniform(0.5, 1.5, len(y))
    near, far = (missing_module.feature_statistics(one_partition(rows, weights), False) for rows in (X, X + 1e8))
    np.testing.assert_allclose(far.deviation, near.deviation, rtol=1e-6)


def test_the_factor_counts_features_by_how_far_they_move_the_score():
    X, y = make_binary(n_samples=200)
    X[:, 7] = np.random.RandomState(0).uniform(size=200) / 1e3  # next to no weight
    model = DropoutSVC(missing="rescale").fit(X, y)
    rows = X[:5].copy()
    rows[:, 7] = np.nan
    np.testing.assert_allclose(model.decision_function(rows), model.decision_function(X[:5]), atol=1e-2)
    alone = np.full((1, N_FEATURES), np.nan)  # only what says nothing is seen: at most twice the factor by count
    alone[0, 7] = X[0, 7]
    deviation = model.decision_function(alone)[0] - model.intercept_[0] - model.coef_[0] @ model.feature_means_
    plain = N_FEATURES * model.coef_[0, 7] * (X[0, 7] - model.feature_means_[7])
    assert deviation == pytest.approx(2.0 * plain, rel=1e-9)


def test_a_model_without_weights_has_the_same_score_for_all():
    X, y = make_binary()
    model = DropoutSVC(missing="rescale", l1_ratio=1.0, C=1e-3).fit(X, y)
    assert not model.coef_.any()
    np.testing.assert_array_equal(model.decision_function(with_nan(X)), np.repeat(model.intercept_, len(X)))


def test_weight_two_is_the_row_twice():
    X, y = make_binary()
    bad = with_nan(X)
    weights = np.random.RandomState(0).randint(0, 3, len(y))
    weighted = DropoutSVC(missing="rescale", tol=TIGHT).fit(bad, y, weights)
    repeated = DropoutSVC(missing="rescale", tol=TIGHT).fit(np.repeat(bad, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.decision_function(bad), repeated.decision_function(bad), atol=1e-8)


# Data frames --------------------------------------------------------------------------------------------------------

NAMES = [f"sensor {d}" for d in range(N_FEATURES)]


@pytest.mark.parametrize("frame", [pd.DataFrame, lambda X, columns: pl.DataFrame(X, schema=list(columns))])
def test_an_absent_column_is_missing_in_every_row(frame):
    X, y = make_multiclass()
    model = DropoutSVC(missing="rescale").fit(frame(X, columns=NAMES), y)
    dead = X.copy()
    dead[:, [1, 4]] = np.nan
    alive = [d for d in range(N_FEATURES) if d not in (1, 4)]
    part = frame(X[:, alive], columns=[NAMES[d] for d in alive])
    np.testing.assert_array_equal(model.predict(part), model.predict(frame(dead, columns=NAMES)))
    np.testing.assert_allclose(model.decision_function(part), anchored(model, dead), rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(model.predict_stability(part), model.predict_stability(frame(dead, columns=NAMES)))


def test_nulls_of_frames_are_missing():
    X, y = make_binary()
    model = DropoutSVC(missing="rescale").fit(pd.DataFrame(X, columns=NAMES), y)
    bad = with_nan(X)
    wanted = model.decision_function(pd.DataFrame(bad, columns=NAMES))
    nullable = pd.DataFrame(bad, columns=NAMES).astype("Float64")
    assert nullable.isna().to_numpy().any()
    np.testing.assert_allclose(model.decision_function(nullable), wanted, rtol=1e-13)  # in another order of memory
    nulls = pl.DataFrame(bad, schema=NAMES).fill_nan(None)
    np.testing.assert_allclose(model.decision_function(nulls), wanted, rtol=1e-13)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([*NAMES[:-1], "other"], "unseen at fit time"),
        ([*NAMES[:3], "other"], "unseen at fit time"),
        (NAMES[::-1], "same order"),
        (NAMES[5:1:-1], "same order"),
        ([NAMES[0], NAMES[0], NAMES[2]], "(column|feature) names"),
    ],
)
def test_other_columns_remain_an_error(columns, message):
    X, y = make_binary()
    model = DropoutSVC(missing="rescale").fit(pd.DataFrame(X, columns=NAMES), y)
    bad = pd.DataFrame(X[:, : len(columns)], columns=columns)
    with pytest.raises(ValueError, match=message):
        model.predict(bad)


def test_absent_columns_are_an_error_by_default_and_without_names():
    X, y = make_binary()
    frame = pd.DataFrame(X, columns=NAMES)
    with pytest.raises(ValueError, match="now missing"):
        DropoutSVC().fit(frame, y).predict(frame[NAMES[:3]])
    with pytest.raises(ValueError, match="3 features, but DropoutSVC is expecting 8"):
        DropoutSVC(missing="rescale").fit(X, y).predict(X[:, :3])


# Errors and tags ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [np.array, explicit])
def test_nan_is_an_error_by_default(layout):
    X, y = make_binary()
    bad = layout(with_nan(X))
    with pytest.raises(ValueError, match="NaN"):
        DropoutSVC().fit(bad, y)
    model = DropoutSVC().fit(X, y)
    assert not hasattr(model, "feature_deviations_")
    for method in (model.predict, model.predict_stability):
        with pytest.raises(ValueError, match="NaN"):
            method(bad)


def test_infinity_is_an_error_even_so():
    X, y = make_binary()
    bad = with_nan(X)
    bad[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        DropoutSVC(missing="rescale").fit(bad, y)
    with pytest.raises(ValueError, match="infinity"):
        DropoutSVC(missing="rescale").fit(X, y).predict(bad)


@pytest.mark.parametrize("value", ["ignore", None, True, np.nan])
def test_another_word_for_missing_is_an_error(value):
    X, y = make_binary()
    with pytest.raises(ValueError, match=r"missing must be one of \['error', 'rescale', 'conditional'\], got"):
        DropoutSVC(missing=value).fit(X, y)


def test_drop_after_a_fit_without_it_asks_for_another_fit():
    X, y = make_binary()
    model = DropoutSVC().fit(X, y).set_params(missing="rescale")
    with pytest.raises(ValueError, match="fit again"):
        model.predict(X)
    model.fit(X, y).set_params(missing="error").fit(X, y)
    assert not hasattr(model, "feature_deviations_")


class _Both(Noise):
    def variance(self):
        return Variance(entry=np.square, slope=0.5, floor=0.1)


@pytest.mark.parametrize(
    ("noise", "layout", "message"),
    [
        (GaussianNoise(0.1), explicit, r"sparse with NaN.*Gaussian.*toarray"),
        (_Both(), np.array, "variance of _Both .*SimpleImputer"),
    ],
)
def test_noise_that_cannot_spare_missing_entries_says_so(noise, layout, message):
    X, y = make_binary()
    model = DropoutSVC(noise=noise, missing="rescale").fit(X, y)
    state = fitted_state(model)
    with pytest.raises(ValueError, match=message):
        model.fit(layout(with_nan(X)), y)
    assert_same_state(model, state)


def test_negative_values_among_nan_are_seen_by_poisson_noise():
    X, y = make_binary()
    bad = with_nan(X)
    bad[0, 2] = -1.0
    with pytest.raises(ValueError, match=r"Poisson.*X >= 0"):
        DropoutSVC(noise=PoissonNoise(), missing="rescale").fit(bad, y)


@pytest.mark.parametrize("model", [DropoutSVC, DropoutLogisticRegression, MCFClassifier, NoisyLinearClassifier])
def test_tags_tell_whether_nan_is_allowed(model):
    assert get_tags(model(missing="rescale")).input_tags.allow_nan
    assert not get_tags(model()).input_tags.allow_nan


# What it is for -----------------------------------------------------------------------------------------------------


def test_dropping_beats_mean_imputation_on_digits():
    X, y = load_digits(return_X_y=True)
    errors = np.zeros((3, 3))
    for split in range(4):  # one deletion of one split is too rough a measure
        X_train, X_test, y_train, y_test = train_test_split(X / 16.0, y, test_size=0.5, random_state=split)
        models = [
            DropoutSVC(noise=0.1, missing="rescale"),
            make_pipeline(SimpleImputer(), DropoutSVC(noise=0.1)),
            make_pipeline(SimpleImputer(), LinearSVC(C=0.01)),
        ]
        for model in models:
            model.fit(X_train, y_train)
        for row, share in enumerate((0.3, 0.5, 0.8)):
            bad = with_nan(X_test, share, seed=split)
            errors[row] += [1.0 - model.score(bad, y_test) for model in models]
    assert (errors[:, [0]] < errors[:, 1:]).all()


def test_a_frame_without_any_column_is_all_missing():
    pandas = pytest.importorskip("pandas")
    X, y = make_binary()
    frame = pandas.DataFrame(X, columns=[f"c{d}" for d in range(X.shape[1])])
    model = DropoutSVC(missing="rescale").fit(frame, y)
    np.testing.assert_array_equal(model.decision_function(frame[[]]), model.decision_function(frame * np.nan))


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("estimator", [DropoutSVC(), DropoutSVCCV(cv=2)], ids=["plain", "search"])
def test_nan_without_the_option_is_an_error_that_names_it(estimator, layout):
    X = np.eye(6)
    y = [0, 1] * 3
    gapped = X.copy()
    gapped[2, 3] = np.nan
    message = r"Input X contains NaN, .* missing='error'\. Set missing='rescale'"
    with pytest.raises(ValueError, match=message) as error:
        estimator.fit(as_format(gapped, layout), y)
    assert "HistGradientBoosting" not in str(error.value)
    with pytest.raises(ValueError, match=message):
        DropoutSVC().fit(X, y).predict(as_format(gapped, layout))
