"""NumPy archives (``.npz``): a matrix of `scipy.sparse.save_npz`, or arrays ``X`` and ``y`` of `numpy.savez`.

`numpy.load` reads the arrays; pickled objects are refused. The size in the header of an array is compared with the
archive before memory is allocated, and the indices of a sparse matrix are compared with its shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.data.structure import structure_fault
from dropmargin.io.data.dataset import Dataset, ReadOptions, small_indices
from dropmargin.io.data.errors import DataFormatError, one_line, quoted
from dropmargin.io.data.sources import Source
from dropmargin.typing import Array

_KINDS = {"numbers": "fiub", "whole numbers": "iu", "text": "US", "labels": "fiubU"}
_INDEX_ARRAYS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read(source: Source, options: ReadOptions) -> Dataset:
    with source.open_seekable() as stream:
        archive = _Archive(source, stream)
        is_dense = "X" in archive.names
        X = _as_float(archive.read("X", "numbers", (None, None))) if is_dense else _read_sparse(archive)
        if X.shape[1] > options.max_features:
            what = f"{X.shape[1]} features, but at most {options.max_features} are allowed"
            raise archive.error(f"{what} (raise --max-features if that is intended)")
        y = _read_labels(archive, options.target, X.shape[0])
        names = None
        if "feature_names" in archive.names:
            names = tuple(archive.read("feature_names", "text", (X.shape[1],)).astype(str).tolist())
    return Dataset(X, y, names)


def chunks(source: Source, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield rows of about ``chunk_bytes`` bytes, after the archive has been read as a whole."""
    whole = read(source, options)
    n_rows = whole.n_samples
    n_bytes = 16 * whole.X.size + 16 * n_rows
    step = max(1, n_rows * chunk_bytes // max(n_bytes, 1))
    for begin in range(0, n_rows, step):
        rows = slice(begin, begin + step)
        yield replace(whole, X=whole.X[rows], y=None if whole.y is None else whole.y[rows])


def read_arrays(source: Source, wanted: Mapping[str, tuple[str, tuple[int | None, ...]]]) -> dict[str, Array]:
    """Return the arrays of these names, each of its kind (a key of `_KINDS`) and shape; None is any length."""
    with source.open_seekable() as stream:
        archive = _Archive(source, stream)
        return {name: archive.read(name, kind, shape) for name, (kind, shape) in wanted.items()}


class _Archive:
    """Arrays of a file."""

    def __init__(self, source: Source, stream: Any) -> None:
        self.source = source
        self._n_bytes = 0
        try:
            self.size = stream.seek(0, 2)
            stream.seek(0)
            self._arrays: Any = np.load(stream, allow_pickle=False)
            self._zip = self._arrays.zip
            self.names = [name.removesuffix(".npy") for name in self._zip.namelist()]
        except Exception as error:  # NumPy and zipfile raise many types for broken files
            raise self.error(f"this is not an .npz archive: {one_line(error)}") from error

    def error(self, what: str) -> DataFormatError:
        return DataFormatError(what, self.source.name)

    def read(self, name: str, kind: str, shape: tuple[int | None, ...]) -> Array:
        """Return an array of this kind (a key of `_KINDS`) and shape; None is any length."""
        if name not in self.names:
            raise self.error(f"the array {name!r} is missing (there are {', '.join(map(quoted, self.names[:20]))})")
        try:
            self._check_header(name, kind, shape)
            array = self._arrays[f"{name}.npy"]
            if array.dtype.kind == "U" and not _is_text(array):
                raise ValueError("it has characters that do not exist")
        except DataFormatError:
            raise
        except Exception as error:
            raise self.error(f"the array {name!r} cannot be read: {one_line(error)}") from error
        return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")

    def _check_header(self, name: str, kind: str, wanted: tuple[int | None, ...]) -> None:
        """Raise an error if an array is not of this kind and shape, or not of the size that its header has."""
        with self._zip.open(f"{name}.npy") as member:
            version = np.lib.format.read_magic(member)
            if version not in _HEADERS:
                raise self.error(f"the array {name!r} has version {version} of the format, which is not supported")
            shape, _, dtype = _HEADERS[version](member)
            n_header = member.tell()
        if dtype.kind not in _KINDS[kind] or dtype.itemsize == 0 or dtype.hasobject:
            raise self.error(f"the array {name!r} should hold {kind}, but its type is {dtype}")
        if len(shape) != len(wanted) or any(w not in (None, n) for w, n in zip(wanted, shape, strict=True)):
            expected = ", ".join("any" if w is None else str(w) for w in wanted)
            raise self.error(f"the array {name!r} has the shape {shape}, it should be ({expected})")
        n_bytes = math.prod(shape) * dtype.itemsize
        self._n_bytes += n_bytes
        self.source.check_size(self._n_bytes, self.size)
        if self._zip.getinfo(f"{name}.npy").file_size != n_header + n_bytes:
            raise self.error(f"the array {name!r} does not have the size of its header")


def _is_text(array: Array) -> bool:
    codes = np.ascontiguousarray(array).reshape(-1).view(array.dtype.str[0] + "u4")
    return not ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()


def _as_float(X: Array) -> Array:
    """Return float32 numbers as float32, and all others as float64."""
    return X.astype(np.float32 if X.dtype == np.float32 else np.float64, copy=False)


def _read_sparse(archive: _Archive) -> Any:
    prefix = "X_" if "X_data" in archive.names else ""
    if f"{prefix}data" not in archive.names:
        listed = ", ".join(map(quoted, archive.names[:20]))
        raise archive.error(f"there is neither an array X nor a sparse matrix of scipy.sparse.save_npz, but {listed}")
    layout = "csr"
    if "format" in archive.names:
        layout = bytes(archive.read("format", "text", ()).astype("S")).decode("ascii", "replace").rstrip("\0")
    if layout not in _INDEX_ARRAYS:
        raise archive.error(f"the sparse format {quoted(layout)} is not supported (save the matrix as CSR: X.tocsr())")
    first, second = (archive.read(f"{prefix}{part}", "whole numbers", (None,)) for part in _INDEX_ARRAYS[layout])
    values = _as_float(archive.read(f"{prefix}data", "numbers", (None,)))
    shape = tuple(int(n) for n in archive.read(f"{prefix}shape", "whole numbers", (2,)))
    archive.source.check_size(8 * shape[0], archive.size)  # of an array with an entry per row
    parts = (values, (first, second)) if layout == "coo" else (values, first, second)
    try:
        X = getattr(sparse, f"{layout}_array")(parts, shape=shape)
        fault = structure_fault(X, exact=True)
    except ValueError as error:
        fault = one_line(error)
    if fault is not None:
        raise archive.error(f"the sparse matrix is malformed: {fault}")
    X = sparse.csr_array(X)
    X.sum_duplicates()  # also sorts
    return small_indices(X)


def _read_labels(archive: _Archive, target: str | None, n_samples: int) -> Array | None:
    name = target or "y"
    if target is None and name not in archive.names:
        return None
    if name not in archive.names:
        listed = ", ".join(map(quoted, archive.names[:20]))
        raise archive.error(f"there is no array {quoted(name)} (--target); the arrays are {listed}")
    y = archive.read(name, "labels", (n_samples,))
    if y.dtype.kind not in "fiu":
        return y
    if not np.isfinite(y).all():
        raise archive.error(f"the array {name!r} has labels that are not finite")
    if y.dtype == np.uint64 and (y >= 2**63).any():
        raise archive.error(f"the array {name!r} has labels of 2^63 or more")
    is_whole = y.dtype.kind != "f" or ((np.abs(y) <= 2.0**53).all() and (np.floor(y) == y).all())
    return y.astype(np.int64 if is_whole else np.float64)
