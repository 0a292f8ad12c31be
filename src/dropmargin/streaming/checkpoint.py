"""Checkpoint and resume: a log of the results of all requests to the data, and partitions that replay it.

A solver is a pure function of the results of its requests to the data. A fit that was killed is resumed by running it
again: results come from the log, without a pass over the data, up to the end of the log, and from the data after that.
The resumed fit is the same to the last bit, for every solver, and at most one pass is lost. Values that stay with the
partitions (scores, curvature weights) are not in the log. During the replay they are deferred, and those that are
needed after the end of the log are computed then.

The log is an append-only file: a header that identifies the fit, and records with a checksum each. An incomplete record
at the end is removed.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

import dropmargin
from dropmargin.data import Partitions, PerPartition, as_dense
from dropmargin.data.partitions import Totals
from dropmargin.errors import ParameterError
from dropmargin.streaming.codec import CodecError, decode, encode

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"dropmargin checkpoint 2\n"
_RECORD = struct.Struct("<QII")  # length, checksum of the content, checksum of the request
_HASH_BYTES = 32
# The file is synchronised with the disk at least every so many seconds, in case of a power failure.
_SYNC_SECONDS = 10.0


class Log:
    """The results of requests to the data, in their order, in a file that is created if it does not exist.

    The two hashes of 32 bytes identify the fit.
    """

    def __init__(self, path: Path, data_hash: bytes, parameter_hash: bytes) -> None:
        self._path = path
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "r+b", buffering=0)
        try:
            self._lock()
            self._check_header(data_hash, parameter_hash)
        except BaseException:
            self._file.close()
            raise
        self._synced = time.monotonic()
        self._records = self._read_records()
        self._next = next(self._records, None)

    @property
    def is_replaying(self) -> bool:
        """Whether the log has results that have not been replayed."""
        return self._next is not None

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

    def close(self) -> None:
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


class _Deferred(PerPartition):
    """The result of a `map` during the replay, computed when it is first needed; its arguments are then freed."""

    def __init__(self, make: Callable[[], PerPartition]) -> None:
        super().__init__()
        self._make: Callable[[], PerPartition] | None = make

    def values(self) -> PerPartition:
        if self._make is not None:
            self._values, self._make = self._make(), None
        return self._values


class LoggedPartitions(Partitions[Any]):
    """Partitions whose results are replayed from a log, or written to it.

    ``make`` returns the partitions for requests that are not in the log, and is called at the first of these. `close`
    closes them as well if ``is_owned``.
    """

    def __init__(
        self,
        make: Callable[[], Partitions[Any]],
        n_partitions: int,
        log: Log,
        shared_cache: dict[Any, Any] | None = None,
        is_owned: bool = True,
    ) -> None:
        super().__init__(n_partitions, shared_cache)
        self._make, self._log, self._is_owned = make, log, is_owned

    @cached_property
    def _data(self) -> Partitions[Any]:
        return self._make()

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        if not self._log.is_replaying:
            return self._data.map(function, *_evaluated(args))
        state = np.geterr()  # the error state of the caller, for the deferred call

        def make() -> PerPartition:
            with np.errstate(**state):
                return self._data.map(function, *_evaluated(args))

        return _Deferred(make)

    def gather(self, values: PerPartition) -> list[Any]:
        return self._log.result(_request("gather", ()), lambda: self._data.gather(_evaluated([values])[0]))

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        self.count(function)
        request = _request(function.__name__, args)
        return self._log.result(request, lambda: tuple(self._data.map_sum(function, *_evaluated(args))))

    def map_partitions(
        self, function: Callable[..., Any], *args: Any, shared_cache: dict[Any, Any] | None = None, stored: bool = False
    ) -> LoggedPartitions:
        def make() -> Partitions[Any]:
            return self._data.map_partitions(function, *_evaluated(args), shared_cache=shared_cache, stored=stored)

        return LoggedPartitions(make, self.n_partitions, self._log, shared_cache)

    def close(self) -> None:
        if "_data" in vars(self) and self._is_owned:
            self._data.close()


def _evaluated(args: Sequence[Any]) -> list[Any]:
    return [arg.values() if isinstance(arg, _Deferred) else arg for arg in args]


def _request(name: str, args: Sequence[Any]) -> int:
    """Return a checksum of a request: the name of the function, and its numbers and arrays."""
    checksum = zlib.crc32(name.encode())
    for arg in args:
        if isinstance(arg, np.ndarray):
            checksum = zlib.crc32(np.ascontiguousarray(arg).tobytes(), checksum)
        elif isinstance(arg, bool | int | float):
            checksum = zlib.crc32(repr(arg).encode(), checksum)
    return checksum


def hash_of(*parts: Any) -> bytes:
    """Return a hash of strings, numbers and arrays, for a `Log`."""
    total = hashlib.sha256()
    for part in parts:
        data = np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
        total.update(struct.pack("<Q", len(data)) + data)
    return total.digest()


def parameter_hash(estimator: Any) -> bytes:
    """Return a hash of everything besides the data that the result of a fit depends on."""
    is_warm = getattr(estimator, "warm_start", False) and hasattr(estimator, "coef_")
    start = [as_dense(estimator.coef_), estimator.intercept_] if is_warm else []
    return hash_of(dropmargin.__version__, np.__version__, _described(estimator), *start)


def _described(value: Any) -> Any:
    if isinstance(value, BaseEstimator):
        params = value.get_params(deep=False).items()
        # The number of threads and the output do not change the result.
        own = [(name, _described(item)) for name, item in sorted(params) if name not in ("n_jobs", "verbose")]
        return type(value).__name__, own
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    if isinstance(value, np.ndarray):
        return "array", value.tolist()
    return sorted(value.items(), key=repr) if isinstance(value, dict) else repr(value)
