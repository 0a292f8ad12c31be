"""The losses: their derivatives, their convexity, and what they claim to be: bounds, expectations, ordinary losses."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad

from dropmargin.losses import (
    Exponential,
    GaussianHinge,
    GaussianLogistic,
    Hinge,
    Logistic,
    MCFLogistic,
    Quadratic,
    SmoothedHinge,
)
from helpers import MGF_LOSSES, NOISES, SOME_NOISES, plain_moment_loss, plain_variance

MOMENT = {
    "hinge": Hinge(),
    "hinge margin 2": Hinge(margin=2.0),
    "logistic": Logistic(),
    "quadratic": Quadratic(),
    "gaussian hinge": GaussianHinge(),
    "gaussian hinge margin 2": GaussianHinge(margin=2.0),
    "gaussian logistic": GaussianLogistic(),
}
SMOOTHED = {"smoothed hinge": Hinge().smoothed(0.3), "smoothed gaussian hinge": GaussianHinge().smoothed(0.3)}
each_moment_loss = pytest.mark.parametrize("name", MOMENT)
each_moment_or_smoothed_loss = pytest.mark.parametrize("name", MOMENT | SMOOTHED)
each_noise = pytest.mark.parametrize("noise_name", SOME_NOISES)


def _random_scores(n=400, seed=0):
    """Return labels, means and variances over several orders of magnitude."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], n)
    return y, rng.normal(size=n) * 10.0 ** rng.uniform(-1.0, 1.3, n), 10.0 ** rng.uniform(-2.0, 2.0, n)


def _ordinary(name, y, m):
    """Return the loss without noise."""
    margin = 2.0 if name.endswith("2") else 1.0
    if "hinge" in name:
        return np.maximum(margin - y * m, 0.0)
    return (y - m) ** 2 if name == "quadratic" else np.logaddexp(0.0, -y * m)


# Derivatives --------------------------------------------------------------------------------------------------------


def _step(values):
    """Return steps of the central differences."""
    return 1e-5 * np.maximum(np.abs(values), 1e-2)


def _agree(exact, differences, noise_floor):
    """Compare derivatives with central differences, whose rounding error is ``noise_floor``."""
    assert np.all(np.abs(exact - differences) <= 2e-6 * np.abs(exact) + noise_floor)


@each_moment_or_smoothed_loss
def test_gradient_matches_finite_differences(name):
    loss = (MOMENT | SMOOTHED)[name]
    y, m, v = _random_scores()
    hm, hv = _step(m), 1e-5 * v
    size = np.abs(loss.value(y, m, v)) + np.abs(m) + np.sqrt(v)
    by_mean, by_variance = loss.gradient(y, m, v)
    eps = 4.0 * np.finfo(float).eps
    _agree(by_mean, (loss.value(y, m + hm, v) - loss.value(y, m - hm, v)) / (2 * hm), eps * size / hm)
    _agree(by_variance, (loss.value(y, m, v + hv) - loss.value(y, m, v - hv)) / (2 * hv), eps * size / hv)


@each_moment_or_smoothed_loss
def test_curvature_matches_finite_differences_of_the_gradient(name):
    loss = (MOMENT | SMOOTHED)[name]
    y, m, v = _random_scores(seed=1)
    hm, hv = _step(m), 1e-5 * v
    by_mean, mixed, by_variance = loss.curvature(y, m, v)
    up, down = loss.gradient(y, m + hm, v), loss.gradient(y, m - hm, v)
    more, less = loss.gradient(y, m, v + hv), loss.gradient(y, m, v - hv)
    eps = 4.0 * np.finfo(float).eps
    first, second = (np.maximum(np.abs(part), eps) for part in loss.gradient(y, m, v))
    # a slope is a share of something of size k (or of r for the quadratic): its rounding is relative to that
    first = np.maximum(first, 1.0)
    _agree(by_mean, (up[0] - down[0]) / (2 * hm), eps * first / hm)
    _agree(mixed, (up[1] - down[1]) / (2 * hm), eps * second / hm)
    _agree(mixed, (more[0] - less[0]) / (2 * hv), eps * first / hv)
    _agree(by_variance, (more[1] - less[1]) / (2 * hv), eps * second / hv)


@pytest.mark.parametrize("name", ["logistic", "quadratic", "gaussian logistic"])
def test_smooth_losses_have_derivatives_at_zero_weights(name):
    """At w = 0 mean and variance are zero; v has a derivative from the right."""
    loss = MOMENT[name]
    y, zero = np.array([-1.0, 1.0]), np.zeros(2)
    step = 1e-5
    by_mean, by_variance = loss.gradient(y, zero, zero)
    assert_allclose(by_mean, (loss.value(y, zero + step, zero) - loss.value(y, zero - step, zero)) / (2 * step), 1e-6)
    # second order from one side
    values = [loss.value(y, zero, zero + shift) for shift in (0.0, step, 2 * step)]
    assert_allclose(by_variance, (-3 * values[0] + 4 * values[1] - values[2]) / (2 * step), 1e-5)
    second = loss.curvature(y, zero, zero)
    up, down = loss.gradient(y, zero + step, zero), loss.gradient(y, zero - step, zero)
    assert_allclose(second[0], (up[0] - down[0]) / (2 * step), rtol=1e-5, atol=1e-9)
    assert_allclose(second[1], (up[1] - down[1]) / (2 * step), rtol=1e-5, atol=1e-9)
    slopes = [loss.gradient(y, zero, zero + shift)[1] for shift in (0.0, step, 2 * step)]
    assert_allclose(second[2], (-3 * slopes[0] + 4 * slopes[1] - slopes[2]) / (2 * step), rtol=1e-4, atol=1e-9)


def test_logistic_limits_at_zero_weights():
    y, zero = np.array([-1.0, 1.0]), np.zeros(2)
    loss = Logistic()
    assert_allclose(loss.value(y, zero, zero), np.log(2.0), rtol=1e-15)
    assert_allclose(loss.gradient(y, zero, zero), [-y / 2.0, [1.0 / 8.0] * 2], rtol=1e-14)
    assert_allclose(loss.curvature(y, zero, zero), [[0.25] * 2, [0.0] * 2, [-1.0 / 96.0] * 2], rtol=1e-13)
    assert_allclose(loss.majoriser(y, zero, zero), 0.25)


@pytest.mark.parametrize("name", ["hinge", "gaussian hinge"])
def test_hinges_at_zero_weights_are_away_from_the_kink(name):
    y, zero = np.array([-1.0, 1.0]), np.zeros(2)
    loss = MOMENT[name]
    assert_allclose(loss.value(y, zero, zero), 1.0)
    by_mean, by_variance = loss.gradient(y, zero, zero)
    assert_allclose(by_mean, -y)
    assert_allclose(by_variance, 0.25 if name == "hinge" else 0.0, atol=1e-200)
    assert_allclose(loss.curvature(y, zero, zero)[0], 0.0, atol=1e-15)


@pytest.mark.parametrize("name", ["hinge", "hinge margin 2", "gaussian hinge", "gaussian hinge margin 2"])
def test_hinges_have_a_subgradient_in_the_kink(name):
    y = np.array([-1.0, 1.0])
    loss = MOMENT[name]
    m, v = loss.margin * y, np.zeros(2)
    assert_allclose(loss.value(y, m, v), 0.0, atol=1e-90)
    by_mean, by_variance = loss.gradient(y, m, v)
    assert np.all((-y * by_mean >= 0.0) & (-y * by_mean <= 1.0))
    for part in (by_variance, *loss.curvature(y, m, v), loss.majoriser(y, m, v)):
        assert np.all(np.isfinite(part))


@each_moment_loss
def test_everything_is_finite_at_extremes(name):
    loss = MOMENT[name]
    for v in (0.0, 1e-300, 1e-30, 1.0, 1e30, 1e300):
        y, m = (grid.ravel() for grid in np.meshgrid([-1.0, 1.0], [-1e9, -1.0, 0.0, 1.0, 1e9]))
        given = y, m, np.full_like(m, v)
        with np.errstate(over="ignore" if v == 1e300 else "warn"):
            value = loss.value(*given)
            by_mean, by_variance = loss.gradient(*given)
            second = loss.curvature(*given)
            weight = loss.majoriser(*given)
        for part in (value, by_mean, by_variance, *second, weight):
            assert np.all(np.isfinite(part))
        assert np.all(value >= 0.0)
        assert np.all(by_variance >= 0.0)
        assert np.all(weight > 0.0)
        if name != "quadratic":
            assert np.all((-y * by_mean >= 0.0) & (-y * by_mean <= 1.0 + 1e-14))


@each_moment_loss
def test_values_at_huge_margins_keep_their_digits(name):
    loss = MOMENT[name]
    y = np.array([-1.0, 1.0])
    for m, v in ((1e9 * y, 1.0), (-1e9 * y, 1.0)):
        with_noise = loss.value(y, m, np.full(2, v))
        without = _ordinary(name, y, m)
        # r - |u| = v / (2 |u|) to first order, and v itself for the quadratic loss
        extra = v if name == "quadratic" else 0.0 if "gaussian" in name else 0.25 * v / 1e9
        assert_allclose(with_noise, without + extra, rtol=1e-8, atol=1e-18)


@each_moment_or_smoothed_loss
def test_curvature_by_the_mean_is_not_negative(name):
    """Convexity in m; a negative number of the size of rounding is allowed, and no more."""
    y, m, v = _random_scores(n=5000, seed=2)
    for variance in (v, np.zeros_like(v), 1e-12 * v):
        assert np.all((MOMENT | SMOOTHED)[name].curvature(y, m, variance)[0] >= -1e-15)


@pytest.mark.parametrize("loss", [Hinge(), GaussianHinge(margin=2.0)], ids=lambda loss: type(loss).__name__)
def test_a_smoothed_loss_has_curvature_everywhere_and_tends_to_the_loss(loss):
    y, m, v = _random_scores(n=2000)
    for variance in (v, np.zeros_like(v)):
        exact = loss.value(y, m, variance)
        errors = []
        for width in (1e-2, 1e-4, 1e-6):
            smooth = loss.smoothed(width)
            assert np.all(smooth.curvature(y, m, variance)[0] > 0.0)
            errors.append(np.abs(smooth.value(y, m, variance) - exact).max())
        assert errors[0] > 30.0 * errors[1] > 900.0 * errors[2]


def test_the_smoothed_hinge_is_the_least_value_with_the_barrier():
    """Of ``xi - (w / 2) log(xi (xi - z) - v / 4)`` over ``xi``, up to a constant."""
    width, loss = 0.3, SmoothedHinge(1.0, 0.3)
    y, m, v = _random_scores(n=6, seed=4)
    z = 1.0 - y * m
    least = (z + np.sqrt(z**2 + v)) / 2.0
    xi = least[:, None] + np.geomspace(1e-6, 30.0, 200_000)
    barrier = xi - 0.5 * width * np.log(xi * (xi - z[:, None]) - 0.25 * v[:, None])
    difference = barrier.min(axis=1) - loss.value(y, m, v)
    assert_allclose(difference, difference[0], atol=1e-6)


# Convexity ----------------------------------------------------------------------------------------------------------

_two_scores = st.tuples(st.floats(-50.0, 50.0), st.floats(-50.0, 50.0))
_two_deviations = st.tuples(st.floats(0.0, 20.0), st.floats(0.0, 20.0))
_label = st.sampled_from([-1.0, 1.0])


@each_moment_or_smoothed_loss
@settings(derandomize=True, deadline=None, max_examples=60)
@given(m=_two_scores, sd=_two_deviations, share=st.floats(0.0, 1.0), y=_label)
def test_losses_are_convex_in_mean_and_deviation(name, m, sd, share, y):
    loss = (MOMENT | SMOOTHED)[name]

    def at(t):
        mean, deviation = ((1.0 - t) * a + t * b for a, b in (m, sd))
        return loss.value(np.array([y]), np.array([mean]), np.array([deviation**2]))[0]

    chord = (1.0 - share) * at(0.0) + share * at(1.0)
    assert at(share) <= chord + 1e-12 * (1.0 + abs(chord))


@each_moment_loss
def test_losses_rise_with_the_variance(name):
    y, m, v = _random_scores()
    loss = MOMENT[name]
    values = [loss.value(y, m, factor * v) for factor in (0.0, 0.5, 1.0, 2.0)]
    assert np.all(np.diff(values, axis=0) >= -1e-15)


# The majoriser ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["hinge", "hinge margin 2", "logistic", "quadratic"])
@settings(derandomize=True, deadline=None, max_examples=80)
@given(m=_two_scores, sd=_two_deviations, y=_label)
def test_the_weighted_square_lies_above_the_loss_and_touches_it(name, m, sd, y):
    """psi(r) <= psi(r0) + gamma(r0) / 2 (r^2 - r0^2), the paper's E-step and M-step."""
    loss = MOMENT[name]
    assert loss.has_majoriser
    u, r_squared, psi = [], [], []
    for mean, deviation in zip(m, sd, strict=True):
        u.append(mean - loss.margin * y)
        r_squared.append(u[-1] ** 2 + deviation**2)
        value = loss.value(np.array([y]), np.array([mean]), np.array([deviation**2]))[0]
        psi.append(value + loss.k * y * u[-1])
    weight = loss.majoriser(np.array([y]), np.array([m[0]]), np.array([sd[0] ** 2]))[0]
    if r_squared[0] == 0.0:  # the hinge's weight is infinite in its kink
        return
    parabola = psi[0] + 0.5 * weight * (r_squared[1] - r_squared[0])
    assert parabola >= psi[1] - 1e-12 * (1.0 + abs(psi[1]) + weight * max(r_squared))


@pytest.mark.parametrize("name", ["hinge", "hinge margin 2", "logistic", "quadratic"])
def test_the_weight_is_twice_the_slope_by_the_variance(name):
    """Equality of the slopes at r0: d psi / d v = gamma / 2, so the parabola touches from above."""
    loss = MOMENT[name]
    y, m, v = _random_scores()
    assert_allclose(loss.majoriser(y, m, v), 2.0 * loss.gradient(y, m, v)[1], rtol=1e-14)


def test_the_weights_of_the_paper():
    y, m, v = _random_scores()
    for margin in (1.0, 2.0):
        zeta = np.sqrt((margin - y * m) ** 2 + v)
        assert_allclose(Hinge(margin).majoriser(y, m, v), 0.5 / zeta, rtol=1e-12)
    r = np.sqrt(m**2 + v)
    assert_allclose(Logistic().majoriser(y, m, v), np.tanh(r / 2.0) / (2.0 * r), rtol=1e-12)
    assert_array_equal(Quadratic().majoriser(y, m, v), 2.0)


def test_logistic_weight_and_its_slope_are_smooth_across_their_series():
    """gamma = tanh(r/2)/(2r) and kappa = gamma'/r, also where a series takes over."""
    r = np.geomspace(1e-6, 40.0, 60)
    h = 1e-3 * r
    loss = Logistic()
    at = [loss.gamma(r + shift) for shift in (-2 * h, -h, h, 2 * h)]
    slope = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)
    assert np.all(np.abs(loss.kappa(r) - slope / r) <= 1e-8 + 4e-16 / (h * r))


# What the losses are ------------------------------------------------------------------------------------------------


@each_moment_loss
def test_without_noise_the_loss_is_the_ordinary_one(name):
    y, m, v = _random_scores()
    value = MOMENT[name].value(y, m, np.zeros_like(v))
    assert_allclose(value, _ordinary(name, y, m), rtol=1e-12, atol=1e-8 if name == "gaussian logistic" else 1e-14)


@pytest.mark.parametrize("name", ["hinge", "logistic", "quadratic", "gaussian-hinge", "gaussian-logistic"])
def test_moment_losses_are_the_plain_formulas(name):
    y, m, v = _random_scores()
    loss = MOMENT[name.replace("-", " ")]
    assert_allclose(loss.value(y, m, v), plain_moment_loss(name, y, m, v), rtol=1e-9, atol=2e-8)


@pytest.mark.parametrize("name", ["gaussian hinge", "gaussian hinge margin 2", "gaussian logistic"])
def test_gaussian_losses_are_expectations_under_a_normal_score(name):
    margin = 2.0 if name.endswith("2") else 1.0
    for y, m, v in product([-1.0, 1.0], [-6.0, -1.0, 0.0, 1.0, 5.0], [0.01, 0.5, 100.0]):
        sd = np.sqrt(v)

        def integrand(t, y=y, m=m, sd=sd):
            return _ordinary(name, y, m + sd * t) * np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)

        kink = (margin * y - m) / sd if "hinge" in name else -m / sd
        points = [kink] if abs(kink) < 12.0 else None
        expected = quad(integrand, -12.0, 12.0, points=points, epsabs=1e-12, epsrel=1e-11, limit=200)[0]
        value = MOMENT[name].value(*(np.array([number]) for number in (y, m, v)))[0]
        assert value == pytest.approx(expected, rel=1e-8, abs=2e-8 if "logistic" in name else 1e-10), (y, m, v)


@pytest.mark.parametrize("margin", [1.0, 2.0])
def test_hinge_bound_is_attained_by_a_two_point_distribution(margin):
    """Scarf's bound is tight: Z = +-sqrt(z^2 + v), with the probabilities that give it mean z."""
    y, m, v = _random_scores()
    z = margin - y * m
    r = np.sqrt(z**2 + v)
    up = 0.5 * (1.0 + z / r)
    assert_allclose(up * r - (1.0 - up) * r, z, rtol=1e-9, atol=1e-12)
    assert_allclose(up * (r - z) ** 2 + (1.0 - up) * (-r - z) ** 2, v, rtol=1e-6, atol=1e-12)
    assert_allclose(Hinge(margin).value(y, m, v), up * r, rtol=1e-9, atol=1e-12)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(data=st.data(), n=st.integers(2, 6))
def test_hinge_bound_holds_for_every_discrete_distribution(data, n):
    values = np.array(data.draw(st.lists(st.floats(-10.0, 10.0), min_size=n, max_size=n)))
    shares = np.array(data.draw(st.lists(st.floats(0.01, 1.0), min_size=n, max_size=n)))
    shares /= shares.sum()
    m = shares @ values
    v = shares @ (values - m) ** 2
    one = np.ones(1)
    for loss, ordinary in ((Hinge(), "hinge"), (Logistic(), "logistic")):
        assert loss.value(one, m * one, v * one)[0] >= shares @ _ordinary(ordinary, 1.0, values) - 1e-9


@cache
def _noisy_scores(noise_name):
    """Return draws of the score of one row, and the row, the weights and the intercept."""
    seed = SOME_NOISES.index(noise_name)
    rng = np.random.default_rng(seed)
    noise = NOISES[noise_name]
    x = np.array([0.0, 0.5, 1.0, 2.5, 0.7, 3.0])
    w, b = rng.normal(size=6) * 0.5, 0.3 * rng.normal()
    draws = noise.sample(np.tile(x, (100_000, 1)), random_state=seed)
    return draws @ w + b, x, w, b


@each_noise
def test_bounds_lie_above_monte_carlo_and_the_quadratic_loss_on_it(noise_name):
    scores, x, w, b = _noisy_scores(noise_name)
    m, v = x @ w + b, plain_variance(NOISES[noise_name], x[None])[0] @ w**2
    for name, y in product(["hinge", "hinge margin 2", "logistic", "quadratic"], [-1.0, 1.0]):
        losses = _ordinary(name, y, scores)
        error = 5.0 * losses.std() / np.sqrt(len(losses)) + 1e-12
        value = MOMENT[name].value(*(np.array([number]) for number in (y, m, v)))[0]
        assert value >= losses.mean() - error, (name, y)
        if name == "quadratic":
            assert value <= losses.mean() + error
        else:  # a bound, but not a vacuous one: it never exceeds the loss at the mean by more than half a deviation
            assert value <= _ordinary(name, y, np.array(m)) + 0.5 * np.sqrt(v) + 1e-12, (name, y)


@each_noise
def test_exponential_loss_is_exact_and_mcf_logistic_loss_a_bound(noise_name):
    scores, x, w, b = _noisy_scores(noise_name)
    for name, y in product(MGF_LOSSES, [-1.0, 1.0]):
        K = NOISES[noise_name].log_mgf(-y * w, x)[0].sum() - y * b
        value = MGF_LOSSES[name].value(np.array([K]))[0]
        losses = np.exp(-y * scores) if name == "exponential" else np.logaddexp(0.0, -y * scores)
        error = 5.0 * losses.std() / np.sqrt(len(losses))
        assert value >= losses.mean() - error, (name, y)
        if name == "exponential":
            assert value <= losses.mean() + error, y


@pytest.mark.parametrize("name", MGF_LOSSES)
def test_mgf_losses_have_the_derivatives_of_their_values(name):
    loss = MGF_LOSSES[name]
    K = np.linspace(-30.0, 30.0, 61)
    h = 1e-5
    assert_allclose(loss.slope(K), (loss.value(K + h) - loss.value(K - h)) / (2 * h), rtol=1e-6, atol=1e-9)
    assert_allclose(loss.curvature(K), (loss.slope(K + h) - loss.slope(K - h)) / (2 * h), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("loss", "low", "high"),
    [(Exponential(), (0.0, 0.0, 0.0), (np.inf, np.inf, np.inf)), (MCFLogistic(), (0.0, 0.0, 0.0), (1e4, 1.0, 0.0))],
)
def test_mgf_losses_at_extremes(loss, low, high):
    K = np.array([-1e4, 1e4])
    answers = [loss.value(K), loss.slope(K), loss.curvature(K)]
    assert_array_equal(answers, np.transpose([low, high]))


def test_only_log_odds_are_called_log_odds():
    assert [loss for loss in MOMENT if MOMENT[loss].scores_are_log_odds] == ["logistic", "gaussian logistic"]
    assert [loss for loss in MGF_LOSSES if MGF_LOSSES[loss].scores_are_log_odds] == ["mcf-logistic"]
