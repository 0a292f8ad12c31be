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
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array

from dropmargin.data import linear_scores
from dropmargin.data.inputs import column_names
from dropmargin.data.missing_values import has_missing, is_negative_zero, mark_missing, row_chunks, zero_missing
from dropmargin.noise import Noise, Variance
from dropmargin.typing import Array

CHOICES = ("error", "rescale", "conditional")


def restore_columns(X: Any, names: Array | None) -> Any:
    """Return a data frame that lacks features of the training data as an array with NaN for these features.

    Other input is returned unchanged; scikit-learn raises the error for a frame with unknown names.
    """
    present = column_names(X)
    if names is None or present is None or len(set(present)) < len(present) or not set(present) < set(names):
        return X
    position = {name: d for d, name in enumerate(names)}
    positions = [position[name] for name in present]
    if positions != sorted(positions):
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            "Feature names must be in the same order as they were in fit; absent features are treated as missing."
        )
    options: Any = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan"}
    observed = check_array(X, **options) if present else np.empty((len(X), 0))
    whole = np.full((len(observed), len(names)), np.nan, dtype=observed.dtype)
    whole[:, positions] = observed
    return whole


# Training -----------------------------------------------------------------------------------------------------------


def exclude_missing_from_noise(noise: Noise, has_implicit: bool) -> Noise:
    """Return a noise that does not corrupt missing entries; ``has_implicit``: ``X`` has zeros that are not stored."""
    variance = noise.variance()
    if noise.missing_values is not None or not np.any(variance.of_zero):
        return noise
    if variance.depends_on_x or has_implicit:
        what, name = "is sparse with NaN" if has_implicit else "has NaN", type(noise).__name__
        raise ValueError(
            f"X {what}, and the variance of {name} is not zero for zeros: missing='rescale' cannot distinguish these "
            "and NaN. Impute X first, for example with sklearn.impute.SimpleImputer, pass X.toarray() if X is sparse, "
            "or choose DropoutNoise or PoissonNoise."
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

    def take(self, features: Any, rows: Array | None = None) -> _ObservedOnly:
        return _ObservedOnly(self.noise.take(features))

    def variance(self) -> Variance:
        # Subtracting the missing entries from a floor could give negative variances by rounding.
        return Variance(entry=_is_observed, slope=self.noise.variance().constant)

    def log_mgf(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        value, first, second = (np.where(is_negative_zero(x), 0.0, part) for part in self.noise.log_mgf(t, x))
        return value, first, second


# Prediction ---------------------------------------------------------------------------------------------------------


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


class Rescaled(NamedTuple):
    """The rule of ``missing="rescale"``, see the module's docstring."""

    mean: Array
    deviation: Array

    def affine(self, coef: Array, intercept: Array, missing_sums: Callable[[Array], Array]) -> tuple[Array, Array]:
        """Return the factor and the shift of the scores of rows, each of shape (n_rows, n_outputs).

        The factor is 0 if no feature is observed. ``missing_sums`` returns the sums over the missing features of each
        row of several vectors, rows of a matrix.
        """
        coef = coef.astype(np.float64)
        n_outputs, n_features = coef.shape
        at_mean, contribution = self.mean * coef, np.abs(coef) * self.deviation
        sums = missing_sums(np.vstack([np.ones(n_features), contribution, at_mean]))
        count, lost, mean_lost = np.split(sums, [1, n_outputs + 1], axis=1)
        total, missing = contribution.sum(axis=1), count / n_features
        lost_share = np.divide(lost, total, out=missing + np.zeros_like(total), where=total > 0.0)
        share = np.maximum(1.0 - lost_share, 0.5 * (1.0 - missing))
        factor = np.divide(1.0, share, out=np.zeros_like(share), where=missing < 1.0)
        factor, at_mean = np.where(count == 0.0, 1.0, factor), at_mean.sum(axis=1)
        return factor, np.where(count == 0.0, intercept, intercept + at_mean - factor * (at_mean - mean_lost))

    def normal_scores(
        self, X: Any, coef: Array, intercept: Array, has_covariance: bool = True, noise: Noise | None = None
    ) -> Iterator[ScoreMoments]:
        """Yield all rows with the moments of their scores, which vary by what the rule leaves out.

        That is the sum of ``w_d^2 sd_d^2`` over the missing features.
        """
        for where in row_chunks(X, len(coef)):
            rows, lost = AffineRows(X[where], coef, intercept, self), None
            if has_covariance and rows.missing is not None:
                lost = times(rows.missing, np.square(self.deviation * coef.astype(np.float64)))[:, :, None]
            yield ScoreMoments(np.arange(X.shape[0])[where], rows.scores(coef), lost)


class AffineRows:
    """Rows whose scores are ``shift + factor * filled @ coef.T``.

    Parameters
    ----------
    given : ndarray or sparse array of shape (n_rows, n_features)
        The rows. NaN is a missing feature, if there is a rule.
    coef, intercept : ndarray of shape (n_outputs, n_features) and (n_outputs,)
        Those of the model.
    rule : Rescaled, default=None
        The rule for missing features.
    """

    def __init__(self, given: Any, coef: Array, intercept: Array, rule: Rescaled | None = None) -> None:
        self.given, self.coef, self.intercept, self.rule = given, coef, intercept, rule
        self.filled, self.missing = given, None  # 0 for missing features; 1 for these, else 0
        shape = given.shape[0], len(intercept)
        self.factor, self.shift = np.ones(shape), np.broadcast_to(intercept, shape)
        if rule is not None and has_missing(given):
            self.filled, self.missing = zero_missing(given), mark_missing(given)
            self.factor, self.shift = rule.affine(coef, intercept, partial(times, self.missing))

    def take(self, index: Any) -> AffineRows:
        """Return some of the rows."""
        return AffineRows(self.given[index], self.coef, self.intercept, self.rule)

    def scores(self, coef: Array) -> Array:
        return self.factor * times(self.filled, coef) + self.shift

    def observed_sums(self, coef: Array) -> Array:
        """Return the sums of the coefficients of the observed features of each row."""
        total = np.broadcast_to(coef.sum(axis=1), (len(self.factor), len(coef)))
        return total if self.missing is None else total - times(self.missing, coef)


def scores_of_rule(rule: Any, X: Any, coef: Array, intercept: Array) -> Array:
    """Return the scores of rows by a rule for missing features, in the precision of `linear_scores`."""
    if not has_missing(X):
        return linear_scores(X, coef, intercept)
    scores = np.empty((X.shape[0], len(coef)), dtype=np.result_type(X.dtype, coef.dtype))
    for part in rule.normal_scores(X, coef, intercept, has_covariance=False):
        scores[part.rows] = part.mean
    return scores


def times(X: Any, coef: Array) -> Array:
    """Return ``X @ coef.T`` as a dense array."""
    return linear_scores(X, coef, np.zeros(1, dtype=coef.dtype))
