r"""The objective of the losses that see the noise through its moment generating function.

For the coefficients ``(w, b)`` of one output, with the log-MGF ``K(w; x)`` of the score of a row (`objective.log_mgf`),
for independent features and for groups::

    K_i = K(-y_i w; x_i) - y_i b                 J = R(w) + sum_i s_i phi(K_i)

    gradient     R'(w) + P'(s phi')              P_i = -y_i K'(-y_i w; x_i), the Jacobian of K
    Hessian p    R''(w) p + P'(s phi'' (P p)) + sum_i s_i phi'_i K''(-y_i w; x_i) p

All rows of a target are expanded at the same coefficients, so rows in memory are sorted by target.
There is no quadratic majoriser; ``w = 0`` is a good start for Newton's method, whose steps a line search keeps finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import Block, FeatureGroups, Partitions, PerPartition, Rows, products, restrict_features
from dropmargin.data.partitions import add_pair
from dropmargin.losses import MGFLoss
from dropmargin.noise import Noise
from dropmargin.objective.base import Curvature, Objective, Point
from dropmargin.objective.log_mgf import Expansion, expand
from dropmargin.objective.preconditioner import Diagonal
from dropmargin.penalties import Penalty
from dropmargin.typing import Array


class Recipe(NamedTuple):
    """What the expansion of a partition is computed from, besides its rows."""

    loss: MGFLoss
    noise: Noise
    groups: FeatureGroups | None
    coef: Array


class TargetRows(NamedTuple):
    """The rows of one target in a partition, of which there may be none: minus the target, the weights ``s``, rows."""

    sign: float
    sample_weight: Array
    block: Block

    def expand(self, recipe: Recipe) -> TargetExpansion:
        """Return the expansion of the rows."""
        loss, noise, groups, coef = recipe
        weight, log_mgf = self.sample_weight, expand(self.block, noise, groups, self.sign * coef[:-1, 0])
        K = log_mgf.value + self.sign * coef[-1, 0]
        risk = np.atleast_1d(weight @ loss.value(K))
        return TargetExpansion(self.sign, log_mgf, risk, weight * loss.slope(K), weight * loss.curvature(K))


class TargetExpansion(NamedTuple):
    """The rows of one target at given coefficients: the sum of ``s phi``; of each row, ``s phi'`` and ``s phi''``."""

    sign: float
    log_mgf: Expansion
    risk: Array
    slope: Array
    curvature: Array

    def gradient(self) -> Array:
        """Return ``P'(s phi')``, intercept last."""
        return _column(self.sign * self.log_mgf.backward(self.slope), self.sign * self.slope.sum())

    def diagonals(self) -> tuple[Array, Array]:
        """Return the diagonal of ``P' diag(s phi'') P``, intercept last, and that of the sum of ``s_i phi'_i K''``."""
        squares = _column(self.log_mgf.squares(self.curvature), self.curvature.sum())
        return squares, self.log_mgf.diagonal(self.slope)[:, None]

    def product(self, direction: Array, with_noise: bool) -> Array:
        """Return ``P'(s phi'' (P p))``, intercept last, plus the sum of ``s_i phi'_i K'' p`` if ``with_noise``."""
        change, along = self.log_mgf.forward(self.sign * direction[:-1, 0])
        left = self.curvature * (change + self.sign * direction[-1, 0])
        by_coef = self.log_mgf.backward(left, self.slope if with_noise else None, along)
        return _column(self.sign * by_coef, self.sign * left.sum())


Expanded = tuple[TargetExpansion, TargetExpansion]


@dataclass(frozen=True)
class MGFObjective(Objective):
    """See the module's docstring. There is one output: others would share no product with it.

    Parameters
    ----------
    data : Partitions of Rows
        The targets have one column.
    loss : MGFLoss
    noise : Noise
    penalty : Penalty
    fit_intercept : bool
    n_features : int
    groups : FeatureGroups, default=None
        The groups of the noise in the form that blocks need.
    """

    data: Partitions[Rows]
    loss: MGFLoss
    noise: Noise
    penalty: Penalty
    fit_intercept: bool
    n_features: int
    groups: FeatureGroups | None = None
    n_outputs: int = 1
    has_quadratic_bound: bool = False
    is_stiff: bool = False
    is_well_preconditioned: bool = False
    can_restrict: bool = True

    @property
    def n_passes(self) -> float:
        return self.data.n_passes

    @property
    def rows_by_target(self) -> PerPartition | None:
        """The rows of each partition by target, computed once, where values as large as the rows are kept."""
        if not self.data.keeps_large_values:
            return None
        if "rows by target" not in self.data.cache:
            self.data.cache["rows by target"] = self.data.map(_rows_by_target)
        return self.data.cache["rows by target"]

    def restricted(self, features: Array) -> MGFObjective:
        groups = None if self.groups is None else self.groups.take(features)
        data, noise = restrict_features(self.data, features, None), self.noise.take(features)
        return replace(self, data=data, noise=noise, groups=groups, n_features=len(features))

    def at(self, coef: Array) -> MGFPoint:
        return MGFPoint(self, coef)

    def value(self, coef: Array) -> Array:
        (risk,) = self.data.map_sum(_risk, self.recipe(coef))
        return self.penalty.value(coef) + risk

    def recipe(self, coef: Array) -> Recipe:
        """Return what expansions at the coefficients are computed from."""
        return Recipe(self.loss, self.noise, self.groups, coef)


class MGFPoint(Point):
    """The objective at ``coef``.

    An expansion is twice as large as the rows; where large values are not kept, each mapped function computes it.
    """

    objective: MGFObjective

    def __init__(self, objective: MGFObjective, coef: Array) -> None:
        self.objective, self.coef, self.data = objective, coef, objective.data
        recipe, rows = objective.recipe(coef), objective.rows_by_target
        self.expansion = recipe if rows is None else self.data.map(_expand, recipe, rows)
        risk, gradient = self.map_sum(_risk_and_gradient)
        self.value = objective.penalty.value(coef) + risk
        self.gradient = np.zeros_like(coef)
        self.gradient[:-1] = objective.penalty.gradient(coef) + gradient[:-1]
        self.gradient[-1] = gradient[-1] if objective.fit_intercept else 0.0

    def map_sum(self, function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
        """Return the sums of a function of the expansion; a function that computes it itself has one more product."""
        self.data.n_products += isinstance(self.expansion, Recipe)
        return self.data.map_sum(function, self.expansion, *args)

    def hessian(self, direct: bool = False) -> MGFCurvature:
        return MGFCurvature(self)

    def majoriser(self, direct: bool = False) -> Curvature:
        raise NotImplementedError(f"{type(self.objective.loss).__name__} has no quadratic majoriser.")

    def select(self, outputs: Any) -> MGFPoint:
        return self


class MGFCurvature(Curvature):
    """The Hessian at a point, preconditioned by its diagonal, which is rough for groups of features."""

    def __init__(self, point: MGFPoint) -> None:
        self.point = point
        objective = point.objective
        of_rows, of_noise = point.map_sum(_diagonals)
        of_penalty = objective.penalty.curvature(point.coef)
        # The noise's part of the Hessian is diagonal for independent features; for groups each product computes it.
        self.is_diagonal = objective.groups is None
        self.diagonal = of_penalty + of_noise if self.is_diagonal else of_penalty
        diagonal = np.empty_like(point.coef)
        diagonal[:-1] = of_penalty + of_noise + of_rows[:-1]
        diagonal[-1] = of_rows[-1] if objective.fit_intercept else 1.0
        diagonal[~(diagonal > 0.0)] = 1.0
        self.preconditioner = Diagonal(diagonal)

    def product(self, direction: Array) -> Array:
        point = self.point
        (product,) = point.map_sum(_hessian_product, direction, not self.is_diagonal)
        out = np.empty_like(direction)
        out[:-1] = product[:-1] + self.diagonal * direction[:-1]
        out[-1] = product[-1] if point.objective.fit_intercept else direction[-1]
        return out

    def precondition(self, residual: Array) -> Array:
        return self.preconditioner.solve(residual)

    def select(self, outputs: Any) -> MGFCurvature:
        return self


# Functions of one partition ---------------------------------------------------------------------------------------


def _rows_by_target(part: Rows) -> tuple[TargetRows, TargetRows]:
    """Return the rows of the target +1, and those of -1."""
    block, is_positive = part.X, part.y[:, 0] > 0.0
    positive, negative = np.flatnonzero(is_positive), np.flatnonzero(~is_positive)
    return (
        TargetRows(-1.0, part.sample_weight[positive], block.with_rows(positive)),
        TargetRows(1.0, part.sample_weight[negative], block.with_rows(negative)),
    )


@products(1)
def _expand(part: Rows, expansion: Expanded | Recipe, rows: tuple[TargetRows, TargetRows] | None = None) -> Expanded:
    """Return the expansions of the rows of either target, computed here unless they are known.

    ``rows`` are those by target, if they are known.
    """
    if not isinstance(expansion, Recipe):
        return expansion
    positive, negative = _rows_by_target(part) if rows is None else rows
    return positive.expand(expansion), negative.expand(expansion)


@products(1)
def _risk(part: Rows, expansion: Expanded | Recipe) -> tuple[Array]:
    positive, negative = _expand(part, expansion)
    return (positive.risk + negative.risk,)


@products(1)
def _risk_and_gradient(part: Rows, expansion: Expanded | Recipe) -> tuple[Array, Array]:
    positive, negative = _expand(part, expansion)
    return positive.risk + negative.risk, positive.gradient() + negative.gradient()


@products(1)
def _diagonals(part: Rows, expansion: Expanded | Recipe) -> tuple[Array, ...]:
    positive, negative = _expand(part, expansion)
    return add_pair(positive.diagonals(), negative.diagonals())


@products(2)
def _hessian_product(part: Rows, expansion: Expanded | Recipe, direction: Array, with_noise: bool) -> tuple[Array]:
    positive, negative = _expand(part, expansion)
    return (positive.product(direction, with_noise) + negative.product(direction, with_noise),)


def _column(by_coef: Array, by_intercept: Array) -> Array:
    """Return values by coefficient and by intercept in one column."""
    return np.append(by_coef, by_intercept)[:, None]
