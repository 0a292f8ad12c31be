r"""The objective of the losses that depend on the noise through the score's mean and variance.

For coefficients ``(w, b)`` of one output, a row ``x_i`` and the noise's variance ``V_id = slope_d f(x_id) + floor_d``::

    m = X w + b          v = V w^2          J = R(w) + sum_i s_i phi(y_i; m_i, v_i)

    gradient     R'(w) + X'(s phi_m) + q * w                      q = V'(2 s phi_v)
    Hessian p    R''(w) p + X'(s (phi_mm a + 2 phi_mv t)) + q * p + w * V'(2 s (phi_mv a + 2 phi_vv t))
                 a = X p + p_b,  t = V (w * p)
    majoriser p  R''(w) p + X'(s gamma a) + q * p                 (gamma = 2 phi_v for the radial losses)

``s_i`` is ``C`` times the sample weight. The products with ``X`` and ``V`` are in `objective.score_moments`, and in
`objective.grouped` for groups of features; the functions of a partition are in `objective.row_functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dropmargin.data import FeatureGroups, Partitions, PerPartition, Rows, restrict_features, target_summary
from dropmargin.losses import Hinge, MomentLoss
from dropmargin.noise import Variance
from dropmargin.objective import row_functions
from dropmargin.objective.base import Curvature, Objective, Point
from dropmargin.objective.curvature import MomentCurvature
from dropmargin.objective.grouped import GroupMoments
from dropmargin.objective.preconditioner import (
    FEW_FEATURES,
    Preconditioner,
    diagonal,
    exact_preconditioner,
    gram_preconditioner,
    has_cheap_matrices,
    may_be_exact,
    suits_gram,
    suits_woodbury,
    woodbury,
)
from dropmargin.objective.row_functions import KnownProducts, RowLoss
from dropmargin.objective.score_moments import FeatureMoments, ScoreMoments
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

# The search for a first intercept: its interval, the number of points in it, twice, and the width over which a kink is
# smoothed for it.
_LARGEST_START, _START_POINTS = 4.0, 128
_START_WIDTH = 0.1
# The noise smooths the kink of a row whose score has at least this many widths of the smoothing as standard deviation.
_WIDTHS = 2.0


@dataclass(frozen=True)
class MomentObjective(Objective):
    """See the module's docstring.

    Parameters
    ----------
    data : Partitions of Rows
        ``X`` are blocks, ``y`` targets, the weights include ``C``.
    loss : MomentLoss
    variance : Variance
        Of the noise; arrays have one number per feature.
    penalty : Penalty
    fit_intercept : bool
    n_features : int
    outputs : ndarray of int
        The columns of the targets that the coefficients belong to.
    smoothing : ndarray of shape (n_outputs,) or 0, default=0
        Width over which the loss's kink is smoothed (`MomentLoss.smoothed`); 0 is the loss itself.
    subsample : Partitions of Rows, default=None
        Some of the rows, with the weight of all: Hessians may be estimated from them.
    groups : FeatureGroups, default=None
        The groups of ``variance`` in the form that blocks need; ``None`` if there are none, or without noise.
    """

    data: Partitions[Rows]
    loss: MomentLoss
    variance: Variance
    penalty: Penalty
    fit_intercept: bool
    n_features: int
    outputs: Array
    smoothing: Array | float = 0.0
    subsample: Partitions[Rows] | None = None
    groups: FeatureGroups | None = None
    is_stiff: bool = False
    has_quadratic_bound: bool = True
    can_restrict: bool = True

    @property
    def n_outputs(self) -> int:  # type: ignore[override]
        return len(self.outputs)

    @property
    def n_passes(self) -> float:
        if self.subsample is None:
            return self.data.n_passes
        share = target_summary(self.subsample).n_rows / target_summary(self.data).n_rows
        return self.data.n_passes + share * self.subsample.n_passes

    @property
    def has_subsample(self) -> bool:  # type: ignore[override]
        return self.subsample is not None

    @property
    def has_cheap_hessian(self) -> bool:  # type: ignore[override]
        if self.penalty.l1 or not self.penalty.is_positive_diagonal:
            return False
        if self.groups is not None:
            return self.n_features <= FEW_FEATURES
        summary = target_summary(self.data)
        return has_cheap_matrices(summary.n_rows, self.n_features, summary.n_outputs)

    @property
    def is_well_preconditioned(self) -> bool:  # type: ignore[override]
        """Not with groups: far from the reference, their features are nearly dependent, which a diagonal misses."""
        return self.groups is None

    @property
    def is_noise_free_hinge(self) -> bool:  # type: ignore[override]
        return isinstance(self.loss, Hinge) and self.variance.is_zero

    @property
    def needs_second_step(self) -> bool:  # type: ignore[override]
        return self.loss.has_local_kink

    @property
    def row_loss(self) -> RowLoss:
        return RowLoss(self.loss, self.variance, self.outputs, self.smoothing, self.groups is not None)

    def at(self, coef: Array) -> MomentPoint:
        moments = self.moments(coef[:-1])
        if not coef[:-1].any():  # the usual start: no product is needed
            scores = self.data.map(row_functions.constant_scores, coef[-1])
        else:
            scores = self.data.map(row_functions.row_scores, moments, coef[-1])
        return MomentPoint(self, coef, moments, scores)

    def moments(self, coef: Array) -> ScoreMoments:
        """Return the moments of the scores at coefficients without intercept."""
        if self.groups is None:
            return FeatureMoments(self.variance, coef)
        return GroupMoments(self.groups, coef, self.variance)

    def restricted(self, features: Array) -> Self:
        variance, groups = self.variance.take(features), None if self.groups is None else self.groups.take(features)
        data = restrict_features(self.data, features, variance.entry if variance.moves_entries else None)
        return replace(self, data=data, variance=variance, groups=groups, n_features=len(features), subsample=None)

    def value(self, coef: Array) -> Array:
        return self.penalty.value(coef) + self.at(coef).without_smoothing()[0]

    def target_weights(self) -> Array:
        """Return the weight of the targets +1 and -1, a row each, one column per output."""
        return target_summary(self.data).target_weights[:, self.outputs]

    def starting_coef(self) -> Array:
        """Return zero coefficients and roughly the best intercepts; no product is needed.

        With zero coefficients every row of a target has the same score, so there are two losses per output to balance.
        """
        weights = self.target_weights()
        loss = self.loss.smoothed(_START_WIDTH * self.loss.kink) if self.loss.kink else self.loss

        def slope(intercept: Array) -> Array:
            by_mean, _ = loss.gradient(*self._constant_scores(intercept))
            return np.sum(weights[:, None] * by_mean, axis=0)

        coef = np.zeros((self.n_features + 1, self.n_outputs))
        if self.fit_intercept:
            largest = np.full(self.n_outputs, _LARGEST_START * max(1.0, self.loss.kink))
            coef[-1] = _sign_change(slope, largest)
        return coef

    def constant_at_kink(self) -> tuple[Array, Array]:
        """Return zero coefficients with the better of the intercepts at the kinks, and the objective there."""
        weights = self.target_weights()
        coef = np.zeros((self.n_features + 1, self.n_outputs))
        if self.fit_intercept:
            coef[-1] = np.where(weights[0] > weights[1], self.loss.kink, -self.loss.kink)
        return coef, self.constant_loss(coef[-1])

    def constant_loss(self, intercept: Array) -> Array:
        """Return the weighted loss without smoothing of zero coefficients, for targets +1 and -1."""
        return np.sum(self.target_weights() * self.loss.value(*self._constant_scores(intercept)), axis=0)

    def _constant_scores(self, intercept: Array) -> tuple[Array, Array, Array]:
        """Return targets, means and variances of a positive and a negative row if the coefficients are zero."""
        intercepts = np.stack([intercept, intercept])
        targets = np.ones_like(intercepts)
        targets[1] = -1.0
        return targets, intercepts, np.zeros_like(intercepts)

    def select(self, outputs: Any) -> Self:
        smoothing = self.smoothing[outputs] if isinstance(self.smoothing, np.ndarray) else self.smoothing
        penalty = self.penalty.select(outputs)
        return replace(self, outputs=self.outputs[outputs], smoothing=smoothing, penalty=penalty)


class MomentPoint(Point):
    """The objective at ``coef``, with the scores there; value and gradient are computed when first used."""

    objective: MomentObjective

    def __init__(self, objective: MomentObjective, coef: Array, moments: ScoreMoments, scores: PerPartition) -> None:
        self.objective = objective
        self.coef = coef
        self.moments = moments
        self.scores = scores

    @cached_property
    def _evaluated(self) -> tuple[Array, ...]:
        """Value, gradient, the noise's diagonal, and what products with a curvature need of the noise."""
        args = self.objective.row_loss, self.moments, self.scores
        return self._evaluate(*self.objective.data.map_sum(row_functions.loss_and_gradient, *args))

    def _evaluate(self, loss: Array, by_intercept: Array, h_total: Array, *sums: Any) -> tuple[Array, ...]:
        of_penalty, by_penalty = self.objective.penalty.at(self.coef)
        by_coef, *of_noise = self.moments.gradient(h_total, *sums)
        gradient = np.empty_like(self.coef)
        gradient[:-1] = by_coef + by_penalty[:-1]
        gradient[-1] = by_intercept + by_penalty[-1] if self.objective.fit_intercept else 0.0
        return of_penalty + loss, gradient, *of_noise

    @property
    def value(self) -> Array:  # type: ignore[override]
        return self._evaluated[0]

    @property
    def gradient(self) -> Array:  # type: ignore[override]
        return self._evaluated[1]

    @property
    def noise_curvature(self) -> Array:
        """The noise's part of the Hessian's diagonal, ``V'(2 s phi_v)``; of groups, that of independent features."""
        return self._evaluated[2]

    def select(self, outputs: Any) -> MomentPoint:
        scores = self.objective.data.map(row_functions.take_scores, self.scores, outputs)
        coef = np.ascontiguousarray(self.coef[:, outputs])
        out = MomentPoint(self.objective.select(outputs), coef, self.moments.select(outputs), scores)
        out._evaluated = tuple(np.ascontiguousarray(array[..., outputs]) for array in self._evaluated)
        return out

    def with_objective(self, objective: MomentObjective) -> MomentPoint:
        """Return this point of an objective that differs in its penalty or its smoothing only."""
        return MomentPoint(objective, self.coef, self.moments, self.scores)

    def without_smoothing(self, smoothings: Sequence[Array] = ()) -> tuple[Array, Array]:
        """Return the weighted loss without smoothing, and the shares of the rows, by weight, with steady scores.

        The kinks of such rows are smoothed by a width more than by the noise: one row of shares for each of the widths
        ``smoothings``. No product is needed.
        """
        objective, widths = self.objective, np.reshape(smoothings, (-1, self.coef.shape[1]))
        if not self.coef[:-1].any() and not objective.loss.suits_regression:
            return objective.constant_loss(self.coef[-1]), (widths > 0.0).astype(float)
        args = objective.row_loss._replace(smoothing=0.0), _WIDTHS * widths, self.scores
        loss, weights = objective.data.map_sum(row_functions.loss_and_weights_below, *args)
        return loss, weights / target_summary(objective.data).weight

    def hessian(self, direct: bool = False) -> Curvature:
        of_penalty = self.objective.penalty.curvature(self.coef)
        if self.objective.loss.is_quadratic:  # its Hessian is its majoriser, which is cheaper
            return self._curvature(row_functions.majoriser_weights, of_penalty, False, direct)
        is_coupled = not self.objective.variance.is_zero
        return self._curvature(row_functions.hessian_weights, of_penalty, is_coupled, direct)

    def sampled_hessian(self) -> Curvature:
        objective = self.objective
        assert objective.subsample is not None
        return replace(objective, data=objective.subsample, subsample=None).at(self.coef).hessian()

    def majoriser(self, direct: bool = False) -> Curvature:
        of_penalty = self.objective.penalty.majoriser(self.coef)
        return self._curvature(row_functions.majoriser_weights, of_penalty, False, direct)

    def _curvature(self, rule: Any, of_penalty: Array | float, is_coupled: bool, direct: bool) -> Curvature:
        objective = self.objective
        weights = objective.data.map(rule, objective.row_loss, self.scores)
        if may_be_exact(self, direct):
            exact = exact_preconditioner(self, weights, of_penalty, direct)
            if exact is not None:
                return replace(self._without_preconditioner(weights, of_penalty), preconditioner=exact)
        expects_gram = suits_gram(self)
        known = self._known_products(weights, with_squares=not expects_gram)
        curvature = self._without_preconditioner(weights, of_penalty)
        own = curvature.diagonal if self.moments.is_diagonal else of_penalty + self.noise_curvature
        preconditioner: Preconditioner | None = None
        if suits_woodbury(self, known.n_active):
            preconditioner = woodbury(self, weights, own)
            if preconditioner is not None:
                return replace(curvature, preconditioner=preconditioner)
        if expects_gram:
            preconditioner = gram_preconditioner(self, known.n_active, known.of_intercept, own, is_coupled)
        deflation = curvature.known_directions(known.images, known.totals)
        if preconditioner is None:
            known = known if known.squares is not None else self._known_products(weights, with_squares=True)
            assert known.squares is not None
            squares = objective.penalty.centred(known.squares, deflation.intercept_image)
            preconditioner = diagonal(self, squares, known.of_intercept, own)
        return replace(curvature, preconditioner=preconditioner, deflation=deflation)

    def _without_preconditioner(self, weights: PerPartition, of_penalty: Array | float) -> MomentCurvature:
        own = self.curvature_diagonal(of_penalty)
        return MomentCurvature(self.objective, self.moments, self.coef, own, self._evaluated[3:], weights)

    def curvature_diagonal(self, of_penalty: Array | float) -> Array:
        """Return the diagonal that is added to the rows' part of a curvature: of penalty and noise, where it is one."""
        return of_penalty + (self.noise_curvature if self.moments.is_diagonal else np.zeros(self.moments.coef.shape))

    def _known_products(self, weights: PerPartition, with_squares: bool) -> KnownProducts:
        args = self.moments, weights, self.scores, with_squares
        totals, n_active, squares, *sums = self.sums_with_gradient(row_functions.known_products, *args)
        return KnownProducts(totals, n_active, squares, self.moments.images(totals, *sums))

    def sums_with_gradient(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Return the sums of a function; value and gradient come with the same request if they are not there yet."""
        data = self.objective.data
        if "_evaluated" in vars(self):
            return data.map_sum(function, *args)
        joint = row_functions.WithGradient(function)
        found = data.map_sum(joint, self.objective.row_loss, self.moments, self.scores, *args)
        n_own = 3 + self.moments.n_gradient_sums
        self._evaluated = self._evaluate(*found[:n_own])
        return found[n_own:]


def _sign_change(slope: Callable[[Array], Array], largest: Array) -> Array:
    """Return, for each output, where a rising slope changes its sign, between ``-largest`` and ``largest``."""
    low, high = -largest, largest
    for _ in range(2):
        points = np.linspace(low, high, _START_POINTS)
        above = np.clip(np.count_nonzero(slope(points) <= 0.0, axis=0), 1, _START_POINTS - 1)[None]
        low, high = (np.take_along_axis(points, index, axis=0)[0] for index in (above - 1, above))
    return 0.5 * (low + high)
