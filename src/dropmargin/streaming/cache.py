"""The binary cache of data files: blocks of rows, their labels, and a manifest.

The name of a cache's folder depends on the names of the files and the options; the manifest has hashes of their
content: an edit may change neither size nor modification time. A cache is written under another name and renamed when
it is complete. A stale or damaged one is written again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from dropmargin.io.data import DataFormatError
from dropmargin.streaming.blocks import BlockInfo, FileBlocks, StoredRows
from dropmargin.streaming.files import DataFiles, read_blocks, scan_files
from dropmargin.streaming.memory import check_conversion

FOLDER = ".dropmargin-cache"
_VERSION = 4
# A conversion writes a block every few seconds. A folder without changes for this long belongs to a process that ended.
_LEFTOVER_SECONDS = 6 * 3600
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, EOFError)


def open_cache(files: DataFiles, home: Path, block_bytes: int, limit: int) -> StoredRows:
    """Return the cache of some files; it is written if it does not exist, is stale, or visibly damaged.

    ``limit`` is the memory limit of the process.
    """
    home.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(home)
    key = joblib.hash([[str(path.resolve()) for path in files.paths], repr(files.options), block_bytes])
    folder = home / key[:24]
    fingerprint = files.fingerprint()
    found = _read(folder, fingerprint)
    if found is None:
        largest = max(files.paths, key=lambda path: path.stat().st_size)
        check_conversion(limit, str(largest), largest.stat().st_size if files.format == "npz" else 0, block_bytes)
        _write(folder, files, fingerprint, block_bytes)
        found = _read(folder, fingerprint) if files.fingerprint() == fingerprint else None
    if found is None:
        raise ValueError(f"The files changed while they were read, or {str(folder)!r} did. Try again.")
    return found


def _read(folder: Path, fingerprint: list[list[str]]) -> StoredRows | None:
    """Return a cache, or ``None`` if it does not exist, is stale or inconsistent; blocks are checked at their use."""
    try:
        content, checksum = (folder / "manifest.json").read_text().rsplit("\n", 1)
        spec = json.loads(content)
        if zlib.crc32(content.encode()) != int(checksum) or spec["version"] != _VERSION:
            return None
        if spec["files"] != fingerprint:
            return None
        names, labels, blocks = [], [], []
        for index, (name, checksum, *info) in enumerate(spec["blocks"]):
            names.append(str(name))
            labels.append(np.load(_labels_path(folder, index)))  # refuses Python objects
            blocks.append(BlockInfo(*info))
            if zlib.crc32(labels[-1].tobytes()) != checksum or labels[-1].shape != (blocks[-1].n_rows,):
                return None
        feature_names = None if spec["feature_names"] is None else tuple(map(str, spec["feature_names"]))
        if feature_names is not None and len(feature_names) != blocks[0].n_features:
            return None
        rows, n_features = FileBlocks(folder, blocks), blocks[0].n_features
        if not rows.is_complete():
            return None
        return StoredRows(rows, n_features, names, labels, folder.parent, feature_names, spec["zero_based"])
    except _UNREADABLE:
        return None


def _write(folder: Path, files: DataFiles, fingerprint: list[list[str]], block_bytes: int) -> None:
    """Convert the files, in a temporary folder that is renamed at the end."""
    files = scan_files(files)  # before the folder exists: this may take long, and writes nothing
    scratch = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    try:
        spec = _convert(scratch, files, block_bytes) | {"version": _VERSION, "files": fingerprint}
        content = json.dumps(spec)
        (scratch / "manifest.json").write_text(f"{content}\n{zlib.crc32(content.encode())}")
        if _read(folder, fingerprint) is not None:  # written by another process meanwhile, which may use it
            return
        shutil.rmtree(folder, ignore_errors=True)
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _convert(folder: Path, files: DataFiles, block_bytes: int) -> dict[str, Any]:
    """Write the rows and labels of all files to a folder, and return the manifest."""
    blocks = FileBlocks(folder)
    written: list[tuple[Any, ...]] = []
    feature_names = None
    last, first_row = -1, 0
    for number, part in read_blocks(files, block_bytes):
        first_row = first_row if number == last else 0
        last = number
        labels = np.asarray(part.y)
        labels = labels.astype(str) if labels.dtype.kind in "OUST" else labels
        np.save(_labels_path(folder, len(written)), labels)
        blocks.add(part.X)
        name = f"{files.paths[number]}, rows {first_row + 1} to {first_row + part.n_samples}"
        written.append((name, zlib.crc32(labels.tobytes()), *blocks.blocks[-1]))
        first_row += part.n_samples
        feature_names = part.feature_names
    if not written:
        raise DataFormatError("there are no rows in any file", str(files.paths[0].parent))
    return {"blocks": written, "feature_names": feature_names, "zero_based": files.options.zero_based}


def _labels_path(folder: Path, index: int) -> Path:
    return folder / f"{index}-labels.npy"


def _remove_leftovers(home: Path) -> None:
    """Remove unfinished folders that have not been written to for hours.

    The process that created one cannot be checked: it may be in another container or on another machine.
    """
    for folder in [*home.glob("partial-*"), *home.glob("sample-*")]:
        with suppress(OSError):
            last_written = max(path.stat().st_mtime for path in [folder, *folder.iterdir()])
            if time.time() - last_written > _LEFTOVER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
