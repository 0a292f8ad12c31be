"""20 newsgroups: word counts of messages to twenty Usenet groups, split by date."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.io.data import DataFormatError
from dropmargin.io.data.errors import one_line
from dropmargin.typing import Array
from reproduction.datasets.folder import DatasetError, data_folder
from reproduction.datasets.split import Split

_ARRAYS = "news20.npz"
_ADDRESS = "http://qwone.com/~jason/20Newsgroups/20news-bydate.tar.gz"
_MAX_FEATURES = 2**25
TARGET_NAMES = (
    "alt.atheism",
    "comp.graphics",
    "comp.os.ms-windows.misc",
    "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware",
    "comp.windows.x",
    "misc.forsale",
    "rec.autos",
    "rec.motorcycles",
    "rec.sport.baseball",
    "rec.sport.hockey",
    "sci.crypt",
    "sci.electronics",
    "sci.med",
    "sci.space",
    "soc.religion.christian",
    "talk.politics.guns",
    "talk.politics.mideast",
    "talk.politics.misc",
    "talk.religion.misc",
)


def load_20newsgroups(*, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> Split:
    """Return 20 newsgroups as word counts: 11,314 training messages and 7,532 later test messages.

    Reads ``news20.npz``, if it is there: the matrices as arrays ``train_indptr``, ``train_indices``, ``train_data``,
    ``train_y``, the same with ``test_``, and ``n_features``. Otherwise it loads the messages by
    `sklearn.datasets.fetch_20newsgroups` with the data folder as its ``data_home``, and counts the words of at least
    two training messages by `sklearn.feature_extraction.text.CountVectorizer`.

    Parameters
    ----------
    data_home : path, default=None
        The data folder; see `data_folder`.
    download : bool, default=True
        Whether to download missing messages (14 MB).

    Returns
    -------
    Split
        ``X`` is a csr_array of float64 counts, ``y`` the index of the group in ``target_names``. There are no
        ``feature_names`` with ``news20.npz``.

    Raises
    ------
    DatasetError
        If the data are missing and cannot be downloaded.
    DataFormatError
        If the file is invalid.
    """
    folder = data_folder(data_home)
    path = folder / _ARRAYS
    return _load_arrays(path) if path.is_file() else _load_messages(folder, download)


def _load_arrays(path: Path) -> Split:
    arrays = _read_arrays(path)
    n_features = int(arrays["n_features"])
    if not 1 <= n_features <= _MAX_FEATURES:
        raise DataFormatError(f"n_features is {n_features}, it should be 1 to {_MAX_FEATURES}", str(path))
    parts = {}
    for part in ("train", "test"):
        data, indices, indptr, y = (arrays[f"{part}_{name}"] for name in ("data", "indices", "indptr", "y"))
        if len(indptr) != len(y) + 1 or not len(y) or y.min() < 0 or y.max() >= len(TARGET_NAMES):
            raise DataFormatError(f"{part}_y does not fit {part}_indptr, or is not in 0 to 19", str(path))
        try:
            X = sparse.csr_array((data.astype(np.float64), indices, indptr), shape=(len(y), n_features))
            X.check_format(full_check=True)
        except ValueError as error:
            raise DataFormatError(f"the {part} matrix is invalid: {one_line(error)}", str(path)) from error
        X.sum_duplicates()  # also sorts the indices
        parts[part] = X, y.astype(np.int64)
    description = f"20 newsgroups by date, word counts, read from {path}."
    (X_train, y_train), (X_test, y_test) = parts["train"], parts["test"]
    return Split(X_train, y_train, X_test, y_test, description, target_names=TARGET_NAMES)


def _read_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of the archive; all but the counts are integers, and all but ``n_features`` are vectors."""
    wanted = [f"{part}_{name}" for part in ("train", "test") for name in ("indptr", "indices", "y", "data")]
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in ("n_features", *wanted)}
    except Exception as error:  # NumPy and zipfile raise many types for broken files
        raise DataFormatError(f"this archive cannot be read: {one_line(error)}", str(path)) from error
    for name, array in arrays.items():
        kinds = "iuf" if name.endswith("_data") else "iu"
        if array.dtype.kind not in kinds or array.ndim != (name != "n_features"):
            what = f"the array {name!r} has type {array.dtype} and shape {array.shape}"
            raise DataFormatError(f"{what}: this is not the archive", str(path))
    return arrays


def _load_messages(folder: Path, download: bool) -> Split:
    from sklearn.feature_extraction.text import CountVectorizer

    train, test = (_fetch(part, folder, download) for part in ("train", "test"))
    words = CountVectorizer(min_df=2, dtype=np.float64)
    X_train = sparse.csr_array(words.fit_transform(train.data))
    X_test = sparse.csr_array(words.transform(test.data))
    return Split(
        X_train,
        np.asarray(train.target, dtype=np.int64),
        X_test,
        np.asarray(test.target, dtype=np.int64),
        f"20 newsgroups by date, counts of words of at least two training messages, by scikit-learn from {folder}.",
        tuple(words.get_feature_names_out().tolist()),
        tuple(train.target_names),
    )


def _fetch(part: str, folder: Path, download: bool) -> Any:
    from sklearn.datasets import fetch_20newsgroups

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # one per failed attempt; the error has the reason
            return fetch_20newsgroups(subset=part, data_home=folder, download_if_missing=download, n_retries=1)
    except (OSError, ValueError) as error:
        archive = folder / "20news_home" / "20news-bydate.tar.gz"
        reason = f"the download failed: {one_line(error)}" if download else "download=False"
        raise DatasetError(
            f"The messages of 20 newsgroups are not in {folder} ({reason.rstrip('.')}): get {_ADDRESS} and put it at "
            f"{archive} (scikit-learn unpacks it with download=True), or put {_ARRAYS} into {folder}."
        ) from None
