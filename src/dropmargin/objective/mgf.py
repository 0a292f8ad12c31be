r"""The objective of the losses that see the noise through its moment generating function.

For one column ``(w, b)``::

    K_i = sum_d K_d(-y_i w_d; x_id) - y_i b          J = R(w) + sum_i s_i phi(K_i)

    gradient     l2 w + P'(s phi')                            P_id = -y_i K_d'(-y_i w_d; x_id), the Jacobian of K
    Hessian p    l2 p + P'(s phi'' (P p)) + q * p             q_d = sum_i s_i phi'_i K_d''(-y_i w_d; x_id)

``P`` has the pattern of ``X``. A feature that is zero may still have a ``K``, the same for every row with the same
label, so sums run over the stored entries with ``K(t; x) - K(t; 0)`` and add ``K(t; 0)`` once per label.
There is no quadratic majoriser; ``w = 0`` is a good start for Newton's method, whose steps a line search keeps finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Block, Partitions, PerPartition
from dropmargin.losses import MGFLoss
from dropmargin.noise import Noise
from dropmargin.objective.base import Curvature, Labelled, Line, Objective, Point
from dropmargin.objective.preconditioner import Diagonal
from dropmargin.penalties import Penalty
from dropmargin.typing import Array


class Expansion(NamedTuple):
    """A partition at given weights: ``K`` per row, its Jacobian and second derivative per stored entry."""

    log_mgf: Array
    jacobian: Block
    second: Block


class Recipe(NamedTuple):
    """What an expansion is made of, besides the rows."""

    noise: Noise
    column: int
    coef: Array
    zeros: dict[float, tuple[Array, Array, Array]]


@dataclass(frozen=True)
class MGFObjective(Objective):
    """See the module's docstring. The block has one column: another would share no product with it.

    Parameters
    ----------
    data : Partitions of Labelled
    loss : MGFLoss
    noise : Noise
    penalty : Penalty
    fit_intercept : bool
    n_features : int
    column : int
        The column of the labels that this is the objective of.
    """

    data: Partitions[Labelled]
    loss: MGFLoss
    noise: Noise
    penalty: Penalty
    fit_intercept: bool
    n_features: int
    column: int
    n_columns: int = 1
    has_weights: bool = False
    is_stiff: bool = False

    @property
    def n_passes(self) -> float:
        return self.data.n_sweeps / 2

    def at(self, coef: Array) -> MGFPoint:
        return MGFPoint(self, coef)

    def value(self, coef: Array) -> Array:
        """Return the value alone."""
        self.data.n_sweeps += 1
        zeros = self._zeros(coef)
        (risk,) = self.data.map_sum(_risk, self.loss, self.noise, self.column, coef, zeros)
        return self.penalty.value(coef) + risk

    def _zeros(self, coef: Array) -> dict[float, tuple[Array, Array, Array]]:
        """Return ``K``, ``K'`` and ``K''`` of features that are zero, for either label."""
        weights = coef[:-1, 0]
        return {y: self.noise.log_mgf(-y * weights, np.zeros_like(weights)) for y in (-1.0, 1.0)}

    def expand(self, coef: Array) -> tuple[PerPartition | Recipe, dict[float, tuple[Array, Array, Array]]]:
        """Return the expansion of each partition, and the same for features that are zero.

        An expansion is twice as large as the rows: where these are not at hand, it is only said how to make it.
        """
        zeros = self._zeros(coef)
        self.data.n_sweeps += 1
        recipe = Recipe(self.noise, self.column, coef, zeros)
        return self.data.map(_expand, recipe) if self.data.is_local else recipe, zeros


class MGFPoint(Point):
    """The objective at ``coef``."""

    def __init__(self, objective: MGFObjective, coef: Array) -> None:
        self.objective = objective
        self.coef = coef
        self.expansion, self.zeros = objective.expand(coef)
        self.data = objective.data
        self.data.n_sweeps += 1
        risk, gradient, offset, bend = self.data.map_sum(
            _risk_and_gradient, objective.loss, objective.column, self.expansion, self.zeros
        )
        penalty = objective.penalty
        self.value = penalty.value(coef) + risk
        self.gradient = np.zeros_like(coef)
        self.gradient[:-1] = penalty.gradient(coef) + gradient
        self.gradient[-1] = offset if objective.fit_intercept else 0.0
        self.bend = bend  # q of the module's docstring

    def hessian(self, direct: bool = False) -> MGFCurvature:
        return MGFCurvature(self)

    def majoriser(self, direct: bool = False) -> Curvature:
        raise NotImplementedError(f"{type(self.objective.loss).__name__} has no quadratic majoriser.")

    def along(self, direction: Array) -> MGFLine:
        return MGFLine(self, direction)

    def select(self, columns: Any) -> MGFPoint:
        return self


class MGFLine(Line):
    """The objective on a line; every trial is a sweep over the data."""

    def __init__(self, start: MGFPoint, direction: Array) -> None:
        self.start = start
        self.direction = direction

    def value(self, step: Array) -> Array:
        return self.start.objective.value(self.start.coef + step * self.direction)

    def point(self, step: Array) -> MGFPoint:
        return self.start.objective.at(self.start.coef + step * self.direction)


class MGFCurvature(Curvature):
    """The Hessian at a point."""

    def __init__(self, point: MGFPoint) -> None:
        self.point = point
        objective = point.objective
        self.weights = point.data.map(_curvature_weights, objective.loss, point.expansion)
        point.data.n_sweeps += 1
        squares, total = point.data.map_sum(_squares, objective.column, point.expansion, self.weights, point.zeros)
        self.diagonal = objective.penalty.curvature(point.coef) + point.bend  # of penalty and noise
        diagonal = np.empty_like(point.coef)
        diagonal[:-1] = self.diagonal + squares
        diagonal[-1] = total if objective.fit_intercept else 1.0
        diagonal[~(diagonal > 0.0)] = 1.0
        self.preconditioner = Diagonal(diagonal)

    def product(self, direction: Array) -> Array:
        point = self.point
        objective = point.objective
        point.data.n_sweeps += 2
        gradient, offset = point.data.map_sum(
            _hessian_product, objective.column, point.expansion, self.weights, point.zeros, direction
        )
        out = np.empty_like(direction)
        out[:-1] = gradient + self.diagonal * direction[:-1]
        out[-1] = offset if objective.fit_intercept else direction[-1]
        return out

    def precondition(self, residual: Array) -> Array:
        return self.preconditioner.solve(residual)

    def select(self, columns: Any) -> MGFCurvature:
        return self


# Functions of one partition ---------------------------------------------------------------------------------------


def _stored(
    part: Labelled, noise: Noise, column: int, coef: Array
) -> tuple[tuple[Array, ...], tuple[Array, ...], Array]:
    """Return ``K, K', K''`` of the stored entries, the same for a zero in their place, and the entries' labels."""
    block = part.block
    labels = block.spread_rows(part.labels[:, column])
    t = -labels * block.spread(coef[:-1, 0])
    columns = block.spread(np.arange(block.n_features))
    local = noise.take(columns)
    values = np.asarray(block.entries(), dtype=np.float64)
    # Noise that leaves a zero alone has no log-MGF there.
    zeros: tuple[Any, ...] = (0.0,) * 3
    if noise.variance().moves_zeros:
        zeros = local.log_mgf(t, np.zeros_like(values))
    return local.log_mgf(t, values), zeros, labels


def _row_log_mgf(
    part: Labelled, column: int, coef: Array, zeros: dict[float, tuple[Array, Array, Array]], entries: Array
) -> Array:
    labels = part.labels[:, column]
    base = np.where(labels > 0.0, zeros[1.0][0].sum(), zeros[-1.0][0].sum())
    with np.errstate(invalid="ignore"):
        total = part.block.row_sums(entries) + base - labels * coef[-1, 0]
    return np.where(np.isnan(total), np.inf, total)  # inf - inf: outside the noise's domain


def _risk(
    part: Labelled, loss: MGFLoss, noise: Noise, column: int, coef: Array, zeros: dict[float, Any]
) -> tuple[Array]:
    with np.errstate(invalid="ignore"):
        (value, _, _), (at_zero, _, _), _ = _stored(part, noise, column, coef)
        log_mgf = _row_log_mgf(part, column, coef, zeros, value - at_zero)
    return (np.atleast_1d(part.weights[:, 0] @ loss.value(log_mgf)),)


def _expand(part: Labelled, expansion: Expansion | Recipe) -> Expansion:
    """Return the expansion of a partition, made by a recipe if need be."""
    if isinstance(expansion, Expansion):
        return expansion
    noise, column, coef, zeros = expansion
    (value, slope, second), (value0, slope0, second0), labels = _stored(part, noise, column, coef)
    log_mgf = _row_log_mgf(part, column, coef, zeros, value - value0)
    jacobian = part.block.with_entries(-labels * (slope - slope0))
    return Expansion(log_mgf, jacobian, part.block.with_entries(second - second0))


def _transposed(part: Labelled, column: int, left: Array, block: Block, zeros: dict[float, Any], order: int) -> Array:
    """Return ``P' left`` for the Jacobian (order 1), or the same for the second derivative (order 2)."""
    out = block.transposed_times(left)
    positive = part.labels[:, column] > 0.0
    sign = -1.0 if order == 1 else 1.0
    absent = sign * zeros[1.0][order] * left[positive].sum() + zeros[-1.0][order] * left[~positive].sum()
    return (out + absent)[:, None]


def _forward(part: Labelled, column: int, direction: Array, block: Block, zeros: dict[float, Any]) -> Array:
    """Return ``P p`` for the Jacobian, offset included."""
    labels = part.labels[:, column]
    weights = direction[:-1, 0]
    stored = block.times(weights)
    absent = np.where(labels > 0.0, -(zeros[1.0][1] @ weights), zeros[-1.0][1] @ weights)
    return stored + absent - labels * direction[-1, 0]


def _risk_and_gradient(
    part: Labelled, loss: MGFLoss, column: int, expansion: Expansion | Recipe, zeros: dict[float, Any]
) -> tuple[Array, Array, Array, Array]:
    expansion = _expand(part, expansion)
    weights = part.weights[:, 0]
    slope = weights * loss.slope(expansion.log_mgf)
    return (
        np.atleast_1d(weights @ loss.value(expansion.log_mgf)),
        _transposed(part, column, slope, expansion.jacobian, zeros, 1),
        np.atleast_1d(-part.labels[:, column] @ slope),
        _transposed(part, column, slope, expansion.second, zeros, 2),
    )


def _curvature_weights(part: Labelled, loss: MGFLoss, expansion: Expansion | Recipe) -> Array:
    return part.weights[:, 0] * loss.curvature(_expand(part, expansion).log_mgf)


def _squares(
    part: Labelled, column: int, expansion: Expansion | Recipe, weights: Array, zeros: dict[float, Any]
) -> tuple[Array, Array]:
    """Return the diagonal of ``P' diag(weights) P`` (of the stored entries) and the sum of the weights."""
    return _expand(part, expansion).jacobian.squares_transposed(weights[:, None]), np.atleast_1d(weights.sum())


def _hessian_product(
    part: Labelled,
    column: int,
    expansion: Expansion | Recipe,
    weights: Array,
    zeros: dict[float, Any],
    direction: Array,
) -> tuple[Array, Array]:
    jacobian = _expand(part, expansion).jacobian
    image = weights * _forward(part, column, direction, jacobian, zeros)
    back = _transposed(part, column, image, jacobian, zeros, 1)
    return back, np.atleast_1d(-part.labels[:, column] @ image)
