"""Checkpoint and resume: a log of what the data have answered, and partitions that answer from it.

A solver is a pure function of the answers of the data. So a fit that was killed is resumed by running it again from its
beginning with the answers of the log, which takes no pass over the data, up to where the log ends, and from there with
the data: to the last bit the same fit, whatever the solver, and at most one pass is lost. What stays with the
partitions (scores, weights) is not in the log. During the replay it is only noted how to make it, and what is still
needed at the end of the log is then made: where rows are elsewhere, the coefficients of the last step are enough.

The log is a file that only grows: a header that says to which fit it belongs, and records with a checksum each. A
record that was not written to its end is cut off.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.data import Partitions, PerPartition
from dropmargin.data.partitions import Totals
from dropmargin.streaming.codec import CodecError, decode, encode
from dropmargin.streaming.memory import show_size

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"dropmargin checkpoint 1\n"
_RECORD = struct.Struct("<QII")  # length, checksum of the content, checksum of the question
_HASH_BYTES = 32
# What was written is on the disk after so many seconds, even if the power fails.
_SYNC_SECONDS = 10.0


#: Instead of an answer: this one was not written, but asked for again it is the same.
ASK = object()


class Log:
    """Answers of the data, by their order.

    Parameters
    ----------
    path : Path
        The file, which is made if it is not there.
    data_hash, parameter_hash : bytes
        To which fit it belongs, 32 bytes each.
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
        self._records: Iterator[tuple[int, bytes]] | None = self._read_records()
        self._next = self._advance()

    @property
    def is_replaying(self) -> bool:
        """Whether there are answers left."""
        return self._next is not None

    def answer(self, question: int) -> Any:
        """Return the next answer, which must be that to the question; `ASK` if it has to be asked for again."""
        assert self._next is not None
        asked, content = self._next
        if asked != question:
            raise ValueError(
                f"checkpoint={str(self._path)!r} cannot be resumed: the fit has taken another way than when it was "
                "written, as with another version of NumPy or on another kind of machine. Delete it to begin anew."
            )
        self._next = self._advance()
        try:
            return decode(content) if content else ASK
        except CodecError as error:
            raise ValueError(
                f"checkpoint={str(self._path)!r} cannot be resumed: it was not written by dropmargin, though its "
                f"checksums are right ({error}). Delete it to begin anew."
            ) from None

    def write(self, question: int, value: Any) -> None:
        """Append an answer; of one that cannot be written, that it was given."""
        try:
            content = encode(value)
        except CodecError:
            content = b""
        record = memoryview(_RECORD.pack(len(content), zlib.crc32(content), question) + content)
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
        """Have all on the disk."""
        os.fsync(self._file.fileno())
        self._file.close()

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
        if wanted.startswith(found) and len(found) < len(wanted):  # new, or killed while it was made
            self._file.seek(0)
            self._file.truncate()
            self._file.write(wanted)
        elif not found.startswith(_MAGIC):
            raise ValueError(f"checkpoint={str(self._path)!r} is not a checkpoint; name another file.")
        elif found != wanted:
            of_data = found[len(_MAGIC) :][:_HASH_BYTES] != data_hash
            what = "other data" if of_data else "other parameters, or another version of the library"
            raise ValueError(
                f"checkpoint={str(self._path)!r} is of a fit with {what}. "
                "Delete it to begin anew, or name another file."
            )

    def _read_records(self) -> Iterator[tuple[int, bytes]]:
        """Yield the whole records, and cut off what is behind them."""
        while True:
            begin = self._file.tell()
            head = self._file.read(_RECORD.size)
            if len(head) == _RECORD.size:
                length, checksum, question = _RECORD.unpack(head)
                rest = os.fstat(self._file.fileno()).st_size - self._file.tell()
                content = self._file.read(length) if length <= rest else b""
                if len(content) == length and zlib.crc32(content) == checksum:
                    yield question, content
                    continue
            self._file.seek(begin)
            self._file.truncate()
            return

    def _advance(self) -> tuple[int, bytes] | None:
        assert self._records is not None
        return next(self._records, None)

    def __repr__(self) -> str:
        return f"Log({str(self._path)!r}, {show_size(os.fstat(self._file.fileno()).st_size)})"


class _Deferred(PerPartition):
    """What a `map` would have returned: made when it is first needed."""

    def __init__(self, make: Callable[[], PerPartition]) -> None:
        super().__init__()
        self._make: Callable[[], PerPartition] | None = make
        self._made: PerPartition | None = None

    def made(self) -> PerPartition:
        """Return the values."""
        if self._made is None:
            assert self._make is not None
            self._made, self._make = self._make(), None
        return self._made


class LoggedPartitions(Partitions[Any]):
    """Partitions whose answers are in a log, or go there.

    Parameters
    ----------
    make : callable
        Returns the partitions that answer what the log does not; called when that is first needed.
    n_partitions : int
    log : Log
    is_owned : bool
        Whether to close the partitions, if they were made.
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
        self._make = make
        self._data: Partitions[Any] | None = None
        self._log = log
        self._is_owned = is_owned

    def data(self) -> Partitions[Any]:
        """Return the partitions behind the log."""
        if self._data is None:
            self._data = self._make()
        return self._data

    def map(self, function: Callable[..., Any], *args: Any) -> PerPartition:
        self.count(function)
        if not self._log.is_replaying:
            return self.data().map(function, *_made(args))
        state = np.geterr()  # the caller's, for when it is made

        def make() -> PerPartition:
            with np.errstate(**state):
                return self.data().map(function, *_made(args))

        return _Deferred(make)

    def gather(self, values: PerPartition) -> list[Any]:
        return self._ask(_question("gather", ()), lambda: self.data().gather(_made([values])[0]))

    def map_sum(self, function: Callable[..., Totals], *args: Any) -> Totals:
        self.count(function)
        return self._ask(_question(function.__name__, args), lambda: tuple(self.data().map_sum(function, *_made(args))))

    def map_partitions(
        self, function: Callable[..., Any], *args: Any, shared_cache: dict[Any, Any] | None = None, stored: bool = False
    ) -> LoggedPartitions:
        def make() -> Partitions[Any]:
            return self.data().map_partitions(function, *_made(args), shared_cache=shared_cache, stored=stored)

        return LoggedPartitions(make, self.n_partitions, self._log, shared_cache)

    def close(self) -> None:
        if self._data is not None and self._is_owned:
            self._data.close()

    def _ask(self, question: int, answer: Callable[[], Any]) -> Any:
        if not self._log.is_replaying:
            value = answer()
            self._log.write(question, value)
            return value
        known = self._log.answer(question)
        return answer() if known is ASK else known


def _made(args: Sequence[Any]) -> list[Any]:
    return [arg.made() if isinstance(arg, _Deferred) else arg for arg in args]


def _question(name: str, args: Sequence[Any]) -> int:
    """Return a checksum of what is asked: the name of the function, and the numbers that it is asked with."""
    found = zlib.crc32(name.encode())
    for arg in args:
        if isinstance(arg, np.ndarray):
            found = zlib.crc32(np.ascontiguousarray(arg).tobytes(), found)
        elif isinstance(arg, bool | int | float):
            found = zlib.crc32(repr(arg).encode(), found)
    return found


def hash_of(*parts: Any) -> bytes:
    """Return a hash of texts, numbers and arrays, for a `Log`."""
    total = hashlib.sha256()
    for part in parts:
        data = np.ascontiguousarray(part).tobytes() if isinstance(part, np.ndarray) else repr(part).encode()
        total.update(struct.pack("<Q", len(data)) + data)
    return total.digest()
