"""Labels, weights and parameters, right and wrong: RELIABILITY tests 19 to 22.

Every error names the parameter, the value it got and what is allowed, and leaves the estimator exactly as it was.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from datasets import (
    N_FEATURES,
    TIGHT,
    assert_bitwise_equal,
    assert_same_state,
    estimators,
    fitted_state,
    make_binary,
    make_multiclass,
    parameters,
    relative_difference,
)
from dropmargin import (
    Dropout,
    DropoutLogisticRegression,
    DropoutSVC,
    Gaussian,
    Laplace,
    MCFClassifier,
    NoisyLinearClassifier,
    Poisson,
)
from dropmargin.noise import Noise

_ESTIMATORS = estimators()
every_loss = pytest.mark.parametrize("estimator", _ESTIMATORS.values(), ids=_ESTIMATORS.keys())
dense_or_sparse = pytest.mark.parametrize("make", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])


def _fit(estimator, X, y, sample_weight=None, **params):
    return clone(estimator).set_params(**params).fit(X, y, sample_weight=sample_weight)


def _says(*parts):
    """Return a pattern that finds all of these texts, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(part)})" for part in parts)


# Classes without weight -------------------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 1: 3.0, 2: 4.0, 3: 0.5}], ids=str)
@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_class_of_zero_weight_is_as_if_it_were_not_there(estimator, class_weight, multi_class, absent):
    # LinearSVC predicts wrong labels here, silently
    X, y = make_multiclass(n_classes=3)
    weights = np.where(y == absent, 0.0, np.linspace(0.5, 2.0, len(y)))
    options = {"class_weight": class_weight, "multi_class": multi_class, "tol": TIGHT}
    model = _fit(estimator, X, y, weights, **options)
    kept = y != absent
    wanted = _fit(estimator, X[kept], y[kept], weights[kept], **options)
    np.testing.assert_array_equal(model.classes_, wanted.classes_)
    assert absent not in model.classes_
    assert relative_difference(model, wanted) <= 1e-10
    np.testing.assert_array_equal(model.predict(X), wanted.predict(X))


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_a_class_of_zero_weight_among_four_leaves_three(multi_class):
    X, y = make_multiclass(n_samples=120, n_classes=4)
    weights = (y != 2).astype(float)
    model = _fit(DropoutSVC(tol=TIGHT, multi_class=multi_class), X, y, weights)
    np.testing.assert_array_equal(model.classes_, [0, 1, 3])
    assert model.coef_.shape == (3, N_FEATURES)
    assert set(model.predict(X)) <= {0, 1, 3}


def test_a_zero_class_weight_takes_the_class_out_of_the_fit_or_says_why_not():
    X, y = make_binary()
    with pytest.raises(ValueError, match=_says("class")):
        DropoutSVC(class_weight={0: 0.0, 1: 1.0}).fit(X, y)


@pytest.mark.parametrize("multi_class", ["ovr", "ovo"])
def test_a_zero_class_weight_equals_zero_sample_weights(multi_class):
    X, y = make_multiclass()
    by_class = _fit(DropoutSVC(tol=TIGHT, multi_class=multi_class, class_weight={1: 0.0}), X, y)
    by_sample = _fit(DropoutSVC(tol=TIGHT, multi_class=multi_class), X, y, (y != 1).astype(float))
    np.testing.assert_array_equal(by_class.classes_, by_sample.classes_)
    assert relative_difference(by_class, by_sample) <= 1e-10


# Sample weights ---------------------------------------------------------------------------------------------------


def _weights(change):
    weights = np.ones(60)
    weights[7] = change
    return weights


@every_loss
@pytest.mark.parametrize(
    ("weights", "parts"),
    [
        (_weights(-1.0), ["-1.0", "row 7", "negative"]),
        (_weights(-1e-300), ["-1e-300", "row 7"]),
        (_weights(np.nan), ["nan", "row 7", "finite"]),
        (_weights(np.inf), ["inf", "row 7", "finite"]),
        (np.zeros(60), ["zero"]),
        (np.ones(59), ["(59,)", "(60,)"]),
        (np.ones((60, 1)), ["1D", "(60, 1)"]),
        (np.ones((60, 2)), ["1D", "(60, 2)"]),
        (np.ones((1, 60)), ["1D", "(1, 60)"]),
        (0.0, ["0.0"]),
        (-1.0, ["-1.0"]),
        (np.nan, ["nan"]),
        (["heavy"] * 60, ["heavy"]),
        ([], ["(0,)", "(60,)"]),
    ],
    ids=lambda value: f"{np.shape(value)}"[:20] if isinstance(value, np.ndarray | float) else f"{value}"[:20],
)
def test_bad_sample_weights_are_refused_and_named(estimator, weights, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=_says("sample_weight", *parts)):
        _fit(estimator, X, y, weights)


@every_loss
@pytest.mark.parametrize("dtype", [int, np.float32, bool, np.uint8, list])
def test_weights_of_every_number_type_count_alike(estimator, dtype):
    X, y = make_binary()
    weights = np.arange(60) % 2
    given = weights.tolist() if dtype is list else weights.astype(dtype)
    assert_bitwise_equal(_fit(estimator, X, y, given), _fit(estimator, X, y, weights.astype(float)))


@every_loss
def test_a_scalar_weight_is_that_weight_for_every_row(estimator):
    X, y = make_binary()
    assert_bitwise_equal(_fit(estimator, X, y, 2.0), _fit(estimator, X, y, np.full(60, 2.0)))


# Labels -----------------------------------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize(
    "names",
    [
        np.array([False, True]),
        np.array(["ham", "spam"]),
        np.array(["ham", "spam"], dtype=object),
        np.array([-1, 1], dtype=np.int8),
        np.array([3, 250], dtype=np.uint8),
        np.array([0.0, 1.0], dtype=np.float32),
        np.array([-(2**62), 2**62]),
        np.array(["", " "]),
    ],
    ids=lambda names: f"{names.dtype}",
)
def test_labels_of_every_type_come_back_as_they_were(estimator, names):
    X, y = make_binary()
    model, plain = _fit(estimator, X, names[y]), _fit(estimator, X, y)
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


@every_loss
@pytest.mark.parametrize("kind", _BAD_LABELS)
def test_bad_labels_are_refused_with_the_reason(estimator, kind):
    X, _ = make_binary()
    y, parts = _BAD_LABELS[kind]
    with pytest.raises(ValueError, match=_says(*parts)):
        _fit(estimator, X, y)


def test_one_class_left_by_the_weights_is_said_to_be_so():
    X, y = make_binary()
    with pytest.raises(ValueError, match=_says("one class", "weight zero", "1")):
        DropoutSVC().fit(X, y, sample_weight=y)


@every_loss
def test_none_and_missing_among_object_labels_are_refused(estimator):
    X, y = make_binary()
    labels = np.array(["ham", "spam"], dtype=object)[y]
    labels[3] = None
    with pytest.raises((ValueError, TypeError)):
        _fit(estimator, X, labels)


@every_loss
@dense_or_sparse
@pytest.mark.parametrize(
    ("shape", "parts"), [((0, 3), ["0 sample"]), ((1, 3), ["class"]), ((5, 0), ["0 feature"])], ids=str
)
def test_too_little_data_is_refused_with_the_reason(estimator, make, shape, parts):
    X = make(np.ones(shape))
    with pytest.raises(ValueError, match=_says(*parts)):
        _fit(estimator, X, np.arange(shape[0]) % 2)


@every_loss
def test_two_rows_are_enough(estimator):
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    model = _fit(estimator, X, ["a", "b"])
    np.testing.assert_array_equal(model.predict(X), ["a", "b"])


@every_loss
@dense_or_sparse
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_data_that_are_not_finite_are_refused(estimator, make, value):
    X, y = make_binary()
    X[11, 2] = value
    with pytest.raises(ValueError, match="NaN" if np.isnan(value) else "infinity"):
        _fit(estimator, make(X), y)


@pytest.mark.parametrize("X", [np.ones(5), np.ones((2, 2, 2)), [["a", "b"], ["c", "d"]], "text"], ids=type)
def test_data_that_are_no_matrix_of_numbers_are_refused(X):
    with pytest.raises(ValueError, match=r"2D array|dim|convert|scalar"):
        DropoutSVC().fit(X, [0, 1])


# Class weights ----------------------------------------------------------------------------------------------------


@every_loss
def test_class_weights_are_factors_of_the_sample_weights(estimator):
    X, y = make_multiclass()
    factors = {0: 0.5, 1: 2.0, 2: 3.0}
    by_class = _fit(estimator, X, y, class_weight=factors, tol=TIGHT)
    by_sample = _fit(estimator, X, y, np.array([0.5, 2.0, 3.0])[y], tol=TIGHT)
    assert relative_difference(by_class, by_sample) <= 1e-10


@every_loss
def test_balanced_class_weights_give_every_class_the_same_total(estimator):
    X, y = make_multiclass()
    weights = np.linspace(0.0, 1.0, len(y))
    totals = np.bincount(y, weights)
    balanced = _fit(estimator, X, y, weights, class_weight="balanced", tol=TIGHT)
    wanted = _fit(estimator, X, y, weights * (totals.sum() / (3.0 * totals))[y], tol=TIGHT)
    assert relative_difference(balanced, wanted) <= 1e-10


def test_class_weights_may_be_keyed_by_strings_and_leave_classes_out():
    X, y = make_binary()
    labels = np.array(["ham", "spam"])[y]
    model = _fit(DropoutSVC(tol=TIGHT, class_weight={"spam": 3.0}), X, labels)
    wanted = _fit(DropoutSVC(tol=TIGHT), X, labels, np.where(y == 1, 3.0, 1.0))
    assert relative_difference(model, wanted) <= 1e-10


@pytest.mark.parametrize(
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
    ids=str,
)
def test_bad_class_weights_are_refused_and_named(class_weight, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=_says("class_weight", *parts)):
        DropoutSVC(class_weight=class_weight).fit(X, y)


def test_class_weights_for_all_classes_and_others_are_fine():
    # as a fold of a cross-validation may lack a class
    X, y = make_binary()
    assert_bitwise_equal(
        _fit(DropoutSVC(class_weight={0: 2.0, 1: 3.0, 7: 4.0}), X, y),
        _fit(DropoutSVC(class_weight={0: 2.0, 1: 3.0}), X, y),
    )


def test_class_weights_for_a_class_that_is_not_there_are_refused_by_name():
    # a class without weight and a weight without class: a slip in a label, which scikit-learn refuses, too
    X, y = make_binary()
    with pytest.raises(ValueError, match=_says("class_weight", "7")):
        DropoutSVC(class_weight={0: 2.0, 7: 3.0}).fit(X, y)


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
    "a rate of 1": (Dropout(rate=_rates(f3=1.0)), ["rate", "[0, 1)", "1.0", "feature 3"]),
    "a rate of NaN": (Dropout(rate=_rates(f5=np.nan)), ["rate", "[0, 1)", "nan", "feature 5"]),
    "too few rates": (Dropout(rate=[0.1, 0.2]), ["rate", "(2,)", "8 features"]),
    "too many rates": (Dropout(rate=np.full(9, 0.1)), ["rate", "(9,)", "8 features"]),
    "no rates": (Dropout(rate=[]), ["rate", "(0,)", "8 features"]),
    "a matrix of rates": (Dropout(rate=np.full((8, 1), 0.1)), ["rate", "(8, 1)", "8 features"]),
    "a string rate": (Dropout(rate="much"), ["rate", "'much'"]),
    "no rate": (Dropout(rate=None), ["rate"]),
    "scale below 0": (Gaussian(scale=-0.1), ["scale", "Gaussian", "-0.1"]),
    "scale NaN": (Gaussian(scale=np.nan), ["scale", "Gaussian", "nan"]),
    "scale infinite": (Laplace(scale=np.inf), ["scale", "Laplace", "inf"]),
    "a scale below 0": (Laplace(scale=_rates(f2=-1.0)), ["scale", "Laplace", "-1.0", "feature 2"]),
    "scale too large": (Gaussian(scale=1e200), ["scale", "Gaussian", "1e+200"]),
    "too few scales": (Gaussian(scale=[0.1]), ["scale", "(1,)", "8 features"]),
    "a name": ("dropout", ["noise", "'dropout'", "Dropout(rate="]),
    "a class": (Dropout, ["noise", "Dropout(rate="]),
    "a bare list": ([0.1] * 8, ["noise", "Dropout(rate=rates)"]),
    "a bare array": (np.full(8, 0.1), ["noise", "Dropout(rate=rates)"]),
    "a boolean": (True, ["noise", "True"]),
    "a numpy boolean": (np.True_, ["noise", "True"]),
    "a dictionary": ({"rate": 0.1}, ["noise", "{'rate': 0.1}"]),
}


@every_loss
@pytest.mark.parametrize("kind", _BAD_NOISE)
def test_bad_noise_is_refused_with_parameter_value_and_range(estimator, kind):
    X, y = make_binary()
    noise, parts = _BAD_NOISE[kind]
    with pytest.raises(ValueError, match=_says(*parts)):
        _fit(estimator, X, y, noise=noise)


@every_loss
@dense_or_sparse
def test_rates_from_zero_to_almost_one_live_side_by_side(estimator, make):
    X, y = make_binary()
    rates = _rates(f0=0.0, f4=1.0 - 1e-16)
    assert rates[4] < 1.0
    model = _fit(estimator, make(X), y, noise=Dropout(rate=rates), tol=1e-12)
    assert np.isfinite(parameters(model)).all()
    # a feature that is almost always lost is worth next to nothing
    assert abs(model.coef_[0, 4]) < 1e-6 < np.abs(model.coef_).max()
    without = _fit(estimator, make(np.delete(X, 4, axis=1)), y, noise=Dropout(rate=np.delete(rates, 4)), tol=1e-12)
    assert relative_difference(np.delete(parameters(model), 4, axis=1), without) <= 1e-4


@every_loss
@pytest.mark.parametrize(
    "zero",
    [0.0, 0, np.float32(0.0), Dropout(rate=0.0), Dropout(rate=np.zeros(N_FEATURES)), Gaussian(scale=0.0)],
    ids=str,
)
def test_noise_of_size_zero_is_no_noise(estimator, zero):
    X, y = make_binary()
    assert (
        relative_difference(_fit(estimator, X, y, noise=zero, tol=TIGHT), _fit(estimator, X, y, noise=None, tol=TIGHT))
        <= 1e-10
    )


@every_loss
@pytest.mark.parametrize("rate", [0.5, np.float32(0.5), np.array(0.5), [0.5] * N_FEATURES, tuple([0.5] * N_FEATURES)])
def test_a_rate_may_be_given_in_any_form(estimator, rate):
    X, y = make_binary()
    assert (
        relative_difference(
            _fit(estimator, X, y, noise=Dropout(rate=rate), tol=TIGHT), _fit(estimator, X, y, noise=0.5, tol=TIGHT)
        )
        <= 1e-10
    )


@every_loss
@dense_or_sparse
@pytest.mark.parametrize("noise", [0.5, Dropout(rate=0.5), Poisson()], ids=str)
def test_a_variance_that_overflows_is_noticed(estimator, make, noise):
    X, y = make_binary()
    X[3, 6] = 1e200
    with pytest.raises(ValueError, match=_says("column 6", "1.0e+200", "scale")):
        _fit(estimator, make(X), y, noise=noise)


@every_loss
@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, sparse.csc_array, np.asfortranarray])
def test_poisson_noise_names_the_column_of_a_negative_entry(estimator, make):
    X, y = make_binary()
    X[4, 5] = -0.25
    with pytest.raises(ValueError, match=_says("Poisson", "X >= 0", "-0.25", "column 5", "Dropout")):
        _fit(estimator, make(X), y, noise=Poisson())


def test_poisson_noise_names_the_frame_column_of_a_negative_entry():
    pd = pytest.importorskip("pandas")
    X, y = make_binary()
    X[4, 5] = -0.25
    with pytest.raises(ValueError, match=_says("column 'f'")):
        DropoutSVC(noise=Poisson()).fit(pd.DataFrame(X, columns=list("abcdefgh")), y)


def test_duplicate_entries_that_add_up_to_no_negative_number_are_fine_for_poisson_noise():
    X, y = make_binary()
    X = np.round(4.0 * X)
    rows = sparse.csr_array(X)
    messy = sparse.csr_array(X.shape)
    messy.data = np.column_stack([rows.data + 3.0, np.full(rows.nnz, -3.0)]).ravel()
    messy.indices, messy.indptr = np.repeat(rows.indices, 2), 2 * rows.indptr
    estimator = DropoutSVC(noise=Poisson(), tol=TIGHT)
    assert relative_difference(_fit(estimator, messy, y), _fit(estimator, X, y)) <= 1e-10


def test_a_noise_without_log_mgf_is_refused_by_the_losses_that_need_it():
    class Plain(Noise):
        def variance(self):
            return Gaussian(scale=0.1).variance()

    X, y = make_binary()
    for loss in ("exponential", "logistic"):
        with pytest.raises(ValueError, match=_says("log_mgf", "Plain")):
            MCFClassifier(loss, noise=Plain()).fit(X, y)
    assert DropoutSVC(noise=Plain()).fit(X, y).score(X, y) > 0.7


# Parameters -------------------------------------------------------------------------------------------------------

_UNHASHABLE = ["newton"]
_BAD_PARAMETERS = [
    *(("C", value, ["(0, inf)"]) for value in (0, 0.0, -1.0, np.nan, np.inf, "1", None, True, [1.0])),
    *(("tol", value, ["[0, inf)"]) for value in (-1e-9, np.nan, np.inf, "small", None, True)),
    *(("max_iter", value, ["integer", "1"]) for value in (0, -5, 10.0, np.nan, "100", None, True)),
    *(("penalty", value, ["l2", "l1", "elasticnet"]) for value in ("l3", "L2", "none", None, 2, ["l1"])),
    *(("solver", value, ["auto", "newton", "lbfgs"]) for value in ("sgd", "Newton", None, 1, _UNHASHABLE)),
    *(("multi_class", value, ["ovr", "ovo"]) for value in ("multinomial", "OVR", None, 2, ["ovr"])),
]


@pytest.mark.parametrize(
    "estimator", [DropoutSVC(), DropoutLogisticRegression(), MCFClassifier(), NoisyLinearClassifier()], ids=str
)
@pytest.mark.parametrize(("name", "value", "parts"), _BAD_PARAMETERS, ids=lambda value: str(value)[:20])
def test_a_bad_parameter_is_refused_with_its_name_its_value_and_what_is_allowed(estimator, name, value, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=_says(name, repr(value), *parts)):
        _fit(estimator, X, y, **{name: value})


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, "half", None, True])
def test_a_bad_l1_ratio_is_refused(value):
    X, y = make_binary()
    with pytest.raises(ValueError, match=_says("l1_ratio", repr(value), "[0, 1]")):
        DropoutSVC(penalty="elasticnet", l1_ratio=value).fit(X, y)


@pytest.mark.parametrize(
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
    ids=lambda value: str(value)[:60],
)
def test_a_bad_loss_or_approximation_is_refused(estimator, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=_says(*parts)):
        estimator.fit(X, y)


@pytest.mark.parametrize(
    ("estimator", "parts"),
    [
        (DropoutSVC(solver="closed-form"), ["closed-form", "quadratic loss", "newton"]),
        (DropoutSVC(solver="newton", penalty="l1"), ["newton", "l1", "orthant"]),
        (DropoutSVC(solver="orthant"), ["orthant", "l2", "newton"]),
        (MCFClassifier("exponential", solver="irls"), ["irls", "majoriser", "newton"]),
        (MCFClassifier("logistic", solver="closed-form"), ["closed-form", "quadratic", "lbfgs"]),
        (DropoutLogisticRegression(approximation="gaussian", solver="irls"), ["irls", "majoriser", "newton"]),
    ],
    ids=str,
)
def test_an_impossible_pair_of_solver_and_problem_names_a_possible_one(estimator, parts):
    X, y = make_binary()
    with pytest.raises(ValueError, match=_says("solver", *parts)):
        estimator.fit(X, y)


@pytest.mark.parametrize("n_jobs", [0, "two"])
def test_a_bad_n_jobs_is_refused_by_name(n_jobs):
    X, y = make_binary()
    with pytest.raises(ValueError, match="n_jobs"):
        DropoutSVC(n_jobs=n_jobs).fit(X, y)


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), np.int64(1), 1])
def test_numpy_numbers_are_numbers(value):
    X, y = make_binary()
    wanted = _fit(DropoutSVC(), X, y, C=float(value), max_iter=1000)
    assert_bitwise_equal(_fit(DropoutSVC(), X, y, C=value, max_iter=np.int64(1000)), wanted)


def test_constructors_check_nothing_and_store_what_they_get():
    rates = [2.0, "x"]
    model = DropoutSVC(noise=Dropout(rate=rates), C="C", tol=None)
    assert model.noise.rate is rates
    assert model.get_params()["C"] == "C"


# After a failure --------------------------------------------------------------------------------------------------

_FAILING = {
    "bad C": ({"C": -1.0}, {}),
    "bad noise": ({"noise": 1.5}, {}),
    "bad rate length": ({"noise": Dropout(rate=[0.1, 0.2])}, {}),
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


@pytest.mark.parametrize("kind", _FAILING)
@pytest.mark.parametrize("warm_start", [False, True])
@every_loss
def test_a_failing_fit_leaves_a_fitted_estimator_exactly_as_it_was(estimator, warm_start, kind):
    pd = pytest.importorskip("pandas")
    X, y = make_binary()
    model = _fit(estimator, X, y, warm_start=warm_start)
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
