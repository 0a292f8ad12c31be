"""Preconditioned conjugate gradients on independent systems, one per output, that share their products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dsterf

from dropmargin.typing import Array

# The remaining decrease is taken for this many times that of the last step, or for as many times as there were steps.
_STEPS_LEFT = 5
# Until the residual has fallen to this share of its start, decreases say nothing about the remaining one.
_HALFWAY = 0.3
# A curvature below this share of the preconditioner's counts as zero.
_FLAT = 1e-20
# A squared residual of this share of its start is rounding.
_EXACT = 1e-16
# Directions that are nearer to linear dependence than this count as one.
_INDEPENDENT = 1e-6


class Solution(NamedTuple):
    """An approximate solution, the decrease that it leaves, and the lowest Ritz value of the preconditioned matrix.

    The remaining decrease is infinite where the iteration broke down for want of curvature.
    """

    x: Array
    remaining: Array
    lowest: Array


class Deflation:
    """Two directions per output whose products are known: the coefficients, and the intercept alone (Saad et al. 2000).

    A hinge is nearly flat along the coefficients, and the intercept is coupled to all of them: a preconditioner of the
    features misses both. `solve` is exact on the plane that they span. `project` makes a direction conjugate to it, so
    that conjugate gradients search only what is left.

    Parameters
    ----------
    coef, coef_image : ndarray of shape (n_features + 1, n_outputs)
        The coefficients, with 0 for the intercept, and their product.
    intercept_image : ndarray of the same shape, or None
        The product of the intercept; ``None`` without intercept.
    """

    def __init__(self, coef: Array, coef_image: Array, intercept_image: Array | None) -> None:
        self.coef, self.coef_image = coef, coef_image
        self.intercept_image = np.zeros_like(coef) if intercept_image is None else intercept_image
        a, b, c = _dot(coef, coef_image), coef_image[-1], self.intercept_image[-1]
        if intercept_image is None:
            b = np.zeros_like(b)
        with np.errstate(all="ignore"):
            determinant = a * c - b * b
            inverse = np.stack([c, -b, a]) / determinant
            single = np.stack(
                [np.where((a > 0.0) & (c <= 0.0), 1.0 / a, 0.0), 0.0 * a, np.where(c > 0.0, 1.0 / c, 0.0)]
            )
        if intercept_image is not None:
            single[0] = 0.0
        self.inverse = np.where((determinant > _INDEPENDENT * a * c) & (a > 0.0), inverse, single)

    def solve(self, right: Array) -> tuple[Array, Array]:
        """Return the solution in the plane and its image."""
        x, y = self._weights(_dot(self.coef, right), right[-1])
        solution = x * self.coef
        solution[-1] += y
        return solution, x * self.coef_image + y * self.intercept_image

    def project(self, direction: Array) -> Array:
        """Return the direction without its part in the plane."""
        x, y = self._weights(_dot(self.coef_image, direction), _dot(self.intercept_image, direction))
        direction = direction - x * self.coef
        direction[-1] -= y
        return direction

    def _weights(self, along_coef: Array, along_intercept: Array) -> tuple[Array, Array]:
        p, q, r = self.inverse
        return p * along_coef + q * along_intercept, q * along_coef + r * along_intercept


def _dot(a: Array, b: Array) -> Array:
    return np.einsum("ij,ij->j", a, b)


def solve(model: Any, right: Array, rtol: float, atol: Array, max_iter: int, dot: Callable[..., Array]) -> Solution:
    """Return an approximate solution of ``model x = right``, output by output.

    The iteration decreases ``x' model x / 2 - right' x``. An output stops when the remaining decrease is at most
    ``atol``, or when its residual, in the norm of the preconditioner, has fallen to ``rtol`` of its start. Small
    decreases alone do not count: the first steps may gain little where much is left. Every iterate is a descent
    direction for the function whose gradient is ``-right``.
    """
    # 1. Deflation: the solution in the known directions, to which all others are made conjugate.
    deflation = model.deflation
    solution, residual = np.zeros_like(right), right.copy()
    if deflation is not None:
        solution, image = deflation.solve(residual)
        residual -= image
    direction = model.precondition(residual)
    square = dot(residual, direction)
    direction = direction if deflation is None else deflation.project(direction)
    goal, halfway, exact = np.square(rtol) * square, np.square(_HALFWAY) * square, _EXACT * square
    # If the first step breaks down without a deflated part, nothing is known about the remaining decrease.
    remaining = np.where(dot(solution, solution) + (square == 0.0) > 0.0, 0.5 * square, np.inf)
    active = square > 0.0
    steps, ratios = [], []
    for iteration in range(1, max_iter + 1):
        if not active.any():
            break
        # 2. The step along the direction. By rounding, a positive definite matrix may have a direction without
        # curvature: the solution so far is kept. Outputs that are finished take steps of length zero.
        image = model.product(direction)
        along = dot(direction, image)
        active &= along > _FLAT * square
        step = np.where(active, square / np.where(active, along, 1.0), 0.0)
        solution += step * direction
        residual -= step * image
        remaining = np.where(active, max(_STEPS_LEFT, iteration) * 0.5 * step * square, remaining)
        # 3. The next direction, conjugate to this one.
        preconditioned = model.precondition(residual)
        new_square = dot(residual, preconditioned)
        ratio = np.where(active, new_square / np.where(square > 0.0, square, 1.0), 0.0)
        preconditioned = preconditioned if deflation is None else deflation.project(preconditioned)
        direction = preconditioned + ratio * direction
        steps.append(step)
        ratios.append(ratio)
        square = np.where(active, new_square, square)
        is_enough = (square <= goal) | ((remaining <= atol) & (square <= halfway))
        active &= ~(is_enough if iteration >= model.least_steps else square <= exact)
    lowest = lowest_ritz_values(np.array(steps), np.array(ratios)) if steps else np.ones(len(square))
    return Solution(solution, remaining, lowest)


def decrease_bound(
    deflation: Deflation | None,
    precondition: Callable[[Array], Array],
    gradient: Array,
    lowest: Array,
    dot: Callable[[Array, Array], Array] = _dot,
) -> Array:
    """Return an upper bound on the decrease that a model predicts for a gradient; no product is needed.

    With the preconditioner ``M`` and the lowest eigenvalue ``t`` of ``M^-1 H``, ``g'H^-1 g <= g'M^-1 g / t``. The
    lowest Ritz value stands for ``t``.
    """
    known, residual = np.zeros(len(lowest)), gradient
    if deflation is not None:
        solution, image = deflation.solve(gradient)
        known, residual = dot(gradient, solution), gradient - image
    rest = dot(residual, precondition(residual)) / np.minimum(lowest, 1.0)
    return 0.5 * (known + rest)


def lowest_ritz_values(steps: Array, ratios: Array) -> Array:
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
