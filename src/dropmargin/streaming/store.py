"""Blocks of rows as raw arrays in one file, one after the other, and what is known of them."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.linalg import from_arrays, to_arrays
from dropmargin.typing import Array

_ALIGNMENT = 64
_DTYPES = ("<f4", "<f8", "<i4", "<i8")


class DamagedStoreError(Exception):
    """A block is not what was written."""


@dataclass(frozen=True)
class BlockInfo:
    """Where a block is, and of what it is made.

    Parameters
    ----------
    shape : tuple of int
    arrays : tuple of (str, int)
        Type and length of each array of `linalg.to_arrays`.
    offset, n_bytes : int
        Arrays begin at multiples of 64 bytes from ``offset``.
    checksum : int
    """

    shape: tuple[int, int]
    arrays: tuple[tuple[str, int], ...]
    offset: int
    n_bytes: int
    checksum: int

    @classmethod
    def from_json(cls, spec: Any) -> BlockInfo:
        """Return the block of a manifest; a `ValueError`, `TypeError` or `KeyError` if it makes no sense."""
        arrays = tuple((str(dtype), int(length)) for dtype, length in spec["arrays"])
        info = cls(
            (int(spec["shape"][0]), int(spec["shape"][1])),
            arrays,
            *(int(spec[name]) for name in ("offset", "n_bytes", "checksum")),
        )
        size = sum(_padded(np.dtype(dtype).itemsize * length) for dtype, length in arrays if dtype in _DTYPES)
        if size != info.n_bytes or min(info.shape) < 0 or not all(dtype in _DTYPES for dtype, _ in arrays):
            raise ValueError("the sizes do not fit")
        return info

    def view(self, buffer: Array) -> Any:
        """Return the matrix in a buffer of its bytes."""
        views, begin = [], 0
        for dtype, length in self.arrays:
            n_bytes = np.dtype(dtype).itemsize * length
            views.append(buffer[begin : begin + n_bytes].view(dtype))
            begin += _padded(n_bytes)
        return from_arrays(views, self.shape)


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


class BlockWriter:
    """Writes blocks to a new file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blocks: list[BlockInfo] = []
        self._file = path.open("xb")
        self._offset = 0

    def add(self, X: Any) -> BlockInfo:
        """Append a matrix in canonical form."""
        arrays = [
            np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False) for array in to_arrays(X)
        ]
        checksum, n_bytes = 0, 0
        for array in arrays:
            padding = bytes(_padded(array.nbytes) - array.nbytes)
            for chunk in (array.reshape(-1).view(np.uint8).data, padding):
                self._file.write(chunk)
                checksum = zlib.crc32(chunk, checksum)
            n_bytes += _padded(array.nbytes)
        spec = tuple((array.dtype.str, int(array.size)) for array in arrays)
        info = BlockInfo((int(X.shape[0]), int(X.shape[1])), spec, self._offset, n_bytes, checksum)
        self._offset += n_bytes
        self.blocks.append(info)
        return info

    def close(self, sync: bool = True) -> None:
        """Close the file; by default, have all on the disk."""
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())
        self._file.close()


class StoredBlocks:
    """Reads blocks of a file, any number of times, one at a time; the first time each is compared with its checksum."""

    def __init__(self, path: Path, blocks: list[BlockInfo]) -> None:
        self.blocks = blocks
        self._path = path
        self._file = path.open("rb", buffering=0)
        self._trusted = [False] * len(blocks)

    def n_bytes(self, index: int) -> int:
        """Return the size of a block in memory."""
        return self.blocks[index].n_bytes

    def load(self, index: int, buffer: Array) -> Any:
        """Return a block, as a view of ``buffer``, of which it fills the beginning."""
        info = self.blocks[index]
        view = buffer.data[: info.n_bytes]
        self._file.seek(info.offset)
        done = 0
        while done < info.n_bytes:
            n_read = self._file.readinto(view[done:])
            if not n_read:
                raise DamagedStoreError(f"{self._path} ends in block {index}")
            done += n_read
        if not self._trusted[index]:
            if zlib.crc32(view) != info.checksum:
                raise DamagedStoreError(f"block {index} of {self._path} is not what was written")
            self._trusted[index] = True
        return info.view(buffer)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
