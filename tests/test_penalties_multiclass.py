"""l1 and elastic-net penalties against independent minima, and several classes against separate binary fits.

The objectives are written out here from the formulas, with NumPy alone, and minimised by `scipy.optimize`.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import ndtr
from sklearn.base import clone

from datasets import (
    N_FEATURES,
    TIGHT,
    blankout,
    estimators,
    make_binary,
    make_multiclass,
    noises,
    parameters,
    relative_difference,
)
from dealing import deal
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


# Optimality and zeros ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "l1_ratio", "layout", "q", "factor"),
    # At 0.9 the hinge's optimum has rows at a kink (one weight, absent from them, and b = 1), without a gradient.
    deal(_WRITTEN_OUT, [1.0, 0.5], _FORMATS, [0.1, 0.5], [1.0, 1.1]),
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


@pytest.mark.parametrize(("name", "noise", "tol"), deal(_ESTIMATORS, _NOISES, [1e-4, 1e-8]))
def test_a_strong_l1_penalty_leaves_exact_zeros_and_a_stronger_one_nothing_else(name, noise, tol):
    X, y = make_binary()
    y[:6] = 1
    some = _fit(name, X, y, noise=_NOISES[noise], l1_ratio=1.0, C=_SELECTIVE_C[name], tol=tol)
    none = _fit(name, X, y, noise=_NOISES[noise], l1_ratio=1.0, C=1e-4, tol=tol)
    assert 0 < np.count_nonzero(some.coef_) < N_FEATURES
    assert np.count_nonzero(none.coef_) == 0
    assert none.intercept_[0] > 0.0


@pytest.mark.parametrize(
    ("name", "q"), deal(["logistic", "mcf-quadratic", "mcf-exponential", "mcf-logistic"], [0.0, 0.5])
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


# One-vs-rest ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "noise", "layout"), deal(_ESTIMATORS, _NOISES, _FORMATS))
def test_one_vs_rest_is_one_binary_fit_per_class(name, noise, layout):
    X, y = make_multiclass(seed=15)  # where no class is best served by no weights at all
    X, noise = _FORMATS[layout](X), _NOISES[noise]
    together = _fit(name, X, y, noise=noise)
    alone = [_fit(name, X, y == k, noise=noise) for k in range(3)]
    # Without noise the smoothing of the hinge ends at widths that depend on the other classes.
    bar = 1e-6 if noise is None else 1e-10
    assert relative_difference(parameters(together), np.vstack([parameters(a) for a in alone])) <= bar
    assert together.objective_ == pytest.approx(sum(a.objective_ for a in alone), rel=1e-10)
    scores = np.column_stack([a.decision_function(X) for a in alone])
    np.testing.assert_allclose(together.decision_function(X), scores, rtol=1e-7, atol=10.0 * bar)
    np.testing.assert_array_equal(together.predict(X), scores.argmax(axis=1))


# One-vs-one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "noise", "layout"), deal(_ESTIMATORS, ["none", "gaussian", "dropout-per-feature"], _FORMATS)
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


@pytest.mark.parametrize("penalty", [Penalty(0.7, 0.4, width=0.3), Penalty(0.0, 2.0, width=1e-3), Penalty(0.7, 0.4)])
def test_derivatives_of_the_penalty_by_finite_differences(penalty):
    coef, step = np.random.default_rng(0).normal(size=(6, 1)), 1e-6
    for d in range(5):
        above, below = coef.copy(), coef.copy()
        above[d] += step
        below[d] -= step
        slope = (penalty.value(above) - penalty.value(below)) / (2.0 * step)
        bend = (penalty.at(above)[1] - penalty.at(below)[1])[d] / (2.0 * step)
        np.testing.assert_allclose(penalty.at(coef)[1][d], slope, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(np.broadcast_to(penalty.curvature(coef), (5, 1))[d], bend, rtol=1e-5, atol=1e-7)
    assert penalty.at(coef)[1][-1] == 0.0
