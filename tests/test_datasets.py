"""Loaders of the papers' data sets, on small files of the same formats, and on the data sets if available."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from scipy import sparse

from data_set_files import MNIST, REVIEWS, idx, tar_gz, write
from reproduction.datasets import DatasetError, amazon, load_20newsgroups, load_amazon, load_cifar10, load_mnist, mnist

# The folder -----------------------------------------------------------------------------------------------------------


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
