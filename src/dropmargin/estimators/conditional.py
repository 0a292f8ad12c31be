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
A fitted model keeps this table (`factor_model`).

A feature that never varies in the training data, or is never observed there, has no factors and no residual variance:
it takes its training mean where it is missing (0 if it was never observed), and predicts no other feature.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from scipy.special import logsumexp, ndtri

from dropmargin.data import linear_scores
from dropmargin.data.deviations import Deviations
from dropmargin.data.missing_values import IsMissing, chunks, mark_missing, missing_features, row_patterns, zero_missing
from dropmargin.estimators.missing import ScoreMoments, times
from dropmargin.estimators.moments import noise_covariances
from dropmargin.losses import GaussianLogistic
from dropmargin.noise import Noise
from dropmargin.typing import Array

# The tables of `FactorModel` have at most this many numbers; with more, each row is computed by itself.
_MOST_TABLE = 2**23
# Numbers of a chunk of rows with their own matrices: enough for the product with a table to be faster than its reading.
_CHUNK = 2**21
# Points of a quadrature over several normal variables, and how many numbers of it are computed at once.
N_POINTS = 128
_CHUNK_ENTRIES = 2**20


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
    def table(self) -> Array | None:
        """``u_d u_d' / psi_d`` of each feature, on and above the diagonal; ``None`` if it is too large.

        It computes the matrices of many rows together.
        """
        if len(self.mean) * self.rank * (self.rank + 1) // 2 > _MOST_TABLE:
            return None
        first, second = np.triu_indices(self.rank)
        return self.factors[:, first] * self.precision_factors[:, second]

    def matrices(self, missing: Any) -> Array:
        """Return ``M`` of each row, of shape (n_rows, rank, rank); ``missing`` has 1 for missing features, else 0."""
        if missing.shape[0] == 1 or self.table is None:
            features = missing_features(missing)
            return np.stack([self.complete - self.factors[own].T @ self.precision_factors[own] for own in features])
        return symmetric(self.complete[np.triu_indices(self.rank)] - missing @ self.table, self.rank)

    def cross(self, missing: Any, coef: Array) -> Array:
        """Return ``(W_m U_m)'`` of each row, of shape (n_rows, rank, n_outputs)."""
        if missing.shape[0] == 1 or self.factors.size * len(coef) > _MOST_TABLE:
            return np.stack([self.factors[own].T @ coef[:, own].T for own in missing_features(missing)])
        products = self.factors[:, :, None] * coef.T[:, None, :]
        return (missing @ products.reshape(len(products), -1)).reshape(missing.shape[0], self.rank, len(coef))

    def expected_factors(self, X: Any, is_missing: IsMissing | None) -> tuple[Array, Array]:
        """Return the mean ``z`` and the covariance ``M^-1`` of the factors of each row given its observed features."""
        matrices = self.complete[None] if is_missing is None else self.matrices(mark_missing(X, is_missing))
        covariance = np.linalg.inv(matrices)
        projected = Deviations(X, self.mean, is_missing).times(self.precision_factors)
        return (projected[:, None, :] @ covariance)[:, 0], covariance

    def normal_scores(
        self, X: Any, coef: Array, intercept: Array, has_covariance: bool = True, noise: Noise | None = None
    ) -> Iterator[ScoreMoments]:
        """Yield all rows with the moments of the scores of the complete rows, given the observed features, NaN if not.

        Each pattern of missing features is solved once. Complete rows come last, with their plain scores and no
        covariance. Noise on the observed features changes the expected score, and so adds a variance, by the
        coefficients of the module's docstring; without ``has_covariance`` there is no other.
        """
        alone, shared = row_patterns(X)
        n_results = (self.rank + len(coef)) * len(coef) + (0 if noise is None else 2 * coef.size)
        n_numbers = self.rank**2 + self.rank + X.size // max(1, X.shape[0]) + n_results
        for group in ([alone] if len(alone) else []) + shared:
            solved = None
            for where in chunks(len(group), n_numbers, _CHUNK):
                own = X[group[where]]
                if solved is None or group is alone:
                    solved = _Solved(self, mark_missing(own if group is alone else own[:1]), coef, intercept)
                covariance = solved.covariance() if has_covariance else np.zeros(())
                covariance = np.broadcast_to(covariance, (own.shape[0], len(coef), len(coef)))
                if noise is not None:
                    effective = solved.effective if len(solved.effective) > 1 else solved.effective[0]
                    covariance = covariance + noise_covariances(noise, own, effective)
                yield ScoreMoments(group[where], solved.scores(own), covariance)
        complete = np.ones(X.shape[0], dtype=bool)
        complete[np.concatenate([alone, *shared])] = False
        if complete.any():
            rows = np.flatnonzero(complete)
            yield ScoreMoments(rows, linear_scores(X[rows], coef, intercept), None)

    def of_more_features(self, used: Array, n_features: int) -> FactorModel:
        """Return the model of ``n_features``, of which those of this model are ``used`` and the others are always 0."""
        wholes = []
        for own in (self.mean, self.factors, self.residual_variance):
            wholes.append(np.zeros((n_features, *own.shape[1:])))
            wholes[-1][used] = own
        return FactorModel(*wholes)


#: The models of fitted estimators with their tables, and the arrays that they were made of.
_MODELS: WeakKeyDictionary[Any, FactorModel] = WeakKeyDictionary()


def factor_model(estimator: Any) -> FactorModel:
    """Return the Gaussian of a fitted estimator; it is made once, and again if the attributes are other arrays.

    It is kept beside the estimator: pickles, copies and model files do not have it.
    """
    arrays = estimator.feature_means_, estimator.feature_factors_, estimator.residual_variances_
    model = _MODELS.get(estimator)
    kept = () if model is None else (model.mean, model.factors, model.residual_variance)
    if model is None or any(own is not array for own, array in zip(kept, arrays, strict=True)):
        model = _MODELS[estimator] = FactorModel(*arrays)
    return model


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
        mean = self.model.mean
        if len(self.solution) == 1:
            effective = self.effective[0]
            return linear_scores(zero_missing(X), effective, self.intercept + (self.coef - effective) @ mean)
        projected = Deviations(X, mean, np.isnan).times(np.hstack([self.coef.T, self.model.precision_factors]))
        own, projected = np.split(projected, [len(self.coef)], axis=1)
        return self.intercept + self.coef @ mean + own + np.einsum("nk,nkc->nc", projected, self.solution)

    def covariance(self) -> Array:
        """Return the covariance matrices of the scores."""
        n_outputs = len(self.coef)
        products = self.coef[:, None, :] * self.coef[None, :, :] * self.model.residual_variance
        own = times(self.missing, products.reshape(n_outputs**2, -1))
        return own.reshape(-1, n_outputs, n_outputs) + self.cross.swapaxes(1, 2) @ self.solution


def symmetric(upper: Array, size: int) -> Array:
    """Return symmetric matrices from their entries on and above the diagonal, a row each."""
    matrices, begin = np.empty((len(upper), size, size)), 0
    for j in range(size):  # faster than index arrays
        end = begin + size - j
        matrices[:, j, j:] = matrices[:, j:, j] = upper[:, begin:end]
        begin = end
    return matrices


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
