"""Fits on a Dask cluster: the bits of the serial fit, and all kinds of collections, good and bad."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import subprocess
import sys

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, futures_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

import dropmargin
from clusters import assert_same_bits, cluster_here, partitions, serial_fit
from dropmargin import dask as on_cluster
from dropmargin.estimators.partition_fit import fit_partitions
from marks import says

pytestmark = pytest.mark.timeout(240)

CLASSES = ("DropoutSVC", "DropoutLogisticRegression", "NoisyLinearClassifier", "MCFClassifier")


@pytest.fixture(scope="module")
def client():
    with cluster_here(2) as client:
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 4)) * (rng.uniform(size=(80, 4)) < 0.7)
    y = np.array(["a", "b", "c"])[np.argmax(X @ rng.normal(size=(4, 3)) + rng.normal(size=(80, 3)), axis=1)]
    return X, y, rng.uniform(0.5, 2.0, 80)


def quick(**options):
    return on_cluster.MCFClassifier(**({"noise": 0.3, "C": 0.1, "tol": 1e-9} | options))


def local(data, weighted=False):
    X, y, weights = data
    return dropmargin.MCFClassifier(noise=0.3, C=0.1, tol=1e-9).fit(X, y, weights if weighted else None)


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_the_bits_are_those_of_the_serial_fit(n_workers):
    with cluster_here(n_workers) as client:
        for n_parts in (1, 2, 3, 8, 17):
            model = dropmargin.DropoutLogisticRegression(C=0.1, tol=1e-3)
            expected = serial_fit(clone(model), n_parts)
            assert_same_bits(fit_partitions(model, partitions(client, n_parts)), expected)


# Collections --------------------------------------------------------------------------------------------------------


def _collections(data, kind):
    X, y, weights = data
    cut = (30, 30, 20)
    arrays = da.from_array(X, chunks=(cut, 4)), da.from_array(y, chunks=(cut,)), da.from_array(weights, chunks=(cut,))
    if kind == "sparse":  # the array still says that its blocks are dense
        return arrays[0].map_blocks(sparse.csr_matrix, meta=np.empty((0, 0))), *arrays[1:]
    if kind == "unknown sizes":
        keep = da.ones(80, chunks=(cut,), dtype=bool)
        return arrays[0][keep], arrays[1][keep], arrays[2][keep]
    if kind == "frames":
        pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
        frame = pd.DataFrame(X, columns=list("pqrs")).assign(label=y, weight=weights)
        frame = dd.from_pandas(frame, npartitions=3)
        return frame[list("pqrs")], frame["label"], frame["weight"]
    if kind == "delayed":
        return tuple(list(value.to_delayed().ravel()) for value in arrays)
    if kind == "futures":
        return tuple(futures_of(dask.persist(value)[0]) for value in arrays)
    return arrays


@pytest.mark.parametrize("kind", ["dense", "sparse", "unknown sizes", "frames", "delayed", "futures"])
def test_every_collection(kind, client, data):
    dX, dy, weights = _collections(data, kind)
    model = quick().fit(dX, dy, weights)
    expected = local(data, weighted=True)
    assert_allclose(model.coef_, expected.coef_, rtol=1e-3, atol=1e-5)
    assert_array_equal(model.classes_, expected.classes_)
    assert model.n_features_in_ == 4
    assert hasattr(model, "feature_names_in_") == (kind == "frames")
    found = model.predict(dX)
    if isinstance(found, list):
        found = da.concatenate([da.from_delayed(part, (np.nan,), dtype="<U1") for part in found])
    assert isinstance(found, da.Array)
    assert_array_equal(found.compute(), expected.predict(data[0]))
    assert model.score(dX, dy) == expected.score(data[0], data[1])


@pytest.mark.parametrize("kind", ["delayed pairs", "pairs of delayed"])
def test_pairs(kind, client, data):
    parts = list(zip(*_collections(data, "delayed"), strict=True))
    pairs = [dask.delayed(tuple)(list(part)) for part in parts] if kind == "delayed pairs" else parts
    assert_allclose(quick().fit(pairs).coef_, local(data, weighted=True).coef_, rtol=1e-3, atol=1e-5)


def test_predictions_are_lazy_and_those_of_the_local_model(client, data):
    dX, dy, _ = _collections(data, "dense")
    model = on_cluster.DropoutLogisticRegression(C=0.1, tol=1e-2).fit(dX, dy)
    same = model.to_local()
    assert type(same) is dropmargin.DropoutLogisticRegression
    for method in ("decision_function", "predict", "predict_proba", "predict_log_proba"):
        found, expected = getattr(model, method)(dX), getattr(same, method)(data[0])
        assert isinstance(found, da.Array)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        assert found.chunks[0] == dX.chunks[0]
        assert_array_equal(found.compute(), expected)
        assert_array_equal(getattr(model, method)(data[0]), expected)  # data in memory: at once
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4"):
        model.predict(dX[:, :3])
    assert not hasattr(on_cluster.DropoutSVC(), "predict_proba")


def test_an_empty_block_has_empty_predictions(client, data):
    dX, dy, _ = _collections(data, "dense")
    model = quick().fit(dX, dy)
    few = dX[dX[:, 0] > np.sort(data[0][:, 0])[-3]]  # nearly all blocks are empty
    assert len(model.predict(few).compute()) == 2
    assert model.decision_function(few).compute().shape == (2, 3)


# Shapes of clusters and of partitions -------------------------------------------------------------------------------


def test_fewer_partitions_than_workers_empty_ones_and_some_without_a_class(data):
    X, y, _ = data
    order = np.argsort(y)  # the first partition has one class only
    parts = np.array_split(order, 2)
    delayed = [(dask.delayed(X[own]), dask.delayed(y[own])) for own in parts]
    empty = [(dask.delayed(np.empty((0, 4))), dask.delayed(np.empty(0, dtype=y.dtype)))]
    with cluster_here(3) as client:
        model = quick(client=client).fit(delayed)
        with_empty = quick(client=client).fit(delayed[:1] + empty + delayed[1:])
        nothing = [(dask.delayed(np.empty((0, 4))), dask.delayed(np.empty(0)))]
        with pytest.raises(ValueError, match="no rows"):
            quick(client=client).fit(nothing)
    expected = dropmargin.MCFClassifier(noise=0.3, C=0.1, tol=1e-9).fit(X[order], y[order])
    assert_allclose(model.coef_, expected.coef_, rtol=1e-3, atol=1e-5)
    assert_array_equal(with_empty.coef_, model.coef_)


# Errors -------------------------------------------------------------------------------------------------------------


def test_misaligned_blocks_are_refused_before_any_work(client, data):
    X, y, weights = (da.from_array(value, chunks=30) for value in data)
    X = X.rechunk({1: -1})
    with pytest.raises(ValueError, match=says("Block 0 of X has 30 rows", "that of y has 40", "rechunk")):
        quick().fit(X, y.rechunk(((40, 20, 20),)))
    with pytest.raises(ValueError, match=says("X has 3 blocks", "sample_weight has 2")):
        quick().fit(X, y, weights.rechunk(40))
    with pytest.raises(ValueError, match=says("X is cut along its columns", "rechunk({1: -1})")):
        quick().fit(X.rechunk({1: 2}), y)
    with pytest.raises(ValueError, match="y is needed"):
        quick().fit(X)


def test_partitions_of_unknown_sizes_that_do_not_match_are_named(client, data):
    X, y, _ = _collections(data, "delayed")
    y = [y[0], dask.delayed(lambda part: part[:-1])(y[1]), y[2]]
    with pytest.raises(ValueError, match="partition 1: X has 30 rows, but y has 29 labels"):
        quick().fit(X, y)


def test_nan_names_its_partition(client, data):
    X = data[0].copy()
    X[70, 2] = np.nan
    dX, dy = da.from_array(X, chunks=((30, 30, 20), 4)), da.from_array(data[1], chunks=((30, 30, 20),))
    model = quick()
    with pytest.raises(ValueError, match="partition 2: X has NaN"):
        model.fit(dX, dy)
    assert not hasattr(model, "coef_")
    model.set_params(missing="rescale").fit(dX, dy)
    assert_array_equal(model.predict(dX).compute(), model.to_local().predict(X))


@pytest.mark.parametrize(
    ("bad", "kind", "words"),
    [
        ({"timeout": 0.0}, ValueError, ("timeout", "0.0")),
        ({"C": -1.0}, ValueError, ("C must be",)),
        ({"client": "tcp://here"}, TypeError, ("client must be", "str")),
    ],
)
def test_bad_parameters(bad, kind, words, client, data):
    dX, dy, _ = _collections(data, "dense")
    with pytest.raises(kind, match=says(*words)):
        quick(**bad).fit(dX, dy)


def test_data_in_memory_and_no_client_are_refused_with_a_remedy(data, monkeypatch):
    with pytest.raises(TypeError, match=says("X must be a dask array", "got ndarray", "from_array")):
        quick().fit(data[0], data[1])
    dX, dy, _ = _collections(data, "dense")
    monkeypatch.setattr("dropmargin.dask.cluster.get_client", _no_client)
    with pytest.raises(ValueError, match=says("no Dask client", "client=")):
        quick().fit(dX, dy)


def _no_client():
    raise ValueError("No global client found")


def test_an_asynchronous_client_is_refused(client, data):
    dX, dy, _ = _collections(data, "dense")

    async def fit():
        async with Client(client.scheduler.address, asynchronous=True) as other:
            quick(client=other).fit(dX, dy)

    with pytest.raises(ValueError, match=says("asynchronous", "to_thread")):
        asyncio.run(fit())


def test_without_dask_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['dask'] = None\n"
        "try:\n    import dropmargin.dask\nexcept ImportError as error:\n    print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'dropmargin[dask]'" in out


# The estimators -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSES)
def test_parameters_are_those_of_the_local_class_and_the_clusters(name):
    here, there = (inspect.signature(getattr(home, name).__init__).parameters for home in (dropmargin, on_cluster))
    added = {"client": None, "timeout": 600.0}
    assert {k: v.default for k, v in there.items()} == {k: v.default for k, v in here.items()} | added
    assert list(there)[: len(here)] == list(here)
    estimator = getattr(on_cluster, name)(C=3.0, timeout=7.0)
    assert clone(estimator).get_params() == estimator.get_params()
    assert estimator.to_local().get_params() == getattr(dropmargin, name)(C=3.0).get_params()
    doc = getattr(on_cluster, name).__doc__
    assert all(f"    {parameter} : " in doc for parameter in added)
    assert f"dropmargin.{name}`" in doc


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_models_travel_without_their_client(pickler, client, data, tmp_path):
    dX, dy, _ = _collections(data, "dense")
    model = quick(client=client).fit(dX, dy)
    assert clone(model).client is client
    twin = pickle.loads(pickler.dumps(model))
    assert twin.client is None
    assert model.client is client
    assert_array_equal(twin.predict(data[0]), model.predict(dX).compute())
    assert_array_equal(pickle.loads(pickler.dumps(model.to_local())).coef_, model.coef_)
    dropmargin.save(model, tmp_path / "model.json")
    saved = dropmargin.load(tmp_path / "model.json")
    assert type(saved) is dropmargin.MCFClassifier
    assert_array_equal(saved.coef_, model.coef_)


def test_grid_search(client, data):
    dX, dy, _ = _collections(data, "dense")
    found = on_cluster.grid_search(quick(), dX, dy, noises=[0.1], Cs=[1.0, 0.01], cv=2)
    assert found.scores.shape == (2, 1, 2)
    assert_array_equal(found.Cs, [0.01, 1.0])
    i, j = found.best_index
    assert found.best_score == found.scores.mean(axis=0).max()
    best = found.best_estimator
    assert (best.noise.rate, best.C) == (found.noises[i].rate, found.Cs[j])
    assert_array_equal(best.coef_, quick().set_params(noise=best.noise, C=best.C).fit(dX, dy).coef_)
    # Held-out rows have no say: the fold's score is that of a fit to the others.
    fold = np.concatenate([np.random.default_rng([0, k]).integers(2, size=n) for k, n in enumerate((30, 30, 20))]) == 0
    X, y, _ = data
    other = dropmargin.MCFClassifier(noise=0.1, C=0.01, tol=1e-9).fit(X[~fold], y[~fold])
    assert found.scores[0, 0, 0] == other.score(X[fold], y[fold])
    with pytest.raises(TypeError, match=r"classifier of dropmargin\.dask"):
        on_cluster.grid_search(dropmargin.DropoutSVC(), dX, dy, noises=[0.1], Cs=[1.0])
