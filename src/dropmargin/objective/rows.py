"""The functions of one partition behind `objective.moment`: scores, and what is computed of them row by row.

All are pure and at module level, so that they can be sent to wherever the partition is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dropmargin.losses import MomentLoss
from dropmargin.noise import Variance
from dropmargin.objective.base import Labelled
from dropmargin.objective.curvature import CurvatureWeights
from dropmargin.typing import Array

# A score is steady if its standard deviation is below so many widths of the smoothing.
_STEADY = 2.0


class Scores(NamedTuple):
    """Mean and variance of the noisy scores of a partition, ``(n_rows, n_columns)`` each; no variance, no noise."""

    mean: Array
    variance: Array


def row_scores(part: Labelled, factors: Array, shift: Array, n_means: int) -> Scores:
    """Return means and variances of the rows, see `MomentObjective.packed`."""
    out = part.block.forward(factors, n_means)
    mean = out[:, :n_means] + shift[:n_means]
    if out.shape[1] == n_means:
        return Scores(mean, np.broadcast_to(shift[n_means:], (len(mean), len(shift) - n_means)))
    return Scores(mean, out[:, n_means:] + shift[n_means:])


def smoothed(loss: MomentLoss, smoothing: Array | float) -> MomentLoss:
    """Return the loss with its kink rounded off over a width, one number per column, if there is any."""
    return loss.smoothed(smoothing) if np.any(smoothing) else loss


def no_scores(part: Labelled, n: int) -> Scores:
    return Scores(np.zeros((len(part.labels), n)), np.zeros((len(part.labels), n)))


def take_columns(part: Labelled, values: Array, columns: Any) -> Array:
    return values[:, columns]


def take_scores(part: Labelled, scores: Scores, columns: Any) -> Scores:
    return Scores(scores.mean[:, columns], scores.variance[:, columns])


def moved(part: Labelled, scores: Scores, moves: Scores, step: Array) -> Scores:
    n_columns = scores.mean.shape[1]
    cross, square = moves.variance[:, :n_columns], moves.variance[:, n_columns:]
    # rounding may leave a variance a little below zero
    variance = np.maximum(scores.variance + step * (2.0 * cross + step * square), 0.0)
    return Scores(scores.mean + step * moves.mean, variance)


def loss_only(
    part: Labelled, loss: MomentLoss, columns: Array, smoothing: Array | float, scores: Scores
) -> tuple[Array]:
    losses = smoothed(loss, smoothing).value(part.labels[:, columns], scores.mean, scores.variance)
    return (np.einsum("i,ik->k", part.weights[:, 0], losses),)


def steady_weight(part: Labelled, smoothing: Array, scores: Scores) -> tuple[Array]:
    """Return the weight of the rows whose score varies by less than a few widths of the smoothing."""
    return (np.einsum("i,ik->k", part.weights[:, 0], scores.variance < np.square(_STEADY * smoothing)),)


def loss_moved(
    part: Labelled,
    loss: MomentLoss,
    columns: Array,
    smoothing: Array | float,
    scores: Scores,
    moves: Scores,
    step: Array,
) -> tuple[Array]:
    return loss_only(part, loss, columns, smoothing, moved(part, scores, moves, step))


def loss_and_gradient(
    part: Labelled, loss: MomentLoss, variance: Variance, columns: Array, smoothing: Array | float, scores: Scores
) -> tuple[Array, Array, Array]:
    """Return the loss, ``X'(s phi_m)`` beside ``f(X)'(2 s phi_v)``, and the sums of what is in the brackets."""
    n = scores.mean.shape[1]
    slopes = np.empty((len(scores.mean), 2 * n))
    slopes[:, :n], slopes[:, n:] = smoothed(loss, smoothing).gradient(
        part.labels[:, columns], scores.mean, scores.variance
    )
    slopes[:, :n] *= part.weights
    slopes[:, n:] *= 2.0 * part.weights
    back = part.block.backward(slopes if variance.moves_entries else slopes[:, :n], n)
    return loss_only(part, loss, columns, smoothing, scores)[0], back, slopes.sum(axis=0)


def hessian_weights(
    part: Labelled, loss: MomentLoss, variance: Variance, columns: Array, smoothing: Array | float, scores: Scores
) -> CurvatureWeights:
    by_mean, mixed, by_variance = smoothed(loss, smoothing).curvature(
        part.labels[:, columns], scores.mean, scores.variance
    )
    if variance.is_zero:
        return CurvatureWeights(part.weights * by_mean, by_mean.shape[1])
    curved = np.hstack([by_mean, 2.0 * mixed, 4.0 * by_variance])
    curved *= part.weights
    return CurvatureWeights(curved, by_mean.shape[1])


class KnownProducts(NamedTuple):
    """The rows' part of the curvature times the coefficients and times the offset, and what else is known by then.

    ``back`` has the columns of ``X'`` for the coefficients and for the offset, then those of ``f(X)'``; ``sums`` are
    the sums of what these were multiplied with. ``squares`` is ``(X * X)' phi_mm``, if it was asked for, and
    ``n_active`` the number of rows with curvature.
    """

    back: Array
    squares: Array | None
    sums: Array
    n_active: Array

    @property
    def totals(self) -> Array:
        """The sum of ``phi_mm``, column by column."""
        n = len(self.n_active)
        return self.sums[n : 2 * n]


def known_products(part: Labelled, weights: CurvatureWeights, scores: Scores, with_squares: bool) -> KnownProducts:
    """Return the products that need no way forth, as the scores are the products with the coefficients."""
    mean = scores.mean
    bent = [weights.by_mean * mean, weights.by_mean]
    if weights.is_coupled:
        bent[0] += weights.mixed * scores.variance
        bent += [weights.mixed * mean + weights.by_variance * scores.variance, weights.mixed]
    left = np.hstack(bent)
    block, n = part.block, weights.n
    moved = left if block.entry is not None else left[:, : 2 * n]
    if with_squares:
        back, squares = block.backward_and_squares(moved, 2 * n, weights.by_mean)
    else:
        back, squares = block.backward(moved, 2 * n), None
    return KnownProducts(back, squares, left.sum(axis=0), weights.n_active)


def gradient_and_known_products(
    part: Labelled,
    loss: MomentLoss,
    variance: Variance,
    columns: Array,
    smoothing: Array | float,
    weights: CurvatureWeights,
    scores: Scores,
    with_squares: bool,
) -> tuple[Array | None, ...]:
    """Return all that `loss_and_gradient` and `known_products` do, for one question in place of two."""
    gradient = loss_and_gradient(part, loss, variance, columns, smoothing, scores)
    return *gradient, *known_products(part, weights, scores, with_squares)


def majoriser_weights(
    part: Labelled, loss: MomentLoss, variance: Variance, columns: Array, smoothing: Array | float, scores: Scores
) -> CurvatureWeights:
    weight = smoothed(loss, smoothing).weight(part.labels[:, columns], scores.mean, scores.variance)
    return CurvatureWeights(part.weights * weight, weight.shape[1])
