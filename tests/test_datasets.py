"""Loaders of the papers' data sets, on small files of the same formats, and on the data sets if available."""

from __future__ import annotations

import gzip
import hashlib
import inspect
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from data_set_files import MNIST, REVIEWS, SHARED, idx, tar_gz, write
from dropmargin.io.data import DataFormatError
from reproduction.datasets import (
    DatasetError,
    amazon,
    data_folder,
    load_20newsgroups,
    load_amazon,
    load_cifar10,
    load_mnist,
    mnist,
)
from reproduction.datasets.reviews import Reviews

# The folder -----------------------------------------------------------------------------------------------------------


def test_data_folder_is_argument_or_environment_variable_or_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("DROPMARGIN_DATA", str(tmp_path / "variable"))
    assert data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert data_folder() == tmp_path / "variable"
    monkeypatch.setenv("DROPMARGIN_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert data_folder() == tmp_path / "dropmargin"
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_folder() == Path.home() / "Library" / "Caches" / "dropmargin"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert data_folder() == tmp_path / "local" / "dropmargin"
    with pytest.raises(TypeError, match=r"data_home must be a path, or None.*got 3"):
        data_folder(3)


@pytest.mark.parametrize("load", [load_mnist, load_cifar10, load_20newsgroups, lambda **kw: load_amazon("dvd", **kw)])
def test_missing_file_without_download_is_an_error_of_one_sentence(load, tmp_path):
    with pytest.raises(DatasetError) as caught:
        load(data_home=tmp_path, download=False)
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path) in message
    assert "download=False" in message
    assert "http" in message
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


# Amazon ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def few_reviews(monkeypatch):
    monkeypatch.setattr(amazon, "_N_LABELLED", 2)
    monkeypatch.setattr(amazon, "_N_TEST", dict.fromkeys(amazon.DOMAINS, 3))


def _write_official(folder, layout, reviews=REVIEWS):
    files = {f"processed_acl/books/{part}.review": text.encode() for part, text in reviews.items()}
    if layout == "archive":
        write(folder / "processed_acl.tar.gz", tar_gz({"processed_acl/dvd/positive.review": b"x", **files}))
        return
    for name, text in files.items():
        write(folder / (name + (".gz" if layout == "gzipped" else "")), text)


@pytest.mark.parametrize("layout", ["plain", "gzipped", "archive"])
def test_official_reviews(layout, tmp_path, few_reviews):
    _write_official(tmp_path, layout)
    split = load_amazon("books", features=4, data_home=tmp_path, download=False)
    # These are in 4, 3, 2 and 2 reviews of both parts. Features of one review, such as a:b, are not selected.
    assert split.feature_names == ("the", "bad", "dull", "good")
    assert split.X_train.toarray().tolist() == [[0, 0, 0, 2], [4, 0, 0, 1], [1, 1, 0, 0], [0, 2, 1, 0]]
    assert split.X_test.toarray().tolist() == [[1, 1, 0, 0], [2, 0, 1, 0], [0, 0, 0, 0]]
    assert split.y_train.tolist() == [1, 1, -1, -1]
    assert split.y_test.tolist() == [-1, 1, 1]
    assert split.target_names == ("negative", "positive")
    assert isinstance(split.X_train, sparse.csr_array)
    assert split.X_train.dtype == np.float64
    assert str(tmp_path) in split.description


def test_features_of_equal_frequency_are_ordered_by_name(tmp_path, few_reviews):
    _write_official(tmp_path, "plain")
    names = load_amazon("books", data_home=tmp_path, download=False).feature_names
    assert names == ("the", "bad", "dull", "good", "a:b", "good_book", "new", "rare")


def test_features_may_contain_colons_and_any_bytes():
    reviews = Reviews()
    reviews.add(b"http://a:80:2 \xff:1 :::3 dup:1 dup:2 none:0 #label#:negative\r\n\n", "file")
    X, names = reviews.matrix(100)
    found = dict(zip(names, X.toarray()[0].tolist(), strict=True))
    assert found == {"http://a:80": 2.0, "\\xff": 1.0, "::": 3.0, "dup": 3.0, "none": 0.0}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("good:1", "should end in #label#:positive or #label#:negative, not in 'good:1'"),
        ("good:1 #label#:neutral", "not in '#label#:neutral'"),
        ("good #label#:positive", "'good' is not feature:count"),
        (":1 #label#:positive", "':1' is not feature:count"),
        ("good:-1 #label#:positive", "'good:-1' is not"),
        ("good:1.5 #label#:positive", "'good:1.5' is not"),
        (f"good:{10**9} #label#:positive", "is not feature:count"),
    ],
)
def test_error_names_the_invalid_line(line, what, tmp_path, few_reviews):
    _write_official(tmp_path, "plain", REVIEWS | {"negative": f"bad:1 #label#:negative\n{line}\n"})
    with pytest.raises(DataFormatError) as caught:
        load_amazon("books", data_home=tmp_path, download=False)
    assert str(caught.value).startswith(str(tmp_path / "processed_acl/books/negative.review") + ":2: ")
    assert what in str(caught.value)


def test_wrong_number_of_reviews_is_an_error(tmp_path, few_reviews):
    _write_official(tmp_path, "plain", REVIEWS | {"unlabeled": "a:1 #label#:positive\n"})
    with pytest.raises(DataFormatError, match=r"unlabeled\.review: 1 reviews, the official file has 3"):
        load_amazon("books", data_home=tmp_path, download=False)


def _write_amazon5k(folder):
    write(folder / "amazon5k/books_train.svmlight.gz", "1 0:1 4999:2\n-1 0:1 7:1\n")
    write(folder / "amazon5k/books_test.svmlight.gz", "-1 0:3 7:1\n")


def _write_amazon20k(folder, labels=(1, -1)):
    place = folder / "amazon20k"
    write(place / "vocab20000.txt", "i\nnot\nwas\n")
    X = sparse.csr_array(np.array([[1, 0, 2], [0, 0, 3]], dtype=np.float32))
    for part in ("train", "test"):
        sparse.save_npz(place / f"books_{part}_X.npz", X)
        np.save(place / f"books_{part}_y.npy", np.array(labels, dtype=np.int8))


def test_other_forms(tmp_path):
    _write_amazon5k(tmp_path)
    _write_amazon20k(tmp_path)
    split = load_amazon("books", form="amazon5k", data_home=tmp_path)
    assert split.X_train.shape == (2, 5000)
    assert split.X_train.toarray()[0, [0, 4999]].tolist() == [1.0, 2.0]
    assert split.X_test.toarray()[0, [0, 7]].tolist() == [3.0, 1.0]
    assert split.y_train.tolist() == [1, -1]
    assert split.feature_names is None
    split = load_amazon("books", form="amazon20k", data_home=tmp_path)
    assert split.feature_names == ("i", "not", "was")
    assert split.X_test.toarray().tolist() == [[1, 0, 2], [0, 0, 3]]
    assert (split.X_test.dtype, split.y_test.dtype) == (np.float64, np.int64)


def test_other_forms_with_fewer_features(tmp_path):
    _write_amazon5k(tmp_path)
    _write_amazon20k(tmp_path)
    split = load_amazon("books", features=2, form="amazon5k", data_home=tmp_path)
    assert split.X_train.toarray().tolist() == [[1, 0], [1, 1]]
    assert split.X_test.toarray().tolist() == [[3, 1]]
    assert load_amazon("books", features=2, form="amazon20k", data_home=tmp_path).feature_names == ("was", "i")


def test_auto_is_the_first_complete_form(tmp_path, few_reviews):
    _write_amazon20k(tmp_path)
    assert load_amazon("books", data_home=tmp_path).X_train.shape == (2, 3)
    (tmp_path / "amazon20k/vocab20000.txt").unlink()
    with pytest.raises(DatasetError, match=r"unlabeled\.review is missing"):
        load_amazon("books", data_home=tmp_path, download=False)
    _write_amazon20k(tmp_path)
    _write_amazon5k(tmp_path)
    assert load_amazon("books", data_home=tmp_path).X_train.shape == (2, 5000)
    _write_official(tmp_path, "plain")
    (tmp_path / "processed_acl/books/unlabeled.review").unlink()
    assert load_amazon("books", data_home=tmp_path).X_train.shape == (2, 5000)
    with pytest.raises(DatasetError) as caught:
        load_amazon("books", form="processed_acl", data_home=tmp_path, download=False)
    assert str(caught.value).startswith(f"{tmp_path / 'processed_acl/books/unlabeled.review'} is missing")
    assert "use form='amazon5k' or form='amazon20k'" in str(caught.value)
    _write_official(tmp_path, "plain")
    assert load_amazon("books", data_home=tmp_path).X_train.shape == (4, 8)


def test_invalid_files_of_other_forms(tmp_path):
    _write_amazon20k(tmp_path, labels=(0, 1))
    with pytest.raises(DataFormatError, match=r"books_train_y\.npy: there should be 2 labels, each -1 or 1"):
        load_amazon("books", data_home=tmp_path)
    np.save(tmp_path / "amazon20k/books_train_y.npy", np.array([print, print], dtype=object), allow_pickle=True)
    with pytest.raises(DataFormatError, match=r"books_train_y\.npy: this is not an array"):
        load_amazon("books", data_home=tmp_path)
    header = b"{'descr': '|i1', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    huge = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    for data in (huge, huge.replace(b"}", b"("), huge[:20], b"", b"PK\x03\x04"):
        (tmp_path / "amazon20k/books_train_y.npy").write_bytes(data)
        with pytest.raises(DataFormatError, match=r"books_train_y\.npy: this is not an array"):
            load_amazon("books", data_home=tmp_path)
    _write_amazon20k(tmp_path)
    write(tmp_path / "amazon20k/vocab20000.txt", "i\nnot\n")
    with pytest.raises(DataFormatError, match=r"vocab20000\.txt: 2 names, but books_train_X\.npz has 3 columns"):
        load_amazon("books", data_home=tmp_path)
    with pytest.raises(DatasetError, match=r"kitchen_train_X\.npz is missing.*form='processed_acl'"):
        load_amazon("kitchen", form="amazon20k", data_home=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"domain": "toys"}, r"domain must be one of \['books', .*got 'toys'"),
        ({"form": "csv"}, r"form must be one of \['auto', 'processed_acl', .*got 'csv'"),
        ({"features": 0}, "features must be an integer of at least 1, got 0"),
        ({"features": True}, "features must be an integer of at least 1, got True"),
    ],
)
def test_bad_arguments_of_amazon(arguments, what, tmp_path):
    with pytest.raises(ValueError, match=what):
        load_amazon(**({"domain": "books", "data_home": tmp_path} | arguments))


# MNIST ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_mnist(monkeypatch):
    sums = {name: hashlib.sha256(idx(array)).hexdigest() for name, array in MNIST.items()}
    monkeypatch.setattr(mnist, "_SHA256", sums)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_mnist(ending, tmp_path, small_mnist):
    for name, array in MNIST.items():
        write(tmp_path / "mnist" / (name.removesuffix(".gz") + ending), idx(array))
    split = load_mnist(data_home=tmp_path, download=False)
    assert (split.X_train.dtype, split.X_train.shape, split.X_test.shape) == (np.float32, (7, 784), (4, 784))
    expected = MNIST["train-images-idx3-ubyte.gz"].reshape(7, 784).astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(split.X_train, expected)
    assert split.y_train.tolist() == [3, 1, 4, 1, 5, 9, 2]
    assert split.y_test.tolist() == [6, 5, 3, 5]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not an idx file of unsigned bytes in 3 dimensions"),
        (bytes([0, 0, 13, 3]) + bytes(12), "not an idx file of unsigned bytes in 3 dimensions"),
        (idx(np.zeros(5)) + bytes(20), "not an idx file of unsigned bytes in 3 dimensions"),
        (idx(np.zeros((2, 28, 28)))[:-1], "the header says 1568 bytes .* but there are fewer"),
        (idx(np.zeros((2, 28, 28))) + b"x", "the header says 1568 bytes .* but there are more"),
        (bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**31, 28, 28), "unpack to .* or more"),
    ],
)
def test_invalid_mnist_files(data, what, tmp_path, small_mnist):
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    write(path, data)
    with pytest.raises(DataFormatError, match=what) as caught:
        load_mnist(data_home=tmp_path, download=False)
    assert str(caught.value).startswith(f"{path}: ")


def test_mnist_files_with_other_checksums_are_refused(tmp_path, small_mnist):
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    write(path, idx(MNIST[path.name] ^ 1))
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte\.gz is not the original .*replace it by .*http"):
        load_mnist(data_home=tmp_path, download=False)
    path.write_bytes(gzip.compress(idx(MNIST[path.name]))[:-20])
    with pytest.raises(DataFormatError, match="broken gzip data"):
        load_mnist(data_home=tmp_path, download=False)


# 20 newsgroups --------------------------------------------------------------------------------------------------------


def _news20():
    arrays = {"n_features": np.array(3)}
    for part, n in (("train", 3), ("test", 2)):
        arrays |= {f"{part}_indptr": np.arange(n + 1), f"{part}_indices": np.arange(n) % 3}
        arrays |= {f"{part}_data": np.full(n, 2, dtype=np.float32), f"{part}_y": 19 - np.arange(n)}
    return arrays


def test_newsgroups_of_arrays(tmp_path):
    np.savez_compressed(tmp_path / "news20.npz", **_news20())
    split = load_20newsgroups(data_home=tmp_path, download=False)
    assert split.X_train.toarray().tolist() == (2 * np.eye(3)).tolist()
    assert split.X_test.shape == (2, 3)
    assert split.y_train.tolist() == [19, 18, 17]
    assert split.target_names[19] == "talk.religion.misc"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"train_indices": np.array([0, 1, 3])}, "the train matrix is invalid"),
        ({"test_indptr": np.array([0, 2, 1])}, "the test matrix is invalid"),
        ({"train_y": np.array([0, 1, 20])}, "train_y does not fit"),
        ({"train_y": np.array([0, 1])}, "train_y does not fit"),
        ({"n_features": np.array(2**40)}, "n_features is 1099511627776"),
        ({"train_data": np.array([print] * 3, dtype=object)}, "'train_data'"),
    ],
)
def test_invalid_newsgroups(change, what, tmp_path):
    np.savez(tmp_path / "news20.npz", allow_pickle=True, **(_news20() | change))
    with pytest.raises(DataFormatError, match=what):
        load_20newsgroups(data_home=tmp_path, download=False)


def test_newsgroups_by_scikit_learn(monkeypatch, tmp_path):
    asked = []

    def fetch(*, subset, data_home, download_if_missing, n_retries):
        asked.append((subset, data_home, download_if_missing))
        documents = {"train": ["spam and eggs", "eggs and eggs", "ham"], "test": ["eggs spam and ham and"]}[subset]
        return SimpleNamespace(data=documents, target=np.arange(len(documents)), target_names=["a", "b", "c"])

    monkeypatch.setattr("sklearn.datasets.fetch_20newsgroups", fetch)
    split = load_20newsgroups(data_home=tmp_path, download=False)
    assert split.feature_names == ("and", "eggs")
    assert split.X_train.toarray().tolist() == [[1, 1], [1, 2], [0, 0]]
    assert split.X_test.toarray().tolist() == [[2, 1]]
    assert (split.y_train.tolist(), split.y_test.tolist()) == ([0, 1, 2], [0])
    assert asked == [("train", tmp_path, False), ("test", tmp_path, False)]


# Original data sets --------------------------------------------------------------------------------------------------


def _need(name):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not in {SHARED}; set DROPMARGIN_DATA to the folder that has it")


@pytest.mark.parametrize(
    ("domain", "form", "n_test", "n_features"),
    [
        ("books", "amazon5k", 4465, 5000),
        ("kitchen", "amazon5k", 5945, 5000),
        ("books", "amazon20k", 5696, 20_000),
        ("kitchen", "amazon20k", 5757, 20_000),
    ],
)
def test_real_reviews(domain, form, n_test, n_features):
    _need(form)
    split = load_amazon(domain, form=form, data_home=SHARED, download=False)
    assert (split.X_train.shape, split.X_test.shape) == ((2000, n_features), (n_test, n_features))
    assert split.y_train.sum() == 0


@pytest.mark.parametrize("domain", ["books", "kitchen"])
def test_official_files_and_amazon20k_have_the_same_counts(domain):
    """Every count of the 20,000 features in the 2,000 training reviews, read in two formats."""
    _need(f"processed_acl/{domain}")
    _need("amazon20k")
    reviews = Reviews()
    labels = []
    for part in ("positive", "negative"):
        path = SHARED / "processed_acl" / domain / f"{part}.review.gz"
        labels.append(reviews.add(gzip.decompress(path.read_bytes()), str(path))[1])
    X, names = reviews.matrix(10**9)
    split = load_amazon(domain, form="amazon20k", data_home=SHARED, download=False)
    column_of = {name: column for column, name in enumerate(names)}
    shared = [column for column, name in enumerate(split.feature_names) if name in column_of]
    ours = X[:, [column_of[split.feature_names[column]] for column in shared]]
    assert abs(ours - split.X_train[:, shared]).sum() == 0
    assert ours.sum() == split.X_train.sum()
    np.testing.assert_array_equal(np.concatenate(labels), split.y_train)


def test_real_mnist():
    _need("mnist")
    split = load_mnist(data_home=SHARED, download=False)
    assert (split.X_train.shape, split.X_test.shape) == ((60_000, 784), (10_000, 784))
    assert (split.X_train.min(), split.X_train.max()) == (0.0, 1.0)
    assert np.bincount(split.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_real_newsgroups():
    _need("news20.npz")
    split = load_20newsgroups(data_home=SHARED, download=False)
    assert (split.X_train.shape, split.X_test.shape) == ((11_314, 56_438), (7_532, 56_438))
    assert np.unique(split.y_train).tolist() == list(range(20))


def test_real_cifar10():
    _need("cifar-10-batches-bin")
    split = load_cifar10(data_home=SHARED, download=False)
    assert (split.X_train.shape, split.X_test.shape) == ((50_000, 32, 32, 3), (10_000, 32, 32, 3))
    assert np.bincount(split.y_train).tolist() == [5000] * 10
    # The published means of the three channels of the training images.
    np.testing.assert_allclose(split.X_train.mean(axis=(0, 1, 2)) / 255, [0.4914, 0.4822, 0.4465], atol=1e-4)


def test_options_are_keyword_only():
    for load in (load_amazon, load_mnist, load_cifar10, load_20newsgroups):
        kinds = {name: parameter.kind for name, parameter in inspect.signature(load).parameters.items()}
        kinds.pop("domain", None)
        assert set(kinds.values()) == {inspect.Parameter.KEYWORD_ONLY}
