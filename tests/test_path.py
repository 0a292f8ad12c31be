"""`noise_path`, its grid and its walk: every point is the fit that a plain classifier would have made there."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import get_scorer
from sklearn.preprocessing import scale

from datasets import N_FEATURES, TIGHT, estimators, make_binary, make_multiclass, relative_difference
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    GaussianNoise,
    LaplaceNoise,
    MCFClassifier,
    PoissonNoise,
    noise_path,
)

# The hinge without noise has a kink and does not get further than this; it is worth six digits of the coefficients.
_TOL, _DIGITS = 1e-12, 1e-5
_NOISES = [
    GaussianNoise(scale=0.3),
    0.3,
    None,
    PoissonNoise(),
    DropoutNoise(rate=np.linspace(0.0, 0.8, N_FEATURES)),
    0.7,
    GaussianNoise(scale=np.linspace(0.0, 0.6, N_FEATURES)),
]
_CS = [0.1, 1.0]
_ESTIMATORS = estimators(tol=_TOL)
both = pytest.mark.parametrize("plain", [DropoutSVC, DropoutLogisticRegression])


def _assert_cold_fits(path, estimator, X, y, weights=None, digits=_DIGITS):
    """Check that a path has, at every point, the coefficients and the objective of a fit that knows of no other."""
    for row, noise in enumerate(path.noises):
        for column, C in enumerate(path.Cs):
            cold = clone(estimator).set_params(noise=noise, C=C).fit(X, y, weights)
            warm = np.hstack([path.coefs[row, column], path.intercepts[row, column][:, None]])
            assert relative_difference(warm, cold) < digits, (noise, C)
            assert path.objectives[row, column] == pytest.approx(cold.objective_, rel=digits**2)
            np.testing.assert_array_equal(path.classes, cold.classes_)


# The solutions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "make"), deal(_ESTIMATORS, [make_binary, make_multiclass], n=10))
def test_every_point_is_the_fit_with_that_noise_and_c(name, make):
    X, y = make()
    estimator, start = _ESTIMATORS[name], list(_ESTIMATORS).index(name) % 2
    noises = [*_NOISES[start::2], 0.5] if make is make_binary else [0.7, PoissonNoise(), 0.3]
    path = noise_path(X, y, noises, _CS, estimator=estimator)
    assert path.coefs.shape == (len(noises), 2, 1 if make is make_binary else 3, N_FEATURES)
    assert path.converged.all()
    _assert_cold_fits(path, estimator, X, y)


_VARIANTS = {
    "one-vs-one": {"multi_class": "ovo"},
    "no offset": {"fit_intercept": False},
    "balanced": {"class_weight": "balanced"},
    "class weights": {"class_weight": {0: 2.0, 1: 0.5, 2: 1.0}},
    "l1": {"l1_ratio": 1.0},
    "elastic net": {"l1_ratio": 0.3},
}


@pytest.mark.parametrize(("variant", "plain"), deal(_VARIANTS, [DropoutSVC, DropoutLogisticRegression], n=8))
def test_every_option_of_the_estimator_holds_along_the_path(variant, plain):
    X, y = make_multiclass(n_samples=60)
    estimator = plain(tol=1e-10, **_VARIANTS[variant])
    _assert_cold_fits(noise_path(X, y, [0.3, 0.6], _CS, estimator=estimator), estimator, X, y, digits=1e-4)


@both
def test_weights_of_rows_are_those_of_the_fits(plain):
    X, y = make_multiclass()
    weights = np.random.RandomState(0).uniform(0.0, 3.0, len(y)) * (np.arange(len(y)) % 5 > 0)
    path = noise_path(X, y, [0.5, PoissonNoise(), 0.2], _CS, estimator=plain(tol=_TOL), sample_weight=weights)
    _assert_cold_fits(path, plain(tol=_TOL), X, y, weights)


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
def test_laplace_noise_keeps_within_the_bounds_of_its_mgf(loss):
    # each scale bounds the weights, |w| < 1 / scale: a neighbour's solution may be out of them
    X, y = make_binary()
    estimator = MCFClassifier(loss, tol=_TOL)
    path = noise_path(
        X, y, [LaplaceNoise(0.1), LaplaceNoise(1.0), LaplaceNoise(0.4)], [0.1, 100.0, 1e4], estimator=estimator
    )
    _assert_cold_fits(path, estimator, X, y)


def test_features_far_from_zero_under_noises_of_which_some_allow_a_shift():
    """Rows are centred for Gaussian noise, but not for dropout to zero: neither takes the other's."""
    X, y = make_binary()
    X = np.abs(X) + 10.0
    estimator = MCFClassifier("logistic", tol=_TOL)
    noises = [DropoutNoise(0.3, reference="zero"), GaussianNoise(scale=0.3)]
    _assert_cold_fits(noise_path(X, y, noises, [0.1], estimator=estimator, verbose=0), estimator, X, y)


@pytest.mark.parametrize(
    ("rows", "layout"), [("some without features", sparse.csr_array), ("one class against four", np.asarray)]
)
def test_a_start_at_a_kink_of_the_hinge_is_left_again(rows, layout):
    # strong noise and a low C leave no weights, only an offset at the kink, where all curvatures look high
    X, y = make_binary(200, 20) if rows == "some without features" else make_multiclass(200, 20, 5)
    if rows == "some without features":
        X[::3], y[::4] = 0.0, 1
    path = noise_path(layout(X), y, [0.9, 0.5, 0.1], [0.001, 0.01, 0.1])
    for row, noise in enumerate(path.noises):
        for column, C in enumerate(path.Cs):
            cold = DropoutSVC(noise=noise, C=C, tol=1e-8).fit(layout(X), y)
            assert path.objectives[row, column] <= (1.0 + 2e-4) * cold.objective_


# The scores ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scoring", [None, "roc_auc", "neg_log_loss", lambda model, X, y: model.coef_[0, 0]])
def test_scores_are_those_of_the_fits_on_the_test_rows(scoring):
    X, y = make_binary(120)
    train, test = slice(0, 80), slice(80, None)
    estimator = DropoutLogisticRegression(tol=TIGHT)
    given = {"X_test": X[test], "y_test": y[test], "scoring": scoring}
    path = noise_path(X[train], y[train], [0.0, 0.5, GaussianNoise(0.4)], [0.1, 1.0], estimator=estimator, **given)
    score = get_scorer(scoring or "accuracy") if not callable(scoring) else scoring
    for row, noise in enumerate(path.noises):
        for column, C in enumerate(path.Cs):
            plain = clone(estimator).set_params(noise=noise, C=C).fit(X[train], y[train])
            assert path.scores[row, column] == pytest.approx(score(plain, X[test], y[test]), rel=1e-9)


def test_without_test_rows_the_training_rows_are_scored():
    X, y = make_binary()
    path = noise_path(X, y, [0.5], [1.0])
    assert path.scores[0, 0] == DropoutSVC(noise=0.5).fit(X, y).score(X, y)


# The grid -----------------------------------------------------------------------------------------------------------


def test_the_default_grid():
    X, y = make_binary()
    path = noise_path(X, y, 10, 13)
    np.testing.assert_allclose([noise.rate for noise in path.noises], np.arange(10) / 10)
    # powers of sqrt(10), from a tenth of the inverse scale of the rows to 100,000 times it
    exponents = 2.0 * np.log10(path.Cs)
    np.testing.assert_allclose(exponents, np.arange(13) + np.round(exponents[0]), atol=1e-9)
    spread = np.mean(np.sum((X - X.mean(axis=0)) ** 2, axis=1))
    assert abs(exponents[0] - 2.0 * np.log10(0.1 / spread)) <= 0.5 + 1e-9
    for count in (1, 2, 5):
        path = noise_path(X, y, count, count)
        assert path.scores.shape == (count, count)
        assert np.all(np.diff(path.Cs) > 0.0)
        assert len({noise.rate for noise in path.noises}) == count


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_the_default_grid_follows_the_scale_of_the_data(factor, layout):
    X, y = make_binary()
    usual, other = (noise_path(layout(rows), y, [0.3, 0.1], 7) for rows in (X, factor * X))
    np.testing.assert_allclose(other.Cs, usual.Cs / factor**2)
    np.testing.assert_allclose(other.objectives, usual.objectives / factor**2, rtol=1e-3)
    np.testing.assert_allclose(other.scores, usual.scores, atol=0.02)


def test_the_default_grid_of_rows_that_say_nothing():
    y = np.arange(20) % 2
    for X in (np.zeros((20, 3)), np.full((20, 3), 7.0), sparse.csr_array((20, 3))):
        path = noise_path(X, y, [0.5], 4)
        assert np.isfinite(path.Cs).all()
        assert np.isfinite(path.coefs).all()


# What it is for -----------------------------------------------------------------------------------------------------


@both
def test_a_path_takes_far_fewer_iterations_than_as_many_fits(plain):
    X, y = load_breast_cancer(return_X_y=True)
    X, noises, Cs = scale(X), [0.9, 0.7, 0.5, 0.3], 10.0 ** np.arange(-3, 1)
    path = noise_path(X, y, noises, Cs, estimator=plain())
    cold = [plain(noise=noise, C=C).fit(X, y).n_iter_ for noise in noises for C in Cs]
    assert path.n_iter.sum() < 0.7 * sum(cold)


# Values of C that are not solved ------------------------------------------------------------------------------------


def test_outputs_without_coefficients_are_those_of_single_fits():
    X, y = make_multiclass(n_samples=90)
    y = np.where(y == 2, np.arange(len(y)) % 4 + 2, y)  # rare classes, which strong noise leaves without coefficients
    estimator = DropoutSVC(tol=1e-6)
    Cs = [0.01, 0.1, 1.0, 10.0]
    path = noise_path(X, y, [0.9, 0.6, 0.2], Cs, estimator=estimator, verbose=0)
    is_constant = ~path.coefs.any(axis=-1)
    assert is_constant.any()
    assert not is_constant.all()
    # zero for a larger C or a weaker noise, zero for a smaller C and a stronger noise
    assert np.all(is_constant[:, :-1] >= is_constant[:, 1:])
    assert np.all(is_constant[:-1] >= is_constant[1:])
    for row, column in np.ndindex(path.objectives.shape):
        cold = clone(estimator).set_params(noise=path.noises[row], C=Cs[column]).fit(X, y)
        assert path.objectives[row, column] == pytest.approx(cold.objective_, rel=3e-6)


@pytest.mark.parametrize("missing", ["error", "rescale"])
def test_a_target_noise_scores_rows_as_they_will_be(missing):
    X, y = make_binary()
    estimator = DropoutSVC(missing=missing, tol=1e-9)
    path = noise_path(X, y, [0.0, 0.3], [0.1], estimator=estimator, target_noise=0.5, verbose=0)
    for scores, rate in zip(path.scores, (0.0, 0.3), strict=True):
        model = clone(estimator).set_params(noise=rate, C=0.1).fit(X, y)
        if missing == "error":
            expected = model.expected_accuracy(X, y, DropoutNoise(0.5))
        else:  # the mean over copies whose entries are deleted
            draws = np.random.default_rng(1).random((200, *X.shape)) < 0.5
            expected = np.mean([model.score(np.where(deleted, np.nan, X), y) for deleted in draws])
        assert scores[0] == pytest.approx(expected, abs=1e-4 if missing == "error" else 0.01)
