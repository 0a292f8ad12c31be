"""Preconditioners: each is the inverse that it says it is, and the shape of the data chooses among them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from datasets import blankout
from dealing import deal, together
from dropmargin.losses import Logistic
from dropmargin.objective.preconditioner import Cholesky, Diagonal, StackedCholesky, Woodbury, factorise
from helpers import (
    INDEPENDENT,
    LOSSES,
    MOMENT_LOSSES,
    N_FEATURES,
    NOISES,
    RADIAL,
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

LAYOUTS = ["dense", "sparse"]


@together(
    ("loss", "noise", "kind", "layout", "fit_intercept"),
    deal(MOMENT_LOSSES, NOISES, ["hessian", "majoriser"], LAYOUTS, [True, False]),
)
def test_direct_preconditioner_of_few_features_is_the_inverse(loss, noise, kind, layout, fit_intercept):
    objective, *_, coef = make_problem(loss, noise, layout, fit_intercept=fit_intercept)
    curvature = getattr(objective.at(coef), kind)(direct=True)
    # of a product, as a hinge without noise has no curvature but for the penalty
    image = curvature.product(make_coefficients(3, fit_intercept, seed=3))
    solved = curvature.precondition(image)
    assert_allclose(curvature.product(solved), image, rtol=1e-8, atol=1e-10)
    assert_allclose(curvature.select([2, 0]).precondition(image[:, [2, 0]]), solved[:, [2, 0]], rtol=1e-12)


@together(("loss", "noise", "layout", "fit_intercept"), deal(RADIAL, INDEPENDENT, LAYOUTS, [True, False]))
def test_preconditioner_of_fewer_rows_than_features_is_the_inverse(loss, noise, layout, fit_intercept):
    X, labels, weights = make_data(n_samples=4, n_columns=2, seed=2)
    options = {"C": C, "fit_intercept": fit_intercept}
    objective = make_objective(as_format(X, layout), labels, weights, LOSSES[loss], NOISES[noise], **options)
    majoriser = objective.at(make_coefficients(2, fit_intercept, seed=4)).majoriser()
    assert isinstance(majoriser.preconditioner, Woodbury)
    right = make_coefficients(2, fit_intercept, seed=9)
    for k in range(2):
        matrix = as_matrix(majoriser, k, 2)
        if not fit_intercept:  # products are only ever asked for directions without an intercept
            matrix[:-1, -1] = 0.0
        solved = majoriser.precondition(right)[:, k]
        assert_allclose(solved, np.linalg.solve(matrix, right[:, k]), rtol=1e-8, atol=1e-10)
        assert_allclose(majoriser.select([k]).precondition(right[:, [k]])[:, 0], solved, rtol=1e-12)


@pytest.mark.parametrize(
    ("noise", "n_outputs", "loss", "layout", "fit_intercept"),
    deal(INDEPENDENT, [3, 5], ["hinge", "logistic"], LAYOUTS, [True, False]),
)
def test_shared_gram_matrix_is_exact_where_all_rows_weigh_alike(noise, n_outputs, loss, layout, fit_intercept):
    """So they do at zero weights; three outputs have a factor each, five share their eigenvectors."""
    X, labels, weights = make_data(n_columns=n_outputs)
    options = {"C": C, "fit_intercept": fit_intercept}
    objective = make_objective(as_format(X, layout), labels, weights, LOSSES[loss], NOISES[noise], **options)
    start = objective.at(np.zeros((N_FEATURES + 1, n_outputs))).majoriser()
    # The Gram matrix is kept from point to point, so that no point may change it.
    elsewhere = objective.at(make_coefficients(n_outputs, fit_intercept)).majoriser()
    again = objective.at(np.zeros((N_FEATURES + 1, n_outputs))).majoriser()
    right = make_coefficients(n_outputs, fit_intercept, seed=3)
    for majoriser in (start, again):
        assert_allclose(majoriser.precondition(majoriser.product(right)), right, rtol=1e-9, atol=1e-10)
        one = majoriser.select([2]).precondition(right[:, [2]])
        assert_allclose(one, majoriser.precondition(right)[:, [2]], rtol=1e-12)
    assert np.all(np.sum(right * elsewhere.precondition(right), axis=0) > 0.0)


@together(("noise", "loss", "layout"), deal(INDEPENDENT, RADIAL, LAYOUTS, n=12))
def test_preconditioner_of_many_features_is_the_diagonal_of_the_majoriser(noise, loss, layout):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.1, (210, 216)) * rng.uniform(0.3, 1.2, (210, 216))
    labels = rng.choice([-1.0, 1.0], (210, 2))
    noise = NOISES[noise] and NOISES[noise].take(np.arange(216) % N_FEATURES)
    objective = make_objective(as_format(X, layout), labels, rng.uniform(0.5, 2.0, 210), LOSSES[loss], noise, C=C)
    majoriser = objective.at(0.2 * rng.normal(size=(217, 2))).majoriser()
    for d in (0, 1, 2, 100, 215, 216):
        unit = np.zeros((217, 2))
        unit[d] = 1.0
        assert_allclose(majoriser.precondition(unit), unit / majoriser.product(unit)[d], rtol=1e-11)
    right = rng.normal(size=(217, 2))
    assert_allclose(majoriser.select([1]).precondition(right[:, [1]]), majoriser.precondition(right)[:, [1]])


@pytest.mark.parametrize(
    ("n_samples", "n_features", "direct", "expected", "layout"),
    [
        (30, 8, True, StackedCholesky, "dense"),
        (8, 30, False, Woodbury, "sparse"),
        (400, 250, False, Cholesky, "sparse"),  # of the shared Gram matrix
        (250, 400, False, Diagonal, "dense"),
        (250, 400, True, Woodbury, "dense"),
        (400, 250, True, Cholesky, "sparse"),
    ],
)
def test_preconditioner_is_positive_definite_and_exact_where_it_is_direct(
    n_samples, n_features, direct, expected, layout
):
    rng = np.random.default_rng(0)
    X = rng.poisson(0.3, (n_samples, n_features)).astype(float)
    labels = rng.choice([-1.0, 1.0], (n_samples, 2))
    objective = make_objective(as_format(X, layout), labels, np.ones(n_samples), Logistic(), blankout(0.3))
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
