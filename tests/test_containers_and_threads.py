"""The same fit from any container, in single precision, from memory maps and frames, on any number of threads."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from datasets import N_FEATURES, assert_bitwise_equal, make_binary, make_multiclass, parameters
from dealing import deal
from dropmargin import DropoutLogisticRegression, DropoutSVC, GaussianNoise, MCFClassifier, PoissonNoise
from dropmargin.data import training
from dropmargin.noise import Noise, Variance
from invariance import CORE, ESTIMATORS, NOISES, assert_close, fit

# Containers -------------------------------------------------------------------------------------------------------

_CONTAINERS = {
    "dense F order": np.asfortranarray,
    "dense strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "list": lambda X: X.tolist(),
    **{
        f"{form}_{kind}": getattr(sparse, f"{form}_{kind}")
        for form in ("csr", "csc", "coo", "bsr", "lil")
        for kind in ("matrix", "array")
    },
}


@pytest.mark.parametrize(("kind", "name"), deal(_CONTAINERS, CORE))
def test_every_container_gives_the_dense_model(kind, name):
    X, y = make_multiclass()
    container = _CONTAINERS[kind]
    dense, other = (fit(ESTIMATORS[name], data, y, noise=0.3) for data in (X, container(X)))
    assert_close(other, dense)
    np.testing.assert_allclose(other.decision_function(container(X)), dense.decision_function(X), rtol=1e-9, atol=1e-9)


_INDEX_TYPES = [np.int32, np.int64]


def _non_canonical(X, index_type):
    """Return the same matrix with duplicate, unsorted and explicitly zero entries."""
    data, indices, indptr = [], [], [0]
    for row in X:
        for column in np.flatnonzero(row)[::-1]:  # backwards
            data += [row[column] + 3.0, -3.0]
            indices += [column, column]
        data += [0.0]
        indices += [len(row) - 1]
        indptr.append(len(data))
    out = sparse.csr_array(X.shape)
    out.data, out.indices, out.indptr = np.array(data), np.array(indices, index_type), np.array(indptr, index_type)
    return out


@pytest.mark.parametrize(
    ("noise", "kind", "index_type", "name"),
    deal([None, 0.3, PoissonNoise(), GaussianNoise(scale=0.2)], ["csr_array", "csr_matrix"], _INDEX_TYPES, CORE),
    ids=str,
)
def test_non_canonical_csr_gives_the_dense_model_and_is_left_untouched(noise, kind, index_type, name):
    X, y = make_binary()
    estimator = CORE[name]
    X = np.round(4.0 * X)  # so that duplicates add up exactly
    X[:, 5] = 0.0  # an empty column
    X[7] = 0.0  # an empty row
    messy = _non_canonical(X, index_type)
    if isinstance(noise, PoissonNoise):
        # Poisson noise may meet no negative entry, even one that a duplicate makes up for
        messy.data = np.where(messy.data == -3.0, 1.0, np.where(messy.data == 0.0, 0.0, messy.data - 4.0))
    arrays = messy.data, messy.indices, messy.indptr
    np.testing.assert_array_equal(messy.toarray(), X)
    if kind == "csr_matrix":
        messy = sparse.csr_matrix(X.shape)
        messy.data, messy.indices, messy.indptr = arrays
    before = [a.tobytes() for a in arrays]
    model = fit(estimator, messy, y, noise=noise)
    scores = model.decision_function(messy)
    assert [a.tobytes() for a in arrays] == before
    assert messy.data is arrays[0]
    assert messy.indices is arrays[1]
    dense = fit(estimator, X, y, noise=noise)
    assert_close(model, dense)
    np.testing.assert_allclose(scores, dense.decision_function(X), rtol=1e-9, atol=1e-9)


# Precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "make", "name"), deal(NOISES, [np.asarray, sparse.csr_array], CORE), ids=lambda value: str(value)[:20]
)
def test_single_precision_agrees_with_double_and_is_kept(noise, make, name):
    X, y = make_binary()
    X = X.astype(np.float32)
    estimator, noise = CORE[name], NOISES[noise]
    single = fit(estimator, make(X), y, noise=noise, tol=1e-10)
    double = fit(estimator, make(X.astype(np.float64)), y, noise=noise, tol=1e-10)
    assert single.coef_.dtype == single.intercept_.dtype == np.float32
    assert single.decision_function(make(X)).dtype == np.float32
    assert double.coef_.dtype == np.float64
    # Products of a dense X are in single precision; those of a sparse X are added in double precision.
    assert_close(parameters(single).astype(np.float64), double, bar=1e-4 if make is np.asarray else 1e-5)


# Memory maps and frames -------------------------------------------------------------------------------------------


def _memmapped(array, path):
    path = path / f"{id(array)}.npy"
    np.save(path, array)
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize(("name", "as_sparse"), deal(CORE, [False, True]))
def test_read_only_memory_maps_are_accepted(name, as_sparse, tmp_path):
    X, y = make_binary()
    estimator = CORE[name]
    weights = np.linspace(0.5, 2.0, len(y))
    if as_sparse:
        rows = sparse.csr_array(X)
        mapped = sparse.csr_array(X.shape)
        mapped.data, mapped.indices, mapped.indptr = (
            _memmapped(a, tmp_path) for a in (rows.data, rows.indices, rows.indptr)
        )
    else:
        mapped = _memmapped(X, tmp_path)
    model = fit(estimator, mapped, _memmapped(y, tmp_path), _memmapped(weights, tmp_path), noise=0.3)
    assert model.predict(mapped).shape == y.shape
    assert_close(model, fit(estimator, X, y, weights, noise=0.3))


@pytest.mark.parametrize(("name", "frame"), deal(CORE, [pd.DataFrame, pl.DataFrame]))
def test_frames_with_string_labels_give_the_array_model_and_name_the_features(name, frame):
    X, y = make_multiclass()
    estimator = CORE[name]
    names = [f"word {d}" for d in range(N_FEATURES)]
    table = frame({name: X[:, d] for d, name in enumerate(names)})
    key = "data" if frame is pd.DataFrame else "values"
    series = (pd if frame is pd.DataFrame else pl).Series(name="label", **{key: np.array(["a", "b", "c"])[y]})
    model = fit(estimator, table, series, noise=0.3)
    np.testing.assert_array_equal(model.feature_names_in_, names)
    assert_close(model, fit(estimator, X, y, noise=0.3))
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    assert set(model.predict(table)) <= {"a", "b", "c"}
    swapped = table[names[::-1]]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(swapped)


# Threads ----------------------------------------------------------------------------------------------------------

_THREADED = [
    DropoutSVC(noise=0.3),
    DropoutSVC(noise=None),
    DropoutSVC(noise=0.3, l1_ratio=1.0),
    DropoutSVC(noise=0.3, multi_class="ovo"),
    DropoutLogisticRegression(noise=GaussianNoise(scale=0.2)),
    DropoutLogisticRegression(noise=0.3, solver="irls"),
    DropoutLogisticRegression(noise=0.3, solver="lbfgs"),
    MCFClassifier("quadratic", noise=0.3),
    MCFClassifier("exponential", noise=0.3),
    MCFClassifier("logistic", noise=PoissonNoise(), l1_ratio=0.5),
]


@pytest.mark.parametrize(("estimator", "make"), deal(_THREADED, [np.asfortranarray, sparse.csr_array]), ids=str)
def test_the_number_of_threads_does_not_change_a_bit(estimator, make, monkeypatch):
    X, y = make_multiclass(n_samples=120)
    monkeypatch.setattr(training, "_BLOCK_ENTRIES", 50)
    assert X.size > 3 * 50
    one = fit(estimator, make(X), y, n_jobs=1)
    for n_jobs in (2, 3):
        other = fit(estimator, make(X), y, n_jobs=n_jobs)
        assert_bitwise_equal(other, one)
        assert other.objective_ == one.objective_
        assert other.n_iter_ == one.n_iter_


# Outputs ----------------------------------------------------------------------------------------------------------


class _CountingNoise(Noise):
    """Noise with the variance ``|x|``, which stores how many entries it is asked for."""

    asked: ClassVar[list[int]] = []

    @classmethod
    def size(cls, x):
        cls.asked.append(x.size)
        return np.abs(x)

    def variance(self):
        return Variance(entry=self.size, slope=0.1)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_outputs_share_the_variances_of_sparse_rows(n_jobs):
    X, y = make_multiclass(n_samples=120, n_features=150, n_classes=4)
    X = sparse.csr_array(X * 1.5)
    _CountingNoise.asked.clear()
    DropoutSVC(noise=_CountingNoise(), n_jobs=n_jobs).fit(X, y)
    assert sum(_CountingNoise.asked) < 1.5 * X.nnz
