"""What must not change a fit, or must change it in a known way, to ten digits.

``tol`` is the relative gap of the objective, so coefficients to 1e-10 need one far below 1e-20; the solvers then stop
at the limit of floating-point precision.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from datasets import N_FEATURES, assert_bitwise_equal, make_binary, make_multiclass, parameters
from dealing import deal
from invariance import BAR, CORE, ESTIMATORS, NOISES, assert_close, fit

every_loss = pytest.mark.parametrize("name", ESTIMATORS)
A_FEW = ["none", "dropout", "gaussian-per-feature"]
LAYOUTS = ["dense", "sparse"]


def _bar(noise):
    """Return how close coefficients must be: without noise, the optimum of a hinge is approached by smoothed ones."""
    return 1e-6 if noise is None else BAR


def _rows(X, layout):
    return sparse.csr_array(X) if layout == "sparse" else X


# Rows, weights, labels --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "noise", "class_weight"), deal(CORE, NOISES, [None, "balanced"]))
def test_integer_weights_equal_repeated_rows_and_zero_a_removed_one(name, noise, class_weight):
    X, y = make_binary()
    weights = np.random.RandomState(5).randint(0, 4, size=len(y))
    assert (weights == 0).any()
    options = {"noise": NOISES[noise], "class_weight": class_weight}
    weighted = fit(CORE[name], X, y, weights, **options)
    repeated = fit(CORE[name], X.repeat(weights, axis=0), y.repeat(weights), **options)
    assert_close(weighted, repeated, bar=_bar(NOISES[noise]))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-12 if NOISES[noise] is not None else 1e-9)


@pytest.mark.parametrize(("name", "noise"), deal(ESTIMATORS, NOISES))
def test_order_of_rows_and_features_does_not_matter_and_flipped_labels_flip_the_signs(name, noise):
    X, y = make_binary()
    y[:10] = 0  # classes of different sizes
    rows, columns = np.random.RandomState(6).permutation(len(y)), np.random.RandomState(7).permutation(N_FEATURES)
    noise = NOISES[noise]
    there = noise.take(columns) if hasattr(noise, "take") else noise
    moved = parameters(fit(ESTIMATORS[name], X[np.ix_(rows, columns)], 1 - y[rows], noise=there))
    straight = parameters(fit(ESTIMATORS[name], X, y, noise=noise))
    assert_close(moved, -straight[:, [*columns, N_FEATURES]], bar=_bar(noise))


@pytest.mark.parametrize(("name", "multi_class", "labels"), deal(CORE, ["ovr", "ovo"], ["str", "int", "whole float"]))
def test_renamed_classes_change_nothing_but_the_names(name, multi_class, labels):
    X, y = make_multiclass()
    labels = np.array({"str": ["b", "c", "d"], "int": [-7, 0, 1000], "whole float": [1.0, 3.0, 5.0]}[labels])
    plain, renamed = (fit(CORE[name], X, given, multi_class=multi_class) for given in (y, labels[y]))
    assert_bitwise_equal(renamed, plain)
    np.testing.assert_array_equal(renamed.classes_, labels)
    np.testing.assert_array_equal(renamed.predict(X), labels[plain.predict(X)])


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


@pytest.mark.parametrize(("name", "noise", "layout"), deal(CORE, NOISES, LAYOUTS))
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


@every_loss
def test_a_constant_column_under_dropout_gets_no_weight_and_changes_nothing(name):
    # the intercept does the same without noise: by Jensen's inequality, weight on the column only costs
    X, y = make_binary()
    with_column = parameters(fit(ESTIMATORS[name], np.hstack([X, np.ones((len(y), 1))]), y, noise=0.3))
    plain = parameters(fit(ESTIMATORS[name], X, y, noise=0.3))
    assert abs(with_column[0, N_FEATURES]) <= BAR
    assert_close(np.delete(with_column, N_FEATURES, axis=1), plain)


@pytest.mark.parametrize(("name", "noise"), deal(ESTIMATORS, ["none", "dropout", "gaussian"]))
def test_a_duplicated_column_gets_the_same_weight_as_its_twin(name, noise):
    X, y = make_binary()
    twins = parameters(fit(ESTIMATORS[name], np.hstack([X, X[:, [2]]]), y, noise=NOISES[noise]))
    assert np.abs(twins[:, 2] - twins[:, N_FEATURES]).max() <= BAR * np.abs(twins).max()
