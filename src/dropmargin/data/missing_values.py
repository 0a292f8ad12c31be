"""Missing values: statistics of the observed entries, values in place of missing ones, patterns of missing features.

A missing entry of the training data has neither mean nor variance: ``w_d x~_id = 0``, whatever the noise. It is stored
as minus zero, the one number that multiplies as zero does and can be told from it; all other zeros become plus zeros.
In rows to predict, a missing feature is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data.matrix import entry_range, entry_rows, is_dense_matrix, map_entries, row_slice
from dropmargin.typing import Array

# Rows are processed in chunks of about this many entries and results.
_CHUNK_ENTRIES = 2**18

#: Returns which of some entries are missing.
IsMissing = Callable[[Array], Array]


def chunks(n_rows: int, n_numbers: int, most: int, min_rows: int = 1) -> Iterator[slice]:
    """Yield slices of at least ``min_rows`` rows and about ``most`` numbers, ``n_numbers`` per row."""
    step = max(min_rows, most // max(1, n_numbers))
    for begin in range(0, n_rows, step):
        yield slice(begin, min(begin + step, n_rows))


def row_chunks(X: Any, n_results: int) -> Iterator[slice]:
    """Yield slices of rows, small enough for temporary copies and ``n_results`` numbers per row."""
    stored = X.size // max(1, X.shape[0])  # X.size counts stored entries
    return chunks(X.shape[0], stored + n_results, _CHUNK_ENTRIES, 16)


def has_missing(X: Any) -> bool:
    """Return whether any entry is NaN; no temporary array is made."""
    return bool(np.isnan(entry_range(X)[0]))


def is_negative_zero(values: Array) -> Array:
    """Return which entries of training data are missing."""
    return (values == 0.0) & np.signbit(values)


def nan_to_negative_zero(X: Any) -> Any:
    """Return a copy of ``X`` with minus zeros for NaN."""
    # The sum is a copy, in which -0 has become +0.
    return _mapped(X, lambda values, _: np.where(np.isnan(values), values.dtype.type(-0.0), values + 0.0))


def negative_zero_to_nan(X: Any) -> Any:
    """Return a copy of ``X`` with NaN for minus zeros."""
    return _mapped(X, lambda values, _: np.where(is_negative_zero(values), values.dtype.type(np.nan), values))


def _mapped(X: Any, function: Callable[[Array, Any], Array]) -> Any:
    return map_entries(X, function, zeros_stay=True, what="X")


# Statistics of the training features --------------------------------------------------------------------------------


class FeatureStatistics(NamedTuple):
    """Mean and standard deviation of each feature's observed entries; ``None`` for what is not known.

    ``factors`` and ``residual_variance`` are those of a Gaussian with low-rank plus diagonal covariance.
    """

    mean: Array
    deviation: Any
    factors: Array | None = None
    residual_variance: Array | None = None


#: The attributes of a fitted estimator that hold them.
STATISTICS = ("feature_means_", "feature_deviations_", "feature_factors_", "residual_variances_")


def feature_statistics(data: Any, has_missing: bool) -> FeatureStatistics:
    """Return weighted mean and deviation of each feature's observed entries."""
    mean = feature_means(data, has_missing)
    return FeatureStatistics(mean, feature_deviations(data, has_missing, mean))


def feature_means(data: Any, has_missing: bool) -> Array:
    """Return the weighted mean of each feature's observed entries, 0 if there are none; by one pass over the rows.

    Zeros that a sparse ``X`` does not store are observed. ``has_missing`` says whether minus zeros are missing entries.
    ``data`` are partitions of rows with the attributes ``X`` and ``sample_weight``.
    """
    total, missing, sums, _ = data.map_sum(feature_sums, has_missing)
    return _ratio(sums, total - missing)


def feature_deviations(data: Any, has_missing: bool, mean: Array) -> Array:
    """Return the standard deviation of each feature's observed entries, given their mean; by one pass."""
    total, missing, squares, stored = data.map_sum(feature_sums, has_missing, mean)
    implicit = total - stored  # the weight of zeros that are not stored, or rounding
    squares = squares + np.where(implicit > 1e-12 * total, implicit, 0.0) * np.square(mean)
    return np.sqrt(_ratio(squares, total - missing))


def feature_sums(rows: Any, has_missing: bool, mean: Array | None = None) -> tuple[float, Array, Array, Array]:
    """Return the total weight, and by feature the weight of missing entries, a sum, and the weight of stored entries.

    The sum is that of the observed entries; with ``mean`` that of their squared deviations. The last is 0 without it.
    """
    X, weights = rows.X, rows.sample_weight
    missing, sums, stored = np.zeros((3, X.shape[1]))
    for where in row_chunks(X, 1):
        part, own = row_slice(X, where.start, where.stop), weights[where]
        if has_missing:
            missing += _mapped(part, lambda values, _: is_negative_zero(values).astype(np.float64)).T @ own
        if mean is None:
            sums += part.T @ own
            continue

        def squares(values: Array, features: Any) -> Array:
            # Centred before squaring: a feature far from zero keeps its digits.
            squared = np.square(values - mean[features])
            return np.where(is_negative_zero(values), 0.0, squared) if has_missing else squared

        sums += _mapped(part, squares).T @ own
        is_dense = is_dense_matrix(part)
        stored += own.sum() if is_dense else _mapped(part, lambda values, _: np.ones(len(values))).T @ own
    return float(weights.sum()), missing, sums, stored


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.zeros_like(above), where=(above != 0.0) & (below > 0.0))


# Values in place of missing entries ---------------------------------------------------------------------------------


def mark_missing(X: Any, is_missing: IsMissing = np.isnan) -> Any:
    """Return 1 for missing entries and 0 for others; zeros that a sparse ``X`` does not store stay so."""
    return _mapped(X, lambda values, _: is_missing(values).astype(np.float64))


def fill_missing(X: Any, values: Any, is_missing: IsMissing = is_negative_zero) -> Any:
    """Return a copy of ``X`` with a number, or one number per feature, for missing entries."""

    def fill(entries: Array, features: Any) -> Array:
        own = np.asarray(values, dtype=entries.dtype)
        return np.where(is_missing(entries), own[features] if own.ndim else own, entries)

    return _mapped(X, fill)


def zero_missing(X: Any) -> Any:
    """Return a copy of ``X`` with 0 for NaN."""
    return fill_missing(X, 0.0, np.isnan)


def fill_low_rank(X: Any, mean: Array, left: Array, right: Array, is_missing: IsMissing) -> Any:
    """Return a copy of ``X`` with ``mean_d + left_i.right_d`` for a missing entry of row i, feature d."""
    rows = entry_rows(X)

    def fill(entries: Array, features: Any) -> Array:
        lost = is_missing(entries)
        if rows is None:
            return np.where(lost, mean + left @ right.T, entries).astype(entries.dtype)
        filled, own = entries.copy(), features[lost]
        filled[lost] = mean[own] + np.einsum("nk,nk->n", left[rows[lost]], right[own])
        return filled

    return _mapped(X, fill)


# Patterns of missing features ---------------------------------------------------------------------------------------


def incomplete_rows(X: Any) -> Array:
    """Return which rows have missing features, NaN."""
    return np.concatenate([np.zeros(0, bool), *((mark_missing(X[w]).sum(axis=1) > 0.0) for w in row_chunks(X, 1))])


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
        for i, key in enumerate(_pattern_keys(X[where]), where.start):
            if key:
                members.setdefault(key, []).append(i)
    groups = [np.array(rows) for rows in members.values()]
    alone = [rows for rows in groups if len(rows) == 1]
    return np.concatenate([np.empty(0, dtype=int), *alone]), [rows for rows in groups if len(rows) > 1]


def _pattern_keys(X: Any) -> list[bytes]:
    """Return bytes that are equal for rows with the same missing features, and empty for complete rows."""
    if not is_dense_matrix(X):
        return [features.tobytes() for features in missing_features(mark_missing(X))]
    is_missing = np.isnan(X)
    packed = np.packbits(is_missing, axis=1)
    return [row.tobytes() if some else b"" for row, some in zip(packed, is_missing.any(axis=1).tolist(), strict=True)]
