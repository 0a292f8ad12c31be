"""`fit` for data larger than memory, in files or in a memory-mapped array."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
from sklearn.base import is_classifier

from dropmargin.data import Partitions
from dropmargin.data.inputs import check_unmasked, fill_masked
from dropmargin.estimators.validation import check_weights
from dropmargin.io.data import ReadOptions
from dropmargin.losses import MomentLoss
from dropmargin.model_selection.partitions import check_estimator, fit_estimator
from dropmargin.solvers import Problem
from dropmargin.streaming import cache as caches
from dropmargin.streaming.blocks import ArrayBlocks, DamagedBlockError, StoredRows, fetched_rows
from dropmargin.streaming.checkpoint import Log, LoggedPartitions
from dropmargin.streaming.files import PathLike, find_files
from dropmargin.streaming.memory import parse_size, plan_memory
from dropmargin.streaming.partitions import FilePartitions

E = TypeVar("E")

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
    block_bytes: int | str = "8MiB",
    cache: PathLike | None = None,
    checkpoint: PathLike | None = None,
    progress: bool = True,
) -> E:
    """Fit an estimator to data that need not fit into memory.

    Files are converted once to a binary cache. Every pass over the data reads the cache in blocks, and prefetches the
    next one. The result is the same to the last bit for any ``n_jobs`` and ``memory_limit``.

    Parameters
    ----------
    estimator : classifier or regressor of this package
        Such as DropoutSVC or DropoutRidge, or a search over noise and ``C``, such
        as DropoutSVCCV. It is fitted in place; if the fit fails or is interrupted, it is unchanged.
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
    block_bytes : int or str, default="8MiB"
        The size of a block. Smaller ones take less memory, larger ones fewer calls.
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
    run = partial(_fit, estimator, problem, sample_weight, limit, checkpoint, progress)
    if y is not None:
        return run(_array_rows(X, y, parse_size("block_bytes", block_bytes), cache))
    if isinstance(X, np.ndarray):
        raise ValueError("y is missing: an array needs its labels. Only files have their own.")
    prepare = partial(
        prepare_files, X, options=options, memory_limit=limit, block_bytes=block_bytes, cache=cache, progress=progress
    )
    stored = prepare()
    try:
        return run(stored)
    except DamagedBlockError:  # the files are converted again, once
        shutil.rmtree(stored.blocks.folder, ignore_errors=True)  # type: ignore[union-attr]
        return run(prepare())


def prepare_files(
    paths: PathLike | Iterable[PathLike],
    *,
    options: ReadOptions | None = None,
    memory_limit: int | str = "2GB",
    block_bytes: int | str = "8MiB",
    cache: PathLike | None = None,
    progress: bool = True,
) -> StoredRows:
    """Convert files to the cache, unless they have been converted, as `fit` does at its start.

    Parameters
    ----------
    paths : path-like or list of path-like
        A folder or files.
    options, memory_limit, block_bytes, cache, progress
        As in `fit`.

    Returns
    -------
    rows : StoredRows
        It has the attributes ``shape``, ``classes``, ``feature_names`` and ``zero_based``.
    """
    limit = parse_size("memory_limit", memory_limit)
    files = find_files(paths, options, progress)
    home = files.paths[0].parent / caches.FOLDER if cache is None else Path(cache)
    return caches.open_cache(files, home, parse_size("block_bytes", block_bytes), limit)


def _array_rows(X: Any, y: Any, block_bytes: int, cache: PathLike | None) -> StoredRows:
    if isinstance(X, str | os.PathLike):
        if Path(X).suffix != ".npy":
            raise ValueError(f"With y, X must be an array or the path of an .npy file, got {os.fspath(X)!r}.")
        try:
            X = np.lib.format.open_memmap(X, mode="r")
        except ValueError as error:  # such as a file that is shorter than its header says
            raise ValueError(f"{os.fspath(X)!r} is not an .npy file, or is damaged: {error}.") from error
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
    names = [f"rows {begin + 1} to {end}" for begin, end in pairwise(edges)]
    scratch = Path(getattr(X, "filename", None) or "x").parent / caches.FOLDER if cache is None else Path(cache)
    own_labels = np.split(labels, edges[1:-1])
    return StoredRows(ArrayBlocks(X, edges), X.shape[1], names, own_labels, scratch)


def _fit(
    estimator: E,
    problem: Problem,
    sample_weight: Any,
    limit: int,
    checkpoint: PathLike | None,
    progress: bool,
    stored: StoredRows,
) -> E:
    n_rows, n_features = stored.shape
    weights = None if sample_weight is None else check_weights(sample_weight, n_rows)
    n_threads = joblib.effective_n_jobs(estimator.n_jobs)  # type: ignore[attr-defined]
    is_joint = isinstance(problem.loss, MomentLoss) and problem.multi_class != "ovo" and is_classifier(estimator)
    blocks, n_classes = stored.blocks, len(stored.classes)
    room = plan_memory(
        limit,
        n_rows=n_rows,
        n_features=n_features,
        n_outputs=n_classes if is_joint and n_classes > 2 else 1,
        label_bytes=stored.classes.itemsize,
        block_bytes=max(blocks.sizes),
        n_threads=n_threads,
    )
    blocks.keep(int(_ROWS_SHARE * room))
    edges = np.cumsum([len(labels) for labels in stored.labels])[:-1]
    own_weights = [None] * len(stored.labels) if weights is None else np.split(weights, edges)
    rows = fetched_rows(blocks, list(zip(stored.labels, own_weights, strict=True)))
    with ExitStack() as stack:
        parts: Partitions[Any] = FilePartitions(rows, n_threads, stored.scratch, room - int(_ROWS_SHARE * room))
        stack.callback(parts.close)
        if checkpoint is not None:
            data_hash = joblib.hash([blocks.content_hash(), stored.labels, weights])
            parts = LoggedPartitions(parts, stack.enter_context(Log(Path(checkpoint), data_hash, estimator)))
        return fit_estimator(estimator, parts, stored.names, stored.feature_names, progress)  # type: ignore[type-var]
