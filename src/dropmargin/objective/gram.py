"""The preconditioner of dense rows: one decomposed Gram matrix, shared by outputs, steps and values of ``C``."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import eigh

from dropmargin.data import Block
from dropmargin.objective.objective import Objective, Point, Statistics
from dropmargin.objective.scores import GroupScores, Moments
from dropmargin.typing import Array

# The Gram matrix is for at most so many features, and is computed from so many rows per feature.
_GRAM_FEATURES, _GRAM_ROWS = 2000, 8
# Its eigenvalues may exceed the penalty this many times: beyond, rounding errors of small ones are large.
_EIGEN_RANGE = 1e10
# Eigenvalues of the coupling of classes count as at least this share of the largest one.
_LEAST_COUPLING = 1e-10


def gram_inverse(point: Point, is_majoriser: bool) -> Any:
    """Return the inverse of ``l2 + sum(h) (X'SX + N)``, or ``None`` where it does not suit the data.

    ``N`` is the mean curvature of the noise at the first step: an approximation, so that one decomposition serves all
    outputs, all steps and every ``C``. Classes of a softmax are coupled by the sums of ``diag(p) - p p'``, so that the
    inverse is that of a Kronecker product.
    """
    objective = point.objective
    penalty, p = objective.penalty, objective.n_features
    suits = objective.is_dense and p <= min(_GRAM_FEATURES, objective.n_rows) and penalty.is_ridge
    if not suits or not (isinstance(objective.scores, Moments | GroupScores)):
        return None
    found = point.statistics(is_majoriser)
    totals, rotation = found.totals, None
    if found.coupling is not None:
        totals, rotation = np.linalg.eigh(found.coupling)
        # A constant added to all classes changes nothing but the penalty.
        totals = np.maximum(totals, _LEAST_COUPLING * totals[-1])
    values, vectors, means = _eigenvectors(objective, found)
    values = penalty.l2 + totals * np.maximum(values, 0.0)[:, None]
    if not (np.isfinite(values).all() and np.all(totals > 0.0) and np.all(values <= _EIGEN_RANGE * penalty.l2)):
        return None

    def inverse(residual: Array) -> Array:
        residual = residual if rotation is None else residual @ rotation
        out = np.empty_like(residual)
        # With an intercept of centred features, the residual of the coefficients is less the means times its own.
        out[:-1] = vectors @ ((vectors.T @ (residual[:-1] - np.outer(means, residual[-1]))) / values)
        out[-1] = residual[-1] / totals - means @ out[:-1] if objective.fit_intercept else residual[-1]
        return out if rotation is None else out @ rotation.T

    return inverse


def _eigenvectors(objective: Objective, found: Statistics) -> tuple[Array, Array, Array]:
    """Return eigenvalues and eigenvectors of the Gram matrix of centred rows and their noise, and the means."""
    variance, cache = objective.variance, objective.cache
    strength = tuple(float(np.mean(own)) for own in (variance.linear, variance.quadratic, variance.constant))
    key = "eigenvectors", strength, variance.groups is None, found.coupling is None
    if key not in cache:
        if "gram" not in cache:
            every = max(1, objective.n_rows // (_GRAM_ROWS * objective.n_features))
            gram, total = objective.data.map_sum(_gram, every)
            cache["gram"] = gram / total
        gram = cache["gram"]
        means = gram[-1, :-1] * objective.fit_intercept
        matrix, raw = gram[:-1, :-1] - np.outer(means, means), gram[:-1, :-1]
        ratio = 1.0
        if found.coupling is None:
            ratio = float(np.mean(2.0 * found.by_variance / np.maximum(found.totals, np.finfo(float).tiny)))
        if variance.groups is None:
            own = variance.quadratic * np.diag(raw) + variance.linear * gram[-1, :-1] + variance.constant
            matrix[np.diag_indices_from(matrix)] += ratio * own
        else:
            groups = objective.scores.groups  # type: ignore[attr-defined]
            same = groups.numbers[:, None] == groups.numbers
            matrix += ratio * np.where(same, groups.slope[groups.numbers] * raw, 0.0)
        cache[key] = *eigh(matrix, driver="evd", check_finite=False, overwrite_a=True), means
    return cache[key]


def _gram(block: Block, every: int) -> tuple[Array, float]:
    """Return the Gram matrix of one in so many rows, with a one appended, weighted, and the sum of all weights.

    Rows are drawn, always the same ones: they may come in an order that has a period.
    """
    weights, X = block.sample_weight, block.X
    total = float(weights.sum())
    if every > 1:
        taken = np.sort(np.random.default_rng(0).permutation(len(weights))[: max(1, len(weights) // every)])
        X, weights = X[taken], weights[taken]
        weights = weights * (total / max(float(weights.sum()), np.finfo(float).tiny))
    size = X.shape[1]
    out = np.empty((size + 1, size + 1))
    scaled = X * np.sqrt(weights)[:, None].astype(X.dtype)
    out[:-1, :-1] = scaled.T @ scaled  # BLAS computes one triangle of a product with the own transpose
    out[:-1, -1] = out[-1, :-1] = weights.astype(X.dtype) @ X
    out[-1, -1] = weights.sum()
    return out, total
