"""The objective of any model at any coefficients, in plain NumPy: how far from the optimum a solution of a search is.

`reference` minimises binary problems without groups and without missing entries. Here are the values alone, also for
dropout of groups, missing entries of the training rows, a softmax and regression, by the formulas of docs/method.md and
docs/missing.md. Nothing is called in the package; parameters are read from its public noise objects.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import logsumexp

from dropmargin import DropoutNoise, GaussianNoise, LaplaceNoise, PoissonNoise

from .reference import _MOMENT, _hinge


class NoisyRows:
    """Rows under noise: mean, variance and log-MGF of their scores.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        NaN is a missing entry: it takes the mean where a noise has the reference "mean", else zero, and is not
        corrupted.
    noise : Noise or None
    weight : ndarray of shape (n_samples,)
        Weights of the means.
    """

    def __init__(self, X: np.ndarray, noise: Any, weight: np.ndarray) -> None:
        self.noise, self.observed = noise, ~np.isnan(X)
        self.X = np.where(self.observed, X, 0.0)
        if isinstance(noise, DropoutNoise):
            self.reference = reference_values(noise, X, weight)
            if isinstance(noise.reference, str) and noise.reference == "mean":
                self.X = np.where(self.observed, X, self.reference)
            self.deviation = np.where(self.observed, self.X - self.reference, 0.0)
            self.members, self.rate = dropped_together(noise, X.shape[1])

    def mean(self, coef: np.ndarray) -> np.ndarray:
        return self.X @ coef[:-1] + coef[-1]

    def variance(self, coef: np.ndarray) -> np.ndarray:
        return self.covariance(coef, coef)

    def covariance(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return the covariances of two scores of each row."""
        product = first[:-1] * second[:-1]
        noise = self.noise
        if isinstance(noise, DropoutNoise):
            left, right = ((self.deviation * own[:-1]) @ self.members for own in (first, second))
            return (left * right) @ (self.rate / (1.0 - self.rate))
        if isinstance(noise, PoissonNoise):
            return self.X @ product
        if noise is None:
            return np.zeros(len(self.X))
        factor = {GaussianNoise: 1.0, LaplaceNoise: 2.0}[type(noise)]
        return self.observed @ (factor * product * np.square(np.asarray(noise.scale, dtype=float)))

    def log_mgf(self, coef: np.ndarray, sign: Any = 1.0) -> np.ndarray:
        """Return ``log E exp(sign * score)`` of each row; ``sign`` is a number or one per row."""
        sign = np.broadcast_to(sign, len(self.X))
        linear, t = sign * self.mean(coef), sign[:, None] * coef[:-1]
        noise = self.noise
        with np.errstate(all="ignore"):
            if isinstance(noise, DropoutNoise):
                dropped = (t * self.deviation) @ self.members
                kept = np.log1p(-self.rate) + dropped / (1.0 - self.rate)
                return linear + (np.logaddexp(np.log(self.rate), kept) - dropped).sum(axis=1)
            if isinstance(noise, PoissonNoise):
                return linear + (self.X * (np.expm1(t) - t)).sum(axis=1)
            if noise is None:
                return linear
            square = np.square(np.asarray(noise.scale, dtype=float) * t) * self.observed
            if isinstance(noise, GaussianNoise):
                return linear + 0.5 * square.sum(axis=1)
            return linear - np.where(square < 1.0, np.log(np.abs(1.0 - square)), -np.inf).sum(axis=1)


def reference_values(noise: DropoutNoise, X: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the value of each feature if it is dropped; means are those of the observed entries of ``X``."""
    if not isinstance(noise.reference, str):
        return np.asarray(noise.reference, dtype=float)
    if noise.reference == "zero":
        return np.zeros(X.shape[1])
    observed = ~np.isnan(X)
    return (weight @ np.where(observed, X, 0.0)) / np.maximum(weight @ observed, 1e-300)


def dropped_together(noise: DropoutNoise, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which features are in which group, of shape (n_features, n_groups), and the rate of each group."""
    groups = np.arange(n_features) if noise.groups is None else np.asarray(noise.groups)
    members = np.eye(groups.max() + 1)[groups]
    return members, np.broadcast_to(np.asarray(noise.rate, dtype=float), members.shape[1])


def conditional_means(X: np.ndarray, model: Any) -> np.ndarray:
    """Return the rows with the conditional mean, by the Gaussian of a fitted model, in place of NaN."""
    covariance = model.feature_factors_ @ model.feature_factors_.T + np.diag(model.residual_variances_)
    filled = X.copy()
    for row, missing in zip(filled, np.isnan(X), strict=True):
        if missing.any():
            row[missing] = model.feature_means_[missing]
            if not missing.all():
                o = ~missing
                deviation = row[o] - model.feature_means_[o]
                row[missing] += covariance[np.ix_(missing, o)] @ np.linalg.pinv(covariance[np.ix_(o, o)]) @ deviation
    return filled


def values(case: Any, coef: np.ndarray, X: np.ndarray, y: np.ndarray, weight: np.ndarray, noise: Any) -> np.ndarray:
    """Return ``J`` of each output at ``coef``, of shape (n_outputs, n_features + 1); one number for a softmax.

    Parameters
    ----------
    case : Case
        Of `searches`: loss, ``multi_class``, ``l1_ratio``.
    coef : ndarray
    X : ndarray
        Training rows; NaN as in `NoisyRows`.
    y : ndarray
        Labels, or the targets of a regression.
    weight : ndarray
        ``C`` times the sample weight and the class weight.
    noise : Noise or None
    """
    rows, classes = NoisyRows(X, noise, weight), np.unique(y)
    penalties = case.l1_ratio * np.abs(coef[:, :-1]).sum(axis=1)
    penalties = penalties + 0.5 * (1.0 - case.l1_ratio) * np.square(coef[:, :-1]).sum(axis=1)
    if case.is_regression:
        return penalties + weight @ _regression_loss(case, y, rows.mean(coef[0]), rows.variance(coef[0]))
    if case.multi_class == "multinomial" and len(classes) > 2:
        return np.array([penalties.sum() + weight @ _softmax_loss(case, coef, rows, np.searchsorted(classes, y))])
    if len(classes) == 2:
        sides = [(y == classes[0], y == classes[1])]
    elif case.multi_class == "ovo":
        sides = [(y == a, y == b) for a, b in combinations(classes, 2)]
    else:
        sides = [(y != k, y == k) for k in classes]
    losses = [_binary_loss(case, rows, own, pair[1]) @ (weight * (pair[0] | pair[1])) for own, pair in zip(coef, sides)]
    return penalties + losses


def _regression_loss(case: Any, y: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    if case.loss == "ridge":
        return np.square(y - m) + v
    one = np.ones_like(y)
    return sum(_hinge(one, 1.0 - z, v, one, 0.0)[0] for z in (y - m - case.epsilon, m - y - case.epsilon))


def _binary_loss(case: Any, rows: NoisyRows, coef: np.ndarray, is_positive: np.ndarray) -> np.ndarray:
    y = np.where(is_positive, 1.0, -1.0)
    if case.loss in ("exponential", "mcf-logistic"):
        K = rows.log_mgf(coef, -y)
        return np.exp(K) if case.loss == "exponential" else np.logaddexp(0.0, K)
    if case.loss == "hinge":
        return _hinge(y, rows.mean(coef), rows.variance(coef), np.ones_like(y), 0.0)[0]
    return _MOMENT[case.loss](y, rows.mean(coef), rows.variance(coef))[0]


def _softmax_loss(case: Any, coef: np.ndarray, rows: NoisyRows, y: np.ndarray) -> np.ndarray:
    losses = np.empty(len(y))
    for own in range(len(coef)):
        differences = coef - coef[own]
        if case.loss == "mcf-logistic":
            exponents = [rows.log_mgf(d) for d in differences]
        else:
            exponents = [rows.mean(d) + 0.5 * rows.variance(d) for d in differences]
        losses[y == own] = logsumexp(np.stack(exponents, axis=1)[y == own], axis=1)
    return losses
