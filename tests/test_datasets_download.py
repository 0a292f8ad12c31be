"""Downloads of data sets: checks, progress, complete files, error messages."""

from __future__ import annotations

import gzip
import hashlib
import logging
import socket
import sys

import numpy as np
import pytest

from data_set_files import MNIST, REVIEWS, idx, md5, serving, tar_gz
from reproduction.datasets import DatasetError, amazon, folder, load_20newsgroups, load_amazon, load_mnist, mnist
from reproduction.datasets.folder import Remote, fetch

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


def test_lost_connection(mnist_page, tmp_path):
    mnist_page.short = True
    _check_failure(
        load_mnist, tmp_path, "train-images-idx3-ubyte.gz is missing (the connection was lost)", mnist_page.address
    )


def test_file_not_found_on_server(mnist_page, tmp_path):
    mnist_page.files = {}
    _check_failure(load_mnist, tmp_path, "404", mnist_page.address)


def test_no_server(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setattr(mnist, "_MIRROR", f"http://{host}/")
        _check_failure(load_mnist, tmp_path, f"(no connection to {host})", f"get it from http://{host}/train-images")


@pytest.mark.parametrize("package", ["pooch", "requests"])
def test_without_pooch(package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    _check_failure(load_mnist, tmp_path, "pip install 'dropmargin[reproduction]'", "get it from https://")


def test_folder_that_cannot_be_created(mnist_page, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte\.gz is missing \(the download failed: "):
        load_mnist(data_home=tmp_path / "file")


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


def test_file_without_published_checksum_must_be_valid_gzip(review_page, tmp_path):
    whole = review_page.files["/reviews.tar.gz"]
    for damaged in (whole[:-9], whole[: len(whole) // 2], b"<html>Sorry</html>", whole[:60] + b"x" + whole[61:]):
        review_page.files["/reviews.tar.gz"] = damaged
        _check_failure(_books, tmp_path, "not a complete gzip file", "unlabeled.review is missing", review_page.address)


def test_progress_bar_counts_to_the_end(monkeypatch, page, tmp_path):
    bars = []

    class Bar:
        def __init__(self, total, label):
            self.total, self.label, self.done, self.is_open = total, label, 0, True
            bars.append(self)

        def advance(self, steps):
            self.done += steps

        def __exit__(self, *error):
            self.is_open = False

    monkeypatch.setattr(folder, "Progress", Bar)
    page.files["/big"] = bytes(3_000_000)
    fetch(Remote("some/big", f"{page.address}big", f"md5:{md5(bytes(3_000_000))}"), tmp_path, download=True)
    (bar,) = bars
    assert (bar.label, bar.total, bar.done, bar.is_open) == ("downloading big (MB)", 3, 3, False)


def test_logger_of_pooch_is_restored(mnist_page, tmp_path):
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        load_mnist(data_home=tmp_path)
        assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(level)


def test_failed_download_of_newsgroups(monkeypatch, tmp_path):
    def fail(**options):
        raise OSError("no\nnetwork")

    monkeypatch.setattr("sklearn.datasets.fetch_20newsgroups", fail)
    archive = str(tmp_path / "20news_home" / "20news-bydate.tar.gz")
    _check_failure(load_20newsgroups, tmp_path, "the download failed: no network", archive, "news20.npz")
