"""Kinks of the loss and of the penalty, approached along the central path of a logarithmic barrier.

The hinge has a kink where a score has no variance, an l1 penalty where a coefficient is zero. A barrier of weight
``mu`` rounds both off (`losses.SmoothedHinge`, `penalties`): the objective is smooth, and Newton's method takes about
as many steps however small ``mu`` is. The minimum with the barrier is above the one without it by at most twice the sum
of the weights ``mu``: ``barrier s_i`` for a row of weight ``s_i`` (so that a row of weight 2 is the row twice), and
``barrier sum_i s_i / n_features`` for a coefficient.

The barrier falls from stage to stage until that bound is half of ``tol``, relative to the objective. Each minimum is
the start of the next stage. Where the noise itself rounds the kink off, the path is left after its first stage: the
last one follows at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dropmargin.objective import MomentObjective, Objective, Point
from dropmargin.objective.base import shape_of
from dropmargin.objective.moment import MomentPoint
from dropmargin.solvers.newton import irls, newton
from dropmargin.solvers.orthant import orthant
from dropmargin.solvers.result import Iteration, Monitor, Result
from dropmargin.typing import Array

# The bound on the error of the first stage, relative to the objective, and by how much it falls from stage to stage.
_FIRST_ERROR = 0.05
_FIRST_ERROR_WARM = 1e-3
_FACTOR = 0.2
# The precision of a stage, as a share of its error, by number of features and some more: Newton's decrement is a
# certificate only where it is small against the weight of the single barrier.
_CENTRED, _AT_LEAST = 0.5, 100
# A last stage counts if the objective was at its start at most so many times what it is at its end.
_SIMILAR = 1.5
# A shortcut to the last stage starts only from a stage whose error is at most the one and at least the other: noise
# that is weaker than a smaller barrier leaves kinks that Newton's method cannot see beyond.
_NEAR, _SHORTCUT_ERROR = 0.5, 0.01
_SHORTCUT_TOL = 0.8
# Nor is there one if the noise is weak next to a margin of 1: the barrier of such a shortcut is never below this.
_SHORTCUT_BARRIER = 0.005
# The bound of the last stage, as a share of `tol`; below the other number it would be lost in rounding.
_LAST_ERROR = 0.5
_LEAST_ERROR = 1e-13
# The noise rounds the kink off if the share of rows with a score steadier than the smoothing is at most this.
_STEADY_SHARE = 0.01
# A shortcut that takes more iterations than this is given up.
_SHORTCUT_ITERATIONS = 10
# Objectives that differ by less are equal but for rounding.
_ROUNDING = 1e-9
_ZERO_ROUNDING = 1e-14

Solve = Callable[..., Result]


def follow_central_path(
    solve: Solve, objective: Any, start: Point, *, tol: float, max_iter: int, monitor: Monitor, warm: bool
) -> Result:
    """Minimise an objective with kinks by a solver that needs it smooth.

    An l1 penalty allows one output only.
    """
    history: list[Iteration] = []

    def record(entry: Iteration) -> None:
        # Before the last stage the objective is another one: the true one is reported, as last known.
        value = entry.objective if is_last else float(stage.value.sum())
        history.append(entry._replace(iteration=len(history) + 1, objective=value))
        monitor(history[-1])

    has_kink = isinstance(objective, MomentObjective) and objective.loss.kink > 0.0
    has_barrier = objective.penalty.l1 > 0.0 and solve is not orthant
    if has_kink and not warm:
        # Far from its kinks a hinge has little curvature: the first intercept is among them.
        start = objective.at(objective.starting_coef())
    stage, last = _Stage(objective, start, has_kink, has_barrier), max(_LAST_ERROR * tol, _LEAST_ERROR)
    may_shortcut = is_rounded = has_kink and not has_barrier
    is_shortcut = warm and may_shortcut
    if is_shortcut and solve is not irls:  # the majoriser needs no smoothing to descend
        is_shortcut = stage.allows_shortcut(stage.barrier(max(last, _SHORTCUT_ERROR)))
    fallback = stage.barrier(_FIRST_ERROR)
    barrier = stage.barrier(last if is_shortcut else max(last, _FIRST_ERROR_WARM if warm else _FIRST_ERROR))
    while True:
        # 1. Minimise with the barrier of this stage.
        smooth, begin = stage.smoothed(barrier)
        is_last = bool(np.all(barrier <= stage.barrier(last)))
        if is_shortcut:
            stage_tol = _SHORTCUT_TOL * tol
        else:
            stage_tol = stage.error(barrier) * (
                1.0 if is_rounded and not is_last else _CENTRED / (objective.n_features + _AT_LEAST)
            )
        left = max(1, max_iter - len(history))
        found = solve(
            smooth,
            begin,
            tol=stage_tol,
            max_iter=min(left, _SHORTCUT_ITERATIONS) if is_shortcut and solve in (newton, orthant) else left,
            monitor=record,
            warm=warm or bool(history),
            scale=np.abs(stage.value),
        )
        if is_shortcut and not found.converged and len(history) < max_iter:
            may_shortcut = is_shortcut = is_rounded = False
            barrier = np.maximum(stage.barrier(last), fallback)
            continue
        before, stage = stage, _Stage(objective, found.point or objective.at(found.coef), has_kink, has_barrier)
        # 2. Stop after the last stage, unless the objective that its tolerance was relative to was far too large.
        is_last = is_last and bool(np.all(np.abs(before.value) <= _SIMILAR * np.abs(stage.value)))
        if is_last or len(history) >= max_iter:
            break
        # 3. A smaller barrier.
        smallest = stage.barrier(last)
        may_shortcut = may_shortcut and stage.error(barrier) >= _SHORTCUT_ERROR
        is_rounded = may_shortcut and stage.allows_shortcut(barrier)
        is_shortcut = is_rounded and stage.error(barrier) <= _NEAR
        if solve is orthant and not is_rounded:
            break  # its steps are for smooth losses
        fallback = _FACTOR * barrier
        barrier = smallest if is_shortcut else np.maximum(smallest, fallback)
        if has_barrier:
            stage = stage.predicted(smooth, barrier)
    coef, value = stage.cleaned(smooth)
    converged = found.converged and is_last
    message = found.message
    if not converged and len(history) >= max_iter:
        gap = stage.error(barrier) + history[-1].gap / float(np.abs(stage.value).sum())
        message = (
            f"stopped after max_iter={max_iter} iterations at an estimated relative gap of {gap:.1e} (tol={tol:g})"
        )
    # With its barrier the last stage is a little below the objective itself.
    shown = [entry._replace(objective=max(entry.objective, float(value.sum()))) for entry in history]
    return Result(coef, value, len(history), converged, message, shown)


class _Stage:
    """A point on the path, and the objective without barrier there."""

    def __init__(self, objective: Any, point: Point, has_kink: bool, has_barrier: bool) -> None:
        self.objective = objective
        self.has_kink = has_kink
        self.has_barrier = has_barrier
        if isinstance(point, MomentPoint):
            self.point: Any = point.under(objective)
            self.value = objective.penalty.value(point.coef) + point.risk()
        else:
            self.point, self.value = point, objective.value(point.coef)
        self.weight = shape_of(objective.data).weight

    def barrier(self, error: float) -> Array:
        """Return the barrier that causes at most this error, relative to the objective, one number per column."""
        total = self.weight * (self.has_kink + self.has_barrier)
        return 0.5 * error / total * np.maximum(np.abs(self.value), np.finfo(float).tiny)

    def of_penalty(self, barrier: Array) -> float:
        """Return the weight of the barrier of a coefficient."""
        return float(barrier[0]) * self.weight / self.objective.n_features

    def error(self, barrier: Array) -> float:
        """Return the largest error that a barrier causes, relative to the objective."""
        return float(np.max(barrier / self.barrier(1.0)))

    def smoothed(self, barrier: Array) -> tuple[Objective, Point]:
        """Return the objective with a barrier, and the point of it."""
        changed: dict[str, Any] = {"is_stiff": not self.is_rounded_by_noise(barrier)}
        if self.has_kink:
            changed["smoothing"] = 2.0 * barrier
        if self.has_barrier:
            changed["penalty"] = replace(self.objective.penalty, barrier=self.of_penalty(barrier))
        smooth = replace(self.objective, **changed)
        if isinstance(self.point, MomentPoint):
            return smooth, self.point.under(smooth)
        return smooth, smooth.at(self.point.coef)

    def predicted(self, smooth: Objective, barrier: Array) -> _Stage:
        """Return a point nearer to the minimum for a smaller barrier, if the prediction of the penalty is of use."""
        coef = smooth.penalty.predict(self.point.coef, self.of_penalty(barrier))
        predicted = _Stage(self.objective, self.objective.at(coef), self.has_kink, self.has_barrier)
        # Features far from zero move all scores, which only another intercept would make good.
        return predicted if np.all(predicted.value <= self.value) else self

    def cleaned(self, smooth: Objective) -> tuple[Array, Array]:
        """Return the coefficients and the objective there, with exact zeros where the barrier left small numbers."""
        coef, value = self.point.coef, self.value
        if self.has_kink:
            coef, value = _constant_if_better(self.objective, coef, value)
        if self.has_barrier:
            size = smooth.penalty.barrier / self.objective.penalty.l1
            coef, value = _with_exact_zeros(self.objective, coef, value, size)
        return coef, value

    def is_rounded_by_noise(self, barrier: Array) -> bool:
        """Return whether the noise rounds off more than the barrier: nearly all scores vary by more than its width."""
        if self.has_barrier or not isinstance(self.point, MomentPoint):
            return False
        return bool(np.all(self.point.steady_share(2.0 * barrier) <= _STEADY_SHARE))

    def allows_shortcut(self, barrier: Array) -> bool:
        """Return whether the noise rounds off more than the barrier, and is not weak next to the margin."""
        return self.is_rounded_by_noise(np.maximum(barrier, _SHORTCUT_BARRIER * self.objective.loss.kink))


def _constant_if_better(objective: MomentObjective, coef: Array, value: Array) -> tuple[Array, Array]:
    """Return the coefficients, or only an intercept in columns where that is no worse.

    Under strong noise, or for a rare class, all coefficients zero and an intercept at the kink may be the optimum. The
    path approaches it without reaching it.
    """
    constant, constant_value = objective.constant_at_kink()
    better = constant_value <= value + _ROUNDING * np.abs(value)
    return np.where(better, constant, coef), np.where(better, constant_value, value)


def _with_exact_zeros(objective: Objective, coef: Array, value: Array, size: float) -> tuple[Array, Array]:
    """Return the coefficients with small ones set to zero, as long as that does not raise the objective.

    ``size`` is the order of magnitude that the barrier gives to a coefficient that is zero at the optimum.
    """
    limit = 10.0 * size
    while True:
        small = (np.abs(coef[:-1]) <= limit) & (coef[:-1] != 0.0)
        if small.any():
            cleaned = coef.copy()
            cleaned[:-1][small] = 0.0
            cleaned_value = objective.value(cleaned)
            if np.any(cleaned_value > value + _ZERO_ROUNDING * np.abs(value)):
                return coef, value
            coef, value = cleaned, cleaned_value
        if limit >= np.abs(coef[:-1]).max(initial=0.0):
            return coef, value
        limit *= 10.0
