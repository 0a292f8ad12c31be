"""The objective of a block of rows if features are corrupted in groups: `objective.grouped` with a `Summary`.

The summary has a diagonal and three terms of rank one: of the noise's curvature between the features of a group it
keeps what it has along the coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dropmargin.objective import grouped
from dropmargin.objective.base import DeflationSpace
from dropmargin.objective.grouped import GroupedCurvature, GroupedObjective, GroupedPoint
from dropmargin.objective.preconditioner import Diagonal
from dropmargin.online.summary import Summary
from dropmargin.typing import Array


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
