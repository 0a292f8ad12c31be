"""Deviations of rows from the feature means, 0 where a feature is missing: products with them, dense or sparse.

With the mean in place of each missing entry, ``A``, the deviations are ``A - mean``: a sparse ``X`` stays sparse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from dropmargin.data.matrix import as_dense, is_dense_matrix, map_entries
from dropmargin.data.missing_values import IsMissing, fill_missing, row_chunks
from dropmargin.typing import Array

# The matrix of products of features is computed for dense rows with at most this many features.
_MOST_FEATURES = 2048


class Deviations:
    """Deviations of rows from the feature means, of shape (n_rows, n_features).

    Parameters
    ----------
    X : ndarray or sparse array of shape (n_rows, n_features)
        The rows.
    mean : ndarray of shape (n_features,)
    is_missing : callable or None
        Returns which entries are missing; ``None`` if none is.
    """

    def __init__(self, X: Any, mean: Array, is_missing: IsMissing | None) -> None:
        self._rows = X if is_missing is None else fill_missing(X, mean, is_missing)
        self._mean = mean  # what is still to be subtracted
        if is_dense_matrix(X):
            self._rows, self._mean = self._rows - mean.astype(X.dtype), np.zeros_like(mean)

    def times(self, right: Array) -> Array:
        """Return the product with a matrix of shape (n_features, n)."""
        return self._rows @ right - self._mean @ right

    def transposed_times(self, left: Array) -> Array:
        """Return the product of the transpose with a matrix of shape (n_rows, n)."""
        return self._rows.T @ left - np.multiply.outer(self._mean, left.sum(axis=0))

    def squares_times(self, right: Array) -> Array:
        """Return the product of the squares with a matrix of shape (n_features, n)."""

        def square(values: Array, features: Any) -> Array:
            return values * (values - 2.0 * self._mean[features])

        squares = map_entries(self._rows, square, zeros_stay=True, what="X")
        return squares @ right + np.square(self._mean) @ right

    def group_sums(self, coef: Array, groups: Array) -> Array:
        """Return the sums of ``w_d`` times the deviations over the features of each group, (n_rows, n_groups).

        ``coef`` has the shape (n_features,), or (n_rows, n_features) if each row has its own.
        """
        ones, places = np.ones(len(groups)), (np.arange(len(groups)), groups)
        members = sparse.csr_array((ones if coef.ndim > 1 else coef, places))
        if coef.ndim == 1:
            return as_dense(self._rows @ members) - self._mean @ members
        return (coef * (as_dense(self._rows) - self._mean)) @ members

    def moments(self, sample_weight: Array) -> Array:
        """Return the weighted sum of the products of all pairs of features, for dense rows."""
        return self._rows.T @ (sample_weight.astype(self._rows.dtype)[:, None] * self._rows)


class SecondMoments:
    """The matrix ``sum_i w_i d_i d_i'`` of the deviations ``d_i`` of weighted rows.

    It is computed once if ``X`` is dense and has few features. Otherwise each product with it takes one pass over the
    rows. The parameters are those of `Deviations`, and the weights of the rows.
    """

    def __init__(self, X: Any, sample_weight: Array, mean: Array, is_missing: IsMissing | None) -> None:
        self._X, self._sample_weight, self._mean, self._is_missing = X, sample_weight, mean, is_missing
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
            yield Deviations(self._X[where], self._mean, self._is_missing), self._sample_weight[where]
