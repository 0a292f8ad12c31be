"""A fit to partitions has the optimum of a fit to their rows in one matrix; errors name the partition."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from backends import Elsewhere
from dropmargin import DropoutLogisticRegression, DropoutSVC, DropoutSVCCV, MCFClassifier
from dropmargin.data import EncodedRows, Rows, binary_outputs
from dropmargin.estimators.partition_fit import fit_partitions
from dropmargin.model_selection.partitions import fit_estimator
from dropmargin.noise import DropoutNoise, GaussianNoise, PoissonNoise

pytestmark = pytest.mark.timeout(120)
_EDGES = (0, 30, 70, 71, 120)


def _data(seed=0, n_rows=120, n_features=8):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.8, (n_rows, n_features)) * rng.uniform(0.3, 1.2, (n_rows, n_features))
    y = np.argmax((X - X.mean(axis=0)) @ rng.normal(size=(n_features, 3)) + rng.normal(size=(n_rows, 3)), axis=1)
    return X, np.array(["a", "b", "c"])[y], rng.uniform(0.5, 2.0, n_rows)


def _parts(X, y, weights=None, edges=_EDGES):
    own = [slice(a, b) for a, b in itertools.pairwise(edges)]
    return [Rows(X[s], y[s], None if weights is None else weights[s]) for s in own]


def _fit(estimator, parts, **options):
    return fit_partitions(estimator, Elsewhere(parts), **options)


def _assert_close(model, expected, tol=1e-5):
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-9)
    assert_allclose(model.coef_, expected.coef_, atol=tol)
    assert_allclose(model.intercept_, expected.intercept_, atol=tol)
    assert_array_equal(model.classes_, expected.classes_)
    assert model.n_features_in_ == expected.n_features_in_


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    "estimator",
    [
        DropoutSVC(tol=1e-12),
        DropoutSVC(tol=1e-10, noise=None),
        DropoutLogisticRegression(tol=1e-12, noise=GaussianNoise(0.3), class_weight="balanced"),
        DropoutLogisticRegression(tol=1e-12, multi_class="ovo", class_weight={"a": 2.0}),
        MCFClassifier("exponential", tol=1e-12, noise=PoissonNoise(), C=0.1),
        DropoutSVC(tol=1e-10, l1_ratio=0.5, C=0.3),
        DropoutLogisticRegression(tol=1e-12, fit_intercept=False),
    ],
    ids=repr,
)
def test_the_same_optimum_as_of_one_matrix(estimator, layout):
    X, y, weights = _data()
    expected = clone(estimator).fit(layout(X), y, weights)
    _assert_close(_fit(estimator, _parts(layout(X), y, weights)), expected)
    assert estimator.converged_
    assert_array_equal(estimator.predict(layout(X)), expected.predict(layout(X)))


def test_features_with_one_entry_count_among_many_empty_ones():
    X, y, weights = _data()
    wide = np.zeros((len(X), 2000))
    wide[:, ::250] = X
    wide[5, 1] = wide[80, 3] = 2.0
    estimator = DropoutLogisticRegression(tol=1e-12)
    expected = clone(estimator).fit(sparse.csr_array(wide), y, weights)
    assert np.all(expected.coef_[:, [1, 3]] != 0.0)
    _assert_close(_fit(estimator, _parts(sparse.csr_array(wide), y, weights)), expected)


@pytest.mark.parametrize("kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("array", "frame")), "csr"])
def test_a_search_has_the_scores_and_the_choice_of_one_matrix_at_the_default_tol(kind):
    """Near the optimum a few labels depend on the path to it, so that the search over few rows is that in memory."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 12)) * (rng.uniform(size=(600, 12)) < 0.7)
        y, weights = (X @ rng.normal(size=12) + 3.0 * rng.normal(size=600) > 0).astype(int), rng.uniform(size=600)
        names = [f"f{d}" for d in range(12)] if kind == "frame" else None
        search = DropoutSVCCV(noises=[0.1, 0.3, 0.5, 0.8], Cs=[0.001, 0.01, 0.1, 1.0], cv=3, verbose=0)
        whole = {"array": np.asarray, "csr": sparse.csr_array, "frame": partial(pd.DataFrame, columns=names)}
        expected = clone(search).fit(whole[kind](X), y, weights)
        rows = sparse.csr_array(X) if kind == "csr" else X
        parts = [Rows(np.empty((0, 3)), np.empty(0)), *_parts(rows, y, weights, edges=(0, 100, 250, 600))]
        found = fit_estimator(search, Elsewhere(parts), feature_names=names)
        assert found is search
        assert_array_equal(found.scores_, expected.scores_)
        assert_array_equal(found.refined_, expected.refined_)
        assert found.best_index_ == expected.best_index_
        assert_array_equal(found.coef_, expected.coef_)
        assert hasattr(found, "feature_names_in_") == (kind == "frame")
        assert found.verbose == 0


def test_missing_features():
    X, y, weights = _data()
    X[np.random.default_rng(1).uniform(size=X.shape) < 0.1] = np.nan
    for noise in (0.4, GaussianNoise(0.2)):
        expected = DropoutSVC(noise=noise, missing="rescale", tol=1e-12).fit(X, y, weights)
        model = _fit(DropoutSVC(noise=noise, missing="rescale", tol=1e-12), _parts(X, y, weights))
        _assert_close(model, expected)
        assert_allclose(model.feature_means_, expected.feature_means_, rtol=1e-12)
        assert_allclose(model.feature_deviations_, expected.feature_deviations_, rtol=1e-12)
        assert_allclose(model.decision_function(X[:5]), expected.decision_function(X[:5]), atol=1e-5)
    with pytest.raises(ValueError, match="cannot distinguish zeros and NaN"):
        _fit(DropoutSVC(noise=GaussianNoise(0.2), missing="rescale"), _parts(sparse.csr_array(X), y))


def test_empty_features_have_zero_coefficients():
    X, y, _ = _data()
    wide = sparse.csr_array(sparse.hstack([sparse.csr_array((120, 3000)), X]))
    model = _fit(DropoutSVC(tol=1e-12), _parts(wide, y))
    _assert_close(model, DropoutSVC(tol=1e-12).fit(wide, y))
    assert not model.coef_[:, :3000].any()


def test_features_far_from_zero_are_solved_accurately():
    X, y, _ = _data()
    near, far = (_fit(DropoutSVC(noise=GaussianNoise(0.3), tol=1e-9), _parts(rows, y)) for rows in (X, X + 1e6))
    assert_allclose(far.coef_, near.coef_, atol=1e-3)


@pytest.mark.parametrize("estimator", [DropoutSVC(tol=1e-9), DropoutLogisticRegression(tol=1e-9)])
def test_many_rows_start_from_a_subsample_of_each_partition(estimator):
    X, y, weights = _data(n_rows=12_000, n_features=4)
    expected = clone(estimator).fit(X, y, weights)
    model = _fit(estimator, _parts(X, y, weights, edges=(0, 3000, 3000, 5555, 12_000)))
    assert_allclose(model.coef_, expected.coef_, rtol=1e-3, atol=1e-4)
    assert model.n_passes_ % 0.5 > 0.0  # a pass over the subsample counts as a tenth


def test_warm_start_and_feature_names():
    X, y, _ = _data()
    names = [f"f{i}" for i in range(8)]
    model = _fit(DropoutSVC(warm_start=True), _parts(X, y), feature_names=names)
    first = model.n_iter_
    assert_array_equal(model.feature_names_in_, names)
    assert _fit(model, _parts(X, y)).n_iter_ < first
    assert not hasattr(model, "feature_names_in_")


def test_data_frames_and_integers():
    X, y, _ = _data()
    X = np.round(3 * X).astype(int)
    expected = _fit(DropoutSVC(), _parts(X.astype(float), y))
    frames = [Rows(pd.DataFrame(rows.X), pd.Series(rows.y)) for rows in _parts(X, y)]
    assert_array_equal(_fit(DropoutSVC(), frames).coef_, expected.coef_)


def test_single_precision_if_all_partitions_have_it():
    X, y, _ = _data()
    parts = _parts(X.astype(np.float32), y)
    assert _fit(DropoutSVC(), parts).coef_.dtype == np.float32
    parts[1] = Rows(X[30:70], y[30:70])
    assert _fit(DropoutSVC(), parts).coef_.dtype == np.float64
    parts = _parts((X * 1e18).astype(np.float32), y)
    assert _fit(DropoutSVC(C=1e-30), parts).coef_.dtype == np.float64


def test_an_empty_partition_and_one_without_a_class():
    X, y, _ = _data()
    expected = _fit(DropoutSVC(), _parts(X, y))
    empty = Rows(np.empty((0, 3)), np.empty(0))  # of any width
    assert_allclose(_fit(DropoutSVC(), [empty, *_parts(X, y), empty]).coef_, expected.coef_, rtol=1e-12)
    order = np.argsort(y, kind="stable")
    lacking = _fit(DropoutSVC(tol=1e-12), _parts(X[order], y[order]))
    _assert_close(lacking, DropoutSVC(tol=1e-12).fit(X, y))


def _invalid(which, X=None, y=None, weights=None):
    parts = _parts(*_data()[:2])
    own = parts[which]
    parts[which] = Rows(own.X if X is None else X(own.X), own.y if y is None else y(own.y), weights)
    return parts


def _with(value):
    def change(X):
        X = X.copy()
        X[1, 2] = value
        return X

    return change


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (_invalid(1, X=_with(np.nan)), r"part B: X has NaN; .*missing='rescale'"),
        (_invalid(3, X=_with(np.inf)), r"part D: X has infinity in feature 2"),
        (_invalid(1, X=_with(1e200)), r"1.0e\+200 in feature 2 of part B, whose squares overflow"),
        (_invalid(1, X=lambda X: X[:, :5]), r"part B has 5 features, but part A has 8"),
        (_invalid(3, X=sparse.csr_array), r"part D is sparse, but part A is dense"),
        (_invalid(1, y=lambda y: y[:-2]), r"part B: X has 40 rows, but y has 38 labels"),
        (_invalid(1, y=lambda y: np.arange(len(y))), r"part B has numbers as labels, but part A has text"),
        (_invalid(3, y=lambda y: y[:, None].repeat(2, axis=1)), r"part D: y should be a 1d array"),
        (_invalid(1, weights=-np.ones(40)), r"part B: sample_weight must be finite and not negative"),
        (_invalid(1, weights=np.ones(39)), r"part B: sample_weight.shape"),
        ([Rows(np.empty((0, 8)), np.empty(0))] * 4, r"There are no rows"),
    ],
)
def test_errors_name_the_partition(parts, message):
    model = DropoutSVC().fit(*_data(seed=5)[:2])
    before = dict(model.__dict__)
    with pytest.raises(ValueError, match=message):
        _fit(model, parts, names=["part A", "part B", "part C", "part D"])
    assert model.__dict__ == before  # the very same arrays


def test_negative_entries_are_an_error_for_poisson_noise():
    parts = _invalid(3, X=_with(-2.0))
    with pytest.raises(ValueError, match=r"PoissonNoise needs X >= 0, but X has -2 in feature 'f2' of partition 3"):
        _fit(DropoutSVC(noise=PoissonNoise()), parts, feature_names=[f"f{i}" for i in range(8)])


def test_errors_of_all_partitions_together():
    X, y, _ = _data()
    with pytest.raises(ValueError, match="at least 2 classes"):
        _fit(DropoutSVC(), _parts(X, np.full(120, "a")))
    with pytest.raises(ValueError, match="X has 8 features, rate has shape"):
        _fit(DropoutSVC(noise=DropoutNoise([0.1, 0.2])), _parts(X, y))
    with pytest.raises(ValueError, match="C must be"):
        _fit(DropoutSVC(C=-1.0), _parts(X, y))
    with pytest.raises(ValueError, match="continuous"):
        _fit(DropoutSVC(), _parts(X, X[:, 0]))


def test_the_hinge_without_noise_under_l1():
    X, y, _ = _data()
    local = DropoutSVC(noise=None, l1_ratio=1.0).fit(X, y)
    model = _fit(DropoutSVC(noise=None, l1_ratio=1.0), _parts(X, y))
    assert model.objective_ == pytest.approx(local.objective_, rel=1e-3)


def test_the_weight_of_a_light_class_beside_a_heavy_one_keeps_its_digits():
    weights = np.array([1e14, 0.1, 0.2])
    rows = EncodedRows(Elsewhere([]), 0, 8, weights, True).open(binary_outputs(3, "ovr"))
    assert_array_equal(rows.target_weights[:, 0], [1e14, 0.1 + 0.2])
