r"""The objective of the losses that see the noise through its moment generating function.

For the coefficients ``(w, b)`` of one output::

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

from dropmargin.data import Block, Partitions, PerPartition, Rows, products
from dropmargin.losses import MGFLoss
from dropmargin.noise import Noise
from dropmargin.objective.base import Curvature, Objective, Point
from dropmargin.objective.preconditioner import Diagonal
from dropmargin.penalties import Penalty
from dropmargin.typing import Array


class Expansion(NamedTuple):
    """A partition at given coefficients: ``K`` per row, its Jacobian and second derivative per stored entry."""

    log_mgf: Array
    jacobian: Block
    second: Block


class Recipe(NamedTuple):
    """What an expansion is made of, besides the rows."""

    noise: Noise
    output: int
    coef: Array
    zeros: dict[float, tuple[Array, Array, Array]]


@dataclass(frozen=True)
class MGFObjective(Objective):
    """See the module's docstring. There is one output: others would share no product with it.

    Parameters
    ----------
    data : Partitions of Rows
    loss : MGFLoss
    noise : Noise
    penalty : Penalty
    fit_intercept : bool
    n_features : int
    output : int
        The column of the targets that the coefficients belong to.
    """

    data: Partitions[Rows]
    loss: MGFLoss
    noise: Noise
    penalty: Penalty
    fit_intercept: bool
    n_features: int
    output: int
    n_outputs: int = 1
    has_quadratic_bound: bool = False
    is_stiff: bool = False
    is_well_preconditioned: bool = False

    @property
    def n_passes(self) -> float:
        return self.data.n_passes

    def at(self, coef: Array) -> MGFPoint:
        return MGFPoint(self, coef)

    def value(self, coef: Array) -> Array:
        zeros = self._zeros(coef)
        (risk,) = self.data.map_sum(_risk, self.loss, self.noise, self.output, coef, zeros)
        return self.penalty.value(coef) + risk

    def _zeros(self, coef: Array) -> dict[float, tuple[Array, Array, Array]]:
        """Return ``K``, ``K'`` and ``K''`` of features that are zero, for either label."""
        weights = coef[:-1, 0]
        return {y: self.noise.log_mgf(-y * weights, np.zeros_like(weights)) for y in (-1.0, 1.0)}

    def expand(self, coef: Array) -> tuple[PerPartition | Recipe, dict[float, tuple[Array, Array, Array]]]:
        """Return the expansion of each partition, and the same for features that are zero.

        An expansion is twice as large as the rows; where large values are not kept, the recipe stands for it.
        """
        zeros = self._zeros(coef)
        recipe = Recipe(self.noise, self.output, coef, zeros)
        return self.data.map(_expand, recipe) if self.data.keeps_large_values else recipe, zeros


class MGFPoint(Point):
    """The objective at ``coef``."""

    objective: MGFObjective

    def __init__(self, objective: MGFObjective, coef: Array) -> None:
        self.objective = objective
        self.coef = coef
        self.expansion, self.zeros = objective.expand(coef)
        self.data = objective.data
        risk, gradient, intercept, curvature_of_noise = self.data.map_sum(
            _risk_and_gradient, objective.loss, objective.output, self.expansion, self.zeros
        )
        penalty = objective.penalty
        self.value = penalty.value(coef) + risk
        self.gradient = np.zeros_like(coef)
        self.gradient[:-1] = penalty.gradient(coef) + gradient
        self.gradient[-1] = intercept if objective.fit_intercept else 0.0
        self.curvature_of_noise = curvature_of_noise  # q of the module's docstring

    def hessian(self, direct: bool = False) -> MGFCurvature:
        return MGFCurvature(self)

    def majoriser(self, direct: bool = False) -> Curvature:
        raise NotImplementedError(f"{type(self.objective.loss).__name__} has no quadratic majoriser.")

    def select(self, outputs: Any) -> MGFPoint:
        return self


class MGFCurvature(Curvature):
    """The Hessian at a point."""

    def __init__(self, point: MGFPoint) -> None:
        self.point = point
        objective = point.objective
        self.weights = point.data.map(_curvature_weights, objective.loss, point.expansion)
        squares, total = point.data.map_sum(_squares, objective.output, point.expansion, self.weights, point.zeros)
        self.diagonal = objective.penalty.curvature(point.coef) + point.curvature_of_noise  # of penalty and noise
        diagonal = np.empty_like(point.coef)
        diagonal[:-1] = self.diagonal + squares
        diagonal[-1] = total if objective.fit_intercept else 1.0
        diagonal[~(diagonal > 0.0)] = 1.0
        self.preconditioner = Diagonal(diagonal)

    def product(self, direction: Array) -> Array:
        point = self.point
        objective = point.objective
        gradient, intercept = point.data.map_sum(
            _hessian_product, objective.output, point.expansion, self.weights, point.zeros, direction
        )
        out = np.empty_like(direction)
        out[:-1] = gradient + self.diagonal * direction[:-1]
        out[-1] = intercept if objective.fit_intercept else direction[-1]
        return out

    def precondition(self, residual: Array) -> Array:
        return self.preconditioner.solve(residual)

    def select(self, outputs: Any) -> MGFCurvature:
        return self


# Functions of one partition ---------------------------------------------------------------------------------------


def _stored(part: Rows, noise: Noise, output: int, coef: Array) -> tuple[tuple[Array, ...], tuple[Array, ...], Array]:
    """Return ``K, K', K''`` of the stored entries, the same for a zero in their place, and the entries' labels."""
    block = part.X
    labels = block.spread_rows(part.y[:, output])
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
    part: Rows, output: int, coef: Array, zeros: dict[float, tuple[Array, Array, Array]], entries: Array
) -> Array:
    labels = part.y[:, output]
    base = np.where(labels > 0.0, zeros[1.0][0].sum(), zeros[-1.0][0].sum())
    with np.errstate(invalid="ignore"):
        total = part.X.row_sums(entries) + base - labels * coef[-1, 0]
    return np.where(np.isnan(total), np.inf, total)  # inf - inf: outside the noise's domain


@products(1)
def _risk(part: Rows, loss: MGFLoss, noise: Noise, output: int, coef: Array, zeros: dict[float, Any]) -> tuple[Array]:
    with np.errstate(invalid="ignore"):
        (value, _, _), (at_zero, _, _), _ = _stored(part, noise, output, coef)
        log_mgf = _row_log_mgf(part, output, coef, zeros, value - at_zero)
    return (np.atleast_1d(part.sample_weight @ loss.value(log_mgf)),)


@products(1)
def _expand(part: Rows, expansion: Expansion | Recipe) -> Expansion:
    """Return the expansion of a partition, made by a recipe if need be."""
    if isinstance(expansion, Expansion):
        return expansion
    noise, output, coef, zeros = expansion
    (value, slope, second), (value0, slope0, second0), labels = _stored(part, noise, output, coef)
    log_mgf = _row_log_mgf(part, output, coef, zeros, value - value0)
    jacobian = part.X.with_entries(-labels * (slope - slope0))
    return Expansion(log_mgf, jacobian, part.X.with_entries(second - second0))


def _transposed(part: Rows, output: int, left: Array, block: Block, zeros: dict[float, Any], order: int) -> Array:
    """Return ``P' left`` for the Jacobian (order 1), or the same for the second derivative (order 2)."""
    out = block.transposed_times(left)
    positive = part.y[:, output] > 0.0
    sign = -1.0 if order == 1 else 1.0
    absent = sign * zeros[1.0][order] * left[positive].sum() + zeros[-1.0][order] * left[~positive].sum()
    return (out + absent)[:, None]


def _forward(part: Rows, output: int, direction: Array, block: Block, zeros: dict[float, Any]) -> Array:
    """Return ``P p`` for the Jacobian, intercept included."""
    labels = part.y[:, output]
    weights = direction[:-1, 0]
    stored = block.times(weights)
    absent = np.where(labels > 0.0, -(zeros[1.0][1] @ weights), zeros[-1.0][1] @ weights)
    return stored + absent - labels * direction[-1, 0]


@products(1)
def _risk_and_gradient(
    part: Rows, loss: MGFLoss, output: int, expansion: Expansion | Recipe, zeros: dict[float, Any]
) -> tuple[Array, Array, Array, Array]:
    expansion = _expand(part, expansion)
    weights = part.sample_weight
    slope = weights * loss.slope(expansion.log_mgf)
    return (
        np.atleast_1d(weights @ loss.value(expansion.log_mgf)),
        _transposed(part, output, slope, expansion.jacobian, zeros, 1),
        np.atleast_1d(-part.y[:, output] @ slope),
        _transposed(part, output, slope, expansion.second, zeros, 2),
    )


def _curvature_weights(part: Rows, loss: MGFLoss, expansion: Expansion | Recipe) -> Array:
    return part.sample_weight * loss.curvature(_expand(part, expansion).log_mgf)


@products(1)
def _squares(
    part: Rows, output: int, expansion: Expansion | Recipe, weights: Array, zeros: dict[float, Any]
) -> tuple[Array, Array]:
    """Return the diagonal of ``P' diag(weights) P`` (of the stored entries) and the sum of the weights."""
    return _expand(part, expansion).jacobian.squares_transposed(weights[:, None]), np.atleast_1d(weights.sum())


@products(2)
def _hessian_product(
    part: Rows,
    output: int,
    expansion: Expansion | Recipe,
    weights: Array,
    zeros: dict[float, Any],
    direction: Array,
) -> tuple[Array, Array]:
    jacobian = _expand(part, expansion).jacobian
    image = weights * _forward(part, output, direction, jacobian, zeros)
    back = _transposed(part, output, image, jacobian, zeros, 1)
    return back, np.atleast_1d(-part.y[:, output] @ image)
