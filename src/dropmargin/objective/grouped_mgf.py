r"""The objective of the losses through the moment generating function if features are dropped in groups.

With the scores ``s_ig`` of the groups (`data.groups`), the rates ``q_g`` and the references ``r_d``::

    K_i = -y_i (w.r + b) + sum_g k_g(-y_i s_ig)          k_g(u) = log(q_g + (1 - q_g) exp(u / (1 - q_g)))

    gradient     R'(w) + P'(s phi')                      P_id = -y_i (k_g'(-y_i s_ig) (x_id - r_d) + r_d)
    Hessian p    R''(w) p + P'(s phi'' (P p)) + sum_i s_i phi'_i k_g''(-y_i s_ig) s_ig(p) (x_id - r_d)

The scores of all rows and groups are in memory at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import FeatureGroups, PerPartition, Rows, products
from dropmargin.losses import MGFLoss
from dropmargin.noise import DropoutNoise, Noise
from dropmargin.objective.mgf import MGFCurvature, MGFObjective, MGFPoint
from dropmargin.objective.preconditioner import Diagonal
from dropmargin.typing import Array


class GroupExpansion(NamedTuple):
    """A partition at given coefficients: ``K`` of each row, and ``k'`` and ``k''`` of each row and group."""

    log_mgf: Array
    first: Array
    second: Array


@dataclass(frozen=True)
class GroupedMGFObjective(MGFObjective):
    """See the module's docstring. ``groups`` has the groups of the noise in the form that blocks need."""

    groups: FeatureGroups | None = None

    def at(self, coef: Array) -> GroupedMGFPoint:
        return GroupedMGFPoint(self, coef)

    def value(self, coef: Array) -> Array:
        expansion = self.data.map(_expand, self.noise, self.output, coef, self.groups)
        (risk,) = self.data.map_sum(_risk, self.loss, expansion)
        return self.penalty.value(coef) + risk


class GroupedMGFPoint(MGFPoint):
    """The objective at ``coef``."""

    objective: GroupedMGFObjective

    def __init__(self, objective: GroupedMGFObjective, coef: Array) -> None:
        self.objective, self.coef, self.data = objective, coef, objective.data
        self.groups = objective.groups
        expand = objective.noise, objective.output, coef, self.groups
        self.group_expansion: PerPartition = self.data.map(_expand, *expand)
        risk, gradient, intercept = self.data.map_sum(
            _risk_and_gradient, objective.loss, objective.output, self.group_expansion, self.groups
        )
        self.value = objective.penalty.value(coef) + risk
        self.gradient = np.zeros_like(coef)
        self.gradient[:-1] = objective.penalty.gradient(coef) + gradient
        self.gradient[-1] = intercept if objective.fit_intercept else 0.0

    def hessian(self, direct: bool = False) -> GroupedMGFCurvature:
        return GroupedMGFCurvature(self)


class GroupedMGFCurvature(MGFCurvature):
    """The Hessian at a point."""

    point: GroupedMGFPoint

    def __init__(self, point: GroupedMGFPoint) -> None:
        self.point = point
        objective = point.objective
        self.diagonal = np.zeros(point.coef[:-1].shape) + objective.penalty.curvature(point.coef)
        squares, total = point.data.map_sum(_squares, objective.loss, point.group_expansion)
        diagonal = np.empty_like(point.coef)
        diagonal[:-1] = self.diagonal + squares
        diagonal[-1] = total if objective.fit_intercept else 1.0
        diagonal[~(diagonal > 0.0)] = 1.0
        self.preconditioner = Diagonal(diagonal)

    def product(self, direction: Array) -> Array:
        point, objective = self.point, self.point.objective
        product, intercept = point.data.map_sum(
            _hessian_product, objective.loss, objective.output, point.group_expansion, direction, point.groups
        )
        out = np.empty_like(direction)
        out[:-1] = product + self.diagonal * direction[:-1]
        out[-1] = intercept if objective.fit_intercept else direction[-1]
        return out


def group_log_mgf(noise: Noise, groups: FeatureGroups, scores: Array) -> tuple[Array, Array, Array]:
    """Return ``k_g`` of the scores of rows and groups, and its derivatives: the log-MGF of dropout for a feature 1."""
    assert isinstance(noise, DropoutNoise)
    rates = np.zeros(groups.n_groups)
    rates[groups.numbers] = noise.rate
    return DropoutNoise(rates, reference="zero").log_mgf(scores, np.ones_like(scores))


# Functions of one partition ---------------------------------------------------------------------------------------


@products(1)
def _expand(part: Rows, noise: Noise, output: int, coef: Array, groups: FeatureGroups) -> GroupExpansion:
    y, own = part.y[:, output], coef[:-1, 0]
    value, slope, second = group_log_mgf(noise, groups, -y[:, None] * part.X.group_scores(own, groups))
    return GroupExpansion(value.sum(axis=1) - y * (own @ groups.reference + coef[-1, 0]), slope, second)


def _risk(part: Rows, loss: MGFLoss, expansion: GroupExpansion) -> tuple[Array]:
    return (np.atleast_1d(part.sample_weight @ loss.value(expansion.log_mgf)),)


@products(1)
def _risk_and_gradient(
    part: Rows, loss: MGFLoss, output: int, expansion: GroupExpansion, groups: FeatureGroups
) -> tuple[Array, Array, Array]:
    slope = -part.y[:, output] * part.sample_weight * loss.slope(expansion.log_mgf)
    return (*_risk(part, loss, expansion), *_transposed(part, slope, expansion, groups))


def _transposed(part: Rows, left: Array, expansion: GroupExpansion, groups: FeatureGroups) -> tuple[Array, Array]:
    """Return ``P' left`` by feature, and for the intercept, without the factors ``-y_i``."""
    product = part.X.group_transposed(left[:, None] * expansion.first, groups) + groups.reference * left.sum()
    return product[:, None], np.atleast_1d(left.sum())


@products(1)
def _squares(part: Rows, loss: MGFLoss, expansion: GroupExpansion) -> tuple[Array, Array]:
    """Return roughly the diagonal of the Hessian, with the mean over the groups of each row, and for the intercept."""
    slope = part.sample_weight * loss.slope(expansion.log_mgf)
    curvature = part.sample_weight * loss.curvature(expansion.log_mgf)
    weights = curvature * np.square(expansion.first).mean(axis=1) + slope * expansion.second.mean(axis=1)
    return part.X.squares_transposed(weights[:, None]), np.atleast_1d(curvature.sum())


@products(2)
def _hessian_product(
    part: Rows, loss: MGFLoss, output: int, expansion: GroupExpansion, direction: Array, groups: FeatureGroups
) -> tuple[Array, Array]:
    along = part.X.group_scores(direction[:-1, 0], groups)
    shift = groups.reference @ direction[:-1, 0] + direction[-1, 0]
    curvature = part.sample_weight * loss.curvature(expansion.log_mgf)
    image = curvature * ((expansion.first * along).sum(axis=1) + shift)  # the factors -y_i are squared
    slope = part.sample_weight * loss.slope(expansion.log_mgf)
    by_group: Any = image[:, None] * expansion.first + slope[:, None] * expansion.second * along
    product = part.X.group_transposed(by_group, groups) + groups.reference * image.sum()
    return product[:, None], np.atleast_1d(image.sum())
