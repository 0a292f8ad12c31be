"""A cache of arrays on disk; the key of an array is the fingerprint of everything it is computed from.

A file has a line with the name of the format, the SHA-256 of its key and content, and the numbers. It contains no code.
A truncated or changed file is ignored, and its array is computed again.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.io.atomic import write_atomically
from dropmargin.typing import Array

_FORMAT = b"dropmargin array 1\n"
_DIGEST_SIZE = hashlib.sha256().digest_size


def fingerprint(*parts: Any) -> str:
    """Return the SHA-256, in hexadecimal, of arrays (type, shape and bytes), texts and numbers."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"array {part.dtype.str} {part.shape}\n".encode())
            digest.update(np.ascontiguousarray(part).data.cast("B"))
        else:
            digest.update(f"{type(part).__name__} {part!r}\n".encode())
    return digest.hexdigest()


def check_folder(name: str, value: Any) -> None:
    """Check that a parameter is the path of a folder, or of one that can be created."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError(f"{name} must be None or the path of a folder, got {value!r}.")
    if os.path.exists(value) and not os.path.isdir(value):
        raise ValueError(f"{name} must be None or the path of a folder, but {os.fspath(value)!r} is a file.")


class ArrayCache:
    """A folder of arrays, each written completely or not at all.

    Parameters
    ----------
    folder : str, path or None
        Created when the first array is written. ``None`` for no cache.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)

    def load(self, key: str, shape: tuple[int, ...], dtype: Any) -> Array | None:
        """Return the array of a key, or ``None`` if its file is missing or invalid."""
        if self._folder is None:
            return None
        try:
            content = _path(self._folder, key).read_bytes()
        except FileNotFoundError:
            return None
        start = len(_FORMAT) + _DIGEST_SIZE
        expected = start + int(np.prod(shape)) * np.dtype(dtype).itemsize
        if len(content) != expected or not content.startswith(_FORMAT):
            return None
        array = np.frombuffer(content, dtype, offset=start).reshape(shape)
        return array if content[len(_FORMAT) : start] == _digest(key, array) else None

    def save(self, key: str, array: Array) -> None:
        """Write the array of a key."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        array = np.ascontiguousarray(array)
        write_atomically(_path(self._folder, key), [_FORMAT, _digest(key, array), array.data.cast("B")])


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.array"


def _digest(key: str, array: Array) -> bytes:
    return bytes.fromhex(fingerprint(key, array))
