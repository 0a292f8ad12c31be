"""Labels, sample weights and class weights: their effect on the fit, and the errors of wrong ones."""

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
    relative_difference,
)
from dealing import deal, round_robin, together
from dropmargin import DropoutSVC
from invariance import fit
from marks import ESTIMATORS, every_loss, says

_LAYOUTS = [np.asarray, sparse.csr_array]

# Classes without weight -------------------------------------------------------------------------------------------


_CLASS_WEIGHTS = [None, "balanced", {0: 2.0, 1: 3.0, 2: 4.0, 3: 0.5}]


@pytest.mark.parametrize(
    ("name", "multi_class", "class_weight", "absent"),
    deal(ESTIMATORS, ["ovr", "ovo"], _CLASS_WEIGHTS, [0, 1, 2]),
    ids=str,
)
def test_a_class_of_zero_weight_is_as_if_it_were_not_there(name, multi_class, class_weight, absent):
    # LinearSVC predicts wrong labels here, silently
    X, y = make_multiclass(n_classes=3)
    estimator = ESTIMATORS[name]
    weights = np.where(y == absent, 0.0, np.linspace(0.5, 2.0, len(y)))
    options = {"class_weight": class_weight, "multi_class": multi_class, "tol": TIGHT}
    model = fit(estimator, X, y, weights, **options)
    kept = y != absent
    wanted = fit(estimator, X[kept], y[kept], weights[kept], **options)
    np.testing.assert_array_equal(model.classes_, wanted.classes_)
    assert absent not in model.classes_
    assert relative_difference(model, wanted) <= 1e-10
    np.testing.assert_array_equal(model.predict(X), wanted.predict(X))


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_a_class_of_zero_weight_among_four_leaves_three(multi_class):
    X, y = make_multiclass(n_samples=120, n_classes=4)
    weights = (y != 2).astype(float)
    model = fit(DropoutSVC(tol=TIGHT, multi_class=multi_class), X, y, weights)
    np.testing.assert_array_equal(model.classes_, [0, 1, 3])
    assert model.coef_.shape == (3, N_FEATURES)
    assert set(model.predict(X)) <= {0, 1, 3}


def test_a_zero_class_weight_takes_the_class_out_of_the_fit_or_says_why_not():
    X, y = make_binary()
    with pytest.raises(ValueError, match=says("class")):
        DropoutSVC(class_weight={0: 0.0, 1: 1.0}).fit(X, y)


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_a_zero_class_weight_equals_zero_sample_weights(multi_class):
    X, y = make_multiclass()
    by_class = fit(DropoutSVC(tol=TIGHT, multi_class=multi_class, class_weight={1: 0.0}), X, y)
    by_sample = fit(DropoutSVC(tol=TIGHT, multi_class=multi_class), X, y, (y != 1).astype(float))
    np.testing.assert_array_equal(by_class.classes_, by_sample.classes_)
    assert relative_difference(by_class, by_sample) <= 1e-10


# Sample weights ---------------------------------------------------------------------------------------------------


def _weights(change):
    weights = np.ones(60)
    weights[7] = change
    return weights


_BAD_WEIGHTS = {
    "negative": (_weights(-1.0), ["-1.0", "row 7", "negative"]),
    "barely negative": (_weights(-1e-300), ["-1e-300", "row 7"]),
    "NaN": (_weights(np.nan), ["nan", "row 7", "finite"]),
    "infinite": (_weights(np.inf), ["inf", "row 7", "finite"]),
    "all zero": (np.zeros(60), ["zero"]),
    "too short": (np.ones(59), ["(59,)", "(60,)"]),
    "one column": (np.ones((60, 1)), ["1D", "(60, 1)"]),
    "two columns": (np.ones((60, 2)), ["1D", "(60, 2)"]),
    "one row": (np.ones((1, 60)), ["1D", "(1, 60)"]),
    "scalar 0": (0.0, ["0.0"]),
    "scalar -1": (-1.0, ["-1.0"]),
    "scalar NaN": (np.nan, ["nan"]),
    "strings": (["heavy"] * 60, ["heavy"]),
    "empty": ([], ["(0,)", "(60,)"]),
}


@together(("kind", "name"), round_robin(_BAD_WEIGHTS, ESTIMATORS))
def test_bad_sample_weights_are_refused_and_named(kind, name):
    X, y = make_binary()
    weights, parts = _BAD_WEIGHTS[kind]
    with pytest.raises(ValueError, match=says("sample_weight", *parts)):
        fit(ESTIMATORS[name], X, y, weights)


@pytest.mark.parametrize(("name", "dtype"), round_robin(ESTIMATORS, [int, np.float32, bool, np.uint8, list]))
def test_weights_of_every_number_type_count_alike(name, dtype):
    X, y = make_binary()
    estimator = ESTIMATORS[name]
    weights = np.arange(60) % 2
    given = weights.tolist() if dtype is list else weights.astype(dtype)
    assert_bitwise_equal(fit(estimator, X, y, given), fit(estimator, X, y, weights.astype(float)))


@every_loss
def test_a_scalar_weight_is_that_weight_for_every_row(estimator):
    X, y = make_binary()
    assert_bitwise_equal(fit(estimator, X, y, 2.0), fit(estimator, X, y, np.full(60, 2.0)))


# Labels -----------------------------------------------------------------------------------------------------------


_LABELS = [
    np.array([False, True]),
    np.array(["ham", "spam"]),
    np.array(["ham", "spam"], dtype=object),
    np.array([-1, 1], dtype=np.int8),
    np.array([3, 250], dtype=np.uint8),
    np.array([0.0, 1.0], dtype=np.float32),
    np.array([-(2**62), 2**62]),
    np.array(["", " "]),
]


@pytest.mark.parametrize(("names", "loss"), round_robin(_LABELS, ESTIMATORS), ids=str)
def test_labels_of_every_type_come_back_as_they_were(names, loss):
    X, y = make_binary()
    model, plain = fit(ESTIMATORS[loss], X, names[y]), fit(ESTIMATORS[loss], X, y)
    assert_bitwise_equal(model, plain)
    np.testing.assert_array_equal(model.classes_, names)
    assert model.classes_.dtype == names.dtype
    predicted = model.predict(X)
    assert predicted.dtype == names.dtype
    np.testing.assert_array_equal(predicted, names[plain.predict(X)])


_BAD_LABELS = {
    "one class": (np.full(60, 3), ["class", "3"]),
    "one string class": (np.full(60, "spam"), ["class", "spam"]),
    "regression": (np.linspace(0.0, 1.0, 60), ["continuous"]),
    "NaN": (np.where(np.arange(60) == 4, np.nan, np.arange(60) % 2), ["NaN"]),
    "infinity": (np.where(np.arange(60) == 4, np.inf, np.arange(60) % 2), ["infinity"]),
    "multi-label": (np.ones((60, 2), dtype=int), ["(60, 2)"]),
    "too short": (np.arange(59) % 2, ["59", "60"]),
    "None": (None, ["y"]),
}


@together(("kind", "name"), round_robin(_BAD_LABELS, ESTIMATORS))
def test_bad_labels_are_refused_with_the_reason(kind, name):
    X, _ = make_binary()
    y, parts = _BAD_LABELS[kind]
    with pytest.raises(ValueError, match=says(*parts)):
        fit(ESTIMATORS[name], X, y)


def test_one_class_left_by_the_weights_is_said_to_be_so():
    X, y = make_binary()
    with pytest.raises(ValueError, match=says("one class", "weight zero", "1")):
        DropoutSVC().fit(X, y, sample_weight=y)


@pytest.mark.parametrize("missing", [None, np.nan], ids=str)
def test_none_and_nan_among_object_labels_are_refused(missing):
    X, y = make_binary()
    labels = np.array(["ham", "spam"], dtype=object)[y]
    labels[3] = missing
    with pytest.raises((ValueError, TypeError)):
        DropoutSVC().fit(X, labels)


_TOO_LITTLE = {(0, 3): "0 sample", (1, 3): "class", (5, 0): "0 feature"}


@together(("shape", "make", "name"), deal(_TOO_LITTLE, _LAYOUTS, ESTIMATORS))
def test_too_little_data_is_refused_with_the_reason(shape, make, name):
    with pytest.raises(ValueError, match=_TOO_LITTLE[shape]):
        fit(ESTIMATORS[name], make(np.ones(shape)), np.arange(shape[0]) % 2)


@every_loss
def test_two_rows_are_enough(estimator):
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    model = fit(estimator, X, ["a", "b"])
    np.testing.assert_array_equal(model.predict(X), ["a", "b"])


@together(("value", "make", "name"), deal([np.nan, np.inf, -np.inf], _LAYOUTS, ESTIMATORS))
def test_data_that_are_not_finite_are_refused(value, make, name):
    X, y = make_binary()
    X[11, 2] = value
    with pytest.raises(ValueError, match="NaN" if np.isnan(value) else "infinity"):
        fit(ESTIMATORS[name], make(X), y)


@pytest.mark.parametrize("X", [np.ones(5), np.ones((2, 2, 2)), [["a", "b"], ["c", "d"]], "text"], ids=type)
def test_data_that_are_no_matrix_of_numbers_are_refused(X):
    with pytest.raises(ValueError, match=r"2D array|dim|convert|scalar"):
        DropoutSVC().fit(X, [0, 1])


# Class weights ----------------------------------------------------------------------------------------------------


@every_loss
def test_class_weights_are_factors_of_the_sample_weights(estimator):
    X, y = make_multiclass()
    factors = {0: 0.5, 1: 2.0, 2: 3.0}
    by_class = fit(estimator, X, y, class_weight=factors, tol=TIGHT)
    by_sample = fit(estimator, X, y, np.array([0.5, 2.0, 3.0])[y], tol=TIGHT)
    assert relative_difference(by_class, by_sample) <= 1e-10


@every_loss
def test_balanced_class_weights_give_every_class_the_same_total(estimator):
    X, y = make_multiclass()
    weights = np.linspace(0.0, 1.0, len(y))
    totals = np.bincount(y, weights)
    balanced = fit(estimator, X, y, weights, class_weight="balanced", tol=TIGHT)
    wanted = fit(estimator, X, y, weights * (totals.sum() / (3.0 * totals))[y], tol=TIGHT)
    assert relative_difference(balanced, wanted) <= 1e-10


def test_class_weights_may_be_keyed_by_strings_and_leave_classes_out():
    X, y = make_binary()
    labels = np.array(["ham", "spam"])[y]
    model = fit(DropoutSVC(tol=TIGHT, class_weight={"spam": 3.0}), X, labels)
    wanted = fit(DropoutSVC(tol=TIGHT), X, labels, np.where(y == 1, 3.0, 1.0))
    assert relative_difference(model, wanted) <= 1e-10


@together(
    ("class_weight", "parts"),
    [
        ("balance", ["'balance'", "'balanced'", "dict", "None"]),
        (3.0, ["3.0", "'balanced'"]),
        ([1.0, 2.0], ["[1.0, 2.0]", "'balanced'"]),
        ({0: -1.0}, ["[0]", "-1.0"]),
        ({0: np.nan}, ["[0]", "nan"]),
        ({0: np.inf}, ["[0]", "inf"]),
        ({1: "heavy"}, ["[1]", "'heavy'"]),
        ({0: 0.0, 1: 0.0}, ["zero"]),
    ],
)
def test_bad_class_weights_are_refused_and_named(class_weight, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=says("class_weight", *parts)):
        DropoutSVC(class_weight=class_weight).fit(X, y)


def test_class_weights_for_all_classes_and_others_are_fine():
    # as a fold of a cross-validation may lack a class
    X, y = make_binary()
    assert_bitwise_equal(
        fit(DropoutSVC(class_weight={0: 2.0, 1: 3.0, 7: 4.0}), X, y),
        fit(DropoutSVC(class_weight={0: 2.0, 1: 3.0}), X, y),
    )


def test_class_weights_for_a_class_that_is_not_there_are_refused_by_name():
    # a class without weight and a weight without class: a slip in a label, which scikit-learn refuses, too
    X, y = make_binary()
    with pytest.raises(ValueError, match=says("class_weight", "7")):
        DropoutSVC(class_weight={0: 2.0, 7: 3.0}).fit(X, y)
