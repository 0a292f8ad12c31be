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

from dealing import deal
from dropmargin.losses import Hinge, Logistic
from helpers import N_FEATURES, NOISES, SOME_NOISES, make_data, make_objective, plain_variance, solve

# A distribution of zeta (or of the score) with three atoms, to take expectations under.
ATOMS, SHARES = np.array([-0.7, 0.4, 2.0]), np.array([0.2, 0.5, 0.3])
MEAN, SQUARE = SHARES @ ATOMS, SHARES @ ATOMS**2


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
