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
from sklearn.svm import LinearSVC

from dropmargin import DropoutLogisticRegression, DropoutLogisticRegressionCV, DropoutSVC
from dropmargin.io.data import DataFormatError, ReadOptions
from dropmargin.model_selection import partitions as searches
from dropmargin.streaming import cache as caches
from dropmargin.streaming import fit, prepare_files
from dropmargin.streaming.blocks import FileBlocks
from dropmargin.streaming.memory import parse_size
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


@pytest.mark.parametrize("limit", ["1GB", "4GB"])
@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_threads_and_memory_change_no_bit(n_jobs, limit, tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    model = _fit(folder, DropoutSVC(n_jobs=n_jobs), memory_limit=limit)
    assert_array_equal(model.coef_, _fit(folder, DropoutSVC()).coef_)


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


@pytest.mark.parametrize("first", [0, 1])
def test_whether_indices_begin_at_0_is_decided_over_all_parts(first, tmp_path):
    """Of parts with and without an index 0, each alone would be read with other columns."""
    X, y = make_rows()
    X[:200, 0] = 0.0
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
    written = {path: path.stat().st_mtime_ns for path in found.blocks.folder.iterdir()}
    expected = _fit(folder)
    for path in folder.glob("*.svm"):  # the content decides, and not the time
        os.utime(path)
    monkeypatch.setattr(caches, "scan_files", None)
    again = prepare_files(folder, block_bytes=8000)
    assert again.zero_based is False
    assert_array_equal(_fit(folder).coef_, expected.coef_)
    assert {path: path.stat().st_mtime_ns for path in again.blocks.folder.iterdir()} == written


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


def test_one_copy_for_all_memory_limits_and_a_checkpoint_of_another_one(tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    models = [
        fit(DropoutSVC(), folder, memory_limit=limit, checkpoint=tmp_path / "fit.log", progress=False)
        for limit in ("1GB", "4GB", "64GB")
    ]
    assert len(list((folder / caches.FOLDER).iterdir())) == 1
    for model in models[1:]:
        assert_array_equal(model.coef_, models[0].coef_)


def _flip(path, where):
    content = bytearray(path.read_bytes())
    content[where] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["rows", "rows cut", "manifest", "labels", "no labels", "not json"])
def test_a_damaged_cache_is_written_again(damage, tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    expected = _fit(folder)
    cache = _cache_of(folder)
    if damage == "rows":
        _flip(cache / "0.rows", 1000)
    elif damage == "rows cut":
        os.truncate(cache / "0.rows", 1000)
    elif damage == "manifest":
        _flip(cache / "manifest.json", 30)
    elif damage == "labels":
        _flip(cache / "1-labels.npy", -7)
    elif damage == "no labels":
        (cache / "1-labels.npy").unlink()
    else:
        (cache / "manifest.json").write_text("{")
    model = _fit(folder)
    assert_array_equal(model.coef_, expected.coef_)
    assert_array_equal(_fit(folder).coef_, expected.coef_)


@pytest.mark.parametrize("at", [0, 5, 60])
def test_a_cache_that_is_cut_during_the_fit_is_written_again(at, tmp_path, monkeypatch):
    """Reading a mapped file beyond its end would end the process."""
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    expected = _fit(folder)
    cache, fetch, n_calls = _cache_of(folder), FileBlocks.fetch, itertools.count()

    def cut_and_fetch(self, index):
        if next(n_calls) == at:
            os.truncate(cache / f"{index}.rows", 300)
        return fetch(self, index)

    monkeypatch.setattr(FileBlocks, "fetch", cut_and_fetch)
    monkeypatch.setattr(FileBlocks, "keep", lambda self, room: None)  # every block is read at every pass
    assert_array_equal(_fit(folder).coef_, expected.coef_)
    assert next(n_calls) > at + 10


def test_a_stale_cache_is_written_again(tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    before = _fit(folder)
    write_svmlight(folder / "part-1.svm", X[:40], y[:40])
    after = _fit(folder)
    assert not np.array_equal(before.coef_, after.coef_)
    assert _cache_of(folder).is_dir()  # one, and no leftovers


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
        ({"a_svm": "1 1:1\n", "b_svm": "1 1:1\n2 x:1\n"}, {}, r"b.svm:2:3"),
        ({"a_svm": "1 1:1\n2 3:1\n"}, {"options": ReadOptions(zero_based=True, n_features=3)}, "a.svm:2"),
        ({"a_svm": "1 1:1\n2 5:1\n"}, {"options": ReadOptions(n_features=3)}, "n_features|3 features"),
        ({"a_svm": "1 1:1\n", "b_svm": "1 2:1\n"}, {}, "at least 2 classes"),
        ({"a_svm": "1 1:1\n", "b_svm": "2 2:nan\n"}, {}, r"b.svm, rows 1 to 1: X has NaN"),
        ({"a_svm": "1.5 1:1\n", "b_svm": "0.3 2:1\n"}, {}, "continuous"),
        ({"a_svm": "1 1:1\n2 1:2\n"}, {"memory_limit": "much"}, "memory_limit must be"),
        ({"a_svm": "1 1:1\n2 1:2\n"}, {"memory_limit": "5MB"}, "memory_limit=5 MB is too small: Converting"),
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


def test_labels_must_be_all_text_or_all_numbers(tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y, kind="parquet")
    pd.DataFrame({f"f{d}": [1.0] for d in range(12)} | {"label": ["ant"]}).to_parquet(folder / "part-7.parquet")
    message = r"part-7.parquet, rows 1 to 1 has text as labels, but .*part-0.parquet, rows 1 to .* has numbers"
    with pytest.raises(ValueError, match=message):
        _fit(folder, kind="parquet")


def test_parts_of_archives_must_agree(tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y, kind="npz")
    np.savez(folder / "part-7.npz", X=X[:, :3], y=y)
    with pytest.raises(DataFormatError, match=r"part-7.npz: 3 features, but those before have 12"):
        _fit(folder, kind="npz")
    np.savez(folder / "part-7.npz", X=X)
    with pytest.raises(DataFormatError, match=r"part-7.npz: there are no labels"):
        _fit(folder, kind="npz")
    np.savez(folder / "part-7.npz", X=X, y=y[:-1])
    with pytest.raises(DataFormatError, match=r"part-7.npz: the array 'y' has the shape"):
        _fit(folder, kind="npz")
    np.savez(folder / "part-7.npz", X=X.astype(np.float32), y=y)
    assert not list((folder / caches.FOLDER).iterdir())  # no incomplete cache
    with pytest.raises(ValueError, match=r"part-7.npz, rows 1 to .* is dense, but .*part-0.npz, rows .* is sparse"):
        _fit(folder, kind="npz")


@pytest.mark.parametrize("first", [np.float32, np.float64])
def test_parts_of_single_and_double_precision_are_all_read_in_double_precision(first, tmp_path):
    X, y = make_rows()
    X = X.astype(np.float32)
    other = np.float64 if first == np.float32 else np.float32
    for name, types in {"mixed": (first, other), "double": (np.float64, np.float64)}.items():
        (tmp_path / name).mkdir()
        for k, dtype in enumerate(types):
            np.savez(tmp_path / name / f"part-{k}.npz", X=X[k::2].astype(dtype), y=y[k::2])
    mixed, double = (_fit(tmp_path / name, block_bytes=10**6) for name in ("mixed", "double"))
    assert mixed.coef_.dtype == np.float64
    assert_array_equal(mixed.coef_, double.coef_)
    assert not list((tmp_path / "mixed" / caches.FOLDER).glob("partial-*"))


def test_a_mapped_file_that_becomes_shorter_is_an_error_and_no_crash(tmp_path):
    X, y = make_rows()
    path = tmp_path / "rows.npy"
    np.save(path, np.tile(X, (100, 1)))
    mapped, labels = np.load(path, mmap_mode="r"), np.tile(y, 100)
    os.truncate(path, 5000)
    with pytest.raises(ValueError, match="has become shorter"):
        fit(DropoutSVC(), mapped, labels, cache=tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"rows.npy' is not an .npy file, or is damaged"):
        fit(DropoutSVC(), path, labels, cache=tmp_path, progress=False)


def test_a_limit_that_is_too_small_for_the_fit_alone(tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y, kind="npz")
    _fit(folder, kind="npz")  # now the cache is there
    with pytest.raises(ValueError, match=r"memory_limit=1 MB is too small: the fit needs at least"):
        _fit(folder, kind="npz", memory_limit="1MB")
    (folder / "part-0.npz").write_bytes((folder / "part-1.npz").read_bytes())
    with pytest.raises(ValueError, match=r"memory_limit=1 MB is too small: .*part-2\.npz, which is read at once"):
        _fit(folder, kind="npz", memory_limit="1MB")


def test_other_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        fit(DropoutSVC(), tmp_path / "nowhere.svm")
    with pytest.raises(TypeError, match="estimator must be"):
        fit(LinearSVC(), tmp_path)
    with pytest.raises(ValueError, match="C must be"):
        fit(DropoutSVC(C=-1.0), tmp_path / "nowhere.svm")


@pytest.mark.parametrize("gathered", [2**24, 0])
def test_a_search_makes_the_choice_of_the_one_in_memory_and_is_resumed(gathered, tmp_path, monkeypatch):
    monkeypatch.setattr(searches, "_GATHERED_BYTES", gathered)
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    search = DropoutLogisticRegressionCV(
        noises=[0.1, 0.5], Cs=[0.1, 10.0], cv=2, scoring="neg_log_loss", tol=1e-9, prune=False, verbose=0
    )
    expected = clone(search).fit(sparse.csr_array(X), y)
    models = [_fit(folder, clone(search), checkpoint=tmp_path / "fit.log") for _ in range(2)]
    for model in models:
        assert_allclose(model.scores_, expected.scores_, rtol=1e-4)
        assert model.best_index_ == expected.best_index_
        assert_array_equal(model.coef_, models[0].coef_)
    assert_allclose(models[0].coef_, expected.coef_, rtol=1e-3, atol=1e-4)


# Arrays -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_memory_mapped_arrays(dtype, tmp_path):
    X, y = make_rows()
    X = np.round(10 * X).astype(dtype)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    options = {"block_bytes": 5000, "cache": tmp_path, "progress": False}
    models = [
        fit(DropoutLogisticRegression(tol=1e-10), rows, y, **options)
        for rows in (mapped, X, tmp_path / "X.npy", np.asfortranarray(X))
    ]
    expected = DropoutLogisticRegression(tol=1e-10).fit(X, y)
    for model in models:
        assert_array_equal(model.coef_, models[0].coef_)
        assert_allclose(model.coef_, expected.coef_, atol=1e-4)
    assert model.coef_.dtype == expected.coef_.dtype


def test_changes_of_a_private_mapping_are_not_lost(tmp_path):
    X, y = make_rows()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="c")
    mapped[:, 2] = 7.0
    expected = mapped.copy()
    fit(DropoutSVC(), mapped, y, block_bytes=5000, cache=tmp_path, progress=False)
    assert_array_equal(mapped, expected)


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


@pytest.mark.parametrize(
    ("text", "size"), [("2GB", 2 * 10**9), ("1.5 GiB", 3 * 2**29), ("500mb", 5 * 10**8), (7, 7), ("12", 12)]
)
def test_sizes(text, size):
    assert parse_size("x", text) == size
