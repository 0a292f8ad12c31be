"""Writing a file so that at every moment its name stands for the whole old content or the whole new one."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

Path = str | os.PathLike[str]
_OWN_FD = "/proc/self/fd"


def write_atomically(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write a file whole or not at all, and have it on the disk when this returns.

    The new content goes to another file of the same folder, which then takes the name. If anything fails, the old
    file is as it was, and nothing is left behind. A symbolic link is followed: its target is replaced. An existing file
    keeps its permissions. What the making of ``chunks`` raises is raised as it is.
    """
    path = os.fspath(path)
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    before = _existing(target)
    try:
        with _scratch_file(folder, before) as (descriptor, rename_to):
            for chunk in _told_apart(chunks):
                _write_all(descriptor, chunk)
            os.fsync(descriptor)
            rename_to(target)
    except _ChunksFailed as failed:
        raise failed.error from None
    except OSError as error:
        unharmed = "" if before is None else "; the file of that name is as it was"
        raise OSError(error.errno, f"cannot write: {error.strerror}{unharmed}", path) from error
    _sync_folder(folder)


class _ChunksFailed(Exception):  # noqa: N818 (it never leaves this module)
    """The content could not be made: no fault of the file that is written."""

    def __init__(self, error: OSError) -> None:
        self.error = error


def _told_apart(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the same; an `OSError` of their making is told apart from one of their writing."""
    try:
        yield from chunks
    except OSError as error:
        raise _ChunksFailed(error) from error


def _existing(target: str) -> os.stat_result | None:
    """Return what is known of a file that is to be replaced, and refuse to replace a folder or a device."""
    try:
        found = os.stat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "cannot write: it is a folder", target)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "cannot write: it is not an ordinary file", target)
    return found


@contextmanager
def _scratch_file(folder: str, before: os.stat_result | None) -> Iterator[tuple[int, _Rename]]:
    """Open a file in a folder, yield its descriptor and how to give it a name; without a name it vanishes."""
    mode = 0o666 if before is None else 0o600  # the process's umask applies
    rename = _Rename(folder)
    descriptor = _open_nameless(folder, mode)
    if descriptor is None:
        descriptor = os.open(rename.scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    else:
        rename.nameless = descriptor
    try:
        if before is not None:
            _take_over(descriptor, before)
        yield descriptor, rename
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(rename.scratch)
        raise
    finally:
        os.close(descriptor)


class _Rename:
    """Gives a scratch file its name; one without any name has to get a scratch name first."""

    def __init__(self, folder: str) -> None:
        self.scratch = os.path.join(folder, f".dropmargin-{secrets.token_hex(8)}.tmp")
        self.nameless: int | None = None

    def __call__(self, target: str) -> None:
        if self.nameless is None:
            os.replace(self.scratch, target)
            return
        descriptors = os.open(_OWN_FD, os.O_RDONLY)
        try:
            os.link(str(self.nameless), self.scratch, src_dir_fd=descriptors, follow_symlinks=True)
            os.replace(self.scratch, target)
        finally:
            os.close(descriptors)


def _open_nameless(folder: str, mode: int) -> int | None:
    """Return a file without a name, of which a killed process leaves nothing; None where the system has no such."""
    if not (hasattr(os, "O_TMPFILE") and os.path.isdir(_OWN_FD)):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, mode)
    except OSError:  # not every file system has them; if the folder is at fault, the next attempt will say so
        return None


def _take_over(descriptor: int, before: os.stat_result) -> None:
    """Give a file the owner, if that is allowed, and the permissions of another."""
    if hasattr(os, "fchown"):
        with suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(before.st_mode))


def _write_all(descriptor: int, chunk: bytes | memoryview) -> None:
    rest = memoryview(chunk).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_folder(folder: str) -> None:
    """Have the new name on the disk, too, where a folder can be synchronised."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
