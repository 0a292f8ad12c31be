"""Data and parameters at the edge of what numbers can hold.

A fit either gives a finite, usable model, or it says what is wrong: an error that names the column, or one warning that
says how far the solver got. It never hangs (hence the timeouts), and never gives a NaN.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from datasets import estimators, make_binary, make_centred, make_multiclass, parameters
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, GaussianNoise, LaplaceNoise

pytestmark = pytest.mark.timeout(60)

# Enough iterations for every problem here that can be solved.
_ESTIMATORS = estimators(max_iter=200)
_NOISES = {"none": None, "dropout": 0.3, "gaussian": GaussianNoise(scale=0.1), "laplace": LaplaceNoise(scale=0.1)}
_FORMATS = {"dense": np.asarray, "sparse": sparse.csr_array}


def _fit(estimator, X, y, **params):
    """Fit a classifier, given or by the name of its loss, and return the model and whether it warned.

    There may be one warning of convergence, and no other.
    """
    estimator = _ESTIMATORS[estimator] if isinstance(estimator, str) else estimator
    model = clone(estimator).set_params(**params)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert all(w.category is ConvergenceWarning for w in caught), [str(w.message) for w in caught]
    assert len(caught) <= 1
    assert model.converged_ == (not caught)
    assert np.isfinite(parameters(model)).all()
    assert np.isfinite(model.objective_)
    return model, bool(caught)


def _fit_or_refusal(estimator, X, y, **params):
    """Fit as `_fit`, but return the text of a `ValueError` as a third value."""
    try:
        return *_fit(estimator, X, y, **params), ""
    except ValueError as error:
        return None, False, str(error)


# Huge and tiny entries --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "noise", "size", "layout"),
    deal(_ESTIMATORS, ["none", "dropout", "gaussian"], [1e-300, 1e-208, 1e100, 1e200, 1e300], _FORMATS),
)
def test_one_column_of_extreme_size_is_solved_or_named(name, noise, size, layout):
    X, y = make_binary()
    X[:, 3] *= size
    X = _FORMATS[layout](X)
    model, warned, refusal = _fit_or_refusal(name, X, y, noise=_NOISES[noise])
    if refusal:
        assert size > 1.0
        assert "feature 3" in refusal
        return
    assert warned or model.score(X, y) > 0.7


def test_the_error_about_a_huge_entry_names_the_column():
    pd = pytest.importorskip("pandas")
    X, y = make_binary()
    X[5, 2] = -1e250
    for make in _FORMATS.values():
        with pytest.raises(ValueError, match=r"feature 2.*scale"):
            DropoutSVC().fit(make(X), y)
    with pytest.raises(ValueError, match=r"feature 'c'"):
        DropoutSVC().fit(pd.DataFrame(X, columns=list("abcdefgh")), y)


# Shifts and mixed scales ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "noise", "shift"), deal(_ESTIMATORS, ["none", "gaussian", "laplace"], [1e3, 1e5, 1e8, -1e8])
)
def test_a_large_shift_of_the_columns_is_solved_or_warned_about(name, noise, shift):
    # peers stop after three iterations at chance level, without a word
    X, y = make_centred()
    wanted, _ = _fit(name, X, y, noise=_NOISES[noise])
    assert wanted.score(X, y) > 0.85
    model, warned = _fit(name, X + shift, y, noise=_NOISES[noise])
    assert warned or model.score(X + shift, y) >= wanted.score(X, y) - 0.03


# Extreme parameters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "layout"), deal(_ESTIMATORS, _FORMATS))
def test_weights_are_finite_and_vanish_as_dropout_goes_to_one(name, layout):
    X, y = make_binary()
    X = _FORMATS[layout](X)
    sizes = []
    for rate in (0.5, 0.99, 1 - 1e-6, 1 - 1e-10, 1 - 1e-16):
        assert rate < 1.0
        model, _ = _fit(name, X, y, noise=rate, tol=1e-12)
        assert np.isfinite(model.decision_function(X)).all()
        sizes.append(np.abs(model.coef_).max())
    assert sizes[0] > sizes[1] > sizes[2] >= max(sizes[3:])
    assert sizes[2] < 1e-3


# Probabilities ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n_classes", "dtype"),
    deal(["logistic", "logistic-gaussian", "mcf-logistic"], [2, 4], ["float32", "float64"]),
)
def test_probabilities_of_margins_of_a_billion_are_finite_and_sum_to_one(name, n_classes, dtype):
    X, y = make_binary() if n_classes == 2 else make_multiclass(n_classes=n_classes)
    X = X.astype(dtype)
    model, _ = _fit(name, X, y)
    far = np.vstack([X * 1e10, -X * 1e10, X]).astype(dtype)
    assert np.abs(model.decision_function(far)).max() > 1e9
    probabilities = model.predict_proba(far)
    assert probabilities.shape == (len(far), n_classes)
    assert np.isfinite(probabilities).all()
    assert (probabilities >= 0.0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-6)
    logs = model.predict_log_proba(X)
    np.testing.assert_allclose(np.exp(logs), model.predict_proba(X), rtol=1e-4)


# Not converged ----------------------------------------------------------------------------------------------------


# The quadratic loss of few features is at its minimum after one step.
_ITERATIVE = [name for name in _ESTIMATORS if name != "mcf-quadratic"]


@pytest.mark.parametrize(("name", "multi_class", "n_classes"), deal(_ITERATIVE, ["ovr", "ovo"], [2, 3]))
def test_one_iteration_gives_one_warning_that_says_how_far_it_got(name, multi_class, n_classes):
    X, y = make_binary() if n_classes == 2 else make_multiclass()
    model = clone(_ESTIMATORS[name]).set_params(max_iter=1, tol=1e-10, multi_class=multi_class, noise=0.3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert len(caught) == 1
    assert caught[0].category is ConvergenceWarning
    assert caught[0].filename == __file__, "the warning should point to the caller's line"
    message = str(caught[0].message)
    assert type(model).__name__ in message
    assert "max_iter" in message
    assert "gap" in message
    assert "tol" in message
    assert model.converged_ is False
    assert model.n_iter_ == 1
    assert np.isfinite(parameters(model)).all()


@pytest.mark.parametrize(("solver", "tol"), [("irls", 0.0), ("newton", 0.0), ("newton", 1e-300), ("lbfgs", 1e-300)])
def test_a_tolerance_of_zero_ends_at_the_limit_of_precision_without_a_warning(solver, tol):
    X, y = make_centred()
    estimator = DropoutLogisticRegression()
    model, warned = _fit(estimator, X, y, solver=solver, tol=tol)
    assert not warned
    assert model.n_iter_ < model.max_iter


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_constant_score_at_the_kink_is_reached_exactly(sign):
    """Under strong noise and little data, no feature is of use: the best score is the label of the heavier class."""
    rng = np.random.default_rng(0)
    X, y = 1.0 + rng.normal(size=(40, 5)), np.r_[np.full(8, sign), np.full(32, -sign)]
    model = DropoutSVC(noise=0.95, C=0.01, tol=1e-8).fit(X, y)
    assert model.converged_
    np.testing.assert_array_equal(model.coef_, 0.0)
    np.testing.assert_array_equal(model.intercept_, -float(sign))
    assert model.objective_ == pytest.approx(0.01 * 8 * 2.0)
