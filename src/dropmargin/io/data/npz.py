"""NumPy archives (``.npz``): a matrix of `scipy.sparse.save_npz`, or arrays ``X`` and ``y`` of `numpy.savez`.

Nothing is unpickled and nothing evaluated: headers are matched, sizes are compared with the archive's before memory is
used, and what unpacks to far more than the file's size is refused.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.io.data.dataset import Dataset, ReadOptions
from dropmargin.io.data.errors import DataFormatError, one_line, quoted
from dropmargin.io.data.sources import Source
from dropmargin.typing import Array

_MAGIC = b"\x93NUMPY"
_HEADER = re.compile(
    rb"\{'descr': '([<>|=][a-zA-Z][0-9]{1,9})', 'fortran_order': (True|False), 'shape': \(([0-9, ]{0,200})\), \}\s*"
)
_KINDS = {"numbers": "fiub", "whole numbers": "iu", "text": "US", "labels": "fiubU"}
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, struct.error)
_BROKEN_TOO = (ValueError, KeyError, OverflowError, UnicodeError, MemoryError)
_PARTS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}


def read_npz(source: Source, options: ReadOptions) -> Dataset:
    """Return a whole archive."""
    with source.open_seekable() as stream:
        archive = _Archive(source, stream)
        X = _read_matrix(archive, options)
        n_samples = X.shape[0]
        y = _read_labels(archive, options, n_samples)
        qid = archive.read("qid", "whole numbers", (n_samples,)).astype(np.int64) if archive.has("qid") else None
        names = None
        if archive.has("feature_names"):
            names = tuple(archive.read("feature_names", "text", (X.shape[1],)).astype(str).tolist())
    return Dataset(X, y, qid, names)


def chunk_npz(source: Source, options: ReadOptions, chunk_bytes: int) -> Iterator[Dataset]:
    """Yield rows of a whole archive that take about ``chunk_bytes`` bytes."""
    whole = read_npz(source, options)
    n_rows = whole.n_samples
    n_bytes = 16 * whole.X.size + 16 * n_rows
    step = max(1, n_rows * chunk_bytes // max(n_bytes, 1))
    for begin in range(0, n_rows, step):
        rows = slice(begin, begin + step)
        y, qid = (None if array is None else array[rows] for array in (whole.y, whole.qid))
        yield Dataset(whole.X[rows], y, qid, whole.feature_names)


def read_arrays(source: Source, wanted: Mapping[str, tuple[str, tuple[int | None, ...]]]) -> dict[str, Array]:
    """Return the arrays of these names, each of its kind (a key of `_KINDS`) and shape; None: any length."""
    with source.open_seekable() as stream:
        archive = _Archive(source, stream)
        return {name: archive.read(name, kind, shape) for name, (kind, shape) in wanted.items()}


class _Archive:
    """The arrays of a file, read one by one."""

    def __init__(self, source: Source, stream: Any) -> None:
        self._source = source
        self._n_bytes = 0
        try:
            self._zip = zipfile.ZipFile(stream)
            self._size = stream.seek(0, 2)
            self.names = [name.removesuffix(".npy") for name in self._zip.namelist()]
        except (*_BROKEN, *_BROKEN_TOO) as error:
            raise self.error(f"this is not an .npz archive: {one_line(error)}") from error

    def error(self, what: str) -> DataFormatError:
        """Return the error to raise."""
        return DataFormatError(what, self._source.name)

    def has(self, name: str) -> bool:
        """Return whether there is an array of this name."""
        return name in self.names

    def check_rows(self, n_rows: int) -> None:
        """Refuse a matrix of so many rows that an array of its rows would not be in proportion to the file."""
        self._source.check_size(8 * n_rows, self._size)

    def read(self, name: str, kind: str, shape: tuple[int | None, ...]) -> Array:
        """Return an array of this kind (a key of `_KINDS`) and shape; None: any length."""
        if not self.has(name):
            raise self.error(f"the array {name!r} is missing (there are {', '.join(map(quoted, self.names[:20]))})")
        try:
            with self._zip.open(f"{name}.npy") as member:
                return self._read(member, name, kind, shape)
        except DataFormatError:
            raise
        except (*_BROKEN, *_BROKEN_TOO) as error:
            raise self.error(f"the array {name!r} cannot be read: {one_line(error)}") from error

    def _read(self, member: Any, name: str, kind: str, wanted: tuple[int | None, ...]) -> Array:
        start = member.read(8)
        if start[:6] != _MAGIC or start[6:7] not in (b"\x01", b"\x02", b"\x03"):
            raise self.error(f"{name!r} is not a NumPy array")
        (length,) = struct.unpack("<H", member.read(2)) if start[6] == 1 else struct.unpack("<I", member.read(4))
        header = _HEADER.fullmatch(member.read(min(length, 10_000)))
        if header is None:
            raise self.error(f"the array {name!r} has a header that is not understood, or holds Python objects")
        descr, is_fortran, written = (group.decode() for group in header.groups())
        dtype = np.dtype(descr)
        if dtype.kind not in _KINDS[kind] or dtype.itemsize == 0 or dtype.hasobject:
            raise self.error(f"the array {name!r} should hold {kind}, but its type is {dtype}")
        shape = tuple(int(n) for n in written.replace(" ", "").split(",") if n)
        matches = len(shape) == len(wanted) and all(w in (None, n) for w, n in zip(wanted, shape, strict=True))
        if not matches:
            expected = ", ".join("any" if w is None else str(w) for w in wanted)
            raise self.error(f"the array {name!r} has the shape {shape}, it should be ({expected})")
        n_bytes = math.prod(shape) * dtype.itemsize
        self._n_bytes += n_bytes
        self._source.check_size(self._n_bytes, self._size)
        data = member.read(n_bytes) if n_bytes else b""
        if len(data) != n_bytes or member.read(1):
            raise self.error(f"the array {name!r} is not of the size that its header says")
        if dtype.kind == "U":
            _check_characters(np.frombuffer(data, dtype=dtype.str[0] + "u4"))
        array = np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if is_fortran == "True" else "C")
        return array.astype(dtype.newbyteorder("="), order="C", copy=False)


def _check_characters(codes: Array) -> None:
    if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise ValueError("it holds what is no text")


def _read_matrix(archive: _Archive, options: ReadOptions) -> Any:
    if archive.has("X"):
        X = archive.read("X", "numbers", (None, None))
        _check_width(archive, X.shape[1], options)
        return _as_float(X)
    prefix = "X_" if archive.has("X_data") else ""
    if not archive.has(f"{prefix}data"):
        listed = ", ".join(map(quoted, archive.names[:20]))
        raise archive.error(f"there is neither an array X nor a sparse matrix of scipy.sparse.save_npz, but {listed}")
    layout = "csr"
    if archive.has("format"):
        layout = bytes(archive.read("format", "text", ()).astype("S")).decode("ascii", "replace").rstrip("\0")
    if layout not in _PARTS:
        raise archive.error(f"the sparse format {quoted(layout)} is not known (save the matrix as CSR: X.tocsr())")
    first, second = (archive.read(f"{prefix}{part}", "whole numbers", (None,)) for part in _PARTS[layout])
    values = _as_float(archive.read(f"{prefix}data", "numbers", (None,)))
    n_rows, n_features = (int(n) for n in archive.read(f"{prefix}shape", "whole numbers", (2,)))
    _check_width(archive, n_features, options)
    if n_rows < 0 or n_features < 0:
        raise archive.error(f"the matrix has the shape ({n_rows}, {n_features})")
    archive.check_rows(n_rows)
    return _assemble(archive, layout, values, first, second, (n_rows, n_features))


def _assemble(
    archive: _Archive, layout: str, values: Array, first: Array, second: Array, shape: tuple[int, int]
) -> sparse.csr_array:
    """Return the matrix after checking that every index lies inside; see `_PARTS` for the arrays."""
    X: Any
    if layout == "coo":
        inside = _inside(first, shape[0]) and _inside(second, shape[1]) and len(first) == len(second) == len(values)
        if not inside:
            raise archive.error("the sparse matrix is broken: rows or columns outside of its shape, or too few of them")
        X = sparse.coo_array((values, (first.astype(np.int64), second.astype(np.int64))), shape=shape)
    else:
        length, width = shape if layout == "csr" else shape[::-1]
        pointers = second.astype(np.int64)
        sound = len(pointers) == length + 1 and pointers[0] == 0 and pointers[-1] == len(values) == len(first)
        if not sound or (np.diff(pointers) < 0).any() or not _inside(first, width):
            raise archive.error("the sparse matrix is broken: indices outside of its shape, or indptr does not fit")
        make = sparse.csr_array if layout == "csr" else sparse.csc_array
        X = make((values, first.astype(np.int64), pointers), shape=shape)
    X = sparse.csr_array(X)
    if not X.has_canonical_format:
        X.data = np.array(X.data)  # what was read is read-only
        X.sum_duplicates()  # sorts, too
    largest = max(X.shape[1], len(X.data))
    if largest < 2**31:
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def _inside(indices: Array, n: int) -> bool:
    return not len(indices) or (int(indices.min()) >= 0 and int(indices.max()) < n)


def _check_width(archive: _Archive, n_features: int, options: ReadOptions) -> None:
    if n_features > options.max_features:
        what = f"{n_features} features, but at most {options.max_features} are allowed (raise --max-features if meant)"
        raise archive.error(what)


def _as_float(X: Array) -> Array:
    """Return numbers in double precision, or in single if they came so."""
    return np.ascontiguousarray(X, dtype=np.float32 if X.dtype == np.float32 else np.float64)


def _read_labels(archive: _Archive, options: ReadOptions, n_samples: int) -> Array | None:
    name = options.target or "y"
    if options.target is None and not archive.has(name):
        return None
    y = archive.read(name, "labels", (n_samples,))
    if y.dtype.kind == "f":
        if not np.isfinite(y).all():
            raise archive.error(f"the array {name!r} has labels that are not finite")
        if (np.abs(y) <= 2.0**53).all() and (np.floor(y) == y).all():
            return y.astype(np.int64)
        return y.astype(np.float64)
    if y.dtype.kind in "iu":
        if y.dtype == np.uint64 and (y >= 2**63).any():
            raise archive.error(f"the array {name!r} has labels of 2^63 or more")
        return y.astype(np.int64)
    return y.copy()
