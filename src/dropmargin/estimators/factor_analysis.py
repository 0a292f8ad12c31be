r"""The fit of a `FactorModel`: a Gaussian of the training features with low-rank plus diagonal covariance.

1. Moments. Means and variances are those of the observed entries. With missing entries, the sum of the products of two
   features, with 0 for the deviation of a missing entry, is divided by the observed shares of both, which is unbiased
   if entries are missing at random.
2. Factors. With the covariance matrix ``S`` and residual variances ``Psi``, the most likely factors are
   ``Psi^1/2 V (Lambda - I)^1/2``, by the leading eigenvalues and eigenvectors of ``Psi^-1/2 S Psi^-1/2`` (Lawley and
   Maxwell 1971), and the residual variances are then what is left of the variances, at least a share of `_FLOOR`. They
   are computed in turn, `_N_ROUNDS` times, from ``Psi`` equal to the variances on. The result does not depend on the
   units of the features.
3. Rank. Unless it is given, it is that of the highest likelihood of held-out rows (of their observed entries), among a
   few candidates.
4. With missing entries, `_N_FILLS` rounds on at most `_MOST_FILLED_ROWS` rows: missing entries take their conditional
   means, and step 2 is repeated with the filled rows. Their variances are too small by about the residual variance of
   the missing entries, which is added. (The EM algorithm of Rubin and Thayer 1982 would add all of the conditional
   covariance.)

References
----------
D. N. Lawley, A. E. Maxwell (1971). Factor Analysis as a Statistical Method. Butterworths.

D. B. Rubin, D. T. Thayer (1982). EM algorithms for ML factor analysis. Psychometrika 47, 69-76.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh

from dropmargin.data import drop_empty_columns, one_partition, stack_rows
from dropmargin.data.deviations import Deviations, SecondMoments
from dropmargin.data.missing_values import (
    IsMissing,
    feature_statistics,
    feature_sums,
    fill_low_rank,
    is_negative_zero,
    mark_missing,
    row_chunks,
)
from dropmargin.estimators.conditional import FactorModel
from dropmargin.typing import Array

# The residual variance of a feature is at least this share of its variance.
_FLOOR = 1e-2
# Ranks to choose from: the factors have at most _MOST_LOADINGS numbers.
_RANKS = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 100)
_MOST_LOADINGS = 2**24
# One row in so many is held out to choose the rank, and at most so many.
_HELD_OUT_EVERY, _MOST_HELD_OUT = 5, 1000
# A feature whose deviation is at most this share of its mean never varies: its mean has rounding errors.
_ROUNDING = 1e-13
# Rounds of factors and residual variances, steps of subspace iteration in each, and additional vectors.
_N_ROUNDS, _N_STEPS, _OVERSAMPLING = 4, 3, 10
# Rounds in which missing entries take their conditional means, and the rows of these.
_N_FILLS, _MOST_FILLED_ROWS = 3, 5000


@dataclass(frozen=True)
class _Covariance:
    """The covariance matrix of the features, by products with it."""

    moments: tuple[SecondMoments, ...]  # of disjoint sets of rows
    total: float  # the weight of all these rows
    mean: Array  # of the observed entries of each feature, as the next two
    variance: Array
    observed: Array  # their share

    def times(self, right: Array) -> Array:
        """Return the product with a matrix of shape (n_features, n)."""
        share = np.divide(1.0, self.observed, out=np.zeros_like(self.observed), where=self.observed > 0.0)[:, None]
        product = sum(moments.times(share * right) for moments in self.moments)
        diagonal = (self.variance * (1.0 - share[:, 0]))[:, None]  # that of the product is the variance / observed
        return share * np.asarray(product) / self.total + diagonal * right

    def model(self, rank: int) -> FactorModel:
        """Return the model with so many factors."""
        values, block = self.leading(rank)
        model = self.principal(values, block, rank)
        for _ in range(_N_ROUNDS - 1):
            values, block = self._eigenvectors(model.residual_variance, block)
            model = self._with_factors(block[:, :rank] * np.sqrt(np.maximum(values[:rank] - 1.0, 0.0)))
        return model

    def principal(self, values: Array, block: Array, rank: int) -> FactorModel:
        """Return the model of the first round, in which the other eigenvalues are taken as equal."""
        n_varying, largest = np.count_nonzero(self.variance), values[:rank]
        rest = max(0.0, n_varying - largest.sum()) / max(1, n_varying - rank)
        return self._with_factors(block[:, :rank] * np.sqrt(np.maximum(largest - rest, 0.0)))

    def leading(self, rank: int) -> tuple[Array, Array]:
        """Return the largest eigenvalues of the correlation matrix, and their eigenvectors times the deviations."""
        size = len(self.mean), min(len(self.mean), rank + _OVERSAMPLING)
        block = np.sqrt(self.variance)[:, None] * np.random.default_rng(0).normal(size=size)
        return self._eigenvectors(self.variance, block)

    def _eigenvectors(self, psi: Array, block: Array) -> tuple[Array, Array]:
        """Return the largest eigenvalues of ``Psi^-1/2 S Psi^-1/2``, and ``Psi^1/2`` times their eigenvectors.

        ``block`` are approximations of these.
        """
        scale = np.sqrt(psi)[:, None]
        inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0.0)
        block = inverse * block
        for _ in range(_N_STEPS):
            block = np.linalg.qr(inverse * self.times(inverse * block))[0]
        values, vectors = eigh(block.T @ (inverse * self.times(inverse * block)))
        return values[::-1], scale * (block @ vectors)[:, ::-1]

    def _with_factors(self, factors: Array) -> FactorModel:
        # Where the floor holds, the factors are shortened, so that the variances are those of the features.
        own, most = np.square(factors).sum(axis=1), (1.0 - _FLOOR) * self.variance
        factors = factors * np.sqrt(np.divide(most, own, out=np.ones_like(own), where=own > most))[:, None]
        return FactorModel(self.mean, factors, self.variance - np.square(factors).sum(axis=1))


def fit_factor_model(X: Any, sample_weight: Array, has_missing: bool, rank: int | None = None) -> FactorModel:
    """Return the Gaussian of the features of weighted rows; see the module's docstring.

    ``has_missing`` says whether minus zeros are missing entries. ``rank`` is at most the smaller of the numbers of rows
    of positive weight and of features.
    """
    is_missing = is_negative_zero if has_missing else None
    X, sample_weight = X[sample_weight > 0.0], sample_weight[sample_weight > 0.0]
    n_rows, n_features = X.shape
    X, used = drop_empty_columns(X)
    rows = one_partition(X, sample_weight)
    mean, deviation, *_ = feature_statistics(rows, has_missing)
    total, lost, *_ = rows.map_sum(feature_sums, has_missing)
    statistics = mean, _variances(mean, deviation), 1.0 - lost / total
    held_out = np.zeros(n_rows, dtype=bool)
    if rank is None:
        number = min(_MOST_HELD_OUT, n_rows // _HELD_OUT_EVERY)
        held_out[np.random.default_rng(0).choice(n_rows, size=number, replace=False)] = True
    parts = [(X[own], sample_weight[own]) for own in (~held_out, held_out)]
    moments = [SecondMoments(*part, mean, is_missing) for part in parts]
    if rank is None:
        rest = _Covariance((moments[0],), float(parts[0][1].sum()), *statistics)
        most = min(*parts[0][0].shape, _MOST_LOADINGS // n_features)
        rank = _choose_rank(rest, most, *parts[1], has_missing)
    model = _Covariance(tuple(moments), total, *statistics).model(rank)
    if has_missing:
        model = _refined(model, X, sample_weight)
    return model if used is None else model.of_more_features(used, n_features)


def _variances(mean: Array, deviation: Array) -> Array:
    """Return the variances of features, 0 where the deviation is the rounding error of the mean of equal values."""
    return np.square(np.where(deviation > _ROUNDING * np.abs(mean), deviation, 0.0))


def _choose_rank(covariance: _Covariance, most: int, X: Any, sample_weight: Array, has_missing: bool) -> int:
    """Return the rank of the highest likelihood of held-out rows, at most ``most``."""
    ranks = [rank for rank in _RANKS if rank <= most]
    if not ranks or not len(sample_weight):
        return min(1, most)
    leading = covariance.leading(ranks[-1])
    found = [log_likelihood(covariance.principal(*leading, rank), X, sample_weight, has_missing) for rank in ranks]
    return ranks[int(np.argmax(found))]


def log_likelihood(model: FactorModel, X: Any, sample_weight: Array, has_missing: bool) -> float:
    """Return the weighted mean of the log-density of the observed entries of a row, without its constant."""
    psi = model.residual_variance
    inverse = np.divide(1.0, psi, out=np.zeros_like(psi), where=psi > 0.0)
    logs = np.log(psi, out=np.zeros_like(psi), where=psi > 0.0)
    is_missing: IsMissing | None = is_negative_zero if has_missing else None
    total = 0.0
    for where in row_chunks(X, 2 * model.rank**2 if has_missing else model.rank):
        rows = Deviations(X[where], model.mean, is_missing)
        factors, covariance = model.expected_factors(X[where], is_missing)
        explained = np.einsum("nk,nk->n", factors, rows.times(model.precision_factors))
        own = rows.squares_times(inverse) - explained - np.linalg.slogdet(covariance)[1] + logs.sum()
        own -= mark_missing(X[where], is_negative_zero) @ logs if has_missing else 0.0
        total += float(sample_weight[where] @ own)
    return -0.5 * total / sample_weight.sum()


def _refined(model: FactorModel, X: Any, sample_weight: Array) -> FactorModel:
    """Return the model after some rounds of step 4 of the module's docstring, on rows with missing entries."""
    if X.shape[0] > _MOST_FILLED_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(X.shape[0], size=_MOST_FILLED_ROWS, replace=False))
        X, sample_weight = X[rows], sample_weight[rows]
    total, lost, *_ = one_partition(X, sample_weight).map_sum(feature_sums, True)
    for _ in range(_N_FILLS if model.table is not None else 0):
        filled = fill_conditional(X, model)
        mean, deviation, *_ = feature_statistics(one_partition(filled, sample_weight), False)
        variance = _variances(mean, deviation) + lost / total * model.residual_variance
        moments = SecondMoments(filled, sample_weight, mean, None)
        model = _Covariance((moments,), total, mean, variance, np.ones_like(mean)).model(model.rank)
    return model


def fill_conditional(X: Any, model: FactorModel) -> Any:
    """Return a copy of ``X`` with the conditional mean in place of each missing entry (minus zeros)."""
    parts = []
    for where in row_chunks(X, 2 * model.rank**2):
        factors, _ = model.expected_factors(X[where], is_negative_zero)
        parts.append(fill_low_rank(X[where], model.mean, factors, model.factors, is_negative_zero))
    return stack_rows(parts)
