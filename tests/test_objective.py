"""The objective: its value by formulas in plain NumPy, its derivatives by differences, the same for any blocks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dealing import deal
from dropmargin.losses import EpsilonInsensitive, Huber
from dropmargin.noise import DropoutNoise, Noise, Variance
from dropmargin.penalties import Penalty
from helpers import (
    LOSSES,
    MGF_LOSSES,
    MOMENT_LOSSES,
    N_FEATURES,
    NOISES,
    as_format,
    central_difference,
    given_objective,
    make_data,
    plain_moment_loss,
    plain_objective,
    plain_score_log_mgf,
    plain_score_variance,
)

C, LAYOUTS = 0.7, ["dense", "sparse"]


class CubicNoise(Noise):
    """A noise whose variance is not a polynomial of degree two."""

    def variance(self):
        return Variance(entry=lambda x: np.abs(x) ** 3, slope=np.linspace(0.1, 0.4, N_FEATURES))


GROUPS = {"groups": [0, 1, 0, 2, 1, 0]}
OWN_NOISES = {
    **NOISES,
    "dropout in groups to zero": DropoutNoise(0.4, reference="zero", **GROUPS),
    "dropout to the mean": DropoutNoise(0.4, reference="mean"),
    "dropout in groups to the mean": DropoutNoise(0.4, reference="mean", **GROUPS),
    "custom": CubicNoise(),
}


def known_noise(name, X, weights):
    """Return a noise with numbers in place of the means, weighted by the rows."""
    if "to the mean" not in name:
        return OWN_NOISES[name]
    means = np.average(X, axis=0, weights=weights)
    return DropoutNoise(0.4, reference=means, groups=OWN_NOISES[name].groups)


def score_variance(name, X, weights, w):
    if name == "custom":
        return np.abs(X) ** 3 @ (np.linspace(0.1, 0.4, N_FEATURES) * w**2)
    return plain_score_variance(known_noise(name, X, weights), X, w)


def check_derivatives(objective, coef, seed=0, rtol=1e-5):
    """Compare gradient and product with central differences of value and gradient."""
    direction = np.random.default_rng(seed).normal(size=coef.shape)
    direction[-1] *= objective.problem.fit_intercept
    point = objective.at(coef)
    product = point.product(direction)  # from what the blocks keep of the point
    slope = central_difference(lambda c: objective.at(c).value.sum(), coef, direction)
    assert (point.gradient * direction).sum() == pytest.approx(slope, rel=1e-6, abs=1e-7)
    bend = central_difference(lambda c: objective.at(c).gradient, coef, direction)
    for found in (product, point.product(direction)):
        assert_allclose(found, bend, rtol=rtol, atol=rtol * np.abs(bend).max())


def make_coef(n_columns, fit_intercept, scale=0.6):
    coef = scale * np.random.default_rng(1).normal(size=(N_FEATURES + 1, n_columns))
    coef[-1] *= fit_intercept
    return coef


# Classification: one output, and several -----------------------------------------------------------------------------


def _name(own):
    return own if isinstance(own, str) else type(own).__name__


@pytest.mark.parametrize(("loss", "noise", "layout"), deal(MOMENT_LOSSES, OWN_NOISES, LAYOUTS, n=28))
def test_a_moment_loss(loss, noise, layout):
    X, _, weights = make_data()
    fit_intercept = (len(loss) + len(noise)) % 2 == 0
    for n_classes in (2, 3):  # one output, by compiled sweeps if there are any, and three
        y = np.random.default_rng(2).integers(n_classes, size=len(X))
        options = {"C": C, "fit_intercept": fit_intercept, "n_parts": 2 if n_classes == 3 else 1}
        objective = given_objective(
            as_format(X, layout), y, weights, LOSSES[loss], OWN_NOISES[noise], n_classes, **options
        )
        coef = make_coef(1 if n_classes == 2 else 3, fit_intercept)
        value = objective.at(coef).value
        for k, (own, positive) in enumerate(zip(coef.T, [1] if n_classes == 2 else range(3), strict=True)):
            labels = np.where(y == positive, 1.0, -1.0)
            m, v = X @ own[:-1] + own[-1], score_variance(noise, X, weights, own[:-1])
            plain = 0.5 * own[:-1] @ own[:-1] + C * weights @ plain_moment_loss(loss, labels, m, v)
            # the hinge under no noise at all has another form; the table of the normal law has eight digits
            assert value[k] == pytest.approx(plain, rel=1e-7 if "gaussian" in loss else 1e-12)
        if noise != "none" or "hinge" not in loss:  # without noise there is a kink
            check_derivatives(objective, coef)


@pytest.mark.parametrize(("loss", "noise", "layout"), deal(["hinge", "gaussian-hinge"], OWN_NOISES, LAYOUTS))
def test_a_smoothed_kink(loss, noise, layout):
    X, labels, weights = make_data()
    y = (labels[:, 0] > 0.0).astype(int)
    objective = given_objective(as_format(X, layout), y, weights, LOSSES[loss], OWN_NOISES[noise], 2, C=C)
    coef, plain = make_coef(1, True), objective.at(make_coef(1, True)).value
    for width in (0.3, 0.03):
        smooth = objective.objective.smoothed(np.array([width]))
        objective.objective, whole = smooth, objective.objective
        point = objective.at(coef)
        # the barrier adds the width times a logarithm, the Gaussian loss a share of its bound
        assert np.abs(point.value - plain) <= 2.0 * width * np.log(10.0 / width) * C * weights.sum()
        assert_allclose(point.point.plain_value, plain, rtol=1e-12)
        check_derivatives(objective, coef, rtol=1e-4)
        objective.objective = whole


@pytest.mark.parametrize(("loss", "noise", "layout"), deal(MGF_LOSSES, [*OWN_NOISES][:-1], LAYOUTS, n=26))
def test_a_loss_through_the_log_mgf(loss, noise, layout):
    X, labels, weights = make_data()
    y = labels[:, 0]
    objective = given_objective(
        as_format(X, layout), (y > 0.0).astype(int), weights, LOSSES[loss], OWN_NOISES[noise], 2, C=C
    )
    coef = make_coef(1, True, 0.2)
    plain = plain_objective(loss, known_noise(noise, X, weights), X, y, weights, C, coef[:, 0])
    assert objective.at(coef).value[0] == pytest.approx(plain, rel=1e-12)
    check_derivatives(objective, coef)


# Classes of a softmax -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "noise", "layout"),
    [*deal(["logistic", "mcf-logistic"], [*OWN_NOISES][:-1], LAYOUTS, n=26), ("logistic", "custom", "sparse")],
)
def test_the_softmax_of_all_classes(loss, noise, layout):
    X, _, weights = make_data()
    y, coef = np.random.default_rng(2).integers(3, size=len(X)), make_coef(3, True, 0.3)
    own = {"C": C, "multi_class": "multinomial"}
    objective = given_objective(as_format(X, layout), y, weights, LOSSES[loss], OWN_NOISES[noise], 3, **own)
    exponents = np.empty((len(X), 3))
    for i, label in enumerate(y):
        for k in range(3):
            w, row = coef[:-1, k] - coef[:-1, label], X[i : i + 1]
            if loss == "logistic":
                z = row @ w + 0.5 * (
                    score_variance(noise, row, 1.0, w)
                    if "mean" not in noise
                    else plain_score_variance(known_noise(noise, X, weights), row, w)
                )
            else:
                z = plain_score_log_mgf(known_noise(noise, X, weights), row, w)
            exponents[i, k] = z[0] + coef[-1, k] - coef[-1, label]
    plain = 0.5 * (coef[:-1] ** 2).sum() + C * weights @ np.log(np.exp(exponents).sum(axis=1))
    assert objective.at(coef).value[0] == pytest.approx(plain, rel=1e-12)
    check_derivatives(objective, coef)


# Regression, penalties, blocks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "noise", "layout"),
    deal([EpsilonInsensitive(0.3), Huber(0.8)], OWN_NOISES, LAYOUTS),
    ids=_name,
)
def test_a_loss_of_a_regression(loss, noise, layout):
    X, _, weights = make_data()
    y = X @ np.arange(N_FEATURES) - 2.0
    objective = given_objective(as_format(X, layout), y, weights, loss, OWN_NOISES[noise], 1, C=C)
    coef = make_coef(1, True)
    w = coef[:-1, 0]
    v = score_variance(noise, X, weights, w) if noise != "none" else np.zeros(len(y))
    u = X @ w + coef[-1, 0] - y
    if isinstance(loss, EpsilonInsensitive):
        losses = sum((z + np.sqrt(z**2 + v)) / 2.0 for z in (u - 0.3, -u - 0.3))
    elif isinstance(loss, Huber):
        r = np.sqrt(u**2 + v)
        losses = np.where(r <= 0.8, 0.5 * r**2, 0.8 * r - 0.32)
    else:
        t = np.linspace(-12.0, 12.0, 20001)
        r = np.abs(u[:, None] + np.sqrt(v)[:, None] * t)
        density = np.exp(-0.5 * t**2) / np.exp(-0.5 * t**2).sum()
        losses = np.where(r <= 0.8, 0.5 * r**2, 0.8 * r - 0.32) @ density
    assert objective.at(coef).value[0] == pytest.approx(0.5 * w @ w + C * weights @ losses, rel=1e-7)
    if noise != "none":
        check_derivatives(objective, coef)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_l1_penalty_adds_its_value_and_its_gradient_within_the_orthant(layout):
    X, labels, weights = make_data()
    y, coef = (labels[:, 0] > 0.0).astype(int), make_coef(1, True)
    both = [
        given_objective(as_format(X, layout), y, weights, LOSSES["logistic"], NOISES["dropout"], 2, penalty=own)
        for own in (Penalty(1.0, 0.3), Penalty(1.0))
    ]
    one, other = (objective.at(coef) for objective in both)
    assert_allclose(one.value - other.value, 0.3 * np.abs(coef[:-1]).sum(axis=0))
    assert_allclose((one.gradient - other.gradient)[:-1], 0.3 * np.sign(coef[:-1]), atol=1e-12)
    check_derivatives(both[0], coef)


@pytest.mark.parametrize(("noise", "layout"), deal(OWN_NOISES, LAYOUTS))
def test_blocks_do_not_change_the_objective(noise, layout):
    X, _, weights = make_data()
    y, coef = np.random.default_rng(2).integers(3, size=len(X)), make_coef(3, True)
    direction = np.random.default_rng(3).normal(size=coef.shape)
    for multi_class, loss in [("ovr", "logistic"), ("multinomial", "logistic")]:
        own = {"multi_class": multi_class}
        one, five = (
            given_objective(as_format(X, layout), y, weights, LOSSES[loss], OWN_NOISES[noise], 3, n_parts=n, **own)
            for n in (1, 5)
        )
        assert (one.objective.data.n_partitions, five.objective.data.n_partitions) == (1, 5)
        first, second = one.at(coef), five.at(coef)
        assert_allclose(first.value, second.value, rtol=1e-12)
        assert_allclose(first.gradient, second.gradient, rtol=1e-10, atol=1e-10)
        assert_allclose(first.product(direction), second.product(direction), rtol=1e-10, atol=1e-10)
