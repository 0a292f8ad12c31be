"""Regressors: their optima, what they are without noise, missing features, search, files."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file, load_diabetes
from sklearn.linear_model import HuberRegressor, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import scale
from sklearn.svm import SVR

import dropmargin
from dealing import deal
from dropmargin import (
    DeletionCurveDisplay,
    DropoutNoise,
    DropoutRidge,
    DropoutRidgeCV,
    DropoutSVR,
    DropoutSVRCV,
    GaussianNoise,
    NoisyLinearRegressor,
    corruption_curve,
    deletion_curve,
)
from dropmargin.io.model import describe
from dropmargin.losses import EpsilonInsensitive, GaussianHuber, Huber, Quadratic
from dropmargin.streaming import fit as fit_files
from helpers import N_FEATURES, NOISES, as_format, plain_score_variance
from regression_data import make_table, plain_loss

# Small grids, whose ends are chosen.
pytestmark = pytest.mark.filterwarnings("ignore:The chosen")

# Optima ---------------------------------------------------------------------------------------------------------------

MODELS = {
    "ridge": (DropoutRidge(), Quadratic()),
    "svr": (DropoutSVR(epsilon=0.5), EpsilonInsensitive(0.5)),
    "huber": (NoisyLinearRegressor(Huber(1.5)), Huber(1.5)),
    "gaussian huber": (NoisyLinearRegressor(GaussianHuber(1.5)), GaussianHuber(1.5)),
}
CASES = deal(MODELS, NOISES, ["dense", "sparse"], [0.0, 0.5, 1.0], n=24)


@pytest.mark.parametrize(("name", "noise", "layout", "l1_ratio"), CASES)
def test_the_optimum_is_that_of_an_independent_optimiser(name, noise, layout, l1_ratio):
    X, y, weights = make_table()
    model, loss = MODELS[name]
    given = {"noise": NOISES[noise], "C": 0.3, "l1_ratio": l1_ratio, "tol": 1e-9}
    model = type(model)(**{**model.get_params(), **given}).fit(as_format(X, layout), y, weights)
    assert model.converged_

    def objective(at):
        w, m = at[:-1], X @ at[:-1] + at[-1]
        v = np.zeros(len(y)) if NOISES[noise] is None else plain_score_variance(NOISES[noise], X, w)
        penalty = 0.5 * (1.0 - l1_ratio) * w @ w + l1_ratio * np.abs(w).sum()
        plain = plain_loss(loss, y - m) if NOISES[noise] is None else loss.value(y, m, v)
        return penalty + 0.3 * weights @ plain

    found = np.append(model.coef_, model.intercept_)
    assert objective(found) == pytest.approx(model.objective_, rel=1e-9)
    starts = [found, np.append(np.zeros(N_FEATURES), np.mean(y))]
    others = [minimize(objective, start, method=method).fun for start in starts for method in ("L-BFGS-B", "Powell")]
    assert model.objective_ <= min(others) * (1.0 + 1e-6)


@pytest.mark.parametrize("solver", ["newton", "irls", "lbfgs"])
@pytest.mark.parametrize("name", ["ridge", "svr", "huber"])
def test_all_solvers_find_the_same(name, solver):
    X, y, _ = make_table()
    model = MODELS[name][0]
    best = model.set_params(tol=1e-9, solver="auto", noise=0.2).fit(X, y).objective_
    own = type(model)(**{**model.get_params(), "solver": solver}).fit(X, y)
    assert own.objective_ == pytest.approx(best, rel=1e-6)


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


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_without_noise_it_is_support_vector_regression(layout):
    X, y, weights = make_table()
    own = DropoutSVR(noise=None, C=0.3, epsilon=0.5, tol=1e-10).fit(as_format(X, layout), y, weights)
    # SVR, unlike LinearSVR, has an intercept without a penalty.
    other = SVR(kernel="linear", C=0.3, epsilon=0.5, tol=1e-10).fit(X, y, weights)
    assert_allclose(own.coef_, other.coef_[0], atol=1e-5)

    def objective(coef, intercept):
        return 0.5 * coef @ coef + 0.3 * weights @ np.maximum(np.abs(y - X @ coef - intercept) - 0.5, 0.0)

    assert own.objective_ == pytest.approx(objective(other.coef_[0], other.intercept_[0]), rel=1e-6)
    assert own.objective_ == pytest.approx(objective(own.coef_, own.intercept_), rel=1e-9)


def test_gaussian_noise_is_a_stronger_ridge():
    X, y, _ = make_table()
    noisy = DropoutRidge(noise=GaussianNoise(scale=0.5), C=2.0).fit(X, y)
    # w^2 / 2 + C n s^2 w^2 = alpha C w^2
    assert_allclose(noisy.coef_, Ridge(alpha=1.0 / 4.0 + len(y) * 0.25).fit(X, y).coef_, rtol=1e-8)


def test_without_noise_the_huber_loss_is_that_of_scikit_learn_at_its_scale():
    X, y, _ = make_table()
    other = HuberRegressor(epsilon=1.5, alpha=1e-3, tol=1e-10, max_iter=10_000).fit(X, y)
    # its objective at a fixed scale s is alpha w^2 + s sum H(r / s), with H twice ours and delta = epsilon s
    delta = other.epsilon * other.scale_
    own = NoisyLinearRegressor(Huber(delta), noise=None, C=1.0 / (other.scale_ * 1e-3), tol=1e-14).fit(X, y)
    assert_allclose(own.coef_, other.coef_, rtol=1e-3)


@pytest.mark.parametrize("noise", ["dropout to a reference", "dropout in groups", "gaussian", "poisson"])
def test_it_is_the_ridge_of_many_corrupted_copies(noise):
    X, y, _ = make_table()
    noise = NOISES[noise]
    n_copies = 4000
    copies = noise.sample(np.tile(X, (n_copies, 1)), random_state=0)
    other = Ridge(alpha=n_copies / 2.0).fit(copies, np.tile(y, n_copies))
    own = DropoutRidge(noise=noise, C=1.0).fit(X, y)
    assert_allclose(own.coef_, other.coef_, atol=0.05)
    assert own.coef_ @ other.coef_ > 0.999 * np.linalg.norm(own.coef_) * np.linalg.norm(other.coef_)


def test_a_dense_ridge_takes_one_newton_step():
    X, y, _ = make_table(n_rows=300)
    model = DropoutRidge(noise=0.3).fit(X, y)
    assert model.n_iter_ == 1
    assert_allclose(model.coef_, DropoutRidge(noise=0.3, solver="lbfgs", tol=1e-12).fit(X, y).coef_, rtol=1e-4)


def test_targets_within_the_tube_need_no_coefficients():
    X, _, _ = make_table()
    y = np.linspace(5.0, 5.2, len(X)) ** 3
    model = DropoutSVR(epsilon=np.ptp(y) / 2.0 + 1e-9).fit(X, y)
    assert model.converged_
    assert model.objective_ == 0.0
    assert not model.coef_.any()
    assert not DropoutRidge().fit(X, np.full(len(X), 3.0)).coef_.any()


def test_the_unit_of_the_targets_scales_the_solution():
    X, y, _ = make_table()
    one = DropoutRidge(noise=0.2).fit(X, y)
    assert_allclose(DropoutRidge(noise=0.2).fit(X, 1e6 * y).coef_, 1e6 * one.coef_, rtol=1e-8)
    svr = DropoutSVR(noise=0.2, epsilon=0.1, C=1.0, tol=1e-10).fit(X, y)
    large = DropoutSVR(noise=0.2, epsilon=1e5, C=1e6, tol=1e-10).fit(X, 1e6 * y)
    assert_allclose(large.coef_, 1e6 * svr.coef_, rtol=1e-3, atol=1e-3)


# Errors ---------------------------------------------------------------------------------------------------------------


def test_errors_name_the_parameter():
    X, y, _ = make_table()
    with pytest.raises(ValueError, match=r"loss must be one of \['epsilon-insensitive', 'huber', 'quadratic'\]"):
        NoisyLinearRegressor("hinge").fit(X, y)
    with pytest.raises(ValueError, match=r"not available for the quadratic loss.*choose loss='huber'"):
        NoisyLinearRegressor("quadratic", approximation="gaussian").fit(X, y)
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


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    holes = np.where(np.random.default_rng(0).random(X.shape) < 0.3, np.nan, scale(X))
    return scale(X), holes, y


@pytest.mark.parametrize("model", [DropoutRidge(C=0.1), DropoutSVR(C=10.0)], ids=["ridge", "svr"])
@pytest.mark.parametrize("missing", ["rescale", "conditional"])
def test_incomplete_rows_are_better_than_the_mean(diabetes, model, missing):
    X, holes, y = diabetes
    model = type(model)(**{**model.get_params(), "missing": missing}).fit(X[:300], y[:300])
    assert model.score(holes[300:], y[300:]) > 0.25
    assert_allclose(model.predict(X[300:]), X[300:] @ model.coef_ + model.intercept_)
    assert model.fit(holes[:300], y[:300]).score(holes[300:], y[300:]) > 0.2


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


def test_the_residuals_count_the_degrees_of_freedom():
    """As in ordinary least squares, with any number of features; weights of zero are no rows."""
    rng = np.random.default_rng(0)
    deviations = []
    for _ in range(300):
        X, weights = rng.normal(size=(30, 12)), np.repeat([1.0, 0.0], [24, 6])
        deviations.append(DropoutRidge(noise=None, C=1e6).fit(X, rng.normal(size=30), weights).residual_deviation_)
    assert np.sqrt(np.mean(np.square(deviations))) == pytest.approx(1.0, abs=0.05)


def test_intervals_that_cannot_be_computed_are_errors(tmp_path):
    X, y, _ = make_table()
    rescaled = DropoutRidge(missing="rescale").fit(X, y)
    assert rescaled.predict_interval(X).shape == (len(y), 2)
    with pytest.raises(ValueError, match="Intervals of rows with missing features need missing='conditional'"):
        rescaled.predict_interval(np.where(X > 1.0, np.nan, X))
    for coverage in (90, 0.0, 1.0, None):
        with pytest.raises(ValueError, match=r"coverage must be a number in \(0, 1\), such as 0.9, got"):
            rescaled.predict_interval(X, coverage=coverage)
    for model in (rescaled.fit(X[:5], y[:5]), fit_files(clone(rescaled), X, y, cache=tmp_path, progress=False)):
        with pytest.raises(ValueError, match="residual_deviation is not known from this fit"):
            model.predict_interval(X)
        assert_allclose(np.diff(model.predict_interval(X, residual_deviation=0.0)), 0.0)


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


def test_a_search_chooses_as_a_grid_search(diabetes):
    X, _, y = diabetes
    grid = {"noise": [None, 0.1, 0.4], "C": [1e-3, 1e-2, 0.1]}
    own = DropoutRidgeCV(noises=grid["noise"], Cs=grid["C"], verbose=0).fit(X, y)
    other = GridSearchCV(DropoutRidge(), grid).fit(X, y)
    assert own.best_score_ == pytest.approx(other.best_score_, rel=1e-8)
    assert {"noise": own.noise_, "C": own.C_} == other.best_params_
    assert own.coef_.shape == (X.shape[1],)
    assert own.score(X, y) == pytest.approx(own.best_estimator_.score(X, y))


@pytest.mark.parametrize(
    ("model", "scoring", "metric"),
    [
        (DropoutRidgeCV, None, "squared"),
        (DropoutSVRCV, None, "absolute"),
        (DropoutSVRCV, "neg_mean_squared_error", "squared"),
    ],
)
def test_a_search_under_a_target_noise_scores_by_the_expected_error(diabetes, model, scoring, metric):
    X, _, y = diabetes
    train, test = np.arange(300), np.arange(300, len(y))
    search = model(noises=[0.0, 0.3], Cs=[0.1, 10.0], cv=[(train, test)], target_noise=0.4, scoring=scoring, verbose=0)
    search.fit(X, y)
    plain = search._plain_class(noise=0.3, C=10.0, tol=1e-5).fit(X[train], y[train])
    wanted = -plain.expected_error(X[test], y[test], 0.4, metric=metric)
    assert search.scores_[0, 1, 1] == pytest.approx(wanted, rel=1e-2)
    assert search.noise_.rate == 0.3


def test_a_target_noise_refuses_other_scores(diabetes):
    X, _, y = diabetes
    with pytest.raises(ValueError, match="scoring must be None or one of"):
        DropoutRidgeCV(target_noise=0.3, scoring="r2").fit(X, y)


def test_default_values_of_c_follow_the_unit_of_the_targets(diabetes):
    X, _, y = diabetes
    one, other = (DropoutSVRCV(noises=[0.1], Cs=3, epsilon=s, verbose=0).fit(X, s * y) for s in (1.0, 100.0))
    assert_allclose(other.Cs_, 100.0 * one.Cs_)


def test_deletion_curves_score_regressors(diabetes):
    X, _, y = diabetes
    model = DropoutRidge(missing="conditional", C=0.1).fit(X, y)
    given = {"levels": [0.0, 0.5], "fill": np.nan, "random_state": 0, "verbose": 0}
    curve = deletion_curve(model, X, y, **given)
    assert curve.scoring == "neg_root_mean_squared_error"
    assert curve.mean[0] == pytest.approx(-np.sqrt(np.mean((y - model.predict(X)) ** 2)))
    assert curve.mean[1] < curve.mean[0]
    assert deletion_curve(model, X, y, scoring="r2", **given).mean[0] == pytest.approx(model.score(X, y))
    noisy = corruption_curve(model, X, y, [None, GaussianNoise(0.5)], random_state=0, verbose=0)
    assert noisy.mean[0] == curve.mean[0] > noisy.mean[1]


def test_a_deletion_plot_of_regressors_shows_the_error(diabetes):
    X, _, y = diabetes
    given = {"levels": [0.0, 0.5], "fill": np.nan, "random_state": 0, "verbose": 0}
    models = [model.fit(X, y) for model in (DropoutRidge(missing="rescale"), DropoutSVR(missing="rescale"))]
    display = DeletionCurveDisplay.from_estimators(models, X, y, **given)
    assert display.ax_.get_ylabel() == "root mean squared error"
    curves = [curve.mean for curve in display.curves.values()]
    assert_allclose([line.get_ydata() for line in display.lines_], -np.array(curves))
    shown = display.plot(show="score")
    assert shown.ax_.get_ylabel() == "neg root mean squared error"
    assert_allclose(shown.lines_[0].get_ydata(), curves[0])


# Files ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        DropoutRidge(noise=DropoutNoise(0.2, groups=[0, 0, 1, 1, 2, 2]), missing="rescale"),
        DropoutSVR(epsilon=1.5, missing="conditional"),
        NoisyLinearRegressor(GaussianHuber(2.0), l1_ratio=0.5),
        DropoutRidgeCV(noises=[0.1], Cs=[1.0], verbose=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_files_and_pickles_keep_a_model(model, tmp_path):
    X, y, _ = make_table()
    model.fit(X, y)
    path = tmp_path / "model.safetensors"
    dropmargin.save(model, path)
    plain, loaded = getattr(model, "best_estimator_", model), dropmargin.load(path)
    assert type(loaded) is type(plain)
    assert describe(path)["classes"] is None
    if model.get_params().get("missing", "error") != "error":
        X[:5, 2] = np.nan
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        assert_array_equal(other.predict(X), model.predict(X))
        assert_array_equal(other.coef_, model.coef_)
        assert other.coef_.shape == model.coef_.shape
        if np.isfinite(X).all() or plain.missing == "conditional":
            assert_array_equal(other.predict_interval(X), model.predict_interval(X))
    sparse_one = loaded.sparsify()
    assert_allclose(sparse_one.predict(X), model.predict(X))
    assert_array_equal(sparse_one.densify().coef_, model.coef_)


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
def test_a_search_over_rows_in_files_makes_the_choice_of_the_one_in_memory(name, tmp_path):
    X, y, weights = make_table(n_rows=90)
    cls, layout, given = SEARCHES[name]
    if layout == "missing":
        X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    grid = {"noises": [None, 0.1, 0.4], "Cs": [0.01, 0.1, 1.0]} | given
    search = cls(cv=2, tol=1e-8, prune=False, missing="rescale", verbose=0, **grid)
    expected = clone(search).fit(X, y, weights)
    found = fit_files(clone(search), X, y, weights, block_bytes=1500, cache=tmp_path, progress=False)
    assert_allclose(found.Cs_, expected.Cs_)
    assert_allclose(found.scores_, expected.scores_, rtol=1e-4)
    assert found.best_index_ == expected.best_index_
    assert_allclose(found.coef_, expected.coef_, atol=1e-4)
    assert found.best_estimator_.predict(X).shape == y.shape
    assert not hasattr(found, "classes_")


@pytest.mark.parametrize("model", [DropoutRidge(), DropoutSVR(epsilon=0.5)], ids=["ridge", "svr"])
def test_a_warm_start_and_threads_keep_the_solution(model):
    X, y, _ = make_table(n_rows=400)
    model = type(model)(**{**model.get_params(), "warm_start": True, "tol": 1e-8}).fit(X, y)
    cold = model.coef_
    assert_allclose(model.fit(X, y).coef_, cold, atol=1e-4)
    threads = type(model)(**{**model.get_params(), "n_jobs": 2, "warm_start": False}).fit(X, y)
    assert_array_equal(threads.coef_, cold)


@pytest.mark.parametrize("y", [np.zeros(9), np.zeros(11)])
def test_an_expected_error_needs_a_target_for_each_row(y):
    X = np.random.default_rng(0).normal(size=(10, 3))
    model = DropoutRidge().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.expected_error(X, y)
