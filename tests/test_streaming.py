"""`dropmargin.streaming.fit`: every format, arrays, the cache and processes that share it, memory, searches, errors."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

from command_line import environment
from dropmargin import DropoutLogisticRegressionCV, DropoutNoise, DropoutSVC, NoisyLinearClassifier
from dropmargin.io.data import DataFormatError, ReadOptions
from dropmargin.model_selection import partitions as searches
from dropmargin.streaming import cache as caches
from dropmargin.streaming import fit, prepare_files
from stream_data import make_rows, set_age, write_parts, write_svmlight

pytestmark = pytest.mark.timeout(120)
_TABLE = ReadOptions(target="label")
_OPTIONS = {"svm": None, "npz": None, "parquet": _TABLE, "arrow": _TABLE, "csv": _TABLE}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(caches, "BLOCK_BYTES", 8000)


def _fit(folder, estimator=None, kind="svm", **options):
    options = {"options": _OPTIONS[kind], "progress": False} | options
    return fit(estimator or DropoutSVC(C=0.3), folder, **options)


@pytest.mark.parametrize("kind", _OPTIONS)
def test_every_format_gives_the_optimum_of_the_rows(kind, tmp_path):
    X, y = make_rows()
    model = _fit(write_parts(tmp_path / "data", X, y, kind=kind), DropoutSVC(C=0.3, tol=1e-12), kind)
    is_table = _OPTIONS[kind] is not None
    expected = DropoutSVC(C=0.3, tol=1e-12).fit(X if is_table else sparse.csr_array(X), y)
    assert_allclose(model.coef_, expected.coef_, atol=1e-5)
    assert_array_equal(model.classes_, [0, 1, 2])
    assert hasattr(model, "feature_names_in_") == is_table
    named = pd.DataFrame(X, columns=model.feature_names_in_) if is_table else X
    assert model.score(named, y) == expected.score(X, y)


def test_passes_over_files_are_counted_for_losses_of_the_mgf(tmp_path):
    """Blocks of files are made at each use: what a block in memory keeps is computed, and counted, again."""
    X, y = make_rows(n_classes=2)
    model = NoisyLinearClassifier("mcf-logistic", noise=DropoutNoise(0.2))
    in_files = _fit(write_parts(tmp_path / "data", X, y, kind="npz"), clone(model), kind="npz")
    in_memory = model.fit(X, y)
    assert in_files.n_iter_ == in_memory.n_iter_
    assert in_files.n_passes_ >= in_memory.n_passes_


def test_cells_of_csv_files_are_numbers_or_missing_and_labels_keep_their_text(tmp_path):
    X, y = make_rows(n_classes=2)
    names = np.array(["7", "x"])[y]
    names[150:] = "7"  # in these files all labels are numbers
    folder = write_parts(tmp_path / "data", X, names, kind="csv")
    text = (folder / "part-0.csv").read_text().replace("0.0,", "?,", 40).replace("0.0,", " 0.0 ,", 40)
    (folder / "part-0.csv").write_text(text)
    holes = pd.read_csv(folder / "part-0.csv", na_values="?").iloc[:, :-1].to_numpy(float)
    X[:150] = holes
    assert np.isnan(X).sum() == 40
    model = _fit(folder, DropoutSVC(C=0.3, tol=1e-12, missing="rescale"), "csv")
    assert_allclose(model.coef_, DropoutSVC(C=0.3, tol=1e-12, missing="rescale").fit(X, names).coef_, atol=1e-5)
    assert_array_equal(model.classes_, ["7", "x"])
    (folder / "part-1.csv").write_text(text.replace("?,", "1_0,", 1))
    with pytest.raises(DataFormatError, match=r"part-1\.csv: column 'f[0-9]+' holds other cells than numbers"):
        _fit(folder, kind="csv")


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
    found = prepare_files(folder)
    assert found.shape == (400, 12)
    assert found.zero_based is False
    written = {path: path.stat().st_mtime_ns for path in found.folder.iterdir()}
    expected = _fit(folder)
    for path in folder.glob("*.svm"):  # the content decides, and not the time
        os.utime(path)
    monkeypatch.setattr(caches, "scan_files", None)
    again = prepare_files(folder)
    assert again.zero_based is False
    assert_array_equal(_fit(folder).coef_, expected.coef_)
    assert {path: path.stat().st_mtime_ns for path in again.folder.iterdir()} == written
    moved = folder.rename(tmp_path / "moved")
    assert_array_equal(_fit(moved).coef_, expected.coef_)
    _cache_of(moved)  # there is one copy


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


def test_files_that_change_while_they_are_read_are_an_error(tmp_path, monkeypatch):
    folder, convert = write_parts(tmp_path / "data", *make_rows()), caches._convert

    def convert_and_edit(*given):
        (folder / "part-1.svm").write_text("1 1:1\n")
        return convert(*given)

    monkeypatch.setattr(caches, "_convert", convert_and_edit)
    with pytest.raises(ValueError, match="files changed while they were read"):
        _fit(folder)
    assert not list((folder / caches.FOLDER).iterdir())


@pytest.mark.parametrize("damage", ["rows cut", "an index", "no labels", "other labels", "not json"])
def test_a_damaged_cache_is_written_again(damage, tmp_path):
    X, y = make_rows()
    folder = write_parts(tmp_path / "data", X, y)
    expected = _fit(folder)
    cache = _cache_of(folder)
    if damage == "rows cut":
        os.truncate(cache / "0-0.npy", 1000)
    elif damage == "an index":  # would crash the process
        array = np.load(cache / "0-1.npy")
        array[-5] = 2**30
        np.save(cache / "0-1.npy", array)
        with pytest.raises(caches.DamagedCacheError):
            prepare_files(folder).fetch(0)
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


# Processes that share a cache, crashes, memory -----------------------------------------------------------------------

_PREPARE = """
import os, signal, sys, time
from dropmargin.streaming import cache, prepare_files
cache.BLOCK_BYTES = 8000
folder, home, die_at, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
save, n_calls = cache._save, [0]

def slow_save(path, array):
    n_calls[0] += 1
    if n_calls[0] == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(seconds)
    save(path, array)

cache._save = slow_save
print(prepare_files(folder, cache=home, progress=False).folder.name, n_calls[0])
"""


def _prepare(folder, home, die_at=0, seconds=0.0):
    """Start a process that converts files, and that kills itself before it writes a file of the cache."""
    command = [sys.executable, "-c", _PREPARE, str(folder), str(home), str(die_at), str(seconds)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_share_a_cache(tmp_path):
    X, y = make_rows()
    folder, home = write_parts(tmp_path / "data", X, y, kind="npz"), tmp_path / "cache"
    expected = _fit(folder, kind="npz")
    running = [_prepare(folder, home, seconds=0.02) for _ in range(2)]  # both convert
    while sum(1 for path in home.glob("partial-*")) < 2 and all(one.poll() is None for one in running):
        time.sleep(0.005)
    outputs = [one.communicate(timeout=100) for one in running]
    assert [one.returncode for one in running] == [0, 0], outputs
    (left,) = home.iterdir()  # one copy, and nothing unfinished
    assert [out.split()[0] for out, _ in outputs] == [left.name] * 2
    before = {path: path.stat().st_mtime_ns for path in left.iterdir()}
    assert_array_equal(_fit(folder, kind="npz", cache=home).coef_, expected.coef_)
    assert {path: path.stat().st_mtime_ns for path in left.iterdir()} == before


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="processes are killed by SIGKILL (POSIX)")
def test_a_conversion_that_is_killed_leaves_nothing_that_is_used(tmp_path):
    X, y = make_rows()
    folder, home = write_parts(tmp_path / "data", X, y, kind="npz"), tmp_path / "cache"
    killed = _prepare(folder, home, die_at=7)
    assert killed.wait(100) == -signal.SIGKILL
    (left,) = home.iterdir()
    assert left.name.startswith("partial-")
    expected = _fit(folder, kind="npz")
    assert_array_equal(_fit(folder, kind="npz", cache=home).coef_, expected.coef_)
    assert left.is_dir()  # it might belong to a running process
    set_age(left, hours=24)
    (left / "0-0.npy").write_bytes(b"still written to")
    _fit(folder, kind="npz", cache=home)
    assert left.is_dir()
    set_age(left, hours=24)
    _fit(folder, kind="npz", cache=home)
    assert not left.exists()


def test_a_full_disk_is_an_error_that_leaves_nothing(tmp_path):
    resource = pytest.importorskip("resource")
    X, y = make_rows()
    folder, model = write_parts(tmp_path / "data", X, y, kind="npz"), DropoutSVC()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))
    try:
        with pytest.raises(OSError, match=r"The cache cannot be written to .*: free space there, or set cache="):
            _fit(folder, model, kind="npz")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list((folder / caches.FOLDER).iterdir())
    assert not hasattr(model, "coef_")
    _fit(folder, model, kind="npz")


_PEAK = """
import sys
import numpy as np
from dropmargin import DropoutSVC
from dropmargin.io.data import ReadOptions, read_data
from dropmargin.streaming import fit

def memory(name):
    with open("/proc/self/status") as file:
        return int(dict(line.split(":", 1) for line in file)[name].split()[0]) * 1024

kind, path = sys.argv[1:]
small = np.random.default_rng(0).normal(size=(100, 3))
fit(DropoutSVC(), small, small[:, 0] > 0)  # what is loaded at the first use
options = ReadOptions(target="label") if kind == "parquet" else None
if options is not None:
    import pyarrow.dataset
before = memory("VmRSS")
estimator = DropoutSVC(C=0.01, tol=0.05, max_iter=3)
arrays = (path + "/X.npy", np.load(path + "/y.npy")) if kind == "arrays" else (path,)
fit(estimator, *arrays, options=options, progress=False)
print(memory("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize("kind", ["arrays", "npz", "parquet"])
def test_the_memory_of_a_fit_is_that_of_some_blocks(kind, tmp_path):
    """160 to 300 MB of rows, in blocks of 8 MB."""
    rng = np.random.default_rng(0)
    if kind == "arrays":
        X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float32, shape=(150_000, 500))
        for begin in range(0, 150_000, 10_000):
            X[begin : begin + 10_000] = rng.normal(size=(10_000, 500))
        np.save(tmp_path / "y.npy", X[:, 0] > rng.normal(size=150_000))
        del X
    elif kind == "parquet":  # one group of rows
        X = rng.normal(size=(200_000, 100))
        table = pd.DataFrame(X, columns=[f"f{d}" for d in range(100)]).assign(label=X[:, 0] > rng.normal(size=len(X)))
        table.to_parquet(tmp_path / "rows.parquet", row_group_size=len(X), use_dictionary=False, compression=None)
        del X, table
    else:
        rows = sparse.random_array((1_000, 10_000), density=0.1, random_state=rng, format="csr")
        y = (rows @ rng.normal(size=10_000) > 0.0).astype(int)
        rows, y = sparse.vstack([rows] * 25, format="csr"), np.tile(y, 25)
        np.savez(tmp_path / "rows.npz", data=rows.data, indices=rows.indices, indptr=rows.indptr, shape=rows.shape, y=y)
        del rows
    command = [sys.executable, "-W", "ignore", "-c", _PEAK, kind, str(tmp_path)]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 130e6


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
        ({"a_jsonl": "{}\n"}, {}, "a.jsonl is jsonl, which cannot be read in chunks"),
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
        ({"a_svm": "1 1:1\n2 1:2\n"}, {"sample_weight": [1.0]}, "sample_weight.shape"),
    ],
    ids=[
        *("formats", "chunks", "unknown", "no files", "not svmlight", "too wide", "n_features", "one class", "NaN"),
        *("continuous", "weights"),
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
    with pytest.raises(DataFormatError, match=r"part-7.parquet: column 'f0' holds other cells"):
        _fit(folder, kind="parquet")


@pytest.mark.parametrize("gathered", [2**24, 0], ids=["gathered", "in place"])
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
    with pytest.raises(ValueError, match="rows 167 to 249: X has NaN"):
        fit(DropoutSVC(), X, y)
