r"""Newton's method after two steps on the majoriser; and the paper's IRLS, the same loop on the majoriser alone.

The majoriser is far from tight near the optimum, where IRLS converges linearly; the Hessian of the hinge loss vanishes
far from it. So the first two steps minimise the majoriser, and all others the second-order expansion. All outputs take
their steps together; converged outputs leave the loop.

*Gap.* Before a step the gap ``J - J*`` is estimated by the predicted decrease, half the squared Newton decrement: on
review text it was within 15 % of the gap. After the step it is the difference of predicted and actual decrease, plus
what conjugate gradients left, and at least the decrease that the same model predicts for the new gradient
(`_State._gap`). Where the difference is more than a tenth, as much as was predicted may still be ahead. ``tol`` is
relative to ``J``, so a warm start is safe.

*Kinks.* A kink of the loss is smoothed over a width (`MomentLoss.smoothed`), which moves the minimum by at most the
width times the weight of all rows. Relative to the objective, that error ``e`` follows Ipopt's rule: when the gap is
below it, ``e <- max(e_last, min(e / 5, e^1.5))``, until it is half of ``tol``. Where the noise itself smooths the kink,
only the first steps need more: near the minimum, the last error follows at once, and the minimum moves by far less.

*l1.* Within the orthant of the coefficients the penalty is linear. Coefficients at zero whose gradient is within ``l1``
stay out of the system, and steps are projected onto the orthant, which is where the zeros come from (Andrew and Gao
2007). Convergence is stated only with a proof (`proved_gap`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dropmargin.objective import Model, Objective, Point, is_sharp, make_model
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

_MAJORISER_STEPS = 2
_ARMIJO = 1e-4
_HALVINGS = 30
# Relative differences of the objective below this are rounding.
_ROUNDING = 1e-13
# Conjugate gradients may leave this share of the tolerance.
_INNER_SHARE = 0.5
# The curvature changes along a step: a safety factor of the gap that the model predicts for the new gradient.
_SAFETY = 1.5
# The model is not used for the new gradient if the actual decrease differs by more than this share.
_MODEL_ERROR = 0.1
# Hessians are no longer estimated from a subsample if a predicted decrease is more than this share of the previous one.
_SLOW = 0.5
# The first errors of the smoothing, relative to the objective.
_FIRST_ERROR, _FIRST_ERROR_WARM, _LEAST_ERROR = 0.05, 1e-3, 1e-13
# The noise smooths the kink where scores have a standard deviation of so many widths of the smoothing, and of the width
# that has the other error: near a sharper kink, small predicted decreases prove nothing.
_SHARP_WIDTHS, _LEAST_SHARP_ERROR = 2.0, 0.01
# There, the smoothing moves the minimum by at most this share of the error.
_SMOOTH_SHARE = 0.1
# The last error may exceed its share of the tolerance so many times: the objective falls after it is chosen.
_SIMILAR = 1.5
# Where kinks are sharp, Newton's decrement is a certificate only if it is small against the weight of a single row.
_AT_LEAST = 100
# Predicted decreases of this share of the objective are close to the minimum.
_CLOSE = 0.01
# Below this relative gap, predicted decreases that stagnate show that working precision is reached.
_PRECISION_GAP, _SINGLE_PRECISION_GAP = 1e-8, 1e-6
_STAGNATION, _STAGNANT_STEPS = 0.7, 5
# So many steps in turn without a decrease of the objective are no progress.
_FLAT_STEPS = 10
# The gap under an l1 penalty is estimated to be within `tol`, and proved to be within so many times `tol`.
_PROVED = 10.0


def irls(objective: Objective, coef: Array, options: Options) -> Result:
    """Minimise by iteratively re-weighted least squares, the paper's algorithm.

    The E-step computes the weights of the majoriser, the M-step its minimum. It descends without a step size, and
    converges linearly.
    """
    return newton(objective, coef, options, is_irls=True)


def newton(objective: Objective, coef: Array, options: Options, is_irls: bool = False) -> Result:
    """Minimise an objective from some coefficients; ``is_irls`` minimises the majoriser in every step."""
    state = _State(objective, coef, options, is_irls)
    if not state.point.plain_value.any():  # no loss is negative, and tolerances are relative to the objective
        return Result(coef, state.point.plain_value, 0, True, "the objective is zero at the start")
    for iteration in range(1, options.max_iter + 1):
        # 1. A quadratic model of the active outputs at this point: the majoriser at first, then the Hessian.
        # 2. Direction: its minimum over the coefficients that may move.
        step = state.step(iteration)
        # 3. Length: the first of 1, 1/2, 1/4, ... that decreases the objective. Where there is none, or the predicted
        # decrease exceeds the objective, the majoriser takes the place of the Hessian.
        if not state.is_plausible(step):
            step = state.majoriser_step(step)
        length, trial = state.search(step)
        if not length.all() and not step.is_majoriser:
            step = state.majoriser_step(step)
            length, trial = state.search(step)
        # 4. The gap; kinks are smoothed less, and converged outputs leave.
        state.advance(iteration, step, length, trial)
        if state.n_active == 0:
            break
    return state.result(iteration)


class _Step(NamedTuple):
    """The minimum of a quadratic model of each output, and the decrease that it predicts."""

    model: Model
    direction: Array
    remaining: Array
    lowest: Array
    predicted: Array
    is_majoriser: bool


class _State:
    """The outputs that have not converged, and what is known of all.

    Attributes
    ----------
    objective, point : Objective, Point
        Of the active outputs.
    outputs : ndarray of int
        The active outputs.
    coef, values, gaps : ndarray
        Coefficients, objectives and estimated gaps of all outputs.
    scale : ndarray
        What tolerances are relative to, the objective of the active outputs without smoothing.
    errors, is_sharp, is_last : ndarray
        The error of the smoothing relative to ``scale``, zero without kinks; whether the noise smooths the kink less
        than the smoothing does; whether the smoothing is the last one.
    tolerance : ndarray
        The gap at which an active output has converged, or, before the last smoothing, is smoothed less.
    previous, least : ndarray
        The last and the least predicted decrease of the active outputs; ``n_stagnant`` counts steps with hardly less,
        and ``n_flat`` those without a decrease of the objective.
    lowest : ndarray
        The lowest Ritz value of all steps.
    """

    def __init__(self, objective: Objective, coef: Array, options: Options, is_irls: bool) -> None:
        self.options, self.is_irls = options, is_irls
        n = objective.n_outputs
        self.outputs, self.coef = np.arange(n), coef.copy()
        self.values, self.gaps = np.full(n, np.nan), np.full(n, np.inf)
        self.lowest = np.full(n, np.inf)
        self.previous, self.least, self.n_stagnant, self.n_flat = np.full((4, n), np.inf)
        self._forget(slice(None))
        self.history: list[Iteration] = []
        self.converged, self.message = True, f"reached a relative gap of at most tol={options.tol:g}"
        self.has_bound = hasattr(objective.loss, "majoriser")
        self.l1 = 0.0 if objective.smooths_l1 else objective.penalty.l1
        self.n_majoriser = 0 if options.warm or not self.has_bound else _MAJORISER_STEPS
        self.is_sampled = objective.sample is not None and options.warm and not is_irls
        self.last_error = max(0.5 * options.tol, _LEAST_ERROR)
        self._move(objective.at(coef))
        if objective.is_smoothed and self.point.value.any():
            self._smooth(np.full(n, max(_FIRST_ERROR_WARM if options.warm else _FIRST_ERROR, self.last_error)))

    @property
    def n_active(self) -> int:
        return len(self.outputs)

    def slope(self) -> Array:
        """Return the gradient; under an l1 penalty, the least subgradient."""
        point = self.point
        return self.objective.penalty.least_subgradient(point.coef, point.gradient) if self.l1 else point.gradient

    # 1., 2. -----------------------------------------------------------------------------------------------------------

    def step(self, iteration: int) -> _Step:
        """Return the step of an iteration."""
        if self.is_irls:
            return self._solve(self.point, True, 0.01)
        if iteration <= self.n_majoriser:
            return self._solve(self.point, True, 0.5)
        if self.is_sampled:
            return self._solve(self.objective.sample.at(self.point.coef), False, 0.2)  # type: ignore[union-attr]
        return self._solve(self.point, False, 0.1 if self.l1 else 0.15)

    def majoriser_step(self, step: _Step) -> _Step:
        """Return the step of the majoriser in place of another one, if there is a majoriser."""
        self.is_sampled = False
        return self._solve(self.point, True, 0.1) if self.has_bound else step._replace(is_majoriser=True)

    def _solve(self, point: Point, is_majoriser: bool, rtol: float) -> _Step:
        slope, free = self.slope(), None
        if self.l1:  # coefficients that are not zero, or whose slope is not, may move
            free = (self.point.coef != 0.0) | (slope != 0.0)
            free[-1] = True
        with np.errstate(over="ignore", invalid="ignore"):  # steps that are not finite are not plausible
            model = make_model(point, is_majoriser, free)
            found = model.solve(-slope, rtol, _INNER_SHARE * self.tolerance, self.options.max_inner)
            predicted = -0.5 * self.objective.dot(slope, found.x)
        return _Step(model, *found, predicted, is_majoriser)

    def is_plausible(self, step: _Step) -> bool:
        """Return whether a step is finite, and predicts no larger decrease than is possible: no loss is negative."""
        largest = np.inf if self.objective.is_smoothed else self.scale  # smoothed losses may be negative
        predicted = step.predicted
        return bool(((predicted >= 0.0) & (predicted <= largest)).all() and np.isfinite(step.direction).all())

    # 3. ---------------------------------------------------------------------------------------------------------------

    def search(self, step: _Step) -> tuple[Array, Point]:
        """Return step lengths that decrease the objective, 0 where there is none, and the point there."""
        point, objective, slope = self.point, self.objective, self.slope()
        upper = point.value + _ROUNDING * self.scale
        length = np.where(step.predicted >= 0.0, 1.0, 0.0)
        direction = np.where(np.isfinite(step.direction), step.direction, 0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            for halving in range(_HALVINGS + 1):
                coef = point.coef + length * direction
                expected = -2.0 * length * step.predicted
                if self.l1:
                    coef = objective.penalty.project(coef, point.coef, slope)
                    expected = np.minimum(objective.dot(slope, coef - point.coef), 0.0)
                trial = objective.at(coef)
                failed = ~(trial.value <= upper + _ARMIJO * expected) & (length > 0.0)
                if not failed.any():
                    break
                length = np.where(failed, 0.5 * length if halving < _HALVINGS - 1 else 0.0, length)
        return length, trial

    # 4. ---------------------------------------------------------------------------------------------------------------

    def advance(self, iteration: int, step: _Step, length: Array, trial: Point) -> None:
        """Move to the new point, estimate the gaps, smooth less, and drop the outputs that have finished."""
        decrease = np.where(length > 0.0, self.point.value - trial.value, 0.0)
        self._move(trial)
        self.lowest = np.minimum(self.lowest, step.lowest)
        gaps = self._gap(step, length, decrease)
        if iteration <= self.n_majoriser and not self.is_irls:
            gaps[:] = np.inf  # short steps of the majoriser, which is far from tight, prove nothing
        if not length.all() or np.any(step.predicted > _SLOW * self.previous):
            self.is_sampled = False  # the subsample does not represent the curvature: convergence is too slow
        self.n_stagnant = np.where(step.predicted < _STAGNATION * self.least, 0, self.n_stagnant + 1)
        self.previous = np.where(step.predicted > 0.0, step.predicted, np.finfo(float).tiny)
        self.least = np.minimum(self.least, self.previous)
        self.n_flat = np.where(decrease > _ROUNDING * self.scale, 0, self.n_flat + 1)
        self._record(iteration, gaps)
        finished = self._finished(gaps, length)
        # Outputs with a small gap are smoothed less; those that noise makes smooth, as soon as they are close.
        errors, is_ready = self.errors, ~self.is_last & ((gaps <= self.tolerance) | finished)
        is_close = ~self.is_last & ~self.is_sharp & (length == 1.0) & (step.predicted <= _CLOSE * self.scale)
        finished &= self.is_last
        if finished.any():
            kept = np.flatnonzero(~finished)
            self._drop(kept)
            errors, is_ready, is_close = errors[kept], is_ready[kept], is_close[kept]
        if np.any(is_ready | is_close):
            self._forget(is_ready | is_close)
            smaller = np.maximum(self.last_error, np.minimum(0.2 * errors, errors**1.5))
            self._smooth(np.where(is_close, self.last_error, np.where(is_ready, smaller, errors)))

    def _record(self, iteration: int, gaps: Array) -> None:
        """Store coefficients, objectives and gaps of the active outputs, with the errors of the smoothing."""
        self.coef[:, slice(None) if self.objective.is_coupled else self.outputs] = self.point.coef
        self.values[self.outputs] = self.point.plain_value
        share = np.where(self.is_sharp, 1.0, _SMOOTH_SHARE)
        self.gaps[self.outputs] = gaps + share * self.errors * self.scale
        total = float(self.values.sum()), float(self.gaps.sum())
        self.history.append(Iteration(iteration, *total, self.objective.n_passes, self.n_active))
        self.options.monitor(self.history[-1])

    def _gap(self, step: _Step, length: Array, decrease: Array) -> Array:
        """Return the estimated gap of the smoothed problem after a step; see the module's docstring."""
        predicted = step.predicted
        if self.is_irls:
            # Decreases that shrink by a factor f per step add up to decrease * f / (1 - f); f still rises: twice that.
            factor = np.clip(predicted / self.previous, 0.0, 1.0 - 1e-6)
            known = np.isfinite(self.previous) | (predicted == 0.0)
            return np.where(known, 2.0 * predicted * factor / (1.0 - factor) + step.remaining, np.inf)
        # Where only a share of the step decreases the objective, the model holds on that share of the way.
        moved = length > 0.0
        error = np.where(moved, np.abs(predicted - decrease) / np.where(moved, length, 1.0), predicted)
        is_right = error <= _MODEL_ERROR * predicted
        ahead = error if self.is_sampled else np.maximum(error, predicted)  # the Hessian of a subsample differs anyway
        gap = np.where(is_right, error, ahead) + step.remaining
        is_trusted = (length == 1.0) & is_right & (not step.is_majoriser)
        if step.model.is_well_preconditioned:
            # The model is known along all directions, and so its decrease for the new gradient.
            ahead = _SAFETY * step.model.decrease(self.slope(), step.lowest)
            gap = np.where(is_trusted, np.minimum(gap, ahead), gap)
        elif is_trusted.any() or np.any((gap <= self.tolerance) & self.is_last):
            # What conjugate gradients left is known up to a factor of ten, and a short iteration misses the lowest
            # eigenvalues, so that of all steps counts. Near the minimum the new gradient says more.
            ahead = step.model.decrease(self.slope(), self.lowest)
            gap = np.where(is_trusted, np.maximum(error, _SAFETY * ahead), np.maximum(gap, ahead))
        if self.l1:
            gap = np.maximum(gap, proved_gap(self.point) / _PROVED)
        return np.where(np.isnan(gap), np.inf, gap)

    def _finished(self, gaps: Array, length: Array) -> Array:
        """Return which outputs stop, and store why."""
        is_converged, is_stuck = gaps <= self.tolerance, (length == 0.0) | (self.n_flat >= _FLAT_STEPS)
        precision = _SINGLE_PRECISION_GAP if self.options.is_single else _PRECISION_GAP
        is_stagnant = (self.n_stagnant >= _STAGNANT_STEPS) & (self.n_flat > 0)
        is_precise = (is_stagnant | is_stuck) & (gaps <= precision * self.scale)
        failed = is_stuck & ~is_converged & ~is_precise & self.is_last
        if self.converged and np.any(is_precise & self.is_last & ~is_converged):
            self.message = "reached working precision"
        if failed.any():
            worst = float(np.max((gaps / self.scale)[failed]))
            self.converged = False
            self.message = f"no step decreased the objective, at an estimated relative gap of {worst:.1e}"
        return is_converged | is_precise | is_stuck

    def _move(self, point: Point) -> None:
        """Set the point, and what depends on it."""
        self.point, self.objective = point, point.objective
        objective, tol = self.objective, self.options.tol
        self.scale = np.maximum(np.abs(point.plain_value), np.finfo(float).tiny)
        if objective.width is None:
            self.errors, self.is_sharp = np.zeros(objective.n_outputs), np.zeros(objective.n_outputs, dtype=bool)
            self.is_last, self.tolerance = ~self.is_sharp, tol * self.scale
            return
        self.errors, self.is_sharp = objective.width * objective.weight / self.scale, is_sharp(point)
        self.is_last = self.errors <= _SIMILAR * self.last_error
        of_sharp = 0.5 * self.errors / (objective.n_features + _AT_LEAST)
        last = np.where(self.is_sharp, of_sharp, (1.0 - _SMOOTH_SHARE) * tol)
        before = np.where(self.is_sharp, 0.1, 1.0) * self.errors
        self.tolerance = np.where(self.is_last, last, before) * self.scale

    def _smooth(self, errors: Array) -> None:
        """Set the widths of the smoothing to those of some errors."""
        unit = self.scale / self.objective.weight
        sharp_width = _SHARP_WIDTHS * np.maximum(errors, _LEAST_SHARP_ERROR) * unit
        objective = self.objective.smoothed(errors * unit, sharp_width)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # of an output whose objective is zero
            self._move(objective.at(self.point.coef, self.point))

    def _forget(self, outputs: Any) -> None:
        """Forget the decreases of some outputs, whose objective has changed."""
        self.previous[outputs] = self.least[outputs] = np.inf
        self.n_stagnant[outputs] = self.n_flat[outputs] = 0

    def _drop(self, kept: Array) -> None:
        """Keep only some of the active outputs."""
        self.outputs, self.lowest = self.outputs[kept], self.lowest[kept]
        self.previous, self.least = self.previous[kept], self.least[kept]
        self.n_stagnant, self.n_flat = self.n_stagnant[kept], self.n_flat[kept]
        if len(kept):
            self._move(self.point.select(kept))

    def result(self, n_iter: int) -> Result:
        if self.n_active:
            self.converged = False
            worst = float(np.max(self.gaps / np.maximum(np.abs(self.values), np.finfo(float).tiny)))
            self.message = (
                f"stopped after max_iter={self.options.max_iter} iterations at an estimated relative gap of "
                f"{worst:.1e} (tol={self.options.tol:g})"
            )
        is_whole = self.point.coef.shape == self.coef.shape
        point = self.point if is_whole else None
        return Result(self.coef, self.values, n_iter, self.converged, self.message, self.history, point)


def proved_gap(point: Point) -> Array:
    r"""Return a bound of the gap under an l1 penalty, for an intercept that is nearly the best for its coefficients.

    The loss is above its tangent, so with its gradient ``g`` at ``w``, ``e = max(|g| - l1, 0)`` and
    ``|w*|_1 <= J / l1``::

        J - J* <= R(w) + g.w - min_u (R(u) + g.u) <= R(w) + g.w + |e|^2 / (2 l2),    or  R(w) + g.w + max(e) J / l1
    """
    objective, penalty, coef = point.objective, point.objective.penalty, point.coef
    value, by_penalty = penalty.at(coef)
    g = point.gradient - by_penalty
    excess = np.maximum(np.abs(g[:-1]) - penalty.l1, 0.0)
    if penalty.l2:
        best = objective.dot_values(0.5 * np.einsum("ij,ij->j", excess, excess) / penalty.l2)
    else:
        best = objective.dot_values(excess.max(axis=0, initial=0.0)) * np.abs(point.value) / penalty.l1
    bound = objective.dot_values(value + np.einsum("ij,ij->j", g[:-1], coef[:-1])) + best
    of_intercept = objective.dot_values(np.abs(point.gradient[-1]) * (1.0 + np.abs(coef[-1])))
    return np.maximum(bound, 0.0) + of_intercept
