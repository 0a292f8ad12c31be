"""CIFAR-10: 32 x 32 colour images of ten classes, in one of the two layouts of its authors."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dropmargin.io.data import DataFormatError
from dropmargin.typing import Array
from reproduction.datasets.archive import Content, read_each
from reproduction.datasets.folder import DatasetError, Remote, data_folder, fetch, find_file
from reproduction.datasets.pickles import read_batch
from reproduction.datasets.split import Split

_PAGE = "https://www.cs.toronto.edu/~kriz/"
_SIDE = 32
_N_PIXELS = 3 * _SIDE * _SIDE
_MAX_BYTES = 2**26  # a batch has 30.7 MB
_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_TEST = "test_batch"
TARGET_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# Checksums of the files in the two archives; files with others are refused.
_BINARY_MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
_PYTHON_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}


@dataclass(frozen=True)
class _Layout:
    """One of the two published layouts."""

    folder: str
    ending: str
    archive: Remote
    md5: dict[str, str]
    parse: Callable[[bytes, str], tuple[Array, Array]]

    def file_of(self, batch: str) -> str:
        """Return the path of a batch, relative to the data folder or to the archive."""
        return f"{self.folder}/{batch}{self.ending}"


def load_cifar10(*, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> Split:
    """Return CIFAR-10: 50,000 training and 10,000 test images.

    Looks for the folders ``cifar-10-batches-bin`` and ``cifar-10-batches-py``, then for the archives
    ``cifar-10-binary.tar.gz`` and ``cifar-10-python.tar.gz``, which need not be unpacked. Every file is checked against
    the original. The pickles of the Python layout are read without running code.

    Parameters
    ----------
    data_home : path, default=None
        The data folder; see `data_folder`.
    download : bool, default=True
        Whether to download the binary archive (162 MB) if no files are found.

    Returns
    -------
    Split
        ``X`` is uint8 of shape (n, 32, 32, 3): rows, columns, red-green-blue. ``y`` is the number of the class in
        ``target_names``.

    Raises
    ------
    DatasetError
        If the files are missing and cannot be downloaded, or are not the originals.
    DataFormatError
        If a file is invalid.
    """
    folder = data_folder(data_home)
    layout, place = _find(folder, download)
    batches = {layout.file_of(batch): batch for batch in (*_TRAIN, _TEST)}
    read: dict[str, tuple[Array, Array]] = {}
    for content in read_each(place, tuple(batches), _MAX_BYTES):
        batch = batches[content.name]
        read[batch] = _parse(layout, batch, content)
    where = place if place.is_file() else place / layout.folder
    return Split(
        np.concatenate([read[batch][0] for batch in _TRAIN]),
        np.concatenate([read[batch][1] for batch in _TRAIN]),
        *read[_TEST],
        description=f"CIFAR-10 (Krizhevsky 2009), read from {where}.",
        target_names=TARGET_NAMES,
    )


def _find(folder: Path, download: bool) -> tuple[_Layout, Path]:
    """Return the layout that is found, and the data folder or the archive."""
    layouts = _layouts()
    for layout in layouts:
        if all(find_file(folder / layout.file_of(batch)) for batch in (*_TRAIN, _TEST)):
            return layout, folder
    for layout in layouts:
        if (folder / layout.archive.name).is_file():
            return layout, folder / layout.archive.name
    unpacked = f"unpack it (or {layouts[1].archive.name}) in that folder"
    return layouts[0], fetch(layouts[0].archive, folder, download=download, or_else=unpacked)


def _layouts() -> tuple[_Layout, _Layout]:
    """Return both layouts, the one without pickles first."""
    binary, python = "cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"
    return (
        _Layout(
            "cifar-10-batches-bin",
            ".bin",
            Remote(binary, _PAGE + binary, "md5:c32a1d4ab5d03f1284b67883e8d87530"),
            _BINARY_MD5,
            _parse_binary,
        ),
        _Layout(
            "cifar-10-batches-py",
            "",
            Remote(python, _PAGE + python, "md5:c58f30108f718f92721af3b95e74349a"),
            _PYTHON_MD5,
            _parse_python,
        ),
    )


def _parse(layout: _Layout, batch: str, content: Content) -> tuple[Array, Array]:
    """Return images and labels of a batch, after comparing its bytes with the original's."""
    md5 = hashlib.md5(content.data, usedforsecurity=False).hexdigest()
    if md5 != layout.md5[batch]:
        raise DatasetError(
            f"{content.where} is not the original (its md5 is {md5}, not {layout.md5[batch]}): "
            f"replace it by the one in {layout.archive.address}."
        )
    pixels, labels = layout.parse(content.data, content.where)
    if len(labels) and labels.max() >= len(TARGET_NAMES):
        raise DataFormatError(f"label {labels.max()}, but there are {len(TARGET_NAMES)} classes", content.where)
    images = pixels.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels.astype(np.int64)


def _parse_binary(data: bytes, where: str) -> tuple[Array, Array]:
    """Return pixels and labels of records of 3,073 bytes: the label, then the red, green and blue planes."""
    if not data or len(data) % (1 + _N_PIXELS):
        raise DataFormatError(f"{len(data)} bytes are not a whole number of records of {1 + _N_PIXELS}", where)
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, 1 + _N_PIXELS)
    return records[:, 1:], records[:, 0]


def _parse_python(data: bytes, where: str) -> tuple[Array, Array]:
    return read_batch(data, where, _N_PIXELS)
