"""Preconditioned conjugate gradients on independent systems, one per output, that share their products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dsterf

from dropmargin.data import add_scaled, column_dots
from dropmargin.objective import Curvature
from dropmargin.solvers.deflation import Deflation
from dropmargin.typing import Array

# The remaining decrease is taken for this many times that of the last step, or for as many times as there were steps.
_STEPS_LEFT = 5
# Until the residual has fallen to this share of its start, decreases say nothing about the remaining one.
_HALFWAY = 0.3
# A curvature below this share of the preconditioner's counts as zero.
_FLAT = 1e-20


class Solution(NamedTuple):
    """An approximate solution, the decrease that it leaves, and the lowest Ritz value of the preconditioned matrix.

    The remaining decrease is infinite where the iteration broke down for want of curvature.
    """

    x: Array
    remaining: Array
    lowest: Array


def solve(curvature: Curvature, right: Array, rtol: float, max_iter: int, atol: Array | float = 0.0) -> Solution:
    """Return an approximate solution of ``curvature x = right``, output by output.

    The iteration decreases ``x' curvature x / 2 - right' x``. An output stops when the remaining decrease is at most
    ``atol``, or when its residual, in the norm of the preconditioner, has fallen to ``rtol`` of its start. Small
    decreases alone do not count: the first steps may gain little where much is left. Every iterate is a descent
    direction for the function whose gradient is ``-right``.
    """
    n_outputs = right.shape[1]
    result = Solution(np.zeros_like(right), np.zeros(n_outputs), np.ones(n_outputs))
    atol = np.broadcast_to(atol, n_outputs)
    outputs = np.arange(n_outputs)
    solution, residual = np.zeros_like(right), right.copy()
    # 1. Deflation: the solution in the known directions, to which all others are made conjugate.
    deflation = None if curvature.deflation is None else Deflation(curvature.deflation)
    if deflation is not None:
        solution, image = deflation.solve(residual)
        residual -= image
    direction = curvature.precondition(residual)
    square = column_dots(residual, direction)
    direction = direction if deflation is None else deflation.project(direction)
    goal, halfway = np.square(rtol) * square, np.square(_HALFWAY) * square
    # If the first step breaks down without a deflated part, nothing is known about the remaining decrease.
    remaining = np.where(solution.any(axis=0) | (square == 0.0), 0.5 * square, np.inf)
    finished = ~(square > 0.0)
    steps, ratios = np.zeros((0, n_outputs)), np.zeros((0, n_outputs))
    for iteration in range(1, max_iter + 1):
        if finished.any():
            # 2. Finished outputs leave the loop.
            done = outputs[finished]
            result.x[:, done], result.remaining[done] = solution[:, finished], remaining[finished]
            result.lowest[done] = _lowest_ritz_values(steps[:, finished], ratios[:, finished])
            if finished.all():
                return result
            kept = np.flatnonzero(~finished)
            outputs, square, remaining, atol = (a[kept] for a in (outputs, square, remaining, atol))
            goal, halfway = goal[kept], halfway[kept]
            solution, residual, direction = (np.ascontiguousarray(a[:, kept]) for a in (solution, residual, direction))
            steps, ratios = steps[:, kept], ratios[:, kept]
            curvature = curvature.select(kept)
            deflation = None if deflation is None else deflation.select(kept)
        # 3. The step along the direction.
        image = curvature.product(direction)
        along = column_dots(direction, image)
        # By rounding, a positive definite matrix may have a direction without curvature: the solution so far is kept.
        positive = along > _FLAT * square
        step = np.where(positive, square / np.where(positive, along, 1.0), 0.0)
        add_scaled(solution, step, direction)
        add_scaled(residual, -step, image)
        remaining = np.where(positive, max(_STEPS_LEFT, iteration) * 0.5 * step * square, remaining)
        # 4. The next direction, conjugate to this one.
        preconditioned = curvature.precondition(residual)
        new_square = column_dots(residual, preconditioned)
        preconditioned = preconditioned if deflation is None else deflation.project(preconditioned)
        direction *= new_square / square
        direction += preconditioned
        steps, ratios = np.vstack([steps, step]), np.vstack([ratios, new_square / square])
        square = new_square
        finished = ~(square > goal) | ((remaining <= atol) & (square <= halfway)) | ~positive
    result.x[:, outputs], result.remaining[outputs] = solution, remaining
    result.lowest[outputs] = _lowest_ritz_values(steps, ratios)
    return result


def first_step(curvature: Curvature, right: Array, length: Array) -> Array:
    """Return what one iteration of `solve` returns if its step has a given length; no product is needed."""
    assert curvature.deflation is not None
    deflation = Deflation(curvature.deflation)
    solution, image = deflation.solve(right)
    return solution + length * deflation.project(curvature.precondition(right - image))


def decrease_bound(curvature: Curvature, gradient: Array, lowest: Array) -> Array:
    """Return an upper bound on the decrease that a curvature predicts for a gradient; no product is needed.

    With the preconditioner ``M`` and the lowest eigenvalue ``t`` of ``M^-1 H``, ``g'H^-1 g <= g'M^-1 g / t``. The
    lowest Ritz value stands for ``t``.
    """
    known, residual = np.zeros(gradient.shape[1]), gradient
    if curvature.deflation is not None:
        solution, image = Deflation(curvature.deflation).solve(gradient)
        known, residual = column_dots(gradient, solution), gradient - image
    rest = column_dots(residual, curvature.precondition(residual)) / np.minimum(lowest, 1.0)
    return 0.5 * (known + rest)


def _lowest_ritz_values(steps: Array, ratios: Array) -> Array:
    """Return the lowest Ritz value of each output, from the step lengths and the ratios of the squared residuals."""
    lowest = np.ones(steps.shape[1])
    for k in range(steps.shape[1]):
        length = int(np.count_nonzero(steps[:, k]))
        if length == 0:
            continue
        inverse, ratio = 1.0 / steps[:length, k], ratios[: length - 1, k]
        diagonal = inverse.copy()
        diagonal[1:] += ratio * inverse[:-1]
        if length == 1:  # which dsterf does not take
            lowest[k] = diagonal[0]
            continue
        eigenvalues, failed = dsterf(diagonal, np.sqrt(ratio) * inverse[:-1])
        lowest[k] = np.nan if failed else eigenvalues[0]
    return np.where(lowest > 0.0, lowest, np.inf)
