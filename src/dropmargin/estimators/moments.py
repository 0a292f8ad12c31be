"""Mean and covariance of the scores of rows: under noise on the features, or given the observed features."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from dropmargin.data import as_dense, map_entries
from dropmargin.data.deviations import Deviations
from dropmargin.data.missing_values import has_missing, mark_missing, zero_missing
from dropmargin.estimators.missing import AffineRows, ScoreMoments, times
from dropmargin.noise import Noise
from dropmargin.typing import Array


def noise_covariances(noise: Noise, rows: Any, coef: Array) -> Array:
    """Return the covariance matrix of the scores of each row under noise; missing features, NaN, have variance 0.

    ``coef`` has the shape (n_outputs, n_features), or (n_rows, n_outputs, n_features) if each row has its own (or 1).
    With groups, the covariance of two scores is the sum of ``c_g s_g s'_g``, where ``s_g`` is the sum of
    ``w_d (x_d - r_d)`` over the features of a group.
    """
    variance = noise.variance()
    if variance.groups is not None:
        slope = np.zeros(int(variance.groups.max()) + 1)
        slope[variance.groups] = variance.quadratic
        deviations = Deviations(rows, np.broadcast_to(variance.reference, rows.shape[1]), np.isnan)
        parts = [deviations.group_sums(coef[..., k, :], variance.groups) for k in range(coef.shape[-2])]
        sums = np.stack(parts, axis=1)  # of each group, (n_rows, n_outputs, n_groups)
        return (sums * slope) @ sums.swapaxes(1, 2)
    # What an entry has beyond the variance of a zero, which is that of entries that are not stored
    of_zero = np.broadcast_to(np.asarray(variance.of_zero, dtype=np.float64), rows.shape[1])
    own_of_zero = of_zero - variance.constant
    filled, missing = (zero_missing(rows), mark_missing(rows)) if has_missing(rows) else (rows, None)
    more = map_entries(
        filled, lambda x, d: variance.stored(x, d) - own_of_zero[d], zeros_stay=True, what="The variance"
    )
    if coef.ndim == 3:
        own = as_dense(more) + of_zero * (1.0 if missing is None else 1.0 - as_dense(missing))
        return (coef * own[:, None, :]) @ coef.swapaxes(1, 2)
    out = np.zeros((rows.shape[0], len(coef), len(coef)))
    for k in range(len(coef)):
        products = coef[k] * coef[k:]
        part = times(more, products) + products @ of_zero
        if missing is not None:
            part -= times(missing, products * of_zero)
        out[:, k, k:] = out[:, k:, k] = part
    return out


class NoisyScores(ScoreMoments):
    """The moments of the scores of rows under noise, each computed at its first use."""

    def __init__(self, rows: Array, affine: AffineRows, noise: Noise) -> None:
        self.rows, self.affine, self.coef, self.noise = rows, affine, affine.coef.astype(np.float64), noise

    @cached_property
    def mean(self) -> Array:  # type: ignore[override]
        return self.affine.scores(self.coef)

    @cached_property
    def covariance(self) -> Array:
        factor = self.affine.factor[:, :, None]
        return noise_covariances(self.noise, self.affine.given, self.coef) * factor * factor.swapaxes(1, 2)
