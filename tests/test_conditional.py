"""missing="conditional": the expected score given the observed features, its variance, and training with NaN."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone

from datasets import (
    assert_bitwise_equal,
    assert_same_state,
    explicit,
    fitted_state,
    make_binary,
    make_multiclass,
    with_nan,
)
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    GaussianNoise,
    MCFClassifier,
    NoisyLinearClassifier,
    streaming,
)
from dropmargin.data.missing_values import nan_to_negative_zero
from dropmargin.estimators import conditional
from dropmargin.estimators.conditional import FactorModel, log_expected_expit
from dropmargin.estimators.factor_analysis import fill_conditional, fit_factor_model
from dropmargin.estimators.missing import scores_of_rule
from dropmargin.io.model import load, save

N_FEATURES, RANK, N_OUTPUTS = 12, 3, 4


def gaussian(rng, n_rows=0):
    """Return a model, and rows that are drawn from it."""
    factors, mean = rng.normal(size=(N_FEATURES, RANK)), rng.normal(size=N_FEATURES)
    model = FactorModel(mean, factors, rng.uniform(0.1, 1.0, N_FEATURES))
    return model, rng.multivariate_normal(mean, covariance_of(model), size=n_rows)


def covariance_of(model):
    return model.factors @ model.factors.T + np.diag(model.residual_variance)


def rows_with_nan(rng, patterns):
    """Return rows with zeros and NaN; complete ones, one without any observed feature, and shared patterns."""
    X = rng.normal(size=(60, N_FEATURES))
    X[rng.uniform(size=X.shape) < 0.2] = 0.0
    if patterns == "shared":
        masks = rng.uniform(size=(4, N_FEATURES)) < 0.5
        X[masks[rng.integers(4, size=60)]] = np.nan
    else:
        X[rng.uniform(size=X.shape) < 0.4] = np.nan
    X[0], X[1] = 1.0, np.nan
    return X


def brute_force(model, x):
    """Return the mean and covariance of a row given its observed features, by the dense covariance matrix."""
    seen, total = ~np.isnan(x), covariance_of(model)
    gone, filled = ~seen, np.where(np.isnan(x), 0.0, x)
    gain = total[np.ix_(gone, seen)] @ np.linalg.inv(total[np.ix_(seen, seen)])
    filled[gone] = model.mean[gone] + gain @ (x - model.mean)[seen]
    left = np.zeros_like(total)
    left[np.ix_(gone, gone)] = total[np.ix_(gone, gone)] - gain @ total[np.ix_(seen, gone)]
    return filled, left


# The Gaussian -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "patterns", "most_table"),
    [*deal([np.array, explicit], ["shared", "different"], [2**23, 0]), (np.array, "different", 0)],
)
def test_scores_are_the_conditional_expectation_of_the_dense_gaussian(layout, patterns, most_table, monkeypatch):
    monkeypatch.setattr(conditional, "_MOST_TABLE", most_table)
    rng = np.random.default_rng(0)
    model, _ = gaussian(rng)
    X = rows_with_nan(rng, patterns)
    coef, intercept = rng.normal(size=(N_OUTPUTS, N_FEATURES)), rng.normal(size=N_OUTPUTS)
    moments = [brute_force(model, x) for x in X]
    wanted = np.array([coef @ filled + intercept for filled, _ in moments])
    np.testing.assert_allclose(scores_of_rule(model, layout(X), coef, intercept), wanted, atol=1e-10)
    np.testing.assert_allclose(wanted[1], coef @ model.mean + intercept, atol=1e-12)
    single = scores_of_rule(model, layout(X.astype(np.float32)), coef.astype(np.float32), intercept.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, wanted, atol=1e-4)
    found = list(model.normal_scores(layout(X), coef, intercept))
    np.testing.assert_array_equal(found.pop().rows, np.flatnonzero(~np.isnan(X).any(axis=1)))
    rows = np.concatenate([part.rows for part in found])
    assert sorted(rows) == np.flatnonzero(np.isnan(X).any(axis=1)).tolist()
    np.testing.assert_allclose(np.concatenate([part.mean for part in found]), wanted[rows], atol=1e-10)
    covariance = np.array([coef @ left @ coef.T for _, left in moments])
    np.testing.assert_allclose(np.concatenate([part.covariance for part in found]), covariance[rows], atol=1e-10)


@pytest.mark.parametrize("layout", [np.array, explicit])
def test_fitted_distribution_is_that_of_the_rows(layout):
    rng = np.random.default_rng(0)
    truth, X = gaussian(rng, 3000)
    X[:, 3] *= 1e6  # a large unit takes no factors from the others
    weights = rng.integers(0, 3, len(X)).astype(float)
    model = fit_factor_model(layout(X), weights, False, RANK)
    np.testing.assert_allclose(model.mean, np.average(X, axis=0, weights=weights), rtol=1e-10)
    scale = np.where(np.arange(N_FEATURES) == 3, 1e6, 1.0)
    np.testing.assert_allclose(covariance_of(model) / np.outer(scale, scale), covariance_of(truth), atol=0.35)
    assert model.residual_variance[3] / 1e12 == pytest.approx(truth.residual_variance[3], abs=0.1)


@pytest.mark.parametrize("layout", [np.array, explicit])
def test_training_rows_take_their_conditional_means(layout):
    rng = np.random.default_rng(0)
    truth, X = gaussian(rng, 1000)
    bad = np.where(rng.uniform(size=X.shape) < 0.5, np.nan, X)
    rows = nan_to_negative_zero(layout(bad))
    model = fit_factor_model(rows, np.ones(len(X)), True)
    filled = fill_conditional(rows, model)
    filled = filled.toarray() if sparse.issparse(filled) else filled
    np.testing.assert_array_equal(filled[~np.isnan(bad)], X[~np.isnan(bad)])
    np.testing.assert_allclose(filled, [brute_force(model, x)[0] for x in bad], atol=1e-9)
    best = np.array([brute_force(truth, x)[0] for x in bad])

    def rmse(guess):
        return np.sqrt(np.mean(np.square(guess - X)[np.isnan(bad)]))

    assert rmse(filled) < 1.05 * rmse(best) < 0.8 * rmse(np.broadcast_to(X.mean(axis=0), X.shape))


# Estimators ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "multi_class"), [(make_binary, "ovr"), (make_multiclass, "ovr"), (make_multiclass, "ovo")]
)
def test_stability_is_the_probability_of_the_label_of_the_complete_row(make, multi_class):
    X, y = make()
    model = DropoutSVC(missing="conditional", multi_class=multi_class).fit(X, y)
    rows = with_nan(X[:6], 0.4)
    rows[5] = X[5]
    found = model.predict_stability(rows, 0.0)
    assert found[5] == 1.0
    rng, own = np.random.default_rng(0), model._rule()
    for x, label, probability in zip(rows[:5], model.predict(rows), found, strict=False):
        filled, left = brute_force(own, x)
        drawn = rng.multivariate_normal(filled, left, size=4000, method="eigh")
        assert np.mean(model.predict(drawn) == label) == pytest.approx(probability, abs=0.035)
    if multi_class == "ovr":
        assert (model.predict_stability(rows, 0.0, "guaranteed") <= found + 1e-9).all()


def test_noise_on_the_observed_features_adds_its_variance():
    X, y = make_multiclass()
    model = DropoutSVC(missing="conditional").fit(X, y)
    rows, noise = with_nan(X[:5], 0.4), GaussianNoise(0.7)
    found = model.predict_stability(rows, noise)
    rng, own = np.random.default_rng(0), model._rule()
    for x, label, probability in zip(rows, model.predict(rows), found, strict=True):
        left = brute_force(own, x)[1]
        moved = model.decision_function(x + 0.7 * rng.normal(size=(4000, len(x))))
        scores = moved + rng.multivariate_normal(np.zeros(len(x)), left, size=4000, method="eigh") @ model.coef_.T
        assert np.mean(model.classes_[scores.argmax(axis=1)] == label) == pytest.approx(probability, abs=0.035)
    shares = [model.predict_stability(rows, rate, "normal").mean() for rate in (0.0, 0.1, 0.5)]
    assert shares[0] > shares[1] > shares[2]
    expected = [model.expected_accuracy(np.vstack([X, with_nan(X, 0.4)]), np.tile(y, 2), rate) for rate in (0.0, 0.3)]
    assert model.score(with_nan(X, 0.4), y) - 0.2 < expected[0] < 1.0
    assert expected[1] < expected[0]


def test_probabilities_are_expectations_over_the_complete_row():
    X, y = make_binary()
    model = DropoutLogisticRegression(missing="conditional").fit(X, y)
    rows, rng = with_nan(X[:5], 0.4), np.random.default_rng(0)
    for x, probability in zip(rows, model.predict_proba(rows)[:, 1], strict=True):
        drawn = rng.multivariate_normal(*brute_force(model._rule(), x), size=20000, method="eigh")
        assert model.predict_proba(drawn)[:, 1].mean() == pytest.approx(probability, abs=0.01)
    # less certain than the plug-in probability
    plug_in = expit(model.decision_function(rows))
    assert (np.abs(model.predict_proba(rows)[:, 1] - 0.5) < np.abs(plug_in - 0.5)).all()
    np.testing.assert_allclose(
        log_expected_expit(np.array([-3.0, 4.0]), np.zeros(2)), np.log(expit([-3.0, 4.0])), atol=1e-7
    )
    several = DropoutLogisticRegression(missing="conditional").fit(*make_multiclass())
    np.testing.assert_allclose(several.predict_proba(with_nan(make_multiclass()[0], 0.4)).sum(axis=1), 1.0)


@pytest.mark.parametrize("layout", [np.array, explicit])
def test_features_that_never_vary_or_are_never_observed(layout):
    X, y = make_multiclass()
    bad = with_nan(X, 0.4)
    bad[:, 2], bad[:, 3] = 5.0, np.nan
    model = DropoutSVC(missing="conditional").fit(layout(bad), y)
    assert model.feature_means_[3] == 0.0
    assert not model.feature_factors_[2:4].any()
    assert not model.residual_variances_[2:4].any()
    other = bad.copy()
    other[:, 3] = 7.0
    difference = model.decision_function(layout(other)) - model.decision_function(layout(bad))
    np.testing.assert_allclose(difference, np.broadcast_to(7.0 * model.coef_[:, 3], difference.shape), atol=1e-10)
    constant = np.ones_like(X)
    assert not DropoutSVC(missing="conditional").fit(constant, y).feature_factors_.any()


@pytest.mark.parametrize("missing_too", [False, True])
def test_rounding_errors_of_a_constant_feature_are_no_variation(missing_too):
    X = np.random.default_rng(0).normal(size=(300, 5))
    X[:, 2] = 0.1  # the sum of 300 of these has rounding errors
    y = (X[:, 0] > 0.0).astype(int)
    X[::7, 1] = np.nan if missing_too else 0.0
    model = DropoutSVC(missing="conditional").fit(X, y)
    assert model.residual_variances_[2] == 0.0
    row = np.array([[np.nan, 0.0, 0.1, 0.0, 0.0]])
    assert model.decision_function(row) == pytest.approx(model.decision_function(np.where(row == 0.1, 30.0, row)), 1.0)


@pytest.mark.parametrize(
    ("estimator", "layout"),
    deal(
        [
            DropoutSVC(noise=GaussianNoise(0.5)),
            MCFClassifier("exponential"),
            NoisyLinearClassifier("quadratic", noise=DropoutNoise(0.2, groups=np.arange(8) // 2)),
            DropoutSVC(noise=None, class_weight="balanced", multi_class="ovo"),
        ],
        [np.array, explicit],
    ),
)
def test_trains_with_nan_as_with_filled_rows(estimator, layout):
    X, y = make_multiclass()
    bad = layout(with_nan(X, 0.4))
    before = bad.copy()
    model = clone(estimator).set_params(missing="conditional").fit(bad, y)
    filled = fill_conditional(nan_to_negative_zero(bad), model._rule())
    assert_bitwise_equal(model, clone(estimator).fit(filled, y))
    for own, other in zip(*([m.data] if sparse.issparse(m) else [m] for m in (bad, before)), strict=True):
        np.testing.assert_array_equal(own, other)


# The interface ------------------------------------------------------------------------------------------------------


def test_copies_and_files_predict_the_same(tmp_path):
    X, y = make_multiclass()
    names = [f"c{d}" for d in range(X.shape[1])]
    model = DropoutLogisticRegression(missing="conditional", missing_rank=2)
    model.fit(pd.DataFrame(with_nan(X, 0.4), columns=names), y)
    assert model.feature_factors_.shape == (X.shape[1], 2)
    assert clone(model).missing_rank == 2
    save(model, tmp_path / "model.safetensors")
    bad = pd.DataFrame(with_nan(X, 0.4), columns=names)
    for other in (pickle.loads(pickle.dumps(model)), load(tmp_path / "model.safetensors")):
        np.testing.assert_array_equal(other.predict_proba(bad), model.predict_proba(bad))
        np.testing.assert_array_equal(other.predict_stability(bad), model.predict_stability(bad))
    np.testing.assert_allclose(
        model.predict_proba(bad[names[:3]]), model.predict_proba(bad[names[:3]].reindex(columns=names))
    )


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        (1.5, "missing_rank must be an integer"),
        ("2", "missing_rank must be an integer"),
        (-1, "at least 0, got -1"),
        (True, "missing_rank must be an integer"),
        (9, r"at most the number of rows of positive weight, \d+, and of features, 8, got 9"),
    ],
)
def test_ranks_that_are_none(rank, message):
    X, y = make_binary()
    model = DropoutSVC(missing="conditional").fit(X, y)
    state = fitted_state(model.set_params(missing_rank=rank))
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert_same_state(model, state)
    with pytest.raises(ValueError, match="at most"):
        DropoutSVC(missing="conditional", missing_rank=3).fit(X[:4], [0, 1, 0, 1], [1.0, 1.0, 0.0, 0.0])


def test_what_it_does_not_support_says_so():
    X, y = make_binary()
    model = DropoutSVC(missing="conditional").fit(X, y)
    with pytest.raises(AttributeError) as raised:
        model.partial_fit  # noqa: B018
    assert "no partial_fit with missing='conditional'" in str(raised.value.__cause__)
    with pytest.raises(ValueError, match=r"missing='conditional' needs all rows in memory.*missing='rescale'"):
        streaming.fit(DropoutSVC(missing="conditional"), X, y)
