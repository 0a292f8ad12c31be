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
# A warm start that takes longer than this is given up.
_WARM_ITERATIONS = 40
_FACTOR = 0.1
_LAST = 1e-12
_STAGE_TOL = 1e-3
# The noise rounds the kink off if fewer rows than this have a score that is steadier than the smoothing.
_STEADY_SHARE = 0.01
# A start is of no use if more rows than this have a noisy score so close to the kink.
_TIP, _MANY_AT_TIP = 0.05, 0.2
# Scores follow the steps; a deviation that has shrunk to nothing on the way is known to 1e-8 only, and so is the loss.
_SCORE_ROUNDING = 1e-9
# A label with less than this share of the weight is outweighed by far.
_LOPSIDED = 0.01

Solve = Callable[..., Result]


def solve_smoothed(
    solve: Solve,
    objective: MomentObjective,
    start: MomentPoint,
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    warm: bool,
) -> Result:
    """Minimise an objective with a kink by a solver that needs it smooth."""
    history: list[Iteration] = []

    def record(entry: Iteration) -> None:
        history.append(entry._replace(iteration=len(history) + 1))
        monitor(history[-1])

    last = _LAST * objective.loss.kink
    lopsided = is_lopsided(objective)
    # A start with many rows at the tip of the cone that noise makes of the kink (no weights to speak of, and an offset
    # among the kinks) would be hard to get away from: it is as good as none.
    warm = warm and not _at_the_tip(start)
    if warm:  # the start shows at once how much smoothing its noise needs
        point, eps = start, _less(start, _FIRST_WARM * objective.loss.kink, last, tol, at_once=True)
        final = eps <= last or _negligible(point, eps, tol)
        stage_tol, stiff = _stage_tol(tol, final, lopsided), not _rounded_by_noise(point, eps)
    else:
        point, eps, stage_tol, final, stiff = _cold_start(objective, tol)
    begun = False
    while True:
        # 1. Minimise under the present smoothing.
        smooth = replace(objective, smoothing=eps, is_stiff=stiff)
        left = max(1, max_iter - len(history))
        left = min(left, _WARM_ITERATIONS) if warm else left
        begin = point.under(smooth)
        # Where one label outweighs the other by far, the offset is put back among the kinks at every smoothing.
        begin = begin.at_best_offset() if lopsided else begin
        result = solve(smooth, begin, tol=stage_tol, max_iter=left, monitor=record, warm=warm or begun)
        begun = True
        if warm and not result.converged and len(history) < max_iter:
            warm = begun = False  # it has led nowhere
            point, eps, stage_tol, final, stiff = _cold_start(objective, tol)
            continue
        point = result.point if isinstance(result.point, MomentPoint) else smooth.at(result.coef)
        if lopsided:
            better = point.at_best_offset()
            if np.any(point.value - better.value > tol * np.abs(point.value)) and len(history) < max_iter:
                point = better
                continue
        point.look_under(0.0, eps, _FACTOR * eps)  # most likely all that is asked below, in one question
        # 2. Done, if that was the last smoothing, or if there is no time for another.
        if (final and (eps <= last or _negligible(point, eps, tol))) or len(history) >= max_iter:
            exact = objective.penalty.value(point.coef) + point.risk(0.0)
            done = result.converged and final
            coef, exact = _constant_if_better(objective, result.coef, exact)
            message = result.message if len(history) < max_iter or done else _stopped(history, max_iter, tol)
            return Result(coef, exact, len(history), done, message, history)
        # 3. Less smoothing: at once as little as the noise allows, else a step at a time.
        eps = _less(point, eps, last, tol, at_once=not final)
        final = eps <= last or _negligible(point, eps, tol)
        stage_tol = _stage_tol(tol, final, lopsided)
        stiff = not _rounded_by_noise(point, eps)


def _stopped(history: list[Iteration], max_iter: int, tol: float) -> str:
    gap = history[-1].gap / abs(history[-1].objective)
    return f"stopped after max_iter={max_iter} iterations at an estimated relative gap of {gap:.1e} (tol={tol:g})"


def _cold_start(objective: MomentObjective, tol: float) -> tuple[MomentPoint, float, float, bool, bool]:
    """Return the first point, smoothing and tolerance, and that this is neither the last stage nor a stiff one.

    Far from its kinks a hinge has no curvature to find a way by: begin with the offset among them.
    """
    eps = _FIRST * objective.loss.kink
    point = objective.at(replace(objective, smoothing=eps).starting_coef())
    return point, eps, max(tol, 0.1), False, False


def _stage_tol(tol: float, final: bool, lopsided: bool) -> float:
    """Return the tolerance of a stage; where one label is next to nothing, so is its share of the promised decrease."""
    return (0.01 * tol if lopsided else tol) if final else max(tol, _STAGE_TOL)


def is_lopsided(objective: MomentObjective) -> bool:
    """Whether one label outweighs the other by far, in any column."""
    weights = objective.label_weights()
    return bool(np.any(weights < _LOPSIDED * weights.sum(axis=0)))


def _constant_if_better(objective: MomentObjective, coef: Array, value: Array) -> tuple[Array, Array]:
    """Return the coefficients, or no weights at all in columns where that is no worse.

    Under strong noise, or for a rare class, no weights and an offset at the kink may be the optimum. By smoothing it
    is approached, but not reached.
    """
    constant, constant_value = objective.constant_at_kink()
    better = constant_value <= value + _SCORE_ROUNDING * np.abs(value)
    return np.where(better, constant, coef), np.where(better, constant_value, value)


def _less(point: MomentPoint, eps: float, last: float, tol: float, at_once: bool) -> float:
    """Return the next smoothing."""
    if at_once:
        while eps > last and not _negligible(point, eps, tol) and _rounded_by_noise(point, eps):
            eps *= _FACTOR
        if _negligible(point, eps, tol) or _rounded_by_noise(point, eps):
            return max(eps, last)
    return max(last, eps * _FACTOR)


def _negligible(point: MomentPoint, eps: float, tol: float) -> bool:
    """Whether smoothing by ``eps`` changes the objective by less than a tenth of ``tol``."""
    point.look_under(0.0, eps)
    exact = point.risk(0.0)
    scale = np.abs(point.objective.penalty.value(point.coef) + exact)
    return bool(np.all(point.risk(eps) - exact <= 0.1 * tol * scale))


def _at_the_tip(point: MomentPoint) -> bool:
    return bool(np.any(point.share_at_kink(_TIP * point.objective.loss.kink) > _MANY_AT_TIP))


def _rounded_by_noise(point: MomentPoint, eps: float) -> bool:
    return bool(np.all(point.share_below(eps) <= _STEADY_SHARE))
