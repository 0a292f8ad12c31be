"""Preconditioned conjugate gradients on a block of independent systems that share their products."""

from __future__ import annotations

import numpy as np

from dropmargin.objective import Curvature
from dropmargin.typing import Array

# What a solve leaves is taken for this many times the gain of its last step, or as many times as it took steps.
_GAINS_LEFT = 5
# Until the residual has fallen to this share of its start, gains say nothing of what is left.
_HALFWAY = 0.3
# Next to the preconditioner's idea of it, this is no curvature at all.
_FLAT = 1e-20


def solve(
    curvature: Curvature, right: Array, rtol: float, max_iter: int, enough: Array | float = 0.0
) -> tuple[Array, Array]:
    """Return an approximate solution of ``curvature x = right``, column by column, and an estimate of what it leaves.

    What counts is the decrease of ``x' curvature x / 2 - right' x``. A column stops when what it leaves of that is
    ``enough``, or when its residual, in the norm of the preconditioner, has fallen to ``rtol`` of its start, and leaves
    the block. Small gains alone do not count: the first steps may gain little where much is left. Every iterate is a
    descent direction for the function whose gradient is ``-right``.
    """
    solutions, remains = np.zeros_like(right), np.zeros(right.shape[1])
    enough = np.broadcast_to(enough, remains.shape)
    columns = np.arange(right.shape[1])
    solution, residual = np.zeros_like(right), right.copy()
    direction = curvature.precondition(residual)
    size = _dots(residual, direction)
    goal, halfway = np.square(rtol) * size, np.square(_HALFWAY) * size
    remain, finished = remains, ~(size > 0.0)
    for iteration in range(1, max_iter + 1):
        if finished.any():
            # 1. Columns that are done take their results along.
            remains[columns[finished]] = remain[finished]
            solutions[:, columns[finished]] = solution[:, finished]
            if finished.all():
                return solutions, remains
            kept = np.flatnonzero(~finished)
            columns, size, enough = columns[kept], size[kept], enough[kept]
            goal, halfway = goal[kept], halfway[kept]
            solution, residual, direction = (np.ascontiguousarray(a[:, kept]) for a in (solution, residual, direction))
            curvature = curvature.select(kept)
        # 2. The step along the direction.
        image = curvature.product(direction)
        bend = _dots(direction, image)
        # Rounding may make a positive definite matrix look otherwise: then what is solved so far is the answer.
        positive = bend > _FLAT * size
        step = np.where(positive, size / np.where(positive, bend, 1.0), 0.0)
        solution += step * direction
        residual -= step * image
        remain = max(_GAINS_LEFT, iteration) * 0.5 * step * size
        # 3. The next direction, conjugate to this one.
        preconditioned = curvature.precondition(residual)
        renewed = _dots(residual, preconditioned)
        direction = preconditioned + (renewed / size) * direction
        size = renewed
        finished = ~(size > goal) | ((remain <= enough) & (size <= halfway)) | ~positive
    remains[columns] = remain
    solutions[:, columns] = solution
    return solutions, remains


def _dots(a: Array, b: Array) -> Array:
    return np.einsum("dk,dk->k", a, b)
