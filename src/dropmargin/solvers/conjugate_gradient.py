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
    ``least_gain``, or when its residual, in the norm of the preconditioner, has fallen to ``rtol`` of its start. Every
    iterate is a descent direction for the function whose gradient is ``-right``.
    """
    solution = np.zeros_like(right)
    gain = np.zeros(right.shape[1])
    least_gain = np.broadcast_to(least_gain, gain.shape)
    residual = right.copy()
    preconditioned = curvature.precondition(residual)
    direction = preconditioned.copy()
    size = _dots(residual, preconditioned)
    goal = np.square(rtol) * size
    active = size > 0.0
    for _ in range(max_iter):
        if not active.any():
            break
        everything = bool(active.all())
        columns = slice(None) if everything else np.flatnonzero(active)
        image = (curvature if everything else curvature.select(columns)).product(direction[:, columns])
        bend = _dots(direction[:, columns], image)
        # Rounding may make a positive definite matrix look otherwise: then what is solved so far is the answer.
        step = np.where(bend > 0.0, size[columns] / np.where(bend > 0.0, bend, 1.0), 0.0)
        solution[:, columns] += step * direction[:, columns]
        residual[:, columns] -= step * image
        gain[columns] = 0.5 * step * size[columns]
        preconditioned = curvature.precondition(residual)
        renewed = _dots(residual, preconditioned)
        stuck = np.zeros_like(active)
        stuck[columns] = step == 0.0
        ratio = np.where(active, renewed / np.where(size > 0.0, size, 1.0), 0.0)
        direction = preconditioned + ratio * direction
        size = np.where(active, renewed, size)
        active &= (size > goal) & (gain > least_gain) & ~stuck
    return solution, gain


def _dots(a: Array, b: Array) -> Array:
    return np.einsum("dk,dk->k", a, b)
