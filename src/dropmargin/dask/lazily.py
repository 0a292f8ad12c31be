"""Predictions of data on a cluster: made block by block when they are asked for."""

from __future__ import annotations

import uuid
import warnings
from typing import Any

import dask
import dask.array as da
import numpy as np

from dropmargin.dask.inputs import Blocks, blocks_of
from dropmargin.estimators.base import MarginalisedClassifier
from dropmargin.typing import Array


def predict_lazily(model: MarginalisedClassifier, method: str, X: Any) -> Any:
    """Return what a method of a fitted local classifier returns, of rows on a cluster.

    Parameters
    ----------
    model : MarginalisedClassifier
    method : str
        ``"predict"``, ``"decision_function"``, ``"predict_proba"`` or ``"predict_log_proba"``.
    X : dask array or data frame, or list of delayed partitions

    Returns
    -------
    dask array, cut as ``X`` is; of a list of delayed partitions a list of delayed arrays.
    """
    blocks = blocks_of("X", X)
    n_features = model.n_features_in_
    if isinstance(X, da.Array) and not np.isnan(X.shape[1]) and X.shape[1] != n_features and model.missing == "error":
        raise ValueError(f"X has {X.shape[1]} features, but {type(model).__name__} is expecting {n_features} features.")
    example = _example(model, method)
    sent = dask.delayed(model, name=f"dropmargin-model-{uuid.uuid4().hex}", traverse=False)
    call = dask.delayed(apply_to_block, pure=False, traverse=False)
    parts = [call(sent, method, part, example) for part in blocks.parts]
    if isinstance(X, list | tuple):
        return parts
    return _as_array(parts, blocks, example)


def _as_array(parts: list[Any], blocks: Blocks, example: Array) -> da.Array:
    sizes = blocks.sizes or (np.nan,) * len(parts)
    return da.concatenate(
        [
            da.from_delayed(part, (size, *example.shape[1:]), meta=example)
            for part, size in zip(parts, sizes, strict=True)
        ],
        allow_unknown_chunksizes=True,
    )


def _example(model: MarginalisedClassifier, method: str) -> Array:
    """Return what the method returns of no rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that an array lacks
        return getattr(model, method)(np.zeros((1, model.n_features_in_), dtype=model.coef_.dtype))[:0]


def apply_to_block(model: MarginalisedClassifier, method: str, block: Any, example: Array) -> Array:
    """Return a method's result for a block of rows, which may be empty."""
    return getattr(model, method)(block) if block.shape[0] else example
