"""Bytes of a file or of standard input, gzipped or not, and blocks of whole lines of them."""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import sys
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from dropmargin.io.data.errors import DataFormatError, one_line

STDIN = "-"
#: Compressed data may always grow to this size.
ALWAYS_ALLOWED = 2**26
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_COPY_BYTES = 2**20


class Source:
    """A file to read, once or several times.

    Parameters
    ----------
    path : str or path-like
        ``-`` is standard input, which is copied to a temporary file if it is to be read several times.
    max_ratio : int
        The most that gzipped data may grow.
    """

    def __init__(self, path: str | os.PathLike[str], max_ratio: int) -> None:
        self.is_stdin = os.fspath(path) == STDIN
        self.name = "stdin" if self.is_stdin else os.fspath(path)
        self.max_ratio = max_ratio

    def open(self) -> IO[bytes]:
        """Return a stream of the file's bytes, unpacked."""
        if self.is_stdin and sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed", "standard input")
        raw: Any = sys.stdin.buffer if self.is_stdin else Path(self.name).open("rb", 0)  # noqa: SIM115
        counted = _Counted(raw, is_ours=not self.is_stdin)
        stream = io.BufferedReader(counted, _COPY_BYTES)
        if not stream.peek(2).startswith(_GZIP_MAGIC):
            return stream
        return io.BufferedReader(_Unpacked(stream, counted, self), _COPY_BYTES)

    def open_seekable(self) -> IO[bytes]:
        """Return the same as a stream that can be gone back in: the file itself, or a temporary copy."""
        stream = self.open()
        if stream.seekable() and self._is_file():
            return stream
        copy = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
        with stream:
            shutil.copyfileobj(stream, copy, _COPY_BYTES)
        copy.seek(0)
        return copy

    def opener(self) -> Callable[[], IO[bytes]]:
        """Return a function that opens the file from its beginning, as often as it is called."""
        if self._is_file():
            return self.open
        copy = self.open_seekable()

        def open_copy() -> IO[bytes]:
            copy.seek(0)
            return os.fdopen(os.dup(copy.fileno()), "rb")

        weakref.finalize(open_copy, copy.close)
        return open_copy

    def _is_file(self) -> bool:
        """Return whether this is an ordinary file, which can be read again; a device or a pipe has to be copied."""
        return not self.is_stdin and Path(self.name).is_file()

    def allowed_size(self, size: int) -> int:
        """Return how many bytes a compressed file of this size may hold."""
        return max(ALWAYS_ALLOWED, self.max_ratio * size)

    def check_size(self, unpacked: int, size: int) -> None:
        """Refuse data that unpack to more than is allowed for a file of ``size`` bytes."""
        if unpacked > self.allowed_size(size):
            raise DataFormatError(
                f"{size} bytes unpack to {unpacked} or more, over {self.max_ratio} times as many "
                "(if that is meant, raise --max-ratio)",
                self.name,
            )


class _Counted(io.RawIOBase):
    """A raw stream that knows how many bytes were read of it."""

    def __init__(self, stream: Any, is_ours: bool) -> None:
        self._stream, self._is_ours = stream, is_ours
        self.n_bytes = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._stream.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def readinto(self, buffer: Any) -> int:
        n = self._stream.readinto(buffer)
        self.n_bytes += n
        return int(n)

    def close(self) -> None:
        if self._is_ours:
            self._stream.close()
        super().close()


class _Unpacked(io.RawIOBase):
    """What a gzipped stream holds; broken data and bombs are a `DataFormatError`."""

    def __init__(self, stream: Any, counted: _Counted, source: Source) -> None:
        self._stream, self._counted, self._source = stream, counted, source
        self._gzip = gzip.GzipFile(fileobj=stream, mode="rb")
        self._n_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            n = self._gzip.readinto(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataFormatError(f"broken gzip data: {one_line(error)}", self._source.name) from error
        self._n_bytes += n
        self._source.check_size(self._n_bytes, self._counted.n_bytes)
        return n

    def close(self) -> None:
        self._stream.close()
        super().close()


def line_blocks(stream: IO[bytes], name: str, n_bytes: int, min_lines: int = 1) -> Iterator[tuple[bytearray, int]]:
    """Yield a buffer and how many bytes at its beginning are whole lines, about ``n_bytes`` at a time.

    Where lines are long, it is more bytes: every block but the last has at least ``min_lines`` lines. The bytes end in
    a newline, or are the last of the file and have a newline behind them. The buffer is used again. A byte order mark
    is left out.
    """
    start = stream.read(len(_BOM))
    if start.startswith(_UTF_16):
        raise DataFormatError("the text is UTF-16 (save it as UTF-8)", name)
    start = start.removeprefix(_BOM)
    buffer = bytearray(max(n_bytes, len(_BOM)) + 1)
    buffer[: len(start)] = start
    filled = len(start)
    while True:
        if filled >= len(buffer) - 1:  # too few lines; the caller may still use the old buffer
            buffer = buffer + bytearray(len(buffer))
        with memoryview(buffer) as view:
            n_read = stream.readinto(view[filled:-1])  # type: ignore[attr-defined]
        filled += n_read
        if n_read:
            end = buffer.rfind(b"\n", 0, filled) + 1
            if min_lines > 1 and buffer.count(b"\n", 0, end) < min_lines:
                continue
        else:
            buffer[filled] = ord("\n")
            end = filled
        if end:
            yield buffer, end
            buffer[: filled - end] = buffer[end:filled]
            filled -= end
        if not n_read:
            return


def decoded_blocks(stream: IO[bytes], name: str, n_bytes: int, min_lines: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a line and, from it on, lines of UTF-8 text, without their newlines."""
    n_lines = 0
    for buffer, length in line_blocks(stream, name, n_bytes, min_lines):
        try:
            lines = buffer[:length].decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            line = n_lines + buffer.count(b"\n", 0, error.start) + 1
            column = error.start - buffer.rfind(b"\n", 0, error.start)
            what = f"the byte 0x{buffer[error.start]:02x} is not UTF-8 (save the file as UTF-8)"
            raise DataFormatError(what, name, line, column) from None
        if not lines[-1]:  # behind the last newline
            lines.pop()
        yield n_lines + 1, lines
        n_lines += len(lines)
