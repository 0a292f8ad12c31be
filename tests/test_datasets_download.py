"""Downloads of data sets: checks, progress, complete files, error messages."""

from __future__ import annotations

import gzip
import hashlib

import numpy as np
import pytest

from data_set_files import MNIST, REVIEWS, idx, md5, serving, tar_gz
from reproduction.datasets import DatasetError, amazon, load_amazon, load_mnist, mnist
from reproduction.datasets.folder import Remote

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


@pytest.fixture
def review_page(monkeypatch, page):
    files = {f"processed_acl/books/{part}.review": text.encode() for part, text in REVIEWS.items()}
    page.files["/reviews.tar.gz"] = tar_gz(files)
    monkeypatch.setattr(amazon, "_ARCHIVE", Remote("processed_acl.tar.gz", f"{page.address}reviews.tar.gz", None))
    monkeypatch.setattr(amazon, "_N_LABELLED", 2)
    monkeypatch.setattr(amazon, "_N_TEST", {"books": 3})
    return page


def _books(**options):
    return load_amazon("books", **options)


def test_archive_is_downloaded_and_read_without_unpacking(review_page, tmp_path):
    assert _books(data_home=tmp_path).X_train.shape == (4, 8)
    assert _files(tmp_path) == ["processed_acl.tar.gz"]
    assert _books(data_home=tmp_path, download=False).X_test.shape == (3, 8)
