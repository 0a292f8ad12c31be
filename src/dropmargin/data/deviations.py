"""Deviations of rows from the feature means, 0 where a feature is missing: products with them, dense or sparse.

A sparse ``X`` stays sparse: with 0 for missing entries and 1 in ``missing`` in their place, the deviations are
``X - mean + mean * missing``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dropmargin.data.matrix import is_dense_matrix, map_entries
from dropmargin.data.missing_values import is_negative_zero, row_chunks
from dropmargin.typing import Array

# The matrix of products of features is computed for dense rows with at most this many features.
_MOST_FEATURES = 2048


class Deviations:
    """Deviations of rows from the feature means, of shape (n_rows, n_features).

    Parameters
    ----------
    filled : ndarray or sparse array of shape (n_rows, n_features)
        The rows, with zeros for missing entries.
    missing : ndarray or sparse array of shape (n_rows, n_features), or None
        1 for missing entries, else 0; ``None`` if no entry is missing.
    mean : ndarray of shape (n_features,)
    """

    def __init__(self, filled: Any, missing: Any, mean: Array) -> None:
        self.missing, self._mean, self._filled = missing, mean, filled
        self.n_rows = filled.shape[0]
        self.is_dense = is_dense_matrix(filled)
        if self.is_dense:
            self._filled = filled - mean.astype(filled.dtype)
            if missing is not None:
                self._filled[missing > 0.0] = 0.0

    @classmethod
    def of_training_rows(cls, X: Any, mean: Array, has_missing: bool) -> Deviations:
        """Return the deviations of rows whose minus zeros are missing entries, if ``has_missing``."""
        if not has_missing:
            return cls(X, None, mean)
        missing = map_entries(X, lambda values, _: is_negative_zero(values).astype(float), zeros_stay=True, what="X")
        return cls(X, missing, mean)

    def times(self, right: Array) -> Array:
        """Return the product with a matrix of shape (n_features, n)."""
        product = self._filled @ right
        return product if self.is_dense else product - self.observed_times(self._mean[:, None] * right)

    def transposed_times(self, left: Array) -> Array:
        """Return the product of the transpose with a matrix of shape (n_rows, n)."""
        product = self._filled.T @ left
        return product if self.is_dense else product - self._mean[:, None] * self.observed_transposed_times(left)

    def squares_times(self, right: Array) -> Array:
        """Return the product of the squares with a vector of shape (n_features,)."""
        if self.is_dense:
            return np.square(self._filled) @ right
        return self._stored_squares() @ right + self.observed_times(np.square(self._mean) * right)

    def _stored_squares(self) -> Any:
        """Return the squares of sparse deviations less that of an entry that is not stored, ``mean^2``."""

        def square(values: Array, features: Any) -> Array:
            return values * (values - 2.0 * self._mean[features])

        return map_entries(self._filled, square, zeros_stay=True, what="X")

    def observed_times(self, right: Array) -> Array:
        """Return the sum of the entries of ``right`` over the observed features of each row."""
        total = np.broadcast_to(right.sum(axis=0), (self.n_rows, *right.shape[1:]))
        return total if self.missing is None else total - self.missing @ right

    def observed_transposed_times(self, left: Array) -> Array:
        """Return, for each feature, the sum of the rows of ``left`` where it is observed."""
        total = np.broadcast_to(left.sum(axis=0), (self._mean.shape[0], left.shape[1]))
        return total if self.missing is None else total - self.missing.T @ left

    def moments(self, sample_weight: Array) -> Array:
        """Return the sum of the products of all pairs of features, for dense rows."""
        weights = sample_weight.astype(self._filled.dtype)[:, None]
        return self._filled.T @ (weights * self._filled)


class SecondMoments:
    """The matrix ``sum_i w_i d_i d_i'`` of the deviations ``d_i`` of weighted rows.

    It is computed once if ``X`` is dense and has few features. Otherwise each product with it takes one pass over the
    rows.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
    sample_weight : ndarray of shape (n_samples,)
    mean : ndarray of shape (n_features,)
    has_missing : bool
        Whether minus zeros are missing entries.
    """

    def __init__(self, X: Any, sample_weight: Array, mean: Array, has_missing: bool) -> None:
        self._X, self._sample_weight, self._mean, self._has_missing = X, sample_weight, mean, has_missing
        self._matrix: Array | None = None
        if is_dense_matrix(X) and X.shape[1] <= _MOST_FEATURES:
            self._matrix = np.zeros((X.shape[1], X.shape[1]))
            for own, weights in self._chunks(1):
                self._matrix += own.moments(weights)

    def times(self, right: Array) -> Array:
        """Return the product with a matrix of shape (n_features, n)."""
        if self._matrix is not None:
            return self._matrix @ right
        out = np.zeros(right.shape)
        for own, weights in self._chunks(2 * right.shape[1]):
            out += own.transposed_times(weights[:, None] * own.times(right))
        return out

    def _chunks(self, n_results: int) -> Iterator[tuple[Deviations, Array]]:
        for where in row_chunks(self._X, n_results):
            own = Deviations.of_training_rows(self._X[where], self._mean, self._has_missing)
            yield own, self._sample_weight[where]
