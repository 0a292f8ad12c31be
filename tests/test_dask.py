"""`dropmargin.dask.fit` and `predict`: every kind of collection, valid and invalid, and the search over noise and C."""

from __future__ import annotations

import pickle

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import futures_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from clusters import assert_same_optimum, local_cluster, partitions, serial_fit
from dropmargin import DropoutLogisticRegression, DropoutLogisticRegressionCV, DropoutSVCCV, MCFClassifier
from dropmargin.dask import fit, predict
from dropmargin.dask.inputs import partition_rows
from dropmargin.estimators.fitting import fit_partitions
from dropmargin.model_selection import partitions as searches
from marks import says

pytestmark = pytest.mark.timeout(240)

_CHUNKS = (30, 30, 20)


@pytest.fixture(scope="module")
def client():
    with local_cluster(2) as client:
        yield client


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 4)) * (rng.uniform(size=(80, 4)) < 0.7)
    y = np.array(["a", "b", "c"])[np.argmax(X @ rng.normal(size=(4, 3)) + rng.normal(size=(80, 3)), axis=1)]
    return X, y, rng.uniform(0.5, 2.0, 80)


def quick(**options):
    return MCFClassifier(**({"noise": 0.3, "C": 0.1, "tol": 1e-9} | options))


@pytest.mark.parametrize("n_workers", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 3))])
def test_the_optimum_is_that_of_the_serial_fit(n_workers):
    with local_cluster(n_workers) as client:
        for n_parts in (1, 3, 17):
            model = DropoutLogisticRegression(C=0.1, tol=1e-10)
            expected = serial_fit(clone(model), n_parts)
            assert_same_optimum(fit_partitions(model, partitions(client, n_parts)), expected)


# Collections --------------------------------------------------------------------------------------------------------


def _collections(data, kind="dense"):
    """Return rows, labels and sample weights as collections of a kind."""
    X, y, weights = data
    arrays = (
        da.from_array(X, chunks=(_CHUNKS, 4)),
        da.from_array(y, chunks=(_CHUNKS,)),
        da.from_array(weights, chunks=(_CHUNKS,)),
    )
    if kind == "sparse":  # the meta of the array is still dense
        return arrays[0].map_blocks(sparse.csr_matrix, meta=np.empty((0, 0))), *arrays[1:]
    if kind == "unknown sizes":
        selected = da.ones(80, chunks=(_CHUNKS,), dtype=bool)
        return arrays[0][selected], arrays[1][selected], arrays[2][selected]
    if kind == "frames":
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
    X, y, weights = _collections(data, kind)
    estimator = quick()
    model = fit(estimator, X, y, weights)
    assert model is estimator
    expected = quick().fit(data[0], data[1], data[2])
    assert_allclose(model.coef_, expected.coef_, rtol=1e-3, atol=1e-5)
    assert_array_equal(model.classes_, expected.classes_)
    assert model.n_features_in_ == 4
    assert hasattr(model, "feature_names_in_") == (kind == "frames")
    found = predict(model, X)
    if isinstance(found, list):
        found = da.concatenate([da.from_delayed(part, (np.nan,), dtype="<U1") for part in found])
    assert isinstance(found, dd.Series if kind == "frames" else da.Array)
    assert_array_equal(found.compute(), expected.predict(data[0]))


def test_rows_and_labels_of_one_parquet_file_are_aligned_and_read_once(client, tmp_path):
    """Dask merges the partitions of a file if few columns are used: of the labels, and not of the rows."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(400, 8)), columns=list("stuvwxyz"))
    frame["label"] = np.where(frame["s"] + rng.normal(size=400) > 0, 1, 0)
    dd.from_pandas(frame, npartitions=4).to_parquet(tmp_path)
    read = dd.read_parquet(tmp_path)
    X, y = read[list("stuvwxyz")], read["label"]
    assert len(X.to_delayed()) != len(y.to_delayed())
    model = fit(quick(), X, y)
    assert_allclose(model.coef_, quick().fit(frame[list("stuvwxyz")], frame["label"]).coef_, rtol=1e-3, atol=1e-5)
    keys = {str(key) for part in partition_rows(X, y, None) for key in part.__dask_graph__()}
    assert sum("read_parquet" in key for key in keys) == 4


def _frames(data, order="lmno", more=()):
    """Return three delayed frames, the second with its columns in another order, and their labels."""
    frames = [pd.DataFrame(part, columns=list("lmno")) for part in np.split(data[0], np.cumsum(_CHUNKS)[:-1])]
    frames[1] = frames[1].assign(**dict.fromkeys(more, 1.0))[[*order, *more]]
    return [dask.delayed(frame) for frame in frames], _collections(data, "delayed")[1]


@pytest.mark.parametrize("search", [False, True])
def test_columns_of_delayed_frames_are_matched_by_name(search, client, data):
    X, y = _frames(data, "onlm")
    estimator = DropoutSVCCV(noises=[0.1, 0.5], Cs=[0.1], cv=2, tol=1e-2) if search else quick()
    model = fit(clone(estimator), X, y)
    whole = pd.DataFrame(data[0], columns=list("lmno"))
    expected = clone(estimator).fit(whole, data[1])
    assert_allclose(model.coef_, expected.coef_, rtol=1e-3, atol=1e-4)
    assert list(model.feature_names_in_) == list("lmno")
    for own in (model, expected):
        assert_array_equal(np.concatenate(dask.compute(*predict(own, X))), own.predict(whole))
    pairs = [dask.delayed(tuple)([rows, labels]) for rows, labels in zip(X, y, strict=True)]
    assert_allclose(fit(clone(estimator), pairs).coef_, model.coef_, rtol=1e-6, atol=1e-9)


def test_columns_of_data_frames_are_matched_by_name(client, data):
    X, y = _frames(data, "onlm")
    frame = dd.from_delayed(X, meta=pd.DataFrame(columns=list("lmno"), dtype=float), verify_meta=False)
    model = fit(quick(), frame, y)
    whole = pd.DataFrame(data[0], columns=list("lmno"))
    assert_allclose(model.coef_, quick().fit(whole, data[1]).coef_, rtol=1e-3, atol=1e-5)
    assert_array_equal(predict(model, frame).compute(), model.predict(whole))


def test_a_partition_with_other_columns_is_an_error(client, data):
    (X, y), model = _frames(data), quick()
    for order, more, match in [
        ("lmn", (), r"lacks \['o'\]; its columns must be \['l', 'm', 'n', 'o'\]"),
        ("lmn", "p", r"lacks \['o'\] and has \['p'\] in addition"),
        ("lmno", "p", r"has \['p'\] in addition"),
    ]:
        with pytest.raises(ValueError, match="partition 1: X " + match):
            fit(model, *_frames(data, order, more))
        assert not hasattr(model, "coef_")
    with pytest.raises(ValueError, match="partition 1 has no column names"):
        fit(model, [X[0], dask.delayed(np.asarray)(X[1]), X[2]], y)
    fit(model, X, y)
    with pytest.raises(ValueError, match=r"partition 1: X lacks \['o'\] and has \['p'\] in addition"):
        dask.compute(*predict(model, _frames(data, "lmn", "p")[0]))


def test_predictions_are_lazy_and_those_of_the_model(client, data):
    X, y, _ = _collections(data)
    model = fit(DropoutLogisticRegression(C=0.1, tol=1e-2), X, y)
    frame = _collections(data, "frames")[0]
    for method in ("decision_function", "predict", "predict_proba", "predict_log_proba"):
        found, expected = predict(model, X, method), getattr(model, method)(data[0])
        assert isinstance(found, da.Array)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        assert found.chunks[0] == X.chunks[0]
        assert_array_equal(found.compute(), expected)
        table = predict(model, frame, method)
        assert_array_equal(table.compute(), expected)
        assert table.ndim == 1 or list(table.columns) == list(model.classes_)
    with pytest.raises(ValueError, match=r"X has 3 features, but .* is expecting 4"):
        predict(model, X[:, :3])
    with pytest.raises(ValueError, match=says("method", "'guess'")):
        predict(model, X, "guess")


def test_predictions_of_empty_blocks_are_empty(client, data):
    X, y, _ = _collections(data)
    model = fit(quick(), X, y)
    few = X[X[:, 0] > np.sort(data[0][:, 0])[-3]]  # nearly all blocks are empty
    assert len(predict(model, few).compute()) == 2
    assert predict(model, few, "decision_function").compute().shape == (2, 3)


def test_fewer_partitions_than_workers_empty_ones_and_some_without_a_class(data):
    X, y, _ = data
    order = np.argsort(y)  # the first partition has one class only
    parts = [dask.delayed((X[own], y[own])) for own in np.array_split(order, 2)]
    empty = [dask.delayed((np.empty((0, 4)), np.empty(0, dtype=y.dtype)))]
    with local_cluster(3) as client:
        model = fit(quick(), parts, client=client)
        with_empty = fit(quick(), parts[:1] + empty + parts[1:], client=client)
        with pytest.raises(ValueError, match="no rows"):
            fit(quick(), empty, client=client)
    assert_allclose(model.coef_, quick().fit(X[order], y[order]).coef_, rtol=1e-3, atol=1e-5)
    assert_array_equal(with_empty.coef_, model.coef_)


# The search over noise and C ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("gathered", [2**24, 0], ids=["gathered", "in place"])
def test_a_search_makes_the_choice_of_the_local_one(gathered, client, data, monkeypatch):
    monkeypatch.setattr(searches, "_GATHERED_BYTES", gathered)
    X, y, _ = _collections(data)
    search = DropoutLogisticRegressionCV(noises=[0.1, 0.5], Cs=[0.1, 10.0], cv=2, tol=1e-9, prune=False, verbose=0)
    model, expected = fit(clone(search), X, y), clone(search).fit(data[0], data[1])
    assert_array_equal(model.scores_, expected.scores_)
    assert model.best_index_ == expected.best_index_
    assert_allclose(model.coef_, expected.coef_, rtol=1e-3, atol=1e-5)
    assert_array_equal(predict(model, X).compute(), expected.predict(data[0]))
    assert pickle.loads(pickle.dumps(model)).best_score_ == expected.best_score_


# Errors -------------------------------------------------------------------------------------------------------------


def test_misaligned_blocks_are_an_error_before_any_work(client, data):
    X, y, weights = _collections(data)
    with pytest.raises(ValueError, match=says("Block 0 of X has 30 rows", "that of y has 40", "rechunk")):
        fit(quick(), X, y.rechunk(((40, 20, 20),)))
    with pytest.raises(ValueError, match=says("X has 3 blocks", "sample_weight has 2")):
        fit(quick(), X, y, weights.rechunk(40))
    with pytest.raises(ValueError, match=says("X has 2 blocks along its columns", "rechunk({1: -1})")):
        fit(quick(), X.rechunk({1: 2}), y)
    with pytest.raises(ValueError, match=says("X has 3 blocks", "y has 2", "one data frame")):
        fit(quick(), _collections(data, "frames")[0], y.rechunk(40))
    with pytest.raises(ValueError, match="y is missing"):
        fit(quick(), X)


def test_an_error_names_the_partition(client, data):
    X, y, _ = _collections(data, "delayed")
    shorter = [y[0], dask.delayed(lambda part: part[:-1])(y[1]), y[2]]
    with pytest.raises(ValueError, match="partition 1: X has 30 rows, but y has 29 labels"):
        fit(quick(), X, shorter)
    rows = data[0].copy()
    rows[70, 2] = np.nan
    X = da.from_array(rows, chunks=(_CHUNKS, 4))
    model = quick()
    with pytest.raises(ValueError, match="partition 2: X has NaN"):
        fit(model, X, _collections(data)[1])
    assert not hasattr(model, "coef_")
    fit(model.set_params(missing="rescale"), X, _collections(data)[1])
    assert_array_equal(predict(model, X).compute(), model.predict(rows))
