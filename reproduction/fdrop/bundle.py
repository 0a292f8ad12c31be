r"""A level bundle method for ``f(w) = |w|^2 / 2 + R(w)`` with a convex, piecewise linear ``R``.

An evaluation of ``R`` gives a cutting plane, ``h_j + g_j.w <= R(w)``. Any ``a`` on the simplex proves the lower bound
``h.a - |G'a|^2 / 2`` on the minimum. With the best point so far, ``p``, the next point is the one nearest to ``p``
where no plane is above a level between the lower bound and ``f(p)``::

    min |w - p|   subject to   h_j + g_j.w + p.w - |p|^2 / 2 <= level

(Lemarechal, Nemirovskii and Nesterov 1995). This is a least distance problem, which non-negative least squares solves
(Lawson and Hanson 1974, chapter 23). Its multipliers, scaled to the simplex, are the next ``a``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from dropmargin.solvers import Iteration, Monitor, Result
from dropmargin.typing import Array

# The level as a fraction of the gap above the lower bound.
_LEVEL = 0.3
# A plane that has not been active for so many iterations is removed.
_MAX_INACTIVE = 20
_SMALLEST_GAP = 1e-10  # smaller relative gaps are rounding errors
# A relative gap below this that has not decreased in so many iterations consists of rounding errors.
_SMALL_GAP, _STAGNATION = 1e-8, 100
_RIDGE = 1e-13


class Plane(NamedTuple):
    """The plane ``height + slope.w <= R(w)``, with equality at one point; ``R`` and the best intercept there."""

    slope: Array
    height: float
    risk: float
    intercept: float


def minimise(risk: Callable[[Array], Plane], n_features: int, *, tol: float, max_iter: int, monitor: Monitor) -> Result:
    """Minimise ``|w|^2 / 2 + R(w)`` to a proved relative gap of ``tol``, with at most ``max_iter`` evaluations."""
    slopes, heights, gram = np.empty((0, n_features)), np.empty(0), np.empty((0, 0))
    n_inactive = np.empty(0, dtype=int)
    point = best = np.zeros(n_features)
    value, lower, intercept = np.inf, 0.0, 0.0
    tol = max(tol, _SMALLEST_GAP)
    history: list[Iteration] = []
    for iteration in range(1, max_iter + 1):
        # 1. Evaluate the risk, and add its plane.
        plane = risk(point)
        point_value = 0.5 * float(point @ point) + plane.risk
        if point_value < value:
            best, intercept, value = point, plane.intercept, point_value
        slopes, heights = np.vstack([slopes, plane.slope]), np.append(heights, plane.height)
        products = slopes @ plane.slope
        gram = np.block([[gram, products[:-1, None]], [products]])
        # 2. Project the best point on the level set. The multipliers give a lower bound.
        at_best, square = slopes @ best, float(best @ best)
        excess = heights + at_best + 0.5 * square - (lower + _LEVEL * (value - lower))
        if excess.max() <= 0.0:  # only by rounding: the plane of the best point is above the level
            break
        try:
            dual, step = _project(gram + at_best[:, None] + at_best + square, excess)
        except (np.linalg.LinAlgError, RuntimeError):  # rounding errors in the factor, or in `nnls`
            break
        lower = min(max(lower, float(heights @ dual - 0.5 * dual @ gram @ dual)), value)
        history.append(Iteration(iteration, value, value - lower, float(iteration), 1))
        monitor(history[-1])
        if value - lower <= tol * value:
            break
        is_small = iteration > _STAGNATION and value - lower < _SMALL_GAP * value
        if is_small and value - lower > 0.99 * history[-_STAGNATION - 1].gap:
            break
        # 3. The next point, at most as far as the minimum -G'a of the lower bound.
        point = best - step * (best + dual @ slopes)
        # 4. Remove planes that are no longer active.
        n_inactive = np.where(dual > 0.0, 0, np.append(n_inactive, 0) + 1)
        kept = (n_inactive < _MAX_INACTIVE) | (excess == excess.max())
        slopes, heights, gram, n_inactive = slopes[kept], heights[kept], gram[np.ix_(kept, kept)], n_inactive[kept]
    gap = (value - lower) / value
    message = f"stopped after {iteration} iterations at a proved relative gap of {gap:.1e} (tol={tol:g})"
    return Result(np.append(best, intercept)[:, None], np.array([value]), iteration, gap <= tol, message, history)


def _project(gram: Array, excess: Array) -> tuple[Array, float]:
    """Return ``a`` on the simplex and ``t``: ``v = -t sum_j a_j s_j`` solves ``min |v|``, ``excess_j + s_j.v <= 0``.

    ``gram`` has the inner products of the ``s_j``. If ``t`` would be larger than 1, or there is no solution, it is 1.
    """
    scale, unit = float(np.trace(gram)) / len(gram) or 1.0, float(np.abs(excess).max())
    gram, excess = gram / scale, excess / unit
    # The ridge is for planes that depend on each other.
    square = gram + np.outer(excess, excess)
    factor = np.linalg.cholesky(square + _RIDGE * np.trace(square) * np.eye(len(square)))
    found, _ = nnls(factor.T, solve_triangular(factor, excess, lower=True), maxiter=100 * len(square))
    total, residual = float(found.sum()), 1.0 - float(excess @ found)
    return found / total, 1.0 if total * unit >= residual * scale else total * unit / (residual * scale)
