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

from dealing import deal, together
from dropmargin import NoisyLinearClassifier
from dropmargin.losses import Hinge, Logistic
from helpers import N_FEATURES, NOISES, SOME_NOISES, as_format, make_data, make_objective, plain_variance, solve

each_noise = pytest.mark.parametrize("noise", SOME_NOISES)

# A distribution of zeta (or of the score) with three atoms, to take expectations under.
ATOMS, SHARES = np.array([-0.7, 0.4, 2.0]), np.array([0.2, 0.5, 0.3])
MEAN, SQUARE = SHARES @ ATOMS, SHARES @ ATOMS**2


def _integrate(function):
    """Integrate over lambda > 0, by lambda = s^2, which takes the singularity at zero away."""
    return quad(lambda s: 2.0 * s * function(s**2), 0.0, np.inf, epsabs=1e-13, epsrel=1e-11, limit=400)[0]


def _arrays(*numbers):
    return tuple(np.array([number]) for number in numbers)


# Lemma 1: the hinge loss as a scale mixture -------------------------------------------------------------------------


def _augmented_hinge(lam, zeta):
    return np.exp(-((lam + zeta) ** 2) / (2.0 * lam)) / np.sqrt(2.0 * np.pi * lam) if lam > 0.0 else 0.0


@pytest.mark.parametrize("zeta", [-3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0])
def test_lemma_1_the_hinge_is_a_mixture_over_lambda(zeta):
    mixture = _integrate(lambda lam: _augmented_hinge(lam, zeta))
    assert mixture == pytest.approx(np.exp(-2.0 * max(0.0, zeta)), rel=1e-8)


def _gig(lam, chi):
    """Return the density of GIG(1/2, 1, chi), not normalised."""
    return lam**-0.5 * np.exp(-0.5 * (lam + chi / lam)) if lam > 0.0 else 0.0


def test_lemma_1_the_optimal_q_is_a_generalised_inverse_gaussian():
    """q(lambda) ~ exp(E log phi(lambda, zeta)) has the shape of GIG(1/2, 1, E zeta^2)."""
    ratios = []
    for lam in (0.05, 0.3, 1.0, 2.5, 7.0):
        expected_log = SHARES @ [np.log(_augmented_hinge(lam, zeta)) for zeta in ATOMS]
        ratios.append(expected_log - np.log(_gig(lam, SQUARE)))
    assert_allclose(ratios, ratios[0], rtol=1e-12)


@pytest.mark.parametrize("square", [1e-2, 0.5, 1.0, 4.0, 30.0])
def test_lemma_1_the_re_weight_is_the_moment_of_q(square):
    """gamma_n = E_q[1 / lambda] = 1 / sqrt(E zeta^2), which is twice the weight of our loss (psi = r / 2)."""
    moment = _integrate(lambda lam: _gig(lam, square) / lam if lam > 1e-12 else 0.0) / _integrate(
        lambda lam: _gig(lam, square)
    )
    assert moment == pytest.approx(1.0 / np.sqrt(square), rel=1e-7)
    z = 0.6 * np.sqrt(square)
    weight = Hinge().majoriser(*_arrays(1.0, 1.0 - z, square - z**2))[0]
    assert moment == pytest.approx(2.0 * weight, rel=1e-7)


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


@pytest.mark.parametrize("score", [-4.0, -1.0, 0.0, 0.5, 2.0, 6.0])
def test_lemma_2_the_logistic_likelihood_is_a_mixture_over_lambda(score):
    mixture = 0.5 * np.exp(0.5 * score) * _integrate(lambda lam: np.exp(-0.5 * lam * score**2) * _polya_gamma(lam))
    assert mixture == pytest.approx(1.0 / (1.0 + np.exp(-score)), rel=1e-8)


@pytest.mark.parametrize("r", [1e-3, 0.3, 1.0, 3.0, 8.0])
def test_lemma_2_the_re_weight_is_the_moment_of_the_tilted_polya_gamma(r):
    """q(lambda) = PG(1, r), r^2 = E score^2; gamma_n = E_q[lambda] = tanh(r/2) / (2r), the weight of our loss."""
    tilted = _integrate(lambda lam: np.exp(-0.5 * lam * r**2) * _polya_gamma(lam))
    moment = _integrate(lambda lam: lam * np.exp(-0.5 * lam * r**2) * _polya_gamma(lam)) / tilted
    assert moment == pytest.approx(np.tanh(r / 2.0) / (2.0 * r), rel=1e-7)
    assert moment == pytest.approx(Logistic().majoriser(*_arrays(1.0, 0.6 * r, 0.64 * r**2))[0], rel=1e-7)


def test_lemma_2_the_moment_by_the_sum_of_gammas():
    """PG(1, r) is a weighted sum of exponential variables: E = 1/(2 pi^2) sum_k 1 / ((k - 1/2)^2 + r^2/(4 pi^2))."""
    k = np.arange(1.0, 2e6)
    for r in (0.1, 1.0, 5.0):
        series = np.sum(1.0 / ((k - 0.5) ** 2 + r**2 / (4.0 * np.pi**2))) / (2.0 * np.pi**2)
        assert Logistic().gamma(np.array([r]))[0] == pytest.approx(series, rel=1e-5)


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


@together(("loss", "noise", "fit_intercept", "start"), deal(_LOSSES, SOME_NOISES, [True, False], ["zero", "random"]))
def test_one_irls_step_is_the_papers_closed_form(loss, noise, fit_intercept, start):
    loss = _LOSSES[loss]
    X, labels, _ = make_data()
    y = labels[:, 0]
    coef = 0.7 * np.random.default_rng(5).normal(size=N_FEATURES + 1) * (start == "random")
    coef[-1] *= fit_intercept
    name = "logistic" if isinstance(loss, Logistic) else "hinge"
    expected = _paper_step(name, NOISES[noise], X, y, 0.6, coef, fit_intercept, margin=loss.margin)
    assert_allclose(_one_step(loss, NOISES[noise], X, y, 0.6, coef, fit_intercept), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("noise", "layout"), deal(SOME_NOISES, ["dense", "sparse"], n=9))
def test_the_estimator_takes_the_papers_logistic_steps(noise, layout):
    X, labels, _ = make_data()
    y = labels[:, 0]
    options = {"solver": "irls", "max_iter": 1, "tol": 0.0, "warm_start": True}
    model = NoisyLinearClassifier("logistic", noise=NOISES[noise], C=0.6, **options)
    coef = np.zeros(N_FEATURES + 1)
    for _ in range(3):
        coef = _paper_step("logistic", NOISES[noise], X, y, 0.6, coef, True)
        with pytest.warns(ConvergenceWarning, match="max_iter=1"):
            model.fit(as_format(X, layout), y)
        assert_allclose(np.append(model.coef_, model.intercept_), coef, rtol=1e-8, atol=1e-10)


@each_noise
def test_the_estimator_takes_the_papers_hinge_step_from_a_warm_start(noise):
    """But for the smoothing of the kink, whose first width of a warm start is a ten-thousandth of the margin."""
    X, labels, _ = make_data()
    y = labels[:, 0]
    model = NoisyLinearClassifier("hinge", noise=NOISES[noise], C=0.6, solver="irls", tol=1e-3, warm_start=True)
    model.fit(X, y)
    coef = np.append(model.coef_, model.intercept_)
    expected = _paper_step("hinge", NOISES[noise], X, y, 0.6, coef, True)
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model.set_params(max_iter=1, tol=0.0).fit(X, y)
    assert_allclose(np.append(model.coef_, model.intercept_), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("noise", "margin"), deal(SOME_NOISES, [1.0, 2.0], n=9))
def test_with_its_weights_fixed_the_step_is_the_quadratic_loss(noise, margin):
    """From w = 0 every gamma_n is 1/l and y^h = 2 l y: the quadratic problem with C / (4 l), times 2 l."""
    X, labels, _ = make_data()
    y = labels[:, 0]
    step = _one_step(Hinge(margin), NOISES[noise], X, y, 0.8, np.zeros(N_FEATURES + 1), True)
    C = 0.8 / (4.0 * margin)
    model = NoisyLinearClassifier("quadratic", noise=NOISES[noise], C=C).fit(X, y)
    assert_allclose(step, 2.0 * margin * np.append(model.coef_, model.intercept_), rtol=1e-8, atol=1e-10)
