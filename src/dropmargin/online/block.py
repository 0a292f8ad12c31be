"""The objective of a block of rows with a `Summary` of the earlier rows as its penalty.

It is a `MomentObjective` for few steps on rows in memory: all that a step needs comes from one transposed product, and
the preconditioner is the diagonal, which the next summary needs as well. A kink is smoothed by noise on the scores
(`SmoothedByNoise`), which moves the minimum less than the barrier of `MomentLoss.smoothed`.

If features are corrupted in groups, it is a `GroupedObjective`. The summary has a diagonal and three terms of rank one:
of the noise's curvature between the features of a group it keeps what it has along the coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dropmargin.data import Rows, SquaredDeviation, products
from dropmargin.losses.base import Expanded, MomentLoss
from dropmargin.objective import MomentObjective, grouped
from dropmargin.objective.base import DeflationSpace
from dropmargin.objective.curvature import CurvatureWeights, MomentCurvature, as_column
from dropmargin.objective.grouped import GroupedCurvature, GroupedObjective, GroupedPoint
from dropmargin.objective.moment import MomentPoint
from dropmargin.objective.plane import MomentPlane
from dropmargin.objective.preconditioner import Diagonal
from dropmargin.objective.row_functions import RowLoss, Scores, take_scores
from dropmargin.online.summary import Summary
from dropmargin.typing import Array


class SmoothedByNoise(MomentLoss):
    """A loss whose kink is smoothed by noise on the scores of this standard deviation, see the module's docstring."""

    def __init__(self, loss: MomentLoss, deviation: float) -> None:
        self._loss, self._variance = loss, deviation**2
        self.kink, self.has_majoriser = loss.kink, loss.has_majoriser

    def value(self, y: Array, m: Array, v: Array) -> Array:
        return self._loss.value(y, m, v + self._variance)

    def gradient(self, y: Array, m: Array, v: Array) -> tuple[Array, Array]:
        return self._loss.gradient(y, m, v + self._variance)

    def curvature(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        return self._loss.curvature(y, m, v + self._variance)

    def majoriser(self, y: Array, m: Array, v: Array) -> Array:
        return self._loss.majoriser(y, m, v + self._variance)

    def smoothed(self, width: float | Array) -> MomentLoss:
        return self._loss.smoothed(width)

    def expand(self, y: Array, m: Array, v: Array) -> Expanded:
        return self._loss.expand(y, m, v + self._variance)


@dataclass(frozen=True)
class BlockObjective(MomentObjective):
    """See the module's docstring."""

    penalty: Summary

    def at(self, coef: Array) -> BlockPoint:
        return BlockPoint(self, coef, super().at(coef).scores)

    def select(self, outputs: Any) -> BlockObjective:
        return replace(self, outputs=self.outputs[outputs], penalty=self.penalty.select(outputs))


class BlockPoint(MomentPoint):
    """The objective at ``coef``. The gradient is computed with a curvature."""

    objective: BlockObjective

    @cached_property
    def _derivatives(self) -> Any:
        return self.objective.data.map(_expand, self.objective.row_loss, self.scores)

    @cached_property
    def _penalty(self) -> tuple[Array, Array]:
        return self.objective.penalty.at(self.coef)

    @cached_property
    def value(self) -> Array:  # type: ignore[override]
        (loss,) = self.objective.data.map_sum(_loss, self._derivatives)
        return self._penalty[0] + loss

    @cached_property
    def gradient(self) -> Array:  # type: ignore[override]
        _ = self._hessian
        return self.gradient

    @cached_property
    def _hessian(self) -> MomentCurvature:
        is_coupled = not self.objective.variance.is_zero
        return self._expand(self.objective.data.map(_hessian_weights, self._derivatives, is_coupled), is_coupled)

    def hessian(self, direct: bool = False) -> MomentCurvature:
        return self._hessian

    def majoriser(self, direct: bool = False) -> MomentCurvature:
        data, row_loss = self.objective.data, self.objective.row_loss
        return self._expand(data.map(_majoriser_weights, row_loss, self.scores), False)

    def plane(self, direction: Array) -> MomentPlane:
        return MomentPlane(self, direction)

    def _expand(self, weights: Any, is_coupled: bool) -> MomentCurvature:
        """Return the curvature with these weights of the rows, and set the gradient."""
        objective, coef, n = self.objective, self.coef, self.coef.shape[1]
        back, squares, sums = objective.data.map_sum(_transposed_products, self._derivatives, weights, self.scores)
        known = slice(n, 5 * n if is_coupled else 3 * n)
        last = slice(-n, None)
        noise = objective.variance_transposed(back[:, last] if objective.variance.moves_entries else None, sums[last])
        gradient = self._penalty[1].copy()
        gradient[:-1] += back[:, :n]
        gradient[:-1] += noise * coef[:-1]
        gradient[-1] = gradient[-1] + sums[:n] if objective.fit_intercept else 0.0
        self.gradient = gradient
        own = objective.penalty.curvature(coef) + noise
        unknown = Diagonal(np.ones((1, 1)))  # until the product with the intercept is known
        curvature = MomentCurvature(objective, coef, own, weights, is_coupled, unknown)
        images = back[:, n : 3 * n]
        if is_coupled and objective.variance.moves_entries:
            scale = as_column(objective.variance.slope) * coef[:-1]
            images = images + np.hstack([scale, scale]) * back[:, 3 * n : 5 * n]
        curvature = curvature.with_deflation(images, sums[known])
        assert curvature.deflation is not None
        diagonal = np.ones_like(coef)  # that of the intercept has no effect: its product is known
        diagonal[:-1] = own + squares
        if objective.fit_intercept:
            diagonal[:-1] = objective.penalty.centred(diagonal[:-1], curvature.deflation.intercept_image, own)
        return replace(curvature, preconditioner=Diagonal(diagonal))

    def select(self, outputs: Any) -> BlockPoint:
        scores = self.objective.data.map(take_scores, self.scores, outputs)
        return BlockPoint(self.objective.select(outputs), np.ascontiguousarray(self.coef[:, outputs]), scores)


def _expand(part: Rows, loss: RowLoss, scores: Scores) -> Expanded:
    """Return the weighted loss of each row and its derivatives."""
    with np.errstate(over="ignore", invalid="ignore"):  # after a step too far, whose value is checked
        found = loss.loss.expand(part.y[:, loss.outputs], *scores)
    return Expanded(*(part.sample_weight[:, None] * values for values in found))


def _loss(part: Rows, derivatives: Expanded) -> tuple[Array]:
    return (derivatives.value.sum(axis=0),)


def _hessian_weights(part: Rows, derivatives: Expanded, is_coupled: bool) -> CurvatureWeights:
    n, by_mean = derivatives.value.shape[1], derivatives.mean_twice
    if not is_coupled:
        return CurvatureWeights(by_mean, n)
    return CurvatureWeights(np.hstack([by_mean, 2.0 * derivatives.mixed, 4.0 * derivatives.variance_twice]), n)


def _majoriser_weights(part: Rows, loss: RowLoss, scores: Scores) -> CurvatureWeights:
    weights = loss.loss.majoriser(part.y[:, loss.outputs], *scores)
    return CurvatureWeights(part.sample_weight[:, None] * weights, weights.shape[1])


@products(1)
def _transposed_products(
    part: Rows, derivatives: Expanded, weights: CurvatureWeights, scores: Scores
) -> tuple[Array, Array, Array]:
    """Return the products for gradient, coefficients, intercept and diagonal, and the sums of their left sides.

    The columns are ``X'`` for the gradient, the coefficients and the intercept, then ``f(X)'`` for the coefficients and
    the intercept, if mean and variance are coupled, and for the gradient.
    """
    n, m, v = weights.n, scores.mean, scores.variance
    left = [derivatives.by_mean, weights.by_mean * m, weights.by_mean]
    if weights.is_coupled:
        left[1] += weights.mixed * v
        left += [weights.mixed * m + weights.by_variance * v, weights.mixed]
    joined = np.hstack([*left, 2.0 * derivatives.by_variance])
    sums, entry = joined.sum(axis=0), part.X.entry
    if isinstance(entry, SquaredDeviation):  # the squares follow from the column of the intercept
        back, reference = part.X.backward(np.hstack([joined, weights.by_mean]), 3 * n), entry.reference[:, None]
        squares = back[:, -n:] + 2.0 * reference * back[:, 2 * n : 3 * n]
        if not entry.less_zero:
            squares -= np.square(reference) * sums[2 * n : 3 * n]
        return back[:, :-n], np.maximum(squares, 0.0, out=squares), sums
    used = joined if entry is not None else joined[:, : 3 * n]
    return *part.X.backward_and_squares(used, 3 * n, weights.by_mean), sums


# Groups of features -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupedBlockObjective(GroupedObjective):
    """See the module's docstring."""

    penalty: Summary

    def at(self, coef: Array) -> GroupedBlockPoint:
        return GroupedBlockPoint(self, coef, super().at(coef).scores)

    def select(self, outputs: Any) -> GroupedBlockObjective:
        return replace(super().select(outputs), penalty=self.penalty.select(outputs))


class GroupedBlockPoint(GroupedPoint):
    """The objective at ``coef``."""

    objective: GroupedBlockObjective

    @cached_property
    def _evaluated(self) -> tuple[Array, Array, Array]:
        value, gradient, noise_curvature = GroupedPoint._evaluated.func(self)  # type: ignore[attr-defined]
        if self.objective.fit_intercept:
            gradient[-1] += self.objective.penalty.at(self.coef)[1][-1]
        return value, gradient, noise_curvature

    def _curvature(self, rule: Any, of_penalty: Any, is_coupled: bool, direct: bool) -> GroupedBlockCurvature:
        objective, coef = self.objective, self.coef
        penalty = objective.penalty
        weights = objective.data.map(grouped._weights, rule, objective.row_loss, self.scores)
        images, sums, squares, _ = self._known_images(weights)
        (coef_back, intercept_back), (coef_sums, intercept_sums) = np.hsplit(images, 2), np.split(sums, 2)
        intercept = np.zeros_like(coef)
        intercept[-1] = 1.0
        coef_image = np.vstack([coef_back + of_penalty * coef[:-1], coef_sums]) + penalty.low_rank_product(coef)
        intercept_image = np.vstack([intercept_back, intercept_sums]) + penalty.low_rank_product(intercept)
        diagonal = np.ones_like(coef)  # that of the intercept has no effect: its product is known
        own = of_penalty + self.noise_curvature
        diagonal[:-1] = own + squares
        if objective.fit_intercept:
            diagonal[:-1] = penalty.centred(diagonal[:-1], intercept_image, own)
        else:  # it is zero and coupled to nothing
            coef_image[-1], intercept_image = coef[-1], intercept
        deflation = DeflationSpace(coef, coef_image, intercept_image)
        return GroupedBlockCurvature(
            objective, self.operand, of_penalty, weights, self._alone, Diagonal(diagonal), deflation
        )


@dataclass(frozen=True)
class GroupedBlockCurvature(GroupedCurvature):
    """The Hessian or the majoriser at a point, with the summary's terms of rank one."""

    def product(self, direction: Array) -> Array:
        out = super().product(direction)
        of_penalty = self.objective.penalty.low_rank_product(direction)
        assert of_penalty is not None
        out[:-1] += of_penalty[:-1]
        if self.objective.fit_intercept:
            out[-1] += of_penalty[-1]
        return out


AnyPoint = BlockPoint | GroupedBlockPoint
