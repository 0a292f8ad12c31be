"""Encoding of rows in partitions: labels become the index of their class, missing entries minus zeros."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dropmargin.data import missing_values
from dropmargin.data.matrix import column_counts, has_full_columns, keep_columns, no_rows, nonempty_features
from dropmargin.data.partitions import Partitions
from dropmargin.data.rows import Rows
from dropmargin.typing import Array


@dataclass(frozen=True)
class LabelEncoding:
    """How the rows and labels of all partitions become numbers.

    Parameters
    ----------
    classes : ndarray
        All labels, sorted.
    index, factors : ndarray, one per class
        The index of each among those with any weight, or -1; the factor of its weights. In a regression, where each
        target is a class, the targets and ones.
    n_features : int
    is_dense : bool
    dtype : dtype
        Of the rows.
    has_missing : bool
        Whether NaN becomes minus zero.
    used : ndarray or None
        The features to keep, if only some are not empty.
    """

    classes: Array
    index: Array
    factors: Array
    n_features: int
    is_dense: bool
    dtype: Any
    has_missing: bool
    used: Array | None = None


def encode_rows(rows: Rows, encoding: LabelEncoding) -> Rows:
    """Return the rows as a fit needs them, with the index of their class and their final weights."""
    classes = np.searchsorted(encoding.classes, np.asarray(rows.y).astype(encoding.classes.dtype, copy=False))
    weights = np.ones(len(classes)) if rows.sample_weight is None else np.asarray(rows.sample_weight, dtype=np.float64)
    return Rows(rows.transformed(_prepare, encoding), encoding.index[classes], weights * encoding.factors[classes])


def find_used_features(data: Partitions[Rows], n_stored: int, n_features: int, is_dense: bool) -> Array | None:
    """Return the features that are not empty, if it is worth dropping the others."""
    if is_dense or has_full_columns(n_stored, n_features):
        return None
    (counts,) = data.map_sum(stored_counts)
    return nonempty_features(counts > 0)


def _prepare(X: Any, encoding: LabelEncoding) -> Any:
    if not X.shape[0]:  # whatever its width
        X = no_rows(encoding.n_features, encoding.is_dense)
    if encoding.has_missing:
        X = missing_values.nan_to_negative_zero(X)
    X = X.astype(encoding.dtype, copy=False)
    return X if encoding.used is None else keep_columns(X, encoding.used)


def stored_counts(rows: Rows) -> tuple[Array]:
    """Return the number of stored entries of each feature."""
    return (column_counts(rows.X),)
