"""NaN as a missing feature, for ``missing="rescale"``.

In training a missing entry has mean and variance zero; see `data.missing_values`.

At prediction a missing feature is replaced by its training mean ``mu``, and the contributions of the observed features
are rescaled::

    score = b + w.mu + factor * sum over observed d of w_d (x_d - mu_d)
    factor = 1 / max(share, (1 - delta) / 2)
    share = sum over observed d of |w_d| sd_d / sum over all d of |w_d| sd_d

``delta`` is the share of the features that is missing in the row, and ``sd`` are the training standard deviations: a
feature counts by the standard deviation of its contribution to the score. This is more accurate than
``factor = 1 / (1 - delta)``, which is used if all contributions are zero. The factor is at most twice that, for rows
whose observed features have small coefficients. Written as ``shift + factor * w.x``, with zeros for missing features,
the score needs no dense copy of a sparse row. A complete row has ``factor = 1`` and ``shift = b``: its plain score. A
row without observed features has the score ``b + w.mu`` of the mean training row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_array

from dropmargin.data import FeatureGroups, apply_entry, group_sums, linear_scores, map_entries
from dropmargin.data.inputs import column_names
from dropmargin.data.missing_values import (
    FeatureStatistics,
    has_missing,
    is_negative_zero,
    mark_missing,
    row_chunks,
    zero_missing,
)
from dropmargin.noise import Noise, Variance
from dropmargin.typing import Array

CHOICES = ("error", "rescale", "conditional")


def restore_columns(X: Any, names: Array | None) -> Any:
    """Return a data frame that lacks features of the training data as an array with NaN for these features.

    Other input is returned unchanged; scikit-learn raises the error for a frame with unknown names.
    """
    present = column_names(X)
    if names is None or present is None:
        return X
    position = {name: d for d, name in enumerate(names)}
    if len(set(present)) < len(present) or not set(present) < set(position):
        return X
    if not present:
        return np.full((len(X), len(names)), np.nan)
    positions = [position[name] for name in present]
    if positions != sorted(positions):
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            "Feature names must be in the same order as they were in fit; absent features are treated as missing."
        )
    observed = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
    whole = np.full((len(observed), len(names)), np.nan, dtype=observed.dtype)
    whole[:, positions] = observed
    return whole


# Training -----------------------------------------------------------------------------------------------------------


def exclude_missing_from_noise(noise: Noise, has_implicit: bool) -> Noise:
    """Return a noise that does not corrupt missing entries; ``has_implicit``: ``X`` has zeros that are not stored."""
    if not noise.variance().has_floor:
        return noise
    name = type(noise).__name__
    if noise.variance().moves_entries:
        raise ValueError(
            f"X has NaN, and the variance of {name} depends on the entries and is not zero for zeros: "
            "missing='rescale' cannot distinguish zeros and NaN. Impute X first, for example with "
            "sklearn.impute.SimpleImputer."
        )
    if has_implicit:
        raise ValueError(
            f"X is sparse with NaN, and {name} corrupts zeros that are not stored: missing='rescale' "
            "cannot distinguish zeros and NaN. Pass X.toarray() if that fits into memory, or choose "
            "DropoutNoise or PoissonNoise."
        )
    return _ObservedOnly(noise)


def _is_observed(values: Array) -> Array:
    return (~is_negative_zero(values)).astype(values.dtype)


class _ObservedOnly(Noise):
    """An additive noise that does not corrupt missing entries (minus zeros); every entry must be stored."""

    def __init__(self, noise: Noise) -> None:
        self.noise = noise

    @property
    def has_log_mgf(self) -> bool:
        return self.noise.has_log_mgf

    def take(self, features: Any) -> _ObservedOnly:
        return _ObservedOnly(self.noise.take(features))

    def variance(self) -> Variance:
        # Subtracting the missing entries from a floor could give negative variances by rounding.
        return Variance(entry=_is_observed, slope=self.noise.variance().floor)

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        value, first, second = (np.where(is_negative_zero(x), 0.0, part) for part in self.noise.log_mgf(t, x))
        return value, first, second


# Prediction ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IncompleteRows:
    """Rows of ``X``, possibly with missing features. Their scores are ``shift + factor * filled @ coef.T``."""

    filled: Any  # with 0 for missing features
    missing: Any  # 1 for missing features, else 0; None if no feature is missing
    factor: Array  # (n_rows, n_outputs)
    shift: Array  # (n_rows, n_outputs)

    def scores(self, coef: Array) -> Array:
        return self.factor * _times(self.filled, coef) + self.shift

    def observed_sums(self, coef: Array) -> Array:
        """Return the sums of the coefficients of the observed features of each row."""
        total = coef.sum(axis=1)
        missing = self.missing
        return np.tile(total, (len(self.factor), 1)) if missing is None else total - _times(missing, coef)

    def take(self, members: Array) -> IncompleteRows:
        """Return some of the rows."""
        missing = None if self.missing is None else self.missing[members]
        return IncompleteRows(self.filled[members], missing, self.factor[members], self.shift[members])

    def covariance_matrices(self, variance: Variance, coef: Array) -> Array:
        """Return the covariance matrix of the scores of each row under the noise."""
        n_outputs = len(coef)
        out = np.empty((len(self.factor), n_outputs, n_outputs))
        for k in range(n_outputs):
            out[:, k, k:] = out[:, k:, k] = self.covariances(variance, coef[k], coef[k:])
        return out * (self.factor[:, :, None] * self.factor[:, None, :])

    def covariances(self, variance: Variance, first: Array, second: Array) -> Array:
        """Return the covariances of ``u.x~`` and ``w.x~`` of each row under the noise, for rows ``w`` of ``second``.

        ``u`` is ``first``; or ``w`` itself, if ``first`` is ``second``. Missing features have variance 0.
        """
        if variance.groups is not None:
            return self._group_covariances(variance.feature_groups(second.shape[1]), first, second)
        products = first * second
        variance = variance.of_stored_entries()  # a missing feature, which is filled with zero, has the floor alone
        out = np.zeros((len(self.factor), len(products)))
        entry = variance.entry
        if entry is not None and variance.moves_entries:
            entries = map_entries(self.filled, partial(apply_entry, entry), zeros_stay=True, what="The variance")
            out += _times(entries, products * variance.slope)
        return out + self.observed_sums(products * variance.floor) if variance.has_floor else out

    def _group_covariances(self, groups: FeatureGroups, first: Array, second: Array) -> Array:
        """Return the covariances if features are corrupted in groups: the sum of ``c_g s_ig(u) s_ig(w)``."""

        def scores(coef: Array) -> Array:
            deviations = group_sums(self.filled, coef, groups.numbers) - groups.at_reference(coef[:, None])[:, 0]
            if self.missing is None:
                return deviations
            return deviations + group_sums(self.missing, groups.reference * coef, groups.numbers)

        shared = scores(first) if first.ndim == 1 else None
        out = np.empty((len(self.factor), len(second)))
        for k, coef in enumerate(second):
            of_second = scores(coef)
            of_first = of_second if shared is None else shared
            out[:, k] = (of_first * of_second) @ groups.slope
        return out


def anchored_rows(
    X: Any, coef: Array, intercept: Array, statistics: FeatureStatistics | None, n_results: int
) -> Iterator[tuple[slice, IncompleteRows]]:
    """Yield slices of rows, and the rows with the factor and shift of their scores; see the module's docstring.

    Without ``statistics`` of the training features, ``X`` must not have NaN. Chunks are small enough for ``n_results``
    numbers per row.
    """
    for where in row_chunks(X, n_results):
        rows = X[where]
        shape = rows.shape[0], len(coef)
        if statistics is None or not has_missing(rows):
            yield where, IncompleteRows(rows, None, np.ones(shape), np.broadcast_to(intercept, shape))
            continue
        missing = mark_missing(rows)
        factor, shift = anchor(partial(_times, missing), coef, intercept, statistics)
        yield where, IncompleteRows(zero_missing(rows), missing, factor, shift)


def anchor(
    missing_sums: Callable[[Array], Array], coef: Array, intercept: Array, statistics: FeatureStatistics
) -> tuple[Array, Array]:
    """Return the factor and the shift of the scores of rows, each of shape (n_rows, n_outputs).

    ``missing_sums`` returns the sums over the missing features of each row of several vectors, the rows of a matrix.
    The factor of a row without observed features is 0.
    """
    n_outputs, n_features = coef.shape
    at_mean = statistics.mean * coef.astype(np.float64)
    contribution = np.abs(coef) * statistics.deviation
    sums = missing_sums(np.vstack([np.ones(n_features), contribution, at_mean]))
    count, lost, mean_lost = sums[:, :1], sums[:, 1 : n_outputs + 1], sums[:, n_outputs + 1 :]
    total, delta = contribution.sum(axis=1), count / n_features
    lost = np.divide(lost, total, out=np.tile(delta, n_outputs), where=total > 0.0)
    share = np.maximum(1.0 - lost, 0.5 * (1.0 - delta))
    factor = np.divide(1.0, share, out=np.zeros_like(share), where=count < n_features)
    complete = count == 0.0
    factor = np.where(complete, 1.0, factor)
    at_mean = at_mean.sum(axis=1)
    return factor, np.where(complete, intercept, intercept + at_mean - factor * (at_mean - mean_lost))


def anchored_scores(X: Any, coef: Array, intercept: Array, statistics: FeatureStatistics) -> Array:
    """Return the scores of all rows, in the precision of `linear_scores`."""
    if not has_missing(X):
        return linear_scores(X, coef, intercept)
    scores = np.empty((X.shape[0], len(coef)), dtype=np.result_type(X.dtype, coef.dtype))
    for where, rows in anchored_rows(X, coef, intercept, statistics, len(coef)):
        scores[where] = rows.scores(coef)
    return scores


def _times(X: Any, coef: Array) -> Array:
    """Return ``X @ coef.T`` as a dense array."""
    return linear_scores(X, coef, np.zeros(1, dtype=coef.dtype))
