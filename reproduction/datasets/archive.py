"""Reads files of a folder or of a published archive, without unpacking the archive to disk."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dropmargin.io.data import DataFormatError
from dropmargin.io.data.errors import one_line
from dropmargin.io.data.sources import open_bytes
from reproduction.datasets.folder import find_file

_BROKEN = (tarfile.TarError, EOFError, zlib.error, OSError, ValueError, OverflowError)


@dataclass(frozen=True)
class Content:
    """The bytes of a file, its name, and its location for error messages."""

    name: str
    where: str
    data: bytes


def read_each(place: Path, names: Sequence[str], max_bytes: int) -> Iterator[Content]:
    """Yield the files with these names, in any order.

    Parameters
    ----------
    place : Path
        A folder, whose files may be gzipped, or a tar archive.
    names : sequence of str
        With slashes, relative to the folder or to the archive's root.
    max_bytes : int
        Maximum size of a file.

    Raises
    ------
    DataFormatError
        If a file is too large or invalid, or not in the archive.
    """
    if place.is_dir():
        for name in names:
            yield _read_file(place, name, max_bytes)
    else:
        yield from _read_archive(place, set(names), max_bytes)


def _read_file(folder: Path, name: str, max_bytes: int) -> Content:
    path = find_file(folder / name)
    if path is None:
        raise DataFormatError("the file is missing", str(folder / name))
    with open_bytes(path) as stream:
        return Content(name, str(path), _bounded(stream.read(max_bytes + 1), str(path), max_bytes))


def _read_archive(path: Path, names: set[str], max_bytes: int) -> Iterator[Content]:
    remaining = set(names)
    members = _members(path, remaining, max_bytes)
    for content in members:
        remaining.discard(content.name)
        yield content
        if not remaining:
            members.close()
            return
    raise DataFormatError(f"{min(remaining)} is not in the archive (download the archive again)", str(path))


def _members(path: Path, names: set[str], max_bytes: int) -> Generator[Content, None, None]:
    """Yield the regular files of these names; other members of the archive are ignored."""
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if name not in names or not member.isreg():
                    continue
                where = f"{path}/{name}"
                if member.size > max_bytes:
                    raise _too_large(where, max_bytes)
                stream = archive.extractfile(member)
                assert stream is not None  # it is a regular file
                yield Content(name, where, stream.read())
    except DataFormatError:
        raise
    except _BROKEN as error:
        raise DataFormatError(f"broken archive: {one_line(error)} (download it again)", str(path)) from error


def _bounded(data: bytes, where: str, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(where, max_bytes)
    return data


def _too_large(where: str, max_bytes: int) -> DataFormatError:
    return DataFormatError(f"the file is larger than {max_bytes} bytes", where)
