"""Matrices in svmlight files and in NumPy archives, read by scikit-learn, NumPy and SciPy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from dropmargin.io.data.dataset import Dataset, ReadOptions, labels_of
from dropmargin.io.data.errors import DataFormatError, one_line, quoted
from dropmargin.io.data.sources import name_of, open_bytes

_MOST = 2**31 - 1


def svmlight_chunks(path: Any, options: ReadOptions, chunk_bytes: int | None) -> Iterator[Dataset]:
    """Yield the rows of an svmlight file, in chunks of about ``chunk_bytes`` bytes or as a whole."""
    if chunk_bytes is not None and (options.zero_based is None or options.n_features is None):
        raise ValueError("Reading an svmlight file in chunks needs zero_based and n_features.")
    name = name_of(path)
    with open_bytes(path) as stream:
        size, begin = stream.seek(0, os.SEEK_END), 0
        stream.seek(0)
        while begin < size:
            # scikit-learn skips the line in which a part begins: a part begins at the end of the line before.
            part = {"offset": max(begin - 1, 0), "length": chunk_bytes, "n_features": _MOST}
            try:
                X, y = load_svmlight_file(stream, zero_based=True, **({} if chunk_bytes is None else part))
                begin = stream.tell()
            except (ValueError, OverflowError, IndexError, TypeError) as error:
                raise DataFormatError(f"this is not svmlight data: {one_line(error)}", name) from error
            if X.shape[0]:
                has_zero = X.nnz > 0 and int(X.indices.min()) == 0
                zero_based = has_zero if options.zero_based is None else options.zero_based
                if has_zero and not zero_based:
                    raise DataFormatError("there is an index 0, but indices start at 1 (--zero-based)", name)
                X = _small_indices(sparse.csr_array(X if zero_based else X[:, 1:]))
                yield Dataset(_fit_features(X, options, name), labels_of(y.tolist(), name), zero_based=zero_based)


def index_range(path: Any, chunk_bytes: int) -> tuple[int | None, int]:
    """Return the smallest and the largest feature index of an svmlight file as it is written; None and -1 without."""
    raw = ReadOptions(zero_based=True, n_features=_MOST, max_features=_MOST)
    smallest, largest = None, -1
    for part in svmlight_chunks(path, raw, chunk_bytes):
        if part.X.nnz:
            low = int(part.X.indices.min())
            smallest = low if smallest is None else min(smallest, low)
            largest = max(largest, int(part.X.indices.max()))
    return smallest, largest


def _fit_features(X: Any, options: ReadOptions, name: str) -> Any:
    """Return a matrix with the number of features that is asked for."""
    wanted = X.shape[1] if options.n_features is None else options.n_features
    n_found = int(X.indices.max()) + 1 if X.nnz else 0
    if n_found > wanted and not options.ignore_extra:
        what = f"there are {n_found} features, but n_features is {wanted}"
        raise DataFormatError(f"{what} (--ignore-extra leaves the others out)", name)
    _check_number(wanted, options, name)
    if n_found > wanted:
        return X[:, :wanted]
    X.resize(X.shape[0], wanted)
    return X


def _check_number(n_features: int, options: ReadOptions, name: str) -> None:
    if n_features > options.max_features:
        what = f"{n_features} features, but at most {options.max_features} are allowed"
        raise DataFormatError(f"{what} (raise --max-features if that is intended)", name)


def npz_dataset(path: Any, options: ReadOptions) -> Dataset:
    """Return the arrays ``X`` (or a sparse matrix of `scipy.sparse.save_npz`), ``y`` and ``feature_names``."""
    name = name_of(path)
    try:
        with open_bytes(path) as stream, np.load(stream, allow_pickle=False) as archive:
            X, found = _matrix(archive, stream), archive.files
            target = options.target or ("y" if "y" in found else None)
            if target is not None and target not in found:
                listed = ", ".join(map(quoted, found[:20]))
                raise DataFormatError(f"there is no array {quoted(target)} (--target); the arrays are {listed}", name)
            y = None if target is None else archive[target]
            names = tuple(archive["feature_names"].astype(str).tolist()) if "feature_names" in found else None
    except (DataFormatError, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # NumPy, SciPy and zipfile raise many types for broken files
        raise DataFormatError(f"this archive cannot be read: {one_line(error)}", name) from error
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise DataFormatError(f"X must be a matrix of numbers, got shape {X.shape} and type {X.dtype}", name)
    _check_number(X.shape[1], options, name)
    if names is not None and len(names) != X.shape[1]:
        raise DataFormatError(f"there are {len(names)} feature_names, but {X.shape[1]} features", name)
    X = X if X.dtype == np.float32 else X.astype(np.float64)
    if y is not None:
        if y.shape != (X.shape[0],) or y.dtype.kind not in "fiubU":
            raise DataFormatError(f"{target} has shape {y.shape} and type {y.dtype}, but X has {len(X)} rows", name)
        y = labels_of(y.tolist(), name)
    return Dataset(X, y, names)


def _matrix(archive: Any, stream: Any) -> Any:
    """Return the matrix of an archive: ``X``, a matrix of SciPy, or one whose arrays begin with ``X_``."""
    if "X" in archive.files:
        return archive["X"]
    prefix = "X_" if "X_data" in archive.files else ""
    if f"{prefix}data" not in archive.files:
        raise ValueError(f"there is neither an array X nor a sparse matrix, but {', '.join(archive.files[:20])}")
    if "format" in archive.files:
        stream.seek(0)
        X = sparse.csr_array(sparse.load_npz(stream))
    else:
        data, indices, indptr, shape = (archive[f"{prefix}{part}"] for part in ("data", "indices", "indptr", "shape"))
        X = sparse.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
    X.check_format(full_check=True)
    X.sum_duplicates()  # also sorts
    return _small_indices(X)


def _small_indices(X: sparse.csr_array) -> sparse.csr_array:
    """Return rows with 32-bit indices if these suffice: SciPy and scikit-learn refuse others in places."""
    if X.indices.dtype != np.int32 and max(X.nnz, *X.shape) <= np.iinfo(np.int32).max:
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X
