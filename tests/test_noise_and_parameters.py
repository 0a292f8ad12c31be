"""Noise and parameters: what they mean, what is refused, and what a failed fit leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from datasets import (
    N_FEATURES,
    TIGHT,
    assert_bitwise_equal,
    assert_same_state,
    fitted_state,
    make_binary,
    parameters,
    relative_difference,
)
from dealing import deal, round_robin, together
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
from dropmargin.noise import Noise
from invariance import fit
from marks import ESTIMATORS, every_loss, says

# Noise ------------------------------------------------------------------------------------------------------------


def _rates(**changes):
    rates = np.full(N_FEATURES, 0.3)
    for index, value in changes.items():
        rates[int(index[1:])] = value
    return rates


_BAD_NOISE = {
    "rate 1": (1.0, ["rate", "[0, 1)", "1.0"]),
    "rate above 1": (1.5, ["rate", "[0, 1)", "1.5"]),
    "rate below 0": (-1e-9, ["rate", "[0, 1)", "-1e-09"]),
    "rate NaN": (np.nan, ["rate", "[0, 1)", "nan"]),
    "rate infinite": (np.inf, ["rate", "[0, 1)", "inf"]),
    "a rate of 1": (DropoutNoise(rate=_rates(f3=1.0)), ["rate", "[0, 1)", "1.0", "feature 3"]),
    "a rate of NaN": (DropoutNoise(rate=_rates(f5=np.nan)), ["rate", "[0, 1)", "nan", "feature 5"]),
    "too few rates": (DropoutNoise(rate=[0.1, 0.2]), ["rate", "(2,)", "8 features"]),
    "too many rates": (DropoutNoise(rate=np.full(9, 0.1)), ["rate", "(9,)", "8 features"]),
    "no rates": (DropoutNoise(rate=[]), ["rate", "(0,)", "8 features"]),
    "a matrix of rates": (DropoutNoise(rate=np.full((8, 1), 0.1)), ["rate", "(8, 1)", "8 features"]),
    "a string rate": (DropoutNoise(rate="much"), ["rate", "'much'"]),
    "no rate": (DropoutNoise(rate=None), ["rate"]),
    "scale below 0": (GaussianNoise(scale=-0.1), ["scale", "GaussianNoise", "-0.1"]),
    "scale NaN": (GaussianNoise(scale=np.nan), ["scale", "GaussianNoise", "nan"]),
    "scale infinite": (LaplaceNoise(scale=np.inf), ["scale", "LaplaceNoise", "inf"]),
    "a scale below 0": (LaplaceNoise(scale=_rates(f2=-1.0)), ["scale", "LaplaceNoise", "-1.0", "feature 2"]),
    "scale too large": (GaussianNoise(scale=1e200), ["scale", "GaussianNoise", "1e+200"]),
    "too few scales": (GaussianNoise(scale=[0.1]), ["scale", "(1,)", "8 features"]),
    "a name": ("dropout", ["noise", "'dropout'", "DropoutNoise(rate="]),
    "a class": (DropoutNoise, ["noise", "DropoutNoise(rate="]),
    "a bare list": ([0.1] * 8, ["noise", "DropoutNoise(rate=rates)"]),
    "a bare array": (np.full(8, 0.1), ["noise", "DropoutNoise(rate=rates)"]),
    "a boolean": (True, ["noise", "True"]),
    "a numpy boolean": (np.True_, ["noise", "True"]),
    "a dictionary": ({"rate": 0.1}, ["noise", "{'rate': 0.1}"]),
}


@together(("kind", "name"), round_robin(_BAD_NOISE, ESTIMATORS))
def test_bad_noise_is_refused_with_parameter_value_and_range(kind, name):
    X, y = make_binary()
    noise, parts = _BAD_NOISE[kind]
    with pytest.raises(ValueError, match=says(*parts)):
        fit(ESTIMATORS[name], X, y, noise=noise)


@pytest.mark.parametrize(("name", "make"), round_robin(ESTIMATORS, [np.asarray, sparse.csr_array]))
def test_rates_from_zero_to_almost_one_live_side_by_side(name, make):
    X, y = make_binary()
    estimator = ESTIMATORS[name]
    rates = _rates(f0=0.0, f4=1.0 - 1e-16)
    assert rates[4] < 1.0
    model = fit(estimator, make(X), y, noise=DropoutNoise(rate=rates), tol=1e-12)
    assert np.isfinite(parameters(model)).all()
    # a feature that is almost always lost is worth next to nothing
    assert abs(model.coef_[0, 4]) < 1e-6 < np.abs(model.coef_).max()
    without = fit(estimator, make(np.delete(X, 4, axis=1)), y, noise=DropoutNoise(rate=np.delete(rates, 4)), tol=1e-12)
    assert relative_difference(np.delete(parameters(model), 4, axis=1), without) <= 1e-4


_ZERO = [
    0.0,
    0,
    np.float32(0.0),
    DropoutNoise(rate=0.0),
    DropoutNoise(rate=np.zeros(N_FEATURES)),
    GaussianNoise(scale=0.0),
]
_HALF = [np.float32(0.5), np.array(0.5), [0.5] * N_FEATURES, (0.5,) * N_FEATURES]


@pytest.mark.parametrize(("name", "zero"), round_robin(ESTIMATORS, _ZERO))
def test_noise_of_size_zero_is_no_noise(name, zero):
    X, y = make_binary()
    found, wanted = (fit(ESTIMATORS[name], X, y, noise=noise, tol=TIGHT) for noise in (zero, None))
    assert relative_difference(found, wanted) <= 1e-10


@pytest.mark.parametrize(("name", "rate"), round_robin(ESTIMATORS, _HALF))
def test_a_rate_may_be_given_in_any_form(name, rate):
    X, y = make_binary()
    found, wanted = (fit(ESTIMATORS[name], X, y, noise=noise, tol=TIGHT) for noise in (DropoutNoise(rate=rate), 0.5))
    assert relative_difference(found, wanted) <= 1e-10


_OVERFLOWING = [0.5, DropoutNoise(rate=0.5), PoissonNoise()]


@together(("noise", "make", "name"), deal(_OVERFLOWING, [np.asarray, sparse.csr_array], ESTIMATORS))
def test_a_variance_that_overflows_is_noticed(noise, make, name):
    X, y = make_binary()
    X[3, 6] = 1e200
    with pytest.raises(ValueError, match=says("feature 6", "1.0e+200")):
        fit(ESTIMATORS[name], make(X), y, noise=noise)


@together(
    ("name", "make"), round_robin(ESTIMATORS, [np.asarray, sparse.csr_array, sparse.csc_array, np.asfortranarray])
)
def test_poisson_noise_names_the_column_of_a_negative_entry(name, make):
    X, y = make_binary()
    X[4, 5] = -0.25
    with pytest.raises(ValueError, match=says("PoissonNoise", "-0.25", "feature 5")):
        fit(ESTIMATORS[name], make(X), y, noise=PoissonNoise())


def test_poisson_noise_names_the_frame_column_of_a_negative_entry():
    pd = pytest.importorskip("pandas")
    X, y = make_binary()
    X[4, 5] = -0.25
    with pytest.raises(ValueError, match=says("feature 'f'")):
        DropoutSVC(noise=PoissonNoise()).fit(pd.DataFrame(X, columns=list("abcdefgh")), y)


def test_duplicate_entries_that_add_up_to_no_negative_number_are_fine_for_poisson_noise():
    X, y = make_binary()
    X = np.round(4.0 * X)
    rows = sparse.csr_array(X)
    messy = sparse.csr_array(X.shape)
    messy.data = np.column_stack([rows.data + 3.0, np.full(rows.nnz, -3.0)]).ravel()
    messy.indices, messy.indptr = np.repeat(rows.indices, 2), 2 * rows.indptr
    estimator = DropoutSVC(noise=PoissonNoise(), tol=TIGHT)
    assert relative_difference(fit(estimator, messy, y), fit(estimator, X, y)) <= 1e-10


def test_a_noise_without_log_mgf_is_refused_by_the_losses_that_need_it():
    class Plain(Noise):
        def variance(self):
            return GaussianNoise(scale=0.1).variance()

    X, y = make_binary()
    for loss in ("exponential", "logistic"):
        with pytest.raises(ValueError, match=says("log_mgf", "Plain")):
            MCFClassifier(loss, noise=Plain()).fit(X, y)
    assert DropoutSVC(noise=Plain()).fit(X, y).score(X, y) > 0.7


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
_NAMES = {name for name, _, _ in _BAD_PARAMETERS}


@together(("case", "estimator"), round_robin(_BAD_PARAMETERS, _CLASSES))
def test_a_bad_parameter_is_refused_with_its_name_its_value_and_what_is_allowed(case, estimator):
    X, y = make_binary()
    name, value, parts = case
    with pytest.raises(ValueError, match=says(name, repr(value), *parts)):
        fit(estimator, X, y, **{name: value})


@pytest.mark.parametrize("estimator", _CLASSES, ids=str)
def test_every_class_checks_every_parameter(estimator):
    X, y = make_binary()
    for name in sorted(_NAMES):
        with pytest.raises(ValueError, match=says(name, "'wrong'")):
            fit(estimator, X, y, **{name: "wrong"})


@together(
    ("estimator", "parts"),
    [
        (MCFClassifier("hinge"), ["loss", "'hinge'", "quadratic", "exponential", "logistic"]),
        (MCFClassifier(None), ["loss", "None", "quadratic"]),
        (MCFClassifier(["quadratic"]), ["loss", "['quadratic']", "exponential"]),
        (NoisyLinearClassifier("squared"), ["loss", "'squared'", "hinge", "mcf-logistic"]),
        (NoisyLinearClassifier(3), ["loss", "3", "hinge"]),
        (NoisyLinearClassifier(["hinge"]), ["loss", "['hinge']", "mcf-logistic"]),
        (DropoutSVC(approximation="exact"), ["approximation", "'exact'", "'bound'", "'gaussian'"]),
        (DropoutLogisticRegression(approximation=None), ["approximation", "None", "'bound'"]),
        (DropoutSVC(approximation=["bound"]), ["approximation", "['bound']", "'gaussian'"]),
        (NoisyLinearClassifier("quadratic", approximation="gaussian"), ["approximation", "'gaussian'", "quadratic"]),
    ],
)
def test_a_bad_loss_or_approximation_is_refused(estimator, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=says(*parts)):
        estimator.fit(X, y)


@together(
    ("estimator", "parts"),
    [
        (DropoutSVC(solver="irls", l1_ratio=1.0), ["irls", "l1", "newton"]),
        (DropoutSVC(solver="orthant"), ["orthant", "newton"]),
        (MCFClassifier("exponential", solver="irls"), ["irls", "majoriser", "newton"]),
        (MCFClassifier("logistic", solver="irls"), ["irls", "majoriser", "lbfgs"]),
        (DropoutLogisticRegression(approximation="gaussian", solver="irls"), ["irls", "majoriser", "newton"]),
    ],
)
def test_an_impossible_pair_of_solver_and_problem_names_a_possible_one(estimator, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=says("solver", *parts)):
        estimator.fit(X, y)


@pytest.mark.parametrize("n_jobs", [0, "two"])
def test_a_bad_n_jobs_is_refused_by_name(n_jobs):
    X, y = make_binary()
    with pytest.raises(ValueError, match="n_jobs"):
        DropoutSVC(n_jobs=n_jobs).fit(X, y)


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), np.int64(1), 1])
def test_numpy_numbers_are_numbers(value):
    X, y = make_binary()
    wanted = fit(DropoutSVC(), X, y, C=float(value), max_iter=1000)
    assert_bitwise_equal(fit(DropoutSVC(), X, y, C=value, max_iter=np.int64(1000)), wanted)


def test_constructors_check_nothing_and_store_what_they_get():
    rates = [2.0, "x"]
    model = DropoutSVC(noise=DropoutNoise(rate=rates), C="C", tol=None)
    assert model.noise.rate is rates
    assert model.get_params()["C"] == "C"


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


@every_loss
def test_a_failing_first_fit_leaves_the_estimator_unfitted(estimator):
    model = clone(estimator)
    before = fitted_state(model)
    with pytest.raises(ValueError, match="class"):
        model.fit(np.ones((4, 2)), np.zeros(4))
    assert_same_state(model, before)
