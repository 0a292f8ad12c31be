r"""The objective of the losses that see the noise through the score's mean and variance.

For a column of coefficients ``(w, b)``, a row ``x_i`` and the noise's variance ``V_id = slope_d f(x_id) + floor_d``::

    m = X w + b          v = V w^2          J = R(w) + sum_i s_i phi(y_i; m_i, v_i + smoothing^2)

    gradient     l2 w + X'(s phi_m) + q * w                      q = V'(2 s phi_v)
    Hessian p    l2 p + X'(s (phi_mm a + 2 phi_mv t)) + q * p + w * V'(2 s (phi_mv a + 2 phi_vv t))
                 a = X p + p_b,  t = V (w * p)
    majoriser p  l2 p + X'(s gamma a) + q * p                    (gamma = 2 phi_v for the radial losses)

``s_i`` has ``C`` in it. Along a direction ``p`` the mean is linear and the variance a parabola,
``m + h a`` and ``v + 2 h t + h^2 V p^2``, so a line search costs one product, whatever the number of its trials.
The functions of a partition are in `objective.rows`. Scores follow the steps as long as the rows are at
hand (`Partitions.is_local`); elsewhere they are computed from the coefficients of each trial (`Trials`), so that all
that is remembered of a fit between two steps is its coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dropmargin.linalg import Partitions, PerPartition, column_dots
from dropmargin.losses import MomentLoss
from dropmargin.noise import Variance
from dropmargin.objective import rows
from dropmargin.objective.base import Labelled, Line, Objective, Penalty, Point, Trials, shape_of
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
from dropmargin.typing import Array

# The search for the best offset, and a rougher one for a start.
_FARTHEST_OFFSET, _BISECTIONS = 30.0, 40
_FARTHEST_START, _START_BISECTIONS = 4.0, 14


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
    smoothing : float, default=0
        Standard deviation of the noise added to every score.
    base : PerPartition of ndarray of shape (n_rows, n_columns), optional
        A number added to every score.
    """

    data: Partitions[Labelled]
    loss: MomentLoss
    variance: Variance
    penalty: Penalty
    fit_intercept: bool
    n_features: int
    columns: Array
    smoothing: float = 0.0
    base: PerPartition | None = None
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
        if self.base is not None:
            scores = self.data.map(rows.with_mean_moved, scores, self.base)
        return MomentPoint(self, coef, scores)

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

        def slope(offset: Array) -> Array:
            by_mean, _ = self.loss.gradient(*self._constant_scores(offset))
            return np.sum(weights * by_mean, axis=0)

        coef = np.zeros((self.n_features + 1, self.n_columns))
        if self.fit_intercept:
            coef[-1] = _bisect(slope, np.full(self.n_columns, _FARTHEST_START), _START_BISECTIONS)
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
        return labels, np.broadcast_to(offset, labels.shape), np.full(labels.shape, self.smoothing**2)

    def select(self, columns: Any) -> MomentObjective:
        base = None if self.base is None else self.data.map(rows.take_columns, self.base, columns)
        return replace(self, columns=self.columns[columns], base=base)

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
        self._smoothed: dict[float, tuple[Array, Array]] = {}  # risk and share of steady rows, by deviation

    @cached_property
    def _answers(self) -> tuple[Array, Array, Array]:
        """Value, gradient, and the noise's part of the curvature."""
        return self._answers_of(*self.objective.sweep_sum(rows.loss_and_gradient, *self._loss_of_rows, self.scores))

    @property
    def _loss_of_rows(self) -> tuple[Any, ...]:
        objective = self.objective
        return objective.loss, objective.variance, objective.columns, objective.smoothing**2

    def _answers_of(self, risk: Array, back: Array, sums: Array) -> tuple[Array, Array, Array]:
        objective, coef = self.objective, self.coef
        penalty, n = objective.penalty, coef.shape[1]
        by_entries = back[:, n:] if objective.variance.moves_entries else None
        noise_curvature = np.zeros((objective.n_features, n)) + objective.variance_transposed(by_entries, sums[n:])
        gradient = np.empty_like(coef)
        gradient[:-1] = back[:, :n] + (penalty.l2 + noise_curvature) * coef[:-1]
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
        """Return this point of an objective that differs in its loss or its smoothing only."""
        out = MomentPoint(objective, self.coef, self.scores)
        if objective.loss is self.objective.loss:
            out._smoothed = self._smoothed
        return out

    def at_best_offset(self) -> MomentPoint:
        """Return the point with the best offsets for its weights: a search on the scores, and no sweep for it."""
        objective = self.objective
        if not objective.fit_intercept:
            return self

        def slope(offset: Array) -> Array:
            return objective.data.map_sum(
                rows.offset_slope, objective.loss, objective.columns, objective.smoothing**2, self.scores, offset
            )[0]

        offset = _bisect(slope, _FARTHEST_OFFSET + 2.0 * np.abs(self.coef[-1]), _BISECTIONS)
        coef = self.coef.copy()
        coef[-1] += offset
        return MomentPoint(objective, coef, objective.data.map(rows.with_mean_moved, self.scores, offset))

    def look_under(self, *smoothings: float) -> None:
        """Ask for `risk` and `share_below` of several smoothings at once; no sweep over the data."""
        asked = [smoothing for smoothing in smoothings if smoothing not in self._smoothed]
        if asked:
            objective = self.objective
            risks, below = objective.data.map_sum(
                rows.under_smoothings, objective.loss, objective.columns, np.array(asked), self.scores
            )
            shares = below / shape_of(objective.data).weight
            self._smoothed |= {own[0]: own[1:] for own in zip(asked, risks, shares, strict=True)}

    def risk(self, smoothing: float) -> Array:
        """Return the weighted loss at these coefficients for another smoothing."""
        self.look_under(smoothing)
        return self._smoothed[smoothing][0]

    def share_below(self, deviation: float) -> Array:
        """Return the share of the rows, by weight, whose score has a standard deviation below this."""
        self.look_under(deviation)
        return self._smoothed[deviation][1]

    def share_at_kink(self, radius: float) -> Array:
        """Return the share of the rows, by weight, whose noisy score is this close to the kink of the loss."""
        objective = self.objective
        near, total = objective.data.map_sum(
            rows.weight_at_kink, objective.loss.kink, objective.columns, radius, self.scores
        )
        return near / total

    def hessian(self, direct: bool = False) -> MomentCurvature:
        return self._curvature(rows.hessian_weights, not self.objective.variance.is_zero, direct)

    def majoriser(self, direct: bool = False) -> MomentCurvature:
        return self._curvature(rows.majoriser_weights, False, direct)

    def _curvature(self, rule: Any, is_coupled: bool, direct: bool) -> MomentCurvature:
        objective = self.objective
        weights = objective.data.map(rule, *self._loss_of_rows, self.scores)
        if may_be_exact(self, direct):
            exact = exact_preconditioner(self, weights, direct)
            if exact is not None:
                return MomentCurvature(objective, self.coef, self.noise_curvature, weights, is_coupled, exact)
        expects_gram = suits_gram(self)
        known = self._known_products(weights, with_squares=not expects_gram)
        curvature = partial(MomentCurvature, objective, self.coef, self.noise_curvature, weights, is_coupled)
        if suits_woodbury(self, known.n_active):
            return curvature(woodbury(self, weights))
        preconditioner: Preconditioner | None = None
        if expects_gram:
            preconditioner = gram_preconditioner(self, known.n_active, known.totals, is_coupled)
        if preconditioner is None:
            known = known if known.squares is not None else self._known_products(weights, with_squares=True)
            assert known.squares is not None
            preconditioner = diagonal(self, known.squares, known.totals)
        return curvature(preconditioner).with_coarse(known.back, known.sums)

    def _known_products(self, weights: PerPartition, with_squares: bool) -> rows.KnownProducts:
        """Return the products with what is known; value and gradient are asked for at once, if they are not yet."""
        objective = self.objective
        rest = weights, self.scores, objective.base, with_squares
        if "_answers" in vars(self):
            return rows.KnownProducts(*objective.sweep_sum(rows.known_products, *rest))
        found = objective.sweep_sum(rows.gradient_and_known_products, *self._loss_of_rows, *rest)
        objective.data.n_sweeps += 1  # two products back
        self._answers = self._answers_of(*found[:3])
        return rows.KnownProducts(*found[3:])

    def along(self, direction: Array) -> Line:
        if not self.objective.data.is_local:
            return Trials(self.objective, self, direction)
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
        l2 = objective.penalty.l2
        self.cross = l2 * column_dots(w, weights)
        self.square = l2 * column_dots(weights, weights)
        self.level = objective.penalty.value(start.coef)

    def value(self, step: Array) -> Array:
        objective = self.start.objective
        risk = objective.data.map_sum(
            rows.loss_moved,
            objective.loss,
            objective.columns,
            objective.smoothing**2,
            self.start.scores,
            self.moves,
            step,
        )[0]
        return self.level + step * self.cross + 0.5 * np.square(step) * self.square + risk

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
