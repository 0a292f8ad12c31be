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
4. With missing entries, steps of the EM algorithm (Rubin and Thayer 1982) on at most `_MOST_EM_ROWS` rows. With means
   ``z_i`` and covariances ``M_i^-1`` of the factors given the observed entries of row ``i``::

       u_d = (sum_i o_id (M_i^-1 + z_i z_i'))^-1 sum_i o_id (x_id - mu_d) z_i

   The missing entries then take their conditional means.

References
----------
D. N. Lawley, A. E. Maxwell (1971). Factor Analysis as a Statistical Method. Butterworths.

D. B. Rubin, D. T. Thayer (1982). EM algorithms for ML factor analysis. Psychometrika 47, 69-76.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh

from dropmargin.data import drop_empty_columns, one_partition
from dropmargin.data.deviations import Deviations, SecondMoments
from dropmargin.data.missing_values import feature_statistics, feature_sums, fill_low_rank, row_chunks
from dropmargin.estimators.conditional import FactorModel
from dropmargin.typing import Array

# The residual variance of a feature is at least this share of its variance.
_FLOOR = 1e-2
# Ranks to choose from: the factors have at most _MOST_LOADINGS numbers.
_RANKS = (1, 2, 3, 5, 8, 12, 18, 27, 40, 60, 100)
_MOST_LOADINGS = 2**24
# One row in so many is held out to choose the rank, and at most so many.
_HELD_OUT_EVERY, _MOST_HELD_OUT = 5, 1000
# Rounds of factors and residual variances, steps of subspace iteration in each, and additional vectors.
_N_ROUNDS, _N_STEPS, _OVERSAMPLING = 4, 3, 10
_N_EM_STEPS, _MOST_EM_ROWS = 10, 5000


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
    if not sample_weight.all():
        X, sample_weight = X[sample_weight > 0.0], sample_weight[sample_weight > 0.0]
    n_features = X.shape[1]
    X, used = drop_empty_columns(X)
    rows = one_partition(X, sample_weight)
    mean, deviation, *_ = feature_statistics(rows, has_missing)
    assert deviation is not None
    total, lost, _ = rows.map_sum(feature_sums, has_missing)
    statistics = mean, np.square(deviation), 1.0 - lost / total
    if rank is not None:
        model = _Covariance((SecondMoments(X, sample_weight, mean, has_missing),), total, *statistics).model(rank)
    else:
        held_out = _held_out(X.shape[0])
        parts = [(X[rows], sample_weight[rows]) for rows in (~held_out, held_out)]
        moments = [SecondMoments(*part, mean, has_missing) for part in parts]
        rest = _Covariance((moments[0],), float(parts[0][1].sum()), *statistics)
        most = min(*parts[0][0].shape, _MOST_LOADINGS // n_features)
        rank = _choose_rank(rest, most, *parts[1], has_missing)
        model = _Covariance(tuple(moments), total, *statistics).model(rank)
    if has_missing:
        model = _maximise(model, X, sample_weight)
    return model if used is None else model.of_more_features(used, n_features)


def _held_out(n_rows: int) -> Array:
    """Return which rows are held out; the same for every call with so many rows."""
    chosen = np.zeros(n_rows, dtype=bool)
    number = min(_MOST_HELD_OUT, n_rows // _HELD_OUT_EVERY)
    chosen[np.random.default_rng(0).choice(n_rows, size=number, replace=False)] = True
    return chosen


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
    total = 0.0
    for rows, weights in _chunks(X, sample_weight, model, has_missing):
        factors, covariance = model.expected_factors(rows)
        explained = np.einsum("nk,nk->n", factors, rows.times(model.precision_factors))
        own = rows.squares_times(inverse) - explained - np.linalg.slogdet(covariance)[1] + rows.observed_times(logs)
        total += float(weights @ own)
    return -0.5 * total / sample_weight.sum()


def _chunks(X: Any, sample_weight: Array, model: FactorModel, has_missing: bool) -> Iterator[tuple[Deviations, Array]]:
    for where in row_chunks(X, 2 * model.rank**2 if has_missing else model.rank):
        yield Deviations.of_training_rows(X[where], model.mean, has_missing), sample_weight[where]


def _maximise(model: FactorModel, X: Any, sample_weight: Array) -> FactorModel:
    """Return the model after some steps of the EM algorithm for rows with missing entries (minus zeros)."""
    if X.shape[0] > _MOST_EM_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(X.shape[0], size=_MOST_EM_ROWS, replace=False))
        X, sample_weight = X[rows], sample_weight[rows]
    for _ in range(_N_EM_STEPS if model.has_table else 0):
        model = _em_step(model, X, sample_weight)
    return model


def _em_step(model: FactorModel, X: Any, sample_weight: Array) -> FactorModel:
    rank, n_features = model.rank, len(model.mean)
    first, second = np.triu_indices(rank)
    # 1. Sums over the rows where a feature is observed: of the second moments of the factors, of the products of
    #    deviations and factors, of deviations and of factors, and of their squares.
    moments, products = np.zeros((n_features, len(first))), np.zeros((n_features, rank))
    factor_sums, sums = np.zeros((n_features, rank)), np.zeros((n_features, 2))
    squares = np.zeros(n_features)
    for rows, weights in _chunks(X, sample_weight, model, True):
        factors, covariance = model.expected_factors(rows)
        weighted = weights[:, None] * factors
        own = weights[:, None] * covariance[:, first, second] + weighted[:, first] * factors[:, second]
        moments += rows.observed_transposed_times(own)
        products += rows.transposed_times(weighted)
        factor_sums += rows.observed_transposed_times(weighted)
        sums[:, 0] += rows.transposed_times(weights[:, None])[:, 0]
        sums[:, 1] += rows.observed_transposed_times(weights[:, None])[:, 0]
        squares += rows.transposed_squares_times(weights)
    # 2. The regression of each feature on the factors.
    matrices = np.empty((n_features, rank, rank))
    matrices[:, first, second] = matrices[:, second, first] = moments
    observed = sums[:, 1]
    is_known = (observed > 0.0) & (model.residual_variance > 0.0)
    matrices[~is_known] = np.eye(rank)
    matrices += 1e-10 * np.trace(matrices, axis1=1, axis2=2)[:, None, None] / max(1, rank) * np.eye(rank)
    loadings = np.linalg.solve(matrices, products[..., None])[..., 0] * is_known[:, None]
    shift = np.divide(
        sums[:, 0] - (loadings * factor_sums).sum(axis=1), observed, out=np.zeros(n_features), where=is_known
    )
    left = squares - (loadings * products).sum(axis=1)
    psi = np.divide(left, observed, out=np.zeros(n_features), where=is_known)
    floor = _FLOOR * (model.residual_variance + np.square(model.factors).sum(axis=1))
    return FactorModel(model.mean + shift, loadings, np.where(is_known, np.maximum(psi, floor), 0.0))


def fill_conditional(X: Any, model: FactorModel) -> Any:
    """Return a copy of ``X`` with the conditional mean in place of each missing entry (minus zeros)."""
    chunks = _chunks(X, np.ones(X.shape[0]), model, True)
    return fill_low_rank(
        X, model.mean, np.concatenate([model.expected_factors(rows)[0] for rows, _ in chunks]), model.factors
    )
