"""Kinks of the loss and of the penalty, approached along the central path of a logarithmic barrier.

The hinge has a kink where a score has no variance, an l1 penalty where a coefficient is zero. A barrier of weight
``mu`` smooths both (`losses.SmoothedHinge`, `penalties`), and Newton's method takes about as many steps however small
``mu`` is. The minimum with the barrier is above the one without it by at most twice the sum of the weights ``mu``:
``barrier s_i`` for a row of weight ``s_i`` (so that a row of weight 2 is the row twice), and
``barrier sum_i s_i / n_features`` for a coefficient.

The barrier decreases from stage to stage until that bound is half of ``tol``, relative to the objective. Each minimum
is the start of the next stage. Where the noise itself smooths the kink, the last stage follows the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dropmargin.data import target_summary
from dropmargin.objective import MomentObjective, Objective, Point
from dropmargin.objective.moment import MomentPoint
from dropmargin.solvers.newton import irls, newton
from dropmargin.solvers.orthant import orthant
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

# The bound on the error of the first stage, relative to the objective, and its decrease from stage to stage.
_FIRST_ERROR = 0.05
_FIRST_ERROR_WARM = 1e-3
_FACTOR = 0.2
# The tolerance of the last stage, as a share of its error, for this many features more than there are: Newton's
# decrement is a certificate only where it is small against the weight of a single barrier.
_CENTRED, _AT_LEAST = 0.5, 100
# That of the other stages, each of which is the start of the next.
_NEARLY_CENTRED = 0.1
# The last stage is repeated if the objective at its start was more than so many times that at its end.
_SIMILAR = 1.5
# A shortcut to the last stage starts from a stage with an error in this interval: noise weaker than a smaller barrier
# leaves kinks that Newton's method cannot see beyond.
_LEAST_SHORTCUT_ERROR, _MOST_SHORTCUT_ERROR = 0.01, 0.5
_SHORTCUT_TOL = 0.8
# There is no shortcut if the noise is weak next to a margin of 1: its barrier counts as at least this.
_SHORTCUT_BARRIER = 0.005
# A shortcut that takes more iterations than this is abandoned.
_SHORTCUT_ITERATIONS = 10
# With Hessians of a subsample, whose steps are less accurate, it may take so many more.
_SAMPLED_ITERATIONS = 5
# The bound of the last stage, as a share of `tol`, and at least the other number, which is near rounding.
_LAST_ERROR = 0.5
_LEAST_ERROR = 1e-13
# The noise smooths the kink if at most this share of the rows has scores that vary by less than the smoothing.
_STEADY_SHARE = 0.01
# Objectives with a smaller relative difference are equal up to rounding.
_ROUNDING = 1e-9
_ZERO_ROUNDING = 1e-14

Method = Callable[[Any, Any, Options], Result]


def follow_central_path(method: Method, objective: Any, start: Point, options: Options) -> Result:
    """Minimise an objective with kinks by a method for smooth ones; an l1 penalty allows one output only."""
    path = _Path(method, objective, start, options)
    if not path.stage.value.any():  # no loss is negative, and a barrier is relative to the objective
        return Result(path.stage.point.coef, path.stage.value, 0, True, "the objective is zero at the start")
    while True:
        # 1. Minimise with the barrier of this stage.
        smooth, begin = path.stage.smoothed(path.barrier)
        found = method(smooth, begin, path.stage_options())
        if path.is_shortcut and not found.converged and path.n_left > 0:
            path.abandon_shortcut()
            continue
        before, is_last = path.stage, path.is_last
        path.stage = path.stage_at(found.point or objective.at(found.coef))
        # 2. Stop after the last stage, unless the objective that its tolerance was relative to was far too large.
        # Where steps within an orthant fail, another method takes over.
        is_last = is_last and bool(np.all(np.abs(before.value) <= _SIMILAR * np.abs(path.stage.value)))
        if is_last or path.n_left <= 0 or (method is orthant and not found.converged):
            break
        path.decrease_barrier(smooth)
    coef, value = path.stage.cleaned(smooth)
    converged, message = found.converged and is_last, found.message
    if not converged and path.n_left <= 0:
        gap = path.stage.error(path.barrier) + path.history[-1].gap / float(np.abs(path.stage.value).sum())
        message = (
            f"stopped after max_iter={options.max_iter} iterations at an estimated relative gap of {gap:.1e} "
            f"(tol={options.tol:g})"
        )
    # With its barrier the last stage is a little below the objective itself.
    history = [entry._replace(objective=max(entry.objective, float(value.sum()))) for entry in path.history]
    return Result(coef, value, len(history), converged, message, history)


class _Path:
    """The present stage of a central path, its barrier, and whether it is a shortcut to the last one."""

    def __init__(self, method: Method, objective: Any, start: Point, options: Options) -> None:
        self.method, self.objective, self.options = method, objective, options
        self.history: list[Iteration] = []
        self.has_kink = isinstance(objective, MomentObjective) and objective.loss.kink > 0.0
        self.has_barrier = objective.penalty.l1 > 0.0 and method is not orthant
        if self.has_kink and not options.warm and not objective.loss.suits_regression:
            # Far from its kinks a hinge has little curvature: the first intercept is between them.
            start = objective.at(objective.starting_coef())
        self.stage = _Stage(objective, start, self.has_kink, self.has_barrier)
        self.last_error = max(_LAST_ERROR * options.tol, _LEAST_ERROR)
        self.may_shortcut = self.is_smoothed_by_noise = self.has_kink and not self.has_barrier
        self.is_shortcut = options.warm and self.may_shortcut
        if self.is_shortcut and method is not irls:  # the majoriser needs no smoothing to descend
            self.is_shortcut = self.stage.allows_shortcut(
                self.stage.barrier(max(self.last_error, _LEAST_SHORTCUT_ERROR))
            )
        first = _FIRST_ERROR_WARM if options.warm else _FIRST_ERROR
        self.barrier = self.stage.barrier(self.last_error if self.is_shortcut else max(self.last_error, first))
        self.fallback = self.stage.barrier(_FIRST_ERROR)

    @property
    def n_left(self) -> int:
        """Iterations that are left."""
        return self.options.max_iter - self.options.n_before - len(self.history)

    @property
    def is_last(self) -> bool:
        """Whether the barrier is that of the last stage."""
        return bool(np.all(self.barrier <= self.stage.barrier(self.last_error)))

    def stage_options(self) -> Options:
        """Return the options of this stage."""
        is_last, value = self.is_last, float(self.stage.value.sum())

        def record(entry: Iteration) -> None:
            # Before the last stage the objective is another one: the last known value of the true one is reported.
            shown = entry.objective if is_last else value
            number = self.options.n_before + len(self.history) + 1
            self.history.append(entry._replace(iteration=number, objective=shown))
            self.options.monitor(self.history[-1])

        max_iter = max(1, self.n_left)
        if self.is_shortcut:
            tol = _SHORTCUT_TOL * self.options.tol
            most = _SHORTCUT_ITERATIONS + _SAMPLED_ITERATIONS * self.objective.has_subsample
            max_iter = min(max_iter, most) if self.method in (newton, orthant) else max_iter
        else:
            tol = self.stage.error(self.barrier)
            if is_last and not self.options.is_rough:
                tol *= _CENTRED / (self.objective.n_penalised + _AT_LEAST)
            elif not (self.is_smoothed_by_noise or self.options.is_rough):
                tol *= _NEARLY_CENTRED
        warm = self.options.warm or bool(self.history)
        return Options(
            tol, max_iter, record, warm=warm, is_single=self.options.is_single, scale=np.abs(self.stage.value)
        )

    def stage_at(self, point: Point) -> _Stage:
        """Return the stage that ends at a point; what the next one needs to know is part of the same request."""
        likely = [_FACTOR * self.barrier]
        if self.has_kink:
            likely.append(_shortcut_barrier(self.objective, self.barrier))
        return _Stage(self.objective, point, self.has_kink, self.has_barrier, likely)

    def abandon_shortcut(self) -> None:
        self.may_shortcut = self.is_shortcut = self.is_smoothed_by_noise = False
        self.barrier = np.maximum(self.stage.barrier(self.last_error), self.fallback)

    def decrease_barrier(self, smooth: Objective) -> None:
        """Choose the barrier of the next stage."""
        stage, error = self.stage, self.stage.error(self.barrier)
        self.may_shortcut = self.may_shortcut and error >= _LEAST_SHORTCUT_ERROR
        self.is_smoothed_by_noise = self.may_shortcut and stage.allows_shortcut(self.barrier)
        self.is_shortcut = self.is_smoothed_by_noise and error <= _MOST_SHORTCUT_ERROR
        self.fallback = _FACTOR * self.barrier
        last = stage.barrier(self.last_error)
        self.barrier = last if self.is_shortcut else np.maximum(last, self.fallback)
        if self.has_barrier:
            self.stage = stage.predicted(smooth, self.barrier)


class _Stage:
    """A point on the path, and the objective without barrier there.

    ``likely`` are barriers for which `is_smoothed_by_noise` may be called: it is found out by the same request.
    """

    def __init__(
        self, objective: Any, point: Point, has_kink: bool, has_barrier: bool, likely: Sequence[Array] = ()
    ) -> None:
        self.objective = objective
        self.has_kink = has_kink
        self.has_barrier = has_barrier
        self._smoothed: list[tuple[Array, bool]] = []  # barriers, and whether the noise smooths more
        if isinstance(point, MomentPoint):
            self.point: Any = point.with_objective(objective)
            loss, shares = point.without_smoothing([2.0 * barrier for barrier in likely])
            is_smoothed = [bool(np.all(share <= _STEADY_SHARE)) for share in shares]
            self._smoothed = list(zip(likely, is_smoothed, strict=True))
            self.value = objective.penalty.value(point.coef) + loss
        else:
            self.point, self.value = point, objective.value(point.coef)
        self.weight = target_summary(objective.data).weight

    def barrier(self, error: float) -> Array:
        """Return the barrier that causes at most this error, relative to the objective, one number per output."""
        total = self.weight * (self.has_kink + self.has_barrier)
        return 0.5 * error / total * np.maximum(np.abs(self.value), np.finfo(float).tiny)

    def of_penalty(self, barrier: Array) -> float:
        """Return the weight of the barrier of a coefficient."""
        return float(barrier[0]) * self.weight / self.objective.n_penalised

    def error(self, barrier: Array) -> float:
        """Return the largest error that a barrier causes, relative to the objective."""
        return float(np.max(barrier / self.barrier(1.0)))

    def smoothed(self, barrier: Array) -> tuple[Objective, Point]:
        """Return the objective with a barrier, and the point of it."""
        changed: dict[str, Any] = {"is_stiff": self.is_stiff(barrier)}
        if self.has_kink:
            changed["smoothing"] = 2.0 * barrier
        if self.has_barrier:
            changed["penalty"] = replace(self.objective.penalty, barrier=self.of_penalty(barrier))
        smooth = replace(self.objective, **changed)
        if isinstance(self.point, MomentPoint):
            return smooth, self.point.with_objective(smooth)
        return smooth, smooth.at(self.point.coef)

    def predicted(self, smooth: Objective, barrier: Array) -> _Stage:
        """Return a point nearer to the minimum for a smaller barrier, if the penalty's prediction is an improvement."""
        coef = smooth.penalty.predict(self.point.coef, self.of_penalty(barrier))
        predicted = _Stage(self.objective, self.objective.at(coef), self.has_kink, self.has_barrier)
        # Coefficients of features far from zero move all scores, which only another intercept would make good.
        return predicted if np.all(predicted.value <= self.value) else self

    def cleaned(self, smooth: Objective) -> tuple[Array, Array]:
        """Return the coefficients and the objective there, with exact zeros where the barrier left small numbers."""
        coef, value = self.point.coef, self.value
        if self.has_kink and not self.objective.loss.suits_regression:
            coef, value = _constant_if_better(self.objective, coef, value)
        if self.has_barrier:
            size = smooth.penalty.barrier / self.objective.penalty.l1
            coef, value = _with_exact_zeros(self.objective, coef, value, size)
        return coef, value

    def is_stiff(self, barrier: Array) -> bool:
        """Return whether conjugate gradients need a factorisation.

        At zero coefficients scores do not vary yet; the first barrier is large enough without one if there is noise.
        """
        is_noisy_start = self.has_kink and not self.has_barrier and not self.point.coef[:-1].any()
        return not (is_noisy_start and not self.objective.variance.is_zero) and not self.is_smoothed_by_noise(barrier)

    def is_smoothed_by_noise(self, barrier: Array) -> bool:
        """Return whether the noise smooths more than the barrier: nearly all scores vary by more than its width."""
        if self.has_barrier or not isinstance(self.point, MomentPoint):
            return False
        for known, is_smoothed in self._smoothed:
            # Noise that smooths more than a barrier does so for a smaller one.
            if np.array_equal(barrier, known) or (is_smoothed and np.all(barrier <= known)):
                return is_smoothed
        return bool(np.all(self.point.without_smoothing([2.0 * barrier])[1][0] <= _STEADY_SHARE))

    def allows_shortcut(self, barrier: Array) -> bool:
        """Return whether the noise smooths more than the barrier, and is not weak next to the margin."""
        return self.is_smoothed_by_noise(_shortcut_barrier(self.objective, barrier))


def _shortcut_barrier(objective: Any, barrier: Array) -> Array:
    return np.maximum(barrier, _SHORTCUT_BARRIER * objective.loss.kink)


def _constant_if_better(objective: MomentObjective, coef: Array, value: Array) -> tuple[Array, Array]:
    """Return the coefficients, or only an intercept for outputs where that is no worse.

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
    limit, n = 10.0 * size, objective.penalty.n_intercepts
    while True:
        small = (np.abs(coef[:-n]) <= limit) & (coef[:-n] != 0.0)
        if small.any():
            cleaned = coef.copy()
            cleaned[:-n][small] = 0.0
            cleaned_value = objective.value(cleaned)
            if np.any(cleaned_value > value + _ZERO_ROUNDING * np.abs(value)):
                return coef, value
            coef, value = cleaned, cleaned_value
        if limit >= np.abs(coef[:-n]).max(initial=0.0):
            return coef, value
        limit *= 10.0
