"""Hessians of the loss of rows as matrices, one per output, and their Cholesky factors."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf

from dropmargin.data import Block, FeatureGroups
from dropmargin.objective.objective import Task, second_derivatives
from dropmargin.objective.row_losses import Second
from dropmargin.objective.scores import GroupScores, Moments
from dropmargin.typing import Array

# For products of entries of at most so many numbers, all outputs are one product with a table of them.
_TABLE = 2**21


def factorise(matrix: Array) -> Array | None:
    """Return the lower Cholesky factor, or ``None`` if the matrix is not safely positive definite."""
    # Scaling to a unit diagonal first: features of very different units cost no digits.
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), np.finfo(float).tiny))
    with np.errstate(over="ignore", invalid="ignore"):
        # LAPACK itself: SciPy's functions around it take longer than a small matrix.
        factor, info = dpotrf(matrix * scale * scale[:, None], lower=1)
    return factor / scale[:, None] if info == 0 and np.isfinite(factor).all() else None


def hessians(block: Block, task: Task, coef: Array, is_majoriser: bool, index: Array) -> tuple[Array]:
    """Return the Hessians of the rows' loss by some features and the intercept, one per output."""
    size = len(index) + 1
    total = np.zeros((coef.shape[1], size, size))
    for piece, second in second_derivatives(block, task, coef, is_majoriser):
        X = piece.rows.dense()
        rows = np.ones((len(X), size))
        rows[:, :-1] = X[:, index]
        total += weighted_gram(rows, rows, second.by_mean)
        if isinstance(task.scores, GroupScores):
            total += _group_matrices(rows, task.scores.groups, coef, piece.first[1], second, index)
        elif isinstance(task.scores, Moments) and (task.scores.depends_on_x or task.scores.has_constant):
            total += _noise_matrices(rows, block.variance.take(index).of(X[:, index]), coef[index], second)
    return (total,)


def _noise_matrices(rows: Array, variances: Array, w: Array, second: Second) -> Array:
    """Return what the derivatives ``2 w_d V_d(x_id)`` of the variance contribute for independent features."""
    out = np.zeros((w.shape[1], rows.shape[1], rows.shape[1]))
    if not second.mixed.any() and not second.by_variance.any():
        return out
    cross = weighted_gram(rows, variances, second.mixed) * (2.0 * w.T)[:, None, :]
    out[:, :, :-1] += cross
    out[:, :-1, :] += cross.transpose(0, 2, 1)
    own = weighted_gram(variances, variances, second.by_variance)
    out[:, :-1, :-1] += own * (4.0 * w.T[:, :, None] * w.T[:, None, :])
    return out


def _group_matrices(
    rows: Array, groups: FeatureGroups, coef: Array, by_variance: Array, second: Second, index: Array
) -> Array:
    """Return the same for groups, with the second-order term of the variance, which couples the features of a group."""
    numbers, deviations = groups.numbers[index], rows[:, :-1] - groups.reference[index]
    slope = groups.slope[numbers]
    same = numbers[:, None] == numbers
    out = np.zeros((coef.shape[1], rows.shape[1], rows.shape[1]))
    starts = np.flatnonzero(np.append(True, np.diff(numbers) != 0)) if len(numbers) else np.zeros(0, dtype=int)
    place = np.cumsum(np.append(True, np.diff(numbers) != 0)) - 1 if len(numbers) else starts
    for k, own in enumerate(out):
        scores = np.add.reduceat(deviations * coef[index, k], starts, axis=1) if len(starts) else deviations
        slopes = 2.0 * slope * scores[:, place] * deviations  # of the variance
        cross = rows.T @ (second.mixed[:, k, None] * slopes)
        own[:, :-1] += cross
        own[:-1, :] += cross.T
        own[:-1, :-1] += slopes.T @ (second.by_variance[:, k, None] * slopes)
        weighted = (by_variance[:, k, None] * deviations).T @ deviations
        own[:-1, :-1] += np.where(same, 2.0 * slope * weighted, 0.0)
    return out


def weighted_gram(left: Array, right: Array, weights: Array) -> Array:
    """Return ``left' diag(h) right`` for each column ``h`` of the weights."""
    n, p, q = len(left), left.shape[1], right.shape[1]
    if weights.shape[1] > 1 and n * p * q <= _TABLE:
        table = (left[:, :, None] * right[:, None, :]).reshape(n, p * q)
        return (weights.T @ table).reshape(-1, p, q)
    # BLAS computes one triangle of a product with the own transpose; one buffer: allocations take as long.
    sign = -1.0 if weights.max(initial=0.0) <= 0.0 else 1.0
    is_square = left is right and weights.size > 0 and float((sign * weights).min()) >= 0.0
    factors = np.sqrt(sign * weights) if is_square else weights
    out, buffer = np.empty((weights.shape[1], p, q)), np.empty(right.shape)
    for own, factor in zip(out, factors.T, strict=True):
        np.multiply(right, factor[:, None], out=buffer)
        np.matmul((buffer if is_square else left).T, buffer, out=own)
    return sign * out if is_square else out
