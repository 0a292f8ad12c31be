"""Data and parameters at the edge of what numbers can hold.

A fit either gives a finite, usable model, or it says what is wrong: an error that names the column, or one warning that
says how far the solver got. It never hangs (hence the timeouts), and never gives a NaN.
"""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from datasets import estimators, make_binary, make_centred, make_multiclass, make_separable, parameters
from dealing import deal, together
from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC, GaussianNoise, LaplaceNoise

pytestmark = pytest.mark.timeout(60)

# Enough iterations for every problem here that can be solved.
_ESTIMATORS = estimators(max_iter=200)
_NOISES = {"none": None, "dropout": 0.3, "gaussian": GaussianNoise(scale=0.1), "laplace": LaplaceNoise(scale=0.1)}
_FORMATS = {"dense": np.asarray, "sparse": sparse.csr_array}
every_loss = pytest.mark.parametrize("name", _ESTIMATORS)


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


@together(
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


@pytest.mark.parametrize(
    ("size", "name", "noise"),
    deal([1e-300, 1e-208, 1e-100, 1e-20, 1e20, 1e50, 1e99, 1e100, 1e300], _ESTIMATORS, ["none", "dropout"], n=18),
)
def test_all_entries_of_extreme_size_are_solved_or_refused(size, name, noise):
    X, y = make_binary()
    model, warned, refusal = _fit_or_refusal(name, X * size, y, noise=_NOISES[noise])
    if refusal:
        assert size >= 1e99
        assert re.search(r"feature \d", refusal)
        return
    # entries of 1e-300 can only be told from zero with a C to match: then the intercept alone is the right answer
    assert warned or size < 1.0 or model.score(X * size, y) > 0.7


@pytest.mark.parametrize(("name", "value"), deal(_ESTIMATORS, [1e100, -1e200, 1e300], n=7))
def test_a_single_huge_entry_is_solved_or_named(name, value):
    # LinearSVC hangs on [[0], [1e100]]
    X = np.array([[0.0], [value]])
    model, warned, refusal = _fit_or_refusal(name, X, [0, 1], noise=0.5)
    if refusal:
        assert "feature 0" in refusal
        return
    assert warned or list(model.predict(X)) == [0, 1]


@every_loss
def test_denormal_entries_do_no_harm(name):
    # LIBLINEAR hangs on entries of 3.7e-208
    X, y = make_binary()
    disturbed = X.copy()
    disturbed[X == 0.0] = 3.7e-208
    model, warned = _fit(name, disturbed, y, noise=0.5, tol=1e-20)
    wanted, _ = _fit(name, X, y, noise=0.5, tol=1e-20)
    assert not warned
    np.testing.assert_allclose(parameters(model), parameters(wanted), rtol=1e-6, atol=1e-9)


def test_the_error_about_a_huge_entry_names_the_column():
    pd = pytest.importorskip("pandas")
    X, y = make_binary()
    X[5, 2] = -1e250
    for make in _FORMATS.values():
        with pytest.raises(ValueError, match=r"feature 2.*scale"):
            DropoutSVC().fit(make(X), y)
    with pytest.raises(ValueError, match=r"feature 'c'"):
        DropoutSVC().fit(pd.DataFrame(X, columns=list("abcdefgh")), y)


@pytest.mark.parametrize(
    ("name", "noise"),
    deal(_ESTIMATORS, [GaussianNoise(scale=1e99), LaplaceNoise(scale=1e99), GaussianNoise(scale=1e-200)], n=7),
    ids=str,
)
def test_noise_of_extreme_size_gives_finite_weights(name, noise):
    X, y = make_binary()
    model, _ = _fit(name, X, y, noise=noise)
    assert np.isfinite(model.decision_function(X)).all()
    if noise.scale > 1.0:
        assert np.abs(model.coef_).max() < 1e-50


# Shifts and mixed scales ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "noise", "shift"), deal(_ESTIMATORS, ["none", "gaussian", "laplace"], [1e3, 1e5, 1e8, -1e8], n=14)
)
def test_a_large_shift_of_the_columns_is_solved_or_warned_about(name, noise, shift):
    # peers stop after three iterations at chance level, without a word
    X, y = make_centred()
    wanted, _ = _fit(name, X, y, noise=_NOISES[noise])
    assert wanted.score(X, y) > 0.85
    model, warned = _fit(name, X + shift, y, noise=_NOISES[noise])
    assert warned or model.score(X + shift, y) >= wanted.score(X, y) - 0.03


@pytest.mark.parametrize(("name", "shift", "noise"), deal(_ESTIMATORS, [10.0, 100.0], ["none", "gaussian"]))
def test_a_shift_of_the_columns_does_not_fool_the_stop_rule(name, shift, noise):
    # the minimum is the same, so two fits to a relative gap of 1e-4 may not be further apart than that
    X, y = make_centred()
    wanted, _ = _fit(name, X, y, noise=_NOISES[noise], tol=1e-8)
    model, warned = _fit(name, X + shift, y, noise=_NOISES[noise], tol=1e-4)
    assert not warned
    assert model.objective_ <= wanted.objective_ * (1.0 + 5e-4)


@pytest.mark.parametrize(("name", "noise"), deal(["svc", "logistic", "mcf-quadratic"], ["none", "gaussian"], n=4))
def test_moment_losses_undo_a_shift_of_a_million_to_six_digits(name, noise):
    # the variance of additive noise does not depend on the shift, so the unpenalised intercept makes up for it
    X, y = make_centred()
    wanted, _ = _fit(name, X, y, noise=_NOISES[noise], tol=1e-20)
    model, warned = _fit(name, X + 1e6, y, noise=_NOISES[noise], tol=1e-20)
    assert not warned
    np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "rate"), deal(_ESTIMATORS, [0.1, 0.5], n=7))
def test_a_large_shift_under_dropout_to_the_mean_changes_no_score(name, rate):
    # the means, to which features are dropped, are shifted with them
    X, y = make_centred()
    wanted, _ = _fit(name, X, y, noise=rate)
    model, warned = _fit(name, X + 1e8, y, noise=rate)
    assert not warned
    np.testing.assert_allclose(model.decision_function(X + 1e8), wanted.decision_function(X), atol=1e-5)


@pytest.mark.parametrize(("name", "rate"), deal(_ESTIMATORS, [0.1, 0.5], n=7))
def test_a_large_shift_under_dropout_to_zero_does_not_break_the_fit(name, rate):
    # here the shift is signal to be dropped, so that the solution is another one
    X, y = make_centred()
    model, warned = _fit(name, X + 1e8, y, noise=DropoutNoise(rate, reference="zero"))
    assert np.isfinite(model.decision_function(X + 1e8)).all()
    assert warned or model.score(X + 1e8, y) >= max(np.mean(y == 0), np.mean(y == 1))


@pytest.mark.parametrize(("name", "noise", "C"), deal(_ESTIMATORS, ["none", "dropout"], [1.0, 1e3], n=10))
def test_columns_of_mixed_scales_are_solved_or_warned_about(name, noise, C):
    X, y = make_centred(n_features=5)
    scales = np.logspace(-6, 6, 5)
    model, warned = _fit(name, X * scales, y, noise=_NOISES[noise], C=C)
    # the small columns are too dear to use: what can be had is the model on the others
    visible = X * np.where(scales < 1.0, scales, 1.0)
    wanted, _ = _fit(name, visible, y, noise=_NOISES[noise], C=C)
    assert warned or model.score(X * scales, y) >= wanted.score(visible, y) - 0.03


@every_loss
def test_mixed_scales_with_noise_alone_to_regularise_are_the_standardised_problem(name):
    # dropout does not depend on a column's unit, so with a C of 1e12 only rounding does
    X, y = make_centred(n_features=5)
    scales = np.logspace(-3, 3, 5)
    model, warned = _fit(name, X * scales, y, noise=0.3, C=1e12, tol=1e-12)
    wanted, _ = _fit(name, X, y, noise=0.3, C=1e12, tol=1e-12)
    assert warned or model.score(X * scales, y) == pytest.approx(wanted.score(X, y), abs=0.01)
    assert warned or np.allclose(model.coef_ * scales, wanted.coef_, rtol=1e-3, atol=1e-3)


# Extreme parameters -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "layout"), deal(_ESTIMATORS, _FORMATS, n=7))
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


@pytest.mark.parametrize(
    ("name", "C", "noise", "fit_intercept"),
    deal(_ESTIMATORS, [1e-12, 1e6, 1e12], ["none", "dropout"], [True, False]),
)
def test_separable_data_with_extreme_c_stay_finite(name, C, noise, fit_intercept):
    X, y = make_separable()
    model, warned = _fit(name, X, y, noise=_NOISES[noise], C=C, fit_intercept=fit_intercept)
    assert fit_intercept or model.intercept_[0] == 0.0
    assert warned or C < 1.0 or model.score(X, y) > 0.95


@pytest.mark.parametrize(("C", "fit_intercept"), [(1.0, True), (1e4, False), (1e8, True), (1e8, False)])
def test_the_hard_margin_is_found_on_separable_data(C, fit_intercept):
    # two points decide: the weight is one over half their distance
    X = np.array([[-1.0, 0.0], [1.0, 0.0], [-3.0, 1.0], [3.0, -1.0]])
    model, warned = _fit(DropoutSVC(noise=None), X, [0, 1, 0, 1], C=C, tol=1e-10, fit_intercept=fit_intercept)
    assert not warned
    np.testing.assert_allclose(model.coef_, [[1.0, 0.0]], atol=1e-4)
    assert model.objective_ == pytest.approx(0.5, rel=1e-8)


_LOSS_OF_SCORES = {
    "svc": lambda margin: np.maximum(0.0, 1.0 - margin),
    "logistic": lambda margin: np.logaddexp(0.0, -margin),
    "mcf-quadratic": lambda margin: np.square(1.0 - margin),
    "mcf-exponential": lambda margin: np.exp(-margin),
    "mcf-logistic": lambda margin: np.logaddexp(0.0, -margin),
}


def _best_intercept_alone(name, weights, y):
    """Return the objective of the best model with no weights, which no fit may exceed."""
    intercepts = np.linspace(-30.0, 30.0, 60_001)
    loss = _LOSS_OF_SCORES[name.removesuffix("-gaussian")]
    totals = [weights[y == label].sum() for label in (0, 1)]
    return (totals[0] * loss(-intercepts) + totals[1] * loss(intercepts)).min()


@pytest.mark.parametrize(
    ("name", "noise", "class_weight"),
    deal(_ESTIMATORS, ["none", "dropout"], [{0: 1e3, 1: 1e-4}, {0: 1e-4, 1: 1e3}, {0: 1.0, 1: 1e-3}]),
    ids=str,
)
def test_class_weights_orders_apart_are_solved(name, noise, class_weight):
    X, y = make_binary()
    X = 20.0 * (X - X.mean(axis=0))
    model, warned = _fit(name, X, y, noise={"none": None, "dropout": 0.1}[noise], class_weight=class_weight)
    assert not warned, model.history_[-1]
    weights = np.array([class_weight[0], class_weight[1]])[y]
    assert model.objective_ <= _best_intercept_alone(name, weights, y) * (1.0 + 1e-3)


@pytest.mark.parametrize(("name", "rate", "seed"), deal(_ESTIMATORS, [0.0, 0.1], range(5)))
def test_labels_of_pure_chance_on_columns_far_from_zero_are_solved(name, rate, seed):
    rng = np.random.RandomState(seed)
    X = rng.normal(loc=100.0, size=(80, 2))
    y = (rng.rand(80) < 0.56).astype(int)
    model, warned = _fit(name, X, y, noise=rate or None)
    assert not warned, model.history_[-1]
    assert model.objective_ <= _best_intercept_alone(name, np.ones(80), y) * (1.0 + 1e-3)


@pytest.mark.parametrize(("name", "rare"), deal(_ESTIMATORS, [1, 2, 5], n=7))
def test_a_rare_class_is_solved(name, rare):
    X, y = make_binary(n_samples=200)
    keep = np.flatnonzero((y == 0) | (np.cumsum(y) <= rare))
    X, y = X[keep], y[keep]
    assert y.sum() == rare
    model, warned = _fit(name, X, y, noise=0.1)
    assert not warned, model.history_[-1]
    assert model.objective_ <= _best_intercept_alone(name, np.ones(len(y)), y) * (1.0 + 1e-3)


@pytest.mark.parametrize(
    ("noise", "tol", "name"), deal(_NOISES, [1e-4, 1e-8, 1e-16, 1e-24], ["svc", "svc-gaussian"], n=8)
)
def test_an_optimum_with_no_weights_is_found_at_every_tolerance(noise, tol, name):
    # One class against the rest is often best told by a constant; there the score has no variance, and J a kink.
    X, y = make_multiclass(n_samples=120, n_classes=4, seed=4)
    y = (y == 2).astype(int)
    noise = {"gaussian": GaussianNoise(scale=0.3), "laplace": LaplaceNoise(scale=0.2)}.get(noise, _NOISES[noise])
    model, warned = _fit(name, X, y, noise=noise, tol=tol)
    assert not warned, model.history_[-1]
    best = _best_intercept_alone(name, np.ones(120), y)
    if noise is None:
        assert model.objective_ <= best * (1.0 + max(tol, 1e-8))
    else:
        # 1e-8 is where the solvers call it the limit of precision
        assert model.objective_ == pytest.approx(best, rel=max(tol, 1e-8))
        assert np.abs(model.coef_).max() < 1e-3


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


@pytest.mark.parametrize("scores", [[-1e9, -1e9, -1e9], [-1e9, -2e9, -3e9], [1e9, 1e9, -1e9], [800.0, -800.0, 0.0]])
def test_probabilities_rank_the_classes_as_their_scores_do(scores):
    X, y = make_multiclass()
    model = DropoutLogisticRegression().fit(X, y)
    model.coef_ = np.zeros_like(model.coef_)
    model.intercept_ = np.array(scores)
    probabilities = model.predict_proba(X[:1])[0]
    assert probabilities.sum() == pytest.approx(1.0)
    assert (np.diff(probabilities[np.argsort(scores)]) >= 0.0).all()
    assert probabilities[np.argmin(scores)] <= probabilities[np.argmax(scores)]


@pytest.mark.parametrize("name", ["logistic", "mcf-logistic"])
def test_log_probabilities_of_far_rows_are_not_minus_infinity(name):
    # a probability of exp(-2000) is zero, its logarithm is not
    X, y = make_binary()
    model, _ = _fit(name, X, y)
    model.coef_ = model.coef_ * (2000.0 / np.abs(model.coef_).max())
    scores = model.decision_function(X)
    assert np.abs(scores).max() > 1000.0
    logs = model.predict_log_proba(X)
    np.testing.assert_allclose(logs[:, 1], -np.logaddexp(0.0, -scores), rtol=1e-10)


# Not converged ----------------------------------------------------------------------------------------------------


# The quadratic loss of few features is at its minimum after one step.
_ITERATIVE = [name for name in _ESTIMATORS if name != "mcf-quadratic"]


def test_a_quadratic_loss_of_few_features_takes_one_step():
    model, warned = _fit("mcf-quadratic", *make_binary(), max_iter=1, tol=1e-10)
    assert (model.n_iter_, model.converged_, warned) == (1, True, False)


@pytest.mark.parametrize(("name", "multi_class", "n_classes"), deal(_ITERATIVE, ["ovr", "ovo"], [2, 3], n=7))
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


@together(("name", "l1_ratio", "noise", "max_iter"), deal(_ITERATIVE, [0.0, 1.0, 0.5], ["none", "dropout"], [1, 2]))
def test_few_iterations_are_counted_and_warned_about_for_every_penalty(name, l1_ratio, noise, max_iter):
    X, y = make_binary()
    model, warned = _fit(name, X, y, noise=_NOISES[noise], l1_ratio=l1_ratio, max_iter=max_iter, tol=1e-14)
    assert len(model.history_) == model.n_iter_
    assert warned
    assert model.n_iter_ == max_iter


@pytest.mark.parametrize(("solver", "name"), deal(["irls", "newton", "lbfgs"], ["svc", "logistic"]))
def test_every_iterative_solver_warns_when_it_runs_out_of_iterations(solver, name):
    X, y = make_binary()
    model, warned = _fit(name, X, y, solver=solver, max_iter=2, tol=1e-12)
    assert warned
    assert model.n_iter_ == 2


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
