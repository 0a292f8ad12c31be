"""What must not change a fit, or must change it in a known way: RELIABILITY tests 6 to 13, to ten digits.

``tol`` is the relative gap of the objective, so coefficients to 1e-10 need one far below 1e-20; the solvers then stop
at the limit of floating-point precision.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from datasets import (
    N_FEATURES,
    TIGHT,
    assert_bitwise_equal,
    make_binary,
    make_multiclass,
    parameters,
)
from dropmargin import DropoutLogisticRegression, DropoutNoise, GaussianNoise
from invariance import (
    BAR,
    ESTIMATORS,
    NOISES,
    a_few_noises,
    assert_close,
    each_core_loss,
    every_loss,
    every_noise,
    fit,
)

# Rows, weights, labels --------------------------------------------------------------------------------------------


@each_core_loss
@every_noise
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_integer_weights_equal_repeated_rows_and_zero_a_removed_one(estimator, noise, class_weight):
    X, y = make_binary()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    assert (weights == 0).any()
    weighted = fit(estimator, X, y, weights, noise=noise, class_weight=class_weight)
    repeated = fit(estimator, X.repeat(weights, axis=0), y.repeat(weights), noise=noise, class_weight=class_weight)
    assert_close(weighted, repeated)
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-12)


@each_core_loss
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_integer_weights_equal_repeated_rows_with_several_classes_and_sparse_data(estimator, multi_class):
    X, y = make_multiclass()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    options = {"noise": 0.3, "class_weight": "balanced", "multi_class": multi_class}
    weighted = fit(estimator, sparse.csr_array(X), y, weights, **options)
    assert_close(weighted, fit(estimator, X.repeat(weights, axis=0), y.repeat(weights), **options))


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
@pytest.mark.parametrize("name", ["svc", "logistic", "mcf-quadratic", "mcf-logistic"])
def test_integer_weights_equal_repeated_rows_under_an_l1_penalty(name, l1_ratio):
    X, y = make_binary()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    options = {"noise": 0.3, "l1_ratio": l1_ratio}
    weighted = fit(ESTIMATORS[name], X, y, weights, **options)
    repeated = fit(ESTIMATORS[name], X.repeat(weights, axis=0), y.repeat(weights), **options)
    np.testing.assert_array_equal(weighted.coef_ == 0.0, repeated.coef_ == 0.0)
    assert_close(weighted, repeated)


@every_loss
@every_noise
def test_row_order_does_not_matter(estimator, noise):
    X, y = make_binary()
    order = np.random.RandomState(6).permutation(len(y))
    assert_close(fit(estimator, X[order], y[order], noise=noise), fit(estimator, X, y, noise=noise))


@every_loss
@every_noise
def test_permuted_features_permute_the_coefficients(estimator, noise):
    X, y = make_binary()
    order = np.random.RandomState(7).permutation(N_FEATURES)
    there = noise.take(order) if hasattr(noise, "take") else noise
    permuted = parameters(fit(estimator, X[:, order], y, noise=there))
    straight = parameters(fit(estimator, X, y, noise=noise))
    assert_close(permuted, straight[:, [*order, N_FEATURES]])


@every_loss
@every_noise
def test_flipped_labels_flip_the_coefficients(estimator, noise):
    X, y = make_binary()
    y[:10] = 0  # classes of different sizes
    flipped = fit(estimator, X, 1 - y, noise=noise)
    assert_close(parameters(flipped), -parameters(fit(estimator, X, y, noise=noise)))


@each_core_loss
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
@pytest.mark.parametrize("names", [["b", "c", "d"], [-7, 0, 1000], [0.5, 1.5, 2.5]], ids=["str", "int", "float"])
def test_renamed_classes_change_nothing_but_the_names(estimator, multi_class, names):
    X, y = make_multiclass()
    names = np.array(names)
    # whole floats are classes, fractions are a regression target
    names = 2.0 * names if names.dtype.kind == "f" else names
    plain, renamed = (fit(estimator, X, labels, multi_class=multi_class) for labels in (y, names[y]))
    assert_bitwise_equal(renamed, plain)
    np.testing.assert_array_equal(renamed.classes_, names)
    np.testing.assert_array_equal(renamed.predict(X), names[plain.predict(X)])


@every_loss
def test_reordered_class_names_reorder_the_one_vs_rest_columns(estimator):
    X, y = make_multiclass()
    plain, reordered = fit(estimator, X, y), fit(estimator, X, np.array([5, 3, 4])[y])
    assert_close(reordered, parameters(plain)[[1, 2, 0]])


@each_core_loss
@a_few_noises
@pytest.mark.parametrize("k", [1e-12, 1e-4, 7.0, 1e4, 1e12])
def test_weights_times_k_with_c_over_k_is_the_same_model(estimator, noise, k):
    X, y = make_binary()
    weights = np.random.RandomState(8).uniform(0.5, 2.0, size=len(y))
    scaled = fit(estimator, X, y, weights * k, noise=noise, C=0.5 / k)
    assert_close(scaled, fit(estimator, X, y, weights, noise=noise))


# Columns ----------------------------------------------------------------------------------------------------------


@each_core_loss
@pytest.mark.parametrize(
    "noise", [None, 0.3, NOISES["dropout-per-feature"]], ids=["none", "dropout", "dropout-per-feature"]
)
@pytest.mark.parametrize("a", [1e-6, 10.0, 1e6])
def test_scaled_features_with_c_over_a_squared_scale_the_weights_back(estimator, noise, a):
    # X w is the same for w / a, and |w|^2 / 2 shrinks by a^2: so must C, for the same balance.
    X, y = make_binary()
    scaled = parameters(fit(estimator, X * a, y, noise=noise, C=0.5 / a**2))
    scaled[:, :-1] *= a
    assert_close(scaled, fit(estimator, X, y, noise=noise))


@every_loss
def test_scaled_features_and_gaussian_noise_scale_the_weights_back(estimator):
    X, y = make_binary()
    a = 1e3
    scaled = parameters(fit(estimator, X * a, y, noise=GaussianNoise(scale=0.3 * a), C=0.5 / a**2))
    scaled[:, :-1] *= a
    assert_close(scaled, fit(estimator, X, y, noise=GaussianNoise(scale=0.3)))


@each_core_loss
@every_noise
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_an_all_zero_column_gets_no_weight_and_changes_nothing(estimator, noise, as_sparse):
    X, y = make_binary()
    per_feature = {"dropout-per-feature": DropoutNoise, "gaussian-per-feature": GaussianNoise}
    wider = noise
    for name, kind in per_feature.items():
        if noise is NOISES[name]:
            values = next(iter(noise.get_params().values()))
            wider = kind(np.insert(values, 3, 0.4))
    widened = np.insert(X, 3, 0.0, axis=1)
    with_column = parameters(fit(estimator, sparse.csr_array(widened) if as_sparse else widened, y, noise=wider))
    assert np.all(np.abs(with_column[:, 3]) <= 1e-12)
    assert_close(np.delete(with_column, 3, axis=1), fit(estimator, X, y, noise=noise))


@each_core_loss
@pytest.mark.parametrize("level", [1.0, -1e3])
def test_a_constant_column_without_noise_gets_no_weight(estimator, level):
    # the unpenalised offset does its work for nothing
    X, y = make_binary()
    rates = np.append(np.full(N_FEATURES, 0.3), 0.0)
    with_column = parameters(
        fit(estimator, np.hstack([X, np.full((len(y), 1), level)]), y, noise=DropoutNoise(rate=rates))
    )
    plain = parameters(fit(estimator, X, y, noise=0.3))
    assert_close(with_column[:, :N_FEATURES], plain[:, :-1])
    assert abs(with_column[0, N_FEATURES] * level) <= 1e-8 * np.abs(plain).max()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_constant_column_under_dropout_gets_no_weight_and_changes_nothing(name):
    # whatever it could do the offset does without noise: by Jensen's inequality, weight on it only costs
    X, y = make_binary()
    with_column = parameters(fit(ESTIMATORS[name], np.hstack([X, np.ones((len(y), 1))]), y, noise=0.3))
    plain = parameters(fit(ESTIMATORS[name], X, y, noise=0.3))
    assert abs(with_column[0, N_FEATURES]) <= BAR
    assert_close(np.delete(with_column, N_FEATURES, axis=1), plain)


@every_loss
@a_few_noises
def test_a_duplicated_column_gets_the_same_weight_as_its_twin(estimator, noise):
    X, y = make_binary()
    noise = None if noise is None else (0.3 if isinstance(noise, float) else GaussianNoise(scale=0.3))
    twins = parameters(fit(estimator, np.hstack([X, X[:, [2]]]), y, noise=noise))
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


@each_core_loss
@every_noise
@pytest.mark.parametrize("as_sparse", [False, True], ids=["dense", "sparse"])
def test_all_zero_rows_are_rows_like_any_other(estimator, noise, as_sparse):
    X, y = make_binary()
    X = np.vstack([X, np.zeros((3, N_FEATURES))])
    y = np.append(y, [0, 0, 1])
    model = fit(estimator, sparse.csr_array(X) if as_sparse else X, y, noise=noise)
    assert np.isfinite(parameters(model)).all()
    tiny = X.copy()
    tiny[-3:] = 1e-30
    assert_close(model, fit(estimator, tiny, y, noise=noise), bar=1e-9)
