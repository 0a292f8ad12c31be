"""Conjugate gradients with two deflated directions, their estimates of the gap, and the start from a subsample."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from dealing import deal, together
from dropmargin import DropoutLogisticRegression, DropoutNoise, DropoutSVC, GaussianNoise, MCFClassifier
from dropmargin.penalties import Penalty
from dropmargin.solvers import conjugate_gradient
from dropmargin.solvers import orthant as orthant_module
from dropmargin.solvers.deflation import Deflation
from dropmargin.solvers.orthant import orthant, proved_gap
from dropmargin.solvers.result import Options
from helpers import INDEPENDENT, LOSSES, N_FEATURES, NOISES, RADIAL, as_format, make_data, make_objective

# A hinge without noise has no curvature.
PAIRS = [(loss, noise) for loss in RADIAL for noise in INDEPENDENT if (loss, noise) != ("hinge", "none")]
# The preconditioner is a shared Gram matrix if there are fewer features than rows, else the diagonal.
SHAPES = {"gram": (40, N_FEATURES), "diagonal": (202, 210)}
each_shape = pytest.mark.parametrize("shape", SHAPES)


def make_curvature(loss, noise, shape="gram", kind="hessian", fit_intercept=True, layout="sparse", n_columns=3):
    n_rows, n_features = SHAPES[shape]
    X, labels, weights = make_data(n_samples=n_rows, n_columns=n_columns)
    if n_features > N_FEATURES:
        rng = np.random.default_rng(1)
        X = rng.poisson(0.1, (n_rows, n_features)) * rng.uniform(0.3, 1.2, (n_rows, n_features))
    noise = NOISES[noise] and NOISES[noise].take(np.arange(n_features) % N_FEATURES)
    objective = make_objective(as_format(X, layout), labels, weights, LOSSES[loss], noise, fit_intercept=fit_intercept)
    coef = 0.6 * np.random.default_rng(3).normal(size=(n_features + 1, n_columns))
    coef[-1] *= fit_intercept
    return getattr(objective.at(coef), kind)()


def _as_matrices(curvature):
    """Return the curvature of each output as a dense matrix."""
    images = []
    for d in range(len(curvature.coef)):
        unit = np.zeros_like(curvature.coef)
        unit[d] = 1.0
        images.append(curvature.product(unit).T)
    return np.stack(images, axis=-1)


@together(
    ("pair", "shape", "layout", "kind", "fit_intercept"),
    deal(PAIRS, SHAPES, ["dense", "sparse"], ["hessian", "majoriser"], [True, False]),
)
def test_deflated_directions_have_their_exact_products(pair, shape, layout, kind, fit_intercept):
    curvature = make_curvature(*pair, shape, kind, fit_intercept, layout)
    space = curvature.deflation
    assert_allclose(space.coef_image, curvature.product(space.coef), rtol=1e-9, atol=1e-9)
    intercept = np.zeros_like(space.coef)
    intercept[-1] = 1.0
    expected = curvature.product(intercept) if fit_intercept else intercept
    assert_allclose(space.intercept_image, expected, rtol=1e-9, atol=1e-9)
    for whole, part in zip(space, space.select([2, 0]), strict=True):
        assert_allclose(part, whole[:, [2, 0]])


@each_shape
def test_products_of_the_deflated_directions_cost_one_product_back(shape):
    curvature = make_curvature("hinge", "dropout", shape)
    data = curvature.objective.data
    point = curvature.objective.at(curvature.coef)
    point.hessian()
    before = data.n_products
    point.hessian()
    assert data.n_products - before == 1


@each_shape
def test_deflation_is_exact_on_the_plane_and_conjugate_to_it(shape):
    curvature = make_curvature("hinge", "dropout", shape)
    deflation, matrices = Deflation(curvature.deflation), _as_matrices(curvature)
    right = np.random.default_rng(0).normal(size=curvature.coef.shape)
    solution, image = deflation.solve(right)
    assert_allclose(image, curvature.product(solution), rtol=1e-9, atol=1e-9)
    plane = [curvature.deflation.coef, np.eye(len(right))[:, [-1] * 3]]
    projected = deflation.project(right.copy())
    for k, matrix in enumerate(matrices):
        for direction in plane:
            assert abs(direction[:, k] @ (right - image)[:, k]) < 1e-9
            assert abs(direction[:, k] @ matrix @ projected[:, k]) < 1e-9


def test_deflation_of_no_weights_is_that_of_the_intercept():
    curvature = make_curvature("logistic", "dropout")
    start = curvature.objective.at(np.zeros_like(curvature.coef)).majoriser()
    solution, _ = Deflation(start.deflation).solve(np.ones_like(curvature.coef))
    assert np.all(solution[:-1] == 0.0)
    assert_allclose(solution[-1], 1.0 / start.deflation.intercept_image[-1])


@pytest.mark.parametrize(
    ("pair", "shape", "kind", "fit_intercept"), deal(PAIRS, SHAPES, ["hessian", "majoriser"], [True, False], n=26)
)
def test_solution_is_exact_at_the_end(pair, shape, kind, fit_intercept):
    curvature = make_curvature(*pair, shape, kind, fit_intercept)
    right = np.random.default_rng(1).normal(size=curvature.coef.shape)
    right[-1] *= fit_intercept
    solution = conjugate_gradient.solve(curvature, right, 1e-12, 300).x
    assert_allclose(curvature.product(solution), right, atol=1e-7)
    if not fit_intercept:
        assert np.all(solution[-1] == 0.0)


@each_shape
def test_deflation_saves_products(shape):
    curvature = make_curvature("hinge", "dropout", shape, n_columns=1)
    data = curvature.objective.data

    def cost(matrix):
        before = data.n_products
        conjugate_gradient.solve(matrix, matrix.product(np.ones_like(matrix.coef)), 1e-10, 300)
        return data.n_products - before

    assert cost(curvature) < cost(replace(curvature, deflation=None))


@pytest.mark.parametrize(("loss", "shape"), deal(RADIAL, SHAPES))
def test_predicted_decrease_is_the_decrease_or_more(loss, shape):
    curvature = make_curvature(loss, "dropout", shape)
    rng = np.random.default_rng(2)
    full = conjugate_gradient.solve(curvature, rng.normal(size=curvature.coef.shape), 1e-14, 300)
    gradient = rng.normal(size=curvature.coef.shape)
    bound = conjugate_gradient.decrease_bound(curvature, gradient, full.lowest)
    for k, matrix in enumerate(_as_matrices(curvature)):
        decrease = 0.5 * gradient[:, k] @ np.linalg.solve(matrix, gradient[:, k])
        assert decrease * (1.0 - 1e-6) <= bound[k] <= 50.0 * decrease


def test_lowest_ritz_values_are_eigenvalues_at_the_end():
    curvature = replace(make_curvature("logistic", "dropout"), deflation=None)
    right = np.random.default_rng(4).normal(size=curvature.coef.shape)
    lowest = conjugate_gradient.solve(curvature, right, 1e-13, 100).lowest
    preconditioned = np.stack([curvature.precondition(m) for m in _as_matrices(curvature).transpose(2, 1, 0)])
    for k in range(3):
        eigenvalues = np.linalg.eigvals(preconditioned[:, :, k].T).real
        assert_allclose(lowest[k], eigenvalues.min(), rtol=1e-5)


# Starts -------------------------------------------------------------------------------------------------------------


def _fitted_from_zero(estimator, X, y):
    """Return the estimator fitted with a start at zero, and so without a start from a subsample."""
    some = np.concatenate([np.flatnonzero(y == label)[:100] for label in (0, 1)])
    model = clone(estimator).set_params(warm_start=True).fit(X[some], y[some])
    model.coef_ = np.zeros_like(model.coef_)
    model.intercept_ = np.zeros_like(model.intercept_)
    return model.fit(X, y)


@pytest.mark.parametrize(
    "estimator", [DropoutSVC(), DropoutLogisticRegression(), DropoutLogisticRegression(noise=None)]
)
def test_start_from_a_subsample_leads_to_the_same_optimum_with_fewer_passes(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 4))
    y = (X @ [1.0, -1.0, 0.5, 0.0] + rng.normal(size=10_000) > 0).astype(int)
    model, other = clone(estimator).fit(X, y), _fitted_from_zero(estimator, X, y)
    assert model.objective_ == pytest.approx(other.objective_, rel=2e-4)
    assert model.n_passes_ < other.n_passes_


@pytest.mark.parametrize(
    ("estimator", "as_sparse"),
    [
        (DropoutSVC(noise=0.3), False),
        (DropoutLogisticRegression(noise=0.3), True),
        (DropoutSVC(noise=GaussianNoise(0.5), C=0.1), True),
        (DropoutSVC(noise=DropoutNoise(0.2, groups=np.arange(30) // 3)), False),
    ],
)
def test_hessians_of_a_subsample_lead_to_the_same_optimum(estimator, as_sparse):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 30)) * rng.uniform(0.2, 5.0, size=30)
    X[rng.uniform(size=X.shape) < 0.5] = 0.0
    y = (X @ rng.normal(size=30) + 3.0 * rng.normal(size=20_000) > 0).astype(int)
    X = sparse.csr_array(X) if as_sparse else X
    model, exact = clone(estimator).fit(X, y), clone(estimator).set_params(tol=1e-9).fit(X, y)
    assert model.objective_ <= (1.0 + 1e-4) * exact.objective_
    assert exact.converged_
    assert model.n_passes_ < 0.5 * _fitted_from_zero(estimator, X, y).n_passes_


def test_a_subsample_with_another_curvature_is_given_up():
    """The rows of the subsample are ten times smaller than the others: with their Hessian alone, 83 iterations."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 3))
    taken = np.random.default_rng(0).choice(10_000, size=1_000, replace=False)
    X[taken] *= 0.1
    y = (X @ [1.0, -1.0, 0.5] + rng.normal(size=10_000) > 0).astype(int)
    estimator = DropoutLogisticRegression(noise=0.1, tol=1e-6)
    model, other = clone(estimator).fit(X, y), _fitted_from_zero(estimator, X, y)
    assert model.converged_
    assert model.n_iter_ <= 10
    assert model.objective_ == pytest.approx(other.objective_, rel=2e-6)


def _rare(n_rare: int, *, sampled: bool, n_rows: int = 20_000):
    """Return rows of which a few have a rare label: among those that a subsample has, or not among them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 5))
    taken = np.random.default_rng(0).choice(n_rows, size=n_rows // 10, replace=False)
    pool = taken if sampled else np.setdiff1d(np.arange(n_rows), taken)
    y = np.zeros(n_rows, dtype=int)
    y[pool[:n_rare]] = 1
    return X, y


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "n_rare", "sampled"),
    [("svc", 3, False), ("logistic", 3, True), ("svc", 200, True), ("no noise", 200, True), ("logistic", 3, False)],
)
def test_labels_that_a_subsample_does_not_show_fairly_are_fitted(name, n_rare, sampled):
    kinds = {
        "svc": DropoutSVC(),
        "logistic": DropoutLogisticRegression(),
        "no noise": DropoutLogisticRegression(noise=None),
    }
    X, y = _rare(n_rare, sampled=sampled)
    model, other = clone(kinds[name]).fit(X, y), _fitted_from_zero(kinds[name], X, y)
    assert abs(model.objective_ / other.objective_ - 1.0) < 2e-4
    assert model.n_passes_ <= 1.5 * other.n_passes_ + 5


@pytest.mark.parametrize("l1_ratio", [0.0, 1.0])
def test_a_search_that_breaks_down_is_no_convergence(l1_ratio):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 5)), np.zeros(3000, dtype=int)
    y[:5] = 1
    model = DropoutLogisticRegression(noise=None, l1_ratio=l1_ratio, warm_start=True, max_iter=30).fit(X, y)
    best = model.objective_
    model.intercept_ = np.array([-100.0])  # where the loss has no curvature
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert not model.converged_ or model.objective_ < best * 1.001


def test_iterations_on_a_subsample_are_not_shown(capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 3))
    model = DropoutLogisticRegression(verbose=1).fit(X, X[:, 0] + rng.normal(size=10_000) > 0)
    assert len(capsys.readouterr().err.splitlines()) == model.n_iter_


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


@pytest.mark.parametrize("penalty", [Penalty(l2=0.0, l1=1.0), Penalty(l2=0.4, l1=0.6)], ids=["l1", "elastic net"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_the_proved_gap_is_above_the_gap_and_small_at_the_optimum(penalty, layout):
    X, labels, weights = make_data(n_samples=60, n_columns=1)
    objective = make_objective(
        as_format(X, layout), labels, weights, LOSSES["logistic"], NOISES["dropout"], fit_intercept=False
    )
    objective = replace(objective, penalty=penalty)
    best = orthant(objective, objective.at(np.zeros((N_FEATURES + 1, 1))), Options(tol=1e-10, max_iter=100))
    assert best.converged
    assert np.any(best.coef[:-1] == 0.0)
    assert np.any(best.coef[:-1] != 0.0)
    lowest = float(best.objective[0])
    assert proved_gap(objective.at(best.coef)) <= 1e-8 * lowest
    rng = np.random.default_rng(0)
    for scale in np.logspace(-4, 0, 40):
        coef = best.coef * (1.0 + scale * rng.normal(size=best.coef.shape))
        point = objective.at(coef)
        assert proved_gap(point) >= float(point.value[0]) - lowest - 1e-12 * lowest


@pytest.mark.parametrize(("estimator", "C", "n_passes"), [(DropoutSVC, 0.5, 50), (DropoutLogisticRegression, 2.0, 45)])
def test_steps_within_an_orthant_take_few_passes(estimator, C, n_passes):
    # 38 and 36.5. A step that the orthant shortens needs another intercept: without it, 61 passes (logistic). The
    # hinge under weak noise takes 84 along the central path of both kinks.
    rng = np.random.default_rng(1)
    X = sparse.csr_array(rng.random((300, 600)) < 0.05, dtype=float)
    y = X @ rng.standard_normal(600) + rng.standard_normal(300) > 0.0
    model = estimator(noise=DropoutNoise(0.2, reference="zero"), C=C, l1_ratio=1.0).fit(X, y)
    assert model.n_passes_ <= n_passes
    exact = clone(model).set_params(tol=1e-9).fit(X, y)
    assert 0.0 <= model.objective_ - exact.objective_ + 1e-9 <= 1e-3 * exact.objective_


def _sparse_signal(n_features=2000, n_informative=15):
    rng = np.random.default_rng(3)
    X = sparse.csr_array(rng.random((400, n_features)) < 0.03, dtype=float)
    coef = np.zeros(n_features)
    coef[:n_informative] = 3.0 * rng.choice([-1.0, 1.0], n_informative)
    return X, (X @ coef + 0.5 * rng.standard_normal(400)) > 0.0


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("estimator", [DropoutSVC, DropoutLogisticRegression])
@pytest.mark.parametrize("reference", ["zero", "mean", "groups"])
def test_a_working_set_of_few_features_has_the_optimum_of_all(layout, estimator, reference):
    X, y = _sparse_signal()
    groups = np.arange(X.shape[1]) // 4 if reference == "groups" else None
    noise = DropoutNoise(0.3, reference="mean" if reference == "groups" else reference, groups=groups)
    model = estimator(noise=noise, C=0.2, l1_ratio=1.0, tol=1e-8).fit(as_format(X.toarray(), layout), y)
    used = np.flatnonzero(model.coef_[0])
    assert 0 < len(used) <= 200
    # The same problem with these features alone, of which all are in the working set, ends at the same objective.
    own = noise if groups is None else clone(noise).set_params(groups=np.unique(groups[used], return_inverse=True)[1])
    alone = clone(model).set_params(noise=own).fit(as_format(X.toarray()[:, used], layout), y)
    assert abs(alone.objective_ / model.objective_ - 1.0) <= 1e-7
    # Steps on a tenth of the features count as a part of a pass.
    assert model.n_passes_ <= 0.7 * alone.n_passes_


def test_a_feature_that_is_needed_once_another_has_its_coefficient_enters_the_working_set():
    rng = np.random.default_rng(0)
    hidden, error = rng.standard_normal(500), 0.5 * rng.standard_normal(500)
    X = np.column_stack([hidden + error, error, 0.01 * rng.standard_normal((500, 40))])
    y = hidden > 0.0
    C = 0.5
    gradient = C * np.abs(0.5 * (2.0 * y - 1.0) @ (X - X.mean(axis=0)))
    assert gradient[0] > 1.0 > 1.3 * gradient[1]  # at first it is not in the set
    model = DropoutLogisticRegression(noise=None, C=C, l1_ratio=1.0, tol=1e-8).fit(X, y)
    assert model.converged_
    assert model.coef_[0, 1] < -0.5
    few = clone(model).fit(X[:, :2], y)
    assert abs(model.objective_ / few.objective_ - 1.0) <= 1e-7


def test_a_round_without_a_step_is_not_repeated(monkeypatch):
    X, y = _sparse_signal(n_features=100)
    rounds = []
    original = orthant_module._State.finish_round

    def counted(self):
        original(self)
        rounds.append(len(self.history))

    monkeypatch.setattr(orthant_module._State, "finish_round", counted)
    monkeypatch.setattr(orthant_module, "_search", lambda *given: None)  # no step decreases the objective
    classes = y + 2 * (X[:, [0]].toarray().ravel() > 0.0)
    DropoutLogisticRegression(noise=0.2, C=0.05, l1_ratio=1.0, multi_class="multinomial", tol=1e-2).fit(X, classes)
    assert rounds == [0]


@pytest.mark.parametrize("loss", ["logistic", "exponential"])
def test_an_l1_penalty_takes_the_scales_of_its_working_set_with_missing_entries(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 60))
    y = (X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=200) > 0.0).astype(int)
    X[rng.random(X.shape) < 0.1] = np.nan
    scales = np.linspace(0.05, 0.3, 60)
    given = {"C": 0.05, "l1_ratio": 1.0, "tol": 1e-8, "missing": "rescale"}
    model = MCFClassifier(loss, noise=GaussianNoise(scales), **given).fit(X, y)
    used = np.flatnonzero(model.coef_[0])
    assert 0 < len(used) <= 12  # so that the solver has restricted the rows
    alone = MCFClassifier(loss, noise=GaussianNoise(scales[used]), **given).fit(X[:, used], y)
    assert abs(alone.objective_ / model.objective_ - 1.0) <= 1e-7
