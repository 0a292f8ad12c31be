"""Functions of one partition behind `objective.moment`: scores, and what is computed of them row by row.

All are pure and at module level, so that they can be sent to where the partition is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Rows, products
from dropmargin.losses import MomentLoss
from dropmargin.noise import Variance
from dropmargin.objective.curvature import CurvatureWeights
from dropmargin.objective.score_moments import ScoreMoments
from dropmargin.typing import Array


class Scores(NamedTuple):
    """Mean and variance of the noisy scores of a partition, ``(n_rows, n_outputs)`` each."""

    mean: Array
    variance: Array


class RowLoss(NamedTuple):
    """The loss of the rows: for the outputs of the objective, with its kink smoothed over a width per output."""

    loss: MomentLoss
    variance: Variance
    outputs: Array
    smoothing: Array | float
    has_groups: bool

    @property
    def smoothed(self) -> MomentLoss:
        return self.loss.smoothed(self.smoothing) if np.any(self.smoothing) else self.loss

    def value(self, part: Rows, scores: Scores) -> Array:
        """Return the weighted loss of each output, summed over the rows."""
        losses = self.smoothed.value(part.y[:, self.outputs], scores.mean, scores.variance)
        return np.einsum("i,ik->k", part.sample_weight, losses)

    def slopes(self, part: Rows, scores: Scores) -> tuple[Array, Array]:
        """Return ``s phi_m`` and ``h = 2 s phi_v`` of each row."""
        by_mean, by_variance = self.smoothed.gradient(part.y[:, self.outputs], scores.mean, scores.variance)
        weight = part.sample_weight[:, None]
        return weight * by_mean, 2.0 * weight * by_variance


@products(1)
def row_scores(part: Rows, moments: ScoreMoments, intercept: Array) -> Scores:
    """Return means and variances of the scores."""
    mean, variance = moments.scores(part.X)
    # On sparse rows the variance is a difference, which rounding may leave below zero.
    return Scores(mean + intercept, np.maximum(variance, 0.0))


@products(0)
def constant_scores(part: Rows, intercept: Array) -> Scores:
    """Return the scores if all coefficients are zero."""
    shape = len(part.y), len(intercept)
    return Scores(np.zeros(shape) + intercept, np.zeros(shape))


@products(0)
def take_scores(part: Rows, scores: Scores, outputs: Any) -> Scores:
    return Scores(scores.mean[:, outputs], scores.variance[:, outputs])


def loss_and_weights_below(part: Rows, loss: RowLoss, thresholds: Array, scores: Scores) -> tuple[Array, Array]:
    """Return the loss, and the weights of the rows whose scores have a standard deviation below each threshold."""
    below = [np.einsum("i,ik->k", part.sample_weight, scores.variance < np.square(own)) for own in thresholds]
    return loss.value(part, scores), np.reshape(below, thresholds.shape)


@products(1)
def loss_and_gradient(part: Rows, loss: RowLoss, moments: ScoreMoments, scores: Scores) -> tuple[Any, ...]:
    """Return the loss, the sums of its slopes by mean and variance, and those for the gradient by the coefficients."""
    by_mean, h = loss.slopes(part, scores)
    sums = moments.gradient_sums(part.X, by_mean, h)
    return loss.value(part, scores), by_mean.sum(axis=0), h.sum(axis=0), *sums


def hessian_weights(part: Rows, loss: RowLoss, scores: Scores) -> CurvatureWeights:
    by_mean, mixed, by_variance = loss.smoothed.curvature(part.y[:, loss.outputs], scores.mean, scores.variance)
    if loss.variance.is_zero:
        return CurvatureWeights(part.sample_weight[:, None] * by_mean, by_mean.shape[1])
    weights = np.hstack([by_mean, 2.0 * mixed, 4.0 * by_variance])
    weights *= part.sample_weight[:, None]
    if loss.has_groups:
        weights = np.hstack([weights, loss.slopes(part, scores)[1]])
    return CurvatureWeights(weights, by_mean.shape[1])


@products(0)
def majoriser_weights(part: Rows, loss: RowLoss, scores: Scores) -> CurvatureWeights:
    weight = loss.smoothed.majoriser(part.y[:, loss.outputs], scores.mean, scores.variance)
    weights = part.sample_weight[:, None] * weight
    if loss.has_groups:
        h, zeros = loss.slopes(part, scores)[1], np.zeros_like(weights)
        weights = np.hstack([weights, zeros, zeros, h])
    return CurvatureWeights(weights, weight.shape[1])


class KnownProducts(NamedTuple):
    """The rows' part of the curvature times the coefficients and times the intercept, and sums known with them.

    ``images`` has the columns for the coefficients, then those for the intercept; ``totals`` are the sums of what they
    are products with. ``squares`` is ``(X * X)' phi_mm``, if requested, and ``n_active`` the number of rows with
    curvature.
    """

    totals: Array
    n_active: Array
    squares: Array | None
    images: Array

    @property
    def of_intercept(self) -> Array:
        """The sum of ``phi_mm``, one number per output."""
        n = len(self.n_active)
        return self.totals[n : 2 * n]


@products(1)
def known_products(
    part: Rows, moments: ScoreMoments, weights: CurvatureWeights, scores: Scores, with_squares: bool
) -> tuple[Any, ...]:
    """Return `KnownProducts` with the sums for its images; the scores are the products with the coefficients."""
    mean, variance = scores
    left = [weights.by_mean * mean, weights.by_mean]
    if weights.is_coupled:
        left[0] += weights.mixed * variance
        left += [weights.mixed * mean + weights.by_variance * variance + weights.h, weights.mixed]
    joined = np.hstack(left)
    squares, *sums = moments.image_sums(part.X, joined, weights.by_mean if with_squares else None)
    return joined.sum(axis=0), weights.n_active, squares, *sums


@dataclass(frozen=True)
class WithGradient:
    """A function of a partition that returns the results of `loss_and_gradient` and of another function."""

    function: Callable[..., tuple[Any, ...]]

    @property
    def __name__(self) -> str:
        return f"gradient_and_{self.function.__name__}"

    @property
    def n_products(self) -> int:
        return 1 + self.function.n_products  # type: ignore[attr-defined]

    def __call__(self, part: Rows, loss: RowLoss, moments: ScoreMoments, scores: Scores, *args: Any) -> tuple[Any, ...]:
        return *loss_and_gradient(part, loss, moments, scores), *self.function(part, *args)
