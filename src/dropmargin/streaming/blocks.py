"""Blocks of rows outside of memory: in files of a folder, or slices of an array.

Each block is in ``.npy`` files of its own, which are memory-mapped whenever its rows are fetched. Mapped pages count as
memory of the process until the fetched rows are deleted, after their use. The operating system reads the next block in
the meantime. Blocks for which there is room are read into memory once.
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

_DENSE, _SPARSE = ("rows",), ("data", "indices", "indptr")


class DamagedBlockError(Exception):
    """The files of a block are not those that were written."""


class BlockInfo(NamedTuple):
    """Shape and layout of a block, and size and checksum of its arrays."""

    n_rows: int
    n_features: int
    is_dense: int
    n_bytes: int
    checksum: int


class FileBlocks:
    """Blocks of rows in files of a folder.

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
        is_dense = is_dense_matrix(X)
        arrays = to_arrays(X)
        if not is_dense and max(X.shape[1], X.indptr[-1]) < 2**31:
            arrays = [X.data, X.indices.astype(np.int32, copy=False), X.indptr.astype(np.int32, copy=False)]
        arrays = [np.ascontiguousarray(array) for array in arrays]
        for path, array in zip(self._paths(len(self.blocks), is_dense), arrays, strict=True):
            np.save(path, array)
        n_bytes = sum(array.nbytes for array in arrays)
        self.blocks.append(BlockInfo(X.shape[0], X.shape[1], is_dense, n_bytes, _checksum(arrays)))

    @property
    def sizes(self) -> list[int]:
        """The size of each block in memory."""
        return [block.n_bytes for block in self.blocks]

    def keep(self, room: int) -> None:
        """Keep the first blocks in memory after their first use, as many as fit into ``room`` bytes."""
        self._n_kept = int(np.searchsorted(np.cumsum(self.sizes), room, side="right"))

    def content_hash(self) -> str:
        """Return a hash of all rows."""
        return joblib.hash([tuple(block) for block in self.blocks])

    def fetch(self, index: int) -> Any:
        """Return the rows of a block."""
        if index in self._kept:
            return self._kept[index]
        block, is_kept = self.blocks[index], index < self._n_kept
        if index == 0:
            with suppress(OSError):
                os.utime(self.folder)  # the folder is in use: old ones are removed by their age
        try:
            # A size below that of the header is an error here, and not a crash at the first use of the mapped array.
            arrays = [np.load(path, None if is_kept else "r") for path in self._paths(index, block.is_dense)]
            self._prefetch((index + 1) % len(self.blocks))
            if index in self._unchecked and _checksum(arrays) != block.checksum:
                raise DamagedBlockError(f"block {index} of {self.folder} is not what was written")
            X = from_arrays([array.view(np.ndarray) for array in arrays], (block.n_rows, block.n_features))
        except (OSError, EOFError, ValueError) as error:
            raise DamagedBlockError(f"block {index} of {self.folder} cannot be read: {error}") from error
        if index in self._unchecked:
            self._check_structure(index, X)
            self._unchecked.discard(index)
        if is_kept:
            self._kept[index] = X
        return X

    def _paths(self, index: int, is_dense: int) -> list[Path]:
        return [self.folder / f"{index}-{name}.npy" for name in (_DENSE if is_dense else _SPARSE)]

    def _prefetch(self, index: int) -> None:
        """Ask the operating system to read the files of a block, where it takes such advice."""
        if not hasattr(os, "posix_fadvise") or index in self._kept:
            return
        for path in self._paths(index, self.blocks[index].is_dense):
            with suppress(OSError), path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)

    def _check_structure(self, index: int, X: Any) -> None:
        fault = structure_fault(X, exact=True) if X.dtype.kind == "f" else f"values are of type {X.dtype}"
        if fault is not None:
            raise DataFormatError(
                f"block {index} was not written by dropmargin, though its checksum is right: {fault}. Delete the "
                "folder, which is only a cache, and run again: the data files are converted again",
                str(self.folder),
            )


def _checksum(arrays: Sequence[Array]) -> int:
    checksum = 0
    for array in arrays:
        checksum = zlib.crc32(array.reshape(-1).view(np.uint8).data, checksum)
    return checksum


class ArrayBlocks:
    """Slices of the rows of an array, in memory or memory-mapped, at the given edges."""

    def __init__(self, X: Array, edges: Sequence[int]) -> None:
        self._X, self._edges = X, edges
        self._dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        self._is_kept = False

    @property
    def sizes(self) -> list[int]:
        """The size of each block in memory."""
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
