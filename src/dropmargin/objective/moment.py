r"""The objective of the losses that see the noise through the score's mean and variance.

For a column of coefficients ``(w, b)``, a row ``x_i`` and the noise's variance ``V_id = slope_d f(x_id) + floor_d``::

    m = X w + b          v = V w^2          J = R(w) + sum_i s_i phi(y_i; m_i, v_i)

    gradient     l2 w + X'(s phi_m) + q * w                      q = V'(2 s phi_v)
    Hessian p    l2 p + X'(s (phi_mm a + 2 phi_mv t)) + q * p + w * V'(2 s (phi_mv a + 2 phi_vv t))
                 a = X p + p_b,  t = V (w * p)
    majoriser p  l2 p + X'(s gamma a) + q * p                    (gamma = 2 phi_v for the radial losses)

``s_i`` has ``C`` in it. Along a direction ``p`` the mean is linear and the variance a parabola,
``m + h a`` and ``v + 2 h t + h^2 V p^2``, so a line search costs one product, whatever the number of its trials.
The functions of a partition are in `objective.rows`. Scores follow the steps as long as the rows are at
hand (`Partitions.is_local`); elsewhere they are computed from the coefficients of each trial (`ReevaluatedLine`), so
that all that is remembered of a fit between two steps is its coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dropmargin.data import Partitions, PerPartition
from dropmargin.losses import MomentLoss
from dropmargin.noise import Variance
from dropmargin.objective import rows
from dropmargin.objective.base import Labelled, Line, Objective, Point, ReevaluatedLine, shape_of
from dropmargin.objective.curvature import MomentCurvature, as_column
from dropmargin.objective.preconditioner import (
    Preconditioner,
    diagonal,
    exact_preconditioner,
    gram_preconditioner,
    may_be_exact,
    suits_gram,
    suits_woodbury,
    woodbury,
)
from dropmargin.penalties import Penalty
from dropmargin.typing import Array

# The search for a first intercept, and the width over which a kink is rounded off for it.
_FARTHEST_START, _START_BISECTIONS = 4.0, 14
_START_WIDTH = 0.1


@dataclass(frozen=True)
class MomentObjective(Objective):
    """See the module's docstring.

    Parameters
    ----------
    data : Partitions of Labelled
    loss : MomentLoss
    variance : Variance
        Of the noise; arrays are per feature.
    penalty : Penalty
    fit_intercept : bool
    n_features : int
    columns : ndarray of int
        The columns of the labels that are in the block.
    smoothing : ndarray of shape (n_columns,) or 0, default=0
        Width over which the loss's kink is rounded off (`MomentLoss.smoothed`); 0 is the loss itself.
    """

    data: Partitions[Labelled]
    loss: MomentLoss
    variance: Variance
    penalty: Penalty
    fit_intercept: bool
    n_features: int
    columns: Array
    smoothing: Array | float = 0.0
    is_stiff: bool = False
    has_weights: bool = True

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        return len(self.columns)

    @property
    def n_passes(self) -> float:
        return self.data.n_sweeps / 2

    def at(self, coef: Array) -> MomentPoint:
        if not coef.any():
            scores = self.data.map(rows.no_scores, coef.shape[1])  # the usual start: nothing to multiply
        else:
            scores = self.sweep(rows.row_scores, *self.packed(coef, np.square(coef[:-1])))
        return MomentPoint(self, coef, scores)

    def value(self, coef: Array) -> Array:
        return self.penalty.value(coef) + self.at(coef).risk()

    def packed(self, coef: Array, variance_weights: Array) -> tuple[Array, Array, int]:
        """Return what turns rows into means and variances: factors of ``X`` and ``f(X)``, shifts, number of means.

        A row's scores are ``X w + b`` and ``V u``, with ``(w, b) = coef`` and ``u = variance_weights``.
        """
        variance, n_means = self.variance, coef.shape[1]
        shift = np.zeros(n_means + variance_weights.shape[1])
        shift[:n_means] = coef[-1]
        if variance.has_floor:
            shift[n_means:] = np.einsum(
                "dk,dk->k", np.broadcast_to(as_column(variance.floor), variance_weights.shape), variance_weights
            )
        if not variance.moves_entries:
            return coef[:-1], shift, n_means
        factors = np.empty((len(variance_weights), len(shift)))
        factors[:, :n_means] = coef[:-1]
        np.multiply(as_column(variance.slope), variance_weights, out=factors[:, n_means:])
        return factors, shift, n_means

    def variance_transposed(self, by_entries: Array | None, by_floor: Array) -> Array | float:
        """Return ``V' h`` from ``f(X)' h`` and the sum of ``h``."""
        variance = self.variance
        out: Array | float = 0.0 if by_entries is None else as_column(variance.slope) * by_entries
        return out + as_column(variance.floor) * by_floor if variance.has_floor else out

    def label_weights(self) -> Array:
        """Return the weight of the positive label and of the negative one, a row each, one column per column."""
        return shape_of(self.data).label_weights[:, self.columns]

    def starting_coef(self) -> Array:
        """Return coefficients with no weights and roughly the best offsets; no sweep is needed.

        Without weights every row of a label has the same score, so two losses per column are all there is to balance.
        """
        weights = self.label_weights()
        loss = self.loss.smoothed(_START_WIDTH * self.loss.kink) if self.loss.kink else self.loss

        def slope(offset: Array) -> Array:
            by_mean, _ = loss.gradient(*self._constant_scores(offset))
            return np.sum(weights * by_mean, axis=0)

        coef = np.zeros((self.n_features + 1, self.n_columns))
        if self.fit_intercept:
            coef[-1] = _bisect(
                slope, np.full(self.n_columns, _FARTHEST_START * max(1.0, self.loss.kink)), _START_BISECTIONS
            )
        return coef

    def constant_at_kink(self) -> tuple[Array, Array]:
        """Return no weights and the better of the offsets at the kinks, and the objective there; no sweep is needed."""
        weights = self.label_weights()
        coef = np.zeros((self.n_features + 1, self.n_columns))
        if self.fit_intercept:
            coef[-1] = np.where(weights[0] > weights[1], self.loss.kink, -self.loss.kink)
        return coef, np.sum(weights * self.loss.value(*self._constant_scores(coef[-1])), axis=0)

    def _constant_scores(self, offset: Array) -> tuple[Array, Array, Array]:
        """Return labels, means and variances of a positive and of a negative row, if all rows have the same score."""
        labels = np.repeat([[1.0], [-1.0]], self.n_columns, axis=1)
        return labels, np.broadcast_to(offset, labels.shape), np.zeros(labels.shape)

    def select(self, columns: Any) -> MomentObjective:
        smoothing = self.smoothing[columns] if isinstance(self.smoothing, np.ndarray) else self.smoothing
        return replace(self, columns=self.columns[columns], smoothing=smoothing)

    def sweep(self, function: Any, *args: Any) -> PerPartition:
        """Map a function that reads the data once."""
        self.data.n_sweeps += 1
        return self.data.map(function, *args)

    def sweep_sum(self, function: Any, *args: Any) -> tuple[Any, ...]:
        """Map a function that reads the data once, and add up."""
        self.data.n_sweeps += 1
        return self.data.map_sum(function, *args)


class MomentPoint(Point):
    """The objective at ``coef``, with the scores that belong to it; value and gradient when first asked for."""

    def __init__(self, objective: MomentObjective, coef: Array, scores: PerPartition) -> None:
        self.objective = objective
        self.coef = coef
        self.scores = scores

    @cached_property
    def _answers(self) -> tuple[Array, Array, Array]:
        """Value, gradient, and the noise's part of the curvature."""
        return self._answers_of(*self.objective.sweep_sum(rows.loss_and_gradient, *self._loss_of_rows, self.scores))

    @property
    def _loss_of_rows(self) -> tuple[Any, ...]:
        objective = self.objective
        return objective.loss, objective.variance, objective.columns, objective.smoothing

    def _answers_of(self, risk: Array, back: Array, sums: Array) -> tuple[Array, Array, Array]:
        objective, coef = self.objective, self.coef
        penalty, n = objective.penalty, coef.shape[1]
        by_entries = back[:, n:] if objective.variance.moves_entries else None
        noise_curvature = np.zeros((objective.n_features, n)) + objective.variance_transposed(by_entries, sums[n:])
        gradient = np.empty_like(coef)
        gradient[:-1] = back[:, :n] + noise_curvature * coef[:-1] + penalty.gradient(coef)
        gradient[-1] = sums[:n] if objective.fit_intercept else 0.0
        return penalty.value(coef) + risk, gradient, noise_curvature

    @property
    def value(self) -> Array:  # type: ignore[override]
        return self._answers[0]

    @property
    def gradient(self) -> Array:  # type: ignore[override]
        return self._answers[1]

    @property
    def noise_curvature(self) -> Array:
        """The noise's part of the Hessian's diagonal, ``V'(2 s phi_v)``."""
        return self._answers[2]

    def select(self, columns: Any) -> MomentPoint:
        scores = self.objective.data.map(rows.take_scores, self.scores, columns)
        out = MomentPoint(self.objective.select(columns), np.ascontiguousarray(self.coef[:, columns]), scores)
        value, gradient, noise_curvature = self._answers
        out._answers = (
            value[columns],
            np.ascontiguousarray(gradient[:, columns]),
            np.ascontiguousarray(noise_curvature[:, columns]),
        )
        return out

    def under(self, objective: MomentObjective) -> MomentPoint:
        """Return this point of an objective that differs in its penalty or its smoothing only."""
        return MomentPoint(objective, self.coef, self.scores)

    def risk(self) -> Array:
        """Return the weighted loss without any smoothing; no sweep over the data."""
        objective = self.objective
        return objective.data.map_sum(rows.loss_only, objective.loss, objective.columns, 0.0, self.scores)[0]

    def steady_share(self, smoothing: Array) -> Array:
        """Return the share of the rows, by weight, whose score varies by less than a few widths of this smoothing."""
        (steady,) = self.objective.data.map_sum(rows.steady_weight, smoothing, self.scores)
        return steady / shape_of(self.objective.data).weight

    def hessian(self, direct: bool = False) -> MomentCurvature:
        of_penalty = self.objective.penalty.curvature(self.coef)
        return self._curvature(rows.hessian_weights, of_penalty, not self.objective.variance.is_zero, direct)

    def majoriser(self, direct: bool = False) -> MomentCurvature:
        return self._curvature(rows.majoriser_weights, self.objective.penalty.majoriser(self.coef), False, direct)

    def _curvature(self, rule: Any, of_penalty: Array | float, is_coupled: bool, direct: bool) -> MomentCurvature:
        objective = self.objective
        weights = objective.data.map(rule, *self._loss_of_rows, self.scores)
        if may_be_exact(self, direct):
            exact = exact_preconditioner(self, weights, of_penalty, direct)
            if exact is not None:
                own = of_penalty + self.noise_curvature
                return MomentCurvature(objective, self.coef, own, weights, is_coupled, exact)
        expects_gram = suits_gram(self)
        known = self._known_products(weights, with_squares=not expects_gram)
        own = of_penalty + self.noise_curvature
        curvature = partial(MomentCurvature, objective, self.coef, own, weights, is_coupled)
        preconditioner: Preconditioner | None = None
        if suits_woodbury(self, known.n_active):
            preconditioner = woodbury(self, weights, own)
            if preconditioner is not None:
                return curvature(preconditioner)
        if expects_gram:
            preconditioner = gram_preconditioner(self, known.n_active, known.totals, own, is_coupled)
        if preconditioner is None:
            known = known if known.squares is not None else self._known_products(weights, with_squares=True)
            assert known.squares is not None
            preconditioner = diagonal(self, known.squares, known.totals, own)
        return curvature(preconditioner).with_coarse(known.back, known.sums)

    def _known_products(self, weights: PerPartition, with_squares: bool) -> rows.KnownProducts:
        """Return the products with what is known; value and gradient are asked for at once, if they are not yet."""
        objective = self.objective
        rest = weights, self.scores, with_squares
        if "_answers" in vars(self):
            return rows.KnownProducts(*objective.sweep_sum(rows.known_products, *rest))
        found = objective.sweep_sum(rows.gradient_and_known_products, *self._loss_of_rows, *rest)
        objective.data.n_sweeps += 1  # two products back
        self._answers = self._answers_of(*found[:3])
        return rows.KnownProducts(*found[3:])

    def along(self, direction: Array) -> Line:
        if not self.objective.data.is_local:
            return ReevaluatedLine(self.objective, self, direction)
        return MomentLine(self, direction)


class MomentLine(Line):
    """The objective on a line: the scores' means move linearly, their variances along a parabola."""

    def __init__(self, start: MomentPoint, direction: Array) -> None:
        self.start = start
        self.direction = direction
        objective = start.objective
        weights = direction[:-1]
        w = start.coef[:-1]
        self.moves = objective.sweep(
            rows.row_scores, *objective.packed(direction, np.hstack([w * weights, np.square(weights)]))
        )

    def value(self, step: Array) -> Array:
        objective = self.start.objective
        risk = objective.data.map_sum(
            rows.loss_moved,
            objective.loss,
            objective.columns,
            objective.smoothing,
            self.start.scores,
            self.moves,
            step,
        )[0]
        return objective.penalty.value(self.start.coef + step * self.direction) + risk

    def point(self, step: Array) -> MomentPoint:
        start, objective = self.start, self.start.objective
        coef = start.coef + step * self.direction
        return MomentPoint(objective, coef, objective.data.map(rows.moved, start.scores, self.moves, step))


def _bisect(slope: Callable[[Array], Array], farthest: Array, n_steps: int) -> Array:
    """Return, column by column, where a slope that rises changes its sign, between ``-farthest`` and ``farthest``."""
    low, high = -farthest, farthest
    for _ in range(n_steps):
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0.0
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    return 0.5 * (low + high)
