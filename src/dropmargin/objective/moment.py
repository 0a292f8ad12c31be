r"""The objective of the losses that depend on the noise through the score's mean and variance.

For coefficients ``(w, b)`` of one output, a row ``x_i`` and the noise's variance ``V_id = slope_d f(x_id) + floor_d``::

    m = X w + b          v = V w^2          J = R(w) + sum_i s_i phi(y_i; m_i, v_i)

    gradient     R'(w) + X'(s phi_m) + q * w                      q = V'(2 s phi_v)
    Hessian p    R''(w) p + X'(s (phi_mm a + 2 phi_mv t)) + q * p + w * V'(2 s (phi_mv a + 2 phi_vv t))
                 a = X p + p_b,  t = V (w * p)
    majoriser p  R''(w) p + X'(s gamma a) + q * p                 (gamma = 2 phi_v for the radial losses)

``s_i`` is ``C`` times the sample weight. The functions of a partition are in `objective.row_functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from dropmargin.data import Partitions, PerPartition, Rows, target_summary
from dropmargin.losses import MomentLoss
from dropmargin.noise import Variance
from dropmargin.objective import row_functions
from dropmargin.objective.base import Curvature, Objective, Point
from dropmargin.objective.curvature import MomentCurvature, as_column
from dropmargin.objective.preconditioner import (
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
    is_stiff: bool = False
    is_well_preconditioned: bool = True
    has_quadratic_bound: bool = True

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
        summary, is_ridge = target_summary(self.data), self.penalty.is_positive_diagonal and not self.penalty.l1
        is_small = has_cheap_matrices(summary.n_rows, self.n_features, summary.n_outputs)
        return is_ridge and is_small and self.variance.groups is None

    @property
    def row_loss(self) -> RowLoss:
        return RowLoss(self.loss, self.variance, self.outputs, self.smoothing)

    def at(self, coef: Array) -> MomentPoint:
        if not coef[:-1].any():  # the usual start: no product is needed
            scores = self.data.map(row_functions.constant_scores, coef[-1])
        else:
            scores = self.data.map(row_functions.row_scores, *self.packed(coef, np.square(coef[:-1])))
        return MomentPoint(self, coef, scores)

    def value(self, coef: Array) -> Array:
        return self.penalty.value(coef) + self.at(coef).without_smoothing()[0]

    def packed(self, coef: Array, squared: Array) -> tuple[Array, Array, int]:
        """Return what turns rows into means and variances: factors of ``X`` and ``f(X)``, shifts, number of means.

        The scores of a row have the mean ``X w + b`` and the variance ``V u``, with ``(w, b) = coef``, ``u = squared``.
        """
        variance, n_means = self.variance, coef.shape[1]
        shift = np.zeros(n_means + squared.shape[1])
        shift[:n_means] = coef[-1]
        if variance.has_floor:
            floor = np.broadcast_to(as_column(variance.floor), squared.shape)
            shift[n_means:] = np.einsum("dk,dk->k", floor, squared)
        if not variance.moves_entries:
            return coef[:-1], shift, n_means
        factors = np.empty((len(squared), len(shift)))
        factors[:, :n_means] = coef[:-1]
        np.multiply(as_column(variance.slope), squared, out=factors[:, n_means:])
        return factors, shift, n_means

    def variance_transposed(self, by_entries: Array | None, by_floor: Array) -> Array | float:
        """Return ``V' h`` from ``f(X)' h`` and the sum of ``h``."""
        variance = self.variance
        out: Array | float = 0.0 if by_entries is None else as_column(variance.slope) * by_entries
        return out + as_column(variance.floor) * by_floor if variance.has_floor else out

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

    def __init__(self, objective: MomentObjective, coef: Array, scores: PerPartition) -> None:
        self.objective = objective
        self.coef = coef
        self.scores = scores

    @cached_property
    def _evaluated(self) -> tuple[Array, Array, Array]:
        """Value, gradient, and the noise's part of the curvature."""
        objective = self.objective
        found = objective.data.map_sum(row_functions.loss_and_gradient, objective.row_loss, self.scores)
        return self._evaluate(*found)

    def _evaluate(self, loss: Array, back: Array, sums: Array) -> tuple[Array, Array, Array]:
        objective, coef, n = self.objective, self.coef, self.coef.shape[1]
        of_penalty, by_penalty = objective.penalty.at(coef)
        by_entries = back[:, n:] if objective.variance.moves_entries else None
        noise_curvature = np.zeros((objective.n_features, n)) + objective.variance_transposed(by_entries, sums[n:])
        gradient = np.empty_like(coef)
        gradient[:-1] = back[:, :n] + noise_curvature * coef[:-1] + by_penalty[:-1]
        gradient[-1] = sums[:n] + by_penalty[-1] if objective.fit_intercept else 0.0
        return of_penalty + loss, gradient, noise_curvature

    @property
    def value(self) -> Array:  # type: ignore[override]
        return self._evaluated[0]

    @property
    def gradient(self) -> Array:  # type: ignore[override]
        return self._evaluated[1]

    @property
    def noise_curvature(self) -> Array:
        """The noise's part of the Hessian's diagonal, ``V'(2 s phi_v)``."""
        return self._evaluated[2]

    def select(self, outputs: Any) -> MomentPoint:
        scores = self.objective.data.map(row_functions.take_scores, self.scores, outputs)
        out = type(self)(self.objective.select(outputs), np.ascontiguousarray(self.coef[:, outputs]), scores)
        value, gradient, noise_curvature = self._evaluated
        out._evaluated = (
            value[outputs],
            np.ascontiguousarray(gradient[:, outputs]),
            np.ascontiguousarray(noise_curvature[:, outputs]),
        )
        return out

    def with_objective(self, objective: MomentObjective) -> MomentPoint:
        """Return this point of an objective that differs in its penalty or its smoothing only."""
        return type(self)(objective, self.coef, self.scores)

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
                own = of_penalty + self.noise_curvature
                return MomentCurvature(objective, self.coef, own, weights, is_coupled, exact)
        expects_gram = suits_gram(self)
        known = self._known_products(weights, with_squares=not expects_gram)
        own = of_penalty + self.noise_curvature
        curvature = MomentCurvature(objective, self.coef, own, weights, is_coupled)
        preconditioner: Preconditioner | None = None
        if suits_woodbury(self, known.n_active):
            preconditioner = woodbury(self, weights, own)
            if preconditioner is not None:
                return replace(curvature, preconditioner=preconditioner)
        if expects_gram:
            preconditioner = gram_preconditioner(self, known.n_active, known.totals, own, is_coupled)
        deflation = curvature.known_directions(known.images, known.sums)
        if preconditioner is None:
            known = known if known.squares is not None else self._known_products(weights, with_squares=True)
            assert known.squares is not None
            squares = objective.penalty.centred(known.squares, deflation.intercept_image)
            preconditioner = diagonal(self, squares, known.totals, own)
        return replace(curvature, preconditioner=preconditioner, deflation=deflation)

    def _known_products(self, weights: PerPartition, with_squares: bool) -> KnownProducts:
        variance = self.objective.variance
        scale = as_column(variance.slope) * self.coef[:-1] if variance.moves_entries else None
        args = weights, self.scores, scale, with_squares
        return KnownProducts(*self.sums_with_gradient(row_functions.known_products, *args))

    def sums_with_gradient(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Return the sums of a function; value and gradient come with the same request if they are not there yet."""
        data = self.objective.data
        if "_evaluated" in vars(self):
            return data.map_sum(function, *args)
        joint = row_functions.WithGradient(function)
        found = data.map_sum(joint, self.objective.row_loss, self.scores, *args)
        self._evaluated = self._evaluate(*found[:3])
        return found[3:]


def _sign_change(slope: Callable[[Array], Array], largest: Array) -> Array:
    """Return, for each output, where a rising slope changes its sign, between ``-largest`` and ``largest``."""
    low, high = -largest, largest
    for _ in range(2):
        points = np.linspace(low, high, _START_POINTS)
        above = np.clip(np.count_nonzero(slope(points) <= 0.0, axis=0), 1, _START_POINTS - 1)[None]
        low, high = (np.take_along_axis(points, index, axis=0)[0] for index in (above - 1, above))
    return 0.5 * (low + high)
