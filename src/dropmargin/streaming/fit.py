"""Fits to data larger than memory: `fit_files` and `fit_arrays`."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import effective_n_jobs

from dropmargin.data import Partitions
from dropmargin.data.inputs import check_unmasked, fill_masked
from dropmargin.estimators import validation
from dropmargin.estimators.base import MarginalisedClassifier
from dropmargin.estimators.partition_fit import fit_partitions
from dropmargin.io.data import ReadOptions
from dropmargin.losses import MomentLoss
from dropmargin.streaming import cache as caches
from dropmargin.streaming.checkpoint import Log, LoggedPartitions, hash_of
from dropmargin.streaming.files import PathLike, find_files
from dropmargin.streaming.memory import parse_size, plan_memory
from dropmargin.streaming.partitions import FilePartitions, fetched_rows
from dropmargin.streaming.reader import BlockReader, Blocks
from dropmargin.streaming.store import DamagedStoreError, StoredBlocks
from dropmargin.streaming.watching import fit_progress, parameter_hash
from dropmargin.typing import Array

E = TypeVar("E", bound=MarginalisedClassifier)

# Blocks are this share of the limit, within bounds: small enough that some fit, large enough to be worth the trouble.
_BLOCKS_PER_LIMIT = 64
_LEAST_BLOCK, _MOST_BLOCK = 2**20, 2**25
# Of the memory that is left, the rows themselves may have so much, and a sample of them the rest.
_ROWS_SHARE = 0.7


def fit_files(
    estimator: E,
    paths: PathLike | Iterable[PathLike],
    *,
    options: ReadOptions | None = None,
    sample_weight: Any = None,
    memory_limit: int | str = "2GB",
    block_bytes: int | str | None = None,
    cache: PathLike | None = None,
    checkpoint: PathLike | None = None,
    progress: bool = True,
) -> E:
    """Fit an estimator to data files that need not fit into memory.

    The files are converted once to a binary cache, of which every pass over the data reads a block after the other, the
    next one ahead. The result is the same to the last bit for any ``n_jobs`` and ``memory_limit``, if ``block_bytes``
    is.

    Parameters
    ----------
    estimator : DropoutSVC, DropoutLogisticRegression, MCFClassifier or NoisyLinearClassifier
    paths : str or path-like, or several
        A folder, whose files are read by name, or files: svmlight, Parquet, Arrow or npz, all of one format. Labels are
        in the files.
    options : ReadOptions, default=None
        How to read them. Parquet and Arrow: ``target`` is needed. svmlight: whether indices begin at 0, and how many
        features there are, is decided over all files together, if it is not given.
    sample_weight : array-like of shape (n_samples,), default=None
        In the order of the files.
    memory_limit : int or str, default="2GB"
        For the whole process. If it is too small, that is an error before any work.
    block_bytes : int or str, default=None
        The size of a block; by default a 64th of the limit, but between 1 and 32 MiB.
    cache : path-like, default=None
        The folder of the cache; by default ``.dropmargin-cache`` beside the first file.
    checkpoint : path-like, default=None
        A file from which a fit that was killed goes on, if it is there, and which is written otherwise. See
        `streaming.checkpoint`.
    progress : bool, default=True
        Whether to show a bar with the time left.

    Returns
    -------
    estimator : fitted, as by its own ``fit``. If the fit fails or is interrupted, it is as it was before.
    """
    _check_estimator(estimator)
    limit = parse_size("memory_limit", memory_limit)
    for is_last in (False, True):
        found = prepare_files(
            paths, options=options, memory_limit=limit, block_bytes=block_bytes, cache=cache, progress=progress
        )
        weights = None if sample_weight is None else validation.check_weights(sample_weight, found.shape[0])
        try:
            return _fit(estimator, _cached(found, weights), limit, found.folder.parent, checkpoint, progress)
        except DamagedStoreError:
            caches.discard(found)
            if is_last:
                raise
    raise AssertionError


def prepare_files(
    paths: PathLike | Iterable[PathLike],
    *,
    options: ReadOptions | None = None,
    memory_limit: int | str = "2GB",
    block_bytes: int | str | None = None,
    cache: PathLike | None = None,
    progress: bool = True,
) -> caches.Cache:
    """Convert files to the cache, unless they are, and return what is known of them.

    The parameters are those of `fit_files`, which does the same at its beginning.
    """
    limit = parse_size("memory_limit", memory_limit)
    files = find_files(paths, options, progress)
    home = files.paths[0].parent / caches.FOLDER if cache is None else Path(cache)
    return caches.open_cache(files, home, _block_size(block_bytes, limit), limit)


def _cached(found: caches.Cache, weights: Array | None) -> _Data:
    return _Data(
        lambda: StoredBlocks(found.rows_path, found.blocks),
        [block.shape[0] for block in found.blocks],
        found.shape[1],
        found.classes,
        found.codes,
        weights,
        found.names,
        found.feature_names,
        lambda: found.rows_hash,
    )


def fit_arrays(
    estimator: E,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    memory_limit: int | str = "2GB",
    block_bytes: int | str | None = None,
    scratch: PathLike | None = None,
    checkpoint: PathLike | None = None,
    progress: bool = True,
) -> E:
    """Fit an estimator to a memory-mapped array, which need not fit into memory.

    Parameters
    ----------
    X : numpy.memmap or ndarray of shape (n_samples, n_features), or the path of an ``.npy`` file
    y : array-like of shape (n_samples,)
    scratch : path-like, default=None
        A folder for a sample of the rows; by default that of the file of ``X``, or the present one.

    The other parameters are those of `fit_files`.
    """
    _check_estimator(estimator)
    limit = parse_size("memory_limit", memory_limit)
    size = _block_size(block_bytes, limit)
    X = np.lib.format.open_memmap(X, mode="r") if isinstance(X, str | os.PathLike) else X
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(f"X must be a two-dimensional array of numbers, in memory or memory-mapped, got {type(X)}.")
    X = fill_masked(X)  # NaN is an error later, unless missing="rescale"
    check_unmasked(y, "y")
    blocks = _ArrayBlocks(X, size)
    labels = np.asarray(y)
    if labels.shape != (X.shape[0],):
        raise ValueError(f"y must have one label per row of X, {X.shape[0]}, got the shape {labels.shape}.")
    classes, codes = np.unique(labels, return_inverse=True)
    weights = validation.check_weights(sample_weight, X.shape[0]) if sample_weight is not None else None
    home = Path(scratch) if scratch is not None else Path(getattr(X, "filename", None) or "x").parent / caches.FOLDER
    names = [f"rows {begin + 1} to {end}" for begin, end in blocks.edges]
    n_rows = [end - begin for begin, end in blocks.edges]
    data = _Data(
        lambda: blocks, n_rows, X.shape[1], classes, codes.astype(np.int32), weights, names, None, blocks.rows_hash
    )
    return _fit(estimator, data, limit, home, checkpoint, progress)


@dataclass(frozen=True)
class _Data:
    """Blocks of rows, wherever they are, and their labels."""

    open: Callable[[], Blocks]
    n_rows: list[int]
    n_features: int
    classes: Array
    codes: Array
    weights: Array | None
    names: list[str]
    feature_names: tuple[str, ...] | None
    rows_hash: Callable[[], bytes]

    def content_hash(self) -> bytes:
        """Return a hash of rows, labels and weights, for a checkpoint."""
        return hash_of(self.rows_hash(), self.classes.tolist(), self.codes, self.weights)

    def labelled(self) -> list[tuple[Array, Array | None]]:
        """Return labels and weights of each block."""
        edges = np.cumsum([0, *self.n_rows])
        slices = [slice(begin, end) for begin, end in pairwise(edges)]
        return [(self.classes[self.codes[own]], None if self.weights is None else self.weights[own]) for own in slices]


class _ArrayBlocks:
    """Rows of an array, copied block by block; pages of a memory map are given back."""

    def __init__(self, X: Array, block_bytes: int) -> None:
        self._X = X
        self._dtype = np.dtype(np.float32 if X.dtype == np.float32 else np.float64)
        self._row_bytes = max(1, X.shape[1] * self._dtype.itemsize)
        step = max(1, block_bytes // self._row_bytes)
        self.edges = [(begin, min(begin + step, X.shape[0])) for begin in range(0, X.shape[0], step)]
        if not self.edges:
            raise ValueError("X has no rows.")

    def n_bytes(self, index: int) -> int:
        begin, end = self.edges[index]
        return (end - begin) * self._row_bytes

    def load(self, index: int, buffer: Array) -> Any:
        begin, end = self.edges[index]
        rows = buffer[: self.n_bytes(index)].view(self._dtype).reshape(end - begin, self._X.shape[1])
        np.copyto(rows, self._X[begin:end])
        mapped = getattr(self._X, "_mmap", None)
        is_private = getattr(self._X, "mode", None) == "c"  # what was written to its pages is nowhere else
        if mapped is not None and hasattr(mapped, "madvise") and not is_private:
            mapped.madvise(mmap.MADV_DONTNEED)
        return rows

    def close(self) -> None:
        """Leave the array to its owner."""

    def rows_hash(self) -> bytes:
        """Return a hash of all rows: a pass over them."""
        buffer = np.empty(max(self.n_bytes(i) for i in range(len(self.edges))), dtype=np.uint8)
        return hash_of(self._X.shape, self._dtype.str, *(hash_of(self.load(i, buffer)) for i in range(len(self.edges))))


def _fit(estimator: E, data: _Data, limit: int, home: Path, checkpoint: PathLike | None, progress: bool) -> E:
    n_threads = effective_n_jobs(estimator.n_jobs)
    source = data.open()
    together = isinstance(estimator._make_loss(), MomentLoss) and estimator.multi_class == "ovr"
    n_columns = len(data.classes) if together and len(data.classes) > 2 else 1
    with ExitStack() as stack:
        stack.callback(source.close)
        plan = plan_memory(
            limit,
            n_rows=sum(data.n_rows),
            n_features=data.n_features,
            n_columns=n_columns,
            label_bytes=data.classes.itemsize,
            block_bytes=max(source.n_bytes(i) for i in range(len(data.n_rows))),
            n_threads=n_threads,
        )
        rows_room = int(_ROWS_SHARE * plan.left)
        reader = BlockReader(source, len(data.n_rows), n_threads, rows_room)
        stack.callback(reader.close)
        parts: Partitions[Any] = FilePartitions(
            fetched_rows(reader, data.labelled()),
            reader,
            n_threads=n_threads,
            scratch=home,
            room=plan.left - rows_room,
        )
        stack.callback(parts.close)
        if checkpoint is not None:
            log = Log(Path(checkpoint), data.content_hash(), parameter_hash(estimator))
            stack.callback(log.close)
            inner = parts
            parts = LoggedPartitions(lambda: inner, parts.n_partitions, log, is_owned=False)
        with fit_progress(estimator, progress) as monitor:
            return fit_partitions(estimator, parts, data.names, data.feature_names, monitor)


def _check_estimator(estimator: Any) -> None:
    if not isinstance(estimator, MarginalisedClassifier) or not hasattr(estimator, "_make_loss"):
        raise TypeError(
            "estimator must be a DropoutSVC, DropoutLogisticRegression, MCFClassifier or NoisyLinearClassifier, "
            f"got {type(estimator).__name__}."
        )
    estimator._problem()  # its parameters, before any work


def _block_size(block_bytes: int | str | None, limit: int) -> int:
    if block_bytes is not None:
        return parse_size("block_bytes", block_bytes)
    return min(max(limit // _BLOCKS_PER_LIMIT, _LEAST_BLOCK), _MOST_BLOCK)
