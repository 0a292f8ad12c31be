"""`target_noise`: held-out rows are scored as they will be scored, and a constant model does not win."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.model_selection import KFold, StratifiedKFold

from datasets import make_multiclass
from dropmargin import (
    DropoutLogisticRegressionCV,
    DropoutNoise,
    DropoutRidgeCV,
    DropoutSVC,
    DropoutSVCCV,
    DropoutSVRCV,
    GaussianNoise,
    NoisyLinearClassifierCV,
)
from dropmargin.model_selection import partitions as searches
from dropmargin.streaming import cache
from dropmargin.streaming import fit as fit_files

RATE = 0.3
GROUPS = np.array([0, 0, 1, 2, 3, 4, 5, 5])


def balanced(n_rows, n_features=8, n_classes=4):
    given = {"n_informative": 6, "n_classes": n_classes, "flip_y": 0.0, "class_sep": 1.5, "random_state": 0}
    return make_classification(n_rows, n_features, **given)


def deleted_copies(X, rate, groups=None):
    """Yield the copies of all rows, as the docstring of ``target_noise`` describes them."""
    n_rows, n_features = X.shape
    n_copies = math.ceil(8192 / n_rows)
    n_columns = n_features if groups is None else groups.max() + 1
    draws = np.random.default_rng(0).random((min(n_copies * n_rows, max(64, 2**22 // n_features)), n_columns))
    draws = draws if groups is None else draws[:, groups]
    for copy in range(n_copies):
        own = (copy * n_rows + np.arange(n_rows)) % len(draws)
        yield np.where(draws[own] < rate, np.nan, X)


def mean_over_copies(X, rate, groups, score):
    return np.mean([score(copy) for copy in deleted_copies(X, rate, groups)], axis=0)


# What the search claims ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The chosen (C|noise)")
@pytest.mark.parametrize(
    ("search", "missing", "target"),
    [
        (DropoutLogisticRegressionCV(), "error", RATE),
        (DropoutLogisticRegressionCV(), "conditional", RATE),
        (NoisyLinearClassifierCV(loss="quadratic"), "error", GaussianNoise(1.0)),
    ],
)
def test_the_default_grid_claims_what_the_chosen_model_has(search, missing, target):
    X, y = balanced(2200)
    X_test, y_test, X, y = X[160:], y[160:], X[:160], y[:160]
    model = clone(search).set_params(missing=missing, target_noise=target, verbose=0).fit(X, y)
    rows, rng = X_test.copy(), np.random.default_rng(5)
    if isinstance(target, GaussianNoise):
        rows += rng.normal(size=rows.shape)
    elif target is not None and missing == "error":
        rows = DropoutNoise(RATE).with_means(X.mean(axis=0)).sample(rows, random_state=5)
    elif target is not None:
        rows[rng.random(rows.shape) < RATE] = np.nan
    found = model.best_estimator_.score(rows, y_test)
    assert np.any(model.coef_)
    assert model.best_score_ == pytest.approx(found, abs=0.08)
    assert found > 0.4  # a constant model has .25


# The rule -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:The chosen")
@pytest.mark.parametrize(
    ("missing", "layout", "target"),
    [
        ("rescale", "dense", DropoutNoise(0.4)),
        ("rescale", "dense with NaN", DropoutNoise(0.3, groups=GROUPS)),
        ("rescale", "sparse", DropoutNoise(np.linspace(0.0, 0.9, 8))),
        ("rescale", "sparse with NaN", DropoutNoise(0.4, reference="zero")),
        ("conditional", "dense", DropoutNoise(np.linspace(0.0, 0.9, 8))),
        ("conditional", "dense with NaN", DropoutNoise(0.4)),
        ("conditional", "sparse", DropoutNoise(0.3, groups=GROUPS)),
        ("conditional", "sparse with NaN", DropoutNoise(0.4)),
    ],
)
def test_dropped_features_are_missing_features(missing, layout, target):
    X, y = make_multiclass()
    if "NaN" in layout:
        X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    rows = sparse.csr_array(X) if "sparse" in layout else X
    weights = np.random.default_rng(2).random(len(y))
    given = {"noises": [0.0, 0.3], "Cs": [0.3], "cv": 2, "target_noise": target, "missing": missing}
    search = DropoutSVCCV(**given, prune=False, tol=1e-8, verbose=0).fit(rows, y, weights)
    known = target.resolve(8)
    for fold, (train, test) in enumerate(StratifiedKFold(2).split(X, y)):
        for i, noise in enumerate([0.0, 0.3]):
            model = DropoutSVC(noise=noise, C=0.3, missing=missing, tol=1e-9).fit(rows[train], y[train], weights[train])
            right = mean_over_copies(X, known.rate, known.groups, lambda copy: model.predict(copy[test]) == y[test])  # noqa: B023
            wanted = np.average(right, weights=weights[test])
            assert search.scores_[fold, i, 0] == pytest.approx(wanted, abs=1e-3)


@pytest.mark.filterwarnings("ignore:The chosen")
@pytest.mark.parametrize(
    ("search", "missing", "scoring", "power"),
    [
        (DropoutRidgeCV(), "conditional", None, 2),
        (DropoutRidgeCV(), "rescale", "neg_mean_absolute_error", 1),
        (DropoutSVRCV(), "rescale", None, 1),
        (DropoutSVRCV(), "conditional", "neg_mean_squared_error", 2),
    ],
)
def test_errors_of_numbers_are_those_of_copies(search, missing, scoring, power):
    X, y = make_regression(60, 8, noise=5.0, effective_rank=4, random_state=0)
    X = 10.0 * X
    given = {"noises": [0.1], "Cs": [1.0], "cv": 2, "target_noise": 0.4, "missing": missing, "scoring": scoring}
    search = clone(search).set_params(**given, prune=False, tol=1e-8, verbose=0).fit(X, y)
    train, test = next(iter(KFold(2).split(X)))
    model = clone(search.best_estimator_).set_params(tol=1e-9).fit(X[train], y[train])
    errors = mean_over_copies(X, 0.4, None, lambda copy: np.abs(model.predict(copy[test]) - y[test]) ** power)
    assert search.scores_[0, 0, 0] == pytest.approx(-errors.mean(), rel=1e-4)


@pytest.mark.parametrize("has_missing", [False, True])
def test_rows_in_files_have_the_same_scores(has_missing, monkeypatch):
    monkeypatch.setattr(searches, "_GATHERED_BYTES", 0)
    monkeypatch.setattr(cache, "BLOCK_BYTES", 1500)
    X, y = make_multiclass()
    if has_missing:
        X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    given = {"noises": [0.1, 0.3], "Cs": [0.3, 1.0], "cv": 2, "target_noise": 0.4, "missing": "rescale"}
    search = DropoutLogisticRegressionCV(**given, prune=False, tol=1e-9, verbose=0)
    expected = clone(search).fit(X, y)
    found = fit_files(clone(search), X, y, progress=False)
    assert_allclose(found.scores_, expected.scores_, atol=1e-3)
