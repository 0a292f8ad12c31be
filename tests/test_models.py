"""Quadratic models and what minimises them: three ways to solve one system, compiled sweeps, kinks and l1 penalties."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from datasets import blankout
from dealing import deal
from dropmargin.data import CompiledRows, FeatureGroups, SparseChunk, Variance, kernels
from dropmargin.losses import Hinge, Logistic, Quadratic
from dropmargin.noise import DropoutNoise
from dropmargin.objective.model import CompiledModel, FactorisedModel, IterativeModel
from dropmargin.penalties import Penalty
from dropmargin.solvers import Options
from dropmargin.solvers.newton import proved_gap
from dropmargin.solvers.working_sets import restricted, working_sets
from fuzz.optima import relative_gap
from fuzz.reference import BinaryProblem
from helpers import N_FEATURES, NOISES, as_format, given_objective, make_data

needs_kernels = pytest.mark.skipif(not kernels.available(), reason="the kernels were not built: no C compiler")
LOSSES = {"hinge": Hinge(), "logistic": Logistic(), "quadratic": Quadratic()}


def _point(loss, noise, layout, fit_intercept, n_classes=2, free=None):
    X, _, weights = make_data(60)
    y = np.random.default_rng(2).integers(n_classes, size=len(X))
    own = {"fit_intercept": fit_intercept, "C": 0.7, "n_parts": 1}
    given = given_objective(as_format(X, layout), y, weights, LOSSES[loss], NOISES[noise], n_classes, **own)
    coef = 0.5 * np.random.default_rng(1).normal(size=(N_FEATURES + 1, given.objective.n_columns))
    coef[-1] *= fit_intercept
    coef = coef if free is None else coef * free  # coefficients that may not move are zero
    objective = given.objective
    if objective.has_kink:
        objective = objective.smoothed(np.full(objective.n_columns, 0.1))
    return objective.at(coef)


def _matrix(point, is_majoriser, k=0):
    """Return the matrix of an output, by the products with unit vectors."""
    p, n = point.coef.shape
    out = np.empty((p, p))
    for d in range(p):
        unit = np.zeros((p, n))
        unit[d] = 1.0
        image = point.product(unit, is_majoriser)
        image[:-1] += point.objective.penalty.curvature(point.coef) * unit[:-1]
        out[:, d] = image[:, k]
    return out


def _expected(point, right, is_majoriser, free):
    """Return the solution by a dense solve over what may move."""
    out = np.zeros_like(right)
    for k in range(right.shape[1]):
        moves = np.ones(len(right), dtype=bool) if free is None else free[:, k].copy()
        moves[-1] = point.objective.fit_intercept
        own = _matrix(point, is_majoriser, k)[np.ix_(moves, moves)]
        out[moves, k] = np.linalg.solve(own, right[moves, k])
    return out


def _check(model, point, is_majoriser, free):
    right = np.random.default_rng(5).normal(size=point.coef.shape)
    right[-1] *= point.objective.fit_intercept
    if free is not None:
        right *= free
    found = model.solve(right, 1e-13, np.zeros(point.objective.n_outputs), 500)
    expected = _expected(point, right, is_majoriser, free)
    assert_allclose(found.x, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())


CASES = deal(LOSSES, NOISES, [True, False], [True, False], [True, False], n=20)
each_case = pytest.mark.parametrize(("loss", "noise", "fit_intercept", "is_majoriser", "masked"), CASES)


def _free(masked):
    return np.array([True, False, True, True, False, True, True])[:, None] if masked else None


@each_case
def test_factorised_and_iterative_models_solve_the_system(loss, noise, fit_intercept, is_majoriser, masked):
    free = _free(masked)
    point = _point(loss, noise, "dense" if len(noise) % 2 else "sparse", fit_intercept, free=free)
    _check(FactorisedModel.of(point, is_majoriser, free), point, is_majoriser, free)
    _check(IterativeModel(point, is_majoriser, free), point, is_majoriser, free)


@needs_kernels
@each_case
def test_the_compiled_model_solves_the_system(loss, noise, fit_intercept, is_majoriser, masked):
    free = _free(masked)
    point = _point(loss, noise, "sparse", fit_intercept, free=free)
    _check(CompiledModel(point, point.objective.data.single(), is_majoriser, free), point, is_majoriser, free)


# Compiled sweeps ----------------------------------------------------------------------------------------------------


def _rows(dtype, index):
    rng = np.random.default_rng(0)
    values = rng.poisson(0.5, (50, 12)) * rng.uniform(0.5, 2.0, (50, 12))
    X = sparse.csr_array((values > 0.0).astype(float) if dtype == "ones" else values.astype(dtype))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X, rng


KINDS = [(dtype, index) for dtype in ("ones", np.float32, np.float64) for index in (np.int32, np.int64)]


def _check_sweeps(compiled, dense, variance_of, own, rng, dtype):
    """Compare moments and gradients with those of dense rows; ``variance_of(w)`` has its value and its Jacobian."""
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-11}
    coef, by_mean, by_variance = rng.normal(size=13), *rng.normal(size=(2, 50))
    mean, variance = compiled.moments(coef)
    expected, jacobian = variance_of(coef[:-1])
    assert_allclose(mean, dense @ coef[:-1] + coef[-1], **tolerance)
    assert_allclose(variance, expected, **tolerance)
    gradient, found = compiled.gradient(coef, by_mean, by_variance)
    assert_allclose(gradient, np.append(by_mean @ dense + by_variance @ jacobian, by_mean.sum()), **tolerance)
    if own is None:
        assert found is None
    else:
        assert_allclose(found, by_variance @ own, **tolerance)


@needs_kernels
@pytest.mark.parametrize(("dtype", "index", "has_floor"), [(*kind, k % 2 == 0) for k, kind in enumerate(KINDS)])
def test_compiled_sweeps_are_those_of_numpy(dtype, index, has_floor):
    X, rng = _rows(dtype, index)
    floor = rng.uniform(size=12) if has_floor else np.zeros(12)
    variance = Variance(linear=rng.uniform(size=12), quadratic=0.7, constant=floor)
    chunk, dense = SparseChunk(X, variance, None), X.toarray().astype(float)
    entries = variance.of(dense)
    _check_sweeps(chunk.compiled, dense, lambda w: (entries @ w**2, 2.0 * w * entries), entries, rng, dtype)


@needs_kernels
@pytest.mark.parametrize(("dtype", "index", "to_zero"), [(*kind, k % 3 == 0) for k, kind in enumerate(KINDS)])
def test_compiled_group_sweeps_are_those_of_numpy(dtype, index, to_zero):
    X, rng = _rows(dtype, index)
    reference = np.zeros(12) if to_zero else rng.normal(size=12)
    groups = FeatureGroups(np.repeat(np.arange(4), 3), np.array([0.5, 1.0, 0.2, 2.0]), reference)
    dense = X.toarray().astype(float)

    def variance_of(w):
        scores = np.add.reduceat((dense - reference) * w, groups.starts, axis=1)
        slopes = 2.0 * groups.slope * scores
        return scores**2 @ groups.slope, slopes[:, groups.numbers] * (dense - reference)

    _check_sweeps(CompiledRows(X, None, groups), dense, variance_of, None, rng, dtype)


# Kinks and l1 penalties ---------------------------------------------------------------------------------------------


_WIDE = {
    "dropout": blankout(0.4),
    "none": None,
    "dropout in groups": DropoutNoise(0.4, reference="zero", groups=np.arange(30) // 3),
}


@pytest.mark.parametrize(("loss", "noise", "l2"), deal(LOSSES, _WIDE, [0.0, 0.5]))
def test_working_sets_reach_the_minimum_with_exact_zeros(loss, noise, l2):
    rng = np.random.default_rng(4)
    X = rng.poisson(0.3, (80, 30)).astype(float)
    y = (X[:, 0] + 0.3 * rng.normal(size=80) > X[:, 1]).astype(int)
    options = {"penalty": Penalty(l2, 2.0), "n_parts": 1}
    objective = given_objective(sparse.csr_array(X), y, np.ones(80), LOSSES[loss], _WIDE[noise], 2, **options).objective
    found = working_sets(objective, np.zeros((31, 1)), Options(1e-8, 500))
    assert found.converged
    assert 0 < np.count_nonzero(found.coef[:-1]) < 30
    assert objective.value(found.coef)[0] == pytest.approx(found.objective[0], rel=1e-7)
    law, groups = ("none",) if noise == "none" else ("dropout", 0.4, "zero"), getattr(_WIDE[noise], "groups", None)
    problem = BinaryProblem(loss, law, X, 2.0 * y - 1.0, np.ones(80), 2.0, l2, True, groups)
    assert relative_gap(problem, found.coef[:, 0]) <= 1e-6


def test_an_objective_of_some_features_is_that_with_the_other_coefficients_at_zero():
    X, labels, weights = make_data()
    y, kept = (labels[:, 0] > 0.0).astype(int), np.array([0, 2, 5])
    for noise in NOISES:
        own = given_objective(sparse.csr_array(X), y, weights, Logistic(), NOISES[noise], 2, fit_intercept=False)
        coef = np.zeros((N_FEATURES + 1, 1))
        coef[kept, 0] = [0.3, -0.5, 0.8]
        part = restricted(own.objective, kept).at(coef[np.append(kept, N_FEATURES)])
        whole = own.objective.at(coef)
        assert_allclose(part.value, whole.value, rtol=1e-12)
        assert_allclose(part.gradient, whole.gradient[np.append(kept, N_FEATURES)], atol=1e-10)


def test_the_proved_gap_is_never_below_the_gap():
    X, labels, weights = make_data(60)
    options = {"penalty": Penalty(0.3, 0.8), "fit_intercept": False}
    y = (labels[:, 0] > 0.0).astype(int)
    objective = given_objective(X, y, weights, Logistic(), NOISES["dropout"], 2, **options).objective
    best = working_sets(objective, np.zeros((N_FEATURES + 1, 1)), Options(1e-12, 500))
    rng = np.random.default_rng(0)
    for size in np.logspace(-5, 0, 12):
        coef = best.coef + size * rng.normal(size=best.coef.shape)
        coef[-1] = 0.0
        point = objective.at(coef)
        assert proved_gap(point)[0] >= point.value[0] - best.objective[0] > 0.0
