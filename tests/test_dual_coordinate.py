"""Coordinate descent in the dual of the noise-free hinge: the optimum of the other ways, and a gap that is proved."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC

from dealing import deal, together
from dropmargin import DropoutSVC
from dropmargin.data import LocalPartitions, Rows, canonical, kernels, row_blocks
from dropmargin.losses import Hinge
from dropmargin.noise import Variance
from dropmargin.objective import MomentObjective
from dropmargin.penalties import Penalty
from dropmargin.solvers import SOLVERS, Options
from dropmargin.solvers.central_path import follow_central_path
from dropmargin.solvers.dual_coordinate import DualVariables, best_factor, best_intercept, descend_dual
from dropmargin.solvers.newton import newton
from dropmargin.solvers.solve import choose_method

pytestmark = pytest.mark.skipif(not kernels.available(), reason="the kernels were not built: no C compiler")


def _text(n_rows=150, n_features=60, seed=0, noise=1.0):
    """Return sparse rows, labels in {-1, +1} and weights; one row is empty, and two contradict each other."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.15, (n_rows, n_features)) * rng.uniform(0.5, 2.0, (n_rows, n_features))
    y = np.where((X - X.mean(axis=0)) @ rng.normal(size=n_features) + noise * rng.normal(size=n_rows) > 0.0, 1.0, -1.0)
    X[3] = 0.0
    X[5], y[5], y[4] = X[4], 1.0, -1.0
    return sparse.csr_array(X), y, rng.uniform(0.0, 2.0, n_rows) * (rng.uniform(size=n_rows) > 0.1)


def _objective(X, y, weights, *, fit_intercept=True, l2=1.0, margin=1.0, n_parts=2, n_threads=1, cache=None):
    edges = np.linspace(0, len(y), n_parts + 1).astype(int)
    parts = []
    for begin, end in pairwise(edges):
        (block,) = row_blocks(canonical(X[begin:end]))
        parts.append(Rows(block, y[begin:end, None], weights[begin:end]))
    columns = np.array([0])
    return MomentObjective(
        LocalPartitions(parts, n_threads, cache),
        Hinge(margin),
        Variance(),
        Penalty(l2=l2),
        fit_intercept,
        X.shape[1],
        columns,
    )


def _primal(X, y, weights, coef, l2=1.0, margin=1.0):
    losses = np.maximum(0.0, margin - y * (X @ coef[:-1] + coef[-1]))
    return 0.5 * l2 * coef[:-1] @ coef[:-1] + weights @ losses


def _dual_variables(objective):
    """Return what the last descent of the objective's rows left in their cache."""
    (known,) = objective.data.shared_cache["dual variables"].values()
    return known


def _dual(X, y, a, l2=1.0, margin=1.0):
    combined = X.T @ (a * y)
    return margin * a.sum() - 0.5 / l2 * combined @ combined, abs(a @ y)


def _central_path(objective, tol):
    start = objective.at(np.zeros((objective.n_features + 1, 1)))
    return follow_central_path(newton, objective, start, Options(tol, 1000))


def _solve(objective, tol, coef=None, max_iter=1000):
    start = objective.at(np.zeros((objective.n_features + 1, 1)) if coef is None else coef)
    method = choose_method(SOLVERS["newton"], objective)
    return method(objective, start, Options(tol, max_iter, warm=coef is not None))


@together(
    ("tol", "C", "scales", "fit_intercept"),
    deal([1e-2, 1e-4, 1e-6, 1e-10], [1e-3, 0.1, 1.0], [(1.0, 1.0), (0.3, 2.0)], [True, False], n=16),
)
def test_the_gap_is_at_most_the_tolerance_by_the_plain_formulas(tol, C, scales, fit_intercept):
    (l2, margin), (X, y, weights) = scales, _text()
    objective = _objective(X, y, C * weights, fit_intercept=fit_intercept, l2=l2, margin=margin)
    result = _solve(objective, tol)
    assert result.converged
    value = _primal(X, y, C * weights, result.coef[:, 0], l2, margin)
    dual_values, upper = _dual_variables(objective)
    below, imbalance = _dual(X, y, dual_values, l2, margin)
    assert result.objective[0] == pytest.approx(value, rel=1e-12)
    assert value - below <= tol * value * (1.0 + 1e-6) + 1e-13 * value
    np.testing.assert_array_equal(upper, C * weights)
    assert np.all((dual_values >= 0.0) & (dual_values <= upper))
    if fit_intercept:
        assert imbalance <= 1e-4 * tol * C * weights.sum() + 1e-13
    else:
        assert result.coef[-1, 0] == 0.0


@pytest.mark.parametrize(("C", "noise"), deal([1e-3, 0.03, 1.0, 100.0], [0.0, 1.0], n=4))
def test_the_optimum_is_that_of_the_central_path(C, noise):
    X, y, weights = _text(noise=noise)
    objective = _objective(X, y, C * weights)
    result = _solve(objective, 1e-10)
    other = _central_path(objective, tol=1e-10)
    assert other.converged
    assert result.objective[0] == pytest.approx(other.objective[0], rel=3e-10)
    np.testing.assert_allclose(result.coef[:-1], other.coef[:-1], atol=3e-5 * np.abs(other.coef).max())


@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_the_optimum_is_that_of_scikit_learn(C):
    X, y, weights = _text()
    model = DropoutSVC(noise=None, C=C, tol=1e-10).fit(X, y, sample_weight=weights)
    libsvm = SVC(kernel="linear", C=C, tol=1e-8).fit(X.toarray(), y, sample_weight=weights)
    theirs = np.append(libsvm.coef_[0], libsvm.intercept_[0])
    np.testing.assert_allclose(model.coef_[0], theirs[:-1], atol=1e-5)
    assert model.objective_ <= _primal(X, y, C * weights, theirs) * (1.0 + 1e-9)


def test_without_an_offset_the_optimum_is_that_of_liblinear():
    X, y, weights = _text()
    model = DropoutSVC(noise=None, C=0.3, tol=1e-10, fit_intercept=False).fit(X, y, sample_weight=weights)
    theirs = LinearSVC(loss="hinge", C=0.3, fit_intercept=False, tol=1e-10, max_iter=10**6).fit(X, y, weights)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5)


@pytest.mark.parametrize("rare", [1, 3])
def test_a_rare_label_is_learnt(rare):
    X, y, _ = _text(400)
    y = np.where(np.arange(400) < rare, 1.0, -1.0)
    for C in (0.01, 1.0, 100.0):
        weights = np.full(400, C)
        result = _solve(_objective(X, y, weights), 1e-6)
        other = _central_path(_objective(X, y, weights), tol=1e-7)
        assert result.converged
        assert result.objective[0] == pytest.approx(other.objective[0], rel=2e-6)


def test_one_feature_and_no_feature_at_all():
    y = np.array([1.0, 1.0, -1.0, -1.0, -1.0])
    X = sparse.csr_array(np.array([[3.0], [1.0], [-1.0], [-2.0], [0.0]]))
    model = DropoutSVC(noise=None, C=1e3, tol=1e-10).fit(X, y)
    np.testing.assert_allclose([model.coef_[0, 0], model.intercept_[0]], [2.0, -1.0], atol=1e-4)
    empty = DropoutSVC(noise=None, tol=1e-10).fit(sparse.csr_array((5, 1)), y)
    assert empty.objective_ == pytest.approx(4.0)  # the two of the smaller class lose 2 each
    assert empty.coef_[0, 0] == 0.0


def test_rows_without_weight_are_as_if_they_were_not_there():
    X, y, weights = _text()
    there = weights > 0.0
    objective = _objective(X, y, weights)
    whole = _solve(objective, 1e-10)
    part = _solve(_objective(X[there], y[there], weights[there]), 1e-10)
    assert whole.objective[0] == pytest.approx(part.objective[0], rel=1e-9)
    np.testing.assert_allclose(whole.coef[:-1], part.coef[:-1], atol=1e-5)
    assert not _dual_variables(objective).values[~there].any()


def test_weight_two_is_the_row_twice():
    X, y, _ = _text()
    heavy = DropoutSVC(noise=None, C=0.1, tol=1e-10).fit(X, y, sample_weight=np.full(len(y), 2.0))
    twice = DropoutSVC(noise=None, C=0.1, tol=1e-10).fit(sparse.vstack([X, X], format="csr"), np.append(y, y))
    assert heavy.objective_ == pytest.approx(twice.objective_, rel=1e-9)
    np.testing.assert_allclose(heavy.coef_, twice.coef_, atol=1e-5)


@pytest.mark.parametrize("tol", [1e-3, 1e-9])
def test_digits_do_not_depend_on_the_number_of_threads(tol):
    X, y, weights = _text(400, 20)
    found = []
    for n_threads in (1, 2, 3):
        objective = _objective(X, y, weights, n_parts=5, n_threads=n_threads)
        with objective.data:
            found.append(_solve(objective, tol))
    for result in found[1:]:
        assert np.array_equal(result.coef, found[0].coef)
        assert result.history == found[0].history


@pytest.mark.parametrize(("dtype", "index"), [(np.float32, np.int32), (np.float64, np.int64), (np.float32, np.int64)])
def test_every_kind_of_data_gives_the_same_optimum(dtype, index):
    X, y, weights = _text()
    X = sparse.csr_array(np.round(X.toarray(), 2).astype(np.float32))  # the same numbers in both precisions
    kind = sparse.csr_array(X.astype(dtype))
    kind.indices, kind.indptr = kind.indices.astype(index), kind.indptr.astype(index)
    result = descend_dual(_objective(kind, y, weights), Options(1e-6, 1000))
    exact = _central_path(_objective(X.astype(np.float64), y, weights), tol=1e-9)
    assert result.converged
    assert result.objective[0] == pytest.approx(exact.objective[0], rel=1e-6)


def test_the_other_solver_takes_over_without_kernels(monkeypatch):
    X, y, weights = _text()
    options = Options(1e-4, 100)
    assert descend_dual(_objective(X, y, weights), options) is not None
    monkeypatch.setattr(kernels, "_LIBRARY", None)
    assert descend_dual(_objective(X, y, weights), options) is None
    assert _solve(_objective(X, y, weights), 1e-6).converged


# Starts, passes, limits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["sparse", "dense"])
def test_the_multipliers_of_the_optimum_are_a_start_that_saves_the_work(layout):
    X, y, weights = _text()
    X = X if layout == "sparse" else X.toarray()
    cache = {}
    cold = _solve(_objective(X, y, weights, cache=cache), 1e-6)
    start = _objective(X, y, weights, cache=cache)
    again = _solve(start, 1e-5, cold.coef, 99)
    assert again.converged
    assert again.n_iter <= 2
    assert again.n_iter < cold.n_iter
    assert start.n_passes < cold.history[-1].passes


@pytest.mark.parametrize("ratio", [0.2, 5.0])
def test_rescaled_multipliers_start_a_problem_with_another_c(ratio):
    X, y, weights = _text()
    cache = {}
    objective = _objective(X, y, weights, cache=cache)
    _solve(objective, 1e-6)
    before, upper = known = _dual_variables(objective)
    after, is_bound = known.for_bounds(ratio * upper), before >= upper
    np.testing.assert_allclose(after[is_bound], ratio * upper[is_bound])
    np.testing.assert_allclose(after[~is_bound], np.minimum(before, ratio * upper)[~is_bound])
    warm, cold = (_solve(_objective(X, y, ratio * weights, cache=own), 1e-8) for own in (cache, None))
    assert warm.objective[0] == pytest.approx(cold.objective[0], rel=2e-8)


def test_the_multipliers_of_another_output_are_not_a_start():
    X, y, weights = _text()
    cache, other = {}, np.roll(y, 7)
    _solve(_objective(X, y, weights, cache=cache), 1e-6)
    warm, cold = (_solve(_objective(X, other, weights, cache=own), 1e-6) for own in (cache, None))
    np.testing.assert_array_equal(warm.coef, cold.coef)
    assert len(cache["dual variables"]) == 2


def test_a_wild_start_of_the_multipliers_does_no_harm():
    X, y, weights = _text()
    cache = {}
    objective = _objective(X, y, weights, cache=cache)
    _solve(objective, 1e-6)
    wild = np.random.default_rng(1).uniform(size=len(y)) * weights
    cache["dual variables"] = {output: DualVariables(wild, weights) for output in cache["dual variables"]}
    result = _solve(objective, 1e-6)
    assert result.converged
    assert result.objective[0] == pytest.approx(_solve(_objective(X, y, weights), 1e-6).objective[0], rel=2e-6)


def test_an_epoch_is_a_pass_and_every_round_is_shown():
    X, y, weights = _text()
    shown = []
    objective = _objective(X, y, weights)
    result = descend_dual(objective, Options(1e-5, 1000, shown.append))
    assert shown == result.history
    assert [entry.iteration for entry in shown] == list(range(1, result.n_iter + 1))
    assert shown[0].passes >= 4.0  # the first round has four epochs
    assert shown[-1].passes == objective.n_passes
    assert shown[-1].gap <= 1e-5 * shown[-1].objective


@pytest.mark.parametrize("max_iter", [1, 2])
def test_too_few_iterations_are_a_warning(max_iter):
    X, y, weights = _text()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = DropoutSVC(noise=None, tol=1e-9, max_iter=max_iter).fit(X, y, sample_weight=weights)
    assert [entry.category for entry in caught] == [ConvergenceWarning]
    assert model.n_iter_ == max_iter
    assert "duality gap" in str(caught[0].message)


def test_the_other_solver_takes_over_where_coordinate_descent_is_too_slow():
    # features of very different scale, and a large C: hopeless coordinate by coordinate
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.normal(size=(120, 8)) * np.logspace(-2, 2, 8) + 5.0)
    scores = X @ np.logspace(2, -2, 8) + 3.0 * rng.normal(size=120)
    y = np.where(scores > np.median(scores), 1.0, -1.0)
    weights = np.append(0.0, np.full(119, 10.0))  # a weight of zero, so that the interior-point method does not apply
    alone = descend_dual(_objective(X, y, weights), Options(1e-8, 1000))
    assert not alone.converged
    assert alone.n_iter < 100
    result = _solve(_objective(X, y, weights), 1e-8)
    assert result.converged
    assert result.n_iter > alone.n_iter
    assert [entry.iteration for entry in result.history] == list(range(1, result.n_iter + 1))
    passes = [entry.passes for entry in result.history]
    assert passes == sorted(passes)


# The searches on the scores -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_best_intercept_and_the_best_factor_have_no_better_neighbour(seed):
    rng = np.random.default_rng(seed)
    y = np.where(rng.uniform(size=30) < 0.3, 1.0, -1.0)
    scores, weights = rng.normal(size=30) + y, rng.uniform(size=30) * (rng.uniform(size=30) > 0.2)

    def loss(intercept):
        return weights @ np.maximum(0.0, 1.5 - y * (scores + intercept))

    intercept = best_intercept(1.5 * y - scores, y, weights)
    assert loss(intercept) <= min(loss(intercept + step) for step in np.linspace(-3.0, 3.0, 601)) + 1e-12

    def value(factor):
        return 0.5 * 0.8 * factor**2 + weights @ np.maximum(0.0, 1.5 - factor * y * scores)

    factor = best_factor(1.5, y * scores, weights, 0.8)
    assert value(factor) <= min(value(factor + step) for step in np.linspace(-1.0, 1.0, 2001)) + 1e-12


def test_the_best_intercept_of_a_balanced_problem_is_the_middle_one():
    y = np.array([1.0, -1.0])
    assert best_intercept(2.0 * y, y, np.ones(2)) == 0.0
