"""Preconditioners: each is the inverse that it says it is, and the shape of the data chooses among them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dropmargin.losses import Logistic
from dropmargin.noise import DropoutNoise
from dropmargin.objective.preconditioner import (
    Cholesky,
    Diagonal,
    Woodbury,
    diagonal,
    explicit_curvature,
    factorise,
    shared_gram,
    woodbury,
)
from helpers import (
    LOSSES,
    MOMENT_LOSSES,
    N_FEATURES,
    NOISES,
    as_format,
    as_matrix,
    make_coefficients,
    make_data,
    make_objective,
    make_problem,
)
from helpers import (
    PROBLEM_C as C,
)

MOMENT_PAIRS = list(itertools.product(MOMENT_LOSSES, NOISES))
each_moment_pair = pytest.mark.parametrize(("loss", "noise"), MOMENT_PAIRS)
each_layout = pytest.mark.parametrize("layout", ["dense", "sparse"])
with_and_without_intercept = pytest.mark.parametrize("fit_intercept", [True, False], ids=["offset", "no offset"])


# Preconditioners ----------------------------------------------------------------------------------------------------


@each_layout
@with_and_without_intercept
@each_moment_pair
def test_explicit_curvature_is_the_matrix_of_the_products(loss, noise, fit_intercept, layout):
    objective, *_, coef = make_problem(loss, noise, layout, fit_intercept=fit_intercept)
    point = objective.at(coef)
    for curvature in (point.hessian(), point.majoriser()):
        for k, matrix in enumerate(explicit_curvature(point, curvature.weights, curvature.diagonal)):
            products = as_matrix(curvature, k, 3)
            if not fit_intercept:  # products are only ever asked for directions without an offset
                products[:-1, -1] = 0.0
            assert_allclose(matrix, products, rtol=1e-9, atol=1e-10)


@with_and_without_intercept
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("loss", ["logistic", "quadratic", "gaussian-logistic"])
def test_cholesky_preconditioner_is_the_inverse(loss, noise, fit_intercept):
    objective, *_, coef = make_problem(loss, noise, fit_intercept=fit_intercept)
    hessian = objective.at(coef).hessian(direct=True)
    assert isinstance(hessian.preconditioner, Cholesky)
    direction = make_coefficients(3, fit_intercept, seed=3)
    assert_allclose(hessian.precondition(hessian.product(direction)), direction, rtol=1e-8, atol=1e-10)


@each_layout
@with_and_without_intercept
@pytest.mark.parametrize(("loss", "noise"), list(itertools.product(["hinge", "logistic", "quadratic"], NOISES)))
def test_woodbury_is_the_inverse_of_the_majoriser(loss, noise, fit_intercept, layout):
    X, labels, weights = make_data(n_samples=4, n_columns=2, seed=2)  # fewer rows than features
    options = {"C": C, "fit_intercept": fit_intercept}
    objective = make_objective(as_format(X, layout), labels, weights, LOSSES[loss], NOISES[noise], **options)
    point = objective.at(make_coefficients(2, fit_intercept, seed=4))
    majoriser = point.majoriser(direct=True)
    assert isinstance(majoriser.preconditioner, Woodbury)
    right = make_coefficients(2, fit_intercept, seed=9)
    for k in range(2):
        matrix = as_matrix(majoriser, k, 2)
        if not fit_intercept:
            matrix[:-1, -1] = 0.0
        assert_allclose(
            majoriser.precondition(right)[:, k], np.linalg.solve(matrix, right[:, k]), rtol=1e-8, atol=1e-10
        )
        chosen = woodbury(point, majoriser.weights, majoriser.diagonal).select([k])
        assert_allclose(chosen.solve(right[:, [k]])[:, 0], majoriser.precondition(right)[:, k], rtol=1e-12)


@each_layout
@with_and_without_intercept
@pytest.mark.parametrize(("loss", "noise"), list(itertools.product(["hinge", "logistic", "gaussian-hinge"], NOISES)))
def test_shared_gram_is_the_mean_weight_times_the_gram_matrix(loss, noise, fit_intercept, layout):
    objective, X, _, weights, coef = make_problem(loss, noise, layout, fit_intercept=fit_intercept)
    point = objective.at(coef)
    curvature = point.majoriser()
    h = np.concatenate([part.by_mean for part in curvature.weights])
    rows = np.hstack([X, np.ones((len(X), 1))])
    gram = (rows * (C * weights)[:, None]).T @ rows
    for k, matrix in enumerate(shared_gram(point, h.sum(axis=0), curvature.diagonal)):
        expected = gram * (h[:, k].sum() / (C * weights.sum()))
        expected[:-1, :-1] += np.eye(N_FEATURES) + np.diag(point.noise_curvature[:, k])
        if not fit_intercept:
            expected[-1] = expected[:, -1] = 0.0
            expected[-1, -1] = 1.0
        assert_allclose(matrix, expected, rtol=1e-11, atol=1e-12)


def test_shared_gram_may_be_asked_twice():
    """The Gram matrix is kept between steps, so nothing may be added to the one that is kept."""
    objective, *_, coef = make_problem("logistic", "dropout")
    point = objective.at(coef)
    totals = np.array([1.0, 2.0, 3.0])
    own = point.hessian().diagonal
    assert_array_equal(list(shared_gram(point, totals, own)), list(shared_gram(point, totals, own)))


@each_layout
@pytest.mark.parametrize(("loss", "noise"), list(itertools.product(["hinge", "logistic", "quadratic"], NOISES)))
def test_diagonal_is_that_of_the_majoriser(loss, noise, layout):
    objective, *_, coef = make_problem(loss, noise, layout)
    point = objective.at(coef)
    majoriser = point.majoriser()
    squares = [
        part.block.squares_transposed(own.by_mean)
        for part, own in zip(objective.data.parts, majoriser.weights, strict=True)
    ]
    total = sum(own.by_mean.sum(axis=0) for own in majoriser.weights)
    out = 1.0 / diagonal(point, sum(squares), total, majoriser.diagonal).inverse
    for k in range(3):
        assert_allclose(out[:, k], np.diag(as_matrix(majoriser, k, 3)), rtol=1e-11)
    right = make_coefficients(3, seed=8)
    assert_allclose(Diagonal(out).solve(right), right / out)
    assert_allclose(Diagonal(out).select([2, 1]).solve(right[:, [2, 1]]), (right / out)[:, [2, 1]])


@each_layout
@pytest.mark.parametrize(
    ("n_samples", "n_features", "direct", "expected"),
    [
        (30, 8, True, Cholesky),
        (8, 30, False, Woodbury),
        (400, 250, False, Cholesky),  # of the shared Gram matrix
        (250, 400, False, Diagonal),
        (250, 400, True, Woodbury),
        (400, 250, True, Cholesky),
    ],
)
def test_every_preconditioner_is_positive_definite_and_the_direct_ones_exact(
    n_samples, n_features, direct, expected, layout
):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, (n_samples, n_features)).astype(float)
    labels = rng.choice([-1.0, 1.0], (n_samples, 2))
    objective = make_objective(as_format(X, layout), labels, np.ones(n_samples), Logistic(), DropoutNoise(0.3))
    majoriser = objective.at(0.1 * rng.normal(size=(n_features + 1, 2))).majoriser(direct=direct)
    assert isinstance(majoriser.preconditioner, expected)
    direction = rng.normal(size=(n_features + 1, 2))
    solved = majoriser.precondition(direction)
    assert np.all(np.sum(direction * solved, axis=0) > 0.0)
    if direct or expected is Woodbury:
        assert_allclose(majoriser.product(solved), direction, rtol=1e-7, atol=1e-8)


def test_factorise_of_an_indefinite_matrix_is_none_and_of_a_badly_scaled_one_is_exact():
    assert factorise(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
    assert factorise(np.full((2, 2), np.nan)) is None
    scale = np.array([1e-150, 1.0, 1e150])
    inner = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]])
    factor = factorise(inner * scale * scale[:, None])
    right = np.array([1.0, -2.0, 0.5])
    solved = Cholesky([factor], is_exact=True).solve((right * scale)[:, None])[:, 0]
    assert_allclose(solved * scale, np.linalg.solve(inner, right), rtol=1e-12)
