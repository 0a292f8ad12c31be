"""Inexact Newton steps after two steps on the majoriser; and the paper's IRLS, the same loop on the majoriser alone.

The majoriser is far from tight near the optimum, where IRLS converges linearly; the Hessian of the hinge loss vanishes
far from it. So the first two steps minimise the majoriser, and all others the second-order expansion. Both systems are
solved by preconditioned conjugate gradients. All outputs take their steps together; converged outputs leave the loop.

The gap ``J - J*`` before a step is estimated by the predicted decrease, half the squared Newton decrement: on review
text it was within 15 % of the gap. The gap after the step is estimated by the difference between predicted and actual
decrease plus what conjugate gradients left; or, if the actual decrease was at least half of the predicted one, by the
decrease that the same curvature predicts for the new gradient. ``tol`` is relative to ``J``, so a warm start is safe.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective import Curvature, Objective, Point
from dropmargin.solvers import conjugate_gradient
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

_MAJORISER_STEPS = 2
_ARMIJO = 1e-4
_HALVINGS = 30
_DOUBLINGS = 20
# An actual decrease of more than so many times the predicted one asks for a longer step; twice is a straight line.
_FLATTER = 1.5
# Relative differences of the objective below this are rounding.
_ROUNDING = 1e-13
# Conjugate gradients may leave this share of the tolerance.
_INNER_SHARE = 0.5
# The curvature changes along a step, and its lowest eigenvalue is not known exactly: a safety factor.
_SAFETY = 1.5
# The curvature of a step is not used for the new gradient if the actual decrease differs by more than this share.
_MODEL_ERROR = 0.5
# Hessians are no longer estimated from a subsample if a predicted decrease is more than this share of the previous one.
_SLOW = 0.5
# Above this relative gap, the steps of coupled classes are rough.
_FAR_GAP = 1e-2
# Below this relative gap, predicted decreases that stagnate show that working precision is reached.
_PRECISION_GAP = 1e-8
_STAGNATION = 0.7
_STAGNANT_STEPS = 4
# So many steps in turn without a decrease of the objective are no progress, however small its gap should become.
_FLAT_STEPS = 10


def irls(objective: Objective, start: Point, options: Options) -> Result:
    """Minimise by iteratively re-weighted least squares, the paper's algorithm.

    The E-step computes the weights of the majoriser, the M-step its minimum: by a Cholesky factor or Woodbury's
    identity where the shape of the data allows, else by conjugate gradients. It descends without a step size, and
    converges linearly.
    """
    return newton(objective, start, options, is_irls=True)


def newton(objective: Objective, start: Point, options: Options, is_irls: bool = False) -> Result:
    """Minimise a smooth objective; ``is_irls`` minimises the majoriser in every step."""
    state = _State(start, options, is_irls)
    state.is_sampled = objective.has_subsample and options.warm and not (is_irls or objective.is_stiff)
    n_majoriser = 0 if options.warm or not objective.has_quadratic_bound else _MAJORISER_STEPS
    for iteration in range(1, options.max_iter + 1):
        point, is_first = state.point, iteration <= n_majoriser and not is_irls
        # 1. Quadratic model: the majoriser at first, then the Hessian. Value and gradient are computed with it.
        if is_first or is_irls:
            model, rtol = point.majoriser(direct=is_irls), 0.01 if is_irls else 0.5
        elif state.is_sampled:
            model, rtol = point.sampled_hessian(), 0.2
        else:
            model, rtol = point.hessian(direct=objective.is_stiff or objective.has_cheap_hessian), 0.2
            if objective.has_coupled_classes and np.any(state.gaps > _FAR_GAP * state.scale()):
                rtol = 0.5  # products cost more than steps
        # 2. Direction: the approximate minimum of the model.
        step = _Step.solve(model, point, rtol, state.atol(), options.max_inner)
        # 3. Line search. Fall back to the majoriser if the predicted decrease exceeds the objective (no loss is
        # negative), or if no step length decreases the objective.
        step.replace_by_majoriser(objective, point, ~step.is_plausible(state.largest_decrease()), state)
        length, trial = search_line(point, step, state.scale(), state.may_grow)
        failed = length == 0.0
        if step.replace_by_majoriser(objective, point, failed, state):
            length, trial = search_line(point, step, state.scale(), state.may_grow)
        # 4. Relative gap; converged outputs leave the loop.
        state.advance(iteration, step, length, trial, is_first, objective)
        if state.n_active == 0:
            return state.result(iteration)
    return state.unconverged()


class _Step:
    """The minimum of a quadratic model of each output.

    Attributes
    ----------
    model : Curvature
    direction : ndarray of shape (n_features + 1, n_outputs)
    remaining : ndarray of shape (n_outputs,)
        The decrease that conjugate gradients left; infinite where they broke down.
    lowest : ndarray of shape (n_outputs,)
        The lowest Ritz value of the preconditioned model.
    predicted : ndarray of shape (n_outputs,)
        The decrease that the model predicts.
    is_from_model : boolean ndarray of shape (n_outputs,)
        Where the direction is the model's, and not that of the majoriser in its place.
    rejected : ndarray of shape (n_outputs,)
        The gap by the model where it is not; infinite if the model is not plausible. A short step of the majoriser,
        which is far from tight, proves nothing.
    """

    def __init__(self, model: Curvature, direction: Array, remaining: Array, lowest: Array, predicted: Array) -> None:
        self.model = model
        self.direction = direction
        self.remaining = remaining
        self.lowest = lowest
        self.predicted = predicted
        self.is_from_model = np.ones(len(predicted), dtype=bool)
        self.rejected = np.full(len(predicted), np.inf)

    @classmethod
    def solve(cls, model: Curvature, point: Point, rtol: float, atol: Array, max_inner: int) -> _Step:
        right = -point.gradient
        direction, remaining, lowest = conjugate_gradient.solve(model, right, rtol, max_inner, atol)
        remaining = np.where(remaining >= 0.0, remaining, np.inf)
        return cls(model, direction, remaining, lowest, _predicted_decrease(point, direction))

    @property
    def is_broken(self) -> Array:
        """Where conjugate gradients found no direction."""
        return np.isinf(self.remaining) & ~self.direction.any(axis=0)

    def is_plausible(self, largest: Array | float) -> Array:
        """Return where the predicted decrease is between zero and the largest possible one."""
        return (self.predicted >= 0.0) & (self.predicted <= largest) & ~self.is_broken

    def replace_by_majoriser(self, objective: Objective, point: Point, outputs: Array, state: _State) -> bool:
        """Take the majoriser's direction for these outputs; return whether anything changed."""
        is_usable = outputs & self.is_from_model & self.is_plausible(state.largest_decrease())
        self.rejected[is_usable] = (self.predicted + self.remaining)[is_usable]
        self.is_from_model &= ~outputs
        if not (objective.has_quadratic_bound and outputs.any()):
            return False
        part = point.select(outputs)
        other = _Step.solve(part.majoriser(), part, 0.1, state.atol()[outputs], state.options.max_inner)
        self.direction[:, outputs] = other.direction
        self.remaining[outputs], self.predicted[outputs] = other.remaining, other.predicted
        return True


def _predicted_decrease(point: Point, direction: Array) -> Array:
    """Return the decrease that a quadratic model predicts for the step to its minimum."""
    return -0.5 * column_dots(point.gradient, direction)


def search_line(point: Point, step: _Step, scale: Array, may_grow: bool) -> tuple[Array, Point]:
    """Return step lengths that decrease the objective, 0 where there is none, and the point there.

    Lengths are halved from 1 until the objective decreases. Where a full step decreases the objective by far more than
    the model predicts, lengths are doubled as long as that decreases it further. That is for objectives with a barrier
    (``may_grow``): others may have no curvature at all where a long step ends.
    """
    length = np.where(step.is_broken, 0.0, 1.0)
    upper = point.value + _ROUNDING * scale

    def at(length: Array) -> Point:
        return point.objective.at(point.coef + length * step.direction)

    with np.errstate(invalid="ignore", over="ignore"):
        trial = at(length)
        for _ in range(_HALVINGS):
            failed = ~(trial.value <= upper - 2.0 * _ARMIJO * length * step.predicted) & (length > 0.0)
            if not failed.any():
                break
            length = np.where(failed, 0.5 * length, length)
            trial = at(length)
        else:
            length = np.where(failed, 0.0, length)
            trial = at(length)
        grows = may_grow & (length == 1.0) & (point.value - trial.value > _FLATTER * step.predicted)
        for _ in range(_DOUBLINGS):
            if not grows.any():
                break
            longer = at(np.where(grows, 2.0 * length, length))
            failed = grows & ~(longer.value < trial.value - _ROUNDING * scale)
            grows &= ~failed
            length = np.where(grows, 2.0 * length, length)
            if grows.any():
                trial = at(length) if failed.any() else longer
    return length, trial


class _State:
    """The outputs that have not converged, and what is known of all.

    Attributes
    ----------
    point : Point
        Of the active outputs.
    outputs : ndarray of int
        The active outputs.
    coef, values, gaps : ndarray
        Coefficients, objectives and estimated gaps of all outputs.
    previous, least : ndarray
        The last and the least predicted decrease of the active outputs; ``n_stagnant`` counts steps with hardly less,
        and ``n_flat`` those without a decrease of the objective.
    lowest : ndarray
        The lowest Ritz value of all steps.
    before : ndarray
        The estimated gaps before the last step.
    """

    def __init__(self, start: Point, options: Options, is_linear: bool) -> None:
        self.options = options
        self.is_linear = is_linear
        self.point = start
        n_outputs = start.coef.shape[1]
        self.outputs = np.arange(n_outputs)
        self.coef, self.values = start.coef.copy(), np.full(n_outputs, np.nan)
        self.gaps = np.full(n_outputs, np.inf)
        self.previous, self.least = np.full(n_outputs, np.inf), np.full(n_outputs, np.inf)
        self.n_stagnant, self.n_flat = np.zeros((2, n_outputs), dtype=int)
        self.lowest, self.before = np.full((2, n_outputs), np.inf)
        self.history: list[Iteration] = []
        self.is_sampled = False
        self.converged = True
        self.message = f"reached a relative gap of at most tol={options.tol:g}"

    @property
    def n_active(self) -> int:
        return len(self.outputs)

    @property
    def may_grow(self) -> bool:
        return self.options.scale is not None and not self.is_linear

    def scale(self) -> Array:
        """Return what the tolerance of the active outputs is relative to."""
        return np.abs(self.point.value) if self.options.scale is None else self.options.scale[self.outputs]

    def atol(self) -> Array:
        """Return the decrease that conjugate gradients may leave."""
        return _INNER_SHARE * self.options.tol * self.scale()

    def largest_decrease(self) -> Array | float:
        return self.scale() if self.options.scale is None else np.inf

    def advance(
        self, iteration: int, step: _Step, length: Array, trial: Point, is_first: bool, objective: Objective
    ) -> None:
        """Move to the new point, estimate the gaps, and drop the outputs that have converged or failed."""
        before = self.point.value
        values = np.where(length > 0.0, trial.value, before)
        # The tolerance is relative to the objective that was reached: the first step may decrease it a thousand times.
        scale = np.abs(values) if self.options.scale is None else self.options.scale[self.outputs]
        self.point = trial
        self.coef[:, self.outputs], self.values[self.outputs] = trial.coef, values
        gaps = self._linear_gap(step) if self.is_linear else self._gap(step, length, before - values, scale, objective)
        if np.any(step.predicted > _SLOW * self.previous) or np.any(length == 0.0):
            self.is_sampled = False  # the subsample does not represent the curvature: convergence is too slow
        self.n_stagnant = np.where(step.predicted < _STAGNATION * self.least, 0, self.n_stagnant + 1)
        self.previous = np.where(step.predicted > 0.0, step.predicted, np.finfo(float).tiny)
        self.least = np.minimum(self.least, self.previous)
        if objective.needs_second_step:
            gaps, self.before = np.maximum(gaps, self.before), gaps
        self.gaps[self.outputs] = np.inf if is_first else gaps
        self.history.append(
            Iteration(iteration, float(self.values.sum()), float(self.gaps.sum()), objective.n_passes, self.n_active)
        )
        self.options.monitor(self.history[-1])
        self.n_flat = np.where(before - values > _ROUNDING * scale, 0, self.n_flat + 1)
        is_stuck = (length == 0.0) | (self.n_flat >= _FLAT_STEPS)
        self._drop(self._finished(self.gaps[self.outputs], scale, is_stuck))

    def _gap(self, step: _Step, length: Array, decrease: Array, scale: Array, objective: Objective) -> Array:
        """Return the estimated gap after a step; see the module's docstring."""
        error, self.lowest = np.abs(step.predicted - decrease), np.minimum(self.lowest, step.lowest)
        gap = np.where(step.is_from_model, error + step.remaining, step.rejected)
        is_small = gap <= self.options.tol * scale
        # A poor preconditioner says too little of the curvature to replace the estimate.
        if not (is_small.any() or objective.is_well_preconditioned):
            return gap
        # A short iteration of conjugate gradients does not see the lowest eigenvalues: the lowest of all steps counts.
        ahead = conjugate_gradient.decrease_bound(step.model, self.point.gradient, self.lowest)
        # Conjugate gradients may have left more than their steps show: the new gradient must confirm a small gap.
        # After a step longer than the model's, or with a negative number, which is rounding, the model is not used.
        trusted = step.is_from_model & (length > 0.0) & (length <= 1.0) & (ahead >= 0.0)
        trusted &= (error <= _MODEL_ERROR * step.predicted) & objective.is_well_preconditioned
        lower = np.where(trusted, np.minimum(gap, _SAFETY * ahead), gap)
        return np.where(is_small, np.maximum(gap, ahead), lower)

    def _linear_gap(self, step: _Step) -> Array:
        """Return the estimated gap of a method that converges linearly.

        Decreases that shrink by a factor ``f`` per step add up to ``decrease * f / (1 - f)``; ``f`` still rises, hence
        twice that.
        """
        factor = np.clip(step.predicted / self.previous, 0.0, 1.0 - 1e-6)
        known = np.isfinite(self.previous) | (step.predicted == 0.0)  # one step tells no factor
        return np.where(known, 2.0 * step.predicted * factor / (1.0 - factor) + step.remaining, np.inf)

    def _finished(self, gaps: Array, scale: Array, is_stuck: Array) -> Array:
        """Return which outputs stop, and store why; ``is_stuck`` are those without a step that decreases them."""
        is_converged = gaps <= self.options.tol * scale
        is_precise = ((self.n_stagnant >= _STAGNANT_STEPS) | is_stuck) & (gaps <= _PRECISION_GAP * scale)
        if (is_precise & ~is_converged).any() and self.converged:
            self.message = "reached working precision"
        failed = is_stuck & ~is_converged & ~is_precise
        if failed.any():
            worst = float(np.max(gaps[failed] / scale[failed]))
            self.converged = False
            self.message = f"no step decreased the objective, at an estimated relative gap of {worst:.1e}"
        return is_converged | is_precise | is_stuck

    def _drop(self, finished: Array) -> None:
        if finished.all():
            self.outputs = self.outputs[:0]
        elif finished.any():
            self.outputs, self.point = self.outputs[~finished], self.point.select(~finished)
            self.previous, self.least = self.previous[~finished], self.least[~finished]
            self.n_stagnant, self.n_flat = self.n_stagnant[~finished], self.n_flat[~finished]
            self.lowest, self.before = self.lowest[~finished], self.before[~finished]

    def result(self, n_iter: int) -> Result:
        point = self.point if self.point.coef.shape == self.coef.shape else None
        return Result(self.coef, self.values, n_iter, self.converged, self.message, self.history, point)

    def unconverged(self) -> Result:
        """Return the result after the last iteration allowed."""
        tol, max_iter = self.options.tol, self.options.max_iter
        scale = np.abs(self.values) if self.options.scale is None else self.options.scale
        worst = float(np.max(self.gaps / scale))
        message = (
            f"stopped after max_iter={max_iter} iterations at an estimated relative gap of {worst:.1e} (tol={tol:g})"
        )
        return replace(self.result(max_iter), converged=False, message=message)
