"""Noise and parameters: what they mean, what is refused, and what a failed fit leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from datasets import N_FEATURES, TIGHT, assert_same_state, fitted_state, make_binary, relative_difference
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

# Noise ------------------------------------------------------------------------------------------------------------


def _rates(**changes):
    rates = np.full(N_FEATURES, 0.3)
    for index, value in changes.items():
        rates[int(index[1:])] = value
    return rates


_BAD_NOISE = {
    "rate 1": (1.0, ["rate", "[0, 1)", "1.0"]),
    "rate below 0": (-1e-9, ["rate", "[0, 1)", "-1e-09"]),
    "rate NaN": (np.nan, ["rate", "[0, 1)", "nan"]),
    "a rate of 1": (DropoutNoise(rate=_rates(f3=1.0)), ["rate", "[0, 1)", "1.0", "feature 3"]),
    "too few rates": (DropoutNoise(rate=[0.1, 0.2]), ["rate", "(2,)", "8 features"]),
    "a string rate": (DropoutNoise(rate="much"), ["rate", "'much'"]),
    "scale below 0": (GaussianNoise(scale=-0.1), ["scale", "GaussianNoise", "-0.1"]),
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
    "bad rate length": ({"noise": DropoutNoise(rate=[0.1, 0.2])}, {}),
    "bad solver": ({"solver": "sgd"}, {}),
    "NaN in X": ({}, {"X": np.full((60, 3), np.nan)}),
    "huge X of other width": ({}, {"X": np.full((60, 3), 1e250)}),
    "other width, negative weight": ({}, {"X": np.ones((60, 3)), "sample_weight": -np.ones(60)}),
    "other width, one class": ({}, {"X": np.ones((60, 3)), "y": np.zeros(60)}),
    "other width, no labels": ({}, {"X": np.ones((60, 3)), "y": None}),
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
