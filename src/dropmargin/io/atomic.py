"""Writing a file so that it always has its whole old content or its whole new content."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

Path = str | os.PathLike[str]


def write_atomically(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file whole or not at all, and synchronise it with the disk.

    The content goes to a temporary file in the same folder, which is then renamed. If anything fails, an existing file
    is unchanged and the temporary file is removed. A symbolic link is followed: its target is replaced. An existing
    file keeps its permissions. Exceptions raised by the iteration over ``chunks`` are passed on unchanged.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    with _named_error(path):
        old = _stat_existing(target)
    with _named_error(path, unchanged=old is not None):
        temporary = os.path.join(folder, f".dropmargin-{secrets.token_hex(8)}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, flags, 0o666 if old is None else 0o600)
    try:
        try:
            for chunk in chunks:
                rest = memoryview(chunk).cast("B")
                with _named_error(path, unchanged=old is not None):
                    while rest:
                        rest = rest[os.write(descriptor, rest) :]
            with _named_error(path, unchanged=old is not None):
                if old is not None and hasattr(os, "fchown"):
                    with suppress(PermissionError):
                        os.fchown(descriptor, old.st_uid, old.st_gid)
                    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        with _named_error(path, unchanged=old is not None):
            os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


@contextmanager
def _named_error(path: Path, *, unchanged: bool = False) -> Iterator[None]:
    """Add the path, and whether the existing file is unchanged, to an `OSError`."""
    try:
        yield
    except OSError as error:
        hint = "; the existing file is unchanged" if unchanged else ""
        raise OSError(error.errno, f"cannot write: {error.strerror or error}{hint}", os.fspath(path)) from error


def _stat_existing(target: str) -> os.stat_result | None:
    """Return the status of an existing regular file, None if there is none; refuse folders and devices."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return found


def _sync_folder(folder: str) -> None:
    """Synchronise the new name with the disk, on systems where a folder can be synchronised."""
    if os.name != "posix":
        return
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
