"""Bytes of a file or of standard input, decompressed if they are gzip data, and blocks of whole lines of them."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from dropmargin.io.data.errors import DataFormatError, one_line

STDIN = "-"
#: Decompressed data of at most this size are always allowed.
ALWAYS_ALLOWED = 2**26
#: Longer lines, and quoted fields with line ends, are errors: they would be in memory as a whole.
MAX_LINE = 2**26
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BUFFER_BYTES = 2**20


class Source:
    """A file to be read once; ``-`` is standard input.

    ``max_ratio`` is the largest allowed ratio of the sizes of decompressed and compressed data. If ``hashed``, `sha256`
    is computed while the file is read.
    """

    def __init__(self, path: str | os.PathLike[str], max_ratio: int, hashed: bool = False) -> None:
        self.is_stdin = os.fspath(path) == STDIN
        self.name = "stdin" if self.is_stdin else os.fspath(path)
        self.max_ratio = max_ratio
        self._digest = hashlib.sha256() if hashed else None
        self._n_read = self._n_decompressed = 0
        self.separator: str | None = None  # csv: that of the header, unless it is a comma

    @property
    def sha256(self) -> str | None:
        """Hash of the bytes of the file, after it has been read to its end."""
        return None if self._digest is None else self._digest.hexdigest()

    def open(self) -> IO[bytes]:
        """Return a stream of the decompressed bytes; closing it leaves standard input open."""
        if self.is_stdin and sys.stdin is None:
            raise OSError(errno.EBADF, "it is closed", "standard input")
        file: Any = sys.stdin.buffer if self.is_stdin else Path(self.name).open("rb", 0)  # noqa: SIM115
        close = (lambda: None) if self.is_stdin else file.close

        def read_file(buffer: Any) -> int:
            n = int(file.readinto(buffer))
            self._n_read += n
            if self._digest is not None:
                self._digest.update(memoryview(buffer)[:n])
            return n

        def decompress(buffer: Any) -> int:
            try:
                n = unpacked.readinto(buffer)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DataFormatError(f"broken gzip data: {one_line(error)}", self.name) from error
            self._n_decompressed += n
            self.check_size(self._n_decompressed, self._n_read)
            return n

        stream = io.BufferedReader(_Stream(read_file, close), _BUFFER_BYTES)
        if not stream.peek(2).startswith(_GZIP_MAGIC):
            return stream
        unpacked = gzip.GzipFile(fileobj=stream, mode="rb")
        return _Unpacked(_Stream(decompress, stream.close), _BUFFER_BYTES)

    def open_seekable(self) -> IO[bytes]:
        """Return the same as a seekable stream: the file itself, or a copy in memory or in a temporary file."""
        with self.open() as stream:
            is_plain = not self.is_stdin and Path(self.name).is_file() and not isinstance(stream, _Unpacked)
            if is_plain and self._digest is None:
                return Path(self.name).open("rb")
            copy: Any = io.BytesIO() if is_plain else tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
            shutil.copyfileobj(stream, copy, _BUFFER_BYTES)
        copy.seek(0)
        return copy

    def check_size(self, decompressed: int, size: int) -> None:
        """Raise an error if ``size`` bytes decompress to more bytes than are allowed."""
        if decompressed > max(ALWAYS_ALLOWED, self.max_ratio * size):
            raise DataFormatError(
                f"{size} bytes unpack to {decompressed} or more, over {self.max_ratio} times as many "
                "(raise --max-ratio if that is intended)",
                self.name,
            )


class _Unpacked(io.BufferedReader):
    """The content of a gzip file."""


class _Stream(io.RawIOBase):
    """A raw stream of a function that reads and one that closes."""

    def __init__(self, read: Callable[[Any], int], close: Callable[[], None]) -> None:
        self._read, self._close = read, close

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._read(buffer)

    def close(self) -> None:
        self._close()
        super().close()


def line_blocks(stream: IO[bytes], name: str, n_bytes: int, min_lines: int = 1) -> Iterator[tuple[bytearray, int]]:
    """Yield a buffer and the number of bytes at its beginning that are whole lines, about ``n_bytes`` at a time.

    Each block but the last has at least ``min_lines`` lines, and more than ``n_bytes`` bytes if the lines are long.
    The bytes end with a newline, or are the last of the file and a newline follows them in the buffer. The buffer is
    reused for the next block. A byte order mark is left out. A line of more than `MAX_LINE` bytes is an error.
    """
    start = stream.read(len(_BOM))
    if start.startswith(_UTF_16):
        raise DataFormatError("the text is UTF-16 (save it as UTF-8)", name)
    start = start.removeprefix(_BOM)
    buffer = bytearray(max(n_bytes, len(_BOM)) + 1)
    buffer[: len(start)] = start
    filled, n_lines = len(start), 0
    while True:
        if filled >= len(buffer) - 1:  # a new buffer, because the caller may still use the old one
            buffer = buffer + bytearray(len(buffer))
        with memoryview(buffer) as view:
            n_read = stream.readinto(view[filled:-1])  # type: ignore[attr-defined]
        filled += n_read
        if n_read:
            end = buffer.rfind(b"\n", 0, filled) + 1
            if filled - end > MAX_LINE:
                what = (
                    f"this line has more than {MAX_LINE // 2**20} MB (is a line end missing, or is it not a text file?)"
                )
                raise DataFormatError(what, name, n_lines + buffer.count(b"\n", 0, end) + 1)
            if min_lines > 1 and buffer.count(b"\n", 0, end) < min_lines:
                continue
        else:
            buffer[filled] = ord("\n")
            end = filled
        if end:
            n_lines += buffer.count(b"\n", 0, end)
            yield buffer, end
            buffer[: filled - end] = buffer[end:filled]
            filled -= end
        if not n_read:
            return


def text_blocks(stream: IO[bytes], name: str, n_bytes: int, min_lines: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line of each block of `line_blocks`, and its bytes."""
    first_line = 1
    for buffer, length in line_blocks(stream, name, n_bytes, min_lines):
        block = bytes(memoryview(buffer)[:length])
        yield first_line, block
        first_line += block.count(b"\n")


def decode_lines(block: bytes, name: str, first_line: int) -> list[str]:
    """Return the lines of a block of UTF-8 text without their newlines."""
    try:
        text = block.decode("utf-8")
        position = block.find(b"\0")
        what = "there is a NUL byte: this is not a text file, or not UTF-8"
    except UnicodeDecodeError as error:
        position, what = error.start, f"the byte 0x{block[error.start]:02x} is not UTF-8 (save the file as UTF-8)"
    if position >= 0:
        line = first_line + block.count(b"\n", 0, position)
        raise DataFormatError(what, name, line, position - block.rfind(b"\n", 0, position))
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]
