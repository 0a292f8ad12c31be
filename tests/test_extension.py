"""A loss and a noise from outside the package work with every solver that applies; impossible pairs say what to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import ndtr

from dealing import deal
from dropmargin import MCFClassifier, NoisyLinearClassifier, NoisyLinearRegressor
from dropmargin.data import TrainingData, canonical
from dropmargin.losses import MGFLoss, MomentLoss, RadialLoss, as_loss
from dropmargin.noise import Noise, Variance
from dropmargin.penalties import Penalty
from dropmargin.solvers import SOLVERS, Problem, solve
from helpers import N_FEATURES, as_format, make_data, make_objective


def _name(case):
    return case if isinstance(case, str) else type(case).__name__


class PseudoHuber(RadialLoss):
    """``delta^2 (sqrt(1 + (r / delta)^2) - 1)`` of the distance to the label: quadratic near, linear far."""

    margin = 1.0

    def __init__(self, delta=0.5):
        self.delta = delta

    def tail(self, r):
        return self.delta**2 * (np.sqrt(1.0 + (r / self.delta) ** 2) - 1.0)

    def gamma(self, r):
        return 1.0 / np.sqrt(1.0 + (r / self.delta) ** 2)

    def kappa(self, r):
        return -(self.gamma(r) ** 3) / self.delta**2


class GaussianSquaredHinge(MomentLoss):
    """``E max(0, Z)^2`` for ``Z ~ N(1 - y m, v)``, a moment loss that is not radial."""

    @staticmethod
    def _parts(y, m, v):
        z, sd = 1.0 - y * m, np.sqrt(np.maximum(v, 1e-30))
        ratio = z / sd
        return z, sd, ndtr(ratio), np.exp(-0.5 * np.minimum(ratio**2, 1400.0)) / np.sqrt(2.0 * np.pi)

    def value(self, y, m, v):
        z, sd, below, density = self._parts(y, m, v)
        return (z**2 + sd**2) * below + z * sd * density

    def gradient(self, y, m, v):
        z, sd, below, density = self._parts(y, m, v)
        return -2.0 * y * (z * below + sd * density), below

    def curvature(self, y, m, v):
        z, sd, below, density = self._parts(y, m, v)
        return 2.0 * below, -y * density / sd, -0.5 * z * density / sd**3

    def majoriser(self, y, m, v):
        return np.full_like(m, 2.0)


class HalfExponential(MGFLoss):
    """``2 exp(K / 2)``, a loss through the MGF."""

    def value(self, K):
        with np.errstate(over="ignore"):
            return 2.0 * np.exp(0.5 * K)

    def slope(self, K):
        return 0.5 * self.value(K)

    def curvature(self, K):
        return 0.25 * self.value(K)


class Speckle(Noise):
    """Multiplicative normal noise, ``x~ = x (1 + size * e)``: variance ``size^2 x^2``."""

    def __init__(self, size=0.5):
        self.size = size

    def check(self, n_features):
        self._parameter("size", n_features, 0.0, 1e50, "[0, 1e50)")

    def variance(self):
        return Variance(entry=np.square, slope=np.asarray(self.size, dtype=float) ** 2)

    def log_mgf(self, t, x):
        v = np.asarray(self.size, dtype=float) ** 2 * x**2
        return t * x + 0.5 * v * t**2, x + v * t, v + 0.0 * t

    def draw(self, x, rng):
        return x * (1.0 + np.asarray(self.size, dtype=float) * rng.standard_normal(x.shape))


class Jitter(Noise):
    """Multiplicative uniform noise with a variance and nothing else."""

    def variance(self):
        return Variance(entry=np.square, slope=1.0 / 3.0)


SIZES = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
NOISES = {"speckle": Speckle(0.6), "speckle per feature": Speckle(SIZES), "jitter": Jitter()}


def _size_squared(noise):
    return 1.0 / 3.0 if isinstance(noise, Jitter) else np.asarray(noise.size) ** 2


def _plain_objective(loss, noise, X, y, C, coef):
    """Return the objective with the losses and noises of this file, each written out once more."""
    w, b = coef[:-1], coef[-1]
    V = _size_squared(noise) * X**2
    m, v = X @ w + b, V @ w**2
    if isinstance(loss, PseudoHuber):
        losses = loss.delta**2 * (np.sqrt(1.0 + ((m - y) ** 2 + v) / loss.delta**2) - 1.0)
    elif isinstance(loss, GaussianSquaredHinge):
        t = np.linspace(-10.0, 10.0, 801)
        density = np.exp(-0.5 * t**2) / np.exp(-0.5 * t**2).sum()
        losses = np.maximum(0.0, 1.0 - (y * m)[:, None] + np.sqrt(v)[:, None] * t) ** 2 @ density
    else:
        losses = 2.0 * np.exp(0.5 * (-y * m + 0.5 * v))
    return 0.5 * w @ w + C * losses.sum()


OUTSIDE = {"radial": PseudoHuber(), "moment": GaussianSquaredHinge(), "mgf": HalfExponential()}
CASES = [
    (loss, *case)
    for loss, noises, solvers in [
        ("radial", NOISES, ["auto", "newton", "irls", "lbfgs"]),
        ("moment", NOISES, ["auto", "newton", "lbfgs"]),
        ("mgf", ["speckle", "speckle per feature"], ["auto", "newton", "lbfgs"]),
    ]
    for case in deal(noises, solvers, ["dense", "sparse"])
]


@pytest.mark.parametrize(("loss", "noise", "solver", "layout"), CASES)
def test_a_loss_and_a_noise_from_outside_reach_the_minimum(loss, noise, solver, layout):
    X, labels, _ = make_data(n_samples=60, seed=4)
    y, loss, noise = labels[:, 0], OUTSIDE[loss], NOISES[noise]
    found = minimize(
        lambda coef: _plain_objective(loss, noise, X, y, 0.7, coef),
        np.zeros(N_FEATURES + 1),
        method="BFGS",
        jac="3-point",
        options={"gtol": 1e-7},
    )
    model = NoisyLinearClassifier(loss, noise=noise, C=0.7, solver=solver, tol=1e-11, max_iter=5000)
    model.fit(as_format(X, layout), y)
    assert model.converged_
    assert model.objective_ == pytest.approx(found.fun, rel=1e-7)
    assert_allclose(np.append(model.coef_, model.intercept_), found.x, atol=2e-4)


@pytest.mark.parametrize(("noise", "layout"), deal(NOISES, ["dense", "sparse"]))
def test_a_loss_from_outside_trains_a_regressor(noise, layout):
    """The solvers see one output with numbers as targets; nothing in them is about regression."""
    X, _, weights = make_data(n_samples=60, seed=4)
    y, noise, loss = 20.0 + 3.0 * X @ np.arange(N_FEATURES) + weights, NOISES[noise], PseudoHuber()
    model = NoisyLinearRegressor(loss, noise=noise, C=0.7, tol=1e-11).fit(as_format(X, layout), y)

    def objective(coef):
        m, v = X @ coef[:-1] + coef[-1], (_size_squared(noise) * X**2) @ coef[:-1] ** 2
        return 0.5 * coef[:-1] @ coef[:-1] + 0.7 * loss.value(y, m, v).sum()

    start = np.append(np.zeros(N_FEATURES), y.mean())
    found = minimize(objective, start, method="BFGS", jac="3-point", options={"gtol": 1e-7})
    assert model.objective_ == pytest.approx(found.fun, rel=1e-7)
    assert_allclose(np.append(model.coef_, model.intercept_), found.x, atol=2e-3)
    with pytest.raises(ValueError, match="loss must be a function of the residual"):
        NoisyLinearRegressor(GaussianSquaredHinge()).fit(X, y)


@pytest.mark.parametrize("loss", [PseudoHuber(), GaussianSquaredHinge(), HalfExponential()], ids=_name)
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_a_loss_from_outside_takes_an_l1_penalty(loss, l1_ratio):
    """At the minimum, minus the smooth gradient is a subgradient of the l1 term."""
    X, labels, weights = make_data(n_samples=60, seed=4)
    l1 = l1_ratio
    C = 0.03 * (1.0 + l1) * (2.0 if isinstance(loss, PseudoHuber) else 1.0)
    model = NoisyLinearClassifier(loss, noise=Speckle(0.6), C=C, l1_ratio=l1_ratio, tol=1e-10, max_iter=5000)
    model.fit(X, labels[:, 0], sample_weight=weights)
    objective = make_objective(X, labels, weights, loss, Speckle(0.6), C=C, l2=1.0 - l1)
    w = model.coef_[0]
    gradient = objective.at(np.append(w, model.intercept_)[:, None]).gradient[:, 0]
    assert np.any(w == 0.0)
    assert np.any(w != 0.0)
    assert_allclose(gradient[:-1][w != 0.0], -l1 * np.sign(w[w != 0.0]), atol=1e-3)
    assert np.all(np.abs(gradient[:-1]) <= l1 + 1e-3)
    assert abs(gradient[-1]) < 1e-3


# Impossible pairs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        NoisyLinearClassifier("exponential", noise=Jitter()),
        NoisyLinearClassifier("mcf-logistic", noise=Jitter()),
        NoisyLinearClassifier(HalfExponential(), noise=Jitter()),
        MCFClassifier("logistic", noise=Jitter()),
    ],
    ids=["exponential", "mcf-logistic", "from outside", "MCFClassifier"],
)
def test_a_noise_without_log_mgf_cannot_serve_a_loss_that_needs_it(model):
    X, labels, _ = make_data()
    assert not Jitter().has_log_mgf
    assert Speckle().has_log_mgf
    with pytest.raises(ValueError, match=r"needs a noise with log_mgf\(\), which Jitter lacks"):
        model.fit(X, labels[:, 0])


@dataclass(frozen=True)
class FeatureRidge(Penalty):
    """``sum_d strength_d w_d^2 / 2``: a ridge penalty with a strength per feature."""

    strength: tuple[float, ...] = ()

    def value(self, coef):
        return 0.5 * np.asarray(self.strength) @ np.square(coef[:-1])

    def at(self, coef):
        return self.value(coef), np.append(self.strength, 0.0)[:, None] * coef

    def curvature(self, coef):
        return np.asarray(self.strength)[:, None] + np.zeros_like(coef[:-1])


@pytest.mark.parametrize(("loss", "layout"), deal(["hinge", "logistic", "quadratic"], ["dense", "sparse"]))
def test_a_penalty_from_outside_reaches_the_minimum(loss, layout):
    X, labels, weights = make_data(60)
    strength = tuple(np.linspace(0.2, 5.0, N_FEATURES))
    penalty = FeatureRidge(l2=min(strength), strength=strength)
    noise, y = Speckle(0.4), labels[:, 0]
    problem = Problem(as_loss(loss), noise, penalty, 0.7, True, "ovr", SOLVERS["newton"], tol=1e-9, max_iter=500)
    rows = TrainingData.of_matrix(canonical(as_format(X, layout)), (y > 0.0).astype(int), weights, 2)
    result = solve(problem, rows)
    assert result.converged
    reference = make_objective(X, labels, weights, as_loss(loss), noise, C=0.7, l2=0.0)

    def value(flat):
        return float(penalty.value(flat[:, None])[0] + reference.value(flat[:, None])[0])

    best = min(
        minimize(value, start, method="L-BFGS-B", options={"maxiter": 2000}).fun
        for start in (np.zeros(N_FEATURES + 1), result.coef[:, 0])
    )
    assert value(result.coef[:, 0]) == pytest.approx(result.objective[0], rel=1e-12)
    assert result.objective[0] <= best * (1.0 + 1e-7)
