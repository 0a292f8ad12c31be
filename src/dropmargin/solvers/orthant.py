r"""Newton's method for an l1 penalty by steps within an orthant, with exact zeros; one output at a time.

At ``w`` the penalty is linear on an orthant: the signs of ``w`` where it is not zero, and of the steepest descent where
it is. A coefficient at zero whose gradient is within ``l1`` stays there and out of the system. A Newton step of the
others that leaves the orthant is projected onto its boundary, which is where the zeros come from.

Most coefficients are zero, so steps are taken on the rows restricted to a working set: the features whose coefficient
is not zero, or whose gradient is near ``l1`` or beyond. The gradient by all features is computed between rounds of
steps. It proves the gap, or it changes the working set.

On most problems that takes a few rounds. Where features are nearly dependent it may take many; then it stops early, and
the central path, which does not depend on that, takes over. Convergence is stated only with a proof that the gap is
below ``10 tol``: the loss is above its tangent, so with its gradient ``g`` at ``w``, ``e = max(|g| - l1, 0)`` and
``|w*|_1 <= J / l1``::

    J - J* <= R(w) + g.w - min_u (R(u) + g.u) <= R(w) + g.w + |e|^2 / (2 l2),    or  R(w) + g.w + max(e) J / l1

References
----------
Andrew, G. and Gao, J. (2007). Scalable training of L1-regularized log-linear models. ICML.
Massias, M., Gramfort, A. and Salmon, J. (2018). Celer: a fast solver for the Lasso with dual extrapolation. ICML.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dropmargin.data import column_dots
from dropmargin.objective import Curvature, DeflationSpace, Objective, Point
from dropmargin.solvers import conjugate_gradient
from dropmargin.solvers.result import Iteration, Options, Result
from dropmargin.typing import Array

_INNER_ITERATIONS = 100
_ARMIJO = 1e-4
_ROUNDING = 1e-13
_HALVINGS = 12
_MAJORISER_STEPS = 3
# Conjugate gradients may leave this share of the tolerance.
_INNER_SHARE = 0.5
# The relative gap at which the first round ends.
_FIRST_TOL = 1e-2
# A working set has the features whose gradient is at least this share of ``l1``: some of them will move later.
_NEAR = 0.8
# Rows are restricted to a working set of at most this share of the features.
_RESTRICTED = 0.2
# After so many steps, or passes over the data, the central path takes over.
_MOST_STEPS, _MOST_PASSES = 40, 400
# The gap is estimated to be within `tol`, and proved to be within so many times `tol`.
_PROVED = 10.0
# On the working set the proved gap is this share of that.
_SHARE_OF_SET = 0.5
# Below this relative gap, predicted decreases that stagnate show that working precision is reached.
_PRECISION_GAP = 1e-9
_STAGNATION = 0.7
_STAGNANT_STEPS = 4


def orthant(objective: Objective, start: Point, options: Options) -> Result:
    """Minimise an objective with an exact l1 penalty, or stop early."""
    state = _State(objective, start, options)
    try:
        while state.is_running:
            # 1. The working set, by the gradient of all features.
            state.choose_working_set()
            # 2. Steps on the working set, to the tolerance of this round.
            while state.is_running and not state.is_round_over:
                state.step()
            # 3. All features: the gap is proved, or the next round has a smaller tolerance.
            state.finish_round()
    finally:
        state.working.close()
    return state.result()


class _WorkingSet:
    """Some of the features, and the objective of these; ``features`` is ``None`` for all."""

    def __init__(self, whole: Objective, features: Array | None) -> None:
        self.whole, self.features = whole, features
        self.objective = whole if features is None else whole.restricted(features)

    def suits(self, features: Array) -> bool:
        """Return whether steps of these features may go on in this set: it has them, and not many more."""
        if self.features is None:
            return len(features) > _RESTRICTED * self.whole.n_features
        is_large = len(self.features) * _RESTRICTED > len(features)
        return not is_large and bool(np.isin(features, self.features, assume_unique=True).all())

    def has_all(self, free: Array) -> bool:
        """Return whether the set has all features that may move."""
        return self.features is None or bool(np.isin(np.flatnonzero(free[:-1]), self.features).all())

    def select(self, coef: Array) -> Array:
        """Return the coefficients of the set, intercept last."""
        return coef if self.features is None else coef[np.append(self.features, len(coef) - 1)]

    def restore(self, coef: Array) -> Array:
        """Return the coefficients of all features, zero for those that the set does not have."""
        if self.features is None:
            return coef
        out = np.zeros((self.whole.n_features + 1, coef.shape[1]))
        out[np.append(self.features, -1)] = coef
        return out

    @property
    def n_passes(self) -> float:
        """Passes over all features, and over those of the set as a share."""
        return self.whole.n_passes + (0.0 if self.features is None else self.objective.n_passes)

    def close(self) -> None:
        """Release the rows of the set, and count their passes."""
        if self.features is not None:
            self.whole.data.n_products += round(2.0 * self.objective.n_passes)
            self.objective.data.close()


class _State:
    """The present point and what is known of it.

    Attributes
    ----------
    whole, point : Point
        The point of all features at the end of the last round, and the present one of the working set.
    working : _WorkingSet
    gap : float
        The estimated gap after the last step, on the working set.
    round_tol : float
        The relative gap at which the round ends.
    least : float
        The least predicted decrease; ``n_stagnant`` counts steps with hardly less.
    """

    def __init__(self, objective: Objective, start: Point, options: Options) -> None:
        self.objective, self.options = objective, options
        self.whole = self.point = start
        self.working = _WorkingSet(objective, None)
        self.gap = self.least = np.inf
        self.n_stagnant = 0
        self.round_tol = options.tol if options.warm else max(options.tol, _FIRST_TOL)
        self.n_majoriser = 0 if options.warm or not objective.has_quadratic_bound else _MAJORISER_STEPS
        self.most_passes = objective.n_passes + _MOST_PASSES
        self.history: list[Iteration] = []
        self.converged = self.is_stuck = False

    @property
    def is_running(self) -> bool:
        n_steps, n_passes = len(self.history), self.working.n_passes
        is_early = n_steps < min(self.options.max_iter, _MOST_STEPS) and n_passes < self.most_passes
        return is_early and not (self.converged or self.is_stuck)

    @property
    def is_round_over(self) -> bool:
        """Whether the gap on the working set is small, and after the first round proved, or there is no progress."""
        if self.is_stuck or self.n_stagnant >= _STAGNANT_STEPS:
            return True
        if self.gap > self.round_tol * self.scale:
            return False
        share = 1.0 if self.working.features is None else _SHARE_OF_SET
        return self.round_tol > self.options.tol or self.is_proved(self.point, share)

    def is_proved(self, point: Point, share: float = 1.0) -> bool:
        """Return whether the gap is proved to be at most a share of what is allowed."""
        allowed = share * max(_PROVED * self.options.tol, _PRECISION_GAP)
        return proved_gap(point) <= allowed * self.scale

    @property
    def scale(self) -> float:
        """What the tolerance is relative to."""
        return float(np.abs(self.point.value if self.options.scale is None else self.options.scale)[0])

    def choose_working_set(self) -> None:
        """Take the features that may move, and the present point of these alone."""
        features = _likely_features(self.whole)
        if not self.working.suits(features):
            self.working.close()
            self.working = _WorkingSet(self.objective, None)  # so that none is closed twice if the next one fails
            few = self.objective.can_restrict and 0 < len(features) <= _RESTRICTED * self.objective.n_features
            self.working = _WorkingSet(self.objective, features if few else None)
        if self.working.features is None:
            self.point = self.whole
        else:
            self.point = self.working.objective.at(self.working.select(self.whole.coef))
        self.gap = self.least = np.inf
        self.n_stagnant = 0

    def step(self) -> None:
        """Take a step within the orthant of the present point."""
        point, penalty, is_first = self.point, self.objective.penalty, len(self.history) < self.n_majoriser
        # 1. The least subgradient, and the coefficients that may move.
        subgradient, free = penalty.least_subgradient(point.coef, point.gradient), _is_free(point)
        # 2. The Newton direction of the free coefficients; the majoriser's at first.
        model = point.majoriser() if is_first else point.hessian(direct=self.objective.is_stiff)
        rtol, atol = 0.5 if is_first else 0.1, _INNER_SHARE * self.options.tol * self.scale
        restricted = _FreeCurvature(model, free, has_kink=self.options.scale is not None)
        direction, remaining, _ = conjugate_gradient.solve(
            restricted, -subgradient * free, rtol, _INNER_ITERATIONS, atol
        )
        predicted = -0.5 * float(np.sum(subgradient * direction))
        # 3. The step, projected onto the orthant.
        trial = _search(point, direction, subgradient, model)
        self.n_stagnant = 0 if predicted < _STAGNATION * self.least else self.n_stagnant + 1
        self.least = min(self.least, predicted)
        if trial is None:
            self.is_stuck = True
            return
        # 4. The estimated gap.
        error = abs(predicted - float(point.value[0] - trial.value[0]))
        self.point = trial
        self.gap = np.inf if is_first else error + float(remaining[0])
        shown = predicted if is_first else self.gap
        entry = Iteration(len(self.history) + 1, float(trial.value[0]), shown, self.working.n_passes, 1)
        self.history.append(entry)
        self.options.monitor(entry)

    def finish_round(self) -> None:
        """Compute the gradient by all features, and whether the gap is proved."""
        if self.working.features is None:
            self.whole = self.point
        else:
            self.whole = self.objective.at(self.working.restore(self.point.coef))
        is_precise = self.is_stuck or self.n_stagnant >= _STAGNANT_STEPS
        self.converged = self.gap <= self.options.tol * self.scale and self.is_proved(self.whole)
        self.converged |= is_precise and proved_gap(self.whole) <= _PRECISION_GAP * self.scale
        # A minimum on the working set to the last digit need not be one of all features.
        self.is_stuck &= self.working.has_all(_is_free(self.whole))
        self.round_tol = self.options.tol

    def result(self) -> Result:
        tol, point = self.options.tol, self.whole
        message = "steps within an orthant did not suffice"
        if self.converged:
            message = f"reached a relative gap of at most tol={tol:g}"
        return Result(point.coef, point.value, len(self.history), self.converged, message, self.history, point)


def _likely_features(point: Point) -> Array:
    """Return the features whose coefficients are not zero, or likely to become so."""
    penalty = point.objective.penalty
    n = penalty.n_intercepts
    slope = point.gradient[:-n] - penalty.gradient(point.coef)
    return np.flatnonzero((point.coef[:-n] != 0.0) | (np.abs(slope) > _NEAR * penalty.l1))


def _is_free(point: Point) -> Array:
    """Return which coefficients may move: those that are not zero, or whose subgradient is not, and intercepts."""
    penalty = point.objective.penalty
    free = (point.coef != 0.0) | (penalty.least_subgradient(point.coef, point.gradient) != 0.0)
    free[-penalty.n_intercepts :] = True
    return free


def proved_gap(point: Point) -> float:
    """Return the bound of the module's docstring, for an intercept that is the best for its coefficients, or nearly."""
    penalty = point.objective.penalty
    n = penalty.n_intercepts
    w, g = point.coef[:-n], point.gradient[:-n] - penalty.gradient(point.coef)
    excess = np.maximum(np.abs(g) - penalty.l1, 0.0)
    if penalty.l2:
        best = 0.5 * float(column_dots(excess, excess)[0]) / penalty.l2
    else:
        best = float(excess.max(initial=0.0)) * abs(float(point.value[0])) / penalty.l1
    bound = float(penalty.value(point.coef)[0] + column_dots(g, w)[0]) + best
    return max(bound, 0.0) + float(np.abs(point.gradient[-n:] * (1.0 + np.abs(point.coef[-n:]))).sum())


def _search(point: Point, direction: Array, subgradient: Array, model: Curvature) -> Point | None:
    """Return the first point of ``project(coef + length * direction)``, length = 1, 1/2, ..., that descends enough.

    The intercept takes the value that is best for the projected coefficients in the quadratic model.
    """
    objective, length = point.objective, 1.0
    known = None if model.deflation is None else model.deflation.intercept_image
    for _ in range(_HALVINGS):
        moved = point.coef + length * direction
        coef = objective.penalty.project(moved, point.coef, subgradient)
        if known is not None and known[-1, 0] > 0.0:  # the curvature along the intercept
            coef[-1] -= column_dots(known[:-1], (coef - moved)[:-1]) / known[-1]
        with np.errstate(over="ignore", invalid="ignore"):
            trial = objective.at(coef)
            expected = float(np.sum(subgradient * (coef - point.coef)))
            bound = point.value[0] + _ARMIJO * min(expected, 0.0) + _ROUNDING * abs(point.value[0])
            if trial.value[0] <= bound:
                return trial
        length *= 0.5
    return None


class _FreeCurvature(Curvature):
    """A curvature on the free coefficients, zero for the others.

    A hinge is nearly flat along the coefficients, so that deflation saves steps. Other losses take twice as many with
    it, as steps along the coefficients leave the orthant: only their intercept, which is coupled to all, is deflated.
    """

    def __init__(self, whole: Curvature, free: Array, has_kink: bool) -> None:
        self.whole, self.free, self.has_kink = whole, free, has_kink
        if whole.deflation is not None:
            coef, coef_image, intercept_image = whole.deflation
            if not has_kink:
                coef = coef_image = np.zeros_like(coef)
            self.deflation = DeflationSpace(coef, coef_image * free, intercept_image * free)

    def product(self, direction: Array) -> Array:
        return self.whole.product(direction) * self.free

    def precondition(self, residual: Array) -> Array:
        return self.whole.precondition(residual) * self.free

    def select(self, outputs: Any) -> Curvature:
        return _FreeCurvature(self.whole.select(outputs), self.free[:, outputs], self.has_kink)
