"""`fit` and `predict` for data on a Dask cluster."""

from __future__ import annotations

import uuid
import warnings
from typing import Any, TypeVar

import dask
import dask.array as da
import numpy as np
from dask.utils import is_dataframe_like
from distributed import Client
from sklearn.utils.validation import check_is_fitted

from dropmargin.dask.cluster import find_client
from dropmargin.dask.inputs import blocks_of, feature_names_of, is_frame, partition_rows
from dropmargin.dask.partitions import DaskPartitions
from dropmargin.data.inputs import with_columns
from dropmargin.estimators.validation import check_number
from dropmargin.model_selection.partitions import check_estimator, fit_estimator
from dropmargin.typing import Array

E = TypeVar("E")

# A task that reads rows is repeated this many times, because it may fail for a temporary reason.
_READING_RETRIES = 2


def fit(
    estimator: E,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    client: Client | None = None,
    *,
    timeout: float | None = 600.0,
    progress: bool = True,
) -> E:
    """Fit an estimator to data on a Dask cluster.

    The workers compute sums over their rows, and the client has the state of the solver. The optimum is that of the
    rows in memory; the last digits depend on the partitions and on which worker has them. Classes are solved together,
    ``n_jobs`` has no effect. An estimator that chooses noise and ``C`` by cross-validation has the folds of its own
    ``fit``.

    Parameters
    ----------
    estimator : classifier or regressor of this package
        Such as DropoutSVC or DropoutRidge, or a search over noise and ``C``, such
        as DropoutSVCCV. It is fitted in place; if the fit fails or is interrupted, it is unchanged.
    X : dask array or data frame of shape (n_samples, n_features), or list of delayed partitions
        Training data. Blocks are dense, CSR or data frames, whatever the meta of the collection is, and have all
        columns. If ``y`` is ``None``, each item of the list is a pair of rows and labels, or a triple with weights.
    y : dask array or series, or list of delayed partitions, default=None
        Labels, with the same blocks as ``X``. Unknown sizes of blocks are compared in the first pass.
    sample_weight : dask array or series, or list of delayed partitions, default=None
        Weights of the rows, with the same blocks as ``X``.
    client : dask.distributed.Client, default=None
        The client of the cluster; ``None`` means the current one.
    timeout : float or None, default=600
        The longest time in seconds in which the cluster may finish no task; after that a `ClusterError` is raised.
        ``None`` means no limit.
    progress : bool, default=True
        Whether to show a bar with the remaining time, on a terminal or in a notebook.

    Returns
    -------
    estimator : object
        The same estimator, fitted. It predicts, is pickled and saved like any other.

    See Also
    --------
    predict : Lazy predictions of data on a cluster.
    dropmargin.streaming.fit : Fit to files that are larger than memory.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> import dropmargin
    >>> client = Client("scheduler:8786")  # doctest: +SKIP
    >>> X = da.random.normal(size=(1000, 5), chunks=(250, 5))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = dropmargin.dask.fit(dropmargin.DropoutSVC(noise=0.5), X, y)  # doctest: +SKIP
    >>> dropmargin.dask.predict(model, X)  # a dask array, not computed yet  # doctest: +SKIP
    """
    check_estimator(estimator)
    if timeout is not None:
        timeout = check_number("timeout", timeout, 0.0, low_open=True)
    delayed = partition_rows(X, y, sample_weight)
    client = find_client(client)
    parts = client.compute(delayed, sync=False, retries=_READING_RETRIES, optimize_graph=True)
    data = DaskPartitions(client, parts, timeout)
    del parts
    try:
        return fit_estimator(estimator, data, None, feature_names_of(X), progress)  # type: ignore[type-var]
    finally:
        data.release()


def predict(estimator: Any, X: Any, method: str = "predict") -> Any:
    """Return lazy predictions of data on a cluster.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator.
    X : dask array or data frame of shape (n_samples, n_features), or list of delayed partitions
        Data, as in `fit`.
    method : {"predict", "decision_function", "predict_proba", "predict_log_proba"}, default="predict"
        The method of the estimator to call for each block.

    Returns
    -------
    predictions : dask array, series or data frame, or list of delayed arrays
        For a dask array, an array with the same blocks of rows. For a data frame, a series with the same index, or a
        data frame with one column per class. For a list of delayed partitions, a list.

    See Also
    --------
    fit : Fit an estimator to data on a cluster.

    Examples
    --------
    >>> import dask.array as da
    >>> import dropmargin.dask
    >>> model = dropmargin.DropoutSVC().fit([[0.0], [1.0]], ["no", "yes"])
    >>> labels = dropmargin.dask.predict(model, da.from_array([[0.9], [0.1]], chunks=(1, 1)))  # not computed yet
    >>> labels.compute(scheduler="synchronous").tolist()
    ['yes', 'no']
    """
    check_is_fitted(estimator)
    # Of a search, the fitted classifier is enough for the workers.
    model = getattr(estimator, "best_estimator_", estimator)
    n_features = model.n_features_in_
    if not callable(getattr(model, method, None)):
        raise ValueError(f"method must be the name of a method of {type(model).__name__}, got {method!r}.")
    is_fixed = getattr(model, "missing", "error") == "error"
    if isinstance(X, da.Array) and X.ndim == 2 and X.shape[1] != n_features and not np.isnan(X.shape[1]) and is_fixed:
        raise ValueError(f"X has {X.shape[1]} features, but {type(model).__name__} is expecting {n_features} features.")
    example = _example(model, method)
    sent = dask.delayed(model, name=f"dropmargin-model-{uuid.uuid4().hex}", traverse=False)
    if is_frame(X) and is_dataframe_like(X):
        return X.map_partitions(_predict_frame, sent, method, example, meta=_like_frame(example, X._meta, model))
    blocks = blocks_of("X", X)
    call = dask.delayed(_predict_block, pure=False, traverse=False)
    parts = [call(sent, method, part, example, f"partition {i}: ") for i, part in enumerate(blocks.parts)]
    if blocks.sizes is None:
        return parts
    arrays = [
        da.from_delayed(part, (size, *example.shape[1:]), meta=example)
        for part, size in zip(parts, blocks.sizes, strict=True)
    ]
    return da.concatenate(arrays, allow_unknown_chunksizes=True)


def _example(model: Any, method: str) -> Array:
    """Return the predictions of no rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of feature names that an array lacks
        return getattr(model, method)(np.zeros((1, model.n_features_in_), dtype=model.coef_.dtype))[:0]


def _predict_block(model: Any, method: str, block: Any, example: Array, where: str = "") -> Array:
    """Return the predictions of a block, which may be empty; its columns are matched by name."""
    if not block.shape[0]:
        return example
    try:
        block = with_columns(block, getattr(model, "feature_names_in_", None))
    except ValueError as error:
        if getattr(model, "missing", "error") == "error":  # else some columns may be absent, and the model checks them
            raise ValueError(f"{where}{error}, in any order.") from None
    return getattr(model, method)(block)


def _predict_frame(frame: Any, model: Any, method: str, example: Array) -> Any:
    return _like_frame(_predict_block(model, method, frame, example), frame, model)


def _like_frame(values: Array, frame: Any, model: Any) -> Any:
    """Return predictions as a series or data frame with the index of a data frame."""
    import pandas as pd

    if values.ndim == 1:
        return pd.Series(values, index=frame.index)
    return pd.DataFrame(values, frame.index, list(model.classes_))
