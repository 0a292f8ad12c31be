"""The binary cache of data files: rows as ``.npy`` files, labels as numbers, and a manifest.

The name of a cache's folder depends on the files and the options; the manifest has the sizes and modification times of
the files. A cache is written under another name and renamed when it is complete. A stale or damaged one is written
again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import zlib
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.io.data import DataFormatError
from dropmargin.streaming.checkpoint import hash_of
from dropmargin.streaming.files import DataFiles, check_files, read_blocks
from dropmargin.streaming.memory import check_conversion
from dropmargin.streaming.store import BlockInfo, BlockWriter, MixedPrecisionError, StoredRows, open_blocks
from dropmargin.typing import Array

FOLDER = ".dropmargin-cache"
_VERSION = 2
# A conversion writes a block every few seconds. A folder without changes for this long belongs to a process that ended.
_LEFTOVER_SECONDS = 6 * 3600
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, EOFError)


def open_cache(files: DataFiles, home: Path, block_bytes: int, limit: int) -> StoredRows:
    """Return the cache of some files; it is written if it does not exist, is stale, or visibly damaged.

    ``limit`` is the memory limit of the process.
    """
    home.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(home)
    key = hash_of([str(path.resolve()) for path in files.paths], repr(files.options), block_bytes).hex()[:24]
    folder = home / key
    found = _read(folder, files)
    if found is None:
        largest = max(files.paths, key=lambda path: path.stat().st_size)
        check_conversion(limit, str(largest), largest.stat().st_size if files.format == "npz" else 0, block_bytes)
        try:
            _write(folder, files, block_bytes)
        except MixedPrecisionError:
            _write(folder, files, block_bytes, np.float64)
        found = _read(folder, files)
    if found is None:
        raise ValueError(f"The files changed while they were read, or {str(folder)!r} did. Try again.")
    return found


def _read(folder: Path, files: DataFiles) -> StoredRows | None:
    """Return a cache, or ``None`` if it does not exist, is stale or inconsistent."""
    try:
        content, checksum = (folder / "manifest.json").read_text().rsplit("\n", 1)
        spec = json.loads(content)
        if zlib.crc32(content.encode()) != int(checksum) or spec["version"] != _VERSION:
            return None
        if spec["files"] != files.fingerprint:
            return None
        # A mapping contains numbers and strings only, never Python objects.
        classes, codes = (
            np.array(np.lib.format.open_memmap(folder / f"{name}.npy", mode="r")) for name in ("classes", "codes")
        )
        blocks = [BlockInfo(*map(int, block)) for block in spec["blocks"]]
        found = StoredRows(
            open_blocks(folder, blocks, int(spec["n_features"])),  # compares sizes and types of the files
            list(map(str, spec["names"])),
            classes,
            codes,
            folder.parent,
            None if spec["feature_names"] is None else tuple(map(str, spec["feature_names"])),
            spec["zero_based"],
        )
        return found if _labels_checksum(classes, codes) == spec["labels"] and _is_sound(found) else None
    except _UNREADABLE:
        return None


def _is_sound(found: StoredRows) -> bool:
    """Return whether the parts of a cache are consistent: one label per row, one name per block and per feature."""
    codes, classes, blocks = found.codes, found.classes, found.blocks.blocks
    return (
        codes.shape == (sum(block.n_rows for block in blocks),)
        and codes.dtype.kind == "i"
        and classes.ndim == 1
        and (len(codes) == 0 or 0 <= codes.min() <= codes.max() < len(classes))
        and min(min(block.n_rows, block.n_stored) for block in blocks) >= 0
        and len(found.names) == len(blocks)
        and (found.feature_names is None or len(found.feature_names) == found.blocks.n_features)
    )


def _write(folder: Path, files: DataFiles, block_bytes: int, dtype: Any = None) -> None:
    """Convert the files, in a temporary folder that is renamed at the end."""
    fingerprint = files.fingerprint
    files = check_files(files)  # before the folder exists: this may take long, and writes nothing
    scratch = Path(tempfile.mkdtemp(prefix="partial-", dir=folder.parent))
    try:
        spec = _convert(scratch, files, block_bytes, dtype) | {"version": _VERSION, "files": fingerprint}
        content = json.dumps(spec)
        (scratch / "manifest.json").write_text(f"{content}\n{zlib.crc32(content.encode())}")
        if _read(folder, files) is not None:  # written by another process meanwhile, which may use it
            return
        shutil.rmtree(folder, ignore_errors=True)
        try:
            scratch.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _convert(folder: Path, files: DataFiles, block_bytes: int, dtype: Any) -> dict[str, Any]:
    """Write the rows and labels of all files to a folder, and return the manifest."""
    writer = BlockWriter(folder, dtype)
    names: list[str] = []
    labels: list[Array] = []
    n_features, feature_names = 0, None
    last, first_row = -1, 0
    for number, part in read_blocks(files, block_bytes):
        first_row = first_row if number == last else 0
        last = number
        try:
            writer.add(part.X)
        except ValueError as error:
            raise DataFormatError(str(error), str(files.paths[number])) from None
        labels.append(np.asarray(part.y))
        names.append(f"{files.paths[number]}, rows {first_row + 1} to {first_row + part.n_samples}")
        first_row += part.n_samples
        n_features, feature_names = part.X.shape[1], part.feature_names
    writer.close()
    if not writer.blocks:
        raise DataFormatError("there are no rows in any file", str(files.paths[0].parent))
    classes, codes = _merge_labels(labels, names)
    np.save(folder / "classes.npy", classes)
    np.save(folder / "codes.npy", codes)
    return {
        "blocks": [astuple(block) for block in writer.blocks],
        "names": names,
        "n_features": n_features,
        "feature_names": feature_names,
        "zero_based": files.options.zero_based,
        "labels": _labels_checksum(classes, codes),
    }


def _labels_checksum(classes: Array, codes: Array) -> int:
    return zlib.crc32(codes.tobytes(), zlib.crc32(classes.tobytes()))


def _merge_labels(labels: list[Array], names: list[str]) -> tuple[Array, Array]:
    """Return all labels, sorted, and the index of the label of each row."""
    is_text = [own.dtype.kind in "OUST" for own in labels]
    if len(set(is_text)) > 1:
        other = is_text.index(not is_text[0])
        kinds = ["text" if own else "numbers" for own in (is_text[other], is_text[0])]
        raise ValueError(
            f"{names[other]}: labels are {kinds[0]}, but in {names[0]} {kinds[1]}. "
            "Make all of them text, or all numbers (options.label_kind)."
        )
    own = [np.unique(part.astype(str) if is_text[0] else part, return_inverse=True) for part in labels]
    classes = np.unique(np.concatenate([found for found, _ in own]))
    codes = [np.searchsorted(classes, found)[inverse].astype(np.int32) for found, inverse in own]
    return classes, np.concatenate(codes)


def _remove_leftovers(home: Path) -> None:
    """Remove unfinished folders that have not been written to for hours.

    The process that created one cannot be checked: it may be in another container or on another machine.
    """
    for folder in [*home.glob("partial-*"), *home.glob("sample-*")]:
        with suppress(OSError):
            last_written = max(path.stat().st_mtime for path in [folder, *folder.iterdir()])
            if time.time() - last_written > _LEFTOVER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
