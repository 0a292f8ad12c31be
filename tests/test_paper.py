"""The paper line by line (Chen, Zhu, Chen, Zhang, "Dropout Training for Support Vector Machines", AAAI 2014).

Its notation: ``zeta = l - y w.x~``, the augmented variable ``lambda``, the re-weights ``gamma_n`` and the re-weighted
labels ``y_n^h``. Its ``c`` is ``C`` for the hinge loss, whose problem is ``|w|^2 + 2c risk``, and ``2C`` for the
logistic loss, whose problem is ``|w|^2 + c risk``.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC

from dropmargin import Dropout, NoisyLinearClassifier
from dropmargin.losses import GaussianHinge, Hinge, Logistic, Quadratic
from helpers import (
    LOSSES,
    N_FEATURES,
    NOISES,
    RADIAL,
    SOME_NOISES,
    as_format,
    make_data,
    make_objective,
    plain_objective,
    plain_variance,
    solve,
)

each_noise = pytest.mark.parametrize("noise", SOME_NOISES)
each_layout = pytest.mark.parametrize("layout", ["dense", "sparse"])

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
    weight = Hinge().weight(*_arrays(1.0, 1.0 - z, square - z**2))[0]
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
    assert moment == pytest.approx(Logistic().weight(*_arrays(1.0, 0.6 * r, 0.64 * r**2))[0], rel=1e-7)


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
    """Return one E-step and M-step as the paper writes them; an offset is a feature without noise or penalty."""
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


@pytest.mark.parametrize("start", ["zero", "random"])
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["offset", "no offset"])
@pytest.mark.parametrize("loss", [Hinge(), Hinge(margin=2.5), Logistic()], ids=["hinge", "hinge 2.5", "logistic"])
@each_noise
def test_one_irls_step_is_the_papers_closed_form(loss, noise, fit_intercept, start):
    X, labels, _ = make_data()
    y = labels[:, 0]
    coef = 0.7 * np.random.default_rng(5).normal(size=N_FEATURES + 1) * (start == "random")
    coef[-1] *= fit_intercept
    name = "logistic" if isinstance(loss, Logistic) else "hinge"
    expected = _paper_step(name, NOISES[noise], X, y, 0.6, coef, fit_intercept, margin=loss.margin)
    assert_allclose(_one_step(loss, NOISES[noise], X, y, 0.6, coef, fit_intercept), expected, rtol=1e-8, atol=1e-10)


@each_layout
@each_noise
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


@each_noise
@pytest.mark.parametrize("margin", [1.0, 2.0])
def test_with_its_weights_fixed_the_step_is_the_quadratic_loss(noise, margin):
    """From w = 0 every gamma_n is 1/l and y^h = 2 l y: the quadratic problem with C / (4 l), times 2 l."""
    X, labels, _ = make_data()
    y = labels[:, 0]
    step = _one_step(Hinge(margin), NOISES[noise], X, y, 0.8, np.zeros(N_FEATURES + 1), True)
    C = 0.8 / (4.0 * margin)
    model = NoisyLinearClassifier("quadratic", noise=NOISES[noise], C=C, solver="closed-form").fit(X, y)
    assert_allclose(step, 2.0 * margin * np.append(model.coef_, model.intercept_), rtol=1e-8, atol=1e-10)


# Without noise: the ordinary models ---------------------------------------------------------------------------------

TIGHT = {"tol": 1e-13, "max_iter": 5000}


@cache
def _support_vector_machine(C, seed=0):
    """Return the ordinary SVM with its slack variables, by a quadratic program.

    It starts from libsvm's answer, whose kernel is in single precision and so good for six digits only.
    """
    X, labels, weights = make_data(n_samples=60, seed=seed)
    y = labels[:, 0]
    n_slacks, n_weights = X.shape
    libsvm = SVC(kernel="linear", C=C, tol=1e-6).fit(X, y, sample_weight=weights)
    coef = np.append(libsvm.coef_, libsvm.intercept_)
    rows = y[:, None] * np.hstack([X, np.ones((n_slacks, 1))])
    margins = np.hstack([rows, np.eye(n_slacks)])
    linear = np.append(np.zeros(n_weights + 1), C * weights)
    square = np.append(np.ones(n_weights), np.zeros(n_slacks + 1))
    found = minimize(
        lambda u: 0.5 * (square * u) @ u + linear @ u,
        np.append(coef, np.maximum(0.0, 1.0 - rows @ coef)),
        jac=lambda u: square * u + linear,
        method="SLSQP",
        bounds=[(None, None)] * (n_weights + 1) + [(0.0, None)] * n_slacks,
        constraints={"type": "ineq", "fun": lambda u: margins @ u - 1.0, "jac": lambda u: margins},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x[: n_weights + 1], coef


@each_layout
@pytest.mark.parametrize("noise", [None, Dropout(0.0)], ids=repr)
@pytest.mark.parametrize("C", [0.05, 1.0, 20.0])
def test_hinge_without_noise_is_the_support_vector_machine(C, noise, layout):
    X, labels, weights = make_data(n_samples=60)
    y = labels[:, 0]
    exact, libsvm = _support_vector_machine(C)
    model = NoisyLinearClassifier("hinge", noise=noise, C=C, tol=1e-11, max_iter=5000)
    model.fit(as_format(X, layout), y, sample_weight=weights)
    found = np.append(model.coef_, model.intercept_)
    assert model.objective_ == pytest.approx(plain_objective("hinge", None, X, y, weights, C, exact), rel=1e-9)
    assert model.objective_ <= plain_objective("hinge", None, X, y, weights, C, libsvm) * (1.0 + 1e-9)
    assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())
    assert_allclose(found, libsvm, atol=1e-2 * np.abs(exact).max())


@each_layout
@pytest.mark.parametrize("solver", ["newton", "irls", "lbfgs"])
@pytest.mark.parametrize("fit_intercept", [True, False], ids=["offset", "no offset"])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_logistic_without_noise_is_logistic_regression(C, fit_intercept, solver, layout):
    X, labels, weights = make_data(n_samples=60)
    y = labels[:, 0]
    reference = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, max_iter=500, fit_intercept=fit_intercept)
    reference.fit(X, y, sample_weight=weights)
    # an error of the weights is the square root of a gap: eight digits of them take the last digit of the objective
    options = TIGHT | ({"tol": 1e-16} if solver == "newton" else {})
    model = NoisyLinearClassifier("logistic", noise=None, C=C, solver=solver, fit_intercept=fit_intercept, **options)
    model.fit(as_format(X, layout), y, sample_weight=weights)
    size = np.abs(reference.coef_).max()
    bar = 1e-8 if solver == "newton" else 1e-6
    assert_allclose(model.coef_, reference.coef_, atol=bar * size)
    assert_allclose(model.intercept_, reference.intercept_, atol=bar * size)


@each_layout
@pytest.mark.parametrize("solver", ["closed-form", "newton", "irls", "lbfgs"])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_quadratic_without_noise_is_ridge_regression(C, solver, layout):
    X, labels, weights = make_data(n_samples=60)
    y = labels[:, 0]
    reference = Ridge(alpha=0.5 / C, tol=1e-14).fit(X, y, sample_weight=weights)
    model = NoisyLinearClassifier("quadratic", noise=None, C=C, solver=solver, **TIGHT)
    model.fit(as_format(X, layout), y, sample_weight=weights)
    bar = 1e-6 if solver == "lbfgs" else 1e-9
    assert_allclose(model.coef_[0], reference.coef_, atol=bar)
    assert_allclose(model.intercept_[0], reference.intercept_, atol=bar)


@pytest.mark.parametrize("loss", ["hinge", "logistic", "quadratic", "exponential", "mcf-logistic"])
def test_dropout_of_almost_everything_stays_finite_and_shrinks_the_weights(loss):
    X, labels, _ = make_data(n_samples=60)
    y = labels[:, 0]
    plain = NoisyLinearClassifier(loss, noise=None).fit(X, y)
    model = NoisyLinearClassifier(loss, noise=1.0 - 1e-6).fit(X, y)
    assert np.all(np.isfinite(model.coef_))
    assert np.abs(model.coef_).max() < 1e-2 * np.abs(plain.coef_).max()


# The margin ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Hinge, GaussianHinge])
@pytest.mark.parametrize("margin", [0.25, 3.0])
@pytest.mark.parametrize("noise", NOISES)
def test_the_margin_is_redundant(noise, margin, cls):
    """w(c, l) = l w(c / l, 1)."""
    X, labels, _ = make_data(n_samples=60)
    y = labels[:, 0]
    options = {"noise": NOISES[noise], "tol": 1e-12, "max_iter": 5000}
    scaled = NoisyLinearClassifier(cls(margin), C=0.9, **options).fit(X, y)
    unit = NoisyLinearClassifier(cls(1.0), C=0.9 / margin, **options).fit(X, y)
    size = margin * np.abs(unit.coef_).max()
    assert_allclose(scaled.coef_, margin * unit.coef_, atol=1e-6 * size)
    assert scaled.objective_ == pytest.approx(margin**2 * unit.objective_, rel=1e-10)


# One optimum, whatever the solver -----------------------------------------------------------------------------------


@each_layout
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize("loss", RADIAL)
@pytest.mark.parametrize("noise", NOISES)
def test_irls_never_rises(loss, noise, C, layout):
    X, labels, weights = make_data(n_samples=60)
    with warnings.catch_warnings():
        # without noise its tail is long; here only the way down matters
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = NoisyLinearClassifier(loss, noise=NOISES[noise], C=C, solver="irls", tol=1e-10, max_iter=300)
        model.fit(as_format(X, layout), labels[:, 0], sample_weight=weights)
    values = np.array([entry.objective for entry in model.history_])
    assert len(values) >= (1 if loss == "quadratic" else 4)
    assert np.all(np.diff(values) <= 1e-12 * np.abs(values[:-1]))
    assert model.objective_ <= values[-1] * (1.0 + 1e-12)


@pytest.mark.parametrize("noise", ["dropout", "dropout per feature", "gaussian", "laplace", "poisson"])
@pytest.mark.parametrize("C", [0.1, 5.0])
@pytest.mark.parametrize("loss", RADIAL)
def test_all_solvers_find_the_same_weights(loss, noise, C):
    X, labels, weights = make_data(n_samples=60)
    solvers = ["newton", "irls", "lbfgs"] + (["closed-form"] if loss == "quadratic" else [])
    found = []
    for solver in solvers:
        model = NoisyLinearClassifier(loss, noise=NOISES[noise], C=C, solver=solver, tol=1e-13, max_iter=20000)
        model.fit(X, labels[:, 0], sample_weight=weights)
        found.append(np.append(model.coef_, model.intercept_))
    for coef in found[1:]:
        assert np.linalg.norm(coef - found[0]) <= 1e-6 * np.linalg.norm(found[0])


@pytest.mark.parametrize("noise", ["dropout", "gaussian", "laplace", "poisson"])
@pytest.mark.parametrize("loss", ["gaussian-hinge", "gaussian-logistic", "exponential", "mcf-logistic"])
def test_solvers_agree_on_the_losses_without_a_majoriser(loss, noise):
    X, labels, weights = make_data(n_samples=60)
    found = []
    for solver in ("newton", "lbfgs"):
        model = NoisyLinearClassifier(LOSSES[loss], noise=NOISES[noise], C=0.5, solver=solver, tol=1e-13, max_iter=5000)
        model.fit(X, labels[:, 0], sample_weight=weights)
        found.append(np.append(model.coef_, model.intercept_))
    assert np.linalg.norm(found[1] - found[0]) <= 1e-6 * np.linalg.norm(found[0])


# Every pair against an independent minimum --------------------------------------------------------------------------

C_REFERENCE = 0.8


@cache
def _reference_minimum(loss, noise):
    """Return the minimum of the formula of the design, by SciPy without derivatives; by a QP where it has a kink."""
    X, labels, weights = make_data(n_samples=60, seed=3)
    y = labels[:, 0]

    def value(coef):
        with np.errstate(over="ignore", invalid="ignore"):
            return plain_objective(loss, NOISES[noise], X, y, weights, C_REFERENCE, coef)

    if noise == "none" and "hinge" in loss:
        return value(_support_vector_machine(C_REFERENCE, seed=3)[0])
    found = minimize(value, np.zeros(N_FEATURES + 1), method="BFGS", jac="3-point", options={"gtol": 1e-7})
    return found.fun


@each_layout
@pytest.mark.parametrize(("loss", "noise"), list(itertools.product(LOSSES, NOISES)))
def test_objective_is_an_independent_minimum(loss, noise, layout):
    X, labels, weights = make_data(n_samples=60, seed=3)
    model = NoisyLinearClassifier(LOSSES[loss], noise=NOISES[noise], C=C_REFERENCE, tol=1e-9, max_iter=5000)
    model.fit(as_format(X, layout), labels[:, 0], sample_weight=weights)
    assert model.converged_
    assert model.objective_ == pytest.approx(_reference_minimum(loss, noise), rel=1e-6)
    coef = np.append(model.coef_, model.intercept_)
    stated = plain_objective(loss, NOISES[noise], X, labels[:, 0], weights, C_REFERENCE, coef)
    assert model.objective_ == pytest.approx(stated, rel=1e-7)


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize(("loss", "noise"), list(itertools.product(LOSSES, ["none", "dropout", "gaussian"])))
def test_the_tolerance_is_kept(loss, noise, tol):
    """`tol` is the relative gap to the minimum."""
    X, labels, weights = make_data(n_samples=60, seed=3)
    model = NoisyLinearClassifier(LOSSES[loss], noise=NOISES[noise], C=C_REFERENCE, tol=tol)
    model.fit(X, labels[:, 0], sample_weight=weights)
    minimum = _reference_minimum(loss, noise)
    assert minimum * (1.0 - 1e-7) <= model.objective_ <= minimum * (1.0 + 1.5 * tol)


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("max_iter", [1, 2, 5])
@pytest.mark.parametrize("solver", ["newton", "irls", "lbfgs"])
@pytest.mark.parametrize(("loss", "noise"), list(itertools.product(RADIAL, ["none", "dropout", "gaussian"])))
def test_no_fit_takes_more_iterations_than_it_may(loss, noise, solver, max_iter, warm):
    X, labels, _ = make_data(n_samples=60)
    model = NoisyLinearClassifier(loss, noise=NOISES[noise], solver=solver, tol=1e-3, warm_start=warm)
    model.fit(X, labels[:, 0])
    model.set_params(max_iter=max_iter, tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, labels[:, 0])
    assert len(model.history_) == model.n_iter_ <= max_iter


def test_the_quadratic_loss_needs_one_step():
    X, labels, _ = make_data()
    model = NoisyLinearClassifier(Quadratic(), noise=0.3, solver="irls", tol=1e-10).fit(X, labels[:, 0])
    assert model.n_iter_ <= 2
