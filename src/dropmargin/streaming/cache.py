"""The cache of data files: blocks of rows and their labels as .npy files, which are memory-mapped, and a manifest.

The name of a cache's folder has a hash of the content of the files and of the options, and one of the names of the
files, by which the cache of an earlier content is found and removed. A cache is written under another name and renamed
when it is complete. One that cannot be read is written again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from dropmargin.data import from_arrays, to_arrays
from dropmargin.data.structure import structure_fault
from dropmargin.io.data import DataFormatError
from dropmargin.streaming.files import DataFiles, read_blocks, scan_files
from dropmargin.streaming.partitions import BlockPartitions

FOLDER = ".dropmargin-cache"
_VERSION = 6
# The size of a block. A block of sparse rows this large takes milliseconds; calls cost less than a tenth of that.
BLOCK_BYTES = 2**23
# A conversion writes a block every few seconds. A folder without changes for this long belongs to a process that ended.
_LEFTOVER_SECONDS = 6 * 3600
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, EOFError)


class DamagedCacheError(Exception):
    """The files of a cache are not those that were written."""


class CachedPartitions(BlockPartitions):
    """The blocks of a cache; their matrices are memory-mapped at every use.

    Parameters
    ----------
    folder : Path
    files : DataFiles
        The files of which this is the cache.
    """

    def __init__(self, folder: Path, files: DataFiles) -> None:
        try:
            spec = json.loads((folder / "manifest.json").read_text())
            blocks, n_features = spec["blocks"], int(spec["n_features"])
            names = [f"{files.paths[k]}, rows {first + 1} to {first + n}" for k, first, n, _ in blocks]
            labels = [np.load(folder / f"{i}-labels.npy") for i in range(len(names))]  # refuses Python objects
            super().__init__(labels, names, n_features)
            self._n_arrays = [n_arrays for *_, n_arrays in blocks]
            self.feature_names = spec["feature_names"] and tuple(map(str, spec["feature_names"]))
            self.zero_based = spec["zero_based"]
        except _UNREADABLE as error:
            raise DamagedCacheError(f"{folder} cannot be read: {error}") from error
        self.folder, self._unchecked = folder, set(range(len(names)))

    def fetch(self, index: int) -> Any:
        try:
            arrays = []
            for k in range(self._n_arrays[index]):
                # A file that is too short is an error here, and not a crash at the use of the array.
                mapped = np.load(self.folder / f"{index}-{k}.npy", mmap_mode="r")
                arrays.append(mapped.view(np.ndarray))
            X = from_arrays(arrays, (len(self.labels[index]), self.shape[1]))
            if index in self._unchecked:  # an index outside of the shape would crash the process
                fault = structure_fault(X, exact=True)
                if fault is not None or X.dtype.kind != "f":
                    raise ValueError(fault or f"values are of type {X.dtype}")
                self._unchecked.discard(index)
        except _UNREADABLE as error:
            raise DamagedCacheError(f"Block {index} of {self.folder} cannot be read: {error}") from error
        return X


def open_cache(files: DataFiles, home: Path) -> CachedPartitions:
    """Return the cache of some files; it is written if it does not exist, or cannot be read."""
    home.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(home)
    fingerprint = files.fingerprint()
    content = joblib.hash([fingerprint, files.format, repr(files.options), _VERSION])
    names = joblib.hash([[str(path.resolve()) for path in files.paths], repr(files.options)])[:12]
    for folder in home.glob(f"{content}-*"):  # also of files that have other names now
        with suppress(DamagedCacheError):
            return CachedPartitions(folder, files)
    folder = home / f"{content}-{names}"
    _write(folder, files)
    if files.fingerprint() != fingerprint:
        shutil.rmtree(folder, ignore_errors=True)
        raise ValueError("The files changed while they were read. Try again.")
    for other in home.glob(f"*-{names}"):  # of an earlier content
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return CachedPartitions(folder, files)


def _write(folder: Path, files: DataFiles) -> None:
    """Convert the files, in a temporary folder that is renamed at the end."""
    files = scan_files(files)  # before the folder exists: this may take long, and writes nothing
    scratch = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    try:
        spec = _convert(scratch, files)
        (scratch / "manifest.json").write_text(json.dumps(spec))
        with suppress(DamagedCacheError):
            CachedPartitions(folder, files)
            return  # written by another process meanwhile, which may use it
        shutil.rmtree(folder, ignore_errors=True)
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _convert(folder: Path, files: DataFiles) -> dict[str, Any]:
    """Write the rows and labels of all files to a folder, and return the manifest."""
    blocks: list[tuple[int, int, int, int]] = []  # file, its rows before, numbers of rows and of arrays
    labels: list[Any] = []
    part: Any = None
    for number, part in read_blocks(files, BLOCK_BYTES):
        X = part.X
        labels.append(np.asarray(part.y))
        for k, array in enumerate(to_arrays(X)):
            is_index = k > 0 and max(X.shape[1], X.nnz) < 2**31
            _save(folder / f"{len(blocks)}-{k}.npy", array.astype(np.int32, copy=False) if is_index else array)
        first = blocks[-1][1] + blocks[-1][2] if blocks and blocks[-1][0] == number else 0
        blocks.append((number, first, X.shape[0], len(to_arrays(X))))
    if part is None:
        raise DataFormatError("there are no rows in any file", str(files.paths[0].parent))
    is_text = any(own.dtype.kind in "OUST" for own in labels)  # else numbers, in all blocks
    for i, own in enumerate(labels):
        _save(folder / f"{i}-labels.npy", own.astype(str) if is_text else own)
    common = {"feature_names": part.feature_names, "zero_based": files.options.zero_based}
    return {"blocks": blocks, "n_features": part.X.shape[1]} | common


def _save(path: Path, array: Any) -> None:
    try:
        np.save(path, array)
    except OSError as error:  # which has no file name, and no reason if the disk is full
        what = f"The cache cannot be written to {str(path.parent.parent)!r} ({error})"
        raise OSError(f"{what}: free space there, or set cache= to another folder.") from error


def _remove_leftovers(home: Path) -> None:
    """Remove unfinished folders that have not been written to for hours.

    The process that created one cannot be checked: it may be in another container or on another machine.
    """
    for folder in home.glob("partial-*"):
        with suppress(OSError):
            last_written = max(path.stat().st_mtime for path in [folder, *folder.iterdir()])
            if time.time() - last_written > _LEFTOVER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
