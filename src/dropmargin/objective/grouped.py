r"""The objective if features are corrupted in groups: `objective.moment` with another variance of the scores.

The noise has one random variable per group, so the variance of a score is ``v_i = sum_g c_g s_ig^2`` (`data.groups`)::

    gradient     R'(w) + X'(s phi_m) + sum_i h_i c_g s_ig(w) (x_id - r_d)                     h = 2 s phi_v
    Hessian p    R''(w) p + X'(alpha) + sum_i c_g (beta_i s_ig(w) + h_i s_ig(p)) (x_id - r_d)
                 alpha = s (phi_mm a + 2 phi_mv t),  beta = s (2 phi_mv a + 4 phi_vv t)

with ``a = X p + p_b`` and ``t_i = sum_g c_g s_ig(w) s_ig(p)``. The majoriser has ``alpha = s gamma a``, ``beta = 0``.
The preconditioners take the diagonal of the noise's part, that of independent features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dropmargin.data import FeatureGroups, GroupOperand, PerPartition, Rows, products
from dropmargin.objective import row_functions
from dropmargin.objective.base import Curvature, DeflationSpace
from dropmargin.objective.curvature import CurvatureWeights
from dropmargin.objective.moment import MomentObjective, MomentPoint
from dropmargin.objective.preconditioner import (
    Preconditioner,
    cholesky,
    diagonal,
    gram_preconditioner,
    may_factorise,
    suits_gram,
    with_diagonal,
)
from dropmargin.objective.row_functions import RowLoss, Scores
from dropmargin.typing import Array


@dataclass(frozen=True)
class GroupedObjective(MomentObjective):
    """See the module's docstring; ``groups`` has the groups of ``variance`` in the form that blocks need."""

    groups: FeatureGroups | None = None

    def at(self, coef: Array) -> GroupedPoint:
        if not coef[:-1].any():
            scores = self.data.map(row_functions.constant_scores, coef[-1])
        else:
            scores = self.data.map(_scores, coef, self.groups)
        return GroupedPoint(self, coef, scores)


class GroupedPoint(MomentPoint):
    """The objective at ``coef``."""

    objective: GroupedObjective

    @cached_property
    def _operand(self) -> GroupOperand:
        assert self.objective.groups is not None
        return GroupOperand(self.objective.groups, self.coef[:-1])

    @cached_property
    def _evaluated(self) -> tuple[Array, Array, Array]:
        objective, coef = self.objective, self.coef
        args = objective.row_loss, self._operand, self.scores
        loss, product, sums, by_entries, total = objective.data.map_sum(_loss_and_gradient, *args)
        noise_curvature = np.zeros(product.shape) + objective.variance_transposed(by_entries, total)
        gradient = np.empty_like(coef)
        gradient[:-1] = product + objective.penalty.gradient(coef)
        gradient[-1] = sums if objective.fit_intercept else 0.0
        return objective.penalty.value(coef) + loss, gradient, noise_curvature

    def _curvature(self, rule: Any, of_penalty: Array | float, is_coupled: bool, direct: bool) -> GroupedCurvature:
        objective = self.objective
        weights = objective.data.map(_weights, rule, objective.row_loss, self.scores)
        own = np.zeros((objective.n_features, self.coef.shape[1])) + of_penalty
        if may_factorise(self, direct):
            exact = cholesky(self._explicit(weights, own), is_exact=True)
            if exact is not None:
                return GroupedCurvature(objective, self.coef, own, weights, exact)
        found = objective.data.map_sum(_known_products, weights, self.scores, self._operand)
        images, sums, squares, n_active = found
        (coef_back, intercept_back), (coef_sums, intercept_sums) = np.hsplit(images, 2), np.split(sums, 2)
        with_noise = own + self.noise_curvature
        preconditioner: Preconditioner | None = None
        if suits_gram(self):
            preconditioner = gram_preconditioner(self, n_active, intercept_sums, with_noise, is_coupled)
        if preconditioner is None:
            preconditioner = diagonal(self, squares, intercept_sums, with_noise)
        coef_image = np.vstack([coef_back + own * self.coef[:-1], coef_sums])
        intercept_image = np.vstack([intercept_back, intercept_sums])
        if not objective.fit_intercept:  # it is zero and coupled to nothing
            coef_image[-1] = self.coef[-1]
            intercept_image = np.zeros_like(self.coef)
            intercept_image[-1] = 1.0
        deflation = DeflationSpace(self.coef, coef_image, intercept_image)
        return GroupedCurvature(objective, self.coef, own, weights, preconditioner, deflation)

    def _explicit(self, weights: PerPartition, own: Array) -> Iterator[Array]:
        """Yield the curvature as a dense matrix, intercept last, output by output."""
        objective = self.objective
        for k in range(self.coef.shape[1]):
            (matrix,) = objective.data.map_sum(_explicit, weights, self.coef, objective.groups, k)
            yield with_diagonal(matrix, objective, own[:, k])


@dataclass(frozen=True)
class GroupedCurvature(Curvature):
    """The Hessian or the majoriser at a point; ``diagonal`` is the part of the penalty."""

    objective: GroupedObjective
    coef: Array
    diagonal: Array
    weights: PerPartition
    preconditioner: Preconditioner
    deflation: DeflationSpace | None = None

    def product(self, direction: Array) -> Array:
        objective = self.objective
        assert objective.groups is not None
        operand = GroupOperand(objective.groups, self.coef[:-1], direction[:-1])
        product, sums = objective.data.map_sum(_product, self.weights, operand, direction[-1])
        out = np.empty_like(direction)
        out[:-1] = self.diagonal * direction[:-1] + product
        out[-1] = sums if objective.fit_intercept else direction[-1]
        return out

    def precondition(self, residual: Array) -> Array:
        return self.preconditioner.solve(residual)

    def select(self, outputs: Any) -> GroupedCurvature:
        return replace(
            self,
            objective=self.objective.select(outputs),
            coef=np.ascontiguousarray(self.coef[:, outputs]),
            diagonal=np.ascontiguousarray(self.diagonal[:, outputs]),
            weights=self.objective.data.map(_select, self.weights, outputs),
            preconditioner=self.preconditioner.select(outputs),
            deflation=None if self.deflation is None else self.deflation.select(outputs),
        )


# Functions of one partition ---------------------------------------------------------------------------------------


@products(1)
def _scores(part: Rows, coef: Array, groups: FeatureGroups) -> Scores:
    mean, variance = part.X.group_moments(coef[:-1], groups)
    return Scores(mean + coef[-1], variance)


@products(1)
def _loss_and_gradient(
    part: Rows, loss: RowLoss, operand: GroupOperand, scores: Scores
) -> tuple[Array, Array, Array, Array, Array]:
    """Return the loss, its gradient without the penalty, and ``f(X)'h`` and the sum of ``h`` for the diagonal."""
    by_mean, by_variance = loss.smoothed.gradient(part.y[:, loss.outputs], scores.mean, scores.variance)
    by_mean = part.sample_weight[:, None] * by_mean
    h = 2.0 * part.sample_weight[:, None] * by_variance
    product, diagonal = part.X.group_images(operand, np.hstack([by_mean, h]), h, less_reference=True)
    return loss.value(part, scores), product, by_mean.sum(axis=0), diagonal, h.sum(axis=0)


def _weights(part: Rows, rule: Any, loss: RowLoss, scores: Scores) -> Array:
    """Return the weights ``(A, B, D, h)`` of `Block.group_products`."""
    found: CurvatureWeights = rule(part, loss, scores)
    _, by_variance = loss.smoothed.gradient(part.y[:, loss.outputs], scores.mean, scores.variance)
    h = 2.0 * part.sample_weight[:, None] * by_variance
    if found.is_coupled:
        return np.hstack([found.values, h])
    return np.hstack([found.by_mean, np.zeros_like(h), np.zeros_like(h), h])


@products(0)
def _select(part: Rows, weights: Array, outputs: Any) -> Array:
    return np.hstack([quarter[:, outputs] for quarter in np.hsplit(weights, 4)])


@products(2)
def _product(part: Rows, weights: Array, operand: GroupOperand, shift: Array) -> tuple[Array, Array]:
    return part.X.group_curvature(operand, weights, shift)


@products(1)
def _known_products(
    part: Rows, weights: Array, scores: Scores, operand: GroupOperand
) -> tuple[Array, Array, Array, Array]:
    """Return the rows' part of the products with the coefficients and with the intercept, and ``(X * X)' A``."""
    A, B, D, h = np.hsplit(weights, 4)
    mean, variance = scores
    left = np.hstack([A * mean + B * variance, A, B * mean + D * variance + h, B])
    images, squares = part.X.group_images(operand, left, A, less_reference=False)
    return images, left[:, : images.shape[1]].sum(axis=0), squares, np.count_nonzero(A, axis=0)


@products(1)
def _explicit(part: Rows, weights: Array, coef: Array, groups: FeatureGroups, k: int) -> tuple[Array]:
    """Return the data's part of the curvature of output ``k`` as a matrix."""
    size = part.X.n_features + 1
    total = np.zeros((size, size))
    same_group = groups.numbers[:, None] == groups.numbers
    for where, dense in part.X.dense_chunks():
        A, B, D, h = (weights[where, j] for j in range(k, weights.shape[1], weights.shape[1] // 4))
        rows = np.hstack([dense, np.ones((len(dense), 1))])
        deviations = dense - groups.reference
        scores = np.zeros((len(dense), groups.n_groups))
        for g, members in enumerate(groups.members):
            scores[:, g] = deviations[:, members] @ coef[:-1, k][members]
        slope = np.zeros_like(rows)  # half the derivative of the variance
        slope[:, :-1] = (groups.slope * scores)[:, groups.numbers] * deviations
        cross = (rows * B[:, None]).T @ slope
        total += (rows * A[:, None]).T @ rows + cross + cross.T + (slope * D[:, None]).T @ slope
        noise = (deviations * h[:, None]).T @ deviations
        total[:-1, :-1] += np.where(same_group, groups.slope[groups.numbers] * noise, 0.0)
    return (total,)
