"""The paper line by line (Chen, Zhu, Chen, Zhang, "Dropout Training for Support Vector Machines", AAAI 2014).

Its notation: ``zeta = l - y w.x~``, the augmented variable ``lambda``, the re-weights ``gamma_n`` and the re-weighted
labels ``y_n^h``. Its ``c`` is ``C`` for the hinge loss, whose problem is ``|w|^2 + 2c risk``, and ``2C`` for the
logistic loss, whose problem is ``|w|^2 + c risk``.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from sklearn.exceptions import ConvergenceWarning

from dealing import deal
from dropmargin import NoisyLinearClassifier
from dropmargin.losses import Hinge, Logistic
from helpers import N_FEATURES, NOISES, SOME_NOISES, as_format, make_data, make_objective, plain_variance, solve

# A distribution of zeta (or of the score) with three atoms, to take expectations under.
ATOMS, SHARES = np.array([-0.7, 0.4, 2.0]), np.array([0.2, 0.5, 0.3])
MEAN, SQUARE = SHARES @ ATOMS, SHARES @ ATOMS**2


def _integrate(function):
    """Integrate over lambda > 0, by lambda = s^2, which takes the singularity at zero away."""
    return quad(lambda s: 2.0 * s * function(s**2), 0.0, np.inf, epsabs=1e-13, epsrel=1e-11, limit=400)[0]


def _arrays(*numbers):
    return tuple(np.array([number]) for number in numbers)


# Lemma 1: the hinge loss as a scale mixture -------------------------------------------------------------------------


def _gig(lam, chi):
    """Return the density of GIG(1/2, 1, chi), not normalised."""
    return lam**-0.5 * np.exp(-0.5 * (lam + chi / lam)) if lam > 0.0 else 0.0


def test_lemma_1_with_q_optimised_out_the_bound_is_our_loss():
    """-log of the integral of exp(E log phi) is E zeta + sqrt(E zeta^2), twice the loss."""
    bound = -np.log(_integrate(lambda lam: np.exp(-MEAN) / np.sqrt(2.0 * np.pi) * _gig(lam, SQUARE)))
    value = Hinge().value(*_arrays(1.0, 1.0 - MEAN, SQUARE - MEAN**2))[0]
    assert bound == pytest.approx(2.0 * value, rel=1e-8)
    assert value >= SHARES @ np.maximum(ATOMS, 0.0)


# Lemma 2: the logistic loss and the Polya-Gamma distribution --------------------------------------------------------


def _polya_gamma(lam):
    """Return the density of PG(1, 0), by the series that converges fast on either side."""
    n = np.arange(30)
    sign = np.where(n % 2 == 0, 1.0, -1.0)
    if lam < 0.16:
        if lam < 1e-4:
            return 0.0
        return sign @ ((2 * n + 1) * np.exp(-((2 * n + 1) ** 2) / (8.0 * lam))) / np.sqrt(2.0 * np.pi * lam**3)
    return 4.0 * np.pi * (sign @ ((n + 0.5) * np.exp(-2.0 * lam * (np.pi * (n + 0.5)) ** 2)))


def test_lemma_2_with_q_optimised_out_the_bound_is_our_loss():
    integral = 0.5 * np.exp(0.5 * MEAN) * _integrate(lambda lam: np.exp(-0.5 * lam * SQUARE) * _polya_gamma(lam))
    value = Logistic().value(*_arrays(1.0, MEAN, SQUARE - MEAN**2))[0]
    assert -np.log(integral) == pytest.approx(value, rel=1e-8)
    assert value >= SHARES @ np.logaddexp(0.0, -ATOMS)


# The two steps of the IRLS algorithm --------------------------------------------------------------------------------


def _paper_step(loss, noise, X, y, C, coef, fit_intercept, margin=1.0):
    """Return one E-step and M-step as the paper writes them; an intercept is a feature without noise or penalty."""
    V = plain_variance(noise, X)
    if fit_intercept:
        X, V = np.hstack([X, np.ones((len(X), 1))]), np.hstack([V, np.zeros((len(X), 1))])
    w = coef if fit_intercept else coef[:-1]
    matrix, right = np.zeros((X.shape[1], X.shape[1])), np.zeros(X.shape[1])
    c = C if loss == "hinge" else 2.0 * C
    for x, variance, label in zip(X, V, y, strict=True):
        second_moment = np.outer(x, x) + np.diag(variance)
        if loss == "hinge":
            gamma = 1.0 / np.sqrt(margin**2 - 2.0 * margin * label * (w @ x) + w @ second_moment @ w)
            label = (margin + 1.0 / gamma) * label
        else:
            r = np.sqrt(w @ second_moment @ w)
            gamma = 0.25 if r == 0.0 else np.tanh(r / 2.0) / (2.0 * r)
            label = label / (2.0 * gamma)
        matrix += gamma * second_moment
        right += gamma * label * x
    ridge = np.full(X.shape[1], 2.0 / c)
    if fit_intercept:
        ridge[-1] = 0.0
    solution = np.linalg.solve(matrix + np.diag(ridge), right)
    return solution if fit_intercept else np.append(solution, 0.0)


def _one_step(loss, noise, X, y, C, coef, fit_intercept):
    """Return one step of our IRLS; the noise has rounded every kink off, so the hinge is not smoothed any further."""
    loss = copy.copy(loss)
    loss.kink = 0.0
    objective = make_objective(X, y[:, None], np.ones(len(y)), loss, noise, C=C, fit_intercept=fit_intercept)
    result = solve("irls", objective, coef[:, None], tol=1e-6, max_iter=1)
    assert result.n_iter == 1
    return result.coef[:, 0]


_LOSSES = {"hinge": Hinge(), "hinge margin 2.5": Hinge(margin=2.5), "logistic": Logistic()}


@pytest.mark.parametrize(
    ("loss", "noise", "fit_intercept", "start"), deal(_LOSSES, SOME_NOISES, [True, False], ["zero", "random"])
)
def test_one_irls_step_is_the_papers_closed_form(loss, noise, fit_intercept, start):
    loss = _LOSSES[loss]
    X, labels, _ = make_data()
    y = labels[:, 0]
    coef = 0.7 * np.random.default_rng(5).normal(size=N_FEATURES + 1) * (start == "random")
    coef[-1] *= fit_intercept
    name = "logistic" if isinstance(loss, Logistic) else "hinge"
    expected = _paper_step(name, NOISES[noise], X, y, 0.6, coef, fit_intercept, margin=loss.margin)
    assert_allclose(_one_step(loss, NOISES[noise], X, y, 0.6, coef, fit_intercept), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("noise", "layout"), deal(SOME_NOISES, ["dense", "sparse"]))
def test_the_estimator_takes_the_papers_logistic_steps(noise, layout):
    X, labels, _ = make_data()
    y = labels[:, 0]
    options = {"solver": "irls", "max_iter": 1, "tol": 0.0, "warm_start": True}
    model = NoisyLinearClassifier("logistic", noise=NOISES[noise], C=0.6, **options)
    coef = np.append(np.zeros(N_FEATURES), y.mean())  # where every fit starts
    for _ in range(3):
        coef = _paper_step("logistic", NOISES[noise], X, y, 0.6, coef, True)
        with pytest.warns(ConvergenceWarning, match="max_iter=1"):
            model.fit(as_format(X, layout), y)
        assert_allclose(np.append(model.coef_, model.intercept_), coef, rtol=1e-8, atol=1e-10)
