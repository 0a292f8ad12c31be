r"""The expected score of a row with missing features, for ``missing="conditional"``.

The features have a Gaussian distribution with low-rank plus diagonal covariance (factor analysis)::

    x = mu + U f + e,      f ~ N(0, I_k),      e ~ N(0, Psi),      Psi diagonal

For a row with observed features ``o`` and missing features ``m``, the factors given the observed features are normal,
with mean ``z = M^-1 U_o' Psi_o^-1 (x_o - mu_o)`` and covariance ``M^-1``, where ``M = I + U_o' Psi_o^-1 U_o``. So the
scores ``W x + b`` of all outputs are normal, with mean and covariance::

    E   = b + W mu + W_o (x_o - mu_o) + W_m U_m z
    Cov = W_m Psi_m W_m' + (W_m U_m) M^-1 (W_m U_m)'

Both need one solution ``T = M^-1 (W_m U_m)'`` per row. The expected scores are linear in the observed features, with
the coefficients ``W_o + T' U_o' Psi_o^-1``. Rows with the same missing features have the same ``T``: it is computed
once, and their scores are an ordinary product with these coefficients. The matrices ``M`` of other rows are that of a
complete row less the sum over the missing features of ``u_d u_d' / psi_d``, which is a product with a table of these.

A feature that never varies in the training data, or is never observed there, has no factors and no residual variance:
it takes its training mean where it is missing (0 if it was never observed), and predicts no other feature.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtri

from dropmargin.data import linear_scores
from dropmargin.data.blocks import chunks
from dropmargin.data.deviations import Deviations
from dropmargin.data.missing_values import mark_missing, missing_features, row_chunks, row_patterns, zero_missing
from dropmargin.estimators.missing import IncompleteRows
from dropmargin.losses import GaussianLogistic
from dropmargin.noise import Variance
from dropmargin.typing import Array

# The tables of `FactorModel` have at most this many numbers; with more, each row is computed by itself.
_MOST_TABLE = 2**23
# Numbers of a chunk of rows with their own matrices: enough for the product with a table to be faster than its reading.
_CHUNK = 2**21
# Points of a quadrature over several normal variables, and how many numbers of it are computed at once.
N_POINTS = 128
_CHUNK_ENTRIES = 2**20


class NormalScores(NamedTuple):
    """Some rows, and the mean and the covariance of the scores of each given its observed features.

    ``mean`` has the shape (n_rows, n_outputs), ``covariance`` (n_rows, n_outputs, n_outputs).
    """

    rows: Array
    mean: Array
    covariance: Array

    @property
    def variance(self) -> Array:
        return np.diagonal(self.covariance, axis1=1, axis2=2)

    def covariance_with(self, labels: Array) -> Array:
        """Return the covariances of the scores with that of one output of each row."""
        return self.covariance[np.arange(len(labels)), labels]


@dataclass(frozen=True)
class FactorModel:
    """A Gaussian distribution of the features with low-rank plus diagonal covariance; see the module's docstring."""

    mean: Array
    factors: Array  # the loadings U, (n_features, rank)
    residual_variance: Array  # the diagonal of Psi: 0 for features that never vary, whose loadings are 0

    @property
    def rank(self) -> int:
        return self.factors.shape[1]

    @cached_property
    def precision_factors(self) -> Array:
        """``Psi^-1 U``, 0 for features that never vary."""
        psi = self.residual_variance[:, None]
        return np.divide(self.factors, psi, out=np.zeros_like(self.factors), where=psi > 0.0)

    @cached_property
    def complete(self) -> Array:
        """The matrix ``M`` of a complete row."""
        return np.eye(self.rank) + self.factors.T @ self.precision_factors

    @cached_property
    def _table(self) -> Array | None:
        """``u_d u_d' / psi_d`` of each feature, on and above the diagonal; ``None`` if it is too large."""
        if len(self.mean) * self.rank * (self.rank + 1) // 2 > _MOST_TABLE:
            return None
        first, second = np.triu_indices(self.rank)
        return self.factors[:, first] * self.precision_factors[:, second]

    @property
    def has_table(self) -> bool:
        """Whether the matrices of many rows are computed together, because rank and number of features are small."""
        return self._table is not None

    def of_more_features(self, used: Array, n_features: int) -> FactorModel:
        """Return the model of ``n_features``, of which those of this model are ``used`` and the others are always 0."""
        wholes = []
        for own in (self.mean, self.factors, self.residual_variance):
            whole = np.zeros((n_features, *own.shape[1:]))
            whole[used] = own
            wholes.append(whole)
        return FactorModel(*wholes)

    # Scores ---------------------------------------------------------------------------------------------------------

    def scores(self, X: Any, coef: Array, intercept: Array) -> Array:
        """Return the expected scores of all rows, in the precision of `linear_scores`; NaN is a missing feature."""
        scores = np.empty((X.shape[0], len(coef)), dtype=np.result_type(X.dtype, coef.dtype))
        for where in row_chunks(X, len(coef)):  # the scores of complete rows
            scores[where] = linear_scores(zero_missing(X[where]), coef, intercept)
        for rows, solved in self._solved(X, coef, intercept, self.rank * len(coef)):
            scores[rows] = solved.scores(X[rows])
        return scores

    def normal_scores(
        self, X: Any, coef: Array, intercept: Array, noise: Variance | None = None, of_complete: bool = True
    ) -> Iterator[NormalScores]:
        """Yield the incomplete rows with the moments of the scores of the complete rows, or of their expected scores.

        Noise on the observed features changes the expected score, and so adds a variance, by the coefficients of the
        module's docstring. Unless ``of_complete``, there is no other.
        """
        if noise is not None and noise.is_zero:
            noise = None
        n_results = (self.rank + len(coef)) * len(coef) + (0 if noise is None else coef.size)
        for rows, solved in self._solved(X, coef, intercept, n_results):
            own = X[rows]
            covariance = solved.covariance() if of_complete else np.zeros(())
            covariance = np.broadcast_to(covariance, (len(rows), len(coef), len(coef)))
            if noise is not None:
                covariance = covariance + solved.noise_covariance(own, noise)
            yield NormalScores(rows, solved.scores(own), covariance)

    def _solved(self, X: Any, coef: Array, intercept: Array, n_results: int) -> Iterator[tuple[Array, _Solved]]:
        """Yield some incomplete rows and their solutions: one each, or one for all if they have the same pattern.

        The rows are few enough for their matrices ``M`` and ``n_results`` numbers each.
        """
        alone, shared = row_patterns(X)
        n_numbers = self.rank**2 + self.rank + X.size // max(1, X.shape[0]) + n_results
        for where in chunks(len(alone), n_numbers, _CHUNK, 1):
            yield alone[where], _Solved(self, mark_missing(X[alone[where]]), coef, intercept)
        for rows in shared:
            solved = _Solved(self, mark_missing(X[rows[:1]]), coef, intercept)
            for where in chunks(len(rows), n_numbers, _CHUNK, 1):
                yield rows[where], solved

    def matrices(self, missing: Any) -> Array:
        """Return ``M`` of each row, of shape (n_rows, rank, rank); ``missing`` has 1 for missing features, else 0."""
        if missing.shape[0] == 1 or self._table is None:
            features = missing_features(missing)
            return np.stack([self.complete - self.factors[own].T @ self.precision_factors[own] for own in features])
        upper = self.complete[np.triu_indices(self.rank)] - missing @ self._table
        matrices, begin = np.empty((missing.shape[0], self.rank, self.rank)), 0
        for j in range(self.rank):  # faster than index arrays
            end = begin + self.rank - j
            matrices[:, j, j:] = matrices[:, j:, j] = upper[:, begin:end]
            begin = end
        return matrices

    def cross(self, missing: Any, coef: Array) -> Array:
        """Return ``(W_m U_m)'`` of each row, of shape (n_rows, rank, n_outputs)."""
        if missing.shape[0] == 1 or self.factors.size * len(coef) > _MOST_TABLE:
            return np.stack([self.factors[own].T @ coef[:, own].T for own in missing_features(missing)])
        products = self.factors[:, :, None] * coef.T[:, None, :]
        return (missing @ products.reshape(len(products), -1)).reshape(missing.shape[0], self.rank, len(coef))

    # Training rows --------------------------------------------------------------------------------------------------

    def expected_factors(self, rows: Deviations) -> tuple[Array, Array]:
        """Return the mean ``z`` and the covariance ``M^-1`` of the factors of each row given its observed features."""
        matrices = self.complete[None] if rows.missing is None else self.matrices(rows.missing)
        covariance = np.linalg.inv(matrices)
        projected = rows.times(self.precision_factors)
        return (projected[:, None, :] @ covariance)[:, 0], covariance


class _Solved:
    """The solutions ``T`` of rows, or of a row whose missing features others share.

    ``missing`` has 1 for missing features, else 0.
    """

    def __init__(self, model: FactorModel, missing: Any, coef: Array, intercept: Array) -> None:
        self.model, self.missing = model, missing
        self.coef, self.intercept = coef.astype(np.float64), intercept.astype(np.float64)
        self.cross = model.cross(missing, self.coef)
        self.solution = np.linalg.solve(model.matrices(missing), self.cross)

    @cached_property
    def effective(self) -> Array:
        """The coefficients of the observed features in the expected scores, a matrix for each solution."""
        effective = self.coef + (self.model.precision_factors @ self.solution).swapaxes(1, 2)
        for own, features in zip(effective, missing_features(self.missing), strict=True):
            own[:, features] = 0.0
        return effective

    def scores(self, X: Any) -> Array:
        """Return the expected scores of the rows."""
        filled, mean = zero_missing(X), self.model.mean
        if len(self.solution) == 1:
            effective = self.effective[0]
            return linear_scores(filled, effective, self.intercept + (self.coef - effective) @ mean)
        projected = Deviations(filled, self.missing, mean).times(self.model.precision_factors)
        at_mean = linear_scores(self.missing, mean * self.coef, self.intercept)
        return linear_scores(filled, self.coef, at_mean) + np.einsum("nk,nkc->nc", projected, self.solution)

    def covariance(self) -> Array:
        """Return the covariance matrices of the scores."""
        n_outputs = len(self.coef)
        products = self.coef[:, None, :] * self.coef[None, :, :] * self.model.residual_variance
        own = linear_scores(self.missing, products.reshape(n_outputs**2, -1), np.zeros(1))
        return own.reshape(-1, n_outputs, n_outputs) + self.cross.swapaxes(1, 2) @ self.solution

    def noise_covariance(self, X: Any, noise: Variance) -> Array:
        """Return the covariance matrices of the expected scores of the rows under noise."""
        ones = np.ones((X.shape[0], len(self.coef)))
        rows = IncompleteRows(zero_missing(X), mark_missing(X), ones, ones)
        if len(self.effective) == 1:
            return rows.covariance_matrices(noise, self.effective[0])
        parts = (rows.take(np.array([i])) for i in range(len(ones)))
        found = [own.covariance_matrices(noise, coef) for own, coef in zip(parts, self.effective, strict=True)]
        return np.concatenate(found)


def log_expected_expit(mean: Array, variance: Array) -> Array:
    """Return ``log E expit(S)`` of normal scores: the derivative of the expected logistic loss, to within 1e-8."""
    by_mean, _ = GaussianLogistic().gradient(-np.ones(1), mean, np.maximum(variance, 0.0))
    return np.log(np.clip(by_mean, np.finfo(float).tiny, 1.0))


def log_expected_softmax(mean: Array, covariance: Array) -> Array:
    """Return ``log E softmax(S)`` of normal scores, to about two digits, by the points of a lattice."""
    n_rows, n_classes = mean.shape
    normal = ndtri(lattice(n_classes)).T
    values, vectors = np.linalg.eigh(covariance)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    out = np.empty(mean.shape)
    for where in chunks(n_rows, N_POINTS * n_classes, _CHUNK_ENTRIES):
        scores = mean[where, None, :] + normal @ roots[where].swapaxes(1, 2)
        scores -= logsumexp(scores, axis=2, keepdims=True)
        out[where] = logsumexp(scores, axis=1) - np.log(N_POINTS)
    return out


def lattice(n_dimensions: int) -> Array:
    """Return the points of a Richtmyer lattice in the unit cube, one column each, with a tent transformation."""
    primes = [n for n in range(2, 10 * n_dimensions + 10) if all(n % d for d in range(2, int(n**0.5) + 1))]
    steps = np.sqrt(np.array(primes[:n_dimensions], dtype=np.float64))
    return np.abs(2.0 * ((steps[:, None] * np.arange(1, N_POINTS + 1)) % 1.0) - 1.0)
