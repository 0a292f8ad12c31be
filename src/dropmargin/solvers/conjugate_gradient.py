"""Preconditioned conjugate gradients on a block of independent systems that share their products."""

from __future__ import annotations

import numpy as np

from dropmargin.objective import Curvature
from dropmargin.typing import Array


def solve(
    curvature: Curvature, right: Array, rtol: float, max_iter: int, least_gain: Array | float = 0.0
) -> tuple[Array, Array]:
    """Return an approximate solution of ``curvature x = right``, column by column, and what its last step gained.

    The gain of a step is the decrease of ``x' curvature x / 2 - right' x``. A column stops when a step gains less than
    ``least_gain``, or when its residual, in the norm of the preconditioner, has fallen to ``rtol`` of its start, and
    leaves the block. Every iterate is a descent direction for the function whose gradient is ``-right``.
    """
    solutions, gains = np.zeros_like(right), np.zeros(right.shape[1])
    least_gain = np.broadcast_to(least_gain, gains.shape)
    columns = np.arange(right.shape[1])
    solution, residual = np.zeros_like(right), right.copy()
    direction = curvature.precondition(residual)
    size = _dots(residual, direction)
    goal = np.square(rtol) * size
    gain, finished = gains, ~(size > 0.0)
    for _ in range(max_iter):
        if finished.any():
            # 1. Columns that are done take their results along.
            gains[columns[finished]] = gain[finished]
            solutions[:, columns[finished]] = solution[:, finished]
            if finished.all():
                return solutions, gains
            kept = np.flatnonzero(~finished)
            columns, size, goal, least_gain = columns[kept], size[kept], goal[kept], least_gain[kept]
            solution, residual, direction = (np.ascontiguousarray(a[:, kept]) for a in (solution, residual, direction))
            curvature = curvature.select(kept)
        # 2. The step along the direction.
        image = curvature.product(direction)
        bend = _dots(direction, image)
        # Rounding may make a positive definite matrix look otherwise: then what is solved so far is the answer.
        positive = bend > 0.0
        step = np.where(positive, size / np.where(positive, bend, 1.0), 0.0)
        solution += step * direction
        residual -= step * image
        gain = 0.5 * step * size
        # 3. The next direction, conjugate to this one.
        preconditioned = curvature.precondition(residual)
        renewed = _dots(residual, preconditioned)
        direction = preconditioned + (renewed / size) * direction
        size = renewed
        finished = ~(size > goal) | (gain <= least_gain) | ~positive
    gains[columns] = gain
    solutions[:, columns] = solution
    return solutions, gains


def _dots(a: Array, b: Array) -> Array:
    return np.einsum("dk,dk->k", a, b)
