"""Checkpoint and resume: a log of the results of all requests to the data, and partitions that replay it.

A solver is a pure function of the results of its requests to the data. A fit that was killed is resumed by running it
again: results come from the log, without a pass over the data, up to the end of the log, and from the data after that.
The resumed fit is the same to the last bit, for every solver, and at most one pass is lost. Values that stay with the
partitions (scores, curvature weights) are not in the log. Those that are needed after its end are computed then.

The log is an append-only file: a header that identifies the fit, and records with a checksum each. An incomplete record
at the end is removed. A result is arrays, numbers, blocks of rows, or tuples and lists of these: arrays in the
safetensors format, which contains no code, and the structure as JSON, in one more array of bytes.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

import dropmargin
from dropmargin.data import Block, Partitions, PerPartition, as_dense, from_arrays, row_block, to_arrays
from dropmargin.data.partitions import Totals
from dropmargin.data.structure import structure_fault
from dropmargin.errors import ParameterError
from dropmargin.typing import Array

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

# Windows changes the line ends of a file that is opened without it.
_BINARY = getattr(os, "O_BINARY", 0)
_MAGIC = b"dropmargin checkpoint 2\n"
_RECORD = struct.Struct("<QII")  # length, checksum of the content, checksum of the request
_HASH_BYTES = 32
# The file is synchronised with the disk at least every so many seconds, in case of a power failure.
_SYNC_SECONDS = 10.0


class Log:
    """The results of requests to the data, in their order, in a file that is created if it does not exist.

    The fit is identified by a hash of the data, 32 characters, and by the parameters of the estimator.
    """

    def __init__(self, path: Path, data_hash: str, estimator: Any) -> None:
        self._path = path
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o666), "r+b", buffering=0)
        try:
            self._lock()
            self._check_header(data_hash.encode(), _parameter_hash(estimator).encode())
        except BaseException:
            self._file.close()
            raise
        self._synced = time.monotonic()
        self._records = self._read_records()
        self._next = next(self._records, None)

    def result(self, request: int, compute: Callable[[], Any]) -> Any:
        """Return the next result of the log, which must belong to the request; at its end compute and write it."""
        if self._next is None:
            value = compute()
            self.write(request, value)
            return value
        logged_request, content = self._next
        if logged_request != request:
            raise self._not_resumed(
                "the fit differs from the one that wrote it, for example because of another version of NumPy or "
                "another type of machine"
            )
        self._next = next(self._records, None)
        try:
            return decode(content) if content else compute()
        except CodecError as error:
            what = f"it was not written by dropmargin, though its checksums are valid ({error})"
            raise self._not_resumed(what) from None

    def write(self, request: int, value: Any) -> None:
        """Append a result; for one that cannot be encoded, an empty record."""
        try:
            content = encode(value)
        except CodecError:
            content = b""
        record = memoryview(_RECORD.pack(len(content), zlib.crc32(content), request) + content)
        try:
            while record:
                record = record[self._file.write(record) :]
        except OSError as error:
            what = f"the checkpoint could not be written: {error.strerror}"
            raise OSError(error.errno, what, str(self._path)) from error
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        """Synchronise the file with the disk and close it."""
        os.fsync(self._file.fileno())
        self._file.close()

    def _not_resumed(self, what: str) -> ValueError:
        return ValueError(f"checkpoint={str(self._path)!r} cannot be resumed: {what}. Delete it to start again.")

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ValueError(f"checkpoint={str(self._path)!r} is in use by another fit.") from error

    def _check_header(self, data_hash: bytes, parameter_hash: bytes) -> None:
        wanted = _MAGIC + data_hash + parameter_hash
        found = self._file.read(len(wanted))
        if wanted.startswith(found) and len(found) < len(wanted):  # new, or interrupted while writing the header
            self._file.seek(0)
            self._file.truncate()
            self._file.write(wanted)
        elif not found.startswith(_MAGIC):
            what = "is not a checkpoint; choose another file"
            raise ParameterError(f"checkpoint={str(self._path)!r} {what}.", "checkpoint", f"{self._path} {what}")
        elif found != wanted:
            of_data = found[len(_MAGIC) :][:_HASH_BYTES] != data_hash
            what = "other data" if of_data else "other parameters, or another version of the library"
            raise ValueError(
                f"checkpoint={str(self._path)!r} is of a fit with {what}. "
                "Delete it to start again, or choose another file."
            )

    def _read_records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the complete records, and truncate the file after them."""
        while True:
            begin = self._file.tell()
            head = self._file.read(_RECORD.size)
            if len(head) == _RECORD.size:
                length, checksum, request = _RECORD.unpack(head)
                rest = os.fstat(self._file.fileno()).st_size - self._file.tell()
                content = self._file.read(length) if length <= rest else b""
                if len(content) == length and zlib.crc32(content) == checksum:
                    yield request, content
                    continue
            self._file.seek(begin)
            self._file.truncate()
            return


class LoggedPartitions(Partitions[Any]):
    """Partitions whose results are replayed from a log, or written to it.

    Other partitions compute nothing for `map` and `map_partitions` until their results are needed, so that the replay
    takes no pass over the data.
    """

    def __init__(self, data: Partitions[Any], log: Log, shared_cache: dict[Any, Any] | None = None) -> None:
        super().__init__(data.n_partitions, shared_cache)
        self._data, self._log = data, log

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        return self._data.map(function, *args)

    def gather(self, values: PerPartition) -> list[Any]:
        return self._log.result(_request("gather", ()), lambda: self._data.gather(values))

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        self.count(function)
        return self._log.result(_request(function.__name__, args), lambda: self._data.map_sum(function, *args))

    def map_partitions(
        self, function: Callable[..., Any], *args: Any, shared_cache: dict[Any, Any] | None = None, stored: bool = False
    ) -> LoggedPartitions:
        return LoggedPartitions(self._data.map_partitions(function, *args, stored=stored), self._log, shared_cache)

    def close(self) -> None:
        self._data.close()


def _request(name: str, args: Sequence[Any]) -> int:
    """Return a checksum of a request: the name of the function, and its numbers and arrays."""
    checksum = zlib.crc32(name.encode())
    for arg in args:
        if isinstance(arg, np.ndarray):
            checksum = zlib.crc32(np.ascontiguousarray(arg).tobytes(), checksum)
        elif isinstance(arg, bool | int | float):
            checksum = zlib.crc32(repr(arg).encode(), checksum)
    return checksum


def _parameter_hash(estimator: Any) -> str:
    """Return a hash of everything besides the data that the result of a fit depends on."""
    params = estimator.get_params(deep=False)
    own = [(name, value) for name, value in sorted(params.items()) if name not in ("n_jobs", "verbose")]
    is_warm = getattr(estimator, "warm_start", False) and hasattr(estimator, "coef_")
    start = [as_dense(estimator.coef_), estimator.intercept_] if is_warm else []
    return joblib.hash([dropmargin.__version__, np.__version__, type(estimator).__name__, own, start])


# Results as bytes ---------------------------------------------------------------------------------------------------


_STRUCTURE = "structure"


class CodecError(Exception):
    """A value cannot be encoded, or bytes cannot be decoded."""


def encode(value: Any) -> bytes:
    """Return a value as bytes; raise a `CodecError` if it is of another type."""
    arrays: dict[str, Array] = {}
    structure = json.dumps(_describe(value, arrays)).encode()
    return save(arrays | {_STRUCTURE: np.frombuffer(structure, dtype=np.uint8)})


def decode(data: bytes) -> Any:
    """Return the value of the bytes that `encode` has returned; raise a `CodecError` for others."""
    try:
        arrays = load(data)
        structure = json.loads(arrays.pop(_STRUCTURE).tobytes())
        value = _restore(structure, arrays)
    except (SafetensorError, ValueError, TypeError, KeyError, IndexError) as error:
        raise CodecError(str(error)) from error
    if arrays:
        raise CodecError(f"the array {next(iter(arrays))!r} is not part of the structure")
    return value


def _describe(value: Any, arrays: dict[str, Array]) -> Any:
    """Return the structure of a value as JSON, and add its arrays."""
    if value is None or isinstance(value, bool | int | str) or type(value) is float:
        return {"value": value}
    if isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        if array.dtype.kind not in "fiub":
            raise CodecError(f"cannot encode an array of type {array.dtype}")
        name = str(len(arrays))
        arrays[name] = array
        return {"array" if isinstance(value, np.ndarray) else "scalar": name}
    if isinstance(value, Block):
        return {"block": [_describe(item, arrays) for item in to_arrays(value.rows)], "shape": value.rows.shape}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_describe(item, arrays) for item in value]}
    raise CodecError(f"cannot encode a {type(value).__name__}")


def _restore(structure: Any, arrays: dict[str, Array]) -> Any:
    """Return the value of a structure, and remove its arrays."""
    kind, content = next(iter(structure.items()))
    if kind == "value":
        return content
    if kind in ("array", "scalar"):
        array = arrays.pop(content).copy()  # the loaded array is read-only
        return array if kind == "array" else array[()]
    items = [_restore(item, arrays) for item in content]
    if kind == "block":
        n_rows, n_features = structure["shape"]
        rows = from_arrays(items, (int(n_rows), int(n_features)))
        fault = structure_fault(rows, exact=True)
        if fault is not None:
            raise CodecError(fault)
        return row_block(rows)
    return {"tuple": tuple, "list": list}[kind](items)
