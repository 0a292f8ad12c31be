"""Loaders of the papers' data sets: small files of the same formats, downloads, malicious pickles."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle

import numpy as np
import pytest
from scipy import sparse

from data_set_files import MNIST, REVIEWS, binary_batch, cifar_batches, idx, md5, python_batch, serving, tar_gz, write
from dropmargin.io.data import DataFormatError
from reproduction.datasets import (
    DatasetError,
    amazon,
    cifar10,
    load_20newsgroups,
    load_amazon,
    load_cifar10,
    load_mnist,
    mnist,
)
from reproduction.datasets.pickles import read_batch

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


pooch = pytest.importorskip("pooch")


@pytest.fixture
def page(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serving() as server:
        yield server


@pytest.fixture
def mnist_page(monkeypatch, page):
    page.files = {f"/{name}": gzip.compress(idx(array)) for name, array in MNIST.items()}
    monkeypatch.setattr(mnist, "_MIRROR", page.address)
    monkeypatch.setattr(mnist, "_MD5", {name: md5(page.files[f"/{name}"]) for name in MNIST})
    sums = {name: hashlib.sha256(idx(array)).hexdigest() for name, array in MNIST.items()}
    monkeypatch.setattr(mnist, "_SHA256", sums)
    return page


def _files(path):
    return sorted(str(found.relative_to(path)) for found in path.rglob("*") if found.is_file())


def test_missing_files_are_downloaded_once(mnist_page, tmp_path, capsys):
    split = load_mnist(data_home=tmp_path)
    np.testing.assert_array_equal(split.y_train, MNIST["train-labels-idx1-ubyte.gz"])
    assert _files(tmp_path) == sorted(f"mnist/{name}" for name in MNIST)
    assert mnist_page.n_requests == 4
    load_mnist(data_home=tmp_path)
    assert mnist_page.n_requests == 4
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    load_mnist(data_home=tmp_path)
    assert mnist_page.n_requests == 5
    assert capsys.readouterr() == ("", "")


def _check_failure(load, folder, *words):
    with pytest.raises(DatasetError) as caught:
        load(data_home=folder)
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert caught.value.__context__ is None or caught.value.__suppress_context__, "the depths are shown"
    for word in words:
        assert word in message
    assert _files(folder) == [], "something half fetched was left"


def test_wrong_checksum(mnist_page, tmp_path):
    mnist_page.files["/train-images-idx3-ubyte.gz"] += b"x"
    path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
    checksum = mnist._MD5["train-images-idx3-ubyte.gz"]
    wanted = [
        f"{path} is missing",
        "does not have the checksum",
        checksum,
        f"get it from {mnist_page.address}",
        "put it there",
    ]
    _check_failure(load_mnist, tmp_path, *wanted)


# CIFAR-10 -------------------------------------------------------------------------------------------------------------

_LAYOUTS = {"bin": ("cifar-10-batches-bin", ".bin", binary_batch), "py": ("cifar-10-batches-py", "", python_batch)}


def _cifar_files(layout):
    folder, ending, pack = _LAYOUTS[layout]
    return {f"{folder}/{name}{ending}": pack(*batch) for name, batch in cifar_batches().items()}


@pytest.fixture
def small_cifar10(monkeypatch):
    for table, layout in (("_BINARY_MD5", "bin"), ("_PYTHON_MD5", "py")):
        sums = [md5(data) for data in _cifar_files(layout).values()]
        monkeypatch.setattr(cifar10, table, dict(zip(cifar_batches(), sums, strict=True)))


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("packed", [False, True])
def test_cifar10(layout, packed, tmp_path, small_cifar10):
    files = _cifar_files(layout)
    if packed:
        shuffled = dict(sorted(files.items(), key=lambda item: md5(item[0].encode())))
        name = {"bin": "cifar-10-binary.tar.gz", "py": "cifar-10-python.tar.gz"}[layout]
        write(tmp_path / name, tar_gz({"../evil": b"", "readme.html": b"hello", **shuffled}))
    else:
        for name, data in files.items():
            write(tmp_path / name, data)
    before = sorted(tmp_path.rglob("*"))
    split = load_cifar10(data_home=tmp_path, download=False)
    assert sorted(tmp_path.rglob("*")) == before
    assert (split.X_train.dtype, split.X_train.shape, split.X_test.shape) == (np.uint8, (10, 32, 32, 3), (4, 32, 32, 3))
    batches = cifar_batches()
    test_pixels, test_labels = batches.pop("test_batch")
    planes = np.concatenate([pixels for pixels, _ in batches.values()]).reshape(10, 3, 32, 32)
    for colour in range(3):
        np.testing.assert_array_equal(split.X_train[..., colour], planes[:, colour])
    np.testing.assert_array_equal(split.X_test[3, 5, 7], test_pixels[3, [167, 1024 + 167, 2048 + 167]])
    assert split.y_train.tolist() == np.concatenate([labels for _, labels in batches.values()]).tolist()
    assert split.y_test.tolist() == test_labels.tolist()
    assert split.target_names[3] == "cat"


# Pickles --------------------------------------------------------------------------------------------------------------


class _Calls:
    """An object that is pickled as a function call."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("place", ["whole", "value", "label"])
def test_pickles_run_no_code(protocol, place, tmp_path):
    trace = tmp_path / "trace"
    evil = _Calls(os.mkdir, str(trace))
    content = {"whole": evil, "value": {"data": evil}, "label": {"labels": [evil]}}[place]
    data = pickle.dumps(content, protocol=protocol)
    with pytest.raises(
        DataFormatError, match=r"^file: this is not a batch of CIFAR-10: it refers to (posix|nt)\.mkdir"
    ):
        read_batch(data, "file", 3072)
    assert not trace.exists()
    pickle.loads(data)
    assert trace.exists(), "the pickle of this test does nothing"
