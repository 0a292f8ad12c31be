"""Blocks of rows outside of memory: in files of a folder, or slices of an array.

Each block is in a file of its own, which is memory-mapped whenever its rows are fetched. Mapped pages count as
memory of the process until the fetched rows are deleted, after their use; blocks for which there is room stay mapped.
The operating system reads the next block in the meantime.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np

from dropmargin.data import Rows, from_arrays, is_dense_matrix, to_arrays
from dropmargin.data.structure import structure_fault
from dropmargin.io.data import DataFormatError
from dropmargin.typing import Array


class DamagedBlockError(Exception):
    """The files of a block are not those that were written."""


class BlockInfo(NamedTuple):
    """Shape of a block, types of its arrays, the number of stored entries of a sparse one, and a checksum."""

    n_rows: int
    n_features: int
    dtypes: list[str]
    n_stored: int
    checksum: int

    @property
    def counts(self) -> list[int]:
        """The number of items of each array of `data.to_arrays`."""
        if len(self.dtypes) == 1:
            return [self.n_rows * self.n_features]
        return [self.n_stored, self.n_stored, self.n_rows + 1]

    @property
    def n_bytes(self) -> int:
        return sum(np.dtype(own).itemsize * count for own, count in zip(self.dtypes, self.counts, strict=True))


class FileBlocks:
    """Blocks of rows in files of a folder: the arrays of a matrix, one after the other.

    At its first use a block is compared with its checksum, and the indices of a sparse one with its shape: a checksum
    can be computed for any content, and an index outside of the shape would crash the process.
    """

    def __init__(self, folder: Path, blocks: Sequence[BlockInfo] = ()) -> None:
        self.folder, self.blocks = folder, list(blocks)
        self._unchecked = set(range(len(self.blocks)))
        self._n_kept = 0
        self._kept: dict[int, Any] = {}

    def add(self, X: Any) -> None:
        """Write a matrix in canonical form as the next block."""
        arrays = to_arrays(X)
        if not is_dense_matrix(X) and max(X.shape[1], X.indptr[-1]) < 2**31:
            arrays = [X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False)]
        checksum = 0
        with open(self._path(len(self.blocks)), "xb") as file:
            for array in arrays:
                content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
                file.write(content)
                checksum = zlib.crc32(content, checksum)
        dtypes = [array.dtype.str for array in arrays]
        self.blocks.append(BlockInfo(X.shape[0], X.shape[1], dtypes, arrays[0].size, checksum))

    @property
    def sizes(self) -> list[int]:
        return [block.n_bytes for block in self.blocks]

    def is_complete(self) -> bool:
        """Return whether all files have the size of their arrays."""
        return all(os.path.getsize(self._path(i)) == n_bytes for i, n_bytes in enumerate(self.sizes))

    def keep(self, room: int) -> None:
        """Keep the first blocks in memory, as many as fit into ``room`` bytes."""
        self._n_kept = int(np.searchsorted(np.cumsum(self.sizes), room, side="right"))

    def content_hash(self) -> str:
        """Return a hash of all rows."""
        return joblib.hash([tuple(block) for block in self.blocks])

    def fetch(self, index: int) -> Any:
        """Return the rows of a block."""
        if index in self._kept:
            return self._kept[index]
        block, path, arrays = self.blocks[index], self._path(index), []
        if index == 0:
            with suppress(OSError):
                os.utime(self.folder)  # the folder is in use: old ones are removed by their age
        try:
            with open(path, "rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if block.n_bytes else b""
            self._prefetch((index + 1) % len(self.blocks))
            # A size other than that of the arrays is an error here, and not a crash at the use of a mapped array.
            if len(content) != block.n_bytes:
                raise DamagedBlockError(f"{path} has {len(content)} bytes, expected {block.n_bytes}")
            if index in self._unchecked and zlib.crc32(content) != block.checksum:
                raise DamagedBlockError(f"{path} is not what was written")
            offset = 0
            for own, count in zip(block.dtypes, block.counts, strict=True):
                arrays.append(np.require(np.frombuffer(content, own, count, offset), requirements="A"))
                offset += arrays[-1].nbytes
        except (OSError, ValueError, TypeError) as error:
            raise DamagedBlockError(f"{path} cannot be read: {error}") from error
        X = from_arrays(arrays, (block.n_rows, block.n_features))
        if index in self._unchecked:
            self._check_structure(path, X)
            self._unchecked.discard(index)
        if index < self._n_kept:
            self._kept[index] = X
        return X

    def _path(self, index: int) -> str:
        return f"{self.folder}/{index}.rows"

    def _prefetch(self, index: int) -> None:
        """Ask the operating system to read a block, where it takes such advice."""
        if hasattr(os, "posix_fadvise") and index not in self._kept:
            with suppress(OSError), open(self._path(index), "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def _check_structure(self, path: str, X: Any) -> None:
        fault = structure_fault(X, exact=True) if X.dtype.kind == "f" else f"values are of type {X.dtype}"
        if fault is not None:
            raise DataFormatError(
                f"it was not written by dropmargin, though its checksum is right: {fault}. Delete the folder, which is "
                "only a cache, and run again: the data files are converted again",
                path,
            )


class ArrayBlocks:
    """Slices of the rows of an array, in memory or memory-mapped, at the given edges."""

    def __init__(self, X: Array, edges: Sequence[int]) -> None:
        self._X, self._edges = X, edges
        self._dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        self._is_kept = False

    @property
    def sizes(self) -> list[int]:
        return [(end - begin) * self._X.shape[1] * self._dtype.itemsize for begin, end in pairwise(self._edges)]

    def keep(self, room: int) -> None:
        """Keep a mapped array in memory, if it fits into ``room`` bytes."""
        self._is_kept = sum(self.sizes) <= room

    def content_hash(self) -> str:
        """Return a hash of all rows, by a pass over them."""
        return joblib.hash([joblib.hash(self.fetch(index)) for index in range(len(self._edges) - 1)])

    def fetch(self, index: int) -> Any:
        """Return the rows of a block, after releasing the mapped pages of earlier ones."""
        mapped = getattr(self._X, "_mmap", None)
        if mapped is not None:
            offset = getattr(self._X, "offset", 0)
            if mapped.size() < offset - offset % mmap.ALLOCATIONGRANULARITY + len(mapped):
                # Reading beyond the end would end the process.
                raise ValueError("The file of X has become shorter since it was opened: open it again.")
            # Changes of a private mapping exist in memory only.
            if not self._is_kept and hasattr(mmap, "MADV_DONTNEED") and self._X.mode != "c":  # type: ignore[attr-defined]
                mapped.madvise(mmap.MADV_DONTNEED)
        rows = self._X[self._edges[index] : self._edges[index + 1]]
        return np.ascontiguousarray(rows, dtype=self._dtype).view(np.ndarray)


@dataclass(frozen=True)
class StoredRows:
    """Rows in blocks, and their labels.

    ``names`` are those of the blocks in errors: the file, and which of its rows. ``scratch`` is a folder for temporary
    rows. ``zero_based`` is whether the feature indices of svmlight files start at 0.
    """

    blocks: FileBlocks | ArrayBlocks
    n_features: int
    names: list[str]
    labels: list[Array]
    scratch: Path
    feature_names: tuple[str, ...] | None = None
    zero_based: bool | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return sum(map(len, self.labels)), self.n_features

    @cached_property
    def classes(self) -> Array:
        """All labels, sorted."""
        return np.unique(np.concatenate([np.unique(labels) for labels in self.labels]))


def fetched_rows(blocks: FileBlocks | ArrayBlocks, targets: Sequence[tuple[Any, Any]]) -> list[Rows]:
    """Return the rows of blocks, which are fetched at every use, with their labels and sample weights."""
    return [Rows(partial(blocks.fetch, i), y, weights) for i, (y, weights) in enumerate(targets)]
