"""Blocks of rows as raw arrays in one file, one after the other, and what is known of them."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.data import from_arrays, to_arrays
from dropmargin.data.structure import structure_fault
from dropmargin.io.data import DataFormatError
from dropmargin.typing import Array

_ALIGNMENT = 64
_VALUES, _INDICES = ("<f4", "<f8"), ("<i4", "<i8")


class DamagedStoreError(Exception):
    """A block is not what was written."""


@dataclass(frozen=True)
class BlockInfo:
    """Where a block is, and of what it is made.

    Parameters
    ----------
    shape : tuple of int
    arrays : tuple of (str, int)
        Type and length of each array of `data.to_arrays`.
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
        info._check()
        return info

    def _check(self) -> None:
        """Raise a `ValueError` if types and lengths are not those of a dense or a CSR matrix of the shape."""
        dtypes, lengths = zip(*self.arrays, strict=True)
        n_rows, n_features = self.shape
        is_dense = len(dtypes) == 1
        expected = (n_rows * n_features,) if is_dense else (lengths[0], lengths[0], n_rows + 1)
        fits = (
            min(*self.shape, self.offset, *lengths) >= 0
            and dtypes[0] in _VALUES
            and all(dtype in _INDICES for dtype in dtypes[1:])
            and lengths == expected
            and self.n_bytes == sum(_padded(np.dtype(dtype).itemsize * n) for dtype, n in self.arrays)
        )
        if not fits:
            raise ValueError("the sizes do not fit")

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
    """Reads blocks of a file, any number of times, one at a time.

    The first time, a block is compared with its checksum, and the indices of a sparse one with its shape: a checksum
    can be computed for any content, and an index outside of the shape would crash the process.
    """

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
            fault = structure_fault(info.view(buffer), exact=True)
            if fault is not None:
                raise DataFormatError(
                    f"block {index} was not written by dropmargin, though its checksum is right: {fault}. Delete the "
                    f"folder {str(self._path.parent)!r}, which is only a cache, and run again: the data files are "
                    "converted anew",
                    str(self._path),
                )
            self._trusted[index] = True
        return info.view(buffer)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
