"""l1 and elastic-net penalties against independent minima, and several classes against separate binary fits.

The objectives are written out here from the formulas, with NumPy alone, and minimised by `scipy.optimize`.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import sklearn
from scipy import sparse
from scipy.optimize import linprog, minimize
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.fixes import parse_version

from datasets import (
    N_FEATURES,
    TIGHT,
    assert_bitwise_equal,
    blankout,
    estimators,
    make_binary,
    make_multiclass,
    make_sparse,
    noises,
    parameters,
    relative_difference,
)
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, MCFClassifier
from dropmargin.penalties import Penalty

_ESTIMATORS = estimators(tol=TIGHT, C=0.5)
_NOISES = noises()
_FORMATS = {"dense": np.asarray, "sparse": sparse.csr_array}


def _fit(estimator, X, y, sample_weight=None, **params):
    estimator = _ESTIMATORS[estimator] if isinstance(estimator, str) else estimator
    return clone(estimator).set_params(**params).fit(X, y, sample_weight=sample_weight)


# The formulas, for dropout of rate q (0 for no noise); they hold for complex numbers, too -------------------------


def _loss(name, y, X, w, b, q):
    m = X @ w + b
    if name in ("mcf-exponential", "mcf-logistic"):
        log_mgf = np.log(q + (1.0 - q) * np.exp(-y[:, None] * w * X / (1.0 - q))).sum(axis=1) - y * b
        return np.exp(log_mgf) if name == "mcf-exponential" else np.log(1.0 + np.exp(log_mgf))
    v = np.square(X) @ np.square(w) * (q / (1.0 - q))
    if name == "svc":
        return 0.5 * (1.0 - y * m + np.sqrt(np.square(1.0 - y * m) + v))
    if name == "svc-gaussian":
        z, sd = 1.0 - y * m, np.sqrt(v + 1e-300)
        return z * ndtr(z / sd) + sd * np.exp(-0.5 * np.square(z / sd)) / np.sqrt(2.0 * np.pi)
    if name == "logistic":
        r = np.sqrt(np.square(m) + v + 1e-300)
        return np.log(2.0 * np.cosh(0.5 * r)) - 0.5 * y * m
    assert name == "mcf-quadratic"
    return np.square(y - m) + v


def _smooth_part(name, y, X, w, b, q, C, l2):
    return 0.5 * l2 * np.sum(np.square(w)) + C * np.sum(_loss(name, y, X, w, b, q))


def _gradient(name, y, X, w, b, q, C, l2):
    """Return the derivatives by weights and intercept, by complex steps: exact to the last digits."""
    point, step = np.append(w, b), 1e-30
    out = np.empty_like(point)
    for d in range(len(point)):
        moved = point.astype(complex)
        moved[d] += 1j * step
        out[d] = _smooth_part(name, y, X, moved[:-1], moved[-1], q, C, l2).imag / step
    return out


def _minimum(name, y, X, q, C, l1, l2):
    """Return the least value, by L-BFGS-B on weights split into their positive and negative parts."""
    d = X.shape[1]

    def value_and_gradient(parts):
        w, b = parts[:d] - parts[d:-1], parts[-1]
        gradient = _gradient(name, y, X, w, b, q, C, l2)
        value = _smooth_part(name, y, X, w, b, q, C, l2) + l1 * parts[:-1].sum()
        return value, np.concatenate([gradient[:d] + l1, l1 - gradient[:d], gradient[-1:]])

    bounds = [(0.0, None)] * (2 * d) + [(None, None)]
    start = np.full(2 * d + 1, 0.01)
    options = {"maxiter": 20_000, "maxfun": 200_000, "ftol": 1e-14, "gtol": 1e-10, "maxls": 100}
    return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun


_PENALTIES = {1.0: (1.0, 0.0), 0.5: (0.5, 0.5), 0.0: (0.0, 1.0)}
# A strength at which some weights of `make_binary` are zero and some are not.
_SELECTIVE_C = {
    "svc": 0.1,
    "svc-gaussian": 0.1,
    "logistic": 0.2,
    "logistic-gaussian": 0.2,
    "mcf-quadratic": 0.05,
    "mcf-exponential": 0.1,
    "mcf-logistic": 0.2,
}
_WRITTEN_OUT = ["svc", "logistic", "mcf-quadratic", "mcf-exponential", "mcf-logistic"]


@pytest.mark.parametrize(("name", "l1_ratio", "q", "C"), deal(_WRITTEN_OUT, _PENALTIES, [0.1, 0.5], [0.05, 1.0]))
def test_the_objective_is_the_independent_minimum(name, l1_ratio, q, C):
    X, y = make_binary()
    l1, l2 = _PENALTIES[l1_ratio]
    model = _fit(name, X, y, noise=blankout(q), l1_ratio=l1_ratio, C=C, tol=1e-10)
    assert model.objective_ == pytest.approx(_minimum(name, 2.0 * y - 1.0, X, q, C, l1, l2), rel=1e-6)
    w, b = model.coef_[0], model.intercept_[0]
    written_out = _smooth_part(name, 2.0 * y - 1.0, X, w, b, q, C, l2) + l1 * np.abs(w).sum()
    assert model.objective_ == pytest.approx(written_out, rel=1e-12)


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_the_objective_of_noise_free_logistic_regression_is_the_independent_minimum(l1_ratio):
    X, y = make_binary()
    l1, l2 = _PENALTIES[l1_ratio]
    model = _fit("logistic", X, y, noise=None, l1_ratio=l1_ratio, tol=1e-10)
    assert model.objective_ == pytest.approx(_minimum("logistic", 2.0 * y - 1.0, X, 0.0, 0.5, l1, l2), rel=1e-6)


def test_the_objective_of_the_gaussian_hinge_with_l1_is_no_more_than_anywhere_near():
    # the normal distribution's function takes no complex numbers, so: random directions
    X, y = make_binary()
    model = _fit("svc-gaussian", X, y, noise=blankout(0.3), l1_ratio=1.0)
    rng = np.random.RandomState(0)

    def value(w, b):
        return 0.5 * np.sum(_loss("svc-gaussian", 2.0 * y - 1.0, X, w, b, 0.3)) + np.abs(w).sum()

    w, b = model.coef_[0], model.intercept_[0]
    assert model.objective_ == pytest.approx(value(w, b), rel=1e-12)
    for size in (1e-4, 1e-2, 1.0):
        for _ in range(50):
            moved = w + size * rng.randn(N_FEATURES) * (rng.rand(N_FEATURES) < 0.5), b + size * rng.randn()
            assert value(*moved) >= model.objective_ * (1.0 - 1e-12)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("C", [0.1, 1.0])
def test_the_l1_svm_without_noise_is_the_solution_of_its_linear_programme(C, fit_intercept):
    X, y = make_binary()
    n, d = X.shape
    signs = 2.0 * y - 1.0
    # minimise sum(w+ + w-) + C sum(xi) with y (X w + b) >= 1 - xi
    rows = signs[:, None] * np.hstack([X, -X, np.ones((n, 1))])
    bound = None if fit_intercept else 0.0
    exact = linprog(
        np.concatenate([np.ones(2 * d), [0.0], np.full(n, C)]),
        A_ub=-np.hstack([rows, np.eye(n)]),
        b_ub=-np.ones(n),
        bounds=[(0.0, None)] * (2 * d) + [(bound, bound)] + [(0.0, None)] * n,
    )
    model = DropoutSVC(noise=None, l1_ratio=1.0, C=C, fit_intercept=fit_intercept, tol=1e-7, max_iter=200).fit(X, y)
    assert model.objective_ == pytest.approx(exact.fun, rel=1e-6)
    w = exact.x[:d] - exact.x[d : 2 * d]
    np.testing.assert_allclose(model.coef_[0], w, atol=1e-3 * np.abs(w).max())


@pytest.mark.parametrize(("C", "l1_ratio"), [(0.3, 0.3), (1.0, 1.0)])
def test_noise_free_logistic_regression_agrees_with_scikit_learn(C, l1_ratio):
    X, y = make_binary()
    model = DropoutLogisticRegression(noise=None, l1_ratio=l1_ratio, C=C, tol=TIGHT).fit(X, y)
    saga = LogisticRegression(l1_ratio=l1_ratio, C=C, solver="saga", tol=1e-9, max_iter=100_000, random_state=0)
    if parse_version(sklearn.__version__) < parse_version("1.8"):  # l1_ratio alone has no effect
        saga.set_params(penalty="elasticnet")
    saga.fit(X, y)
    np.testing.assert_allclose(parameters(model), parameters(saga), atol=1e-5)


# Optimality and zeros ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "l1_ratio", "layout", "q", "factor"),
    # At 0.9 the hinge's optimum has rows at a kink (one weight, absent from them, and b = 1), without a gradient.
    deal(_WRITTEN_OUT, [1.0, 0.5], _FORMATS, [0.1, 0.5], [1.0, 1.1], n=20),
)
def test_the_subgradient_conditions_hold_at_the_solution(name, l1_ratio, layout, q, factor):
    X, y = make_binary()
    l1, l2 = _PENALTIES[l1_ratio]
    C = factor * _SELECTIVE_C[name]
    model = _fit(name, _FORMATS[layout](X), y, noise=blankout(q), l1_ratio=l1_ratio, C=C)
    w = model.coef_[0]
    gradient = _gradient(name, 2.0 * y - 1.0, X, w, model.intercept_[0], q, C, l2)
    at_zero = w == 0.0
    assert np.abs(gradient[:-1][~at_zero] + l1 * np.sign(w[~at_zero])).max() <= 1e-9
    assert (np.abs(gradient[:-1][at_zero]) <= l1 + 1e-9).all()
    assert abs(gradient[-1]) <= 1e-9
    # real zeros and real weights, nothing in between
    assert at_zero.any()
    assert not at_zero.all()
    assert np.abs(w[~at_zero]).min() > 1e-6


@pytest.mark.parametrize(("name", "noise", "tol"), deal(_ESTIMATORS, _NOISES, [1e-4, 1e-8], n=14))
def test_a_strong_l1_penalty_leaves_exact_zeros_and_a_stronger_one_nothing_else(name, noise, tol):
    X, y = make_binary()
    y[:6] = 1
    some = _fit(name, X, y, noise=_NOISES[noise], l1_ratio=1.0, C=_SELECTIVE_C[name], tol=tol)
    none = _fit(name, X, y, noise=_NOISES[noise], l1_ratio=1.0, C=1e-4, tol=tol)
    assert 0 < np.count_nonzero(some.coef_) < N_FEATURES
    assert np.count_nonzero(none.coef_) == 0
    assert none.intercept_[0] > 0.0


@pytest.mark.parametrize(
    ("name", "q"), deal(["logistic", "mcf-quadratic", "mcf-exponential", "mcf-logistic"], [0.0, 0.5], n=4)
)
def test_the_first_weight_enters_where_theory_says(name, q):
    # at w = 0 the score has no variance: a weight enters once C times its gradient there exceeds the penalty
    X, y = make_binary()
    signs = 2.0 * y - 1.0
    # the classes are of equal size, so the best intercept alone is zero
    gradient = _gradient(name, signs, X, np.zeros(N_FEATURES), 0.0, q, 1.0, 0.0)
    assert abs(gradient[-1]) < 1e-12
    edge = 1.0 / np.abs(gradient[:-1]).max()
    below, above = (_fit(name, X, y, noise=blankout(q), l1_ratio=1.0, C=edge * f) for f in (0.999, 1.01))
    assert np.count_nonzero(below.coef_) == 0
    assert np.flatnonzero(above.coef_[0]).tolist() == [np.abs(gradient[:-1]).argmax()]


def test_more_features_than_rows_under_l1():
    X, y = make_sparse(40, 300, 0.1)
    for estimator in (DropoutSVC(noise=0.3), DropoutLogisticRegression(noise=0.3), MCFClassifier(noise=0.3)):
        model = _fit(estimator, X, y, l1_ratio=1.0, tol=1e-8)
        dense = _fit(estimator, X.toarray(), y, l1_ratio=1.0, tol=1e-8)
        assert 0 < np.count_nonzero(model.coef_) < 150
        assert model.objective_ == pytest.approx(dense.objective_, rel=1e-7)


@pytest.mark.parametrize(("name", "l1_ratio"), deal(_ESTIMATORS, [1.0, 0.5], n=7))
def test_an_all_zero_column_has_weight_zero_exactly(name, l1_ratio):
    X, y = make_binary()
    X[:, 4] = 0.0
    assert _fit(name, X, y, noise=0.3, l1_ratio=l1_ratio).coef_[0, 4] == 0.0


@pytest.mark.parametrize(("name", "noise"), deal(_ESTIMATORS, ["dropout", "gaussian"], n=7))
def test_an_elastic_net_with_hardly_any_l1_is_the_l2_penalty(name, noise):
    # another solver than for l2, the same optimum
    X, y = make_binary()
    hardly = _fit(name, X, y, noise=_NOISES[noise], l1_ratio=1e-9)
    assert relative_difference(hardly, _fit(name, X, y, noise=_NOISES[noise])) <= 1e-7


# One-vs-rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "noise", "layout"), deal(_ESTIMATORS, _NOISES, _FORMATS, n=14))
def test_one_vs_rest_is_one_binary_fit_per_class(name, noise, layout):
    X, y = make_multiclass(seed=15)  # where no class is best served by no weights at all
    X, noise = _FORMATS[layout](X), _NOISES[noise]
    together = _fit(name, X, y, noise=noise)
    alone = [_fit(name, X, y == k, noise=noise) for k in range(3)]
    assert relative_difference(parameters(together), np.vstack([parameters(a) for a in alone])) <= 1e-10
    assert together.objective_ == pytest.approx(sum(a.objective_ for a in alone), rel=1e-10)
    scores = np.column_stack([a.decision_function(X) for a in alone])
    np.testing.assert_allclose(together.decision_function(X), scores, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(together.predict(X), scores.argmax(axis=1))


@pytest.mark.parametrize(("name", "l1_ratio"), deal(_WRITTEN_OUT, [1.0, 0.5], n=6))
def test_one_vs_rest_is_one_binary_fit_per_class_for_every_penalty(name, l1_ratio):
    X, y = make_multiclass()
    weights = np.linspace(0.5, 1.5, len(y))
    options = {"noise": 0.3, "l1_ratio": l1_ratio, "tol": 1e-8 if name == "svc" else TIGHT}  # one class is at the kink
    together = _fit(name, X, y, weights, **options)
    alone = [_fit(name, X, y == k, weights, **options) for k in range(3)]
    np.testing.assert_array_equal(together.coef_ == 0.0, np.vstack([a.coef_ == 0.0 for a in alone]))
    assert relative_difference(parameters(together), np.vstack([parameters(a) for a in alone])) <= 1e-10


@pytest.mark.parametrize("solver", ["irls", "newton", "lbfgs"])
@pytest.mark.parametrize("name", ["svc", "logistic"])
def test_every_solver_fits_several_classes_as_it_fits_one(name, solver):
    X, y = make_multiclass()
    tol = {"irls": 1e-4 if name == "svc" else 1e-5}.get(solver, 1e-10)  # the tail of IRLS is linear
    together = _fit(name, X, y, noise=0.3, solver=solver, tol=tol)
    alone = [_fit(name, X, y == k, noise=0.3, solver=solver, tol=tol) for k in range(3)]
    bar = 10.0 * np.sqrt(tol)
    assert relative_difference(parameters(together), np.vstack([parameters(a) for a in alone])) <= bar
    assert together.objective_ == pytest.approx(sum(a.objective_ for a in alone), rel=10.0 * tol)


@pytest.mark.parametrize("name", ["logistic", "logistic-gaussian", "mcf-logistic"])
def test_one_vs_rest_probabilities_are_the_binary_ones_normalised(name):
    X, y = make_multiclass()
    model = _fit(name, X, y)
    binary = np.column_stack([_fit(name, X, y == k).predict_proba(X)[:, 1] for k in range(3)])
    np.testing.assert_allclose(model.predict_proba(X), binary / binary.sum(axis=1, keepdims=True), rtol=1e-8)
    np.testing.assert_array_equal(model.predict_proba(X).argmax(axis=1), model.predict(X))


# One-vs-one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "noise", "layout"), deal(_ESTIMATORS, ["none", "gaussian", "dropout-per-feature"], _FORMATS, n=8)
)
def test_one_vs_one_is_one_binary_fit_per_pair(name, noise, layout):
    X, y = make_multiclass(n_classes=4, n_samples=100)
    weights = np.linspace(0.5, 1.5, len(y))
    noise = _NOISES[noise]
    together = _fit(name, _FORMATS[layout](X), y, weights, noise=noise, multi_class="ovo")
    pairs = list(combinations(range(4), 2))
    assert together.coef_.shape == (len(pairs), N_FEATURES)
    for row, (first, second) in zip(parameters(together), pairs, strict=True):
        rows = np.flatnonzero((y == first) | (y == second))
        alone = _fit(name, X[rows], y[rows], weights[rows], noise=noise)
        assert relative_difference(row[None, :], parameters(alone)) <= 1e-10


@pytest.mark.parametrize("name", ["svc", "logistic", "mcf-exponential"])
def test_one_vs_one_predicts_by_votes(name):
    X, y = make_multiclass(n_classes=4, n_samples=120)
    model = _fit(name, X, np.array(list("abcd"))[y], multi_class="ovo")
    pair_scores = X @ model.coef_.T + model.intercept_
    votes = np.zeros((len(X), 4))
    for column, (first, second) in enumerate(combinations(range(4), 2)):
        votes[:, second] += pair_scores[:, column] > 0.0
        votes[:, first] += pair_scores[:, column] <= 0.0
    predicted = np.searchsorted(model.classes_, model.predict(X))
    assert (votes[np.arange(len(X)), predicted] == votes.max(axis=1)).all()
    scores = model.decision_function(X)
    assert scores.shape == (len(X), 4)
    np.testing.assert_array_equal(scores.argmax(axis=1), predicted)
    np.testing.assert_array_equal(np.round(scores), votes)  # what breaks a tie is worth less than half a vote


def test_tied_votes_go_to_the_class_with_the_larger_scores():
    X, y = make_multiclass()
    model = DropoutSVC(multi_class="ovo").fit(X, y)
    model.coef_ = np.zeros_like(model.coef_)
    # 0 beats 1, 1 beats 2, 2 beats 0: one vote each, and 1 wins by the widest margin
    model.intercept_ = np.array([-0.5, 0.1, -3.0])
    assert (model.predict(X) == 1).all()


@pytest.mark.parametrize(("name", "l1_ratio"), deal(_ESTIMATORS, [0.0, 1.0], n=7))
def test_one_vs_one_does_not_depend_on_the_number_of_threads(name, l1_ratio):
    X, y = make_multiclass(n_classes=4, n_samples=120)
    one, two = (_fit(name, X, y, multi_class="ovo", l1_ratio=l1_ratio, n_jobs=n, tol=1e-6) for n in (1, 2))
    assert_bitwise_equal(one, two)
    assert one.history_ == two.history_
    assert one.objective_ == two.objective_
    assert one.n_passes_ == two.n_passes_


@pytest.mark.parametrize("name", ["svc", "logistic", "mcf-exponential"])
def test_two_classes_are_the_same_problem_one_vs_one_and_one_vs_rest(name):
    X, y = make_binary()
    one, rest = (_fit(name, X, y, multi_class=kind) for kind in ("ovo", "ovr"))
    assert_bitwise_equal(one, rest)
    np.testing.assert_array_equal(one.decision_function(X), rest.decision_function(X))


@pytest.mark.parametrize(("multi_class", "n_classes"), [("ovr", 7), ("ovo", 3)])
def test_a_class_with_a_single_row_is_fitted(multi_class, n_classes):
    X, y = make_multiclass(n_samples=150, n_classes=n_classes)
    X, y = np.vstack([X, 5.0 * np.ones(N_FEATURES)]), np.append(y, 99)
    model = DropoutSVC(multi_class=multi_class).fit(X, y)
    assert 99 in model.classes_
    n = n_classes + 1
    assert model.coef_.shape[0] == (n if multi_class == "ovr" else n * (n - 1) // 2)


@pytest.mark.parametrize(
    "penalty", [Penalty(0.7, 0.4, barrier=0.3), Penalty(0.0, 2.0, barrier=1e-3), Penalty(0.7, 0.4)]
)
def test_derivatives_of_the_penalty_by_finite_differences(penalty):
    coef, step = np.random.default_rng(0).normal(size=(6, 1)), 1e-6
    for d in range(5):
        above, below = coef.copy(), coef.copy()
        above[d] += step
        below[d] -= step
        slope = (penalty.value(above) - penalty.value(below)) / (2.0 * step)
        bend = (penalty.gradient(above) - penalty.gradient(below))[d] / (2.0 * step)
        np.testing.assert_allclose(penalty.gradient(coef)[d], slope, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(np.broadcast_to(penalty.curvature(coef), (5, 1))[d], bend, rtol=1e-5, atol=1e-7)
        assert np.all(penalty.majoriser(coef) >= penalty.curvature(coef))


def test_the_least_subgradient_of_an_intercept_is_its_gradient():
    gradient = np.array([[0.5], [-1.5], [0.5]])
    found = Penalty(l2=0.0, l1=1.0).least_subgradient(np.zeros((3, 1)), gradient)
    np.testing.assert_allclose(found, [[0.0], [-0.5], [0.5]])
