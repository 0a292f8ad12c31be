"""The inner solves: known products, the search that leaves them out, and what a solve says of the gap."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from dropmargin import DropoutLogisticRegression, DropoutSVC
from dropmargin.estimators import fitting
from dropmargin.objective import preconditioner
from dropmargin.solvers import conjugate_gradient
from dropmargin.solvers.deflation import Deflation
from helpers import LOSSES, N_FEATURES, NOISES, RADIAL, as_format, as_matrix, make_data, make_objective

# A hinge without noise has no curvature to ask for.
PAIRS = [(loss, noise) for loss in RADIAL for noise in NOISES if (loss, noise) != ("hinge", "none")]
each_pair = pytest.mark.parametrize(("loss", "noise"), PAIRS)
each_layout = pytest.mark.parametrize("layout", ["dense", "sparse"])
each_model = pytest.mark.parametrize("kind", ["hessian", "majoriser"])
with_and_without_intercept = pytest.mark.parametrize("fit_intercept", [True, False], ids=["offset", "no offset"])


@pytest.fixture(params=["diagonal", "gram"])
def curvature_of(request, monkeypatch):
    """Return a function that makes a curvature with this kind of preconditioner."""
    if request.param == "diagonal":
        monkeypatch.setattr(preconditioner, "_GRAM_FEATURES", 0)
    monkeypatch.setattr(preconditioner, "_FEW_ROWS", 0)

    def make(loss, noise, layout="sparse", kind="hessian", fit_intercept=True, n_columns=3):
        X, labels, weights = make_data(n_columns=n_columns)
        rows = as_format(X, layout)
        objective = make_objective(rows, labels, weights, LOSSES[loss], NOISES[noise], fit_intercept=fit_intercept)
        coef = 0.6 * np.random.default_rng(3).normal(size=(N_FEATURES + 1, n_columns))
        coef[-1] *= fit_intercept
        return getattr(objective.at(coef), kind)()

    return make


def _as_matrices(curvature):
    """Return the curvature of each column as a dense matrix."""
    n_columns = curvature.coef.shape[1]
    return np.stack([as_matrix(curvature, k, n_columns) for k in range(n_columns)])


@each_pair
@each_layout
@each_model
@with_and_without_intercept
def test_known_products_are_the_products(curvature_of, loss, noise, layout, kind, fit_intercept):
    curvature = curvature_of(loss, noise, layout, kind, fit_intercept)
    coarse = curvature.coarse
    assert_allclose(coarse.coef_image, curvature.product(coarse.coef), rtol=1e-9, atol=1e-9)
    offset = np.zeros_like(coarse.coef)
    offset[-1] = 1.0
    if fit_intercept:
        assert_allclose(coarse.offset_image, curvature.product(offset), rtol=1e-9, atol=1e-9)
    else:
        assert_allclose(coarse.offset_image, offset)
    for whole, part in zip(coarse, coarse.select([2, 0]), strict=True):
        assert_allclose(part, whole[:, [2, 0]])


def test_known_products_cost_one_way_back(curvature_of):
    curvature = curvature_of("hinge", "dropout")
    data = curvature.objective.data
    point = curvature.objective.at(curvature.coef)
    point.hessian()
    before = data.n_sweeps
    point.hessian()
    assert data.n_sweeps - before == 1


def test_deflation_is_exact_on_the_plane_and_conjugate_to_it(curvature_of):
    curvature = curvature_of("hinge", "dropout")
    deflation, matrices = Deflation(curvature.coarse), _as_matrices(curvature)
    right = np.random.default_rng(0).normal(size=curvature.coef.shape)
    solution, image = deflation.solve(right)
    assert_allclose(image, curvature.product(solution), rtol=1e-9, atol=1e-9)
    plane = [curvature.coarse.coef, np.eye(N_FEATURES + 1)[:, [-1] * 3]]
    projected = deflation.project(right.copy())
    for k, matrix in enumerate(matrices):
        for direction in plane:
            assert abs(direction[:, k] @ (right - image)[:, k]) < 1e-9
            assert abs(direction[:, k] @ matrix @ projected[:, k]) < 1e-9


def test_deflation_of_no_weights_is_that_of_the_offset(curvature_of):
    curvature = curvature_of("logistic", "dropout")
    start = curvature.objective.at(np.zeros_like(curvature.coef)).majoriser()
    solution, _ = Deflation(start.coarse).solve(np.ones_like(curvature.coef))
    assert np.all(solution[:-1] == 0.0)
    assert_allclose(solution[-1], 1.0 / start.coarse.offset_image[-1])


@each_pair
@each_model
@with_and_without_intercept
def test_solves_are_exact_at_the_end(curvature_of, loss, noise, kind, fit_intercept):
    curvature = curvature_of(loss, noise, kind=kind, fit_intercept=fit_intercept)
    right = np.random.default_rng(1).normal(size=curvature.coef.shape)
    right[-1] *= fit_intercept
    solution = conjugate_gradient.solve(curvature, right, 1e-12, 100).x
    assert_allclose(curvature.product(solution), right, atol=1e-7)
    if not fit_intercept:
        assert np.all(solution[-1] == 0.0)


def test_fewer_steps_are_searched_than_without_known_products(curvature_of):
    curvature = curvature_of("hinge", "dropout", n_columns=1)
    data = curvature.objective.data

    def cost(matrix):
        before = data.n_sweeps
        conjugate_gradient.solve(matrix, matrix.product(np.ones_like(matrix.coef)), 1e-10, 100)
        return data.n_sweeps - before

    plain = type(curvature)(**{**curvature.__dict__, "coarse": None})
    assert cost(curvature) < cost(plain)


@pytest.mark.parametrize("loss", RADIAL)
def test_the_promise_is_the_decrease_or_more(curvature_of, loss):
    curvature = curvature_of(loss, "dropout")
    rng = np.random.default_rng(2)
    full = conjugate_gradient.solve(curvature, rng.normal(size=curvature.coef.shape), 1e-14, 100)
    gradient = rng.normal(size=curvature.coef.shape)
    promised = conjugate_gradient.promise(curvature, gradient, full.lowest)
    for k, matrix in enumerate(_as_matrices(curvature)):
        decrease = 0.5 * gradient[:, k] @ np.linalg.solve(matrix, gradient[:, k])
        assert decrease * (1.0 - 1e-6) <= promised[k] <= 50.0 * decrease


def test_ritz_values_are_eigenvalues_at_the_end(curvature_of):
    curvature = type(base := curvature_of("logistic", "dropout"))(**{**base.__dict__, "coarse": None})
    right = np.random.default_rng(4).normal(size=curvature.coef.shape)
    lowest = conjugate_gradient.solve(curvature, right, 1e-13, 100).lowest
    preconditioned = np.stack([curvature.precondition(m) for m in _as_matrices(curvature).transpose(2, 1, 0)])
    for k in range(3):
        eigenvalues = np.linalg.eigvals(preconditioned[:, :, k].T).real
        assert_allclose(lowest[k], eigenvalues.min(), rtol=1e-5)


def test_eigenvectors_invert_the_shared_gram(monkeypatch):
    X, labels, weights = make_data(n_samples=400, n_columns=5)
    objective = make_objective(X, labels, weights, LOSSES["logistic"], NOISES["dropout"])
    point = objective.at(np.zeros((N_FEATURES + 1, 5)))
    shared = point.majoriser().preconditioner
    assert isinstance(shared, preconditioner.Eigenvectors)
    right = np.random.default_rng(5).normal(size=(N_FEATURES + 1, 5))
    # At zero all weights are equal, so that the Gram matrix and the noise's diagonal are each column's own.
    monkeypatch.setattr(preconditioner, "_MANY_COLUMNS", 99)
    exact = point.majoriser().preconditioner.solve(right)
    assert_allclose(shared.solve(right), exact, rtol=0.1, atol=1e-2 * np.abs(exact).max())
    assert_allclose(shared.select([3]).solve(right[:, [3]]), shared.solve(right)[:, [3]])


@pytest.mark.parametrize("estimator", [DropoutSVC(tol=1e-9), DropoutLogisticRegression(tol=1e-9)])
def test_a_start_from_a_sample_leads_to_the_same_optimum(estimator, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=600) > 0).astype(int)
    from_zero = estimator.fit(X, y).coef_.copy()
    monkeypatch.setattr(fitting, "_LEAST_SAMPLE", 20)
    seen = []
    monkeypatch.setattr(fitting, "_start_from_sample", _spied(fitting._start_from_sample, seen))
    assert_allclose(estimator.fit(X, y).coef_, from_zero, rtol=1e-3, atol=1e-4)
    assert len(seen) == 1
    assert np.isfinite(seen[0][0]).all()


def _spied(function, results):
    def spy(*args):
        results.append(function(*args))
        return results[-1]

    return spy


def test_classes_of_sparse_rows_are_solved_one_by_one_and_by_threads_alike():
    rng = np.random.default_rng(0)
    X = sparse.random_array((150, 40), density=0.2, random_state=rng, format="csr")
    y = rng.integers(0, 4, 150)
    one, two = (DropoutSVC(n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    dense = DropoutSVC(tol=1e-9).fit(X.toarray(), y)
    assert_allclose(DropoutSVC(tol=1e-9).fit(X, y).coef_, dense.coef_, atol=1e-4)
    single = DropoutSVC().fit(X, y == 2)
    np.testing.assert_array_equal(one.coef_[2], single.coef_[0])


_ROWS = 20_000


def _rare(n_rare: int, *, sampled: bool):
    """Return rows of which a few have a rare label: among those that a sample has, or not among them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(_ROWS, 5))
    taken = np.random.default_rng(0).choice(_ROWS, size=_ROWS // 10, replace=False)
    pool = taken if sampled else np.setdiff1d(np.arange(_ROWS), taken)
    y = np.zeros(_ROWS, dtype=int)
    y[pool[:n_rare]] = 1
    return X, y


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "estimator", [DropoutSVC(), DropoutLogisticRegression(), DropoutLogisticRegression(noise=None)]
)
@pytest.mark.parametrize(("n_rare", "sampled"), [(3, False), (3, True), (200, True)])
def test_labels_that_a_sample_does_not_show_fairly_are_fitted_from_zero(estimator, n_rare, sampled, monkeypatch):
    X, y = _rare(n_rare, sampled=sampled)
    model = estimator.fit(X, y)
    objective, passes = model.objective_, model.n_passes_
    monkeypatch.setattr(fitting, "_can_sample", lambda *_: False)
    model.fit(X, y)
    assert abs(objective / model.objective_ - 1.0) < 2e-4
    assert passes <= 1.5 * model.n_passes_ + 5


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_a_search_that_breaks_down_is_no_convergence(l1_ratio):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 5)), np.zeros(3000, dtype=int)
    y[:5] = 1
    model = DropoutLogisticRegression(noise=None, l1_ratio=l1_ratio, warm_start=True, max_iter=30).fit(X, y)
    best = model.objective_
    model.intercept_ = np.array([-100.0])  # where the loss has no curvature to go by
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert not model.converged_ or model.objective_ < best * 1.001


def test_iterations_on_a_sample_are_not_shown(capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12_000, 3))
    model = DropoutLogisticRegression(verbose=1).fit(X, X[:, 0] + rng.normal(size=12_000) > 0)
    assert len(capsys.readouterr().err.splitlines()) == model.n_iter_
