"""The hinge loss has a kink where a score has no variance; the solvers approach it in steps of decreasing noise.

Adding a little noise of standard deviation ``eps`` to every score rounds the kink off. A first, rough solution at
``eps = 0.1`` shows whether the noise of the problem does that anyway; if so, the smoothing goes straight down to where
it no longer matters. If not (no noise, or very weak noise), it goes down by factors of ten, each solution the start of
the next. "No longer matters" is measured: at the solution, the smoothing must change ``J`` by less than ``tol / 10``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dropmargin.objective import MomentObjective
from dropmargin.objective.moment import MomentPoint
from dropmargin.solvers.result import Iteration, Monitor, Result
from dropmargin.typing import Array

_FIRST = 0.1
_FIRST_WARM = 1e-4
_FACTOR = 0.1
_LAST = 1e-12
# The noise rounds the kink off if fewer rows than this have a score that is steadier than the smoothing.
_STEADY_SHARE = 0.01

Solve = Callable[..., Result]


def solve_smoothed(
    solve: Solve, objective: MomentObjective, start: Array, *, tol: float, max_iter: int, monitor: Monitor, warm: bool
) -> Result:
    """Minimise an objective with a kink by a solver that needs it smooth."""
    history: list[Iteration] = []

    def record(entry: Iteration) -> None:
        history.append(entry._replace(iteration=len(history) + 1))
        monitor(history[-1])

    eps = (_FIRST_WARM if warm else _FIRST) * objective.loss.kink
    last = _LAST * objective.loss.kink
    coef, stage_tol, final, stiff = start, max(tol, 0.1), False, False
    while True:
        smooth = replace(objective, smoothing=eps, is_stiff=stiff)
        left = max(1, max_iter - len(history))
        result = solve(smooth, coef, tol=stage_tol, max_iter=left, monitor=record, warm=warm or coef is not start)
        coef = result.coef
        point = smooth.at(coef)
        stop = not result.converged and len(history) >= max_iter
        if stop or (final and (eps <= last or _negligible(point, eps, tol))):
            exact = objective.penalty.value(coef) + point.risk(0.0)
            return replace(result, objective=exact, n_iter=max(1, len(history)), history=history)
        if not final:
            while eps > last and not _negligible(point, eps, tol) and _rounded_by_noise(point, eps):
                eps *= _FACTOR
        if not _negligible(point, eps, tol) and eps > last and (final or not _rounded_by_noise(point, eps)):
            eps = max(last, eps * _FACTOR)
        final = eps <= last or _negligible(point, eps, tol)
        stiff = not _rounded_by_noise(point, eps)
        stage_tol = tol if final else max(tol, 1e-3)


def _negligible(point: MomentPoint, eps: float, tol: float) -> bool:
    """Whether smoothing by ``eps`` changes the objective by less than a tenth of ``tol``."""
    exact = point.risk(0.0)
    return bool(
        np.all(point.risk(eps) - exact <= 0.1 * tol * np.abs(point.objective.penalty.value(point.coef) + exact))
    )


def _rounded_by_noise(point: MomentPoint, eps: float) -> bool:
    return bool(np.all(point.share_below(eps) <= _STEADY_SHARE))
