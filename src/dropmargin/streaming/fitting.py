"""`fit` for data larger than memory, in files or in a memory-mapped array."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from joblib import effective_n_jobs

from dropmargin.data import Partitions
from dropmargin.data.inputs import check_unmasked, fill_masked
from dropmargin.estimators.validation import check_weights
from dropmargin.io.data import ReadOptions
from dropmargin.losses import MomentLoss
from dropmargin.model_selection.partitions import check_estimator, fit_estimator
from dropmargin.solvers import Problem
from dropmargin.streaming import cache as caches
from dropmargin.streaming.checkpoint import Log, LoggedPartitions, hash_of, parameter_hash
from dropmargin.streaming.files import PathLike, find_files
from dropmargin.streaming.memory import parse_size, plan_memory
from dropmargin.streaming.partitions import FilePartitions, fetched_rows
from dropmargin.streaming.store import BlockInfo, DamagedStoreError, MappedBlocks
from dropmargin.typing import Array

E = TypeVar("E")

# A block has this share of the limit, within bounds: small enough that several fit, large enough to be read fast.
_BLOCKS_PER_LIMIT = 64
_MIN_BLOCK, _MAX_BLOCK = 2**20, 2**25
# The share of the remaining memory for the rows; the rest is for a subsample of them.
_ROWS_SHARE = 0.7


def fit(
    estimator: E,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    options: ReadOptions | None = None,
    memory_limit: int | str = "2GB",
    block_bytes: int | str | None = None,
    cache: PathLike | None = None,
    checkpoint: PathLike | None = None,
    progress: bool = True,
) -> E:
    """Fit an estimator to data that need not fit into memory.

    Files are converted once to a binary cache. Every pass over the data reads the cache in blocks, and prefetches the
    next one. The result is the same to the last bit for any ``n_jobs`` and ``memory_limit``, if ``block_bytes`` is.

    Parameters
    ----------
    estimator : DropoutSVC, DropoutLogisticRegression, MCFClassifier, NoisyLinearClassifier or their CV variants
        The estimator to fit; or a DropoutRidge, DropoutSVR or NoisyLinearRegressor. It is fitted in place; if the fit
        fails or is interrupted, it is unchanged.
    X : path-like, list of path-like, or array of shape (n_samples, n_features)
        A folder, whose files are read in the order of their names, or files: svmlight, Parquet, Arrow or npz, all of
        one format, with their labels. With ``y``: a `numpy.memmap`, an array, or the path of an ``.npy`` file.
    y : array-like of shape (n_samples,), default=None
        Labels of an array.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, in the order of the files.
    options : ReadOptions, default=None
        Options of the readers of files. Parquet and Arrow need ``target``. For svmlight files, whether indices start at
        0 and the number of features are determined over all files together, if they are not given.
    memory_limit : int or str, default="2GB"
        The memory limit of the whole process. If it is too small, an error is raised before any work.
    block_bytes : int or str, default=None
        The size of a block; by default a 64th of the limit, but between 1 and 32 MiB.
    cache : path-like, default=None
        The folder of the cache and of temporary rows; by default ``.dropmargin-cache`` beside the (first) file.
    checkpoint : path-like, default=None
        A file from which a fit that was killed is resumed, if it exists; it is written otherwise.
    progress : bool, default=True
        Whether to show bars with the remaining time, on a terminal or in a notebook.

    Returns
    -------
    estimator : object
        The same estimator, fitted.

    See Also
    --------
    prepare_files : Only convert the files.
    dropmargin.dask.fit : Fit to data on a Dask cluster.

    Examples
    --------
    >>> import numpy as np
    >>> import dropmargin
    >>> X = np.random.default_rng(0).normal(size=(1000, 5))
    >>> model = dropmargin.streaming.fit(dropmargin.DropoutSVC(), X, X[:, 0] > 0, progress=False)
    >>> model.score(X, X[:, 0] > 0) > 0.95
    True
    """
    problem = check_estimator(estimator)
    limit = parse_size("memory_limit", memory_limit)
    if y is not None:
        data = _array_data(X, y, sample_weight, _block_size(block_bytes, limit), cache)
        return _fit(estimator, problem, data, limit, checkpoint, progress)
    if isinstance(X, np.ndarray):
        raise ValueError("y is missing: an array needs its labels. Only files have their own.")
    for is_last in (False, True):
        found = prepare_files(
            X, options=options, memory_limit=limit, block_bytes=block_bytes, cache=cache, progress=progress
        )
        try:
            return _fit(estimator, problem, _cached_data(found, sample_weight), limit, checkpoint, progress)
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
    """Convert files to the cache, unless they have been converted, as `fit` does at its start.

    Parameters
    ----------
    paths : path-like or list of path-like
        A folder or files.
    options, memory_limit, block_bytes, cache, progress
        As in `fit`.

    Returns
    -------
    cache : Cache
        It has the attributes ``shape``, ``classes``, ``feature_names`` and ``zero_based``.
    """
    limit = parse_size("memory_limit", memory_limit)
    files = find_files(paths, options, progress)
    home = files.paths[0].parent / caches.FOLDER if cache is None else Path(cache)
    return caches.open_cache(files, home, _block_size(block_bytes, limit), limit)


def _block_size(block_bytes: int | str | None, limit: int) -> int:
    if block_bytes is not None:
        return parse_size("block_bytes", block_bytes)
    return min(max(limit // _BLOCKS_PER_LIMIT, _MIN_BLOCK), _MAX_BLOCK)


@dataclass(frozen=True)
class _Data:
    """Blocks of rows, their labels, and the folder for temporary rows."""

    open: Callable[[], MappedBlocks]
    n_rows: list[int]
    n_features: int
    classes: Array
    codes: Array
    weights: Array | None
    names: list[str]
    feature_names: tuple[str, ...] | None
    rows_hash: Callable[[], bytes]
    scratch: Path

    def content_hash(self) -> bytes:
        """Return a hash of rows, labels and weights, for a checkpoint."""
        return hash_of(self.rows_hash(), self.classes.tolist(), self.codes, self.weights)

    def targets(self) -> list[tuple[Array, Array | None]]:
        """Return labels and sample weights of each block."""
        slices = [slice(begin, end) for begin, end in pairwise(np.cumsum([0, *self.n_rows]))]
        return [(self.classes[self.codes[own]], None if self.weights is None else self.weights[own]) for own in slices]


def _cached_data(found: caches.Cache, sample_weight: Any) -> _Data:
    return _Data(
        found.open,
        [block.n_rows for block in found.blocks],
        found.n_features,
        found.classes,
        found.codes,
        None if sample_weight is None else check_weights(sample_weight, found.shape[0]),
        found.names,
        found.feature_names,
        found.rows_hash,
        found.folder.parent,
    )


def _array_data(X: Any, y: Any, sample_weight: Any, block_bytes: int, cache: PathLike | None) -> _Data:
    if isinstance(X, str | os.PathLike):
        if Path(X).suffix != ".npy":
            raise ValueError(f"With y, X must be an array or the path of an .npy file, got {os.fspath(X)!r}.")
        X = np.lib.format.open_memmap(X, mode="r")
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(f"X must be a two-dimensional array of numbers, in memory or memory-mapped, got {type(X)}.")
    X = fill_masked(X)  # as NaN, which is an error later, unless missing="rescale"
    check_unmasked(y, "y")
    labels = np.asarray(y)
    if labels.shape != (X.shape[0],):
        raise ValueError(f"y must have one label per row of X, {X.shape[0]}, got the shape {labels.shape}.")
    if not len(X):
        raise ValueError("X has no rows.")
    row_bytes = X.shape[1] * (4 if X.dtype == np.float32 else 8)
    edges = [*range(0, len(X), max(1, block_bytes // max(1, row_bytes))), len(X)]
    n_rows = np.diff(edges).tolist()
    blocks = MappedBlocks([X], X.shape[1], [BlockInfo(n) for n in n_rows])
    classes, codes = np.unique(labels, return_inverse=True)
    return _Data(
        lambda: blocks,
        n_rows,
        X.shape[1],
        classes,
        codes.astype(np.int32),
        None if sample_weight is None else check_weights(sample_weight, len(X)),
        [f"rows {begin + 1} to {end}" for begin, end in pairwise(edges)],
        None,
        partial(_hash_blocks, blocks),
        Path(getattr(X, "filename", None) or "x").parent / caches.FOLDER if cache is None else Path(cache),
    )


def _hash_blocks(blocks: MappedBlocks) -> bytes:
    """Return a hash of all rows, by a pass over them."""
    hashes = []
    for index in range(len(blocks.blocks)):
        rows = blocks.fetch(index)
        hashes.append(hash_of(rows.shape, rows))
        blocks.release(index)
    return hash_of(*hashes)


def _fit(estimator: E, problem: Problem, data: _Data, limit: int, checkpoint: PathLike | None, progress: bool) -> E:
    n_threads = effective_n_jobs(estimator.n_jobs)  # type: ignore[attr-defined]
    is_joint = isinstance(problem.loss, MomentLoss) and problem.multi_class == "ovr"
    blocks = data.open()
    room = plan_memory(
        limit,
        n_rows=sum(data.n_rows),
        n_features=data.n_features,
        n_outputs=len(data.classes) if is_joint and len(data.classes) > 2 else 1,
        label_bytes=data.classes.itemsize,
        block_bytes=max(blocks.sizes),
        n_threads=n_threads,
    )
    blocks.keep(int(_ROWS_SHARE * room))
    sample_room = room - int(_ROWS_SHARE * room)
    with ExitStack() as stack:
        files = FilePartitions(
            fetched_rows(blocks, data.targets()), blocks, n_threads=n_threads, scratch=data.scratch, room=sample_room
        )
        stack.callback(files.close)
        parts: Partitions[Any] = files
        if checkpoint is not None:
            log = Log(Path(checkpoint), data.content_hash(), parameter_hash(estimator))
            stack.callback(log.close)
            parts = LoggedPartitions(lambda: files, files.n_partitions, log, is_owned=False)
        return fit_estimator(estimator, parts, data.names, data.feature_names, progress)  # type: ignore[type-var]
