"""Missing values in training data: NaN stored as minus zero, and statistics of the observed entries.

A missing entry of the training data has neither mean nor variance: ``w_d x~_id = 0``, whatever the noise. It is stored
as minus zero, the one number that multiplies as zero does and can be told from it; all other zeros become plus zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data.blocks import Block, chunks
from dropmargin.data.matrix import (
    entry_range,
    entry_rows,
    is_dense_matrix,
    linear_scores,
    map_entries,
    row_block,
)
from dropmargin.data.partitions import Partitions
from dropmargin.data.rows import Rows
from dropmargin.typing import Array

# Rows are processed in chunks of about this many entries and results.
_CHUNK_ENTRIES = 2**18


def has_missing(X: Any) -> bool:
    """Return whether any entry is NaN; no temporary array is made."""
    return bool(np.isnan(entry_range(X)[0]))


def nan_to_negative_zero(X: Any) -> Any:
    """Return a copy of ``X`` with minus zeros for NaN."""

    def replace(values: Array, columns: Any) -> Array:
        replaced = values + 0.0  # a copy, in which -0 has become +0
        replaced[np.isnan(values)] = -0.0
        return replaced

    return map_entries(X, replace, zeros_stay=True, what="X without NaN")


def negative_zero_to_nan(X: Any) -> Any:
    """Return a copy of ``X`` with NaN for minus zeros."""

    def replace(values: Array, columns: Any) -> Array:
        return np.where(is_negative_zero(values), values.dtype.type(np.nan), values)

    return map_entries(X, replace, zeros_stay=True, what="X")


def is_negative_zero(values: Array) -> Array:
    """Return which entries are missing."""
    return (values == 0.0) & np.signbit(values)


class FeatureStatistics(NamedTuple):
    """Mean and standard deviation of each feature's observed entries; ``None`` for what is not known.

    ``factors`` and ``residual_variance`` are those of a Gaussian with low-rank plus diagonal covariance.
    """

    mean: Array
    deviation: Array | None
    factors: Array | None = None
    residual_variance: Array | None = None


#: The attributes of a fitted estimator that hold them.
STATISTICS = ("feature_means_", "feature_deviations_", "feature_factors_", "residual_variances_")


def feature_statistics(data: Partitions[Rows], has_missing: bool) -> FeatureStatistics:
    """Return weighted mean and deviation of each feature's observed entries."""
    mean = feature_means(data, has_missing)
    return FeatureStatistics(mean, feature_deviations(data, has_missing, mean))


def feature_means(data: Partitions[Rows], has_missing: bool) -> Array:
    """Return the weighted mean of each feature's observed entries, 0 if there are none; by one pass over the rows.

    Zeros that a sparse ``X`` does not store are observed. ``has_missing`` says whether minus zeros are missing entries.
    """
    total, missing, sums = data.map_sum(feature_sums, has_missing)
    return _ratio(sums, total - missing)


def feature_deviations(data: Partitions[Rows], has_missing: bool, mean: Array) -> Array:
    """Return the standard deviation of each feature's observed entries, given their mean; by one pass."""
    total, missing, squares, stored = data.map_sum(_feature_squares, has_missing, mean)
    implicit = total - stored  # the weight of zeros that are not stored, or rounding
    squares = squares + np.where(implicit > 1e-12 * total, implicit, 0.0) * np.square(mean)
    return np.sqrt(_ratio(squares, total - missing))


def feature_sums(rows: Rows, has_missing: bool) -> tuple[float, Array, Array]:
    """Return the total weight, and by feature the weight of missing entries and the sum of the others."""
    X, weights = rows.X, rows.sample_weight
    return *_weights(X, weights, has_missing), row_block(X).transposed_times(weights)


def _feature_squares(rows: Rows, has_missing: bool, mean: Array) -> tuple[float, Array, Array, Array]:
    """Return `_weights`, and by feature the sum of the squared deviations of stored entries, and their weight."""
    X, weights = rows.X, rows.sample_weight
    squares, stored = np.zeros((2, len(mean)))
    for block, own in _weighted_blocks(X, weights):
        # Centred before squaring: a feature far from zero keeps its digits.
        centred = block.entries() - block.spread(mean)
        np.square(centred, out=centred)
        if has_missing:
            centred[is_negative_zero(block.entries())] = 0.0
        squares += block.with_entries(centred).transposed_times(own)
        if is_dense_matrix(X):
            stored += own.sum()
        else:
            stored += block.with_entries(np.ones_like(centred)).transposed_times(own)
    return *_weights(X, weights, has_missing), squares, stored


def _weights(X: Any, weights: Array, has_missing: bool) -> tuple[float, Array]:
    """Return the total weight, and by feature that of missing entries."""
    missing = np.zeros(X.shape[1])
    for block, own in _weighted_blocks(X, weights) if has_missing else ():
        missing += block.with_entries(is_negative_zero(block.entries()).astype(np.float64)).transposed_times(own)
    return float(weights.sum()), missing


def _weighted_blocks(X: Any, weights: Array) -> Iterator[tuple[Block, Array]]:
    """Yield blocks of few rows, and their weights: functions of their entries are copies."""
    for where in row_chunks(X, 1):
        yield row_block(X[where]), weights[where]


def fill_missing(X: Any, values: Array) -> Any:
    """Return a copy of ``X`` with one value per feature for missing entries (minus zeros)."""

    def fill(entries: Array, features: Any) -> Array:
        own = np.broadcast_to(values.astype(entries.dtype)[features], entries.shape)
        return np.where(is_negative_zero(entries), own, entries)

    return map_entries(X, fill, zeros_stay=True, what="X without NaN")


def fill_low_rank(X: Any, mean: Array, left: Array, right: Array) -> Any:
    """Return a copy of ``X`` with ``mean_d + left_i.right_d`` for a missing entry (minus zero) of row i, feature d."""
    rows = entry_rows(X)

    def fill(entries: Array, features: Any) -> Array:
        is_missing = is_negative_zero(entries)
        if rows is None:
            return np.where(is_missing, mean + left @ right.T, entries).astype(entries.dtype)
        filled, own = entries.copy(), features[is_missing]
        filled[is_missing] = mean[own] + np.einsum("nk,nk->n", left[rows[is_missing]], right[own])
        return filled

    return map_entries(X, fill, zeros_stay=True, what="X without NaN")


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above), where=(above != 0.0) & (below > 0.0))


def row_chunks(X: Any, n_results: int) -> Iterator[slice]:
    """Yield slices of rows, small enough for temporary copies and ``n_results`` numbers per row."""
    stored = X.size // max(1, X.shape[0])  # X.size counts stored entries
    return chunks(X.shape[0], stored + n_results, _CHUNK_ENTRIES)


# Rows to predict, where NaN is a missing feature --------------------------------------------------------------------


def mark_missing(X: Any) -> Any:
    """Return 1 for missing features and 0 for others; zeros that a sparse ``X`` does not store stay so."""
    return map_entries(X, lambda values, _: np.isnan(values).astype(np.float64), zeros_stay=True, what="X")


def zero_missing(X: Any) -> Any:
    """Return a copy of ``X`` with 0 for missing features."""
    zero = X.dtype.type(0.0)
    return map_entries(X, lambda values, _: np.where(np.isnan(values), zero, values), zeros_stay=True, what="X")


def incomplete_rows(X: Any) -> Array:
    """Return which rows have missing features."""
    found = np.zeros(X.shape[0], dtype=bool)
    for where in row_chunks(X, 1):
        found[where] = np.isnan(linear_scores(X[where], np.ones((1, X.shape[1]), dtype=X.dtype), np.zeros(1)))[:, 0]
    return found


def missing_features(missing: Any) -> list[Array]:
    """Return the indices of the missing features of each row, from what `mark_missing` returns."""
    if is_dense_matrix(missing):
        return [np.flatnonzero(row) for row in missing]
    is_missing = missing.data > 0.0
    before = np.concatenate([[0], np.cumsum(is_missing)])
    return np.split(missing.indices[is_missing], before[missing.indptr[1:-1]])


def row_patterns(X: Any) -> tuple[Array, list[Array]]:
    """Return the incomplete rows whose missing features no other row has, and groups of rows that share theirs."""
    members: dict[bytes, list[int]] = {}
    for where in row_chunks(X, 1):
        for i, key in _pattern_keys(X[where], where.start):
            members.setdefault(key, []).append(i)
    groups = [np.array(rows) for rows in members.values()]
    alone = [rows for rows in groups if len(rows) == 1]
    return np.concatenate([np.empty(0, dtype=int), *alone]), [rows for rows in groups if len(rows) > 1]


def _pattern_keys(X: Any, begin: int) -> Iterator[tuple[int, bytes]]:
    if is_dense_matrix(X):
        is_missing = np.isnan(X)
        packed = np.packbits(is_missing, axis=1)
        for i in np.flatnonzero(is_missing.any(axis=1)).tolist():
            yield begin + i, packed[i].tobytes()
    else:
        for i, features in enumerate(missing_features(mark_missing(X)), begin):
            if len(features):
                yield i, features.tobytes()
