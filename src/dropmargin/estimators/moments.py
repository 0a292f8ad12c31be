"""Mean and covariance of the scores of rows: under noise on the features, or given the observed features."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import as_dense, is_dense_matrix, map_entries
from dropmargin.data.deviations import Deviations
from dropmargin.data.missing_values import has_missing, mark_missing, zero_missing
from dropmargin.estimators.missing import AffineRows, times
from dropmargin.noise import Noise
from dropmargin.typing import Array


class EntryVariances(NamedTuple):
    """The variance of each entry under noise, ``stored + floor``, and what groups of features share.

    With groups, the covariance of two scores is the sum of ``c_g s_g s'_g``, where ``s_g`` is the sum of
    ``w_d (x_d - r_d)`` over the features of a group.
    """

    stored: Any  # of the shape of the rows; None with groups
    floor: Array  # of each feature; where zeros are not stored, their variance
    groups: Array | None = None  # the group of each feature
    slope: Any = None  # c_g
    reference: Any = None  # r_d


def entry_variances(noise: Noise, X: Any) -> EntryVariances:
    """Return the variances of the entries of rows under a resolved noise: the only place that takes it apart.

    The variance of a missing entry, NaN, is 0 in ``stored``. That of dense rows is all in ``stored``.
    """
    is_dense, filled, variance = is_dense_matrix(X), zero_missing(X) if has_missing(X) else X, noise.variance()
    floor = np.broadcast_to(np.asarray(variance.of_zero, dtype=np.float64), X.shape[1])
    if variance.groups is not None:
        slope = np.zeros(int(variance.groups.max()) + 1)
        slope[variance.groups] = variance.quadratic
        return EntryVariances(None, floor, variance.groups, slope, np.broadcast_to(variance.reference, X.shape[1]))

    def own(x: Array, d: Any) -> Array:
        return variance.of(x, d) if is_dense else variance.stored(x, d)

    stored = map_entries(filled, own, zeros_stay=True, what="The variance")
    if not is_dense:
        return EntryVariances(stored, floor)
    return EntryVariances(stored if filled is X else np.where(np.isnan(X), 0.0, stored), np.zeros_like(floor))


def noise_covariances(noise: Noise, rows: Any, coef: Array) -> Array:
    """Return the covariance matrix of the scores of each row under noise; missing features, NaN, have variance 0.

    ``coef`` has the shape (n_outputs, n_features), or (n_rows, n_outputs, n_features) if each row has its own (or 1).
    """
    own = entry_variances(noise, rows)
    if own.groups is not None:
        deviations = Deviations(rows, own.reference, np.isnan)
        parts = [deviations.group_sums(coef[..., k, :], own.groups) for k in range(coef.shape[-2])]
        sums = np.stack(parts, axis=1)  # of each group, (n_rows, n_outputs, n_groups)
        return (sums * own.slope) @ sums.swapaxes(1, 2)
    missing = mark_missing(rows) if own.floor.any() else None
    if coef.ndim == 3:
        variance = as_dense(own.stored) + (0.0 if missing is None else own.floor * (1.0 - as_dense(missing)))
        return (coef * variance[:, None, :]) @ coef.swapaxes(1, 2)
    out = np.zeros((rows.shape[0], len(coef), len(coef)))
    for k in range(len(coef)):
        products = coef[k] * coef[k:]
        part = times(own.stored, products)
        if missing is not None:
            part += products @ own.floor - times(missing, products * own.floor)
        out[:, k, k:] = out[:, k:, k] = part
    return out


class ScoreMoments:
    """Some rows, and the mean and the covariance of their scores, given the observed features or under noise.

    ``mean`` has the shape (n_rows, n_outputs), ``covariance`` (n_rows, n_outputs, n_outputs); it is ``None`` where it
    was not asked for, and for complete rows.
    """

    def __init__(self, rows: Array, mean: Array, covariance: Any) -> None:
        self.rows, self.mean, self.covariance = rows, mean, covariance

    @property
    def variance(self) -> Array:
        return np.diagonal(self.covariance, axis1=1, axis2=2)


class NoisyScores(ScoreMoments):
    """The moments of the scores of rows under noise, each computed at its first use."""

    def __init__(self, rows: Array, affine: AffineRows, coef: Array, noise: Noise) -> None:
        self.rows, self.affine, self.coef, self.noise = rows, affine, coef.astype(np.float64), noise

    @cached_property
    def mean(self) -> Array:  # type: ignore[override]
        return self.affine.scores(self.coef)

    @cached_property
    def covariance(self) -> Array:
        factor = self.affine.factor[:, :, None]
        return noise_covariances(self.noise, self.affine.given, self.coef) * factor * factor.swapaxes(1, 2)
