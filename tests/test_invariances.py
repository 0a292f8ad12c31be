"""What must not change a fit, or must change it in a known way, to ten digits.

``tol`` is the relative gap of the objective, so coefficients to 1e-10 need one far below 1e-20; the solvers then stop
at the limit of floating-point precision.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from datasets import (
    N_FEATURES,
    TIGHT,
    assert_bitwise_equal,
    make_binary,
    make_multiclass,
    parameters,
)
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutNoise, GaussianNoise
from invariance import BAR, CORE, ESTIMATORS, NOISES, assert_close, fit

every_loss = pytest.mark.parametrize("name", ESTIMATORS)
A_FEW = ["none", "dropout", "gaussian-per-feature"]
LAYOUTS = ["dense", "sparse"]


def _rows(X, layout):
    return sparse.csr_array(X) if layout == "sparse" else X


# Rows, weights, labels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "noise", "class_weight"), deal(CORE, NOISES, [None, "balanced"], n=12))
def test_integer_weights_equal_repeated_rows_and_zero_a_removed_one(name, noise, class_weight):
    X, y = make_binary()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    assert (weights == 0).any()
    options = {"noise": NOISES[noise], "class_weight": class_weight}
    weighted = fit(CORE[name], X, y, weights, **options)
    repeated = fit(CORE[name], X.repeat(weights, axis=0), y.repeat(weights), **options)
    assert_close(weighted, repeated)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-12)


@pytest.mark.parametrize(("name", "multi_class"), deal(CORE, ["ovr", "ovo"], n=6))
def test_integer_weights_equal_repeated_rows_with_several_classes_and_sparse_data(name, multi_class):
    X, y = make_multiclass()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    options = {"noise": 0.3, "class_weight": "balanced", "multi_class": multi_class}
    weighted = fit(CORE[name], sparse.csr_array(X), y, weights, **options)
    assert_close(weighted, fit(CORE[name], X.repeat(weights, axis=0), y.repeat(weights), **options))


@pytest.mark.parametrize(
    ("name", "l1_ratio"), deal(["svc", "logistic", "mcf-quadratic", "mcf-logistic"], [1.0, 0.5], n=4)
)
def test_integer_weights_equal_repeated_rows_under_an_l1_penalty(name, l1_ratio):
    X, y = make_binary()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    options = {"noise": 0.3, "l1_ratio": l1_ratio}
    weighted = fit(ESTIMATORS[name], X, y, weights, **options)
    repeated = fit(ESTIMATORS[name], X.repeat(weights, axis=0), y.repeat(weights), **options)
    np.testing.assert_array_equal(weighted.coef_ == 0.0, repeated.coef_ == 0.0)
    assert_close(weighted, repeated)


@pytest.mark.parametrize(("name", "noise"), deal(ESTIMATORS, NOISES, n=16))
def test_order_of_rows_and_features_does_not_matter_and_flipped_labels_flip_the_signs(name, noise):
    X, y = make_binary()
    y[:10] = 0  # classes of different sizes
    rows, columns = np.random.RandomState(6).permutation(len(y)), np.random.RandomState(7).permutation(N_FEATURES)
    noise = NOISES[noise]
    there = noise.take(columns) if hasattr(noise, "take") else noise
    moved = parameters(fit(ESTIMATORS[name], X[np.ix_(rows, columns)], 1 - y[rows], noise=there))
    straight = parameters(fit(ESTIMATORS[name], X, y, noise=noise))
    assert_close(moved, -straight[:, [*columns, N_FEATURES]])


@pytest.mark.parametrize(
    ("name", "multi_class", "labels"), deal(CORE, ["ovr", "ovo"], ["str", "int", "whole float"], n=6)
)
def test_renamed_classes_change_nothing_but_the_names(name, multi_class, labels):
    X, y = make_multiclass()
    labels = np.array({"str": ["b", "c", "d"], "int": [-7, 0, 1000], "whole float": [1.0, 3.0, 5.0]}[labels])
    plain, renamed = (fit(CORE[name], X, given, multi_class=multi_class) for given in (y, labels[y]))
    assert_bitwise_equal(renamed, plain)
    np.testing.assert_array_equal(renamed.classes_, labels)
    np.testing.assert_array_equal(renamed.predict(X), labels[plain.predict(X)])


@every_loss
def test_reordered_class_names_reorder_the_one_vs_rest_outputs(name):
    X, y = make_multiclass()
    plain, reordered = fit(ESTIMATORS[name], X, y), fit(ESTIMATORS[name], X, np.array([5, 3, 4])[y])
    assert_close(reordered, parameters(plain)[[1, 2, 0]])


@pytest.mark.parametrize(("name", "noise", "k"), deal(CORE, A_FEW, [1e-12, 1e-4, 7.0, 1e4, 1e12]))
def test_weights_times_k_with_c_over_k_is_the_same_model(name, noise, k):
    X, y = make_binary()
    weights = np.random.RandomState(8).uniform(0.5, 2.0, size=len(y))
    scaled = fit(CORE[name], X, y, weights * k, noise=NOISES[noise], C=0.5 / k)
    assert_close(scaled, fit(CORE[name], X, y, weights, noise=NOISES[noise]))


# Columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "noise", "a"), deal(CORE, ["none", "dropout", "dropout-per-feature"], [1e-6, 10.0, 1e6])
)
def test_scaled_features_with_c_over_a_squared_scale_the_weights_back(name, noise, a):
    # X w is the same for w / a, and |w|^2 / 2 shrinks by a^2: so must C, for the same balance.
    X, y = make_binary()
    scaled = parameters(fit(CORE[name], X * a, y, noise=NOISES[noise], C=0.5 / a**2))
    scaled[:, :-1] *= a
    assert_close(scaled, fit(CORE[name], X, y, noise=NOISES[noise]))


@every_loss
def test_scaled_features_and_gaussian_noise_scale_the_weights_back(name):
    X, y = make_binary()
    a = 1e3
    scaled = parameters(fit(ESTIMATORS[name], X * a, y, noise=GaussianNoise(scale=0.3 * a), C=0.5 / a**2))
    scaled[:, :-1] *= a
    assert_close(scaled, fit(ESTIMATORS[name], X, y, noise=GaussianNoise(scale=0.3)))


@pytest.mark.parametrize(("name", "noise", "layout"), deal(CORE, NOISES, LAYOUTS, n=12))
def test_an_all_zero_column_gets_no_weight_and_changes_nothing(name, noise, layout):
    X, y = make_binary()
    wider = NOISES[noise]
    if noise.endswith("per-feature"):
        wider = clone(wider).set_params(**{wider.level_name: np.insert(wider.level, 3, 0.4)})
    elif noise == "dropout-in-groups":
        wider = clone(wider).set_params(groups=np.insert(wider.groups, 3, 9))
    with_column = parameters(fit(CORE[name], _rows(np.insert(X, 3, 0.0, axis=1), layout), y, noise=wider))
    assert np.all(np.abs(with_column[:, 3]) <= 1e-12)
    assert_close(np.delete(with_column, 3, axis=1), fit(CORE[name], X, y, noise=NOISES[noise]))


@pytest.mark.parametrize(("name", "noise"), deal(CORE, ["dropout-per-feature", "gaussian-per-feature"], n=5))
def test_many_empty_columns_get_no_weight_and_change_nothing(name, noise):
    X, y = make_binary()
    used = 50 * np.arange(N_FEATURES) + 7
    wide = np.zeros((len(y), 400))
    wide[:, used] = X
    levels = np.full(400, 0.4)
    levels[used] = NOISES[noise].level
    wider = clone(NOISES[noise]).set_params(**{NOISES[noise].level_name: levels})
    with_columns = parameters(fit(CORE[name], sparse.csr_array(wide), y, noise=wider))
    assert np.all(np.delete(with_columns[0, :-1], used) == 0.0)
    assert_close(with_columns[:, [*used, 400]], fit(CORE[name], X, y, noise=NOISES[noise]))


@pytest.mark.parametrize(("name", "level"), deal(CORE, [1.0, -1e3], n=5))
def test_a_constant_column_without_noise_gets_no_weight(name, level):
    # the unpenalised intercept does the same at no cost
    X, y = make_binary()
    rates = np.append(np.full(N_FEATURES, 0.3), 0.0)
    with_column = parameters(
        fit(CORE[name], np.hstack([X, np.full((len(y), 1), level)]), y, noise=DropoutNoise(rate=rates))
    )
    plain = parameters(fit(CORE[name], X, y, noise=0.3))
    assert_close(with_column[:, :N_FEATURES], plain[:, :-1])
    assert abs(with_column[0, N_FEATURES] * level) <= 1e-8 * np.abs(plain).max()


@every_loss
def test_a_constant_column_under_dropout_gets_no_weight_and_changes_nothing(name):
    # the intercept does the same without noise: by Jensen's inequality, weight on the column only costs
    X, y = make_binary()
    with_column = parameters(fit(ESTIMATORS[name], np.hstack([X, np.ones((len(y), 1))]), y, noise=0.3))
    plain = parameters(fit(ESTIMATORS[name], X, y, noise=0.3))
    assert abs(with_column[0, N_FEATURES]) <= BAR
    assert_close(np.delete(with_column, N_FEATURES, axis=1), plain)


@pytest.mark.parametrize(("name", "noise"), deal(ESTIMATORS, ["none", "dropout", "gaussian"], n=9))
def test_a_duplicated_column_gets_the_same_weight_as_its_twin(name, noise):
    X, y = make_binary()
    twins = parameters(fit(ESTIMATORS[name], np.hstack([X, X[:, [2]]]), y, noise=NOISES[noise]))
    assert np.abs(twins[:, 2] - twins[:, N_FEATURES]).max() <= BAR * np.abs(twins).max()


def test_a_duplicated_column_without_noise_acts_as_one_of_root_two_times_the_size():
    X, y = make_binary()
    estimator = DropoutLogisticRegression(noise=None, tol=TIGHT)
    twins = parameters(fit(estimator, np.hstack([X, X[:, [2]]]), y))
    stretched = X.copy()
    stretched[:, 2] *= np.sqrt(2.0)
    one = parameters(fit(estimator, stretched, y))
    one[:, 2] /= np.sqrt(2.0)
    assert_close(np.delete(twins, N_FEATURES, axis=1), one)


@pytest.mark.parametrize(("name", "noise", "layout"), deal(CORE, NOISES, LAYOUTS, n=14))
def test_all_zero_rows_are_rows_like_any_other(name, noise, layout):
    X, y = make_binary()
    X = np.vstack([X, np.zeros((3, N_FEATURES))])
    y = np.append(y, [0, 0, 1])
    model = fit(CORE[name], _rows(X, layout), y, noise=NOISES[noise])
    assert np.isfinite(parameters(model)).all()
    tiny = X.copy()
    tiny[-3:] = 1e-30
    assert_close(model, fit(CORE[name], tiny, y, noise=NOISES[noise]), bar=1e-9)
