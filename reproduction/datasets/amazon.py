"""Amazon product reviews (Blitzer, Dredze and Pereira 2007): counts of words and word pairs, with positive and
negative labels.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path

import numpy as np
from scipy import sparse

from dropmargin.io.data import DataFormatError, ReadOptions, read_data
from dropmargin.io.data.errors import one_line
from dropmargin.typing import Array
from reproduction.datasets.archive import read_each
from reproduction.datasets.folder import DatasetError, Remote, data_folder, fetch, find_file
from reproduction.datasets.reviews import Reviews, select_features
from reproduction.datasets.split import Split

DOMAINS = ("books", "dvd", "electronics", "kitchen")
_ARCHIVE = Remote(
    "processed_acl.tar.gz",
    "https://www.cs.jhu.edu/~mdredze/datasets/sentiment/processed_acl.tar.gz",
    None,  # no checksum is published; the numbers of reviews are checked instead, see _N_LABELLED and _N_TEST
)
_MAX_BYTES = 2**28
#: Number of reviews in positive.review and in negative.review, and in unlabeled.review.
_N_LABELLED = 1000
_N_TEST = {"books": 4465, "dvd": 3586, "electronics": 5681, "kitchen": 5945}
_N_AMAZON5K = 5000


def load_amazon(
    domain: str,
    *,
    features: int = 20_000,
    form: str = "auto",
    data_home: str | os.PathLike[str] | None = None,
    download: bool = True,
) -> Split:
    """Return the reviews of one product domain: 2,000 training reviews, and the papers' test reviews.

    Parameters
    ----------
    domain : {"books", "dvd", "electronics", "kitchen"}
    features : int, default=20000
        Maximum number of features: those that occur in most reviews, of the training and test reviews together, as in
        the papers. Ties are resolved by name, or by column if the names are not known.
    form : {"auto", "processed_acl", "amazon5k", "amazon20k"}, default="auto"
        The files to read; ``"auto"`` is the first complete form in this order.

        - ``"processed_acl"``: the official files ``processed_acl/<domain>/positive.review``, ``negative.review``
          (training) and ``unlabeled.review`` (test; it has labels), gzipped or not, or the official archive
          ``processed_acl.tar.gz``. The columns are sorted by decreasing frequency.
        - ``"amazon5k"``: the same reviews with 5,000 features, ``amazon5k/<domain>_train.svmlight.gz`` and
          ``_test``, with zero-based indices.
        - ``"amazon20k"``: ``amazon20k/<domain>_train_X.npz``, ``_train_y.npy`` and the same with ``test``: 20,000
          features, named in ``vocab20000.txt``; the test reviews are not those of the papers.
    data_home : path, default=None
        The data folder; see `data_folder`.
    download : bool, default=True
        Whether to download the official archive if no form is found.

    Returns
    -------
    Split
        ``X`` is a csr_array of float64 counts; ``y`` is -1 (negative) or +1 (positive).

    Raises
    ------
    DatasetError
        If the files are missing and cannot be downloaded.
    DataFormatError
        If a file is invalid; the message names file and line.
    """
    if domain not in DOMAINS:
        raise ValueError(f"domain must be one of {list(DOMAINS)}, got {domain!r}.")
    if form != "auto" and form not in _FORMS:
        raise ValueError(f"form must be one of {['auto', *_FORMS]}, got {form!r}.")
    if not isinstance(features, Integral) or isinstance(features, bool) or features < 1:
        raise ValueError(f"features must be an integer of at least 1, got {features!r}.")
    folder = data_folder(data_home)
    if form == "auto":
        form = next(iter(amazon_forms(domain, data_home)), "processed_acl")
    return _FORMS[form].load(_Request(domain, int(features), folder, download))


def amazon_forms(domain: str, data_home: str | os.PathLike[str] | None = None) -> tuple[str, ...]:
    """Return the forms of `load_amazon` that are complete in the data folder."""
    folder = data_folder(data_home)
    return tuple(name for name, form in _FORMS.items() if not form.missing(domain, folder))


@dataclass(frozen=True)
class _Request:
    """The checked parameters of `load_amazon`."""

    domain: str
    features: int
    folder: Path
    download: bool

    def describe(self, place: str) -> str:
        """Return the description of the data in one sentence."""
        return f"Amazon reviews of {self.domain} (Blitzer et al. 2007), counts, read from {self.folder / place}."


@dataclass(frozen=True)
class _Form:
    """A form of the reviews: its files, and the function that loads them."""

    files: tuple[str, ...]
    load: Callable[[_Request], Split]
    archive: str | None = None

    def missing(self, domain: str, folder: Path) -> list[Path]:
        """Return the missing files."""
        if self.archive is not None and (folder / self.archive).is_file():
            return []
        paths = [folder / name.format(domain=domain) for name in self.files]
        return [path for path in paths if not _exists(path)]


def _exists(path: Path) -> bool:
    """Return whether a file exists; review and svmlight files may be gzipped or not."""
    return path.is_file() if path.suffix in (".npz", ".npy", ".txt") else find_file(path) is not None


# The official files --------------------------------------------------------------------------------------------------


def _load_official(request: _Request) -> Split:
    names = [name.format(domain=request.domain) for name in _FORMS["processed_acl"].files]
    place = request.folder
    missing = [place / name for name in names if find_file(place / name) is None]
    if missing:
        place = fetch(_ARCHIVE, place, download=request.download, wanted=missing[-1], or_else=_alternatives(request))
    wanted = dict(zip(names, (_N_LABELLED, _N_LABELLED, _N_TEST[request.domain]), strict=True))
    reviews = Reviews()
    parts: dict[str, tuple[Array, Array]] = {}
    for content in read_each(place, names, _MAX_BYTES):
        rows, labels = reviews.add(content.data, content.where)
        if len(labels) != wanted[content.name]:
            what = f"{len(labels)} reviews, the official file has {wanted[content.name]}"
            raise DataFormatError(what, content.where)
        parts[content.name] = rows, labels
    X, feature_names = reviews.matrix(request.features)
    train = np.concatenate([parts[name][0] for name in names[:2]])
    y_train = np.concatenate([parts[name][1] for name in names[:2]])
    test, y_test = parts[names[2]]
    where = _ARCHIVE.name if place.is_file() else "processed_acl"
    return Split(X[train], y_train, X[test], y_test, request.describe(where), feature_names, target_names=_TARGET_NAMES)


def _alternatives(request: _Request) -> str:
    """Return what to do if the official files cannot be downloaded, for an error message."""
    others = [name for name in _FORMS if name != "processed_acl"]
    complete = [name for name in others if not _FORMS[name].missing(request.domain, request.folder)]
    if complete:
        return f"use {' or '.join(f'form={name!r}' for name in complete)}, whose files are there"
    return f"put the files of {' or '.join(f'form={name!r}' for name in others)} into {request.folder}"


# Other forms ---------------------------------------------------------------------------------------------------------


def _load_amazon5k(request: _Request) -> Split:
    _require("amazon5k", request)
    options = ReadOptions(format="svmlight", zero_based=True, n_features=_N_AMAZON5K)
    parts = []
    for part in ("train", "test"):
        path = _found(request.folder / f"amazon5k/{request.domain}_{part}.svmlight.gz")
        data = read_data(path, options)
        parts += [data.X, _checked_labels(data.y, data.n_samples, path)]
    return _select(request, "amazon5k", parts, None)


def _load_amazon20k(request: _Request) -> Split:
    _require("amazon20k", request)
    folder = request.folder / "amazon20k"
    parts = []
    for part in ("train", "test"):
        X = sparse.csr_array(read_data(folder / f"{request.domain}_{part}_X.npz").X, dtype=np.float64)
        path = folder / f"{request.domain}_{part}_y.npy"
        parts += [X, _checked_labels(_read_npy(path), X.shape[0], path)]
    vocabulary = folder / "vocab20000.txt"
    names = tuple(vocabulary.read_text(encoding="utf-8", errors="backslashreplace").removesuffix("\n").split("\n"))
    for part, X in (("train", parts[0]), ("test", parts[2])):
        if X.shape[1] != len(names):
            what = f"{len(names)} names, but {request.domain}_{part}_X.npz has {X.shape[1]} columns"
            raise DataFormatError(what, str(vocabulary))
    return _select(request, "amazon20k", parts, names)


def _require(form: str, request: _Request) -> None:
    missing = _FORMS[form].missing(request.domain, request.folder)
    if missing:
        others = " or ".join(f"form={name!r}" for name in _FORMS if name != form)
        raise DatasetError(f"{missing[0]} is missing (it is not on any official page): put it there, or use {others}.")


def _found(path: Path) -> Path:
    found = find_file(path)
    assert found is not None  # checked by _require
    return found


def _read_npy(path: Path) -> Array:
    try:
        # A wrong size in the header of a mapped file is an error, not an allocation; nothing is unpickled.
        return np.array(np.lib.format.open_memmap(path, mode="r"))
    except Exception as error:  # NumPy's parser of headers raises errors of many types, for example of the tokenizer
        raise DataFormatError(f"this is not an array in a .npy file: {one_line(error)}", str(path)) from error


def _checked_labels(y: Array | None, n_samples: int, path: Path) -> Array:
    if y is None or y.shape != (n_samples,) or y.dtype.kind not in "iuf" or not np.isin(y, (-1, 1)).all():
        raise DataFormatError(f"there should be {n_samples} labels, each -1 or 1", str(path))
    return y.astype(np.int64)


def _select(request: _Request, place: str, parts: list[Array], names: tuple[str, ...] | None) -> Split:
    """Return the data with all columns, or with the most frequent ones if ``features`` is smaller."""
    X_train, y_train, X_test, y_test = parts
    if request.features < X_train.shape[1]:
        both = sparse.csr_array(sparse.vstack([X_train, X_test], format="csr"))
        chosen = select_features(both, np.arange(both.shape[1]), request.features)
        X_train, X_test = X_train[:, chosen], X_test[:, chosen]
        names = None if names is None else tuple(names[column] for column in chosen)
    return Split(X_train, y_train, X_test, y_test, request.describe(place), names, target_names=_TARGET_NAMES)


_TARGET_NAMES = ("negative", "positive")
_FORMS = {
    "processed_acl": _Form(
        tuple(f"processed_acl/{{domain}}/{part}.review" for part in ("positive", "negative", "unlabeled")),
        _load_official,
        _ARCHIVE.name,
    ),
    "amazon5k": _Form(("amazon5k/{domain}_train.svmlight.gz", "amazon5k/{domain}_test.svmlight.gz"), _load_amazon5k),
    "amazon20k": _Form(
        (
            *(f"amazon20k/{{domain}}_{part}" for part in ("train_X.npz", "train_y.npy", "test_X.npz", "test_y.npy")),
            "amazon20k/vocab20000.txt",
        ),
        _load_amazon20k,
    ),
}
