"""Bad parameters, labels and weights: what is refused and how, and what a failed fit leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from datasets import (
    N_FEATURES,
    TIGHT,
    assert_bitwise_equal,
    assert_same_state,
    fitted_state,
    make_binary,
    make_multiclass,
    relative_difference,
)
from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutSVC,
    GaussianNoise,
    LaplaceNoise,
    MCFClassifier,
    NoisyLinearClassifier,
    PoissonNoise,
)
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
        (3.0, ["3.0", "'balanced'"]),
        ({0: -1.0}, ["[0]", "-1.0"]),
        ({1: "heavy"}, ["[1]", "'heavy'"]),
        ({0: 0.0, 1: 0.0}, ["zero"]),
    ],
)
def test_bad_class_weights_are_refused_and_named(class_weight, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=says("class_weight", *parts)):
        DropoutSVC(class_weight=class_weight).fit(X, y)


# Noise ------------------------------------------------------------------------------------------------------------


def _rates(**changes):
    rates = np.full(N_FEATURES, 0.3)
    for index, value in changes.items():
        rates[int(index[1:])] = value
    return rates


_BAD_NOISE = {
    "rate 1": (1.0, ["rate", "[0, 1)", "1.0"]),
    "rate below 0": (-1e-9, ["rate", "[0, 1)", "-1e-09"]),
    "a rate of 1": (DropoutNoise(rate=_rates(f3=1.0)), ["rate", "[0, 1)", "1.0", "feature 3"]),
    "too few rates": (DropoutNoise(rate=[0.1, 0.2]), ["rate", "(2,)", "8 features"]),
    "a string rate": (DropoutNoise(rate="much"), ["rate", "'much'"]),
    "a scale below 0": (LaplaceNoise(scale=_rates(f2=-1.0)), ["scale", "LaplaceNoise", "-1.0", "feature 2"]),
    "scale too large": (GaussianNoise(scale=1e200), ["scale", "GaussianNoise", "1e+200"]),
    "a name": ("dropout", ["noise", "'dropout'", "DropoutNoise(rate="]),
    "a bare list": ([0.1] * 8, ["noise", "DropoutNoise(rate=rates)"]),
    "a boolean": (True, ["noise", "True"]),
}


@pytest.mark.parametrize(("kind", "name"), deal(_BAD_NOISE, ESTIMATORS))
def test_bad_noise_is_refused_with_parameter_value_and_range(kind, name):
    X, y = make_binary()
    noise, parts = _BAD_NOISE[kind]
    with pytest.raises(ValueError, match=says(*parts)):
        fit(ESTIMATORS[name], X, y, noise=noise)


_ZERO = [
    0.0,
    0,
    np.float32(0.0),
    DropoutNoise(rate=0.0),
    DropoutNoise(rate=np.zeros(N_FEATURES)),
    GaussianNoise(scale=0.0),
]


@pytest.mark.parametrize(("name", "zero"), deal(ESTIMATORS, _ZERO))
def test_noise_of_size_zero_is_no_noise(name, zero):
    X, y = make_binary()
    found, wanted = (fit(ESTIMATORS[name], X, y, noise=noise, tol=TIGHT) for noise in (zero, None))
    assert relative_difference(found, wanted) <= 1e-10


@pytest.mark.parametrize(
    ("name", "make"), deal(ESTIMATORS, [np.asarray, sparse.csr_array, sparse.csc_array, np.asfortranarray])
)
def test_poisson_noise_names_the_column_of_a_negative_entry(name, make):
    X, y = make_binary()
    X[4, 5] = -0.25
    with pytest.raises(ValueError, match=says("PoissonNoise", "-0.25", "feature 5")):
        fit(ESTIMATORS[name], make(X), y, noise=PoissonNoise())


# Parameters -------------------------------------------------------------------------------------------------------

_UNHASHABLE = ["newton"]
_BAD_PARAMETERS = [
    *(("C", value, ["(0, inf)"]) for value in (0, 0.0, -1.0, np.nan, np.inf, "1", None, True, [1.0])),
    *(("tol", value, ["[0, inf)"]) for value in (-1e-9, np.nan, np.inf, "small", None, True)),
    *(("max_iter", value, ["integer", "1"]) for value in (0, -5, 10.0, np.nan, "100", None, True)),
    *(("solver", value, ["auto", "newton", "lbfgs"]) for value in ("sgd", "Newton", None, 1, _UNHASHABLE)),
    *(("multi_class", value, ["ovr", "ovo", "multinomial"]) for value in ("ovx", "OVR", None, 2, ["ovr"])),
    *(("l1_ratio", value, ["[0, 1]"]) for value in (-0.1, 1.1, np.nan, "half", None, True)),
    *(("fit_intercept", value, ["True or False"]) for value in ("no", None, 2, [True])),
    *(("warm_start", value, ["True or False"]) for value in ("yes", None, 0.5)),
]


_CLASSES = [DropoutSVC(), DropoutLogisticRegression(), MCFClassifier(), NoisyLinearClassifier()]


@pytest.mark.parametrize(("case", "estimator"), deal(_BAD_PARAMETERS, _CLASSES))
def test_a_bad_parameter_is_refused_with_its_name_its_value_and_what_is_allowed(case, estimator):
    X, y = make_binary()
    name, value, parts = case
    with pytest.raises(ValueError, match=says(name, repr(value), *parts)):
        fit(estimator, X, y, **{name: value})


# After a failure --------------------------------------------------------------------------------------------------

_FAILING = {
    "bad C": ({"C": -1.0}, {}),
    "bad noise": ({"noise": 1.5}, {}),
    "bad solver": ({"solver": "sgd"}, {}),
    "NaN in X": ({}, {"X": np.full((60, 3), np.nan)}),
    "huge X of other width": ({}, {"X": np.full((60, 3), 1e250)}),
    "other width, negative weight": ({}, {"X": np.ones((60, 3)), "sample_weight": -np.ones(60)}),
    "other width, one class": ({}, {"X": np.ones((60, 3)), "y": np.zeros(60)}),
    "bad class weight": ({"class_weight": "bad"}, {"X": np.ones((60, 3))}),
    "frame of other columns": ({"class_weight": "bad"}, {"X": "frame"}),
    "regression target": ({}, {"X": np.ones((60, 3)), "y": np.linspace(0.0, 1.0, 60)}),
}


@pytest.mark.parametrize(("kind", "warm_start", "name"), deal(_FAILING, [False, True], ESTIMATORS))
def test_a_failing_fit_leaves_a_fitted_estimator_exactly_as_it_was(kind, warm_start, name):
    pd = pytest.importorskip("pandas")
    X, y = make_binary()
    model = fit(ESTIMATORS[name], X, y, warm_start=warm_start)
    scores = model.decision_function(X)
    params, data = _FAILING[kind]
    model.set_params(**params)
    state = fitted_state(model)
    arguments = {"X": X, "y": y, **data}
    if isinstance(arguments["X"], str):
        arguments["X"] = pd.DataFrame(np.ones((60, 3)), columns=list("abc"))
    with pytest.raises(ValueError):  # noqa: PT011 (the messages are tested above)
        model.fit(**arguments)
    assert_same_state(model, state)
    np.testing.assert_array_equal(model.decision_function(X), scores)
