"""Bytes of a file or of standard input, decompressed if they are gzip data."""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from dropmargin.io.data.errors import DataFormatError, one_line

STDIN = "-"


def name_of(path: str | os.PathLike[str]) -> str:
    """Return the name of a source for messages."""
    return "stdin" if os.fspath(path) == STDIN else os.fspath(path)


@contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file, or a copy of standard input, as a seekable stream of its decompressed bytes."""
    if os.fspath(path) == STDIN:
        stream = cast(IO[bytes], tempfile.TemporaryFile())  # noqa: SIM115 (closed below)
        shutil.copyfileobj(sys.stdin.buffer, stream)
        stream.seek(0)
    else:
        if not (Path(path).is_file() or Path(path).is_dir()) and Path(path).exists():
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
        stream = open(path, "rb")  # noqa: SIM115
    with stream:
        is_gzip = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        try:
            yield cast(IO[bytes], gzip.GzipFile(fileobj=stream)) if is_gzip else stream
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataFormatError(f"the gzip data are broken: {one_line(error)}", name_of(path)) from error


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """Return a file, or all files below a folder in the order of their names, without those that begin with . or _."""
    root = Path(path)
    if not root.is_dir():
        return [root]
    inside = [file for file in sorted(root.rglob("*")) if file.is_file()]
    return [file for file in inside if not any(part[0] in "._" for part in file.relative_to(root).parts)]


def hash_of(path: str | os.PathLike[str]) -> str | None:
    """Return the SHA-256 of a file, or of the names and contents of a folder; None for standard input."""
    if os.fspath(path) == STDIN:
        return None
    digest: Any = hashlib.sha256()
    files = files_of(path)
    for file in files:
        if len(files) > 1:
            digest.update(f"{file.relative_to(path)}\n".encode())
        with open(file, "rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    return f"sha256:{digest.hexdigest()}"
