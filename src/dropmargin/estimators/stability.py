r"""The probability that noise on the features does not change the predicted label.

The noise is unbiased, so the mean of a score is the plain score. The predicted class ``k`` does not change if every
difference ``G_j = S_k - S_j`` to another class ``j`` is positive; with two classes there is one difference, ``|S|``.
Its mean ``g_j`` and its variance ``v_j = sum_d (w_k - w_j)_d^2 V_d`` have closed forms (if features are missing, each
``w`` is multiplied by its factor).

``auto``
    Dropout: exact for rows with few features, else by sampling (see `patterns`). Gaussian noise: ``normal``, which is
    exact up to the error of the integration. Other noise: independent samples, or ``normal`` if it cannot be sampled,
    because it has no `draw` or would make a sparse ``X`` dense. One-vs-one votes (``multi_class="ovo"``) are always
    sampled.

``normal``
    Two classes: ``Phi(g / sqrt(v))``. More classes: the probability that normal variables with these means, and with
    covariances ``sum_d (w_k - w_j)_d (w_k - w_l)_d V_d``, are all positive (Genz 1992), by a deterministic quadrature.
    The covariances take one product with the data per pair of classes. With more than 50 classes, the differences are
    assumed to be independent given the score of the predicted class, ``S_k = E S_k + sd_k z``::

        P = integral phi(z) prod_j Phi((g_j + a_j z) / sqrt(v_j - a_j^2)) dz      a_j = cov(G_j, S_k) / sd_k

``guaranteed``
    ``max(0, 1 - sum_j v_j / (g_j^2 + v_j))``: Cantelli's inequality for each of the other classes, and a union bound.
    It holds for every distribution with these variances. With two classes it is ``g^2 / (g^2 + v)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from dropmargin.data import stores_zeros
from dropmargin.estimators.conditional import N_POINTS, lattice
from dropmargin.estimators.moments import NoisyScores, ScoreMoments
from dropmargin.estimators.patterns import DropoutPatterns, PredictIndex, survives_draws
from dropmargin.noise import DropoutNoise, GaussianNoise, Noise
from dropmargin.typing import Array

METHODS = ("auto", "normal", "guaranteed")
# Up to this number of classes, the covariances of all pairs are computed.
_MAX_CLASSES = 50
# The nodes of the quadrature of Gauss and Hermite, and the ratio of slope and deviation up to which it is used.
_FEW_POINTS, _STEEP = 16, 2.0
# A variance, or a difference of scores, below this share of the terms that it is the difference of is a rounding error.
_ROUNDING = 1e-13


class ScoreDifferences(NamedTuple):
    """Differences between the score of the predicted class and the others, each of shape (n_rows, n_classes - 1).

    ``slope`` is ``a_j`` of the module's docstring.
    """

    mean: Array
    variance: Array
    slope: Array


@dataclass(frozen=True)
class LabelStability:
    """The probability that noise does not change a label, by one of the methods of the module's docstring.

    ``by_pairs``: the scores are those of pairs of classes, whose votes have no closed form.
    """

    coef: Array
    noise: Noise
    predict: PredictIndex
    method: str
    by_pairs: bool
    n_draws: int
    seed: int

    @cached_property
    def _patterns(self) -> DropoutPatterns | None:
        is_dropout = isinstance(self.noise, DropoutNoise)
        return DropoutPatterns(self.coef, self.noise, self.n_draws, self.seed) if is_dropout else None

    def of_scores(self, scores: ScoreMoments) -> Array:
        if self.method == "auto" and isinstance(scores, NoisyScores):
            return self._exact_or_drawn(scores)
        if self.by_pairs:
            return _survives_normal_draws(scores, self.predict, self.n_draws, self.seed)
        return closed_form(scores, self.method)

    def _exact_or_drawn(self, scores: NoisyScores) -> Array:
        rows, noise = scores.affine, self.noise
        if self._patterns is not None:
            return self._patterns.unchanged(rows, self.predict)
        would_densify = noise.corrupts_zeros and not stores_zeros(rows.filled)
        is_exact = isinstance(noise, GaussianNoise) and len(self.coef) <= _MAX_CLASSES
        if not self.by_pairs and (is_exact or would_densify or not noise.has_draw):
            return closed_form(scores, "normal")
        if would_densify:
            raise ValueError(
                f"predict_stability with multi_class='ovo' samples the noise, and a sample of {type(noise).__name__} "
                "has no zeros, so a sparse X would become dense. Pass X.toarray() if that fits into memory, or fit "
                "with multi_class='ovr'."
            )
        return survives_draws(rows, self.coef, noise, self.predict, self.n_draws, self.seed)


def closed_form(scores: ScoreMoments, method: str) -> Array:
    """Return, for each row, the probability of an unchanged label by ``method="guaranteed"``, or for normal scores."""
    n_outputs = scores.mean.shape[1]
    predicted = scores.mean.argmax(axis=1) if n_outputs > 1 else (scores.mean[:, 0] > 0.0).astype(int)
    differences = _differences(scores, predicted)
    if method == "guaranteed":
        return guaranteed(differences)
    if n_outputs > _MAX_CLASSES or n_outputs == 1:
        return normal_given_predicted(differences)
    return normal(differences, _covariances_of_differences(scores.covariance, predicted))


def label_probabilities(scores: ScoreMoments, labels: Array) -> Array:
    """Return, for each row, the probability that a given class is predicted, for normally distributed scores.

    ``labels`` are the indices of the classes. With more than two classes, the differences to the other classes are
    assumed to be independent given the score of the class; that takes two products with the rows. Classes whose scores
    are equal whatever the noise are equally probable.
    """
    differences = _differences(scores, labels)
    n_equal = np.count_nonzero((differences.mean == 0.0) & (differences.variance == 0.0), axis=1)
    return normal_given_predicted(differences) / (1.0 + n_equal)


def _survives_normal_draws(scores: ScoreMoments, predict: PredictIndex, n_draws: int, seed: int) -> Array:
    """Return the share of draws from normal scores that do not change each label; all rows have the same draws."""
    mean = scores.mean
    before, out = predict(mean), np.empty(len(mean))
    draws = np.random.RandomState(seed).normal(size=(n_draws, mean.shape[1]))
    values, vectors = np.linalg.eigh(scores.covariance)
    for i, root in enumerate(vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]):
        out[i] = np.mean(predict(mean[i] + draws @ root.T) == before[i])
    return out


def normal(differences: ScoreDifferences, covariance: Array) -> Array:
    """Return the probability that normal variables with this covariance, a matrix per row, are all positive.

    It is a product of conditional probabilities, of each difference given those before, in ascending order of the
    means, integrated over the points of a lattice (Genz 1992). The error is below .005 for ten classes, and at most
    1/256 for a step function, which a difference without noise gives.
    """
    varies = differences.variance > 0.0
    deviation = np.sqrt(np.where(varies, differences.variance, 1.0))
    # A difference without noise stays positive: its mean is set to infinity, and its correlations to zero.
    mean = np.where(varies, differences.mean / deviation, np.inf)
    order = np.argsort(mean, axis=1)
    mean = np.take_along_axis(mean, order, axis=1)
    correlation = covariance / (deviation[:, :, None] * deviation[:, None, :])
    correlation[~(varies[:, :, None] & varies[:, None, :])] = 0.0
    correlation = np.take_along_axis(correlation, order[:, :, None], axis=1)
    correlation = np.take_along_axis(correlation, order[:, None, :], axis=2)
    n_rows, n_others = mean.shape
    diagonal = np.arange(n_others)
    correlation[:, diagonal, diagonal] = 1.0 + 1e-8  # positive definite also for equal differences
    root = np.linalg.cholesky(correlation)
    points = lattice(n_others)
    product, before = np.ones((n_rows, N_POINTS)), np.empty((n_rows, n_others, N_POINTS))
    for j in range(n_others):
        shifted = mean[:, j, None] + (root[:, j, None, :j] @ before[:, :j])[:, 0]
        positive = ndtr(shifted / root[:, j, j, None])
        product *= positive
        before[:, j] = -ndtri(np.maximum(points[j] * positive, np.finfo(float).tiny))
    return product.mean(axis=1)


def normal_given_predicted(differences: ScoreDifferences) -> Array:
    """Return the probability that all differences are positive, if they are normal and independent given ``S_k``.

    The integrand is nearly a step function where a difference hardly varies given ``S_k``. Such rows take quantiles as
    nodes, with an error of at most 1/256. The others take the nodes of Gauss and Hermite, with an error below 1e-3.
    """
    if differences.mean.shape[1] == 1:
        return _probability_positive(differences.mean, np.sqrt(differences.variance))[:, 0]
    rest = differences.variance - np.square(differences.slope)
    rest = np.sqrt(np.where(rest < _ROUNDING * differences.variance, 0.0, rest))
    is_steep = (np.abs(differences.slope) >= _STEEP * rest).any(axis=1)
    gauss, weights = np.polynomial.hermite_e.hermegauss(_FEW_POINTS)
    quantiles = ndtri((np.arange(N_POINTS) + 0.5) / N_POINTS)
    total = np.zeros(len(differences.mean))
    for rows, nodes, of_nodes in (
        (~is_steep, gauss, weights / weights.sum()),
        (is_steep, quantiles, np.full(N_POINTS, 1.0 / N_POINTS)),
    ):
        mean, slope, own = (part[rows] for part in (differences.mean, differences.slope, rest))
        for node, weight in zip(nodes, of_nodes, strict=True) if len(mean) else ():
            total[rows] += weight * np.prod(_probability_positive(mean + slope * node, own), axis=1)
    return total


def guaranteed(differences: ScoreDifferences) -> Array:
    """Return a lower bound on the probability that all differences are positive, for any distribution."""
    total = np.square(differences.mean) + differences.variance
    bounds = np.divide(differences.variance, total, out=np.zeros_like(total), where=differences.variance > 0.0)
    return np.maximum(0.0, 1.0 - bounds.sum(axis=1))


def _probability_positive(mean: Array, deviation: Array) -> Array:
    """Return ``Phi(mean / deviation)``; if the deviation is zero, whether the mean is at least zero."""
    varies = deviation > 0.0
    ratio = np.divide(mean, deviation, out=np.zeros_like(mean), where=varies)
    return np.where(varies, ndtr(ratio), mean >= 0.0)


def _differences(scores: ScoreMoments, predicted: Array) -> ScoreDifferences:
    """Return the differences of the score of a class to the others; with one output, the score with its sign."""
    if scores.mean.shape[1] == 1:
        mean = np.where(predicted == 1, 1.0, -1.0)[:, None] * scores.mean
        return ScoreDifferences(mean, np.maximum(scores.variance, 0.0), np.zeros_like(mean))
    at_predicted, own = (np.arange(len(predicted)), predicted), scores.variance
    covariance = scores.covariance[at_predicted]
    predicted_variance = np.maximum(covariance[at_predicted], 0.0)[:, None]
    total = predicted_variance + own - 2.0 * covariance
    total[total < _ROUNDING * (predicted_variance + own)] = 0.0
    deviation = np.broadcast_to(np.sqrt(predicted_variance), total.shape)
    varies = (deviation > 0.0) & (total > 0.0)
    slope = np.divide(predicted_variance - covariance, deviation, out=np.zeros_like(total), where=varies)
    mean = scores.mean[at_predicted][:, None] - scores.mean
    # Equal but for rounding are, for example, the intercepts of balanced classes without coefficients.
    mean[(total == 0.0) & (np.abs(mean) <= _ROUNDING * np.abs(scores.mean).max(axis=1, keepdims=True))] = 0.0
    return ScoreDifferences(*(_without_predicted(part, predicted) for part in (mean, total, slope)))


def _covariances_of_differences(scores: Array, predicted: Array) -> Array:
    """Return the covariances of the differences to the predicted class from those of the scores, a matrix per row."""
    each = np.eye(scores.shape[1])
    differences = _without_predicted(each[predicted][:, None, :] - each, predicted)
    return differences @ scores @ differences.swapaxes(1, 2)


def _without_predicted(values: Array, predicted: Array) -> Array:
    """Return an array of shape (n_rows, n_classes, ...) without the entries of each row's predicted class."""
    n_rows, n_classes = values.shape[:2]
    is_other = np.arange(n_classes) != predicted[:, None]
    return values[is_other].reshape(n_rows, n_classes - 1, *values.shape[2:])
