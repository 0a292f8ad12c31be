"""The losses: their derivatives, their convexity, and what they claim to be: bounds, expectations, ordinary losses."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad

from dealing import deal
from dropmargin.losses import (
    LOSSES,
    EpsilonInsensitive,
    GaussianHinge,
    GaussianLogistic,
    Hinge,
    Huber,
    Logistic,
    Quadratic,
    as_loss,
)
from helpers import MGF_LOSSES, NOISES, SOME_NOISES, plain_loss, plain_variance

CLASSIFICATION = {
    "hinge": Hinge(),
    "hinge margin 2": Hinge(margin=2.0),
    "logistic": Logistic(),
    "quadratic": Quadratic(),
    "gaussian hinge": GaussianHinge(),
    "gaussian hinge margin 2": GaussianHinge(margin=2.0),
    "gaussian logistic": GaussianLogistic(),
}
REGRESSION = {
    "epsilon-insensitive": EpsilonInsensitive(0.5),
    "absolute": EpsilonInsensitive(0.0),
    "huber": Huber(1.5),
}
SMOOTHED = {
    "smoothed hinge": Hinge().smoothed(0.3),
    "smoothed gaussian hinge": GaussianHinge().smoothed(0.3),
    "smoothed epsilon-insensitive": EpsilonInsensitive(0.5).smoothed(0.3),
}
EVERY = CLASSIFICATION | REGRESSION | SMOOTHED
each_loss = pytest.mark.parametrize("name", EVERY)


def _scores(name, n=400, seed=0):
    """Return labels or targets, means and variances over several orders of magnitude."""
    rng = np.random.default_rng(seed)
    is_number = name in REGRESSION or name.endswith("insensitive")
    y = 10.0 * rng.normal(size=n) if is_number else rng.choice([-1.0, 1.0], n)
    return y, rng.normal(size=n) * 10.0 ** rng.uniform(-1.0, 1.3, n), 10.0 ** rng.uniform(-2.0, 2.0, n)


def _ordinary(name, y, m):
    """Return the loss without noise."""
    if name in REGRESSION:
        return plain_loss(REGRESSION[name], y - m)
    if "hinge" in name:
        return np.maximum((2.0 if name.endswith("2") else 1.0) - y * m, 0.0)
    return (y - m) ** 2 if name == "quadratic" else np.logaddexp(0.0, -y * m)


# Derivatives --------------------------------------------------------------------------------------------------------


@each_loss
def test_derivatives_match_finite_differences(name):
    loss = EVERY[name]
    y, m, v = _scores(name)
    step, step_v = 1e-5 * np.maximum(np.abs(m), 1e-2), 1e-5 * v
    up, down, more, less = (y, m + step, v), (y, m - step, v), (y, m, v + step_v), (y, m, v - step_v)

    rtol, atol = (1e-4, 1e-6) if name not in CLASSIFICATION else (2e-6, 0.0)

    def agree(exact, high, low, width, size):
        rounding = 4.0 * np.finfo(float).eps * size / width + atol
        away = np.abs(np.sqrt((m - y) ** 2 + v) - 1.5) > 1e-2  # the second derivative of `Huber` jumps there
        assert np.all((np.abs(exact - (high - low) / (2.0 * width)) <= rtol * np.abs(exact) + rounding)[away])

    size = np.abs(loss.value(y, m, v)) + np.abs(m) + np.abs(y) + np.sqrt(v)
    by_mean, by_variance = loss.gradient(y, m, v)
    agree(by_mean, loss.value(*up), loss.value(*down), step, size)
    agree(by_variance, loss.value(*more), loss.value(*less), step_v, size)
    mean_twice, mixed, variance_twice = loss.curvature(y, m, v)
    # a slope is a share of something of size k (or of r for the quadratic): its rounding is relative to that
    first, second = np.maximum(np.abs(by_mean), 1.0), np.maximum(np.abs(by_variance), 1e-8)
    agree(mean_twice, loss.gradient(*up)[0], loss.gradient(*down)[0], step, first)
    agree(mixed, loss.gradient(*up)[1], loss.gradient(*down)[1], step, second)
    agree(variance_twice, loss.gradient(*more)[1], loss.gradient(*less)[1], step_v, second)


@pytest.mark.parametrize("name", ["hinge", "hinge margin 2", "gaussian hinge", "gaussian hinge margin 2"])
def test_hinges_have_a_subgradient_in_the_kink(name):
    y = np.array([-1.0, 1.0])
    loss = CLASSIFICATION[name]
    m, v = loss.margin * y, np.zeros(2)
    assert_allclose(loss.value(y, m, v), 0.0, atol=1e-90)
    by_mean, by_variance = loss.gradient(y, m, v)
    assert np.all((-y * by_mean >= 0.0) & (-y * by_mean <= 1.0))
    for part in (by_variance, *loss.curvature(y, m, v), loss.majoriser(y, m, v)):
        assert np.all(np.isfinite(part))


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_everything_is_finite_at_extremes(name):
    loss = CLASSIFICATION[name]
    for v in (0.0, 1e-300, 1e-30, 1.0, 1e30, 1e300):
        sizes = [1e9, *np.linspace(1.0, 40.0, 20), 0.0]
        y, m = (grid.ravel() for grid in np.meshgrid([-1.0, 1.0], [*sizes, *np.negative(sizes)]))
        given = y, m, np.full_like(m, v)
        with np.errstate(over="ignore" if v == 1e300 else "warn"):
            value, (by_mean, by_variance) = loss.value(*given), loss.gradient(*given)
            second, weight = loss.curvature(*given), loss.majoriser(*given)
        for part in (value, by_mean, by_variance, *second, weight):
            assert np.all(np.isfinite(part))
        assert np.all((value >= 0.0) & (by_variance >= 0.0) & (weight > 0.0))
        if name != "quadratic":
            assert np.all((-y * by_mean >= 0.0) & (-y * by_mean <= 1.0 + 1e-14))
            with np.errstate(over="ignore"):  # of the square of the mean
                assert np.isfinite(loss.value(y, np.full_like(y, 1e200), given[2])).all()


def test_the_curvature_of_the_logistic_loss_is_continuous_where_its_series_ends():
    r = np.array([0.0499999, 0.0500001])
    for below, above in Logistic().curvature(np.ones(2), r, np.zeros(2)):
        assert above == pytest.approx(below, rel=1e-5)


@pytest.mark.parametrize("loss", [Hinge(), GaussianHinge(margin=2.0)], ids=lambda loss: type(loss).__name__)
def test_a_smoothed_loss_has_curvature_everywhere_and_tends_to_the_loss(loss):
    y, m, v = _scores("hinge", n=2000)
    for variance in (v, np.zeros_like(v)):
        exact = loss.value(y, m, variance)
        errors = []
        for width in (1e-2, 1e-4, 1e-6):
            smooth = loss.smoothed(width)
            assert np.all(smooth.curvature(y, m, variance)[0] > 0.0)
            errors.append(np.abs(smooth.value(y, m, variance) - exact).max())
        assert errors[0] > 30.0 * errors[1] > 900.0 * errors[2]


# Convexity ----------------------------------------------------------------------------------------------------------


@each_loss
def test_losses_are_convex_in_the_coefficients_and_rise_with_the_variance(name):
    """The mean is linear in these, the deviation a norm: convex in both, and increasing in the deviation."""
    rng, loss = np.random.default_rng(0), EVERY[name]
    (first, second), (s, t) = rng.normal(0.0, 3.0, (2, 3000)), np.abs(rng.normal(0.0, 2.0, (2, 3000)))
    y = _scores(name, n=3000)[0]
    ends = 0.5 * (loss.value(y, first, s**2) + loss.value(y, second, t**2))
    middle = loss.value(y, 0.5 * (first + second), (0.5 * (s + t)) ** 2)
    assert (middle <= ends + 1e-10).all()
    assert (loss.value(y, first, s**2) <= loss.value(y, first, (s + t) ** 2) + 1e-10).all()
    assert (loss.gradient(y, first, s**2)[1] >= 0.0).all()
    assert (loss.curvature(y, first, s**2)[0] >= -1e-12).all()


@pytest.mark.parametrize("name", ["hinge", "hinge margin 2", "logistic", "quadratic", "epsilon-insensitive", "huber"])
def test_the_majoriser_is_above_the_loss_and_touches_it(name):
    """``gamma / 2 (m^2 + v)`` plus a linear function, the paper's E-step and M-step."""
    loss = EVERY[name]
    assert loss.has_majoriser
    y, m0, v0 = _scores(name)
    _, m, v = _scores(name, seed=1)
    gamma, (slope, by_variance) = loss.majoriser(y, m0, v0), loss.gradient(y, m0, v0)
    assert_allclose(by_variance, 0.5 * gamma, rtol=1e-7)
    above = loss.value(y, m0, v0) + slope * (m - m0) + 0.5 * gamma * ((m - m0) ** 2 + v - v0)
    assert np.all(loss.value(y, m, v) <= above + 1e-9)


# What the losses are ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSIFICATION | REGRESSION)
def test_without_noise_the_loss_is_the_ordinary_one(name):
    y, m, v = _scores(name)
    value = EVERY[name].without_noise().value(y, m, np.zeros_like(v))
    assert_allclose(value, _ordinary(name, y, m), rtol=1e-12, atol=1e-8 if name == "gaussian logistic" else 1e-12)


@pytest.mark.parametrize("name", CLASSIFICATION | REGRESSION)
def test_losses_of_a_normal_score_are_exact_or_bounds(name):
    for y, m, v in product([-1.0, 1.0], [-6.0, -1.0, 0.0, 5.0], [0.01, 0.5, 100.0]):
        sd = np.sqrt(v)

        def integrand(t, y=y, m=m, sd=sd):
            return _ordinary(name, y, m + sd * t) * np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)

        kinks = [(y + kink - m) / sd for kink in (-2.0 * y, -1.5, -0.5, 0.0, 0.5, 1.5, y)]
        points = [kink for kink in kinks if abs(kink) < 12.0] or None
        expected = quad(integrand, -12.0, 12.0, points=points, epsabs=1e-12, epsrel=1e-11, limit=400)[0]
        value = EVERY[name].value(*(np.array([number]) for number in (y, m, v)))[0]
        if name == "quadratic" or "gaussian" in name:
            assert value == pytest.approx(expected, rel=1e-7, abs=2e-8), (y, m, v)
        else:
            assert value >= expected - 1e-9, (y, m, v)


@pytest.mark.parametrize("noise", SOME_NOISES)
def test_bounds_and_exact_losses_of_noisy_rows(noise):
    """Of draws of the score of one row: bounds lie above the mean loss, exact losses on it."""
    seed = SOME_NOISES.index(noise)
    rng = np.random.default_rng(seed)
    x = np.array([0.0, 0.5, 1.0, 2.5, 0.7, 3.0])
    w, b = rng.normal(size=6) * 0.5, 0.3 * rng.normal()
    scores = NOISES[noise].sample(np.tile(x, (30_000, 1)), random_state=seed) @ w + b
    m, v = x @ w + b, plain_variance(NOISES[noise], x[None])[0] @ w**2
    for name, y in product(
        ["hinge", "hinge margin 2", "logistic", "quadratic", "exponential", "mcf-logistic"], [-1.0, 1.0]
    ):
        if name in MGF_LOSSES:
            value = MGF_LOSSES[name].value(np.array([NOISES[noise].log_mgf(-y * w, x)[0].sum() - y * b]))[0]
            losses = np.exp(-y * scores) if name == "exponential" else np.logaddexp(0.0, -y * scores)
        else:
            value = CLASSIFICATION[name].value(*(np.array([number]) for number in (y, m, v)))[0]
            losses = _ordinary(name, y, scores)
            # a bound, but not a vacuous one: it never exceeds the loss at the mean by more than half a deviation
            assert name == "quadratic" or value <= _ordinary(name, y, np.array(m)) + 0.5 * np.sqrt(v) + 1e-12, (name, y)
        error = 5.0 * losses.std() / np.sqrt(len(losses)) + 1e-12
        assert value >= losses.mean() - error, (name, y)
        if name in ("quadratic", "exponential"):
            assert value <= losses.mean() + error, (name, y)


@pytest.mark.parametrize("name", MGF_LOSSES)
def test_mgf_losses_have_the_derivatives_of_their_values(name):
    loss, K, h = MGF_LOSSES[name], np.linspace(-30.0, 30.0, 61), 1e-5
    assert_allclose(loss.slope(K), (loss.value(K + h) - loss.value(K - h)) / (2 * h), rtol=1e-6, atol=1e-9)
    assert_allclose(loss.curvature(K), (loss.slope(K + h) - loss.slope(K - h)) / (2 * h), rtol=1e-6, atol=1e-9)


# Names and parameters -----------------------------------------------------------------------------------------------


def test_as_loss_knows_every_name_and_refuses_what_is_no_loss():
    for name, known in LOSSES.items():
        for approximation, cls in known.items():
            assert type(as_loss(name, approximation or "bound")) is cls
    for loss in ["squared", None, 3, ["hinge"], Hinge]:
        with pytest.raises(ValueError, match="loss must be"):
            as_loss(loss)
    for loss in ["quadratic", "exponential", "mcf-logistic"]:
        with pytest.raises(ValueError, match="approximation"):
            as_loss(loss, "gaussian")


_WRONG = [-1.0, np.nan, np.inf, "wide", None]


@pytest.mark.parametrize(
    ("wrong", "parameter"),
    deal(
        _WRONG, [(Hinge, "margin"), (GaussianHinge, "margin"), (EpsilonInsensitive, "epsilon"), (Huber, "delta")], n=8
    ),
)
def test_parameters_of_losses_are_checked(wrong, parameter):
    with pytest.raises(ValueError, match=parameter[1]):
        parameter[0](wrong)
