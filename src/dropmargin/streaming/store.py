"""Blocks of rows in memory-mapped arrays: the three arrays of one large CSR matrix, or one dense array.

Mapped pages count as memory of the process, so those of a block are released after its use, except of blocks for which
there is room. The operating system prefetches the next block. (Without ``madvise``, as on Windows, it also decides
which pages stay in memory.)
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.data import Rows, from_arrays, is_dense_matrix, to_arrays
from dropmargin.data.structure import structure_fault
from dropmargin.io.data import DataFormatError
from dropmargin.streaming.checkpoint import hash_of
from dropmargin.typing import Array

_DENSE, _SPARSE = ("rows",), ("data", "indices", "indptr")
_KINDS = {"rows": "f", "data": "f", "indices": "i", "indptr": "i"}


class DamagedStoreError(Exception):
    """A block differs from what was written."""


class MixedPrecisionError(Exception):
    """Rows in double precision follow rows in single precision."""


@dataclass(frozen=True)
class BlockInfo:
    """The number of rows of a block, of its stored entries (of dense rows, 0), and a checksum of its bytes, if any."""

    n_rows: int
    n_stored: int = 0
    checksum: int | None = None


class BlockWriter:
    """Writes blocks of rows to ``.npy`` files in a folder; they are all dense or all sparse, and of one precision."""

    def __init__(self, folder: Path, dtype: Any = None) -> None:
        self.folder, self._dtype = folder, dtype
        self.blocks: list[BlockInfo] = []
        self._files: list[_NpyWriter] = []
        self._n_stored = 0

    def add(self, X: Any) -> None:
        """Append a matrix in canonical form."""
        self._dtype = X.dtype if self._dtype is None else self._dtype
        if np.promote_types(X.dtype, self._dtype) != self._dtype:
            raise MixedPrecisionError
        X = X.astype(self._dtype, copy=False)
        arrays, n_stored = to_arrays(X), 0
        if not is_dense_matrix(X):
            n_stored = len(X.data)
            indices = X.indices.astype(np.int32 if X.shape[1] < 2**31 else np.int64, copy=False)
            # Row pointers are those of the whole matrix; the first block has the leading zero.
            arrays = [X.data, indices, X.indptr.astype(np.int64)[bool(self.blocks) :] + self._n_stored]
        if not self.blocks:
            names = _DENSE if len(arrays) == 1 else _SPARSE
            paths = (self.folder / f"{name}.npy" for name in names)
            self._files = [_NpyWriter(path, own) for path, own in zip(paths, arrays, strict=True)]
        if len(arrays) != len(self._files):
            raise ValueError("some rows are dense and some sparse: make all of them the same")
        checksum = 0
        for file, array in zip(self._files, arrays, strict=True):
            checksum = file.append(array, checksum)
        self._n_stored += n_stored
        self.blocks.append(BlockInfo(X.shape[0], n_stored, checksum))

    def close(self, sync: bool = True) -> None:
        """Complete the files; by default, also synchronise them with the disk."""
        for file in self._files:
            file.close(sync)


class _NpyWriter:
    """An ``.npy`` file that grows along its first axis."""

    def __init__(self, path: Path, first: Array) -> None:
        self._file = path.open("xb")
        self._dtype, self._row_shape, self._length = first.dtype.newbyteorder("<"), first.shape[1:], 0
        self._write_header()

    def append(self, array: Array, checksum: int) -> int:
        """Write an array, and return the checksum continued by its bytes."""
        content = np.ascontiguousarray(array, dtype=self._dtype).reshape(-1).view(np.uint8).data
        self._file.write(content)
        self._length += len(array)
        return zlib.crc32(content, checksum)

    def close(self, sync: bool) -> None:
        self._file.seek(0)
        self._write_header()  # as long as before: NumPy leaves space for a longer first axis
        self._file.flush()
        if sync:
            os.fsync(self._file.fileno())
        self._file.close()

    def _write_header(self) -> None:
        shape = (self._length, *self._row_shape)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


class MappedBlocks:
    """Blocks of rows of a dense array or of the three arrays of a CSR matrix, memory-mapped or not.

    At its first use a block is compared with its checksum, and the indices of a sparse one with its shape: a checksum
    can be computed for any content, and an index outside of the shape would crash the process.

    ``arrays`` are those of `data.to_arrays`; ``folder`` is that of their files, for errors.
    """

    def __init__(
        self, arrays: Sequence[Array], n_features: int, blocks: Sequence[BlockInfo], folder: Path | None = None
    ) -> None:
        self.blocks, self.n_features, self.folder = list(blocks), n_features, folder
        self._arrays = arrays
        n_rows, n_stored = (
            np.cumsum([0, *sizes]).tolist()
            for sizes in ([block.n_rows for block in blocks], [block.n_stored for block in blocks])
        )
        edges = [n_rows] if len(arrays) == 1 else [n_stored, n_stored, n_rows]
        # Of each block, the slice of each array; row pointers of neighbours overlap by one.
        self._slices = [
            [slice(own[i], own[i + 1] + (k == 2)) for k, own in enumerate(edges)] for i in range(len(blocks))
        ]
        self._dtype = np.float32 if arrays[0].dtype == np.float32 else np.float64
        self._unchecked = {i for i, block in enumerate(blocks) if block.checksum is not None}
        self._n_cached = 0
        self._prefetched = -1

    @property
    def sizes(self) -> list[int]:
        """The size of each block in memory."""
        item_bytes = [np.dtype(self._dtype).itemsize, *(array.itemsize for array in self._arrays[1:])]
        if len(self._arrays) == 1:
            item_bytes[0] *= self.n_features
        return [
            sum((own.stop - own.start) * size for own, size in zip(slices, item_bytes, strict=True))
            for slices in self._slices
        ]

    def keep(self, room: int) -> None:
        """Keep the first blocks in memory, as many as fit into ``room`` bytes."""
        self._n_cached = int(np.searchsorted(np.cumsum(self.sizes), room, side="right"))

    def content_hash(self) -> bytes:
        """Return a hash of all rows: of their checksums, or by a pass over the rows."""
        if all(block.checksum is not None for block in self.blocks):
            return hash_of(self.n_features, [astuple(block) for block in self.blocks])
        hashes = []
        for index in range(len(self.blocks)):
            hashes.append(hash_of(self.n_features, *to_arrays(self.fetch(index))))
            self.release(index)
        return hash_of(*hashes)

    def fetch(self, index: int) -> Any:
        """Return the rows of a block; the next block is prefetched."""
        self._check_length()
        parts = [array[own] for array, own in zip(self._arrays, self._slices[index], strict=True)]
        following = (index + 1) % len(self.blocks)
        if following != self._prefetched:
            self._prefetched = following
            self._advise(following, "MADV_WILLNEED")
        if index in self._unchecked:
            self._check_bytes(index, parts)
        parts[0] = np.ascontiguousarray(parts[0], dtype=self._dtype)
        if len(parts) == 3:
            parts[2] = (parts[2] - parts[2][0]).astype(parts[1].dtype)
        X = from_arrays([part.view(np.ndarray) for part in parts], (self.blocks[index].n_rows, self.n_features))
        if index in self._unchecked:
            self._check_structure(index, X)
            self._unchecked.discard(index)
        return X

    def release(self, index: int) -> None:
        """Release the memory of a block, unless it is to be kept."""
        if index >= self._n_cached:
            self._advise(index, "MADV_DONTNEED")

    def _advise(self, index: int, advice: str) -> None:
        for array, own in zip(self._arrays, self._slices[index], strict=True):
            mapped = getattr(array, "_mmap", None)
            # Changes of a private mapping exist in memory only.
            if mapped is None or not hasattr(mmap, advice) or getattr(array, "mode", None) == "c":
                continue
            begin, end = 0, len(mapped)
            if array.flags.c_contiguous:
                first = end - array.nbytes
                begin, end = (first + array.strides[0] * place for place in (own.start, own.stop))
                begin -= begin % mmap.PAGESIZE
            mapped.madvise(getattr(mmap, advice), begin, max(0, end - begin))

    def _check_length(self) -> None:
        """Raise an error if a mapped file has become shorter: reading beyond its end would end the process."""
        for array in self._arrays:
            mapped, offset = getattr(array, "_mmap", None), getattr(array, "offset", 0)
            if mapped is not None and mapped.size() < offset - offset % mmap.ALLOCATIONGRANULARITY + len(mapped):
                if self.folder is not None:
                    raise DamagedStoreError(f"a file in {self.folder} has become shorter")
                raise ValueError("The file of X has become shorter since it was opened: open it again.")

    def _check_bytes(self, index: int, parts: list[Array]) -> None:
        checksum = 0
        for k, part in enumerate(parts):
            # The first row pointer was written with the block before.
            checksum = zlib.crc32(part[int(k == 2 and index > 0) :].reshape(-1).view(np.uint8).data, checksum)
        if checksum != self.blocks[index].checksum:
            raise DamagedStoreError(f"block {index} of {self.folder} is not what was written")

    def _check_structure(self, index: int, X: Any) -> None:
        fault = structure_fault(X, exact=True)
        if fault is not None:
            raise DataFormatError(
                f"block {index} was not written by dropmargin, though its checksum is right: {fault}. Delete the "
                "folder, which is only a cache, and run again: the data files are converted again",
                str(self.folder),
            )


def open_blocks(folder: Path, blocks: Sequence[BlockInfo], n_features: int) -> MappedBlocks:
    """Return the blocks of a folder; raise a `ValueError` or `OSError` if its files do not have the sizes of them."""
    n_rows, n_stored = sum(block.n_rows for block in blocks), sum(block.n_stored for block in blocks)
    shapes: dict[str, tuple[int, ...]] = {"data": (n_stored,), "indices": (n_stored,), "indptr": (n_rows + 1,)}
    if (folder / "rows.npy").exists():
        shapes = {"rows": (n_rows, n_features)}
    arrays = []
    for name, shape in shapes.items():
        array = np.lib.format.open_memmap(folder / f"{name}.npy", mode="r")  # refuses Python objects
        if array.shape != shape or array.dtype.kind != _KINDS[name] or not array.flags.c_contiguous:
            raise ValueError(f"{name} has the shape {array.shape} and type {array.dtype}, expected {shape}")
        arrays.append(array)
    return MappedBlocks(arrays, n_features, blocks, folder)


@dataclass(frozen=True)
class StoredRows:
    """Rows in blocks, and their labels ``classes[codes]``.

    ``names`` are those of the blocks in errors: the file, and which of its rows. ``scratch`` is a folder for temporary
    rows. ``zero_based`` is whether the feature indices of svmlight files start at 0.
    """

    blocks: MappedBlocks
    names: list[str]
    classes: Array
    codes: Array
    scratch: Path
    feature_names: tuple[str, ...] | None = None
    zero_based: bool | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return len(self.codes), self.blocks.n_features

    def rows(self, sample_weight: Array | None) -> list[Rows]:
        """Return the rows of each block, which are fetched at every use, with their labels and sample weights."""
        slices = [slice(*own) for own in pairwise(np.cumsum([0, *(block.n_rows for block in self.blocks.blocks)]))]
        targets = [
            (self.classes[self.codes[own]], None if sample_weight is None else sample_weight[own]) for own in slices
        ]
        return fetched_rows(self.blocks, targets)


def fetched_rows(blocks: MappedBlocks, targets: Sequence[tuple[Any, Any]]) -> list[Rows]:
    """Return the rows of blocks, with their labels and sample weights."""
    return [Rows(partial(blocks.fetch, i), y, weights) for i, (y, weights) in enumerate(targets)]
