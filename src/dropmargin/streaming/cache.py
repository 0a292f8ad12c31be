"""The binary cache of data files: blocks of rows as raw arrays, labels as numbers, and a manifest.

A cache is a folder whose name says of which files and options it is; the manifest says how large the files were and
when they were changed. It is made under another name and then gets its own, so it is whole or not there. What is stale
or damaged is made again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dropmargin.io.data import DataFormatError
from dropmargin.streaming.checkpoint import hash_of
from dropmargin.streaming.files import DataFiles, check_files, read_blocks
from dropmargin.streaming.memory import check_conversion
from dropmargin.streaming.store import BlockInfo, BlockWriter
from dropmargin.typing import Array

FOLDER = ".dropmargin-cache"
_VERSION = 1
# A conversion writes a block every few seconds; after so long without one, its process is gone.
_LEFTOVER_SECONDS = 6 * 3600
_UNREADABLE = (OSError, ValueError, TypeError, KeyError, IndexError, EOFError)


@dataclass(frozen=True)
class Cache:
    """Data files as blocks.

    Parameters
    ----------
    folder : Path
    blocks : list of BlockInfo
    names : list of str
        What to call the blocks: the file, and which of its rows.
    classes, codes : ndarray
        The labels are ``classes[codes]``.
    feature_names : tuple of str or None
    zero_based : bool or None
        Whether the features of svmlight files are counted from 0.
    """

    folder: Path
    blocks: list[BlockInfo]
    names: list[str]
    classes: Array
    codes: Array
    feature_names: tuple[str, ...] | None
    zero_based: bool | None

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and features there are."""
        return len(self.codes), self.blocks[0].shape[1]

    @property
    def rows_hash(self) -> bytes:
        """A hash of the rows, for a checkpoint."""
        return hash_of([(info.shape, info.checksum) for info in self.blocks])

    @property
    def rows_path(self) -> Path:
        """The file of the blocks."""
        return self.folder / "rows.bin"


def open_cache(files: DataFiles, home: Path, block_bytes: int, limit: int) -> Cache:
    """Return the cache of some files, which is made if it is not there, stale or visibly damaged.

    ``limit`` is of the memory of the process.
    """
    home.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(home)
    key = hash_of([str(path.resolve()) for path in files.paths], repr(files.options), block_bytes).hex()[:24]
    folder = home / key
    found = _read(folder, files)
    if found is not None:
        return found
    largest = max(files.paths, key=lambda path: path.stat().st_size)
    check_conversion(limit, str(largest), largest.stat().st_size if files.format == "npz" else 0, block_bytes)
    _make(folder, home, files, block_bytes)
    made = _read(folder, files)
    if made is None:
        raise ValueError(f"The files changed while they were read, or {str(folder)!r} did. Try again.")
    return made


def discard(cache: Cache) -> None:
    """Remove a cache that turned out to be damaged."""
    shutil.rmtree(cache.folder, ignore_errors=True)


def _read(folder: Path, files: DataFiles) -> Cache | None:
    """Return a cache, or ``None`` if it is not there, of files that have changed, or not what was written."""
    try:
        content, checksum = (folder / "manifest.json").read_text().rsplit("\n", 1)
        if zlib.crc32(content.encode()) != int(checksum):
            return None
        spec = json.loads(content)
        if spec["version"] != _VERSION or spec["files"] != files.fingerprint:
            return None
        blocks = [BlockInfo.from_json(block) for block in spec["blocks"]]
        # A mapped file holds plain numbers and texts, or it is an error: nothing in it can run.
        classes, codes = (
            np.array(np.lib.format.open_memmap(folder / f"{name}.npy", mode="r")) for name in ("classes", "codes")
        )
        size = sum(block.n_bytes for block in blocks)
        labels = zlib.crc32(codes.tobytes(), zlib.crc32(classes.tobytes()))
        sound = (folder / "rows.bin").stat().st_size == size and labels == spec["labels"]
        names = None if spec["feature_names"] is None else tuple(map(str, spec["feature_names"]))
        cache = Cache(folder, blocks, list(map(str, spec["names"])), classes, codes, names, spec["zero_based"])
        return cache if sound and _is_consistent(cache) else None
    except _UNREADABLE:
        return None


def _is_consistent(cache: Cache) -> bool:
    """Return whether the parts of a cache fit together: one label per row, and the same features in every block."""
    n_rows, n_features = cache.shape
    codes, classes = cache.codes, cache.classes
    return (
        codes.shape == (sum(block.shape[0] for block in cache.blocks),)
        and codes.dtype.kind == "i"
        and classes.ndim == 1
        and (n_rows == 0 or 0 <= codes.min() <= codes.max() < len(classes))
        and all(block.shape[1] == n_features for block in cache.blocks)
        and len(cache.names) == len(cache.blocks)
        and (cache.feature_names is None or len(cache.feature_names) == n_features)
    )


def _make(folder: Path, home: Path, files: DataFiles, block_bytes: int) -> None:
    """Convert the files, under another name until that is done."""
    fingerprint = files.fingerprint
    files = check_files(files)  # before there is a folder: this may take long, and writes nothing
    scratch = Path(tempfile.mkdtemp(prefix="partial-", dir=home))
    try:
        spec = _convert(scratch, files, block_bytes) | {"version": _VERSION, "files": fingerprint}
        content = json.dumps(spec)
        (scratch / "manifest.json").write_text(f"{content}\n{zlib.crc32(content.encode())}")
        if _read(folder, files) is not None:  # another process was faster; its cache is as good, and may be in use
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
    writer = BlockWriter(folder / "rows.bin")
    names: list[str] = []
    labels: list[Array] = []
    feature_names: Any = None
    last, first_row = -1, 0
    for number, part in read_blocks(files, block_bytes):
        first_row = first_row if number == last else 0
        last = number
        writer.add(part.X)
        labels.append(np.asarray(part.y))
        names.append(f"{files.paths[number]}, rows {first_row + 1} to {first_row + part.n_samples}")
        first_row += part.n_samples
        feature_names = part.feature_names
    writer.close()
    if not writer.blocks:
        raise DataFormatError("there are no rows in any file", str(files.paths[0].parent))
    classes, codes = _merge_labels(labels, names)
    np.save(folder / "classes.npy", classes)
    np.save(folder / "codes.npy", codes)
    return {
        "blocks": [asdict(block) for block in writer.blocks],
        "names": names,
        "feature_names": feature_names,
        "zero_based": files.options.zero_based,
        "labels": zlib.crc32(codes.tobytes(), zlib.crc32(classes.tobytes())),
    }


def _merge_labels(labels: list[Array], names: list[str]) -> tuple[Array, Array]:
    """Return all labels that occur, and the number of each row's; of parts of whole numbers and others, numbers."""
    texts = [own.dtype.kind in "OUST" for own in labels]
    if len(set(texts)) > 1:
        other = texts.index(not texts[0])
        kinds = ["text" if is_text else "numbers" for is_text in (texts[other], texts[0])]
        raise ValueError(
            f"{names[other]}: labels are {kinds[0]}, but in {names[0]} {kinds[1]}. "
            "Make them all one or the other (options.label_kind)."
        )
    own = [
        np.unique(part.astype(str) if is_text else part, return_inverse=True)
        for part, is_text in zip(labels, texts, strict=True)
    ]
    classes = np.unique(np.concatenate([found for found, _ in own]))
    codes = [np.searchsorted(classes, found)[inverse].astype(np.int32) for found, inverse in own]
    return classes, np.concatenate(codes)


def _remove_leftovers(home: Path) -> None:
    """Remove unfinished folders to which nothing was written for hours.

    Whether the process that made one still runs cannot be asked: it may be in another container or on another machine.
    """
    for folder in [*home.glob("partial-*"), *home.glob("sample-*")]:
        with suppress(OSError):
            last_written = max(path.stat().st_mtime for path in [folder, *folder.iterdir()])
            if time.time() - last_written > _LEFTOVER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
