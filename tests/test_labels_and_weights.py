"""Labels, sample weights and class weights: their effect on the fit, and the errors of wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

from datasets import TIGHT, assert_bitwise_equal, make_binary, make_multiclass, relative_difference
from dealing import deal
from dropmargin import DropoutSVC
from invariance import fit
from marks import ESTIMATORS, says

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


# Sample weights ---------------------------------------------------------------------------------------------------


def _weights(change):
    weights = np.ones(60)
    weights[7] = change
    return weights


_BAD_WEIGHTS = {
    "negative": (_weights(-1.0), ["-1.0", "row 7", "negative"]),
    "NaN": (_weights(np.nan), ["nan", "row 7", "finite"]),
    "infinite": (_weights(np.inf), ["inf", "row 7", "finite"]),
    "all zero": (np.zeros(60), ["zero"]),
    "too short": (np.ones(59), ["(59,)", "(60,)"]),
    "two columns": (np.ones((60, 2)), ["1D", "(60, 2)"]),
    "scalar 0": (0.0, ["0.0"]),
    "scalar -1": (-1.0, ["-1.0"]),
    "strings": (["heavy"] * 60, ["heavy"]),
}


@pytest.mark.parametrize(("kind", "name"), deal(_BAD_WEIGHTS, ESTIMATORS))
def test_bad_sample_weights_are_refused_and_named(kind, name):
    X, y = make_binary()
    weights, parts = _BAD_WEIGHTS[kind]
    with pytest.raises(ValueError, match=says("sample_weight", *parts)):
        fit(ESTIMATORS[name], X, y, weights)


@pytest.mark.parametrize(("name", "dtype"), deal(ESTIMATORS, [int, np.float32, bool, np.uint8, list]))
def test_weights_of_every_number_type_count_alike(name, dtype):
    X, y = make_binary()
    estimator = ESTIMATORS[name]
    weights = np.arange(60) % 2
    given = weights.tolist() if dtype is list else weights.astype(dtype)
    assert_bitwise_equal(fit(estimator, X, y, given), fit(estimator, X, y, weights.astype(float)))


# Labels -----------------------------------------------------------------------------------------------------------


_LABELS = [
    np.array([False, True]),
    np.array(["ham", "spam"]),
    np.array(["ham", "spam"], dtype=object),
    np.array([-1, 1], dtype=np.int8),
    np.array([0.0, 1.0], dtype=np.float32),
    np.array([-(2**62), 2**62]),
]


@pytest.mark.parametrize(("names", "loss"), deal(_LABELS, ESTIMATORS), ids=str)
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
    "regression": (np.linspace(0.0, 1.0, 60), ["continuous"]),
    "NaN": (np.where(np.arange(60) == 4, np.nan, np.arange(60) % 2), ["NaN"]),
    "multi-label": (np.ones((60, 2), dtype=int), ["(60, 2)"]),
    "too short": (np.arange(59) % 2, ["59", "60"]),
    "None": (None, ["y"]),
}


@pytest.mark.parametrize(("kind", "name"), deal(_BAD_LABELS, ESTIMATORS))
def test_bad_labels_are_refused_with_the_reason(kind, name):
    X, _ = make_binary()
    y, parts = _BAD_LABELS[kind]
    with pytest.raises(ValueError, match=says(*parts)):
        fit(ESTIMATORS[name], X, y)


# Class weights ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [ESTIMATORS["svc"], ESTIMATORS["mcf-logistic"]], ids=["svc", "mcf-logistic"])
def test_class_weights_are_factors_of_the_sample_weights(estimator):
    X, y = make_multiclass()
    factors = {0: 0.5, 1: 2.0, 2: 3.0}
    by_class = fit(estimator, X, y, class_weight=factors, tol=TIGHT)
    by_sample = fit(estimator, X, y, np.array([0.5, 2.0, 3.0])[y], tol=TIGHT)
    assert relative_difference(by_class, by_sample) <= 1e-10


@pytest.mark.parametrize("estimator", [ESTIMATORS["svc"], ESTIMATORS["mcf-logistic"]], ids=["svc", "mcf-logistic"])
def test_balanced_class_weights_give_every_class_the_same_total(estimator):
    X, y = make_multiclass()
    weights = np.linspace(0.0, 1.0, len(y))
    totals = np.bincount(y, weights)
    balanced = fit(estimator, X, y, weights, class_weight="balanced", tol=TIGHT)
    wanted = fit(estimator, X, y, weights * (totals.sum() / (3.0 * totals))[y], tol=TIGHT)
    assert relative_difference(balanced, wanted) <= 1e-10


@pytest.mark.parametrize(
    ("class_weight", "parts"),
    [
        ("balance", ["'balance'", "'balanced'", "dict", "None"]),
        (3.0, ["3.0", "'balanced'"]),
        ({0: -1.0}, ["[0]", "-1.0"]),
        ({0: np.nan}, ["[0]", "nan"]),
        ({1: "heavy"}, ["[1]", "'heavy'"]),
        ({0: 0.0, 1: 0.0}, ["zero"]),
    ],
)
def test_bad_class_weights_are_refused_and_named(class_weight, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=says("class_weight", *parts)):
        DropoutSVC(class_weight=class_weight).fit(X, y)
