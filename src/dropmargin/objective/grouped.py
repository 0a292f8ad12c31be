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
from typing import Any, NamedTuple

import numpy as np

from dropmargin.data import FeatureGroups, GroupDirection, GroupOperand, GroupSums, PerPartition, Rows, products
from dropmargin.objective import row_functions
from dropmargin.objective.base import Curvature, DeflationSpace
from dropmargin.objective.curvature import CurvatureWeights, add_low_rank
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
        assert self.groups is not None
        operand = GroupOperand(self.groups, coef[:-1])
        if not coef[:-1].any():
            scores = self.data.map(row_functions.constant_scores, coef[-1])
        else:
            scores = self.data.map(_scores, operand, coef[-1])
        point = GroupedPoint(self, coef, scores)
        point.operand = operand  # what it has derived of the coefficients serves the gradient, too
        return point


class GroupedPoint(MomentPoint):
    """The objective at ``coef``."""

    objective: GroupedObjective

    @cached_property
    def operand(self) -> GroupOperand:
        assert self.objective.groups is not None
        return GroupOperand(self.objective.groups, self.coef[:-1])

    @cached_property
    def _first_order(self) -> _FirstOrder:
        args = self.objective.row_loss, self.operand, self.scores
        return _FirstOrder(*self.objective.data.map_sum(_loss_and_gradient, *args))

    @cached_property
    def _evaluated(self) -> tuple[Array, Array, Array]:
        objective, coef, found = self.objective, self.coef, self._first_order
        noise_curvature = np.zeros(found.product.shape) + objective.variance_transposed(found.by_entries, found.h_total)
        gradient = np.empty_like(coef)
        of_penalty, by_penalty = objective.penalty.at(coef)
        gradient[:-1] = self.operand.complete(GroupSums(*found[:3])) + by_penalty[:-1]
        gradient[-1] = found.sums + by_penalty[-1] if objective.fit_intercept else 0.0
        return of_penalty + found.loss, gradient, noise_curvature

    def select(self, outputs: Any) -> GroupedPoint:
        out = super().select(outputs)
        assert isinstance(out, GroupedPoint)
        out._first_order = _FirstOrder(*(np.ascontiguousarray(array[..., outputs]) for array in self._first_order))
        return out

    def _curvature(self, rule: Any, of_penalty: Array | float, is_coupled: bool, direct: bool) -> GroupedCurvature:
        objective = self.objective
        weights = objective.data.map(_weights, rule, objective.row_loss, self.scores)
        own = np.zeros((objective.n_features, self.coef.shape[1])) + of_penalty
        if may_factorise(self, direct):
            exact = cholesky(self._explicit(weights, own), is_exact=True)
            if exact is not None:
                return GroupedCurvature(objective, self.operand, own, weights, self._alone, exact)
        images, sums, squares, n_active = self._known_images(weights)
        (coef_back, intercept_back), (coef_sums, intercept_sums) = np.hsplit(images, 2), np.split(sums, 2)
        with_noise = own + self.noise_curvature
        preconditioner: Preconditioner | None = None
        if suits_gram(self):
            preconditioner = gram_preconditioner(self, n_active, intercept_sums, with_noise, is_coupled)
        intercept = np.zeros_like(self.coef)
        intercept[-1] = 1.0
        coef_image = np.vstack([coef_back + own * self.coef[:-1], coef_sums])
        intercept_image = np.vstack([intercept_back, intercept_sums])
        add_low_rank(objective.penalty, self.coef, coef_image)
        add_low_rank(objective.penalty, intercept, intercept_image)
        if not objective.fit_intercept:  # it is zero and coupled to nothing
            coef_image[-1], intercept_image = self.coef[-1], intercept
        if preconditioner is None:
            squares = objective.penalty.centred(squares, intercept_image)
            preconditioner = diagonal(self, squares, intercept_sums, with_noise)
        deflation = DeflationSpace(self.coef, coef_image, intercept_image)
        return GroupedCurvature(objective, self.operand, own, weights, self._alone, preconditioner, deflation)

    @property
    def _alone(self) -> GroupSums:
        return GroupSums(self._first_order.alone, self._first_order.transposed, self._first_order.total)

    def _known_images(self, weights: PerPartition) -> tuple[Array, Array, Array, Array]:
        """Return the products of `_known_products` with the references."""
        found = self.objective.data.map_sum(_known_products, weights, self.scores, self.operand)
        parts = zip(*(np.split(array, 2, axis=-1) for array in found[:3]), strict=True)
        images = np.hstack([self.operand.complete(GroupSums(*part)) for part in parts])
        return images, *found[3:]

    def _explicit(self, weights: PerPartition, own: Array) -> Iterator[Array]:
        """Yield the curvature as a dense matrix, intercept last, output by output."""
        objective = self.objective
        for k in range(self.coef.shape[1]):
            (matrix,) = objective.data.map_sum(_explicit, weights, self.coef, objective.groups, k)
            yield with_diagonal(matrix, objective, own[:, k])


class _FirstOrder(NamedTuple):
    """What value and gradient are made of: `GroupSums` of the gradient, and sums over the rows.

    ``by_entries`` is ``f(X)' h`` and ``h_total`` the sum of ``h``, for the diagonal; ``alone`` is that of
    `Block.group_gradient`.
    """

    product: Array
    transposed: Array
    total: Array
    loss: Array
    sums: Array
    by_entries: Array
    alone: Array
    h_total: Array


@dataclass(frozen=True)
class GroupedCurvature(Curvature):
    """The Hessian or the majoriser at a point.

    ``diagonal`` is the part of the penalty, and ``alone`` as in `GroupDirection.complete`.
    """

    objective: GroupedObjective
    operand: GroupOperand
    diagonal: Array
    weights: PerPartition
    alone: GroupSums
    preconditioner: Preconditioner
    deflation: DeflationSpace | None = None

    def product(self, direction: Array) -> Array:
        objective, along = self.objective, GroupDirection(self.operand, direction[:-1])
        *found, sums = objective.data.map_sum(_product, self.weights, along, direction[-1])
        out = np.empty_like(direction)
        np.multiply(self.diagonal, direction[:-1], out=out[:-1])
        out[:-1] += along.complete(GroupSums(*found), self.alone)
        out[-1] = sums if objective.fit_intercept else direction[-1]
        add_low_rank(objective.penalty, direction, out)
        return out

    def precondition(self, residual: Array) -> Array:
        return self.preconditioner.solve(residual)

    def select(self, outputs: Any) -> GroupedCurvature:
        return replace(
            self,
            objective=self.objective.select(outputs),
            operand=GroupOperand(self.operand.groups, np.ascontiguousarray(self.operand.coef[:, outputs])),
            diagonal=np.ascontiguousarray(self.diagonal[:, outputs]),
            weights=self.objective.data.map(_select, self.weights, outputs),
            alone=GroupSums(*(np.ascontiguousarray(array[..., outputs]) for array in self.alone)),
            preconditioner=self.preconditioner.select(outputs),
            deflation=None if self.deflation is None else self.deflation.select(outputs),
        )


# Functions of one partition ---------------------------------------------------------------------------------------


@products(1)
def _scores(part: Rows, operand: GroupOperand, intercept: Array) -> Scores:
    mean, variance = part.X.group_moments(operand)
    return Scores(mean + intercept, variance)


@products(1)
def _loss_and_gradient(part: Rows, loss: RowLoss, operand: GroupOperand, scores: Scores) -> _FirstOrder:
    by_mean, by_variance = loss.smoothed.gradient(part.y[:, loss.outputs], scores.mean, scores.variance)
    by_mean = part.sample_weight[:, None] * by_mean
    h = 2.0 * part.sample_weight[:, None] * by_variance
    product, by_entries, alone = part.X.group_gradient(operand, by_mean, h)
    sums = by_mean.sum(axis=0), by_entries, alone, h.sum(axis=0)
    return _FirstOrder(product.product, product.transposed, product.total, loss.value(part, scores), *sums)


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
def _product(part: Rows, weights: Array, along: GroupDirection, shift: Array) -> tuple[Array, ...]:
    """Return the rows' part of a product, as `GroupSums`, and the sums of what ``X'`` multiplies."""
    product, sums = part.X.group_curvature(along, weights, shift)
    return *product, sums


@products(1)
def _known_products(part: Rows, weights: Array, scores: Scores, operand: GroupOperand) -> tuple[Array, ...]:
    """Return the rows' part of the products with the coefficients and with the intercept, as `GroupSums`.

    Then the sums of what ``X'`` multiplies, ``(X * X)' A``, and the number of rows with curvature.
    """
    A, B, D, h = np.hsplit(weights, 4)
    mean, variance = scores
    left = np.hstack([A * mean + B * variance, A, B * mean + D * variance + h, B])
    images, squares = part.X.group_images(operand, left)
    sums = left[:, : 2 * A.shape[1]].sum(axis=0)
    return *images, sums, squares, np.count_nonzero(A, axis=0)


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
