"""The losses of regression: derivatives, and what they claim to be: bounds, expectations, ordinary losses."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad

from dropmargin import NoisyLinearRegressor
from dropmargin.losses import EpsilonInsensitive, GaussianHuber, Hinge, Huber, Logistic, Quadratic
from regression_data import make_table, plain_loss

LOSSES = {
    "quadratic": Quadratic(),
    "epsilon-insensitive": EpsilonInsensitive(0.5),
    "absolute": EpsilonInsensitive(0.0),
    "smoothed": EpsilonInsensitive(0.5).smoothed(0.3),
    "huber": Huber(1.5),
    "gaussian huber": GaussianHuber(1.5),
}


def random_scores(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return 10.0 * rng.normal(size=n), 10.0 * rng.normal(size=n), 10.0 ** rng.uniform(-1.0, 2.0, n)


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives_match_finite_differences(name):
    loss = LOSSES[name]
    y, m, v = random_scores()
    step, step_v = 1e-5 * np.maximum(np.abs(m), 0.1), 1e-5 * v

    def difference(function, by_mean):
        if by_mean:
            return (function(y, m + step, v) - function(y, m - step, v)) / (2.0 * step)
        return (function(y, m, v + step_v) - function(y, m, v - step_v)) / (2.0 * step_v)

    def part(method, index):
        return lambda *at: getattr(loss, method)(*at)[index]

    by_mean, by_variance = loss.gradient(y, m, v)
    assert_allclose(by_mean, difference(loss.value, True), rtol=1e-5, atol=1e-6)
    assert_allclose(by_variance, difference(loss.value, False), rtol=1e-5, atol=1e-6)
    mean_twice, mixed, variance_twice = loss.curvature(y, m, v)
    away = np.abs(np.sqrt((m - y) ** 2 + v) - 1.5) > 1e-2  # the second derivative of `Huber` jumps there
    assert_allclose(mean_twice[away], difference(part("gradient", 0), True)[away], rtol=1e-4, atol=1e-6)
    assert_allclose(mixed[away], difference(part("gradient", 1), True)[away], rtol=1e-4, atol=1e-6)
    assert_allclose(variance_twice[away], difference(part("gradient", 1), False)[away], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "smoothed"])
def test_without_variance_they_are_the_ordinary_losses(name):
    loss = LOSSES[name]
    y, m, _ = random_scores()
    assert_allclose(loss.without_noise().value(y, m, np.zeros_like(m)), plain_loss(loss, y - m), atol=1e-12)


@pytest.mark.parametrize("name", ["quadratic", "epsilon-insensitive", "huber", "gaussian huber"])
def test_expected_losses_of_a_normal_score_are_exact_or_bounded(name):
    loss = LOSSES[name]
    for y, m, v in [(0.3, 0.1, 0.5), (2.0, -1.0, 4.0), (0.0, 1.5, 0.01), (-5.0, 5.0, 9.0)]:
        sd = np.sqrt(v)
        kinks = [(y - m + sign * 1.5) / sd for sign in (-1.0, 1.0)]
        expected, _ = quad(
            lambda t, y=y, m=m, sd=sd: plain_loss(loss, y - m - sd * t) * np.exp(-0.5 * t * t) / np.sqrt(2.0 * np.pi),
            *(-12.0, 12.0),
            points=sorted(np.clip(kinks, -11.0, 11.0)),
            limit=200,
        )
        value = loss.value(np.array([y]), np.array([m]), np.array([v]))[0]
        if name in ("quadratic", "gaussian huber"):
            assert value == pytest.approx(expected, rel=1e-7)
        else:
            assert value >= expected


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_convex_in_the_coefficients(name):
    """The mean is linear in these, the deviation a norm: convex in both, and increasing in the deviation."""
    rng = np.random.default_rng(0)
    (first, second), (s, t) = rng.normal(0.0, 3.0, (2, 3000)), np.abs(rng.normal(0.0, 2.0, (2, 3000)))
    loss, y = LOSSES[name], rng.normal(0.0, 2.0, 3000)
    ends = 0.5 * (loss.value(y, first, s**2) + loss.value(y, second, t**2))
    middle = loss.value(y, 0.5 * (first + second), (0.5 * (s + t)) ** 2)
    assert (middle <= ends + 1e-10).all()
    assert (loss.value(y, first, s**2) <= loss.value(y, first, (s + t) ** 2) + 1e-10).all()
    slope, curvature = loss.gradient(y, first, s**2)[1], loss.curvature(y, first, s**2)[0]
    assert (slope >= 0.0).all()
    assert (curvature >= -1e-12).all()


@pytest.mark.parametrize("name", ["epsilon-insensitive", "huber"])
def test_the_majoriser_is_above_the_loss(name):
    """``gamma / 2 (m^2 + v)`` plus the linear function that makes it touch."""
    loss = LOSSES[name]
    y, m0, v0 = random_scores()
    _, m, v = random_scores(seed=1)
    gamma, (slope, by_variance) = loss.majoriser(y, m0, v0), loss.gradient(y, m0, v0)
    assert_allclose(by_variance, 0.5 * gamma)
    above = loss.value(y, m0, v0) + slope * (m - m0) + 0.5 * gamma * ((m - m0) ** 2 + v - v0)
    assert np.all(loss.value(y, m, v) <= above + 1e-9)


def test_the_smoothed_loss_is_the_least_value_with_half_of_the_barrier_at_each_kink():
    """Of ``xi - (w / 4) log(xi (xi - z) - v / 4)`` over ``xi``, for both sides, up to a constant; ``w`` is the width.

    A barrier of weight ``w / 2`` for a row is what the central path takes the error of the loss for.
    """
    width, epsilon = 0.6, 0.5
    y, m, v = random_scores(n=6, seed=4)
    least = np.zeros_like(m)
    for z in (y - m - epsilon, m - y - epsilon):
        xi = ((z + np.sqrt(z**2 + v)) / 2.0)[:, None] + np.geomspace(1e-6, 30.0, 200_000)
        barrier = np.log(xi * (xi - z[:, None]) - 0.25 * v[:, None])
        least += (xi - 0.25 * width * barrier).min(axis=1)
    difference = least - EpsilonInsensitive(epsilon).smoothed(width).value(y, m, v)
    assert_allclose(difference, difference[0], atol=1e-6)


@pytest.mark.parametrize("wrong", [-1.0, np.nan, "0.1", None])
def test_parameters_of_losses_are_checked(wrong):
    for make, name in [(EpsilonInsensitive, "epsilon"), (Huber, "delta"), (GaussianHuber, "delta")]:
        with pytest.raises(ValueError, match=f"{name} must be a positive number"):
            make(wrong)


@pytest.mark.parametrize("loss", [Hinge(), Logistic()])
def test_losses_of_classification_are_refused(loss):
    X, y, _ = make_table()
    with pytest.raises(ValueError, match="loss must be a function of the residual"):
        NoisyLinearRegressor(loss).fit(X, y)
