"""Inexact Newton steps after a start by re-weighted least squares; and the paper's IRLS, the same loop without Newton.

The majoriser is far from tight near the optimum (its tail is linear), the Hessian of the hinge loss vanishes far from
it: so the first steps use the one and the rest the other. Both systems are solved by conjugate gradients. All columns
take their steps together; a column that has converged leaves the block.

The gap ``J - J*`` before a step is half the squared Newton decrement, the decrease that the model promises: on review
text that was within 15 % of the truth. After the step it is by how much the step missed the promise, and what the inner
solve left undone; or, if the promise was kept at least by half, what the same curvature promises for the new gradient.
The stop rule is relative to ``J``, so warm starts are safe.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective import Curvature, Line, Objective, Point
from dropmargin.solvers import conjugate_gradient
from dropmargin.solvers.result import Iteration, Monitor, Result
from dropmargin.typing import Array

_MAJORISER_STEPS = 2
_INNER_ITERATIONS = 250
_ARMIJO = 1e-4
_HALVINGS = 30
_DOUBLINGS = 20
# A decrease by more than so many times the predicted one asks for a longer step; twice is a straight line.
_FLATTER = 1.5
# Relative differences of the objective below this are rounding.
_ROUNDING = 1e-13
# An inner solve may leave this share of the gap that is asked for.
_LEAVE = 0.5
# The curvature changes along a step, and its lowest part may not have been met: what it promises is taken times this.
_CAUTION = 1.5
# It is worth nothing after a step that missed its own promise by more than this share.
_KEPT_PROMISE = 0.5
# Below this relative gap, steps that no longer help are the work of rounding, not of the problem.
_PRECISION_GAP = 1e-8


def newton(
    objective: Objective,
    start: Point,
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    warm: bool,
    scale: Array | None = None,
) -> Result:
    """Minimise by two steps on the majoriser (none from a warm start, or where there is none), then Newton steps."""
    first = _MAJORISER_STEPS if objective.has_weights and not warm else 0

    def model(point: Point, iteration: int) -> tuple[Curvature, float]:
        if iteration <= first:
            return point.majoriser(), 0.5
        return point.hessian(direct=objective.is_stiff), 0.2

    return descend(objective, start, model, tol=tol, max_iter=max_iter, monitor=monitor, n_rough=first, scale=scale)


def irls(
    objective: Objective,
    start: Point,
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    warm: bool,
    scale: Array | None = None,
) -> Result:
    """Minimise by iteratively re-weighted least squares, the paper's two steps.

    The E-step is the majoriser's weights, the M-step its minimum: by a Cholesky factor or Woodbury's identity where the
    shape allows, and by conjugate gradients otherwise. It always descends and needs no step size; its tail is linear.
    """

    def model(point: Point, iteration: int) -> tuple[Curvature, float]:
        return point.majoriser(direct=True), 1e-2

    return descend(objective, start, model, tol=tol, max_iter=max_iter, monitor=monitor, linear=True, scale=scale)


def descend(
    objective: Objective,
    start: Point,
    model: Callable[[Point, int], tuple[Curvature, float]],
    *,
    tol: float,
    max_iter: int,
    monitor: Monitor,
    n_rough: int = 0,
    linear: bool = False,
    scale: Array | None = None,
) -> Result:
    """Minimise by steps to the minimum of a quadratic model.

    Parameters
    ----------
    model : callable
        Point and iteration number to the curvature and the relative tolerance of the inner solve.
    n_rough : int
        The first steps, whose promise says nothing of the gap.
    linear : bool
        Whether convergence is linear, so that the gap is many times what one step gains.
    scale : ndarray of shape (n_columns,), default=None
        What ``tol`` is relative to; by default the objective itself.
    """
    point, n_columns = start, start.coef.shape[1]
    coef, values = point.coef.copy(), np.full(n_columns, np.nan)
    gaps = np.full(n_columns, np.inf)
    columns = np.arange(n_columns)
    progress = _Progress(tol, n_columns, linear)
    may_grow = scale is not None and not linear
    history: list[Iteration] = []
    for iteration in range(1, max_iter + 1):
        # 1. The model: a parabola above the objective, or its second-order expansion. The value and the gradient of the
        # start are asked for after it, as they come with it.
        curvature, rtol = model(point, iteration)
        # 2. The direction, and the decrease that the model promises.
        size = np.abs(point.value) if scale is None else scale[columns]
        enough = _LEAVE * tol * size
        largest = size if scale is None else np.inf
        direction, left, lowest = conjugate_gradient.solve(curvature, -point.gradient, rtol, _INNER_ITERATIONS, enough)
        left = np.where(left >= 0.0, left, np.inf)
        promised = _promise(point, direction)
        # 3. The step. Where a hinge has next to no curvature, its expansion knows nothing: it promises more than there
        # is (no loss is negative), or no step along it descends. There the majoriser, which always descends, steps in.
        broken = np.isinf(left) & ~direction.any(axis=0)
        modelled = (promised >= 0.0) & (promised <= largest) & ~broken
        _majorise(objective, point, ~modelled, direction, left, enough)
        line = point.along(direction)
        step, after = search_line(line, point, _promise(point, direction), size, may_grow)
        modelled &= step > 0.0
        if _majorise(objective, point, step == 0.0, direction, left, enough):
            line = point.along(direction)
            step, after = search_line(line, point, _promise(point, direction), size, may_grow)
        promised = _promise(point, direction)
        lost = np.isinf(left) & ~direction.any(axis=0)
        step, after = np.where(lost, 0.0, step), np.where(lost, point.value, after)
        before, point = point.value, line.point(step)
        coef[:, columns], values[columns] = point.coef, after
        # 4. How far it is still to go; columns that have arrived leave. The new gradient is asked only if it matters.
        rough = iteration <= n_rough
        ahead = np.full(len(columns), np.inf)
        # The diagonal that preconditions losses through the MGF says too little of the curvature for that.
        may_look_ahead = objective.has_weights and not (linear or rough)
        if may_look_ahead and np.any(np.abs(promised - (before - after)) + left > tol * size):
            ahead[modelled] = conjugate_gradient.promise(curvature, point.gradient, lowest)[modelled]
        # A step longer than the model's, or a negative number, which is rounding, say that the model is wrong.
        ahead = np.where((step > 1.0) | ~(ahead >= 0.0), np.inf, ahead)
        gaps[columns] = progress.gap(before, promised, after, left, ahead, rough)
        history.append(Iteration(iteration, float(values.sum()), float(gaps.sum()), objective.n_passes, len(columns)))
        monitor(history[-1])
        done = progress.done(size, gaps[columns], step == 0.0)
        if done.all():
            whole = point if len(columns) == n_columns else None
            return Result(coef, values, iteration, progress.arrived, progress.message, history, whole)
        if done.any():
            columns, point = columns[~done], point.select(~done)
            progress.keep(~done)
    worst = float(np.max(gaps / (np.abs(values) if scale is None else scale)))
    message = f"stopped after max_iter={max_iter} iterations at an estimated relative gap of {worst:.1e} (tol={tol:g})"
    return Result(coef, values, max_iter, False, message, history, point if len(columns) == n_columns else None)


def _promise(point: Point, direction: Array) -> Array:
    """Return the decrease that a quadratic model promises for the step to its minimum."""
    return -0.5 * column_dots(point.gradient, direction)


def _majorise(objective: Objective, point: Point, columns: Array, direction: Array, left: Array, enough: Array) -> bool:
    """Put the majoriser's direction in place of these columns', if there are any; return whether there were."""
    if not (objective.has_weights and columns.any()):
        return False
    part = point.select(columns)
    direction[:, columns], left[columns], _ = conjugate_gradient.solve(
        part.majoriser(), -part.gradient, 0.1, _INNER_ITERATIONS, enough[columns]
    )
    return True


def search_line(line: Line, point: Point, promised: Array, size: Array, may_grow: bool) -> tuple[Array, Array]:
    """Return step lengths that decrease the objective, 0 where none was found; and the values there.

    Steps are halved from 1 until they descend. Where a whole step decreases the objective by far more than the model
    predicts, the objective is flatter than the model, and steps are doubled as long as that pays. That is for
    objectives with a barrier (``may_grow``): others may have no curvature at all where a long step ends.
    """
    step = np.ones_like(point.value)
    ceiling = point.value + _ROUNDING * size
    with np.errstate(invalid="ignore", over="ignore"):
        value = line.value(step)
        for _ in range(_HALVINGS):
            failed = ~(value <= ceiling - 2.0 * _ARMIJO * step * promised)
            if not failed.any():
                break
            step = np.where(failed, 0.5 * step, step)
            value = line.value(step)
        else:
            step, value = np.where(failed, 0.0, step), np.where(failed, point.value, value)
        grows = may_grow & (step == 1.0) & (point.value - value > _FLATTER * promised)
        for _ in range(_DOUBLINGS):
            if not grows.any():
                break
            longer = np.where(grows, 2.0 * step, step)
            trial = line.value(longer)
            grows &= trial < value - _ROUNDING * size
            step, value = np.where(grows, longer, step), np.where(grows, trial, value)
    return step, value


class _Progress:
    """Estimates each column's gap and says when to stop."""

    def __init__(self, tol: float, n_columns: int, linear: bool) -> None:
        self.tol = tol
        self.linear = linear
        self.previous = np.full(n_columns, np.inf)
        self.idle = np.zeros(n_columns, dtype=int)
        self.arrived = True
        self.message = f"reached a relative gap of at most tol={tol:g}"

    def gap(self, before: Array, promised: Array, after: Array, left: Array, ahead: Array, rough: bool) -> Array:
        """Return the estimated gap after a step.

        It is by how much the step missed its promise, and what the inner solve left; or what the curvature of the step
        promises for the gradient after it, ``ahead``, if that is less.
        """
        if self.linear:
            # Gains that shrink by a factor f per step add up to gain * f / (1 - f); f still rises: hence twice that.
            factor = np.clip(promised / self.previous, 0.0, 1.0 - 1e-6)
            known = np.isfinite(self.previous) | (promised == 0.0)  # one step tells no factor
            gap = np.where(known, 2.0 * promised * factor / (1.0 - factor) + left, np.inf)
        else:
            missed = np.abs(promised - (before - after))
            gap = missed + left
            gap = np.where(missed <= _KEPT_PROMISE * promised, np.minimum(gap, _CAUTION * ahead), gap)
        self.idle = np.where(promised < 0.7 * self.previous, 0, self.idle + 1)
        self.previous = np.where(promised > 0.0, promised, np.finfo(float).tiny)
        return np.full_like(gap, np.inf) if rough else gap

    def done(self, scale: Array, gap: Array, stuck: Array) -> Array:
        """Return which columns are to stop, and note why; ``stuck`` are those for which no step was found."""
        arrived = gap <= self.tol * scale
        # Steps that promise no less than the ones before, far below any practical tolerance: rounding has the word.
        exhausted = ((self.idle >= 4) | stuck) & (gap <= _PRECISION_GAP * scale)
        if (exhausted & ~arrived).any() and self.arrived:
            self.message = "reached the limit of floating-point precision"
        failed = stuck & ~arrived & ~exhausted
        if failed.any():
            worst = float(np.max(gap[failed] / scale[failed]))
            self.arrived = False
            self.message = f"no step decreased the objective, at an estimated relative gap of {worst:.1e}"
        return arrived | exhausted | stuck

    def keep(self, columns: Array) -> None:
        self.previous, self.idle = self.previous[columns], self.idle[columns]
