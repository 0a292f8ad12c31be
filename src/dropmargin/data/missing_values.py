"""Missing values in training data: NaN stored as minus zero, and statistics of the observed entries.

A missing entry of the training data has neither mean nor variance: ``w_d x~_id = 0``, whatever the noise. It is stored
as minus zero, the one number that multiplies as zero does and can be told from it; all other zeros become plus zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data.blocks import chunks
from dropmargin.data.matrix import (
    entry_range,
    entry_rows,
    is_dense_matrix,
    linear_scores,
    map_entries,
    row_block,
)
from dropmargin.typing import Array

# Rows are processed in chunks of about this many entries and results.
_CHUNK_ENTRIES = 2**18

#: Total weight, and by feature: sums of the entries, weight of missing ones.
Sums = tuple[float, Array, Array]


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


def feature_statistics(X: Any, weights: Array, has_missing: bool) -> FeatureStatistics:
    """Return weighted mean and deviation of each feature's observed entries, 0 if there are none.

    Zeros that a sparse ``X`` does not store are observed. ``has_missing`` says whether minus zeros are missing entries.
    """
    return statistics_by_sums(mean_sums(X, weights, has_missing), partial(feature_squares, X, weights, has_missing))


def statistics_by_sums(sums: Sums, square: Callable[[Array], tuple[Array, Array]]) -> FeatureStatistics:
    """Return mean and deviation of the features from `mean_sums`, and from `feature_squares` of the mean."""
    (total, _, missing), mean = sums, means_by_sums(*sums)
    squares, stored = square(mean)
    implicit = total - stored  # the weight of zeros that are not stored, or rounding
    squares = squares + np.where(implicit > 1e-12 * total, implicit, 0.0) * np.square(mean)
    return FeatureStatistics(mean, np.sqrt(_ratio(squares, total - missing)))


def feature_means(X: Any, weights: Array, has_missing: bool) -> Array:
    """Return the weighted mean of each feature's observed entries, 0 if there are none."""
    return means_by_sums(*mean_sums(X, weights, has_missing))


def mean_sums(X: Any, weights: Array, has_missing: bool) -> Sums:
    """Return the total weight, and by feature the sum of the entries and the weight of missing ones."""
    block, missing = row_block(X), np.zeros(X.shape[1])
    if has_missing:
        missing += block.with_entries(is_negative_zero(block.entries()).astype(X.dtype)).transposed_times(weights)
    return float(weights.sum()), block.transposed_times(weights), missing


def means_by_sums(total: float, sums: Array, missing: Array) -> Array:
    """Return the means of the features from `mean_sums`."""
    return _ratio(sums, total - missing)


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


def feature_squares(X: Any, weights: Array, has_missing: bool, mean: Array) -> tuple[Array, Array]:
    """Return, by feature, the sum of the squares of the stored entries less the mean, and the weight of these."""
    squares, stored = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for where in row_chunks(X, 1):
        block, own = row_block(X[where]), weights[where]
        # Centred before squaring: a feature far from zero keeps its digits.
        centred = np.square(block.entries() - block.spread(mean))
        if has_missing:
            centred[is_negative_zero(block.entries())] = 0.0
        squares += block.with_entries(centred).transposed_times(own)
        stored += block.with_entries(np.ones(centred.shape)).transposed_times(own)
    return squares, stored


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
