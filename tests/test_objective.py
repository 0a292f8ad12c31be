"""The objective of every pair of loss and noise is the plain formula, and its derivatives are those of the formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from datasets import blankout
from dealing import deal, together
from dropmargin.data import LocalPartitions
from dropmargin.losses import Exponential, Quadratic
from dropmargin.penalties import Penalty
from helpers import (
    INDEPENDENT,
    LOSSES,
    MGF_LOSSES,
    MOMENT_LOSSES,
    N_FEATURES,
    NOISES,
    RADIAL,
    as_format,
    as_matrix,
    central_difference,
    make_coefficients,
    make_data,
    make_objective,
    make_problem,
    plain_moment_loss,
    plain_objective,
    plain_score_variance,
    plain_variance,
    solve,
)
from helpers import (
    PROBLEM_C as C,
)

LAYOUTS = ["dense", "sparse"]
# Every pair of loss and noise, with both layouts, with and without an intercept. The objectives through the MGF are
# code of their own, so that these factors take turns within them separately.
PROBLEMS = deal(MOMENT_LOSSES, NOISES, LAYOUTS, [True, False]) + deal(MGF_LOSSES, NOISES, LAYOUTS, [True, False])
each_problem = together(("loss", "noise", "layout", "fit_intercept"), PROBLEMS)


def some_pairs(losses, n, *factors):
    """Return ``n`` pairs of a loss and a noise in which each loss and each noise occurs, and values of the factors."""
    return deal(losses, NOISES, *factors, n=n)


# Value and derivatives ----------------------------------------------------------------------------------------------


@each_problem
def test_value_and_gradient_are_those_of_the_formula(loss, noise, layout, fit_intercept):
    objective, X, labels, weights, coef = make_problem(loss, noise, layout, fit_intercept=fit_intercept)
    point = objective.at(coef)
    for k in range(labels.shape[1]):

        def value(at, y=labels[:, k]):
            return plain_objective(loss, NOISES[noise], X, y, weights, C, at)

        assert_allclose(point.value[k], value(coef[:, k]), rtol=1e-8 if loss == "gaussian-logistic" else 1e-12)
        slope = [central_difference(value, coef[:, k], unit, 1e-5) for unit in np.eye(N_FEATURES + 1)]
        slope[-1] *= fit_intercept
        assert_allclose(point.gradient[:, k], slope, rtol=1e-6, atol=1e-6)
    assert fit_intercept or np.all(point.gradient[-1] == 0.0)


@each_problem
def test_hessian_is_the_derivative_of_the_gradient_and_positive_definite(loss, noise, layout, fit_intercept):
    objective, *_, coef = make_problem(loss, noise, layout, fit_intercept=fit_intercept)
    hessian = objective.at(coef).hessian()
    direction = make_coefficients(coef.shape[1], fit_intercept, seed=10)
    bend = central_difference(lambda at: objective.at(at).gradient, coef, direction, 1e-6)
    assert_allclose(hessian.product(direction), bend, rtol=1e-5, atol=1e-6 * np.abs(bend).max())
    size = N_FEATURES + fit_intercept  # without an intercept no one asks for its curvature
    matrix = as_matrix(hessian, 0, coef.shape[1])[:size, :size]
    assert_allclose(matrix, matrix.T, rtol=1e-10, atol=1e-12)
    assert np.linalg.eigvalsh(matrix[:N_FEATURES, :N_FEATURES]).min() >= 1.0 - 1e-10  # the penalty alone gives one
    assert np.linalg.eigvalsh(matrix).min() >= -1e-12


@together(("loss", "noise"), some_pairs(LOSSES, 14))
def test_value_at_zero_weights_is_the_loss_of_a_score_of_zero(loss, noise):
    objective, _, _, weights, coef = make_problem(loss, noise)
    of_zero = np.log(2.0) if "logistic" in loss else 1.0
    point = objective.at(np.zeros_like(coef))
    assert_allclose(point.value, C * weights.sum() * of_zero, rtol=1e-8)
    assert np.all(np.isfinite(point.gradient))
    assert np.all(np.isfinite(point.hessian().product(coef)))


@pytest.mark.parametrize(("noise", "loss"), deal(NOISES, ["hinge", "gaussian-hinge"], n=10))
def test_smoothing_is_that_of_the_loss_with_one_width_per_output(loss, noise):
    objective, X, labels, weights, coef = make_problem(loss, noise)
    m = X @ coef[:-1] + coef[-1]
    v = np.stack([plain_score_variance(NOISES[noise], X, w) for w in coef[:-1].T], axis=1)
    width = np.array([0.1, 0.2, 0.3])
    smooth = LOSSES[loss].smoothed(width)
    penalty = 0.5 * np.sum(coef[:-1] ** 2, axis=0)
    expected = penalty + C * weights @ smooth.value(labels, m, v)
    rounded = replace(objective, smoothing=width)
    assert_allclose(rounded.at(coef).value, expected, rtol=1e-8)
    assert_allclose(rounded.select([2, 0]).at(coef[:, [2, 0]]).value, expected[[2, 0]], rtol=1e-8)
    exact = penalty + C * weights @ plain_moment_loss(loss, labels, m, v)
    assert_allclose(objective.value(coef), exact, rtol=1e-8)


def test_elastic_net_penalty():
    coef = np.array([[1.0, 0.0], [-2.0, 3.0], [9.0, 9.0]])
    assert_allclose(Penalty(l2=0.5, l1=0.25).value(coef), [0.25 * 5.0 + 0.25 * 3.0, 0.25 * 9.0 + 0.25 * 3.0])


@together(("loss", "noise", "scale"), some_pairs(MOMENT_LOSSES, 16, [1e-8, 1e3]))
def test_gradient_at_tiny_and_huge_weights_is_finite_and_descends(loss, noise, scale):
    objective, _, _, _, coef = make_problem(loss, noise, n_columns=1)
    point = objective.at(scale * coef)
    assert np.all(np.isfinite(point.gradient))
    step = 1e-9 * (scale if scale > 1 else 1.0) / np.linalg.norm(point.gradient)
    assert objective.at(point.coef - step * point.gradient).value <= point.value


# Several outputs, two layouts ---------------------------------------------------------------------------------------


@together(("loss", "noise", "fit_intercept"), some_pairs(LOSSES, 14, [True, False]))
def test_value_gradient_and_preconditioner_are_the_same_for_dense_and_sparse_rows(loss, noise, fit_intercept):
    answers = []
    for layout in LAYOUTS:
        objective, *_, coef = make_problem(loss, noise, layout, fit_intercept=fit_intercept)
        direction = make_coefficients(coef.shape[1], fit_intercept, seed=5)
        point = objective.at(coef)
        answers.append([point.value, point.gradient, point.hessian().precondition(direction)])
    for first, second in zip(*answers, strict=True):
        assert_allclose(first, second, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("loss", "noise"), some_pairs(LOSSES, 10))
def test_explicit_zeros_and_unsorted_rows_change_nothing(loss, noise):
    objective, X, labels, weights, coef = make_problem(loss, noise)
    column = 1 if loss in MGF_LOSSES else 0
    backwards = np.arange(N_FEATURES)[::-1]
    full = sparse.csr_array(
        (X[:, backwards].ravel(), np.tile(backwards, len(X)), N_FEATURES * np.arange(len(X) + 1)), shape=X.shape
    )
    labels = make_data(n_columns=3)[1]
    other = make_objective(full, labels, weights, LOSSES[loss], NOISES[noise], C=C, column=column)
    assert_allclose(other.at(coef).value, objective.at(coef).value, rtol=1e-12)
    assert_allclose(other.at(coef).gradient, objective.at(coef).gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("loss", "noise", "columns"), some_pairs(MOMENT_LOSSES, 10, [[2, 0], [1], np.array([True, False, True])]), ids=str
)
def test_selected_outputs_are_those_of_the_block_and_of_problems_of_their_own(loss, noise, columns):
    objective, X, labels, weights, coef = make_problem(loss, noise)
    direction = make_coefficients(3, seed=5)
    block = objective.at(coef)
    selected = block.select(columns)
    fresh = objective.select(columns).at(coef[:, columns])
    alone = make_objective(X, labels[:, columns], weights, LOSSES[loss], NOISES[noise], C=C).at(coef[:, columns])
    assert selected.objective.n_outputs == fresh.objective.n_outputs == coef[:, columns].shape[1]
    for point in (selected, fresh, alone):
        assert_array_equal(point.coef, coef[:, columns])
        assert_allclose(point.value, block.value[columns], rtol=1e-13)
        assert_allclose(point.gradient, block.gradient[:, columns], rtol=1e-11, atol=1e-12)
    image = block.hessian().product(direction)[:, columns]
    solved = block.hessian().precondition(direction)[:, columns]
    for curvature in (selected.hessian(), fresh.hessian(), block.hessian().select(columns), alone.hessian()):
        assert_allclose(curvature.product(direction[:, columns]), image, rtol=1e-11, atol=1e-12)
        assert_allclose(curvature.precondition(direction[:, columns]), solved, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("loss", "noise", "layout"), deal(MGF_LOSSES, ["laplace", "laplace per feature"], LAYOUTS))
def test_value_is_infinite_outside_the_domain_of_the_noise(loss, noise, layout):
    objective, *_, coef = make_problem(loss, noise, layout)
    direction = np.zeros_like(coef)
    direction[0] = 1.0
    assert np.isfinite(objective.value(4.9 * direction))
    assert_array_equal(objective.value(5.1 * direction), np.inf)


@pytest.mark.parametrize(("loss", "noise", "layout", "target"), deal(MGF_LOSSES, NOISES, LAYOUTS, [-1.0, 1.0], n=20))
def test_a_partition_may_have_one_target_alone(loss, noise, layout, target):
    X, labels, weights = make_data()
    coef, direction = make_coefficients(1, scale=0.2), make_coefficients(1, seed=5)
    answers = []
    for order in (np.arange(len(X)), np.argsort(labels[:, 0] != target, kind="stable")):
        rows = as_format(X[order], layout)
        objective = make_objective(rows, labels[order], weights[order], LOSSES[loss], NOISES[noise], C=C)
        point = objective.at(coef)
        hessian = point.hessian()
        answers.append([point.value, point.gradient, hessian.product(direction), hessian.precondition(direction)])
    assert np.all(objective.data.parts[0].y == target)
    for first, second in zip(*answers, strict=True):
        assert_allclose(first, second, rtol=1e-10, atol=1e-12)


# The majoriser ------------------------------------------------------------------------------------------------------


def _m_step_matrix(loss, noise, X, labels, weights, coef, k):
    """Return ``I + C sum_i s_i gamma_i E[x~ x~']`` with the intercept as a last feature, row by row."""
    V = plain_variance(NOISES[noise], X)
    matrix = np.diag([1.0] * N_FEATURES + [0.0])
    for i in range(len(X)):
        m, v = X[i] @ coef[:-1, k] + coef[-1, k], V[i] @ coef[:-1, k] ** 2
        r = np.sqrt((m - {"hinge": labels[i, k], "logistic": 0.0, "quadratic": labels[i, k]}[loss]) ** 2 + v)
        gamma = {"hinge": 0.5 / r, "logistic": np.tanh(r / 2) / (2 * r), "quadratic": 2.0}[loss]
        x = np.append(X[i], 1.0)
        matrix += C * weights[i] * gamma * (np.outer(x, x) + np.diag(np.append(V[i], 0.0)))
    return matrix


@pytest.mark.parametrize(("loss", "noise", "layout"), deal(RADIAL, INDEPENDENT, LAYOUTS))
def test_majoriser_is_the_matrix_of_the_papers_m_step_and_lies_above_the_objective(loss, noise, layout):
    objective, X, labels, weights, coef = make_problem(loss, noise, layout)
    point = objective.at(coef)
    majoriser = point.majoriser()
    for k in range(3):
        expected = _m_step_matrix(loss, noise, X, labels, weights, coef, k)
        assert_allclose(as_matrix(majoriser, k, 3), expected, rtol=1e-10, atol=1e-11)
    for seed in range(8):
        step = make_coefficients(3, seed=seed + 100, scale=10.0 ** (seed % 4 - 2))
        model = point.value + np.sum(step * (point.gradient + 0.5 * majoriser.product(step)), axis=0)
        value = objective.at(coef + step).value
        assert np.all(value <= model + 1e-10 * np.abs(model))
        if loss == "quadratic":
            assert_allclose(value, model, rtol=1e-10)


@pytest.mark.parametrize("loss", MGF_LOSSES)
def test_majoriser_of_a_loss_through_the_mgf_is_an_error(loss):
    objective, *_, coef = make_problem(loss, "dropout")
    with pytest.raises(NotImplementedError, match="has no quadratic majoriser"):
        objective.at(coef).majoriser()


# Convexity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "noise"), some_pairs(LOSSES, 14))
@settings(derandomize=True, deadline=None, max_examples=12)
@given(seed=st.integers(0, 2**20), share=st.floats(0.0, 1.0), size=st.sampled_from([1e-3, 0.3, 1.0, 10.0]))
def test_objective_is_convex(loss, noise, seed, share, size):
    objective, *_ = make_problem(loss, noise, n_columns=1)
    if loss in MGF_LOSSES:
        size = min(size, 1.0)  # a Poisson's MGF is doubly exponential
    ends = [size * np.random.default_rng([seed, k]).uniform(-1.0, 1.0, (N_FEATURES + 1, 1)) for k in (0, 1)]
    values = [objective.at(end).value[0] for end in ends]
    middle = objective.at((1.0 - share) * ends[0] + share * ends[1]).value[0]
    chord = (1.0 - share) * values[0] + share * values[1]
    assert np.isfinite(chord)
    assert middle <= chord + 1e-12 * abs(chord)


# Threads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "noise"), some_pairs(LOSSES, 10))
def test_threads_change_no_bit(loss, noise):
    objective, *_, coef = make_problem(loss, noise)
    direction = make_coefficients(coef.shape[1], seed=5)
    answers = []
    for n_threads in (1, 2):
        with LocalPartitions(objective.data.parts, n_threads) as data:
            point = replace(objective, data=data).at(coef)
            answers.append([point.value, point.gradient, point.hessian().product(direction)])
    for first, second in zip(*answers, strict=True):
        assert_array_equal(first, second)


@pytest.mark.parametrize(("solver", "layout"), [("newton", "sparse"), ("lbfgs", "dense")])
def test_threads_do_not_warn_where_trial_steps_overflow(solver, layout):
    """The solvers expect an overflow in a trial step: it must not be a warning in a worker thread."""
    rng = np.random.default_rng(1)
    X = np.where(rng.uniform(size=(40, N_FEATURES)) < 0.5, 200.0 * rng.uniform(size=(40, N_FEATURES)), 0.0)
    labels = rng.choice([-1.0, 1.0], (40, 1))
    objective = make_objective(as_format(X, layout), labels, np.ones(40), Exponential(), blankout(0.9), C=10.0)
    found = []
    for n_threads in (1, 2):
        with LocalPartitions(objective.data.parts, n_threads) as data:
            start = np.zeros((N_FEATURES + 1, 1))
            found.append(solve(solver, replace(objective, data=data), start, tol=1e-6, max_iter=500))
    assert found[0].converged
    assert_array_equal(found[0].coef, found[1].coef)


@pytest.mark.parametrize("solver", ["newton", "irls"])
def test_quadratic_problem_has_one_solution_from_any_start(solver):
    X, labels, weights = make_data(n_columns=3)
    objective = make_objective(X, labels, weights, Quadratic(), blankout(0.3), C=C)
    V = plain_variance(blankout(0.3), X)
    rows = np.hstack([X, np.ones((len(X), 1))])
    matrix = 2 * C * (rows * weights[:, None]).T @ rows + np.diag(np.append(1.0 + 2 * C * weights @ V, 0.0))
    expected = np.linalg.solve(matrix, 2 * C * (rows * weights[:, None]).T @ labels)
    result = solve(solver, objective, make_coefficients(3, seed=6), tol=1e-12, max_iter=50)
    assert result.converged
    assert_allclose(result.coef, expected, rtol=1e-8, atol=1e-9)
