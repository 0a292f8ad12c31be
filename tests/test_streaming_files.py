"""`dropmargin.streaming.fit`: every format, arrays, the cache, searches, and errors."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from dropmargin import DropoutLogisticRegressionCV, DropoutSVC
from dropmargin.io.data import DataFormatError, ReadOptions
from dropmargin.model_selection import partitions as searches
from dropmargin.streaming import cache as caches
from dropmargin.streaming import fit, prepare_files
from stream_data import make_rows, write_parts, write_svmlight

pytestmark = pytest.mark.timeout(120)
_OPTIONS = {"svm": None, "npz": None, "parquet": ReadOptions(target="label")}


def _fit(folder, estimator=None, kind="svm", **options):
    options = {"block_bytes": 8000, "options": _OPTIONS[kind], "progress": False} | options
    return fit(estimator or DropoutSVC(C=0.3), folder, **options)


@pytest.mark.parametrize("kind", _OPTIONS)
def test_every_format_gives_the_optimum_of_the_rows(kind, tmp_path):
    X, y = make_rows()
    model = _fit(write_parts(tmp_path / "data", X, y, kind=kind), DropoutSVC(C=0.3, tol=1e-12), kind)
    expected = DropoutSVC(C=0.3, tol=1e-12).fit(X if kind == "parquet" else sparse.csr_array(X), y)
    assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    assert_array_equal(model.classes_, [0, 1, 2])
    assert hasattr(model, "feature_names_in_") == (kind == "parquet")
    named = pd.DataFrame(X, columns=model.feature_names_in_) if kind == "parquet" else X
    assert model.score(named, y) == expected.score(X, y)


def test_columns_of_tables_are_matched_by_name(tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y, kind="parquet")
    expected = _fit(folder, kind="parquet")
    part = pd.read_parquet(folder / "part-2.parquet")
    part[part.columns[::-1]].to_parquet(folder / "part-2.parquet")
    model = _fit(folder, kind="parquet")
    assert_array_equal(model.coef_, expected.coef_)
    assert_array_equal(model.feature_names_in_, expected.feature_names_in_)


def test_a_list_of_files_is_read_in_its_order_and_weights_belong_to_it(tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 400)
    expected = _fit(folder, DropoutSVC(tol=1e-12), sample_weight=weights)
    paths = [folder / f"part-{k}.svm" for k in (2, 0, 1)]
    turned = np.concatenate([weights[151:], weights[:151]])
    model = _fit(paths, DropoutSVC(tol=1e-12), sample_weight=turned, cache=tmp_path / "elsewhere")
    assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    assert (tmp_path / "elsewhere").is_dir()


def test_a_file_without_rows_and_text_labels(tmp_path):
    X, y = make_rows()
    names = np.array(["ape", "bee", "cat"])[y]
    folder = write_parts(tmp_path / "data", X, names, kind="parquet")
    expected = _fit(folder, kind="parquet")
    pd.DataFrame({f"f{d}": np.empty(0) for d in range(12)} | {"label": np.empty(0, str)}).to_parquet(
        folder / "part-9.parquet"
    )
    model = _fit(folder, kind="parquet")
    assert_array_equal(model.coef_, expected.coef_)
    assert_array_equal(model.classes_, ["ape", "bee", "cat"])


@pytest.mark.parametrize(("first", "without"), [(0, slice(200)), (0, slice(200, None)), (1, slice(200))], ids=str)
def test_whether_indices_begin_at_0_is_decided_over_all_parts(first, without, tmp_path):
    """Of parts with and without an index 0, each alone would be read with other columns."""
    X, y = make_rows()
    X[without, 0] = 0.0
    folder = tmp_path / "data"
    folder.mkdir()
    write_svmlight(folder / "a.svm", X[:200], y[:200], first)
    write_svmlight(folder / "b.svm", X[200:], y[200:], first)
    model = _fit(folder, DropoutSVC(tol=1e-12))
    assert_allclose(model.coef_, DropoutSVC(tol=1e-12).fit(sparse.csr_array(X), y).coef_, atol=1e-5)
    told = _fit(folder, DropoutSVC(tol=1e-12), options=ReadOptions(zero_based=first == 0, n_features=12))
    assert_array_equal(told.coef_, model.coef_)


def test_prepared_files_are_neither_scanned_nor_converted_again(tmp_path, monkeypatch):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    found = prepare_files(folder, block_bytes=8000)
    assert found.shape == (400, 12)
    assert found.zero_based is False
    written = {path: path.stat().st_mtime_ns for path in found.folder.iterdir()}
    expected = _fit(folder)
    for path in folder.glob("*.svm"):  # the content decides, and not the time
        os.utime(path)
    monkeypatch.setattr(caches, "scan_files", None)
    again = prepare_files(folder, block_bytes=8000)
    assert again.zero_based is False
    assert_array_equal(_fit(folder).coef_, expected.coef_)
    assert {path: path.stat().st_mtime_ns for path in again.folder.iterdir()} == written


# The cache ----------------------------------------------------------------------------------------------------------


def _cache_of(folder):
    (found,) = (folder / caches.FOLDER).iterdir()
    return found


def test_an_edit_that_keeps_size_and_time_is_found(tmp_path):
    X, y = make_rows(n_classes=2)
    folder = write_parts(tmp_path / "data", X, y)
    before = _fit(folder)
    path = folder / "part-2.svm"
    stat, other = path.stat(), {"0": "1", "1": "0"}
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(other[line[0]] + line[1:] for line in lines))  # other labels
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    model = _fit(folder)
    assert_array_equal(model.coef_, _fit(folder, cache=tmp_path / "other").coef_)
    assert np.abs(model.coef_ - before.coef_).max() > 0.01
    _cache_of(folder)  # there is one copy


@pytest.mark.parametrize("damage", ["rows cut", "an index", "no labels", "other labels", "not json"])
def test_a_damaged_cache_is_written_again(damage, tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    expected = _fit(folder)
    cache = _cache_of(folder)
    if damage == "rows cut":
        os.truncate(cache / "0-0.npy", 1000)
    elif damage in ("an index", "indptr"):  # would crash the process
        path = cache / ("0-1.npy" if damage == "an index" else "0-2.npy")
        array = np.load(path)
        array[-5] = 2**30
        np.save(path, array)
    elif damage == "no labels":
        (cache / "1-labels.npy").unlink()
    elif damage == "other labels":
        np.save(cache / "1-labels.npy", np.arange(3))
    else:
        (cache / "manifest.json").write_text("{")
    model = _fit(folder)
    assert_array_equal(model.coef_, expected.coef_)
    assert_array_equal(_fit(folder).coef_, expected.coef_)


@pytest.mark.parametrize("at", [0, 60])
def test_a_cache_that_is_cut_during_the_fit_is_written_again(at, tmp_path, monkeypatch):
    """Reading a mapped file beyond its end would end the process."""
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    expected = _fit(folder)
    cache, fetch, n_calls = _cache_of(folder), caches.CachedPartitions.fetch, itertools.count()

    def cut_and_fetch(self, index):
        if next(n_calls) == at:
            os.truncate(cache / f"{index}-0.npy", 300)
        return fetch(self, index)

    monkeypatch.setattr(caches.CachedPartitions, "fetch", cut_and_fetch)
    assert_array_equal(_fit(folder).coef_, expected.coef_)
    assert next(n_calls) > at + 10


# Errors -------------------------------------------------------------------------------------------------------------


def _write(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ({"a_svm": "1 1:1\n", "b_csv": "x,y\n1,2\n"}, {}, "several formats: a.svm is svmlight, b.csv is csv"),
        ({"a_csv": "x,y\n1,2\n"}, {}, "a.csv is csv, which cannot be read in chunks"),
        ({"a_foo": "1"}, {}, "format of .*a.foo is not known"),
        ({}, {}, "no files in"),
        ({"a_svm": "1 1:1\n", "b_svm": "1 1:1\n2 x:1\n"}, {}, r"b.svm: this is not svmlight data"),
        (
            {"a_svm": "1 1:1\n2 3:1\n"},
            {"options": ReadOptions(zero_based=True, n_features=3)},
            "a.svm: there are 4 features",
        ),
        ({"a_svm": "1 1:1\n2 5:1\n"}, {"options": ReadOptions(n_features=3)}, "n_features|3 features"),
        ({"a_svm": "1 1:1\n", "b_svm": "1 2:1\n"}, {}, "at least 2 classes"),
        ({"a_svm": "1 1:1\n", "b_svm": "2 2:nan\n"}, {}, r"b.svm, rows 1 to 1: X has NaN"),
        ({"a_svm": "1.5 1:1\n", "b_svm": "0.3 2:1\n"}, {}, "continuous"),
        ({"a_svm": "1 1:1\n2 1:2\n"}, {"block_bytes": 0}, "block_bytes must be"),
        ({"a_svm": "1 1:1\n2 1:2\n"}, {"sample_weight": [1.0]}, "sample_weight.shape"),
    ],
)
def test_bad_files_and_parameters(files, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        fit(DropoutSVC(), _write(tmp_path / "data", **files), progress=False, **options)


def test_parts_of_tables_must_agree(tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y, kind="parquet")
    with pytest.raises(ValueError, match=r"options\.target must name"):
        fit(DropoutSVC(), folder)
    pd.DataFrame({"f0": [1.0], "label": [1]}).to_parquet(folder / "part-7.parquet")
    with pytest.raises(
        ValueError, match=r"part-7\.parquet: the columns \['f0'\], but those before have the columns \['f0', 'f1'"
    ):
        _fit(folder, kind="parquet")
    pd.DataFrame({f"f{d}": ["x"] for d in range(12)} | {"label": [1]}).to_parquet(folder / "part-7.parquet")
    with pytest.raises(DataFormatError, match=r"part-7.parquet: column 'f0' holds categories"):
        _fit(folder, kind="parquet")


@pytest.mark.parametrize("gathered", [2**24, 0])
def test_a_search_makes_the_choice_of_the_one_in_memory(gathered, tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "_GATHERED_BYTES", gathered)
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    search = DropoutLogisticRegressionCV(
        noises=[0.1, 0.5], Cs=[0.1, 10.0], cv=2, scoring="neg_log_loss", tol=1e-9, prune=False, verbose=0
    )
    expected = clone(search).fit(sparse.csr_array(X), y)
    model = _fit(folder, clone(search))
    assert_allclose(model.scores_, expected.scores_, rtol=1e-4)
    assert model.best_index_ == expected.best_index_
    assert_allclose(model.coef_, expected.coef_, rtol=1e-3, atol=1e-4)


# Arrays -------------------------------------------------------------------------------------------------------------


def test_invalid_arrays(tmp_path):
    X, y = make_rows()
    with pytest.raises(ValueError, match="two-dimensional"):
        fit(DropoutSVC(), X[0], y)
    with pytest.raises(ValueError, match="one label per row of X, 400, got the shape"):
        fit(DropoutSVC(), X, y[:-1])
    with pytest.raises(ValueError, match="y is missing"):
        fit(DropoutSVC(), X)
    with pytest.raises(ValueError, match=r"path of an \.npy file"):
        fit(DropoutSVC(), tmp_path / "X.npz", y)
    X[200, 3] = np.nan
    with pytest.raises(ValueError, match="rows 201 to 225: X has NaN"):
        fit(DropoutSVC(), X, y, block_bytes=25 * 96, cache=tmp_path)
