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

    @property
    def smoothed(self) -> MomentLoss:
        return self.loss.smoothed(self.smoothing) if np.any(self.smoothing) else self.loss

    def value(self, part: Rows, scores: Scores) -> Array:
        """Return the weighted loss of each output, summed over the rows."""
        losses = self.smoothed.value(part.y[:, self.outputs], scores.mean, scores.variance)
        return np.einsum("i,ik->k", part.sample_weight, losses)


@products(1)
def row_scores(part: Rows, factors: Array, shift: Array, n_means: int) -> Scores:
    """Return means and variances of the scores, see `MomentObjective.packed`."""
    out = part.X.forward(factors, n_means)
    mean = out[:, :n_means] + shift[:n_means]
    if out.shape[1] == n_means:
        return Scores(mean, np.broadcast_to(shift[n_means:], (len(mean), len(shift) - n_means)))
    return Scores(mean, out[:, n_means:] + shift[n_means:])


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
def loss_and_gradient(part: Rows, loss: RowLoss, scores: Scores) -> tuple[Array, Array, Array]:
    """Return the loss, ``X'(s phi_m)`` beside ``f(X)'(2 s phi_v)``, and the sums of what is in the brackets."""
    n = scores.mean.shape[1]
    slopes = np.empty((len(scores.mean), 2 * n))
    slopes[:, :n], slopes[:, n:] = loss.smoothed.gradient(part.y[:, loss.outputs], scores.mean, scores.variance)
    slopes[:, :n] *= part.sample_weight[:, None]
    slopes[:, n:] *= 2.0 * part.sample_weight[:, None]
    back = part.X.backward(slopes if loss.variance.moves_entries else slopes[:, :n], n)
    return loss.value(part, scores), back, slopes.sum(axis=0)


def hessian_weights(part: Rows, loss: RowLoss, scores: Scores) -> CurvatureWeights:
    by_mean, mixed, by_variance = loss.smoothed.curvature(part.y[:, loss.outputs], scores.mean, scores.variance)
    if loss.variance.is_zero:
        return CurvatureWeights(part.sample_weight[:, None] * by_mean, by_mean.shape[1])
    weights = np.hstack([by_mean, 2.0 * mixed, 4.0 * by_variance])
    weights *= part.sample_weight[:, None]
    return CurvatureWeights(weights, by_mean.shape[1])


@products(0)
def majoriser_weights(part: Rows, loss: RowLoss, scores: Scores) -> CurvatureWeights:
    weight = loss.smoothed.majoriser(part.y[:, loss.outputs], scores.mean, scores.variance)
    return CurvatureWeights(part.sample_weight[:, None] * weight, weight.shape[1])


class KnownProducts(NamedTuple):
    """The rows' part of the curvature times the coefficients and times the intercept, and sums known with them.

    ``images`` has the columns for the coefficients, then those for the intercept; ``sums`` are the sums of what ``X'``
    and ``f(X)'`` were multiplied with. ``squares`` is ``(X * X)' phi_mm``, if requested, and ``n_active`` the number of
    rows with curvature.
    """

    images: Array
    squares: Array | None
    sums: Array
    n_active: Array

    @property
    def totals(self) -> Array:
        """The sum of ``phi_mm``, one number per output."""
        n = len(self.n_active)
        return self.sums[n : 2 * n]


@products(1)
def known_products(
    part: Rows, weights: CurvatureWeights, scores: Scores, scale: Array | None, with_squares: bool
) -> KnownProducts:
    """Return the products that need no product with ``X``: the scores are the products with the coefficients.

    ``scale`` is the slope of the variance times the coefficients; weights that are not coupled do not use it.
    """
    mean = scores.mean
    left = [weights.by_mean * mean, weights.by_mean]
    if weights.is_coupled:
        left[0] += weights.mixed * scores.variance
        left += [weights.mixed * mean + weights.by_variance * scores.variance, weights.mixed]
    joined = np.hstack(left)
    scale = scale if weights.is_coupled else None
    used = joined[:, : 2 * weights.n] if scale is None else joined
    images, squares = part.X.images(used, scale, weights.by_mean if with_squares else None)
    return KnownProducts(images, squares, joined.sum(axis=0), weights.n_active)


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

    def __call__(self, part: Rows, loss: RowLoss, scores: Scores, *args: Any) -> tuple[Any, ...]:
        return *loss_and_gradient(part, loss, scores), *self.function(part, *args)
