"""Matrices in svmlight files and in NumPy archives, read by scikit-learn, NumPy and SciPy."""

from __future__ import annotations

import gzip
import math
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_svmlight_file

from dropmargin.data import canonical
from dropmargin.data.structure import sound_csr
from dropmargin.io.data.dataset import Dataset, ReadOptions, labels_of
from dropmargin.io.data.errors import DataFormatError, one_line, quoted
from dropmargin.io.data.sources import name_of, open_bytes

_MOST = 2**31 - 1
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


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


def npz_chunks(path: Any, options: ReadOptions, chunk_bytes: int | None) -> Iterator[Dataset]:
    """Yield the rows of the array ``X`` or a sparse matrix in an archive with those of ``y``, in chunks or as a whole.

    Labels and the row pointers of a sparse matrix are read whole, and so is a matrix that is not stored by rows.
    """
    name = name_of(path)
    try:
        with open_bytes(path) as stream, _random_access(stream) as file, zipfile.ZipFile(file) as archive:
            found = [member.removesuffix(".npy") for member in archive.namelist()]
            target = options.target or ("y" if "y" in found else None)
            if target is not None and target not in found:
                listed = ", ".join(map(quoted, found[:20]))
                raise DataFormatError(f"there is no array {quoted(target)} (--target); the arrays are {listed}", name)
            y = None if target is None else _Array(archive, target).read()
            names = None
            if "feature_names" in found:
                names = tuple(_Array(archive, "feature_names").read().astype(str).tolist())
            shape, dtype, n_stored, rows = _matrix(archive, found, file)
            if len(shape) != 2 or dtype.kind not in "fiub":
                raise DataFormatError(f"X must be a matrix of numbers, got shape {shape} and type {dtype}", name)
            _check_number(shape[1], options, name)
            if names is not None and len(names) != shape[1]:
                raise DataFormatError(f"there are {len(names)} feature_names, but {shape[1]} features", name)
            if y is not None and (y.shape != shape[:1] or y.dtype.kind not in "fiubU"):
                what = f"{target} has shape {y.shape} and type {y.dtype}, but X has {shape[0]} rows"
                raise DataFormatError(what, name)
            step = shape[0] if chunk_bytes is None else shape[0] * chunk_bytes // max(16 * n_stored, 1)
            for begin in range(0, shape[0], max(step, 1)):
                end = min(begin + max(step, 1), shape[0])
                X = canonical(rows(begin, end)).astype(np.float32 if dtype == np.float32 else np.float64)
                labels = None if y is None else labels_of(y[begin:end].tolist(), name)
                yield Dataset(_small_indices(X), labels, names)
    except (DataFormatError, FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # NumPy, SciPy and zipfile raise many types for broken files
        raise DataFormatError(f"this archive cannot be read: {one_line(error)}", name) from error


@contextmanager
def _random_access(stream: Any) -> Iterator[Any]:
    """Return a stream in which any place is reached fast: of gzip data, a copy."""
    if not isinstance(stream, gzip.GzipFile):
        yield stream
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy)
        yield copy


class _Array:
    """An array of an archive, whose rows are read one after another."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._stream = archive.open(f"{name}.npy")
        self.shape, self.is_by_columns, self.dtype = _HEADERS[np.lib.format.read_magic(self._stream)](self._stream)
        if self.dtype.hasobject:
            raise ValueError(f"{name} has Python objects, which are not read")

    def read(self, n_rows: int | None = None) -> Any:
        """Return the next rows, or all."""
        shape = self.shape if n_rows is None else (n_rows, *self.shape[1:])
        content = self._stream.read(math.prod(shape) * self.dtype.itemsize)
        return np.frombuffer(content, self.dtype).reshape(shape, order="F" if self.is_by_columns else "C")


def _matrix(archive: Any, found: list[str], file: Any) -> tuple[tuple[int, ...], np.dtype, int, Callable[..., Any]]:
    """Return the shape, the type and the number of entries of a matrix, and a function that returns the next rows.

    The matrix is the array ``X``, a matrix of SciPy, or one whose arrays begin with ``X_``.
    """
    if "X" in found:
        X = _Array(archive, "X")
        whole = X.read() if X.is_by_columns else None
        read = lambda begin, end: X.read(end - begin) if whole is None else whole[begin:end]  # noqa: E731
        return X.shape, X.dtype, math.prod(X.shape), read
    prefix = "X_" if "X_data" in found else ""
    if f"{prefix}data" not in found:
        raise ValueError(f"there is neither an array X nor a sparse matrix, but {', '.join(found[:20])}")
    if "format" in found and _Array(archive, "format").read().astype(str) != "csr":
        file.seek(0)
        rows = sparse.csr_array(sound_csr(sparse.load_npz(file)))
        return rows.shape, rows.dtype, rows.nnz, lambda begin, end: rows[begin:end]
    parts = [_Array(archive, f"{prefix}{part}") for part in ("data", "indices", "indptr", "shape")]
    data, indices, indptr, (n_rows, n_features) = *parts[:2], parts[2].read(), map(int, parts[3].read())
    if indptr.shape != (n_rows + 1,) or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any():
        raise ValueError("indptr does not fit the shape")
    if len(data.shape) != 1 or data.shape != indices.shape or indptr[-1] > data.shape[0]:
        raise ValueError(
            f"there are {data.shape} values and {indices.shape} indices, but indptr ends with {indptr[-1]}"
        )

    def read_rows(begin: int, end: int) -> Any:
        pointers = indptr[begin : end + 1] - indptr[begin]
        own = data.read(int(pointers[-1])), indices.read(int(pointers[-1])), pointers
        return sparse.csr_array(own, shape=(end - begin, n_features))

    return (n_rows, n_features), data.dtype, data.shape[0], read_rows


def _small_indices(X: Any) -> Any:
    """Return a matrix with 32-bit indices if these suffice: SciPy and scikit-learn refuse others in places."""
    if hasattr(X, "indices") and X.indices.dtype != np.int32 and max(X.nnz, *X.shape) <= np.iinfo(np.int32).max:
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X
