r"""The objective of the losses that see the noise through the score's mean and variance.

For a column of coefficients ``(w, b)``, a row ``x_i`` and the noise's variance ``V_id = slope_d f(x_id) + floor_d``::

    m = X w + b          v = V w^2          J = R(w) + sum_i s_i phi(y_i; m_i, v_i + smoothing^2)

    gradient     l2 w + X'(s phi_m) + q * w                      q = V'(2 s phi_v)
    Hessian p    l2 p + X'(s (phi_mm a + 2 phi_mv t)) + q * p + w * V'(2 s (phi_mv a + 2 phi_vv t))
                 a = X p + p_b,  t = V (w * p)
    majoriser p  l2 p + X'(s gamma a) + q * p                    (gamma = 2 phi_v for the radial losses)

``s_i`` has ``C`` in it. Along a direction ``p`` the mean is linear and the variance a parabola,
``m + h a`` and ``v + 2 h t + h^2 V p^2``, so a line search costs one product, whatever the number of its trials.
Every function of a partition is pure and at module level: another backend may send it elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dropmargin.linalg import Partitions, PerPartition
from dropmargin.losses import HuberHinge, MomentLoss
from dropmargin.noise import Variance
from dropmargin.objective.base import Curvature, Labelled, Line, Objective, Penalty, Point
from dropmargin.objective.preconditioner import Preconditioner, choose_preconditioner
from dropmargin.typing import Array


class Scores(NamedTuple):
    """Mean and variance of the noisy scores of a partition, ``(n_rows, n_columns)`` each; no variance, no noise."""

    mean: Array
    variance: Array


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
    has_weights: bool = True

    @property
    def n_columns(self) -> int:  # type: ignore[override]
        return len(self.columns)

    @property
    def is_stiff(self) -> bool:  # type: ignore[override]
        """Without noise, a kink is rounded off by little or nothing."""
        return self.variance.is_zero and (self.smoothing > 0.0 or isinstance(self.loss, HuberHinge))

    @property
    def n_passes(self) -> float:
        return self.data.n_sweeps / 2

    def at(self, coef: Array) -> MomentPoint:
        squares = np.square(coef[:-1])
        scores = self.sweep(_scores, self.variance, coef, squares)
        if self.base is not None:
            scores = PerPartition(s._replace(mean=s.mean + own) for s, own in zip(scores, self.base, strict=True))
        return MomentPoint(self, coef, scores)

    def select(self, columns: Any) -> MomentObjective:
        base = None if self.base is None else PerPartition(own[:, columns] for own in self.base)
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
    """The objective at ``coef``, with the scores that belong to it."""

    def __init__(self, objective: MomentObjective, coef: Array, scores: PerPartition) -> None:
        self.objective = objective
        self.coef = coef
        self.scores = scores
        risk, by_weights, by_offset, by_entries, by_floor = objective.sweep_sum(
            _loss_and_gradient, objective.loss, objective.variance, objective.columns, objective.smoothing**2, scores
        )
        penalty = objective.penalty
        self.value = penalty.value(coef) + risk
        self.noise_curvature = _variance_transposed(objective.variance, by_entries, by_floor, by_weights.shape)
        self.gradient = np.empty_like(coef)
        self.gradient[:-1] = by_weights + (penalty.l2 + self.noise_curvature) * coef[:-1]
        self.gradient[-1] = by_offset if objective.fit_intercept else 0.0

    def select(self, columns: Any) -> MomentPoint:
        out = object.__new__(MomentPoint)
        out.objective = self.objective.select(columns)
        out.coef = np.ascontiguousarray(self.coef[:, columns])
        out.scores = PerPartition(Scores(*(part[:, columns] for part in scores)) for scores in self.scores)
        out.value = self.value[columns]
        out.gradient = np.ascontiguousarray(self.gradient[:, columns])
        out.noise_curvature = np.ascontiguousarray(self.noise_curvature[:, columns])
        return out

    def risk(self, smoothing: float) -> Array:
        """Return the weighted loss at these coefficients for another smoothing; no sweep over the data."""
        objective = self.objective
        return objective.data.map_sum(_loss_only, objective.loss, objective.columns, smoothing**2, self.scores)[0]

    def share_below(self, deviation: float) -> Array:
        """Return the share of the rows, by weight, whose score has a standard deviation below this."""
        below, total = self.objective.data.map_sum(_weight_below, deviation**2, self.scores)
        return below / total

    def hessian(self, direct: bool = False) -> MomentCurvature:
        return self._curvature(_hessian_weights, direct)

    def majoriser(self, direct: bool = False) -> MomentCurvature:
        return self._curvature(_majoriser_weights, direct)

    def _curvature(self, rule: Any, direct: bool) -> MomentCurvature:
        objective = self.objective
        weights = objective.data.map(rule, objective.loss, objective.columns, objective.smoothing**2, self.scores)
        return MomentCurvature(self, weights, choose_preconditioner(self, weights, direct))

    def along(self, direction: Array) -> MomentLine:
        return MomentLine(self, direction)


class MomentLine(Line):
    """The objective on a line: the scores' means move linearly, their variances along a parabola."""

    def __init__(self, start: MomentPoint, direction: Array) -> None:
        self.start = start
        self.direction = direction
        objective = start.objective
        weights = direction[:-1]
        variance_weights = np.hstack([start.coef[:-1] * weights, np.square(weights)])
        self.moves = objective.sweep(_scores, objective.variance, direction, variance_weights)
        w = start.coef[:-1]
        l2 = objective.penalty.l2
        self.cross = l2 * np.einsum("dk,dk->k", w, weights)
        self.square = l2 * np.einsum("dk,dk->k", weights, weights)
        self.level = objective.penalty.value(start.coef)

    def value(self, step: Array) -> Array:
        objective = self.start.objective
        risk = objective.data.map_sum(
            _loss_moved, objective.loss, objective.columns, objective.smoothing**2, self.start.scores, self.moves, step
        )[0]
        return self.level + step * self.cross + 0.5 * np.square(step) * self.square + risk

    def point(self, step: Array) -> MomentPoint:
        start = self.start
        moved = PerPartition(_moved(s, m, step) for s, m in zip(start.scores, self.moves, strict=True))
        return MomentPoint(start.objective, start.coef + step * self.direction, moved)


class MomentCurvature(Curvature):
    """The Hessian or the majoriser at a point: per-row weights, and the products of the module's docstring."""

    def __init__(self, point: MomentPoint, weights: PerPartition, preconditioner: Preconditioner) -> None:
        self.point = point
        self.weights = weights
        self.preconditioner = preconditioner

    def product(self, direction: Array) -> Array:
        point = self.point
        objective = point.objective
        coupled = self.weights[0].mixed is not None
        cross = point.coef[:-1] * direction[:-1] if coupled else None
        by_weights, by_offset, by_entries, by_floor = objective.sweep_sum(
            _curvature_product, objective.variance, self.weights, direction, cross
        )
        objective.data.n_sweeps += 1  # one product forth, one back
        out = np.empty_like(direction)
        out[:-1] = by_weights + (objective.penalty.l2 + point.noise_curvature) * direction[:-1]
        if coupled:
            out[:-1] += point.coef[:-1] * _variance_transposed(
                objective.variance, by_entries, by_floor, by_weights.shape
            )
        out[-1] = by_offset if objective.fit_intercept else direction[-1]
        return out

    def precondition(self, residual: Array) -> Array:
        return self.preconditioner.solve(residual)

    def select(self, columns: Any) -> MomentCurvature:
        weights = PerPartition(part.select(columns) for part in self.weights)
        return MomentCurvature(self.point.select(columns), weights, self.preconditioner.select(columns))


class CurvatureWeights(NamedTuple):
    """Second derivatives of the weighted loss by the scores' moments; the mixed ones are absent in the majoriser."""

    by_mean: Array
    mixed: Array | None
    by_variance: Array | None

    def select(self, columns: Any) -> CurvatureWeights:
        mixed, by_variance = (None if part is None else part[:, columns] for part in self[1:])
        return CurvatureWeights(self.by_mean[:, columns], mixed, by_variance)


# Functions of one partition ---------------------------------------------------------------------------------------


def _scores(part: Labelled, variance: Variance, coef: Array, variance_weights: Array) -> Scores:
    """Return ``X w + b`` and ``V u`` for weights ``w`` and variance weights ``u``."""
    entry_weights = (_column(variance.slope) * variance_weights) if variance.moves_entries else None
    mean, spread = part.block.products(coef[:-1], entry_weights)
    assert mean is not None
    mean = mean + coef[-1]
    if spread is None:
        spread = np.zeros((part.block.n_rows, variance_weights.shape[1]))
    if variance.has_floor:
        spread = spread + np.einsum("dk,dk->k", _rows(variance.floor, variance_weights), variance_weights)
    return Scores(mean, spread)


def _moved(scores: Scores, moves: Scores, step: Array) -> Scores:
    n_columns = scores.mean.shape[1]
    cross, square = moves.variance[:, :n_columns], moves.variance[:, n_columns:]
    # rounding may leave a variance a little below zero
    variance = np.maximum(scores.variance + step * (2.0 * cross + step * square), 0.0)
    return Scores(scores.mean + step * moves.mean, variance)


def _loss_only(part: Labelled, loss: MomentLoss, columns: Array, floor: float, scores: Scores) -> tuple[Array]:
    losses = loss.value(part.labels[:, columns], scores.mean, scores.variance + floor)
    return (np.einsum("i,ik->k", part.weights[:, 0], losses),)


def _weight_below(part: Labelled, variance: float, scores: Scores) -> tuple[Array, float]:
    weights = part.weights[:, 0]
    return np.einsum("i,ik->k", weights, scores.variance < variance), float(weights.sum())


def _loss_moved(
    part: Labelled, loss: MomentLoss, columns: Array, floor: float, scores: Scores, moves: Scores, step: Array
) -> tuple[Array]:
    return _loss_only(part, loss, columns, floor, _moved(scores, moves, step))


def _loss_and_gradient(
    part: Labelled, loss: MomentLoss, variance: Variance, columns: Array, floor: float, scores: Scores
) -> tuple[Array, Array, Array, Array | None, Array]:
    """Return the loss, ``X'(s phi_m)``, its sum, ``f(X)'(2 s phi_v)`` and its sum."""
    labels = part.labels[:, columns]
    by_mean, by_variance = loss.gradient(labels, scores.mean, scores.variance + floor)
    by_mean *= part.weights
    by_variance = 2.0 * part.weights * by_variance
    weights, entries = part.block.transposed_products(by_mean, by_variance if variance.moves_entries else None)
    assert weights is not None
    risk = _loss_only(part, loss, columns, floor, scores)[0]
    return risk, weights, by_mean.sum(axis=0), entries, by_variance.sum(axis=0)


def _hessian_weights(
    part: Labelled, loss: MomentLoss, columns: Array, floor: float, scores: Scores
) -> CurvatureWeights:
    second = loss.curvature(part.labels[:, columns], scores.mean, scores.variance + floor)
    return CurvatureWeights(*(part.weights * derivative for derivative in second))


def _majoriser_weights(
    part: Labelled, loss: MomentLoss, columns: Array, floor: float, scores: Scores
) -> CurvatureWeights:
    weight = loss.weight(part.labels[:, columns], scores.mean, scores.variance + floor)
    return CurvatureWeights(part.weights * weight, None, None)


def _curvature_product(
    part: Labelled, variance: Variance, weights: CurvatureWeights, direction: Array, cross: Array | None
) -> tuple[Array, Array, Array | None, Array | None]:
    """Return ``X'(...)``, its sum, ``f(X)'(...)`` and its sum, for the Hessian (or the majoriser) times a direction."""
    if cross is None or weights.mixed is None or weights.by_variance is None or variance.is_zero:
        mean, _ = part.block.products(direction[:-1], None)
        assert mean is not None
        by_mean = weights.by_mean * (mean + direction[-1])
        back, _ = part.block.transposed_products(by_mean, None)
        assert back is not None
        return back, by_mean.sum(axis=0), None, None
    scores = _scores(part, variance, direction, cross)
    by_mean = weights.by_mean * scores.mean + 2.0 * weights.mixed * scores.variance
    by_variance = 2.0 * (weights.mixed * scores.mean + 2.0 * weights.by_variance * scores.variance)
    back, entries = part.block.transposed_products(by_mean, by_variance if variance.moves_entries else None)
    assert back is not None
    return back, by_mean.sum(axis=0), entries, by_variance.sum(axis=0)


# Broadcasting of per-feature parameters ---------------------------------------------------------------------------


def _column(parameter: float | Array) -> Any:
    """Return a scalar as it is and one value per feature as a column."""
    return parameter if np.ndim(parameter) == 0 else np.asarray(parameter)[:, None]


def _rows(parameter: float | Array, like: Array) -> Array:
    return np.broadcast_to(_column(parameter), like.shape)


def _variance_transposed(
    variance: Variance, by_entries: Array | None, by_floor: Array | None, shape: tuple[int, int]
) -> Array:
    """Return ``V' h`` from ``f(X)' h`` and the sum of ``h``."""
    out = np.zeros(shape)
    if by_entries is not None:
        out += _column(variance.slope) * by_entries
    if variance.has_floor and by_floor is not None:
        out += _column(variance.floor) * by_floor
    return out
