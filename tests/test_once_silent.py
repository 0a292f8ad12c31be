"""Fits that once stopped far from the optimum, or minimised another objective, and said that they had converged.

Each problem is constructed here, and the optimum is that of the independent optimiser in ``fuzz.reference``.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from dealing import deal
from dropmargin import (
    DropoutLogisticRegression,
    DropoutNoise,
    DropoutRidge,
    DropoutSVC,
    DropoutSVR,
    GaussianNoise,
    NoisyLinearClassifier,
    streaming,
)
from fuzz.multinomial import MultinomialProblem
from fuzz.optima import ALLOWED, relative_gap
from fuzz.reference import BinaryProblem


def _rows(seed, n_samples=60, n_features=4, shift=0.0):
    """Return normal rows at a distance from zero, and labels -1 and +1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_samples, n_features))
    scores = X @ rng.normal(size=n_features) + rng.normal(size=n_samples)
    return X + shift, np.where(scores > 0.0, 1.0, -1.0)


def _gap(model, loss, noise, X, y, weight=1.0, l1=0.0, **others):
    """Return the relative gap of a fitted binary model or regression to the optimum."""
    weight = model.C * np.broadcast_to(weight, len(y))
    problem = BinaryProblem(loss, noise, X, y, weight, l1, 1.0 - l1, model.fit_intercept, **others)
    return relative_gap(problem, np.append(model.coef_, model.intercept_))


# Another loss ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "n_samples", "fit_intercept"), deal([0.0, 0.1, 0.5], [60, 40], [True, False]), ids=str
)
def test_support_vector_regression_of_two_numbers_is_no_classification(epsilon, n_samples, fit_intercept):
    """Without noise, targets -1 and +1 were solved as a hinge with the margin epsilon."""
    X, y = _rows(0, n_samples)
    model = DropoutSVR(noise=None, epsilon=epsilon, fit_intercept=fit_intercept, tol=1e-6).fit(X, y)
    gap = _gap(model, "epsilon-insensitive", ("none",), X, y, parameter=epsilon)
    assert model.converged_
    assert gap <= ALLOWED * model.tol
    residuals = np.abs(y - X @ model.coef_ - model.intercept_)
    expected = 0.5 * model.coef_ @ model.coef_ + np.maximum(residuals - epsilon, 0.0).sum()
    assert model.objective_ == pytest.approx(expected, rel=1e-9)


# Groups of features ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "shift", "seed", "fit_intercept"),
    deal([DropoutSVC, DropoutLogisticRegression], [100.0, 1000.0, 1e5], [2, 3], [True, False]),
    ids=str,
)
def test_groups_dropped_to_zero_far_from_it(estimator, shift, seed, fit_intercept):
    """The features of a group nearly cancel each other, which a diagonal preconditioner does not see."""
    X, y = _rows(seed, shift=shift)
    noise = DropoutNoise(0.1, reference="zero", groups=[0, 0, 1, 1])
    loss = "hinge" if estimator is DropoutSVC else "logistic"
    for tol in (1e-4, 1e-6):
        model = estimator(noise=noise, tol=tol, fit_intercept=fit_intercept)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y)
        gap = _gap(model, loss, ("dropout", 0.1, "zero"), X, y, groups=np.array([0, 0, 1, 1]))
        assert gap <= ALLOWED * tol or not model.converged_


# Missing values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "groups", "reference"),
    deal(["hinge", "logistic", "mcf-logistic"], [None, [0, 0, 1, 1]], ["mean", "array"]),
    ids=str,
)
def test_missing_entries_are_not_corrupted(loss, groups, reference, tmp_path):
    X, y = _rows(1, shift=2.0)
    X[np.random.default_rng(5).uniform(size=X.shape) < 0.2] = np.nan
    is_missing, values = np.isnan(X), np.nanmean(X, axis=0) if reference == "mean" else np.array([1.0, 2.5, 0.0, 3.0])
    noise = DropoutNoise(0.3, reference="mean" if reference == "mean" else values, groups=groups)
    model = NoisyLinearClassifier(loss, noise=noise, missing="rescale", tol=1e-8).fit(X, y)
    others = {"groups": None if groups is None else np.array(groups), "is_missing": is_missing}
    gap = _gap(model, loss, ("dropout", 0.3, values), np.where(is_missing, values, X), y, **others)
    assert abs(gap) <= 1e-6
    in_files = streaming.fit(model, [_write(tmp_path / "rows.npz", X, y)], progress=False)
    assert in_files.objective_ == pytest.approx(model.objective_, rel=1e-6)


def _write(path, X, y):
    np.savez(path, X=X, y=y)
    return path


# Precision ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "noise", "l1_ratio"),
    deal(["hinge", "logistic", "quadratic"], ["none", "mean", "gaussian"], [0.0, 0.5]),
    ids=str,
)
def test_features_at_1e8_without_an_intercept_converge_or_warn(loss, noise, l1_ratio):
    X, y = _rows(0, shift=1e8)
    given = {"none": None, "mean": DropoutNoise(0.1), "gaussian": GaussianNoise(0.1)}[noise]
    expected = {"none": ("none",), "mean": ("dropout", 0.1, X.mean(axis=0)), "gaussian": ("gaussian", 0.1)}[noise]
    model = NoisyLinearClassifier(loss, noise=given, l1_ratio=l1_ratio, fit_intercept=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    gap = _gap(model, loss, expected, X, y, l1=l1_ratio)
    assert gap <= ALLOWED * model.tol or "far from zero" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X - 1e8 + 1e3, y)  # which float64 allows
    assert _gap(model, loss, (*expected[:2], *([X.mean(axis=0) - 1e8 + 1e3] if noise == "mean" else [])),
                X - 1e8 + 1e3, y, l1=l1_ratio) <= ALLOWED * model.tol  # fmt: skip


# The estimated gap ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [DropoutRidge(noise=None)])
def test_the_tolerance_is_relative_to_the_objective_at_the_solution(estimator):
    """More features than rows: the first step decreases the objective ten thousand times."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 111)) * 10.0 ** rng.uniform(-1.5, 1.5, 111)
    y = np.where(rng.normal(size=25) > 0.0, 1.0, -1.0)
    found, exact = (estimator.set_params(C=1e3, tol=tol).fit(X, y).objective_ for tol in (1e-6, 1e-13))
    assert found <= (1.0 + 1e-5) * exact


@pytest.mark.parametrize(("seed", "tol"), [(1, 1e-4)])
def test_the_hinge_of_normal_scores_with_weak_noise(seed, tol):
    """Newton steps were replaced by short steps of the majoriser, which were taken for convergence."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(59, 101)) + 59.0
    X[rng.uniform(size=X.shape) < 0.1] = 0.0
    y = np.where(rng.normal(size=59) > 0.0, 1.0, -1.0)
    weight = 10.0 ** rng.uniform(-1.0, 1.0, 59)
    model = NoisyLinearClassifier("hinge", approximation="gaussian", noise=GaussianNoise(2e-4), C=8.0, tol=tol)
    model.fit(X, y, sample_weight=weight)
    assert _gap(model, "gaussian-hinge", ("gaussian", 2e-4), X, y, weight) <= ALLOWED * tol


@pytest.mark.parametrize(("seed", "label_noise"), [(5, 50.0)])
def test_sparse_features_far_from_zero_without_an_intercept(seed, label_noise):
    """Conjugate gradients saw the large eigenvalue along the feature means, and stopped before the low ones."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(247, 296))
    y = np.where(X @ rng.normal(size=296) + label_noise * rng.normal(size=247) > 0.0, 1.0, -1.0)
    X += 130.0 * rng.uniform(-1.0, 1.0, 296)
    model = DropoutSVC(noise=DropoutNoise(1e-3, reference="zero"), C=14.2, fit_intercept=False)
    model.fit(sparse.csr_array(X), y)
    assert _gap(model, "hinge", ("dropout", 1e-3, "zero"), X, y) <= ALLOWED * model.tol


# Conjugate gradients of the last step see nothing of the lowest eigenvalues: gaps of 3e-3 to 1e-2 at tol=1e-4, if the
# stopping rule forgets those of the steps before.
@pytest.mark.parametrize(("seed", "scale"), [(0, 0.0)])
def test_a_softmax_with_low_eigenvalues(seed, scale):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 70)) + 0.1 * rng.normal(size=(40, 70))
    X *= 10.0 ** rng.uniform(-1.5, 1.5, 70)
    y = rng.permutation(np.arange(40) % 3)
    model = DropoutLogisticRegression(multi_class="multinomial", noise=GaussianNoise(scale), C=100.0).fit(X, y)
    problem = MultinomialProblem("logistic", ("gaussian", scale), X, y, np.full(40, 100.0), 0.0, 1.0, True)
    coef = np.column_stack([model.coef_, model.intercept_]).ravel()
    assert relative_gap(problem, coef) <= ALLOWED * model.tol


def test_a_softmax_that_starts_from_a_subsample_has_nothing_common_to_all_classes():
    """The loss does not depend on what all classes have in common; the penalty does, but weighs little in tall data."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 6))
    y = (X[:, :3] + 2.0 * rng.normal(size=(10_000, 3))).argmax(axis=1)
    model = DropoutLogisticRegression(multi_class="multinomial", noise=GaussianNoise(0.2), C=5.0, tol=1e-8).fit(X, y)
    assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-8)
