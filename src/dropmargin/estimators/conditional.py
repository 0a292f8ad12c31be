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
# Points of the expected softmax, half of them; and how many numbers are computed at once.
_N_POINTS = 64
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
        alone, shared = row_patterns(X)
        for where in row_chunks(X, len(coef)):  # the scores of complete rows
            scores[where] = linear_scores(zero_missing(X[where]), coef, intercept)
        for rows in self._chunks(X, alone, self.rank * len(coef)):
            scores[rows] = self._solve(X[rows], coef, intercept).scores
        for rows in shared:
            scores[rows] = self._of_pattern(X, rows, coef, intercept)
        return scores

    def normal_scores(
        self, X: Any, coef: Array, intercept: Array, noise: Variance | None = None
    ) -> Iterator[NormalScores]:
        """Yield the incomplete rows with the moments of their scores.

        Noise on the observed features changes the expected score, and so adds a variance, by the coefficients of the
        module's docstring.
        """
        if noise is not None and not (noise.moves_entries or noise.has_floor):
            noise = None
        alone, shared = row_patterns(X)
        for rows in self._chunks(X, alone, (self.rank + len(coef)) * len(coef)):
            solved = self._solve(X[rows], coef, intercept)
            covariance = solved.covariance(self, coef)
            if noise is not None:
                for i in range(len(rows)):
                    covariance[i] += self._noise_covariance(X[rows[i : i + 1]], solved.solution[i], coef, noise)[0]
            yield NormalScores(rows, solved.scores, covariance)
        for members in shared:
            solved = self._solve(X[members[:1]], coef, intercept)
            for rows in self._chunks(X, members, len(coef) ** 2):
                covariance = np.repeat(solved.covariance(self, coef), len(rows), axis=0)
                if noise is not None:
                    covariance += self._noise_covariance(X[rows], solved.solution[0], coef, noise)
                yield NormalScores(rows, self._of_pattern(X, rows, coef, intercept), covariance)

    def _chunks(self, X: Any, rows: Array, n_results: int) -> Iterator[Array]:
        """Yield some of the rows at a time, few enough for their matrices ``M`` and ``n_results`` numbers each."""
        stored = X.size // max(1, X.shape[0])
        step = max(1, _CHUNK // (self.rank**2 + self.rank + stored + n_results))
        for begin in range(0, len(rows), step):
            yield rows[begin : begin + step]

    def _solve(self, X: Any, coef: Array, intercept: Array) -> _Solved:
        """Return the solutions ``T`` of incomplete rows, and their scores."""
        filled, missing = zero_missing(X), mark_missing(X)
        coef = coef.astype(np.float64)
        matrices, cross = self.matrices(missing), self._cross(missing, coef)
        solution = np.linalg.solve(matrices, cross)
        projected = Deviations(filled, missing, self.mean).times(self.precision_factors)
        at_mean = linear_scores(missing, self.mean * coef, intercept.astype(np.float64))
        scores = linear_scores(filled, coef, at_mean) + np.einsum("nk,nkc->nc", projected, solution)
        return _Solved(missing, cross, solution, scores)

    def matrices(self, missing: Any) -> Array:
        """Return ``M`` of each row, of shape (n_rows, rank, rank); ``missing`` has 1 for missing features, else 0."""
        if self._table is None:
            return np.stack([self._matrix(features) for features in missing_features(missing)])
        upper = self.complete[np.triu_indices(self.rank)] - missing @ self._table
        matrices, begin = np.empty((missing.shape[0], self.rank, self.rank)), 0
        for j in range(self.rank):  # faster than index arrays
            end = begin + self.rank - j
            matrices[:, j, j:] = matrices[:, j:, j] = upper[:, begin:end]
            begin = end
        return matrices

    def _matrix(self, missing: Array) -> Array:
        """Return ``M`` of a row with these missing features."""
        if 2 * len(missing) <= len(self.mean):
            return self.complete - self.factors[missing].T @ self.precision_factors[missing]
        observed = np.setdiff1d(np.arange(len(self.mean)), missing, assume_unique=True)
        return np.eye(self.rank) + self.factors[observed].T @ self.precision_factors[observed]

    def _cross(self, missing: Any, coef: Array) -> Array:
        """Return ``(W_m U_m)'`` of each row, of shape (n_rows, rank, n_outputs)."""
        if self.factors.size * len(coef) > _MOST_TABLE:
            return np.stack([self.factors[own].T @ coef[:, own].T for own in missing_features(missing)])
        products = self.factors[:, :, None] * coef.T[:, None, :]
        return (missing @ products.reshape(len(products), -1)).reshape(missing.shape[0], self.rank, len(coef))

    def _of_pattern(self, X: Any, rows: Array, coef: Array, intercept: Array) -> Array:
        """Return the scores of rows with the same missing features."""
        (missing,) = missing_features(mark_missing(X[rows[:1]]))
        coef = coef.astype(np.float64)
        solution = np.linalg.solve(self._matrix(missing), self.factors[missing].T @ coef[:, missing].T)
        effective = self._effective(missing, solution, coef)
        shift = intercept + coef @ self.mean - effective @ self.mean
        scores = np.empty((len(rows), len(coef)))
        for where in row_chunks(X, len(coef), len(rows)):
            scores[where] = linear_scores(zero_missing(X[rows[where]]), effective, shift)
        return scores

    def _effective(self, missing: Array, solution: Array, coef: Array) -> Array:
        """Return the coefficients of the observed features in the expected scores."""
        effective = coef + (self.precision_factors @ solution).T
        effective[:, missing] = 0.0
        return effective

    def _noise_covariance(self, X: Any, solution: Array, coef: Array, noise: Variance) -> Array:
        """Return the covariances of the expected scores under noise, of rows with the same missing features."""
        filled, missing = zero_missing(X), mark_missing(X)
        effective = self._effective(missing_features(missing[:1])[0], solution, coef.astype(np.float64))
        ones = np.ones((filled.shape[0], len(coef)))
        return IncompleteRows(filled, missing, ones, ones).covariance_matrices(noise, effective)

    # Training rows --------------------------------------------------------------------------------------------------

    def expected_factors(self, rows: Deviations) -> tuple[Array, Array]:
        """Return the mean ``z`` and the covariance ``M^-1`` of the factors of each row given its observed features."""
        matrices = self.complete[None] if rows.missing is None else self.matrices(rows.missing)
        covariance = np.linalg.inv(matrices)
        projected = rows.times(self.precision_factors)
        return (projected[:, None, :] @ covariance)[:, 0], covariance


class _Solved(NamedTuple):
    """Incomplete rows: 1 for missing features, ``(W_m U_m)'``, ``T``, and the expected scores."""

    missing: Any
    cross: Array
    solution: Array
    scores: Array

    def covariance(self, model: FactorModel, coef: Array) -> Array:
        """Return the covariance matrices of the scores."""
        coef = coef.astype(np.float64)
        products = (coef[:, None, :] * coef[None, :, :] * model.residual_variance).reshape(len(coef) ** 2, -1)
        own = linear_scores(self.missing, products, np.zeros(1)).reshape(-1, len(coef), len(coef))
        return own + self.cross.swapaxes(1, 2) @ self.solution


def log_expected_expit(mean: Array, variance: Array) -> Array:
    """Return ``log E expit(S)`` of normal scores: the derivative of the expected logistic loss, to within 1e-8."""
    by_mean, _ = GaussianLogistic().gradient(-np.ones(1), mean, np.maximum(variance, 0.0))
    return np.log(np.clip(by_mean, np.finfo(float).tiny, 1.0))


def log_expected_softmax(mean: Array, covariance: Array) -> Array:
    """Return ``log E softmax(S)`` of normal scores, to about two digits, by a Sobol sequence and its mirror image."""
    from scipy.stats.qmc import Sobol  # takes time, and only this function needs it

    n_rows, n_classes = mean.shape
    normal = ndtri(Sobol(n_classes, scramble=False).random(_N_POINTS) + 0.5 / _N_POINTS)
    normal = np.vstack([normal, -normal])
    values, vectors = np.linalg.eigh(covariance)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    out = np.empty(mean.shape)
    for where in chunks(n_rows, len(normal) * n_classes, _CHUNK_ENTRIES):
        scores = mean[where, None, :] + normal @ roots[where].swapaxes(1, 2)
        scores -= logsumexp(scores, axis=2, keepdims=True)
        out[where] = logsumexp(scores, axis=1) - np.log(len(normal))
    return out
