"""Regressors: their optima, what they are without noise, missing features, search, files."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import Ridge

from dropmargin import (
    DropoutNoise,
    DropoutRidge,
    DropoutRidgeCV,
    DropoutSVR,
    DropoutSVRCV,
    GaussianNoise,
    NoisyLinearRegressor,
)
from dropmargin.losses import EpsilonInsensitive, Huber, Quadratic
from dropmargin.streaming import cache
from dropmargin.streaming import fit as fit_files
from helpers import N_FEATURES, as_format, make_table

# Small grids, whose ends are chosen.
pytestmark = pytest.mark.filterwarnings("ignore:The chosen")

# Optima ---------------------------------------------------------------------------------------------------------------

MODELS = {
    "ridge": (DropoutRidge(), Quadratic()),
    "svr": (DropoutSVR(epsilon=0.5), EpsilonInsensitive(0.5)),
    "huber": (NoisyLinearRegressor(Huber(1.5)), Huber(1.5)),
}


# Without noise, and many corrupted copies -----------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_without_noise_it_is_ridge(layout, fit_intercept):
    X, y, weights = make_table()
    C = 0.05
    own = DropoutRidge(noise=None, C=C, fit_intercept=fit_intercept, tol=1e-13).fit(as_format(X, layout), y, weights)
    other = Ridge(alpha=1.0 / (2.0 * C), fit_intercept=fit_intercept).fit(X, y, weights)
    assert_allclose(own.coef_, other.coef_, rtol=1e-6)
    assert_allclose(own.intercept_, other.intercept_, rtol=1e-8)
    assert own.coef_.shape == other.coef_.shape
    assert np.ndim(own.intercept_) == 0
    assert_allclose(own.predict(as_format(X, layout)), other.predict(X), rtol=1e-7)


# Errors ---------------------------------------------------------------------------------------------------------------


def test_errors_name_the_parameter():
    X, y, _ = make_table()
    with pytest.raises(ValueError, match=r"loss must be one of \['epsilon-insensitive', 'huber', 'quadratic'\]"):
        NoisyLinearRegressor("hinge").fit(X, y)
    with pytest.raises(ValueError, match=r"epsilon must be a number in \[0, inf\), got -1"):
        DropoutSVR(epsilon=-1).fit(X, y)
    with pytest.raises(ValueError, match=r"y has values up to 1.0e\+120"):
        DropoutRidge().fit(X, 1e120 * np.sign(y))
    with pytest.raises(ValueError, match="return_std=True needs missing='conditional'"):
        DropoutRidge().fit(X, y).predict(X, return_std=True)
    with pytest.raises(ValueError, match="has text as targets; a regressor needs numbers"):
        fit_files(DropoutRidge(), X, np.where(y > 100.0, "high", "low"), progress=False)
    assert not hasattr(DropoutRidge(), "partial_fit")


# Missing features -----------------------------------------------------------------------------------------------------


def test_the_deviations_are_those_of_the_predictions_of_complete_rows():
    """Rows of a Gaussian: the error by the missing features is normal with the returned deviation."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2)) @ rng.normal(size=(2, 8)) + 0.7 * rng.normal(size=(4000, 8))
    model = DropoutRidge(missing="conditional", missing_rank=2).fit(X, X @ rng.normal(size=8) + rng.normal(size=4000))
    holes = np.where(rng.random(X.shape) < 0.4, np.nan, X)
    means, deviations = model.predict(holes, return_std=True)
    complete = ~np.isnan(holes).any(axis=1)
    assert_array_equal(deviations[complete], 0.0)
    assert_allclose(means, model.predict(holes))
    errors = ((model.predict(X) - means) / np.where(complete, 1.0, deviations))[~complete]
    assert np.mean(np.abs(errors) < 1.96) == pytest.approx(0.95, abs=0.015)
    assert np.std(errors) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("n_holes", [0.0, 0.4])
def test_intervals_cover_the_numbers_of_gaussian_rows(n_holes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2)) @ rng.normal(size=(2, 8)) + 0.7 * rng.normal(size=(20_000, 8))
    y = X @ rng.normal(size=8) + 1.5 * rng.normal(size=20_000)
    training = np.where(rng.random((10_000, 8)) < 0.2 * n_holes, np.nan, X[:10_000])
    model = DropoutRidge(noise=None, missing="conditional", missing_rank=2).fit(training, y[:10_000])
    assert model.residual_deviation_ == pytest.approx(1.5, rel=0.03)
    rows, y = np.where(rng.random((10_000, 8)) < n_holes, np.nan, X[10_000:]), y[10_000:]
    for coverage in (0.5, 0.9):
        low, high = model.predict_interval(rows, coverage).T
        assert np.mean((low <= y) & (y <= high)) == pytest.approx(coverage, abs=0.02)
    assert_allclose(0.5 * (low + high), model.predict(rows))
    assert np.isfinite(model.predict_interval(rows, residual_deviation=1e200)).all()
    wide = model.predict_interval(rows, residual_deviation=100.0)
    assert_allclose(np.diff(wide)[:, 0], 2.0 * 1.6448536 * np.hypot(100.0, model.predict(rows, return_std=True)[1]))


# Errors under noise, and the search -----------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["squared", "absolute"])
@pytest.mark.parametrize("noise", [DropoutNoise(0.3), GaussianNoise(0.4), DropoutNoise(0.3, groups=[0, 0, 1, 1, 2, 2])])
def test_the_expected_error_is_that_of_many_draws(noise, metric):
    X, y, weights = make_table()
    model = DropoutRidge(noise=0.1).fit(X, y)
    drawn = noise.with_means(X.mean(axis=0)) if noise.needs_means else noise
    draws = drawn.resolve(N_FEATURES).sample(np.tile(X, (2000, 1)), random_state=0)
    residuals = y - model.predict(draws).reshape(2000, -1)
    errors = residuals**2 if metric == "squared" else np.abs(residuals)
    wanted = np.average(errors.mean(axis=0), weights=weights)
    # the squared error is exact, the absolute one takes the scores as normal
    close = 0.01 if metric == "squared" else 0.05
    assert model.expected_error(X, y, noise, weights, metric=metric) == pytest.approx(wanted, rel=close)


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_rows_in_files_give_the_same(name, tmp_path):
    X, y, weights = make_table(n_rows=90)
    model = MODELS[name][0].set_params(tol=1e-9, missing="rescale")
    paths = []
    for k, part in enumerate(np.array_split(np.arange(len(y)), 3)):
        paths.append(tmp_path / f"{k}.svm")
        dump_svmlight_file(X[part], y[part], str(paths[-1]))
    whole = clone(model).fit(as_format(X, "sparse"), y, weights)
    found = fit_files(clone(model), paths, sample_weight=weights, cache=tmp_path / "cache", progress=False)
    assert found.objective_ == pytest.approx(whole.objective_, rel=1e-8)
    assert_allclose(found.coef_, whole.coef_, atol=1e-3)
    assert_allclose(found.feature_deviations_, whole.feature_deviations_)
    assert not hasattr(found, "classes_")


SEARCHES = {
    "r2": (DropoutRidgeCV, "dense", {"Cs": 4}),
    "squared error under noise": (DropoutRidgeCV, "missing", {"target_noise": 0.3}),
    "absolute error under noise": (DropoutSVRCV, "dense", {"target_noise": 0.3, "epsilon": 0.5, "Cs": [0.1, 1.0]}),
    "another score": (DropoutSVRCV, "missing", {"scoring": "neg_root_mean_squared_error", "noises": [0.1], "Cs": 3}),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_over_rows_in_files_makes_the_choice_of_the_one_in_memory(name, monkeypatch):
    monkeypatch.setattr(cache, "BLOCK_BYTES", 1500)
    X, y, weights = make_table(n_rows=90)
    cls, layout, given = SEARCHES[name]
    if layout == "missing":
        X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    grid = {"noises": [None, 0.1, 0.4], "Cs": [0.01, 0.1, 1.0]} | given
    search = cls(cv=2, tol=1e-8, prune=False, missing="rescale", verbose=0, **grid)
    expected = clone(search).fit(X, y, weights)
    found = fit_files(clone(search), X, y, weights, progress=False)
    assert_allclose(found.Cs_, expected.Cs_)
    assert_allclose(found.scores_, expected.scores_, rtol=1e-4)
    assert found.best_index_ == expected.best_index_
    assert_allclose(found.coef_, expected.coef_, atol=1e-4)
    assert found.best_estimator_.predict(X).shape == y.shape
    assert not hasattr(found, "classes_")
