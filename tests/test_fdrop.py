"""FDropSVC: the exact optimum on small problems, the proved gap, the planes, limits of K, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import LinearConstraint, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from datasets import assert_bitwise_equal, assert_same_state, fitted_state, make_binary, make_multiclass, make_sparse
from dealing import deal, deal_checks, together
from dropmargin import DropoutSVC
from dropmargin.baselines import FDropSVC
from dropmargin.baselines.worst_case import WorstCaseRisk, pad_rows


# Some checks have max_iter=1 or unscaled data, which give a warning.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@deal_checks([FDropSVC()], [FDropSVC(n_deleted=0, C=0.1), FDropSVC(fit_intercept=False)], stride=12)
def test_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


# The optimum ---------------------------------------------------------------------------------------------------------


def plain_objective(model, X, y, weights, *, n_deleted, C):
    """Return the objective of a fitted binary model, by sorting each row."""
    w, b, signs = model.coef_[0], model.intercept_[0], np.where(y == model.classes_[1], 1.0, -1.0)
    gains = signs[:, None] * X * w
    worst = np.sort(np.maximum(gains, 0.0), axis=1)[:, X.shape[1] - n_deleted :].sum(axis=1)
    losses = np.maximum(1.0 - gains.sum(axis=1) - signs * b + worst, 0.0)
    return 0.5 * w @ w + C * weights @ losses


def exact_optimum(X, signs, weights, *, n_deleted, C, fit_intercept=True):
    """Return the minimum, by a general solver of the paper's quadratic program.

    Variables (w, b, xi_i, t_i, z_id): the worst case is ``min K t + sum_d z_d`` with ``t + z_d >= y w_d x_d``.
    """
    n, d = X.shape
    size = d + 1 + 2 * n + n * d
    xi, t, z = d + 1 + np.arange(n), d + 1 + n + np.arange(n), (d + 1 + 2 * n + np.arange(n * d)).reshape(n, d)
    rows = np.zeros((n + n * d, size))
    for i in range(n):
        rows[i, :d], rows[i, d] = signs[i] * X[i], signs[i] * fit_intercept
        rows[i, xi[i]], rows[i, t[i]], rows[i, z[i]] = 1.0, -n_deleted, -1.0
        for j in range(d):
            rows[n + i * d + j, [j, t[i], z[i, j]]] = -signs[i] * X[i, j], 1.0, 1.0
    right = np.concatenate([np.ones(n), np.zeros(n * d)])
    cost = np.zeros(size)
    cost[xi] = C * weights
    quadratic = np.zeros(size)
    quadratic[:d] = 1.0
    start = np.zeros(size)
    start[xi] = 1.0
    found = minimize(
        lambda v: 0.5 * quadratic @ v**2 + cost @ v,
        start,
        jac=lambda v: quadratic * v + cost,
        bounds=[(None, None)] * (d + 1) + [(0.0, None)] * (size - d - 1),
        constraints=LinearConstraint(rows, right, np.inf),
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert found.success, found.message
    return found.fun


@pytest.mark.parametrize("n_deleted", [0, 1, 2, 3])
@pytest.mark.parametrize(("C", "fit_intercept"), [(0.3, True), (3.0, True), (1.0, False)])
def test_objective_equals_that_of_the_exact_quadratic_program(n_deleted, C, fit_intercept):
    rng = np.random.default_rng(n_deleted)
    X = rng.normal(size=(14, 4)) * (rng.uniform(size=(14, 4)) < 0.8)
    signs = np.where(X @ [1.0, -1.0, 1.5, 0.5] + 0.5 * rng.normal(size=14) > 0.3, 1.0, -1.0)
    X += 0.7 * signs[:, None]
    weights = rng.uniform(0.5, 2.0, 14)
    exact = exact_optimum(X, signs, weights, n_deleted=n_deleted, C=C, fit_intercept=fit_intercept)
    model = FDropSVC(n_deleted, C=C, fit_intercept=fit_intercept, tol=1e-7).fit(X, signs, weights)
    assert model.objective_ == pytest.approx(exact, rel=1e-6)
    assert plain_objective(model, X, signs, weights, n_deleted=n_deleted, C=C) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("n_deleted", [0, 1, 3])
def test_proved_gap_is_not_too_small(n_deleted):
    X, y = make_binary(n_samples=200)
    X = X + y[:, None]
    best = FDropSVC(n_deleted, tol=1e-9).fit(X, y).objective_
    model = FDropSVC(n_deleted).fit(X, y)
    assert model.converged_
    assert 0.0 < model.gap_ <= 1e-4
    true_gap = (model.objective_ - best) / model.objective_
    assert -1e-8 <= true_gap <= model.gap_ + 1e-8


def test_zero_deletions_are_the_support_vector_machine():
    X, y = make_binary()
    ours = FDropSVC(0, C=0.7, tol=1e-9).fit(X, y)
    theirs = SVC(kernel="linear", C=0.7, tol=1e-8).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, atol=2e-4)
    sibling = DropoutSVC(noise=None, C=0.7, tol=1e-9).fit(X, y)
    assert ours.objective_ == pytest.approx(sibling.objective_, rel=1e-8)


def test_objective_grows_with_deletions():
    X, y = make_binary()
    X = X + y[:, None]
    objectives = [FDropSVC(K, tol=1e-7).fit(X, y).objective_ for K in range(X.shape[1] + 1)]
    assert np.all(np.diff(objectives) >= -1e-6 * objectives[0])
    assert objectives[0] < 0.5 * objectives[-1]


def test_weight_is_spread_over_redundant_features():
    """With one strong feature and four weaker ones, the SVM depends on the first, FDROP on all, as in the paper."""
    rng = np.random.default_rng(0)
    signs = np.where(rng.uniform(size=200) < 0.5, -1.0, 1.0)
    X = signs[:, None] * [3.0, 1.0, 1.0, 1.0, 1.0] + 0.3 * rng.normal(size=(200, 5))
    shares = []
    for K in (0, 1):
        gains = np.abs(FDropSVC(K, C=1.0).fit(X, signs).coef_[0]) * [3.0, 1.0, 1.0, 1.0, 1.0]
        shares.append(gains[0] / gains.sum())
    assert shares[0] > 0.5
    assert shares[1] < 0.3
    robust = FDropSVC(1, C=1.0).fit(X, signs)
    assert robust.score(X * [0.0, 1.0, 1.0, 1.0, 1.0], signs) == 1.0


# Limits of K ---------------------------------------------------------------------------------------------------------


def test_deleting_all_features_predicts_the_class_of_largest_weight():
    X, y = make_multiclass()
    weights = np.where(y == 2, 5.0, 1.0)
    model = FDropSVC(X.shape[1]).fit(X, y, weights)
    assert_array_equal(model.coef_, 0.0)
    assert_array_equal(model.predict(X), 2)
    assert model.gap_ <= 1e-12


def test_coefficients_are_zero_if_rows_can_lose_all_entries():
    X, y = make_sparse(30, 50, 0.06)
    longest = int(np.diff(X.indptr).max())
    assert longest < 50
    assert_array_equal(FDropSVC(longest).fit(X, y).coef_, 0.0)


# The risk and its planes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_deleted", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_planes_touch_the_risk_and_stay_below_it(n_deleted, fit_intercept):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 8)) * (rng.uniform(size=(60, 8)) < 0.6)
    X[:5] = 1.0  # ties
    labels, weights = np.where(rng.uniform(size=60) < 0.3, 1.0, -1.0), rng.uniform(0.1, 1.0, 60)
    risk = WorstCaseRisk(pad_rows(X), labels, weights, n_deleted, 8, fit_intercept)
    points = [*rng.normal(size=(20, 8)), np.zeros(8), np.full(8, 0.5)]
    planes = [risk(w) for w in points]
    for w, plane in zip(points, planes, strict=True):
        assert plane.height + plane.slope @ w == pytest.approx(plane.risk, rel=1e-12, abs=1e-12)
        below = [plane.height + plane.slope @ other for other in points]
        assert np.all(below <= np.array([other.risk for other in planes]) + 1e-9)


def test_intercept_is_the_best_one():
    rng = np.random.default_rng(2)
    X, labels = rng.normal(size=(40, 3)), np.where(rng.uniform(size=40) < 0.3, 1.0, -1.0)
    weights, w = rng.uniform(0.1, 1.0, 40), rng.normal(size=3)
    plane = WorstCaseRisk(pad_rows(X), labels, weights, 1, 3, True)(w)
    gains = labels[:, None] * X * w
    slack = 1.0 - gains.sum(axis=1) + np.maximum(gains.max(axis=1), 0.0)
    grid = np.append(np.linspace(-5.0, 5.0, 20001), plane.intercept)
    risks = np.maximum(slack - labels * grid[:, None], 0.0) @ weights
    assert risks[-1] == pytest.approx(plane.risk)
    assert risks[-1] <= risks.min() + 1e-12


@pytest.mark.parametrize(("density", "layout"), deal([0.02, 0.3, 0.95, 1.0], ["dense", "sparse"]))
def test_blocks_have_every_entry_once(density, layout):
    rng = np.random.default_rng(3)
    X = np.where(rng.uniform(size=(70, 40)) < density, rng.normal(size=(70, 40)), 0.0)
    X[0] = 0.0
    rebuilt = np.zeros_like(X)
    for block in pad_rows(sparse.csr_array(X) if layout == "sparse" else X):
        np.add.at(rebuilt, (block.rows[:, None], block.columns), block.values)
    assert_array_equal(rebuilt, X)


# Invariances ---------------------------------------------------------------------------------------------------------


def test_dense_and_sparse_are_the_same():
    X, y = make_multiclass()
    dense = FDropSVC(2).fit(X, y)
    for kind in (sparse.csr_array, sparse.csr_matrix, sparse.csc_array):
        assert_bitwise_equal(FDropSVC(2).fit(kind(X), y), dense)


def test_single_precision():
    X, y = make_binary(n_samples=200)
    X = X + y[:, None]
    single = FDropSVC(2).fit(X.astype(np.float32), y)
    assert single.coef_.dtype == np.float32
    assert single.objective_ == pytest.approx(FDropSVC(2, tol=1e-7).fit(X, y).objective_, rel=1e-4)


def test_sample_weights_are_equivalent_to_repetitions():
    X, y = make_binary()
    X = X + y[:, None]
    counts = np.arange(len(y)) % 3
    weighted = FDropSVC(2, tol=1e-8).fit(X, y, counts)
    repeated = FDropSVC(2, tol=1e-8).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-7)
    assert_allclose(weighted.coef_, repeated.coef_, atol=1e-3)


def test_class_weights_are_sample_weights():
    X, y = make_binary()
    by_class = FDropSVC(1, class_weight={0: 1.0, 1: 3.0}).fit(X, y)
    assert_bitwise_equal(by_class, FDropSVC(1).fit(X, y, np.where(y == 1, 3.0, 1.0)))


def test_result_does_not_depend_on_threads():
    X, y = make_multiclass(n_classes=5)
    assert_bitwise_equal(FDropSVC(1, n_jobs=2).fit(X, y), FDropSVC(1).fit(X, y))


def test_classes_are_one_vs_rest():
    X, y = make_multiclass()
    model = FDropSVC(1, tol=1e-6).fit(X, y)
    for k, label in enumerate(model.classes_):
        own = FDropSVC(1, tol=1e-6).fit(X, y == label)
        assert_array_equal(model.coef_[k], own.coef_[0])
        assert model.intercept_[k] == own.intercept_[0]
    assert_array_equal(model.predict(X), model.classes_[model.decision_function(X).argmax(axis=1)])


# Bad input -----------------------------------------------------------------------------------------------------------


@together("n_deleted", [-1, 1.5, 2.0, "2", True, None, np.nan])
def test_n_deleted_must_be_an_integer(n_deleted):
    X, y = make_binary()
    with pytest.raises(ValueError, match=r"n_deleted .*got"):
        FDropSVC(n_deleted).fit(X, y)


def test_n_deleted_above_n_features_is_an_error_and_the_model_is_not_changed():
    X, y = make_binary()
    model = FDropSVC(1).fit(X, y)
    state = fitted_state(model.set_params(n_deleted=9))
    with pytest.raises(ValueError, match=r"n_deleted=9.*\[0, 8\]"):
        model.fit(X, y)
    assert_same_state(model, state)


@together(
    ("params", "message"),
    [
        ({"C": 0.0}, "C .*got 0.0"),
        ({"tol": -1.0}, "tol .*got -1.0"),
        ({"max_iter": 0}, "max_iter .*got 0"),
        ({"n_jobs": 0}, "n_jobs .*got 0"),
        ({"class_weight": "even"}, "class_weight .*'even'"),
    ],
)
def test_errors_name_the_parameter(params, message):
    X, y = make_binary()
    with pytest.raises(ValueError, match=message):
        FDropSVC(**params).fit(X, y)


def test_max_iter_warns_with_the_gap():
    X, y = make_binary()
    with pytest.warns(ConvergenceWarning, match="2 iterations .*gap"):
        model = FDropSVC(1, max_iter=2).fit(X, y)
    assert not model.converged_
    assert model.gap_ > 1e-4


def test_verbose_prints_to_stderr(capsys):
    X, y = make_binary()
    FDropSVC(1, verbose=1).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    assert "[FDropSVC] class 1  iteration    1  objective" in err
