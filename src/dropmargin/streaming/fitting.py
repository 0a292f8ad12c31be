"""`fit` for data larger than memory, in files or in a memory-mapped array."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np

from dropmargin.data.inputs import check_unmasked, fill_masked
from dropmargin.estimators.validation import check_weights
from dropmargin.io.data import ReadOptions
from dropmargin.model_selection.partitions import check_estimator, fit_estimator
from dropmargin.streaming import cache as caches
from dropmargin.streaming.files import PathLike, find_files
from dropmargin.streaming.partitions import ArrayPartitions, BlockPartitions

E = TypeVar("E")


def fit(
    estimator: E,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    options: ReadOptions | None = None,
    cache: PathLike | None = None,
    progress: bool = True,
) -> E:
    """Fit an estimator to data that need not fit into memory.

    Files are converted once to a binary cache. Every pass over the data reads the cache in blocks, so that the memory
    is that of a block for each thread, of the labels, and of a few vectors of coefficients. The result is the same to
    the last bit for any ``n_jobs``.

    Parameters
    ----------
    estimator : classifier or regressor of this package
        Such as DropoutSVC or DropoutRidge, or a search over noise and ``C``, such
        as DropoutSVCCV. It is fitted in place; if the fit fails or is interrupted, it is unchanged.
    X : path-like, list of path-like, or array of shape (n_samples, n_features)
        A folder, whose files are read in the order of their names, or files: svmlight, Parquet, Arrow, CSV or npz, all
        of one format, with their labels. With ``y``: a `numpy.memmap`, an array, or the path of an ``.npy`` file.
    y : array-like of shape (n_samples,), default=None
        Labels of an array.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows, in the order of the files.
    options : ReadOptions, default=None
        Options of the readers of files. Tables need ``target``. For svmlight files, whether indices start at
        0 and the number of features are determined over all files together, if they are not given.
    cache : path-like, default=None
        The folder of the cache; by default ``.dropmargin-cache`` beside the (first) file.
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
    check_estimator(estimator)
    run = partial(_fit, estimator, sample_weight, progress)
    if y is not None:
        return run(_array_rows(X, y))
    if isinstance(X, np.ndarray):
        raise ValueError("y is missing: an array needs its labels. Only files have their own.")
    prepare = partial(prepare_files, X, options=options, cache=cache, progress=progress)
    stored = prepare()
    try:
        return run(stored)
    except caches.DamagedCacheError:  # the files are converted again, once
        shutil.rmtree(stored.folder, ignore_errors=True)
        return run(prepare())


def prepare_files(
    paths: PathLike | Iterable[PathLike],
    *,
    options: ReadOptions | None = None,
    cache: PathLike | None = None,
    progress: bool = True,
) -> caches.CachedPartitions:
    """Convert files to the cache, unless they have been converted, as `fit` does at its start.

    Parameters
    ----------
    paths : path-like or list of path-like
        A folder or files.
    options, cache, progress
        As in `fit`.

    Returns
    -------
    rows : CachedPartitions
        It has the attributes ``shape``, ``classes``, ``feature_names`` and ``zero_based``.
    """
    files = find_files(paths, options, progress)
    home = files.paths[0].parent / caches.FOLDER if cache is None else Path(cache)
    return caches.open_cache(files, home)


def _array_rows(X: Any, y: Any) -> ArrayPartitions:
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
    edges = [*range(0, len(X), max(1, caches.BLOCK_BYTES // max(1, row_bytes))), len(X)]
    return ArrayPartitions(X, labels, edges)


def _fit(estimator: E, sample_weight: Any, progress: bool, rows: BlockPartitions) -> E:
    if sample_weight is not None:
        rows.set_weights(check_weights(sample_weight, rows.shape[0]))
    rows.n_threads = joblib.effective_n_jobs(estimator.n_jobs)  # type: ignore[attr-defined]
    return fit_estimator(estimator, rows, rows.names, rows.feature_names, progress)  # type: ignore[type-var]
