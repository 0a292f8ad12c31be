"""MNIST: 28 x 28 grey images of handwritten digits, in the idx format of its authors."""

from __future__ import annotations

import hashlib
import math
import os
import struct
from pathlib import Path

import numpy as np

from dropmargin.io.data import DataFormatError
from dropmargin.io.data.sources import open_bytes
from dropmargin.typing import Array
from reproduction.datasets.folder import DatasetError, Remote, data_folder, fetch, find_file
from reproduction.datasets.split import Split

_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"  # PyTorch's; yann.lecun.com does not serve reliably
_MAX_BYTES = 2**27
_UNSIGNED_BYTES = 8  # code of the data type in idx files
# Checksums of the published gzip files, as in torchvision.
_MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
# Checksums of the uncompressed content.
_SHA256 = {
    "train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def load_mnist(*, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> Split:
    """Return MNIST: 60,000 training and 10,000 test images, with pixels from 0 to 1.

    Reads the four original files, ``mnist/train-images-idx3-ubyte.gz`` and so on, gzipped or not, and checks their
    content.

    Parameters
    ----------
    data_home : path, default=None
        The data folder; see `data_folder`.
    download : bool, default=True
        Whether to download missing files.

    Returns
    -------
    Split
        ``X`` is dense float32 with 784 columns, the rows of the image one after another, the bytes of the file
        divided by 255. ``y`` is the
        digit.

    Raises
    ------
    DatasetError
        If a file is missing and cannot be downloaded, or is not the original.
    DataFormatError
        If a file is invalid.
    """
    folder = data_folder(data_home)
    X_train, y_train = _load_part("train", folder, download)
    X_test, y_test = _load_part("t10k", folder, download)
    names = tuple(str(digit) for digit in range(10))
    description = f"MNIST (LeCun, Cortes and Burges), pixels divided by 255, read from {folder / 'mnist'}."
    return Split(X_train, y_train, X_test, y_test, description, target_names=names)


def _load_part(part: str, folder: Path, download: bool) -> tuple[Array, Array]:
    images = _load_file(f"{part}-images-idx3-ubyte.gz", 3, folder, download)
    labels = _load_file(f"{part}-labels-idx1-ubyte.gz", 1, folder, download)
    X = images.reshape(len(images), -1).astype(np.float32)
    X /= np.float32(255.0)
    return X, labels.astype(np.int64)


def _load_file(name: str, n_dimensions: int, folder: Path, download: bool) -> Array:
    remote = Remote(f"mnist/{name}", _MIRROR + name, f"md5:{_MD5[name]}")
    path = find_file(folder / remote.name) or fetch(remote, folder, download=download)
    array, sha256 = read_idx(path, n_dimensions)
    if sha256 != _SHA256[name]:
        raise DatasetError(
            f"{path} is not the original (its content has the sha256 {sha256}, not {_SHA256[name]}): "
            f"replace it by {remote.address}."
        )
    return array


def read_idx(path: Path, n_dimensions: int) -> tuple[Array, str]:
    """Return the array of an idx file of bytes, and the sha256 of the uncompressed content.

    The header, big-endian: two zero bytes, the type (8: unsigned bytes), the number of dimensions, and the dimensions
    as 32-bit numbers. A header with a larger array than the file can have is an error, before memory is
    allocated.
    """
    with open_bytes(path) as stream:
        header = stream.read(4 + 4 * n_dimensions)
        if len(header) < 4 + 4 * n_dimensions or header[:4] != bytes([0, 0, _UNSIGNED_BYTES, n_dimensions]):
            raise DataFormatError(f"this is not an idx file of unsigned bytes in {n_dimensions} dimensions", str(path))
        shape = struct.unpack(f">{n_dimensions}I", header[4:])
        n_bytes = math.prod(shape)
        if n_bytes > _MAX_BYTES:
            raise DataFormatError(f"the header says {n_bytes} bytes, more than {_MAX_BYTES}", str(path))
        data = stream.read(n_bytes)
        if len(data) != n_bytes or stream.read(1):
            there = "fewer" if len(data) < n_bytes else "more"
            raise DataFormatError(f"the header says {n_bytes} bytes {shape}, but there are {there}", str(path))
    digest = hashlib.sha256(header)
    digest.update(data)
    return np.frombuffer(data, dtype=np.uint8).reshape(shape), digest.hexdigest()
