"""Preconditioned conjugate gradients on a block of independent systems that share their products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh_tridiagonal

from dropmargin.data import column_dots
from dropmargin.objective import Curvature
from dropmargin.solvers.deflation import Deflation
from dropmargin.typing import Array

# What a solve leaves is taken for this many times the gain of its last step, or as many times as it took steps.
_GAINS_LEFT = 5
# Until the residual has fallen to this share of its start, gains say nothing of what is left.
_HALFWAY = 0.3
# Next to the preconditioner's idea of it, this is no curvature at all.
_FLAT = 1e-20


class Solution(NamedTuple):
    """An approximate solution, what it leaves of the decrease, and the lowest curvature that the search met.

    What is left is infinite where the search broke down: there was no curvature to go by.

    ``lowest`` is the smallest Ritz value of the preconditioned matrix, column by column.
    """

    x: Array
    left: Array
    lowest: Array


def solve(curvature: Curvature, right: Array, rtol: float, max_iter: int, enough: Array | float = 0.0) -> Solution:
    """Return an approximate solution of ``curvature x = right``, column by column.

    What counts is the decrease of ``x' curvature x / 2 - right' x``. A column stops when what it leaves of that is
    ``enough``, or when its residual, in the norm of the preconditioner, has fallen to ``rtol`` of its start, and leaves
    the block. Small gains alone do not count: the first steps may gain little where much is left. Every iterate is a
    descent direction for the function whose gradient is ``-right``.
    """
    n_columns = right.shape[1]
    result = Solution(np.zeros_like(right), np.zeros(n_columns), np.ones(n_columns))
    enough = np.broadcast_to(enough, n_columns)
    columns = np.arange(n_columns)
    solution, residual = np.zeros_like(right), right.copy()
    # 1. What lies in the known directions is solved at once, and the search stays clear of them.
    deflation = None if curvature.coarse is None else Deflation(curvature.coarse)
    if deflation is not None:
        solution, image = deflation.solve(residual)
        residual -= image
    direction = curvature.precondition(residual)
    size = column_dots(residual, direction)
    direction = direction if deflation is None else deflation.project(direction)
    goal, halfway = np.square(rtol) * size, np.square(_HALFWAY) * size
    # If the search breaks down at once, with nothing solved, nothing is known of what is left.
    left = np.where(solution.any(axis=0) | (size == 0.0), 0.5 * size, np.inf)
    finished = ~(size > 0.0)
    steps, ratios = np.zeros((0, n_columns)), np.zeros((0, n_columns))
    for iteration in range(1, max_iter + 1):
        if finished.any():
            # 2. Columns that are done take their results along.
            done = columns[finished]
            result.x[:, done], result.left[done] = solution[:, finished], left[finished]
            result.lowest[done] = _lowest_ritz_values(steps[:, finished], ratios[:, finished])
            if finished.all():
                return result
            kept = np.flatnonzero(~finished)
            columns, size, left, enough = (a[kept] for a in (columns, size, left, enough))
            goal, halfway = goal[kept], halfway[kept]
            solution, residual, direction = (np.ascontiguousarray(a[:, kept]) for a in (solution, residual, direction))
            steps, ratios = steps[:, kept], ratios[:, kept]
            curvature = curvature.select(kept)
            deflation = None if deflation is None else deflation.select(kept)
        # 3. The step along the direction.
        image = curvature.product(direction)
        bend = column_dots(direction, image)
        # Rounding may make a positive definite matrix look otherwise: then what is solved so far is the answer.
        positive = bend > _FLAT * size
        step = np.where(positive, size / np.where(positive, bend, 1.0), 0.0)
        solution += step * direction
        residual -= step * image
        left = np.where(positive, max(_GAINS_LEFT, iteration) * 0.5 * step * size, left)
        # 4. The next direction, conjugate to this one.
        preconditioned = curvature.precondition(residual)
        renewed = column_dots(residual, preconditioned)
        preconditioned = preconditioned if deflation is None else deflation.project(preconditioned)
        direction *= renewed / size
        direction += preconditioned
        steps, ratios = np.vstack([steps, step]), np.vstack([ratios, renewed / size])
        size = renewed
        finished = ~(size > goal) | ((left <= enough) & (size <= halfway)) | ~positive
    result.x[:, columns], result.left[columns] = solution, left
    result.lowest[columns] = _lowest_ritz_values(steps, ratios)
    return result


def promise(curvature: Curvature, gradient: Array, lowest: Array) -> Array:
    """Return the decrease that a curvature promises for a gradient, at most, if it is nowhere lower than ``lowest``.

    No product is needed: with the preconditioner ``M`` and its lowest Ritz value ``t``, ``g'H^-1 g <= g'M^-1 g / t``.
    """
    known, residual = np.zeros(gradient.shape[1]), gradient
    if curvature.coarse is not None:
        solution, image = Deflation(curvature.coarse).solve(gradient)
        known, residual = column_dots(gradient, solution), gradient - image
    rest = column_dots(residual, curvature.precondition(residual)) / np.minimum(lowest, 1.0)
    return 0.5 * (known + rest)


def _lowest_ritz_values(steps: Array, ratios: Array) -> Array:
    """Return the lowest Ritz value of each column, from the steps of conjugate gradients and its size ratios."""
    lowest = np.ones(steps.shape[1])
    for k in range(steps.shape[1]):
        length = int(np.count_nonzero(steps[:, k]))
        if length == 0:
            continue
        inverse, ratio = 1.0 / steps[:length, k], ratios[: length - 1, k]
        diagonal = inverse.copy()
        diagonal[1:] += ratio * inverse[:-1]
        if length == 1:  # which SciPy 1.12 refuses
            lowest[k] = diagonal[0]
            continue
        beside = np.sqrt(ratio) * inverse[:-1]
        lowest[k] = eigh_tridiagonal(diagonal, beside, eigvals_only=True, select="i", select_range=(0, 0))[0]
    return np.where(lowest > 0.0, lowest, np.inf)
